"""What definitions, statistics and quotes beside the bars add to them, through `load_bars`."""

from pathlib import Path

import numpy as np
import pytest

from data.market_files import (
    ALWAYS,
    DAY_NS,
    ES_PARENT,
    HOUR_NS,
    MINUTE_NS,
    START,
    bars,
    csv_text,
    dbn,
    definitions,
    header,
    in_order,
    load,
    mapped,
    ns,
    put,
    quotes,
    records,
    statistics,
    stream,
    trades,
    zst,
)
from tidewalk.core.errors import DataError
from tidewalk.data.bars import Loaded

TWO_BARS = [*bars(100, 5), *bars(200, 5)]
DEFINED = [
    {"raw_symbol": b"ESH4", "instrument_id": 100, "expiration": ns("2024-03-15 13:30")},
    {"raw_symbol": b"ESM4", "instrument_id": 200, "expiration": ns("2024-06-21 13:30")},
    {"raw_symbol": b"ESH4-ESM4", "instrument_id": 300, "instrument_class": b"S", "min_price_increment": 50_000_000},
]


def account(loaded: Loaded, name: str) -> str:
    return next(" ".join(file.notes) for file in loaded.files if file.path == name)


# --- definitions


@pytest.mark.parametrize("version", [1, 2, 3])
def test_definitions_of_the_contracts_in_use(tmp_path: Path, version: int) -> None:
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    put(tmp_path, "spec.dbn", stream(definitions(DEFINED, version), "definition", version=version))
    loaded = load(tmp_path)
    assert [(entry.symbol, entry.tick_e9, entry.multiplier) for entry in loaded.definitions] == [
        ("ESH4", 250_000_000, 50.0),
        ("ESM4", 250_000_000, 50.0),
    ]
    assert account(loaded, "spec.dbn") == "read for specifications"


def test_the_class_of_a_definition_goes_before_the_form_of_a_name(tmp_path: Path) -> None:
    # A combination that is named like a contract is none; a contract of another exchange's form is one.
    names = (
        mapped("ESH4", (*ALWAYS, 100)),
        mapped("ESM4", (*ALWAYS, 200)),
        mapped("ES FMH0024!", (*ALWAYS, 300)),
    )
    put(tmp_path, "bars.dbn", dbn([*bars(100, 5), *bars(200, 5), *bars(300, 5)], names))
    assert [table.contract for table in load(tmp_path).tables] == ["ESH4", "ESM4"]
    facts = [
        {"raw_symbol": b"ESH4", "instrument_id": 100},
        {"raw_symbol": b"ESM4", "instrument_id": 200, "instrument_class": b"S"},
        {"raw_symbol": b"ES FMH0024!", "instrument_id": 300},
    ]
    put(tmp_path, "spec.dbn", stream(definitions(facts), "definition", names))
    assert sorted(table.contract for table in load(tmp_path).tables) == ["ES FMH0024!", "ESH4"]


def test_definitions_name_the_instruments_of_files_without_mappings(tmp_path: Path) -> None:
    # A request for ALL_SYMBOLS comes without mappings.
    everything = {"mappings": [], "symbols": ["ALL_SYMBOLS"], "stype_in": "raw_symbol"}
    put(tmp_path, "bars.dbn", header(**everything) + records(TWO_BARS).tobytes())  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match=r"no symbol mappings .*put a definition file of the same days beside it"):
        load(tmp_path)
    put(tmp_path, "spec.dbn", stream(definitions(DEFINED), "definition", **everything))  # pyright: ignore[reportArgumentType]
    assert [table.contract for table in load(tmp_path).tables] == ["ESH4", "ESM4"]


def test_definitions_behind_a_continuous_series_are_found_by_id(tmp_path: Path) -> None:
    series = (mapped("ES.c.0", ("2000-01-01", "2024-01-03", 100), ("2024-01-03", "2100-01-01", 200)),)
    rows = [*bars(100, 5), *bars(200, 5, START + DAY_NS)]
    put(tmp_path, "bars.dbn", dbn(rows, series, stype_in="continuous"))
    put(tmp_path, "spec.dbn", stream(definitions(DEFINED), "definition"))
    loaded = load(tmp_path, "ES.c.0")
    assert [entry.symbol for entry in loaded.definitions] == ["ESH4", "ESM4"]


def test_real_definitions(shared_data: Path) -> None:
    loaded = load(shared_data / "dbn", "NQ.FUT", schema="ohlcv-1m")
    assert [(entry.symbol, entry.tick_e9, entry.multiplier, entry.currency) for entry in loaded.definitions] == [
        ("NQU4", 250_000_000, 20.0, "USD")
    ]
    assert loaded.definitions[0].expiration_ns == ns("2024-09-20 13:30")


# --- open interest


