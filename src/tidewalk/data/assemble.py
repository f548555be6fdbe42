"""From the rows of several files to the bar tables of a symbol, and their fingerprint."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import PRICE_COLUMNS, BarTable, validate
from tidewalk.data.clean import drop_impossible, drop_missing, irregular, regular
from tidewalk.data.rows import FileRows, Rows, concat, prices, take
from tidewalk.data.symbols import Choice, Series, contract_series


@dataclass(frozen=True)
class BarForm:
    """How stamps become bars: bar length (None for irregular bars), which end is stamped, whether there is volume."""

    interval_ns: int | None
    close_labelled: bool
    has_volume: bool


@dataclass(frozen=True)
class Assembled:
    """Tables with what was dropped on the way and the rows that were kept.

    Attributes:
        tables: checked tables in the order of expiry or of time.
        kept: rows behind the bars of the tables, with their file and row numbers.
        notes: what was dropped and counted.
        warnings: what the user has to know.
    """

    tables: tuple[BarTable, ...]
    kept: Rows
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def assemble(symbol: str, choice: Choice, files: Sequence[FileRows], names: Sequence[str], form: BarForm) -> Assembled:
    """Checked bar tables of a symbol.

    Args:
        symbol: as asked for; names the table where the files know no contract.
        choice: labels that stand for it.
        files: what each file gave.
        names: file names, by the file ids in the rows.
        form: how stamps become bars.

    Raises:
        DataError: no usable row is left, rows conflict, or too many are impossible.
    """
    series = _series(symbol, choice, files)
    notes: list[str] = []
    rows, num_missing = drop_missing([entry.rows for entry in series])
    if num_missing:
        notes.append(f"rows dropped because a price is missing: {num_missing}")
    rows, impossible = drop_impossible(rows, names)
    notes += impossible
    series = [Series(entry.name, entry.month, part) for entry, part in zip(series, rows, strict=True) if len(part.row)]
    if not series:
        raise DataError(f"--symbol {symbol}: no bars in {', '.join(names)}. Nothing is left to train on.")
    ordered = [_in_order(entry, form, names) for entry in series]
    notes += _count_notes([counts for _, counts in ordered], sum(len(part.row) for part in rows), form)
    tables, kept = [], []
    for entry, _ in ordered:
        parts = _runs(entry) if choice.symbology == "continuous" else [entry]
        tables += [_table(part, form) for part in parts]
        kept.append(entry.rows)
    tables = _without_open_ends(tables, notes)
    for table in tables:
        validate(table)
    return Assembled(tuple(tables), concat(kept), tuple(notes), tuple(_price_warnings(kept)))


def _series(symbol: str, choice: Choice, files: Sequence[FileRows]) -> list[Series]:
    parts: dict[str, list[Rows]] = {}
    for file in files:
        for label, rows in file.rows.items():
            if len(rows.row):
                parts.setdefault(label, []).append(rows)
    by_label = {label: concat(rows) for label, rows in parts.items()}
    if choice.symbology in ("parent", "raw"):
        return contract_series(choice, by_label)
    return [Series(symbol, None, rows) for rows in by_label.values()]


def _in_order(entry: Series, form: BarForm, names: Sequence[str]) -> tuple[Series, tuple[int, int]]:
    """Rows in time order with the numbers of duplicates and of overlapping bars dropped."""
    if form.interval_ns is None:
        rows, num_repeated = irregular(entry.rows, names)
        return Series(entry.name, entry.month, rows), (num_repeated, 0)
    rows, num_repeated, num_overlapping = regular(entry.rows, form.interval_ns, names)
    return Series(entry.name, entry.month, rows), (num_repeated, num_overlapping)


def _count_notes(counts: Sequence[tuple[int, int]], total: int, form: BarForm) -> list[str]:
    num_repeated, num_overlapping = (sum(column) for column in zip(*counts, strict=True))
    notes = []
    if num_repeated:
        notes.append(f"rows dropped because the same row was there already: {num_repeated}")
    if num_overlapping:
        if num_overlapping > 0.01 * total:
            raise DataError(
                f"mixed bar intervals: {num_overlapping} of {total} bars begin before the one before is complete, for "
                f"bars of {(form.interval_ns or 0) // 10**9} s. Give one bar length per file."
            )
        notes.append(f"bars dropped because they begin before the bar before them is complete: {num_overlapping}")
    return notes


def _runs(entry: Series) -> list[Series]:
    """A continuous series cut where its instrument changes; an instrument that comes back gets a numbered name."""
    ids = entry.rows.instrument_id
    bounds = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    seen: dict[int, int] = {}
    runs = []
    for start, end in itertools.pairwise(bounds):
        instrument_id = int(ids[start])
        seen[instrument_id] = seen.get(instrument_id, 0) + 1
        again = f".{seen[instrument_id]}" if seen[instrument_id] > 1 else ""
        part = take(entry.rows, np.arange(start, end))
        runs.append(Series(f"{entry.name}#{instrument_id}{again}", None, part))
    return runs


def _table(entry: Series, form: BarForm) -> BarTable:
    rows = entry.rows
    ts_ns, known_ns = bar_times(rows.stamp_ns, form)
    volume = rows.volume if form.has_volume else np.zeros(len(rows.row))
    instrument_id = int(rows.instrument_id[-1])
    return BarTable(
        entry.name, instrument_id, form.interval_ns, ts_ns, known_ns, *prices(rows), volume, form.has_volume
    )


def bar_times(stamp_ns: NDArray[np.int64], form: BarForm) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start of each bar and the moment it is complete, int64 [T] each, from strictly increasing stamps.

    An irregular bar stamped at its start is complete when the next one starts; for the last one that moment is not
    known and is given as its own start, for the caller to drop.
    """
    if form.interval_ns is None:
        if form.close_labelled:
            return stamp_ns - 1, stamp_ns
        return stamp_ns, np.append(stamp_ns[1:], stamp_ns[-1:])
    # Only a day on which local clocks lose an hour makes two bars overlap by their nominal length; the stamp is right.
    if form.close_labelled:
        start_ns = stamp_ns - form.interval_ns
        return np.append(start_ns[:1], np.maximum(start_ns[1:], stamp_ns[:-1])), stamp_ns
    end_ns = stamp_ns + form.interval_ns
    return stamp_ns, np.append(np.minimum(end_ns[:-1], stamp_ns[1:]), end_ns[-1:])


