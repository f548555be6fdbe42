"""CSV files beside the tables: what a spreadsheet shows is what the table holds, and nothing in it is ever run."""

import csv
import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.store import layout
from tidewalk.store.tables import Table, csv_text, write_table

# validity.md section 4: cells that begin with = + - @, a tab or a carriage return are formulas to a spreadsheet
NAMES = [
    "=1+1",
    "+A",
    "-A",
    "@A",
    "\tA",
    "\rA",
    "\nA",
    " =1+1",
    "\u3000=1",
    "\uff1d1+1",
    "|calc",
    "%0A=1",
    '=HYPERLINK("x")',
]


def cells(frame: pl.DataFrame) -> list[list[str]]:
    return list(csv.reader(io.StringIO(csv_text(frame), newline="")))


@pytest.mark.parametrize("name", NAMES)
def test_text_that_would_start_a_formula_is_led_by_an_apostrophe(name: str) -> None:
    assert cells(pl.DataFrame({"symbol": [name]})) == [["symbol"], [f"'{name}"]]
    assert cells(pl.DataFrame({name: [1]})) == [[f"'{name}"], ["1"]]


@pytest.mark.parametrize(
    "name", ["ES.FUT", "", "E=S", "a-b", "'=1", 'say "ES"', "two\nlines", "semi;colon", "comma,", "Ü"]
)
def test_any_other_text_is_what_it_was(name: str) -> None:
    assert cells(pl.DataFrame({"symbol": [name], "n": [1]})) == [["symbol", "n"], [name, "1"]]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_no_cell_starts_a_formula_and_no_text_is_lost(names: list[str]) -> None:
    _, *rows = cells(pl.DataFrame({"symbol": names, "n": [0] * len(names)}))
    assert [row[0].removeprefix("'") for row in rows] == [name.removeprefix("'") for name in names]
    assert all(row[0].strip(" ")[:1] not in tuple("=+-@|%\t\r\n\uff1d\uff0b\uff0d\uff20") or not row[0] for row in rows)


def test_numbers_stay_numbers_and_nanoseconds_become_times() -> None:
    frame = pl.DataFrame(
        {
            "entry_ts_ns": [1_704_153_600_000_000_000, 1_704_153_600_000_000_001],
            "lots": [-1, 2],
            "net_usd": [-0.5, 3 * 2.31],
            "price": [-37.63, 4800.25],
            "none": [None, 1.0],
            "held_ns": pl.Series([1, 2], dtype=pl.Int32),
        }
    )
    assert cells(frame) == [
        ["entry_ts", "lots", "net_usd", "price", "none", "held_ns"],
        ["2024-01-02T00:00:00Z", "-1", "-0.5", "-37.63", "", "1"],
        ["2024-01-02T00:00:00.000000001Z", "2", "6.93", "4800.25", "1.0", "2"],
    ]


def test_a_table_is_written_beside_its_csv(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "run", overwrite=False)
    frame = pl.DataFrame({"symbol": ["=1+1"], "lots": [-1]})
    write_table(run.trades, frame, Table({"symbol": pl.String(), "lots": pl.Int64()}), with_csv=True)
    assert pl.read_parquet(run.trades)["symbol"].to_list() == ["=1+1"]
    assert (run.root / "trades.csv").read_bytes() == b"symbol,lots\r\n'=1+1,-1\r\n"
