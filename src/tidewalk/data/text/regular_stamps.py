"""Stamps of rows that are all written alike, the quick way.

Most files write every stamp with the same letters in the same places. Those are read at once by a format; what differs
in any place is left to the caller, who reads it by the parts of a pattern.
"""

import re
from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.data.bars import E9
from tidewalk.data.text.dates import FIRST_YEAR, LAST_YEAR

_REGULAR = re.compile(
    r"(?P<date>\d{4}[-/.]\d{2}[-/.]\d{2}|\d{8}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})"
    r"(?:(?P<gap>[ T]?)(?P<clock>\d{1,2}:\d{2}:\d{2}|\d{1,2}:\d{2}|\d{6}|\d{4})(?P<fraction>\.\d{1,9})?)?"
    r"(?P<offset>Z|[+-]\d{2}:?\d{2})?"
)
SAMPLE = 200


def read_regular(text: pl.Series, order: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_], str]:
    """Stamps of the rows that are written just as the first one.

    Args:
        text: stamps without surrounding blanks.
        order: order of dates of three numbers, None for other forms.

    Returns:
        int64 [N] nanoseconds, in UTC or in wall time; bool [N] whether the row was read; the form of those rows: "utc",
        "naive" or "date".
    """
    none = np.zeros(len(text), np.int64), np.zeros(len(text), np.bool_), "date"
    head = text.head(SAMPLE)
    first = head.filter(head.is_not_null() & (head != "")).head(1)
    seen = _REGULAR.fullmatch(first[0]) if len(first) else None
    if seen is None:
        return none
    same = text.str.len_bytes() == len(first[0])
    offset_ns = np.zeros(len(text), np.int64)
    if seen["offset"]:
        tail = text.str.tail(len(seen["offset"]))
        names = tail.unique().drop_nulls()
        by_name, known = offset_ns_of(names)
        of_row = tail.replace_strict(names, pl.Series(np.where(known, by_name, 0)), default=0, return_dtype=pl.Int64)
        offset_ns = int64(of_row)
        same &= tail.is_in([name for name in names.to_list() if re.fullmatch(r"Z|[+-]\d{2}:?\d{2}", name)])
        text = text.str.head(-len(seen["offset"]))
    # Nanoseconds of far years run over into near ones; where the year stands first it is looked at, else counted in us.
    unit, factor = ("us", 1000) if order else ("ns", 1)
    moments = text.str.to_datetime(_strptime(seen, order), time_unit=unit, strict=False, cache=False)
    # A 60th second is read as the next minute, and a year of two digits as it is.
    odd = text.str.contains(":60", literal=True)
    fits = moments.is_not_null() & ~odd & moments.dt.year().is_between(FIRST_YEAR, LAST_YEAR)
    if order is None:
        fits &= same & text.str.slice(0, 2).is_in(["19", "20"])
    # A blank is read for a digit, and none for one between date and time.
    gap = first[0].find(" ")
    fits &= text.str.count_matches(" ", literal=True) == int(gap >= 0)
    if gap >= 0 and order is None:
        fits &= text.str.slice(gap, 1) == " "
    if seen["fraction"]:
        fits &= text.str.slice(seen.start("fraction"), 1) == "."
    valid = fits.fill_null(value=False).to_numpy()
    ns = moments.to_physical().fill_null(0).to_numpy() * factor - offset_ns
    return np.where(valid, ns, 0), valid, "utc" if seen["offset"] else "naive" if seen["clock"] else "date"


def _strptime(seen: re.Match[str], order: str | None) -> str:
    """Format of a stamp that `_REGULAR` matched."""
    date, clock = seen["date"], seen["clock"] or ""
    if order is not None:
        separators = re.findall(r"\D", date)
        codes = ["%Y" if part == "y" else f"%{part}" for part in order]
        pattern = f"{codes[0]}{separators[0]}{codes[1]}{separators[1]}{codes[2]}"
    else:
        pattern = f"%Y{date[4]}%m{date[7]}%d" if len(date) == 10 else "%Y%m%d"
    clocks = {0: "", 4: "%H%M", 5: "%H:%M", 6: "%H%M%S", 7: "%H:%M:%S", 8: "%H:%M:%S"}
    clock_pattern = "%H:%M" if clock.count(":") == 1 else clocks[len(clock)]
    return f"{pattern}{seen['gap'] or ''}{clock_pattern}{'%.f' if seen['fraction'] else ''}"


def extract(text: pl.Series, pattern: str) -> Mapping[str, pl.Series]:
    """Named groups of a pattern, one text column each."""
    groups = text.str.extract_groups(pattern).struct.unnest()
    return {column.name: column for column in groups}


def offset_ns_of(offset: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Offset from UTC, int64 [N] nanoseconds, and bool [N] whether one is written."""
    parts = extract(offset, r"^(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?$")
    sign = np.where((parts["sign"] == "-").fill_null(value=False).to_numpy(), -1, 1)
    seconds = number(parts["hours"]) * 3600 + number(parts["minutes"]) * 60
    return sign * seconds * E9, present(offset)


def number(text: pl.Series) -> NDArray[np.int64]:
    """Whole numbers of a text column, 0 where there is none."""
    return int64(text.cast(pl.Int64, strict=False))


def int64(column: pl.Series) -> NDArray[np.int64]:
    """A column as int64 [N], 0 where it is null."""
    return column.cast(pl.Int64).fill_null(0).to_numpy().copy()


def present(column: pl.Series) -> NDArray[np.bool_]:
    """Whether rows of a column are not null, bool [N]."""
    return column.is_not_null().to_numpy()
