"""Which of the files hold the symbol, and what each of them gives.

If both DBN files and tables (CSV, Parquet, Feather) hold the symbol the request is refused, for the same bars may come
twice; if only one kind does, the other is left out with a note. Tables with a symbol column are chosen by it, those
without one by the contract in their file name, such as `ESH24.txt`. A table with neither is what the user says it is:
alone in the directory it is taken at their word, among others its file name must hold the symbol or its root as a word.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.core.progress import Progress, counted, silent
from tidewalk.data.bars import SourceFile
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.specs import KNOWN_ROOTS, root_of, session_rule, spec_for
from tidewalk.data.dbn.bars import read_rows
from tidewalk.data.dbn.header import Mapping
from tidewalk.data.dbn.header import spans as dbn_spans
from tidewalk.data.dbn.layouts import INTERVAL_NS_BY_SCHEMA
from tidewalk.data.events.bar_rule import ONE_MINUTE, BarRule
from tidewalk.data.events.bars import event_bars
from tidewalk.data.events.definitions import DefinitionBook
from tidewalk.data.events.files import reached_ns
from tidewalk.data.events.quotes import SAMPLED_SCHEMAS
from tidewalk.data.events.ticks import Cutter
from tidewalk.data.extras import read_definitions
from tidewalk.data.files.catalog import Catalog, DbnFile, left_out, why_ignored
from tidewalk.data.files.file_names import with_contracts, within_life
from tidewalk.data.files.roles import Roles, assign, mappings_of
from tidewalk.data.rows import FileRows, LabelSpan, concat, spacings_ns, spoken
from tidewalk.data.symbols import CONTINUOUS, Choice, choose, not_found
from tidewalk.data.text.table import Header, Parsed, parse_table
from tidewalk.data.text.table import spans as table_spans
from tidewalk.data.text.timing import table_rows

ADDED = {
    "read for specifications": "definition",
    "read for open interest": "open-interest",
    "read for the spread": "spread",
}
"""What files beside the bars are read for, with the kind of finding it is."""

MAX_RUNS = 8
"""Changes of instrument per instrument above which rows are of several instruments side by side: a series rolls from
one to the next, and one that goes by volume seldom changes back."""


@dataclass(frozen=True)
class Request:
    """What is asked of the files: the flags of `DataConfig` without the path, which is named in errors only."""

    symbol: str
    schema: str | None
    zone: str | None
    bar_label: Literal["open", "close"] | None
    where: str
    bars: BarRule | None = None
    allow_truncated: bool = False
    progress: Progress = silent


@dataclass(frozen=True)
class UsedFile:
    """A file that holds the symbol; the file ids in its rows are its position among the used files."""

    name: str
    kind: str
    schema: str | None
    rows: FileRows


@dataclass(frozen=True)
class Picked:
    """The labels a symbol stands for, the files that hold them, and the files left out with the reasons.

    Attributes:
        choice: labels to read.
        used: files that hold them, read.
        rest: files left out.
        labels: all labels in the files used, the ones not asked for included.
        roles: uses of the DBN files.
        mappings: symbols of the instruments of the DBN files used.
        definitions: contract specifications in the files.
        findings: how bars were made, what was seen in files of definitions.
        reached_ns: moment up to which the DBN files are known to cover each label.
    """

    choice: Choice
    used: tuple[UsedFile, ...]
    rest: tuple[SourceFile, ...]
    labels: tuple[str, ...]
    roles: Roles
    mappings: tuple[Mapping, ...]
    definitions: DefinitionBook
    findings: tuple[Finding, ...]
    reached_ns: dict[str, int]


def pick(request: Request, found: Catalog) -> Picked:
    """Files that hold the symbol, read.

    Raises:
        DataError: no file holds it, files of two kinds do, or it is open which files are meant.
    """
    roles = assign(found.dbn, request.schema, request.bars)
    found, by_name = with_contracts(found, root_of(request.symbol))
    everything = found
    if request.schema not in (None, *INTERVAL_NS_BY_SCHEMA) and roles.primary:
        found = replace(found, tables=(), unreadable={})  # a table holds bars, so it is not what was asked for
    parsed = [within_life(parse_table(header)) for header in found.tables if header.has_symbols]
    labels = {span.label for span in (*_all_dbn_spans(roles.primary), *_all_table_spans(parsed))}
    book, findings = read_definitions(
        roles.definitions, labels, root_of(request.symbol), allow_truncated=request.allow_truncated
    )
    has_ids = any(table.header.columns.instrument_id is not None for table in parsed)
    column_choice = choose(request.symbol, _all_table_spans(parsed), vendor_ids=has_ids, roots=book.roots)
    if roles.schema in SAMPLED_SCHEMAS and request.schema is None:
        is_named = column_choice is None and _by_file_name(request.symbol, found, alone=True)
        roles = replace(roles, schema=None, primary=()) if column_choice or is_named else roles  # quotes are no rival
    dbn_choice = choose(request.symbol, _all_dbn_spans(roles.primary), vendor_ids=True, roots=book.roots)
    named = _by_file_name(request.symbol, found, alone=dbn_choice is None and column_choice is None)
    dbn_held = [file for file in roles.primary if dbn_choice and _holds(dbn_spans(file.header), dbn_choice)]
    parsed_held = [table for table in parsed if column_choice and _holds(table_spans(table), column_choice)]
    _refuse_several_kinds(request.symbol, dbn_held, [*(table.header for table in parsed_held)], named)
    how: tuple[Finding, ...] = ()
    reached: dict[str, int] = {}
    if dbn_choice is not None:
        choice = dbn_choice
        used, how, reached = _read_dbn(request, roles, dbn_held, choice, book)
    elif column_choice is not None:
        choice = column_choice
        used = _read_tables(request, parsed_held, column_choice)
        how = by_name
    elif named:
        choice = Choice("single", (request.symbol,), None, _word_of_the_user(request.symbol, named))
        used = _read_tables(request, [parse_table(header) for header in named], choice)
        choice = _told_by_ids(choice, used)
    else:
        raise _nothing(request, found, [*_all_dbn_spans(roles.primary), *_all_table_spans(parsed)])
    rest = _rest(request.symbol, everything, roles, {file.name for file in used})
    spans = [*_all_dbn_spans(dbn_held), *_all_table_spans(parsed_held)]
    return Picked(
        choice=choice,
        used=tuple(used),
        rest=(*roles.rest, *rest),
        labels=tuple(sorted({span.label for span in spans})),
        roles=roles,
        mappings=mappings_of(dbn_held),
        definitions=book,
        findings=(*findings, *how),
        reached_ns=reached,
    )


def _refuse_several_kinds(
    symbol: str, dbn: Sequence[DbnFile], by_column: Sequence[Header], by_name: Sequence[Header]
) -> None:
    sources = [[file.source for file in group] for group in (dbn, by_column, by_name)]
    if sum(map(bool, sources)) > 1:
        names = ", ".join(source.name for group in sources for source in group[:4])
        contracts = any(header.contract for header in by_column) and not symbol.endswith(".FUT") and by_name
        other = f", or ask for {root_of(symbol)}.FUT to use the contracts" if contracts else ""
        raise DataError(
            f"--symbol {symbol}: held by files of different kinds: {names}. The same bars may come twice; point "
            f"--data-dir at one file, or at a directory with one kind{other}."
        )


def _holds(spans: Sequence[LabelSpan], choice: Choice) -> bool:
    return any(span.label in choice.labels for span in spans)


def _all_dbn_spans(files: Sequence[DbnFile]) -> list[LabelSpan]:
    return [span for file in files for span in dbn_spans(file.header)]


def _all_table_spans(tables: Sequence[Parsed]) -> list[LabelSpan]:
    return [span for table in tables for span in table_spans(table)]


def _by_file_name(symbol: str, found: Catalog, *, alone: bool) -> list[Header]:
    """Tables without a symbol column that are meant: by the symbol, else its root, in the file name.

    Args:
        symbol: as asked for.
        found: all files.
        alone: whether no other file holds the symbol, so that the only table there is will do under any name.
    """
    nameless = [header for header in found.tables if not header.has_symbols]
    for word in (symbol, root_of(symbol)) if alone else (symbol,):
        unread = [error for name, error in found.unreadable.items() if _has_word(name, word)]
        if unread and alone:
            raise unread[0]
        chosen = [header for header in nameless if _has_word(header.source.name, word)]
        if chosen:
            return chosen
    only = alone and len(nameless) == 1 and not found.dbn and len(found.tables) == 1
    return nameless if only else []


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word.lower())}(?![a-z])", name.lower()) is not None


def _word_of_the_user(symbol: str, headers: Sequence[Header]) -> tuple[Finding, ...]:
    names = ", ".join(header.source.name for header in headers[:4])
    return (Finding("symbol", f"{names}: no symbol column; the bars are taken to be {symbol}, as asked for"),)


def _told_by_ids(choice: Choice, used: Sequence[UsedFile]) -> Choice:
    """The choice for tables without a symbol column, whose column of instrument ids may still tell contracts apart.

    Databento's CSV files have ids and no symbols unless symbols were asked for. In a continuous series a change of id
    is the roll.

    Raises:
        DataError: ids of several instruments, and nothing that says which of them is meant.
    """
    parts = [part for file in used for part in file.rows.rows.values() if part.instrument_id.any()]
    if not parts:
        return choice
    rows = concat(parts)
    ids = rows.instrument_id[np.argsort(rows.stamp_ns, kind="stable")]
    instruments, symbol = np.unique(ids), choice.labels[0]
    is_series = CONTINUOUS.fullmatch(symbol) is not None
    if is_series and np.count_nonzero(np.diff(ids)) <= MAX_RUNS * len(instruments):
        return replace(choice, symbology="continuous")
    if len(instruments) == 1:
        return choice
    listed = ", ".join(map(str, instruments[:4])) + (", ..." if len(instruments) > 4 else "")
    hint = "" if is_series else f", or ask for {root_of(symbol)}.c.0 if this is the vendor's continuous series"
    raise DataError(
        f"{used[0].name}: rows of {len(instruments)} instruments (instrument_id {listed}) and no column that names "
        "their contracts, so they cannot be told apart. Download the file with symbols (Databento: map_symbols), or "
        f"as DBN, which has them in its header{hint}."
    )


def _read_dbn(
    request: Request, roles: Roles, files: Sequence[DbnFile], choice: Choice, book: DefinitionBook
) -> tuple[list[UsedFile], tuple[Finding, ...], dict[str, int]]:
    """What each DBN file gives, how bars were made where the files hold trades or quotes, and how far they reach."""
    findings: tuple[Finding, ...] = ()
    if roles.schema in INTERVAL_NS_BY_SCHEMA:
        rows = _read_bars(request, files, choice)
        reached = _reached_ns(files, rows)
    else:
        cutter = _cutter(request, choice, book)
        built = event_bars(
            files, choice.labels, cutter, allow_truncated=request.allow_truncated, progress=request.progress
        )
        rows, findings, reached = list(built.files), built.findings, built.reached_ns
        if request.bars is None:
            text = f"{roles.schema} holds no bars: bars of 1m are made of it; choose others with --bars"
            findings = (Finding("bars", text), *findings)
    used = [
        UsedFile(file.source.name, file.kind, file.header.schema, part) for file, part in zip(files, rows, strict=True)
    ]
    return used, findings, reached


def _read_bars(request: Request, files: Sequence[DbnFile], choice: Choice) -> list[FileRows]:
    """Rows of each file, two files at a time: decompression and the copies of columns leave the interpreter free."""

    def read(number: int) -> FileRows:
        source, header = files[number].source, files[number].header
        return read_rows(source, header, choice.labels, number, allow_truncated=request.allow_truncated)

    with ThreadPoolExecutor(2) as pool:
        return list(counted(request.progress, "reading file", pool.map(read, range(len(files))), _sizes(files)))


def _sizes(files: Sequence[DbnFile]) -> list[int]:
    return [file.source.path.stat().st_size for file in files]


def _reached_ns(files: Sequence[DbnFile], rows: Sequence[FileRows]) -> dict[str, int]:
    """How far files of bars are known to cover each label."""
    reached: dict[str, int] = {}
    for file, part in zip(files, rows, strict=True):
        last_ns = max((int(found.stamp_ns.max()) for found in part.rows.values() if len(found.row)), default=0)
        last_ns += (part.interval_ns or 0) if last_ns else 0
        end_ns = reached_ns(file.header, part.rows_read, last_ns, part.findings)
        reached |= {label: max(end_ns, reached.get(label, 0)) for label in part.rows}
    return reached


def _cutter(request: Request, choice: Choice, book: DefinitionBook) -> Cutter:
    """How bars are cut, with the multiplier that dollar bars need.

    Raises:
        DataError: dollar bars of a contract whose multiplier is not known.
    """
    rule, root = request.bars or ONE_MINUTE, root_of(request.symbol)
    known = {entry.multiplier for entry in book.of(choice.labels) or book.of(book.roots) if entry.is_outright}
    multipliers = sorted(value for value in known if value is not None)
    if not multipliers and root in KNOWN_ROOTS:
        multipliers = [spec_for(root).multiplier]
    if rule.kind == "dollar" and len(multipliers) != 1:
        named = f"the definitions name several: {multipliers}" if multipliers else "it is not known"
        raise DataError(
            f"--bars {rule.text}: needs the multiplier of {root}, and {named}. Put a definition file of its contracts "
            "beside the trades, or use volume bars."
        )
    return Cutter(rule, session_rule(root), multipliers[0] if multipliers else 1.0)


def _read_tables(request: Request, tables: Sequence[Parsed], choice: Choice) -> list[UsedFile]:
    used = []
    sizes = [table.header.source.path.stat().st_size for table in tables]
    for table in counted(request.progress, "reading file", tables, sizes):
        here = {span.label for span in table_spans(table)} if table.symbol is not None else set(choice.labels)
        labels = here & set(choice.labels)
        if labels:
            rows = table_rows(table, labels, zone=request.zone, bar_label=request.bar_label)
            used.append(UsedFile(table.header.source.name, table.header.kind, None, rows))
    return [_numbered(file, number) for number, file in enumerate(_of_schema(request.schema, used))]


def _numbered(file: UsedFile, number: int) -> UsedFile:
    rows = {
        label: replace(part, file_id=np.full(len(part.row), number, np.int32)) for label, part in file.rows.rows.items()
    }
    return replace(file, rows=replace(file.rows, rows=rows))


def _of_schema(schema: str | None, files: list[UsedFile]) -> list[UsedFile]:
    """Tables whose bars have the length that was asked for; one too short to show its length will do."""
    if schema is None:
        return files
    asked_ns = INTERVAL_NS_BY_SCHEMA.get(schema)
    if asked_ns is None and files:
        raise DataError(f"--schema {schema}: {files[0].name} is a table of bars. Leave --schema out.")
    fits = [file for file in files if file.rows.interval_ns == asked_ns or too_short(file.rows)]
    if not fits:
        raise DataError(
            f"--schema {schema}: {files[0].name} has {length(files[0].rows.interval_ns)}, not {length(asked_ns)}."
        )
    return fits


def too_short(file: FileRows) -> bool:
    """Whether a file has too few stamps to show how far apart they are."""
    return file.interval_ns is None and not len(spacings_ns(file.rows.values()))


def length(interval_ns: int | None) -> str:
    """A bar length in words."""
    return "irregular bars" if interval_ns is None else f"bars of {spoken(interval_ns)}"


def _rest(symbol: str, found: Catalog, roles: Roles, used: set[str]) -> list[SourceFile]:
    """Account of the files that no bars come from."""
    elsewhere = f"ignored: does not hold {symbol} in the bar length asked for"
    others = [left_out(header.source.name, header.kind, None, elsewhere) for header in found.tables]
    others += [left_out(file.source.name, file.kind, file.header.schema, elsewhere) for file in roles.primary]
    primary = {id(file) for file in roles.primary}
    quotes = [file for file in roles.quotes if id(file) not in primary]
    for use, files in zip(ADDED, (roles.definitions, roles.statistics, quotes), strict=True):
        others += [left_out(file.source.name, file.kind, file.header.schema, use) for file in files]
    unread = [left_out(name, "table", None, why_ignored(name, error)) for name, error in found.unreadable.items()]
    return [*found.ignored, *(file for file in others if file.path not in used), *unread]


def _nothing(request: Request, found: Catalog, spans: Sequence[LabelSpan]) -> DataError:
    """The error for a symbol that no file holds."""
    if spans:
        return not_found(request.symbol, spans, request.where)
    if found.tables:
        names = ", ".join(header.source.name for header in found.tables[:12])
        return DataError(
            f"--symbol {request.symbol}: none of {len(found.tables)} files without a symbol column has the word "
            f"{root_of(request.symbol)!r} in its name: {names}. Point --data-dir at one file, or name files by symbol."
        )
    if found.unreadable:
        return next(iter(found.unreadable.values()))
    others = [(file.source.name, f"holds the schema {file.header.schema}") for file in found.dbn]
    others += [(file.path, file.notes[0]) for file in found.ignored]
    ignored = "; ".join(f"{name} ({reason})" for name, reason in others[:6])
    return DataError(f"--data-dir {request.where}: no file of bars. Found: {ignored}.")
