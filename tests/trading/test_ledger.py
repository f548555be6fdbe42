"""The ledger adds up: fills and round trips against the book, by laws on odd markets and by hand."""

import dataclasses
from collections import deque
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odd_markets import BARS, odd_market
from support import chain_market, with_half_spreads
from tidewalk.market.device import ROLL
from tidewalk.trading.account import Book, book, costs_usd, fees_usd, gross_usd, slippage_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.ledger import Fills, Trades, fills, trades
from tidewalk.trading.verify import forced

COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5, roll_usd=7.0)
PATHS = st.lists(st.integers(-3, 3), min_size=1, max_size=BARS - 8)
SEEDS = st.integers(0, 10_000)
ROLL_AS = st.sampled_from(["sides", "spread"])


def rows(part: Fills | Trades, *names: str) -> list[tuple]:
    """Some columns of a ledger, row by row, as plain values."""
    return list(zip(*(getattr(part, name).tolist() for name in names), strict=True))


def closed(path: list[int]) -> np.ndarray:
    """The path with its last decision flat, as every range ends."""
    return np.array([*path[:-1], 0])


def made(seed: int, path: list[int], roll_as: str = "sides", **market: bool) -> tuple[Book, Fills, Trades]:
    data = odd_market(seed, **market)
    account = book(data, seed % 6, closed(path), roll_as)
    filled = fills(data, account, COSTS, forced(data, EnvConfig(), account))
    return account, filled, trades(filled, COSTS)


@settings(max_examples=150, deadline=None)
@given(SEEDS, PATHS, ROLL_AS)
def test_fills_round_trips_and_book_have_the_same_sums(seed, path, roll_as):
    account, filled, trips = made(seed, path, roll_as)
    gross_ticks = account.gross_ticks.sum()
    assert -(filled.lots * filled.price_ticks).sum() == gross_ticks
    assert trips.gross_ticks.sum() == gross_ticks
    fees = fees_usd(COSTS, account.sides.sum(), account.rolled.sum())
    slippage = slippage_usd(COSTS, account.sides.sum(), account.crossed_ticks.sum())
    # commissions of 2.25, spreads in eighths of a tick of 12.50: binary fractions, so that sums are exact in any order
    for part in (filled, trips):
        assert part.fees_usd.sum() == fees
        assert part.slippage_usd.sum() == slippage
    assert trips.net_usd.sum() == gross_usd(COSTS, gross_ticks) - fees - slippage


@settings(max_examples=100, deadline=None)
@given(SEEDS, PATHS, ROLL_AS)
def test_every_decision_pays_and_moves_what_its_fills_do(seed, path, roll_as):
    account, filled, _ = made(seed, path, roll_as)
    count = len(account.after_lots)
    paid, moved = np.zeros(count), np.zeros(count, np.int64)
    np.add.at(paid, filled.row, filled.costs_usd)
    np.add.at(moved, filled.row, filled.lots)
    due = costs_usd(COSTS, account.sides, account.crossed_ticks, account.rolled)
    assert paid.tolist() == np.asarray(due).tolist()
    assert moved.tolist() == (account.after_lots - account.before_lots).tolist()
    assert filled.position_after.tolist() == np.cumsum(filled.lots).tolist()
    last_of_row = np.flatnonzero(np.diff(filled.row, append=count))
    assert filled.position_after[last_of_row].tolist() == account.after_lots[filled.row[last_of_row]].tolist()
    assert (np.diff(filled.ts_ns) >= 0).all()


def one_by_one(filled: Fills) -> list[tuple]:
    """Round trips lot by lot through a queue, put together where both ends are the same: first in, first out."""
    queue, trips = deque(), []
    for number, lots in enumerate(filled.lots.tolist()):
        sign = 1 if lots > 0 else -1
        for _ in range(abs(lots)):
            if queue and queue[0][0] == -sign:
                side, entry = queue.popleft()
                if trips and trips[-1][1:] == (entry, number):
                    trips[-1] = (trips[-1][0] + side, entry, number)
                else:
                    trips.append((side, entry, number))
            else:
                queue.append((sign, number))
    assert not queue
    return trips


@settings(max_examples=150, deadline=None)
@given(SEEDS, PATHS, ROLL_AS)
def test_round_trips_are_those_of_a_queue_of_single_lots(seed, path, roll_as):
    _, filled, trips = made(seed, path, roll_as)
    expected = one_by_one(filled)
    assert trips.lots.tolist() == [lots for lots, _, _ in expected]
    entry, exit_ = (np.array([trip[at] for trip in expected], int) for at in (1, 2))
    assert trips.entry_ts_ns.tolist() == filled.ts_ns[entry].tolist()
    assert trips.exit_price.tolist() == filled.price[exit_].tolist()
    assert trips.contract.tolist() == filled.contract[entry].tolist() == filled.contract[exit_].tolist()
    assert trips.entry_reason.tolist() == filled.reason[entry].tolist()
    assert trips.exit_reason.tolist() == filled.reason[exit_].tolist()
    fee_of_lot, slippage_of_lot = filled.lot_fee_usd, filled.lot_slippage_usd
    size = np.abs(trips.lots)
    assert trips.fees_usd.tolist() == (size * (fee_of_lot[entry] + fee_of_lot[exit_])).tolist()
    assert trips.slippage_usd.tolist() == (size * (slippage_of_lot[entry] + slippage_of_lot[exit_])).tolist()


