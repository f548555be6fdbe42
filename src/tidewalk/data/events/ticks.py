"""Bars cut out of a stream of events: trades, or quotes taken at their mid price.

Events are cut at the stamp by which the vendor indexes them (`ts_recv`), as Databento cuts its own bars. No event is
ever taken for the repetition of another: most trades of a liquid future have a twin in time, price and size. A trade is
never split, so the one that fills a volume or dollar bar belongs to it whole. A bar holds one instrument and one
session; a counted bar that a session leaves unfilled is closed short with the session, and one that the data leave
unfinished is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9
from tidewalk.data.events.bar_rule import BarRule, close_ns, grid
from tidewalk.data.rows import DAY_NS, Rows


@dataclass(frozen=True)
class Events:
    """Trades or quotes of one label in the order of time, columns of length N.

    Attributes:
        ts_ns: int64 [N] UTC stamp, never falling.
        price_e9: int64 [N] price of the trade, or mid of the quote.
        size: int64 [N] contracts traded, 0 for a quote.
        instrument_id: int64 [N].
        row: int64 [N] record number in its file, from 1.
        file_id: int32 [N] number of its file.
    """

    ts_ns: NDArray[np.int64]
    price_e9: NDArray[np.int64]
    size: NDArray[np.int64]
    instrument_id: NDArray[np.int64]
    row: NDArray[np.int64]
    file_id: NDArray[np.int32]


@dataclass(frozen=True)
class Cutter:
    """How events become bars.

    Attributes:
        rule: the bars asked for; time bars are cut at `rule.base_ns`.
        sessions: session rule.
        multiplier: money per contract for a price change of 1.0, used by dollar bars only.
    """

    rule: BarRule
    sessions: str
    multiplier: float = 1.0


@dataclass(frozen=True)
class _Cut:
    """Bars as index ranges of the events: first and end (exclusive), and the stamp that each bar will carry."""

    first: NDArray[np.int64]
    end: NDArray[np.int64]
    stamp_ns: NDArray[np.int64]


def take_events(events: Events, index: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Events:
    """Events at an index, in a slice or where a mask is true."""
    return Events(*(getattr(events, field.name)[index] for field in fields(Events)))


def concat_events(parts: Sequence[Events]) -> Events:
    """Events of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Events(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Events)))


def in_time_order(events: Events) -> tuple[Events, int]:
    """Events sorted by stamp, those of one stamp in the order given, and how many stamps fell."""
    falls = int((np.diff(events.ts_ns) < 0).sum())
    return (take_events(events, np.argsort(events.ts_ns, kind="stable")), falls) if falls else (events, 0)


