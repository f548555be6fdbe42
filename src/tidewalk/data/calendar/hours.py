"""Trading hours per product group: regular hours by era, what holidays change, and dated exceptions.

Times are minutes of the exchange's local time, counted from the midnight that begins the trade date: 16:00 is 960, and
17:00 of the evening before is -420. Where a time could not be found, the longer hours are taken: a bar that traded is
then never called outside, at the price of a close that comes later than it did.

Sources: QuantConnect LEAN, market-hours database (early closes and late opens 2009 to 2026); CME Group press releases
and notices, quoted at the dates they announce; tests of pandas_market_calendars that transcribe CME's holiday
calendars; bars of real data. Not found, and not modelled: hours before 2009 where they differed (the oldest rule goes
on backwards), early closes of the grains on July 3, the weekly maintenance of crypto futures since they trade around
the clock, and the Eurex days on which DAX futures alone were shut (October 3, Whit Monday).
"""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidewalk.data.calendar.days import eurex_occasions, us_occasions

SHUT = -100_000
"""Closing time of a trade date without a session."""

_DATE = datetime.date
_ALWAYS = datetime.date.min
_CHICAGO = "America/Chicago"


def _at(clock: str) -> int:
    """Minutes from midnight of "HH:MM"."""
    return 60 * int(clock[:2]) + int(clock[3:])


def _eve(clock: str) -> int:
    """The same of the evening before."""
    return _at(clock) - 24 * 60


@dataclass(frozen=True)
class Hours:
    """Regular hours from a trade date on."""

    since: datetime.date
    open: int
    close: int
    halt: tuple[int, int] | None = None
    """From and to of a scheduled pause inside the session."""
    rested_open: int | None = None
    """Opening time after a weekend, a holiday or an early close, where it is another."""
    is_continuous: bool = False
    """A session opens at the close of the one before, also over weekends and holidays, which are no trade dates."""
    opens_in_utc: bool = False
    """`open` is a time of UTC."""


Closes = Mapping[str, tuple[tuple[datetime.date, int | None], ...]]
"""Closing times per kind of day, each from a date on; None is the regular one."""


@dataclass(frozen=True)
class Group:
    """Products that keep the same hours."""

    hours: tuple[Hours, ...]
    closes: Closes
    dated: Mapping[datetime.date, int] = field(default_factory=dict[datetime.date, int])
    """Closing times of single days, which go before the rules."""
    opens: Mapping[datetime.date, int] = field(default_factory=dict[datetime.date, int])
    """Late opening times of single days."""
    morning_open: int | None = None
    """Opening time after the nights of `us_mornings_after`."""
    zero: int = _eve("17:00")
    """Time of day at which the clock of a session reads 0: that of the usual open."""
    zone: str = _CHICAGO
    occasions: Callable[[int], dict[datetime.date, str]] = us_occasions

    def hours_on(self, day: datetime.date) -> Hours:
        """Regular hours in force on a trade date."""
        return next(hours for hours in reversed(self.hours) if hours.since <= day)

    def close_on(self, day: datetime.date) -> int | None:
        """Closing time of a weekday where it is not the regular one, `SHUT` where there is no session, else None."""
        if day in self.dated:
            return self.dated[day]
        kind = self.occasions(day.year).get(day)
        if kind is None:
            return None
        if kind == "friday-short" and kind not in self.closes:
            kind = "short"
        if kind not in self.closes:
            return SHUT if kind in ("full", "payroll-friday") else None
        return next((close for since, close in reversed(self.closes[kind]) if since <= day), None)


# In the winters 2011 to 2013 index, rate and currency futures stayed shut in the night after Christmas and New Year:
# CME holiday calendars as transcribed by pandas_market_calendars, and UTC days without a trade of ES, ZN and 6E (CL
# traded).
_AFTER_YEAR_END = dict.fromkeys(
    (
        *(_DATE(2011, 12, 27), _DATE(2012, 1, 3), _DATE(2012, 12, 26)),
        *(_DATE(2013, 1, 2), _DATE(2013, 12, 26), _DATE(2014, 1, 2)),
    ),
    _at("05:00"),
)

