"""Dates of three numbers, such as 03/04/2020: which is the day, the month and the year.

What the numbers of the whole file settle is taken and said. What they leave open is refused with the option that
settles it, unless the format is known to write one order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import Finding

DATE_ORDERS: Mapping[str, str] = {"mdy": "month/day/year", "dmy": "day/month/year", "ymd": "year/month/day"}
"""Values of --date-order, in words."""

NUMBERS = r"(?P<one>\d{1,2})[-/.](?P<two>\d{1,2})[-/.](?P<three>\d{4}|\d{2})"
PIVOT = 70
"""Years of two digits from here on lie in the 1900s, as POSIX strptime has it (69 to 99; no bars are from 1969)."""
MIN_EXCHANGED = 3
"""Dates that have to fall into place to say that day and month were exchanged."""
FIRST_YEAR, LAST_YEAR = 1900, 2199
"""Years believed; nanoseconds since 1970 hold somewhat more, and far beyond them they run over."""


@dataclass(frozen=True)
class DateRuns:
    """Dates of a file in the order of its rows, each run of equal dates once.

    Attributes:
        numbers: int64 [N, 3] the three numbers as written.
        row: int64 [N] row of the first of each run.
        long_year: bool [N], whether the third number has four digits.
    """

    numbers: NDArray[np.int64]
    row: NDArray[np.int64]
    long_year: NDArray[np.bool_]


def date_runs(text: pl.Series, first_row: int) -> DateRuns:
    """Runs of equal dates in a column of stamps, rows without such a date left out."""
    date = text.str.extract(r"^\s*(\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))(?:\D|$)").fill_null("")
    starts = np.flatnonzero((date != date.shift(1, fill_value="")).to_numpy())
    kept = date.gather(starts)
    starts = starts[(kept != "").to_numpy()]
    parts = date.gather(starts).str.extract_groups(NUMBERS).struct.unnest()
    numbers = parts.cast(pl.Int64).to_numpy().reshape(-1, 3)
    return DateRuns(numbers, starts + first_row, (parts["three"].str.len_bytes() == 4).to_numpy())


def join_runs(parts: Sequence[DateRuns]) -> DateRuns:
    """Runs of all parts, one after the other."""
    return DateRuns(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.long_year for part in parts]),
    )


def possible_orders(runs: DateRuns) -> list[str]:
    """Orders in which every date exists."""
    orders = ("mdy", "dmy") if runs.long_year.any() else tuple(DATE_ORDERS)
    return [order for order in orders if in_order(runs, order)[1].all()]


def settle_order(runs: DateRuns, where: str, known: str | None) -> tuple[str, tuple[Finding, ...]]:
    """The order of the dates of a file, one of `DATE_ORDERS`, with what is said about it.

    Args:
        runs: all dates of the file.
        where: file name for errors.
        known: order that the user or the format's definition says, None where neither does.

    Raises:
        DataError: dates of two orders in one file, or dates that can be read in several.
    """
    findings = (
        () if runs.long_year.all() else (Finding("dialect", f"years have two digits: {PIVOT} and more are 19.."),)
    )
    if known is not None:
        _refuse_half_exchanged(runs, where, known)
        return known, findings
    possible = possible_orders(runs)
    if len(possible) == 1:
        _refuse_half_exchanged(runs, where, possible[0])
        return possible[0], (*findings, Finding("dialect", f"dates are {DATE_ORDERS[possible[0]]}"))
    if not possible:
        raise _mixed(runs, where)
    in_time = [order for order in possible if _runs_one_way(in_order(runs, order)[0])]
    if len(in_time) == 1:
        text = f"dates are taken as {DATE_ORDERS[in_time[0]]}: only so are the rows in time order"
        return in_time[0], (*findings, Finding("dialect", text))
    meanings = " or ".join(DATE_ORDERS[order] for order in possible)
    raise DataError(
        f"{where} row {runs.row[0]}: {shown(runs, 0)} may be {meanings} and no date in the file settles it. "
        f"Say it with --date-order {' or --date-order '.join(possible)}."
    )


def _refuse_half_exchanged(runs: DateRuns, where: str, order: str) -> None:
    """Refuse dates in which day and month have changed places wherever both may be a month.

    A spreadsheet does this to day/month/year where it expects month/day/year, and leaves 31/01/2024 as it is.
    """
    other = {"mdy": "dmy", "dmy": "mdy"}.get(order)
    days, _ = in_order(runs, order)
    if other is None or _runs_one_way(days):
        return
    exchanged, exists = in_order(runs, other)
    differs = np.flatnonzero(exists & (exchanged != days))
    if len(differs) >= MIN_EXCHANGED and _runs_one_way(np.where(exists, exchanged, days)):
        index = int(differs[0])
        raise DataError(
            f"{where} row {runs.row[index]}: {shown(runs, index)} is {DATE_ORDERS[other]} and other dates are "
            f"{DATE_ORDERS[order]}: only so are the rows in time order. A spreadsheet may have exchanged day and month "
            "where it could. Export the file again, with dates as YYYY-MM-DD."
        )


def in_order(runs: DateRuns, order: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970-01-01 of dates read in an order, and whether each exists."""
    year, month, day = (runs.numbers[:, order.index(part)] for part in "ymd")
    return days_since_1970(full_year(year, runs.long_year), month, day)


def full_year(year: NDArray[np.int64], long_year: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Years with their century."""
    return np.where(long_year, year, year + np.where(year >= PIVOT, 1900, 2000))


def days_since_1970(
    year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970-01-01 and whether the date exists."""
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= FIRST_YEAR) & (year <= LAST_YEAR)
    months = (np.where(valid, (year - 1970) * 12 + month - 1, 0)).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    return first + day - 1, valid & (day <= length)


def shown(runs: DateRuns, index: int) -> str:
    """A date about as it is written."""
    one, two, three = runs.numbers[index].tolist()
    return f"{one}/{two}/{three:04d}" if runs.long_year[index] else f"{one}/{two}/{three:02d}"


def _mixed(runs: DateRuns, where: str) -> DataError:
    rows = {}
    for order in ("mdy", "dmy"):
        rows[order] = int(np.flatnonzero(~in_order(runs, order)[1])[0])
    seen = " and ".join(
        f"row {runs.row[index]} ({shown(runs, index)}) is not {DATE_ORDERS[order]}" for order, index in rows.items()
    )
    return DataError(f"{where}: dates mix day/month/year and month/day/year: {seen}. Write dates as YYYY-MM-DD.")


def _runs_one_way(day: NDArray[np.int64]) -> bool:
    steps = np.diff(day)
    return bool(steps.any()) and bool((steps >= 0).all() or (steps <= 0).all())
