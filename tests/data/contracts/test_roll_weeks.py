"""Weeks in which a hidden roll may lie: known from the calendar, never from a jump in price."""

import numpy as np
import pytest

from data.market_files import DAY_NS, HOUR_NS, ns
from tidewalk.core.errors import ConfigError
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.contracts.roll_weeks import break_roll_weeks, has_roll_weeks, roll_week_breaks
from tidewalk.data.contracts.rolls import FrontSeries, basis_e9, front_series
from tidewalk.data.contracts.specs import spec_for

ES = spec_for("ES")


def front(ts_ns: np.ndarray, *, interval_ns: int = DAY_NS, symbology: str = "single") -> tuple[Loaded, FrontSeries]:
    """Bars that rise by a point, each closing a quarter above its open."""
    open_e9 = (4800 + np.arange(len(ts_ns))) * 10**9
    close_e9 = open_e9 + 250_000_000
    volume = np.full(len(ts_ns), 9.0)
    table = BarTable(
        "ES", 0, interval_ns, ts_ns, ts_ns + interval_ns, open_e9, close_e9, open_e9, close_e9, volume, True
    )
    loaded = Loaded("ES", "ES", symbology, (table,), (), (), "f")
    return loaded, front_series(loaded, ES)


def weekdays(first: str, count: int) -> np.ndarray:
    days = ns(first) + np.arange(2 * count) * DAY_NS
    return days[(days // DAY_NS + 3) % 7 < 5][:count]


def test_daily_bars_are_broken_from_the_week_before_expiry_to_the_monday_after() -> None:
    _, series = front(weekdays("2024-01-01", 262))
    days = [str(np.datetime64(int(day), "D")) for day in series.trade_day[roll_week_breaks(series, ES)]]
    # Third Fridays of 2024: March 15, June 21, September 20, December 20.
    for first, last in (
        ("2024-03-04", "2024-03-18"),
        ("2024-06-10", "2024-06-24"),
        ("2024-09-09", "2024-09-23"),
        ("2024-12-09", "2024-12-23"),
    ):
        inside = [day for day in days if first <= day <= last]
        assert (inside[0], inside[-1], len(inside)) == (first, last, 11)
    assert len(days) == 44


def test_intraday_bars_are_broken_at_sessions_and_at_the_utc_day() -> None:
    hours = ns("2024-03-11 00:00") + np.arange(60) * HOUR_NS
    _, series = front(hours, interval_ns=HOUR_NS)
    stamps = [str(np.datetime64(int(ts), "ns"))[:16] for ts in series.ts_ns[roll_week_breaks(series, ES)]]
    assert stamps == ["2024-03-11T22:00", "2024-03-12T00:00", "2024-03-12T22:00", "2024-03-13T00:00"]


def test_no_difference_is_left_across_a_break() -> None:
    loaded, series = front(weekdays("2024-03-11", 9))
    broken, breaks = break_roll_weeks(loaded, series, ES)
    assert np.flatnonzero(breaks).tolist() == [1, 2, 3, 4, 5]
    assert broken.exit_open_e9[1:6].tolist() == series.close_e9[:5].tolist()
    assert broken.close_prev_e9[1:6].tolist() == series.open_e9[1:6].tolist()
    assert broken.exit_open_e9[6:].tolist() == series.open_e9[6:].tolist()
    assert broken.close_prev_e9[6:].tolist() == series.close_e9[5:-1].tolist()
    assert basis_e9(broken)[-1] == 5 * 750_000_000  # what the breaks take out of the shadow price
    assert broken.open_e9.tolist() == series.open_e9.tolist()
    assert "moves across 5 changes of session or day" in broken.findings[-1].text


def test_series_that_show_their_rolls_are_not_broken() -> None:
    loaded, series = front(weekdays("2024-03-11", 5), symbology="raw")
    with pytest.raises(ConfigError, match="--break-roll-weeks: ES shows its contracts"):
        break_roll_weeks(loaded, series, ES)
    loaded, series = front(weekdays("2024-03-11", 5))
    with pytest.raises(ConfigError, match="CL is no index future"):
        break_roll_weeks(loaded, series, spec_for("CL"))


@pytest.mark.parametrize(
    ("root", "has"), [("ES", True), ("NQ", True), ("FDAX", True), ("ZN", False), ("CL", False), ("GC", False)]
)
def test_roots_whose_roll_weeks_are_known(root: str, *, has: bool) -> None:
    assert has_roll_weeks(spec_for(root)) == has
    assert not has_roll_weeks(spec_for("XYZ", tick=0.1, multiplier=1.0))
