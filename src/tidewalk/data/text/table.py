"""Tables of bars, text or Parquet alike: from columns to rows with exact prices, stamps not yet placed in a zone.

Text is read a block of lines at a time, so that a file of any size takes about as much memory as its bars. What only
the whole file can settle (the order of day and month, the decimal mark) is settled from as many blocks as it needs
before any row is read.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import UNDEF_PRICE_E9
from tidewalk.data.checks.levels import adjusted_columns
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.layouts import INTERVAL_NS_BY_SCHEMA, RTYPE_BY_SCHEMA
from tidewalk.data.files.source import Source
from tidewalk.data.rows import DAY_NS, LabelSpan, Rows, prices, take
from tidewalk.data.text import scid
from tidewalk.data.text.columns import PRICE_NAMES, VOLUME_NAMES, Columns, is_databento, mapping, plain
from tidewalk.data.text.csv import NO_OPTIONS, Layout, TextOptions, sniff
from tidewalk.data.text.dialects import Dialect
from tidewalk.data.text.frames import TextFrame, text_frames
from tidewalk.data.text.manner import Manner, find_manner, stamps_of
from tidewalk.data.text.numbers import FRACTION, IN_FRACTIONS, price_columns, texts, volume_column
from tidewalk.data.text.parquet import Schema, read_columns, read_schema
from tidewalk.data.text.stamps import Stamps, common_form, parse_stamps, read_stamps

MS_NS = 10**6


@dataclass(frozen=True)
class Header:
    """A table whose columns are known and whose rows are not read yet."""

    source: Source
    kind: str
    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect
    layout: Layout | Schema
    contract: str | None = None  # that the name of the file says

    @property
    def has_symbols(self) -> bool:
        """Whether the file says of what its bars are, in a column or in its name."""
        return self.columns.symbol is not None or self.label is not None

    @property
    def label(self) -> str | None:
        """Symbol of all rows as the name of the file says it, None where it does not."""
        lean = self.layout.lean if isinstance(self.layout, Layout) else None
        return lean.label if lean else self.contract


@dataclass(frozen=True)
class Parsed:
    """Rows of a table that are bars, in file order.

    Attributes:
        header: where they come from.
        rows: columns of all bars; stamps in UTC or in wall time, as `form` says; file id not set.
        form: "utc", "naive" or "date", see `Stamps`.
        zones: names of zones written behind the stamps.
        symbols: different symbols of the symbol column, in order of appearance; "" for none.
        symbol: int32 [N] position in `symbols`, None where there is no symbol column.
        rows_read: rows in the file, the ones left out included.
        interval_ns: bar length the file declares, else None.
        findings: what was left out or assumed.
    """

    header: Header
    rows: Rows
    form: str
    zones: frozenset[str]
    symbols: tuple[str, ...]
    symbol: NDArray[np.int32] | None
    rows_read: int
    interval_ns: int | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Part:
    """Account of some rows of a file, without their bars; the times of the stamps are with these."""

    stamps: Stamps
    symbol: pl.Series | None
    num_rows: int
    num_blank: int
    num_no_bars: int
    first_no_bar: str
    num_no_volume: int
    rtypes: frozenset[int]


def open_table(source: Source, options: TextOptions = NO_OPTIONS) -> Header:
    """Columns of a text, Parquet or Arrow file.

    Raises:
        DataError: see `sniff` and `read_schema`.
    """
    if source.content in ("parquet", "arrow"):
        schema = read_schema(source)
        kind = f"{source.content} {source.container}".rstrip()
        return Header(source, kind, schema.names, schema.columns, schema.dialect, schema)
    if source.content == "scid":
        schema = Schema(scid.NAMES, scid.COLUMNS, Dialect("Sierra Chart", False))
        return Header(source, "scid", schema.names, schema.columns, schema.dialect, schema)
    layout = sniff(source, options)
    kind = "tsv" if layout.delimiter == "\t" else "csv"
    kind = f"{kind} {source.container}".rstrip()
    return Header(source, kind, layout.names, layout.columns, layout.dialect, layout)


def parse_table(header: Header) -> Parsed:
    """All bars of a table, with exact prices; rows that are no bars are left out and counted.

    Raises:
        DataError: a row with prices has no readable stamp, or a row with a stamp has a price that is no number.
    """
    where = header.source.name
    manner, frames = find_manner(
        _frames(header),
        header.columns,
        where,
        order=_known_order(header),
        databento=is_databento(header.names),
        counts_from_midnight=_day_of_file(header) is not None,
    )
    parts, said = list[Part](), list[Finding]()
    pieces: dict[str, list[NDArray[Any]]] = {field.name: [] for field in fields(Rows)}
    for frame in frames:
        part, found = _part(frame, header, manner)
        parts.append(part)
        said += frame.findings
        for name, column in pieces.items():
            column.append(getattr(found, name))
    rows = _whole_rows(pieces, header)
    form, zones, stamp_findings = common_form([part.stamps for part in parts], where)
    if form == "naive" and not (rows.stamp_ns % DAY_NS).any():
        form = "date"
    symbols, symbol = _symbols(parts, header, len(rows.row))
    rows, vendor_findings = _as_the_vendor_means(rows, header)
    findings = (
        *(header.layout.findings if isinstance(header.layout, Layout) else _typed_findings(header)),
        *manner.findings,
        *stamp_findings,
        *_left_out(parts),
        *vendor_findings,
        *said,
        *adjusted_columns(header.names),
    )
    num_rows = sum(part.num_rows for part in parts)
    lean = header.layout.lean if isinstance(header.layout, Layout) else None
    declared_ns = _declared_interval_ns(frozenset().union(*(part.rtypes for part in parts)), where)
    interval_ns = lean.interval_ns if lean else declared_ns
    return Parsed(header, rows, form, zones, symbols, symbol, num_rows, interval_ns, findings)


def _typed_findings(header: Header) -> tuple[Finding, ...]:
    return (Finding("dialect", f"columns by name: {mapping(header.names, header.columns)}"),)


def _frames(header: Header) -> Iterator[TextFrame]:
    if header.source.content == "scid":
        return iter([TextFrame(scid.read_scid(header.source), 1)])
    if isinstance(header.layout, Schema):
        return iter([TextFrame(read_columns(header.source, header.layout), 1)])
    return text_frames(header.source, header.layout)


def _known_order(header: Header) -> str | None:
    """Order of dates that the user says, or that the format fixes."""
    if not isinstance(header.layout, Layout):
        return None
    return header.layout.options.date_order or (header.dialect.date_order if header.dialect.is_sure else None)


def _day_of_file(header: Header) -> int | None:
    """Day whose time of day the stamps count in milliseconds, None where they hold dates."""
    return header.layout.lean.day if isinstance(header.layout, Layout) and header.layout.lean else None


def _part(text: TextFrame, header: Header, manner: Manner) -> tuple[Part, Rows]:
    """Account of some rows, and the bars among them.

    Raises:
        DataError: see `parse_table`.
    """
    frame, columns, where = text.columns, header.columns, header.source.name
    stamps = _stamps(text, header, manner)
    price = [frame[str(position)] for position in columns.price]
    prices_e9, garbage = price_columns(price, where, raw=manner.raw, decimal=manner.decimal)
    row = np.arange(text.first_row, text.first_row + len(frame), dtype=np.int64)
    priced = np.logical_or.reduce([column != UNDEF_PRICE_E9 for column in prices_e9])
    _refuse_unreadable(text, header, stamps, priced, garbage)
    volume, num_no_volume = _volume(text, header, stamps.valid, manner.decimal)
    blank, no_bars = _no_bars(frame, columns, stamps.valid, garbage)
    _refuse_other_header(text, header, no_bars)
    valid = stamps.valid
    rows = Rows(
        *(column[valid] for column in (stamps.ns, *prices_e9)),
        volume=volume,
        instrument_id=_ids(frame, columns, valid),
        row=row[valid],
        file_id=np.empty(0, np.int32),
    )
    symbol = None
    if columns.symbol is not None:
        symbol = frame[str(columns.symbol)].cast(pl.String).str.strip_chars(' "').fill_null("").filter(pl.Series(valid))
    rtypes = frozenset(np.unique(_whole(frame, columns.rtype)[valid]).tolist() if columns.rtype is not None else ())
    shown = f"row {row[no_bars[0]]} ({_shown(frame, columns, int(no_bars[0]))!r})" if len(no_bars) else ""
    stamps = replace(stamps, ns=np.empty(0, np.int64))
    return Part(stamps, symbol, len(frame), blank, len(no_bars), shown, num_no_volume, rtypes), rows


def _stamps(text: TextFrame, header: Header, manner: Manner) -> Stamps:
    columns, where = header.columns, header.source.name
    stamp = text.columns[str(columns.stamp)]
    day = _day_of_file(header)
    if day is not None:
        ms = stamp.cast(pl.Int64, strict=False)
        valid = (ms.is_not_null() & (ms >= 0) & (ms < DAY_NS // MS_NS)).fill_null(value=False).to_numpy()
        return Stamps(np.where(valid, ms.fill_null(0).to_numpy() * MS_NS + day * DAY_NS, 0), valid, "naive")
    if manner.form is None:
        return parse_stamps(stamp, None if columns.time is None else text.columns[str(columns.time)], where)
    return read_stamps(stamps_of(text.columns, columns), manner.form, where, text.first_row)


def _refuse_unreadable(
    text: TextFrame, header: Header, stamps: Stamps, priced: NDArray[np.bool_], garbage: NDArray[np.bool_]
) -> None:
    where, columns, frame = header.source.name, header.columns, text.columns
    for index in np.flatnonzero(~stamps.valid & priced)[:1].tolist():
        shown = _shown(frame, columns, index)
        raise DataError(
            f"{where} row {text.first_row + index}: {shown!r} is no stamp of the form of the other rows. "
            "Correct or remove the line."
        )
    for index in np.flatnonzero(stamps.valid & garbage)[:1].tolist():
        values = [str(frame[str(position)][index]) for position in columns.price]
        remedy = IN_FRACTIONS if any(FRACTION.fullmatch(value.strip()) for value in values) else "Correct the line."
        shown = ", ".join(map(repr, values))
        raise DataError(
            f"{where} row {text.first_row + index}: open, high, low, close are {shown}; not all are numbers. {remedy}"
        )


def _shown(frame: pl.DataFrame, columns: Columns, index: int) -> str:
    """The stamp of a row as written."""
    values = [frame[str(position)][index] for position in (columns.stamp, columns.time) if position is not None]
    return " ".join(str(value) for value in values if value is not None)[:120]


def _no_bars(
    frame: pl.DataFrame, columns: Columns, valid: NDArray[np.bool_], garbage: NDArray[np.bool_]
) -> tuple[int, NDArray[np.int64]]:
    """Number of blank rows, and positions of other rows that are no bars (headers, footers)."""
    if valid.all():
        return 0, np.empty(0, np.int64)
    stamp = frame[str(columns.stamp)]
    absent = texts(stamp).is_null() if stamp.dtype == pl.String else stamp.is_null()
    blank = ~valid & absent.to_numpy() & ~garbage
    return int(blank.sum()), np.flatnonzero(~valid & ~blank)


def _refuse_other_header(text: TextFrame, header: Header, no_bars: NDArray[np.int64]) -> None:
    """Refuse a header further down, as in joined files, whose columns stand elsewhere than those of the first."""
    wanted = dict(zip(header.columns.price, PRICE_NAMES.values(), strict=True))
    wanted |= dict.fromkeys(header.columns.volume[:1], (*VOLUME_NAMES, "up"))
    for index in no_bars.tolist():
        words = {position: plain(str(text.columns[str(position)][index])) for position in wanted}
        known = sum(any(word in names for names in wanted.values()) for word in words.values())
        if known > 2 and any(word not in wanted[position] for position, word in words.items()):
            found, stood = ", ".join(words.values()), ", ".join(header.names[position] for position in words)
            raise DataError(
                f"{header.source.name} row {text.first_row + index}: a second header, {found} where {stood} stood: two "
                "files were joined. Split them."
            )


def _volume(text: TextFrame, header: Header, valid: NDArray[np.bool_], decimal: str) -> tuple[NDArray[np.float64], int]:
    """Volume of the valid rows, and the number of those without one."""
    if not header.columns.volume:
        return np.zeros(int(valid.sum())), 0
    columns = [text.columns[str(position)].filter(pl.Series(valid)) for position in header.columns.volume]
    volume, garbage, num_missing = volume_column(columns, decimal)
    for index in np.flatnonzero(garbage)[:1].tolist():
        shown = next(column[index] for column in columns)
        row = text.first_row + int(np.flatnonzero(valid)[index])
        raise DataError(f"{header.source.name} row {row}: volume is {shown!r}, not a number. Correct the line.")
    return volume, num_missing


def _whole(frame: pl.DataFrame, position: int | None) -> NDArray[np.int64]:
    if position is None:
        return np.zeros(len(frame), np.int64)
    return frame[str(position)].cast(pl.Int64, strict=False).fill_null(0).to_numpy()


def _ids(frame: pl.DataFrame, columns: Columns, valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Instrument ids of the valid rows; none where the file has none."""
    return np.empty(0, np.int64) if columns.instrument_id is None else _whole(frame, columns.instrument_id)[valid]


