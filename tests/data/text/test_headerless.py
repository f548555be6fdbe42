"""Columns of files without a header, found by their form or named by the user."""

from pathlib import Path

import pytest

from data.market_files import MINUTE_NS, ns, put
from tidewalk.core.errors import DataError
from tidewalk.data.files.source import probe
from tidewalk.data.text.csv import Layout, TextOptions, sniff
from tidewalk.data.text.headerless import columns_by_form
from tidewalk.data.text.table import open_table, parse_table

STAMPS = [f"2024-01-02T15:{minute:02d}" for minute in range(12)]
PRICES = [(100.0 + i, 103.0 + i, 98.0 + i, 101.0 + i) for i in range(12)]


def rows(*order: str) -> list[tuple[str, ...]]:
    """Fields in an order: stamp, o, h, l, c, v, symbol, x (a word), n (a number)."""
    known = [
        {
            "stamp": stamp, "day": stamp[:10], "clock": stamp[11:], "hhmm": stamp[11:].replace(":", ""),
            "o": str(o), "h": str(h), "l": str(low), "c": str(c), "v": str(10 + i),
            "symbol": "ESH4", "x": "a b", "n": "7",
        }
        for i, (stamp, (o, h, low, c)) in enumerate(zip(STAMPS, PRICES, strict=True))
    ]  # fmt: skip
    return [tuple(fields[name] for name in order) for fields in known]


def sniffed(folder: Path, text: str, **options: str) -> Layout:
    return sniff(probe(put(folder, "es.csv", text)), TextOptions(**options))  # pyright: ignore[reportArgumentType]


def joined(lines: list[tuple[str, ...]], delimiter: str = ",") -> str:
    return "".join(delimiter.join(fields) + "\n" for fields in lines)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (("stamp", "o", "h", "l", "c", "v"), "datetime,open,high,low,close,volume"),
        (("stamp", "o", "h", "l", "c"), "datetime,open,high,low,close"),
        (("day", "clock", "o", "h", "l", "c", "v"), "date,time,open,high,low,close,volume"),
        (("symbol", "stamp", "o", "h", "l", "c", "v"), "symbol,datetime,open,high,low,close,volume"),
        (("stamp", "symbol", "o", "h", "l", "c", "v", "n"), "datetime,symbol,open,high,low,close,volume,-"),
        (("stamp", "o", "h", "l", "c", "v", "x"), "datetime,open,high,low,close,volume,-"),
        (("day", "hhmm", "o", "h", "l", "c", "v"), "date,time,open,high,low,close,volume"),
    ],
)
def test_columns_are_found_by_their_form(order: tuple[str, ...], names: str) -> None:
    assert columns_by_form(rows(*order)) == tuple(names.split(","))


@pytest.mark.parametrize(
    "order",
    [
        ("stamp", "o", "l", "h", "c", "v"),  # low before high
        ("stamp", "c", "h", "l", "o", "v"),  # close before open: each open is far from the close before it
        ("stamp", "n", "o", "h", "l", "c", "v"),
        ("o", "h", "l", "c", "v"),
        ("stamp", "o", "h", "l"),
        ("stamp", "n", "n", "n", "n", "n"),  # flat bars show no order
        ("x", "x", "x", "x"),
    ],
)
def test_columns_of_another_form_are_not_guessed(order: tuple[str, ...]) -> None:
    assert columns_by_form(rows(*order)) is None


def test_newest_first_is_no_doubt_about_open_and_close() -> None:
    assert columns_by_form(rows("stamp", "o", "h", "l", "c", "v")[::-1]) is not None
    assert columns_by_form(rows("stamp", "c", "h", "l", "o", "v")[::-1]) is None


def test_what_was_found_is_said(tmp_path: Path) -> None:
    layout = sniffed(tmp_path, joined(rows("symbol", "stamp", "o", "h", "l", "c", "v"), "|"))
    assert layout.findings[0].text == (
        "read as plain text, fields split by bars, no header: stamp from datetime, open from open, high from high, "
        "low from low, close from close, volume from volume, symbol from symbol"
    )
    assert layout.header_line == 0


def test_comments_before_the_data_are_passed_over(tmp_path: Path) -> None:
    text = "# exported by hand\n\n" + joined(rows("stamp", "o", "h", "l", "c", "v"))
    assert sniffed(tmp_path, text).header_line == 2
    parsed = parse_table(open_table(probe(tmp_path / "es.csv")))
    assert parsed.rows.row.tolist() == list(range(3, 15))


def test_form_that_does_not_tell_is_refused_with_both_options(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no header line: the file begins with data.*--columns datetime,open.*--dialect"
    ):
        sniffed(tmp_path, joined(rows("stamp", "o", "l", "h", "c", "v")))


def test_columns_of_the_user(tmp_path: Path) -> None:
    text = joined(rows("stamp", "o", "l", "h", "c", "x", "v"))
    sniffed(tmp_path, text, columns="datetime,open,low,high,close,-,volume")
    options = TextOptions(columns="datetime,open,low,high,close,-,volume")
    parsed = parse_table(open_table(probe(tmp_path / "es.csv"), options))
    assert parsed.rows.stamp_ns.tolist() == [ns("2024-01-02 15:00") + i * MINUTE_NS for i in range(12)]
    assert (parsed.rows.high_e9 > parsed.rows.low_e9).all()
    assert "columns as --columns says" in parsed.findings[0].text


def test_columns_of_the_user_replace_a_header(tmp_path: Path) -> None:
    text = "a;b;c;d;e\n" + joined(rows("stamp", "o", "h", "l", "c"), ";")
    layout = sniffed(tmp_path, text, columns="datetime,open,high,low,close")
    assert (layout.header_line, layout.delimiter) == (1, ";")


def test_columns_that_no_row_has_are_refused(tmp_path: Path) -> None:
    text = joined(rows("stamp", "o", "h", "l", "c"))
    with pytest.raises(
        DataError, match=r"no row fits --columns .* \(6 columns\); row 1 has 5: 2024-01-02T15:00, 100.0"
    ):
        sniffed(tmp_path, text, columns="datetime,open,high,low,close,volume")


def test_dialect_of_the_user_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its form does not tell which column is what"):
        sniffed(tmp_path, joined(rows("stamp", "o", "l", "h", "c", "v")), dialect="firstrate")


def test_data_before_a_header_are_refused(tmp_path: Path) -> None:
    lines = joined(rows("stamp", "o", "h", "l", "c", "v"))
    with pytest.raises(
        DataError, match=r"es\.csv row 1: data before the header in row 13; two files may have been joined"
    ):
        sniffed(tmp_path, f"{lines}datetime,open,high,low,close,volume\n{lines}")


def test_daily_lines_whose_first_price_is_whole(tmp_path: Path) -> None:
    path = put(tmp_path, "BTC.txt", "01/13/2022,1995,2005,1975,1985,2201\n01/14/2022,1985,2000.5,1980,1990,2100\n")
    parsed = parse_table(open_table(probe(path)))
    assert parsed.rows.open_e9.tolist() == [1_995 * 10**9, 1_985 * 10**9]
    assert parsed.rows.volume.tolist() == [2201.0, 2100.0]
