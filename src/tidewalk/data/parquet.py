"""Parquet and Arrow (Feather) files as typed columns, only those that are used."""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.columns import NEEDED, Columns, Dialect, dialect, identify, lacking, used
from tidewalk.data.source import Source
from tidewalk.data.stamps import looks_like_stamp

MAX_ROWS = 1_000_000_000


@dataclass(frozen=True)
class Schema:
    """Column names of a file and what is what; the fields are those of `csv.Layout`."""

    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect


def read_schema(source: Source) -> Schema:
    """Columns of a Parquet or Arrow file.

    Raises:
        DataError: damaged file, or a needed column is missing; names what was found and what is needed.
    """
    types = _types(source)
    names = tuple(types)
    columns = identify(names)
    found = ", ".join(names[:16]) or "none"
    if columns is None:
        raise DataError(f"{source.path.name}: columns found: {found}; {lacking(names)}.")
    if columns.stamp is None:
        columns = replace(columns, stamp=_stamp_position(source, types, columns))
    if columns.stamp is None:
        raise DataError(f"{source.path.name}: no time column among {found}. Needed: {NEEDED}.")
    return Schema(names, columns, dialect(names, columns))


def read_columns(source: Source, schema: Schema) -> pl.DataFrame:
    """The used columns, named by their position ("0", "1", ...) in the file.

    Raises:
        DataError: damaged file, or more than `MAX_ROWS` rows.
    """
    positions = sorted(used(schema.columns))
    wanted = [schema.names[position] for position in positions]
    try:
        scan = pl.scan_parquet(source.path) if source.content == "parquet" else pl.scan_ipc(source.path)
        count = scan.select(pl.len()).collect().item()
        if count > MAX_ROWS:
            raise DataError(f"{source.path.name}: {count:,} rows; at most {MAX_ROWS:,} are read. Split the file.")
        frame = scan.select(wanted).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(source.path, error) from error
    return frame.rename(dict(zip(wanted, map(str, positions), strict=True)))


def _types(source: Source) -> pl.Schema:
    try:
        if source.content == "parquet":
            return pl.Schema(pl.read_parquet_schema(source.path))
        return pl.Schema(pl.read_ipc_schema(source.path))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(source.path, error) from error


def _stamp_position(source: Source, types: pl.Schema, columns: Columns) -> int | None:
    """First column without a role that holds stamps, such as the unnamed index of a pandas frame."""
    taken = used(columns)
    for position, (name, kind) in enumerate(types.items()):
        if position in taken:
            continue
        if isinstance(kind, pl.Datetime) or kind == pl.Date:
            return position
        if kind == pl.String:
            scan = pl.scan_parquet(source.path) if source.content == "parquet" else pl.scan_ipc(source.path)
            values = scan.select(name).head(20).collect().to_series().drop_nulls()
            if len(values) and all(map(looks_like_stamp, values)):
                return position
    return None


def _damaged(path: Path, error: Exception) -> DataError:
    reason = str(error).partition("\n")[0][:200]
    return DataError(f"{path.name}: the file is cut off or damaged ({reason}). Copy or download it again.")
