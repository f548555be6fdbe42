"""What the hours of bars say of their zone and label: suggested, warned about, and silent where they say nothing."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from data.market_files import MINUTE_NS, ns, put
from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import warnings
from tidewalk.data.files.source import probe
from tidewalk.data.text.hours import best_fit, label_shown, misfit
from tidewalk.data.text.table import open_table, parse_table
from tidewalk.data.text.timing import table_rows
from tidewalk.data.text.zones import clock_of, parse_zone

HOUR_NS = 60 * MINUTE_NS


def session_bars(first: str, days: int, step: int = 5) -> NDArray[np.int64]:
    """UTC starts of bars of the CME equity session: 17:00 to 16:00 in Chicago, Sunday evening to Friday."""
    start = ns(first)
    utc_ns = start + np.arange(days * 1440 // step) * step * MINUTE_NS
    local_ns = clock_of(utc_ns, "America/Chicago")
    hour = local_ns // HOUR_NS % 24
    weekday = (local_ns // (24 * HOUR_NS) + 3) % 7  # 0 is Monday
    is_open = (hour != 16) & ~((weekday == 4) & (hour >= 17)) & (weekday != 5) & ~((weekday == 6) & (hour < 17))
    return utc_ns[is_open]


def activity(utc_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Volume that is ten times as high while shares trade."""
    minute = clock_of(utc_ns, "America/Chicago") // MINUTE_NS % 1440
    return np.where((minute >= 510) & (minute < 900), 1000.0, 100.0)