def test_open_interest_of_the_contracts(tmp_path: Path) -> None:
    day = START // DAY_NS
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    rows = [
        {"instrument_id": number, "ts_ref": (day - 1 + i) * DAY_NS, "ts_recv": START + i * DAY_NS, "quantity": lots + i}
        for i in range(3)
        for number, lots in ((100, 2_000_000), (200, 5_000), (300, 7))
    ]
    put(tmp_path, "oi.dbn", stream(statistics(rows), "statistics"))
    loaded = load(tmp_path)
    assert [(entry.contract, entry.lots.tolist()) for entry in loaded.open_interest] == [
        ("ESH4", [2_000_000, 2_000_001, 2_000_002]),
        ("ESM4", [5_000, 5_001, 5_002]),
    ]
    assert loaded.open_interest[0].known_ns.tolist() == [START, START + DAY_NS, START + 2 * DAY_NS]
    assert "open interest of 2 contracts, 6 figures, each usable from its publication on" in loaded.notes
    assert account(loaded, "oi.dbn") == "read for open interest"


def test_statistics_without_mappings_take_those_of_the_bars(tmp_path: Path) -> None:
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    rows = [{"instrument_id": 100, "ts_ref": START, "ts_recv": START, "quantity": 8}]
    put(tmp_path, "oi.dbn", stream(statistics(rows), "statistics", []))
    assert load(tmp_path).open_interest[0].lots.tolist() == [8]


def test_a_code_of_two_decades_keeps_its_own_figures(tmp_path: Path) -> None:
    old, new = ns("2014-01-02 15:00"), START
    put(
        tmp_path,
        "bars.dbn",
        dbn(
            [*bars(7, 5, old), *bars(100, 5, new)],
            (mapped("ESH4", ("2010-01-01", "2014-12-31", 7), ("2020-01-01", "2030-01-01", 100)),),
        ),
    )
    rows = [
        {"instrument_id": 7, "ts_ref": old, "ts_recv": old, "quantity": 1},
        {"instrument_id": 100, "ts_ref": new, "ts_recv": new, "quantity": 2},
    ]
    put(tmp_path, "oi.dbn", stream(statistics(rows), "statistics", []))
    found = load(tmp_path).open_interest
    assert [(entry.contract, entry.lots.tolist()) for entry in found] == [("ESH14", [1]), ("ESH24", [2])]


# --- spreads


def quoted(folder: Path, *rows: np.ndarray, schema: str = "bbo-1m", name: str = "bbo.dbn") -> None:
    put(folder, name, stream(in_order(*rows), schema))


def test_quotes_give_bars_their_spread_and_nothing_from_the_future(tmp_path: Path) -> None:
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    plain = load(tmp_path)
    quoted(
        tmp_path,
        quotes(100, [(START, 4800.0, 4800.25), (START + 2 * MINUTE_NS + 1, 4800.0, 4801.0)]),
        quotes(200, [(START + MINUTE_NS, 4840.0, 4840.5)]),
        quotes(300, [(START, 50.0, 59.0)]),
    )
    loaded = load(tmp_path)
    front, back = loaded.tables
    assert front.open_spread_e9 is not None
    assert back.open_spread_e9 is not None
    assert (front.open_spread_e9 / 1e9).tolist() == [0.25, 0.25, 0.25, 1.0, 1.0]
    assert (back.open_spread_e9 / 1e9).tolist() == [0.5] * 5
    assert account(loaded, "bbo.dbn") == "read for the spread"
    assert (
        "spread of bbo-1m quotes joined: median 2 ticks, in force at the start of 9 of 10 bars; 0 bars take the last "
        "one of an earlier session, 1 before any quote the first one"
    ) in loaded.notes
    assert plain.fingerprint != loaded.fingerprint
    assert np.array_equal(plain.tables[0].close_e9, front.close_e9)


def test_useless_quotes_are_left_out_and_poor_cover_is_a_warning(tmp_path: Path) -> None:
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    quoted(
        tmp_path, quotes(100, [(START, 4800.0, 4800.0), (START, None, 4800.0), (START + 4 * MINUTE_NS, 4800.0, 4800.5)])
    )  # pyright: ignore[reportArgumentType]
    loaded = load(tmp_path)
    assert "quotes that are one-sided, locked or crossed: 2 left out" in loaded.notes
    assert any("in force at the start of 1 of 10 bars" in text for text in loaded.warnings)
    assert loaded.tables[1].open_spread_e9 is None


def test_the_order_and_names_of_quote_files_change_nothing(tmp_path: Path) -> None:
    rows = quotes(100, [(START + i * MINUTE_NS, 4800.0, 4800.25 + i / 4) for i in range(5)])
    prints = set()
    for names in (("a", "b"), ("b", "a")):
        folder = tmp_path / names[0]
        folder.mkdir()
        put(folder, "z.dbn.zst", zst(dbn(TWO_BARS)))
        quoted(folder, rows[:3], name=f"{names[0]}.dbn")
        quoted(folder, rows[2:], name=f"{names[1]}.dbn")
        prints.add(load(folder).fingerprint)
    assert len(prints) == 1


