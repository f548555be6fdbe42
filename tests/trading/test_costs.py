import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.trading.costs import CostConfig, Costs, net_ticks, sides, slippage_ticks

LOTS = st.integers(-50, 50)


@given(LOTS, LOTS)
def test_without_a_roll_sides_are_the_change_of_position(before, after):
    assert sides(before, after, 0) == abs(after - before)


@given(LOTS, LOTS)
def test_a_roll_closes_all_of_the_old_and_opens_all_of_the_new(before, after):
    assert sides(before, after, 1) == abs(before) + abs(after)


@given(LOTS)
def test_holding_over_a_roll_costs_two_sides_per_lot(held):
    assert sides(held, held, 1) == 2 * abs(held)


def test_numpy_arrays_and_scalars_agree():
    before, after, roll = np.array([0, 1, 1, -1]), np.array([1, 1, -1, -1]), np.array([0, 1, 0, 0])
    assert sides(before, after, roll).tolist() == [1, 2, 2, 0]


# validity.md B28, B29: NQ, +10 points, 1 contract, multiplier 20, 2.25 per side -> +195.50
def test_money_of_one_nq_round_trip():
    costs = Costs(tick_value_usd=5.0, commission_usd=2.25, slippage_ticks=0.0)
    assert 40 * costs.tick_value_usd - 2 * costs.side_usd == 195.50


def test_cost_of_a_side_in_money_and_ticks():
    costs = Costs(tick_value_usd=12.5, commission_usd=2.5, slippage_ticks=0.5)
    assert costs.side_usd == 8.75
    assert costs.side_ticks == 0.7


@pytest.mark.parametrize("bad", [{"slippage_ticks": -1.0}, {"commission_usd": -0.1}, {"slippage_ticks": float("nan")}])
def test_negative_costs_are_refused_by_flag(bad):
    flag = "--" + next(iter(bad)).replace("_", "-")
    with pytest.raises(ConfigError, match=flag):
        CostConfig(**bad)


def test_slippage_is_half_a_tick_by_default_and_nothing_beside_a_recorded_spread():
    assert slippage_ticks(CostConfig()) == 0.5
    assert slippage_ticks(CostConfig(slippage="recorded")) == 0.0
    assert slippage_ticks(CostConfig(slippage="recorded", slippage_ticks=0.25)) == 0.25
    assert slippage_ticks(CostConfig(slippage_ticks=0.0)) == 0.0


def test_net_ticks_take_off_fixed_sides_and_the_half_spreads_crossed():
    # bought at a spread of 3 ticks and sold at one of 1: 10 - 2 x 0.7 - (1.5 + 0.5)
    assert net_ticks(10.0, 2.0, 0.7, None) == pytest.approx(8.6)
    assert net_ticks(10.0, 2.0, 0.7, 2.0) == pytest.approx(6.6)
