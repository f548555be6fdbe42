"""From the rows of several files to the bar tables of a symbol, and their fingerprint."""

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.data.bars import PRICE_COLUMNS, BarTable, Definition, OpenInterest, validate
from tidewalk.data.checks.clean import Handling, Ordered, describe, drop_impossible, drop_missing, irregular, regular
from tidewalk.data.checks.levels import level_findings, only_positive
from tidewalk.data.checks.quality import Finding
from tidewalk.data.checks.strays import misprints, stray_prints
from tidewalk.data.contracts.specs import root_of, session_rule
from tidewalk.data.rows import FileRows, Rows, concat, iso, prices, spoken, take
from tidewalk.data.symbols import COMBINATION, Choice, Series, contract_series

AS_GIVEN = Handling()


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
        findings: what was dropped, counted or doubted.
    """

    tables: tuple[BarTable, ...]
    kept: tuple[Rows, ...]
    findings: tuple[Finding, ...]


def assemble(
    symbol: str,
    choice: Choice,
    files: Sequence[FileRows],
    names: Sequence[str],
    form: BarForm,
    handling: Handling = AS_GIVEN,
) -> Assembled:
    """Checked bar tables of a symbol.

    Args:
        symbol: as asked for; names the table where the files know no contract.
        choice: labels that stand for it.
        files: what each file gave.
        names: file names, by the file ids in the rows.
        form: how stamps become bars.
        handling: what to do with rows that cannot be right.

    Raises:
        DataError: no usable row is left, or rows that conflict or cannot be bars are to be refused.
    """
    files, findings = _complete(files, names, form)
    file_end_ns = [max((int(part.stamp_ns.max()) for part in _filled(file)), default=0) for file in files]
    findings += _out_of_order(files, names)
    series = _series(symbol, choice, files)
    is_outright = not COMBINATION.search(symbol)
    rows, found = drop_missing([entry.rows for entry in series], [entry.name for entry in series], names)
    findings += found
    only_above_zero = is_outright and only_positive(root_of(symbol))
    rows, found = drop_impossible(rows, names, handling, only_positive=only_above_zero)
    findings += found
    series = [Series(entry.name, entry.month, part) for entry, part in zip(series, rows, strict=True) if len(part.row)]
    if not series:
        raise DataError(f"--symbol {symbol}: no bars in {', '.join(names)}. Nothing is left to train on.")
    ordered = [_in_order(entry.rows, form, names, handling, file_end_ns) for entry in series]
    findings += _counts(ordered, sum(len(part.row) for part in rows), form)
    rows, found = _without_strays([part.rows for part in ordered], form, session_rule(root_of(symbol)), names)
    findings += found
    rows, found = _misprints(rows, form, names, handling) if is_outright else (rows, [])
    findings += found
    tables: list[BarTable] = []
    for entry, part in zip(series, rows, strict=True):
        whole = Series(entry.name, entry.month, part)
        tables += [_table(run, form) for run in (_runs(whole) if choice.symbology == "continuous" else [whole])]
    tables = _without_open_ends(tables, findings)
    for table in tables:
        validate(table)
    findings += _low_prices(rows)
    findings += _without_volume(rows, form)
    findings += level_findings(root_of(symbol), tables) if is_outright else []
    return Assembled(tuple(tables), tuple(rows), tuple(findings))


def _filled(file: FileRows) -> list[Rows]:
    return [part for part in file.rows.values() if len(part.row)]


def _complete(files: Sequence[FileRows], names: Sequence[str], form: BarForm) -> tuple[list[FileRows], list[Finding]]:
    """Files without the bars that end after the file was recorded, with a finding where there are any.

    Such a bar holds a part of its trades; another file may hold the whole of it.
    """
    whole, findings = [], list[Finding]()
    length_ns = 0 if form.close_labelled else form.interval_ns or 0
    for file, name in zip(files, names, strict=True):
        end_ns = file.end_ns
        if end_ns is None:
            whole.append(file)
            continue
        cut = {
            label: take(rows, (rows.stamp_ns + length_ns <= end_ns) | (rows.stamp_ns >= end_ns))
            for label, rows in file.rows.items()
        }
        count = sum(len(rows.row) for rows in file.rows.values()) - sum(len(rows.row) for rows in cut.values())
        if count:
            text = f"last bars left out because the file was recorded up to {iso(end_ns)}, inside them: {count}"
            findings.append(Finding("partial-end", text, count, file=name))
        whole.append(dataclasses.replace(file, rows=cut) if count else file)
    return whole, findings


def _out_of_order(files: Sequence[FileRows], names: Sequence[str]) -> list[Finding]:
    """Findings on files whose rows are not in the order of time, unless their reader said so."""
    findings = []
    for file, name in zip(files, names, strict=True):
        backwards = sum(int((np.diff(part.stamp_ns) < 0).sum()) for part in file.rows.values())
        if backwards and not any(finding.defect == "out-of-order" for finding in file.findings):
            text = f"rows are out of time order in {counted(backwards, 'place')}: sorted"
            findings.append(Finding("out-of-order", text, backwards, file=name))
    return findings


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


def _in_order(
    rows: Rows, form: BarForm, names: Sequence[str], handling: Handling, file_end_ns: Sequence[int]
) -> Ordered:
    if form.interval_ns is None:
        return irregular(rows, names)
    return regular(rows, form.interval_ns, names, handling, file_end_ns)


def _counts(ordered: Sequence[Ordered], total: int, form: BarForm) -> list[Finding]:
    repeated, shared, conflicting, overlapping = (
        sum(getattr(part, f"num_{name}") for part in ordered)
        for name in ("repeated", "shared", "conflicting", "overlapping")
    )
    found = []
    if repeated:
        text = f"rows dropped because the same row was there already: {repeated}"
        found.append(Finding("duplicate-rows", text, repeated))
    if shared:
        text = f"rows that several files hold alike, counted once: {shared}"
        found.append(Finding("overlapping-files", text, shared))
    if conflicting:
        example = next(part.example for part in ordered if part.example)
        text = f"rows given up for a later one of the same moment: {conflicting}, first of {example}"
        found.append(Finding("overlapping-files", text, conflicting, is_warning=True))
    if overlapping:
        if overlapping > 0.01 * total:
            raise DataError(
                f"mixed bar intervals: {overlapping} of {total} bars begin before the one before is complete, for "
                f"bars of {spoken(form.interval_ns or 0)}. Give one bar length per file."
            )
        text = f"bars dropped because they begin before the bar before them is complete: {overlapping}"
        found.append(Finding("duplicate-rows", text, overlapping))
    return found


def _without_strays(
    parts: Sequence[Rows], form: BarForm, rule: str, names: Sequence[str]
) -> tuple[list[Rows], list[Finding]]:
    """Rows without prints of closed hours that no trade can have made, with a warning that counts them."""
    length_ns = (form.interval_ns or 0) if form.close_labelled else 0
    starts = [dataclasses.replace(part, stamp_ns=part.stamp_ns - length_ns) for part in parts]
    stray = [stray_prints(part, form.interval_ns, rule) for part in starts]
    count = sum(int(mask.sum()) for mask in stray)
    if not count:
        return list(parts), []
    part, mask = next((part, mask) for part, mask in zip(parts, stray, strict=True) if mask.any())
    example = describe(part, int(np.flatnonzero(mask)[0]), names)
    text = f"bars of closed hours far from the market before and after them, left out: {count}, first {example}"
    kept = [take(part, ~mask) for part, mask in zip(parts, stray, strict=True)]
    return kept, [Finding("outside-session", text, count, is_warning=True)]


def _misprints(
    parts: Sequence[Rows], form: BarForm, names: Sequence[str], handling: Handling
) -> tuple[list[Rows], list[Finding]]:
    """Rows with a warning on prices that no bar around them comes near; without those where bad bars are dropped."""
    far = [misprints(part, form.interval_ns) for part in parts]
    count = sum(int(mask.sum()) for mask in far)
    if not count:
        return list(parts), []
    part, mask = next((part, mask) for part, mask in zip(parts, far, strict=True) if mask.any())
    what = f"bars with a price far from those of the bars before and after: {count}, first "
    what += describe(part, int(np.flatnonzero(mask)[0]), names)
    if handling.on_bad_bar == "drop":
        kept = [take(part, ~mask) for part, mask in zip(parts, far, strict=True)]
        return kept, [Finding("misprint", f"{what}; left out (--on-bad-bar drop)", count, is_warning=True)]
    text = f"{what}; kept: leave misprints out with --on-bad-bar drop"
    return list(parts), [Finding("misprint", text, count, is_warning=True)]


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


def _without_open_ends(tables: Sequence[BarTable], findings: list[Finding]) -> list[BarTable]:
    """Tables without a last bar whose end is not known; tables of only such a bar are left out."""
    closed = []
    for table in tables:
        if table.known_ns[-1] > table.ts_ns[-1]:
            closed.append(table)
            continue
        text = f"{table.contract}: the last bar was dropped, the end of an irregular bar is the next one's start"
        findings.append(Finding("partial-end", text, 1))
        arrays = {name: getattr(table, name)[:-1] for name in ("ts_ns", "known_ns", *PRICE_COLUMNS, "volume")}
        if len(table.ts_ns) > 1:
            closed.append(BarTable(table.contract, table.instrument_id, None, **arrays, has_volume=table.has_volume))
    if not closed:
        raise DataError("no complete bar: a single irregular bar has no known end.")
    return closed


def _low_prices(parts: Sequence[Rows]) -> list[Finding]:
    """A warning on prices of zero or less, with a doubt where they are the older half of a long history."""
    below = sum(int((part.low_e9 <= 0).sum()) for part in parts)
    if not below:
        return []
    low_e9 = np.concatenate([part.low_e9 for part in parts])
    is_low = low_e9 <= 0
    text = f"bars with a price of zero or less: {below} of {len(low_e9)}"
    found = [Finding("price-at-or-below-zero", text, below, is_warning=True)]
    stamp_ns = np.concatenate([part.stamp_ns for part in parts])
    if below > 0.01 * len(low_e9) and stamp_ns[is_low].max() < np.median(stamp_ns):
        text = (
            "old prices are zero or less and later ones are not, as in a back-adjusted series: its levels, fees and "
            "slippage are not those of a contract that can be traded"
        )
        found.append(Finding("adjusted-prices", text, below, is_warning=True))
    return found


def _without_volume(parts: Sequence[Rows], form: BarForm) -> list[Finding]:
    """A finding on bars without volume among bars that have some; kept, for their price may have moved."""
    count, total = sum(int((part.volume == 0).sum()) for part in parts), sum(len(part.volume) for part in parts)
    if not form.has_volume or not 0 < count < total:
        return []
    return [Finding("zero-volume", f"bars without volume, kept as they are: {count} of {total}", count)]


def fingerprint(
    tables: Sequence[BarTable], definitions: Sequence[Definition] = (), interest: Sequence[OpenInterest] = ()
) -> str:
    """SHA-256 over contract, bar length and arrays of all tables, and what else decides results; hexadecimal.

    Everything is taken in the order of contracts. Files of bars alone have the fingerprint of their bars.
    """
    digest = hashlib.sha256()
    for table in sorted(tables, key=lambda table: table.contract):
        digest.update(f"{table.contract}|{table.interval_ns}|{len(table.ts_ns)}|{table.has_volume}\n".encode())
        for name in ("ts_ns", "known_ns", *PRICE_COLUMNS):
            digest.update(getattr(table, name).astype("<i8").tobytes())
        digest.update(table.volume.astype("<f8").tobytes())
        if table.open_spread_e9 is not None:
            digest.update(b"spread\n" + table.open_spread_e9.astype("<i8").tobytes())
    for definition in sorted(definitions, key=str):
        digest.update(f"{definition}\n".encode())
    for entry in sorted(interest, key=lambda entry: entry.contract):
        digest.update(f"open interest|{entry.contract}|{len(entry.lots)}\n".encode())
        for column in (entry.trade_day, entry.known_ns, entry.lots):
            digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()
