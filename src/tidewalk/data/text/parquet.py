"""Parquet and Arrow (Feather) files as typed columns, only those that are used."""

import contextlib
import io
import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.files.source import Source, read_all
from tidewalk.data.text.columns import NEEDED, Columns, identify, lacking, several_tickers, used
from tidewalk.data.text.dialects import Dialect, by_names
from tidewalk.data.text.stamps import stamp_share

TWO_LEVELS = re.compile(r"\('([^']*)', '([^']*)'\)")
MAX_ROWS = 1_000_000_000
STREAM_MARK = b"\xff\xff\xff\xff"
"""First bytes of the Arrow stream format, which has no magic: the continuation mark before a message's length."""


@dataclass(frozen=True)
class Schema:
    """Column names of a file and what is what; the fields are those of `csv.Layout`."""

    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect


def read_schema(source: Source) -> Schema:
    """Columns of a Parquet or Arrow file.

    Raises:
        DataError: damaged file, a needed column is missing (names what was found and what is needed), or a column
            that is used holds no numbers, text or times.
    """
    with _damage_told(source):
        types = _scan(source).collect_schema()
    stored = tuple(types)
    names = _one_level(stored, source.name)
    columns = identify(names)
    found = ", ".join(names[:16]) or "none"
    if columns is None:
        raise DataError(f"{source.name}: columns found: {found}; {lacking(names)}.")
    if columns.stamp is None:
        columns = replace(columns, stamp=_stamp_position(source, types, columns))
    if columns.stamp is None:
        raise DataError(f"{source.name}: no time column among {found}. Needed: {NEEDED}.")
    for position in sorted(used(columns)):
        _refuse_type(source, stored[position], types[stored[position]], is_price=position in columns.price)
    return Schema(names, columns, by_names(names, columns))


def read_columns(source: Source, schema: Schema) -> pl.DataFrame:
    """The used columns, named by their position ("0", "1", ...) in the file.

    Raises:
        DataError: damaged file, or more than `MAX_ROWS` rows.
    """
    positions = sorted(used(schema.columns))
    with _damage_told(source):
        scan = _scan(source)
        stored = scan.collect_schema().names()
        wanted = [stored[position] for position in positions]
        count = scan.select(pl.len()).collect().item()
        if count > MAX_ROWS:
            raise DataError(f"{source.name}: {count:,} rows; at most {MAX_ROWS:,} are read. Split the file.")
        frame = scan.select(wanted).collect()
    return frame.rename(dict(zip(wanted, map(str, positions), strict=True)))


def _one_level(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Names of columns in one level; pandas stores those of yfinance in two, as "('Open', 'ES=F')".

    Raises:
        DataError: the columns of several instruments.
    """
    pairs = [TWO_LEVELS.fullmatch(name) for name in names]
    for level, other in ((1, 2), (2, 1)):
        flat = tuple(pair[level] if pair else name for pair, name in zip(pairs, names, strict=True))
        if any(pairs) and identify(flat) is not None:
            tickers = list(dict.fromkeys(pair[other] for pair in pairs if pair and pair[other]))
            if len(tickers) > 1:
                raise several_tickers(tickers, where)
            return flat
    return names


def _scan(source: Source) -> pl.LazyFrame:
    whole: Path | io.BytesIO = io.BytesIO(bytes(read_all(source))) if source.container else source.path
    if source.content == "parquet":
        return pl.scan_parquet(whole)
    if source.head.startswith(STREAM_MARK):
        return pl.read_ipc_stream(whole).lazy()
    return pl.scan_ipc(whole)


def _refuse_type(source: Source, name: str, kind: pl.DataType, *, is_price: bool) -> None:
    is_plain = kind.is_numeric() or isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null)
    if is_plain or (not is_price and isinstance(kind, pl.Datetime | pl.Date | pl.Time)):
        return
    what = "prices are numbers" if is_price else "plain values are needed"
    raise DataError(f"{source.name}: column {name!r} holds {kind}, and {what}. Write one number or text per row.")


def _stamp_position(source: Source, types: pl.Schema, columns: Columns) -> int | None:
    """First column without a role that holds stamps, such as the unnamed index of a pandas frame."""
    taken = used(columns)
    for position, (name, kind) in enumerate(types.items()):
        if position in taken:
            continue
        if isinstance(kind, pl.Datetime) or kind == pl.Date:
            return position
        if kind == pl.String:
            with _damage_told(source):
                values = _scan(source).select(name).head(20).collect().to_series().drop_nulls()
            if len(values) and stamp_share(values) == 1.0:
                return position
    return None


@contextlib.contextmanager
def _damage_told(source: Source) -> Generator[None]:
    """Faults of the reading library as errors that name the file; its panics are no `Exception`."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{source.name}: the file is cut off or damaged ({reason}). Copy or download it again."
        ) from error