def wall(utc_ns: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    meant = parse_zone(zone)
    return clock_of(utc_ns, meant.base) + meant.shift_ns


MARCH = session_bars("2024-02-20", 40)  # over the change of 10 March
WINTER = session_bars("2024-01-08", 10)
STEP_NS = 5 * MINUTE_NS


@pytest.mark.parametrize(
    ("zone", "opening", "pause"),
    [
        ("America/Chicago", "08:30", "16:00"),
        ("America/New_York", "09:30", "17:00"),
        ("America/Los_Angeles", "06:30", "14:00"),
        ("America/New_York+7", "16:30", "00:00"),
        ("Asia/Tokyo", "22:30", "06:00"),
    ],
)
def test_zone_is_found_from_the_opening_and_the_break(zone: str, opening: str, pause: str) -> None:
    fit = best_fit(wall(MARCH, zone), activity(MARCH), STEP_NS)
    assert fit is not None
    assert (fit.zone, fit.opening, fit.break_hour) == (zone, opening, pause)


@pytest.mark.parametrize("zone", ["America/Chicago", "America/New_York", "America/New_York+7"])
def test_bars_that_fit_give_no_warning(zone: str) -> None:
    assert misfit(wall(MARCH, zone), activity(MARCH), STEP_NS, zone) is None


def test_wrong_zone_is_told() -> None:
    fit = misfit(wall(WINTER, "America/New_York"), activity(WINTER), STEP_NS, "America/Chicago")
    assert fit is not None
    assert fit.zone == "America/New_York"


def test_fixed_offset_is_told_from_a_zone_with_summer_time_over_a_clock_change() -> None:
    fixed = wall(MARCH, "UTC-5")
    fit = misfit(fixed, activity(MARCH), STEP_NS, "America/New_York")
    assert fit is not None
    assert fit.zone == "UTC-5"
    # Within one winter the two clocks are the same, and there is nothing to warn of.
    assert misfit(wall(WINTER, "UTC-5"), activity(WINTER), STEP_NS, "America/New_York") is None


def test_range_serves_where_there_is_no_volume() -> None:
    fit = best_fit(wall(MARCH, "America/Chicago"), activity(MARCH) / 1000, STEP_NS)
    assert fit is not None
    assert fit.zone == "America/Chicago"


def test_bars_without_the_american_hours_say_nothing() -> None:
    all_day = ns("2024-01-08") + np.arange(20_000) * MINUTE_NS
    flat = np.ones(len(all_day))
    assert best_fit(all_day, flat, MINUTE_NS) is None
    assert misfit(all_day, flat, MINUTE_NS, "America/Chicago") is None
    # Frankfurt, 09:00 to 22:00.
    minute = all_day // MINUTE_NS % 1440
    eurex = all_day[(minute >= 540) & (minute < 1320)]
    assert best_fit(eurex, np.ones(len(eurex)), MINUTE_NS) is None


def test_pause_of_an_hour_alone_says_nothing_of_a_zone_elsewhere() -> None:
    # Osaka pauses from 15:45 to 17:00, which looks like Chicago's break.
    minutes = ns("2024-01-08") + np.arange(15_000) * MINUTE_NS
    minute = minutes // MINUTE_NS % 1440
    osaka = minutes[(minute >= 525) & ((minute < 945) | (minute >= 1020))]
    assert misfit(osaka, np.ones(len(osaka)), MINUTE_NS, "Asia/Tokyo") is None


def test_few_or_long_bars_say_nothing() -> None:
    assert best_fit(WINTER[:200], activity(WINTER)[:200], STEP_NS) is None
    assert best_fit(WINTER, activity(WINTER), 4 * HOUR_NS) is None


@pytest.mark.parametrize("step", [30, 60])
@pytest.mark.parametrize("zone", ["America/Chicago", "America/New_York", "UTC", "UTC-5"])
def test_long_bars_show_their_zone_by_the_hour_that_lacks_them(step: int, zone: str) -> None:
    utc_ns = session_bars("2024-01-08", 120, step)
    for said in ("America/Chicago", "America/New_York", "UTC", "UTC-5"):
        found = misfit(wall(utc_ns, zone), activity(utc_ns), step * MINUTE_NS, said)
        assert (found.zone if found else said) == zone


def test_hours_stamped_at_their_end_are_not_another_zone(tmp_path: Path) -> None:
    utc_ns = session_bars("2024-01-08", 120, 60)
    wall_ns = wall(utc_ns, "America/Chicago") + HOUR_NS
    stamps = np.datetime_as_string(wall_ns.astype("datetime64[ns]"), unit="s")
    text = "datetime,open,high,low,close,volume\n" + "".join(f"{stamp},100,101,99,100,5\n" for stamp in stamps)
    parsed = parse_table(open_table(probe(put(tmp_path, "es.csv", text))))
    said = table_rows(parsed, ("ES",), zone="America/Chicago", bar_label="close")
    assert not warnings(said.findings)
    (doubt,) = warnings(table_rows(parsed, ("ES",), zone="America/Chicago", bar_label=None).findings)
    assert doubt.endswith("where they are the ends of the bars, --bar-label close")


def test_long_bars_of_other_markets_say_nothing() -> None:
    # Singapore, 07:30 to 14:30 and 14:55 to 05:15: no bar from 21:30 to 23:30 UTC.
    half_hours = ns("2024-06-03") + np.arange(4_000) * 30 * MINUTE_NS
    minute = half_hours // MINUTE_NS % 1440
    singapore = half_hours[(minute < 1290) | (minute >= 1410)]
    assert misfit(singapore, np.ones(len(singapore)), 30 * MINUTE_NS, "UTC") is None


@pytest.mark.parametrize(("moved_ns", "closes"), [(0, False), (STEP_NS, True)])
def test_label_is_seen_beside_breaks(moved_ns: int, closes: object) -> None:
    shown = label_shown(WINTER + moved_ns, STEP_NS)
    assert shown is not None
    assert (shown.close_labelled, shown.first) == (closes, moved_ns // MINUTE_NS)
    assert shown.num_breaks >= 7


def test_label_is_not_seen_without_breaks_or_in_thin_trade() -> None:
    assert label_shown(ns("2024-01-08") + np.arange(5_000) * MINUTE_NS, MINUTE_NS) is None
    thin = np.sort(np.random.default_rng(7).choice(session_bars("2024-01-08", 30, 1), 600, replace=False))
    assert label_shown(thin, MINUTE_NS) is None
    assert label_shown(WINTER, HOUR_NS) is None


def as_csv(wall_ns: NDArray[np.int64], volume: NDArray[np.float64]) -> str:
    stamps = wall_ns.astype("datetime64[ns]").astype("datetime64[s]").astype(str)
    rows = (f"{stamp.replace('T', ' ')},100,102,99,101,{int(v)}" for stamp, v in zip(stamps, volume, strict=True))
    return "datetime,open,high,low,close,volume\n" + "\n".join(rows) + "\n"


def test_error_for_naive_stamps_suggests_the_zone_and_takes_none(tmp_path: Path) -> None:
    parsed = parse_table(
        open_table(probe(put(tmp_path, "es.csv", as_csv(wall(WINTER, "America/Chicago"), activity(WINTER)))))
    )
    with pytest.raises(
        DataError,
        match=r"Name the zone they are in.*rises at 08:30 and the hour from 16:00 is empty.*--tz America/Chicago\.$",
    ):
        table_rows(parsed, ("ES",), zone=None, bar_label=None)
    found = table_rows(parsed, ("ES",), zone="America/New_York", bar_label=None)
    assert "the stamps fit America/Chicago, not America/New_York" in warnings(found.findings)[0]
    assert not warnings(table_rows(parsed, ("ES",), zone="America/Chicago", bar_label=None).findings)


def test_wall_time_written_as_if_it_were_utc_is_told(tmp_path: Path) -> None:
    text = as_csv(wall(WINTER, "America/Chicago"), activity(WINTER)).replace(":00,100", ":00Z,100")
    found = table_rows(
        parse_table(open_table(probe(put(tmp_path, "es.csv", text)))), ("ES",), zone=None, bar_label=None
    )
    assert "the stamps fit America/Chicago, not UTC" in warnings(found.findings)[0]


def test_label_that_the_bars_contradict_is_told(tmp_path: Path) -> None:
    text = as_csv(WINTER + STEP_NS, activity(WINTER)).replace(":00,100", ":00Z,100")
    parsed = parse_table(open_table(probe(put(tmp_path, "es.csv", text))))
    assumed = table_rows(parsed, ("ES",), zone=None, bar_label=None)
    assert not assumed.close_labelled
    assert "stamps look like the end of the bar; say --bar-label close if they are" in warnings(assumed.findings)[-1]
    assert not warnings(table_rows(parsed, ("ES",), zone=None, bar_label="close").findings)
    told = table_rows(
        parse_table(open_table(probe(put(tmp_path, "es.csv", text)))), ("ES",), zone=None, bar_label="open"
    )
    assert "--bar-label open was used" in warnings(told.findings)[-1]
