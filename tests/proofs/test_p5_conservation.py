"""P5: money is neither made nor lost by the accounting. (laws over random paths)"""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support import chain_market
from tidewalk.trading.account import Book, book, by_session, costs_usd, gross_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.ledger import fills, trades
from tidewalk.trading.limits import Limits
from tidewalk.trading.verify import net_milliticks

PATHS = st.lists(st.integers(-4, 4), min_size=2, max_size=40)
LOTS = st.sampled_from([1, 3, 50])
ROLLS = st.sampled_from(["sides", "spread"])
FREE = Costs(tick_value_usd=12.5, commission_usd=0.0, slippage_ticks=0.0)
COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5, roll_usd=4.75)
SIDE_USD, ROLL_USD = Fraction(17, 2), Fraction(19, 4)
LIMITS = Limits(side=np.array(680, np.int32), roll=np.array(380, np.int32))
FIRST = 4


def closed(path: list[int], lots: int) -> np.ndarray:
    """The path in lots, closed by its last decision."""
    return np.array([*path[:-1], 0], np.int64) * lots


def still_market():
    """A price that never changes, with a roll to a contract that is 100 ticks dearer."""
    return chain_market(np.zeros(60, np.int64), 1, bars_per_day=7, roll_at=20)


def moving_market(seed: int):
    moves = np.random.default_rng(seed).integers(-3, 4, 60)
    return chain_market(moves, 2, bars_per_day=7, roll_at=20)


def equity_usd(own: Book, costs: Costs) -> np.ndarray:
    """Equity after every decision."""
    net = gross_usd(costs, own.gross_ticks) - costs_usd(costs, own.sides, own.crossed_ticks, own.rolled)
    return np.cumsum(net)


@settings(max_examples=60)
@given(PATHS, LOTS, ROLLS)
def test_opening_holding_and_closing_at_one_price_without_costs_leaves_equity_as_it_is(path, lots, roll_as):
    own = book(still_market(), FIRST, closed(path, lots), roll_as)
    assert not equity_usd(own, FREE).any()
    assert trades(fills(still_market(), own, FREE), FREE).net_usd.sum() == 0


@settings(max_examples=60)
@given(PATHS, LOTS, ROLLS)
def test_with_costs_equity_falls_by_exactly_the_costs_of_the_fills(path, lots, roll_as):
    held = closed(path, lots)
    own = book(still_market(), FIRST, held, roll_as)
    before, paid = 0, Fraction(0)
    for row, after in enumerate(held.tolist()):
        is_roll, smaller = FIRST + row + 1 == 20, min(abs(before), abs(after)) * (before * after > 0)
        sides = abs(before) + abs(after) if is_roll else abs(after - before)
        rolled = smaller if is_roll and roll_as == "spread" else 0
        paid += (sides - 2 * rolled) * SIDE_USD + rolled * ROLL_USD
        assert Fraction(float(equity_usd(own, COSTS)[row])) == -paid, "every step of the way, to the cent"
        before = after
    made = fills(still_market(), own, COSTS)
    assert Fraction(float(made.costs_usd.sum())) == paid
    assert not trades(made, COSTS).gross_usd.any(), "the difference of two contracts is no profit"


@settings(max_examples=60)
@given(PATHS, LOTS, ROLLS, st.integers(0, 9))
def test_sessions_decisions_fills_and_round_trips_add_up_to_the_same_money(path, lots, roll_as, seed):
    market = moving_market(seed)
    own = book(market, FIRST, closed(path, lots), roll_as)
    sessions, made = by_session(market, own), fills(market, own, COSTS)
    for name in ("gross_ticks", "sides", "rolled"):
        assert getattr(sessions, name).sum() == getattr(own, name).sum()
    total = Fraction(float(equity_usd(own, COSTS)[-1]))
    cash = -sum(int(n) * Fraction(int(e9), 10**9) * 50 for n, e9 in zip(made.lots, made.price_e9, strict=True))
    assert cash - Fraction(float(made.costs_usd.sum())) == total
    assert Fraction(float(trades(made, COSTS).net_usd.sum())) == total


@settings(max_examples=40)
@given(PATHS, PATHS, st.integers(0, 9))
def test_two_accounts_one_after_the_other_earn_what_one_account_would(path, later, seed):
    """A range ends flat, so nothing is carried on: the books of two ranges are those of their joined path."""
    market, lots = moving_market(seed), closed(path, 1)
    then = closed(later, 1)[: 58 - FIRST - len(lots)]
    then[-1:] = 0
    parts = [book(market, FIRST, lots), book(market, FIRST + len(lots), then)]
    whole = book(market, FIRST, np.concatenate([lots, then]))
    assert sum(part.gross_ticks.sum() for part in parts) == whole.gross_ticks.sum()
    assert sum(part.sides.sum() for part in parts) == whole.sides.sum()


@settings(max_examples=40)
@given(PATHS, LOTS, ROLLS, st.integers(0, 9))
def test_rewards_add_up_to_the_change_of_equity_in_whole_milliticks(path, lots, roll_as, seed):
    """What limits count and what money says are one sum: 8.50 USD a side are 680 milliticks, a roll 380."""
    market = moving_market(seed)
    own = book(market, FIRST, closed(path, lots), roll_as)
    rows = net_milliticks(market, own, LIMITS)
    assert (Fraction(int(rows.sum()), 1000) * Fraction(25, 2)) == Fraction(float(equity_usd(own, COSTS)[-1]))
