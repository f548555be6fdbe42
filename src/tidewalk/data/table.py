"""Tables of bars, text or Parquet alike: from columns to rows per symbol, with UTC stamps and exact prices."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import UNDEF_PRICE_E9
from tidewalk.data.columns import Columns, Dialect, is_databento
from tidewalk.data.csv import Layout, read_text, sniff
from tidewalk.data.dbn import INTERVAL_NS_BY_SCHEMA, RTYPE_BY_SCHEMA
from tidewalk.data.numbers import price_columns, texts, volume_column
from tidewalk.data.parquet import Schema, read_columns, read_schema
from tidewalk.data.rows import DAY_NS, FileRows, LabelSpan, Rows, infer_interval_ns, spacings_ns, take
from tidewalk.data.source import Source
from tidewalk.data.stamps import Stamps, parse_stamps
from tidewalk.data.zones import to_utc


@dataclass(frozen=True)
class Header:
    """A table whose columns are known and whose rows are not read yet."""

    source: Source
    kind: str
    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect
    layout: Layout | Schema


@dataclass(frozen=True)
class Parsed:
    """Rows of a table that are bars, in file order.

    Attributes:
        header: where they come from.
        rows: columns of all bars; stamps in UTC or in wall time, as `form` says; file id not set.
        form: "utc", "naive" or "date", see `Stamps`.
        symbol: text [N] of the symbol column, None where there is none.
        rows_read: rows in the file, the ones left out included.
        interval_ns: bar length the file declares, else None.
        notes: what was left out or assumed.
    """

    header: Header
    rows: Rows
    form: str
    symbol: pl.Series | None
    rows_read: int
    interval_ns: int | None
    notes: tuple[str, ...]


def open_table(source: Source) -> Header:
    """Columns of a text, Parquet or Arrow file.

    Raises:
        DataError: see `sniff` and `read_schema`.
    """
    if source.content in ("parquet", "arrow"):
        schema = read_schema(source)
        return Header(source, source.content, schema.names, schema.columns, schema.dialect, schema)
    layout = sniff(source)
    kind = "tsv" if layout.delimiter == "\t" else "csv"
    kind = f"{kind} {source.container}" if source.container else kind
    return Header(source, kind, layout.names, layout.columns, layout.dialect, layout)


def parse_table(header: Header) -> Parsed:
    """All bars of a table, with exact prices; rows that are no bars are left out and counted.

    Raises:
        DataError: a row with prices has no readable stamp, or a row with a stamp has a price that is no number.
    """
    where = header.source.path.name
    frame, first_row, notes = _frame(header)
    stamps = _stamps(frame, header.columns, where)
    columns = header.columns
    raw = is_databento(header.names)
    price = [frame[str(position)] for position in (columns.open, columns.high, columns.low, columns.close)]
    prices_e9, garbage = price_columns(price, where, raw=raw)
    row = np.arange(first_row, first_row + len(frame), dtype=np.int64)
    priced = np.logical_or.reduce([column != UNDEF_PRICE_E9 for column in prices_e9])
    _refuse_unreadable(frame, header, stamps, priced, garbage, row)
    notes += _left_out(frame, header, ~stamps.valid, garbage, row)
    volume, volume_notes = _volume(frame, header, stamps.valid, row)
    ids = _whole(frame, columns.instrument_id)
    no_file = np.zeros(len(frame), np.int32)
    everything = Rows(stamps.ns, *prices_e9, volume=volume, instrument_id=ids, row=row, file_id=no_file)
    rows = take(everything, stamps.valid)
    symbol = None
    if columns.symbol is not None:
        symbol = frame[str(columns.symbol)].cast(pl.String).str.strip_chars().fill_null("").filter(stamps.valid)
    form = "date" if stamps.form == "naive" and not (rows.stamp_ns % DAY_NS).any() else stamps.form
    interval_ns = _declared_interval_ns(_whole(frame, columns.rtype)[stamps.valid], where)
    return Parsed(header, rows, form, symbol, len(frame), interval_ns, (*notes, *stamps.notes, *volume_notes))


def _frame(header: Header) -> tuple[pl.DataFrame, int, tuple[str, ...]]:
    if isinstance(header.layout, Schema):
        return read_columns(header.source, header.layout), 1, ()
    frame, notes = read_text(header.source, header.layout)
    return frame, header.layout.header_line + 1, notes


def _stamps(frame: pl.DataFrame, columns: Columns, where: str) -> Stamps:
    time = None if columns.time is None else frame[str(columns.time)]
    if not len(frame):
        raise DataError(f"{where}: a header and no rows.")
    return parse_stamps(frame[str(columns.stamp)], time, where)


def _refuse_unreadable(
    frame: pl.DataFrame,
    header: Header,
    stamps: Stamps,
    priced: NDArray[np.bool_],
    garbage: NDArray[np.bool_],
    row: NDArray[np.int64],
) -> None:
    where, columns = header.source.path.name, header.columns
    for index in np.flatnonzero(~stamps.valid & priced)[:1].tolist():
        shown = " ".join(str(frame[str(p)][index]) for p in (columns.stamp, columns.time) if p is not None)
        raise DataError(f"{where} row {row[index]}: {shown!r} is no stamp of the form of the other rows.")
    for index in np.flatnonzero(stamps.valid & garbage)[:1].tolist():
        values = [frame[str(p)][index] for p in (columns.open, columns.high, columns.low, columns.close)]
        shown = ", ".join(map(repr, map(str, values)))
        raise DataError(f"{where} row {row[index]}: open, high, low, close are {shown}; not all of them are numbers.")


def _left_out(
    frame: pl.DataFrame, header: Header, gone: NDArray[np.bool_], garbage: NDArray[np.bool_], row: NDArray[np.int64]
) -> tuple[str, ...]:
    """Notes on blank rows and on lines that are no bars (headers, footers)."""
    stamp = frame[str(header.columns.stamp)]
    if stamp.dtype != pl.String:
        return (f"rows without a stamp: {int(gone.sum())}",) if gone.any() else ()
    blank = gone & texts(stamp).is_null().to_numpy() & ~garbage
    other = np.flatnonzero(gone & ~blank)
    notes = [f"blank rows: {int(blank.sum())}"] if blank.any() else []
    if len(other):
        first = other[0]
        notes.append(f"lines that are no bars: {len(other)}, first row {row[first]} ({stamp[int(first)]!r})")
    return tuple(notes)


def _volume(
    frame: pl.DataFrame, header: Header, valid: NDArray[np.bool_], row: NDArray[np.int64]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    if not header.columns.volume:
        return np.zeros(len(frame)), ()
    where = header.source.path.name
    columns = [frame[str(position)].filter(valid) for position in header.columns.volume]
    volume, garbage, num_missing = volume_column(columns, where)
    for index in np.flatnonzero(garbage)[:1].tolist():
        shown = [column[index] for column in columns]
        raise DataError(f"{where} row {row[valid][index]}: volume is {shown[0]!r}, not a number.")
    full = np.zeros(len(frame))
    full[valid] = volume
    return full, (f"rows without a volume, taken as 0: {num_missing}",) if num_missing else ()


def _whole(frame: pl.DataFrame, position: int | None) -> NDArray[np.int64]:
    if position is None:
        return np.zeros(len(frame), np.int64)
    return frame[str(position)].cast(pl.Int64, strict=False).fill_null(0).to_numpy()


def _declared_interval_ns(rtype: NDArray[np.int64], where: str) -> int | None:
    kinds = {value: schema for schema, value in RTYPE_BY_SCHEMA.items()}
    found = [kinds[value] for value in np.unique(rtype).tolist() if value in kinds]
    if len(found) > 1:
        raise DataError(f"{where}: mixed bar intervals: {' and '.join(found)}. Give one bar length per file.")
    return INTERVAL_NS_BY_SCHEMA[found[0]] if found else None


def spans(parsed: Parsed) -> tuple[LabelSpan, ...]:
    """Days on which each symbol of the symbol column has rows; empty where there is no such column."""
    if parsed.symbol is None or not len(parsed.symbol):
        return ()
    days = pl.DataFrame({"symbol": parsed.symbol, "day": parsed.rows.stamp_ns // DAY_NS})
    ranges = days.group_by("symbol").agg(pl.col("day").min().alias("first"), pl.col("day").max().alias("last"))
    return tuple(LabelSpan(symbol, first, last + 1) for symbol, first, last in sorted(ranges.rows()) if symbol)


def table_rows(
    parsed: Parsed,
    labels: Collection[str],
    *,
    zone: str | None,
    bar_label: Literal["open", "close"] | None,
) -> FileRows:
    """Rows of the labels asked for, oldest first and in UTC.

    Args:
        parsed: from `parse_table`.
        labels: symbols of the symbol column; without such a column, the one label that all rows get.
        zone: IANA zone of naive stamps.
        bar_label: which end of the bar the stamps name, None for what the format is known to do, else "open".

    Raises:
        DataError: naive stamps without a zone, or wall times that the zone does not settle.
    """
    where = parsed.header.source.path.name
    zone, zone_notes, warnings = _zone(parsed, zone, where)
    close_labelled, label_note = _close_labelled(parsed, bar_label)
    rows, order_notes = {}, []
    for label in sorted(labels):
        part = parsed.rows
        if parsed.symbol is not None:
            part = take(part, np.flatnonzero((parsed.symbol == label).to_numpy()))
        rows[label], note = _oldest_first(part, zone, where)
        order_notes += note
    unmapped = 0 if parsed.symbol is None else int((parsed.symbol == "").sum())
    interval_ns = parsed.interval_ns or infer_interval_ns(rows.values()) or _interval_of_all_ns(parsed, rows)
    notes = (*parsed.notes, *zone_notes, *label_note, *sorted(set(order_notes)))
    has_volume = bool(parsed.header.columns.volume)
    return FileRows(rows, parsed.rows_read, unmapped, interval_ns, has_volume, close_labelled, notes, warnings)


def _interval_of_all_ns(parsed: Parsed, rows: Mapping[str, Rows]) -> int | None:
    """Bar length of the whole file, for a symbol that trades too thinly to show it; None where it does not fit."""
    if parsed.symbol is None:
        return None
    everything = [take(parsed.rows, np.flatnonzero((parsed.symbol == span.label).to_numpy())) for span in spans(parsed)]
    interval_ns = infer_interval_ns(everything)
    steps_ns = spacings_ns(rows.values())
    fits = interval_ns is not None and (not len(steps_ns) or int(steps_ns.min()) >= interval_ns)
    return interval_ns if fits else None


def _zone(parsed: Parsed, zone: str | None, where: str) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Zone in which to read the stamps (None: they are UTC), with notes and warnings."""
    if parsed.form == "date":
        return None, ("stamps are dates: each bar is taken as one UTC day",), ()
    if parsed.form == "utc":
        return None, ("--tz is not used: the stamps say their zone themselves",) if zone else (), ()
    is_utc = parsed.header.dialect.is_utc
    stamp_name = parsed.header.names[parsed.header.columns.stamp or 0]
    if zone is None and is_utc:
        return "UTC", (f"stamps are UTC, as the column name {stamp_name!r} says",), ()
    if zone is None:
        shown = str(np.datetime64(int(parsed.rows.stamp_ns[0]), "ns"))[:19].replace("T", " ")
        raise DataError(
            f"{where}: stamps such as {shown} say no time zone. Name the zone they are in with --tz, for example "
            "--tz America/Chicago, America/New_York or UTC."
        )
    doubt = f"{where}: column {stamp_name!r} says UTC, --tz {zone} was used"
    return zone, (f"stamps are wall time of {zone} (--tz)",), (doubt,) if is_utc and "UTC" not in zone else ()


