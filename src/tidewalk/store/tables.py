"""Tables of a run folder: exact schemas, checked when written and when read; equal content gives equal bytes.

Nulls stand only where a schema says so, NaN and infinity nowhere. A table may also be written as CSV for a spreadsheet.
"""

import csv
import hashlib
import io
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tidewalk.core.errors import StoreError
from tidewalk.store.checks import check_keys
from tidewalk.store.layout import RunFolder, read_bytes, read_manifest, write_bytes_atomic

_FORMULA_STARTS = tuple("=+-@|%\t\r\n")
"""What a spreadsheet may take for the start of a formula or of a command."""


@dataclass(frozen=True)
class Table:
    """Columns of a result table in file order, what may be null, the allowed words, and what no two rows share."""

    schema: dict[str, Any]
    nullable: tuple[str, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    key: tuple[str, ...] = ()
    law: Callable[[Path, pl.DataFrame], None] | None = None
    """Raises a StoreError when the rows contradict each other."""


def check_rows(path: Path, frame: pl.DataFrame, is_bad: pl.Expr, problem: str) -> None:
    """Raises a StoreError that shows the first row where `is_bad` holds."""
    bad = frame.with_row_index("row").filter(is_bad)
    if bad.height:
        raise StoreError(
            f"{path}: {problem}; {bad.height} of {frame.height} rows, the first is {bad.row(0, named=True)}."
        )


def checked(path: Path, frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The frame with its columns in file order.

    Raises:
        StoreError: columns, types, nulls, NaN, unknown words, repeated keys, or the law of the table; shows the first
            row at fault.
    """
    check_keys(str(path), dict.fromkeys(frame.columns), tuple(table.schema), noun="column")
    for column, dtype in table.schema.items():
        if frame.schema[column] != dtype:
            raise StoreError(f"{path}: column {column!r} is {frame.schema[column]}, needed is {dtype}. Cast it first.")
        if column not in table.nullable:
            check_rows(path, frame, pl.col(column).is_null(), f"column {column!r} has nulls")
        if dtype.is_float():
            check_rows(path, frame, ~pl.col(column).is_finite(), f"column {column!r} has NaN or infinity")
    for column, allowed in table.words:
        check_rows(path, frame, ~pl.col(column).is_in(allowed), f"column {column!r} allows {', '.join(allowed)} only")
    if table.key:
        check_rows(path, frame, ~pl.struct(table.key).is_first_distinct(), f"rows repeat {' and '.join(table.key)}")
    ordered = frame.select(list(table.schema))
    if table.law:
        table.law(path, ordered)
    return ordered


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """The frame as a Parquet file, with everything that shapes the bytes fixed and not left to a version's defaults."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=3, statistics=True, row_group_size=65_536)
    return buffer.getvalue()


def write_table(path: Path, frame: pl.DataFrame, table: Table, *, with_csv: bool = False) -> None:
    """Writes a table as Parquet, and with `with_csv` also as a CSV file of the same name beside it.

    Raises:
        StoreError: the frame breaks its schema or its law, or the file cannot be written.
    """
    ordered = checked(path, frame, table)
    write_bytes_atomic(path, parquet_bytes(ordered))
    if with_csv:
        write_bytes_atomic(path.with_suffix(".csv"), csv_text(ordered).encode())


def read_table(run: RunFolder, path: Path, table: Table) -> pl.DataFrame:
    """Frame of a table, checked as when written, and against the manifest once the run is finished."""
    known = read_manifest(run).get("files", {}).get(path.name) if run.manifest.is_file() else None
    return read_parquet(path, table, None if known is None else known["sha256"])


def read_parquet(path: Path, table: Table, sha256: str | None) -> pl.DataFrame:
    """Frame of a Parquet file, checked as when written, and first against its SHA-256 where that is known."""
    data = read_bytes(path)
    try:
        # Before anything is decoded, since a flipped bit can make the decoder end the whole process.
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("its SHA-256 is not the one recorded")
        # From bytes, because a path with brackets or stars would be taken for a pattern.
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise StoreError(
            f"{path}: not readable as Parquet ({error}): damaged or cut short. Restore or rerun."
        ) from error
    return checked(path, frame, table)


def csv_text(frame: pl.DataFrame) -> str:
    """The frame as CSV (RFC 4180, UTF-8) that a spreadsheet shows and never runs.

    A text cell or column name that would start a formula is led by an apostrophe; numbers stay numbers, -1 too, and are
    rounded to the billionth, the unit of prices. Columns that end in `_ns` are nanoseconds since 1970 and become UTC
    times of ISO 8601, without the `_ns`.
    """
    times = [name for name, dtype in frame.schema.items() if name.endswith("_ns") and dtype == pl.Int64]
    shown = frame.with_columns(
        pl.col(pl.Float64).round(9),
        pl.from_epoch(pl.col(times), time_unit="ns").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"),
    )
    names = [name.removesuffix("_ns") if name in times else name for name in frame.columns]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    for row in [names, *shown.iter_rows()]:
        writer.writerow([_defused(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue()


def _defused(text: str) -> str:
    """A cell that is text to every spreadsheet, also to one that trims blanks or reads signs of double width."""
    seen = unicodedata.normalize("NFKC", text).lstrip(" ")
    return f"'{text}" if seen.startswith(_FORMULA_STARTS) else text
