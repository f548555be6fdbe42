"""The hindsight bound against all paths, against closed forms, and its two forms against each other."""

import dataclasses
from fractions import Fraction

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from brute_force import Prices, best_by_recursion, best_of_all, net_of_path, path_of
from support import chain_market, planted_market, planted_signs, random_half_spreads
from tidewalk.market.device import CLOSING, NO_ENTRY, ROLL, MarketData
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import oracle
from tidewalk.train.oracle import hindsight

BARS = 6
RULES = {
    "plain": EnvConfig(),
    "closing": EnvConfig(flat_at_close=True),
    "late": EnvConfig(no_entry_minutes=60),
    "late and closing": EnvConfig(no_entry_minutes=60, flat_at_close=True, roll_as="spread"),
    "long only": EnvConfig(direction="long"),
    "short only, spread": EnvConfig(direction="short", roll_as="spread"),
    "lots": EnvConfig(lots_per_level=3, no_entry_minutes=60, roll_as="spread"),
    "five positions": EnvConfig(positions=2, max_position=1, no_entry_minutes=60, roll_as="spread"),
}


def costs_of(side, roll=None):
    """Costs of windows, in ticks."""
    return CostTicks(
        jnp.asarray(np.atleast_1d(side), jnp.float32),
        None if roll is None else jnp.asarray(np.atleast_1d(roll), jnp.float32),
    )


def random_market(moves: list[int], flags: list[int], half_spreads: list[int]) -> MarketData:
    """A market of given moves and flags; half spreads in half ticks."""
    length = len(moves) + 2
    return dataclasses.replace(
        chain_market(np.ones(length, np.int64), 1, bars_per_day=length),
        move_ticks=np.array([*moves, 0, 0], np.int32),
        flags=np.array([*flags, 0, 0], np.int32),
        half_spread_ticks=np.array([*half_spreads, 0, 0], np.float32) / np.float32(2),
    )


def flag_sets():
    words = [0, 0, CLOSING, NO_ENTRY, ROLL, NO_ENTRY | ROLL, NO_ENTRY | CLOSING]
    return st.lists(st.sampled_from(words), min_size=BARS + 1, max_size=BARS + 1)


def small_numbers(low, high):
    return st.lists(st.integers(low, high), min_size=BARS + 1, max_size=BARS + 1)


SLOW = ("closing", "late", "long only", "short only, spread")
"""Rules that others of the list imply; each costs a compilation."""


@pytest.mark.parametrize(
    ("rules", "compose"),
    [pytest.param(name, "scan", marks=pytest.mark.slow if name in SLOW else ()) for name in RULES]
    + [("late and closing", "associative"), pytest.param("five positions", "associative", marks=pytest.mark.slow)],
)
@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_hindsight_is_the_best_of_all_paths(rules, compose, data):
    """Costs are multiples of 1/8 tick, which the bound counts exactly: equal to the last digit."""
    env = RULES[rules]
    market = random_market(*(data.draw(part) for part in (small_numbers(-9, 9), flag_sets(), small_numbers(0, 6))))
    prices = Prices(Fraction(data.draw(st.integers(0, 40)), 8), Fraction(data.draw(st.integers(0, 40)), 8))
    first, count = data.draw(st.sampled_from([(0, BARS), (1, BARS), (1, BARS - 2), (2, 1)]))
    roll = float(prices.roll) if env.roll_as == "spread" else None
    spans = jnp.array([[first, first + count]], jnp.int32)
    found = hindsight(env, market.on_device(), spans, costs_of(float(prices.side), roll), bars=BARS, compose=compose)
    path = path_of(env, np.asarray(found[0]), count)
    assert net_of_path(env, market, first, path, prices) == best_of_all(env, market, first, count, prices)
    assert (np.asarray(found[0])[count:] == env.flat).all()


def test_a_cost_that_no_unit_divides_is_counted_to_a_millionth():
    """2.25 USD on a tick of 12.5 USD is .18 ticks; no spread is recorded, so costs come from the settings alone."""
    env, prices = EnvConfig(flat_at_close=True), Prices(Fraction(68, 100))
    market = chain_market(planted_signs(40, 0.5, seed=4), 3, bars_per_day=4, roll_at=12)
    found = hindsight(env, market.on_device(), jnp.array([[7, 16]], jnp.int32), costs_of(0.68), bars=16)
    path = path_of(env, np.asarray(found[0]), 9)
    assert net_of_path(env, market, 7, path, prices) == best_of_all(env, market, 7, 9, prices)


