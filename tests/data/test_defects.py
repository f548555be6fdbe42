"""The thirty defects of market data, one after the other: files in, bars and findings or a refusal out.

Each test writes its own files. What a defect does inside its part is tested beside that part.
"""

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.market_files import (
    ALWAYS,
    DAY_NS,
    ES_PARENT,
    HOUR_NS,
    MINUTE_NS,
    START,
    UNDEF,
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
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.checks.quality import DEFECTS, Finding
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig
from tidewalk.market.device import GAP
from tidewalk.market.prepare import Prepared, SeriesConfig, prepare

NQ = (mapped("NQH4", (*ALWAYS, 500)),)


def market(path: Path, symbol: str = "ES.FUT", *, series: SeriesConfig | None = None, **flags: Any) -> Prepared:
    """The prepared market with one feature."""
    return prepare(DataConfig(path, symbol, **flags), series or SeriesConfig())


def sizes(loaded: Loaded) -> dict[str, int]:
    return {table.contract: len(table.ts_ns) for table in loaded.tables}


def found(loaded: Loaded, defect: str) -> Finding:
    """The one finding of a kind."""
    (finding,) = [finding for finding in loaded.findings if finding.defect == defect]
    return finding


def refused(path: Path, symbol: str = "ES.FUT", **flags: Any) -> str:
    """The text of the refusal."""
    with pytest.raises((DataError, ConfigError)) as caught:
        load(path, symbol, **flags)
    return str(caught.value)


def csv_bars(
    start: str, count: int, *, price: float = 4800.0, step_minutes: int = 1, zone: str = "Z", volume: int = 5
) -> list[str]:
    """Lines `time,open,high,low,close,volume` of bars that rise by a tick each."""
    first = np.datetime64(start, "m")
    lines = []
    for i in range(count):
        stamp, at = str(first + np.timedelta64(i * step_minutes, "m")) + zone, price + i % 8 / 4
        lines.append(f"{stamp},{at},{at + 1},{at - 1},{at + 0.25},{volume}")
    return lines


def csv(*lines: str, columns: str = "time,open,high,low,close,volume") -> str:
    return "\n".join((columns, *lines)) + "\n"


def as_of(price_by_name: dict[str, int], rows: list[Any], at: int = 0) -> bytes:
    """A file of these rows, some columns of one of them replaced."""
    array = records(rows)
    for name, value in price_by_name.items():
        array[name][at] = value
    return header() + array.tobytes()


# --- 1 to 10: what the files are


def test_defect_01_spreads_among_outrights(tmp_path: Path) -> None:
    rows = [*bars(100, 5), *bars(200, 5), *[bar(300, START + i * MINUTE_NS, -65.0) for i in range(5)]]
    path = put(tmp_path, "es.dbn", dbn(rows))
    loaded = load(path)
    assert sizes(loaded) == {"ESH4": 5, "ESM4": 5}
    assert min(int(table.low_e9.min()) for table in loaded.tables) > 0
    finding = found(loaded, "spreads")
    assert finding.count == 5
    assert "1 spreads or combinations and 0 other instruments, 5 rows" in finding.text
    only_spreads = put(tmp_path, "spreads.dbn", dbn(rows[10:], ES_PARENT[2:]))
    assert "not in spreads.dbn" in refused(only_spreads)
    assert "1 spreads or combinations" in refused(only_spreads)
    no_outright_rows = put(tmp_path, "thin.dbn", dbn(rows[10:]))
    assert "no bars in thin.dbn. Nothing is left to train on" in refused(no_outright_rows)


def test_defect_02_several_contracts_in_a_minute(tmp_path: Path) -> None:
    first, second = ns("2024-03-11 14:30"), ns("2024-03-12 14:30")
    rows = [
        bar(number, first + i * MINUTE_NS, 5100.0 + number / 2, 100 - number // 3)
        for i in range(5)
        for number in (100, 200)
    ]
    rows += [bar(200, second + i * MINUTE_NS, 5202.0, 50) for i in range(5)]
    rows += [bar(100, second + i * MINUTE_NS, 5150.0, 90) for i in range(5)]
    put(tmp_path, "es.dbn", dbn(rows))
    series = front_series(load(tmp_path), spec_for("ES"))
    assert (np.diff(series.ts_ns) > 0).all()
    assert len(series.ts_ns) == 10
    # One contract per minute, its own prices: 5150 and 5200 are never averaged nor alternated.
    for price_e9, number in zip(series.open_e9, series.contract_id, strict=True):
        held = 5150.0 if series.contracts[number] == "ESH4" else (5200.0, 5202.0)
        assert price_e9 / 1e9 in np.atleast_1d(held)


def test_defect_03_compressed_file_cut_off(tmp_path: Path) -> None:
    whole = zst(dbn(bars(100, 12_000)))
    for kept in (len(whole) - 1, len(whole) - 100, len(whole) // 2):
        path = put(tmp_path, "es.dbn.zst", whole[:kept])
        assert "es.dbn.zst" in refused(path)
        assert "--allow-truncated" in refused(path)
    loaded = load(path, allow_truncated=True)
    assert 0 < sizes(loaded)["ESH4"] < 12_000
    assert any("es.dbn.zst" in text for text in loaded.warnings)


def test_defect_04_plain_file_cut_inside_a_record(tmp_path: Path) -> None:
    path = put(tmp_path, "es.dbn", dbn(bars(100, 100))[:-1])
    assert "es.dbn" in refused(path)
    assert "--allow-truncated" in refused(path)
    loaded = load(path, allow_truncated=True)
    assert sizes(loaded) == {"ESH4": 99}
    assert any("es.dbn" in text for text in loaded.warnings)


def test_defect_05_archive_of_several_frames(tmp_path: Path) -> None:
    content = dbn(bars(100, 3000))
    start = len(header())
    path = put(tmp_path, "es.dbn.zst", zst(content[:start]) + zst(content[start:], frames=3))
    assert sizes(load(path)) == {"ESH4": 3000}


def test_defect_06_damaged_archive(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [bar(100, START + i * MINUTE_NS, 4800.0 + int(rng.integers(400)) / 4) for i in range(3000)]
    content = bytearray(zst(dbn(rows)))
    content[len(content) // 2] ^= 0xFF
    put(tmp_path, "good.dbn", dbn(bars(200, 5)))
    path = put(tmp_path, "es.dbn.zst", bytes(content))
    assert "es.dbn.zst" in refused(path)
    assert "es.dbn.zst" in refused(tmp_path)


def test_defect_07_not_one_stream(tmp_path: Path) -> None:
    whole = dbn(bars(100, 5))
    assert "es.dbn" in refused(put(tmp_path, "es.dbn", whole + whole))
    mixed = records(bars(100, 3))
    mixed["rtype"][1] = 35
    text = refused(put(tmp_path, "es.dbn", header() + mixed.tobytes()))
    assert "es.dbn" in text
    assert "record 2" in text


def test_defect_08_no_rows(tmp_path: Path) -> None:
    path = put(tmp_path, "es.dbn", dbn([]))
    assert "no bars in es.dbn" in refused(path)
    assert "the file is empty" in refused(put(tmp_path, "nothing.csv", b""))
    put(tmp_path, "full.dbn", dbn(bars(100, 5)))
    loaded = load(tmp_path)
    assert sizes(loaded) == {"ESH4": 5}
    assert [finding.file for finding in loaded.findings if finding.is_warning] == ["nothing.csv"]
    assert any("es.dbn" in note and "no records" in note for note in loaded.notes)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("es.dbz", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + zst(b"\0" * 99), "DBZ"),
        ("es.dbn.frag.zst", zst(b"\0" * 99), "without metadata"),
        ("es.dbn", b"DBN\x04" + header()[4:], "version 4"),
        ("es.dbn", b"time,open,high,low,close\n", "holds text"),
    ],
)
def test_defect_09_foreign_format(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    text = refused(put(tmp_path, name, content))
    assert name in text
    assert kind in text


def test_defect_10_several_schemas(tmp_path: Path) -> None:
    put(tmp_path, "minutes.dbn", dbn(bars(100, 5)))
    put(tmp_path, "hours.dbn", dbn(bars(100, 5, ns("2024-01-02"), HOUR_NS), schema="ohlcv-1h"))
    text = refused(tmp_path)
    assert "ohlcv-1h in hours.dbn, ohlcv-1m in minutes.dbn" in text
    assert "--schema" in text
    loaded = load(tmp_path, schema="ohlcv-1h")
    assert loaded.tables[0].interval_ns == HOUR_NS
    assert "minutes.dbn" in found(loaded, "other-schema").line


# --- 11 to 20: what the rows are


def test_defect_11_files_that_overlap(tmp_path: Path) -> None:
    put(tmp_path, "a.dbn", dbn(bars(100, 30)))
    put(tmp_path, "b.dbn", dbn([bar(100, START + i * MINUTE_NS, 4800.0 + i % 40 / 4) for i in range(20, 50)]))
    loaded = load(tmp_path)
    assert sizes(loaded) == {"ESH4": 50}
    assert (found(loaded, "overlapping-files").count, found(loaded, "overlapping-files").is_warning) == (10, False)
    put(tmp_path, "a.dbn", dbn([*bars(100, 29), bar(100, START + 29 * MINUTE_NS, 4900.0)]))
    text = refused(tmp_path)
    assert "two different bars for one moment: a.dbn row 30 (2024-01-02 15:29:00 UTC, O 4900 " in text
    assert "and b.dbn row 10" in text
    loaded = load(tmp_path, on_conflict="later")
    assert loaded.tables[0].open_e9[29] == 4807.25e9
    finding = next(entry for entry in loaded.findings if "given up for a later one" in entry.text)
    assert (finding.defect, finding.count, finding.is_warning) == ("overlapping-files", 1, True)
    # Which file is later is told by what it holds, not by its name.
    (tmp_path / "a.dbn").rename(tmp_path / "z.dbn")
    assert load(tmp_path, on_conflict="later").fingerprint == loaded.fingerprint


def test_defect_11_conflicting_files_of_one_end(tmp_path: Path) -> None:
    put(tmp_path, "a.dbn", dbn([bar(100, START, 4800.0)]))
    put(tmp_path, "b.dbn", dbn([bar(100, START, 4801.0)]))
    assert "Both files end at the same moment" in refused(tmp_path, on_conflict="later")


def test_defect_12_duplicates_in_a_file(tmp_path: Path) -> None:
    lines = csv_bars("2024-01-02T15:00", 5)
    loaded = load(put(tmp_path, "es.csv", csv(*lines, lines[2])), "ES")
    assert sizes(loaded) == {"ES": 5}
    assert found(loaded, "duplicate-rows").count == 1
    other = lines[2].replace("4800.75,5", "4801,5")
    path = put(tmp_path, "es.csv", csv(*lines[:3], other, *lines[3:]))
    text = refused(path, "ES")
    assert "es.csv row 4 (2024-01-02 15:02:00 UTC" in text
    assert "es.csv row 5" in text
    assert "--on-conflict later" in text
    assert load(path, "ES", on_conflict="later").tables[0].close_e9[2] == 4801 * 10**9


def test_defect_13_rows_out_of_order(tmp_path: Path) -> None:
    lines = csv_bars("2024-01-02T15:00", 9)
    straight = load(put(tmp_path, "es.csv", csv(*lines)), "ES")
    backwards = load(put(tmp_path, "es.csv", csv(*lines[::-1])), "ES")
    swapped = load(put(tmp_path, "es.csv", csv(*lines[3:], *lines[:3])), "ES")
    assert straight.fingerprint == backwards.fingerprint == swapped.fingerprint
    assert "newest first" in found(backwards, "out-of-order").text
    assert found(swapped, "out-of-order").count == 1
    rows = bars(100, 9)
    in_dbn = load(put(tmp_path, "es.dbn", dbn([*rows[3:], *rows[:3]])))
    assert "out of time order in 1 place: sorted" in found(in_dbn, "out-of-order").text
    assert in_dbn.fingerprint == load(put(tmp_path, "es.dbn", dbn(rows))).fingerprint


@pytest.mark.parametrize("absent", ["", "N/A", "NaN", "nan", "-", "3.4e38", "3.40282e+38", "9223372036.854775807"])
def test_defect_14_rows_without_a_price(tmp_path: Path, absent: str) -> None:
    lines = csv_bars("2024-01-02T15:00", 200)
    for at in (50, 51, 52):
        lines[at] = f"{lines[at].split(',')[0]},{absent},{absent},{absent},{absent},0"
    loaded = load(put(tmp_path, "es.csv", csv(*lines)), "ES")
    assert sizes(loaded) == {"ES": 197}
    assert loaded.tables[0].high_e9.max() < 5000 * 10**9
    finding = found(loaded, "missing-price")
    assert (finding.count, finding.is_warning) == (3, True)
    assert "3 of 200, first es.csv row 52" in finding.text


def test_defect_14_sentinel_of_the_vendor(tmp_path: Path) -> None:
    gone = dict.fromkeys(("open", "high", "low", "close"), UNDEF)
    loaded = load(put(tmp_path, "es.dbn", as_of(gone, bars(100, 2))))
    assert sizes(loaded) == {"ESH4": 1}
    assert found(loaded, "missing-price").count == 1
    array = records(bars(100, 100))
    for name in gone:
        array[name][:21] = UNDEF
    text = refused(put(tmp_path, "es.dbn", header() + array.tobytes()))
    assert "ESH4: 21 of 100 rows have no price, the first is es.dbn row 1" in text


def test_defect_15_prices_of_zero_or_less(tmp_path: Path) -> None:
    lines = csv_bars("2020-04-20T18:00", 30, price=-37.5)
    loaded = load(put(tmp_path, "cl.csv", csv(*lines)), "CL")
    assert loaded.tables[0].low_e9.min() == -38_500_000_000
    assert any("bars with a price of zero or less: 30 of 30" in text for text in loaded.warnings)
    made = market(tmp_path / "cl.csv", "CL")
    assert np.isfinite(made.market.features).all()
    assert made.market.move_ticks[0] == 25
    text = refused(put(tmp_path, "es.csv", csv(*csv_bars("2024-01-02T15:00", 9), "2024-01-02T15:09Z,0,1,0,1,5")), "ES")
    assert "es.csv row 11 " in text
    assert "a price is zero or less, which this product never traded at" in text


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("4800,4799,4798,4798.5,5", "high and low do not enclose open and close"),
        ("4800,4801,4800.5,4801,5", "high and low do not enclose open and close"),
        (",,,4801,5", "a price is missing"),
        ("4800,NaN,4799,4800,5", "a price is missing"),
        ("4800,4801,4799,3.4e38,5", "a price is missing"),
        ("4800,4801,4799,4800,-5", "volume is below zero"),
    ],
)
def test_defect_16_impossible_bars(tmp_path: Path, row: str, what: str) -> None:
    lines = csv_bars("2024-01-02T15:00", 500)
    lines[400] = f"2024-01-02T21:40Z,{row}"
    path = put(tmp_path, "es.csv", csv(*lines))
    text = refused(path, "ES")
    assert "es.csv row 402 (2024-01-02 21:40:00 UTC" in text
    assert f"{what}, in 1 of 500 rows" in text
    assert "--on-bad-bar drop" in text
    loaded = load(path, "ES", on_bad_bar="drop")
    assert (sizes(loaded), found(loaded, "impossible-bar").count) == ({"ES": 499}, 1)
    assert found(loaded, "impossible-bar").is_warning
    assert loaded.tables[0].low_e9.min() == 4799 * 10**9


def test_defect_17_wrong_scale(tmp_path: Path) -> None:
    for factor, words in ((100, "100 times too large"), (10, "10 times too large"), (0.01, "100 times too small")):
        lines = []
        for line in csv_bars("2024-05-09T10:00", 60, price=5199.75):
            stamp, *numbers, volume = line.split(",")
            lines.append(",".join((stamp, *(f"{float(number) * factor:.6f}" for number in numbers), volume)))
        text = refused(put(tmp_path, "es.csv", csv(*lines)), "ES")
        assert f"ES: prices are {words}" in text
        assert "between 3000 and 25000" in text
    dear = load(put(tmp_path, "es.csv", csv(*csv_bars("2024-05-09T10:00", 60, price=199.75))), "ES")
    assert "the median close of ES in 2024 is" in found(dear, "off-tick").text
    assert found(dear, "off-tick").is_warning
    assert not [entry for entry in load(tmp_path / "es.csv", "XYZ").findings if entry.defect == "off-tick"]


@pytest.mark.parametrize(("off", "is_warning"), [(1, False), (3, True)])
def test_defect_17_prices_off_the_tick(tmp_path: Path, off: int, *, is_warning: bool) -> None:
    lines = csv_bars("2024-01-02T15:00", 200)
    for at in range(off):
        stamp, opened, high, low, *rest = lines[at].split(",")
        lines[at] = ",".join((stamp, opened, high, str(float(low) - 0.1), *rest))
    made = market(put(tmp_path, "es.csv", csv(*lines)), "ES")
    (record,) = [record for record in made.market.info.quality if record["defect"] == "off-tick"]
    assert (record["count"], record["is_warning"]) == (off, is_warning)
    assert ("another instrument" in str(record["text"])) == is_warning


def test_defect_18_bars_without_volume(tmp_path: Path) -> None:
    lines = csv_bars("2024-01-02T15:00", 50)
    lines[7] = lines[7].removesuffix(",5") + ",0"
    some = load(put(tmp_path, "es.csv", csv(*lines)), "ES")
    assert (sizes(some), found(some, "zero-volume").count, found(some, "zero-volume").is_warning) == (
        {"ES": 50},
        1,
        False,
    )
    none = market(put(tmp_path, "es.csv", csv(*csv_bars("2024-01-02T15:00", 50, volume=0))), "ES")
    assert found(none.loaded, "zero-volume").is_warning
    names = none.market.info.feature_names
    columns = [names.index(name) for name in ("volume_surprise", "volume_trend")]
    assert not none.market.features[:, columns].any()


def test_defect_19_minutes_without_a_bar(tmp_path: Path) -> None:
    # Two Globex sessions of 1380 minutes; the second lacks seven of them.
    first, second = (csv_bars(f"2024-01-0{day}T23:00", 1380) for day in (2, 3))
    path = put(tmp_path, "ESH4.csv", csv(*first, *second[:100], *second[107:]))
    made = market(path, "ESH4")
    assert made.market.num_bars == 2 * 1380 - 7  # nothing is filled
    (record,) = [record for record in made.market.info.quality if record["defect"] == "missing-minutes"]
    assert (record["count"], record["is_warning"]) == (7, False)
    assert "7 of 2760 (0.3%): ESH4 7" in str(record["text"])


def test_defect_20_hole_inside_a_session(tmp_path: Path) -> None:
    first = csv_bars("2024-01-02T23:00", 1380)
    made = market(put(tmp_path, "ESH4.csv", csv(*first[:600], *first[661:])), "ESH4")
    (record,) = [record for record in made.market.info.quality if record["defect"] == "gap-in-session"]
    assert record["count"] == 1
    assert "2024-01-03 09:00 to 10:01 UTC (61 min)" in str(record["text"])
    assert np.flatnonzero(made.market.flags & GAP).tolist() == [598]


# --- 21 to 30: clocks, contracts and the rest


def mock_trading(*, saturday_price: float, weekday_gap: float = 0.0) -> list[str]:
    """Two weeks of half-hours of an unknown product, with six prints on the Saturday between."""
    weeks = [f"2024-01-0{day}" for day in (1, 2, 3, 4, 5)], [f"2024-01-{day:02}" for day in range(8, 13)]
    lines = [line for day in weeks[0] for line in csv_bars(f"{day}T08:00", 26, price=15000.0, step_minutes=30)]
    lines += csv_bars("2024-01-06T10:00", 6, price=saturday_price, step_minutes=30)
    return lines + [
        line for day in weeks[1] for line in csv_bars(f"{day}T08:00", 26, price=15000.0 + weekday_gap, step_minutes=30)
    ]


def test_defect_21_prints_of_closed_hours(tmp_path: Path) -> None:
    path = put(tmp_path, "dax.csv", csv(*mock_trading(saturday_price=11352.0)))
    loaded = load(path, "XDAX")
    assert sizes(loaded) == {"XDAX": 260}
    finding = found(loaded, "outside-session")
    assert (finding.count, finding.is_warning) == (6, True)
    assert "first dax.csv row 132 (2024-01-06 10:00:00 UTC, O 11352" in finding.text
    near = load(put(tmp_path, "dax.csv", csv(*mock_trading(saturday_price=15010.0))), "XDAX")
    assert sizes(near) == {"XDAX": 266}
    # A market that opens where the Saturday had it was trading on that Saturday; so was one that closed there.
    for saturday, gap in ((11352.0, -3648.0), (15000.0, 3648.0)):
        moved = csv(*mock_trading(saturday_price=saturday, weekday_gap=gap))
        assert sizes(load(put(tmp_path, "dax.csv", moved), "XDAX")) == {"XDAX": 266}


def test_defect_21_a_known_session_decides(tmp_path: Path) -> None:
    lines = [line for day in ("04", "05") for line in csv_bars(f"2024-03-{day}T15:00", 60)]
    stray = csv_bars("2024-03-05T22:30", 2, price=4000.0)  # 16:30 in Chicago: the break
    near = csv_bars("2024-03-08T23:00", 1)
    path = put(tmp_path, "es.csv", csv(*lines, *stray, *csv_bars("2024-03-06T15:00", 60), *near))
    made = market(path, "ES")
    assert made.market.num_bars == 181
    texts = [str(record["text"]) for record in made.market.info.quality if record["defect"] == "outside-session"]
    assert len(texts) == 2
    assert any("far from the market" in text for text in texts)
    assert any("and is kept: at 2024-03-08T23:00" in text for text in texts)


def local(*stamps: str) -> str:
    return csv(*(f"{stamp},4800,4801,4799,4800,5" for stamp in stamps))


def test_defect_22_clock_changes(tmp_path: Path) -> None:
    autumn = [f"2024-11-03 {hour}:{minute}" for hour in ("00", "01", "01", "02") for minute in ("00", "30")]
    loaded = load(put(tmp_path, "es.csv", local(*autumn)), "ES", tz="America/Chicago")
    assert np.diff(loaded.tables[0].ts_ns).tolist() == [30 * MINUTE_NS] * 7
    missing = put(tmp_path, "es.csv", local("2024-03-10 01:30", "2024-03-10 02:30", "2024-03-10 03:30"))
    text = refused(missing, "ES", tz="America/Chicago")
    assert "02:30" in text
    # The same wall time exists where clocks change three weeks later.
    assert sizes(load(missing, "ES", tz="Europe/Berlin")) == {"ES": 3}


def test_defect_23_the_zone_is_never_guessed(tmp_path: Path) -> None:
    path = put(tmp_path, "es.csv", csv_text(30, zone=""))
    assert "--tz" in refused(path, "ES")
    fixed = load(path, "ES", tz="EST").tables[0].ts_ns[0]
    assert fixed == START + 5 * HOUR_NS
    assert (
        "stamps are wall time of America/Chicago (--tz)"
        in found(load(path, "ES", tz="America/Chicago"), "time-zone").text
    )


def test_defect_24_the_label_is_said(tmp_path: Path) -> None:
    path = put(tmp_path, "es.csv", csv_text(30))
    opens, closes = load(path, "ES"), load(path, "ES", bar_label="close")
    assert opens.tables[0].known_ns[0] - closes.tables[0].known_ns[0] == MINUTE_NS
    assert "assumed to be the start" in found(opens, "bar-label").text


def quarter(*, jump: float = 40.0) -> str:
    """Daily bars of September to December 2023, flat but for a jump on the Friday of expiry, 2023-09-15 in each."""
    days = [datetime.date(2023, 8, 14) + datetime.timedelta(days=i) for i in range(60)]
    lines = []
    for day in days:
        if day.weekday() < 5:
            price = 4400.0 + (jump if day >= datetime.date(2023, 9, 14) else 0.0)
            lines.append(f"{day},{price},{price + 3},{price - 3},{price + 1},1000")
    return csv(*lines, columns="date,open,high,low,close,volume")


def test_defect_25_rolls_that_cannot_be_seen(tmp_path: Path) -> None:
    path = put(tmp_path, "ES.csv", quarter())
    plain = market(path, "ES")
    finding = found(plain.loaded, "rolls-invisible")
    assert finding.is_warning
    assert "--break-roll-weeks" in finding.text
    assert plain.market.move_ticks.max() == 160  # the jump, booked as 40 points of profit
    broken = market(path, "ES", series=SeriesConfig(break_roll_weeks=True))
    # In the weeks of expiry only what happens inside a day counts: open 4400, last close 4401.
    assert sorted(set(broken.market.move_ticks.tolist())) == [0, 4]
    assert broken.market.num_bars == plain.market.num_bars
    gaps = np.flatnonzero(broken.market.flags & GAP) + 2
    days = [str(np.datetime64(int(broken.market.trade_day[i]), "D")) for i in gaps]
    assert (days[0], days[-1]) == ("2023-09-04", "2023-09-18")
    assert broken.series.close_prev_e9[gaps].tolist() == broken.series.open_e9[gaps].tolist()
    with pytest.raises(ConfigError, match=r"--break-roll-weeks: ESZ3 shows its contracts"):
        market(
            put(tmp_path, "x.dbn", dbn(bars(7, 9), [mapped("ESZ3", (*ALWAYS, 7))])),
            "ESZ3",
            series=SeriesConfig(break_roll_weeks=True),
        )


def test_defect_25_a_crash_is_no_roll(tmp_path: Path) -> None:
    text = quarter(jump=0.0).replace("2023-08-29,4400.0,4403.0,4397.0,4401.0", "2023-08-29,4000.0,4003.0,3997.0,4001.0")
    broken = market(put(tmp_path, "ES.csv", text), "ES", series=SeriesConfig(break_roll_weeks=True))
    assert broken.market.move_ticks.min() == -1600


def test_defect_26_adjusted_prices(tmp_path: Path) -> None:
    columns = "date,open,high,low,close,close_unadjusted,volume,is_roll_date"
    lines = [f"2024-01-0{day},4800,4801,4799,4800,4700,9,0" for day in (2, 3, 4, 5)]
    finding = found(load(put(tmp_path, "es.csv", csv(*lines, columns=columns)), "ES"), "adjusted-prices")
    assert finding.is_warning
    assert "columns close_unadjusted, is_roll_date: the other prices are adjusted at rolls" in finding.text
    years = [
        f"{year}-06-{day:02},{price},{price + 1},{price - 1},{price},9"
        for year, price in ((2010, -20), (2011, 70), (2012, 90))
        for day in range(1, 21)
    ]
    cl = load(put(tmp_path, "cl.csv", csv(*years, columns="date,open,high,low,close,volume")), "CL")
    assert "back-adjusted" in found(cl, "adjusted-prices").text
    assert "the median close of CL in 2010 is -20" in found(cl, "off-tick").text


def test_defect_27_bars_that_are_not_complete(tmp_path: Path) -> None:
    days = bars(100, 5, ns("2024-01-02"), DAY_NS)
    path = put(tmp_path, "es.dbn", dbn(days, schema="ohlcv-1d", end=ns("2024-01-06 12:00")))
    loaded = load(path)
    assert sizes(loaded) == {"ESH4": 4}
    assert "recorded up to 2024-01-06 12:00:00 UTC, inside them: 1" in found(loaded, "partial-end").text
    # The same day in full in a later file is no conflict.
    whole = dbn(
        [bar(100, ns("2024-01-06"), 4900.0), bar(100, ns("2024-01-07"), 4900.0)],
        schema="ohlcv-1d",
        end=ns("2024-01-08"),
    )
    put(tmp_path, "later.dbn", whole)
    assert sizes(load(tmp_path)) == {"ESH4": 6}


def test_defect_27_part_of_a_day_and_of_a_session(tmp_path: Path) -> None:
    lines = [
        f"2024-01-{day:02},4800,4801,4799,4800,{90 if day in (7, 14) else 1000}"
        for day in (*range(2, 6), *range(7, 13), *range(14, 20), *range(22, 27), *range(29, 32))
    ]
    lines.append("2024-02-01,4800,4801,4799,4800,100")
    made = market(put(tmp_path, "es.csv", csv(*lines, columns="date,open,high,low,close,volume")), "ES")
    texts = [str(record["text"]) for record in made.market.info.quality if record["defect"] == "partial-end"]
    assert any("of a Sunday evening only" in text and text.endswith("2 of 25") for text in texts)
    assert any("the last daily bar, 2024-02-01, has 10.0% of the usual volume" in text for text in texts)
    sessions = [line for day in (2, 3, 4) for line in csv_bars(f"2024-01-0{day}T23:00", 1380 if day < 4 else 300)]
    made = market(put(tmp_path, "es.csv", csv(*sessions)), "ES")
    texts = [str(record["text"]) for record in made.market.info.quality if record["defect"] == "partial-end"]
    assert texts == ["the last session, 2024-01-05, ends 1,080 minutes before its close, earlier than any before it"]


def test_defect_28_symbol_that_is_not_there(tmp_path: Path) -> None:
    twice = [mapped("ESZ4", ("2014-06-01", "2014-12-20", 100), ("2024-06-01", "2024-12-21", 200)), *NQ]
    rows = [bar(100, ns("2014-11-03"), 2010.0), bar(200, ns("2024-11-04"), 5700.0), bar(500, START, 16800.0)]
    put(tmp_path, "es.dbn", dbn(rows, twice))
    where = f"not in {tmp_path.name}"
    for asked, meant in (
        ("YM.FUT", ""),
        ("es.fut", "ES.FUT"),
        ("NG.FUT", "NQ.FUT"),
        ("ESZ5", "ESZ4"),
        ("ES.c.0", "ES.FUT"),
        ("nqh4", "NQH4"),
    ):
        text = refused(tmp_path, asked)
        assert f"--symbol {asked}: {where}" in text
        assert f"did you mean {meant}?" in text if meant else "ES.FUT" in text
        assert "ES.FUT (ESZ4; 2014-06-01 to 2024-12-20)" in text
    assert "Ask for one of ESZ14, ESZ24" in refused(tmp_path, "ESZ4")
    assert sizes(load(tmp_path, "ESZ24")) == {"ESZ24": 1}
    assert sizes(load(tmp_path, "ES")) == {"ESZ14": 1, "ESZ24": 1}
    single = put(
        tmp_path,
        "one.dbn",
        dbn([bar(200, ns("2024-11-04"), 5700.0)], [mapped("ESZ4", ("2024-06-01", "2024-12-21", 200))]),
    )
    assert "did you mean ESZ4?" in refused(single, "ESZ24") if "ESZ24" not in sizes(load(single)) else True


def test_defect_29_dialects(tmp_path: Path) -> None:
    want = load(put(tmp_path, "es.csv", csv(*csv_bars("2024-01-15T15:00", 5))), "ES").tables[0]
    semicolon = "\ufeffDatum;Time;Open;High;Low;Last;Volume\r\n" + "".join(
        f"15.01.2024;15:0{i}:00;4.800,{25 * i:02};4.801,{25 * i:02};4.799,{25 * i:02};4.800,{25 * i + 25:02};5\r\n"
        for i in range(3)
    )
    got = load(put(tmp_path, "es.csv", semicolon.replace("Datum", "Date")), "ES", tz="UTC").tables[0]
    assert got.ts_ns.tolist() == want.ts_ns[:3].tolist()
    assert got.close_e9.tolist() == want.close_e9[:3].tolist()
    ambiguous = csv(*(f"03/04/2024 15:0{i},4800,4801,4799,4800,5" for i in range(3)))
    assert "day" in refused(put(tmp_path, "es.csv", ambiguous), "ES", tz="UTC")


def test_defect_30_ids_used_again_and_records_without_a_symbol(tmp_path: Path) -> None:
    mappings = [mapped("ESH4", ("2024-01-01", "2024-01-03", 100)), mapped("ESM4", ("2024-01-03", "2024-01-05", 100))]
    rows = [
        bar(100, ns("2024-01-02 15:00")),
        bar(100, ns("2024-01-03 15:00")),
        bar(100, ns("2024-01-05 15:00")),
        bar(9, START),
    ]
    loaded = load(put(tmp_path, "es.dbn", dbn(rows, mappings)))
    assert sizes(loaded) == {"ESH4": 1, "ESM4": 1}
    assert found(loaded, "unmapped").count == 2


# --- determinism


def variants(folder: Path, order: list[int], *, container: str, reverse: bool) -> Path:
    """Three overlapping files of two contracts and a spread, under any names, packed or not, rows turned round."""
    rows = [
        [*bars(100, 20), *bars(300, 20)],
        [bar(100, START + i * MINUTE_NS, 4800.0 + i % 40 / 4) for i in range(15, 40)] + bars(200, 10),
        [bar(200, START + i * MINUTE_NS, 4800.0 + i % 40 / 4) for i in range(5, 30)],
    ]
    for name, number in zip("abc", order, strict=True):
        content = dbn(rows[number][::-1] if reverse else rows[number])
        put(folder, f"{name}{container}", content if container == ".dbn" else zst(content, frames=2))
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(order=st.permutations(range(3)), container=st.sampled_from([".dbn", ".dbn.zst", ".bin"]), reverse=st.booleans())
def test_order_names_and_packing_of_files_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], container: str, *, reverse: bool
) -> None:
    first = load(variants(tmp_path_factory.mktemp("one"), [0, 1, 2], container=".dbn", reverse=False))
    second = load(variants(tmp_path_factory.mktemp("two"), order, container=container, reverse=reverse))
    assert first.fingerprint == second.fingerprint
    for one, two in zip(first.tables, second.tables, strict=True):
        for field in dataclasses.fields(BarTable):
            assert np.array_equal(getattr(one, field.name), getattr(two, field.name), equal_nan=False) or (
                getattr(one, field.name) is None
            )
    counts = [
        sorted((f.defect, f.count) for f in loaded.findings if f.defect != "out-of-order") for loaded in (first, second)
    ]
    assert counts[0] == counts[1]


def test_every_finding_is_of_a_known_kind_and_told_once(tmp_path: Path) -> None:
    put(tmp_path, "es.dbn", dbn([*bars(100, 5), *bars(300, 5), *bars(100, 5)]))
    for i in range(20):
        put(tmp_path, f"doc{i}.json", "{}")
    loaded = load(tmp_path)
    assert {finding.defect for finding in loaded.findings} <= set(DEFECTS)
    assert len(loaded.findings) == len({(f.defect, f.text) for f in loaded.findings})
    assert "doc0.json, doc1.json, doc10.json, doc11.json and 16 more: ignored" in found(loaded, "foreign-format").line
    order = [finding.is_warning for finding in loaded.findings]
    assert order == sorted(order)
