"""From the symbol asked for to the labels in the files, and from labels to contracts.

Forms of a symbol: "ES.FUT" (parent: every outright contract of the root), "ESZ4" (one contract), "ES.c.0", "ES.v.0",
"ES.n.0" (a vendor's continuous series), "ES" (the label itself where a file has it, else the parent).

A contract code has one digit of the year, so "ESZ4" is December 2014 and December 2024; the days on which it traded
tell the two apart.
"""

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidewalk.core.errors import DataError, listed, nearest
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.specs import MONTH_CODES, ContractMonth, parse_contract, root_of
from tidewalk.data.rows import DAY_NS, LabelSpan, Rows, concat, take

CONTINUOUS = re.compile(r"[A-Z0-9]+\.[cvn]\.\d+")
OUTRIGHT_TAIL = re.compile(rf"[{MONTH_CODES}]\d{{1,2}}$")
COMBINATION = re.compile(r"[-:]")
MAX_GAP_DAYS = 366
"""A code unseen for longer than this names another contract when it comes back, a decade later."""

EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class Choice:
    """Labels to read for a symbol.

    Attributes:
        symbology: "parent", "raw", "continuous" or "single", see `Loaded`.
        labels: labels in the files, sorted.
        contract: name of the one contract wanted out of a label that names two a decade apart, else None.
        findings: how the symbol was understood.
    """

    symbology: str
    labels: tuple[str, ...]
    contract: str | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Series:
    """Rows of one contract (or one label that is no contract)."""

    name: str
    month: ContractMonth | None
    rows: Rows


def choose(
    symbol: str, spans: Sequence[LabelSpan], *, vendor_ids: bool, roots: Mapping[str, str] | None = None
) -> Choice | None:
    """Labels that a symbol stands for; None when the files have none.

    Args:
        symbol: as asked for.
        spans: labels in the files.
        vendor_ids: whether rows carry instrument ids, so that a continuous series shows its contracts.
        roots: product root of the labels that definitions know, "" for a label that is no outright contract; what they
            say goes before the form of the label.
    """
    labels = {span.label for span in spans}
    known_roots = roots or {}
    if symbol in labels:
        if CONTINUOUS.fullmatch(symbol) and vendor_ids:
            return Choice("continuous", (symbol,), None)
        known = vendor_ids or _is_outright(symbol)
        return Choice("raw" if known else "single", (symbol,), None)
    root = symbol.removesuffix(".FUT")
    outrights = tuple(sorted(label for label in labels if known_roots.get(label, _root_of_outright(label)) == root))
    if outrights:
        taken = Finding("symbol", f"{symbol} is taken as {root}.FUT: every outright contract of it")
        return Choice("parent", outrights, None, () if symbol.endswith(".FUT") else (taken,))
    short = re.sub(rf"([{MONTH_CODES}])\d(\d)$", r"\1\2", symbol)
    if short != symbol and short in labels:
        return Choice("raw", (short,), symbol)
    return None


def not_found(symbol: str, spans: Sequence[LabelSpan], where: str) -> DataError:
    """The error for a symbol that no file has: the nearest one that is there, and what is there."""
    labels = sorted({span.label for span in spans})
    offered = [f"{root}.FUT" for root in roots_of(labels)] + labels
    root = root_of(symbol.upper())
    kin = [name for name in offered if root_of(name).upper() == root]
    several = f"{root}.FUT" if "." in symbol and f"{root}.FUT" in offered else None
    hit = several or nearest(symbol, kin) or nearest(symbol, offered)
    hint = f" (did you mean {hit}?)" if hit else ""
    options = " Options are not read." if symbol.upper().endswith(".OPT") else ""
    return DataError(f"--symbol {symbol}: not in {where}{hint}.{options} Found: {inventory(spans)}.")


