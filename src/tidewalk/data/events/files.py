"""Trades or quotes of a DBN file as events of each label, with an account of its records and of how far it reaches."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidewalk.core.words import counted
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.bars import Unmapped
from tidewalk.data.dbn.header import END_OF_TIME_NS, DbnHeader
from tidewalk.data.dbn.labels import OTHER, label_map
from tidewalk.data.dbn.records import index_stamps, record_chunks
from tidewalk.data.events.quotes import Extract, is_mid, mids_in, trades_in
from tidewalk.data.events.ticks import Cutter, Events, concat_events, in_time_order, last_of_each_moment
from tidewalk.data.files.catalog import DbnFile


@dataclass
class EventFile:
    """What one file gave.

    Attributes:
        events: events of the labels that have any, in the order of time.
        labels: labels that the file maps.
        rows_read: records in it.
        rows_others: records of other labels.
        rows_unmapped: records of no label.
        start_ns: moment from which the file is known to cover its labels.
        reached_ns: moment up to which it does.
        is_open_ended: whether it does not say where it ends.
        left_out: records that were no events, by reason.
        findings: what was seen in it.
    """

    events: dict[str, Events]
    labels: tuple[str, ...]
    rows_read: int = 0
    rows_others: int = 0
    rows_unmapped: int = 0
    start_ns: int = 0
    reached_ns: int = 0
    is_open_ended: bool = False
    left_out: Counter[str] = field(default_factory=Counter)
    findings: tuple[Finding, ...] = ()


def read_events(
    file: DbnFile, file_id: int, labels: Collection[str], cutter: Cutter, *, allow_truncated: bool = False
) -> EventFile:
    """Events of the labels in a file.

    Args:
        file: of a schema of trades or quotes.
        file_id: number of the file among those being merged.
        labels: symbols as in its mappings.
        cutter: decides whether a book gives its trades or its mid prices.
        allow_truncated: use the whole records of a file that ends early.

    Raises:
        DataError: see `record_chunks` and `label_map`.
    """
    lookup = label_map(file.header.mappings, labels, file.source.name)
    by_mid = is_mid(file.header.schema, cutter.rule)
    parts: dict[int, list[Events]] = {}
    read, unmapped = EventFile({}, lookup.labels), Unmapped()
    first_ns, last_ns = END_OF_TIME_NS, 0
    for chunk in record_chunks(file.source, file.header, allow_truncated=allow_truncated):
        owner = lookup.owners(chunk.records)
        unmapped.add(chunk.records, owner)
        read.rows_read += len(owner)
        read.rows_others += int(np.count_nonzero(owner == OTHER))
        read.findings = chunk.findings or read.findings
        stamps = index_stamps(chunk.records)
        first_ns, last_ns = min(first_ns, int(stamps.min(initial=first_ns))), max(last_ns, int(stamps.max(initial=0)))
        for number in np.unique(owner[owner >= 0]).tolist():
            mine = np.flatnonzero(owner == number)
            records = chunk.records[mine]
            extract = mids_in(records) if by_mid else trades_in(records)
            read.left_out.update(extract.left_out)
            events = _events(records, extract, mine[extract.index] + chunk.first_record, file_id)
            if len(events.ts_ns):
                parts.setdefault(number, []).append(events)
    falls = _put_in_order(read, parts, by_mid=by_mid)
    text = f"records sorted by ts_recv, which falls in {counted(falls, 'place')}"
    out_of_order = Finding("out-of-order", text, falls)
    read.rows_unmapped = unmapped.count
    read.findings = (*unmapped.findings(), *read.findings, *([out_of_order] if falls else ()))
    read.start_ns = file.header.start_ns or first_ns
    read.reached_ns = reached_ns(file.header, read.rows_read, last_ns, read.findings)
    is_short = stopped_early(file.header, read.rows_read, read.findings)
    read.is_open_ended = file.header.end_ns is None and not is_short
    return read


def _put_in_order(read: EventFile, parts: dict[int, list[Events]], *, by_mid: bool) -> int:
    """Join the parts of each label in the order of time; returns in how many places the stamps fell."""
    total = 0
    for number, pieces in parts.items():
        events, falls = in_time_order(concat_events(pieces))
        read.events[read.labels[number]] = last_of_each_moment(events) if by_mid else events
        total += falls
    return total


def _events(records: np.ndarray, extract: Extract, row: np.ndarray, file_id: int) -> Events:
    chosen = records[extract.index]
    return Events(
        ts_ns=index_stamps(chosen).astype(np.int64),
        price_e9=np.ascontiguousarray(extract.price_e9),
        size=extract.size,
        instrument_id=chosen["instrument_id"].astype(np.int64),
        row=row.astype(np.int64),
        file_id=np.full(len(chosen), file_id, np.int32),
    )


def reached_ns(header: DbnHeader, rows_read: int, last_ns: int, findings: Sequence[Finding]) -> int:
    """Moment up to which a file is known to reach: the end of its request, unless it stopped early.

    Args:
        header: of the file.
        rows_read: records in it.
        last_ns: stamp of the last of them.
        findings: what was seen in it.
    """
    return last_ns if stopped_early(header, rows_read, findings) else max(last_ns, header.end_ns or 0)


def stopped_early(header: DbnHeader, rows_read: int, findings: Sequence[Finding]) -> bool:
    """Whether a file was cut off, or its request ran into the limit of records."""
    cut = any(finding.defect.startswith("truncated") for finding in findings)
    return cut or (header.limit is not None and rows_read >= header.limit)
