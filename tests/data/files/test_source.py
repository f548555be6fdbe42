"""Containers: what is inside, whole or not at all."""

import gzip
import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from data.market_files import bars, dbn, put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.dbn.bars import read_rows
from tidewalk.data.dbn.labels import read_header
from tidewalk.data.files import source as source_module
from tidewalk.data.files.source import members, pieces, probe, read_all, read_start

TEXT = b"time,open,high,low,close\n" * 200


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "container", "kind"),
    [
        (TEXT, "", "text"),
        (zst(TEXT), "zstd", "text"),
        (zst(TEXT, frames=3), "zstd", "text"),
        (gzip.compress(TEXT), "gzip", "text"),
        (gzip.compress(TEXT) + gzip.compress(TEXT), "gzip", "text"),
        (zipped(a=TEXT), "zip", "text"),
        (dbn([]), "", "dbn"),
        (zst(dbn([])), "zstd", "dbn"),
        (b"", "", "empty"),
        (zst(b""), "zstd", "empty"),
        (b"PAR1....", "", "parquet"),
        (zipped(a=b"PAR1...."), "zip", "parquet"),
        (zipped(a=zst(TEXT)), "zip zstd", "text"),
        (zipped(a=gzip.compress(TEXT)), "zip gzip", "text"),
        (zipped(a=zipped(b=TEXT)), "zip", "zip"),
        (gzip.compress(zst(TEXT)), "gzip", "binary"),
        (b"ARROW1\0\0", "", "arrow"),
        ("a,b".encode("utf-16"), "", "text"),
        (b"\x01\0\x02", "", "binary"),
    ],
)
def test_content_is_told_by_bytes_not_by_name(tmp_path: Path, content: bytes, container: str, kind: str) -> None:
    source = probe(put(tmp_path, "misleading.pdf", content))
    assert (source.container, source.content) == (container, kind)


def test_pre_dbn_and_fragment_are_named(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"meta"
    assert probe(put(tmp_path, "a.dbz", skippable + zst(b"\0\x01" * 50))).content == "dbz"
    assert probe(put(tmp_path, "a.csv.zst", skippable + zst(TEXT))).content == "text"
    assert probe(put(tmp_path, "a.dbn.frag.zst", zst(b"\0\x01" * 50))).content == "dbn fragment"


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_all_zstd_frames_are_read(tmp_path: Path, frames: int) -> None:
    source = probe(put(tmp_path, "a.zst", zst(TEXT, frames=frames)))
    assert read_all(source) == TEXT
    assert read_start(source, 7) == TEXT[:7]


def test_gzip_members_and_zip_are_read_whole(tmp_path: Path) -> None:
    assert read_all(probe(put(tmp_path, "a.gz", gzip.compress(TEXT) + gzip.compress(b"more")))) == TEXT + b"more"
    assert read_all(probe(put(tmp_path, "a.zip", zipped(a=TEXT)))) == TEXT


@settings(deadline=None)  # the machine may be busy
@given(cut=st.integers(min_value=1, max_value=2_000))
def test_cut_off_zstd_is_refused_wherever_it_is_cut(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = zst(dbn(bars(100, 200)), level=1)
    path = put(tmp_path_factory.mktemp("cut"), "a.dbn.zst", whole[: max(len(whole) - cut, 10)])
    with pytest.raises(DataError, match=r"a\.dbn\.zst: incomplete zstd frame: the file ends at byte"):
        read_all(probe(path))


def test_second_frame_cut_off_inside_its_magic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="incomplete zstd frame: the file ends at byte"):
        read_all(probe(put(tmp_path, "a.zst", zst(TEXT) + zst(TEXT)[:3])))


def test_cut_off_gzip_and_zip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="incomplete gzip member"):
        read_all(probe(put(tmp_path, "a.gz", gzip.compress(TEXT)[:-9])))
    with pytest.raises(DataError, match="damaged or encrypted zip"):
        probe(put(tmp_path, "a.zip", zipped(a=TEXT)[:-20]))


