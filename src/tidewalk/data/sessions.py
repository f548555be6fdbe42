"""Trade dates and session clocks of futures exchanges, in closed vectorised form.

Three rules:

* `cme-globex`: CME Globex with the early closes of the equity-index group;
* `cme-globex-regular`: the same trade dates, full closures and daily close, without early closes, for product groups
  that keep other hours on holidays (energy, metals, rates, currencies, crypto);
* `utc-day`: the UTC date, midnight to midnight, every day of the week.

A Globex session runs from 17:00 Chicago on the evening before to 16:00 Chicago on the trade date (16:15 until
2015-09-18). Everything printed from 17:00 on belongs to the next weekday, so Sunday evening is Monday, and stray
prints of a Friday evening or a Saturday are counted as Monday too. The exchange books the trades of a short holiday
session under the next trade date; here the holiday is a session of its own, as the calendar shows it. Not modelled:
the pause of the index futures from 15:15 to 15:30 until June 2021, halts inside a session, and the hour to 16:30 of
the index futures before November 2012 (those bars lie beyond the close used here).

Sources: CME Group holiday calendars as recorded by QuantConnect LEAN's market-hours table (2009 to 2026), with four
holes of that table closed; full closures checked against the days without any trade in 16 years of ES volume.
"""

import datetime
import functools
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean

RULES = ("cme-globex", "cme-globex-regular", "utc-day")
"""Session rules understood here."""

_CHICAGO = ZoneInfo("America/Chicago")
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_MINUTE_NS = 60_000_000_000
_DAY_NS = 86_400_000_000_000
_OPEN = datetime.time(17, 0)
_ONE_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class SessionColumns:
    """The place of every bar in its session; arrays of the length of the bars."""

    trade_day: NDArray[np.int32]
    """Trade date, in days since 1970-01-01."""
    minute_of_session: NDArray[np.int32]
    """Whole minutes from the scheduled open to the bar's start; 0 for a bar before it."""
    minutes_to_close: NDArray[np.int32]
    """Minutes from the bar's start to the scheduled close, a part minute counted whole; 0 at or beyond the close."""
    is_outside: NDArray[np.bool_]
    """The bar starts outside the scheduled hours: a stray print, or an exchange open longer than known here."""


@dataclass(frozen=True)
class Schedule:
    """Scheduled sessions in order, arrays of one entry per trade date."""

    trade_day: NDArray[np.int32]
    """Trade date, in days since 1970-01-01."""
    open_ns: NDArray[np.int64]
    """UTC start of the session."""
    close_ns: NDArray[np.int64]
    """UTC end of the session; bars start before it."""