def roots_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Roots of the labels that are outright contracts, sorted."""
    return tuple(sorted({root_of(label) for label in labels if _is_outright(label)}))


def inventory(spans: Sequence[LabelSpan]) -> str:
    """What the spans hold, with dates: roots with their contracts first, then other labels."""
    roots = roots_of(span.label for span in spans)
    groups: dict[str, list[LabelSpan]] = {f"{root}.FUT": [] for root in roots}
    for span in spans:
        name = f"{root_of(span.label)}.FUT" if _is_outright(span.label) else span.label
        groups.setdefault(name, []).append(span)
    lines = [_describe_group(name, group) for name, group in groups.items() if not COMBINATION.search(name)]
    combinations = sum(1 for name in groups if COMBINATION.search(name))
    if combinations:
        lines.append(f"{combinations} spreads or combinations")
    return listed(lines, 10) or "no symbols at all"


def _describe_group(name: str, group: Sequence[LabelSpan]) -> str:
    first = EPOCH + datetime.timedelta(days=min(span.first_day for span in group))
    last = EPOCH + datetime.timedelta(days=max(span.end_day for span in group) - 1)
    members = sorted({span.label for span in group})
    inside = "" if members == [name] else f"{', '.join(members[:6])}{' ...' if len(members) > 6 else ''}; "
    return f"{name} ({inside}{first} to {last})"


def _root_of_outright(label: str) -> str:
    return root_of(label) if _is_outright(label) else ""


def _is_outright(label: str) -> bool:
    return OUTRIGHT_TAIL.search(label) is not None and parse_contract(label, EPOCH) is not None


def contract_series(choice: Choice, by_label: dict[str, Rows]) -> list[Series]:
    """Rows per contract, in order of expiry.

    Args:
        choice: from `choose`, of symbology "parent" or "raw".
        by_label: rows of each label over all files, none of them empty.

    Raises:
        DataError: one contract was asked for by a code that names two in the data, or by a year that is not there.
    """
    months: dict[ContractMonth, list[tuple[str, Rows]]] = {}
    plain: list[Series] = []
    for label, rows in sorted(by_label.items()):
        for part in _split_at_gaps(rows):
            last = EPOCH + datetime.timedelta(days=int(part.stamp_ns.max() // DAY_NS))
            month = parse_contract(label, last) if _is_outright(label) else None
            if month is None:
                plain.append(Series(label, None, rows))
                break
            months.setdefault(month, []).append((label, part))
    names = _names(months)
    by_expiry = sorted(months, key=lambda month: (month.year, month.month))
    series = [Series(names[month], month, concat([part for _, part in months[month]])) for month in by_expiry]
    return _only_wanted(choice, plain + series)


def _only_wanted(choice: Choice, series: list[Series]) -> list[Series]:
    names = [entry.name for entry in series]
    if choice.symbology != "raw" or not series or (len(series) == 1 and choice.contract is None):
        return series
    if choice.contract in names:
        return [entry for entry in series if entry.name == choice.contract]
    if len(series) > 1:
        raise DataError(
            f"--symbol {choice.contract or choice.labels[0]}: the data hold {len(series)} contracts of the code "
            f"{choice.labels[0]}, years apart. Ask for one of {', '.join(names)}."
        )
    raise DataError(
        f"--symbol {choice.contract}: the files write one digit of the year (did you mean {choice.labels[0]}?)."
    )


def _split_at_gaps(rows: Rows) -> list[Rows]:
    """Rows cut where no row falls on more than `MAX_GAP_DAYS` days in a row."""
    day = rows.stamp_ns // DAY_NS
    changes = np.concatenate([[True], np.diff(day) != 0])
    days = np.unique(day[changes])
    starts = days[1:][np.diff(days) > MAX_GAP_DAYS]
    if not len(starts):
        return [rows]
    group = np.searchsorted(starts, day, side="right")
    return [take(rows, np.flatnonzero(group == number)) for number in range(len(starts) + 1)]


def _names(months: dict[ContractMonth, list[tuple[str, Rows]]]) -> dict[ContractMonth, str]:
    """Name of each contract: the code in the files, or with two digits of the year where one digit names two."""
    codes = {month: min((label for label, _ in parts), key=len) for month, parts in months.items()}
    used = list(codes.values())
    return {
        month: code if used.count(code) == 1 else f"{month.root}{MONTH_CODES[month.month - 1]}{month.year % 100:02d}"
        for month, code in codes.items()
    }
