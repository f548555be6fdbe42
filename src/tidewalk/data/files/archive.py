"""Compressed streams (zstd, gzip, zip members) as decoded pieces of bounded size.

Input is read from disk in steps and decoded in steps, so that a file takes no more memory than a piece of it. An
archive that ends early, is damaged or goes on after its end is refused: the usual readers hand out what they have of a
half-finished download without a word.
"""

import functools
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import zstandard

from tidewalk.core.errors import DataError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # a member, and the end record of an archive of none
SKIPPABLE_MAGIC_TAIL = b"\x2a\x4d\x18"  # after a first byte 0x50-0x5f; zstd format, RFC 8878 section 3.1.2

READ_STEP = 1 << 18
OUTPUT_STEP = 1 << 20
INPUT_STEP = 2048  # compressed bytes per zstd step: a block of 4 bytes may decode to 128 KiB, so one step to 64 MiB
MAX_WINDOW_BYTES = 1 << 27  # what `zstd -d` takes without a flag; the history a frame may ask a reader to hold
MAX_MEMBERS = 10_000
ENCRYPTED = 0x1  # flag bit of a zip member
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, RuntimeError),
    *(ValueError, OverflowError, LookupError, OSError),
)


class CutOffError(DataError):
    """The file ends before its archive does; what was decoded until then is good."""


def is_skippable(magic: bytes) -> bool:
    """Whether four bytes begin a zstd frame that holds no data."""
    return len(magic) == 4 and _may_be_skippable(magic)


def _may_be_skippable(magic: bytes) -> bool:
    return 0x50 <= magic[0] <= 0x5F and SKIPPABLE_MAGIC_TAIL.startswith(magic[1:])


def container_of(magic: bytes) -> str:
    """Container that the first four bytes tell: "zstd", "gzip", "zip", or "" for none."""
    if magic == ZSTD_MAGIC or is_skippable(magic):
        return "zstd"
    if magic[:2] == GZIP_MAGIC:
        return "gzip"
    return "zip" if magic in ZIP_MAGICS else ""


def file_pieces(path: Path) -> Iterator[bytes]:
    """Bytes of a file as they lie on disk."""
    with path.open("rb") as stream:
        yield from iter(lambda: stream.read(READ_STEP), b"")


class _Input:
    """Compressed bytes taken in steps, with a way back for what a finished frame did not use."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._next = 0  # first byte of the piece that is not taken
        self.at = 0

    def take(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        if self._next == len(self._piece):
            self._piece, self._next = next(self._pieces, b""), 0
        taken = self._piece[self._next : self._next + size]
        self._next += len(taken)
        self.at += len(taken)
        return taken

    def give_back(self, size: int) -> None:
        """Put back the last `size` bytes of the last step."""
        self._next -= size
        self.at -= size

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        while len(self._piece) - self._next < size and (piece := next(self._pieces, b"")):
            self._piece, self._next = self._piece[self._next :] + piece, 0
        return self._piece[self._next : self._next + size]

    def rest(self) -> int:
        """Number of bytes until the end."""
        return len(self._piece) - self._next + sum(map(len, self._pieces))


def zstd_pieces(compressed: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Decoded bytes of all frames of a zstd file, skippable frames passed over.

    Raises:
        CutOffError: the file ends inside a frame.
        DataError: damaged frame, a frame that asks for too large a window, or bytes that are no frame.
    """
    source = _Input(compressed)
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    while magic := source.peek(4):
        start = source.at
        if is_skippable(magic):
            _skip(source, name)
        elif magic == ZSTD_MAGIC:
            yield from _zstd_frame(source, decoder, name)
        elif len(magic) < 4 and (ZSTD_MAGIC.startswith(magic) or _may_be_skippable(magic)):
            raise cut_off(name, "incomplete zstd frame", start + len(magic))
        else:
            raise DataError(
                f"{name}: {source.rest():,} bytes that are no zstd frame follow the end of the archive at byte "
                f"{start:,}. The file was appended to or damaged; download it again."
            )


def _zstd_frame(source: _Input, decoder: zstandard.ZstdDecompressor, name: str) -> Iterator[bytes]:
    frame = decoder.decompressobj()
    while not frame.eof:
        step = source.take(INPUT_STEP)
        if not step:
            raise cut_off(name, "incomplete zstd frame", source.at)
        try:
            decoded = frame.decompress(step)
        except (zstandard.ZstdError, MemoryError) as error:
            near = source.at - len(step)
            raise DataError(f"{name}: damaged zstd frame near byte {near:,} ({error}). Download it again.") from error
        if decoded:
            yield decoded
    source.give_back(len(frame.unused_data))


def _skip(source: _Input, name: str) -> None:
    start, head = source.at, source.peek(8)
    left = 8 + (struct.unpack_from("<I", head, 4)[0] if len(head) == 8 else 0)
    while left and (step := source.take(left)):
        left -= len(step)
    if left or len(head) < 8:
        raise cut_off(name, "incomplete zstd frame", start + len(head))


