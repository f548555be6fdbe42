import datetime
import json
from zoneinfo import ZoneInfo

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.data.sessions import (
    early_closes,
    is_full_holiday,
    last_session_of_month,
    schedule,
    session_columns,
    us_market_holidays,
)

DATE = datetime.date
CHICAGO = ZoneInfo("America/Chicago")
EPOCH = DATE(1970, 1, 1)
MINUTE_NS = 60_000_000_000


def utc_ns(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()) * 10**9


def chicago_ns(date: datetime.date, hour: int, minute: int = 0) -> int:
    at = datetime.datetime.combine(date, datetime.time(hour, minute), CHICAGO)
    return int(at.timestamp()) * 10**9


def place(*ts_ns: int, rule: str = "cme-globex"):
    columns = session_columns(np.array(ts_ns, np.int64), rule)
    dates = [EPOCH + datetime.timedelta(days=day) for day in columns.trade_day.tolist()]
    return dates, columns.minute_of_session.tolist(), columns.minutes_to_close.tolist(), columns.is_outside.tolist()


def test_sunday_evening_is_monday_in_local_time_on_both_sides_of_a_clock_change():
    # Issue log B15: 17:00 Chicago is 23:00 UTC before and 22:00 UTC after 2024-03-10.
    dates, minute, to_close, outside = place(utc_ns("2024-03-03T23:00"), utc_ns("2024-03-10T22:00"))
    assert dates == [DATE(2024, 3, 4), DATE(2024, 3, 11)]
    assert minute == [0, 0]
    assert to_close == [23 * 60, 23 * 60]
    assert outside == [False, False]


def test_a_friday_evening_print_counts_as_monday_and_is_marked():
    dates, minute, _, outside = place(utc_ns("2024-03-08T23:00"))
    assert (dates, minute, outside) == ([DATE(2024, 3, 11)], [0], [True])


def test_saturday_and_sunday_noon_count_as_monday_and_are_marked():
    dates, _, _, outside = place(chicago_ns(DATE(2024, 5, 4), 11), chicago_ns(DATE(2024, 5, 5), 12))
    assert dates == [DATE(2024, 5, 6)] * 2
    assert outside == [True, True]


def test_minutes_at_the_ends_of_a_session():
    day = DATE(2024, 5, 8)
    stamps = [chicago_ns(day - datetime.timedelta(days=1), 17), chicago_ns(day, 15, 59), chicago_ns(day, 16)]
    dates, minute, to_close, outside = place(*stamps, chicago_ns(day, 16, 59), chicago_ns(day, 17))
    assert dates == [day] * 4 + [DATE(2024, 5, 9)]
    assert minute == [0, 1379, 1380, 1439, 0]
    assert to_close == [1380, 1, 0, 0, 1380]
    assert outside == [False, False, True, True, False]


def test_a_part_minute_before_the_close_still_counts():
    close_ns = chicago_ns(DATE(2024, 5, 8), 16)
    _, minute, to_close, outside = place(close_ns - 1, close_ns - MINUTE_NS - 1, close_ns - MINUTE_NS)
    assert minute == [1379, 1378, 1379]
    assert to_close == [1, 2, 1]
    assert outside == [False] * 3


def test_the_close_was_a_quarter_past_four_until_september_2015():
    _, _, to_close, outside = place(chicago_ns(DATE(2015, 9, 18), 16, 14), chicago_ns(DATE(2015, 9, 21), 16, 0))
    assert to_close == [1, 0]
    assert outside == [False, True]


