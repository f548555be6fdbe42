"""Databento Binary Encoding: header with its symbol mappings, and the OHLCV records, checked byte for byte.

The format has no record count and no checksum, so completeness is judged from the compression frames, from the record
size and from the length and type bytes of every record. Versions 1 to 3 share the layout of OHLCV records.
"""

import datetime
import itertools
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import databento_dbn
import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9
from tidewalk.data.rows import DAY_NS, FileRows, LabelSpan, Rows, iso
from tidewalk.data.source import Source, read_all, read_start

RTYPE_BY_SCHEMA = {"ohlcv-1s": 0x20, "ohlcv-1m": 0x21, "ohlcv-1h": 0x22, "ohlcv-1d": 0x23}
INTERVAL_NS_BY_SCHEMA = {"ohlcv-1s": E9, "ohlcv-1m": 60 * E9, "ohlcv-1h": 3_600 * E9, "ohlcv-1d": DAY_NS}
NEWEST_VERSION = 3
WEEK_NS = 7 * DAY_NS
MAX_HEADER_BYTES = 1 << 28
END_OF_TIME_NS = 2**62  # year 2116; anything later is a sentinel or damage

RECORD_FIELDS = [
    ("length", "u1"),
    ("rtype", "u1"),
    ("publisher_id", "<u2"),
    ("instrument_id", "<u4"),
    ("ts_event", "<u8"),
    ("open", "<i8"),
    ("high", "<i8"),
    ("low", "<i8"),
    ("close", "<i8"),
    ("volume", "<u8"),
]
"""Layout of an OHLCV record (56 bytes); `length` counts words of 4 bytes."""


@dataclass(frozen=True, order=True)
class Mapping:
    """`symbol` is instrument `instrument_id` on the UTC days [first_day, end_day), days since 1970-01-01."""

    symbol: str
    first_day: int
    end_day: int
    instrument_id: int


@dataclass(frozen=True)
class DbnHeader:
    """Metadata of a DBN file, the mappings in a fixed order.

    Attributes:
        version: DBN version of the file, 1 to 3.
        schema: "ohlcv-1m" and so on; None for a live recording of mixed schemas.
        stype_in: symbology of the request ("parent", "raw_symbol", "continuous"), None when unknown.
        limit: most records the request allowed, None when unlimited.
        ts_out: whether each record carries 8 more bytes, the time it was sent.
        symbols: symbols of the request.
        partial: symbols that resolved for part of the time.
        not_found: symbols that resolved at no time.
        mappings: symbol mappings, sorted.
        size: bytes of the header; records start there.
        end_ns: end of the request, None when open.
    """

    version: int
    schema: str | None
    stype_in: str | None
    limit: int | None
    ts_out: bool
    symbols: tuple[str, ...]
    partial: tuple[str, ...]
    not_found: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    size: int
    end_ns: int | None


def read_header(source: Source) -> DbnHeader:
    """Header of a DBN file.

    Raises:
        DataError: newer version, or damaged or cut-off metadata.
    """
    name = source.path.name
    prefix = read_start(source, 8)
    version = prefix[3] if len(prefix) > 3 else 0
    if not 1 <= version <= NEWEST_VERSION:
        raise DataError(
            f"{name}: DBN version {version}; versions 1 to {NEWEST_VERSION} can be read. Ask for an older version "
            "when downloading, or update tidewalk."
        )
    length = struct.unpack("<I", prefix[4:8])[0] if len(prefix) == 8 else MAX_HEADER_BYTES
    start = read_start(source, 8 + length) if length < MAX_HEADER_BYTES else b""
    if len(start) < 8 + length:
        raise DataError(f"{name}: the file ends inside its DBN header, so it was cut off. Download it again.")
    try:
        metadata = databento_dbn.Metadata.decode(start)
    except (databento_dbn.DBNError, ValueError) as error:
        raise DataError(f"{name}: damaged DBN header ({error}). Download the file again.") from error
    return DbnHeader(
        version=version,
        schema=None if metadata.schema is None else str(metadata.schema),
        stype_in=None if metadata.stype_in is None else str(metadata.stype_in),
        limit=metadata.limit,
        ts_out=bool(metadata.ts_out),
        symbols=tuple(metadata.symbols),
        partial=tuple(sorted(metadata.partial)),
        not_found=tuple(sorted(metadata.not_found)),
        mappings=_mappings(metadata, name),
        size=8 + length,
        end_ns=metadata.end if (metadata.end or END_OF_TIME_NS) < END_OF_TIME_NS else None,
    )


