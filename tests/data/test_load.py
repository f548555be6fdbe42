"""Files to bars: which files are used, what is said about the rest, and the same answer however they are named."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from data.market_files import (
    ALWAYS,
    DAY_NS,
    ES_PARENT,
    HOUR_NS,
    MINUTE_NS,
    START,
    bar,
    bars,
    csv_text,
    dbn,
    header,
    load,
    mapped,
    ns,
    put,
    records,
    zst,
)
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import Loaded, validate

NQ = (mapped("NQH4", (*ALWAYS, 500)),)


def sizes(loaded: Loaded) -> dict[str, int]:
    return {table.contract: len(table.ts_ns) for table in loaded.tables}


def account(loaded: Loaded, name: str) -> str:
    """Notes of one file."""
    return next(" ".join(file.notes) for file in loaded.files if file.path == name)


# --- DBN


def test_parent_keeps_outrights_apart_and_drops_spreads(tmp_path: Path) -> None:
    # Databento parent symbols: several expiries and spreads share every minute.
    rows = list(itertools.chain(*zip(bars(100, 50), bars(200, 50), [bar(300, START, 50.0)] * 50, strict=True)))
    put(tmp_path, "es.dbn.zst", zst(dbn(rows)))
    loaded = load(tmp_path)
    assert (loaded.symbology, loaded.root, sizes(loaded)) == ("parent", "ES", {"ESH4": 50, "ESM4": 50})
    assert min(int(table.low_e9.min()) for table in loaded.tables) > 4000 * 10**9
    note = "left out beside the 2 outright contracts of ES: 1 spreads or combinations and 0 other instruments, 50 rows"
    assert note in loaded.notes
    table = loaded.tables[0]
    assert (table.instrument_id, table.interval_ns, table.has_volume) == (100, MINUTE_NS, True)
    assert (table.known_ns - table.ts_ns == MINUTE_NS).all()
    file = loaded.files[0]
    assert (file.kind, file.schema, file.rows_read, file.rows_kept) == ("dbn v3 zstd", "ohlcv-1m", 150, 100)
    assert (file.first_ts_ns, file.last_ts_ns) == (START, START + 49 * MINUTE_NS)


def test_root_raw_symbol_and_spread_of_a_parent_file(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn([*bars(100, 3), *bars(200, 4), *bars(300, 5)]))
    assert sizes(load(tmp_path, "ES")) == {"ESH4": 3, "ESM4": 4}
    assert "ES is taken as ES.FUT: every outright contract of it" in load(tmp_path, "ES").notes
    assert (sizes(load(tmp_path, "ESM4")), load(tmp_path, "ESM4").symbology) == ({"ESM4": 4}, "raw")
    assert sizes(load(tmp_path, "ESH4-ESM4")) == {"ESH4-ESM4": 5}


def test_tables_are_in_the_order_of_expiry(tmp_path: Path) -> None:
    contracts = [mapped(code, (*ALWAYS, 100 + i)) for i, code in enumerate(["ESH5", "ESZ4", "ESU4", "ESM5"])]
    put(tmp_path, "es.dbn", dbn([bar(100 + i, START) for i in range(4)], contracts))
    assert list(sizes(load(tmp_path))) == ["ESU4", "ESZ4", "ESH5", "ESM5"]


def test_a_code_of_two_decades_is_two_contracts(tmp_path: Path) -> None:
    twice = [mapped("ESZ4", ("2014-01-01", "2015-01-01", 100), ("2023-06-01", "2025-01-01", 100))]
    put(tmp_path, "es.dbn", dbn([bar(100, ns("2014-11-03")), bar(100, ns("2024-11-04"))], twice))
    loaded = load(tmp_path)
    assert sizes(loaded) == {"ESZ14": 1, "ESZ24": 1}
    assert (
        "contract codes that occur a decade apart are named with two digits of the year: ESZ14, ESZ24" in loaded.notes
    )
    assert sizes(load(tmp_path, "ESZ24")) == {"ESZ24": 1}
    with pytest.raises(DataError, match="Ask for one of ESZ14, ESZ24"):
        load(tmp_path, "ESZ4")


def test_continuous_series_shows_its_rolls(tmp_path: Path) -> None:
    rolls = [mapped("ES.c.0", ("2024-01-01", "2024-01-03", 100), ("2024-01-03", "2024-01-09", 200))]
    put(tmp_path, "es.dbn", dbn([*bars(100, 3), *bars(200, 4, START + DAY_NS)], rolls, stype_in="continuous"))
    loaded = load(tmp_path, "ES.c.0")
    assert (loaded.symbology, loaded.root) == ("continuous", "ES")
    assert sizes(loaded) == {"ES.c.0#100": 3, "ES.c.0#200": 4}
    assert any("a roll shows as a change of instrument id" in note for note in loaded.notes)
    with pytest.raises(DataError, match=r"--symbol ES: not in .*did you mean ES\.c\.0\?"):
        load(tmp_path, "ES")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_all_schemas_and_versions_have_their_bar_length(tmp_path: Path, version: int) -> None:
    for schema, step_ns in (("1s", 10**9), ("1m", MINUTE_NS), ("1h", HOUR_NS), ("1d", DAY_NS)):
        start = ns("2024-01-02")
        path = put(
            tmp_path, f"{schema}.dbn", dbn(bars(100, 5, start, step_ns), schema=f"ohlcv-{schema}", version=version)
        )
        table = load(path).tables[0]
        assert table.interval_ns == step_ns
        assert table.known_ns[-1] == start + 5 * step_ns


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("es.dbn.zst", b"", "the file is empty. Download it again"),
        (
            "es.dbn",
            b"time,open,high,low,close\n",
            r"named DBN but holds text \('time,open,high,low,close'\). Name it .csv",
        ),
        ("es.dbz", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + zst(b"\0" * 99), "DBZ, the format before DBN"),
        ("es.dbn.frag.zst", zst(b"\0" * 99), "no DBN header: a fragment without metadata"),
        ("es.dbn", header(schema="definition"), r"no file of bars\. Found: es\.dbn \(holds the schema definition\)"),
        ("es.dbn", header(schema="mbo"), "holds the schema mbo; single orders are not read; download mbp-1"),
        (
            "es.dbn",
            header(schema=None, mappings=[], stype_in=None),
            "holds records of schemas that are not read; bars, trades or quotes are needed",
        ),
        ("es.dbn", header([], symbols=["ALL_SYMBOLS"]), r"no symbol mappings \(request for ALL_SYMBOLS\)"),
        ("es.xlsx", b"\0\x01\x02", "binary data of no known format"),
        ("es.dbn", dbn([]), r"--symbol ES\.FUT: no bars in es\.dbn"),
    ],
)
def test_files_that_cannot_do_are_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load(put(tmp_path, name, content))


def test_damaged_neighbour_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    put(tmp_path, "good.dbn", dbn(bars(100, 5)))
    put(tmp_path, "old.dbz", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + zst(b"\0" * 99))
    with pytest.raises(DataError, match=r"old\.dbz: DBZ"):
        load(tmp_path)


# --- several files


def test_several_bar_lengths_need_a_choice(tmp_path: Path) -> None:
    put(tmp_path, "minutes.dbn", dbn(bars(100, 5)))
    put(tmp_path, "hours.dbn", dbn(bars(100, 5, ns("2024-01-02"), HOUR_NS), schema="ohlcv-1h"))
    put(tmp_path, "ticks.dbn", header(schema="trades"))
    with pytest.raises(
        DataError, match=r"several bar lengths: ohlcv-1h in hours\.dbn, ohlcv-1m in minutes\.dbn.*--schema"
    ):
        load(tmp_path)
    loaded = load(tmp_path, schema="ohlcv-1h")
    assert loaded.tables[0].interval_ns == HOUR_NS
    assert account(loaded, "minutes.dbn") == "ignored: --schema ohlcv-1h was asked for"
    assert account(loaded, "ticks.dbn") == "ignored: --schema ohlcv-1h was asked for"
    with pytest.raises(DataError, match=r"--schema ohlcv-1s: no such file; the DBN files hold ohlcv-1h, ohlcv-1m"):
        load(tmp_path, schema="ohlcv-1s")


def test_flags_for_text_files_are_said_to_be_unused(tmp_path: Path) -> None:
    loaded = load(put(tmp_path, "es.dbn", dbn(bars(100, 5))), tz="UTC", bar_label="close")
    assert "--tz and --bar-label not used: DBN files stamp the start of a bar, in UTC" in loaded.notes
    assert loaded.tables[0].ts_ns[0] == START


def test_broken_link_to_a_data_file_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    (tmp_path / "es2.dbn").symlink_to(tmp_path / "gone.dbn")
    with pytest.raises(DataError, match=r"es2\.dbn: not a regular file"):
        load(tmp_path)


def test_files_that_are_no_data_are_left_out_with_a_note(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    put(tmp_path, "nq.dbn", dbn(bars(500, 5), NQ))
    put(tmp_path, "empty.dbn", dbn([]))
    for name in ("README.md", "manifest.json", "symbology.json", ".hidden.csv", "condition.txt"):
        put(tmp_path, name, "open, high and low words\n")
    (tmp_path / "more").mkdir()
    loaded = load(tmp_path)
    assert sizes(loaded) == {"ESH4": 5}
    assert "subdirectories are not read: more" in loaded.notes
    assert account(loaded, "README.md") == "ignored: not market data by its name"
    assert not any(file.path in ("symbology.json", "manifest.json", ".hidden.csv") for file in loaded.files)
    assert account(loaded, "condition.txt").startswith("ignored: columns found")
    assert account(loaded, "nq.dbn") == "ignored: does not hold ES.FUT in the bar length asked for"
    assert account(loaded, "empty.dbn") == "the file holds no records"
    assert all(file.rows_kept == 0 for file in loaded.files if file.path != "es.dbn")
    assert any("README.md" in note for note in loaded.notes)


def test_unknown_symbol_lists_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    put(tmp_path, "nq.dbn", dbn(bars(500, 5), NQ))
    with pytest.raises(
        DataError, match=r"--symbol es\.fut: not in .*did you mean ES\.FUT.*ES\.FUT \(ESH4, ESM4; .*NQ\.FUT"
    ):
        load(tmp_path, "es.fut")
    with pytest.raises(
        DataError, match=r"--symbol ESH24: the files write one digit of the year \(did you mean ESH4\?\)"
    ):
        load(tmp_path, "ESH24")


def test_bad_flags_and_paths_are_named(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    with pytest.raises(ConfigError, match=r"--data-dir .*nowhere: no such file or directory"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"--schema ohlcv-1x: .*did you mean ohlcv-1.*Allowed: ohlcv-1s, ohlcv-1m"):
        load(tmp_path, schema="ohlcv-1x")
    with pytest.raises(ConfigError, match=r"--tz Chicago: .*America/Chicago"):
        load(tmp_path, tz="Chicago")
    with pytest.raises(ConfigError, match="--symbol is missing"):
        load(tmp_path, " ")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the directory holds no files"):
        load(tmp_path / "empty")
    put(tmp_path / "empty", "README.md", "x")
    with pytest.raises(DataError, match=r"no file of bars\. Found: README\.md"):
        load(tmp_path / "empty")


# --- text and Parquet


def test_single_text_file_is_what_the_user_says_it_is(tmp_path: Path) -> None:
    put(tmp_path, "export (3).csv", csv_text(5))
    loaded = load(tmp_path, "ES")
    assert (loaded.symbology, sizes(loaded), loaded.root) == ("single", {"ES": 5}, "ES")
    assert "export (3).csv: no symbol column; the bars are taken to be ES, as asked for" in loaded.notes
    assert "its rolls are invisible" in loaded.warnings[0]
    assert load(tmp_path, "ESH4").warnings == ()


def test_among_several_text_files_the_name_decides(tmp_path: Path) -> None:
    put(tmp_path, "ES_2024.csv", csv_text(5))
    put(tmp_path, "ES_2024b.csv", csv_text(7))
    put(tmp_path, "NQ2024.csv", csv_text(3))
    put(tmp_path, "MES-2024.csv", csv_text(4))
    assert sizes(load(tmp_path, "ES")) == {"ES": 7}
    assert sizes(load(tmp_path, "NQ")) == {"NQ": 3}
    with pytest.raises(
        DataError, match=r"none of 4 files .* has the word 'YM' in its name: ES_2024\.csv, ES_2024b\.csv"
    ):
        load(tmp_path, "YM")


def test_chosen_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "ES_2023.csv", csv_text(5))
    put(tmp_path, "ES_2024.csv", "time,one,two\n" + "2024-01-02 15:00,1,2\n" * 5)
    with pytest.raises(DataError, match=r"ES_2024\.csv: columns found"):
        load(tmp_path, "ES")


def test_text_files_of_two_bar_lengths_are_refused_unless_one_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "ES_1min.csv", csv_text(5))
    days = "".join(f"2024-01-0{day},1,2,1,2,5\n" for day in (2, 3, 4, 5))
    put(tmp_path, "ES_daily.csv", "date,open,high,low,close,volume\n" + days)
    with pytest.raises(DataError, match=r"mixed bar lengths: .*bars of 1 minute.*bars of 1 day"):
        load(tmp_path, "ES")
    assert load(tmp_path, "ES", schema="ohlcv-1d").tables[0].interval_ns == DAY_NS
    with pytest.raises(DataError, match=r"--schema ohlcv-1m: ES_daily\.csv has bars of 1 day, not bars of 1 minute"):
        load(tmp_path / "ES_daily.csv", "ES", schema="ohlcv-1m")


def test_single_row_needs_the_bar_length(tmp_path: Path) -> None:
    path = put(tmp_path, "es.csv", csv_text(1))
    with pytest.raises(DataError, match=r"too few rows to tell the bar length of es\.csv.*--schema"):
        load(path, "ES")
    assert load(path, "ES", schema="ohlcv-1m").tables[0].interval_ns == MINUTE_NS


def test_symbol_column_is_parent_symbology_for_contract_codes(tmp_path: Path) -> None:
    lines = ["symbol,datetime,open,high,low,close,volume"]
    lines += [
        f"{code},2024-01-02 15:0{i}Z,1,2,1,2,5" for i in range(3) for code in ("ESH24", "ESM24", "ESH24-ESM24", "NQH24")
    ]
    put(tmp_path, "bars.csv", "\n".join(lines))
    loaded = load(tmp_path, "ES.FUT")
    assert (loaded.symbology, sizes(loaded)) == ("parent", {"ESH24": 3, "ESM24": 3})
    assert (
        "left out beside the 2 outright contracts of ES: 1 spreads or combinations and 1 other instruments, 6 rows"
        in loaded.notes
    )
    with pytest.raises(
        DataError, match=r"--symbol YM: not in .*Found: ES\.FUT \(ESH24, ESM24; 2024-01-02 to 2024-01-02\), NQ\.FUT"
    ):
        load(tmp_path, "YM")


def test_vendor_parquet_csv_and_dbn_give_the_same_bars(tmp_path: Path) -> None:
    rows = [*bars(100, 30), *bars(200, 20), *bars(300, 10)]
    put(tmp_path, "a.dbn", dbn(rows))
    names = {100: "ESH4", 200: "ESM4", 300: "ESH4-ESM4"}
    array = records(rows)
    frame = pl.DataFrame(
        {
            "ts_event": pl.Series(array["ts_event"].astype(np.int64)).cast(pl.Datetime("ns", "UTC")),
            "rtype": array["rtype"],
            "instrument_id": array["instrument_id"],
            **{name: array[name] / 1e9 for name in ("open", "high", "low", "close")},
            "volume": array["volume"],
            "symbol": [names[int(number)] for number in array["instrument_id"]],
        }
    )
    frame.write_parquet(tmp_path / "b.parquet")
    frame.with_columns(pl.col("ts_event").dt.to_string("%Y-%m-%dT%H:%M:%S%.9fZ")).write_csv(tmp_path / "c.csv")
    loads = [load(tmp_path / name) for name in ("a.dbn", "b.parquet", "c.csv")]
    assert {loaded.symbology for loaded in loads} == {"parent"}
    assert len({loaded.fingerprint for loaded in loads}) == 1
    with pytest.raises(
        DataError, match=r"--symbol ES\.FUT: held by files of different kinds: a\.dbn, b\.parquet, c\.csv"
    ):
        load(tmp_path)


def test_of_dbn_and_text_the_kind_that_holds_the_symbol_is_used(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    put(tmp_path, "NQ.csv", csv_text(7))
    assert sizes(load(tmp_path, "NQ")) == {"NQ": 7}
    loaded = load(tmp_path, "ES.FUT")
    assert sizes(loaded) == {"ESH4": 5}
    assert account(loaded, "NQ.csv").startswith("ignored: does not hold ES.FUT")
    put(tmp_path, "ES.csv", csv_text(7))
    with pytest.raises(DataError, match=r"held by files of different kinds: es\.dbn, ES\.csv"):
        load(tmp_path, "ES")


def test_continuous_text_without_ids_is_single(tmp_path: Path) -> None:
    lines = [f"ES.c.0,2024-01-0{day},1,2,1,2,5" for day in (2, 3, 4, 5)]
    put(tmp_path, "bars.csv", "symbol,date,open,high,low,close,volume\n" + "\n".join(lines))
    assert load(tmp_path, "ES.c.0").symbology == "single"


def vendor_lines(*runs: tuple[int, int, int]) -> str:
    """Databento's CSV without symbols: bars of (instrument id, first minute, step) each, ten bars a run."""
    lines = ["ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume"]
    for number, first, step in runs:
        stamps = [str(np.datetime64(START + (first + i * step) * MINUTE_NS, "ns")) + "Z" for i in range(10)]
        lines += [f"{stamp},33,1,{number},{4700 + number},4900,4700,{4700 + number},5" for stamp in stamps]
    return "\n".join(lines) + "\n"