def _whole_rows(pieces: dict[str, list[NDArray[Any]]], header: Header) -> Rows:
    """Rows of a file from the pieces of its columns, each of which is given up as soon as it is joined."""
    columns: dict[str, Any] = {name: np.concatenate(pieces.pop(name)) for name in tuple(pieces)}
    count = len(columns["row"])
    if header.columns.instrument_id is None:
        columns["instrument_id"] = np.zeros(count, np.int64)
    columns["file_id"] = np.zeros(count, np.int32)
    return Rows(**columns)


def _symbols(parts: list[Part], header: Header, count: int) -> tuple[tuple[str, ...], NDArray[np.int32] | None]:
    """Different symbols, and which of them each row has."""
    if header.label is not None:
        return (header.label,), np.zeros(count, np.int32)
    columns = [part.symbol for part in parts if part.symbol is not None]
    if not columns:
        return (), None
    names: dict[str, int] = {}
    for name in itertools.chain.from_iterable(column.unique(maintain_order=True).to_list() for column in columns):
        names.setdefault(name, len(names))
    codes = [column.replace_strict(names, return_dtype=pl.Int32).to_numpy() for column in columns if len(column)]
    return tuple(names), np.concatenate([np.empty(0, np.int32), *codes])


def _left_out(parts: Iterable[Part]) -> tuple[Finding, ...]:
    """Findings on blank rows, on lines that are no bars (headers, footers) and on missing volumes."""
    parts = list(parts)
    num_blank, num_other = sum(part.num_blank for part in parts), sum(part.num_no_bars for part in parts)
    findings = [Finding("dialect", f"blank rows: {num_blank}", num_blank)] if num_blank else []
    if num_other:
        first = next(part.first_no_bar for part in parts if part.num_no_bars)
        findings.append(Finding("dialect", f"lines that are no bars: {num_other}, first {first}", num_other))
    num_missing = sum(part.num_no_volume for part in parts)
    if num_missing:
        findings.append(Finding("zero-volume", f"rows without a volume, taken as 0: {num_missing}", num_missing))
    return tuple(findings)


