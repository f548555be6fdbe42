"""What each file of a directory holds, before anybody says which symbol is meant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tidewalk.core.errors import DataError, TidewalkError
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.header import END_OF_TIME_NS
from tidewalk.data.dbn.header import spans as dbn_spans
from tidewalk.data.dbn.records import record_chunks
from tidewalk.data.files.catalog import Catalog, DbnFile, catalogue
from tidewalk.data.files.file_names import known_contract
from tidewalk.data.files.folder import is_side_file, listing
from tidewalk.data.rows import LabelSpan
from tidewalk.data.symbols import inventory, roots_of
from tidewalk.data.text.table import Header, parse_table
from tidewalk.data.text.table import spans as table_spans


@dataclass(frozen=True)
class FileOverview:
    """What one file holds.

    Attributes:
        file: its name, with the member of a zip after "!".
        kind: format as detected from the content.
        schema: Databento schema, None where the format has none.
        rows: records or rows, None where it could not be read.
        first_ns: first stamp, int64 ns; None without rows.
        last_ns: last stamp.
        stamps: "utc", "naive" (wall time of a zone to be named), the zone of the format, "date", or "" without rows.
        labels: symbols, and the days on which each has rows or is mapped; empty for a file without a symbol column.
        findings: what was seen.
        problem: why it is not read, None where it is.
    """

    file: str
    kind: str
    schema: str | None
    rows: int | None
    first_ns: int | None
    last_ns: int | None
    stamps: str
    labels: tuple[LabelSpan, ...]
    findings: tuple[Finding, ...]
    problem: str | None

    @property
    def symbols(self) -> str:
        """The symbols in words: roots with their contracts first, then what else there is."""
        return inventory(self.labels) if self.labels else ""


def overview(data_dir: Path) -> tuple[FileOverview, ...]:
    """An account of every file, also of those that cannot be read.

    Raises:
        ConfigError: the path does not exist.
        DataError: the directory is empty.
    """
    paths = listing(data_dir)[0] if data_dir.is_dir() else [data_dir]
    return tuple(entry for path in paths if not is_side_file(path.name) for entry in _of_path(path))


def symbols_to_ask_for(entries: Iterable[FileOverview]) -> tuple[str, ...]:
    """Symbols that `--symbol` takes for these files, roots as parents first."""
    labels = sorted({span.label for entry in entries for span in entry.labels})
    roots = roots_of(labels)
    others = [label for label in labels if not roots_of([label])]
    return (*(f"{root}.FUT" for root in roots), *(label for label in others if "-" not in label and ":" not in label))


def _of_path(path: Path) -> list[FileOverview]:
    try:
        found = catalogue(path)
    except DataError as error:
        return [_unread(path.name, "other", str(error))]
    return [*map(_of_dbn, found.dbn), *map(_of_table, found.tables), *_left_out(found)]


def _left_out(found: Catalog) -> list[FileOverview]:
    unread = [_unread(name, "table", str(error)) for name, error in found.unreadable.items()]
    return [*unread, *(_unread(file.path, file.kind, file.notes[0], file.schema) for file in found.ignored)]


def _unread(name: str, kind: str, problem: str, schema: str | None = None) -> FileOverview:
    return FileOverview(name, kind, schema, None, None, None, "", (), (), problem)


def _of_dbn(file: DbnFile) -> FileOverview:
    rows, first_ns, last_ns = 0, END_OF_TIME_NS, 0
    findings: tuple[Finding, ...] = ()
    try:
        for chunk in record_chunks(file.source, file.header, allow_truncated=True):
            findings = chunk.findings
            stamp_ns = chunk.records["ts_event"]
            stamp_ns = stamp_ns[stamp_ns < np.uint64(END_OF_TIME_NS)]
            rows += len(chunk.records)
            if len(stamp_ns):
                first_ns, last_ns = min(first_ns, int(stamp_ns.min())), max(last_ns, int(stamp_ns.max()))
    except TidewalkError as error:
        return _unread(file.source.name, file.kind, str(error), file.header.schema)
    span = (first_ns, last_ns, "utc") if last_ns else (None, None, "")
    labels = dbn_spans(file.header)
    return FileOverview(file.source.name, file.kind, file.header.schema, rows, *span, labels, findings, None)


def _of_table(header: Header) -> FileOverview:
    if not header.has_symbols:
        header = replace(header, contract=known_contract(header.source.name))
    try:
        parsed = parse_table(header)
    except TidewalkError as error:
        return _unread(header.source.name, header.kind, str(error))
    stamp_ns = parsed.rows.stamp_ns
    stamps = (header.dialect.zone or "naive") if parsed.form == "naive" else parsed.form
    span = (int(stamp_ns.min()), int(stamp_ns.max()), stamps) if len(stamp_ns) else (None, None, "")
    labels = _sorted_spans(table_spans(parsed))
    made = FileOverview(header.source.name, header.kind, None, parsed.rows_read, *span, labels, parsed.findings, None)
    return replace(made, kind=f"{header.kind} ({header.dialect.name})") if header.dialect.name else made


def _sorted_spans(spans: Sequence[LabelSpan]) -> tuple[LabelSpan, ...]:
    return tuple(sorted(spans, key=lambda span: span.label))
