"""What chooses the best epoch, and what a member without one does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_signs, random_half_spreads
from tidewalk.trading.account import allowed, book, by_session
from tidewalk.trading.env import EnvConfig
from tidewalk.train.evaluate import trade_members, validate
from tidewalk.train.population import Best
from worlds import base, base_state, make_world


def session_world(env, *, is_recorded: bool):
    """A market with a roll whose validation range does not begin with a session: 24 bars a day."""
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=700)
    data = random_half_spreads(data) if is_recorded else data
    return make_world(windows=1, seeds=1, env=env, data=data, select="sharpe", has_spread=is_recorded)


@pytest.mark.parametrize(
    ("env", "start", "is_recorded"),
    [(env, start, False) for env in (EnvConfig(), EnvConfig(flat_at_close=True)) for start in (0, 17, 18, 19)]
    + [(EnvConfig(flat_at_close=True), 18, True)],
    ids=str,
)
def test_the_session_sharpe_is_that_of_the_books(env, start, is_recorded):
    """The validation range is moved bar by bar over a session break: a decision counts where it fills."""
    world = session_world(env, is_recorded=is_recorded)
    first = 605 - 605 % 24 + start + 4
    windows = dataclasses.replace(world.windows, val=jnp.array([[first, first + 150]], jnp.int32))
    member = jax.tree.map(lambda leaf: leaf[0], world.members)
    params = world.program.agent.params(world.program.agent.init(member.key))
    score = jax.jit(functools.partial(validate, world.program))(world.market, windows, member, params)
    policy = jax.jit(functools.partial(trade_members, dataclasses.replace(world.program, test_bars=150)))
    zero, one = jnp.zeros(1), jnp.ones(1, jnp.int32)
    batched = jax.tree.map(lambda leaf: leaf[None], params)
    best = Best(params=batched, score=zero, epoch=one, spread=zero, gross_ticks=one, sides=one)
    path = policy(world.market, dataclasses.replace(windows, test=windows.val), world.members, best)
    lots = np.asarray(path[0], np.int64) - env.flat
    assert np.array_equal(lots, allowed(world.data, env, first, lots))
    sessions = by_session(world.data, book(world.data, first, lots))
    net = sessions.gross_ticks - 1.0 * sessions.sides - sessions.crossed_ticks
    assert bool(sessions.crossed_ticks.any()) == is_recorded
    assert len(np.unique(net)) > 3
    assert float(score.score) == pytest.approx(net.mean() / net.std(ddof=1), rel=1e-4)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_the_net_reward_that_chooses_the_best_epoch_is_that_of_the_books(is_recorded):
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=700)
    data = random_half_spreads(data) if is_recorded else data
    world = make_world(windows=1, seeds=1, data=data, has_spread=is_recorded)
    windows = dataclasses.replace(world.windows, test=world.windows.val)
    program = dataclasses.replace(world.program, test_bars=world.program.val_bars)
    member = jax.tree.map(lambda leaf: leaf[0], world.members)
    params = program.agent.params(program.agent.init(member.key))
    score = jax.jit(functools.partial(validate, program))(world.market, windows, member, params)
    zero, one = jnp.zeros(1), jnp.ones(1, jnp.int32)
    batched = jax.tree.map(lambda leaf: leaf[None], params)
    best = Best(params=batched, score=zero, epoch=one, spread=zero, gross_ticks=one, sides=one)
    path = jax.jit(functools.partial(trade_members, program))(world.market, windows, world.members, best)
    first, stop = (int(edge) for edge in windows.val[0])
    account = book(data, first, np.asarray(path[0], np.int64)[: stop - first] - 1)
    net = account.gross_ticks.sum() - 1.0 * account.sides.sum() - account.crossed_ticks.sum()
    assert float(score.score) == pytest.approx(0.1 * net, rel=1e-5)
    assert (score.crossed_ticks is None) != is_recorded


def test_a_member_without_a_best_epoch_stays_flat_in_the_test_months():
    world, best = base(), base_state().best
    epochs = jnp.array([0, 1, 1, 0], jnp.int32)
    path = jax.jit(functools.partial(trade_members, world.program))(
        *world.fixed, dataclasses.replace(best, epoch=epochs)
    )
    traded = (np.asarray(path) != world.program.env.flat).any(axis=1)
    assert traded.tolist() == [False, True, True, False]
