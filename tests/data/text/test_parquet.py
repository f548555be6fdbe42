"""Parquet and Feather files: typed stamps and prices, and files that cannot do."""

import datetime
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from data.market_files import HOUR_NS, MINUTE_NS, START, put, zst
from tidewalk.core.errors import DataError
from tidewalk.data.files.source import probe
from tidewalk.data.rows import FileRows
from tidewalk.data.text.parquet import read_schema
from tidewalk.data.text.table import open_table, parse_table
from tidewalk.data.text.timing import table_rows

Write = Callable[[pl.DataFrame, Path], None]


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path)


def write_feather(frame: pl.DataFrame, path: Path) -> None:
    frame.write_ipc(path)


def frame(count: int = 4) -> pl.DataFrame:
    stamps = pl.Series([START + i * MINUTE_NS for i in range(count)]).cast(pl.Datetime("ns"))
    price = pl.Series([4800.25 + i for i in range(count)])
    return pl.DataFrame(
        {"date": stamps, "open": price, "high": price + 1, "low": price - 1, "close": price, "volume": 5}
    )


def read(path: Path, *labels: str, zone: str | None = None) -> FileRows:
    return table_rows(parse_table(open_table(probe(path))), labels or ("ES",), zone=zone, bar_label=None)


@pytest.mark.parametrize("write", [write_parquet, write_feather])
@pytest.mark.parametrize(
    "stamp",
    [
        pl.col("date").dt.replace_time_zone("UTC"),
        pl.col("date").cast(pl.Datetime("ms")).dt.replace_time_zone("UTC").dt.convert_time_zone("America/Chicago"),
        pl.col("date").dt.epoch("ns"),
        pl.col("date").dt.epoch("s"),
        pl.col("date").dt.to_string("%Y-%m-%dT%H:%M:%SZ"),
    ],
)
def test_stamps_of_every_type(tmp_path: Path, write: Write, stamp: pl.Expr) -> None:
    path = tmp_path / "es.bin"
    write(frame().with_columns(stamp.alias("date")), path)
    found = read(path)
    assert found.rows["ES"].stamp_ns.tolist() == [START + i * MINUTE_NS for i in range(4)]
    assert found.rows["ES"].open_e9[0] == 4_800_250_000_000
    assert (found.rows["ES"].row.tolist(), found.interval_ns) == ([1, 2, 3, 4], MINUTE_NS)


def test_naive_stamps_need_a_zone(tmp_path: Path) -> None:
    write_parquet(frame(), tmp_path / "es.parquet")
    with pytest.raises(DataError, match=r"es\.parquet: stamps such as 2024-01-02 15:00:00 say no time zone"):
        read(tmp_path / "es.parquet")
    assert read(tmp_path / "es.parquet", zone="Etc/GMT+5").rows["ES"].stamp_ns[0] == START + 5 * HOUR_NS


def test_price_types_are_exact(tmp_path: Path) -> None:
    prices = ("open", "high", "low", "close")
    narrow = frame(1).with_columns(pl.lit(1.10785).cast(pl.Float32).alias(name) for name in prices)
    narrow.with_columns(pl.col("date").dt.replace_time_zone("UTC")).write_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").rows["ES"].close_e9.tolist() == [1_107_850_000]


def test_databento_parquet_with_raw_prices(tmp_path: Path) -> None:
    raw = {name: [5_199_750_000_000, 2**63 - 1] for name in ("open", "high", "low", "close")}
    stamps = pl.Series([START, START + MINUTE_NS]).cast(pl.Datetime("ns", "UTC"))
    facts = {"ts_event": stamps, "rtype": [33, 33], "instrument_id": [100, 200], **raw, "volume": [1, 2]}
    pl.DataFrame({**facts, "symbol": ["ESM4", "ESM4-ESU4"]}).write_parquet(tmp_path / "es.parquet")
    found = read(tmp_path / "es.parquet", "ESM4")
    # 5199.75 and not 52.00 (nautilus_trader issue 1737)
    assert found.rows["ESM4"].open_e9.tolist() == [5_199_750_000_000]
    assert found.rows["ESM4"].instrument_id.tolist() == [100]


def test_index_without_a_name_is_found_by_its_type(tmp_path: Path) -> None:
    named = frame().rename({"date": "__index_level_0__"}).with_columns(pl.lit("x").alias("note"))
    named.select(sorted(named.columns, reverse=True)).write_parquet(tmp_path / "es.parquet")
    schema = read_schema(probe(tmp_path / "es.parquet"))
    assert schema.names[schema.columns.stamp or 0] == "__index_level_0__"
    text = named.with_columns(pl.col("__index_level_0__").dt.to_string("%Y-%m-%d %H:%M:%S"))
    text.write_parquet(tmp_path / "es.parquet")
    assert read_schema(probe(tmp_path / "es.parquet")).columns.stamp == 0


def test_only_used_columns_are_read(tmp_path: Path) -> None:
    blob = frame().with_columns(pl.lit(b"x" * 100).alias("blob"), pl.col("date").dt.replace_time_zone("UTC"))
    blob.write_parquet(tmp_path / "es.parquet")
    assert len(parse_table(open_table(probe(tmp_path / "es.parquet"))).rows.row) == 4


def test_closes_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    frame().select("date", "close").write_parquet(tmp_path / "es.parquet")
    with pytest.raises(
        DataError, match=r"columns found: date, close; missing: open, high, low\. Closes alone do not do"
    ):
        open_table(probe(tmp_path / "es.parquet"))


