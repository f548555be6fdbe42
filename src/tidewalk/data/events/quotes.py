"""What trade and quote records say: prices of trades, mid prices and spreads of two-sided quotes.

A quote counts when both sides are there and the ask is above the bid; one-sided, locked and crossed books give no price
and no spread. Snapshot records repeat the state of the book at the start of a request: they are no events, so they make
no bar, but the spread they show is in force.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import MAX_PRICE_E9
from tidewalk.data.events.bar_rule import BarRule

TRADE_SCHEMAS = ("trades", "tbbo", "tcbbo", "mbp-1", "cmbp-1", "mbp-10")
"""Schemas whose records hold trades, the plainest first."""

BOOK_SCHEMAS = ("mbp-1", "cmbp-1", "mbp-10")
"""Schemas with a record for every change of the best prices, trades among them."""

SAMPLED_SCHEMAS = ("bbo-1s", "cbbo-1s", "bbo-1m", "cbbo-1m")
"""Schemas with the best prices at the end of every second or minute in which something happened."""

QUOTE_SCHEMAS = (*BOOK_SCHEMAS, *SAMPLED_SCHEMAS, "tbbo", "tcbbo")
"""Schemas whose records hold quotes, the densest first."""

SNAPSHOT_FLAG = 32
MAX_HALF_SPREAD_E9 = 2**61
TRADE = b"T"


@dataclass(frozen=True)
class Extract:
    """What some records give: the index of those used, a price and a size each, and how many were left out and why."""

    index: NDArray[np.int64]
    price_e9: NDArray[np.int64]
    size: NDArray[np.int64]
    left_out: dict[str, int]


def trades_in(records: NDArray[Any]) -> Extract:
    """Trades with a price and a size.

    Args:
        records: of one of `TRADE_SCHEMAS`.
    """
    snapshot = (records["flags"] & SNAPSHOT_FLAG) != 0
    trade = (records["action"] == TRADE) & ~snapshot
    priced = np.abs(records["price"]) <= MAX_PRICE_E9
    usable = trade & priced & (records["size"] > 0)
    left_out = {
        "snapshot records, which are no trades": int(snapshot.sum()),
        "trades without a price": int((trade & ~priced).sum()),
        "trades of no size": int((trade & priced & (records["size"] == 0)).sum()),
    }
    index = np.flatnonzero(usable)
    return Extract(index, records["price"][index], records["size"][index].astype(np.int64), left_out)


def is_quote(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a record holds a quote with both sides, the ask above the bid; bool [N]."""
    bid, ask = records["bid_px_00"], records["ask_px_00"]
    near = ask // 2 - bid // 2 < MAX_HALF_SPREAD_E9  # so that their difference is a number of 64 bits
    return (np.abs(bid) <= MAX_PRICE_E9) & (np.abs(ask) <= MAX_PRICE_E9) & (ask > bid) & near


def mids_in(records: NDArray[Any]) -> Extract:
    """Mid prices of quotes, with the contracts that the record's trade took, 0 where it is none.

    Args:
        records: of one of `BOOK_SCHEMAS` or `SAMPLED_SCHEMAS`.
    """
    snapshot = (records["flags"] & SNAPSHOT_FLAG) != 0
    quoted = is_quote(records)
    index = np.flatnonzero(quoted & ~snapshot)
    bid, ask = records["bid_px_00"][index], records["ask_px_00"][index]
    size = np.zeros(len(index), np.int64)
    if "action" in (records.dtype.names or ()):
        chosen = records[index]
        size = np.where(chosen["action"] == TRADE, chosen["size"], 0).astype(np.int64)
    left_out = {
        "snapshot records, which are no events": int(snapshot.sum()),
        "quotes that are one-sided, locked or crossed": int((~quoted & ~snapshot).sum()),
    }
    return Extract(index, bid + (ask - bid) // 2, size, left_out)


def is_mid(schema: str | None, rule: BarRule) -> bool:
    """Whether bars of a schema are bars of mid prices, and not of trades."""
    return schema in SAMPLED_SCHEMAS or (schema in BOOK_SCHEMAS and rule.kind == "time")
