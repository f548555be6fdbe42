"""Records of a DBN file in pieces of bounded size, checked byte for byte.

The format has no record count and no checksum, so completeness is judged from the compression frames, from the record
size and from the length and type bytes of every record, and from the time the request asked for.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError, listed
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.header import END_OF_TIME_NS, DbnHeader
from tidewalk.data.dbn.layouts import INTERVAL_NS_BY_SCHEMA, LAYOUTS, RTYPE_BY_SCHEMA, RTYPES, layout_of
from tidewalk.data.files.archive import CutOffError
from tidewalk.data.files.source import Source, pieces
from tidewalk.data.rows import DAY_NS, iso

CHUNK_BYTES = 1 << 19  # stays in the cache of a core while it is filtered and split into columns
AHEAD_BYTES = 4 << 20  # files that are larger on disk are worth a second thread
LONGEST_BREAK_NS = 4 * DAY_NS  # a weekend with holidays on both sides
EVERY_DAY = LAYOUTS.keys() - {"definition", "statistics", "symbol mapping"}  # schemas of which every day has some
_HEAD = np.dtype([("length", "u1"), ("rtype", "u1"), ("other", "<u2"), ("instrument_id", "<u4"), ("ts_event", "<u8")])


@dataclass(frozen=True)
class Chunk:
    """Some consecutive records of a file.

    Attributes:
        records: structured [N] in the layout of the header's schema; read-only, N may be 0.
        first_record: number of the first of them among the file's records of that schema, from 1.
        findings: what was seen in the file as a whole; of the last chunk only.
    """

    records: NDArray[Any]
    first_record: int
    findings: tuple[Finding, ...] = ()


@dataclass
class _Account:
    """What was read so far."""

    count: int = 0
    last_ns: int = 0
    outside: int = 0
    at: int = 0  # decoded bytes
    cut: CutOffError | None = None


def record_chunks(source: Source, header: DbnHeader, *, allow_truncated: bool = False) -> Iterator[Chunk]:
    """All records of the header's schema; the last chunk carries the findings.

    A file of mixed schemas (`header.is_mixed`) gives the records of `header.schema` only.

    Args:
        source: from `probe`.
        header: from `read_header`; its schema is a key of `LAYOUTS`.
        allow_truncated: keep the whole records of a file that ends early, with a warning, instead of refusing it.

    Raises:
        DataError: after the last whole chunk where the file ends early (the message says how much was recovered); where
            the records are not one stream of the declared kind; where a stamp is impossible.
    """
    schema = str(header.schema)
    account = _Account(at=header.size)
    layout = layout_of(schema, header.version, ts_out=header.ts_out)
    rest = b""
    areas = _areas(source, account)
    for area in _ahead(areas) if source.path.stat().st_size > AHEAD_BYTES else areas:
        data = b"".join((rest, *area))
        records, used = (_mixed if header.is_mixed else _same)(data, layout, header, account, source.name)
        rest, first_record = data[used:], account.count + 1
        _count(account, records, used, header, source.name)
        yield Chunk(records, first_record)
    truncated = _truncation(source, header, layout, account, rest)
    if truncated and not allow_truncated:
        raise DataError(truncated)
    yield Chunk(np.empty(0, layout), account.count + 1, _findings(header, account, truncated))


def _areas(source: Source, account: _Account) -> Iterator[list[bytes]]:
    """Decoded bytes from `account.at` on, in lists of pieces that make about `CHUNK_BYTES`."""
    held: list[bytes] = []
    size, skip = 0, account.at
    try:
        for piece in pieces(source):
            dropped = min(skip, len(piece))
            skip -= dropped
            held.append(piece[dropped:] if dropped else piece)
            size += len(piece) - dropped
            if size >= CHUNK_BYTES:
                yield held
                held, size = [], 0
    except CutOffError as error:
        account.cut = error
    if size:
        yield held


def _ahead(areas: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """The same, each decoded by another thread while the one before it is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, areas, None)
        while (area := following.result()) is not None:
            following = pool.submit(next, areas, None)
            yield area