@pytest.mark.parametrize(
    ("date", "hour", "minute"),
    [
        # What really happened to ES: exchange notices, and trading seen in real data.
        (DATE(2013, 9, 2), 10, 30),  # Labor Day before 2014
        (DATE(2019, 7, 3), 12, 15),
        (DATE(2019, 11, 29), 12, 15),
        (DATE(2019, 12, 24), 12, 15),
        (DATE(2020, 2, 17), 12, 0),  # Presidents' Day
        (DATE(2021, 4, 2), 8, 15),  # Good Friday with an employment report
        (DATE(2022, 6, 20), 12, 0),  # Juneteenth kept on Monday
        (DATE(2023, 4, 7), 8, 15),
        (DATE(2023, 6, 19), 12, 0),
        (DATE(2023, 7, 3), 12, 15),
        (DATE(2024, 11, 28), 12, 0),
        (DATE(2024, 11, 29), 12, 15),
        (DATE(2024, 12, 24), 12, 15),
        (DATE(2025, 1, 9), 8, 30),  # day of mourning
    ],
)
def test_early_closes_of_the_equity_index_group(date, hour, minute):
    assert early_closes(date.year)[date] == datetime.time(hour, minute)
    _, _, to_close, outside = place(chicago_ns(date, hour, minute) - MINUTE_NS, chicago_ns(date, hour, minute))
    assert to_close == [1, 0]
    assert outside == [False, True]
    _, _, to_close, _ = place(chicago_ns(date, 8), rule="cme-globex-regular")
    assert to_close in ([8 * 60], [8 * 60 + 15])


@pytest.mark.parametrize(
    "date", [DATE(2022, 6, 17), DATE(2021, 6, 18), DATE(2022, 7, 1), DATE(2021, 12, 31), DATE(2010, 12, 31)]
)
def test_no_early_close_on_days_that_only_look_like_one(date):
    assert date not in early_closes(date.year)
    assert not is_full_holiday(date)


def test_early_closes_agree_with_an_independent_table(shared_data):
    """LEAN's table of ES in New York time, its four known holes apart."""
    table = json.loads((shared_data / "reference" / "lean_market_hours_cme_subset.json").read_text())
    entries = table["entries"]["Future-cme-ES"]["earlyCloses"].items()
    theirs = {
        datetime.datetime.strptime(day, "%m/%d/%Y").date(): datetime.time(int(close[:2]) - 1, int(close[3:5]))
        for day, close in entries
        if close != "17:00:00"  # the regular close
    }
    ours = {day: close for year in range(2009, 2027) for day, close in early_closes(year).items()}
    holes = {
        DATE(2018, 12, 5): datetime.time(8, 30),
        DATE(2023, 7, 3): datetime.time(12, 15),
        DATE(2024, 7, 3): datetime.time(12, 15),
        DATE(2024, 11, 29): datetime.time(12, 15),
        DATE(2025, 1, 9): datetime.time(8, 30),
    }
    assert {**theirs, **holes} == {**ours, DATE(2027, 6, 18): datetime.time(12, 0)}
    assert early_closes(2027)[DATE(2027, 6, 18)] == datetime.time(12, 0)


def test_full_holidays():
    shut = [
        *(DATE(2010, 12, 24), DATE(2021, 12, 24)),  # Saturday Christmas kept on Friday
        *(DATE(2011, 12, 26), DATE(2012, 1, 2), DATE(2022, 12, 26), DATE(2023, 1, 2)),  # Sundays kept on Monday
        *(DATE(2020, 4, 10), DATE(2024, 3, 29), DATE(2025, 4, 18), DATE(2013, 3, 29), DATE(2014, 4, 18)),  # Good Friday
        *(DATE(2024, 12, 25), DATE(2025, 1, 1)),
    ]
    assert all(is_full_holiday(day) for day in shut)
    trading = [DATE(2021, 4, 2), DATE(2023, 4, 7), DATE(2024, 11, 28), DATE(2024, 7, 4), DATE(2024, 5, 8)]
    assert not any(is_full_holiday(day) for day in trading)