def _as_the_vendor_means(rows: Rows, header: Header) -> tuple[Rows, tuple[Finding, ...]]:
    """Rows and findings by what a format is known to mean by its volume.

    Raises:
        DataError: HistData's form with a volume, which HistData never writes.
    """
    name = header.dialect.name
    if name == "IBKR" and (rows.volume == -1).any():
        count = int((rows.volume == -1).sum())
        text = f"volume -1, IBKR's word for none, taken as 0: {count}"
        return replace(rows, volume=np.where(rows.volume == -1, 0.0, rows.volume)), (
            Finding("zero-volume", text, count),
        )
    if name == "HistData" and header.dialect.is_sure and rows.volume.any():
        row = int(rows.row[np.flatnonzero(rows.volume)[0]])
        raise DataError(
            f"{header.source.name} row {row}: a volume, which HistData never writes; NinjaTrader writes the same lines "
            "with volumes, in UTC and stamped at the end of the bar. Say --dialect ninjatrader or --dialect histdata."
        )
    flat = np.logical_and.reduce([column == rows.open_e9 for column in prices(rows)]) & (rows.volume == 0)
    if name == "Dukascopy" and flat.any():
        text = f"flat bars without volume, as Dukascopy fills closed hours: {int(flat.sum())} of {len(flat)}"
        return rows, (Finding("zero-volume", text, int(flat.sum()), is_warning=True),)
    return rows, ()