def _same(
    data: bytes, layout: np.dtype[Any], header: DbnHeader, account: _Account, name: str
) -> tuple[NDArray[Any], int]:
    """Whole records of one schema, every length and type checked, and the number of bytes they take."""
    records = np.frombuffer(data, layout, len(data) // layout.itemsize)
    # Length and type are the first two bytes: one comparison does for both.
    kind = np.ndarray(len(records), "<u2", data, 0, (layout.itemsize,))
    allowed = [layout.itemsize // 4 | rtype << 8 for rtype in RTYPES[str(header.schema)]]
    wrong = np.logical_and.reduce([kind != value for value in allowed])
    if wrong.any():
        index = int(np.argmax(wrong))
        at = account.at + index * layout.itemsize
        raise _misfit(records[index : index + 1], account.count + index, at, layout, header, name)
    return records, len(records) * layout.itemsize


def _mixed(
    data: bytes, layout: np.dtype[Any], header: DbnHeader, account: _Account, name: str
) -> tuple[NDArray[Any], int]:
    """Whole records of one schema among records of any, and the number of bytes that all of them take."""
    places, used = _walk(data, account.at, name)
    octets = np.frombuffer(data, np.uint8)
    mine = places[np.isin(octets[places + 1], RTYPES[str(header.schema)])]
    wrong = mine[octets[mine] != layout.itemsize // 4]
    if len(wrong):
        at = int(wrong[0])
        raise _misfit(octets[at : at + 16].view(_HEAD), account.count, account.at + at, layout, header, name)
    return octets[mine[:, None] + np.arange(layout.itemsize)].reshape(-1).view(layout), used


def _walk(data: bytes, at: int, name: str) -> tuple[NDArray[np.int64], int]:
    """Places of the whole records in `data`, which begins at byte `at`, and the number of bytes they take."""
    places, place, end = [], 0, len(data)
    while place < end and (after := place + 4 * data[place]) <= end:
        if after < place + _HEAD.itemsize:
            size = after - place
            raise DataError(f"{name}: not one DBN stream: a record of {size} bytes at byte {at + place:,}; damaged.")
        places.append(place)
        place = after
    return np.array(places, np.int64), place


def survey(source: Source, header: DbnHeader) -> tuple[dict[int, int], int]:
    """Number of records of each type in a file of mixed schemas, and the stamp of the last record (0 without any)."""
    counts: dict[int, int] = {}
    rest, last_ns, account = b"", 0, _Account(at=header.size)
    for area in _areas(source, account):  # a file that ends early is refused where its records are read
        data = b"".join((rest, *area))
        places, used = _walk(data, account.at, source.name)
        rest, account.at = data[used:], account.at + used
        rtypes, found = np.unique(np.frombuffer(data, np.uint8)[places + 1], return_counts=True)
        for rtype, count in zip(rtypes.tolist(), found.tolist(), strict=True):
            counts[rtype] = counts.get(rtype, 0) + count
        if len(places):
            last_ns = int(np.frombuffer(data, _HEAD, 1, int(places[-1]))["ts_event"][0])
    return counts, last_ns


def _misfit(
    record: NDArray[Any], before: int, at: int, layout: np.dtype[Any], header: DbnHeader, name: str
) -> DataError:
    """The error for a record [1] of the wrong length or type at byte `at`, `before` records into the file."""
    length, rtype, size = int(record["length"][0]), int(record["rtype"][0]), layout.itemsize
    where = f"record {before + 1} at byte {at:,}"
    bars = {value: schema for schema, value in RTYPE_BY_SCHEMA.items()}
    if length == size // 4 and rtype in bars and header.schema in RTYPE_BY_SCHEMA:
        return DataError(
            f"{name}: mixed bar intervals: the header says {header.schema}, {where} is {bars[rtype]}. "
            "Download one schema per file."
        )
    joined = record.tobytes()[:3] == b"DBN"
    cause = "another DBN file starts there; split the two" if joined else "the file is damaged; download it again"
    return DataError(
        f"{name}: not one DBN stream: {where} has length {4 * length} and type {rtype}, needed are {size} and "
        f"{' or '.join(map(str, RTYPES[str(header.schema)]))} for {header.schema}; {cause}."
    )


def index_stamps(records: NDArray[Any]) -> NDArray[np.uint64]:
    """Stamps by which the vendor cuts requests and days: ts_recv where records have it, else ts_event."""
    return records["ts_recv" if "ts_recv" in (records.dtype.names or ()) else "ts_event"]


def _count(account: _Account, records: NDArray[Any], used: int, header: DbnHeader, name: str) -> None:
    if len(records):
        stamps = index_stamps(records)
        first_ns, last_ns = int(stamps.min()), int(stamps.max())
        if last_ns >= END_OF_TIME_NS:
            late = int(np.argmax(stamps >= np.uint64(END_OF_TIME_NS)))
            field = "ts_event" if header.schema in RTYPE_BY_SCHEMA else "ts_recv"
            raise DataError(f"{name}: record {account.count + late + 1} has no usable {field} ({stamps[late]}).")
        start_ns = (header.start_ns or 0) - INTERVAL_NS_BY_SCHEMA.get(str(header.schema), 0)
        end_ns = header.end_ns or END_OF_TIME_NS
        if first_ns < start_ns or last_ns >= end_ns:
            account.outside += int(((stamps < np.uint64(max(start_ns, 0))) | (stamps >= np.uint64(end_ns))).sum())
        account.last_ns = max(account.last_ns, last_ns)
    account.count += len(records)
    account.at += used


def _truncation(source: Source, header: DbnHeader, layout: np.dtype[Any], account: _Account, rest: bytes) -> str | None:
    """What is missing at the end and what was recovered, None for a whole file."""
    if account.cut is None and not rest:
        return None
    last = f", the last of {iso(account.last_ns)}" if account.count else ""
    asked = f"; the request runs to {iso(header.end_ns)}" if header.end_ns else ""
    recovered = f"{account.count:,} whole records can be recovered{last}{asked}: --allow-truncated keeps them"
    if account.cut is not None:
        return f"{account.cut} {recovered}."
    size = 4 * rest[0] if header.is_mixed else layout.itemsize
    return (
        f"{source.name}: the file ends {len(rest)} bytes into record {account.count + 1} (a record has {size}), so it "
        f"was cut off after byte {account.at + len(rest):,}. Download it again. {recovered}."
    )


def _findings(header: DbnHeader, account: _Account, truncated: str | None) -> tuple[Finding, ...]:
    found = []
    request = f"the request runs to {iso(header.end_ns)}" if header.end_ns else "the end of the request is not known"
    last = iso(account.last_ns) if account.count else "none"
    if truncated:
        found.append(
            Finding(
                "truncated-archive" if account.cut else "truncated-records",
                f"the file ends early and was read all the same (--allow-truncated): {account.count:,} whole records, "
                f"the last of {last}; {request}",
                account.count,
                is_warning=True,
            )
        )
    if not account.count:
        found.append(Finding("no-rows", "the file holds no records"))
    if header.partial:
        text = f"symbols listed for a part of the time only: {listed(header.partial)}"
        found.append(Finding("request", text, len(header.partial)))
    is_limited = header.limit is not None and account.count >= header.limit
    if account.count and not truncated and header.end_ns and header.end_ns - account.last_ns > LONGEST_BREAK_NS:
        # One contract may not have traded; of all contracts of a root one always does.
        is_doubtful = header.stype_in in ("parent", "continuous") and not is_limited and header.schema in EVERY_DAY
        found.append(Finding("partial-end", f"{request}, the last record is of {last}", is_warning=is_doubtful))
    if account.outside:
        text = f"records outside the time that the header says was asked for: {account.outside}"
        found.append(Finding("request", text, account.outside, is_warning=True))
    if header.not_found:
        text = f"symbols the vendor did not find: {listed(header.not_found)}"
        found.append(Finding("request", text, len(header.not_found), is_warning=True))
    if is_limited and header.limit is not None:
        text = f"the request was limited to {header.limit} records, so the file may stop early"
        found.append(Finding("request", text, header.limit, is_warning=True))
    return tuple(found)
