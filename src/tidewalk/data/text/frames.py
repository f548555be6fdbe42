"""Rows of a text file as tables of text, a block of lines at a time.

All fields are kept as text, so that prices are converted from the decimals that were written. A line with more fields
than columns, a file that ends inside a row and a quote left open are refused: what they would shift cannot be told.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import Finding
from tidewalk.data.files.archive import CutOffError
from tidewalk.data.files.source import Source
from tidewalk.data.text.blocks import BLOCK_BYTES, blocks, split_line
from tidewalk.data.text.columns import used
from tidewalk.data.text.csv import Layout
from tidewalk.data.text.stamps import looks_like_stamp


@dataclass(frozen=True)
class TextFrame:
    """Rows of a block of lines.

    Attributes:
        columns: text columns that are used, named by their position in the file ("0", "1", ...).
        first_row: line number of the first row, from 1.
        findings: what is said about the end of the file.
    """

    columns: pl.DataFrame
    first_row: int
    findings: tuple[Finding, ...] = ()


def text_frames(source: Source, layout: Layout, block_bytes: int = BLOCK_BYTES) -> Iterator[TextFrame]:
    """All rows of a text file behind its header, in order; a blank line is a row of nulls.

    Args:
        source: the file.
        layout: from `sniff`.
        block_bytes: about how much text is read at a time.

    Raises:
        DataError: damaged file, a line with more fields than the file has columns, a quote that is left open, or a file
            that ends inside a row, unless the options allow it.
    """
    skip, row = layout.header_line, layout.header_line + 1
    allowed = layout.options.allow_truncated
    try:
        for block in blocks(source, block_bytes):
            body, skip = _skipped(block, skip)
            if not body:
                continue
            frame = _frame(body, layout, source.name, row)
            if not body.endswith(b"\n") and _ends_inside(frame, layout):
                yield _without_last(frame, row, source, layout)
                return
            yield TextFrame(frame, row)
            row += len(frame)
    except CutOffError as error:
        if not allowed:
            raise
        text = f"cut off in row {row}: {error} The whole rows before it are used (--allow-truncated)"
        yield TextFrame(_empty(layout), row, (Finding("truncated-archive", text, is_warning=True),))


def _skipped(block: bytes, lines: int) -> tuple[bytes, int]:
    """A block without its first lines, and how many are left to skip in the next."""
    start = 0
    while lines and start < len(block):
        end = block.find(b"\n", start)
        start = end + 1 if end >= 0 else len(block)
        lines -= 1
    return block[start:] if start else block, lines


def _empty(layout: Layout) -> pl.DataFrame:
    return pl.DataFrame(schema={str(position): pl.String for position in sorted(used(layout.columns))})


def _frame(body: bytes, layout: Layout, name: str, first_row: int) -> pl.DataFrame:
    """Rows of some whole lines."""
    width = len(layout.names)
    wanted = [str(position) for position in sorted(used(layout.columns))]
    header = layout.delimiter.join(map(str, range(width + 1))) + "\n"
    try:
        frame = pl.read_csv(
            header.encode() + body,
            separator=layout.delimiter,
            infer_schema=False,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            columns=[*wanted, str(width)],
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _misread(body, layout, name, first_row) from error
    num_lines = body.count(b"\n") + (not body.endswith(b"\n"))
    if len(frame) != num_lines:
        raise _misread(body, layout, name, first_row)
    beyond = frame[str(width)]
    if beyond.null_count() < len(frame):
        _refuse_beyond(beyond, body, layout, name, first_row)
    return frame.select(wanted)


def _refuse_beyond(beyond: pl.Series, body: bytes, layout: Layout, name: str, first_row: int) -> None:
    """Refuse a row of data with more fields than there are columns; a footer or comment may have them."""
    filled = np.flatnonzero((beyond.str.strip_chars() != "").fill_null(value=False).to_numpy())
    if not len(filled):
        return
    lines = body.split(b"\n")
    for index in filled.tolist():
        fields = split_line(lines[index].decode(errors="replace"), layout.delimiter)
        stamp = layout.columns.stamp or 0
        if stamp < len(fields) and looks_like_stamp(fields[stamp]):
            raise DataError(
                f"{name} row {first_row + index}: {len(fields)} fields, and the file has {len(layout.names)} columns "
                f"({', '.join(layout.names[:16])}). Correct the line or the header."
            )


def _misread(body: bytes, layout: Layout, name: str, first_row: int) -> DataError:
    """The error for text that polars refuses or splits otherwise than by lines: the first line with an open quote."""
    for number, line in enumerate(body.split(b"\n"), start=first_row):
        if line.count(b'"') % 2:
            shown = line[:60].decode(errors="replace")
            return DataError(f"{name} row {number}: a quote may be left open ({shown!r}). Correct the line.")
    return DataError(f"{name}: rows {first_row:,} and on cannot be split into columns of {layout.delimiter!r}.")


def _ends_inside(frame: pl.DataFrame, layout: Layout) -> bool:
    """Whether the last line, which has no line end, has fewer fields than the one before and begins as a row does."""
    stamp = str(layout.columns.stamp or 0)
    if len(frame) < 2 or not looks_like_stamp(frame[stamp][-1] or ""):
        return False
    last, before = frame.row(-1), frame.row(-2)
    return any(new is None and old is not None for new, old in zip(last, before, strict=True))


def _without_last(frame: pl.DataFrame, row: int, source: Source, layout: Layout) -> TextFrame:
    """Rows before the one in which the file ends."""
    at = row + len(frame) - 1
    if not layout.options.allow_truncated:
        raise DataError(
            f"{source.name} row {at}: the file ends inside this row, so rows may be missing behind it. Download or "
            "export it again, or use the whole rows with --allow-truncated."
        )
    text = f"the file ends inside row {at}; the whole rows before it are used (--allow-truncated)"
    return TextFrame(frame[:-1], row, (Finding("truncated-records", text, 1, is_warning=True),))