@settings(max_examples=100, deadline=None)
@given(SEEDS, PATHS)
def test_prices_off_the_tick_differ_from_the_gross_result_by_less_than_a_tick_per_lot(seed, path):
    _, _, trips = made(seed, path)
    printed = (trips.exit_price - trips.entry_price) * trips.lots * 50.0
    assert (np.abs(printed - trips.gross_usd) <= np.abs(trips.lots) * 12.5 + 1e-6).all()
    assert (printed * trips.gross_usd >= 0).all()


@settings(max_examples=60, deadline=None)
@given(SEEDS, PATHS)
def test_on_the_tick_the_gross_result_is_that_of_the_prices_exactly(seed, path):
    _, filled, trips = made(seed, path, is_off_tick=False)
    cash = -sum(Decimal(lots) * Decimal(price) * 50 for lots, price in rows(filled, "lots", "price"))
    assert cash == Decimal(float(trips.gross_usd.sum()))
    printed = [(Decimal(b) - Decimal(a)) * n * 50 for n, a, b in rows(trips, "lots", "entry_price", "exit_price")]
    assert printed == [Decimal(gross) for gross in trips.gross_usd.tolist()]
    assert "break-out" not in filled.reason


def test_the_odd_markets_are_odd():
    """What the laws above are tried on has rolls, hidden rolls and prices off the grid, under held positions."""
    reasons, off = set(), 0
    for seed in range(40):
        _, filled, _ = made(seed, [1, 2, -1, -2, 1, 1] * 8)
        reasons |= set(filled.reason)
        off += int((filled.price_e9 % 250_000_000 != 0).sum())
    assert reasons == {"decision", "roll-out", "roll-in", "break-out", "break-in", "end"}
    assert off > 500


# ---- by hand


def still(half_ticks: float | None = None, roll_at: int = 20):
    """Forty bars that do not move, in ESH4 until bar 20 and then, 100 ticks higher, in ESM4; ten bars a session."""
    data = chain_market(np.zeros(40, np.int64), 1, bars_per_day=10, roll_at=roll_at)
    return data if half_ticks is None else with_half_spreads(data, np.full(40, half_ticks))


def test_a_flip_closes_one_trade_and_opens_another():
    data = chain_market(np.ones(12, np.int64), 4, bars_per_day=6)
    filled = fills(data, book(data, 0, np.array([2, 2, -1, -1, 0])), COSTS)
    assert rows(filled, "row", "lots", "position_after", "price", "reason") == [
        (0, 2, 2, 10_001.0, "decision"),
        (2, -3, -1, 10_003.0, "decision"),
        (4, 1, 0, 10_005.0, "end"),
    ]
    trips = trades(filled, COSTS)
    assert rows(trips, "lots", "entry_price", "exit_price", "gross_usd", "fees_usd", "slippage_usd") == [
        (2, 10_001.0, 10_003.0, 200.0, 9.0, 25.0),
        (-1, 10_003.0, 10_005.0, -100.0, 4.5, 12.5),
    ]
    assert rows(trips, "net_usd") == [(166.0,), (-117.0,)]


def test_the_example_of_the_documentation():
    opens = np.array([20_000, 20_000, 20_006, 20_003, 20_003, 20_003]) * 250_000_000
    moves = np.array([6, -3, 0, 0, 0, 0], np.int32)
    still = chain_market(np.zeros(6, np.int64), 1, bars_per_day=6)
    data = dataclasses.replace(still, open_e9=opens, exit_open_e9=opens, move_ticks=moves)
    trips = trades(fills(data, book(data, 0, np.array([2, -1, 0])), COSTS), COSTS)
    assert rows(trips, "lots", "gross_usd", "fees_usd", "slippage_usd", "net_usd") == [
        (2, 150.0, 9.0, 25.0, 116.0),
        (-1, 37.5, 4.5, 12.5, 20.5),
    ]


def test_lots_go_out_in_the_order_in_which_they_came_in():
    data = chain_market(np.ones(12, np.int64), 4, bars_per_day=6)
    trips = trades(fills(data, book(data, 0, np.array([1, 3, 2, 0])), COSTS), COSTS)
    assert rows(trips, "lots", "entry_price", "exit_price") == [
        (1, 10_001.0, 10_003.0),
        (2, 10_002.0, 10_004.0),
    ]


