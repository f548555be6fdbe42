"""The books on the host: exact integers from positions to sessions, money and a ledger of fills.

The decision of bar t fills at the open of bar t+1 and earns until the fill of the next decision; its result is booked
to the session of bar t+1. Ticks and sides are integers, recorded half spreads multiples of half a tick; money is
derived once, at the end.
"""

import dataclasses

import numpy as np

from tidewalk.market.device import CLOSING, ROLL, MarketData
from tidewalk.trading.costs import Costs, sides
from tidewalk.trading.env import EnvConfig


@dataclasses.dataclass(frozen=True)
class Book:
    """Outcome of every decision of one range; arrays `[n]` int64 but for `crossed_ticks`, n = stop - first."""

    first: int
    before_lots: np.ndarray
    after_lots: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray
    crossed_ticks: np.ndarray
    """Recorded half spreads paid on these sides, float64; zeros where the market holds none."""


@dataclasses.dataclass(frozen=True)
class Sessions:
    """A book summed by session; arrays `[S]`."""

    trade_day: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray
    crossed_ticks: np.ndarray
    position_mean: np.ndarray


@dataclasses.dataclass(frozen=True)
class Fill:
    """One line of the ledger: `lots` bought (negative: sold) of one contract at one price."""

    ts_ns: int
    contract: str
    lots: int
    position_after: int
    price: float
    costs_usd: float
    reason: str


def allowed(market: MarketData, env: EnvConfig, first: int, wanted_lots: np.ndarray) -> np.ndarray:
    """Targets as the environment lets them fill: flat by the close if so asked, flat after the last decision."""
    lots = np.asarray(wanted_lots, np.int64).copy()
    if env.flat_at_close:
        lots[(market.flags[first : first + len(lots)] & CLOSING) != 0] = 0
    if len(lots):
        lots[-1] = 0
    return lots


def book(market: MarketData, first: int, after_lots: np.ndarray) -> Book:
    """Account for a path of positions that starts flat.

    Args:
        market: the market.
        first: bar of the first decision.
        after_lots: `[n]` signed position after the fill of each decision.
    """
    after = np.asarray(after_lots, np.int64)
    before = np.concatenate([[0], after[:-1]]).astype(np.int64)
    rows = slice(first, first + len(after))
    is_roll = ((market.flags[rows] & ROLL) != 0).astype(np.int64)
    gross = after * market.move_ticks[rows].astype(np.int64)
    traded = sides(before, after, is_roll)
    return Book(first, before, after, gross, traded, traded * half_spreads(market, first, len(after)))


def half_spreads(market: MarketData, first: int, count: int) -> np.ndarray:
    """Half the recorded spread, in ticks (float64), at the fills of `count` decisions from bar `first`.

    Zeros where the market holds none: costs are then the same at every fill. At a roll both sides, out of the old
    contract and into the new, pay the spread of the new one, which is the one recorded.
    """
    if market.half_spread_ticks is None:
        return np.zeros(count)
    return market.half_spread_ticks[first + 1 : first + 1 + count].astype(np.float64)


def by_session(market: MarketData, account: Book) -> Sessions:
    """Sums per session of the bars in which the decisions fill."""
    fill_day = market.trade_day[account.first + 1 : account.first + 1 + len(account.after_lots)]
    days, index = np.unique(fill_day, return_inverse=True)

    def total(values: np.ndarray) -> np.ndarray:
        # in their own type: np.bincount would take int64 through float64
        out = np.zeros(len(days), values.dtype)
        np.add.at(out, index, values)
        return out

    held = total(account.after_lots) / np.maximum(total(np.ones_like(account.after_lots)), 1)
    return Sessions(days, total(account.gross_ticks), total(account.sides), total(account.crossed_ticks), held)


def gross_usd(costs: Costs, gross_ticks: np.ndarray | np.integer | int) -> np.ndarray | np.float64:
    """Money of ticks, before costs."""
    return np.asarray(gross_ticks, np.int64) * costs.tick_value_usd


def costs_usd(
    costs: Costs, traded: np.ndarray | np.integer | int, crossed_ticks: np.ndarray | np.floating | float = 0.0
) -> np.ndarray | np.float64:
    """Slippage and commission of a number of contract sides, and the recorded half spreads paid on them."""
    fixed = np.asarray(traded, np.int64) * costs.side_usd
    return fixed + np.asarray(crossed_ticks, np.float64) * costs.tick_value_usd


def ledger(market: MarketData, account: Book, costs: Costs) -> list[Fill]:
    """Fills of a book in time order. A roll is two: out of the old contract and into the new, each at its own price."""
    count = len(account.after_lots)
    is_roll = (market.flags[account.first : account.first + count] & ROLL) != 0
    half_ticks = half_spreads(market, account.first, count)
    fills: list[Fill] = []
    for row in np.flatnonzero(account.sides):
        before, after = int(account.before_lots[row]), int(account.after_lots[row])
        bar = account.first + int(row) + 1
        price, exit_price = market.open_e9[bar] / 1e9, market.exit_open_e9[bar] / 1e9
        name = market.info.contracts[market.contract_id[bar]]
        ts_ns = int(market.ts_ns[bar])
        if is_roll[row]:
            old = market.info.contracts[market.contract_id[bar - 1]]
            parts = [(old, -before, 0, exit_price, "roll-out"), (name, after, after, price, "roll-in")]
        else:
            is_last = row == count - 1
            parts = [(name, after - before, after, price, "flat" if is_last else "decision")]
        fills += [
            Fill(ts_ns, c, lots, held, p, float(costs_usd(costs, abs(lots), abs(lots) * half_ticks[row])), why)
            for c, lots, held, p, why in parts
            if lots
        ]
    return fills
