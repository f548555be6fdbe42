"""Content of a file inside its container (zstd, gzip, zip or none), told by its first bytes and never by its name.

A file of a zip is a source of its own, named "archive.zip!file", and may itself be compressed: a batch download of
Databento is a zip of `.dbn.zst` files.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidewalk.core.errors import DataError
from tidewalk.data.files.archive import (
    CutOffError,
    container_of,
    file_pieces,
    gzip_pieces,
    is_skippable,
    member_names,
    zip_pieces,
    zstd_pieces,
)

HEAD_BYTES = 1 << 16
RATIO_FLOOR_BYTES = 1 << 28  # so much may come out of a file of any size
MAX_RATIO = 1_000  # bars compress 4 to 30 times, text of equal lines 200 times; a bomb thousands of times


@dataclass(frozen=True)
class Source:
    """A file and what it holds.

    Attributes:
        path: where it is.
        container: "zstd", "gzip", "zip", "zip zstd" and so on for a compressed member, "" for none.
        content: "dbn", "dbz", "dbn fragment", "parquet", "arrow", "scid", "zip", "text", "binary" or
            "empty".
        head: first decoded bytes, at most `HEAD_BYTES` and a little more.
        member: name of the file inside the zip, None outside of a zip.
    """

    path: Path
    container: str
    content: str
    head: bytes
    member: str | None = None

    @property
    def name(self) -> str:
        """Name for messages, "file.csv" or "archive.zip!file.csv"."""
        return _name(self.path, self.member)


def probe(path: Path, member: str | None = None) -> Source:
    """Container and content of a file, from its first bytes.

    Args:
        path: the file.
        member: which file of a zip, one of `members`; may be left out where the zip has one.

    Raises:
        DataError: when the file cannot be opened or the start of its archive is damaged.
    """
    container = container_of(_magic(path))
    if container == "zip":
        member = member or _only_member(path)
        inner = container_of(_start(_decoded(path, "zip", member), 4)[:4])
        container = "zip" if inner in ("", "zip") else f"zip {inner}"
    name = _name(path, member)
    head = _start(_decoded(path, container, member), HEAD_BYTES)
    return Source(path, container, _content(path, name, container, head), head, member)


def members(path: Path) -> tuple[str, ...]:
    """Names of the files in a zip, empty where the file is no zip.

    Raises:
        DataError: the file cannot be opened, or is a zip that is damaged.
    """
    return member_names(path) if container_of(_magic(path)) == "zip" else ()


def pieces(source: Source) -> Iterator[bytes]:
    """Decoded bytes of a file in pieces of bounded size, read from disk as they are asked for.

    Raises:
        CutOffError: the file ends before its archive does; all that came before is good.
        DataError: damaged archive, foreign bytes after its end, or one that decodes to absurdly many bytes.
    """
    allowed = max(RATIO_FLOOR_BYTES, MAX_RATIO * source.path.stat().st_size)
    total = 0
    for piece in _decoded(source.path, source.container, source.member):
        total += len(piece)
        if source.container and total > allowed:
            raise _too_large(source, allowed)
        yield piece


def read_start(source: Source, size: int) -> bytes:
    """First `size` decoded bytes of a file, fewer only when the file is shorter or cut off."""
    if len(source.head) >= size:
        return source.head[:size]
    return _start(pieces(source), size)[:size]


def read_all(source: Source, max_bytes: int | None = None) -> bytearray:
    """All decoded bytes of a file.

    Args:
        source: from `probe`.
        max_bytes: cap on the decoded size; None is half of the machine's memory.

    Raises:
        DataError: when the archive is cut off, damaged or followed by foreign bytes, or decodes to more than the cap.
    """
    cap = _default_cap() if max_bytes is None else max_bytes
    decoded = bytearray()
    for piece in pieces(source):
        decoded += piece
        if len(decoded) > cap:
            raise _too_large(source, cap)
    return decoded


def _too_large(source: Source, cap: int) -> DataError:
    return DataError(
        f"{source.name}: decodes to more than {cap:,} bytes (compressed: {source.path.stat().st_size:,}). "
        "The file is damaged or hostile, or the machine too small; split it by month."
    )


def _default_cap() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return max(memory // 2, RATIO_FLOOR_BYTES)


def _name(path: Path, member: str | None) -> str:
    return path.name if member is None else f"{path.name}!{member}"


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(4)
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read ({error.strerror}).") from error


def _only_member(path: Path) -> str:
    names = member_names(path)
    if len(names) != 1:
        held = f" ({', '.join(names[:6])})" if names else ""
        raise DataError(f"{path.name}: zip holds {len(names)} files{held}; one is needed. Unpack it.")
    return names[0]


def _decoded(path: Path, container: str, member: str | None) -> Iterator[bytes]:
    stream = file_pieces(path) if member is None else zip_pieces(path, member)
    name = _name(path, member)
    if container.endswith("zstd"):
        stream = zstd_pieces(stream, name)
    elif container.endswith("gzip"):
        stream = gzip_pieces(stream, name)
    try:
        yield from stream
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}).") from error


def _start(stream: Iterator[bytes], size: int) -> bytes:
    """The first pieces that make `size` bytes, as far as they can be decoded.

    An archive that is cut off before its first byte came out is told from one of nothing.
    """
    start = bytearray()
    try:
        for piece in stream:
            start += piece
            if len(start) >= size:
                break
    except CutOffError:
        if not start:
            raise
    return bytes(start)


def _content(path: Path, name: str, container: str, head: bytes) -> str:
    if not head:
        return "empty"
    if head[:3] == b"DBN":
        return "dbn"
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":  # the file and the stream format
        return "arrow"
    if head[:4] == b"SCID":
        return "scid"
    if container_of(head[:4]):
        return "zip" if container_of(head[:4]) == "zip" else "binary"
    if b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "text"
    if container == "zstd" and is_skippable(_magic(path)):
        return "dbz"
    return "dbn fragment" if ".dbn" in name.lower() else "binary"