# validity.md B11: no gain from the price difference of two contracts
@pytest.mark.parametrize(
    ("roll_as", "fees", "slippage"),
    [("sides", [2.25] * 4, [12.5] * 4), ("spread", [2.25, 3.5, 3.5, 2.25], [12.5, 0.0, 0.0, 12.5])],
)
def test_a_roll_is_out_of_one_contract_and_into_the_next(roll_as, fees, slippage):
    data = still(half_ticks=0.5)
    filled = fills(data, book(data, 17, np.array([1, 1, 1, 1, 0]), roll_as), COSTS)
    assert rows(filled, "contract", "lots", "position_after", "price", "reason") == [
        ("ESH4", 1, 1, 10_000.0, "decision"),
        ("ESH4", -1, 0, 10_000.0, "roll-out"),
        ("ESM4", 1, 1, 10_025.0, "roll-in"),
        ("ESM4", -1, 0, 10_025.0, "end"),
    ]
    assert filled.fees_usd.tolist() == fees
    assert filled.slippage_usd.tolist() == slippage
    trips = trades(filled, COSTS)
    assert rows(trips, "contract", "gross_usd", "entry_reason", "exit_reason") == [
        ("ESH4", 0.0, "decision", "roll-out"),
        ("ESM4", 0.0, "roll-in", "end"),
    ]
    assert trips.net_usd.sum() == -(sum(fees) + sum(slippage))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (2, 1, [("ESH4", -1, "roll-out"), ("ESH4", -1, "decision"), ("ESM4", 1, "roll-in")]),
        (1, 3, [("ESH4", -1, "roll-out"), ("ESM4", 1, "roll-in"), ("ESM4", 2, "decision")]),
        (-1, -2, [("ESH4", 1, "roll-out"), ("ESM4", -1, "roll-in"), ("ESM4", -1, "decision")]),
        (1, -1, [("ESH4", -1, "decision"), ("ESM4", -1, "decision")]),
        (2, 0, [("ESH4", -2, "decision")]),
        (0, 2, [("ESM4", 2, "decision")]),
        (0, 0, []),
    ],
)
@pytest.mark.parametrize("roll_as", ["sides", "spread"])
def test_what_is_carried_over_a_roll_and_what_is_traded_beside(before, after, lines, roll_as):
    data = still()
    assert data.flags[19] & ROLL
    account = book(data, 18, np.array([before, after, 0]), roll_as)
    filled = fills(data, account, COSTS)
    at_roll = filled.row == 1
    names = ("contract", "lots", "reason")
    assert list(zip(*(getattr(filled, name)[at_roll].tolist() for name in names), strict=True)) == lines
    carried = min(abs(before), abs(after)) if before * after > 0 else 0
    outright = abs(before) + abs(after) - 2 * carried
    fees = 2.25 * (abs(before) + abs(after)) if roll_as == "sides" else 2.25 * outright + 7.0 * carried
    assert filled.fees_usd[at_roll].sum() == fees
    # a calendar spread pays its fee alone, no slippage
    slipping = abs(before) + abs(after) if roll_as == "sides" else outright
    assert filled.slippage_usd[at_roll].sum() == 6.25 * slipping


def test_a_position_over_a_move_that_is_left_out_is_put_down_and_taken_up_for_nothing():
    data = still(half_ticks=1.0, roll_at=None)
    data.exit_open_e9[20] -= 25_000_000_000  # held at 9975, taken up at 10000
    data.move_ticks[18] = -100
    filled = fills(data, book(data, 17, np.array([2, 2, 2, -1, 0])), COSTS)
    assert rows(filled, "row", "lots", "price", "costs_usd", "reason") == [
        (0, 2, 10_000.0, 42.0, "decision"),
        (2, -2, 9_975.0, 0.0, "break-out"),
        (2, 2, 10_000.0, 0.0, "break-in"),
        (3, -3, 10_000.0, 63.0, "decision"),
        (4, 1, 10_000.0, 21.0, "end"),
    ]
    trips = trades(filled, COSTS)
    assert rows(trips, "lots", "gross_usd", "exit_reason") == [
        (2, -2500.0, "break-out"),
        (2, 0.0, "decision"),
        (-1, 0.0, "end"),
    ]


# validity.md B31: profit was updated after the position had been set to neutral, so nothing was booked
def test_the_exit_of_a_long_position_books_its_gain():
    data = chain_market(np.array([0, 0, 1, 0, 0, 0]), 40, bars_per_day=6)
    account = book(data, 0, np.array([1, 1, 1, 0]))
    assert (account.after_lots[-1], account.gross_ticks.sum()) == (0, 40)
    trips = trades(fills(data, account, COSTS), COSTS)
    assert rows(trips, "entry_price", "exit_price", "gross_usd") == [(10_000.0, 10_010.0, 500.0)]


def test_a_range_without_a_trade_has_an_empty_ledger():
    data = still()
    filled = fills(data, book(data, 3, np.zeros(20, np.int64)), COSTS)
    assert len(filled) == len(trades(filled, COSTS)) == 0
    assert filled.costs_usd.sum() == 0


def test_fills_that_leave_a_position_make_no_round_trips():
    data = still()
    with pytest.raises(ValueError, match="end with a position of 1 lots"):
        trades(fills(data, book(data, 3, np.array([0, 1])), COSTS), COSTS)
