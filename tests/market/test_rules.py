"""Rules of the calendar: the last chance to be flat, and fills too late to enter; by hand from the exchange's hours."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import MINUTE_NS, ns
from support import chain_market
from tidewalk.core.errors import ConfigError
from tidewalk.data.calendar.sessions import session_columns, until_close_ns
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, NO_ENTRY, MarketData
from tidewalk.market.rules import is_closing, with_close_warning, with_no_entry


def market_at(stamps: list[int], *, minutes: int | None = 1, rule: str = "cme-equity") -> MarketData:
    """A market with bars at these moments, their sessions and flags by the rule."""
    ts_ns = np.array(stamps, np.int64)
    interval_ns = None if minutes is None else minutes * MINUTE_NS
    trade_day = session_columns(ts_ns, rule).trade_day
    is_last = np.append(trade_day[1:] != trade_day[:-1], True)
    closing = is_closing(ts_ns, is_last, interval_ns, rule)
    plain = chain_market(np.ones(len(stamps), int), 1, 1)
    return dataclasses.replace(
        plain,
        ts_ns=ts_ns,
        trade_day=trade_day,
        session_id=np.unique(trade_day, return_inverse=True)[1].astype(np.int32),
        flags=(is_last * LAST_OF_SESSION + closing * CLOSING).astype(np.int32),
        info=dataclasses.replace(plain.info, sessions=rule, interval_ns=interval_ns),
    )


def every(first: str, last: str, minutes: int) -> list[int]:
    """Stamps from first to last, both included."""
    return list(range(ns(first), ns(last) + 1, minutes * MINUTE_NS))


def rows(market: MarketData, bit: int) -> list[int]:
    return np.flatnonzero(market.flags & bit).tolist()


# ES closes at 16:00 Chicago: 22:00 UTC in winter, 21:00 UTC in summer; and at 12:00 Chicago, 18:00 UTC, on 2024-01-15.


@pytest.mark.parametrize(
    ("last_bar", "rule", "close"),
    [
        ("2024-01-16 21:55", "cme-equity", "2024-01-16 22:00"),
        ("2024-07-16 20:55", "cme-equity", "2024-07-16 21:00"),
        ("2024-01-15 17:55", "cme-equity", "2024-01-15 18:00"),
        ("2024-01-16 23:55", "utc-day", "2024-01-17 00:00"),
    ],
)
def test_no_entry_begins_exactly_so_many_minutes_before_the_scheduled_close(last_bar, rule, close):
    first = str(np.datetime64(last_bar) - np.timedelta64(55, "m")).replace("T", " ")
    market = market_at(every(first, last_bar, 5), minutes=5, rule=rule)
    late = with_no_entry(market, 20)
    # twelve bars; the fill of row t is the open of bar t+1, and the bars 8 to 11 open in the last 20 minutes
    assert rows(late, NO_ENTRY) == [7, 8, 9, 10]
    fills = late.ts_ns[np.array(rows(late, NO_ENTRY)) + 1]
    assert fills[0] == ns(close) - 20 * MINUTE_NS
    assert rows(with_no_entry(market, 19), NO_ENTRY) == [8, 9, 10]
    assert rows(with_no_entry(market, 21), NO_ENTRY) == [7, 8, 9, 10]
    assert late.info.warnings == market.info.warnings


def test_the_decision_that_fills_at_the_next_open_is_free():
    market = with_no_entry(market_at([*every("2024-01-16 21:50", "2024-01-16 21:59", 1), ns("2024-01-16 23:00")]), 5)
    assert rows(market, NO_ENTRY) == [4, 5, 6, 7, 8]
    assert rows(market, LAST_OF_SESSION) == [9, 10]


def test_a_fill_after_the_scheduled_close_is_late_too():
    """Prints after the early close of a holiday, and a bar on a day without a session."""
    holiday = market_at([*every("2024-01-15 17:00", "2024-01-15 17:01", 1), ns("2024-01-15 18:30")])
    assert rows(with_no_entry(holiday, 5), NO_ENTRY) == [1]
    christmas = market_at(
        [ns("2024-12-24 17:00"), *every("2024-12-25 15:00", "2024-12-25 15:03", 1), ns("2024-12-27 15:00")]
    )
    assert rows(with_no_entry(christmas, 1), NO_ENTRY) == [0, 1, 2, 3]


def test_nothing_but_the_one_bit_changes_and_zero_minutes_change_nothing():
    market = market_at(every("2024-01-16 21:00", "2024-01-16 21:59", 1))
    late = with_no_entry(market, 30)
    assert np.array_equal(late.flags & ~np.int32(NO_ENTRY), market.flags)
    assert late.flags.dtype == np.int32
    assert with_no_entry(market, 0) is market
    assert np.array_equal(with_no_entry(late, 10).flags, with_no_entry(market, 10).flags)  # not the union of both


def test_a_rule_that_does_nothing_is_said_and_one_that_forbids_everything_refused():
    hourly = market_at(every("2024-01-16 14:00", "2024-01-16 21:00", 60), minutes=60)
    assert "no bar opens in the last 30 minutes" in with_no_entry(hourly, 30).info.warnings[-1]
    with pytest.raises(ConfigError, match="nothing could ever be traded"):
        with_no_entry(hourly, 1440)


@pytest.mark.parametrize(("minutes", "rule", "says"), [(-1, "cme-equity", "-1"), (5, "cme-equty", "cme-equity")])
def test_what_makes_no_sense_is_refused(minutes, rule, says):
    market = market_at(every("2024-01-16 14:00", "2024-01-16 15:00", 10), minutes=10)
    market = dataclasses.replace(market, info=dataclasses.replace(market.info, sessions=rule))
    with pytest.raises(ConfigError, match=says):
        with_no_entry(market, minutes)


def test_a_market_saved_under_an_old_name_of_its_rule_is_understood():
    market = market_at(every("2024-01-16 21:00", "2024-01-16 21:59", 1))
    old = dataclasses.replace(market, info=dataclasses.replace(market.info, sessions="cme-globex"))
    assert np.array_equal(with_no_entry(old, 9).flags, with_no_entry(market, 9).flags)


@given(st.lists(st.integers(0, 40 * 1440), min_size=3, max_size=80, unique=True), st.integers(1, 1500))
def test_late_fills_are_those_the_calendar_calls_late(offsets, minutes):
    """Against the other column of the calendar, which counts whole minutes upwards; spring and its clock change."""
    stamps = sorted(ns("2024-02-20 00:00") + offset * MINUTE_NS for offset in offsets)
    market = market_at(stamps)
    is_late = session_columns(market.ts_ns, "cme-equity").minutes_to_close[1:] <= minutes
    if is_late.all():
        with pytest.raises(ConfigError, match="every fill"):
            with_no_entry(market, minutes)
    else:
        assert rows(with_no_entry(market, minutes), NO_ENTRY) == np.flatnonzero(is_late).tolist()


# The last chance to be flat.


def test_a_complete_session_is_left_at_its_last_scheduled_bar():
    market = market_at(
        [*every("2024-01-16 21:50", "2024-01-16 21:59", 1), *every("2024-01-16 23:00", "2024-01-16 23:03", 1)]
    )
    assert rows(market, CLOSING) == [8, 12]
    assert with_close_warning(market) is market


def test_stray_prints_after_the_close_keep_no_position_open():
    """Until now the position was closed at the stray print itself, which nobody could expect."""
    market = market_at(
        [*every("2024-01-16 21:57", "2024-01-16 21:59", 1), *every("2024-01-16 22:07", "2024-01-16 22:08", 1)]
    )
    assert rows(market, LAST_OF_SESSION) == [4]
    assert rows(market, CLOSING) == [1, 2, 3]


def test_a_session_without_its_end_is_left_at_the_last_bar_present_and_that_is_said():
    whole = every("2024-01-16 21:50", "2024-01-16 21:59", 1)
    market = market_at([*whole[:5], *every("2024-01-16 23:00", "2024-01-17 21:59", 1), ns("2024-01-17 23:00")])
    assert rows(market, CLOSING)[0] == 3
    said = with_close_warning(market).info.warnings[-1]
    assert "1 of 2 sessions have no bar at their scheduled end" in said
    assert "1 of 2" not in "".join(market.info.warnings)


def test_seconds_are_not_rounded_to_minutes():
    """Bars of a second, the last scheduled one at 21:59:59, and a print after the close."""
    second = MINUTE_NS // 60
    ts_ns = np.append(ns("2024-01-16 21:59") + second * np.arange(50, 60, dtype=np.int64), ns("2024-01-16 22:01"))
    closing = is_closing(ts_ns, np.arange(11) == 10, second, "cme-equity")
    assert np.flatnonzero(closing).tolist() == [8, 9]
    market = market_at([ns("2024-01-16 21:50") + n * second for n in (0, 299, 300, 301)])
    assert rows(with_no_entry(market, 5), NO_ENTRY) == [1, 2]


def test_of_irregular_bars_the_last_one_present_is_the_last():
    market = market_at(every("2024-01-16 21:50", "2024-01-16 21:59", 1), minutes=None)
    assert rows(market, CLOSING) == [8]
    assert "irregular bars" in with_close_warning(market).info.warnings[-1]


def test_bars_of_a_whole_day_all_are_last():
    market = market_at([ns(f"2024-01-{day} 00:00") for day in (16, 17, 18)], minutes=1440)
    assert rows(market, CLOSING) == [0, 1]


def test_time_to_the_close_is_that_of_the_session_a_moment_belongs_to():
    moments = np.array([ns("2024-01-16 22:00"), ns("2024-01-16 21:30"), ns("2024-01-16 23:00")])
    assert (until_close_ns(moments, "cme-equity") // MINUTE_NS).tolist() == [0, 30, 23 * 60]
    assert until_close_ns(np.zeros(0, np.int64), "cme-equity").shape == (0,)
