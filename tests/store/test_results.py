"""Result files: exact schemas both ways, equal bytes for equal content, the contract of the summary."""

import copy
import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tidewalk.core.errors import StoreError
from tidewalk.store import layout, results
from tidewalk.store.layout import RunFolder

Write = Callable[[RunFolder, pl.DataFrame], None]
Read = Callable[[RunFolder], pl.DataFrame]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return layout.create_run(tmp_path / "run", overwrite=False)


def equity() -> pl.DataFrame:
    """Three sessions of two policies; the last session of the first policy lies in a second window."""
    days = [dt.date(2024, 1, 2), dt.date(2024, 1, 3), dt.date(2024, 4, 1)]
    columns = {
        "policy": ["ensemble"] * 3 + ["long"] * 3,
        "symbol": ["ES.FUT"] * 6,
        "window": [0, 0, 1] * 2,
        "trade_date": days * 2,
        "net_usd": [95.5, -104.5, 0.0, 245.5, -250.0, 12.5],
        "gross_usd": [100.0, -100.0, 0.0, 250.0, -250.0, 12.5],
        "costs_usd": [4.5, 4.5, 0.0, 4.5, 0.0, 0.0],
        "equity_usd": [95.5, -9.0, -9.0, 245.5, -4.5, 8.0],
        "position_mean": [0.5, -0.25, 0.0, 1.0, 1.0, 1.0],
        "trades": [2, 2, 0, 1, 0, 0],
    }
    return pl.DataFrame(columns, schema=results.EQUITY.schema)


def trades() -> pl.DataFrame:
    """A buy, a roll (out of the old contract, into the new one), a close; then a sell in the next window."""
    columns = {
        "symbol": ["ES.FUT"] * 5,
        "window": [0, 0, 0, 0, 1],
        "ts_ns": [10, 20, 20, 30, 40],
        "contract": ["ESH4", "ESH4", "ESM4", "ESM4", "ESM4"],
        "lots": [1, -1, 1, -1, -1],
        "position_after": [1, 0, 1, 0, -1],
        "price": [4800.25, 4810.0, 4860.5, 4861.0, -37.63],
        "costs_usd": [2.25] * 5,
        "reason": ["decision", "roll-out", "roll-in", "flat", "decision"],
    }
    return pl.DataFrame(columns, schema=results.TRADES.schema)


def members() -> pl.DataFrame:
    columns = {
        "symbol": ["ES.FUT"] * 3,
        "window": [0, 0, 1],
        "seed": [0, 1, 0],
        "best_epoch": [3, 0, 1],
        "val_net_usd": [10.0, 0.0, 5.0],
        "test_net_usd": [7.75, 0.0, 1.0],
        "test_gross_usd": [10.0, 0.0, 1.0],
        "test_costs_usd": [2.25, 0.0, 0.0],
        "test_trades": [1, 0, 0],
        "test_sharpe_session": [0.7, None, None],
        "status": ["ok", "diverged", "ok"],
    }
    return pl.DataFrame(columns, schema=results.MEMBERS.schema)


TABLES: list[tuple[str, Callable[[], pl.DataFrame], Write, Read]] = [
    ("equity.parquet", equity, results.write_equity, results.read_equity),
    ("trades.parquet", trades, results.write_trades, results.read_trades),
    ("members.parquet", members, results.write_members, results.read_members),
]
every_table = pytest.mark.parametrize(("name", "build", "write", "read"), TABLES, ids=[table[0] for table in TABLES])


# --- tables ---


