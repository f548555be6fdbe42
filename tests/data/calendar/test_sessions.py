import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.data.calendar.days import next_weekday, us_market_holidays, us_mornings_after
from tidewalk.data.calendar.hours import GROUPS, SHUT
from tidewalk.data.calendar.sessions import (
    RULES,
    joined,
    last_session_of_month,
    outside_findings,
    schedule,
    scheduled_minutes,
    session_columns,
)
from tidewalk.data.checks.quality import Finding

DATE = datetime.date
CHICAGO = ZoneInfo("America/Chicago")
EPOCH = DATE(1970, 1, 1)
ONE_DAY = datetime.timedelta(days=1)
MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS


def utc_ns(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()) * 10**9


def chicago_ns(date: datetime.date, hour: int, minute: int = 0) -> int:
    at = datetime.datetime.combine(date, datetime.time(hour, minute), CHICAGO)
    return int(at.timestamp()) * 10**9


def place(*ts_ns: int, rule: str = "cme-equity"):
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
    for rule in ("cme-equity", "cme-rates", "nymex-energy", "cme-globex", "cme-globex-regular"):
        assert last_session_of_month(year, month, rule) == last


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
    columns = session_columns(np.zeros(0, np.int64), "cme-equity")
    assert columns.trade_day.size == columns.minutes_to_close.size == columns.is_outside.size == 0


def test_a_bar_on_a_full_holiday_is_kept_and_marked():
    dates, minute, to_close, outside = place(chicago_ns(DATE(2024, 12, 25), 9))
    assert (dates, minute, to_close, outside) == ([DATE(2024, 12, 25)], [960], [0], [True])


def test_schedule_leaves_full_holidays_out():
    sessions = schedule(DATE(2024, 3, 27), DATE(2024, 4, 2), "cme-equity")
    dates = [EPOCH + datetime.timedelta(days=day) for day in sessions.trade_day.tolist()]
    assert dates == [DATE(2024, 3, 27), DATE(2024, 3, 28), DATE(2024, 4, 1), DATE(2024, 4, 2)]
    assert sessions.open_ns.tolist() == [chicago_ns(day - datetime.timedelta(days=1), 17) for day in dates]
    assert sessions.close_ns.tolist() == [chicago_ns(day, 16) for day in dates]


@st.composite
def stamps_of_a_month(draw: st.DrawFn) -> list[int]:
    first_ns = draw(st.integers(utc_ns("2009-01-01T00:00"), utc_ns("2035-01-01T00:00")))
    return draw(st.lists(st.integers(first_ns, first_ns + 31 * 1440 * MINUTE_NS), min_size=1, max_size=20))


