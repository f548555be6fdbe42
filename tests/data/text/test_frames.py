"""Rows of text files: block by block as at once, and lines that do not fit are refused."""

from pathlib import Path

import polars as pl
import pytest

from data.market_files import csv_text, put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.files.source import probe
from tidewalk.data.text.csv import TextOptions, sniff
from tidewalk.data.text.frames import TextFrame, text_frames
from tidewalk.data.text.table import open_table, parse_table


def frames(folder: Path, content: str | bytes, block_bytes: int = 1 << 20, **options: bool) -> list[TextFrame]:
    source = probe(put(folder, "es.csv", content))
    return list(text_frames(source, sniff(source, TextOptions(**options)), block_bytes))  # pyright: ignore


@pytest.mark.parametrize("block_bytes", [1, 50, 333, 1 << 12])
def test_blocks_of_any_size_give_the_same_rows(tmp_path: Path, block_bytes: int) -> None:
    text = "# made by hand\n" + csv_text(200).replace("\n", "\n\n", 7) + "the end\n"
    whole, parts = frames(tmp_path, text)[0], frames(tmp_path, text, block_bytes)
    assert len(parts) > 1
    assert pl.concat([part.columns for part in parts]).equals(whole.columns)
    ends = [part.first_row + len(part.columns) for part in parts]
    assert [part.first_row for part in parts[1:]] == ends[:-1]


def test_only_used_columns_are_kept(tmp_path: Path) -> None:
    columns = "datetime,note,open,high,low,close,volume"
    text = csv_text(3, columns).replace("+00:00,", "+00:00,x,")
    assert frames(tmp_path, text)[0].columns.columns == ["0", "2", "3", "4", "5", "6"]


def test_file_of_a_hundred_thousand_columns(tmp_path: Path) -> None:
    extra = 100_000
    head, *lines = csv_text(3).splitlines()
    text = head + "".join(f",c{i}" for i in range(extra)) + "\n" + "".join(f"{line}{',1' * extra}\n" for line in lines)
    parsed = parse_table(open_table(probe(put(tmp_path, "es.csv", text))))
    assert len(parsed.rows.row) == 3


def test_line_with_too_many_fields_is_refused_unless_it_is_no_bar(tmp_path: Path) -> None:
    lines = csv_text(5).splitlines()
    with pytest.raises(DataError, match=r"es\.csv row 4: 7 fields, and the file has 6 columns \(datetime, open"):
        frames(tmp_path, "\n".join([*lines[:3], lines[3] + ",99", *lines[4:]]))
    footer = "# sum, 1, 2, 3, 4, 5, 6, 7, 8"
    assert len(frames(tmp_path, "\n".join([*lines, footer]) + "\n")[0].columns) == 6


@pytest.mark.parametrize("bad", ['"2024-01-02 15:09:00,1,2,1,2,3', '2024-01-02 15:09:00,"1,2,1,2,3'])
def test_quote_left_open_is_refused_with_its_row(tmp_path: Path, bad: str) -> None:
    lines = csv_text(6).splitlines()
    lines[3] = bad
    with pytest.raises(DataError, match=r"es\.csv row 4: a quote may be left open"):
        frames(tmp_path, "\n".join(lines) + "\n")


def test_field_over_two_lines_is_refused_for_rows_would_be_miscounted(tmp_path: Path) -> None:
    lines = csv_text(6).splitlines()
    lines[3:3] = ['2024-01-02 15:09:00,1,"2', '2",1,2,3']
    with pytest.raises(DataError, match=r"es\.csv row 4: a quote may be left open"):
        frames(tmp_path, "\n".join(lines) + "\n")


def test_file_that_ends_inside_a_row_is_refused_or_cut(tmp_path: Path) -> None:
    text = csv_text(5)
    cut = text[: text.rindex(",4805.5") + 3]
    with pytest.raises(DataError, match=r"es\.csv row 6: the file ends inside this row.*--allow-truncated"):
        frames(tmp_path, cut)
    last = frames(tmp_path, cut, allow_truncated=True)[-1]
    assert len(last.columns) == 4
    assert (last.findings[0].defect, last.findings[0].is_warning) == ("truncated-records", True)
    assert len(frames(tmp_path, text.rstrip("\n"))[0].columns) == 5


def test_archive_that_is_cut_off_is_refused_or_used_to_its_last_row(tmp_path: Path) -> None:
    content = zst(csv_text(40_000).encode(), frames=5)[:-500]
    with pytest.raises(DataError, match="incomplete zstd frame"):
        frames(tmp_path, content)
    parts = frames(tmp_path, content, allow_truncated=True)
    assert sum(len(part.columns) for part in parts) > 30_000
    assert parts[-1].findings[0].defect == "truncated-archive"


def test_bytes_that_are_no_text_stay_in_their_field(tmp_path: Path) -> None:
    content = csv_text(2).encode() + b"2024-01-02 15:02:00+00:00,48\xff00,4802,4799,4801,10\n"
    assert frames(tmp_path, content)[0].columns["1"][2] == "48\ufffd00"
