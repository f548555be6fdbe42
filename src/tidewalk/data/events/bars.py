"""Bars out of files of trades or quotes, file after file in the order of time.

Memory holds the events of one file and of the bars that are still open, whatever the number of files; only files that
overlap are held together and compared.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.progress import Progress, counted, silent
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.records import index_stamps, record_chunks
from tidewalk.data.events.files import EventFile, read_events
from tidewalk.data.events.quotes import SAMPLED_SCHEMAS, TRADE_SCHEMAS, is_mid
from tidewalk.data.events.ticks import Cutter, Events, concat_events, cut_bars, take_events
from tidewalk.data.files.catalog import DbnFile
from tidewalk.data.rows import FileRows, Rows, concat, iso, take


@dataclass(frozen=True)
class EventBars:
    """Bars of the labels asked for.

    Attributes:
        files: what each file gave, in the order given.
        findings: on all of them.
        reached_ns: moment up to which the files are known to cover each label.
    """

    files: tuple[FileRows, ...]
    findings: tuple[Finding, ...]
    reached_ns: dict[str, int]


def event_bars(
    files: Sequence[DbnFile],
    labels: Collection[str],
    cutter: Cutter,
    *,
    allow_truncated: bool = False,
    progress: Progress = silent,
) -> EventBars:
    """Bars of each label, attributed to the file that holds their last event.

    Args:
        files: of one schema of trades or quotes, in any order.
        labels: symbols as in the mappings.
        cutter: how bars are cut.
        allow_truncated: use the whole records of a file that ends early.
        progress: is told how far it is.

    Raises:
        ConfigError: bars counted in trades are asked of a schema without trades.
        DataError: a file cannot be trusted, or two differ where they overlap in time.
    """
    schema = str(files[0].header.schema)
    if cutter.rule.kind != "time" and schema not in TRADE_SCHEMAS:
        raise ConfigError(f"--bars {cutter.rule.text}: {schema} holds no trades; ask for time bars, such as 1m.")
    order = _time_order(files)
    sizes = [files[number].source.path.stat().st_size for number in order]
    wanted = tuple(sorted(labels))

    def read(number: int) -> EventFile:
        return read_events(files[number], number, wanted, cutter, allow_truncated=allow_truncated)

    builder = _Builder(files, wanted, cutter)
    try:
        for number in counted(progress, "reading file", order, sizes):
            builder.add(number, read(number))
    except _OutOfTurnError:
        builder = _Builder(files, wanted, cutter)
        builder.add_together([read(number) for number in range(len(files))])
    return builder.finish()


class _OutOfTurnError(Exception):
    """A file holds events of a time that an earlier file has passed already."""


def _time_order(files: Sequence[DbnFile]) -> list[int]:
    """Numbers of the files by the stamp of their first record."""
    return sorted(range(len(files)), key=lambda number: _first_ns(files[number]))


def _first_ns(file: DbnFile) -> int:
    chunks = record_chunks(file.source, file.header, allow_truncated=True)
    return next((int(index_stamps(chunk.records)[0]) for chunk in chunks if len(chunk.records)), 0)


class _Builder:
    """Bars that are complete and events that still wait for theirs, as events are added in the order of time."""

    def __init__(self, files: Sequence[DbnFile], labels: tuple[str, ...], cutter: Cutter) -> None:
        self._files, self._cutter = files, cutter
        self._read: dict[int, EventFile] = {}
        self._open: dict[str, Events] = {}
        self._bars: dict[str, list[Rows]] = {label: [] for label in labels}
        self._last_ns: dict[str, int] = {}
        self._reached_ns: dict[str, int] = {}
        self._open_ended: set[str] = set()  # whose newest file does not say where it ends: the next one continues it
        self._events = self._repeated = self._unfinished = 0

    def add(self, number: int, read: EventFile) -> None:
        """Cut the bars that a file completes, and let go of its events.

        Raises:
            _OutOfTurnError: it holds events that are not after those of the files before.
        """
        for label in read.labels:
            events = read.events.pop(label, None)
            if events is not None and events.ts_ns[0] <= self._last_ns.get(label, -1):
                raise _OutOfTurnError
            self._continue(label, read, events)
        self._read[number] = read

    def add_together(self, reads: Sequence[EventFile]) -> None:
        """Cut the bars of all files, label by label, leaving out what several files hold alike.

        Raises:
            DataError: files differ where they overlap in time.
        """
        for label in self._bars:
            parts = [read for read in reads if label in read.labels]
            held: list[Events] = []
            for read in sorted(parts, key=lambda part: _place(part, label)):
                events = read.events.get(label)
                fresh = None if events is None else self._not_held(held, events)
                self._continue(label, read, fresh)
        self._read = dict(enumerate(reads))

    def _continue(self, label: str, read: EventFile, events: Events | None) -> None:
        """Cut the bars that a file completes of a label; those open before a hole in the data are closed first."""
        if read.start_ns > self._reached_ns.get(label, read.start_ns) and label not in self._open_ended:
            self._close(label)
        if read.reached_ns >= self._reached_ns.get(label, 0):
            self._reached_ns[label] = read.reached_ns
            (self._open_ended.add if read.is_open_ended else self._open_ended.discard)(label)
        if events is None or not len(events.ts_ns):
            return
        self._events += len(events.ts_ns)
        self._last_ns[label] = int(events.ts_ns[-1])
        waiting = self._open.get(label)
        rows, self._open[label] = cut_bars(
            events if waiting is None else concat_events([waiting, events]), self._cutter, None
        )
        self._bars[label].append(rows)

    def _not_held(self, held: list[Events], events: Events) -> Events:
        """Events after those held, which the file has to repeat one by one; they join those held."""
        if held and events.ts_ns[0] <= held[-1].ts_ns[-1]:
            known = concat_events(held)
            held[:] = [known]
            inside = (known.ts_ns >= events.ts_ns[0]) & (known.ts_ns <= events.ts_ns[-1])
            known, again = take_events(known, inside), take_events(events, events.ts_ns <= held[-1].ts_ns[-1])
            if not _same_events(known, again):
                raise self._differ(known, again)
            self._repeated += len(again.ts_ns)
            events = take_events(events, events.ts_ns > held[-1].ts_ns[-1])
        if len(events.ts_ns):
            held.append(events)
        return events

    def _differ(self, known: Events, again: Events) -> DataError:
        shared = min(len(known.ts_ns), len(again.ts_ns))
        differs = np.flatnonzero(~_equal(known, again, shared))
        at = int(differs[0]) if len(differs) else shared
        events = known if at < len(known.ts_ns) else again
        files = sorted({int(part.file_id[0]) for part in (known, again) if len(part.file_id)})
        names = " and ".join(self._files[number].source.name for number in files)
        return DataError(
            f"{names}: overlapping files that differ in the time they share, first at {iso(int(events.ts_ns[at]))}. "
            "Keep one file per period."
        )

    def finish(self) -> EventBars:
        """All bars; the last one of a label only if the data show that it is complete.

        Raises:
            DataError: there are events, and they complete no bar.
        """
        for label in list(self._open):
            self._close(label)
        bars = {label: concat(parts) for label, parts in self._bars.items() if parts}
        if self._unfinished and not any(len(rows.row) for rows in bars.values()):
            names = ", ".join(file.source.name for file in self._files[:4])
            raise DataError(f"{names}: {self._events} events, and not one bar of {self._cutter.rule.text} is complete.")
        files = tuple(self._rows_of(number, bars) for number in range(len(self._files)))
        return EventBars(files, self._findings(bars), self._reached_ns)

    def _close(self, label: str) -> None:
        """Cut the open bar of a label if the data are known to reach its end, else drop it."""
        waiting = self._open.pop(label, None)
        if waiting is not None:
            rows, rest = cut_bars(waiting, self._cutter, self._reached_ns[label])
            self._bars[label].append(rows)
            self._unfinished += bool(len(rest.ts_ns))

    def _rows_of(self, number: int, bars: dict[str, Rows]) -> FileRows:
        read = self._read[number]
        found = [Finding("bars", f"{text}: {count} left out", count) for text, count in read.left_out.items() if count]
        rule = self._cutter.rule
        return FileRows(
            rows={label: take(rows, rows.file_id == number) for label, rows in bars.items()},
            rows_read=read.rows_read,
            rows_unmapped=read.rows_unmapped,
            interval_ns=rule.base_ns if rule.kind == "time" else None,
            has_volume=self._files[number].header.schema not in SAMPLED_SCHEMAS,
            close_labelled=rule.kind != "time",
            findings=(*read.findings, *found),
            rows_others=read.rows_others,
        )

    def _findings(self, bars: dict[str, Rows]) -> tuple[Finding, ...]:
        rule, schema = self._cutter.rule, str(self._files[0].header.schema)
        count = sum(len(rows.row) for rows in bars.values())
        length = f"{rule.base_ns // 10**9} s" if rule.kind == "time" else rule.text
        what = "mid prices of quotes" if is_mid(schema, self._cutter.rule) else "trades"
        text = f"bars of {length} cut from {self._events} {what} ({schema}, by ts_recv) within sessions: {count}"
        if is_mid(schema, self._cutter.rule):
            text += "; a mid lies half a tick off the grid where the spread is an odd number of ticks"
        found = [Finding("bars", text, count)]
        if self._unfinished:
            text = f"last bars dropped because the data end before they do: {self._unfinished}"
            found.append(Finding("partial-end", text, self._unfinished))
        if self._repeated:
            text = f"{what} dropped because an earlier file holds the same stretch: {self._repeated}"
            found.append(Finding("overlapping-files", text, self._repeated))
        return tuple(found)


def _place(read: EventFile, label: str) -> tuple[int, int, bytes]:
    """Order of files of a label, by content: the earlier first, of two that begin together the longer."""
    events = read.events.get(label)
    if events is None:
        return read.start_ns, -read.reached_ns, b""
    return int(events.ts_ns[0]), -int(events.ts_ns[-1]), events.price_e9.tobytes()


def _same_events(known: Events, again: Events) -> bool:
    return len(known.ts_ns) == len(again.ts_ns) and bool(_equal(known, again, len(known.ts_ns)).all())


def _equal(known: Events, again: Events, count: int) -> np.ndarray:
    names = ("ts_ns", "price_e9", "size", "instrument_id")
    return np.logical_and.reduce([getattr(known, name)[:count] == getattr(again, name)[:count] for name in names])
