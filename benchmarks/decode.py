"""How fast DBN files become columns: tidewalk against the vendor's reader and against Parquet, the same rows.

A made-up ES.FUT download of one-minute bars (five outrights, three calendar spreads, time order) is written plain,
zstd-compressed and as Parquet. The readers take turns in one process, so that all see the same machine; medians over
the rounds. "tidewalk columns" is every outright's prices, volumes and row numbers, checked record by record;
"tidewalk load_bars" is all of reading: choice of contracts, cleaning, merging, validation and fingerprint.

    python benchmarks/decode.py [--rows 1000000] [--rounds 7] [--files 4] [--json FILE]
"""

import argparse
import datetime
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import common
import databento_dbn
import numpy as np
import polars as pl
import zstandard
from common import Column, Timing

from tidewalk.data.dbn.bars import read_rows
from tidewalk.data.dbn.labels import read_header
from tidewalk.data.files.source import probe
from tidewalk.data.load import DataConfig, load_bars

try:
    from databento import DBNStore
except ImportError:
    DBNStore = None

COLUMNS = (
    Column("reader", "reader"),
    Column("file", "from"),
    Column("million_rows_per_s", "M rows/s", "{:,.2f}"),
    Column("median_ms", "median, ms", "{:,.1f}"),
    Column("p10_p90", "p10-p90"),
    Column("times_to_df", "times `to_df`", "{:,.1f}"),
)
MINUTE_NS = 60 * 10**9
CONTRACTS = {"ESH4": 1001, "ESM4": 1002, "ESU4": 1003, "ESZ4": 1004, "ESH5": 42_140_878}
SPREADS = {"ESH4-ESM4": 2001, "ESM4-ESU4": 2002, "ESH4-ESU4": 2003}
SHARE = (1.0, 0.5, 0.1, 0.05, 0.02, 0.3, 0.1, 0.05)  # minutes in which each instrument trades


@dataclass(frozen=True)
class Span:
    start_date: datetime.date
    end_date: datetime.date
    symbol: str


@dataclass(frozen=True)
class Mapped:
    raw_symbol: str
    intervals: list[Span]


def records(rows: int, seed: int) -> np.ndarray:
    """OHLCV records of all instruments, minute by minute."""
    draw = np.random.default_rng(seed)
    minutes = int(rows / sum(SHARE)) + 10_000
    trades = draw.random((minutes, len(SHARE))) < SHARE
    minute, instrument = (part[:rows] for part in np.nonzero(trades))
    level = 19_200 + np.cumsum(draw.integers(-2, 3, minutes))
    tick = np.where(instrument < len(CONTRACTS), level[minute] + 200 * instrument, 200 + draw.integers(-2, 3, rows))
    array = np.zeros(rows, np.dtype(databento_dbn.OHLCVMsg._dtypes))
    array["length"], array["rtype"], array["publisher_id"] = 14, 33, 1
    array["instrument_id"] = np.array([*CONTRACTS.values(), *SPREADS.values()])[instrument]
    array["ts_event"] = np.datetime64("2023-06-01", "ns").astype(np.int64) + minute * MINUTE_NS
    close = tick + draw.integers(-3, 4, rows)
    array["open"], array["close"] = tick * 250_000_000, close * 250_000_000
    array["high"] = (np.maximum(tick, close) + draw.integers(0, 3, rows)) * 250_000_000
    array["low"] = (np.minimum(tick, close) - draw.integers(0, 3, rows)) * 250_000_000
    array["volume"] = draw.geometric(0.002, rows)
    return array


def header() -> bytes:
    always = (datetime.date(2023, 6, 1), datetime.date(2026, 6, 1))
    mappings = [Mapped(name, [Span(*always, str(number))]) for name, number in (CONTRACTS | SPREADS).items()]
    request = databento_dbn.Metadata(
        dataset="GLBX.MDP3",
        start=int(np.datetime64("2023-06-01", "ns").astype(np.int64)),
        stype_in=databento_dbn.SType.from_str("parent"),
        stype_out=databento_dbn.SType.from_str("instrument_id"),
        schema=databento_dbn.Schema.from_str("ohlcv-1m"),
        symbols=["ES.FUT"],
        mappings=mappings,
    )
    return bytes(request)


