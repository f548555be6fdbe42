"""Result files: exact schemas both ways, equal bytes for equal content, the contract of the summary."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from store.made_up_summary import summary
from tidewalk.core.errors import StoreError
from tidewalk.store import layout, results
from tidewalk.store.layout import RunFolder
from tidewalk.store.summary import write_summary

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


def fills() -> pl.DataFrame:
    """A buy, a roll, a close; then a sale and a purchase in the next window."""
    columns = {
        "symbol": ["ES.FUT"] * 6,
        "window": [0, 0, 0, 0, 1, 1],
        "ts_ns": [10, 20, 20, 30, 40, 50],
        "contract": ["ESH4", "ESH4", "ESM4", "ESM4", "ESM4", "ESM4"],
        "lots": [1, -1, 1, -1, -1, 1],
        "position_after": [1, 0, 1, 0, -1, 0],
        "price": [4800.25, 4810.0, 4860.5, 4861.0, -37.63, -40.0],
        "fees_usd": [1.0] * 6,
        "slippage_usd": [1.25] * 6,
        "costs_usd": [2.25] * 6,
        "reason": ["decision", "roll-out", "roll-in", "close", "decision", "end"],
    }
    return pl.DataFrame(columns, schema=results.FILLS.schema)


def trades() -> pl.DataFrame:
    """The round trips of these fills, at 50 USD a point."""
    columns = {
        "symbol": ["ES.FUT"] * 3,
        "window": [0, 0, 1],
        "contract": ["ESH4", "ESM4", "ESM4"],
        "lots": [1, 1, -1],
        "entry_ts_ns": [10, 20, 40],
        "entry_price": [4800.25, 4860.5, -37.63],
        "exit_ts_ns": [20, 30, 50],
        "exit_price": [4810.0, 4861.0, -40.0],
        "gross_usd": [487.5, 25.0, 118.5],
        "fees_usd": [2.0] * 3,
        "slippage_usd": [2.5] * 3,
        "net_usd": [483.0, 20.5, 114.0],
        "entry_reason": ["decision", "roll-in", "decision"],
        "exit_reason": ["roll-out", "close", "end"],
    }
    return pl.DataFrame(columns, schema=results.TRADES.schema)


def members() -> pl.DataFrame:
    columns = {
        "symbol": ["ES.FUT"] * 3,
        "window": [0, 0, 1],
        "seed": [0, 1, 0],
        "best_epoch": [3, 0, 1],
        "val_net_usd": [10.0, None, 5.0],
        "test_net_usd": [7.75, 0.0, 1.0],
        "test_gross_usd": [10.0, 0.0, 1.0],
        "test_costs_usd": [2.25, 0.0, 0.0],
        "test_trades": [1, 0, 0],
        "test_sharpe_session": [0.7, None, None],
        "status": ["ok", "diverged", "ok"],
    }
    return pl.DataFrame(columns, schema=results.MEMBERS.schema)


def cost_surface() -> pl.DataFrame:
    columns = {
        "window": [0, 0, 1],
        "symbol": ["ES.FUT"] * 3,
        "policy": ["ensemble", "seed 0", "ensemble"],
        "delay_bars": [0, 1, 0],
        "commission_usd": [2.25, 2.25, 0.0],
        "slippage_ticks": [0.5, 0.5, 0.0],
        "gross_usd": [100.0, 50.0, 20.0],
        "costs_usd": [17.0, 17.0, 0.0],
        "net_usd": [83.0, 33.0, 20.0],
        "sides": [2, 2, 4],
    }
    return pl.DataFrame(columns, schema=results.COST_SURFACE.schema)


TABLES: list[tuple[str, Callable[[], pl.DataFrame], Write, Read]] = [
    ("equity.parquet", equity, results.write_equity, results.read_equity),
    ("fills.parquet", fills, results.write_fills, results.read_fills),
    ("trades.parquet", trades, results.write_trades, results.read_trades),
    ("members.parquet", members, results.write_members, results.read_members),
    ("cost_surface.parquet", cost_surface, results.write_cost_surface, results.read_cost_surface),
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
        (fills, results.write_fills, "price"),
        (trades, results.write_trades, "net_usd"),
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
        (with_cell(fills(), 1, "ts_ns", 9), results.write_fills, "the fills of a window are not in time order"),
        (with_cell(fills(), 2, "lots", 2), results.write_fills, "position_after is not the position before plus lots"),
        (with_cell(fills(), 2, "lots", 0), results.write_fills, "a fill has no lots; 1 of 6 rows, the first is .*20"),
        (fills()[1:], results.write_fills, "or a window starts with one; 1 of 5 rows"),
        (fills()[:3], results.write_fills, "a window ends with a position; 1 of 3 rows, the first is .'row': 2"),
        (with_cell(fills(), 3, "fees_usd", 1.5), results.write_fills, "costs_usd is not fees_usd . slippage_usd"),
        (with_cell(fills(), 3, "slippage_usd", -1.0), results.write_fills, "slippage_usd is below 0"),
        (with_cell(fills(), 0, "reason", "flat"), results.write_fills, "'reason' allows decision, roll-out, roll-in"),
        (with_cell(trades(), 1, "net_usd", 20.0), results.write_trades, "net_usd is not gross_usd - fees_usd - slip"),
        (with_cell(trades(), 1, "exit_ts_ns", 19), results.write_trades, "a trade ends before it begins"),
        (trades()[[1, 0, 2]], results.write_trades, "the trades of a window are not in the order of their ends"),
        (with_cell(trades(), 2, "lots", 1), results.write_trades, "a gain has the prices of a loss"),
        (with_cell(trades(), 2, "lots", 0), results.write_trades, "a trade has no lots"),
        (with_cell(trades(), 0, "fees_usd", -1.0), results.write_trades, "fees_usd is below 0"),
        (with_cell(trades(), 0, "exit_reason", "roll"), results.write_trades, "'exit_reason' allows decision"),
        (with_cell(members(), 1, "val_net_usd", 0.0), results.write_members, "val_net_usd is null where there is no"),
        (with_cell(members(), 0, "val_net_usd", None), results.write_members, "val_net_usd is null where there is no"),
        (with_cell(members(), 0, "test_costs_usd", 2.0), results.write_members, "test_net_usd is not test_gross_usd"),
        (with_cell(cost_surface(), 0, "net_usd", 84.0), results.write_cost_surface, "net_usd is not gross_usd - costs"),
        (pl.concat([cost_surface()] * 2), results.write_cost_surface, "rows repeat window and policy and delay_bars"),
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
        with pytest.raises(StoreError, match=rf"{name}: not readable as Parquet \(its SHA-256 is not the one recorded"):
            read(run)
    (run.root / name).write_bytes(good)
    assert read(run).equals(build())


def test_table_without_a_manifest_is_read_all_the_same(run: RunFolder) -> None:
    results.write_equity(run, equity())
    run.manifest.unlink()
    assert results.read_equity(run).equals(equity())


def test_other_table_under_the_name_is_refused_when_read(run: RunFolder) -> None:
    results.write_fills(run, fills())
    run.fills.rename(run.equity)
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


# --- integrity of a finished run ---


def test_every_change_to_a_result_file_is_found_and_named(run: RunFolder) -> None:
    for _, build, write, _ in TABLES:
        write(run, build())
    results.write_windows(run, plan())
    write_summary(run, summary())
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


@pytest.mark.parametrize("files", [None, [], "x", {"summary.json": "x"}, {"summary.json": {}}, {}])
def test_a_manifest_whose_list_of_files_is_damaged_vouches_for_nothing(run: RunFolder, files: object) -> None:
    write_summary(run, summary())
    layout.finish_manifest(run, "complete")
    layout.write_manifest(run, layout.read_manifest(run) | {"files": files})
    problems = results.verify_results(run)
    assert problems
    assert str(run.root) in problems[0]


def test_of_a_complete_run_every_table_and_policy_is_listed(run: RunFolder) -> None:
    for _, build, write, _ in TABLES:
        write(run, build())
    results.write_windows(run, plan())
    write_summary(run, summary())
    layout.write_text_atomic(run.config, "seed = 0\n")
    (run.policies / "p.safetensors").write_bytes(b"weights")
    layout.finish_manifest(run, "complete")
    manifest = layout.read_manifest(run)
    for name in ("policies/p.safetensors", "summary.json", "run.toml", "windows.json", "cost_surface.parquet"):
        layout.write_manifest(run, manifest | {"files": {n: k for n, k in manifest["files"].items() if n != name}})
        assert results.verify_results(run) == [f"{run.root / name}: not in the list of files of the manifest"]


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
