"""The contract that a file name says: the forms of vendors, and names that only look like one."""

import pytest

from data.market_files import csv_text, put
from tidewalk.core.errors import DataError
from tidewalk.data.files.file_names import contracts_of, known_contract
from tidewalk.data.files.overview import overview, symbols_to_ask_for
from tidewalk.data.load import DataConfig, load_bars


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("ESH24.txt", "ESH24"),  # FirstRate, Kibot
        ("ES_H24_1min.txt", "ESH24"),
        ("ES-2024H.csv", "ESH24"),  # Norgate
        ("ES 03-24.Last.txt", "ESH24"),  # NinjaTrader
        ("ESH24-CME.scid", "ESH24"),  # Sierra Chart
        ("esh24_intraday-1min_historical-data-03-15-2024.csv", "ESH24"),  # Barchart
        ("CME_MINI_ESH2024, 1.csv", "ESH24"),  # TradingView
        ("months.zip!futures/ESH4.csv", "ESH4"),
        ("MESH24.txt", "MESH24"),
        ("6EH4.txt", "6EH4"),
        ("CME_MINI_NQ1!, 1.csv", None),  # not Q1 of a product N
        ("ES_M1_2023.csv", None),  # MetaTrader's minutes and hours
        ("ES_H4.csv", None),
        ("ES_M15.csv", None),
        ("ES_2024-03.csv", None),
        ("ES_03-24.csv", None),
        ("ES 2024-03-24.csv", None),
        ("ES_full_1min.txt", None),
        ("ESH24_ESM24.csv", None),  # two contracts: a spread
        ("ESH24M24.csv", None),
    ],
)
def test_forms_of_vendors(name, contract):
    assert known_contract(name) == contract


def test_a_bar_length_is_a_contract_among_contracts():
    assert contracts_of(["ES_M15.csv", "ES_H15.csv"], "ES") == {"ES_M15.csv": "ESM15", "ES_H15.csv": "ESH15"}
    assert contracts_of(["ES_M15.csv", "ES_M30.csv", "ESH24.csv"], "ES") == {"ESH24.csv": "ESH24"}
    assert contracts_of(["ESH24.csv"], "NQ") == {}


def test_one_file_per_contract_is_a_parent(tmp_path):
    put(tmp_path, "ESH24.csv", csv_text(9))
    put(tmp_path, "ESM24.csv", csv_text(7))
    put(tmp_path, "NQH24.csv", csv_text(5))
    loaded = load_bars(DataConfig(tmp_path, "ES.FUT"))
    assert loaded.symbology == "parent"
    assert {table.contract: len(table.ts_ns) for table in loaded.tables} == {"ESH24": 9, "ESM24": 7}
    assert any("contract of 2 files is taken from the file name, such as ESH24" in note for note in loaded.notes)
    assert load_bars(DataConfig(tmp_path, "ESM24")).symbology == "raw"
    assert symbols_to_ask_for(overview(tmp_path)) == ("ES.FUT", "NQ.FUT")


def test_a_name_that_the_rows_contradict_is_refused(tmp_path):
    put(tmp_path, "ESU23.csv", csv_text(9))
    with pytest.raises(DataError, match=r"ESU23\.csv: its name says ESU23, and it has rows of 2024-.*Correct the name"):
        load_bars(DataConfig(tmp_path, "ES.FUT"))


def test_a_contract_that_cannot_be_read_is_not_passed_over(tmp_path):
    put(tmp_path, "ESH24.csv", csv_text(9))
    put(tmp_path, "ESM24.csv", "time,last\n1,2\n")
    with pytest.raises(DataError, match=r"ESM24\.csv.*missing"):
        load_bars(DataConfig(tmp_path, "ES.FUT"))


def test_a_lone_file_is_still_what_the_user_says(tmp_path):
    put(tmp_path, "esh24_x.csv", csv_text(9))
    assert load_bars(DataConfig(tmp_path, "MINE")).symbology == "single"


def test_contracts_beside_a_series_need_a_word(tmp_path):
    put(tmp_path, "ESH24.csv", csv_text(9))
    put(tmp_path, "ES.csv", csv_text(7))
    with pytest.raises(
        DataError, match=r"different kinds: ESH24\.csv, ES\.csv.* or ask for ES\.FUT to use the contracts"
    ):
        load_bars(DataConfig(tmp_path, "ES"))
    assert [table.contract for table in load_bars(DataConfig(tmp_path, "ES.FUT")).tables] == ["ESH24"]


def test_names_of_files_and_of_their_parts_change_nothing(tmp_path):
    whole = csv_text(9).splitlines(keepends=True)
    put(tmp_path, "ESH24.csv", "".join(whole))
    one = load_bars(DataConfig(tmp_path, "ES.FUT"))
    (tmp_path / "ESH24.csv").unlink()
    put(tmp_path, "b_ES-2024H.csv", "".join(whole[:5]))
    put(tmp_path, "a esh24.csv", "".join([whole[0], *whole[5:]]))
    assert load_bars(DataConfig(tmp_path, "ES.FUT")).fingerprint == one.fingerprint
