import datetime

import pytest

from tidewalk.data.calendar.days import (
    easter_sunday,
    eurex_occasions,
    next_weekday,
    nth_weekday,
    us_market_holidays,
    us_mornings_after,
    us_occasions,
)

DATE = datetime.date


def test_us_market_holidays():
    # New York Stock Exchange, announced holidays.
    assert sorted(us_market_holidays(2022)) == [
        *(DATE(2022, 1, 17), DATE(2022, 2, 21), DATE(2022, 4, 15), DATE(2022, 5, 30), DATE(2022, 6, 20)),
        *(DATE(2022, 7, 4), DATE(2022, 9, 5), DATE(2022, 11, 24), DATE(2022, 12, 26)),
    ]
    assert sorted(us_market_holidays(2024)) == [
        *(DATE(2024, 1, 1), DATE(2024, 1, 15), DATE(2024, 2, 19), DATE(2024, 3, 29), DATE(2024, 5, 27)),
        *(DATE(2024, 6, 19), DATE(2024, 7, 4), DATE(2024, 9, 2), DATE(2024, 11, 28), DATE(2024, 12, 25)),
    ]


@pytest.mark.filterwarnings("ignore")  # the calendar's own, about pandas
def test_us_market_holidays_are_those_of_an_independent_calendar():
    """Every weekday without a New York session in 2003-2027, closures by decree apart."""
    xcals = pytest.importorskip("exchange_calendars")
    calendar = xcals.get_calendar("XNYS", start="2003-01-02", end="2027-11-26")
    theirs = {session.date() for session in calendar.sessions}
    day, shut = DATE(2003, 1, 2), set[DATE]()
    while day < DATE(2027, 11, 26):
        shut |= {day} if day.weekday() < 5 and day not in theirs else set()
        day += datetime.timedelta(days=1)
    decreed = {DATE(2004, 6, 11), DATE(2007, 1, 2), DATE(2012, 10, 29), DATE(2012, 10, 30), DATE(2018, 12, 5)}
    ours = {day for year in range(2003, 2028) for day in us_market_holidays(year)}
    assert shut == {day for day in ours if DATE(2003, 1, 2) <= day < DATE(2027, 11, 26)} | decreed | {DATE(2025, 1, 9)}


def test_easter():
    # Astronomical tables: the earliest and the latest of the century among them.
    for day in (DATE(2008, 3, 23), DATE(2011, 4, 24), DATE(2024, 3, 31), DATE(2025, 4, 20), DATE(2038, 4, 25)):
        assert easter_sunday(day.year) == day


def test_nth_weekday_and_the_weekday_after():
    assert nth_weekday(2024, 3, 4, 3) == DATE(2024, 3, 15)
    assert nth_weekday(2024, 9, 0, 1) == DATE(2024, 9, 2)
    assert next_weekday(DATE(2024, 5, 3)) == DATE(2024, 5, 6)
    assert next_weekday(DATE(2024, 5, 6)) == DATE(2024, 5, 7)


def test_the_occasions_of_a_year():
    assert us_occasions(2019) == {
        **{DATE(2019, 1, 1): "full", DATE(2019, 1, 18): "eve", DATE(2019, 1, 21): "short"},
        **{DATE(2019, 2, 15): "eve", DATE(2019, 2, 18): "short", DATE(2019, 4, 19): "full"},
        **{DATE(2019, 5, 24): "eve", DATE(2019, 5, 27): "short", DATE(2019, 7, 3): "july-3"},
        **{DATE(2019, 7, 4): "short", DATE(2019, 8, 30): "eve", DATE(2019, 9, 2): "short"},
        **{DATE(2019, 10, 11): "columbus-eve", DATE(2019, 11, 28): "short", DATE(2019, 11, 29): "black-friday"},
        **{DATE(2019, 12, 24): "christmas-eve", DATE(2019, 12, 25): "full"},
    }


def test_good_fridays_with_an_employment_report():
    # Those on which index futures traded, and all others.
    report = {2010, 2012, 2015, 2021, 2023, 2026}
    kinds = {year: us_occasions(year)[easter_sunday(year) - datetime.timedelta(days=2)] for year in range(2008, 2027)}
    assert {year for year, kind in kinds.items() if kind == "payroll-friday"} == report
    assert {kind for year, kind in kinds.items() if year not in report} == {"full"}


@pytest.mark.parametrize(
    ("date", "kind"),
    [
        (DATE(2020, 7, 3), "friday-short"),
        (DATE(2021, 7, 5), "short"),
        (DATE(2021, 12, 24), "full"),
        (DATE(2022, 12, 26), "full"),
        (DATE(2023, 1, 2), "full"),
    ],
)
def test_holidays_on_a_weekend_are_kept_on_the_next_weekday_that_is_free(date, kind):
    assert us_occasions(date.year)[date] == kind


@pytest.mark.parametrize(
    "date",
    [
        *(DATE(2022, 6, 17), DATE(2021, 6, 18), DATE(2022, 7, 1), DATE(2021, 7, 2)),
        *(DATE(2021, 12, 31), DATE(2010, 12, 31), DATE(2022, 1, 3), DATE(2021, 12, 23), DATE(2022, 12, 23)),
    ],
)
def test_days_that_only_look_like_one(date):
    assert us_occasions(date.year).get(date, "eve") == "eve"


def test_mornings_after_a_night_without_grains():
    # A broker's hours of the winter 2018: corn opened at 08:30 on December 26 and January 2.
    assert {DATE(2018, 7, 5), DATE(2018, 11, 23), DATE(2018, 12, 26)} <= us_mornings_after(2018)
    assert DATE(2019, 1, 2) in us_mornings_after(2019)
    assert DATE(2022, 7, 5) not in us_mornings_after(2022)  # after a Monday


def test_eurex_is_shut_on_these_days():
    # Index futures calendar of 2020, as published.
    assert sorted(eurex_occasions(2020)) == [
        *(DATE(2020, 1, 1), DATE(2020, 4, 10), DATE(2020, 4, 13), DATE(2020, 5, 1)),
        *(DATE(2020, 12, 24), DATE(2020, 12, 25), DATE(2020, 12, 31)),
    ]
