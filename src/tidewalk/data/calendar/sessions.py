"""Trade dates and session clocks of futures exchanges, in closed vectorised form.

A rule is the name of a product group of `tidewalk.data.calendar.hours` ("cme-equity"), or "utc-day": the UTC date,
midnight to midnight, every day of the week.

A session belongs to the date on which it ends, so Sunday evening is Monday. Everything printed from the usual opening
time on belongs to the next weekday, a stray print of a Friday evening or a Saturday too. The exchange books the trades
of a short holiday session under the next trade date; here the holiday is a session of its own, as the calendar shows
it, except in a market that trades around the clock.
"""

import dataclasses
import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.calendar.days import ONE_DAY, next_weekday, us_market_holidays, us_mornings_after
from tidewalk.data.calendar.hours import GROUPS, SHUT, Group
from tidewalk.data.checks.quality import Finding

RULES = (*GROUPS, "utc-day")
"""Session rules understood here."""

_OLD_NAMES = {"cme-globex": "cme-equity"}
"""Rules that markets saved before may name, and what stands for them."""

_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_MINUTE_NS = 60_000_000_000
_DAY_NS = 86_400_000_000_000
_DAY_MINUTES = 1440
_LEAD_DAYS = 10
_MANY_OUTSIDE, _FEWEST_OUTSIDE = 0.1, 100
"""Share of bars outside the hours, and least number of them, above which the hours are those of something else."""
"""Days before a span from which its first session is found, longer than any run of days without one."""


@dataclass(frozen=True)
class SessionColumns:
    """The place of every bar in its session; arrays of the length of the bars."""

    trade_day: NDArray[np.int32]
    """Trade date, in days since 1970-01-01."""
    minute_of_session: NDArray[np.int32]
    """Whole minutes on the session's clock at the bar's start. It reads 0 at the usual opening time (17:00 Chicago), so
    that a minute means the same time of day in a session that opens late or early; 0 for a print before the clock."""
    minutes_to_close: NDArray[np.int32]
    """Minutes from the bar's start to the scheduled close, a part minute counted whole; 0 at or beyond the close."""
    is_outside: NDArray[np.bool_]
    """The bar starts outside the scheduled hours: a stray print, or an exchange open longer than known here."""
    is_halted: NDArray[np.bool_]
    """The bar starts in a scheduled pause inside the session."""


_FIELDS = dataclasses.fields(SessionColumns)


@dataclass(frozen=True)
class Schedule:
    """Scheduled sessions in order, arrays of one entry per trade date."""

    trade_day: NDArray[np.int32]
    """Trade date, in days since 1970-01-01."""
    open_ns: NDArray[np.int64]
    """UTC start of the session."""
    close_ns: NDArray[np.int64]
    """UTC end of the session; bars start before it."""
    halt_from_ns: NDArray[np.int64]
    """UTC start of the pause inside the session; the close where there is none."""
    halt_to_ns: NDArray[np.int64]
    """UTC end of the pause; the close where there is none."""
    is_short: NDArray[np.bool_]
    """The session closes early, or there is none."""


@dataclass(frozen=True)
class _Table:
    """A schedule with the days shut all day in it, which close as they open."""

    schedule: Schedule
    owned_from_ns: NDArray[np.int64]
    """UTC moment from which a print belongs to each trade date."""
    zero_ns: NDArray[np.int64]
    """UTC moment at which the clock of each session reads 0."""