def test_ids_without_symbols_show_the_rolls_of_a_series(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", vendor_lines((100, 0, 1), (120, 10, 1)))
    loaded = load(tmp_path, "ES.c.0")
    assert (loaded.symbology, sizes(loaded)) == ("continuous", {"ES.c.0#100": 10, "ES.c.0#120": 10})
    assert not loaded.warnings


@pytest.mark.parametrize(
    ("symbol", "runs"),
    [
        ("ES.FUT", ((100, 0, 2), (120, 1, 2))),  # in turns: one minute the one contract, one the other
        ("ES.FUT", ((100, 0, 1), (120, 0, 1))),  # both in each minute
        ("ES", ((100, 0, 1), (120, 10, 1))),
        ("ES.c.0", ((100, 0, 2), (120, 1, 2), (140, 20, 2), (160, 21, 2))),  # a second series beside it
    ],
)
def test_several_instruments_without_names_are_not_taken_for_one(
    tmp_path: Path, symbol: str, runs: tuple[tuple[int, int, int], ...]
) -> None:
    put(tmp_path, "a.csv", vendor_lines(*runs))
    with pytest.raises(DataError, match=r"a\.csv: rows of \d instruments \(instrument_id 100, 120.*map_symbols"):
        load(tmp_path, symbol)


def test_one_instrument_without_a_name_is_what_the_user_says(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", vendor_lines((100, 0, 1)))
    assert (load(tmp_path, "ESH4").symbology, sizes(load(tmp_path, "ESH4"))) == ("single", {"ESH4": 10})


@pytest.mark.parametrize(
    ("symbol", "is_warned"), [("ES", True), ("ES.c.0", True), ("ES=F", True), ("ES1!", True), ("AAPL", False)]
)
def test_invisible_rolls_are_a_warning_for_futures_only(tmp_path: Path, symbol: str, *, is_warned: bool) -> None:
    put(tmp_path, "bars.csv", csv_text(30))
    found = [finding for finding in load(tmp_path, symbol).findings if finding.defect == "rolls-invisible"]
    assert [finding.is_warning for finding in found] == [is_warned]


def test_bars_sparser_than_their_schema_are_doubted(tmp_path: Path) -> None:
    # Hourly bars under a header of minutes would be known 59 minutes too early.
    put(tmp_path, "es.dbn", dbn(bars(100, 40, step_ns=HOUR_NS)))
    assert any("multiple of 1 hour after another" in warning for warning in load(tmp_path).warnings)
    put(tmp_path, "es.dbn", dbn([*bars(100, 40, step_ns=HOUR_NS), bar(200, START), bar(200, START + 7 * MINUTE_NS)]))
    assert not load(tmp_path).warnings
    put(tmp_path, "es.dbn", dbn(bars(100, 20, step_ns=HOUR_NS)))
    assert not load(tmp_path).warnings


def test_a_misprint_is_said_and_dropped_when_told_to(tmp_path: Path) -> None:
    rows = bars(100, 40)
    rows[20] = bar(100, START + 20 * MINUTE_NS, 48_000.0)
    put(tmp_path, "es.dbn", dbn(rows))
    loaded = load(tmp_path)
    assert sizes(loaded) == {"ESH4": 40}
    assert any(
        "far from those of the bars before and after: 1, first es.dbn row 21 (2024-01-02 15:20:00 UTC, O 48000" in line
        and "--on-bad-bar drop" in line
        for line in loaded.warnings
    )
    dropped = load(tmp_path, on_bad_bar="drop")
    assert sizes(dropped) == {"ESH4": 39}
    assert [finding.count for finding in dropped.findings if finding.defect == "misprint"] == [1]


@pytest.mark.parametrize("volume", [2**63, 2**64 - 1])
def test_a_sentinel_is_no_volume(tmp_path: Path, volume: int) -> None:
    array = records(bars(100, 10))
    array["volume"][3] = volume
    put(tmp_path, "es.dbn", header() + array.tobytes())
    with pytest.raises(DataError, match=r"es\.dbn row 4 .*volume is more than any market trades"):
        load(tmp_path)


def test_files_that_stamp_different_ends_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "ES_a.csv", csv_text(5))
    later = csv_text(5, "Date,Open,High,Low,Close,Up").replace("15:", "16:").replace("\n", ",3\n")
    put(tmp_path, "ES_b.csv", later.replace("Up,3", "Up,Down"))
    with pytest.raises(DataError, match=r"ES_b\.csv stamps the end of its bars and ES_a\.csv the start.*--bar-label"):
        load(tmp_path, "ES")
    assert sizes(load(tmp_path, "ES", bar_label="close")) == {"ES": 10}


# --- real files


def test_real_parent_file(shared_data: Path) -> None:
    path = shared_data / "dbn_built" / "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"
    loaded = load(path)
    assert sizes(loaded) == {"ESZ3": 16_673, "ESH4": 5_116, "ESM4": 442, "ESU4": 6, "ESZ4": 9}
    assert [file.rows_kept for file in loaded.files] == [22_246]
    for table in loaded.tables:
        validate(table)
        assert (table.open_e9 % 250_000_000 == 0).all()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_real_files_of_every_version(shared_data: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_data / "dbn_legacy"
    # Their prices are 100 times too large; under a name that nothing is known of they are read as they are.
    with pytest.raises(DataError, match=r"ESH1: prices are 100 times too large: .* in 2020 is 372125"):
        load(folder / f"test_data.ohlcv-1m.v{version}.dbn.zst", "ESH1")
    monkeypatch.setattr("tidewalk.data.checks.levels.RANGES", {})
    loaded = load(folder / f"test_data.ohlcv-1m.v{version}.dbn.zst", "ESH1")
    assert loaded.fingerprint == load(folder / "test_data.ohlcv-1m.uncompressed-v2.dbn", "ESH1").fingerprint
    assert loaded.files[0].kind == f"dbn v{version} zstd"
    with pytest.raises(DataError, match="no bars in"):
        load(folder / f"test_data.ohlcv-1d.v{version}.dbn.zst", "ESH1")


def test_real_directory_with_every_schema(shared_data: Path) -> None:
    loaded = load(shared_data / "dbn", schema="ohlcv-1m")
    assert sizes(loaded) == {"ESH1": 4, "ESU4": 30, "ESZ4": 2, "ESH6": 10}
    assert sum(file.rows_kept for file in loaded.files) == 46
    assert sizes(load(shared_data / "dbn", "NQ.FUT", schema="ohlcv-1m")) == {"NQU4": 30}


@pytest.mark.parametrize(
    ("name", "symbol", "flags", "bars_kept", "interval_s"),
    [
        ("nq_5min_2019_pacific.csv", "NQ", {"tz": "America/Los_Angeles"}, 70_002, 300),
        ("es_tick-bars_2015-2016.csv", "ES", {"tz": "UTC", "bar_label": "close"}, 41_123, None),
        ("es_volume-bars_2015-2016.csv", "ES", {"tz": "UTC", "bar_label": "close"}, 29_023, None),
        ("esh20_1min_2019-12_2020-01_barchart-download-desc.csv", "ESH20", {"tz": "America/Chicago"}, 5_443, 60),
        ("esh20_1min_2020-01_2020-02_barchart-api.csv", "ES.FUT", {}, 29_872, 60),
        ("nq_5min_2022-2023_tradingview-export.csv", "NQ", {}, 11_082, 300),
        ("yahoo-es_daily_2000-2025_yahoo-multiheader.csv", "ES", {"on_bad_bar": "drop"}, 6_126, 86_400),
        ("fdax_30min_2023-2024_sierrachart.txt", "FDAX", {"tz": "Europe/Berlin"}, 9_986, 1_800),
        ("fesx_1min_2006-01_2006-02_visualchart.txt", "FESX", {"tz": "Europe/Berlin"}, 30_889, 60),
        ("6eh4_1min_2024-01_utc.csv.gz", "6EH4", {"tz": "UTC", "bar_label": "close"}, 29_996, 60),
        ("databento_cl.c.0_daily_2010-2026.csv", "CL", {}, 4_890, 86_400),
        ("dukascopy_usa500idx_1h_2013-2023.tsv", "USA500", {"tz": "UTC"}, 53_257, 3_600),
        ("investing_sp500fut_daily_2016-2019.csv", "ES", {"on_bad_bar": "drop"}, 811, 86_400),
        ("china-commodity-futures_5min_2023-03_multisymbol.csv", "FU2305", {"tz": "Asia/Shanghai"}, 1_023, 300),
    ],
)
def test_real_text_files(
    shared_data: Path, name: str, symbol: str, flags: dict[str, str], bars_kept: int, interval_s: int | None
) -> None:
    loaded = load(shared_data / "csv" / name, symbol, **flags)
    table = loaded.tables[0]
    validate(table)
    assert len(table.ts_ns) == bars_kept
    assert table.interval_ns == (None if interval_s is None else interval_s * 10**9)


def test_whole_year_of_wall_time_follows_the_opening_bell(shared_data: Path) -> None:
    table = load(shared_data / "csv" / "nq_5min_2019_pacific.csv", "NQ", tz="America/Los_Angeles").tables[0]
    moved = np.abs(table.close_e9 - table.open_e9)
    busiest = {season: np.zeros(288) for season in ("winter", "summer")}
    for season, (first, last) in {
        "winter": ("2019-01-02", "2019-03-08"),
        "summer": ("2019-04-01", "2019-10-25"),
    }.items():
        inside = (table.ts_ns >= ns(first)) & (table.ts_ns < ns(last))
        np.add.at(busiest[season], table.ts_ns[inside] % DAY_NS // (5 * MINUTE_NS), moved[inside])
    # 09:30 in New York is 14:30 UTC in winter and 13:30 in summer.
    assert busiest["winter"][14 * 12 + 6 : 14 * 12 + 9].max() == busiest["winter"].max()
    assert busiest["summer"][13 * 12 + 6 : 13 * 12 + 9].max() == busiest["summer"].max()


def test_real_negative_price_is_kept_exactly(shared_data: Path) -> None:
    loaded = load(shared_data / "csv" / "databento_cl.c.0_daily_2010-2026.csv", "CL")
    table = loaded.tables[0]
    assert table.low_e9.min() == -40_320_000_000
    assert "bars with a price of zero or less: 2 of 4890" in loaded.warnings
    assert ES_PARENT[0].raw_symbol == "ESH4"
