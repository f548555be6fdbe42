import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_market, planted_signs, random_half_spreads
from tidewalk.agents import replay
from tidewalk.core import keys
from tidewalk.market.device import GAP
from tidewalk.trading.account import allowed, book
from tidewalk.trading.env import EnvConfig
from tidewalk.train import rollout as rollouts
from tidewalk.train.population import Lanes, initial_state, window_of
from tidewalk.train.rollout import collect, ensemble_table, member_table, rollout, rollout_sequential, transitions


def roll_market():
    return chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=900)


@pytest.mark.parametrize("env", [EnvConfig(), EnvConfig(positions=2, lookback=3), EnvConfig(flat_at_close=True)])
@pytest.mark.parametrize("chunk", [64, 2048])
def test_all_forms_of_a_greedy_rollout_take_the_same_positions(world_factory, monkeypatch, env, chunk):
    monkeypatch.setattr(rollouts, "CHUNK", chunk)
    world = world_factory(env=env, data=roll_market())
    agent = world.program.agent
    params = agent.params(agent.init(keys.root_key(1)))
    window = window_of(world.windows, jnp.int32(0))
    table = member_table(agent, env, params)
    bars = world.program.test_bars
    forms = [
        rollout(
            dataclasses.replace(world.program, compose=compose),
            world.market,
            window,
            window.test,
            table,
            bars=bars,
            with_path=True,
        )
        for compose in ("scan", "associative")
    ]
    reference = rollout_sequential(world.program, world.market, window, window.test, table, bars=bars)
    assert len(np.unique(reference)) > 1
    for form in forms:
        assert np.array_equal(form.positions, reference)
    lots = np.asarray(reference, np.int64)[: int(window.test[1] - window.test[0])] - env.flat
    first = int(window.test[0])
    account = book(world.data, first, lots)
    assert np.array_equal(lots, allowed(world.data, env, first, lots))
    assert int(forms[0].gross_ticks) == account.gross_ticks.sum()
    assert int(forms[0].sides) == account.sides.sum()
    assert lots[-1] == 0
    assert forms[0].crossed_ticks is None


@pytest.mark.parametrize("env", [EnvConfig(), EnvConfig(positions=2, flat_at_close=True)])
def test_all_forms_cross_the_same_recorded_spreads_as_the_books(world_factory, monkeypatch, env):
    monkeypatch.setattr(rollouts, "CHUNK", 64)
    world = world_factory(env=env, data=random_half_spreads(roll_market()), has_spread=True)
    agent, program, window = world.program.agent, world.program, window_of(world.windows, jnp.int32(0))
    table, bars = member_table(agent, env, agent.params(agent.init(keys.root_key(1)))), program.test_bars
    reference = rollout_sequential(program, world.market, window, window.test, table, bars=bars)
    first = int(window.test[0])
    account = book(world.data, first, np.asarray(reference, np.int64)[: int(window.test[1]) - first] - env.flat)
    for compose in ("scan", "associative"):
        form = dataclasses.replace(program, compose=compose)
        found = rollout(form, world.market, window, window.test, table, bars=bars, with_path=False)
        assert float(found.crossed_ticks) == account.crossed_ticks.sum() > 0
        assert int(found.sides) == account.sides.sum()


def test_a_rollout_starts_flat_and_is_flat_beyond_its_range(world_factory):
    world = world_factory()
    window = window_of(world.windows, jnp.int32(1))

    def always_long(seen):
        return jnp.tile(jnp.array([[0.0, 0.0, 1.0]]), (3, 1))

    short = jnp.array([100, 110], jnp.int32)
    found = rollout(world.program, world.market, window, short, always_long, bars=16, with_path=True)
    assert found.positions.tolist() == [2] * 9 + [1] * 7
    assert int(found.sides) == 2


