"""The ledger of a book: its fills, and the round trips made of them, first in first out.

Prices are those of the contract that was really held: its open, and where it is left for the next contract its own
price at that moment. Gross results are whole ticks: a fill counts at the tick nearest to its price, as the moves of the
market do, so that the round trips of a book earn exactly what the book says. What is printed is the price itself; where
prices lie off the tick grid, (exit - entry) x lots may differ from the gross result by up to a tick per lot.

A reason is the rule in force at the fill. Where a rule forces the position flat it is named, whatever the policy
wanted; of several the strongest: ruin, drawdown, daily-loss, close, end.
"""

import dataclasses

import numpy as np

from tidewalk.market.device import ROLL, MarketData
from tidewalk.market.ticks import nearest_tick
from tidewalk.trading.account import Book, half_spreads
from tidewalk.trading.costs import Costs

DECISION, END = "decision", "end"
_LEGS = 4
"""At most: lots carried out of a contract, other lots out of it, lots carried in, other lots in."""


@dataclasses.dataclass(frozen=True)
class Fills:
    """Fills in the order of their execution; arrays `[K]`.

    A roll is up to four: the lots carried out of the old contract ("roll-out") and into the new one ("roll-in"), and
    the lots that are closed or opened beside. Where moves over a hidden roll are left out (`--break-roll-weeks`), the
    position is put down and taken up again without a trade and free of cost: "break-out", "break-in".
    """

    row: np.ndarray
    """Number of the decision in its book."""
    ts_ns: np.ndarray
    """UTC start of the bar at whose open it filled, int64."""
    contract: np.ndarray
    """Name of the contract."""
    lots: np.ndarray
    """Contracts bought (negative: sold), int64."""
    position_after: np.ndarray
    """Signed contracts held after it."""
    price_e9: np.ndarray
    """Price in 1e-9, int64."""
    price_ticks: np.ndarray
    """The tick nearest to it: what gross results are counted in."""
    lot_fee_usd: np.ndarray
    """Commission of one lot of it, or half the fee of a calendar spread."""
    lot_slippage_usd: np.ndarray
    """Slippage of one lot of it, fixed and recorded."""
    reason: np.ndarray
    """"decision", "roll-out", "roll-in", "break-out", "break-in", "close", "daily-loss", "drawdown", "ruin", "end"."""

    def __len__(self) -> int:
        """Number of fills."""
        return len(self.row)

    @property
    def price(self) -> np.ndarray:
        """Price, float64."""
        return self.price_e9 / 1e9

    @property
    def fees_usd(self) -> np.ndarray:
        """Commission and half the fees of calendar spreads."""
        return np.abs(self.lots) * self.lot_fee_usd

    @property
    def slippage_usd(self) -> np.ndarray:
        """Slippage, fixed and recorded."""
        return np.abs(self.lots) * self.lot_slippage_usd

    @property
    def costs_usd(self) -> np.ndarray:
        """Fees and slippage together."""
        return self.fees_usd + self.slippage_usd


@dataclasses.dataclass(frozen=True)
class Trades:
    """Round trips in the order of their ends; arrays `[N]`. Each is one contract from one fill to another."""

    contract: np.ndarray
    lots: np.ndarray
    """Contracts held, negative where sold short; int64."""
    entry_ts_ns: np.ndarray
    entry_price: np.ndarray
    exit_ts_ns: np.ndarray
    exit_price: np.ndarray
    gross_ticks: np.ndarray
    gross_usd: np.ndarray
    fees_usd: np.ndarray
    slippage_usd: np.ndarray
    entry_reason: np.ndarray
    exit_reason: np.ndarray

    def __len__(self) -> int:
        """Number of round trips."""
        return len(self.lots)

    @property
    def net_usd(self) -> np.ndarray:
        """What is left of the gross result after fees and slippage."""
        return self.gross_usd - self.fees_usd - self.slippage_usd