def test_full_holidays_are_the_days_without_trades(shared_data):
    """16 years of real ES volume: a weekday with no row, or only the evening after a holiday, is a full holiday."""
    table = polars.read_csv(shared_data / "csv" / "databento_es.c.0_daily_2010-2026.csv", try_parse_dates=True)
    traded = set(table["date"].to_list())
    first, last = min(traded), max(traded)
    weekdays = [first + datetime.timedelta(days=i) for i in range((last - first).days)]
    silent = {day for day in weekdays if day.weekday() < 5 and day not in traded}
    holes_of_the_file = {DATE(2014, 6, 12), DATE(2014, 6, 13), DATE(2014, 9, 23), DATE(2014, 9, 24), DATE(2014, 9, 25)}
    assert {day for day in silent if not is_full_holiday(day)} == holes_of_the_file | {DATE(2014, 12, 31)}
    volume = dict(zip(table["date"].to_list(), table["volume"].to_list(), strict=True))
    shut = [day for day in weekdays if day.weekday() < 5 and is_full_holiday(day)]
    assert len(shut) > 40
    assert max(volume.get(day, 0) for day in shut) < 50_000


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


@pytest.mark.parametrize(
    ("year", "month", "last"),
    [
        (2024, 3, DATE(2024, 3, 28)),  # the 29th is Good Friday
        (2018, 3, DATE(2018, 3, 29)),
        (2024, 5, DATE(2024, 5, 31)),
        (2021, 5, DATE(2021, 5, 31)),  # Memorial Day, open until noon
        (2022, 12, DATE(2022, 12, 30)),  # the 31st is a Saturday
        (2023, 12, DATE(2023, 12, 29)),
        (2024, 2, DATE(2024, 2, 29)),
        (2021, 12, DATE(2021, 12, 31)),
    ],
)
def test_last_session_of_a_month(year, month, last):
    assert last_session_of_month(year, month, "cme-globex") == last
    assert last_session_of_month(year, month, "cme-globex-regular") == last


def test_last_session_of_a_month_of_utc_days_is_its_last_day():
    assert last_session_of_month(2022, 12, "utc-day") == DATE(2022, 12, 31)
    assert last_session_of_month(2024, 2, "utc-day") == DATE(2024, 2, 29)


def test_utc_days():
    dates, minute, to_close, outside = place(
        utc_ns("2024-03-09T00:00"), utc_ns("2024-03-09T23:59"), utc_ns("1969-12-31T23:00"), rule="utc-day"
    )
    assert dates == [DATE(2024, 3, 9), DATE(2024, 3, 9), DATE(1969, 12, 31)]
    assert minute == [0, 1439, 1380]
    assert to_close == [1440, 1, 60]
    assert outside == [False] * 3


def test_no_bars_give_no_sessions():
    columns = session_columns(np.zeros(0, np.int64), "cme-globex")
    assert columns.trade_day.size == columns.minutes_to_close.size == columns.is_outside.size == 0


def test_a_bar_on_a_full_holiday_is_kept_and_marked():
    dates, minute, to_close, outside = place(chicago_ns(DATE(2024, 12, 25), 9))
    assert (dates, minute, to_close, outside) == ([DATE(2024, 12, 25)], [960], [0], [True])


def test_schedule_leaves_full_holidays_out():
    sessions = schedule(DATE(2024, 3, 27), DATE(2024, 4, 2), "cme-globex")
    dates = [EPOCH + datetime.timedelta(days=day) for day in sessions.trade_day.tolist()]
    assert dates == [DATE(2024, 3, 27), DATE(2024, 3, 28), DATE(2024, 4, 1), DATE(2024, 4, 2)]
    assert sessions.open_ns.tolist() == [chicago_ns(day - datetime.timedelta(days=1), 17) for day in dates]
    assert sessions.close_ns.tolist() == [chicago_ns(day, 16) for day in dates]


