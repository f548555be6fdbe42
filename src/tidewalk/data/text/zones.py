"""Wall time of a named zone to UTC, with the hour that clocks skip and the hour that they repeat.

A zone is a name of the IANA database ("America/Chicago"), a fixed offset ("UTC+2", "-05:00") or a name with hours added
("America/New_York+7": the clock of brokers whose day ends at 17:00 in New York).
"""

import re
import zoneinfo
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.bars import E9

HOUR_NS = 3_600 * E9
REPEAT_GAP_NS = 12 * HOUR_NS
"""Rows of one repeated hour lie closer together than this, those of two autumns do not."""

_OFFSET = re.compile(r"(?P<base>.*?)(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")
FIXED = {
    "EST": ("UTC-5", "America/New_York"),
    "MST": ("UTC-7", "America/Denver"),
    "HST": ("UTC-10", "Pacific/Honolulu"),
}
ABBREVIATIONS = {
    **dict.fromkeys(("CT", "CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("ET", "EDT"), "America/New_York"),
    **dict.fromkeys(("PT", "PST", "PDT"), "America/Los_Angeles"),
    **dict.fromkeys(("MDT", "MT"), "America/Denver"),
    **dict.fromkeys(("BST",), "Europe/London"),
    **dict.fromkeys(("CEST",), "Europe/Berlin"),
    **dict.fromkeys(("JST",), "Asia/Tokyo"),
}
"""What abbreviations that the database does not know are most often meant for; suggested, never taken."""


@dataclass(frozen=True)
class Zone:
    """A zone in which wall times are read.

    Attributes:
        name: as the user wrote it.
        base: name in the IANA database.
        shift_ns: what the wall clock shows more than the clock of `base`.
        remark: what is said about it, "" for nothing.
    """

    name: str
    base: str
    shift_ns: int = 0
    remark: str = ""


def parse_zone(name: str) -> Zone:
    """The zone that a text names.

    Raises:
        ConfigError: unknown name, with the nearest known one.
    """
    name = name.strip()
    if name in FIXED:
        offset, usual = FIXED[name]
        return Zone(name, name, 0, f"{name} is {offset} all year, without summer time; the local clock is {usual}")
    if _is_known(name):
        fixed = re.fullmatch(r"Etc/GMT([+-])(\d+)", name)
        side = "" if fixed is None else "behind" if fixed[1] == "+" else "ahead of"
        return Zone(name, name, 0, f"{name} is {fixed[2]} hours {side} UTC, all year" if fixed else "")
    parts = _OFFSET.fullmatch(name)
    if parts is not None and int(parts["hours"]) <= 14 and int(parts["minutes"] or 0) < 60:
        shift_ns = (int(parts["hours"]) * 60 + int(parts["minutes"] or 0)) * 60 * E9
        shift_ns = -shift_ns if parts["sign"] == "-" else shift_ns
        if parts["base"].upper() in ("", "UTC", "GMT"):
            return Zone(name, "UTC", shift_ns)
        if _is_known(parts["base"]):
            ahead = f"{parts['hours']} hours {'behind' if parts['sign'] == '-' else 'ahead of'}"
            return Zone(name, parts["base"], shift_ns, f"{name} is {ahead} the clock of {parts['base']}, all year")
    raise _unknown(name)


def check_zone(zone: str) -> None:
    """Accept a zone that `parse_zone` knows.

    Raises:
        ConfigError: see `parse_zone`.
    """
    parse_zone(zone)


def _is_known(name: str) -> bool:
    if not name:
        return False
    try:
        pl.Series([0]).cast(pl.Datetime("ns")).dt.replace_time_zone(name)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return True


def _unknown(zone: str) -> ConfigError:
    names = zoneinfo.available_timezones()
    tails = {name.rpartition("/")[2]: name for name in sorted(names, reverse=True)}
    hint = ABBREVIATIONS.get(zone.upper()) or tails.get(zone.strip().replace(" ", "_").title())
    guess = f" (did you mean {hint}?)" if hint else did_you_mean(zone, names)
    return ConfigError(
        f"--tz {zone}: not a name of the IANA time-zone database{guess}. Examples: UTC, America/Chicago, "
        "America/New_York, Europe/Berlin; fixed offsets such as UTC-5; a broker's clock such as America/New_York+7."
    )


def to_utc(wall_ns: NDArray[np.int64], zone: str, row: NDArray[np.int64], where: str) -> NDArray[np.int64]:
    """UTC of wall times in file order, oldest first.

    In the hour that clocks repeat in autumn a stamp names two moments. The order of the rows tells them apart where
    the hour is run through twice; where it does not, the row is refused.

    Args:
        wall_ns: int64 [N] nanoseconds of wall time.
        zone: accepted by `check_zone`.
        row: int64 [N] row numbers for errors.
        where: file name for errors.

    Raises:
        DataError: a wall time that the zone skips, or a repeated one that the order does not settle.
    """
    meant = parse_zone(zone)
    base_ns = wall_ns - meant.shift_ns
    if meant.base == "UTC":
        return base_ns
    wall = pl.Series(base_ns).cast(pl.Datetime("ns"))
    earliest = _localise(wall, meant.base, "earliest")
    skipped = np.flatnonzero(earliest.is_null().to_numpy())
    if len(skipped):
        index = int(skipped[0])
        raise DataError(
            f"{where} row {row[index]}: {_clock(int(wall_ns[index]))} does not exist in {zone}, where clocks are put "
            f"forward ({len(skipped)} such rows). The stamps are probably in another zone: UTC or one without summer "
            "time (--tz UTC, --tz UTC-5)."
        )
    first_ns, second_ns = (
        series.dt.epoch("ns").to_numpy() for series in (earliest, _localise(wall, meant.base, "latest"))
    )
    twice = np.flatnonzero(first_ns != second_ns)
    if not len(twice):
        return first_ns
    utc_ns = first_ns.copy()
    for block in np.split(twice, np.flatnonzero(np.abs(np.diff(wall_ns[twice])) > REPEAT_GAP_NS) + 1):
        start = _second_pass(wall_ns[block])
        if start is None:
            raise DataError(
                f"{where} row {row[block[0]]}: {_clock(int(wall_ns[block[0]]))} comes twice in {zone}, where clocks "
                "are put back, and the order of rows does not tell which is meant. Export with UTC stamps or offsets."
            )
        utc_ns[block[start:]] = second_ns[block[start:]]
    return utc_ns


def roughly_utc(wall_ns: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    """UTC of wall times without the care of `to_utc`: for looking at hours of the day, never for bars."""
    meant = parse_zone(zone)
    if meant.base == "UTC":
        return wall_ns - meant.shift_ns
    wall = pl.Series(wall_ns - meant.shift_ns).cast(pl.Datetime("ns"))
    placed = _localise(wall, meant.base, "earliest")
    return placed.dt.epoch("ns").fill_null(0).to_numpy()


def clock_of(utc_ns: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    """Wall time of a zone, int64 [N] nanoseconds, of UTC stamps."""
    there = pl.Series(utc_ns).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return there.to_physical().to_numpy()


def _localise(wall: pl.Series, zone: str, ambiguous: str) -> pl.Series:
    chosen = pl.lit(ambiguous)
    return pl.select(pl.lit(wall).dt.replace_time_zone(zone, ambiguous=chosen, non_existent="null")).to_series()


def _second_pass(wall_ns: NDArray[np.int64]) -> int | None:
    """Index at which the repeated hour starts again: the one place where wall time runs back."""
    steps = np.diff(wall_ns)
    back = np.flatnonzero(steps < 0)
    if len(back) == 1:
        return int(back[0]) + 1
    # One bar per hour: the same wall time twice.
    return 1 if len(back) == 0 and len(wall_ns) == 2 and steps[0] == 0 else None


def _clock(wall_ns: int) -> str:
    return str(np.datetime64(wall_ns, "ns"))[:19].replace("T", " ")