def _without_open_ends(tables: Sequence[BarTable], notes: list[str]) -> list[BarTable]:
    """Tables without a last bar whose end is not known; tables of only such a bar are left out."""
    closed = []
    for table in tables:
        if table.known_ns[-1] > table.ts_ns[-1]:
            closed.append(table)
            continue
        notes.append(f"{table.contract}: the last bar was dropped, the end of an irregular bar is the next one's start")
        arrays = {name: getattr(table, name)[:-1] for name in ("ts_ns", "known_ns", *PRICE_COLUMNS, "volume")}
        if len(table.ts_ns) > 1:
            closed.append(BarTable(table.contract, table.instrument_id, None, **arrays, has_volume=table.has_volume))
    if not closed:
        raise DataError("no complete bar: a single irregular bar has no known end.")
    return closed


def _price_warnings(kept: Sequence[Rows]) -> list[str]:
    total = sum(len(rows.row) for rows in kept)
    below = sum(int((rows.low_e9 <= 0).sum()) for rows in kept)
    return [f"bars with a price of zero or less: {below} of {total}"] if below else []


def fingerprint(tables: Sequence[BarTable]) -> str:
    """SHA-256 over contract, bar length and arrays of all tables, sorted by contract; hexadecimal."""
    digest = hashlib.sha256()
    for table in sorted(tables, key=lambda table: table.contract):
        digest.update(f"{table.contract}|{table.interval_ns}|{len(table.ts_ns)}|{table.has_volume}\n".encode())
        for name in ("ts_ns", "known_ns", *PRICE_COLUMNS):
            digest.update(getattr(table, name).astype("<i8").tobytes())
        digest.update(table.volume.astype("<f8").tobytes())
    return digest.hexdigest()
