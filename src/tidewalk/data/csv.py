"""Delimited text (CSV, TSV, semicolons) as columns of text: where the header is, what separates, what is what.

All fields are kept as text, so that prices are converted from the decimals that were written.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.columns import NEEDED, Columns, Dialect, dialect, identify, lacking, missing_roles, used
from tidewalk.data.numbers import looks_numeric
from tidewalk.data.source import Source, read_all
from tidewalk.data.stamps import looks_like_stamp

DELIMITERS = (",", ";", "\t", "|")
HEADER_LINES = 30
SAMPLE_LINES = 50
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Layout:
    """How a text file is built.

    Attributes:
        delimiter: separator of fields.
        header_line: number of the header line, from 1; data begin on the next.
        names: column names as in the header.
        columns: what is what.
        dialect: the program that wrote the file, where it is recognised.
        notes: how the header was understood.
    """

    delimiter: str
    header_line: int
    names: tuple[str, ...]
    columns: Columns
    dialect: Dialect
    notes: tuple[str, ...]


def sniff(source: Source) -> Layout:
    """Layout of a text file, from its first lines.

    Raises:
        DataError: no header line with the needed columns; names what was found and what is needed.
    """
    lines = _decode(source.head).split("\n")[: HEADER_LINES + SAMPLE_LINES]
    if len(lines) > 2 and len(source.head) >= 1 << 16:
        lines = lines[:-1]  # the last line of a head may be cut
    for number, line in enumerate(lines[:HEADER_LINES], start=1):
        for delimiter in DELIMITERS:
            names = _split(line, delimiter)
            columns = identify(names) if len(names) >= 4 else None
            if columns is not None:
                sample = [_split(text, delimiter) for text in lines[number : number + SAMPLE_LINES] if text.strip()]
                return _layout(Layout(delimiter, number, names, columns, dialect(names, columns), ()), sample, source)
    raise _no_header(lines, source.path.name)


def _layout(layout: Layout, sample: Sequence[tuple[str, ...]], source: Source) -> Layout:
    """The layout with a header shorter than the rows mended where its meaning is plain, and the stamp column found."""
    name, names, notes = source.path.name, layout.names, layout.notes
    widths = {len(fields) for fields in sample}
    if widths and min(widths) == len(names) + 1:
        if all(fields[-1].strip() == "" for fields in sample):
            names = (*names, "")
        elif _is_date_then_time(names, sample):
            names = (names[0], "Time", *names[1:])
            notes = (*notes, "the header has no name for the second column, which holds the time of day")
    columns = identify(names)
    if columns is None:
        raise _no_header([layout.delimiter.join(names)], name)
    known = dialect(names, columns)
    if len(names) == len(layout.names) + 1 and columns.time is not None:
        known = Dialect("VisualChart", True, is_utc=False)
    columns = columns if columns.stamp is not None else _with_stamp(columns, names, sample, name)
    return replace(layout, names=names, columns=columns, dialect=known, notes=notes)


def _is_date_then_time(names: Sequence[str], sample: Sequence[tuple[str, ...]]) -> bool:
    dates = all(looks_like_stamp(fields[0]) for fields in sample[:5])
    return names[0].strip().lower() == "date" and dates and all(":" in fields[1] for fields in sample[:5])


def _with_stamp(columns: Columns, names: Sequence[str], sample: Sequence[tuple[str, ...]], name: str) -> Columns:
    """Columns with the first one without a role whose values are stamps, where no name says which it is."""
    taken = used(columns)
    for position in range(len(names)):
        values = [fields[position] for fields in sample if len(fields) > position and fields[position].strip()]
        if position not in taken and sum(map(looks_like_stamp, values)) > len(values) / 2:
            return replace(columns, stamp=position)
    raise DataError(f"{name}: no time column among {_listed(names)}. Needed: {NEEDED}.")


def read_text(source: Source, layout: Layout) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """All rows as text columns "0", "1", ... and the notes on how they were read; row i is line header_line + 1 + i.

    Raises:
        DataError: damaged file, or a line with more fields than the header has names.
    """
    text = _decode(bytes(read_all(source)))
    start = 0
    for _ in range(layout.header_line):
        start = text.find("\n", start) + 1
    width = len(layout.names)
    header = layout.delimiter.join(str(position) for position in range(width))
    body = text[start:] if start else ""
    try:
        frame = pl.read_csv(io.BytesIO(f"{header}\n{body}".encode()), separator=layout.delimiter, infer_schema=False)
    except (pl.exceptions.ComputeError, pl.exceptions.NoDataError) as error:
        raise _misfit(body, layout, source.path.name) from error
    return frame, layout.notes


def _misfit(body: str, layout: Layout, name: str) -> DataError:
    """The error for text that polars refuses: the first line with too many fields, else an open quote."""
    for number, line in enumerate(body.split("\n"), start=layout.header_line + 1):
        fields = _split(line, layout.delimiter)
        if len(fields) > len(layout.names):
            return DataError(
                f"{name} row {number}: {len(fields)} fields under a header of {len(layout.names)} names "
                f"({_listed(layout.names)}). Correct the line or the header."
            )
    return DataError(f"{name}: the text cannot be split into columns; a quote may be left open.")


def _decode(raw: bytes) -> str:
    """Text with line feeds as line ends and without a byte-order mark."""
    if raw[:2] in UTF16_MARKS:
        text = raw[: len(raw) - len(raw) % 2].decode("utf-16", errors="replace")
    else:
        text = raw.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _split(line: str, delimiter: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), []))


def _no_header(lines: Sequence[str], name: str) -> DataError:
    """The error for a file without usable header: it has none, or columns are missing."""
    filled = [line for line in lines if line.strip()][:HEADER_LINES]
    rows = [max((_split(line, delimiter) for delimiter in DELIMITERS), key=len) for line in filled]
    first = rows[0] if rows else ()
    if first and sum(map(looks_numeric, first)) >= max(4, len(first) // 2):
        return DataError(
            f"{name}: no header line: the file begins with data ({_listed(first)}). Add a first line that names the "
            f"columns, such as datetime,open,high,low,close,volume. Needed: {NEEDED}."
        )
    best = min(rows, key=lambda names: len(missing_roles(names)), default=())
    return DataError(f"{name}: columns found: {_listed(best)}; {lacking(best)}.")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name.strip() or "(no name)" for name in names[:16])
    return f"{shown}, and {len(names) - 16} more" if len(names) > 16 else shown or "none"
