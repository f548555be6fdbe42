"""Wall time of a named zone to UTC, with the hour that clocks skip and the hour that they repeat."""

import zoneinfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.bars import E9

REPEAT_GAP_NS = 12 * 3_600 * E9
"""Rows of one repeated hour lie closer together than this, those of two autumns do not."""


def check_zone(zone: str) -> None:
    """Accept a name of the IANA time-zone database.

    Raises:
        ConfigError: unknown name, with the nearest known one.
    """
    try:
        if not zone.strip():
            raise pl.exceptions.ComputeError("no zone")
        pl.Series([0]).cast(pl.Datetime("ns")).dt.replace_time_zone(zone)
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError):
        names = zoneinfo.available_timezones()
        tails = {name.rpartition("/")[2]: name for name in sorted(names, reverse=True)}
        hint = tails.get(zone.strip().replace(" ", "_").title())
        guess = f" (did you mean {hint}?)" if hint else did_you_mean(zone, names)
        raise ConfigError(
            f"--tz {zone}: not a name of the IANA time-zone database{guess}. Examples: UTC, America/Chicago, "
            "America/New_York, Europe/Berlin."
        ) from None


def to_utc(wall_ns: NDArray[np.int64], zone: str, row: NDArray[np.int64], where: str) -> NDArray[np.int64]:
    """UTC of wall times in file order, oldest first.

    In the hour that clocks repeat in autumn a stamp names two moments. The order of the rows tells them apart where
    the hour is run through twice; where it does not, the row is refused.

    Args:
        wall_ns: int64 [N] nanoseconds of wall time.
        zone: IANA name, accepted by `check_zone`.
        row: int64 [N] row numbers for errors.
        where: file name for errors.

    Raises:
        DataError: a wall time that the zone skips, or a repeated one that the order does not settle.
    """
    wall = pl.Series(wall_ns).cast(pl.Datetime("ns"))
    earliest = _localise(wall, zone, "earliest")
    skipped = np.flatnonzero(earliest.is_null().to_numpy())
    if len(skipped):
        index = int(skipped[0])
        raise DataError(
            f"{where} row {row[index]}: {_clock(int(wall_ns[index]))} does not exist in {zone}, where clocks are put "
            "forward. The stamps are probably in another zone: UTC or one without summer time (--tz)."
        )
    first_ns, second_ns = (series.dt.epoch("ns").to_numpy() for series in (earliest, _localise(wall, zone, "latest")))
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
