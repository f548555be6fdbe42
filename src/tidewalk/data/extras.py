"""What files beside the bars add to them: definitions, open interest and the recorded spread."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.words import counted
from tidewalk.data.bars import BarTable, OpenInterest
from tidewalk.data.checks.quality import Finding, in_file
from tidewalk.data.contracts.specs import MONTH_CODES
from tidewalk.data.dbn.header import Mapping
from tidewalk.data.dbn.labels import LabelMap, label_map
from tidewalk.data.dbn.records import Chunk, index_stamps, record_chunks
from tidewalk.data.events.definitions import DefinitionBook, definition_book
from tidewalk.data.events.quotes import is_quote
from tidewalk.data.events.spreads import QuoteSlots, put_quotes, slots_for, spreads_of, with_spreads
from tidewalk.data.events.statistics import Published, open_interest, published
from tidewalk.data.files.catalog import DbnFile
from tidewalk.data.rows import DAY_NS

MAX_YEARS_APART_DAYS = 5 * 365
"""A code of one digit of the year is the contract of the decade if it was seen no longer than this before or after."""


def read_definitions(
    files: Sequence[DbnFile], labels: Collection[str], root: str, *, allow_truncated: bool = False
) -> tuple[DefinitionBook, tuple[Finding, ...]]:
    """Definitions of the labels and of the outright contracts of the root, with what was seen in the files.

    Raises:
        DataError: a file cannot be trusted.
    """
    findings: list[Finding] = []

    def parts() -> Iterator[NDArray[Any]]:
        for file in files:
            for chunk in record_chunks(file.source, file.header, allow_truncated=allow_truncated):
                findings.extend(_doubts(file, chunk))
                yield chunk.records

    book = definition_book(parts(), labels, root)
    return book, tuple(findings)


def read_open_interest(
    files: Sequence[DbnFile],
    tables: Sequence[BarTable],
    labels: Sequence[str],
    mappings: tuple[Mapping, ...],
    sessions: str,
    *,
    allow_truncated: bool = False,
) -> tuple[tuple[OpenInterest, ...], tuple[Finding, ...]]:
    """Open interest of the contracts of the tables, from files of statistics.

    Args:
        files: of the statistics schema.
        tables: contracts in use.
        labels: symbols behind them.
        mappings: symbols of the instruments of the bars, for files that do not map them.
        sessions: session rule.
        allow_truncated: use the whole records of a file that ends early.
    """
    parts: dict[str, list[Published]] = {}
    findings: list[Finding] = []
    for file in files:
        lookup = _lookup(file, labels, mappings)
        for chunk in record_chunks(file.source, file.header, allow_truncated=allow_truncated):
            findings += _doubts(file, chunk)
            owner = lookup.owners(chunk.records)
            for number in np.unique(owner[owner >= 0]).tolist():
                parts.setdefault(lookup.labels[number], []).append(published(chunk.records[owner == number], sessions))
    made = [_of_contract(table, parts.get(label_of(table, labels), [])) for table in tables]
    found = tuple(entry for entry, _ in made if entry is not None)
    figures, revised = sum(len(entry.lots) for entry in found), sum(count for _, count in made)
    if files:
        text = f"open interest of {counted(len(found), 'contract')}, {counted(figures, 'figure')}, "
        text += "each usable from its publication on"
        text += f"; {revised} later figures for the same dates not used" if revised else ""
        text = text if figures else "the statistics hold no open interest of the contracts in use"
        findings.append(Finding("open-interest", text, figures))
    return found, tuple(findings)


def _of_contract(table: BarTable, parts: Sequence[Published]) -> tuple[OpenInterest | None, int]:
    """Open interest published around the life of a contract; the same code comes back a decade later."""
    first, last = int(table.ts_ns[0]) // DAY_NS, int(table.ts_ns[-1]) // DAY_NS
    near = [_where(part, first - MAX_YEARS_APART_DAYS, last + MAX_YEARS_APART_DAYS) for part in parts]
    return open_interest(table.contract, near) if near else (None, 0)


def _where(part: Published, first_day: int, last_day: int) -> Published:
    inside = (part.trade_day >= first_day) & (part.trade_day <= last_day)
    return Published(part.known_ns[inside], part.trade_day[inside], part.lots[inside])


def join_spreads(
    files: Sequence[DbnFile],
    tables: Sequence[BarTable],
    labels: Sequence[str],
    mappings: tuple[Mapping, ...],
    sessions: str,
    tick_e9: int | None,
    *,
    own_quotes: bool,
    allow_truncated: bool = False,
) -> tuple[tuple[BarTable, ...], tuple[Finding, ...]]:
    """The tables with the spread in force when each bar opens, from files of quotes.

    Args:
        files: of schemas of quotes, in an order that does not depend on their names.
        tables: contracts in use.
        labels: symbols behind them.
        mappings: symbols of the instruments of the bars, for files that do not map them.
        sessions: session rule.
        tick_e9: smallest price step, for the finding; None when not known.
        own_quotes: whether the bars are made of quotes of these files.
        allow_truncated: use the whole records of a file that ends early.
    """
    slots = [slots_for(table) for table in tables]
    by_label: dict[str, list[int]] = {}
    for place, table in enumerate(tables):
        by_label.setdefault(label_of(table, labels), []).append(place)
    findings: list[Finding] = []
    useless = 0
    for file in files:
        lookup = _lookup(file, labels, mappings)
        for chunk in record_chunks(file.source, file.header, allow_truncated=allow_truncated):
            findings += _doubts(file, chunk) if not own_quotes else ()
            owner = lookup.owners(chunk.records)
            quoted = is_quote(chunk.records)
            useless += int(((owner >= 0) & ~quoted).sum())
            for number in np.unique(owner[owner >= 0]).tolist():
                records = chunk.records[(owner == number) & quoted]
                _put(records, [(tables[place], slots[place]) for place in by_label.get(lookup.labels[number], [])])
    spreads = [
        spreads_of(slot, table.known_ns, sessions, own_quotes=own_quotes)
        for slot, table in zip(slots, tables, strict=True)
    ]
    schemas = ", ".join(sorted({str(file.header.schema) for file in files}))
    joined, found = with_spreads(tables, spreads, tick_e9, schemas)
    if useless and not own_quotes:
        text = f"quotes that are one-sided, locked or crossed: {useless} left out"
        findings.append(Finding("spread", text, useless))
    return joined, (*findings, found)


def _put(records: NDArray[Any], targets: Sequence[tuple[BarTable, QuoteSlots]]) -> None:
    ts_ns = index_stamps(records).astype(np.int64)
    if (np.diff(ts_ns) < 0).any():
        order = np.argsort(ts_ns, kind="stable")
        records, ts_ns = records[order], ts_ns[order]
    spread_e9 = records["ask_px_00"] - records["bid_px_00"]
    for table, slots in targets:
        # A vendor's continuous series is another contract before and after its roll.
        mine = records["instrument_id"] == table.instrument_id if "#" in table.contract else slice(None)
        put_quotes(slots, ts_ns[mine], spread_e9[mine])


def _lookup(file: DbnFile, labels: Sequence[str], mappings: tuple[Mapping, ...]) -> LabelMap:
    """Owner of each record: by the mappings of the file where it knows one of the labels, else by those of the bars."""
    own = {entry.symbol for entry in file.header.mappings}
    return label_map(file.header.mappings if own & set(labels) else mappings, labels, file.source.name)


def _doubts(file: DbnFile, chunk: Chunk) -> tuple[Finding, ...]:
    """What a user has to know of a file that no bars come from."""
    return in_file(file.source.name, [finding for finding in chunk.findings if finding.is_warning])


def label_of(table: BarTable, labels: Sequence[str]) -> str:
    """Label in the files that a table comes from: without the run of a continuous series, or a year's second digit."""
    name = table.contract.partition("#")[0]
    if name in labels:
        return name
    short = re.sub(rf"([{MONTH_CODES}])\d(\d)$", r"\1\2", name)
    return short if short in labels else name