@pytest.mark.parametrize("rule", ["cme_globex", "CME", ""])
def test_unknown_rules_are_refused_with_the_known_ones(rule):
    for call in (
        lambda: session_columns(np.zeros(1, np.int64), rule),
        lambda: last_session_of_month(2024, 1, rule),
        lambda: schedule(DATE(2024, 1, 1), DATE(2024, 1, 2), rule),
    ):
        with pytest.raises(ConfigError, match="cme-globex, cme-globex-regular, utc-day") as caught:
            call()
        assert repr(rule) in str(caught.value)


@st.composite
def stamps_of_a_month(draw: st.DrawFn) -> list[int]:
    first_ns = draw(st.integers(utc_ns("2009-01-01T00:00"), utc_ns("2035-01-01T00:00")))
    return draw(st.lists(st.integers(first_ns, first_ns + 31 * 1440 * MINUTE_NS), min_size=1, max_size=20))


def slow_place(ts_ns: int) -> tuple[datetime.date, int, int]:
    """The rule written out for one bar, in local time."""
    local = datetime.datetime.fromtimestamp(ts_ns // 10**9, CHICAGO)
    date = local.date() + datetime.timedelta(days=1 if local.hour >= 17 else 0)
    while date.weekday() > 4:
        date += datetime.timedelta(days=1)
    open_ns = chicago_ns(date - datetime.timedelta(days=1), 17)
    close_ns = chicago_ns(date, 16, 0 if date >= DATE(2015, 9, 21) else 15)
    if date in early_closes(date.year):
        close = early_closes(date.year)[date]
        close_ns = chicago_ns(date, close.hour, close.minute)
    if is_full_holiday(date):
        close_ns = open_ns
    return date, max(ts_ns - open_ns, 0) // MINUTE_NS, max(close_ns - ts_ns + MINUTE_NS - 1, 0) // MINUTE_NS


@settings(deadline=None)  # the machine may be busy
@given(stamps_of_a_month())
def test_columns_equal_the_rule_written_out_bar_by_bar(stamps):
    dates, minute, to_close, _ = place(*stamps)
    assert list(zip(dates, minute, to_close, strict=True)) == [slow_place(ts_ns) for ts_ns in stamps]


@settings(deadline=None)  # the machine may be busy
@given(stamps_of_a_month())
def test_the_order_of_bars_does_not_matter(stamps):
    ordered = session_columns(np.array(sorted(stamps), np.int64), "cme-globex")
    shuffled = session_columns(np.array(stamps, np.int64), "cme-globex")
    order = np.argsort(stamps, kind="stable")
    np.testing.assert_array_equal(shuffled.trade_day[order], ordered.trade_day)
    np.testing.assert_array_equal(shuffled.minutes_to_close[order], ordered.minutes_to_close)


def test_every_session_of_a_decade_lasts_23_hours_or_closes_early():
    sessions = schedule(DATE(2016, 1, 1), DATE(2025, 12, 31), "cme-globex")
    hours = (sessions.close_ns - sessions.open_ns) / 3.6e12
    early = [day for year in range(2016, 2026) for day in early_closes(year)]
    assert np.count_nonzero(hours != 23.0) == len(early)
    assert np.all(hours <= 23.0)
    assert 2510 <= hours.size <= 2590  # 251 to 259 sessions a year


def test_no_real_bar_of_a_whole_year_lies_outside(shared_data):
    """NQ, every five minutes of 2019, both clock changes and all holidays: a vendor's stamps in Pacific time."""
    table = polars.read_csv(shared_data / "csv" / "nq_5min_2019_pacific.csv", columns=["DT"]).rename({"DT": "at"})
    at = table["at"].str.to_datetime(time_unit="ns").dt.replace_time_zone("America/Los_Angeles", ambiguous="earliest")
    columns = session_columns(at.dt.convert_time_zone("UTC").dt.epoch("ns").to_numpy(), "cme-globex")
    assert columns.trade_day.size == 70_002
    assert np.count_nonzero(columns.is_outside) == 0
    assert 250 <= np.unique(columns.trade_day).size <= 260
