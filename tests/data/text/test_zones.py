"""Wall time to UTC: the skipped hour, the repeated hour, and names of zones."""

import datetime
import zoneinfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.market_files import MINUTE_NS, ns
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.text.zones import check_zone, parse_zone, to_utc


def convert(*walls: str, zone: str = "America/New_York") -> list[str]:
    wall_ns = np.array([ns(wall) for wall in walls])
    utc_ns = to_utc(wall_ns, zone, np.arange(2, 2 + len(walls)), "f.csv")
    return [str(np.datetime64(int(value), "m")).replace("T", " ") for value in utc_ns // MINUTE_NS]


@settings(deadline=None)  # the machine may be busy
@given(
    seconds=st.integers(min_value=946_684_800, max_value=2_000_000_000),
    zone=st.sampled_from(["America/Chicago", "Europe/Berlin", "Asia/Shanghai", "UTC", "Australia/Sydney"]),
)
def test_agrees_with_zoneinfo_on_rising_wall_time(seconds: int, zone: str) -> None:
    aware = datetime.datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(zone))
    wall_ns = np.array([int(aware.replace(tzinfo=datetime.UTC).timestamp()) * 10**9])
    again = aware.replace(tzinfo=None)
    twice = (
        again.replace(fold=0, tzinfo=aware.tzinfo).utcoffset() != again.replace(fold=1, tzinfo=aware.tzinfo).utcoffset()
    )
    if twice:
        with pytest.raises(DataError, match="comes twice"):
            to_utc(wall_ns, zone, np.array([1]), "f")
    else:
        assert to_utc(wall_ns, zone, np.array([1]), "f").tolist() == [seconds * 10**9]


def test_offset_follows_the_season() -> None:
    assert convert("2024-01-02 09:30", "2024-07-02 09:30") == ["2024-01-02 14:30", "2024-07-02 13:30"]


def test_skipped_hour_is_refused_with_its_row() -> None:
    with pytest.raises(DataError, match=r"f\.csv row 3: 2024-03-10 02:30:00 does not exist in America/New_York"):
        convert("2024-03-10 01:59", "2024-03-10 02:30")


def test_repeated_hour_is_told_by_the_order_of_rows() -> None:
    walls = [
        "2024-11-03 00:59",
        *(f"2024-11-03 01:{minute:02d}" for _ in range(2) for minute in range(60)),
        "2024-11-03 02:00",
    ]
    wall_ns = np.array([ns(wall) for wall in walls])
    utc_ns = to_utc(wall_ns, "America/New_York", np.arange(len(walls)), "f")
    assert (np.diff(utc_ns) == MINUTE_NS).all()
    assert utc_ns[0] == ns("2024-11-03 04:59")


def test_repeated_hour_of_hourly_bars() -> None:
    expected = ["2024-11-03 04:00", "2024-11-03 05:00", "2024-11-03 06:00", "2024-11-03 07:00"]
    assert convert("2024-11-03 00:00", "2024-11-03 01:00", "2024-11-03 01:00", "2024-11-03 02:00") == expected


def test_each_autumn_stands_for_itself() -> None:
    walls = [f"{day} 01:{minute}" for day in ("2023-11-05", "2024-11-03") for minute in (10, 50, 20)]
    assert [moment[11:] for moment in convert(*walls)] == ["05:10", "05:50", "06:20"] * 2


@pytest.mark.parametrize(
    "walls",
    [
        ("2024-11-03 01:30",),
        ("2024-11-03 01:10", "2024-11-03 01:20"),
        tuple(f"2024-11-03 01:{m}" for m in (30, 15, 40, 35)),
    ],
)
def test_repeated_hour_that_order_does_not_settle_is_refused(walls: tuple[str, ...]) -> None:
    with pytest.raises(
        DataError, match=r"row 2: 2024-11-03 01:[13]0:00 comes twice in America/New_York.*UTC stamps or offsets"
    ):
        convert(*walls)


def test_fixed_offsets_have_no_such_hours() -> None:
    assert convert("2024-11-03 01:30", "2024-03-10 02:30", zone="EST") == ["2024-11-03 06:30", "2024-03-10 07:30"]


@pytest.mark.parametrize("zone", ["UTC", "America/Chicago", "EST", "Etc/GMT+5"])
def test_zones_are_accepted(zone: str) -> None:
    check_zone(zone)


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("chicago", "America/Chicago"),
        ("America/Chicag", "America/Chicago"),
        ("new york", "America/New_York"),
        ("", "UTC"),
    ],
)
def test_unknown_zones_are_refused_with_the_nearest(zone: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"--tz {zone}: not a name of the IANA time-zone database.*{hint}"):
        check_zone(zone)


@pytest.mark.parametrize(
    ("zone", "utc"),
    [
        ("UTC+2", "2024-07-02 07:30"),
        ("UTC-05:30", "2024-07-02 15:00"),
        ("GMT+5", "2024-07-02 04:30"),
        ("-05:00", "2024-07-02 14:30"),
        ("Etc/GMT+5", "2024-07-02 14:30"),
        ("EST", "2024-07-02 14:30"),
        ("America/New_York+7", "2024-07-02 06:30"),
        ("America/New_York-1", "2024-07-02 14:30"),
    ],
)
def test_fixed_offsets_and_brokers_clocks(zone: str, utc: str) -> None:
    assert convert("2024-07-02 09:30", zone=zone) == [utc]


def test_brokers_clock_follows_new_york_and_not_europe() -> None:
    # Between the changes of 10 and 31 March New York has summer time and Athens has not.
    assert convert("2024-03-08 23:59", "2024-03-12 23:59", zone="America/New_York+7") == [
        "2024-03-08 21:59",
        "2024-03-12 20:59",
    ]


@pytest.mark.parametrize(
    ("zone", "remark"),
    [
        ("EST", "EST is UTC-5 all year, without summer time; the local clock is America/New_York"),
        ("Etc/GMT+5", "Etc/GMT+5 is 5 hours behind UTC, all year"),
        ("Etc/GMT-2", "Etc/GMT-2 is 2 hours ahead of UTC, all year"),
        ("America/New_York+7", "America/New_York+7 is 7 hours ahead of the clock of America/New_York, all year"),
        ("America/Chicago", ""),
        ("UTC+2", ""),
    ],
)
def test_zones_that_are_easily_misread_are_explained(zone: str, remark: str) -> None:
    assert parse_zone(zone).remark == remark


@pytest.mark.parametrize(
    ("zone", "hint"), [("CST", "America/Chicago"), ("EDT", "America/New_York"), ("PST", "America/Los_Angeles")]
)
def test_abbreviations_of_summer_and_standard_time_are_not_taken(zone: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"--tz {zone}: not a name .* \(did you mean {hint}\?\)"):
        check_zone(zone)


@pytest.mark.parametrize("zone", ["UTC+15", "UTC+2:75", "Mars/Base+2", "+", "America/New_York+99"])
def test_impossible_offsets_are_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="not a name of the IANA time-zone database"):
        check_zone(zone)
