"""What lanes collect and what is learned from it: rules in acting and in targets, truncations, ends of accounts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_market, planted_signs, random_half_spreads
from tidewalk.agents import replay
from tidewalk.agents.replay import Records
from tidewalk.core import keys
from tidewalk.market.device import CLOSING, GAP, NO_ENTRY
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train.collect import collect, transitions
from tidewalk.train.population import Lanes, window_of
from worlds import base, base_state, fresh, made_limits, make_world


# validity.md B20, B24, 2.1: rewards, cuts and final observations against a slow reference
@pytest.mark.parametrize("is_recorded", [False, True])
def test_transitions_equal_a_scalar_reference(is_recorded):
    data = chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=900)
    world = make_world(data=random_half_spreads(data) if is_recorded else data)
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
    never = jnp.zeros(fresh.shape, bool)
    records = replay.pack(
        Records(*(jnp.asarray(x, jnp.int32) for x in (bar, position, action)), jnp.asarray(fresh), never, never)
    )
    gamma, cost = 0.9, 1.5
    made = jax.jit(functools.partial(transitions, program, world.market, window, limits=None))
    batch = jax.device_get(made(records, CostTicks(jnp.float32(cost)), jnp.float32(gamma)))
    assert batch.is_allowed_t.all()
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


# ---- rules


RULES = EnvConfig(positions=2, direction="long", max_position=2, flat_at_close=True, no_entry_minutes=60)


@functools.cache
def ruled_epoch():
    """An epoch under every rule and with an account; its market forbids entries late in the day."""
    data = planted_market(days=50, persistence=0.5)
    late = np.where(np.arange(data.num_bars) % 24 >= 16, NO_ENTRY, 0).astype(np.int32)
    limits = made_limits(capital=60, daily=22, drawdown=45)
    world = make_world(env=RULES, data=dataclasses.replace(data, flags=data.flags | late), limits=limits)
    state, metrics = jax.jit(functools.partial(phases.fused_epoch, world.program))(*world.fixed, fresh(world))
    return world, state, metrics


def recorded(state, steps):
    """All records that are stored, oldest first: arrays `[steps, E, M]`."""
    rows = jnp.asarray(state.replay).reshape(-1, 8, *state.replay.shape[1:])[:steps]
    return jax.device_get(replay.unpack(rows))


def allowed_by_hand(flags, position, is_halted):
    low, high = 2, 4
    if flags & NO_ENTRY:
        high = max(2, min(position, high))
    return (2, 2) if is_halted or flags & CLOSING else (low, high)


def test_no_lane_ever_takes_an_action_that_is_not_allowed():
    """Over prefill (all at random) and an epoch (greedy and at random), whatever stands in the network."""
    world, state, metrics = ruled_epoch()
    found, flags, taken = recorded(state, 24), world.data.flags, set()
    for step, lane, member in np.ndindex(found.bar.shape):
        bar, position, action = (int(x[step, lane, member]) for x in (found.bar, found.position, found.action))
        is_halted = step > 0 and not found.is_fresh[step, lane, member] and found.is_halted[step - 1, lane, member]
        low, high = allowed_by_hand(flags[bar], position, is_halted)
        assert low <= action <= high
        taken.add((low, high, action))
        if step > 0 and not found.is_fresh[step, lane, member]:
            before = found.bar[step - 1, lane, member], found.action[step - 1, lane, member]
            assert (bar - 1, position) == before, "what is held is what was taken: no step changes an action"
    assert {(2, 4, 2), (2, 4, 3), (2, 4, 4), (2, 2, 2), (2, 3, 3)} <= taken
    assert found.is_halted.any()
    assert found.is_terminated.any()
    assert np.isfinite(np.asarray(metrics["loss"])).all()


def test_a_lane_whose_account_is_over_restarts_with_a_new_one():
    _, state, _ = ruled_epoch()
    found = recorded(state, 24)
    assert found.is_fresh[1:][found.is_terminated[:-1]].all()
    ended = found.is_terminated[-1]
    assert (np.asarray(state.lanes.age)[ended.T] == 0).all()
    assert (np.asarray(state.lanes.account.equity_ticks)[np.asarray(state.lanes.age) == 0] == 0).all()


def test_random_actions_are_drawn_evenly_from_what_is_allowed():
    world = base()
    env = EnvConfig(positions=2, direction="short")
    made = make_world(windows=1, seeds=1, env=env)
    params = jax.jit(lambda: made.program.agent.init(keys.root_key(1)).params)()
    count = 3000
    lanes = Lanes(*(jnp.full(count, x, jnp.int32) for x in (30, 2, 0)))
    bits = jax.random.bits(keys.root_key(4), (3 * count,), "uint32")
    window = window_of(made.windows, jnp.int32(0))
    act = jax.jit(functools.partial(collect, made.program, made.market, window, params, limits=None))
    actions = np.asarray(replay.unpack(act(lanes, bits, jnp.float32(1.0))[1]).action)
    shares = np.bincount(actions, minlength=5) / count
    assert shares[3:].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(shares[:3], 1 / 3, atol=0.04)
    # where nothing is forbidden the word decides as it always did
    free = jax.jit(functools.partial(collect, world.program, world.market, window_of(world.windows, jnp.int32(0))))
    member = jax.tree.map(lambda leaf: leaf[0], base_state().agent.params)
    lanes = Lanes(*(jnp.full(count, x, jnp.int32) for x in (30, 1, 0)))
    actions = replay.unpack(free(member, lanes, bits, jnp.float32(1.0), None)[1]).action
    assert np.array_equal(actions, np.asarray(bits[count : 2 * count]) % 3)


# ---- the end of an account


STEPS = 26


@functools.cache
def long_walk():
    """Up by 10 ticks a bar, down from bar 99 on; whoever acts holds one contract. A side costs one tick."""
    sign = np.where(np.arange(400) <= 98, 1, -1)
    world = make_world(windows=1, seeds=1, data=chain_market(sign, 10, bars_per_day=24))
    always_long = dataclasses.replace(world.program.agent, q_values=lambda *_: jnp.array([0.0, 0.0, 1.0]))
    program = dataclasses.replace(world.program, agent=always_long)
    window, cost = window_of(world.windows, jnp.int32(0)), CostTicks(jnp.float32(1.0))

    @jax.jit
    def play(limits, start, bits):
        def body(lanes, words):
            return collect(program, world.market, window, {}, lanes, words, jnp.float32(0.0), limits)

        rows = jax.lax.scan(body, start, bits)[1][:, 0]
        sequences = jnp.stack([rows[i : STEPS - 2 + i] for i in range(3)], axis=1)
        return replay.unpack(rows), transitions(
            program, world.market, window, sequences, cost, jnp.float32(0.5), limits
        )

    return play


def walk(limits, first):
    """Records of one lane that starts flat at a bar, and the transitions of three steps from each of them."""
    start = Lanes(*(jnp.full(1, x, jnp.int32) for x in (first, 1, 0)), account=limit_ops.open_account((1,)))
    return jax.device_get(long_walk()(limits, start, jax.random.bits(keys.root_key(2), (STEPS, 3), "uint32")))


# validity.md B23: equity 9, 19, 29, 19, 9: the drawdown of 20 is met exactly by the mark of row 99
@pytest.mark.parametrize(("drawdown", "is_met"), [(20.0, True), (20.001, False)])
def test_a_drawdown_met_exactly_ends_the_account_and_its_closing_fill_is_paid_at_once(drawdown, is_met):
    found, batch = walk(made_limits(drawdown=drawdown), first=95)
    assert found.bar[:5].tolist() == [95, 96, 97, 98, 99]
    assert found.is_terminated[:5].tolist() == [False] * 4 + [is_met]
    assert found.is_halted[:5].tolist() == [False] * 4 + [is_met]
    assert found.is_fresh[:6].tolist() == [True, False, False, False, False, is_met]
    # rewards in tenths of a tick: 9, 10, 10, -10, then -10 and one side to close
    last = -1.1 if is_met else -1.0
    np.testing.assert_allclose(batch.reward_t[0], 0.9 + 0.5 * 1.0 + 0.25 * 1.0, rtol=1e-6)
    np.testing.assert_allclose(batch.reward_t[2], 1.0 + 0.5 * -1.0 + 0.25 * last, rtol=1e-6)
    assert batch.discount_t[:2].tolist() == [0.125, 0.125]
    assert float(batch.discount_t[2]) == (0.0 if is_met else 0.125)
    if is_met:
        np.testing.assert_allclose(batch.reward_t[3:5], [-1.0 + 0.5 * last, last], rtol=1e-6)
        assert batch.discount_t[3:5].tolist() == [0.0, 0.0]


# validity.md B32: equity of exactly 0 is ruin, and the loss is paid in full
@pytest.mark.parametrize(("capital", "is_met"), [(21.0, True), (21.001, False), (15.0, True)])
def test_ruin_pays_the_whole_loss(capital, is_met):
    found, batch = walk(made_limits(capital=capital), first=98)
    assert found.is_terminated[:2].tolist() == [False, is_met]
    reward = -1.1 + 0.5 * (-1.1 if is_met else -1.0)
    if not is_met:  # the third row takes the account down
        assert found.is_terminated[2]
        reward += 0.25 * -1.1
    np.testing.assert_allclose(batch.reward_t[0], reward, rtol=1e-6)
    assert batch.discount_t[0] == 0.0


def test_a_daily_loss_closes_until_the_next_session_and_bootstraps():
    """From row 97: +9, -1, -11, -21 at bar 100; the session ends with the row that fills at bar 119."""
    found, batch = walk(made_limits(daily=12.0), first=97)
    rows = {int(bar): i for i, bar in enumerate(found.bar)}
    assert not found.is_terminated.any()
    assert not found.is_fresh[1:].any()
    assert [int(found.action[rows[bar]]) for bar in (100, 101, 110, 118, 119)] == [2, 1, 1, 1, 2]
    assert [bool(found.is_halted[rows[bar]]) for bar in (99, 100, 101, 117, 118, 119)] == [0, 1, 1, 1, 0, 0]
    # the successor of rows 98 to 100 is row 101: only flat is promised
    only_flat, everything = [False, True, False], [True, True, True]
    assert batch.is_allowed_t[rows[98]].tolist() == only_flat
    assert batch.is_allowed_t[rows[97]].tolist() == everything
    assert batch.is_allowed_t[rows[116]].tolist() == everything
    assert batch.discount_t[rows[98]] == 0.125
    # row 101 pays the fill that closes
    np.testing.assert_allclose(batch.reward_t[rows[101]], -0.1, rtol=1e-6)


def test_a_target_holds_the_rules_of_its_successor():
    """Late in the day nothing can be opened: who is flat there is promised flat alone, who holds may keep."""
    data = planted_market(days=50)
    late = np.where(np.arange(data.num_bars) % 24 == 20, NO_ENTRY, 0).astype(np.int32)
    env = EnvConfig(positions=2, no_entry_minutes=60)
    world = make_world(windows=1, seeds=1, env=env, data=dataclasses.replace(data, flags=data.flags | late))
    action = jnp.asarray([[0], [1], [2], [3], [4], [3]], jnp.int32)
    bar = jnp.asarray([[43]] * 5 + [[42]], jnp.int32)
    never = jnp.zeros(action.shape, bool)
    records = replay.pack(Records(bar, jnp.full_like(action, 2), action, never, never, never))
    window, cost = window_of(world.windows, jnp.int32(0)), CostTicks(jnp.float32(1.0))
    target = jax.jit(functools.partial(transitions, world.program, world.market, window, limits=None))
    found = target(records, cost, jnp.float32(0.9)).is_allowed_t
    assert [np.flatnonzero(row).tolist() for row in np.asarray(found)] == [
        [0, 1, 2],
        [1, 2],
        [2],
        [2, 3],
        [2, 3, 4],
        [0, 1, 2, 3, 4],
    ]


# ---- truncation


def test_lanes_stay_inside_the_train_decisions_and_restart_flat():
    world, state = base(), base_state()
    window = window_of(world.windows, jnp.int32(0))
    lanes = jax.tree.map(lambda leaf: leaf[0], state.lanes)
    params = jax.tree.map(lambda leaf: leaf[0], state.agent.params)
    first, stop = (int(x) for x in window.train)
    step = jax.jit(
        functools.partial(collect, world.program, world.market, window, params, epsilon=jnp.float32(1.0), limits=None)
    )
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


def test_an_episode_ends_before_a_hole_in_the_data():
    holes = [300, 301, 420, 505]
    data = planted_market(days=50)
    flags = data.flags.copy()
    flags[holes] |= GAP
    world = make_world(data=dataclasses.replace(data, flags=flags))
    window = window_of(world.windows, jnp.int32(0))
    params = jax.jit(lambda: world.program.agent.init(keys.root_key(1)).params)()
    bars = jnp.array([298, 299, 300, 419, 503, 504, 505, 506], jnp.int32)
    lanes = Lanes(bar=bars, position=jnp.full(8, 2, jnp.int32), age=jnp.ones(8, jnp.int32))
    bits = jax.random.bits(jax.random.key(0), (24,), "uint32")
    step = jax.jit(functools.partial(collect, world.program, world.market, window, params, limits=None))
    moved, _ = step(lanes, bits, jnp.float32(0))
    ended = np.array([False, True, True, True, False, True, False, False])
    assert np.array_equal(np.asarray(moved.age) == 0, ended)
    assert np.array_equal(np.asarray(moved.bar)[~ended], np.asarray(bars)[~ended] + 1)
    assert (np.asarray(moved.position)[ended] == world.program.env.flat).all()