def session_columns(ts_ns: NDArray[np.int64], rule: str) -> SessionColumns:
    """Trade date and session clock of every bar.

    Args:
        ts_ns: UTC start of the bars, in any order.
        rule: one of `RULES`.

    Returns:
        Columns of the length of `ts_ns`. No bar is dropped and no count is negative: a bar outside the scheduled hours
        or inside a pause is only marked. A date on which the exchange is shut all day is a session of no length.

    Raises:
        ConfigError: unknown rule.
    """
    ts_ns = np.asarray(ts_ns, np.int64)
    if ts_ns.size == 0:
        empty, nowhere = np.zeros(0, np.int32), np.zeros(0, np.bool_)
        return SessionColumns(empty, empty, empty, nowhere, nowhere)
    table, row = _rows_of(ts_ns, _known(rule))
    scheduled = table.schedule
    open_ns, until_close = scheduled.open_ns[row], scheduled.close_ns[row] - ts_ns
    minute = ((ts_ns - table.zero_ns[row]) // _MINUTE_NS).astype(np.int32)
    # Before the usual opening time, in a session that opens earlier: still a time of day.
    early = np.flatnonzero(minute < 0)
    minute[early] = np.where(ts_ns[early] >= open_ns[early], minute[early] % _DAY_MINUTES, 0)
    is_outside = (ts_ns < open_ns) | (until_close <= 0)
    is_halted = np.zeros(ts_ns.size, np.bool_)
    if np.any(scheduled.halt_from_ns < scheduled.halt_to_ns):
        is_halted = (ts_ns >= scheduled.halt_from_ns[row]) & (ts_ns < scheduled.halt_to_ns[row])
    return SessionColumns(
        trade_day=scheduled.trade_day[row],
        minute_of_session=minute,
        minutes_to_close=(-(np.minimum(-until_close, 0) // _MINUTE_NS)).astype(np.int32),
        is_outside=is_outside,
        is_halted=is_halted,
    )


def joined(columns: Sequence[SessionColumns], rows: Sequence[slice]) -> SessionColumns:
    """The given rows of each of the columns, one after the other."""
    parts = [[getattr(part, field.name)[kept] for part, kept in zip(columns, rows, strict=True)] for field in _FIELDS]
    return SessionColumns(*(np.concatenate(part) for part in parts))


def schedule(first: datetime.date, last: datetime.date, rule: str) -> Schedule:
    """Scheduled sessions with trade dates in [first, last], days shut all day left out.

    Raises:
        ConfigError: unknown rule.
    """
    table = _table(_known(rule), _day_number(first), _day_number(last) + 1).schedule
    return _picked(table, table.close_ns > table.open_ns)


def until_close_ns(ts_ns: NDArray[np.int64], rule: str) -> NDArray[np.int64]:
    """Time from each moment to the scheduled close of the session it belongs to; 0 or less at or after the close.

    Args:
        ts_ns: [N] UTC moments, in any order.
        rule: one of `RULES`.

    Raises:
        ConfigError: unknown rule.
    """
    rule, ts_ns = _known(rule), np.asarray(ts_ns, np.int64)
    if not ts_ns.size:
        return np.zeros(0, np.int64)
    table, row = _rows_of(ts_ns, rule)
    return table.schedule.close_ns[row] - ts_ns


def scheduled_minutes(rule: str, trade_day: NDArray[np.int32]) -> NDArray[np.int32]:
    """Minutes of trading scheduled on each trade date, pauses taken out; 0 where the exchange is shut.

    Args:
        rule: one of `RULES`.
        trade_day: [N] trade dates, in days since 1970-01-01, in any order.

    Returns:
        [N] minutes.

    Raises:
        ConfigError: unknown rule.
    """
    rule = _known(rule)
    if not len(trade_day):
        return np.zeros(0, np.int32)
    table = _table(rule, int(trade_day.min()), int(trade_day.max()) + 1).schedule
    length_ns = table.close_ns - table.open_ns - (table.halt_to_ns - table.halt_from_ns)
    minutes = np.zeros(int(trade_day.max() - trade_day.min()) + 1, np.int32)
    minutes[table.trade_day - trade_day.min()] = length_ns // _MINUTE_NS
    return minutes[trade_day - trade_day.min()]


def outside_findings(
    ts_ns: NDArray[np.int64], columns: SessionColumns, rule: str, interval_ns: int | None = None
) -> tuple[Finding, ...]:
    """What lies outside the scheduled hours: one finding per kind of place, with the number of bars and the first.

    Kinds: weekends, full holidays, after an early close, the daily break, pauses inside a session. Nothing is said of a
    bar that reaches into the session that follows it, such as a bar of a whole day. A large share of all bars is a
    warning.

    Args:
        ts_ns: UTC start of the bars, in order.
        columns: their session columns.
        rule: the rule of the columns.
        interval_ns: length of the bars; None or 0 where it is not known.
    """
    rule = _known(rule)
    rows = np.flatnonzero(columns.is_outside | columns.is_halted)
    if not rows.size:
        return ()
    table, session = _rows_of(ts_ns[rows], rule)
    scheduled = table.schedule
    open_ns, is_halted = scheduled.open_ns[session], columns.is_halted[rows]
    is_shut = open_ns == scheduled.close_ns[session]
    is_before = ts_ns[rows] < open_ns
    next_ns = np.where(is_before & ~is_shut, open_ns, scheduled.open_ns[session + 1])
    next_ns = np.where(is_halted, scheduled.halt_to_ns[session], next_ns)
    stays_out = ts_ns[rows] + (interval_ns or 0) <= next_ns
    kinds = {
        "in a scheduled pause of the session": is_halted,
        "on a weekend": is_before & (open_ns - table.owned_from_ns[session] >= _DAY_NS),
        "on a full holiday": is_shut,
        "after an early close": ~is_before & scheduled.is_short[session],
        "in the daily break or before a late open": np.ones(rows.size, np.bool_),
    }
    kind = np.select(list(kinds.values()), list(range(len(kinds))))
    found = [(where, rows[stays_out & (kind == number)]) for number, where in enumerate(kinds)]
    listed = [
        Finding("outside-session", _line(int(rows.size), where, int(ts_ns[rows[0]]), rule), int(rows.size))
        for where, rows in found
        if rows.size
    ]
    count = sum(finding.count for finding in listed)
    if count >= _FEWEST_OUTSIDE and count > _MANY_OUTSIDE * len(ts_ns):
        text = (
            f"{count:,} of {len(ts_ns):,} bars ({count / len(ts_ns):.0%}) lie outside the hours of {rule}: stamps in "
            "another time zone than the one assumed, or another product than the symbol says"
        )
        listed.append(Finding("outside-session", text, count, is_warning=True))
    return tuple(listed)


def _line(count: int, where: str, first_ns: int, rule: str) -> str:
    stamp = f"{np.datetime64(first_ns, 'ns').astype('datetime64[s]')}Z"
    if count == 1:
        return f"1 bar lies {where}, outside the hours of {rule}, and is kept: at {stamp}"
    return f"{count:,} bars lie {where}, outside the hours of {rule}, and are kept: the first at {stamp}"


def last_session_of_month(year: int, month: int, rule: str) -> datetime.date:
    """Last trade date the exchange has in a calendar month; for "utc-day" its last calendar day.

    Raises:
        ConfigError: unknown rule.
    """
    next_month = datetime.date(year + month // 12, month % 12 + 1, 1)
    sessions = schedule(next_month - _LEAD_DAYS * ONE_DAY, next_month - ONE_DAY, rule)
    return _date(int(sessions.trade_day[-1]))


def _known(rule: str) -> str:
    rule = _OLD_NAMES.get(rule, rule)
    if rule not in RULES:
        raise ConfigError(
            f"session rule {rule!r} is not known{did_you_mean(rule, RULES)}: use one of {', '.join(RULES)}"
        )
    return rule


def _day_number(date: datetime.date) -> int:
    return date.toordinal() - _EPOCH_ORDINAL


def _date(day_number: int) -> datetime.date:
    return datetime.date.fromordinal(day_number + _EPOCH_ORDINAL)


def _picked(table: Schedule, keep: NDArray[np.bool_] | slice) -> Schedule:
    return Schedule(
        table.trade_day[keep],
        table.open_ns[keep],
        table.close_ns[keep],
        table.halt_from_ns[keep],
        table.halt_to_ns[keep],
        table.is_short[keep],
    )


def _rows_of(ts_ns: NDArray[np.int64], rule: str) -> tuple[_Table, NDArray[np.int64]]:
    """A table that covers the stamps, and its row for each of them."""
    first_day, last_day = int(ts_ns.min() // _DAY_NS), int(ts_ns.max() // _DAY_NS)
    # A bar may belong to a date after its own, and the table must begin before the first bar.
    table = _table(rule, first_day - _LEAD_DAYS, last_day + _LEAD_DAYS)
    return table, _last_at_or_before(table.owned_from_ns, ts_ns)


def _last_at_or_before(edges_ns: NDArray[np.int64], ts_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the last edge at or before each stamp; sorted stamps take the fast way of finding the edges in them."""
    if np.all(ts_ns[1:] >= ts_ns[:-1]):
        starts = np.searchsorted(ts_ns, edges_ns)
        counts = np.diff(np.append(starts, ts_ns.size))
        return np.repeat(np.arange(edges_ns.size), counts)
    return np.searchsorted(edges_ns, ts_ns, side="right") - 1


def _table(rule: str, first_day: int, stop_day: int) -> _Table:
    """Sessions of all trade dates in [first_day, stop_day); those of full closures close as they open."""
    if rule == "utc-day":
        days = np.arange(first_day, stop_day, dtype=np.int64)
        open_ns, close_ns = days * _DAY_NS, (days + 1) * _DAY_NS
        is_short = np.zeros(days.size, np.bool_)
        utc_days = Schedule(days.astype(np.int32), open_ns, close_ns, close_ns, close_ns, is_short)
        return _Table(utc_days, open_ns, open_ns)
    whole = _years(rule, _date(first_day).year, _date(stop_day - 1).year)
    first, stop = np.searchsorted(whole.schedule.trade_day, (first_day, stop_day))
    keep = slice(int(first), int(stop))
    return _Table(_picked(whole.schedule, keep), whole.owned_from_ns[keep], whole.zero_ns[keep])


@functools.lru_cache(maxsize=64)
def _years(rule: str, first_year: int, last_year: int) -> _Table:
    """Sessions of all weekdays of successive years."""
    rows = [row for year in range(first_year, last_year + 1) for row in _year(rule, year)]

    def column(*fields: str) -> list[NDArray[np.int64]]:
        return [np.array([getattr(row, name) for row in rows], np.int64) for name in fields]

    open_ns, close_ns, halt_from_ns, halt_to_ns = column("open_ns", "close_ns", "halt_from_ns", "halt_to_ns")
    owned_from_ns, zero_ns = column("owned_from_ns", "zero_ns")
    trade_day = np.array([_day_number(row.date) for row in rows], np.int32)
    is_short = np.array([row.is_short for row in rows], np.bool_)
    return _Table(Schedule(trade_day, open_ns, close_ns, halt_from_ns, halt_to_ns, is_short), owned_from_ns, zero_ns)


@dataclass(frozen=True)
class _Session:
    """One row of a table."""

    date: datetime.date
    open_ns: int
    close_ns: int
    halt_from_ns: int
    halt_to_ns: int
    is_short: bool
    owned_from_ns: int
    zero_ns: int


@functools.lru_cache(maxsize=256)
def _year(rule: str, year: int) -> tuple[_Session, ...]:
    """Sessions of all weekdays of a year: tables of many contracts are made of the same ones."""
    group, zone = GROUPS[rule], ZoneInfo(GROUPS[rule].zone)
    # What the day before was like decides when a session opens, and there is none before the first day of the chain.
    day = next_weekday(datetime.date(year, 1, 1) - _LEAD_DAYS * ONE_DAY)
    before = _Session(day, 0, 0, 0, 0, False, 0, 0)
    rows: list[_Session] = []
    while day.year <= year:
        session = _session(group, zone, day, before)
        if day.year == year:
            rows.append(session)
        day, before = next_weekday(day), session
    return tuple(rows)


def _session(group: Group, zone: ZoneInfo, day: datetime.date, before: _Session) -> _Session:
    """The session of a weekday, given that of the weekday before."""
    hours, special = group.hours_on(day), group.close_on(day)
    zero_ns = _utc_ns(day, group.zero, zone)
    if hours.is_continuous:
        is_shut = day in us_market_holidays(day.year)
        close_ns = before.close_ns if is_shut else _utc_ns(day, hours.close, zone)
        return _Session(day, before.close_ns, close_ns, close_ns, close_ns, is_shut, before.close_ns, zero_ns)
    open_minute = hours.open
    if hours.rested_open is not None and (day.weekday() == 0 or before.is_short):
        open_minute = hours.rested_open
    if group.morning_open is not None and day in us_mornings_after(day.year):
        open_minute = group.morning_open
    open_minute = group.opens.get(day, open_minute)
    open_ns = _utc_ns(day, open_minute, ZoneInfo("UTC") if hours.opens_in_utc else zone)
    close_ns = open_ns if special == SHUT else _utc_ns(day, hours.close if special is None else special, zone)
    halt = hours.halt or (hours.close, hours.close)
    halt_from_ns, halt_to_ns = (min(max(_utc_ns(day, at, zone), open_ns), close_ns) for at in halt)
    # A session of the evening before is awaited from the time it would have opened on the day after the weekday before.
    owned_from_ns = _utc_ns(before.date + ONE_DAY, min(hours.open, 0), zone)
    return _Session(day, open_ns, close_ns, halt_from_ns, halt_to_ns, special is not None, owned_from_ns, zero_ns)


def _utc_ns(day: datetime.date, minute: int, zone: ZoneInfo) -> int:
    """UTC nanoseconds of minutes of wall time after (before) a local midnight. No time here falls in a clock change."""
    days, minute = divmod(minute, _DAY_MINUTES)
    at = datetime.datetime.combine(day + days * ONE_DAY, datetime.time(minute // 60, minute % 60), zone)
    return int(at.timestamp()) * 1_000_000_000