def _close_labelled(parsed: Parsed, bar_label: str | None) -> tuple[bool, tuple[str, ...]]:
    """Whether stamps are the end of the bar, and a note where that was not said by the user."""
    known = parsed.header.dialect
    if parsed.form == "date":
        return False, ()
    if bar_label is not None:
        return bar_label == "close", ()
    # TradingView never writes naive stamps; other programs use the same column names.
    if known.close_labelled is not None and (known.name, parsed.form) != ("TradingView", "naive"):
        end = "end" if known.close_labelled else "start"
        return known.close_labelled, (f"stamps are taken as the {end} of the bar, as {known.name} writes them",)
    return False, ("stamps are assumed to be the start of the bar; say --bar-label close if they are its end",)


def _oldest_first(part: Rows, zone: str | None, where: str) -> tuple[Rows, list[str]]:
    """Rows in rising order of time as far as the file has one, stamps in UTC, and notes on the order found."""
    notes = []
    steps = np.diff(part.stamp_ns)
    if int((steps < 0).sum()) > int((steps > 0).sum()):
        part = take(part, np.arange(len(part.row))[::-1])
        notes.append("rows run newest first: reversed")
    if zone is not None:
        part = replace(part, stamp_ns=to_utc(part.stamp_ns, zone, part.row, where))
    backwards = int((np.diff(part.stamp_ns) < 0).sum())
    if backwards:
        notes.append(f"rows are out of time order in {backwards} places: sorted")
    return part, notes