def write(folder: Path, rows: int, files: int) -> dict[str, Path]:
    """The same rows as one file of each kind, and as a folder of several compressed files."""
    array = records(rows, 0)
    content = header() + array.tobytes()
    paths = {kind: folder / kind / f"es.{kind}" for kind in ("dbn", "dbn.zst", "parquet")}
    for path in paths.values():
        path.parent.mkdir()
    compress = zstandard.ZstdCompressor(level=3).compress
    paths["dbn"].write_bytes(content)
    paths["dbn.zst"].write_bytes(compress(header()) + compress(array.tobytes()))  # two frames, as the vendor writes
    table = {name: array[name] for name in array.dtype.names if name not in ("length", "rtype")}
    pl.DataFrame({name: np.ascontiguousarray(column) for name, column in table.items()}).write_parquet(paths["parquet"])
    paths["folder"] = folder / "folder"
    paths["folder"].mkdir()
    for number, part in enumerate(np.array_split(array, files)):
        (paths["folder"] / f"es-{number}.dbn.zst").write_bytes(compress(header() + part.tobytes()))
    return paths


def columns(path: Path) -> int:
    """Rows of every outright as columns; the number of rows read."""
    source = probe(path)
    return read_rows(source, read_header(source), list(CONTRACTS), 0).rows_read


def bars(path: Path) -> int:
    return sum(file.rows_read for file in load_bars(DataConfig(data_dir=path, symbol="ES.FUT")).files)


def readers(paths: dict[str, Path]) -> dict[tuple[str, str], Callable[[], int]]:
    """What is measured, by name and kind of file; each returns the number of rows read."""
    found: dict[tuple[str, str], Callable[[], int]] = {}
    for kind in ("dbn.zst", "dbn"):
        path = paths[kind]
        found["tidewalk columns", kind] = lambda path=path: columns(path)
        found["tidewalk load_bars", kind] = lambda path=path: bars(path)
        if DBNStore is not None:
            found["databento to_ndarray()", kind] = lambda path=path: len(DBNStore.from_file(path).to_ndarray())
            found["databento to_df()", kind] = lambda path=path: len(DBNStore.from_file(path).to_df())
    found["tidewalk load_bars", "folder"] = lambda: bars(paths["folder"])
    found["polars read_parquet", "parquet"] = lambda: len(pl.read_parquet(paths["parquet"]))
    return found


def checked(key: tuple[str, str], read: Callable[[], int], rows: int) -> Callable[[], None]:
    """A reader that has to find all rows."""

    def call() -> None:
        count = read()
        if count != rows:
            raise RuntimeError(f"{key}: {count:,} rows of {rows:,}")

    return call


def reading_mib(path: Path) -> float:
    """Memory that reading a file adds to the process at most, in a fresh child."""
    return float(children.run_quietly([sys.executable, __file__, "--peak-of", path]))


def added_mib(path: Path) -> float:
    """The same in this process, which has done nothing yet."""
    before = common.peak_mib()
    columns(path)
    return common.peak_mib() - before


def row(key: tuple[str, str], timing: Timing, rows: int, slow: Timing | None) -> dict[str, Any]:
    return {
        "reader": key[0],
        "file": key[1],
        "million_rows_per_s": rows / timing.median_ms / 1e3,
        "median_ms": timing.median_ms,
        "p10_p90": common.spread(timing),
        "times_to_df": slow and slow.median_ms / timing.median_ms,
        "samples_ms": timing.samples_ms,
    }


def main() -> int:
    parser = common.parser(__doc__, device=False)
    parser.add_argument("--rows", type=common.at_least(1000), default=1_000_000)
    parser.add_argument("--rounds", type=common.at_least(1), default=common.ROUNDS)
    parser.add_argument(
        "--files", type=common.at_least(1), default=4, help="files that the folder's rows are split into"
    )
    parser.add_argument("--peak-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print(added_mib(options.peak_of))
        return 0
    rows, rounds = (40_000, 2) if options.quick else (options.rows, options.rounds)
    warnings.simplefilter("ignore")  # the vendor's reader leaves its file open and uses what pandas gives up
    report = common.opened("decode", options, COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), rows, options.files)
        sizes = {kind: path.stat().st_size / 2**20 for kind, path in paths.items() if kind != "folder"}
        memory = reading_mib(paths["dbn.zst"])
        calls = {" from ".join(key): checked(key, read, rows) for key, read in readers(paths).items()}
        times = common.interleaved(report, calls, rounds=rounds, warm_up=1)
    for name, timing in times.items():
        reader, _, kind = name.rpartition(" from ")
        common.add(report, **row((reader, kind), timing, rows, times.get(f"databento to_df() from {kind}")))
    said = ", ".join(f"{kind} {size:.1f} MiB" for kind, size in sizes.items())
    report.notes.append(f"{rows:,} rows; {said}; reading dbn.zst into columns adds {memory:.0f} MiB")
    if DBNStore is None:
        report.failures["databento"] = "not installed: its rows are missing"
    return common.close(report)


if __name__ == "__main__":
    sys.exit(children.guarded(main))