def _declared_interval_ns(rtypes: frozenset[int], where: str) -> int | None:
    kinds = {value: schema for schema, value in RTYPE_BY_SCHEMA.items()}
    found = [kinds[value] for value in sorted(rtypes) if value in kinds]
    if len(found) > 1:
        raise DataError(f"{where}: mixed bar intervals: {' and '.join(found)}. Give one bar length per file.")
    return INTERVAL_NS_BY_SCHEMA[found[0]] if found else None


def rows_of(parsed: Parsed, label: str) -> Rows:
    """Rows of one symbol; all rows where there is no symbol column."""
    if parsed.symbol is None:
        return parsed.rows
    if label not in parsed.symbols:
        return take(parsed.rows, np.empty(0, np.int64))
    return take(parsed.rows, np.flatnonzero(parsed.symbol == parsed.symbols.index(label)))


def spans(parsed: Parsed) -> tuple[LabelSpan, ...]:
    """Days on which each symbol of the symbol column has rows; empty where there is no such column."""
    if parsed.symbol is None or not len(parsed.symbol):
        return ()
    days = pl.DataFrame({"symbol": parsed.symbol, "day": parsed.rows.stamp_ns // DAY_NS})
    ranges = days.group_by("symbol").agg(pl.col("day").min().alias("first"), pl.col("day").max().alias("last")).rows()
    named = [(parsed.symbols[code], first, last) for code, first, last in ranges]
    return tuple(LabelSpan(symbol, first, last + 1) for symbol, first, last in sorted(named) if symbol)
