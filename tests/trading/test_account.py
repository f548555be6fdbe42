"""Books on the host: sums by session, and money that is exact however much of it there is."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odd_markets import BARS, odd_market
from support import chain_market, planted_signs, with_half_spreads
from tidewalk.trading.account import (
    Book,
    book,
    by_session,
    costs_usd,
    fees_usd,
    gross_usd,
    slippage_usd,
)
from tidewalk.trading.costs import Costs

COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5, roll_usd=7.0)
PATHS = st.lists(st.integers(-2, 2), min_size=3, max_size=BARS - 8)
FIELDS = ("gross_ticks", "sides", "crossed_ticks", "rolled")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), PATHS, st.sampled_from(["sides", "spread"]))
def test_sessions_add_up_to_the_book_and_belong_to_the_bar_of_the_fill(seed, path, roll_as):
    data = odd_market(seed)
    account = book(data, 5, np.array([*path, 0]), roll_as)
    sessions = by_session(data, account)
    for name in FIELDS:
        assert getattr(sessions, name).sum() == getattr(account, name).sum()
        assert getattr(sessions, name).dtype == getattr(account, name).dtype
    days = data.trade_day[6 : 6 + len(account.after_lots)]
    assert sessions.trade_day.tolist() == sorted(set(days.tolist()))
    for number, day in enumerate(sessions.trade_day):
        assert sessions.gross_ticks[number] == account.gross_ticks[days == day].sum()
        assert sessions.position_mean[number] == account.after_lots[days == day].mean()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), PATHS)
def test_recorded_spreads_and_the_form_of_a_roll_change_costs_alone(seed, path):
    path = np.array([*path, 0])
    data = odd_market(seed)
    plain, spread = book(data, 3, path), book(data, 3, path, "spread")
    fixed = book(dataclasses.replace(data, half_spread_ticks=None), 3, path)
    assert (plain.gross_ticks == spread.gross_ticks).all()
    assert (plain.gross_ticks == fixed.gross_ticks).all()
    assert (plain.sides == spread.sides + 2 * spread.rolled).all()
    assert not plain.rolled.any()
    assert not fixed.crossed_ticks.any()
    half_ticks = data.half_spread_ticks[plain.fill_bars]
    assert spread.crossed_ticks.tolist() == (spread.sides * half_ticks).tolist()


# validity.md P5
def test_without_moves_equity_falls_by_the_fees_alone():
    still = chain_market(np.zeros(30, np.int64), 5, bars_per_day=10)
    account = book(still, 0, np.array([3, -3, 0, 2, 0]))
    assert account.gross_ticks.tolist() == [0] * 5
    assert account.sides.tolist() == [3, 6, 3, 2, 2]


# validity.md B34: the last mark and the closing cost are in the record, and nothing is carried on
def test_the_last_decision_closes_the_position_and_pays_for_it():
    data = chain_market(planted_signs(120, 0.5), 3, bars_per_day=24)
    account = book(data, 5, np.array([1] * 9 + [0]))
    assert account.sides.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    held = (data.open_e9[5 + 9 + 1] - data.open_e9[5 + 1]) // 250_000_000
    assert account.gross_ticks.sum() == held
    exact = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.0)
    assert costs_usd(exact, account.sides).tolist() == [2.25, *[0.0] * 8, 2.25]
    assert book(data, 15, np.array([0, 0])).before_lots.tolist() == [0, 0]


def test_recorded_spreads_by_hand():
    """Long from bar 5 over the roll at bar 20, closed at bar 39: 2 + 2 x 3 + 0.5 ticks of half spread, four sides."""
    half_ticks = np.full(40, 0.5)
    half_ticks[[5, 6, 20, 21]] = 2.0, 7.0, 3.0, 9.0
    data = with_half_spreads(chain_market(np.zeros(40, np.int64), 1, bars_per_day=10, roll_at=20), half_ticks)
    path = np.array([1] * 34 + [0])
    account = book(data, 4, path)
    assert account.sides.sum() == 4
    assert account.crossed_ticks[account.crossed_ticks > 0].tolist() == [2.0, 6.0, 0.5]
    assert fees_usd(COSTS, account.sides.sum()) == 9.0
    assert slippage_usd(COSTS, account.sides.sum(), account.crossed_ticks.sum()) == 4 * 6.25 + 8.5 * 12.5
    spread = book(data, 4, path, "spread")
    assert (spread.sides.sum(), spread.rolled.sum(), spread.crossed_ticks.sum()) == (2, 1, 2.5)
    assert costs_usd(COSTS, spread.sides.sum(), spread.crossed_ticks.sum(), spread.rolled.sum()) == (
        2 * 2.25 + 7.0 + 2 * 6.25 + 2.5 * 12.5
    )


# validity.md 2.3: a fee of 2.31 added 20 million times in float32 gives 49.1 million instead of 46.2
def test_twenty_million_fees_do_not_drift():
    fee = Costs(tick_value_usd=12.5, commission_usd=2.31, slippage_ticks=0.0)
    rows = 200_000
    flips = np.where(np.arange(rows) % 2 == 0, 50, -50)
    zeros = np.zeros(rows, np.int64)
    account = Book(0, zeros, flips, zeros, np.full(rows, 100, np.int64), np.zeros(rows), zeros)
    assert account.sides.sum() == 20_000_000
    assert float(fees_usd(fee, account.sides.sum())) == pytest.approx(46_200_000.0, abs=1e-6)
    by_row = np.cumsum(fees_usd(fee, account.sides))
    assert by_row[-1] == pytest.approx(46_200_000.0, abs=0.005)
    drifting = np.cumsum(np.full(2_000_000, 2.31, np.float32), dtype=np.float32)[-1]
    assert abs(float(drifting) - 4_620_000.0) > 100.0, "the trap that the integers avoid"


# validity.md B28: the result in money is points times the multiplier
def test_money_is_ticks_times_the_value_of_a_tick():
    nq = Costs(tick_value_usd=5.0, commission_usd=2.25, slippage_ticks=0.0)
    assert gross_usd(nq, 40) - costs_usd(nq, 2) == 195.5