def _mappings(metadata: databento_dbn.Metadata, name: str) -> tuple[Mapping, ...]:
    """Mappings as (symbol, days, id) whichever of symbol and id the request started from."""
    id_first = str(metadata.stype_in) == "instrument_id"
    found = []
    for key, intervals in metadata.mappings.items():
        for interval in intervals:
            symbol, number = (interval["symbol"], key) if id_first else (key, interval["symbol"])
            if not interval["symbol"]:
                continue  # days on which the vendor resolved nothing
            if not number.isdigit() or int(number) >= 2**32:
                raise DataError(f"{name}: symbol {symbol!r} is mapped to {number!r}, which is no instrument id.")
            first, end = interval["start_date"], interval["end_date"]
            found.append(Mapping(symbol, _day(first), _day(end), int(number)))
    return tuple(sorted(found))


def _day(date: datetime.date) -> int:
    return date.toordinal() - datetime.date(1970, 1, 1).toordinal()


def spans(header: DbnHeader) -> tuple[LabelSpan, ...]:
    """Days on which each symbol of the header is mapped."""
    return tuple(LabelSpan(entry.symbol, entry.first_day, entry.end_day) for entry in header.mappings)


def read_rows(source: Source, header: DbnHeader, labels: Collection[str], file_id: int) -> FileRows:
    """OHLCV records of the labels asked for, mapped by instrument id and UTC date.

    Args:
        source: from `probe`.
        header: from `read_header`; its schema is one of `RTYPE_BY_SCHEMA`.
        labels: symbols as in `header.mappings`.
        file_id: number of this file among those being merged.

    Raises:
        DataError: the records are not one stream of the declared kind, or a stamp is impossible, or the header maps
            one instrument to two of the labels at a time.
    """
    name = source.path.name
    records = _records(read_all(source), header, name)
    day = (records["ts_event"] // np.uint64(DAY_NS)).astype(np.int64)
    instrument_id = records["instrument_id"].astype(np.int64)
    wanted = [entry for entry in header.mappings if entry.symbol in labels]
    owner = _owners(wanted, instrument_id, day, name)
    others = np.flatnonzero(owner < 0)
    unmapped = others[_unmapped(header.mappings, instrument_id[others], day[others])]
    label_of = {label: number for number, label in enumerate(sorted({entry.symbol for entry in wanted}))}
    number = np.array([label_of[entry.symbol] for entry in wanted] + [-1])[owner]
    rows = {label: _rows(records, np.flatnonzero(number == value), file_id) for label, value in label_of.items()}
    notes, warnings = _remarks(header, records, unmapped)
    interval_ns = INTERVAL_NS_BY_SCHEMA[str(header.schema)]
    return FileRows(
        rows=rows,
        rows_read=len(records),
        rows_unmapped=len(unmapped),
        interval_ns=interval_ns,
        has_volume=True,
        close_labelled=False,
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _records(decoded: bytearray, header: DbnHeader, name: str) -> NDArray[Any]:
    """Record area as a structured array, every record's length and type checked."""
    fields = RECORD_FIELDS + ([("ts_out", "<u8")] if header.ts_out else [])
    layout = np.dtype(fields)
    area = len(decoded) - header.size
    whole = area // layout.itemsize
    records = np.frombuffer(decoded, layout, whole, header.size)
    rtype = RTYPE_BY_SCHEMA[str(header.schema)]
    wrong = np.flatnonzero((records["length"] != layout.itemsize // 4) | (records["rtype"] != rtype))
    if len(wrong):
        _refuse_record(records, int(wrong[0]), layout.itemsize, header, name)
    if area % layout.itemsize:
        raise DataError(
            f"{name}: the file ends {area % layout.itemsize} bytes into record {whole + 1} (a record has "
            f"{layout.itemsize}), so it was cut off after byte {len(decoded):,}. Download it again."
        )
    late = np.flatnonzero(records["ts_event"] >= np.uint64(END_OF_TIME_NS))
    if len(late):
        raise DataError(f"{name}: record {int(late[0]) + 1} has no usable ts_event ({records['ts_event'][late[0]]}).")
    return records


def _refuse_record(records: NDArray[Any], index: int, size: int, header: DbnHeader, name: str) -> None:
    length, rtype = int(records["length"][index]), int(records["rtype"][index])
    where = f"record {index + 1} at byte {header.size + index * size:,}"
    if length == size // 4 and rtype in RTYPE_BY_SCHEMA.values():
        kinds = {value: schema for schema, value in RTYPE_BY_SCHEMA.items()}
        raise DataError(
            f"{name}: mixed bar intervals: the header says {header.schema}, {where} is {kinds[rtype]}. "
            "Download one schema per file."
        )
    joined = records[index].tobytes()[:3] == b"DBN"
    cause = "another DBN file starts there; split the two" if joined else "the file is damaged; download it again"
    raise DataError(
        f"{name}: not one DBN stream: {where} has length {4 * length} and type {rtype}, needed are {size} and "
        f"{RTYPE_BY_SCHEMA[str(header.schema)]} for {header.schema}; {cause}."
    )


def _rows(records: NDArray[Any], index: NDArray[np.int64], file_id: int) -> Rows:
    chosen = records[index]
    price = [np.ascontiguousarray(chosen[name]) for name in ("open", "high", "low", "close")]
    return Rows(
        chosen["ts_event"].astype(np.int64),
        *price,
        volume=chosen["volume"].astype(np.float64),
        instrument_id=chosen["instrument_id"].astype(np.int64),
        row=index + 1,
        file_id=np.full(len(index), file_id, np.int32),
    )


def _sort_key(instrument_id: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    # Ids have 32 bits, days since 1970 fit into 20: one integer orders both.
    return (instrument_id << 20) + day


def _owners(
    wanted: list[Mapping], instrument_id: NDArray[np.int64], day: NDArray[np.int64], name: str
) -> NDArray[np.int64]:
    """Index into `wanted` of the mapping each record falls under, -1 for none."""
    if not wanted:
        return np.full(len(day), -1, np.int64)
    entry_id = np.array([entry.instrument_id for entry in wanted])
    first, end = (np.array([getattr(entry, field) for entry in wanted]) for field in ("first_day", "end_day"))
    key = _sort_key(entry_id, first)
    order = np.argsort(key, kind="stable")
    _refuse_overlap([wanted[index] for index in order], name)
    place = np.searchsorted(key[order], _sort_key(instrument_id, day), side="right") - 1
    found = order[np.maximum(place, 0)]
    inside = (place >= 0) & (entry_id[found] == instrument_id) & (day < end[found])
    return np.where(inside, found, -1)


def _refuse_overlap(ordered: list[Mapping], name: str) -> None:
    for before, after in itertools.pairwise(ordered):
        same_id = before.instrument_id == after.instrument_id
        if same_id and after.first_day < before.end_day and before.symbol != after.symbol:
            day = np.datetime64(after.first_day, "D")
            raise DataError(
                f"{name}: the header maps instrument {after.instrument_id} to both {before.symbol} and {after.symbol} "
                f"on {day}. Ask for one of them with --symbol."
            )


def _unmapped(
    mappings: Iterable[Mapping], instrument_id: NDArray[np.int64], day: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether no mapping at all covers a record."""
    covered = np.zeros(len(day), np.bool_)
    by_id: dict[int, list[Mapping]] = {}
    for entry in mappings:
        by_id.setdefault(entry.instrument_id, []).append(entry)
    ids, inverse = np.unique(instrument_id, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(ids) + 1))
    for number, value in enumerate(ids.tolist()):
        index = order[bounds[number] : bounds[number + 1]]
        for entry in by_id.get(value, ()):
            covered[index] |= (day[index] >= entry.first_day) & (day[index] < entry.end_day)
    return ~covered


def _remarks(header: DbnHeader, records: NDArray[Any], unmapped: NDArray[np.int64]) -> tuple[list[str], list[str]]:
    notes, warnings = [], []
    if not len(records):
        notes.append("the file holds no records")
    if len(unmapped):
        first = records[int(unmapped[0])]
        notes.append(
            f"records dropped because no symbol is mapped to their instrument on that day: {len(unmapped)}, "
            f"first instrument {first['instrument_id']} at {iso(int(first['ts_event']))}"
        )
    if header.partial:
        notes.append(f"symbols listed for a part of the time only: {_some(header.partial)}")
    if len(records) and header.end_ns is not None and header.end_ns - int(records["ts_event"].max()) > WEEK_NS:
        last = iso(int(records["ts_event"].max()))
        notes.append(f"the request runs to {iso(header.end_ns)}, the last record is of {last}")
    if header.not_found:
        warnings.append(f"symbols the vendor did not find: {_some(header.not_found)}")
    if header.limit is not None and len(records) >= header.limit:
        warnings.append(f"the request was limited to {header.limit} records, so the file may stop early")
    return notes, warnings


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
