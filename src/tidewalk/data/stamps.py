"""Stamps of text and typed columns as nanoseconds: UTC where the column says so, else wall time of a zone to be named.

The form of the stamps is found once per file, from the first rows, and every row must have it. Nothing depends on the
machine's own time zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9
from tidewalk.data.rows import DAY_NS

_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_TAIL = rf"(?:(?:[Tt,]\s*|\s+){_CLOCK})?\s*(?P<offset>[Zz]|UTC|GMT|[+-]\d{{2}}(?::?\d{{2}})?)?$"
_MONTH = "(?P<name>[A-Za-z]{3})[A-Za-z]*"
_COMPACT_CLOCK = r"(?:[T _-]*(?P<hour>\d{2}):?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?)?"
FORMS = {
    "year first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})" + _TAIL,
    "compact": r"^(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)"
    + _COMPACT_CLOCK
    + r"\s*(?P<offset>[Zz]|UTC|GMT|[+-]\d{2}:?\d{2})?$",
    "epoch": r"^(?P<epoch>\d{9,19})(?:\.(?P<fraction>\d{1,9})\d*)?$",
    "year last": r"^(?P<one>\d{1,2})[-/.](?P<two>\d{1,2})[-/.](?P<year>\d{4})" + _TAIL,
    "month name": rf"^{_MONTH}\.?[ -](?P<day>\d{{1,2}}),?[ -]\s*(?P<year>\d{{4}})" + _TAIL,
    "day and month name": rf"^(?P<day>\d{{1,2}})[ -]{_MONTH}\.?,?[ -](?P<year>\d{{4}})" + _TAIL,
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
EPOCH_FLOOR_S, EPOCH_CEILING_S = 631_152_000, 4_102_444_800  # 1990-01-01, 2100-01-01
SAMPLE = 200


@dataclass(frozen=True)
class Stamps:
    """Stamps of N rows.

    Attributes:
        ns: int64 [N] nanoseconds since 1970-01-01, in UTC or in wall time; 0 where not valid.
        valid: bool [N], whether the row has a stamp of the file's form.
        form: "utc", "naive" (wall time of a zone not named) or "date" (days without a time).
        notes: how stamps were read.
    """

    ns: NDArray[np.int64]
    valid: NDArray[np.bool_]
    form: str
    notes: tuple[str, ...]


def looks_like_stamp(text: str) -> bool:
    """Whether a field has one of the known forms of a stamp that holds a date."""
    column = pl.Series([text.strip()], dtype=pl.String)
    return any(_matches(column, pattern)[0] for pattern in FORMS.values())


def parse_stamps(column: pl.Series, time: pl.Series | None, where: str) -> Stamps:
    """Stamps of a column, joined with a column of times of day where there is one.

    Args:
        column: text, date, datetime or whole numbers (epoch).
        time: text column of times, or None.
        where: file name for errors.

    Raises:
        DataError: a form that is not known, day and month that cannot be told apart, or offsets in some rows only.
    """
    if isinstance(column.dtype, pl.Datetime):
        return _typed(column)
    if column.dtype == pl.Date:
        return Stamps(_int64(column.cast(pl.Int64)) * DAY_NS, _present(column), "date", ())
    text = column.cast(pl.String).str.strip_chars()
    if time is not None:
        text = _joined(text, time.cast(pl.String).str.strip_chars())
    form = _form_of(text, where)
    parts = _extract(text, FORMS[form])
    if form == "epoch":
        return _epoch(parts, where)
    return _calendar(parts, form, where)


def _typed(column: pl.Series) -> Stamps:
    zoned = isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None
    ns = _int64(column.cast(pl.Datetime("ns", column.dtype.time_zone if zoned else None)).to_physical())  # pyright: ignore
    return Stamps(ns, _present(column), "utc" if zoned else "naive", ())


def _joined(date: pl.Series, time: pl.Series) -> pl.Series:
    """Date and time of day as one text; a time column that holds the date as well stands alone."""
    sample = time.drop_nulls().head(1)
    if len(sample) and looks_like_stamp(sample[0]) and not sample.str.contains(r"^\d{3,6}$")[0]:
        return time
    digits = time.str.contains(r"^\d{3,4}$").fill_null(value=False)
    colons = time.str.zfill(4).str.replace(r"^(\d{2})(\d{2})$", "$1:$2")
    long_digits = time.str.contains(r"^\d{5,6}$").fill_null(value=False)
    long_colons = time.str.zfill(6).str.replace(r"^(\d{2})(\d{2})(\d{2})$", "$1:$2:$3")
    clock = colons.zip_with(digits, time)
    clock = long_colons.zip_with(long_digits, clock)
    return pl.select((pl.lit(date) + pl.lit(" ") + pl.lit(clock)).alias("stamp")).to_series()


def _form_of(text: pl.Series, where: str) -> str:
    sample = text.filter(text.is_not_null() & (text != "")).head(SAMPLE)
    counts = {form: sum(_matches(sample, pattern)) for form, pattern in FORMS.items()}
    best = max(counts, key=lambda form: counts[form])
    if not counts[best]:
        shown = sample[0] if len(sample) else ""
        raise DataError(
            f"{where}: the stamp {shown!r} has no known form. Known are 2024-01-31 09:30:00 (with Z or an offset, or "
            "naive with --tz), 20240131 093000, 1/31/2024 9:30, Jan 31, 2024, and seconds to nanoseconds since 1970."
        )
    return best


def _matches(text: pl.Series, pattern: str) -> list[bool]:
    return text.str.contains(pattern).fill_null(value=False).to_list()


def _extract(text: pl.Series, pattern: str) -> Mapping[str, pl.Series]:
    """Named groups of a pattern, one text column each."""
    groups = text.str.extract_groups(pattern).struct.unnest()
    return {column.name: column for column in groups}


def _epoch(parts: Mapping[str, pl.Series], where: str) -> Stamps:
    """Nanoseconds from counts since 1970, the unit told by the size of each count."""
    whole = parts["epoch"].cast(pl.UInt64, strict=False)
    valid = _present(whole)
    count = whole.fill_null(0).to_numpy()
    ns = np.zeros(len(count), np.int64)
    units = []
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        inside = valid & (count >= EPOCH_FLOOR_S * per_second) & (count < EPOCH_CEILING_S * per_second)
        ns[inside] = count[inside].astype(np.int64) * (E9 // per_second)
        units += [unit] if inside.any() else []
        if unit == "s":
            ns[inside] += _fraction_ns(parts["fraction"])[inside]
    if (valid & (ns == 0)).any():
        shown = parts["epoch"][int(np.flatnonzero(valid & (ns == 0))[0])]
        raise DataError(f"{where}: the stamp {shown} lies outside 1990 to 2100 in s, ms, us and ns since 1970.")
    return Stamps(ns, valid, "utc", (f"stamps are {' and '.join(units)} since 1970",))


def _calendar(parts: Mapping[str, pl.Series], form: str, where: str) -> Stamps:
    """Nanoseconds from year, month, day and clock."""
    notes: tuple[str, ...] = ()
    if "name" in parts:
        month = parts["name"].str.to_lowercase().replace_strict(dict(zip(MONTHS, range(1, 13), strict=True)), default=0)
        year, month, day = _number(parts["year"]), _int64(month), _number(parts["day"])
    elif form == "year last":
        year = _number(parts["year"])
        month, day, notes = _month_and_day(parts, year, where)
    else:
        year, month, day = (_number(parts[name]) for name in ("year", "month", "day"))
    present = _present(parts["year"])
    days, valid = _days(year, month, day)
    clock_ns, clock_valid = _clock_ns(parts)
    ns, valid = days * DAY_NS + clock_ns, present & valid & clock_valid
    offset_ns, has_offset = _offset_ns(parts["offset"])
    if has_offset[valid].any() and not has_offset[valid].all():
        raise DataError(f"{where}: some stamps have an offset from UTC and some have none. Give every row an offset.")
    zoned = bool(has_offset[valid].any())
    has_clock = bool(_present(parts["hour"])[valid].any())
    return Stamps(
        np.where(valid, ns - offset_ns, 0), valid, "utc" if zoned else "naive" if has_clock else "date", notes
    )


def _month_and_day(
    parts: Mapping[str, pl.Series], year: NDArray[np.int64], where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Which of the first two numbers is the month: the one never above 12, or the one with which time runs one way."""
    one, two = _number(parts["one"]), _number(parts["two"])
    if one.max() > 12 and two.max() > 12:
        raise DataError(f"{where}: dates mix day/month/year and month/day/year. Write dates as YYYY-MM-DD.")
    if two.max() > 12:
        return one, two, ("dates are month/day/year",)
    if one.max() > 12:
        return two, one, ("dates are day/month/year",)
    present = _present(parts["year"])
    clock_ns, _ = _clock_ns(parts)
    month_first = _runs_one_way((_days(year, one, two)[0] * DAY_NS + clock_ns)[present])
    day_first = _runs_one_way((_days(year, two, one)[0] * DAY_NS + clock_ns)[present])
    if month_first == day_first:
        index = int(np.flatnonzero(present)[0])
        shown = f"{one[index]}/{two[index]}/{year[index]}"
        raise DataError(
            f"{where}: {shown} may be month/day or day/month and no date in the file settles it. "
            "Write dates as YYYY-MM-DD."
        )
    if month_first:
        return one, two, ("dates are taken as month/day/year: only so are the rows in time order",)
    return two, one, ("dates are taken as day/month/year: only so are the rows in time order",)


