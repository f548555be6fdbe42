"""How `--bars` is read, and which bar a stamp falls into."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import DAY_NS, HOUR_NS, MINUTE_NS, ns
from tidewalk.core.errors import ConfigError
from tidewalk.data.calendar.sessions import session_columns
from tidewalk.data.contracts.specs import session_rule, spec_for
from tidewalk.data.events.bar_rule import BarRule, close_ns, grid, parse_bar_rule


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("1m", "time", 60),
        ("time:5m", "time", 300),
        (" 90s ", "time", 90),
        ("1H", "time", 3_600),
        ("1d", "time", 86_400),
        ("tick:1000", "tick", 1_000),
        ("volume:5_000", "volume", 5_000),
        ("dollar:50000000", "dollar", 50_000_000),
    ],
)
def test_forms(text: str, kind: str, amount: int) -> None:
    rule = parse_bar_rule(text)
    assert (rule.kind, rule.amount) == (kind, amount)
    assert parse_bar_rule(rule.text) == rule


@pytest.mark.parametrize("text", ["", "5", "m", "tick", "tick:0", "tick:-5", "tick:1.5", "volume:1e6", "range:5", "1w"])
def test_what_is_no_rule_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--bars .*: not understood\. Use 5m, 1h, 1d .*tick:N .*volume:N .*dollar:N"):
        parse_bar_rule(text)


@pytest.mark.parametrize("text", ["7m", "0m", "2d", "5h"])
def test_times_that_do_not_divide_a_day_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a day is no whole number of such bars"):
        parse_bar_rule(text)


def test_bars_of_trades_are_first_cut_within_an_hour() -> None:
    assert {text: parse_bar_rule(text).base_ns // 10**9 for text in ("1m", "45m", "4h", "1d", "16m")} == {
        "1m": 60,
        "45m": 900,
        "4h": 900,
        "1d": 900,
        "16m": 60,
    }


def test_hours_are_counted_from_the_open_and_stop_at_the_close() -> None:
    # Globex on Wednesday 2024-07-03 opens at 22:00 UTC the evening before and closes at 17:15 UTC (12:15 Chicago).
    ts_ns = np.array([ns(text) for text in ("2024-07-02 22:00", "2024-07-03 01:59", "2024-07-03 02:00")])
    found = grid(ts_ns, 4 * HOUR_NS, "cme-globex")
    assert (found.start_ns == [ns("2024-07-02 22:00"), ns("2024-07-02 22:00"), ns("2024-07-03 02:00")]).all()
    assert (found.trade_day == ns("2024-07-03") // DAY_NS).all()
    assert close_ns(found.trade_day, "cme-globex")[0] == ns("2024-07-03 17:15")


@given(
    st.integers(ns("2009-01-01"), ns("2030-01-01")),
    st.sampled_from([1, 5, 30, 60, 300, 900, 1_800, 3_600]),
    st.sampled_from(["cme-globex", "cme-globex-regular", "utc-day"]),
)
def test_up_to_an_hour_bars_are_multiples_since_1970_or_start_with_the_session(
    ts_ns: int, seconds: int, rule: str
) -> None:
    start_ns = int(grid(np.array([ts_ns]), seconds * 10**9, rule).start_ns[0])
    before, at = session_columns(np.array([start_ns - 1, start_ns]), rule).trade_day
    assert start_ns == ts_ns // (seconds * 10**9) * seconds * 10**9 or before != at
    assert start_ns <= ts_ns < start_ns + seconds * 10**9


def test_a_session_that_opens_at_half_past_cuts_the_hour() -> None:
    # Until November 2012 the index futures paused from 20:15 to 20:30 UTC in summer (15:15 to 15:30 Chicago).
    ts_ns = np.array([ns(text) for text in ("2012-10-15 20:14", "2012-10-15 20:31", "2012-10-15 21:00")])
    found = grid(ts_ns, HOUR_NS, spec_for("ES").sessions)
    if found.trade_day[0] != found.trade_day[1]:
        assert (found.start_ns == [ns("2012-10-15 20:00"), ns("2012-10-15 20:30"), ns("2012-10-15 21:00")]).all()


@given(st.lists(st.integers(ns("2015-01-01"), ns("2016-01-01")), min_size=2, max_size=30), st.sampled_from([4, 24]))
def test_no_bar_holds_two_sessions(stamps: list[int], hours: int) -> None:
    ts_ns = np.sort(np.array(stamps))
    found = grid(ts_ns, hours * HOUR_NS, "cme-globex")
    same_bar = np.diff(found.start_ns) == 0
    assert (np.diff(found.trade_day)[same_bar] == 0).all()
    assert (found.start_ns <= ts_ns).all()
    assert (ts_ns < found.start_ns + hours * HOUR_NS).all()


def test_sessions_of_a_root() -> None:
    assert session_rule("ES") == spec_for("ES").sessions
    assert session_rule("NOBODY") == "utc-day"
    assert BarRule("1m", "time", 60).interval_ns == MINUTE_NS
