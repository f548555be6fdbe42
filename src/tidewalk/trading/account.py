"""The books on the host: exact integers from positions to sessions, money and a ledger of fills.

The decision of bar t fills at the open of bar t+1 and earns until the fill of the next decision; its result is booked
to the session of bar t+1. Ticks and sides are integers; money is derived once, at the end.
"""

import dataclasses

import numpy as np

from tidewalk.market.device import CLOSING, ROLL, MarketData
from tidewalk.trading.costs import Costs, sides
from tidewalk.trading.env import EnvConfig


@dataclasses.dataclass(frozen=True)
class Book:
    """Outcome of every decision of one range; arrays `[n]` int64, n = stop - first."""

    first: int
    before_lots: np.ndarray
    after_lots: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sessions:
    """A book summed by session; arrays `[S]`."""

    trade_day: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray
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
    return Book(first, before, after, gross, sides(before, after, is_roll))


def by_session(market: MarketData, account: Book) -> Sessions:
    """Sums per session of the bars in which the decisions fill."""
    fill_day = market.trade_day[account.first + 1 : account.first + 1 + len(account.after_lots)]
    days, index = np.unique(fill_day, return_inverse=True)

    def total(values: np.ndarray) -> np.ndarray:
        # int64 sums: np.bincount would go through float64
        out = np.zeros(len(days), np.int64)
        np.add.at(out, index, values)
        return out

    held = total(account.after_lots) / np.maximum(total(np.ones_like(account.after_lots)), 1)
    return Sessions(days, total(account.gross_ticks), total(account.sides), held)


def gross_usd(costs: Costs, gross_ticks: np.ndarray | np.integer | int) -> np.ndarray | np.float64:
    """Money of ticks, before costs."""
    return np.asarray(gross_ticks, np.int64) * costs.tick_value_usd


def costs_usd(costs: Costs, traded: np.ndarray | np.integer | int) -> np.ndarray | np.float64:
    """Slippage and commission of a number of contract sides."""
    return np.asarray(traded, np.int64) * costs.side_usd


def ledger(market: MarketData, account: Book, costs: Costs) -> list[Fill]:
    """Fills of a book in time order. A roll is two: out of the old contract and into the new, each at its own price."""
    is_roll = (market.flags[account.first : account.first + len(account.after_lots)] & ROLL) != 0
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
            is_last = row == len(account.after_lots) - 1
            parts = [(name, after - before, after, price, "flat" if is_last else "decision")]
        fills += [
            Fill(ts_ns, c, lots, held, p, float(costs_usd(costs, abs(lots))), why)
            for c, lots, held, p, why in parts
            if lots
        ]
    return fills