def _runs_one_way(ns: NDArray[np.int64]) -> bool:
    steps = np.diff(ns)
    return bool(len(steps)) and bool(steps.any()) and bool((steps >= 0).all() or (steps <= 0).all())


def _days(
    year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970-01-01 and whether the date exists."""
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    months = (np.where(valid, (year - 1970) * 12 + month - 1, 0)).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    return first + day - 1, valid & (day <= length)


def _clock_ns(parts: Mapping[str, pl.Series]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Nanoseconds since midnight, 0 for a date alone, and whether the time exists."""
    hour, minute, second = (_number(parts[name]) for name in ("hour", "minute", "second"))
    if "half" in parts:
        half = parts["half"].str.to_lowercase()
        noon = (half == "p").fill_null(value=False).to_numpy()
        hour = np.where(_present(half), hour % 12 + 12 * noon, hour)
    ns = (hour * 3600 + minute * 60 + second) * E9 + _fraction_ns(parts["fraction"])
    return ns, (hour < 24) & (minute < 60) & (second < 60)


def _fraction_ns(fraction: pl.Series) -> NDArray[np.int64]:
    return _number(fraction.str.pad_end(9, "0"))


def _offset_ns(offset: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Offset from UTC and whether one is written."""
    parts = _extract(offset, r"^(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?$")
    sign = np.where((parts["sign"] == "-").fill_null(value=False).to_numpy(), -1, 1)
    seconds = _number(parts["hours"]) * 3600 + _number(parts["minutes"]) * 60
    return sign * seconds * E9, _present(offset)


def _number(text: pl.Series) -> NDArray[np.int64]:
    return _int64(text.cast(pl.Int64, strict=False))


def _int64(column: pl.Series) -> NDArray[np.int64]:
    return column.cast(pl.Int64).fill_null(0).to_numpy()


def _present(column: pl.Series) -> NDArray[np.bool_]:
    return column.is_not_null().to_numpy()
