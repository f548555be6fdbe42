"""Stamps of text and typed columns as nanoseconds: UTC where the column says so, else wall time of a zone to be named.

The form of the stamps is found once per file, from the first rows, and every row must have it. Nothing depends on the
machine's own time zone.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9
from tidewalk.data.checks.quality import Finding
from tidewalk.data.rows import DAY_NS
from tidewalk.data.text.counts import EPOCH, EPOCH_CEILING_S, EPOCH_FLOOR_S, SERIAL, UNITS, from_epoch, from_serial
from tidewalk.data.text.dates import (
    DATE_ORDERS,
    FIRST_YEAR,
    LAST_YEAR,
    NUMBERS,
    date_runs,
    days_since_1970,
    full_year,
    settle_order,
)
from tidewalk.data.text.regular_stamps import SAMPLE, extract, int64, number, offset_ns_of, present, read_regular

_OFFSET = r"(?P<offset>[Zz]|(?:UTC|GMT)?[+-]\d{2}(?::?\d{2})?|UTC|GMT)?$"
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_TAIL = rf"(?:(?:[Tt,]\s*|\s+){_CLOCK})?\s*{_OFFSET}"
_MONTH = "(?P<name>[A-Za-z]{3})[A-Za-z]*"
_COMPACT_CLOCK = r"(?:[T _-]*(?P<hour>\d{2}):?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?)?"
FORMS = {
    "year first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})" + _TAIL,
    "compact": r"^(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)" + _COMPACT_CLOCK + rf"\s*{_OFFSET}",
    "epoch": EPOCH,
    "numbers": "^" + NUMBERS + _TAIL,
    "month name": rf"^{_MONTH}\.?[ -](?P<day>\d{{1,2}}),?[ -]\s*(?P<year>\d{{4}})" + _TAIL,
    "day and month name": rf"^(?P<day>\d{{1,2}})[ -]{_MONTH}\.?,?[ -](?P<year>\d{{4}}|\d{{2}})" + _TAIL,
}
ZONE_TAIL = r"^(?P<stamp>.*\d)\s*\[?(?P<zone>[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+|[A-Z]{2,5})\]?$"
NO_ZONES = ("UTC", "GMT", "AM", "PM")

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PATTERNS = tuple(map(re.compile, FORMS.values()))
_ZONE_TAIL = re.compile(ZONE_TAIL)


@dataclass(frozen=True)
class StampForm:
    """How a file writes its stamps.

    Attributes:
        name: key of `FORMS`, or "excel".
        order: key of `DATE_ORDERS` for dates of three numbers, else None.
    """

    name: str
    order: str | None = None


@dataclass(frozen=True)
class Stamps:
    """Stamps of N rows.

    Attributes:
        ns: int64 [N] nanoseconds since 1970-01-01, in UTC or in wall time; 0 where not valid.
        valid: bool [N], whether the row has a stamp of the file's form.
        form: "utc", "naive" (wall time of a zone not named) or "date" (days without a time).
        findings: how stamps were read.
        zones: names of zones inside the stamps, such as "US/Central" or "EST"; empty where there are none.
        units: units of counts since 1970, where the stamps are such.
    """

    ns: NDArray[np.int64]
    valid: NDArray[np.bool_]
    form: str
    findings: tuple[Finding, ...] = ()
    zones: frozenset[str] = frozenset()
    units: tuple[str, ...] = ()


def looks_like_stamp(text: str) -> bool:
    """Whether a field has one of the known forms of a stamp that holds a date."""
    text = text.strip()
    zoned = _ZONE_TAIL.match(text)
    bare = zoned["stamp"].rstrip() if zoned and zoned["zone"] not in NO_ZONES else text
    return any(pattern.match(bare) for pattern in _PATTERNS)


def stamp_share(column: pl.Series) -> float:
    """Share of the rows of a text column that have the commonest form of a stamp that holds a date."""
    text, _ = _without_zone(column.str.strip_chars())
    return max(sum(_matches(text, pattern)) for pattern in FORMS.values()) / max(len(text), 1)


def parse_stamps(column: pl.Series, time: pl.Series | None, where: str, order: str | None = None) -> Stamps:
    """Stamps of a whole column, joined with a column of times of day where there is one.

    Args:
        column: text, date, datetime or whole numbers (epoch).
        time: text column of times, or None.
        where: file name for errors.
        order: order of dates of three numbers where it is known, a key of `DATE_ORDERS`.

    Raises:
        DataError: a form that is not known, day and month that cannot be told apart, or offsets in some rows only.
    """
    if isinstance(column.dtype, pl.Datetime):
        if time is None or (column.dt.time() != datetime.time()).any():
            return _typed(column)
        column = column.dt.date()  # the day, as pandas stores it beside a time of day
    if column.dtype == pl.Date and time is None:
        return Stamps(int64(column.cast(pl.Int64)) * DAY_NS, present(column), "date")
    text = stamp_text(column, time)
    form, findings = StampForm(find_form(text, where)), ()
    if form.name == "numbers":
        order, findings = settle_order(date_runs(text, 1), where, order)
        form = replace(form, order=order)
    return join_stamps([read_stamps(text, form, where, 1)], where, findings)


def stamp_text(column: pl.Series, time: pl.Series | None) -> pl.Series:
    """Stamps as text without surrounding blanks and quotes, date and time of day as one."""
    if column.dtype.is_float():
        column = _whole_counts(column)
    text = column.cast(pl.String).str.strip_chars(" \t\"'")
    return text if time is None else _joined(text, time.cast(pl.String).str.strip_chars(" \t\"'"))


def _whole_counts(column: pl.Series) -> pl.Series:
    """Counts since 1970 in floats as whole numbers, seconds and milliseconds as microseconds; dates as they are."""
    finite = column.set(~column.is_finite(), None)
    largest = float(finite.abs().max() or 0.0)  # pyright: ignore[reportArgumentType]
    factor = 10**6 if EPOCH_FLOOR_S <= largest < EPOCH_CEILING_S else 10**3 if largest < EPOCH_CEILING_S * 10**3 else 1
    return (finite * factor if largest >= EPOCH_FLOOR_S else finite).round().cast(pl.Int64, strict=False)


def find_form(text: pl.Series, where: str) -> str:
    """The form that most of the first rows have: a key of `FORMS` or "excel".

    Raises:
        DataError: no row has a known form.
    """
    sample, _ = _without_zone(text.filter(text.is_not_null() & (text != "")).head(SAMPLE))
    counts = {form: sum(_matches(sample, pattern)) for form, pattern in {**FORMS, "excel": SERIAL}.items()}
    best = max(counts, key=lambda form: counts[form])
    if not counts[best]:
        shown = sample[0] if len(sample) else ""
        raise DataError(
            f"{where}: the stamp {shown!r} has no known form. Known are 2024-01-31 09:30:00 (with Z or an offset, or "
            "naive with --tz), 20240131 093000, 1/31/2024 9:30, Jan 31, 2024, and seconds to nanoseconds since 1970."
        )
    return best


def read_stamps(text: pl.Series, form: StampForm, where: str, first_row: int) -> Stamps:
    """Stamps of some rows of a file, in the form of that file.

    Args:
        text: from `stamp_text`.
        form: the file's form.
        where: file name for errors.
        first_row: row number of the first of these rows, for errors.

    Raises:
        DataError: a date of the other order, a count outside 1990 to 2100, or offsets in some rows only.
    """
    if form.name == "epoch":
        ns, valid, units = from_epoch(text, where, first_row)
        return Stamps(ns, valid, "utc", units=units)
    if form.name == "excel":
        ns, valid = from_serial(text)
        said = Finding("dialect", "stamps are a spreadsheet's count of days since 1899-12-30, read to the millisecond")
        return Stamps(ns, valid, "naive" if (ns % DAY_NS).any() else "date", (said,))
    text, zones = _without_zone(text)
    ns, done, kind = read_regular(text, form.order)
    stamps = Stamps(ns, done, kind, zones=zones)
    rest = np.empty(0, np.int64)
    if not done.all():
        rest = np.flatnonzero(~done & (text != "").fill_null(value=False).to_numpy())
    if len(rest):
        others = _calendar(text.gather(rest), form, where)
        _refuse_other_order(text, rest[~others.valid], form, where, first_row)
        if others.valid.any():
            kind = _common([stamps.form, others.form], where) if done.any() else others.form
            ns[rest], done[rest] = others.ns, others.valid
            stamps = replace(stamps, form=kind)
    return stamps


def join_stamps(parts: Sequence[Stamps], where: str, findings: tuple[Finding, ...] = ()) -> Stamps:
    """Stamps of a file from those of its blocks.

    Raises:
        DataError: see `common_form`.
    """
    form, zones, said = common_form(parts, where)
    ns, valid = np.concatenate([part.ns for part in parts]), np.concatenate([part.valid for part in parts])
    return Stamps(ns, valid, form, (*findings, *said), zones)


def common_form(parts: Sequence[Stamps], where: str) -> tuple[str, frozenset[str], tuple[Finding, ...]]:
    """Form of a file's stamps, the zones named in them, and what is said about them, from its blocks.

    Raises:
        DataError: offsets in some rows only.
    """
    form = _common([part.form for part in parts if part.valid.any()] or ["date"], where)
    units = [unit for unit in UNITS if any(unit in part.units for part in parts)]
    said = tuple(dict.fromkeys(finding for part in parts for finding in part.findings))
    if units:
        said = (*said, Finding("dialect", f"stamps are {' and '.join(units)} since 1970"))
    return form, frozenset().union(*(part.zones for part in parts)), said


def _common(forms: Sequence[str], where: str) -> str:
    """Form of rows of several forms: a date is a wall time without clock, UTC mixes with neither."""
    if "utc" in forms and set(forms) != {"utc"}:
        raise DataError(f"{where}: some stamps have an offset from UTC and some have none. Give every row an offset.")
    return "naive" if "naive" in forms else forms[0]


def _typed(column: pl.Series) -> Stamps:
    zoned = isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None
    ns = int64(column.cast(pl.Datetime("ns", column.dtype.time_zone if zoned else None)).to_physical())  # pyright: ignore
    year = column.dt.year()
    valid = (year.is_not_null() & year.is_between(FIRST_YEAR, LAST_YEAR)).fill_null(value=False).to_numpy()
    return Stamps(np.where(valid, ns, 0), valid, "utc" if zoned else "naive")


def _joined(date: pl.Series, time: pl.Series) -> pl.Series:
    """Date and time of day as one text; a time column that holds the date as well stands alone."""
    sample = time.drop_nulls().head(1)
    if len(sample) and looks_like_stamp(sample[0]) and not sample.str.contains(r"^\d{3,6}$")[0]:
        return time
    first_date = date.drop_nulls().head(1)
    if (
        len(sample)
        and len(first_date)
        and _matches(first_date, SERIAL)[0]
        and sample.str.contains(r"^[01]?\.\d+$|^0$")[0]
    ):
        return (date.cast(pl.Float64, strict=False) + time.cast(pl.Float64, strict=False)).cast(pl.String)
    digits = time.str.contains(r"^\d{1,6}$").fill_null(value=False)
    if digits.any():
        long = (time.str.len_bytes() > 4).fill_null(value=False)
        # One form per file: 500 between times of six digits is 00:05:00.
        long = digits & (long if not (digits & long).any() else True)
        short_clock = time.str.zfill(4).str.replace(r"^(\d{2})(\d{2})$", "$1:$2")
        long_clock = time.str.zfill(6).str.replace(r"^(\d{2})(\d{2})(\d{2})$", "$1:$2:$3")
        time = long_clock.zip_with(long, short_clock.zip_with(digits, time))
    return pl.select((pl.lit(date) + pl.lit(" ") + pl.lit(time)).alias("stamp")).to_series()


def _without_zone(text: pl.Series) -> tuple[pl.Series, frozenset[str]]:
    """Stamps without the name of a zone behind them, and the names found."""
    first = text.filter(text.is_not_null() & (text != "")).head(5)
    named = first.str.extract_groups(ZONE_TAIL).struct.field("zone").drop_nulls()
    if all(zone.upper() in NO_ZONES for zone in named):
        return text, frozenset()
    parts = extract(text, ZONE_TAIL)
    has = parts["zone"].is_not_null() & ~parts["zone"].is_in(list(NO_ZONES))
    zones = frozenset(parts["zone"].filter(has).unique().to_list())
    return parts["stamp"].str.strip_chars_end().zip_with(has.fill_null(value=False), text), zones


def _matches(text: pl.Series, pattern: str) -> list[bool]:
    return text.str.contains(pattern).fill_null(value=False).to_list()


def _calendar(text: pl.Series, form: StampForm, where: str) -> Stamps:
    """Nanoseconds from year, month, day and clock, of any stamp of the form."""
    parts = extract(text, FORMS[form.name])
    if form.order is not None:
        by_letter = {
            letter: number(parts[name]) for letter, name in zip(form.order, ("one", "two", "three"), strict=True)
        }
        long_year = (parts["three"].str.len_bytes() == 4).fill_null(value=False).to_numpy()
        year, month, day = full_year(by_letter["y"], long_year), by_letter["m"], by_letter["d"]
        is_date = present(parts["three"])
    else:
        long_year = (parts["year"].str.len_bytes() == 4).fill_null(value=False).to_numpy()
        year, day = full_year(number(parts["year"]), long_year), number(parts["day"])
        month = _month_number(parts["name"]) if "name" in parts else number(parts["month"])
        is_date = present(parts["year"])
    days, valid = days_since_1970(year, month, day)
    clock_ns, clock_valid = _clock_ns(parts)
    valid = is_date & valid & clock_valid
    offset_ns, has_offset = offset_ns_of(parts["offset"])
    if has_offset[valid].any() and not has_offset[valid].all():
        _common(["utc", "naive"], where)
    zoned = bool(has_offset[valid].any())
    has_clock = bool(present(parts["hour"])[valid].any())
    ns = np.where(valid, days * DAY_NS + clock_ns - offset_ns, 0)
    return Stamps(ns, valid, "utc" if zoned else "naive" if has_clock else "date")


def _refuse_other_order(text: pl.Series, gone: NDArray[np.int64], form: StampForm, where: str, first_row: int) -> None:
    """Refuse a date that exists only in another order than the file's."""
    if form.order is None or not len(gone):
        return
    other = "dmy" if form.order == "mdy" else "mdy"
    fitting = gone[_calendar(text.gather(gone), StampForm("numbers", other), where).valid]
    if len(fitting):
        index = int(fitting[0])
        raise DataError(
            f"{where} row {first_row + index}: {text[index]!r} is {DATE_ORDERS[other]}, and the dates are "
            f"{DATE_ORDERS[form.order]}. Write dates as YYYY-MM-DD, or say --date-order."
        )


def _month_number(name: pl.Series) -> NDArray[np.int64]:
    return int64(name.str.to_lowercase().replace_strict(dict(zip(MONTHS, range(1, 13), strict=True)), default=0))


def _clock_ns(parts: Mapping[str, pl.Series]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Nanoseconds since midnight, 0 for a date alone, and whether the time exists; 24:00 is the next midnight."""
    hour, minute, second = (number(parts[name]) for name in ("hour", "minute", "second"))
    if "half" in parts:
        half = parts["half"].str.to_lowercase()
        noon = (half == "p").fill_null(value=False).to_numpy()
        hour = np.where(present(half), hour % 12 + 12 * noon, hour)
    ns = (hour * 3600 + minute * 60 + second) * E9 + _fraction_ns(parts["fraction"])
    return ns, (ns <= DAY_NS) & (minute < 60) & (second < 60)


def _fraction_ns(fraction: pl.Series) -> NDArray[np.int64]:
    return number(fraction.str.pad_end(9, "0"))
