"""Compressed streams: whole or refused, never more memory than a piece."""

import gzip
import io
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.files import archive
from tidewalk.data.files.archive import CutOffError, gzip_pieces, member_names, zip_pieces, zstd_pieces

SKIPPED = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"meta"


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as written:
        for name, content in members.items():
            written.writestr(name, content)
    return buffer.getvalue()


def cut_into(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 1))
def test_frames_in_any_pieces_give_their_bytes(parts: list[bytes], size: int, step: int, skips: int) -> None:
    frames = b"".join(zst(part) + SKIPPED * skips for part in parts)
    members = b"".join(gzip.compress(part, 1) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "INPUT_STEP", step)
        patch.setattr(archive, "READ_STEP", step)
        patch.setattr(archive, "OUTPUT_STEP", step)
        assert b"".join(zstd_pieces(iter(cut_into(frames, size)), "a")) == b"".join(parts)
        assert b"".join(gzip_pieces(iter(cut_into(members, size)), "a")) == b"".join(parts)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400), st.integers(1, 40))
def test_every_cut_is_seen(content: bytes, cut: int, size: int) -> None:
    for pieces, whole in ((zstd_pieces, zst(content) + SKIPPED), (gzip_pieces, gzip.compress(content))):
        kept = whole[: max(len(whole) - cut, 1)]
        if pieces is zstd_pieces and len(kept) == len(whole) - len(SKIPPED):
            continue  # the end of a frame
        with pytest.raises(CutOffError, match="the file ends at byte"):
            list(pieces(iter(cut_into(kept, size)), "a"))


def test_window_beyond_the_limit_is_refused() -> None:
    params = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=params).compressobj()
    frame = compressor.compress(b"x" * 100) + compressor.flush()
    with pytest.raises(DataError, match=r"damaged zstd frame near byte 0 .*memory"):
        list(zstd_pieces(iter([frame]), "a"))


