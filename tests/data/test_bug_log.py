"""Faults reported against other programs, each with the smallest input that shows it and the right result.

The number in a test's name is that of the collection in which they are kept; the project that had the fault is named in
the test. Those of other parts of this program are tested there: B16 and B22 (bars made of ticks and of shorter bars) in
`test_ticks.py` and `test_resample.py`, B44 (windows) in `tests/market/test_windows.py`.
"""

import dataclasses
import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.market_files import (
    ALWAYS,
    HOUR_NS,
    MINUTE_NS,
    UNDEF,
    bar,
    dbn,
    header,
    mapped,
    ns,
    put,
    records,
    zst,
)
from tidewalk.core.errors import DataError
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.calendar.sessions import session_columns
from tidewalk.data.contracts.rolls import basis_e9, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.market.features import bars_frame, build_default
from tidewalk.market.prepare import SeriesConfig, moves, prepare

MINUTES = [mapped("ESH4", (*ALWAYS, 100))]


def load(path: Path, symbol: str = "ESH4", **flags: Any) -> Loaded:
    return load_bars(DataConfig(path, symbol, **flags))


def minutes(count: int) -> np.ndarray:
    """Bars 4800, 4801, 4799, 4800 of 10 lots from 2024-01-01 00:00 UTC on."""
    array = np.repeat(records([bar(100, 0)]), count)
    array["ts_event"] = ns("2024-01-01") + np.arange(count) * MINUTE_NS
    array["close"] = array["open"]
    return array


def csv(*rows: str, columns: str = "time,open,high,low,close,volume") -> str:
    return "\n".join((columns, *rows)) + "\n"


# --- parsing