_EQUITY = Group(
    hours=(
        # A trade date began at 15:30 of the day before, until the pause of 16:30 to 17:00, and ended at 15:15: CME
        # announcements of 2003-09 and 2012-11 ("trade dates will begin at 17:00 vs. the current 15:30").
        Hours(_ALWAYS, _eve("15:30"), _at("15:15"), (_eve("16:30"), _eve("17:00")), rested_open=_eve("17:00")),
        Hours(_DATE(2012, 11, 19), _eve("17:00"), _at("16:15"), (_at("15:15"), _at("15:30"))),
        # CME, effective 2015-09-21 (NinjaTrader advisory 25); last bar after 16:00 in real data: 2015-08-27.
        Hours(_DATE(2015, 9, 21), _eve("17:00"), _at("16:00"), (_at("15:15"), _at("15:30"))),
        Hours(_DATE(2021, 6, 28), _eve("17:00"), _at("16:00")),
    ),
    closes={
        "short": ((_ALWAYS, _at("10:30")), (_DATE(2014, 5, 26), _at("12:00"))),
        "july-3": ((_DATE(2012, 1, 1), _at("12:15")),),
        "black-friday": ((_ALWAYS, _at("12:15")),),
        "christmas-eve": ((_ALWAYS, _at("12:15")),),
        "payroll-friday": ((_ALWAYS, _at("08:15")),),
    },
    dated={
        # Hurricane Sandy: CME press releases of 2012-10-28 and 29. Days of mourning: of 2018-12-02 and 2024-12-30.
        **dict.fromkeys((_DATE(2012, 10, 29), _DATE(2012, 10, 30)), _at("08:15")),
        **dict.fromkeys((_DATE(2018, 12, 5), _DATE(2025, 1, 9)), _at("08:30")),
    },
    opens=_AFTER_YEAR_END,
)

_EVES: Closes = {
    "eve": ((_ALWAYS, _at("15:15")), (_DATE(2015, 9, 1), None)),
    "columbus-eve": ((_ALWAYS, _at("15:15")), (_DATE(2013, 1, 1), None)),
}

_RATES = Group(
    hours=(Hours(_ALWAYS, _eve("17:00"), _at("16:00")),),
    closes={
        **_EVES,
        "short": ((_ALWAYS, _at("12:00")),),
        "black-friday": ((_ALWAYS, _at("12:15")),),
        "christmas-eve": ((_ALWAYS, _at("12:15")),),
        "payroll-friday": ((_ALWAYS, _at("10:15")),),
    },
    dated={
        _DATE(2009, 4, 9): _at("15:15"),
        _DATE(2010, 12, 31): _at("12:15"),
        _DATE(2012, 10, 29): _at("11:00"),  # CME, noon New York (Reuters)
        _DATE(2018, 12, 5): SHUT,  # CME press release of 2018-12-02; ZN traded only in the evening
        _DATE(2025, 1, 9): _at("12:15"),
    },
    opens=_AFTER_YEAR_END,
)

_FX = Group(
    hours=(Hours(_ALWAYS, _eve("17:00"), _at("16:00")),),
    closes={
        **_EVES,
        "short": ((_ALWAYS, _at("12:00")), (_DATE(2022, 1, 1), None)),
        "friday-short": ((_ALWAYS, _at("12:00")),),
        "black-friday": ((_ALWAYS, _at("12:15")), (_DATE(2024, 1, 1), _at("13:45"))),  # 2024 not found
        "christmas-eve": ((_ALWAYS, _at("12:15")), (_DATE(2025, 1, 1), _at("12:45"))),
        "payroll-friday": ((_ALWAYS, _at("10:15")),),
    },
    dated={_DATE(2009, 4, 9): _at("15:15"), _DATE(2010, 12, 31): _at("12:15")},
    opens=_AFTER_YEAR_END,
)

_NYMEX_HOURS = (
    Hours(_ALWAYS, _eve("17:00"), _at("16:15")),
    Hours(_DATE(2015, 9, 21), _eve("17:00"), _at("16:00")),  # as the index futures
)
_NYMEX_CLOSES: Closes = {
    # "NYMEX/COMEX products halt trading at 4:15 p.m.", the regular close: CME Group on Labor Day 2007.
    "short": (
        *((_ALWAYS, None), (_DATE(2009, 5, 1), _at("12:15"))),
        *((_DATE(2014, 5, 26), _at("12:00")), (_DATE(2022, 1, 1), _at("13:30"))),
    ),
    "friday-short": (
        *((_ALWAYS, None), (_DATE(2009, 5, 1), _at("12:30"))),
        (_DATE(2014, 5, 26), _at("12:00")),
    ),
    "eve": ((_DATE(2009, 5, 1), _at("15:15")), (_DATE(2011, 2, 1), None)),
    "columbus-eve": ((_DATE(2009, 5, 1), _at("15:15")), (_DATE(2011, 1, 1), None)),
    "black-friday": ((_ALWAYS, _at("12:45")), (_DATE(2024, 1, 1), _at("13:45"))),  # 2024 not found
    "christmas-eve": ((_ALWAYS, _at("12:45")),),
}
_NYMEX_DATED = {_DATE(2010, 12, 31): _at("15:15")}

