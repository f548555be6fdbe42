from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support import chain_market, planted_signs, random_half_spreads, with_half_spreads
from tidewalk.trading.account import allowed, book, by_session, costs_usd, gross_usd, ledger
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig

COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)
ROLL_AT = 60


def market(seed: int = 0):
    return chain_market(planted_signs(120, 0.5, seed), 3, bars_per_day=24, roll_at=ROLL_AT)


PATHS = st.lists(st.integers(-2, 2), min_size=3, max_size=100)


@settings(max_examples=60, deadline=None)
@given(PATHS, st.integers(0, 15))
def test_the_ledger_adds_up_to_the_book_exactly(path, first):
    """Cash and costs of all fills at their own prices are those of the book; the last position is flat."""
    data = market()
    lots = allowed(data, EnvConfig(positions=2), first, np.array(path))
    account = book(data, first, lots)
    fills = ledger(data, account, COSTS)
    cash = -sum(Decimal(fill.lots) * Decimal(fill.price) for fill in fills) * 50
    assert cash == Decimal(float(gross_usd(COSTS, account.gross_ticks.sum())))
    assert sum(Decimal(fill.costs_usd) for fill in fills) == Decimal(float(costs_usd(COSTS, account.sides.sum())))
    assert sum(fill.lots for fill in fills) == 0
    assert not fills or fills[-1].position_after == 0


@settings(max_examples=60, deadline=None)
@given(PATHS, st.integers(0, 15))
def test_sessions_add_up_to_the_book(path, first):
    data = market()
    account = book(data, first, allowed(data, EnvConfig(positions=2), first, np.array(path)))
    sessions = by_session(data, account)
    assert sessions.gross_ticks.sum() == account.gross_ticks.sum()
    assert sessions.sides.sum() == account.sides.sum()
    assert (np.diff(sessions.trade_day) > 0).all()


# validity.md B11: no gain from the price difference of two contracts; two sides of cost
def test_a_position_held_over_a_roll_never_earns_the_basis():
    signs = np.zeros(40, np.int64)
    flat_market = chain_market(signs, 1, bars_per_day=10, roll_at=20)
    lots = allowed(flat_market, EnvConfig(), 0, np.ones(38, np.int64))
    account = book(flat_market, 0, lots)
    assert account.gross_ticks.sum() == 0
    assert account.sides.sum() == 4  # in, out and in at the roll, out
    reasons = [(fill.contract, fill.lots, fill.reason) for fill in ledger(flat_market, account, COSTS)]
    assert reasons == [("ESH4", 1, "decision"), ("ESH4", -1, "roll-out"), ("ESM4", 1, "roll-in"), ("ESM4", -1, "flat")]


# validity.md P5
def test_without_costs_and_moves_equity_never_changes():
    still = chain_market(np.zeros(30, np.int64), 5, bars_per_day=10)
    account = book(still, 0, allowed(still, EnvConfig(positions=3), 0, np.array([3, -3, 0, 2] * 7)))
    assert account.gross_ticks.sum() == 0


# validity.md B34: the last mark and the closing cost are in the record, and nothing is carried on
def test_the_last_decision_closes_the_position_and_pays_for_it():
    data = market()
    account = book(data, 5, allowed(data, EnvConfig(), 5, np.ones(10, np.int64)))
    assert account.after_lots[-1] == 0
    assert account.sides.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    held = (data.open_e9[5 + 9 + 1] - data.open_e9[5 + 1]) // 250_000_000
    assert account.gross_ticks.sum() == held


def test_flat_at_close_holds_nothing_over_a_session_break():
    data = market()
    lots = allowed(data, EnvConfig(flat_at_close=True), 0, np.ones(100, np.int64))
    fill_bar = np.arange(100) + 1
    is_session_end = data.trade_day[fill_bar] != data.trade_day[fill_bar + 1]
    assert is_session_end.sum() == 4
    assert (lots[is_session_end] == 0).all()
    assert (lots[~is_session_end][:-1] == 1).all()


def test_recorded_spreads_by_hand():
    """Long from bar 5 over the roll at bar 20, closed at bar 39: 2 + 2 x 3 + 0.5 ticks of half spread, four sides."""
    half_ticks = np.full(40, 0.5)
    half_ticks[[5, 6, 20, 21]] = 2.0, 7.0, 3.0, 9.0
    data = with_half_spreads(chain_market(np.zeros(40, np.int64), 1, bars_per_day=10, roll_at=20), half_ticks)
    account = book(data, 4, allowed(data, EnvConfig(), 4, np.ones(35, np.int64)))
    assert account.sides.sum() == 4
    assert account.crossed_ticks[account.crossed_ticks > 0].tolist() == [2.0, 6.0, 0.5]
    paid = [(fill.reason, fill.costs_usd) for fill in ledger(data, account, COSTS)]
    fixed = 0.5 * 12.5 + 2.25
    assert paid == [
        ("decision", fixed + 2.0 * 12.5),
        ("roll-out", fixed + 3.0 * 12.5),
        ("roll-in", fixed + 3.0 * 12.5),
        ("flat", fixed + 0.5 * 12.5),
    ]
    assert costs_usd(COSTS, account.sides.sum(), account.crossed_ticks.sum()) == 4 * fixed + 8.5 * 12.5


@settings(max_examples=40, deadline=None)
@given(PATHS, st.integers(0, 15))
def test_with_recorded_spreads_ledger_sessions_and_book_agree_to_the_cent(path, first):
    data = random_half_spreads(market())
    account = book(data, first, allowed(data, EnvConfig(positions=2), first, np.array(path)))
    total = costs_usd(COSTS, account.sides.sum(), account.crossed_ticks.sum())
    assert sum(Decimal(fill.costs_usd) for fill in ledger(data, account, COSTS)) == Decimal(float(total))
    sessions = by_session(data, account)
    assert sessions.crossed_ticks.sum() == account.crossed_ticks.sum()
    plain = book(market(), first, account.after_lots)
    assert (plain.sides == account.sides).all()
    assert (plain.gross_ticks == account.gross_ticks).all()
    assert not plain.crossed_ticks.any()
