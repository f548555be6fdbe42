"""Text files as blocks of whole lines, so that a file of any size is read in bounded memory.

Lines come as UTF-8 with line feeds as line ends and without a byte-order mark, whatever the file is written in.
"""

import codecs
import csv
from collections.abc import Iterable, Iterator

from tidewalk.core.errors import DataError
from tidewalk.data.files.archive import CutOffError
from tidewalk.data.files.source import HEAD_BYTES, Source, pieces, read_start

BLOCK_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 23
"""Longest line believed: 100,000 columns of numbers fit, a binary file taken for text does not."""
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def first_lines(source: Source, count: int) -> list[str]:
    """The first lines of a text file, at most `count`; only whole ones, unless the file ends inside the last.

    Raises:
        DataError: a line of more than `MAX_LINE_BYTES`.
    """
    size = HEAD_BYTES
    while True:
        start = read_start(source, size + 1)
        lines = _decode(start).split("\n")
        if len(start) <= size:
            return lines[:count]
        if len(lines) > count or (size > MAX_LINE_BYTES and len(lines) > 1):
            return lines[:-1][:count]
        if size > MAX_LINE_BYTES:
            raise _endless_line(source)
        size *= 4


def blocks(source: Source, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """All lines of a text file, in blocks that end with a line end; only the file's last line may lack one.

    Raises:
        CutOffError: the file ends before its archive does; all whole lines before are handed out first.
        DataError: damaged archive, a NUL byte, or a line of more than `MAX_LINE_BYTES`.
    """
    pending, num_lines = bytearray(), 0
    cut: CutOffError | None = None
    stream = _sliced(_normal(pieces(source), utf16=source.head[:2] in UTF16_MARKS), block_bytes)
    while cut is None:
        try:
            piece = next(stream, None)
        except CutOffError as error:
            piece, cut = b"", error
        if piece is None:
            break
        pending += piece
        if b"\0" in piece:
            raise DataError(
                f"{source.name}: NUL bytes near row {num_lines + pending[: pending.find(0)].count(10) + 1:,}: the file "
                "is damaged, or was not written to its end. Download or copy it again."
            )
        if len(pending) < block_bytes and cut is None:
            continue
        end = pending.rfind(b"\n") + 1
        if len(pending) - end > MAX_LINE_BYTES:
            raise _endless_line(source)
        if end:
            block = bytes(memoryview(pending)[:end])
            num_lines += block.count(b"\n")
            yield block
            pending = pending[end:]
    if cut is not None:
        raise cut
    if pending:
        yield bytes(pending)


def _sliced(stream: Iterable[bytes], size: int) -> Iterator[bytes]:
    for piece in stream:
        yield from (piece[start : start + size] for start in range(0, len(piece), size))


def _endless_line(source: Source) -> DataError:
    return DataError(f"{source.name}: a line of more than {MAX_LINE_BYTES:,} bytes; this is no text file of bars.")


def _normal(raw: Iterable[bytes], *, utf16: bool) -> Iterator[bytes]:
    """Pieces as UTF-8 without a byte-order mark and with line feeds as line ends."""
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    held = b""  # a carriage return at the end of a piece may be half of a line end
    is_first = True
    for raw_piece in raw:
        piece = decoder.decode(raw_piece).encode() if utf16 else bytes(raw_piece)
        piece = held + (piece.removeprefix(codecs.BOM_UTF8) if is_first else piece)
        is_first = False
        held = b"\r" if piece.endswith(b"\r") else b""
        if held:
            piece = piece[:-1]
        yield piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in piece else piece
    if held:
        yield b"\n"


def _decode(raw: bytes) -> str:
    return b"".join(_normal([raw], utf16=raw[:2] in UTF16_MARKS)).decode("utf-8", errors="replace")


def split_line(line: str, delimiter: str) -> tuple[str, ...]:
    """Fields of one line without surrounding blanks and quotes."""
    if '"' in line:
        try:
            return tuple(
                field.strip() for field in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
            )
        except (csv.Error, StopIteration):  # a field beyond the module's limit, or an open quote
            pass
    return tuple(field.strip(' "') for field in line.split(delimiter))