def session_columns(ts_ns: NDArray[np.int64], rule: str) -> SessionColumns:
    """Trade date and session clock of every bar.

    Args:
        ts_ns: UTC start of the bars, in any order.
        rule: one of `RULES`.

    Returns:
        Columns of the length of `ts_ns`. No bar is dropped and no count is negative: a bar outside the scheduled hours
        is only marked. A date on which the exchange is shut all day is a session of no length.

    Raises:
        ConfigError: unknown rule.
    """
    _check_rule(rule)
    ts_ns = np.asarray(ts_ns, np.int64)
    if ts_ns.size == 0:
        empty = np.zeros(0, np.int32)
        return SessionColumns(empty, empty, empty, np.zeros(0, np.bool_))
    first_day, last_day = int(ts_ns.min() // _DAY_NS), int(ts_ns.max() // _DAY_NS)
    # A bar may belong to the Monday after its own date, and the table must begin before the first bar.
    table = _weekday_table(rule, first_day - 4, last_day + 5)
    owned_from_ns = table.open_ns if rule == "utc-day" else _owned_from_ns(table)
    row = _last_at_or_before(owned_from_ns, ts_ns)
    since_open = ts_ns - table.open_ns[row]
    until_close = table.close_ns[row] - ts_ns
    return SessionColumns(
        trade_day=table.trade_day[row],
        minute_of_session=(np.maximum(since_open, 0) // _MINUTE_NS).astype(np.int32),
        minutes_to_close=(-(np.minimum(-until_close, 0) // _MINUTE_NS)).astype(np.int32),
        is_outside=(since_open < 0) | (until_close <= 0),
    )


def schedule(first: datetime.date, last: datetime.date, rule: str) -> Schedule:
    """Scheduled sessions with trade dates in [first, last], days shut all day left out.

    Raises:
        ConfigError: unknown rule.
    """
    _check_rule(rule)
    table = _weekday_table(rule, _day_number(first), _day_number(last) + 1)
    is_open = table.close_ns > table.open_ns
    return Schedule(table.trade_day[is_open], table.open_ns[is_open], table.close_ns[is_open])


def last_session_of_month(year: int, month: int, rule: str) -> datetime.date:
    """Last trade date the exchange has in a calendar month: its last weekday that is no full closure.

    For "utc-day" it is the last calendar day.

    Raises:
        ConfigError: unknown rule.
    """
    _check_rule(rule)
    day = datetime.date(year + month // 12, month % 12 + 1, 1) - _ONE_DAY
    while rule != "utc-day" and (day.weekday() > 4 or is_full_holiday(day)):
        day -= _ONE_DAY
    return day


def is_full_holiday(date: datetime.date) -> bool:
    """Whether Globex has no session with this trade date although it is a weekday.

    Christmas and New Year's Day (a Sunday is kept on Monday; a Saturday Christmas on Friday, a Saturday New Year not at
    all), and Good Friday, except in years whose employment report falls on it: then there is a short session.
    """
    return date in _full_holidays(date.year)


@functools.cache
def us_market_holidays(year: int) -> frozenset[datetime.date]:
    """Weekdays on which the US stock exchanges are shut in a year by rule, as kept.

    New Year's Day, Martin Luther King, Presidents' Day, Good Friday, Memorial Day, Juneteenth (from 2022), Independence
    Day, Labor Day, Thanksgiving, Christmas. Closures by decree (days of mourning, storms) are not rules.
    """
    days = [_good_friday(year), *_short_holidays(year), *(day for day in _full_holidays(year))]
    return frozenset(days)


@functools.cache
def early_closes(year: int) -> dict[datetime.date, datetime.time]:
    """Chicago closing times of the equity-index group on short days of a year, by trade date.

    By rule: holidays at 12:00 (10:30 until spring 2014), the day after Thanksgiving, Christmas Eve (Monday to
    Thursday) and July 3 before a July 4 on Tuesday to Friday at 12:15; by table: Good Fridays with an employment
    report at 08:15 and days of mourning at 08:30.
    """
    noon = datetime.time(12, 0)
    quarter_past = datetime.time(12, 15)
    # LEAN table: 11:30 New York up to Presidents' Day 2014, 13:00 from Memorial Day 2014.
    closes = {
        day: noon if day >= datetime.date(2014, 5, 26) else datetime.time(10, 30) for day in _short_holidays(year)
    }
    closes[nth_weekday(year, 11, 3, 4) + _ONE_DAY] = quarter_past
    for day in (datetime.date(year, 7, 3), datetime.date(year, 12, 24)):
        if day.weekday() < 4:
            closes[day] = quarter_past
    closes.update({day: close for day, close in _DATED_CLOSES.items() if day.year == year})
    return closes


_DATED_CLOSES = {
    # Good Fridays with an employment report: LEAN table, 09:15 New York; 57,395 and 65,900 ES traded in 2021 and 2023.
    **dict.fromkeys((datetime.date(2010, 4, 2), datetime.date(2012, 4, 6)), datetime.time(8, 15)),
    **dict.fromkeys((datetime.date(2015, 4, 3), datetime.date(2021, 4, 2)), datetime.time(8, 15)),
    **dict.fromkeys((datetime.date(2023, 4, 7), datetime.date(2026, 4, 3)), datetime.time(8, 15)),
    # Days of mourning for Presidents Bush and Carter: 231 k and 123 k ES traded; the time of 2025 is in CME's notice.
    **dict.fromkeys((datetime.date(2018, 12, 5), datetime.date(2025, 1, 9)), datetime.time(8, 30)),
}


@functools.cache
def _full_holidays(year: int) -> frozenset[datetime.date]:
    days = {_good_friday(year)} - set(_DATED_CLOSES)
    new_year, christmas = datetime.date(year, 1, 1), datetime.date(year, 12, 25)
    if new_year.weekday() != 5:
        days.add(_observed(new_year))
    days.add(_observed(christmas))
    return frozenset(days)


def _short_holidays(year: int) -> list[datetime.date]:
    """Holidays on which Globex closes early, as kept."""
    last_of_may = datetime.date(year, 5, 31)
    days = [
        nth_weekday(year, 1, 0, 3),  # Martin Luther King
        nth_weekday(year, 2, 0, 3),  # Presidents
        last_of_may - datetime.timedelta(days=last_of_may.weekday()),  # Memorial
        _observed(datetime.date(year, 7, 4)),  # Independence
        nth_weekday(year, 9, 0, 1),  # Labor
        nth_weekday(year, 11, 3, 4),  # Thanksgiving
    ]
    return [*days, _observed(datetime.date(year, 6, 19))] if year >= 2022 else days


def _observed(day: datetime.date) -> datetime.date:
    """The weekday on which a fixed holiday is kept: Saturday on Friday, Sunday on Monday."""
    return day + datetime.timedelta(days={5: -1, 6: 1}.get(day.weekday(), 0))


def nth_weekday(year: int, month: int, weekday: int, nth: int) -> datetime.date:
    """The nth (1-based) given weekday (Monday 0) of a month."""
    first = datetime.date(year, month, 1)
    return first + datetime.timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))


def _good_friday(year: int) -> datetime.date:
    """Good Friday of a year after 1582: anonymous Gregorian algorithm (Meeus, Astronomical Algorithms, ch. 8)."""
    a, (b, c) = year % 19, divmod(year, 100)
    (d, e), f = divmod(b, 4), (b + 8) // 25
    g = (b - f + 1) // 3
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    weekday_shift = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * weekday_shift) // 451
    month, day = divmod(h + weekday_shift - 7 * m + 114, 31)
    return datetime.date(year, month, day + 1) - 2 * _ONE_DAY


def _check_rule(rule: str) -> None:
    if rule not in RULES:
        raise ConfigError(
            f"session rule {rule!r} is not known{did_you_mean(rule, RULES)}: use one of {', '.join(RULES)}"
        )


def _day_number(date: datetime.date) -> int:
    return date.toordinal() - _EPOCH_ORDINAL


def _date(day_number: int) -> datetime.date:
    return datetime.date.fromordinal(day_number + _EPOCH_ORDINAL)


def _chicago_ns(date: datetime.date, time: datetime.time) -> int:
    """UTC nanoseconds of a Chicago wall time (whole seconds). Opens and closes never fall in a clock change."""
    return int(datetime.datetime.combine(date, time, _CHICAGO).timestamp()) * 1_000_000_000


def _close_ns(date: datetime.date, rule: str) -> int:
    if is_full_holiday(date):
        return _chicago_ns(date - _ONE_DAY, _OPEN)
    close = datetime.time(16, 0) if date >= datetime.date(2015, 9, 21) else datetime.time(16, 15)
    if rule == "cme-globex":
        close = early_closes(date.year).get(date, close)
    return _chicago_ns(date, close)


@functools.lru_cache(maxsize=32)
def _weekday_table(rule: str, first_day: int, stop_day: int) -> Schedule:
    """Sessions of all trade dates in [first_day, stop_day); those of full closures close as they open."""
    days = np.arange(first_day, stop_day, dtype=np.int64)
    if rule == "utc-day":
        return Schedule(days.astype(np.int32), days * _DAY_NS, (days + 1) * _DAY_NS)
    dates = [date for date in map(_date, days.tolist()) if date.weekday() < 5]
    return Schedule(
        trade_day=np.array([_day_number(date) for date in dates], np.int32),
        open_ns=np.array([_chicago_ns(date - _ONE_DAY, _OPEN) for date in dates], np.int64),
        close_ns=np.array([_close_ns(date, rule) for date in dates], np.int64),
    )


def _owned_from_ns(table: Schedule) -> NDArray[np.int64]:
    """UTC moment from which a print belongs to each trade date: 17:00 Chicago of the weekday before."""
    owned_from_ns = table.open_ns.copy()
    for row, day in enumerate(table.trade_day.tolist()):
        date = _date(day)
        if date.weekday() == 0:
            owned_from_ns[row] = _chicago_ns(date - 3 * _ONE_DAY, _OPEN)
    return owned_from_ns


def _last_at_or_before(edges_ns: NDArray[np.int64], ts_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the last edge at or before each stamp; sorted stamps take the fast way of finding the edges in them."""
    if np.all(ts_ns[1:] >= ts_ns[:-1]):
        starts = np.searchsorted(ts_ns, edges_ns)
        counts = np.diff(np.append(starts, ts_ns.size))
        return np.repeat(np.arange(edges_ns.size), counts)
    return np.searchsorted(edges_ns, ts_ns, side="right") - 1