def test_missing_time_column_is_refused(tmp_path: Path) -> None:
    frame().drop("date").write_parquet(tmp_path / "es.parquet")
    with pytest.raises(DataError, match=r"es\.parquet: no time column among open, high, low, close, volume"):
        open_table(probe(tmp_path / "es.parquet"))


@pytest.mark.parametrize("write", [write_parquet, write_feather])
def test_damaged_file_is_refused(tmp_path: Path, write: Write) -> None:
    write(frame(2000), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    with pytest.raises(DataError, match=r"es\.parquet: the file is cut off or damaged"):
        open_table(probe(put(tmp_path, "es.parquet", content[: len(content) // 2])))


def in_utc(count: int = 4) -> pl.DataFrame:
    return frame(count).with_columns(pl.col("date").dt.replace_time_zone("UTC"))


@pytest.mark.parametrize(
    "write",
    [
        lambda data, path: data.write_ipc_stream(path),
        lambda data, path: data.write_ipc(path, compression="zstd"),
        lambda data, path: data.write_ipc(path, compression="lz4"),
        lambda data, path: data.write_parquet(path, compression="gzip"),
        lambda data, path: path.write_bytes(gzip.compress(parquet_bytes(data))),
        lambda data, path: path.write_bytes(zst(parquet_bytes(data))),
    ],
)
def test_containers_and_compressions(tmp_path: Path, write: Write) -> None:
    write(in_utc(), tmp_path / "es.bin")
    assert read(tmp_path / "es.bin").rows["ES"].stamp_ns.tolist() == [START + i * MINUTE_NS for i in range(4)]


def parquet_bytes(data: pl.DataFrame) -> bytes:
    target = io.BytesIO()
    data.write_parquet(target)
    return target.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        pl.col("open").cast(pl.Decimal(12, 4)),
        pl.col("open").cast(pl.Float32),
        pl.col("open").cast(pl.String),
        pl.col("volume").cast(pl.UInt64),
        pl.col("volume").cast(pl.Float64),
    ],
)
def test_numbers_of_every_type(tmp_path: Path, change: pl.Expr) -> None:
    in_utc().with_columns(change).write_parquet(tmp_path / "es.parquet")
    rows = read(tmp_path / "es.parquet").rows["ES"]
    assert (rows.open_e9.tolist()[0], rows.volume[0]) == (4_800_250_000_000, 5.0)


def test_stamps_of_another_age_are_refused(tmp_path: Path) -> None:
    ages = frame().with_columns(pl.Series("date", [datetime.datetime(1700, 1, 1)] * 4).dt.replace_time_zone("UTC"))
    ages.write_parquet(tmp_path / "es.parquet")
    with pytest.raises(DataError, match=r"es\.parquet row 1: '1700-01-01 00:00:00.*' is no stamp"):
        read(tmp_path / "es.parquet")


def test_symbols_from_a_dictionary(tmp_path: Path) -> None:
    symbols = pl.Series("symbol", ["ESH4", "ESM4", "ESH4", None]).cast(pl.Categorical)
    in_utc().with_columns(symbols).write_parquet(tmp_path / "es.parquet")
    found = read(tmp_path / "es.parquet", "ESH4")
    assert (len(found.rows["ESH4"].row), found.rows_unmapped) == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.concat_list("open").alias("open"), r"column 'open' holds List.*and prices are numbers"),
        (pl.struct("high").alias("high"), r"column 'high' holds Struct"),
        (pl.col("low") > 0, "column 'low' holds Boolean"),
        (pl.col("date").cast(pl.String).cast(pl.Binary), "column 'date' holds Binary, and plain values are needed"),
        (pl.col("date").alias("close"), "column 'close' holds Datetime"),
    ],
)
def test_columns_that_hold_no_single_number_are_refused(tmp_path: Path, change: pl.Expr, message: str) -> None:
    in_utc().with_columns(change).write_parquet(tmp_path / "es.parquet")
    with pytest.raises(DataError, match=message):
        open_table(probe(tmp_path / "es.parquet"))


@pytest.mark.parametrize("write", [write_parquet, write_feather, lambda data, path: data.write_ipc_stream(path)])
def test_hostile_files_are_refused_or_read(tmp_path: Path, write: Write) -> None:
    write(in_utc(300), tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    rng = np.random.default_rng(5)
    outcomes = set()
    for _ in range(60):
        broken = bytearray(content)
        for at in rng.integers(0, len(broken), 6):
            broken[at] = rng.integers(256)
        try:
            read(put(tmp_path, "es.parquet", bytes(broken)))
            outcomes.add("read")
        except DataError:
            outcomes.add("refused")
    assert "refused" in outcomes


def test_names_in_two_levels(tmp_path: Path) -> None:
    stamps = [datetime.datetime(2024, 1, 2, 15, minute, tzinfo=datetime.UTC) for minute in range(3)]
    prices = {"Close": 4801.5, "High": 4802.0, "Low": 4799.0, "Open": 4800.25, "Volume": 7.0}
    one = {f"('{name}', 'ES=F')": [value] * 3 for name, value in prices.items()}
    pl.DataFrame({**one, "Datetime": stamps}).write_parquet(tmp_path / "one.parquet")
    parsed = parse_table(open_table(probe(tmp_path / "one.parquet")))
    assert parsed.rows.open_e9.tolist() == [4_800_250_000_000] * 3
    assert parsed.rows.volume.tolist() == [7.0] * 3
    two = {**one, **{name.replace("ES=F", "NQ=F"): values for name, values in one.items()}}
    pl.DataFrame({**two, "Datetime": stamps}).write_parquet(tmp_path / "two.parquet")
    with pytest.raises(DataError, match=r"several instruments side by side \(ES=F, NQ=F\)"):
        read_schema(probe(tmp_path / "two.parquet"))
