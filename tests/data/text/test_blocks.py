"""Text files as blocks of whole lines, in any encoding and of any size."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.market_files import put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.files.archive import CutOffError
from tidewalk.data.files.source import HEAD_BYTES, probe
from tidewalk.data.text.blocks import MAX_LINE_BYTES, blocks, first_lines, split_line

TEXT = "".join(f"line {number},å\n" for number in range(5_000))


def whole(folder: Path, content: bytes, block_bytes: int = 1 << 14) -> bytes:
    return b"".join(blocks(probe(put(folder, "es.csv", content)), block_bytes))


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
        lambda text: zst(text.encode(), frames=3),
    ],
)
def test_every_encoding_gives_the_same_lines(tmp_path: Path, encode: Callable[[str], bytes]) -> None:
    assert whole(tmp_path, encode(TEXT)) == TEXT.encode()
    assert first_lines(probe(tmp_path / "es.csv"), 3) == ["line 0,å", "line 1,å", "line 2,å"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(alphabet="a,\n\r", min_size=1, max_size=60), st.integers(min_value=1, max_value=8))
def test_blocks_end_with_lines_and_lose_nothing(tmp_path: Path, text: str, block_bytes: int) -> None:
    source = probe(put(tmp_path, "es.csv", text))
    parts = list(blocks(source, block_bytes))
    assert b"".join(parts).decode() == text.replace("\r\n", "\n").replace("\r", "\n")
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_line_ends_split_between_pieces(tmp_path: Path) -> None:
    lines = "x" * ((1 << 20) - 1) + "\r\nsecond\r\n"  # the pieces of a plain file are 1 MiB
    assert whole(tmp_path, lines.encode()).count(b"\n") == 2


def test_first_lines_reach_beyond_the_head_and_are_whole(tmp_path: Path) -> None:
    long = ",".join(["0123456789"] * (HEAD_BYTES // 5)) + "\n"
    lines = first_lines(probe(put(tmp_path, "es.csv", long * 3)), 2)
    assert [len(line) for line in lines] == [len(long) - 1] * 2
    assert first_lines(probe(put(tmp_path, "es.csv", "a\nb")), 9) == ["a", "b"]


def test_endless_line_is_refused_before_it_is_held(tmp_path: Path) -> None:
    put(tmp_path, "es.csv", zst(b"7" * (4 * MAX_LINE_BYTES)))
    with pytest.raises(DataError, match=r"es\.csv: a line of more than 8,388,608 bytes"):
        first_lines(probe(tmp_path / "es.csv"), 3)
    with pytest.raises(DataError, match="a line of more than"):
        list(blocks(probe(tmp_path / "es.csv"), 1 << 16))


def test_nul_bytes_are_refused_with_the_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="NUL bytes near row 5,001: the file is damaged"):
        whole(tmp_path, TEXT.encode() + b"\0" * 100)


def test_archive_that_is_cut_off_gives_its_whole_lines_first(tmp_path: Path) -> None:
    source = probe(put(tmp_path, "es.csv", zst(TEXT.encode(), frames=4)[:-20]))
    read = bytearray()

    def read_on() -> None:
        for block in blocks(source, 1 << 12):
            read.extend(block)

    with pytest.raises(CutOffError):
        read_on()
    assert TEXT.encode().startswith(read)
    assert read.endswith(b"\n")
    assert len(read) > len(TEXT) // 2


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("a, b ,c", ("a", "b", "c")),
        ('"a","b,c", "d"', ("a", "b,c", "d")),
        ('"open', ("open",)),
        ("x" * 200_000 + ',"y"', ("x" * 200_000, "y")),  # beyond the field limit of the csv module
        ("", ("",)),
    ],
)
def test_fields_of_a_line(line: str, fields: tuple[str, ...]) -> None:
    assert split_line(line, ",") == fields
