"""What chooses the best epoch, and what a member without one does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_signs
from tidewalk.trading.account import allowed, book, by_session
from tidewalk.trading.env import EnvConfig
from tidewalk.train.evaluate import trade_members, validate
from tidewalk.train.population import Best
from worlds import base, base_state, make_world


def session_world(env=None):
    """A market with a roll whose validation range does not begin with a session: 24 bars a day."""
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=700)
    return make_world(windows=1, seeds=1, env=env, data=data, select="sharpe")


@pytest.mark.parametrize("env", [EnvConfig(), EnvConfig(flat_at_close=True)], ids=str)
@pytest.mark.parametrize("start", [0, 17, 18, 19])
def test_the_session_sharpe_is_that_of_the_books(env, start):
    """The validation range is moved bar by bar over a session break: a decision counts where it fills."""
    world = session_world(env)
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
    net = sessions.gross_ticks - 1.0 * sessions.sides
    assert len(np.unique(net)) > 3
    assert float(score.score) == pytest.approx(net.mean() / net.std(ddof=1), rel=1e-4)


def test_a_member_without_a_best_epoch_stays_flat_in_the_test_months():
    world, best = base(), base_state().best
    epochs = jnp.array([0, 1, 1, 0], jnp.int32)
    path = jax.jit(functools.partial(trade_members, world.program))(
        *world.fixed, dataclasses.replace(best, epoch=epochs)
    )
    traded = (np.asarray(path) != world.program.env.flat).any(axis=1)
    assert traded.tolist() == [False, True, True, False]