def gzip_pieces(compressed: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Decoded bytes of all members of a gzip file.

    Raises:
        CutOffError: the file ends inside a member.
        DataError: damaged member, or bytes that are no member.
    """
    source = _Input(compressed)
    while magic := source.peek(2):
        if magic != GZIP_MAGIC and len(magic) == 2:
            at = source.at
            raise DataError(f"{name}: bytes that are no gzip member follow at byte {at:,}. Download it again.")
        yield from _gzip_member(source, name)


def _gzip_member(source: _Input, name: str) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    while not member.eof:
        step = member.unconsumed_tail or source.take(READ_STEP)
        if not step:
            raise cut_off(name, "incomplete gzip member", source.at)
        try:
            decoded = member.decompress(step, OUTPUT_STEP)
        except zlib.error as error:
            near = source.at - len(step)
            raise DataError(f"{name}: damaged gzip data near byte {near:,} ({error}). Download it again.") from error
        if decoded:
            yield decoded
    source.give_back(len(member.unused_data))


def cut_off(name: str, what: str, at: int) -> CutOffError:
    """The error for a file that ends at byte `at` inside its archive."""
    return CutOffError(
        f"{name}: {what}: the file ends at byte {at:,} before its archive does, so rows are missing. The download was "
        "interrupted; download it again."
    )


def member_names(path: Path) -> tuple[str, ...]:
    """Names of the files in a zip, in the order of the archive; folders and a Mac's resource forks left out.

    Raises:
        DataError: damaged zip, an absurd number of members, or two members of one name.
    """
    names = _directory(path)
    return tuple(name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/"))


def zip_pieces(path: Path, member: str) -> Iterator[bytes]:
    """Decoded bytes of one member of a zip; its size and checksum are compared at the end.

    Raises:
        DataError: damaged or encrypted, of a compression other than deflate, or no such member.
    """
    name, info = f"{path.name}!{member}", _directory(path).get(member)
    if info is None:
        raise DataError(f"{path.name}: no member {member} in the zip.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{name}: zip method {info.compress_type} is not read, only deflate. Unpack it.")
    if info.flag_bits & ENCRYPTED:
        raise DataError(f"{name}: the member of the zip is encrypted. Unpack it.")
    size, checksum = 0, 0
    for piece in _inflated(_stored(path, info), name, is_plain=info.compress_type == zipfile.ZIP_STORED):
        size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        yield piece
    if (size, checksum) != (info.file_size, info.CRC):
        raise _damaged_zip(name, f"{size:,} bytes with checksum {checksum:08x}, promised are {info.file_size:,}")


def _directory(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Members of a zip by name. A zip of thousands is asked for each of them, so the last ones are remembered."""
    with path.open("rb") as stream:
        stat = os.fstat(stream.fileno())
        stream.seek(max(stat.st_size - 4096, 0))
        return _parsed_directory(path, stat.st_size, stat.st_mtime_ns, stream.read())


@functools.lru_cache(maxsize=8)
def _parsed_directory(path: Path, _size: int, _mtime_ns: int, _tail: bytes) -> dict[str, zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except ZIP_ERRORS as error:
        raise _damaged_zip(path.name, str(error) or type(error).__name__) from error
    if len(infos) > MAX_MEMBERS:
        raise DataError(f"{path.name}: zip of {len(infos):,} members; at most {MAX_MEMBERS:,} are read. Unpack it.")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if info.filename in found:
            raise DataError(f"{path.name}: zip with two members of the name {info.filename}. Unpack it and keep one.")
        found[info.filename] = info
    return found


def _stored(path: Path, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Bytes of a member as they lie in the zip, behind its local header (30 bytes, name, extra field)."""
    name = f"{path.name}!{info.filename}"
    with path.open("rb") as stream:
        stream.seek(max(info.header_offset, 0))
        head = stream.read(30)
        if info.header_offset < 0 or len(head) < 30 or head[:4] != ZIP_MAGICS[0]:
            raise _damaged_zip(name, f"no member begins at byte {info.header_offset:,}")
        stream.seek(sum(struct.unpack_from("<HH", head, 26)), os.SEEK_CUR)
        left = info.compress_size
        while left and (piece := stream.read(min(left, READ_STEP))):
            left -= len(piece)
            yield piece


def _inflated(stored: Iterator[bytes], name: str, *, is_plain: bool) -> Iterator[bytes]:
    if is_plain:
        yield from stored
        return
    member = zlib.decompressobj(wbits=-15)
    while not member.eof:
        step = member.unconsumed_tail or next(stored, b"")  # output may be waiting when all input is taken
        try:
            decoded = member.decompress(step, OUTPUT_STEP)
        except zlib.error as error:
            raise _damaged_zip(name, str(error)) from error
        if decoded:
            yield decoded
        elif not step:
            return


def _damaged_zip(name: str, reason: str) -> DataError:
    return DataError(f"{name}: damaged or encrypted zip ({reason}). Download or unpack it again.")
