"""The cost surface on markets whose answer is known: delays, costs, and account limits at every point."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_signs, random_half_spreads
from tidewalk.agents.agent import Agent
from tidewalk.market.device import NO_ENTRY
from tidewalk.trading.account import book
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig, no_tally
from tidewalk.trading.limits import LimitConfig, resolve
from tidewalk.train.cost_surface import surface_tallies
from tidewalk.train.evaluate import trade_ensembles, trade_members
from tidewalk.train.population import Best
from worlds import World, make_world

MOVE_TICKS = 10


def follower(env: EnvConfig) -> Agent:
    """An agent whose only parameter is how much it likes the direction of the last move; negative: it fades."""

    def q_values(liking, observation):
        lots = jnp.arange(env.num_positions, dtype=jnp.float32) - env.flat
        return liking["sign"] * observation[0] * lots

    def nothing(*_):
        raise AssertionError("only acted with")

    return Agent(nothing, nothing, q_values, nothing, nothing, config=None, n_step=1, updates_per_step=1, batch_size=1)


def best_of(likings: list[float], epochs: list[int]) -> Best:
    count = len(likings)
    return Best(
        params={"sign": jnp.array(likings, jnp.float32)},
        score=jnp.zeros(count),
        epoch=jnp.array(epochs, jnp.int32),
        spread=jnp.ones(count),
        tally=no_tally(EnvConfig(), (count,), has_spread=False),
    )


def surface(world: World, best: Best, delays: tuple[int, ...], limits=None):
    run = jax.jit(functools.partial(surface_tallies, world.program, seeds=2, delays=delays))
    return jax.tree.map(np.asarray, run(world.market, world.windows, best, limits))


# validity.md 2.2: following earns .4 - .6 c per bar at P = .7, fading .4 - 1.4 c at P = .3; break-even 2/3 and .285714.
# The direction k + 1 bars ago repeats with (1 + (2P - 1)^(k + 1)) / 2, and the number of turns does not change.
@pytest.mark.parametrize(("persistence", "liking", "break_even"), [(0.7, 1.0, 2 / 3), (0.3, -1.0, 0.285714)])
def test_a_planted_edge_falls_with_every_bar_of_delay_as_the_closed_form_says(persistence, liking, break_even):
    env = EnvConfig()
    data = chain_market(planted_signs(120_000, persistence, seed=1), MOVE_TICKS, bars_per_day=24)
    world = make_world(windows=1, data=data, env=env, agent=follower(env), test_bars=59_787)
    count = int(world.windows.test[0, 1] - world.windows.test[0, 0])
    assert count == world.program.test_bars
    done = surface(world, best_of([liking, liking], [1, 0]), (0, 1, 2, 5))
    assert done.gross_ticks.shape == (1, 3, 4, 1)
    ensemble, first, second = done.gross_ticks[0, :, :, 0] / count / MOVE_TICKS
    assert np.array_equal(ensemble, first)
    assert not second.any()
    error = 4 / np.sqrt(count)
    edge = 2 * persistence - 1
    signs = np.array([liking * edge ** (k + 1) for k in (0, 1, 2, 5)])
    np.testing.assert_allclose(ensemble, signs, atol=error)
    sides = done.sides[0, 0, :, 0] / count
    np.testing.assert_allclose(sides, 2 * (1 - persistence), atol=4 * 2 * np.sqrt(0.21 / count))
    assert ensemble[0] / sides[0] == pytest.approx(break_even, abs=0.02)


def ruled_world(env: EnvConfig) -> World:
    """A walk with a roll, late bars and spreads in the test months of two windows; a real network."""
    data = chain_market(np.random.default_rng(0).integers(-9, 10, 1200), 1, bars_per_day=24, roll_at=900)
    late = np.where(np.arange(1200) % 24 >= 20, NO_ENTRY, 0).astype(np.int32)
    data = random_half_spreads(dataclasses.replace(data, flags=data.flags | late))
    return make_world(data=data, env=env, has_spread=True)


def traded(world: World, best: Best) -> np.ndarray:
    """Positions `[W, 1 + S, H]` as a study trades them: ensembles, then members."""
    ensembles = jax.jit(functools.partial(trade_ensembles, world.program, seeds=2))
    members = jax.jit(functools.partial(trade_members, world.program))
    together = np.asarray(ensembles(world.market, world.windows, world.members, best))
    alone = np.asarray(members(world.market, world.windows, world.members, best))
    return np.concatenate([together[:, None], alone.reshape(2, 2, -1)], axis=1)


def some_best(world: World) -> Best:
    agent = world.program.agent
    state = jax.vmap(agent.init)(world.members.key)
    tally, epochs = no_tally(EnvConfig(), (4,), has_spread=False), jnp.array([1, 1, 1, 0], jnp.int32)
    return Best(agent.params(state), jnp.zeros(4), epochs, jnp.ones(4), tally)


def test_every_delay_is_traded_as_a_study_with_that_delay_would():
    """The books of the paths of studies with the delays 0 and 3, against the pass over both at once."""
    env = EnvConfig(no_entry_minutes=60, flat_at_close=True, roll_as="spread")
    world = ruled_world(env)
    best = some_best(world)
    done = surface(world, best, (0, 3))
    assert not np.array_equal(done.gross_ticks[:, :, 0], done.gross_ticks[:, :, 1])
    for number, delay in enumerate((0, 3)):
        late = dataclasses.replace(env, decision_delay=delay)
        lagged = dataclasses.replace(world, program=dataclasses.replace(world.program, env=late))
        paths = traded(lagged, best).astype(np.int64) - env.flat
        for window, (first, stop) in enumerate(np.asarray(world.windows.test).tolist()):
            for policy in range(3):
                account = book(world.data, first, paths[window, policy, : stop - first], env.roll_as)
                at = (window, policy, number, 0)
                assert done.gross_ticks[at] == account.gross_ticks.sum()
                assert done.sides[at] == account.sides.sum()
                assert done.crossed_ticks[at] == account.crossed_ticks.sum()
                assert (0 if done.rolled is None else done.rolled[at]) == account.rolled.sum()
    assert done.sides[:, 0].all()
    assert not done.sides[1, 2].any()


@pytest.mark.slow
def test_with_account_limits_every_point_is_followed_at_its_own_costs():
    """Costs that halt an account sooner: each point is what a study at these costs would have traded."""
    env = EnvConfig()
    world = ruled_world(env)
    best = some_best(world)
    config = LimitConfig(daily_loss_usd=600.0, trailing_drawdown_usd=4000.0)
    points = [resolve(config, Costs(12.5, commission, 0.5)) for commission in (0.0, 2.25, 20.0)]
    grid = jax.tree.map(lambda *leaves: np.array([leaves, leaves], np.int32), *points)
    done = surface(world, best, (0,), grid)
    assert done.sides.shape == (2, 3, 1, 3)
    assert len(np.unique(done.sides[0, 0])) == 3
    for number in range(3):
        limits = jax.tree.map(lambda leaf, n=number: jnp.repeat(jnp.asarray(leaf[:, n]), 2), grid)
        limited = dataclasses.replace(world, members=dataclasses.replace(world.members, limits=limits))
        paths = traded(limited, best).astype(np.int64) - env.flat
        for window, (first, stop) in enumerate(np.asarray(world.windows.test).tolist()):
            for policy in range(3):
                account = book(world.data, first, paths[window, policy, : stop - first])
                assert done.sides[window, policy, 0, number] == account.sides.sum()
                assert done.gross_ticks[window, policy, 0, number] == account.gross_ticks.sum()