_NYMEX = Group(_NYMEX_HOURS, _NYMEX_CLOSES, dated=_NYMEX_DATED)

_CRYPTO = Group(
    hours=(
        Hours(_ALWAYS, _eve("17:00"), _at("16:00")),
        # "24/7 ... beginning Friday, May 29 at 4:00 p.m. CT; holiday or weekend trading will have a trade date of the
        # following business day": CME Group, 2026-02-19.
        Hours(_DATE(2026, 6, 1), _eve("16:00"), _at("16:00"), is_continuous=True),
    ),
    closes={
        "short": ((_ALWAYS, _at("12:00")), (_DATE(2022, 1, 1), None)),
        "friday-short": ((_ALWAYS, _at("12:00")),),
        "july-3": ((_ALWAYS, _at("12:15")), (_DATE(2022, 1, 1), None)),
        "black-friday": (
            *((_ALWAYS, _at("12:15")), (_DATE(2021, 1, 1), _at("12:45"))),
            (_DATE(2024, 1, 1), _at("13:45")),  # 2024 not found
        ),
        "christmas-eve": ((_ALWAYS, _at("12:15")), (_DATE(2021, 1, 1), _at("12:45"))),
        "payroll-friday": ((_ALWAYS, _at("08:15")), (_DATE(2022, 1, 1), _at("10:15"))),
    },
)

_GRAINS = Group(
    hours=(
        # 17 hours a day until 2012, then 21: Reuters, 2012-06-20; CME of 2012-05, 2013-03 and 2015-06.
        Hours(_ALWAYS, _eve("18:00"), _at("13:15"), (_at("07:15"), _at("09:30"))),
        Hours(_DATE(2012, 5, 21), _eve("17:00"), _at("14:00")),
        Hours(_DATE(2013, 4, 8), _eve("19:00"), _at("13:15"), (_at("07:45"), _at("08:30"))),
        Hours(_DATE(2015, 7, 6), _eve("19:00"), _at("13:20"), (_at("07:45"), _at("08:30"))),
    ),
    closes={
        "short": ((_ALWAYS, SHUT),),
        "black-friday": ((_ALWAYS, _at("12:00")), (_DATE(2015, 7, 6), _at("12:05"))),
        "christmas-eve": ((_ALWAYS, _at("12:00")), (_DATE(2015, 7, 6), _at("12:05"))),
    },
    dated={_DATE(2025, 1, 9): _at("12:15")},
    morning_open=_at("08:30"),
    zero=_eve("19:00"),
)

_EUREX_INDEX = Group(
    hours=(
        Hours(_ALWAYS, _at("07:50"), _at("22:00")),
        # Pre-trading and opening auction from 01:00 CET and 02:00 CEST: Eurex circular 088/18 of 2018-11-15.
        Hours(_DATE(2018, 12, 10), _at("00:00"), _at("22:00"), opens_in_utc=True),
    ),
    closes={},
    zero=_at("01:00"),
    zone="Europe/Berlin",
    occasions=eurex_occasions,
)

GROUPS = {
    "cme-equity": _EQUITY,
    "cme-rates": _RATES,
    "cme-fx": _FX,
    "nymex-energy": _NYMEX,
    "comex-metals": _NYMEX,  # LEAN has the early closes of gold from 2024 on: all of them are those of crude oil
    "cme-crypto": _CRYPTO,
    "cbot-grains": _GRAINS,
    "eurex-index": _EUREX_INDEX,
    # Products whose holiday hours are not known here: the longest ones, shut on full holidays only.
    "cme-globex-regular": Group(_NYMEX_HOURS, {"payroll-friday": ((_ALWAYS, None),)}),
}
"""Product groups by the name of their session rule."""