def fills(market: MarketData, account: Book, costs: Costs, forced: np.ndarray | None = None) -> Fills:
    """Fills of a book.

    Args:
        market: the market of the book.
        account: the book.
        costs: costs of the contract.
        forced: `[n]` reason of each decision that closes a position (see `trading.verify.forced`); default: the last
            one is the end of the range, all others are decisions.
    """
    before, after = account.before_lots, account.after_lots
    is_roll = (market.flags[account.fill_bars - 1] & ROLL) != 0
    is_break = ~is_roll & (market.exit_open_e9[account.fill_bars] != market.open_e9[account.fill_bars])
    rows = np.flatnonzero((before != after) | ((is_roll | is_break) & (before != 0)))
    before, after, bars = before[rows], after[rows], account.fill_bars[rows]
    is_roll, is_break = is_roll[rows], is_break[rows]
    smaller = np.where(before * after > 0, np.minimum(np.abs(before), np.abs(after)), 0)
    carried = np.where(is_roll, np.sign(before) * smaller, before)
    changes = np.where(is_roll | is_break, carried, 0)
    lots = np.stack([-changes, carried - before, changes, after - carried], axis=1)
    at, leg = np.nonzero(lots)
    lots, bar = lots[at, leg], bars[at]
    is_out, is_carried = leg < _LEGS // 2, leg % 2 == 0
    price_e9 = np.where(is_out, market.exit_open_e9[bar], market.open_e9[bar])
    names = np.array(market.info.contracts, object)
    as_spread = is_carried & (account.rolled[rows][at] > 0)
    is_outright = ~as_spread & ~(is_carried & is_break[at])
    half_ticks = half_spreads(market, account.first, len(account.after_lots))[rows][at]
    return Fills(
        row=rows[at],
        ts_ns=market.ts_ns[bar],
        contract=names[market.contract_id[bar - (is_out & is_roll[at])]],
        lots=lots,
        position_after=np.cumsum(lots),
        price_e9=price_e9,
        price_ticks=nearest_tick(price_e9, market.info.tick_e9),
        lot_fee_usd=is_outright * costs.commission_usd + as_spread * (costs.roll_usd / 2),
        lot_slippage_usd=is_outright * (costs.slippage_ticks + half_ticks) * costs.tick_value_usd,
        reason=_reasons(rows[at], leg, is_break[at], after[at], _default(account) if forced is None else forced),
    )


def _default(account: Book) -> np.ndarray:
    forced = np.full(len(account.after_lots), DECISION, object)
    forced[-1:] = END
    return forced


def _reasons(
    row: np.ndarray, leg: np.ndarray, is_break: np.ndarray, after: np.ndarray, forced: np.ndarray
) -> np.ndarray:
    """Reason of each fill: lots carried have the change of contract, others what closed the position, or a decision."""
    changed = np.array([["roll-out", "roll-in"], ["break-out", "break-in"]], object)
    carried = changed[is_break.astype(int), (leg >= _LEGS // 2).astype(int)]
    other = np.where(after == 0, forced[row], DECISION)
    return np.where(leg % 2 == 0, carried, other)


def trades(made: Fills, costs: Costs) -> Trades:
    """Round trips of fills that start and end flat: the lots opened first are closed first.

    A position is flat before it takes the other side, and before it takes another contract. So over a whole range the
    k-th lot opened is the k-th lot closed, and the round trips are the pieces into which both counts cut the lots.

    Raises:
        ValueError: the fills do not end flat.
    """
    before = made.position_after - made.lots
    size = np.abs(made.lots)
    closing = np.where(before * made.lots < 0, np.minimum(np.abs(before), size), 0)
    opened, closed = np.cumsum(size - closing), np.cumsum(closing)
    if len(made) and made.position_after[-1] != 0:
        raise ValueError(f"the fills end with a position of {made.position_after[-1]} lots")
    edges = np.union1d(opened, closed)
    edges = edges[edges > 0]
    entry, exit_ = np.searchsorted(opened, edges), np.searchsorted(closed, edges)
    count = np.diff(edges, prepend=0)
    lots = np.sign(made.lots[entry]) * count
    gross_ticks = lots * (made.price_ticks[exit_] - made.price_ticks[entry])
    return Trades(
        contract=made.contract[entry],
        lots=lots,
        entry_ts_ns=made.ts_ns[entry],
        entry_price=made.price[entry],
        exit_ts_ns=made.ts_ns[exit_],
        exit_price=made.price[exit_],
        gross_ticks=gross_ticks,
        gross_usd=gross_ticks * costs.tick_value_usd,
        fees_usd=count * (made.lot_fee_usd[entry] + made.lot_fee_usd[exit_]),
        slippage_usd=count * (made.lot_slippage_usd[entry] + made.lot_slippage_usd[exit_]),
        entry_reason=made.reason[entry],
        exit_reason=made.reason[exit_],
    )