def slow_place(ts_ns: int, rule: str) -> tuple[datetime.date, int]:
    """The rule written out for one bar, in local time: its trade date, and the minutes to the close."""
    group = GROUPS[rule]
    zone = ZoneInfo(group.zone)
    local = datetime.datetime.fromtimestamp(ts_ns // 10**9, zone)
    turn = group.hours_on(next_weekday(local.date())).open + 1440  # of the evening before
    date = local.date() + ONE_DAY * (60 * local.hour + local.minute >= turn)
    while date.weekday() > 4 or (group.hours_on(date).is_continuous and date in us_market_holidays(date.year)):
        date += ONE_DAY
    hours = group.hours_on(date)
    close = hours.close
    if not hours.is_continuous and (special := group.close_on(date)) is not None:
        close = special
    if close == SHUT:
        return date, 0
    midnight = datetime.datetime.combine(date, datetime.time(0), zone)
    close_ns = int((midnight.replace(hour=close // 60, minute=close % 60)).timestamp()) * 10**9
    return date, max(close_ns - ts_ns + MINUTE_NS - 1, 0) // MINUTE_NS


@settings(deadline=None, max_examples=300)  # the machine may be busy
@given(stamps_of_a_month(), st.sampled_from(list(GROUPS)))
def test_columns_equal_the_rule_written_out_bar_by_bar(stamps, rule):
    dates, _, to_close, _ = place(*stamps, rule=rule)
    expected = [slow_place(ts_ns, rule) for ts_ns in stamps]
    assert dates == [date for date, _ in expected]
    shut = [GROUPS[rule].close_on(date) == SHUT for date in dates]
    # A session of no length closes as it would have opened.
    assert [a for a, is_shut in zip(to_close, shut, strict=True) if not is_shut] == [
        b for (_, b), is_shut in zip(expected, shut, strict=True) if not is_shut
    ]


@settings(deadline=None)  # the machine may be busy
@given(stamps_of_a_month(), st.sampled_from(RULES))
def test_the_places_of_a_bar_agree_with_each_other(stamps, rule):
    columns = session_columns(np.array(stamps, np.int64), rule)
    assert np.all(columns.minute_of_session >= 0)
    assert np.all(columns.minutes_to_close >= 0)
    assert not np.any(columns.is_outside & columns.is_halted)
    assert np.all(columns.minutes_to_close[~columns.is_outside] > 0)
    minutes = scheduled_minutes(rule, columns.trade_day)
    assert np.all(minutes[~columns.is_outside] > 0)
    findings = outside_findings(np.array(stamps, np.int64), columns, rule)
    assert sum(finding.count for finding in findings) == np.count_nonzero(columns.is_outside | columns.is_halted)


@settings(deadline=None)  # the machine may be busy
@given(stamps_of_a_month())
def test_the_order_of_bars_does_not_matter(stamps):
    ordered = session_columns(np.array(sorted(stamps), np.int64), "cme-equity")
    shuffled = session_columns(np.array(stamps, np.int64), "cme-equity")
    order = np.argsort(stamps, kind="stable")
    np.testing.assert_array_equal(shuffled.trade_day[order], ordered.trade_day)
    np.testing.assert_array_equal(shuffled.minutes_to_close[order], ordered.minutes_to_close)


@pytest.mark.parametrize("rule", ["cme_equity", "cme-equitys", "CME", ""])
def test_unknown_rules_are_refused_with_the_known_ones(rule):
    for call in (
        lambda: session_columns(np.zeros(1, np.int64), rule),
        lambda: last_session_of_month(2024, 1, rule),
        lambda: schedule(DATE(2024, 1, 1), DATE(2024, 1, 2), rule),
        lambda: scheduled_minutes(rule, np.zeros(1, np.int32)),
    ):
        with pytest.raises(ConfigError, match=r"cme-equity, cme-rates, .*utc-day") as caught:
            call()
        assert repr(rule) in str(caught.value)
        assert ("did you mean cme-equity?" in str(caught.value)) == rule.startswith("cme")


def test_names_of_saved_markets_are_understood():
    stamps = np.arange(utc_ns("2015-09-14T00:00"), utc_ns("2015-09-28T00:00"), HOUR_NS)
    old, new = session_columns(stamps, "cme-globex"), session_columns(stamps, "cme-equity")
    np.testing.assert_array_equal(old.minutes_to_close, new.minutes_to_close)


def test_bars_in_the_pause_of_the_index_futures_are_marked_until_2021():
    def halted(date: datetime.date, rule: str = "cme-equity") -> list[bool]:
        stamps = [chicago_ns(date, 15, minute) for minute in (14, 15, 29, 30)]
        columns = session_columns(np.array(stamps, np.int64), rule)
        assert not columns.is_outside.any()
        return columns.is_halted.tolist()

    assert halted(DATE(2021, 6, 25)) == [False, True, True, False]
    assert halted(DATE(2021, 6, 28)) == [False] * 4
    assert halted(DATE(2013, 3, 5)) == [False, True, True, False]
    assert halted(DATE(2021, 6, 25), "cme-fx") == [False] * 4


def test_the_old_trade_date_began_in_the_afternoon_before():
    # CME on 2012-11-18: "vs. the current 15:30 CT on Monday to Thursday".
    wednesday = DATE(2012, 10, 24)
    stamps = [chicago_ns(wednesday, *at) for at in ((15, 14), (15, 20), (15, 30), (16, 29), (16, 30), (17, 0))]
    dates, minute, to_close, outside = place(*stamps)
    assert dates == [wednesday] * 2 + [DATE(2012, 10, 25)] * 4
    # The clock reads a time of day: 0 at 17:00 in every era.
    assert minute == [1334, 1340, 1350, 1409, 1410, 0]
    assert to_close == [1, 0, 1425, 1366, 1365, 1335]
    assert outside == [False, True, False, False, False, False]
    halted = session_columns(np.array(stamps, np.int64), "cme-equity").is_halted.tolist()
    assert halted == [False, False, False, False, True, False]
    dates, _, _, outside = place(chicago_ns(DATE(2012, 10, 26), 15, 40))  # a Friday
    assert (dates, outside) == ([DATE(2012, 10, 29)], [True])


def test_a_late_open_keeps_the_time_of_day():
    dates, minute, to_close, outside = place(chicago_ns(DATE(2012, 12, 26), 4, 59), chicago_ns(DATE(2012, 12, 26), 5))
    assert dates == [DATE(2012, 12, 26)] * 2
    assert minute == [719, 720]
    assert to_close == [11 * 60 + 16, 11 * 60 + 15]
    assert outside == [True, False]


def test_bitcoin_trades_through_the_weekend_since_may_2026():
    stamps = [
        *(chicago_ns(DATE(2026, 5, 30), 12), chicago_ns(DATE(2026, 5, 29), 16), chicago_ns(DATE(2026, 5, 29), 15, 59)),
        *(chicago_ns(DATE(2026, 7, 3), 12), chicago_ns(DATE(2026, 7, 2), 16), chicago_ns(DATE(2026, 7, 7), 15, 59)),
    ]
    dates, minute, to_close, outside = place(*stamps, rule="cme-crypto")
    assert dates == [
        *(DATE(2026, 6, 1), DATE(2026, 6, 1), DATE(2026, 5, 29)),
        *(DATE(2026, 7, 6), DATE(2026, 7, 6), DATE(2026, 7, 7)),
    ]
    assert outside == [False] * 6
    assert minute == [1140, 1380, 1379, 1140, 1380, 1379]
    assert to_close == [52 * 60, 72 * 60, 1, 76 * 60, 96 * 60, 1]
    before = place(chicago_ns(DATE(2026, 5, 23), 12), rule="cme-crypto")
    assert (before[0], before[3]) == ([DATE(2026, 5, 25)], [True])


def test_scheduled_minutes_leave_pauses_out():
    def minutes(rule: str, *dates: datetime.date) -> list[int]:
        return scheduled_minutes(rule, np.array([(date - EPOCH).days for date in dates], np.int32)).tolist()

    assert minutes("cme-equity", DATE(2024, 5, 8), DATE(2021, 6, 25), DATE(2015, 9, 18)) == [1380, 1365, 1380]
    assert minutes("cme-equity", DATE(2012, 10, 24), DATE(2012, 10, 22)) == [1425 - 30, 1335]
    assert minutes("cme-equity", DATE(2024, 12, 25), DATE(2024, 11, 29), DATE(2024, 11, 30)) == [0, 1155, 0]
    assert minutes("cbot-grains", DATE(2024, 5, 8), DATE(2024, 11, 29)) == [765 + 290, 3 * 60 + 35]
    assert minutes("utc-day", DATE(2024, 5, 11)) == [1440]
    assert minutes("cme-equity") == []
    assert scheduled_minutes("cme-equity", np.zeros(2, np.int32)).dtype == np.int32


def test_the_short_day_has_no_pause_after_its_close():
    table = schedule(DATE(2019, 7, 3), DATE(2019, 7, 4), "cme-equity")
    assert table.halt_from_ns.tolist() == table.halt_to_ns.tolist() == table.close_ns.tolist()


def test_findings_say_where_bars_lie():
    stamps = sorted(
        [
            *(chicago_ns(DATE(2020, 5, 2), hour) for hour in (9, 10)),  # a Saturday
            chicago_ns(DATE(2020, 5, 5), 16, 30),  # the daily break
            chicago_ns(DATE(2012, 12, 26), 2),  # before a late open
            chicago_ns(DATE(2020, 5, 6), 12),
            chicago_ns(DATE(2020, 5, 6), 15, 20),  # the pause
            chicago_ns(DATE(2020, 11, 27), 13),  # after Thanksgiving
            chicago_ns(DATE(2020, 12, 25), 9),
        ]
    )
    ts_ns = np.array(stamps, np.int64)
    findings = outside_findings(ts_ns, session_columns(ts_ns, "cme-globex"), "cme-globex")
    hours = "outside the hours of cme-equity, and is kept: at"
    assert findings == tuple(
        Finding("outside-session", text, count)
        for text, count in (
            (f"1 bar lies in a scheduled pause of the session, {hours} 2020-05-06T20:20:00Z", 1),
            (
                "2 bars lie on a weekend, outside the hours of cme-equity, and are kept: the first at "
                "2020-05-02T14:00:00Z",
                2,
            ),
            (f"1 bar lies on a full holiday, {hours} 2020-12-25T15:00:00Z", 1),
            (f"1 bar lies after an early close, {hours} 2020-11-27T19:00:00Z", 1),
            (
                "2 bars lie in the daily break or before a late open, outside the hours of cme-equity, and are kept: "
                "the first at 2012-12-26T08:00:00Z",
                2,
            ),
        )
    )


def test_many_bars_outside_are_a_warning():
    ts_ns = chicago_ns(DATE(2024, 1, 5), 12) + np.arange(2_000, dtype=np.int64) * 60 * 10**9  # a Friday, into Saturday
    *kinds, last = outside_findings(ts_ns, session_columns(ts_ns, "cme-equity"), "cme-equity")
    assert (last.is_warning, last.count) == (True, 2_000 - 240)
    assert sum(finding.count for finding in kinds) == last.count
    assert "1,760 of 2,000 bars (88%) lie outside the hours of cme-equity" in last.text
    # Over two daily breaks: 120 bars, a twentieth.
    two_breaks = chicago_ns(DATE(2024, 1, 4), 0) + np.arange(2_460, dtype=np.int64) * 60 * 10**9
    for few in (two_breaks, ts_ns[:300]):
        columns = session_columns(few, "cme-equity")
        assert not any(finding.is_warning for finding in outside_findings(few, columns, "cme-equity"))


@pytest.mark.parametrize(
    ("at", "minutes", "is_said"),
    [
        ((DATE(2020, 5, 5), 16, 0), 60, True),
        ((DATE(2020, 5, 5), 16, 30), 60, False),  # reaches into the next session
        ((DATE(2020, 5, 3), 0, 0), 1440, False),  # the Sunday of UTC-like days
        ((DATE(2020, 5, 2), 0, 0), 1440, True),
        ((DATE(2019, 12, 25), 0, 0), 1440, False),  # trading began again at 17:00
        ((DATE(2020, 5, 5), 15, 15), 15, True),
        ((DATE(2020, 5, 5), 15, 15), 30, False),
    ],
)
def test_nothing_is_said_of_bars_that_reach_into_a_session(at, minutes, is_said):
    ts_ns = np.array([chicago_ns(*at)], np.int64)
    columns = session_columns(ts_ns, "cme-equity")
    assert bool(outside_findings(ts_ns, columns, "cme-equity", minutes * MINUTE_NS)) == is_said
    assert outside_findings(ts_ns, columns, "cme-equity")


def test_bars_inside_give_no_findings():
    ts_ns = np.arange(chicago_ns(DATE(2024, 5, 6), 17), chicago_ns(DATE(2024, 5, 7), 16), MINUTE_NS)
    for rule in ("cme-equity", "cme-fx", "utc-day"):
        assert outside_findings(ts_ns, session_columns(ts_ns, rule), rule) == ()


def test_columns_are_joined_in_the_order_given():
    first, second = (
        session_columns(np.arange(4) * HOUR_NS + utc_ns(start), "cme-equity")
        for start in ("2024-05-07T00:00", "2024-05-08T20:00")
    )
    both = joined([first, second], [slice(1, 3), slice(0, 4)])
    assert both.trade_day.tolist() == [*first.trade_day[1:3].tolist(), *second.trade_day.tolist()]
    assert both.is_outside.tolist() == [False, False, *second.is_outside.tolist()]


def test_the_session_count_is_the_number_of_trade_dates():
    # Issue log B15: two weeks of one-minute bars over a clock change hold ten sessions of 23 hours.
    open_ns = schedule(DATE(2024, 3, 4), DATE(2024, 3, 15), "cme-equity").open_ns
    ts_ns = np.concatenate([start + np.arange(23 * 60) * MINUTE_NS for start in open_ns.tolist()])
    columns = session_columns(ts_ns, "cme-equity")
    assert not columns.is_outside.any()
    days, counts = np.unique(columns.trade_day, return_counts=True)
    assert counts.tolist() == [23 * 60] * 10
    assert [EPOCH + datetime.timedelta(days=day) for day in days.tolist()] == [
        DATE(2024, 3, day) for day in (4, 5, 6, 7, 8, 11, 12, 13, 14, 15)
    ]


def test_grains_after_a_holiday_open_in_the_morning():
    morning = DATE(2024, 11, 29)
    assert morning in us_mornings_after(2024)
    dates, minute, _, outside = place(
        chicago_ns(DATE(2024, 11, 28), 19), chicago_ns(morning, 8, 30), rule="cbot-grains"
    )
    assert dates == [morning] * 2
    assert outside == [True, False]
    assert minute == [0, 13 * 60 + 30]
