"""What chooses the best epoch, and what a member without one does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_signs, random_half_spreads
from tidewalk.market.device import CLOSING
from tidewalk.trading.account import book, by_session
from tidewalk.trading.env import EnvConfig, Tally
from tidewalk.train import batches
from tidewalk.train.evaluate import trade_ensembles, trade_members, validate_all
from tidewalk.train.population import Best
from worlds import base, base_state, made_limits, make_world

SPREAD = EnvConfig(positions=2, lots_per_level=2, direction="long", roll_as="spread", decision_delay=1)


def session_world(env, *, is_recorded: bool, limits=None):
    """A market with a roll whose validation range does not begin with a session: 24 bars a day."""
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=700)
    data = random_half_spreads(data) if is_recorded else data
    return make_world(windows=1, seeds=1, env=env, data=data, select="sharpe", has_spread=is_recorded, limits=limits)


@pytest.mark.parametrize(
    ("env", "start", "is_recorded", "limits"),
    [(env, start, False, {}) for env in (EnvConfig(), EnvConfig(flat_at_close=True)) for start in (0, 17, 18, 19)]
    + [(EnvConfig(flat_at_close=True), 18, True, {}), (SPREAD, 18, True, {}), (SPREAD, 18, True, {"daily": 30})],
    ids=str,
)
def test_the_session_sharpe_is_that_of_the_books(env, start, is_recorded, limits):
    """The validation range is moved bar by bar over a session break: a decision counts where it fills."""
    world = session_world(env, is_recorded=is_recorded, limits=made_limits(**limits) if limits else None)
    first = 605 - 605 % 24 + start + 4
    windows = dataclasses.replace(world.windows, val=jnp.array([[first, first + 150]], jnp.int32))
    batched = networks(world)
    score = jax.jit(functools.partial(validate_all, world.program))(world.market, windows, world.members, batched)
    policy = jax.jit(functools.partial(trade_members, dataclasses.replace(world.program, test_bars=150)))
    zero, one = jnp.zeros(1), jnp.ones(1, jnp.int32)
    best = Best(params=batched, score=zero, epoch=one, spread=zero, tally=Tally(one, one))
    path = policy(world.market, dataclasses.replace(windows, test=windows.val), world.members, best)
    lots = (np.asarray(path[0], np.int64) - env.flat) * env.lots_per_level
    closes = (world.data.flags[first : first + 150] & CLOSING) != 0
    assert lots[-1] == 0
    assert not (env.flat_at_close and lots[closes].any())
    sessions = by_session(world.data, book(world.data, first, lots, env.roll_as))
    net = sessions.gross_ticks - 1.0 * sessions.sides - sessions.crossed_ticks - 1.5 * sessions.rolled
    assert not limits or sessions.rolled.any() or (net < -30).any()
    assert bool(sessions.crossed_ticks.any()) == is_recorded
    assert len(np.unique(net)) > 3
    assert float(score.score[0]) == pytest.approx(net.mean() / net.std(ddof=1), rel=1e-4)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_the_net_reward_that_chooses_the_best_epoch_is_that_of_the_books(is_recorded):
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=700)
    data = random_half_spreads(data) if is_recorded else data
    world = make_world(windows=1, seeds=1, data=data, has_spread=is_recorded)
    windows = dataclasses.replace(world.windows, test=world.windows.val)
    program = dataclasses.replace(world.program, test_bars=world.program.val_bars)
    batched = networks(world)
    score = jax.jit(functools.partial(validate_all, program))(world.market, windows, world.members, batched)
    zero, one = jnp.zeros(1), jnp.ones(1, jnp.int32)
    best = Best(params=batched, score=zero, epoch=one, spread=zero, tally=Tally(one, one))
    path = jax.jit(functools.partial(trade_members, program))(world.market, windows, world.members, best)
    first, stop = (int(edge) for edge in windows.val[0])
    account = book(data, first, np.asarray(path[0], np.int64)[: stop - first] - 1)
    net = account.gross_ticks.sum() - 1.0 * account.sides.sum() - account.crossed_ticks.sum()
    assert float(score.score[0]) == pytest.approx(0.1 * net, rel=1e-5)
    assert (score.tally.crossed_ticks is None) != is_recorded


def test_an_ensemble_of_equals_is_halted_as_each_of_them_is():
    """Every policy has an account of its own, with the limits of its window."""
    ticks = np.array([40, 90])
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24)
    limits = jax.tree.map(lambda *leaves: np.asarray(leaves), *(made_limits(drawdown=most) for most in ticks))
    world = make_world(data=data, limits=limits)
    one = jax.jit(lambda: world.program.agent.init(world.members.key[0]).params)()
    alike = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (4, *leaf.shape)), one)
    best = Best(alike, jnp.zeros(4), jnp.ones(4, jnp.int32), jnp.ones(4), base_state().best.tally)
    fixed = (*world.fixed, best)
    members, ensembles = jax.jit(
        lambda *given: (trade_members(world.program, *given), trade_ensembles(world.program, *given, seeds=2))
    )(*fixed)
    assert np.array_equal(np.asarray(members)[::2], ensembles)
    for path, (first, stop), most in zip(np.asarray(ensembles, np.int64), world.windows.test, ticks, strict=True):
        account = book(data, int(first), path[: int(stop - first)] - 1)
        equity = np.cumsum(account.gross_ticks - account.sides)
        drawdown = np.maximum.accumulate(np.maximum(equity, 0)) - equity
        row = int(np.argmax(drawdown >= most))
        assert 0 < row < len(equity) - 10
        assert not account.after_lots[row + 1 :].any()
        assert account.after_lots[row] != 0


def test_a_member_without_a_best_epoch_stays_flat_in_the_test_months():
    world, best = base(), base_state().best
    epochs = jnp.array([0, 1, 1, 0], jnp.int32)
    path = jax.jit(functools.partial(trade_members, world.program))(
        *world.fixed, dataclasses.replace(best, epoch=epochs)
    )
    traded = (np.asarray(path) != world.program.env.flat).any(axis=1)
    assert traded.tolist() == [False, True, True, False]


def uneven_world():
    """Three windows whose validation ranges have 20, 200 and 60 decisions, two members each, and random networks."""
    world = make_world(windows=3)
    first = world.windows.val[:, :1]
    val = jnp.concatenate([first, first + jnp.array([[20], [200], [60]], jnp.int32)], axis=1)
    return dataclasses.replace(world, windows=dataclasses.replace(world.windows, val=val)), networks(world)


UNEVEN = (20, 20, 200, 200, 60, 60)


def networks(world):
    agent = world.program.agent
    return jax.jit(jax.vmap(lambda key: agent.params(agent.init(key))))(world.members.key)


def scores_of(world, params, **changes):
    program = dataclasses.replace(world.program, **changes)
    return jax.jit(functools.partial(validate_all, program))(*world.fixed, params)


@pytest.mark.parametrize("compose", ["scan", "associative"])
def test_buckets_and_batches_change_no_score(compose, monkeypatch):
    """All members at once, padded to the longest; in buckets of a few; and each on its own in chunks of 7 bars."""
    world, params = uneven_world()
    whole = scores_of(world, params, compose="associative")
    monkeypatch.setattr(batches, "LEAST_CHUNK", 7)
    bar = 4 * 3 * (2 * 21 + 3)  # the table of a bar: three positions, 18 observed features and three
    monkeypatch.setattr(batches, "SCRATCH_BYTES", bar * 7 * 4)
    monkeypatch.setattr(batches, "CACHE_BYTES", bar * 7)
    for planned in ((), UNEVEN):
        found = scores_of(world, params, compose=compose, val_lengths=planned)
        assert np.array_equal(found.tally.gross_ticks, whole.tally.gross_ticks)
        assert np.array_equal(found.tally.sides, whole.tally.sides)
        np.testing.assert_allclose(found.spread, whole.spread, rtol=1e-5)
        np.testing.assert_allclose(found.score, whole.score, rtol=1e-5)
    assert len(np.unique(whole.tally.sides)) > 3


def test_a_range_longer_than_planned_is_never_chosen():
    """A plan for other windows would cut it short without a word."""
    found = scores_of(*uneven_world(), val_lengths=(20, 20, 60, 60, 60, 60))
    assert np.isnan(found.score).tolist() == np.isnan(found.spread).tolist() == [False, False, True, True, False, False]


def test_the_paths_of_uneven_test_months_are_those_of_each_month_alone():
    world, params = uneven_world()
    windows = dataclasses.replace(world.windows, test=world.windows.val)
    program = dataclasses.replace(world.program, test_bars=200)
    ones = jnp.ones(6)
    best = Best(params, ones, jnp.ones(6, jnp.int32), ones, Tally(ones.astype(jnp.int32), ones.astype(jnp.int32)))
    assert len(batches.buckets(UNEVEN, 6, 200, most_padding=0.5)) > 1
    for trade, count in ((trade_members, 6), (functools.partial(trade_ensembles, seeds=2), 3)):
        paths = [
            np.asarray(jax.jit(functools.partial(trade, form))(world.market, windows, world.members, best))
            for form in (program, dataclasses.replace(program, test_lengths=UNEVEN))
        ]
        assert paths[0].shape == (count, 200)
        assert np.array_equal(*paths)
        beyond = np.arange(200)[None, :] >= np.asarray(UNEVEN)[:: 6 // count, None]
        assert (paths[0][beyond] == program.env.flat).all()
        assert (paths[0] != program.env.flat).any(axis=1).all()
