"""Content of a file inside its container (zstd, gzip, zip or none), told by its first bytes and never by its name.

Decoding is streamed with a cap on the decoded bytes, and an archive that ends early or goes on after its end is
refused: the usual readers hand out what they have of a half-finished download without a word.
"""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tidewalk.core.errors import DataError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC_TAIL = b"\x2a\x4d\x18"  # after a first byte 0x50-0x5f; zstd format, RFC 8878 section 3.1.2
INPUT_STEP = 4096  # compressed bytes per step: at zstd's best ratio (32,696:1) one step stays near 128 MiB
OUTPUT_STEP = 1 << 20
HEAD_BYTES = 1 << 16
RATIO_FLOOR_BYTES = 1 << 30


@dataclass(frozen=True)
class Source:
    """A file and what it holds.

    Attributes:
        path: where it is.
        container: "zstd", "gzip", "zip", or "" for none.
        content: "dbn", "dbz", "dbn fragment", "parquet", "arrow", "text", "binary" or "empty".
        head: first decoded bytes, at most `HEAD_BYTES` and a little more.
    """

    path: Path
    container: str
    content: str
    head: bytes


def probe(path: Path) -> Source:
    """Container and content of a file, from its first bytes.

    Raises:
        DataError: when the file cannot be opened or the start of its archive is damaged.
    """
    container = _container(path)
    head = bytearray()
    for chunk in _chunks(path, container, whole=False):
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    if not head and container:
        for _ in _chunks(path, container, whole=True):
            pass  # tells an archive of nothing from one that was cut off before its first byte came out
    return Source(path, container, _content(path, container, bytes(head)), bytes(head))


def read_start(source: Source, size: int) -> bytes:
    """First `size` decoded bytes of a file, fewer only when the file is shorter."""
    if len(source.head) >= size:
        return source.head[:size]
    start = bytearray()
    for chunk in _chunks(source.path, source.container, whole=False):
        start += chunk
        if len(start) >= size:
            break
    return bytes(start[:size])


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
    for chunk in _chunks(source.path, source.container, whole=True):
        decoded += chunk
        if len(decoded) > cap:
            raise DataError(
                f"{source.path.name}: decodes to more than {cap:,} bytes (compressed: {source.path.stat().st_size:,}). "
                "The file is damaged or hostile, or the machine too small; split it by month."
            )
    return decoded


def _default_cap() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return max(memory // 2, RATIO_FLOOR_BYTES)


def _container(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read ({error.strerror}).") from error
    if magic == ZSTD_MAGIC or _is_skippable(magic):
        return "zstd"
    if magic[:2] == b"\x1f\x8b":
        return "gzip"
    return "zip" if magic == b"PK\x03\x04" else ""


def _is_skippable(magic: bytes) -> bool:
    return len(magic) == 4 and 0x50 <= magic[0] <= 0x5F and magic[1:] == SKIPPABLE_MAGIC_TAIL


def _content(path: Path, container: str, head: bytes) -> str:
    if not head:
        return "empty"
    if head[:3] == b"DBN":
        return "dbn"
    if container == "" and head[:4] == b"PAR1":
        return "parquet"
    if container == "" and head[:6] == b"ARROW1":
        return "arrow"
    if b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "text"
    if container == "zstd" and _starts_skippable(path):
        return "dbz"
    return "dbn fragment" if ".dbn" in path.name.lower() else "binary"


def _starts_skippable(path: Path) -> bool:
    with path.open("rb") as stream:
        return _is_skippable(stream.read(4))


def _chunks(path: Path, container: str, *, whole: bool) -> Iterator[bytes]:
    """Decoded pieces of a file; `whole` also demands that the archive ends where the file does."""
    if container == "zip":
        yield from _zip_chunks(path)
        return
    with path.open("rb") as stream:
        if container == "":
            yield from iter(lambda: stream.read(OUTPUT_STEP), b"")
            return
        raw = memoryview(stream.read())
    decode = _zstd_chunks if container == "zstd" else _gzip_chunks
    yield from decode(raw, path.name, whole=whole)


def _zstd_chunks(raw: memoryview, name: str, *, whole: bool) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        magic = bytes(raw[at : at + 4])
        if _is_skippable(magic):
            at += 8 + _skippable_size(raw, at, name)
            continue
        if len(magic) < len(ZSTD_MAGIC) and ZSTD_MAGIC.startswith(magic):
            _refuse_cut_off(name, "incomplete zstd frame", len(raw), whole=whole)
            return
        if magic != ZSTD_MAGIC:
            raise DataError(
                f"{name}: {len(raw) - at:,} bytes that are no zstd frame follow the end of the archive at byte {at:,}. "
                "The file was appended to or damaged; download it again."
            )
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            step = raw[at : at + INPUT_STEP]
            if not step:
                _refuse_cut_off(name, "incomplete zstd frame", at, whole=whole)
                return
            try:
                decoded = frame.decompress(step)
            except zstandard.ZstdError as error:
                raise DataError(f"{name}: damaged zstd frame near byte {at:,} ({error}). Download it again.") from error
            at += len(step)
            if decoded:
                yield decoded
        at -= len(frame.unused_data)


def _skippable_size(raw: memoryview, at: int, name: str) -> int:
    if at + 8 <= len(raw):
        size = struct.unpack_from("<I", raw, at + 4)[0]
        if at + 8 + size <= len(raw):
            return size
    raise DataError(f"{name}: incomplete zstd frame: the file ends inside a frame that starts at byte {at:,}.")


def _gzip_chunks(raw: memoryview, name: str, *, whole: bool) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        if bytes(raw[at : at + 2]) != b"\x1f\x8b":
            raise DataError(f"{name}: bytes that are no gzip member follow at byte {at:,}. Download it again.")
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            step = raw[at : at + INPUT_STEP]
            if not step:
                _refuse_cut_off(name, "incomplete gzip member", at, whole=whole)
                return
            try:
                decoded = member.decompress(step)
            except zlib.error as error:
                raise DataError(f"{name}: damaged gzip data near byte {at:,} ({error}). Download it again.") from error
            at += len(step)
            if decoded:
                yield decoded
        at -= len(member.unused_data)


def _refuse_cut_off(name: str, what: str, at: int, *, whole: bool) -> None:
    if whole:
        raise DataError(
            f"{name}: {what}: the file ends at byte {at:,} before its archive does, so rows are missing. "
            "The download was interrupted; download it again."
        )


def _zip_chunks(path: Path) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if len(members) != 1:
                names = ", ".join(info.filename for info in members[:6])
                raise DataError(f"{path.name}: zip holds {len(members)} files ({names}); one is needed. Unpack it.")
            with archive.open(members[0]) as stream:
                yield from iter(lambda: stream.read(OUTPUT_STEP), b"")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{path.name}: damaged or encrypted zip ({error}). Download or unpack it again.") from error
