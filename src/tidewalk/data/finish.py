"""The last steps from checked bars of a symbol to what is handed on: longer bars, spreads, what else the data know."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidewalk.data.bars import BarTable, Definition, OpenInterest
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.specs import KNOWN_ROOTS, root_of, session_rule, spec_for
from tidewalk.data.events.bar_rule import BarRule
from tidewalk.data.events.quotes import QUOTE_SCHEMAS
from tidewalk.data.events.resample import resample
from tidewalk.data.extras import join_spreads, label_of, read_open_interest
from tidewalk.data.files.pick import Picked, Request


@dataclass(frozen=True)
class Finished:
    """Tables with all that the files add to them; see `Loaded`."""

    tables: tuple[BarTable, ...]
    definitions: tuple[Definition, ...]
    open_interest: tuple[OpenInterest, ...]
    findings: tuple[Finding, ...]


def finish(request: Request, picked: Picked, tables: Sequence[BarTable]) -> Finished:
    """Tables in the bars asked for, with spreads, definitions and open interest where the files hold them.

    Raises:
        DataError: the bars asked for cannot be made of these, or a file that adds to them cannot be trusted.
    """
    sessions = session_rule(root_of(request.symbol))
    made, findings = _in_bars_asked_for(request.bars, picked, tuple(tables), sessions)
    roles, labels = picked.roles, picked.choice.labels
    definitions = _in_use(picked, made, root_of(request.symbol))
    interest: tuple[OpenInterest, ...] = ()
    if roles.statistics and picked.choice.symbology in ("parent", "raw"):
        interest, found = read_open_interest(
            roles.statistics, made, labels, picked.mappings, sessions, allow_truncated=request.allow_truncated
        )
        findings += found
    if roles.quotes:
        made, found = join_spreads(
            roles.quotes,
            made,
            labels,
            picked.mappings,
            sessions,
            _tick_e9(request.symbol, definitions),
            own_quotes=bool(picked.mappings) and roles.schema in QUOTE_SCHEMAS,
            allow_truncated=request.allow_truncated,
        )
        findings += found
    return Finished(made, definitions, interest, findings)


def _in_bars_asked_for(
    rule: BarRule | None, picked: Picked, tables: tuple[BarTable, ...], sessions: str
) -> tuple[tuple[BarTable, ...], tuple[Finding, ...]]:
    if rule is None or (rule.kind != "time" and tables[0].interval_ns is None and _is_built(picked)):
        return tables, ()
    last_ns = max(int(table.known_ns[-1]) for table in tables)
    reached = [picked.reached_ns.get(label_of(table, picked.choice.labels), last_ns) for table in tables]
    return resample(tables, rule, sessions, reached)


def _is_built(picked: Picked) -> bool:
    """Whether counted bars were cut here, and do not stand in the files."""
    return bool(picked.mappings)


def _in_use(picked: Picked, tables: Sequence[BarTable], root: str) -> tuple[Definition, ...]:
    """Definitions of the contracts behind the tables.

    By symbol; by id where the symbol is that of a series; all contracts of the root where the bars do not say theirs.
    """
    book, symbology = picked.definitions, picked.choice.symbology
    if symbology == "single":
        return tuple(entry for entry in book.entries if book.roots[entry.symbol] == root)
    symbols = {label_of(table, picked.choice.labels) for table in tables}
    ids = {table.instrument_id for table in tables} if symbology == "continuous" else set[int]()
    return tuple(entry for entry in book.entries if entry.symbol in symbols or entry.instrument_id in ids)


def _tick_e9(symbol: str, definitions: Sequence[Definition]) -> int | None:
    ticks = sorted(entry.tick_e9 for entry in definitions if entry.is_outright and entry.tick_e9)
    root = root_of(symbol)
    return ticks[0] if ticks else spec_for(root).tick_e9 if root in KNOWN_ROOTS else None
