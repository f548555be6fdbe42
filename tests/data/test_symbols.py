"""What a symbol stands for in the files at hand."""

import numpy as np
import pytest

from data.market_files import DAY_NS, START, ns
from tidewalk.core.errors import DataError
from tidewalk.data.rows import LabelSpan, Rows
from tidewalk.data.symbols import Choice, choose, contract_series, not_found

DAYS = (15_000, 15_100)
PARENT = ("ESH4", "ESM4", "ESH4-ESM4", "UD:1V: VT 28", "NQH4", "ESXH4")


def spans(*labels: str) -> list[LabelSpan]:
    return [LabelSpan(label, *DAYS) for label in labels]


def rows_at(*stamps_ns: int) -> Rows:
    count = len(stamps_ns)
    price = np.full(count, 10**9, np.int64)
    ids, numbers, files = np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.int32)
    return Rows(np.array(stamps_ns), price, price, price, price, np.ones(count), ids, numbers, files)


@pytest.mark.parametrize(
    ("symbol", "symbology", "labels"),
    [
        ("ES.FUT", "parent", ("ESH4", "ESM4")),
        ("ES", "parent", ("ESH4", "ESM4")),
        ("NQ.FUT", "parent", ("NQH4",)),
        ("ESM4", "raw", ("ESM4",)),
        ("ESH4-ESM4", "raw", ("ESH4-ESM4",)),
    ],
)
def test_symbols_of_a_parent_file(symbol: str, symbology: str, labels: tuple[str, ...]) -> None:
    choice = choose(symbol, spans(*PARENT), vendor_ids=True)
    assert choice is not None
    assert (choice.symbology, choice.labels) == (symbology, labels)
    assert bool(choice.findings) == (symbol == "ES")


def test_continuous_series_needs_ids_to_show_its_rolls() -> None:
    with_ids = choose("ES.c.0", spans("ES.c.0", "ES.c.1"), vendor_ids=True)
    without = choose("ES.c.0", spans("ES.c.0"), vendor_ids=False)
    assert with_ids is not None
    assert without is not None
    assert (with_ids.symbology, with_ids.labels) == ("continuous", ("ES.c.0",))
    assert without.symbology == "single"


def test_plain_name_of_a_symbol_column_is_one_series() -> None:
    choice = choose("ES", spans("ES", "NQ"), vendor_ids=False)
    assert choice is not None
    assert (choice.symbology, choice.labels) == ("single", ("ES",))


@pytest.mark.parametrize(
    ("symbol", "hint"),
    [
        ("es.fut", "ES.FUT"),
        ("ES.fut", "ES.FUT"),
        ("NG.FUT", "NQ.FUT"),
        ("esh4", "ESH4"),
        ("ESZ4", "ESM4"),
        ("ES.c.0", "ES.FUT"),
        ("ES.OPT", "ES.FUT"),
    ],
)
def test_unknown_symbol_is_refused_with_the_nearest_and_all_there_is(symbol: str, hint: str) -> None:
    held = spans(*PARENT)
    assert choose(symbol, held, vendor_ids=True) is None
    text = str(not_found(symbol, held, "data"))
    assert f"--symbol {symbol}: not in data (did you mean {hint}?)." in text
    assert "ES.FUT (ESH4, ESM4; 2011-01-26 to 2011-05-05)" in text
    assert "NQ.FUT (NQH4; " in text
    assert "2 spreads or combinations" in text
    assert ("Options are not read" in text) == symbol.endswith(".OPT")


def test_long_inventories_are_cut() -> None:
    text = str(not_found("X", spans(*(f"N{i}" for i in range(30))), "data"))
    assert "and 20 more" in text
    assert "no symbols at all" in str(not_found("X", [], "data"))


def test_contracts_of_two_decades_are_kept_apart() -> None:
    by_label = {"ESZ4": rows_at(ns("2014-10-01"), ns("2014-12-19"), ns("2020-01-02"), ns("2024-11-29"))}
    by_label["ESH5"] = rows_at(ns("2014-12-22"))
    series = contract_series(Choice("parent", ("ESH5", "ESZ4"), None), by_label)
    assert [(entry.name, len(entry.rows.row)) for entry in series] == [("ESZ14", 2), ("ESH5", 1), ("ESZ24", 2)]


def test_a_back_month_belongs_to_the_year_in_which_it_expires() -> None:
    # First traded in December 2019, five years ahead; the days it traded on decide, not the first one.
    series = contract_series(Choice("raw", ("ESZ4",), None), {"ESZ4": rows_at(ns("2019-12-23"), ns("2020-12-18"))})
    assert [(entry.month.year, entry.month.month) for entry in series if entry.month] == [(2024, 12)]


def test_one_contract_of_two_is_asked_for_by_two_digits() -> None:
    rows = {"ESZ4": rows_at(ns("2014-12-01"), ns("2024-12-02"))}
    with pytest.raises(DataError, match=r"--symbol ESZ4: the data hold 2 contracts .* Ask for one of ESZ14, ESZ24"):
        contract_series(Choice("raw", ("ESZ4",), None), rows)
    wanted = choose("ESZ24", spans("ESZ4"), vendor_ids=True)
    assert wanted is not None
    assert [entry.name for entry in contract_series(wanted, rows)] == ["ESZ24"]


def test_two_digits_where_one_does_are_refused_with_the_code() -> None:
    wanted = choose("ESZ24", spans("ESZ4"), vendor_ids=True)
    assert wanted is not None
    with pytest.raises(DataError, match=r"--symbol ESZ24: the files write one digit .* \(did you mean ESZ4\?\)"):
        contract_series(wanted, {"ESZ4": rows_at(ns("2024-12-02"))})


def test_labels_that_are_no_contracts_come_as_they_are() -> None:
    series = contract_series(Choice("raw", ("TFM FMH0024!",), None), {"TFM FMH0024!": rows_at(START, START + DAY_NS)})
    assert [(entry.name, entry.month) for entry in series] == [("TFM FMH0024!", None)]
    assert contract_series(Choice("raw", ("ESZ4",), None), {}) == []


def test_one_and_two_digit_codes_of_one_contract_are_one_table() -> None:
    rows = {"ESZ4": rows_at(ns("2024-11-01")), "ESZ24": rows_at(ns("2024-12-02"))}
    series = contract_series(Choice("parent", ("ESZ24", "ESZ4"), None), rows)
    assert [(entry.name, len(entry.rows.row)) for entry in series] == [("ESZ4", 2)]
