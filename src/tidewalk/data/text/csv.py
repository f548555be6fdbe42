"""Layout of delimited text (CSV, TSV, semicolons): where the header is, what separates, what is what.

Doubt is never settled silently: what was understood is a finding, and a file that can be read in two ways is refused
with the option that settles it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidewalk.core.errors import ConfigError, DataError, did_you_mean, listed
from tidewalk.core.words import counted
from tidewalk.data.checks.quality import Finding
from tidewalk.data.files.source import Source
from tidewalk.data.text.blocks import first_lines, split_line
from tidewalk.data.text.columns import (
    DATE_NAMES,
    NEEDED,
    PRICE_NAMES,
    STAMP_NAMES,
    SYMBOL_NAMES,
    TIME_NAMES,
    VOLUME_NAMES,
    Columns,
    identify,
    lacking,
    mapping,
    missing_roles,
    plain,
    several_tickers,
    used,
)
from tidewalk.data.text.dates import DATE_ORDERS
from tidewalk.data.text.dialects import Dialect, by_names, by_shape, named
from tidewalk.data.text.headerless import CLOCK, are_bars, as_numbers, columns_by_form
from tidewalk.data.text.lean import LeanName, lean_name
from tidewalk.data.text.numbers import looks_numeric
from tidewalk.data.text.stamps import looks_like_stamp

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
HEADER_LINES = 30
SAMPLE_LINES = 50
MIN_COLUMNS = 5
"""A stamp and four prices."""
SKIPPED = "-"
"""Word of --columns for a column that is not used."""
COLUMN_WORDS = (
    *("datetime", "date", "time", "open", "high", "low", "close", "volume", "symbol", "up", "down"),
    *(*STAMP_NAMES, *TIME_NAMES, *DATE_NAMES, *VOLUME_NAMES, *SYMBOL_NAMES),
    *(name for names in PRICE_NAMES.values() for name in names),
    *("instrumentid", "rtype"),
)


@dataclass(frozen=True)
class TextOptions:
    """What the user says about text files, see the fields of `DataConfig` of the same names."""

    columns: str | None = None
    dialect: str | None = None
    date_order: str | None = None
    allow_truncated: bool = False


NO_OPTIONS = TextOptions()


@dataclass(frozen=True)
class Layout:
    """How a text file is built.

    Attributes:
        delimiter: separator of fields.
        header_line: number of the header line, from 1; data begin on the next. 0 where they begin on the first.
        names: column names as in the header, or as found where there is none.
        columns: what is what.
        dialect: the program that wrote the file, where it is recognised.
        findings: how the file was understood.
        lean: what the name of a LEAN file says, else None.
        options: what the user said.
    """

    delimiter: str
    header_line: int
    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect
    findings: tuple[Finding, ...] = ()
    lean: LeanName | None = None
    options: TextOptions = NO_OPTIONS


def check_options(options: TextOptions) -> None:
    """Refuse values that no file could make right.

    Raises:
        ConfigError: an unknown dialect, order of dates or column, with the nearest known one.
    """
    if options.dialect is not None:
        named(options.dialect)
    if options.date_order is not None and options.date_order not in DATE_ORDERS:
        raise ConfigError(f"--date-order {options.date_order}: allowed are {', '.join(DATE_ORDERS)}.")
    if options.columns is not None:
        _column_words(options.columns)


def _column_words(columns: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in columns.split(","))
    for word in words:
        if word != SKIPPED and plain(word) not in COLUMN_WORDS:
            raise ConfigError(
                f"--columns {columns}: {word!r} is no kind of column{did_you_mean(word, COLUMN_WORDS)}. Write one word "
                f"per column, such as datetime,open,high,low,close,volume, and {SKIPPED} for one to leave out."
            )
    found = identify(words)
    if found is None or found.stamp is None:
        lacks = missing_roles(words) or ["datetime"]
        raise ConfigError(f"--columns {columns}: missing: {', '.join(lacks)}. Needed: {NEEDED}.")
    return words


def sniff(source: Source, options: TextOptions = NO_OPTIONS) -> Layout:
    """Layout of a text file, from its first lines.

    Raises:
        DataError: no header line with the needed columns and no rows whose form tells them; names what was found and
            what settles it.
    """
    check_options(options)
    lines = first_lines(source, HEADER_LINES + SAMPLE_LINES)
    layout = _by_user(lines, source, options) if options.columns else _by_header(lines, source)
    layout = layout or _without_header(lines, source, options)
    if layout is None:
        raise _no_header(lines, source.name)
    if options.dialect is not None:
        layout = replace(layout, dialect=named(options.dialect))
    layout = replace(layout, options=options)
    return replace(layout, findings=(_said(layout), *layout.findings))


def _said(layout: Layout) -> Finding:
    """What the file is taken for, in one line."""
    by = " (--dialect)" if layout.options.dialect else "" if layout.dialect.is_sure else "'s form"
    kind = f"{layout.dialect.name}{by}" if layout.dialect.name else "plain text"
    header = f"header in row {layout.header_line}" if layout.header_line else "no header"
    if layout.options.columns:
        header = "columns as --columns says"
    parts = mapping(layout.names, layout.columns)
    return Finding("dialect", f"read as {kind}, fields split by {DELIMITERS[layout.delimiter]}, {header}: {parts}")


def _by_user(lines: Sequence[str], source: Source, options: TextOptions) -> Layout:
    """Layout of --columns; a header line, wherever the first row of data is found, is passed over."""
    names = _column_words(str(options.columns))
    columns = identify(names)
    if columns is None or columns.stamp is None:
        raise _no_header(lines, source.name)
    for number, line in enumerate(lines[:HEADER_LINES]):
        for delimiter in DELIMITERS:
            fields = _trimmed(split_line(line, delimiter), len(names))
            prices = as_numbers([fields[p] for p in columns.price]) if len(fields) == len(names) else None
            if prices is not None and looks_like_stamp(fields[columns.stamp]):
                return Layout(delimiter, number, names, columns, Dialect())
    shown = max((split_line(lines[0], delimiter) for delimiter in DELIMITERS), key=len)
    raise DataError(
        f"{source.name}: no row fits --columns {options.columns} ({len(names)} columns); row 1 has {len(shown)}: "
        f"{_listed(shown)}."
    )


def _by_header(lines: Sequence[str], source: Source) -> Layout | None:
    """Layout by the names in a header line, None where no line is one."""
    for number, line in enumerate(lines[:HEADER_LINES], start=1):
        for delimiter in DELIMITERS:
            if line.count(delimiter) < 3:
                continue
            names = split_line(line, delimiter)
            columns = identify(names)
            if columns is None:
                continue
            _refuse_data_before(lines[: number - 1], delimiter, number, source.name)
            for line_beside in (*lines[max(number - 2, 0) : number - 1], *lines[number : number + 1]):
                _refuse_side_by_side(split_line(line_beside, delimiter), source.name)
            rows = lines[number : number + SAMPLE_LINES]
            sample = [split_line(text, delimiter) for text in rows if text.strip(f"{delimiter} ")]
            return _completed(Layout(delimiter, number, names, columns, Dialect()), sample, source.name)
    return None


def _refuse_data_before(lines: Sequence[str], delimiter: str, number: int, name: str) -> None:
    for row, line in enumerate(lines, start=1):
        fields = split_line(line, delimiter)
        if sum(map(looks_numeric, fields)) >= 4 and any(map(looks_like_stamp, fields[:3])):
            raise DataError(
                f"{name} row {row}: data before the header in row {number}; two files may have been joined. Remove the "
                "second header, or split the file."
            )


def _refuse_side_by_side(fields: Sequence[str], name: str) -> None:
    """Refuse the columns of several instruments, which a line of tickers beside the header tells, as yfinance does."""
    tickers = list(dict.fromkeys(field for field in fields[1:] if field))
    if plain(fields[0]) == "ticker" and len(tickers) > 1:
        raise several_tickers(tickers, name)


def _completed(layout: Layout, sample: Sequence[tuple[str, ...]], name: str) -> Layout:
    """The layout with a header shorter than the rows mended where its meaning is plain, and the stamp column found."""
    names, findings = layout.names, layout.findings
    widths = sorted(len(fields) for fields in sample)
    width = widths[len(widths) // 2] if widths else len(names)
    time_unnamed = False
    if width > len(names):
        whole = [fields for fields in sample if len(fields) == width]
        names, text = _mended(names, whole, name)
        time_unnamed = "time of day" in text
        findings = (*findings, Finding("dialect", text)) if text else findings
    columns = identify(names)
    if columns is None:
        raise _no_header([layout.delimiter.join(names)], name)
    columns = columns if columns.stamp is not None else _with_stamp(columns, names, sample, name)
    dialect = named("visualchart") if time_unnamed else by_names(names, columns, sample)
    if dialect.name == "MetaTrader":
        columns = _traded_volume(columns, names, sample)
    return replace(layout, names=names, columns=columns, dialect=dialect, findings=findings)


def _mended(names: tuple[str, ...], rows: Sequence[tuple[str, ...]], name: str) -> tuple[tuple[str, ...], str]:
    """Names for all fields of the rows, and what was concluded about those that the header does not name.

    Raises:
        DataError: the fields without a name may stand anywhere.
    """
    extra = len(rows[0]) - len(names)
    if all(not field.strip() for row in rows for field in row[len(names) :]):
        return (*names, *[""] * extra), ""
    starts_with_stamps = all(looks_like_stamp(row[0]) for row in rows[:5])
    if extra == 1 and starts_with_stamps and plain(names[0]) in DATE_NAMES and all(CLOCK.fullmatch(r[1]) for r in rows):
        text = "the header has no name for the second column, which holds the time of day"
        return (names[0], "Time", *names[1:]), text
    columns = identify(names)
    if extra == 1 and starts_with_stamps and (columns is None or columns.stamp is None):
        return ("", *names), "the header has no name for the first column, which holds the stamps"
    stamped = columns is not None and all(looks_like_stamp(row[columns.stamp or 0]) for row in rows[:5])
    if columns is not None and stamped and are_bars(rows, columns.price):
        return (*names, *[""] * extra), f"not used, because without a name: the last {counted(extra, 'column')}"
    raise DataError(
        f"{name}: rows have {len(rows[0])} fields under a header of {len(names)} names ({_listed(names)}), and it is "
        "not plain which are unnamed. Correct the header, or name all columns with --columns."
    )


def _traded_volume(columns: Columns, names: Sequence[str], sample: Sequence[tuple[str, ...]]) -> Columns:
    """MetaTrader's columns with the tick count as volume, where its volume of trades is always 0."""
    known = [plain(name) for name in names]
    if "tickvol" not in known or "vol" not in known:
        return columns
    traded = [row[known.index("vol")].strip() for row in sample if len(row) == len(names)]
    return replace(columns, volume=(known.index("tickvol"),)) if set(traded) <= {"0"} else columns