def test_declared_size_takes_no_memory() -> None:
    # Frame header: descriptor with an 8-byte content size, window of 1 kB, 2^62 bytes promised, no block.
    frame = b"\x28\xb5\x2f\xfd" + b"\xc0" + b"\x00" + struct.pack("<Q", 2**62)
    tracemalloc.start()
    with pytest.raises(CutOffError):
        list(zstd_pieces(iter([frame]), "a"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_bomb_comes_in_bounded_pieces() -> None:
    zeros = zstandard.ZstdCompressor(level=1).compress(bytes(512 << 20))
    largest = max(len(piece) for piece in zstd_pieces(iter(cut_into(zeros, 1 << 16)), "a"))
    assert largest <= archive.INPUT_STEP // 4 * (128 << 10)
    packed = gzip.compress(bytes(64 << 20), 9)
    assert max(len(piece) for piece in gzip_pieces(iter([packed]), "a")) <= archive.OUTPUT_STEP


def test_many_small_frames_take_linear_time() -> None:
    frames = zst(b"") * 40_000
    start = time.process_time()
    assert list(zstd_pieces(iter([frames]), "a")) == []
    assert time.process_time() - start < 8


def test_members_of_a_zip(tmp_path: Path) -> None:
    content = {"2024/es.csv": b"a", "__MACOSX/es.csv": b"b", "folder/": b"", "2024/nq.csv": b"c"}
    path = put(tmp_path, "a.zip", zipped(content))
    assert member_names(path) == ("2024/es.csv", "2024/nq.csv")
    assert b"".join(zip_pieces(path, "2024/nq.csv")) == b"c"
    with pytest.raises(DataError, match=r"a\.zip: no member gone\.csv"):
        list(zip_pieces(path, "gone.csv"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        written.writestr("es.csv", b"1")
        written.writestr("es.csv", b"2")
    with pytest.raises(DataError, match=r"two members of the name es\.csv"):
        member_names(put(tmp_path, "a.zip", buffer.getvalue()))


def test_absurd_number_of_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    path = put(tmp_path, "a.zip", zipped({str(number): b"" for number in range(4)}))
    with pytest.raises(DataError, match="zip of 4 members; at most 3 are read"):
        member_names(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_allocate_what_the_file_asks_are_refused(tmp_path: Path, method: int) -> None:
    path = put(tmp_path, "a.zip", zipped({"es.csv": b"text"}, method))
    with pytest.raises(DataError, match=rf"a\.zip!es\.csv: zip method {method} is not read"):
        list(zip_pieces(path, "es.csv"))


def test_members_of_a_large_zip_take_linear_time(tmp_path: Path) -> None:
    path = put(tmp_path, "a.zip", zipped({f"{number}.csv": b"x" * number for number in range(2_000)}))
    start = time.process_time()
    for number, name in enumerate(member_names(path)):
        assert sum(map(len, zip_pieces(path, name))) == number
    assert time.process_time() - start < 8


@given(st.binary(max_size=400), st.binary(max_size=400), st.integers(1, 50))
def test_members_are_those_of_the_standard_library(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes, step: int
) -> None:
    folder = tmp_path_factory.mktemp("zip")
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = put(folder, f"{method}.zip", b"before" + zipped({"a/ä.csv": first, "b": second}, method))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archive, "READ_STEP", step)
            patch.setattr(archive, "OUTPUT_STEP", step)
            assert [b"".join(zip_pieces(path, name)) for name in member_names(path)] == [first, second]


@pytest.mark.parametrize("step", [1, 7, 100, 1000])
@pytest.mark.parametrize("size", [1, 258, 259, 1000, 1001, 1259, 3000])
def test_output_that_waits_inside_the_decoder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, size: int
) -> None:
    monkeypatch.setattr(archive, "OUTPUT_STEP", step)
    for pattern in (b"\0", b"ab", bytes(range(256))):
        content = (pattern * size)[:size]
        path = put(tmp_path, "a.zip", zipped({"es.csv": content}))
        assert b"".join(zip_pieces(path, "es.csv")) == content
        assert b"".join(gzip_pieces(iter([gzip.compress(content)]), "a")) == content


def test_member_cut_short_or_moved_is_refused(tmp_path: Path) -> None:
    content = zipped({"es.csv": b"text" * 500, "nq.csv": b"other" * 500})
    directory = content.index(b"PK\x01\x02")
    for offset, what in ((20, r"\(.* bytes with checksum"), (42, r"\(no member begins at byte 7")):
        damaged = bytearray(content)  # its compressed size, its place
        damaged[directory + offset : directory + offset + 4] = struct.pack("<I", 7)
        with pytest.raises(DataError, match=rf"a\.zip!es\.csv: damaged or encrypted zip {what}"):
            list(zip_pieces(put(tmp_path, "a.zip", bytes(damaged)), "es.csv"))


def test_directory_that_points_before_the_file_is_refused(tmp_path: Path) -> None:
    damaged = bytearray(zipped({"es.csv": b"text"}))
    end = damaged.index(b"PK\x05\x06")
    damaged[end + 16 : end + 20] = struct.pack("<I", 500)  # where the directory is said to start
    with pytest.raises(DataError, match=r"no member begins at byte -\d"):
        list(zip_pieces(put(tmp_path, "a.zip", bytes(damaged)), "es.csv"))


def test_rewritten_zip_is_read_anew(tmp_path: Path) -> None:
    for content in (b"aaaa", b"bbbb"):
        assert b"".join(zip_pieces(put(tmp_path, "a.zip", zipped({"es.csv": content})), "es.csv")) == content


def test_encrypted_and_damaged_members_are_refused(tmp_path: Path) -> None:
    content = bytearray(zipped({"es.csv": b"text" * 50}, zipfile.ZIP_STORED))
    locked = bytearray(content)
    for place in (6, content.index(b"PK\x01\x02") + 8):  # general purpose flags, here and in the directory
        locked[place] |= 1
    with pytest.raises(DataError, match=r"a\.zip!es\.csv: the member of the zip is encrypted"):
        list(zip_pieces(put(tmp_path, "a.zip", bytes(locked)), "es.csv"))
    content[60] ^= 1
    with pytest.raises(DataError, match=r"damaged or encrypted zip \(200 bytes with checksum"):
        list(zip_pieces(put(tmp_path, "a.zip", bytes(content)), "es.csv"))