def last_of_each_moment(events: Events) -> Events:
    """Of the events that share a stamp the last one, with the sizes of all: a book settles within one moment."""
    same = (np.diff(events.ts_ns) == 0) & (np.diff(events.instrument_id) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    last = take_events(events, np.append(first[1:], len(events.ts_ns)) - 1)
    return replace(last, size=np.add.reduceat(events.size, first))


def cut_bars(events: Events, cutter: Cutter, end_of_data_ns: int | None) -> tuple[Rows, Events]:
    """Complete bars of a stretch of events, and the events of the bar that is still open.

    Calling it for stretch after stretch, each time with the open events before the new ones, gives the bars of the
    whole stream.

    Args:
        events: in the order of time.
        cutter: how to cut.
        end_of_data_ns: moment up to which the data are known to reach when no event follows; None when more may come.

    Returns:
        Rows stamped at the start of time bars and at the completing event of counted bars; open events, none of them
        left when `end_of_data_ns` shows that the last bar is complete.
    """
    if not len(events.ts_ns):
        return _rows(events, _Cut(*(np.empty(0, np.int64),) * 3)), events
    by_time = cutter.rule.kind == "time"
    cut = _by_time(events, cutter) if by_time else _by_count(events, cutter)
    open_from = int(cut.first[-1]) if by_time else int(cut.end[-1]) if len(cut.end) else 0
    if end_of_data_ns is not None and open_from < len(events.ts_ns):
        over_ns = _over_ns(events, cutter)
        if over_ns <= end_of_data_ns:
            if not by_time:
                cut = _appended(cut, open_from, len(events.ts_ns), max(over_ns, int(events.ts_ns[-1])))
            return _rows(events, cut), take_events(events, slice(0, 0))
    complete = _Cut(cut.first[:-1], cut.end[:-1], cut.stamp_ns[:-1]) if by_time else cut
    return _rows(events, complete), take_events(events, slice(open_from, None))


def _over_ns(events: Events, cutter: Cutter) -> int:
    """When the bar of the last event is over at the latest: at its own end or with its session."""
    last_ns = events.ts_ns[-1:]
    interval_ns = cutter.rule.base_ns if cutter.rule.kind == "time" else DAY_NS
    where = grid(last_ns, interval_ns, cutter.sessions)
    session_ns = int(close_ns(where.trade_day, cutter.sessions)[0])
    if cutter.rule.kind != "time":
        return session_ns if session_ns > last_ns[0] else int(last_ns[0])
    bar_ns = int(where.start_ns[0]) + interval_ns
    return min(bar_ns, session_ns) if session_ns > last_ns[0] else bar_ns


def _appended(cut: _Cut, first: int, end: int, stamp_ns: int) -> _Cut:
    return _Cut(np.append(cut.first, first), np.append(cut.end, end), np.append(cut.stamp_ns, stamp_ns))


def _by_time(events: Events, cutter: Cutter) -> _Cut:
    """Time bars, the last one as far as it goes, stamped at their start."""
    where = grid(events.ts_ns, cutter.rule.base_ns, cutter.sessions)
    # Instruments change at midnight UTC, where no bar of this length is open.
    changes = (np.diff(where.start_ns) != 0) | (np.diff(where.trade_day) != 0)
    first = np.flatnonzero(np.concatenate([[True], changes]))
    return _Cut(first, np.append(first[1:], len(events.ts_ns)), starts(where.start_ns, first, events.ts_ns))


def starts(start_ns: NDArray[np.int64], first: NDArray[np.int64], ts_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Start of each bar that begins with item `first`: its place on the grid, or its first stamp where a bar is there.

    Two bars at one place are of two sessions, the second of which begins inside it.
    """
    found = start_ns[first]
    again = np.flatnonzero(np.diff(found) == 0) + 1
    found[again] = ts_ns[first[again]]
    return found


def _by_count(events: Events, cutter: Cutter) -> _Cut:
    """Counted bars that are complete, stamped at the moment they became so; the last session's rest is left open."""
    trade_day = grid(events.ts_ns, DAY_NS, cutter.sessions).trade_day
    breaks = np.flatnonzero((np.diff(trade_day) != 0) | (np.diff(events.instrument_id) != 0)) + 1
    edges = [0, *breaks.tolist(), len(trade_day)]
    weight, need = _weights(events, cutter)
    close = close_ns(trade_day[[edge - 1 for edge in edges[1:]]], cutter.sessions).tolist()
    first: list[int] = []
    end: list[int] = []
    stamp_ns: list[int] = []
    for number, start in enumerate(edges[:-1]):
        stop = edges[number + 1]
        ends = _filled_at(weight, start, stop, need)
        first += [start, *ends[:-1]] if ends else []
        end += ends
        stamp_ns += events.ts_ns[np.array(ends, np.int64) - 1].tolist()
        rest = ends[-1] if ends else start
        if rest < stop < len(trade_day):
            first.append(rest)
            end.append(stop)
            is_roll = bool(trade_day[stop] == trade_day[stop - 1])
            stamp_ns.append(_short_known_ns(events, stop, close[number], is_roll=is_roll))
    return _Cut(*(np.array(column, np.int64) for column in (first, end, stamp_ns)))


def _short_known_ns(events: Events, stop: int, close: int, *, is_roll: bool) -> int:
    """When a bar that its session left unfilled is known to be over: at the close, or with the next instrument."""
    last_ns, next_ns = int(events.ts_ns[stop - 1]), int(events.ts_ns[stop])
    return next_ns if is_roll else max(last_ns, min(close, next_ns))


def _weights(events: Events, cutter: Cutter) -> tuple[NDArray[np.int64] | None, int]:
    """What each event adds to a counted bar, and the sum that fills one; None where each event counts one.

    Dollar bars are counted in whole steps of the greatest common divisor of the prices, so that sums are exact.
    """
    rule = cutter.rule
    if rule.kind == "tick":
        return None, rule.amount
    if rule.kind == "volume":
        return events.size, rule.amount
    step_e9 = int(np.gcd.reduce(np.abs(events.price_e9))) or 1
    steps = np.abs(events.price_e9) // step_e9
    if float(steps.max()) * float(events.size.sum()) >= 2**62:
        raise DataError(f"--bars {rule.text}: prices have too many digits to be summed exactly. Use volume bars.")
    exact = Fraction(rule.amount) * E9 / (Fraction(cutter.multiplier) * step_e9)
    return steps * events.size, max(1, -(-exact.numerator // exact.denominator))


def _filled_at(weight: NDArray[np.int64] | None, start: int, stop: int, need: int) -> list[int]:
    """Ends (exclusive) of the bars that fill up within events [start, stop)."""
    if weight is None:
        return list(range(start + need, stop + 1, need))
    total = np.cumsum(weight[start:stop])
    if not len(total) or int(total[-1]) < need:
        return []
    ends: list[int] = []
    done = 0
    while done + need <= int(total[-1]):
        place = int(np.searchsorted(total, done + need))
        ends.append(start + place + 1)
        done = int(total[place])
    return ends


def _rows(events: Events, cut: _Cut) -> Rows:
    """One row per bar: first, highest, lowest and last price, and the contracts traded.

    A row has the record and file number of its last event.
    """
    last = cut.end - 1
    if not len(cut.first):
        none = np.empty(0, np.int64)
        return Rows(none, none, none, none, none, np.empty(0), none, none, np.empty(0, np.int32))
    # Bars follow each other without a hole, so the start of the next one ends each; the last needs its own end.
    price_e9, size = events.price_e9[: cut.end[-1]], events.size[: cut.end[-1]]
    return Rows(
        stamp_ns=cut.stamp_ns,
        open_e9=price_e9[cut.first],
        high_e9=np.maximum.reduceat(price_e9, cut.first),
        low_e9=np.minimum.reduceat(price_e9, cut.first),
        close_e9=price_e9[last],
        volume=np.add.reduceat(size, cut.first).astype(np.float64),
        instrument_id=events.instrument_id[last],
        row=events.row[last],
        file_id=events.file_id[last],
    )