def _with_stamp(columns: Columns, names: Sequence[str], sample: Sequence[tuple[str, ...]], name: str) -> Columns:
    """Columns with the first one without a role whose values are stamps, where no name says which it is."""
    taken = used(columns)
    for position in range(min(len(names), 64)):
        values = [fields[position] for fields in sample if len(fields) > position and fields[position].strip()]
        if position not in taken and sum(map(looks_like_stamp, values)) > len(values) / 2:
            return replace(columns, stamp=position)
    raise DataError(f"{name}: no time column among {_listed(names)}. Needed: {NEEDED}.")


def _without_header(lines: Sequence[str], source: Source, options: TextOptions) -> Layout | None:
    """Layout of a file that begins with data, by the look of a known format or by the form of its rows."""
    start = next((number for number, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    rows = [line for line in lines[start : start + SAMPLE_LINES] if line.strip()]
    lean = lean_name(source.name, rows[0]) if rows else None
    known = named("lean") if lean else named(options.dialect) if options.dialect else by_shape(rows[:SAMPLE_LINES])
    for delimiter in DELIMITERS:
        sample = [split_line(line, delimiter) for line in rows]
        names = _dialect_columns(known, sample, lean) if known and known.columns else columns_by_form(sample)
        columns = identify(names) if names else None
        if columns is not None and names:
            return Layout(delimiter, start, names, columns, known or Dialect(), _doubts(known, options), lean)
    return None


def _doubts(known: Dialect | None, options: TextOptions) -> tuple[Finding, ...]:
    if known is None or known.name != "HistData" or options.dialect:
        return ()
    text = (
        "NinjaTrader writes the same lines as HistData; taken as HistData (New York without summer time, start of the "
        "bar) because the volume is always 0. Say --dialect ninjatrader if it is that"
    )
    return (Finding("dialect", text, is_warning=True),)


def _dialect_columns(
    known: Dialect, sample: Sequence[tuple[str, ...]], lean: LeanName | None
) -> tuple[str, ...] | None:
    """Names of the columns of a header-less file of a known format; None where the rows do not fit it."""
    names: tuple[str, ...] = tuple(known.columns.split(","))
    if lean is not None and lean.day is None:
        names = ("datetime", *names[1:])
    elif lean is not None:
        names = ("time", *names[1:])
    second = next(iter(sample[0][1:2]), "")
    choices = [names]
    if "time" in names[1:]:  # files of days have no time; a price of whole numbers may look like one
        has_time = re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?|\d{3,6}", second) is not None
        choices = [names] * has_time + [tuple(name for name in names if name != "time")]
    if lean is None and not looks_like_stamp(sample[0][0]):
        return None
    return next((fitted for choice in choices if (fitted := _fitted(choice, sample)) is not None), None)


def _fitted(names: tuple[str, ...], sample: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Names for all fields of the rows, None where the rows are no bars under them."""
    width = len(sample[0])
    names = (*names[:width], *[SKIPPED] * (width - len(names)))
    columns = identify(names)
    rows = [row for row in sample if len(row) == width]
    return names if columns is not None and are_bars(rows, columns.price) else None


def _trimmed(fields: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Fields without the blank ones beyond a width, as a separator at the end of lines leaves them."""
    while len(fields) > width and not fields[-1].strip():
        fields = fields[:-1]
    return fields


def _no_header(lines: Sequence[str], name: str) -> DataError:
    """The error for a file without usable header: it has none, or columns are missing."""
    filled = [line for line in lines if line.strip()][:HEADER_LINES]
    rows = [max((split_line(line, delimiter) for delimiter in DELIMITERS), key=len) for line in filled]
    first = rows[0] if rows else ()
    if first and sum(map(looks_numeric, first)) >= max(4, len(first) // 2):
        return DataError(
            f"{name}: no header line: the file begins with data ({_listed(first)}), and its form does not tell which "
            "column is what. Name them with --columns, such as --columns datetime,open,high,low,close,volume (- leaves "
            "one out), or the format with --dialect."
        )
    best = min(rows, key=lambda names: len(missing_roles(names)), default=())
    remedy = "" if len(best) < MIN_COLUMNS else " Name the columns with --columns if they are there in other words."
    return DataError(f"{name}: columns found: {_listed(best)}; {lacking(best)}.{remedy}")


def _listed(names: Sequence[str]) -> str:
    return listed([name.strip()[:40] or "(no name)" for name in names], 16) or "none"
