"""Rules as intervals of what may be held next, the step within them, and what is observed under a delay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import chain_market, planted_market, planted_signs, random_half_spreads
from tidewalk.core.errors import ConfigError
from tidewalk.market.device import CLOSING, GAP, NO_ENTRY, ROLL
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig, Scaler, Tally


def device_market(market):
    return jax.tree.map(jnp.asarray, market.on_device())


def scalar(value):
    return jnp.asarray(value, jnp.int32)


# ---- what may be held


def bounds(env, flags, position, is_halted=None):
    halted = None if is_halted is None else jnp.asarray(is_halted)
    low, high = env_ops.bounds(env, scalar(flags), scalar(position), halted)
    return int(low), int(high)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ({}, (0, 4)),
        ({"direction": "long"}, (2, 4)),
        ({"direction": "short"}, (0, 2)),
        ({"max_position": 1}, (1, 3)),
        ({"lots_per_level": 3, "max_position": 5}, (1, 3)),
        ({"lots_per_level": 3, "max_position": 6}, (0, 4)),
        ({"direction": "short", "max_position": 1}, (1, 2)),
    ],
)
def test_side_and_size_bound_every_decision(rules, allowed):
    env = EnvConfig(positions=2, **rules)
    for flags in (0, CLOSING, NO_ENTRY, ROLL | GAP):
        assert bounds(env, flags, 2) == allowed
        assert bounds(env, flags, 2, is_halted=False) == allowed
        assert bounds(env, flags, 4, is_halted=True) == (2, 2)


@pytest.mark.parametrize(("position", "allowed"), [(0, (0, 2)), (1, (1, 2)), (2, (2, 2)), (3, (2, 3)), (4, (2, 4))])
def test_without_entries_a_position_can_only_be_kept_or_reduced(position, allowed):
    env = EnvConfig(positions=2, no_entry_minutes=15)
    assert bounds(env, NO_ENTRY, position) == allowed
    assert bounds(env, 0, position) == (0, 4)
    assert bounds(env, NO_ENTRY, position, is_halted=True) == (2, 2)
    assert bounds(EnvConfig(positions=2), NO_ENTRY, position) == (0, 4)
    # what another rule forbids is not kept either
    low, high = bounds(
        EnvConfig(positions=2, no_entry_minutes=15, direction="long", max_position=1), NO_ENTRY, position
    )
    assert (low, high) == (2, max(2, min(position, 3)))


def test_a_session_that_must_end_flat_leaves_only_flat():
    env = EnvConfig(flat_at_close=True)
    assert bounds(env, CLOSING, 2) == (1, 1)
    assert bounds(env, 0, 2) == (0, 2)
    assert bounds(EnvConfig(), CLOSING, 2) == (0, 2)


RULES = st.builds(
    EnvConfig,
    positions=st.integers(1, 4),
    lots_per_level=st.just(2),
    max_position=st.sampled_from([None, 2, 5]),
    direction=st.sampled_from(["both", "long", "short"]),
    flat_at_close=st.booleans(),
    no_entry_minutes=st.sampled_from([0, 30]),
)


@given(RULES, st.integers(0, 63), st.integers(0, 8), st.sampled_from([None, False, True]), st.data())
@settings(max_examples=60, deadline=None)
def test_flat_is_always_allowed_and_the_choice_always_is(env, flags, position, is_halted, data):
    position = min(position, env.num_positions - 1)
    low, high = bounds(env, flags, position, is_halted)
    assert 0 <= low <= env.flat <= high < env.num_positions
    assert max(abs(low - env.flat), abs(high - env.flat)) * env.lots_per_level <= env.max_lots
    values = data.draw(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan]), min_size=9, max_size=9))
    q = np.array(values[: env.num_positions], np.float32)
    chosen = int(env_ops.choose(env, jnp.asarray(q), scalar(low), scalar(high)))
    assert low <= chosen <= high
    inside = q[low : high + 1]
    if np.isfinite(inside).all():
        assert chosen == low + int(np.argmax(inside))


# ---- the step


@pytest.mark.parametrize("roll_as", ["sides", "spread"])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_step_pays_what_was_traded_at_its_fill(roll_as, is_recorded):
    data = chain_market(planted_signs(200, 0.5), 3, bars_per_day=24, roll_at=100)
    market = device_market(random_half_spreads(data) if is_recorded else data)
    env = EnvConfig(positions=2, lots_per_level=3, roll_as=roll_as)
    rng = np.random.default_rng(1)
    bars = np.repeat(np.arange(90, 110), 25)
    before, after = (rng.integers(-2, 3, len(bars)) * 3 for _ in range(2))
    half_ticks = env_ops.half_spread(market, jnp.asarray(bars))
    index = [jnp.asarray(lots // 3 + 2, jnp.int32) for lots in (before, after)]
    given = (market.move_ticks[bars], market.flags[bars], *index, half_ticks)
    taken = jax.device_get(env_ops.step(env, *given))
    half_ticks, rolls = np.asarray(half_ticks), 0
    for row, bar in enumerate(bars):
        b, a, is_roll = int(before[row]), int(after[row]), bar == 99
        kept = min(abs(b), abs(a)) if is_roll and b * a > 0 else 0
        outright = abs(b) + abs(a) - 2 * kept if is_roll else abs(a - b)
        sides = outright if roll_as == "spread" else outright + 2 * kept
        assert int(taken.tally.gross_ticks[row]) == a * int(data.move_ticks[bar])
        assert int(taken.tally.sides[row]) == sides
        if roll_as == "spread":
            assert int(taken.tally.rolled[row]) == kept
        if is_recorded:
            assert float(taken.tally.crossed_ticks[row]) == sides * half_ticks[row]
        rolls += kept
    assert np.array_equal(taken.position, index[1])
    assert rolls > 0
    assert (taken.tally.rolled is None) == (roll_as == "sides")
    assert (taken.tally.crossed_ticks is None) != is_recorded


def test_a_reward_is_net_pnl_in_units_of_volatility():
    cost = CostTicks(jnp.float32(0.7), jnp.float32(1.5))
    one = Tally(gross_ticks=scalar(10), sides=scalar(2))
    assert float(env_ops.reward(one, cost, jnp.float32(0.1))) == pytest.approx(0.86)
    both = Tally(scalar(10), scalar(2), crossed_ticks=jnp.float32(3.0), rolled=scalar(4))
    assert float(env_ops.reward(both, cost, jnp.float32(0.1))) == pytest.approx(0.1 * (10 - 1.4 - 3.0 - 6.0))


# ---- what is seen


def indexed(bars: int = 120):
    """A market whose only feature is the number of the bar."""
    data = planted_market(days=bars // 24)
    index = np.arange(len(data.move_ticks), dtype=np.float32)
    return env_ops.Market(
        jnp.asarray(data.move_ticks), jnp.asarray(data.flags), jnp.asarray(index[:, None]), jnp.asarray(data.session_id)
    )


# validity.md B20: the observation of bar t ends with bar t, and with bar t - k under a delay of k
@pytest.mark.parametrize("delay", [0, 1, 5])
def test_an_observation_ends_with_the_bar_that_is_known_and_the_position(delay):
    env = EnvConfig(lookback=3, decision_delay=delay)
    scaler = Scaler(center=jnp.full(1, 50.0), scale=jnp.ones(1))
    seen = env_ops.observe(env, indexed(), scaler, scalar(52), scalar(0))
    assert seen.tolist() == [0.0 - delay, 1.0 - delay, 2.0 - delay, 1.0, 0.0, 0.0]
    assert env.observation_size(1) == 6


def test_scaled_features_are_clipped_at_ten():
    data = planted_market(days=5)
    scaler = Scaler(center=jnp.zeros(4), scale=jnp.full(4, 1e6))
    seen = env_ops.see(EnvConfig(), device_market(data), scaler, scalar(5))
    assert np.abs(np.asarray(seen)).max() == 10.0


# ---- what is refused


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"positions": 0}, "--positions is 0; it must be from 1 to 50"),
        ({"positions": 51}, "--positions"),
        ({"lookback": 0}, "--lookback"),
        ({"lots_per_level": 0}, "--lots-per-level"),
        ({"max_position": 0}, "--max-position is 0.*nothing could be held. Use 1 or more"),
        ({"max_position": -3}, "--max-position"),
        ({"lots_per_level": 5, "max_position": 4}, "--max-position is 4, less than the 5 contract.*Use 5 or more"),
        ({"no_entry_minutes": -1}, "--no-entry-minutes is -1; it must be from 0 to 1440"),
        ({"no_entry_minutes": 1441}, "--no-entry-minutes"),
        ({"decision_delay": -1}, "--decision-delay"),
        ({"decision_delay": 5000}, "--decision-delay is 5000; it must be from 0 to 4096"),
    ],
)
def test_impossible_environments_are_refused_by_flag(bad, said):
    with pytest.raises(ConfigError, match=said):
        EnvConfig(**bad)


def test_what_can_ever_be_held_is_known():
    for direction, held in (("both", [1, 2, 3, 4, 5]), ("long", [3, 4, 5]), ("short", [1, 2, 3])):
        env = EnvConfig(positions=3, lots_per_level=2, max_position=5, direction=direction)
        assert list(range(7))[env.reachable] == held
    assert list(range(3))[EnvConfig().reachable] == [0, 1, 2]


def test_the_most_that_may_be_held_is_known():
    assert EnvConfig(positions=3, lots_per_level=4).max_lots == 12
    assert EnvConfig(positions=3, lots_per_level=4, max_position=11).max_lots == 8
    assert EnvConfig(positions=3, max_position=99).max_lots == 3
