"""The books on the host: exact integers from positions to sessions and money.

The decision of bar t fills at the open of bar t+1 and earns until the fill of the next decision; its result is booked
to the session of bar t+1. Ticks, sides and rolled lots are integers, recorded half spreads multiples of half a tick;
money is derived from their sums, once, at the end. So nothing drifts, however many fees are added up.
"""

import dataclasses

import numpy as np

from tidewalk.market.device import ROLL, MarketData
from tidewalk.trading.costs import Costs, RollAs, counts

Count = np.ndarray | np.integer | int
Amount = np.ndarray | np.floating | float


@dataclasses.dataclass(frozen=True)
class Book:
    """Outcome of every decision of one range; arrays `[n]` int64 but for `crossed_ticks`, n = stop - first."""

    first: int
    before_lots: np.ndarray
    after_lots: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray
    """Contract sides traded outright."""
    crossed_ticks: np.ndarray
    """Recorded half spreads paid on these sides, float64; zeros where the market holds none."""
    rolled: np.ndarray
    """Lots rolled by calendar spreads; zeros where a roll is two sides."""

    @property
    def fill_bars(self) -> np.ndarray:
        """Bar at whose open each decision fills, `[n]`."""
        return self.first + 1 + np.arange(len(self.after_lots))


@dataclasses.dataclass(frozen=True)
class Sessions:
    """A book summed by session; arrays `[S]`."""

    trade_day: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray
    crossed_ticks: np.ndarray
    rolled: np.ndarray
    position_mean: np.ndarray


def book(market: MarketData, first: int, after_lots: np.ndarray, roll_as: RollAs = "sides") -> Book:
    """Account for a path of positions that starts flat.

    Args:
        market: the market.
        first: bar of the first decision.
        after_lots: `[n]` signed contracts held after the fill of each decision.
        roll_as: how a position is carried into the next contract.
    """
    after = np.asarray(after_lots, np.int64)
    before = np.concatenate([[0], after[:-1]]).astype(np.int64)
    rows = slice(first, first + len(after))
    is_roll = ((market.flags[rows] & ROLL) != 0).astype(np.int64)
    gross = after * market.move_ticks[rows].astype(np.int64)
    traded, rolled = counts(before, after, is_roll, roll_as)
    crossed = traded * half_spreads(market, first, len(after))
    return Book(first, before, after, gross, traded, crossed, np.zeros_like(traded) if rolled is None else rolled)


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
    days, index = np.unique(market.trade_day[account.fill_bars], return_inverse=True)

    def total(values: np.ndarray) -> np.ndarray:
        # in their own type: np.bincount would take int64 through float64
        out = np.zeros(len(days), values.dtype)
        np.add.at(out, index, values)
        return out

    held = total(account.after_lots) / np.maximum(total(np.ones_like(account.after_lots)), 1)
    names = ("gross_ticks", "sides", "crossed_ticks", "rolled")
    return Sessions(days, *(total(getattr(account, name)) for name in names), position_mean=held)


def gross_usd(costs: Costs, gross_ticks: Count) -> np.ndarray | np.float64:
    """Money of ticks, before costs."""
    return np.asarray(gross_ticks, np.int64) * costs.tick_value_usd


def fees_usd(costs: Costs, traded: Count, rolled: Count = 0) -> np.ndarray | np.float64:
    """Commission of a number of contract sides, and the fees of lots rolled by calendar spreads."""
    return np.asarray(traded, np.int64) * costs.commission_usd + np.asarray(rolled, np.int64) * costs.roll_usd


def slippage_usd(costs: Costs, traded: Count, crossed_ticks: Amount = 0.0) -> np.ndarray | np.float64:
    """Fixed slippage of a number of contract sides, and the recorded half spreads paid on them."""
    ticks = np.asarray(traded, np.int64) * costs.slippage_ticks + np.asarray(crossed_ticks, np.float64)
    return ticks * costs.tick_value_usd


def costs_usd(costs: Costs, traded: Count, crossed_ticks: Amount = 0.0, rolled: Count = 0) -> np.ndarray | np.float64:
    """Fees and slippage together."""
    return fees_usd(costs, traded, rolled) + slippage_usd(costs, traded, crossed_ticks)


def net_usd(
    costs: Costs, gross_ticks: Count, sides: Count, crossed_ticks: Amount = 0.0, rolled: Count = 0
) -> np.ndarray | np.float64:
    """What is left of ticks after the costs of sides, of recorded half spreads and of rolled lots."""
    return gross_usd(costs, gross_ticks) - costs_usd(costs, sides, crossed_ticks, rolled)
