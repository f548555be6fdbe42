"""Delimited text: header, separator, and lines that do not fit."""

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from data.market_files import csv_text, put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.files.source import probe
from tidewalk.data.text.csv import Layout, sniff
from tidewalk.data.text.frames import text_frames

HEADER = "datetime,open,high,low,close,volume"


def layout_of(folder: Path, content: bytes | str) -> Layout:
    return sniff(probe(put(folder, "es.csv", content)))


def frame_of(folder: Path, content: bytes | str) -> pl.DataFrame:
    source = probe(put(folder, "es.csv", content))
    return pl.concat([frame.columns for frame in text_frames(source, sniff(source))])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_separators_are_found(tmp_path: Path, delimiter: str) -> None:
    text = csv_text().replace(",", delimiter)
    assert layout_of(tmp_path, text).delimiter == delimiter
    assert frame_of(tmp_path, text).row(0) == ("2024-01-02 15:00:00+00:00", "4800.25", "4802", "4799", "4801.5", "10")


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.rstrip("\n").encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: zst(text.encode(), frames=2),
        lambda text: f"Exported by Någon\n\n{text}".encode("latin-1"),
    ],
)
def test_encodings_and_line_ends_give_the_same_rows(tmp_path: Path, encode: Callable[[str], bytes]) -> None:
    plain = frame_of(tmp_path, csv_text())
    assert frame_of(tmp_path, encode(csv_text())).equals(plain)


def test_lines_before_the_header_are_passed_over(tmp_path: Path) -> None:
    layout = layout_of(tmp_path, "Instrument: ES\nZone: UTC\n\n" + csv_text())
    assert (layout.header_line, layout.names) == (4, tuple(HEADER.split(",")))


def test_padded_and_quoted_names_are_understood(tmp_path: Path) -> None:
    layout = layout_of(tmp_path, csv_text(columns='"Date Time", "Open" , High,Low, Close ,Volume'))
    assert layout.columns.open == 1
    assert layout.columns.stamp == 0


def test_blank_lines_keep_their_row_number(tmp_path: Path) -> None:
    text = csv_text(3).replace("\n", "\n\n", 2)
    assert frame_of(tmp_path, text)["0"].is_null().to_list() == [True, False, True, False, False]


def test_quoted_fields_may_hold_the_separator(tmp_path: Path) -> None:
    line = '"Apr 08, 2019","2,890.88","2,897.62","2,880.00","2,884.38","1.2M"\n'
    assert frame_of(tmp_path, f"{HEADER}\n{line}").row(0)[:2] == ("Apr 08, 2019", "2,890.88")


def test_missing_header_whose_form_does_not_tell_is_refused(tmp_path: Path) -> None:
    data = "".join(f"2024-01-02 15:0{i}:00,4800,4790,4810,4800,10\n" for i in range(5))
    with pytest.raises(DataError, match=r"es\.csv: no header line: the file begins with data \(2024-01-02 15:00"):
        layout_of(tmp_path, data)


def test_unknown_columns_are_refused_with_those_found(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"columns found: w, x, y, z; missing: open, high, low, close\. Needed"):
        layout_of(tmp_path, "w,x,y,z\n1,2,3,x\n")
    with pytest.raises(DataError, match=r"columns found: time, close; missing: open, high, low\. Closes alone"):
        layout_of(tmp_path, "time,close\n2024-01-02,1\n")


def test_missing_time_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no time column among open, high, low, close, note"):
        layout_of(tmp_path, "open,high,low,close,note\n1,2,1,2,x\n")


def test_time_column_without_a_name_is_found_by_its_values(tmp_path: Path) -> None:
    layout = layout_of(tmp_path, csv_text(columns=",open,high,low,close,volume"))
    assert layout.columns.stamp == 0
    shifted = "," + csv_text(columns="Time,Open,High,Low,Close,Volume").replace("\n2", "\n7,2")
    assert layout_of(tmp_path, shifted).columns.stamp == 1


def test_three_line_header_of_yahoo(tmp_path: Path) -> None:
    text = "Price,Close,High,Low,Open,Volume\nTicker,ES=F,ES=F,ES=F,ES=F,ES=F\nDate,,,,,\n"
    layout = layout_of(tmp_path, text + "2000-09-18,1467.5,1489.75,1462.25,1485.25,104794\n" * 5)
    assert (layout.columns.stamp, layout.columns.close, layout.columns.open) == (0, 1, 4)


def test_header_without_a_name_for_the_time_of_day(tmp_path: Path) -> None:
    text = "Date,Open,High,Low,Close,Volume,OpenInterest\n" + "2006-01-02,09:01:00,3602.00,3603,3597,3599,5699,0\n" * 3
    layout = layout_of(tmp_path, text)
    assert (layout.columns.stamp, layout.columns.time, layout.columns.open) == (0, 1, 2)
    assert (layout.dialect.name, layout.dialect.close_labelled) == ("VisualChart", True)
    assert "no name for the second column" in layout.findings[1].text


def test_separator_at_the_end_of_lines_is_tolerated(tmp_path: Path) -> None:
    head, rest = csv_text().split("\n", 1)
    assert len(frame_of(tmp_path, f"{head}\n{rest.replace(chr(10), ',' + chr(10))}")) == 5


def test_line_with_too_many_fields_is_refused_with_its_number(tmp_path: Path) -> None:
    lines = csv_text(5).split("\n")
    lines[3] += ",99"
    with pytest.raises(DataError, match=r"es\.csv row 4: 7 fields, and the file has 6 columns \(datetime, open"):
        frame_of(tmp_path, "\n".join(lines))


def test_open_quote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a quote may be left open"):
        frame_of(tmp_path, csv_text(3) + '"2024-01-02 15:03:00,1,2,1,2,3\n')


def test_several_tickers_side_by_side_are_refused(tmp_path: Path) -> None:
    rows = "2024-01-02 15:00:00+00:00,4801,17001,4802,17002,4799,16999,4800,17000,1,2\n" * 3
    names = "Price,Close,Close,High,High,Low,Low,Open,Open,Volume,Volume\n"
    tickers = "Ticker,ES=F,NQ=F,ES=F,NQ=F,ES=F,NQ=F,ES=F,NQ=F,ES=F,NQ=F\n"
    for head in (names + tickers + "Datetime" + "," * 10 + "\n", tickers + names):
        with pytest.raises(DataError, match=r"several instruments side by side \(ES=F, NQ=F\)"):
            sniff(probe(put(tmp_path, "two.csv", head + rows)))
    one = names.replace("Price", "Datetime").replace(",Close,Close,", ",Close,X,") + tickers.replace("NQ", "ES") + rows
    sniff(probe(put(tmp_path, "one.csv", one)))


def test_missing_columns_name_the_option(tmp_path: Path) -> None:
    path = put(tmp_path, "de.csv", csv_text(3, "Datum,Anfang,Hoch,Tief,Schluss,Menge"))
    with pytest.raises(DataError, match=r"Datum, Anfang.*--columns"):
        sniff(probe(path))