def test_bytes_after_the_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="5 bytes that are no zstd frame follow the end of the archive"):
        read_all(probe(put(tmp_path, "a.zst", zst(TEXT) + b"extra")))
    with pytest.raises(DataError, match="no gzip member"):
        read_all(probe(put(tmp_path, "a.gz", gzip.compress(TEXT) + b"extra")))


def test_damaged_archive_is_refused_with_its_place(tmp_path: Path) -> None:
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    damaged = bytearray(compressor.compress(bytes(range(256)) * 400))
    damaged[-1] ^= 1  # the checksum
    with pytest.raises(DataError, match=r"a\.zst: damaged zstd frame near byte"):
        read_all(probe(put(tmp_path, "a.zst", bytes(damaged))))
    broken = bytearray(gzip.compress(TEXT))
    broken[-6] ^= 1
    with pytest.raises(DataError, match="damaged gzip data near byte"):
        read_all(probe(put(tmp_path, "a.gz", bytes(broken))))


def test_zip_of_several_files_lists_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"zip holds 2 files \(a, b\); one is needed"):
        probe(put(tmp_path, "a.zip", zipped(a=TEXT, b=TEXT)))


def test_bomb_stops_at_the_cap(tmp_path: Path) -> None:
    # 256 MiB of zeros in 8 kB.
    bomb = zstandard.ZstdCompressor(level=1).compress(b"DBN" + bytes(256 << 20))
    assert len(bomb) < 32_000
    source = probe(put(tmp_path, "a.dbn.zst", bomb))
    with pytest.raises(DataError, match=r"decodes to more than 1,048,576 bytes \(compressed:"):
        read_all(source, max_bytes=1 << 20)


def test_file_that_vanishes_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a.csv", TEXT)
    source = probe(path)

    def fail(_: Path) -> Iterator[bytes]:
        raise OSError(5, "Input/output error")
        yield b""

    monkeypatch.setattr(source_module, "file_pieces", fail)
    with pytest.raises(DataError, match=r"a\.csv: cannot be read \(Input/output error\)"):
        read_all(source)


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: cannot be read"):
        probe(tmp_path / "gone.csv")


def test_batch_download_is_a_zip_of_compressed_files(tmp_path: Path) -> None:
    content = dbn(bars(100, 50))
    path = put(tmp_path, "GLBX-20240105.zip", zipped(**{"a/jan.dbn.zst": zst(content, frames=2), "feb.dbn": content}))
    assert members(path) == ("a/jan.dbn.zst", "feb.dbn")
    for member, container in (("a/jan.dbn.zst", "zip zstd"), ("feb.dbn", "zip")):
        source = probe(path, member)
        assert (source.name, source.container) == (f"GLBX-20240105.zip!{member}", container)
        assert read_all(source) == content
        assert len(read_rows(source, read_header(source), ["ESH4"], 0).rows["ESH4"].row) == 50


def test_cut_off_member_is_refused_under_its_name(tmp_path: Path) -> None:
    path = put(tmp_path, "a.zip", zipped(**{"es.dbn.zst": zst(dbn(bars(100, 50)))[:-4]}))
    with pytest.raises(DataError, match=r"^a\.zip!es\.dbn\.zst: incomplete zstd frame"):
        read_all(probe(path, "es.dbn.zst"))


def test_only_a_zip_has_members(tmp_path: Path) -> None:
    assert members(put(tmp_path, "a.csv", TEXT)) == ()
    empty = put(tmp_path, "b.zip", zipped())
    assert members(empty) == ()
    with pytest.raises(DataError, match="zip holds 0 files; one is needed"):
        probe(empty)


def test_absurd_ratio_is_refused_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "RATIO_FLOOR_BYTES", 1 << 20)
    bomb = zstandard.ZstdCompressor(level=1).compress(b"DBN" + bytes(256 << 20))
    with pytest.raises(DataError, match="decodes to more than"):
        for _ in pieces(probe(put(tmp_path, "a.dbn.zst", bomb))):
            pass
    assert sum(map(len, pieces(probe(put(tmp_path, "a.dbn", bytes(2 << 20)))))) == 2 << 20  # nothing is compressed