def late_market() -> MarketData:
    """A walk with rolls, closes, late bars and spreads, of 240 bars of 24 a day."""
    rng = np.random.default_rng(5)
    data = chain_market(rng.integers(-9, 10, 240), 1, bars_per_day=24, roll_at=100)
    late = np.where(np.arange(240) % 24 >= 20, NO_ENTRY, 0)
    return random_half_spreads(dataclasses.replace(data, flags=(data.flags | late).astype(np.int32)))


@pytest.mark.parametrize("rules", ["late and closing", pytest.param("five positions", marks=pytest.mark.slow)])
def test_both_forms_take_the_same_path_over_many_chunks(rules, monkeypatch):
    env, data = RULES[rules], late_market()
    spans = jnp.array([[3, 203], [40, 111], [90, 91]], jnp.int32)
    sides, rolls = (0.7, 2.3, 0.0), (1.1, 0.2, 0.0)
    costs = costs_of(sides, rolls)
    whole = np.asarray(hindsight(env, data.on_device(), spans, costs, bars=201))
    for row, (first, stop), side, roll in zip(whole, np.asarray(spans).tolist(), sides, rolls, strict=True):
        prices = Prices(Fraction(str(side)), Fraction(str(roll)))
        net = net_of_path(env, data, first, path_of(env, row, stop - first), prices)
        best = best_by_recursion(env, data, first, stop - first, prices)
        assert best - Fraction(1, 1000) <= net <= best
        assert (net > 20) == (stop - first > 1)
    monkeypatch.setattr(oracle, "CHUNK", 7)
    forms = [hindsight(env, data.on_device(), spans, costs, bars=200, compose=form) for form in ("scan", "associative")]
    assert len(np.unique(whole)) >= 3
    assert np.array_equal(forms[0], forms[1])
    assert np.array_equal(whole[:, :200], forms[0])


def test_equal_gains_go_to_the_lowest_position():
    """A still market without costs: every path earns nothing, and both forms hold the lowest position."""
    data = chain_market(np.zeros(40, np.int64), 1, bars_per_day=40)
    for form in ("scan", "associative"):
        found = hindsight(
            EnvConfig(), data.on_device(), jnp.array([[2, 30]], jnp.int32), costs_of(0.0), bars=28, compose=form
        )
        assert path_of(EnvConfig(), np.asarray(found[0]), 28) == [-1] * 27 + [0]


@pytest.mark.parametrize("form", ["scan", "associative"])
@pytest.mark.parametrize(("move", "cost"), [(40_000_000, 0.5), (3, 1e11), (40_000_000, 39e6), (40_000_000, 41e6)])
def test_sums_that_int32_could_not_hold_do_no_harm(move, cost, form):
    """Moves and costs near the end of the range: the position is held, and taken at all, exactly while it pays.

    Late bars make values far from that of being flat: who is flat waits through 19 large moves.
    """
    data = chain_market(np.ones(32, np.int64), move, bars_per_day=32)
    data = dataclasses.replace(data, flags=data.flags | np.int32(NO_ENTRY) * (np.arange(32) >= 4).astype(np.int32))
    env = EnvConfig(no_entry_minutes=1)
    found = hindsight(env, data.on_device(), jnp.array([[1, 23]], jnp.int32), costs_of(cost), bars=22, compose=form)
    pays = 21 * move > 2 * cost
    assert path_of(env, np.asarray(found[0]), 22) == [int(pays)] * 21 + [0]


# validity.md P1: alternating market, mean reward per bar max(1 - 2c, (1 - 2c) / 2, 0)
@pytest.mark.parametrize(("cost", "mean"), [(0.0, 1.0), (0.1, 0.8), (0.25, 0.5), (0.6, 0.0)])
def test_hindsight_of_the_alternating_market_is_the_closed_form(cost, mean):
    data = chain_market(np.tile([1, -1], 500), 1, bars_per_day=24)
    found = hindsight(EnvConfig(), data.on_device(), jnp.array([[10, 910]], jnp.int32), costs_of(cost), bars=900)
    path = path_of(EnvConfig(), np.asarray(found[0]), 900)
    net = net_of_path(EnvConfig(), data, 10, path, Prices(Fraction(cost)))
    assert float(net) / 900 == pytest.approx(mean, abs=3e-3)


def test_hindsight_pays_the_costs_of_each_window():
    """Two windows over the same bars, one so dear that nothing is worth a trade."""
    data = planted_market(days=3)
    spans = jnp.array([[5, 60], [5, 60]], jnp.int32)
    cheap, dear = np.asarray(hindsight(EnvConfig(), data.on_device(), spans, costs_of([0.5, 1e6]), bars=55))
    assert len(np.unique(cheap)) > 1
    assert (dear == 1).all()
