"""Days on which exchanges keep other hours, by rule: nth weekdays, observed holidays, Easter."""

import datetime
import functools

ONE_DAY = datetime.timedelta(days=1)


def nth_weekday(year: int, month: int, weekday: int, nth: int) -> datetime.date:
    """The nth (1-based) given weekday (Monday 0) of a month."""
    first = datetime.date(year, month, 1)
    return first + datetime.timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))


def easter_sunday(year: int) -> datetime.date:
    """Easter of a year after 1582: anonymous Gregorian algorithm (Meeus, Astronomical Algorithms, ch. 8)."""
    a, (b, c) = year % 19, divmod(year, 100)
    (d, e), f = divmod(b, 4), (b + 8) // 25
    g = (b - f + 1) // 3
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    weekday_shift = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * weekday_shift) // 451
    month, day = divmod(h + weekday_shift - 7 * m + 114, 31)
    return datetime.date(year, month, day + 1)


@functools.cache
def us_market_holidays(year: int) -> frozenset[datetime.date]:
    """Weekdays on which the US stock exchanges are shut in a year by rule, as kept.

    New Year's Day, Martin Luther King, Presidents' Day, Good Friday, Memorial Day, Juneteenth (from 2022), Independence
    Day, Labor Day, Thanksgiving, Christmas. Closures by decree (days of mourning, storms) are not rules.
    """
    return frozenset([_good_friday(year), *_short_holidays(year), *_year_end_holidays(year)])


@functools.cache
def us_occasions(year: int) -> dict[datetime.date, str]:
    """Weekdays of a year on which some US futures keep other hours, each with its kind.

    * `full`: New Year's Day, Christmas, and Good Friday unless it is
    * `payroll-friday`: a Good Friday that is the first Friday of April, the day of the employment report;
    * `short`: the other holidays of the stock exchanges, and `friday-short` where one is kept on a Friday;
    * `eve`: the Friday before such a holiday that is kept on a Monday, and `columbus-eve` the one before Columbus Day;
    * `july-3`: before an Independence Day on Tuesday to Friday;
    * `black-friday`: after Thanksgiving;
    * `christmas-eve`: December 24 on Monday to Thursday.
    """
    occasions = {nth_weekday(year, 10, 0, 2) - 3 * ONE_DAY: "columbus-eve"}
    for day in _short_holidays(year):
        occasions[day] = "friday-short" if day.weekday() == 4 else "short"
        if day.weekday() == 0:
            occasions[day - 3 * ONE_DAY] = "eve"
    occasions[nth_weekday(year, 11, 3, 4) + ONE_DAY] = "black-friday"
    early = {datetime.date(year, 7, 3): "july-3", datetime.date(year, 12, 24): "christmas-eve"}
    occasions.update({day: kind for day, kind in early.items() if day.weekday() < 4})
    occasions.update(dict.fromkeys(_year_end_holidays(year), "full"))
    good_friday = _good_friday(year)
    occasions[good_friday] = "payroll-friday" if good_friday == nth_weekday(year, 4, 4, 1) else "full"
    return occasions


@functools.cache
def us_mornings_after(year: int) -> frozenset[datetime.date]:
    """Weekdays that follow a night without trading in the grains.

    The days after Thanksgiving, Christmas, New Year's Day and an Independence Day in the middle of a week.
    """
    nights = [nth_weekday(year, 11, 3, 4), *_year_end_holidays(year)]
    independence = _observed(datetime.date(year, 7, 4))
    if independence.weekday() in (1, 2, 3):
        nights.append(independence)
    return frozenset(next_weekday(day) for day in nights)


@functools.cache
def eurex_occasions(year: int) -> dict[datetime.date, str]:
    """Weekdays of a year on which Eurex trades no index futures: New Year, Easter, May 1, December 24 to 26 and 31."""
    easter = easter_sunday(year)
    fixed = [datetime.date(year, month, day) for month, day in ((1, 1), (5, 1), (12, 24), (12, 25), (12, 26), (12, 31))]
    return {day: "full" for day in (*fixed, easter - 2 * ONE_DAY, easter + ONE_DAY) if day.weekday() < 5}


def next_weekday(day: datetime.date) -> datetime.date:
    """The first Monday to Friday after a day."""
    day += ONE_DAY
    while day.weekday() > 4:
        day += ONE_DAY
    return day


def _good_friday(year: int) -> datetime.date:
    return easter_sunday(year) - 2 * ONE_DAY


def _year_end_holidays(year: int) -> list[datetime.date]:
    """Christmas and New Year's Day as kept in a year: a New Year on a Saturday is not."""
    new_year = datetime.date(year, 1, 1)
    days = [_observed(datetime.date(year, 12, 25))]
    return days if new_year.weekday() == 5 else [_observed(new_year), *days]


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
