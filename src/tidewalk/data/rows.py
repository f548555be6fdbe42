"""Rows as a file gives them, before they are checked, merged and turned into a `BarTable`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.words import counted
from tidewalk.data.bars import E9, MAX_PRICE_E9
from tidewalk.data.checks.quality import Finding

DAY_NS = 86_400_000_000_000


@dataclass(frozen=True)
class Rows:
    """Columns of length N, in file order; nothing is checked yet.

    Attributes:
        stamp_ns: int64 [N] UTC stamp of the row, the start or the end of its bar.
        open_e9: int64 [N] price in 1e-9 units, `UNDEF_PRICE_E9` where missing.
        high_e9: int64 [N], as open_e9.
        low_e9: int64 [N], as open_e9.
        close_e9: int64 [N], as open_e9.
        volume: float64 [N].
        instrument_id: int64 [N], 0 where the source has none.
        row: int64 [N] record or line number in the file, from 1.
        file_id: int32 [N] index into the list of files being merged.
    """

    stamp_ns: NDArray[np.int64]
    open_e9: NDArray[np.int64]
    high_e9: NDArray[np.int64]
    low_e9: NDArray[np.int64]
    close_e9: NDArray[np.int64]
    volume: NDArray[np.float64]
    instrument_id: NDArray[np.int64]
    row: NDArray[np.int64]
    file_id: NDArray[np.int32]


@dataclass(frozen=True)
class LabelSpan:
    """Days [first_day, end_day) since 1970-01-01 on which a file has an instrument under `label`."""

    label: str
    first_day: int
    end_day: int


@dataclass(frozen=True)
class FileRows:
    """What one file gives for the labels asked for.

    Attributes:
        rows: rows per label.
        rows_read: rows in the file, of all labels.
        rows_unmapped: rows of `rows_read` that belong to no label at all.
        interval_ns: bar length the file declares or its stamps show; None when irregular or too short to tell.
        has_volume: whether the file has a volume column.
        close_labelled: whether stamps are the end of the bar.
        findings: what was seen in the file.
        rows_others: rows of other labels, where the rows of a label are not those of the file but made of them.
        end_ns: UTC moment up to which the file was recorded, where it says so; a bar that ends later is not complete.
    """

    rows: dict[str, Rows]
    rows_read: int
    rows_unmapped: int
    interval_ns: int | None
    has_volume: bool
    close_labelled: bool
    findings: tuple[Finding, ...] = ()
    end_ns: int | None = None
    rows_others: int | None = None


def take(rows: Rows, index: NDArray[np.int64] | NDArray[np.bool_]) -> Rows:
    """Rows at an index or where a mask is true."""
    if index.dtype == np.bool_ and index.all():
        return rows
    return Rows(*(getattr(rows, field.name)[index] for field in fields(Rows)))


def concat(parts: Sequence[Rows]) -> Rows:
    """Rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


def prices(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Open, high, low and close columns."""
    return rows.open_e9, rows.high_e9, rows.low_e9, rows.close_e9


def same_bar(rows: Rows, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the rows at `first` and `second` agree in stamp, prices, volume and, where both have one, instrument."""
    columns = (rows.stamp_ns, *prices(rows), rows.volume)
    one, two = rows.instrument_id[first], rows.instrument_id[second]
    same_instrument = (one == two) | (one == 0) | (two == 0)
    return np.logical_and.reduce([same_instrument, *(column[first] == column[second] for column in columns)])


def missing(rows: Rows) -> NDArray[np.bool_]:
    """Whether a row has no price at all: all four missing, or all zero with no volume (a vendor's way to say so)."""
    absent = np.logical_and.reduce([is_absent(column) for column in prices(rows)])
    empty = np.logical_and.reduce([column == 0 for column in prices(rows)]) & (rows.volume == 0)
    return absent | empty


def incomplete(rows: Rows) -> NDArray[np.bool_]:
    """Whether some of the four prices are missing and others are not."""
    absent = [is_absent(column) for column in prices(rows)]
    return np.logical_or.reduce(absent) & ~np.logical_and.reduce(absent)


def is_absent(price_e9: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a price is a vendor's sentinel for none."""
    return (price_e9 > MAX_PRICE_E9) | (price_e9 < -MAX_PRICE_E9)


def spacings_ns(parts: Iterable[Rows]) -> NDArray[np.int64]:
    """Distances between successive different stamps within each part, pooled."""
    steps = [np.diff(np.sort(part.stamp_ns)) for part in parts]
    return np.concatenate([step[step > 0] for step in steps]) if steps else np.empty(0, np.int64)


USUAL_LENGTHS_S = (
    *(1, 5, 10, 15, 20, 30),
    *(minutes * 60 for minutes in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 45)),
    *(hours * 3600 for hours in (1, 2, 3, 4, 6, 8, 12, 24, 168)),
)


def infer_interval_ns(parts: Iterable[Rows]) -> int | None:
    """Bar length shown by the stamps: the commonest distance, if it is a usual length and at least half of all.

    None when the bars are irregular, or when there are no two stamps to compare.
    """
    steps_ns = spacings_ns(parts)
    if not len(steps_ns):
        return None
    lengths, counts = np.unique(steps_ns, return_counts=True)
    commonest = int(counts.argmax())
    usual = int(lengths[commonest]) in {length * E9 for length in USUAL_LENGTHS_S}
    return int(lengths[commonest]) if usual and 2 * counts[commonest] >= len(steps_ns) else None


def spoken(interval_ns: int) -> str:
    """A bar length in words, in the largest unit that divides it: "5 minutes", "1 day"."""
    for unit, unit_ns in (("day", DAY_NS), ("hour", 3_600 * E9), ("minute", 60 * E9), ("second", E9)):
        count, rest_ns = divmod(interval_ns, unit_ns)
        if not rest_ns:
            return counted(count, unit)
    return f"{interval_ns / E9:g} seconds"


def iso(stamp_ns: int) -> str:
    """A UTC stamp as text, to the second unless it needs more."""
    text = str(np.datetime64(stamp_ns, "ns"))
    return text.rstrip("0").rstrip(".").replace("T", " ") + " UTC" if "." in text else text + " UTC"
