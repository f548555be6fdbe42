"""Which of the files hold the symbol, and what each of them gives.

If both DBN files and tables (CSV, Parquet, Feather) hold the symbol the request is refused, for the same bars may come
twice; if only one kind does, the other is left out with a note. Tables with a symbol column are chosen by it. A table
without one is what the user says it is: alone in the directory it is taken at their word, among others its file name
must hold the symbol or its root as a word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, SourceFile
from tidewalk.data.catalog import Catalog, DbnFile, left_out, only_schema
from tidewalk.data.contracts import root_of
from tidewalk.data.dbn import INTERVAL_NS_BY_SCHEMA, read_rows
from tidewalk.data.dbn import spans as dbn_spans
from tidewalk.data.rows import FileRows, LabelSpan, spacings_ns
from tidewalk.data.symbols import Choice, choose, not_found
from tidewalk.data.table import Header, Parsed, parse_table, table_rows
from tidewalk.data.table import spans as table_spans


@dataclass(frozen=True)
class Request:
    """What is asked of the files: the flags of `DataConfig` without the path, which is named in errors only."""

    symbol: str
    schema: str | None
    zone: str | None
    bar_label: Literal["open", "close"] | None
    where: str


@dataclass(frozen=True)
class UsedFile:
    """A file that holds the symbol; the file ids in its rows are its position among the used files."""

    name: str
    kind: str
    schema: str | None
    rows: FileRows


@dataclass(frozen=True)
class Picked:
    """The labels a symbol stands for, the files that hold them, and the files left out with the reasons."""

    choice: Choice
    used: tuple[UsedFile, ...]
    rest: tuple[SourceFile, ...]
    labels: tuple[str, ...]
    """All labels in the files used, the ones not asked for included."""


def pick(request: Request, found: Catalog) -> Picked:
    """Files that hold the symbol, read.

    Raises:
        DataError: no file holds it, files of two kinds do, or it is open which files are meant.
    """
    dbn, other_schemas = only_schema(found.dbn, request.schema)
    parsed = [parse_table(header) for header in found.tables if header.columns.symbol is not None]
    dbn_choice = choose(request.symbol, _all_dbn_spans(dbn), vendor_ids=True)
    has_ids = any(table.header.columns.instrument_id is not None for table in parsed)
    column_choice = choose(request.symbol, _all_table_spans(parsed), vendor_ids=has_ids)
    named = _by_file_name(request.symbol, found, alone=dbn_choice is None and column_choice is None)
    dbn_held = [file for file in dbn if dbn_choice and _holds(dbn_spans(file.header), dbn_choice)]
    parsed_held = [table for table in parsed if column_choice and _holds(table_spans(table), column_choice)]
    _refuse_several_kinds(request.symbol, dbn_held, [*(table.header for table in parsed_held)], named)
    if dbn_choice is not None:
        choice, used = dbn_choice, _read_dbn(dbn_held, dbn_choice)
    elif column_choice is not None:
        choice, used = column_choice, _read_tables(request, parsed_held, column_choice)
    elif named:
        choice = Choice("single", (request.symbol,), None, _word_of_the_user(request.symbol, named))
        used = _read_tables(request, [parse_table(header) for header in named], choice)
    else:
        raise _nothing(request, found, [*_all_dbn_spans(dbn), *_all_table_spans(parsed)])
    rest = _rest(request.symbol, found, dbn, {file.name for file in used})
    spans = [*_all_dbn_spans(dbn_held), *_all_table_spans(parsed_held)]
    return Picked(choice, tuple(used), (*other_schemas, *rest), tuple(sorted({span.label for span in spans})))


def _refuse_several_kinds(
    symbol: str, dbn: Sequence[DbnFile], by_column: Sequence[Header], by_name: Sequence[Header]
) -> None:
    sources = [[file.source for file in group] for group in (dbn, by_column, by_name)]
    if sum(map(bool, sources)) > 1:
        names = ", ".join(source.path.name for group in sources for source in group[:4])
        raise DataError(
            f"--symbol {symbol}: held by files of different kinds: {names}. The same bars may come twice; point "
            "--data-dir at one file, or at a directory with one kind."
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
    nameless = [header for header in found.tables if header.columns.symbol is None]
    for word in (symbol, root_of(symbol)) if alone else (symbol,):
        unread = [error for name, error in found.unreadable.items() if _has_word(name, word)]
        if unread and alone:
            raise unread[0]
        chosen = [header for header in nameless if _has_word(header.source.path.name, word)]
        if chosen:
            return chosen
    only = alone and len(nameless) == 1 and not found.dbn and len(found.tables) == 1
    return nameless if only else []


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word.lower())}(?![a-z])", name.lower()) is not None


def _word_of_the_user(symbol: str, headers: Sequence[Header]) -> tuple[str, ...]:
    names = ", ".join(header.source.path.name for header in headers[:4])
    return (f"{names}: no symbol column; the bars are taken to be {symbol}, as asked for",)


def _read_dbn(files: Sequence[DbnFile], choice: Choice) -> list[UsedFile]:
    return [
        UsedFile(
            file.source.path.name,
            file.kind,
            file.header.schema,
            read_rows(file.source, file.header, choice.labels, number),
        )
        for number, file in enumerate(files)
    ]


def _read_tables(request: Request, tables: Sequence[Parsed], choice: Choice) -> list[UsedFile]:
    used = []
    for table in tables:
        here = {span.label for span in table_spans(table)} if table.symbol is not None else set(choice.labels)
        labels = here & set(choice.labels)
        if labels:
            rows = table_rows(table, labels, zone=request.zone, bar_label=request.bar_label)
            used.append(UsedFile(table.header.source.path.name, table.header.kind, None, rows))
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
    asked_ns = INTERVAL_NS_BY_SCHEMA[schema]
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
    return "irregular bars" if interval_ns is None else f"bars of {interval_ns / E9:g} s"


def _rest(symbol: str, found: Catalog, dbn: Sequence[DbnFile], used: set[str]) -> list[SourceFile]:
    """Account of the files that are not used."""
    reason = f"ignored: does not hold {symbol} in the bar length asked for"
    others = [left_out(header.source.path.name, header.kind, None, reason) for header in found.tables]
    others += [left_out(file.source.path.name, file.kind, file.header.schema, reason) for file in dbn]
    unread = [left_out(name, "table", None, f"ignored: {error}") for name, error in found.unreadable.items()]
    return [*found.ignored, *(file for file in others if file.path not in used), *unread]


def _nothing(request: Request, found: Catalog, spans: Sequence[LabelSpan]) -> DataError:
    """The error for a symbol that no file holds."""
    if spans:
        return not_found(request.symbol, spans, request.where)
    if found.tables:
        names = ", ".join(header.source.path.name for header in found.tables[:12])
        return DataError(
            f"--symbol {request.symbol}: none of {len(found.tables)} files without a symbol column has the word "
            f"{root_of(request.symbol)!r} in its name: {names}. Point --data-dir at one file, or name files by symbol."
        )
    if found.unreadable:
        return next(iter(found.unreadable.values()))
    ignored = "; ".join(f"{file.path} ({file.notes[0]})" for file in found.ignored[:6])
    return DataError(f"--data-dir {request.where}: no file of bars. Found: {ignored}.")