def test_b01_a_download_cut_off_is_never_a_shorter_file(tmp_path: Path) -> None:
    # databento-python 0.36.0, and 0.88.0 as measured: 198,945 rows of 200,000 and no error.
    content = header(MINUTES) + minutes(200_000).tobytes()
    packed = zst(content)
    for lost in (1, 100, len(packed) // 2):
        path = put(tmp_path, "es.dbn.zst", packed[:-lost])
        with pytest.raises(DataError, match=r"es\.dbn\.zst: incomplete zstd frame"):
            load(path)
    # Only the first of two frames was read.
    whole = load(put(tmp_path, "es.dbn.zst", zst(content, frames=2)))
    assert len(whole.tables[0].ts_ns) == 200_000
    few = header(MINUTES) + minutes(100).tobytes()
    with pytest.raises(DataError, match=r"es\.dbn: "):
        load(put(tmp_path, "es.dbn", few[:-1]))


def test_b02_bars_of_another_interval_are_not_taken_in(tmp_path: Path) -> None:
    # databento-python 0.24.0: three rows although the schema was asked for.
    array = minutes(3)
    array["rtype"] = (33, 35, 33)
    with pytest.raises(DataError, match=r"es\.dbn: mixed bar intervals: .*record 2 .*ohlcv-1d"):
        load(put(tmp_path, "es.dbn", header(MINUTES) + array.tobytes()))


def test_b03_the_sentinel_of_no_price_is_a_missing_bar(tmp_path: Path) -> None:
    array = minutes(2)
    for name in ("open", "high", "low", "close"):
        array[name][0] = UNDEF
    array["volume"][0] = 0
    loaded = load(put(tmp_path, "es.dbn", header(MINUTES) + array.tobytes()))
    assert (loaded.tables[0].high_e9 / 1e9).tolist() == [4801.0]
    assert any(text.startswith("rows without a price left out: 1 of 2") for text in loaded.warnings)


def test_b04_prices_are_exact(tmp_path: Path) -> None:
    # nautilus_trader issue 1737: 5199.75 came out as 52.00.
    mapping = [mapped("ESM4", (*ALWAYS, 5602))]
    raw_e9 = 5_199_750_000_000
    table = load(
        put(tmp_path, "es.dbn", dbn([bar(5602, ns("2024-05-09 10:00"), raw_e9 / 1e9)], mapping)), "ESM4"
    ).tables[0]
    assert table.open_e9.tolist() == [raw_e9]
    assert divmod(int(table.open_e9[0]), spec_for("ES").tick_e9) == (20_799, 0)
    off = csv(*(f"2024-05-09T10:{i}Z,5199.75,5200,5199.6,5199.75,9" for i in range(10, 40)))
    made = prepare(DataConfig(put(tmp_path, "es.csv", off), "ESM4"), SeriesConfig())
    assert any("30 of 30 bars (100.00%) have prices off the tick of 0.25" in text for text in made.market.info.warnings)
    # The fault itself: a hundredth of the price, which is off the grid of the contract.
    small = csv(*(f"2024-05-09T10:0{i}Z,51.9975,52.0,51.9950,51.9975,9" for i in range(5)))
    with pytest.raises(DataError, match=r"ESM4: prices are 100 times too small"):
        load(put(tmp_path, "es.csv", small), "ESM4")


def test_b05_a_naive_time_is_no_utc_and_a_day_no_minute(tmp_path: Path) -> None:
    # openalgo issue 1946
    naive = csv(*(f"2015-01-09 09:1{i}:00,2050,2051,2049,2050,5" for i in range(5, 8)))
    with pytest.raises(DataError, match=r"2015-01-09 09:15:00 say no time zone.*--tz"):
        load(put(tmp_path, "es.csv", naive), "ES")
    daily = csv(
        *(f"2015-01-0{day},2050,2051,2049,2050,5" for day in (5, 6, 7, 8)), columns="date,open,high,low,close,volume"
    )
    with pytest.raises(DataError, match=r"--schema ohlcv-1m: es\.csv has bars of 1 day, not bars of 1 minute"):
        load(put(tmp_path, "es.csv", daily), "ES", schema="ohlcv-1m")


def test_b06_a_high_below_the_open_is_refused_with_its_row(tmp_path: Path) -> None:
    # TorchTrade issue 326
    rows = [f"2024-01-02T10:{i:02}Z,100,101,99,100,5" for i in range(30)]
    rows[17] = "2024-01-02T10:17Z,100,99,98,98.5,5"
    path = put(tmp_path, "es.csv", csv(*rows))
    with pytest.raises(DataError, match=r"es\.csv row 19 \(2024-01-02 10:17:00 UTC, O 100 H 99 L 98 C 98\.5"):
        load(path, "ES")
    loaded = load(path, "ES", on_bad_bar="drop")
    assert len(loaded.tables[0].ts_ns) == 29
    assert any("do not enclose open and close: 1 of 30" in text for text in loaded.warnings)


def test_b07_no_range_is_carried_into_a_row_with_only_a_close(tmp_path: Path) -> None:
    # TorchTrade issue 353
    rows = ["2024-01-02T10:00Z,100,110,90,100,5", "2024-01-02T10:01Z,,,,101,5", "2024-01-02T10:02Z,100,101,99,100,5"]
    path = put(tmp_path, "es.csv", csv(*rows, "2024-01-02T10:03Z,100,101,99,100,5"))
    with pytest.raises(DataError, match=r"es\.csv row 3 .*O - H - L - C 101.* a price is missing"):
        load(path, "ES")
    loaded = load(path, "ES", on_bad_bar="drop")
    assert (loaded.tables[0].high_e9 / 1e9).tolist() == [110, 101, 101]
    assert any("a price is missing: 1 of 4" in text for text in loaded.warnings)


def test_b08_stamps_unsorted_and_twice(tmp_path: Path) -> None:
    # histdata.com-tools issue 128, hftbacktest issue 238
    rows = ["10:05,1,3,1,2", "10:01,1,3,1,2", "10:01,1,3,1,2", "10:02,1,3,1,2", "10:02,1,3,1,2.5", "10:03,1,3,1,2"]
    stamped = [f"2024-01-02T{row}".replace(",", "Z,", 1) for row in rows]
    text = csv(*stamped, columns="time,open,high,low,close")
    with pytest.raises(DataError, match=r"es\.csv row 5 .*C 2, .* and es\.csv row 6 .*C 2\.5"):
        load(put(tmp_path, "es.csv", text), "ES")
    loaded = load(put(tmp_path, "es.csv", text.replace("2.5", "2")), "ES")
    assert (np.diff(loaded.tables[0].ts_ns) // MINUTE_NS).tolist() == [1, 1, 2]
    assert "rows dropped because the same row was there already: 2" in loaded.notes
    assert any("out of time order in 1 place: sorted" in note for note in loaded.notes)


def test_b09_contracts_and_spreads_of_a_parent_are_never_mixed(tmp_path: Path) -> None:
    # Databento's documents on parent symbols: spread price 50 among outrights at 4800; minutes without a trade.
    mappings = [*MINUTES, mapped("ESH4-ESM4", (*ALWAYS, 200))]
    stamps = [ns("2024-01-02 15:00") + i * MINUTE_NS for i in (0, 1, 5)]
    rows = [row for stamp in stamps for row in (bar(100, stamp, 4800.0), bar(200, stamp, 50.0))]
    loaded = load(put(tmp_path, "es.dbn", dbn(rows, mappings)), "ES.FUT")
    (table,) = loaded.tables
    assert (table.open_e9 / 1e9).tolist() == [4800.0] * 3
    assert (np.diff(table.ts_ns) // MINUTE_NS).tolist() == [1, 4]


ZONE_OF_THE_MACHINE = """
import sys
from pathlib import Path
from tidewalk.data.load import DataConfig, load_bars
print(load_bars(DataConfig(Path(sys.argv[1]), "ES", tz="America/Chicago")).fingerprint)
"""


def test_b10_the_time_zone_of_the_machine_changes_nothing(tmp_path: Path) -> None:
    # FinRL-Meta issue 182
    path = put(tmp_path, "es.csv", csv(*(f"2024-03-10 {hour:02}:00,4800,4801,4799,4800,5" for hour in (0, 1, 3, 4))))
    seen = set()
    for zone in ("UTC", "Asia/Tokyo"):
        command = [sys.executable, "-c", ZONE_OF_THE_MACHINE, str(path)]
        done = subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


# --- rolls and prices below zero


def table(
    contract: str, ts_ns: list[int], opens: list[float], volume: float, closes: list[float] | None = None
) -> BarTable:
    """Bars of an hour, flat unless closes are given."""
    open_e9 = np.array([round(price * 1e9) for price in opens], np.int64)
    close_e9 = open_e9 if closes is None else np.array([round(price * 1e9) for price in closes], np.int64)
    ts = np.array(ts_ns, np.int64)
    high_e9, low_e9 = np.maximum(open_e9, close_e9), np.minimum(open_e9, close_e9)
    return BarTable(
        contract, 1, HOUR_NS, ts, ts + HOUR_NS, open_e9, high_e9, low_e9, close_e9, np.full(len(ts), volume), True
    )


def hours(*days: str) -> list[int]:
    return [ns(f"{day} 14:00") + i * HOUR_NS for day in days for i in range(4)]


def rolled(old: list[float], new: list[float], root: str, names: tuple[str, str]) -> Loaded:
    """Two contracts on three days; the second trades more on the second day, so that it is held on the third."""
    stamps = hours("2022-06-08", "2022-06-09", "2022-06-10")
    first, second = table(names[0], stamps, old, 10.0), table(names[1], stamps, new, 9.0)
    second = dataclasses.replace(second, volume=np.where(np.arange(12) < 4, 9.0, 20.0))
    return Loaded(f"{root}.FUT", root, "parent", (first, second), (), (), "f")


def test_b11_the_basis_is_no_profit() -> None:
    # LEAN issue 7868: 4030.375 and 4063.375, 33 points or 1650 USD.
    loaded = rolled([4030.25] * 12, [4063.25] * 12, "ES", ("ESM2", "ESU2"))
    series = front_series(loaded, spec_for("ES"))
    assert [(roll.from_contract, roll.to_contract) for roll in series.rolls] == [("ESM2", "ESU2")]
    assert (series.open_e9 / 1e9).tolist() == [4030.25] * 8 + [4063.25] * 4  # the old one's own prices until the roll
    assert not moves(series, spec_for("ES"))[0].any()


def test_b12_the_shadow_price_changes_by_what_a_holder_gains() -> None:
    # pysystemtrade issue 106: adjusted corn jumped by 75.50 where the contract lost 1.00.
    old = [674.75] * 8 + [673.75] * 4
    series = front_series(rolled(old, [price + 76.5 for price in old], "ZC", ("ZCN2", "ZCU2")), spec_for("ZC"))
    (roll,) = np.flatnonzero(np.diff(series.contract_id)) + 1
    shadow_e9 = series.open_e9 - basis_e9(series)
    assert (shadow_e9[roll] - shadow_e9[roll - 1]) / 1e9 == -1.0
    constant = np.diff(basis_e9(series))
    assert np.flatnonzero(constant).tolist() == [roll - 1]
    assert constant[roll - 1] / 1e9 == 76.5


def test_b13_profit_is_counted_in_money_where_returns_have_no_meaning() -> None:
    # TTR issue 60: crude oil at 18.27, -37.63, 10.01, long one contract of 1000 barrels.
    oil = spec_for("CL")
    one = table("CLK0", hours("2020-04-20"), [18.0, 18.27, -37.63, 10.01], 5.0)
    series = front_series(Loaded("CLK0", "CL", "raw", (one,), (), (), "f"), oil)
    assert (moves(series, oil)[0] * oil.tick_value_usd).tolist()[:2] == pytest.approx([-55_900, 47_640])
    features = build_default(bars_frame(series)).fill_null(0.0).to_numpy()
    assert np.isfinite(features).all()


def test_b14_mapping_is_decided_in_utc(tmp_path: Path) -> None:
    # databento-python 0.30.0: a zone for display moved the change of the mapping.
    mappings = [mapped("ESH4", ("2024-03-01", "2024-03-15", 7)), mapped("ESM4", ("2024-03-15", "2024-04-01", 7))]
    rows = [bar(7, ns("2024-03-14 23:59"), 5100.0), bar(7, ns("2024-03-15 00:00"), 5160.0)]
    path = put(tmp_path, "es.dbn", dbn(rows, mappings))
    plain, viewed = load(path, "ES.FUT"), load(path, "ES.FUT", tz="America/Chicago")
    assert [(entry.contract, entry.open_e9[0] / 1e9) for entry in plain.tables] == [("ESH4", 5100.0), ("ESM4", 5160.0)]
    assert plain.fingerprint == viewed.fingerprint


# --- calendars


def test_b15_sunday_evening_is_monday_on_both_sides_of_a_clock_change(tmp_path: Path) -> None:
    # pandas_market_calendars issues 195, 402, 182, 131
    rule = spec_for("ES").sessions
    stamps = ["2024-03-03 23:00", "2024-03-08 23:00", "2024-03-10 22:00"]
    columns = session_columns(np.array([ns(stamp) for stamp in stamps]), rule)
    days = [str(np.datetime64(int(day), "D")) for day in columns.trade_day]
    assert (days[0], days[2]) == ("2024-03-04", "2024-03-11")
    assert columns.is_outside.tolist() == [False, True, False]
    for opened, closed in (("2024-03-03 23:00", "2024-03-04 21:59"), ("2024-03-10 22:00", "2024-03-11 20:59")):
        edges = session_columns(np.array([ns(opened), ns(closed)]), rule)
        assert edges.minute_of_session.tolist() == [0, 23 * 60 - 1]
        assert edges.minutes_to_close.tolist() == [23 * 60, 1]
    lines = [f"{stamp.replace(' ', 'T')}Z,5100,5101,5099,5100,5" for stamp in stamps]
    lines += [f"2024-03-10T22:{i:02}Z,5100,5101,5099,5100,5" for i in range(1, 40)]
    path = put(tmp_path, "es.csv", csv(*lines))
    made = prepare(DataConfig(path, "ESH4", schema="ohlcv-1m"), SeriesConfig())
    assert any("2024-03-08T23:00" in text for text in (*made.market.info.notes, *made.market.info.warnings))


# --- look-ahead


def test_b19_a_bar_is_known_when_it_is_complete(tmp_path: Path) -> None:
    # nautilus_trader issue 4577: an hour labelled 10:00 was seen before 11:00.
    rows = [f"2024-01-02T{hour}:00Z,4800,4801,4799,4800,5" for hour in (10, 11, 12)]
    for label, known in (("open", "2024-01-02 11:00"), ("close", "2024-01-02 10:00")):
        loaded = load(put(tmp_path, "es.csv", csv(*rows)), "ES", bar_label=label)
        assert loaded.tables[0].known_ns[0] == ns(known)
        frame = bars_frame(front_series(dataclasses.replace(loaded, symbology="raw"), spec_for("ES")))
        assert frame["known_at"][0] == datetime.datetime.fromisoformat(f"{known}:00+00:00")
    # The move that a decision at its close can earn starts at the next open.
    minute = [bar(100, ns("2024-01-02 10:00") + i * MINUTE_NS, 4800.0 + i) for i in range(30)]
    made = prepare(DataConfig(put(tmp_path, "es.dbn", dbn(minute, MINUTES)), "ESH4"), SeriesConfig())
    assert made.market.move_ticks.tolist() == [4] * 28 + [0, 0]


def test_b52_one_bad_candle_stops_at_the_door(tmp_path: Path) -> None:
    # TorchTrade pull request 397, deep-trading-agent issue 13
    rows = [f"2024-01-02T{i // 60 + 10:02}:{i % 60:02}Z,4800,4801,4799,4800,5" for i in range(700)]
    rows[500] = rows[500].replace(",4800,5", ",NaN,5")
    path = put(tmp_path, "es.csv", csv(*rows))
    with pytest.raises(DataError, match=r"es\.csv row 502 .*C -.*a price is missing.*--on-bad-bar drop"):
        load(path, "ES")
    made = prepare(DataConfig(path, "ES", on_bad_bar="drop"), SeriesConfig())
    assert made.market.num_bars == 699
    assert np.isfinite(made.market.features).all()
