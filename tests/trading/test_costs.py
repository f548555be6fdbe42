import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.trading.costs import CostConfig, Costs, counts, net_ticks, roll_usd, rolled, sides, slippage_ticks

LOTS = st.integers(-50, 50)


@given(LOTS, LOTS)
def test_without_a_roll_sides_are_the_change_of_position(before, after):
    assert sides(before, after, 0) == abs(after - before)
    assert rolled(before, after, 0) == 0


@given(LOTS, LOTS)
def test_a_roll_closes_all_of_the_old_and_opens_all_of_the_new(before, after):
    assert sides(before, after, 1) == abs(before) + abs(after)


@given(LOTS)
def test_holding_over_a_roll_costs_two_sides_per_lot(held):
    assert sides(held, held, 1) == 2 * abs(held)


@given(LOTS, LOTS, st.integers(0, 1))
def test_a_spread_carries_the_smaller_position_of_one_sign_and_the_rest_is_traded_outright(before, after, is_roll):
    kept = min(abs(before), abs(after)) if is_roll and (before > 0) == (after > 0) and before * after else 0
    outright, carried = counts(before, after, is_roll, "spread")
    assert carried == kept
    assert outright == (abs(before) + abs(after) - 2 * kept if is_roll else abs(after - before))
    assert counts(before, after, is_roll, "sides") == (sides(before, after, is_roll), None)
    assert sides(before, after, is_roll) == outright + 2 * carried, "each lot carried stands for two sides"


def test_numpy_arrays_and_scalars_agree():
    before, after, roll = np.array([0, 1, 1, -1, 5]), np.array([1, 1, -1, -1, 3]), np.array([0, 1, 0, 0, 1])
    assert sides(before, after, roll).tolist() == [1, 2, 2, 0, 8]
    assert rolled(before, after, roll).tolist() == [0, 1, 0, 0, 3]


# validity.md B28: NQ, +10 points, 1 contract, multiplier 20, 2.25 per side -> +195.50
def test_money_of_one_nq_round_trip():
    costs = Costs(tick_value_usd=5.0, commission_usd=2.25, slippage_ticks=0.0)
    assert 40 * costs.tick_value_usd - 2 * costs.side_usd == 195.50


def test_cost_of_a_side_in_money_and_ticks():
    costs = Costs(tick_value_usd=12.5, commission_usd=2.5, slippage_ticks=0.5, roll_usd=5.0)
    assert costs.side_usd == 8.75
    assert costs.side_ticks == 0.7
    assert costs.roll_ticks == 0.4


@pytest.mark.parametrize(
    "bad",
    [
        {"slippage_ticks": -1.0},
        {"commission_usd": -0.1},
        {"slippage_ticks": float("nan")},
        {"roll_fee_usd": -2.0},
        {"roll_fee_usd": float("inf")},
    ],
)
def test_negative_costs_are_refused_by_flag(bad):
    flag = "--" + next(iter(bad)).replace("_", "-")
    with pytest.raises(ConfigError, match=flag):
        CostConfig(**bad)


def test_slippage_is_half_a_tick_by_default_and_nothing_beside_a_recorded_spread():
    assert slippage_ticks(CostConfig()) == 0.5
    assert slippage_ticks(CostConfig(slippage="recorded")) == 0.0
    assert slippage_ticks(CostConfig(slippage="recorded", slippage_ticks=0.25)) == 0.25
    assert slippage_ticks(CostConfig(slippage_ticks=0.0)) == 0.0


def test_a_spread_roll_pays_two_commissions_and_one_slippage_or_the_fee_given():
    assert roll_usd(CostConfig(), 2.25, 12.5) == 2 * 2.25 + 0.5 * 12.5
    assert roll_usd(CostConfig(slippage="recorded"), 2.25, 12.5) == 4.5
    assert roll_usd(CostConfig(roll_fee_usd=3.0), 2.25, 12.5) == 3.0
    assert roll_usd(CostConfig(roll_fee_usd=0.0), 2.25, 12.5) == 0.0


def test_net_ticks_take_off_sides_half_spreads_and_rolls():
    # bought at a spread of 3 ticks and sold at one of 1: 10 - 2 x 0.7 - (1.5 + 0.5)
    assert net_ticks(10.0, 2.0, 0.7, None) == pytest.approx(8.6)
    assert net_ticks(10.0, 2.0, 0.7, 2.0) == pytest.approx(6.6)
    # and three lots rolled at 0.4 ticks
    assert net_ticks(10.0, 2.0, 0.7, 2.0, 3.0, 0.4) == pytest.approx(5.4)