def test_a_continuous_series_takes_the_spread_of_the_contract_it_holds(tmp_path: Path) -> None:
    series = (mapped("ES.c.0", ("2000-01-01", "2024-01-03", 100), ("2024-01-03", "2100-01-01", 200)),)
    put(tmp_path, "bars.dbn", dbn([*bars(100, 5), *bars(200, 5, START + DAY_NS)], series, stype_in="continuous"))
    quoted(
        tmp_path,
        quotes(100, [(START, 1.0, 1.25), (START + DAY_NS, 1.0, 9.0)]),
        quotes(200, [(START, 1.0, 9.0), (START + DAY_NS + 1, 1.0, 1.5)]),
    )
    spreads = [table.open_spread_e9 for table in load(tmp_path, "ES.c.0").tables]
    assert [set(spread.tolist()) for spread in spreads if spread is not None] == [{250_000_000}, {500_000_000}]


def test_trades_take_the_spread_of_quotes_beside_them(tmp_path: Path) -> None:
    rows = [(START + i * 10**9, 4800.0, 1) for i in range(20)]
    put(tmp_path, "trades.dbn", stream(trades(100, rows), "trades", end=START + HOUR_NS))
    quoted(
        tmp_path,
        quotes(100, [(START, 4800.0, 4800.25), (START + 8 * 10**9, 4800.0, 4800.5)], "bbo-1s"),
        schema="bbo-1s",
    )
    table = load(tmp_path, bars="tick:5").tables[0]
    assert table.open_spread_e9 is not None
    # Each bar opens when the one before is complete, after 5, 10 and 15 trades.
    assert (table.open_spread_e9 / 1e9).tolist() == [0.25, 0.25, 0.5, 0.5]


def test_real_quotes_beside_real_bars(shared_data: Path) -> None:
    loaded = load(shared_data / "dbn", "ESU4", schema="ohlcv-1m")
    spread = loaded.tables[0].open_spread_e9
    assert spread is not None
    # mbp-1 covers 23:58 to 00:02 of a half hour on both sides.
    inside = (loaded.tables[0].ts_ns >= ns("2024-07-01 23:59")) & (loaded.tables[0].ts_ns < ns("2024-07-02 00:02"))
    assert set(spread[inside].tolist()) <= {250_000_000, 500_000_000}


def test_quotes_and_definitions_beside_a_text_file_add_to_it(tmp_path: Path) -> None:
    put(tmp_path, "ESH4.csv", csv_text(5))
    plain = load(tmp_path, "ESH4")
    quoted(tmp_path, quotes(100, [(START, 4800.0, 4800.5), (START + MINUTE_NS, 4800.0, 4800.5)]))
    put(tmp_path, "spec.dbn", stream(definitions(DEFINED), "definition"))
    loaded = load(tmp_path, "ESH4")
    assert np.array_equal(loaded.tables[0].close_e9, plain.tables[0].close_e9)
    assert loaded.tables[0].open_spread_e9 is not None
    assert set(loaded.tables[0].open_spread_e9.tolist()) == {500_000_000}
    assert "ESH4" in {entry.symbol for entry in loaded.definitions}
    assert len(load(tmp_path, "ESH4", schema="bbo-1m").tables[0].ts_ns) == 1


def test_a_schema_of_trades_is_no_schema_of_a_table(tmp_path: Path) -> None:
    put(tmp_path, "ESH4.csv", csv_text(5))
    with pytest.raises(DataError, match=r"--schema trades: ESH4\.csv is a table of bars\. Leave --schema out"):
        load(tmp_path, "ESH4", schema="trades")


# --- longer bars


def test_spreads_of_longer_bars_are_those_at_their_open(tmp_path: Path) -> None:
    put(tmp_path, "bars.dbn", dbn(bars(100, 120)))
    quoted(
        tmp_path,
        quotes(100, [(START, 1.0, 1.25), (START + 59 * MINUTE_NS, 1.0, 1.5), (START + 61 * MINUTE_NS, 1.0, 3.0)]),
    )
    table = load(tmp_path, bars="1h").tables[0]
    assert table.open_spread_e9 is not None
    assert (table.open_spread_e9 / 1e9).tolist() == [0.25, 0.5]


def test_all_in_one_directory(tmp_path: Path) -> None:
    put(tmp_path, "bars.dbn", dbn(TWO_BARS))
    put(tmp_path, "spec.dbn", stream(definitions(DEFINED), "definition"))
    put(tmp_path, "oi.dbn", stream(statistics([]), "statistics"))
    put(tmp_path, "ticks.dbn", stream(trades(100, [(START, 4800.0, 1)]), "trades"))
    put(tmp_path, "orders.dbn", header(schema="mbo"))
    put(tmp_path, "state.dbn", header(schema="status"))
    quoted(tmp_path, quotes(100, [(START, 4800.0, 4800.25)]))
    loaded = load(tmp_path)
    assert [len(table.ts_ns) for table in loaded.tables] == [5, 5]
    assert account(loaded, "ticks.dbn") == "ignored: bars come from ohlcv-1m"
    assert account(loaded, "orders.dbn").startswith("ignored: holds the schema mbo; single orders are not read")
    assert account(loaded, "state.dbn").startswith("ignored: holds the schema status")
    assert len(loaded.files) == 7
    assert ES_PARENT[0].raw_symbol in {table.contract for table in loaded.tables}
