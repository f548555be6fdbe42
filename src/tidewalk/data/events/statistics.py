"""Open interest out of Databento's statistics schema.

The exchange publishes it once or twice per trade date, hours after that date's close, so a decision may use it only
from the moment of publication. Other statistics (settlement, highs and lows, cleared volume) are not used.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import OpenInterest
from tidewalk.data.calendar.sessions import session_columns
from tidewalk.data.rows import DAY_NS

OPEN_INTEREST = 9
NEW = 1
END_OF_TIME_NS = 2**62
MAX_LOTS = 2**31 - 2
"""Largest open interest believed; the sentinels of the layouts (2^31-1 and 2^63-1) lie above it."""


@dataclass(frozen=True)
class Published:
    """Open interest of one contract as it came in, columns of length N in any order, with the other rows counted."""

    known_ns: NDArray[np.int64]
    trade_day: NDArray[np.int64]
    lots: NDArray[np.int64]


def published(records: NDArray[Any], sessions: str) -> Published:
    """Open interest among statistics records of one contract; deleted and undefined values are passed over.

    Args:
        records: of the statistics schema.
        sessions: session rule, used for records that do not name their trade date: it is then the session before the
            one in which they were published.
    """
    lots = records["quantity"].astype(np.int64)
    usable = (records["stat_type"] == OPEN_INTEREST) & (records["update_action"] == NEW)
    usable &= (lots >= 0) & (lots <= MAX_LOTS)
    records, lots = records[usable], lots[usable]
    received, event = records["ts_recv"], records["ts_event"]
    known_ns = np.where((received > 0) & (received < END_OF_TIME_NS), received, event).astype(np.int64)
    named = (records["ts_ref"] > 0) & (records["ts_ref"] < END_OF_TIME_NS)
    day = (np.where(named, records["ts_ref"], 0) // np.uint64(DAY_NS)).astype(np.int64)
    session_day = session_columns(known_ns, sessions).trade_day.astype(np.int64)
    weekday = (session_day + 3) % 7  # 1970-01-01 was a Thursday, Monday is 0
    before = session_day - (1 if sessions == "utc-day" else np.where(weekday == 0, 3, 1))
    return Published(known_ns, np.where(named, day, before), lots)


def open_interest(contract: str, parts: Iterable[Published]) -> tuple[OpenInterest | None, int]:
    """Open interest of a contract over all files, and the number of later figures for a date that were left out.

    For each trade date the first figure published is taken: a revision would be known later. A figure of an older date
    that was published after one of a newer date is left out, too.
    """
    pieces = list(parts)
    columns = [np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("known_ns", "trade_day", "lots")]
    order = np.lexsort((columns[2], columns[1], columns[0]))
    known_ns, trade_day, lots = (column[order] for column in columns)
    if not len(order):
        return None, 0
    newest = np.maximum.accumulate(trade_day)
    keep = np.concatenate([[True], trade_day[1:] > newest[:-1]])
    # The same file twice repeats every figure at the same moment; only another moment or value is a revision.
    repeated = (np.diff(known_ns) == 0) & (np.diff(trade_day) == 0) & (np.diff(lots) == 0)
    revised = int((~keep).sum() - (~keep[1:] & repeated).sum())
    return OpenInterest(contract, trade_day[keep].astype(np.int32), known_ns[keep], lots[keep]), revised