# validity.md B20, B24, 2.1: rewards, cuts and final observations against a slow reference
@pytest.mark.parametrize("is_recorded", [False, True])
def test_transitions_equal_a_scalar_reference(world_factory, is_recorded):
    world = world_factory(data=random_half_spreads(roll_market()) if is_recorded else roll_market())
    half_ticks = world.data.half_spread_ticks if is_recorded else np.zeros(world.data.num_bars)
    window = window_of(world.windows, jnp.int32(0))
    program = world.program
    rng = np.random.default_rng(0)
    count, n_step = 200, 3
    bar = rng.integers(10, 580, count)[:, None] + np.arange(n_step)
    bar[:50] = np.arange(50)[:, None] % 3 + 898 - 1 + np.arange(n_step)  # around the roll
    action = rng.integers(0, 3, (count, n_step))
    position = np.concatenate([rng.integers(0, 3, (count, 1)), action[:, :-1]], axis=1)
    fresh = rng.random((count, n_step)) < 0.3
    bar = np.where(np.cumsum(fresh[:, :] & (np.arange(n_step) > 0), axis=1) > 0, 20, bar)
    records = replay.pack(*(jnp.asarray(x, jnp.int32) for x in (bar, position, action)), jnp.asarray(fresh))
    gamma, cost = 0.9, 1.5
    batch = transitions(program, world.market, window, records, jnp.float32(cost), jnp.float32(gamma))
    move, flags = world.data.move_ticks, world.data.flags
    for row in range(count):
        total, k = 0.0, 0
        for j in range(n_step):
            if j > 0 and fresh[row, j]:
                break
            t, before, after = int(bar[row, j]), int(position[row, j]) - 1, int(action[row, j]) - 1
            traded = abs(before) + abs(after) if flags[t] & 4 else abs(after - before)
            total += gamma**j * (after * int(move[t]) - (cost + half_ticks[t + 1]) * traded) * 0.1
            k = j + 1
        assert float(batch.reward_t[row]) == pytest.approx(total, abs=1e-5)
        assert float(batch.discount_t[row]) == pytest.approx(gamma**k, rel=1e-6)
        final = np.concatenate([world.data.features[bar[row, 0] + k], np.eye(3)[action[row, k - 1]]])
        np.testing.assert_allclose(batch.observation_t[row], final, rtol=1e-6)


def test_lanes_stay_inside_the_train_decisions_and_restart_flat(world_factory):
    world = world_factory()
    window = window_of(world.windows, jnp.int32(0))
    state = initial_state(world.program, world.windows, world.members)
    lanes = jax.tree.map(lambda leaf: leaf[0], state.lanes)
    params = jax.tree.map(lambda leaf: leaf[0], state.agent.params)
    first, stop = (int(x) for x in window.train)
    step = jax.jit(functools.partial(collect, world.program, world.market, window, params, epsilon=jnp.float32(1.0)))
    lanes = dataclasses.replace(lanes, bar=lanes.bar.at[0].set(stop - 1), age=lanes.age.at[1].set(39))
    moved, rows = step(lanes, bits=jax.random.bits(keys.root_key(9), (24,)))
    assert int(rows[0, 0]) == stop - 1
    assert moved.age.tolist()[:2] == [0, 0]
    assert moved.position.tolist()[:2] == [1, 1]
    for number in range(60):
        moved, rows = step(moved, bits=jax.random.bits(jax.random.fold_in(keys.root_key(8), number), (24,)))
        assert (np.asarray(rows[:, 0]) >= first).all()
        assert (np.asarray(rows[:, 0]) < stop).all()
    assert isinstance(moved, Lanes)


def test_ensemble_averages_seeds_in_their_own_units_and_ignores_a_dead_one(world_factory):
    world = world_factory()
    agent, env = world.program.agent, world.program.env
    one = agent.params(agent.init(keys.root_key(1)))
    dead = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), one)
    pair = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, dead)
    seen = jnp.array([1.0, 0.2, -0.3, 0.5])
    alone = member_table(agent, env, one)(seen)
    centred = alone - alone.mean(axis=-1, keepdims=True)
    both = ensemble_table(agent, env, pair, jnp.array([2.0, 1.0]), jnp.array([True, False]))(seen)
    np.testing.assert_allclose(both, centred / 2.0, rtol=1e-5)
    nobody = ensemble_table(agent, env, pair, jnp.ones(2), jnp.array([False, False]))(seen)
    assert np.argmax(nobody, axis=-1).tolist() == [env.flat] * 3


def test_an_episode_ends_before_a_hole_in_the_data(world_factory):
    holes = [300, 301, 420, 505]
    data = planted_market(days=50)
    flags = data.flags.copy()
    flags[holes] |= GAP
    world = world_factory(data=dataclasses.replace(data, flags=flags))
    window = window_of(world.windows, jnp.int32(0))
    params = world.program.agent.params(world.program.agent.init(keys.root_key(1)))
    bars = jnp.array([298, 299, 300, 419, 503, 504, 505, 506], jnp.int32)
    lanes = Lanes(bar=bars, position=jnp.full(8, 2, jnp.int32), age=jnp.ones(8, jnp.int32))
    bits = jax.random.bits(jax.random.key(0), (24,), "uint32")
    moved, _ = collect(world.program, world.market, window, params, lanes, bits, jnp.float32(0))
    ended = np.array([False, True, True, True, False, True, False, False])
    assert np.array_equal(np.asarray(moved.age) == 0, ended)
    assert np.array_equal(np.asarray(moved.bar)[~ended], np.asarray(bars)[~ended] + 1)
    assert (np.asarray(moved.position)[ended] == world.program.env.flat).all()