@every_table
def test_table_comes_back(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    write(run, build())
    assert (run.root / name).is_file()
    assert read(run).equals(build())
    assert read(run).schema == build().schema


@every_table
def test_empty_table_comes_back(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    write(run, build().clear())
    assert read(run).height == 0


@every_table
def test_equal_content_gives_equal_bytes(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    write(run, build())
    first = (run.root / name).read_bytes()
    frame = build()
    in_pieces = pl.concat([frame[:1], frame[1:2], frame[2:]], rechunk=False)
    for same in (in_pieces, frame.select(reversed(frame.columns)), read(run)):
        write(run, same)
        assert (run.root / name).read_bytes() == first


def test_equal_content_gives_equal_bytes_in_another_process(run: RunFolder) -> None:
    # More rows than one row group holds.
    copies = pl.DataFrame({"copy": range(12_000)}).join(equity(), how="cross", maintain_order="left_right")
    big = copies.with_columns(policy=pl.format("{} {}", "policy", "copy")).drop("copy")
    results.write_equity(run, big)
    first = run.equity.read_bytes()
    code = (
        "import sys; from pathlib import Path; from tidewalk.store import layout, results\n"
        "run = layout.open_run(Path(sys.argv[1])); results.write_equity(run, results.read_equity(run))"
    )
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", code, run.root], check=True, env=environment)
    assert run.equity.read_bytes() == first


@every_table
def test_schema_is_exact(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    frame = build()
    last = frame.columns[-1]
    with pytest.raises(StoreError, match=rf"{name}: column '{last}' is missing"):
        write(run, frame.drop(last))
    with pytest.raises(StoreError, match=rf"{name}: column '{last}s' is not one of .* \(did you mean {last}\?\)"):
        write(run, frame.rename({last: last + "s"}))
    with pytest.raises(StoreError, match=rf"{name}: column 'window' is Int64, needed is Int32"):
        write(run, frame.with_columns(pl.col("window").cast(pl.Int64)))
    nothing = pl.lit(None, pl.Int32)
    with pytest.raises(
        StoreError, match=rf"{name}: column 'window' has nulls; {frame.height} of {frame.height} rows, the first"
    ):
        write(run, frame.with_columns(window=nothing))
    assert not (run.root / name).exists()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("build", "write", "column"),
    [
        (equity, results.write_equity, "net_usd"),
        (trades, results.write_trades, "price"),
        (members, results.write_members, "test_sharpe_session"),
    ],
)
def test_nan_is_refused_and_its_row_shown(
    bad: float, build: Callable[[], pl.DataFrame], write: Write, column: str, run: RunFolder
) -> None:
    frame = build().with_row_index("row")
    frame = frame.with_columns(pl.when(pl.col("row") == 2).then(bad).otherwise(column).alias(column)).drop("row")
    with pytest.raises(StoreError, match=rf"column '{column}' has NaN or infinity; 1 of .* the first is \{{'row': 2"):
        write(run, frame)


def with_cell(frame: pl.DataFrame, row: int, column: str, value: Any) -> pl.DataFrame:
    rows = frame.to_dicts()
    rows[row][column] = value
    return pl.DataFrame(rows, schema=frame.schema)


@pytest.mark.parametrize(
    ("frame", "write", "message"),
    [
        (with_cell(equity(), 1, "net_usd", -104.0), results.write_equity, "net_usd is not gross_usd - costs_usd"),
        (
            with_cell(equity(), 4, "equity_usd", -4.0),
            results.write_equity,
            "equity_usd is not the running sum of net_usd",
        ),
        (
            with_cell(equity(), 1, "trade_date", dt.date(2024, 1, 2)),
            results.write_equity,
            "rows repeat policy and symbol and trade",
        ),
        (with_cell(equity(), 2, "trade_date", dt.date(2024, 1, 1)), results.write_equity, "are not in time order"),
        (with_cell(trades(), 1, "ts_ns", 9), results.write_trades, "the fills of a window are not in time order"),
        (
            with_cell(trades(), 2, "lots", 2),
            results.write_trades,
            "position_after is not the position before plus lots",
        ),
        (with_cell(trades(), 0, "reason", "roll"), results.write_trades, "'reason' allows decision, roll-out, roll-in"),
        (with_cell(members(), 0, "status", "good"), results.write_members, "'status' allows ok, diverged only"),
        (with_cell(members(), 1, "seed", 0), results.write_members, "rows repeat window and seed"),
    ],
)
def test_laws_of_the_tables(frame: pl.DataFrame, write: Write, message: str, run: RunFolder) -> None:
    with pytest.raises(StoreError, match=message):
        write(run, frame)


def test_rounding_of_float_sums_is_no_fault(run: RunFolder) -> None:
    frame = equity().with_columns(pl.col("equity_usd") + 1e-7)
    results.write_equity(run, frame)


@every_table
def test_damaged_table_is_named(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    path = run.root / name
    with pytest.raises(StoreError, match=rf"{name}: no such file"):
        read(run)
    write(run, build())
    good = path.read_bytes()
    for damaged in (good[:-1], good[: len(good) // 2], good[:4], bytes(len(good)), b"PAR1PAR1", b"text"):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=rf"{name}: not readable as Parquet .*damaged or cut short"):
            read(run)
    path.write_bytes(b"")
    with pytest.raises(StoreError, match=rf"{name}: the file is empty"):
        read(run)


@every_table
def test_any_flipped_bit_of_a_finished_table_is_found_before_it_is_decoded(
    name: str, build: Callable[[], pl.DataFrame], write: Write, read: Read, run: RunFolder
) -> None:
    # Some flips decode to other numbers, and some make the decoder abort the process, which nothing can catch.
    write(run, build())
    layout.finish_manifest(run, "complete")
    good = (run.root / name).read_bytes()
    for bit in range(0, 8 * len(good), 101):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (run.root / name).write_bytes(bad)
        with pytest.raises(StoreError, match=rf"{name}: not readable as Parquet \(its SHA-256 is not the one in the"):
            read(run)
    (run.root / name).write_bytes(good)
    assert read(run).equals(build())


def test_table_without_a_manifest_is_read_all_the_same(run: RunFolder) -> None:
    results.write_equity(run, equity())
    run.manifest.unlink()
    assert results.read_equity(run).equals(equity())


def test_other_table_under_the_name_is_refused_when_read(run: RunFolder) -> None:
    results.write_trades(run, trades())
    run.trades.rename(run.equity)
    with pytest.raises(
        StoreError, match=r"equity\.parquet: column 'ts_ns' is not one of policy, symbol, window, trade_date"
    ):
        results.read_equity(run)


# --- metrics ---


def epoch_line(epoch: int) -> dict[str, Any]:
    spread = {"median": 1.0, "p10": -2.0, "p90": 4.0, "best": 5.0}
    return {
        "epoch": epoch,
        "step": 50 * epoch,
        "loss": 0.5,
        "loss_p10": 0.1,
        "loss_p90": 0.9,
        "epsilon": 0.05,
        "val_net_usd": spread,
        "val_reward": spread,
        "q_mean": 0.25,
        "phases_ms": {"init": 0.1, "collect": None, "learn": None, "evaluate": None, "total": 3.5},
        "uploaded_bytes": 0,
        "compile_ms": None,
        "epochs_per_s": 250.0,
        "members": {"loss": [0.5, None], "val_net_usd": [1.0, 5.0]},
    }


def test_metrics_come_back(run: RunFolder) -> None:
    for epoch in (1, 2):
        results.append_metrics(run, epoch_line(epoch), durable=epoch == 2)
    assert results.read_metrics(run).records == (epoch_line(1), epoch_line(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 1}, r"metrics\.jsonl: key 'epochs' is not one of .* \(did you mean epoch\?\)"),
        ({"members": {"loss": []}}, r"metrics\.jsonl: members: key 'val_net_usd' is missing"),
        ({"phases_ms": 3.0}, r"metrics\.jsonl: phases_ms: float found, an object with init, collect"),
        ({"loss": float("nan")}, r"metrics\.jsonl\.loss is nan"),
    ],
)
def test_metrics_keep_their_form(change: dict[str, Any], message: str, run: RunFolder) -> None:
    with pytest.raises(StoreError, match=message):
        results.append_metrics(run, epoch_line(1) | change)
    assert not run.metrics.exists()


def test_resume_writes_every_epoch_once(run: RunFolder) -> None:
    for epoch in range(1, 6):
        results.append_metrics(run, epoch_line(epoch))
    uninterrupted = run.metrics.read_bytes()
    run.metrics.write_bytes(uninterrupted[:-40])  # killed in epoch 5, last checkpoint after epoch 3
    (warning,) = results.rewind_metrics(run, 3)
    assert "line 5 is cut short" in warning
    for epoch in (4, 5):
        results.append_metrics(run, epoch_line(epoch))
    assert run.metrics.read_bytes() == uninterrupted


def test_rewinding_nothing_changes_nothing(run: RunFolder) -> None:
    assert results.rewind_metrics(run, 0) == ()
    assert not run.metrics.exists()
    results.append_metrics(run, epoch_line(1))
    before = run.metrics.stat().st_ino
    assert results.rewind_metrics(run, 1) == ()
    assert run.metrics.stat().st_ino == before


# --- windows ---


def plan() -> dict[str, Any]:
    span = {"first": "2024-01-02", "last": "2024-03-28", "bars": [0, 100], "sessions": 62}
    window = {
        "window": 0,
        "symbol": "ES.FUT",
        "train": span,
        "val": span | {"bars": [100, 130]},
        "test": span | {"bars": [130, 160]},
        "partial_test": False,
        "contracts": ["ESH4", "ESM4"],
        "rolls": [{"date": "2024-03-08", "from": "ESH4", "to": "ESM4"}],
    }
    months = {"train": 3, "val": 1, "test": 1, "step": 3}
    return {"months": months, "purge_bars": 2, "windows": [window], "uncovered": None}


def test_windows_come_back(run: RunFolder) -> None:
    results.write_windows(run, plan())
    assert results.read_windows(run) == plan()


@pytest.mark.parametrize("bars", [[100, 100], [130, 100], [-1, 5]])
def test_range_of_no_bars_is_refused(bars: list[int], run: RunFolder) -> None:
    bad = plan()
    bad["windows"][0]["val"]["bars"] = bars
    with pytest.raises(StoreError, match=r"windows\[0\]\.val\.bars is \[.*\], not a half-open range"):
        results.write_windows(run, bad)


def test_windows_keep_their_form(run: RunFolder) -> None:
    bad = plan()
    del bad["windows"][0]["test"]["sessions"]
    with pytest.raises(StoreError, match=r"windows\.json: windows\[0\]: test: key 'sessions' is missing"):
        results.write_windows(run, bad)
    with pytest.raises(StoreError, match="months: key 'test', 'step' is missing"):
        results.write_windows(run, plan() | {"months": {"train": 1, "val": 1}})


# --- summary ---


def summary() -> dict[str, Any]:
    row = {
        "window": 0,
        "symbol": "ES.FUT",
        "train": ["2024-01-02", "2024-03-28"],
        "val": ["2024-04-01", "2024-04-30"],
        "test": ["2024-05-01", "2024-05-31"],
        "best_epoch": [3, 4],
        "net_usd": 91.0,
        "gross_usd": 100.0,
        "costs_usd": 9.0,
        "trades": 4,
        "seeds_net_usd": [90.0, 92.0],
        "contracts": ["ESM4"],
        "rolls": 0,
        "oracle_usd": 5000.0,
        "long_usd": 250.0,
        "partial_test": False,
    }
    oos = {
        "sessions": 22,
        "net_usd": 91.0,
        "gross_usd": 100.0,
        "costs_usd": 9.0,
        "trades": 4,
        "sharpe_session": 1.2,
        "sharpe_ci90": [-0.4, 2.8],
        "max_drawdown_usd": 40.0,
        "psr": 0.8,
    }
    baselines = {"flat": 0.0, "long": 250.0, "short": -250.0, "momentum": -9.0, "random_p": 0.7}
    costs = {
        "slippage": "ticks",
        "commission_usd": 2.25,
        "slippage_ticks": 0.5,
        "side_usd": 8.5,
        "half_spread_ticks": 0.0,
    }
    return {
        "schema": 1,
        "run": "demo",
        "status": "complete",
        "model": "dqn",
        "symbol": "ES.FUT",
        "device": "cpu",
        "data_fingerprint": "abc",
        "bars": 1000,
        "contracts": 2,
        "rolls": 1,
        "windows": 1,
        "seeds": 2,
        "members": 2,
        "epochs": 5,
        "transfers": {"uploads": 1, "bytes_market": 9000, "bytes_h2d_per_epoch": 0},
        "phases_ms": {"init": 0.1, "collect": 1.0, "learn": 2.0, "evaluate": 0.4, "total": 3.5},
        "compile_ms": 5000.0,
        "oos": {**oos, "dsr": 0.4, "trials": 3, "verdict": "profit not distinguishable from luck"},
        "baselines": baselines,
        "oracle": {"net_usd": 5000.0, "captured_frac": 0.018},
        "per_symbol": [
            {
                "symbol": "ES.FUT",
                "data_fingerprint": "abc",
                "bars": 1000,
                "windows": 2,
                "oos": oos,
                "baselines": baselines,
                "oracle": {"net_usd": 5000.0, "captured_frac": 0.018},
                "costs": costs,
            }
        ],
        "per_window": [row, copy.deepcopy(row) | {"window": 1}],
        "warnings": [],
    }


def test_summary_comes_back(run: RunFolder) -> None:
    results.write_summary(run, summary())
    assert results.read_summary(run) == summary()
    assert list(json.loads(run.summary.read_text())) == list(summary())


# The contract of the documented summary, key by key.
def test_summary_keys_are_the_documented_ones() -> None:
    assert results.SUMMARY_KEYS["summary"] == tuple(summary())
    for part in ("transfers", "phases_ms", "oos", "baselines", "oracle"):
        assert results.SUMMARY_KEYS[part] == tuple(summary()[part])
    assert tuple(summary()["per_window"][0]) == results.PER_WINDOW_KEYS
    row = summary()["per_symbol"][0]
    assert {"symbol": tuple(row)} | {
        part: tuple(row[part]) for part in ("oos", "baselines", "oracle", "costs")
    } == results.PER_SYMBOL_KEYS


def test_every_key_of_the_summary_is_required() -> None:
    for part in (None, "transfers", "phases_ms", "oos", "baselines", "oracle"):
        for key in summary()[part] if part else summary():
            bad = summary()
            del (bad[part] if part else bad)[key]
            with pytest.raises(StoreError, match=rf"summary{f': {part}' if part else ''}: key '{key}' is missing"):
                results.validate_summary(bad)
    for key in results.PER_WINDOW_KEYS:
        bad = summary()
        del bad["per_window"][1][key]
        with pytest.raises(StoreError, match=rf"summary: per_window\[1\]: key '{key}' is missing"):
            results.validate_summary(bad)


def test_unknown_keys_are_refused_but_in_the_rows_of_windows() -> None:
    with pytest.raises(StoreError, match=r"summary: oos: key 'sharpe' is not one of"):
        results.validate_summary(summary() | {"oos": summary()["oos"] | {"sharpe": 1.0}})
    with pytest.raises(StoreError, match=r"summary: key 'symbols' .* \(did you mean symbol\?\)"):
        results.validate_summary(summary() | {"symbols": []})
    good = summary()
    good["per_window"][0]["note"] = "half a day on the 3rd"
    results.validate_summary(good)


def put(value: dict[str, Any], path: str, item: Any) -> dict[str, Any]:
    """The summary with `item` at a dotted path."""
    *parents, last = path.split(".")
    inner: Any = value
    for key in parents:
        inner = inner[int(key)] if key.isdigit() else inner[key]
    inner[last] = item
    return value


NULLS = [
    ("oos.psr", "oos.psr"),
    ("oos.sharpe_ci90", "oos.sharpe_ci90"),
    ("phases_ms.collect", "phases_ms.collect"),
    ("device", "device"),
    ("oracle", "oracle"),
    ("per_window.1.oracle_usd", "per_window[1].oracle_usd"),
]


@pytest.mark.parametrize(("path", "name"), NULLS)
def test_null_needs_a_warning_that_names_it(path: str, name: str) -> None:
    bad = put(summary(), path, None)
    assert results.null_paths(bad) == [name]
    for warnings in ([], ["something is undefined"], [results.undefined_warning(name + "_x", "no variance")]):
        with pytest.raises(StoreError) as caught:
            results.validate_summary(bad | {"warnings": warnings})
        assert f"summary: {name} is null, and no warning names '{name}' with the reason" in str(caught.value)
    results.validate_summary(bad | {"warnings": ["note", results.undefined_warning(name, "no variance")]})


def test_warning_without_index_explains_all_rows_and_no_more() -> None:
    bad = put(put(summary(), "per_window.0.long_usd", None), "per_window.1.long_usd", None)
    results.validate_summary(bad | {"warnings": ["per_window.long_usd is undefined: no bars"]})
    for other in ("per_window[0].long_usd is undefined: no bars", "window.long_usd: no bars", "long_usd", "per_window"):
        with pytest.raises(StoreError, match=r"per_window\[\d\]\.long_usd is null"):
            results.validate_summary(bad | {"warnings": [other]})


def test_warning_of_a_longer_path_explains_nothing() -> None:
    bad = put(summary(), "oracle", None)
    for other in ("oracle.net_usd is undefined: x", "the.oracle is undefined", "oracles are undefined"):
        with pytest.raises(StoreError, match="summary: oracle is null"):
            results.validate_summary(bad | {"warnings": [other]})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_summary_never_holds_nan(bad: float) -> None:
    with pytest.raises(StoreError, match=r"summary\.oos\.sharpe_ci90\[1\] is (nan|inf)"):
        results.validate_summary(put(summary(), "oos.sharpe_ci90", [0.1, bad]))


@pytest.mark.parametrize(
    ("path", "item", "message"),
    [
        ("schema", 2, "schema and status are 2 and 'complete'; needed are 1 and one of complete, interrupted, failed"),
        ("status", "done", "schema and status are 1 and 'done'"),
        ("oos.net_usd", 91.5, "summary: oos: net_usd is 91.5, which is not gross_usd 100.0 less costs_usd 9.0"),
        ("per_window.1.costs_usd", 8.0, r"per_window\[1\]: net_usd is 91.0, which is not gross_usd 100.0 less costs"),
        ("transfers", 1, "summary: transfers: int found, an object with uploads"),
    ],
)
def test_summary_that_contradicts_itself_is_refused(path: str, item: Any, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        results.validate_summary(put(summary(), path, item))


def test_unfinished_run_has_a_summary_without_figures(run: RunFolder) -> None:
    parts = ("transfers", "phases_ms", "compile_ms", "oos", "baselines", "oracle")
    warnings = [results.undefined_warning(part, "the run is interrupted") for part in parts]
    unfinished = summary() | dict.fromkeys(parts) | {"status": "interrupted", "per_window": [], "warnings": warnings}
    results.write_summary(run, unfinished)
    assert results.read_summary(run)["oos"] is None


# --- integrity of a finished run ---


def test_every_change_to_a_result_file_is_found_and_named(run: RunFolder) -> None:
    results.write_equity(run, equity())
    results.write_trades(run, trades())
    results.write_members(run, members())
    results.write_windows(run, plan())
    results.write_summary(run, summary())
    results.append_metrics(run, epoch_line(1))
    layout.write_text_atomic(run.config, "seed = 0\n")
    (run.policies / "p.safetensors").write_bytes(b"weights")
    layout.finish_manifest(run, "complete")
    assert results.verify_results(run) == []
    for name in layout.read_manifest(run)["files"]:
        path = run.root / name
        good = path.read_bytes()
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
        for damaged in (flipped, good[:-1], b"", bytes(len(good))):
            path.write_bytes(damaged)
            (problem,) = results.verify_results(run)
            assert str(path) in problem
            assert "not what the run wrote" in problem
        path.unlink()
        assert results.verify_results(run) == [f"{path}: missing, though the manifest lists it"]
        path.write_bytes(good)
    assert results.verify_results(run) == []


def test_running_run_has_nothing_to_verify(run: RunFolder) -> None:
    assert results.verify_results(run) == []


# --- several symbols ---


def two_symbols() -> pl.DataFrame:
    """The policies of `equity` in ES, and in NQ on two of its dates and one later one."""
    es = equity()
    days = [dt.date(2024, 1, 3), dt.date(2024, 4, 1), dt.date(2024, 4, 2)] * 2
    nq = es.with_columns(symbol=pl.lit("NQ.FUT"), window=pl.lit(2, pl.Int32), trade_date=pl.Series(days))
    return pl.concat([es, nq])


def test_a_portfolio_adds_up_symbols_by_trade_date() -> None:
    own = results.portfolio(two_symbols()).filter(pl.col("policy") == "ensemble")
    assert own["trade_date"].to_list() == [
        dt.date(2024, 1, 2),
        dt.date(2024, 1, 3),
        dt.date(2024, 4, 1),
        dt.date(2024, 4, 2),
    ]
    assert own["net_usd"].to_list() == [95.5, -9.0, -104.5, 0.0]
    assert own["equity_usd"].to_list() == [95.5, 86.5, -18.0, -18.0]
    assert own["position_mean"].to_list() == [0.5, 0.25, -0.25, 0.0]
    assert own["trades"].to_list() == [2, 4, 2, 0]


def test_the_portfolio_of_one_symbol_is_its_own_record() -> None:
    one = results.portfolio(equity())
    assert one.select(sorted(one.columns)).equals(equity().drop("symbol").select(sorted(one.columns)))
    empty = pl.DataFrame(schema=results.EQUITY.schema)
    assert results.portfolio(empty).is_empty()


def test_symbols_have_their_own_running_sum_and_order(run: RunFolder) -> None:
    results.write_equity(run, two_symbols())
    assert results.read_equity(run).equals(two_symbols())
    summed = two_symbols().with_columns(equity_usd=pl.col("net_usd").cum_sum().over("policy"))
    with pytest.raises(StoreError, match="equity_usd is not the running sum"):
        results.write_equity(run, summed)


def test_undefined_figures_of_several_symbols_need_a_reason_each() -> None:
    row = summary()["per_symbol"][0]
    odd = copy.deepcopy(row) | {"symbol": "NQ.FUT", "oos": row["oos"] | {"psr": None}}
    both = summary() | {"per_symbol": [row, odd]}
    with pytest.raises(StoreError, match=r"per_symbol\[1\]\.oos\.psr is null"):
        results.validate_summary(both)
    results.validate_summary(both | {"warnings": [results.undefined_warning("per_symbol[1].oos.psr", "no variance")]})
    results.validate_summary(summary() | {"per_symbol": [odd]})  # of one symbol: said of the study already
    dear = copy.deepcopy(row) | {"oos": row["oos"] | {"costs_usd": 1.0}}
    with pytest.raises(StoreError, match=r"per_symbol\[0\]\.oos: net_usd is"):
        results.validate_summary(summary() | {"per_symbol": [dear]})
