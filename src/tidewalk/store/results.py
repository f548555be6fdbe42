"""Result files of a run: fixed schemas, checked when written and when read; equal content gives equal bytes.

Money columns are USD, costs positive, so that net = gross - costs. Nulls stand only where a schema says so, NaN and
infinity nowhere.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tidewalk.core.errors import StoreError
from tidewalk.store.checks import check_keys, check_nested, differs
from tidewalk.store.layout import (
    JsonLines,
    RunFolder,
    append_jsonl,
    read_jsonl,
    read_manifest,
    read_object,
    sha256_file,
    write_json_atomic,
    write_text_atomic,
)
from tidewalk.store.tables import Table, check_rows, read_table, write_table

MEMBER_STATUSES = ("ok", "diverged")
REASONS = (
    *("decision", "roll-out", "roll-in", "break-out", "break-in"),
    *("close", "daily-loss", "drawdown", "ruin", "end"),
)
"""Why a fill happened (see `trading.ledger`)."""
_PHASES = ("init", "collect", "learn", "evaluate", "total")
_SPREAD = ("median", "p10", "p90", "best")

METRIC_KEYS: dict[str, tuple[str, ...]] = {
    "epoch": (
        *("epoch", "step", "loss", "loss_p10", "loss_p90", "epsilon", "val_net_usd", "val_reward", "q_mean"),
        *("phases_ms", "uploaded_bytes", "compile_ms", "epochs_per_s", "members"),
    ),
    "val_net_usd": _SPREAD,
    "val_reward": _SPREAD,
    "phases_ms": _PHASES,
    "members": ("loss", "val_net_usd"),
}
METRIC_OPTIONAL = {
    "epoch": ("downloaded_bytes", "checkpoint_bytes", "host_syncs", "is_traced", "resuming_bytes", "resuming_syncs")
}
"""Keys that runs of earlier versions lack, or that only some epochs have."""
WINDOW_KEYS: dict[str, tuple[str, ...]] = {
    "window": ("window", "symbol", "train", "val", "test", "partial_test", "contracts", "rolls"),
    "train": ("first", "last", "bars", "sessions"),
    "val": ("first", "last", "bars", "sessions"),
    "test": ("first", "last", "bars", "sessions"),
}


def _check_equity(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when the P&L of a policy does not add up or its sessions are not in time order."""
    one = ("policy", "symbol")
    net, earlier = pl.col("net_usd"), pl.col("trade_date").shift().over(one)
    check_rows(path, frame, pl.col("trade_date") <= earlier, "the sessions of a policy are not in time order")
    total, owed = net.cum_sum().over(one), pl.col("gross_usd") - pl.col("costs_usd")
    check_rows(path, frame, differs(net, owed), "net_usd is not gross_usd - costs_usd")
    check_rows(path, frame, differs(pl.col("equity_usd"), total), "equity_usd is not the running sum of net_usd")


def _check_fills(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when fills are out of time order, or do not lead from flat over each position to flat."""
    before, earlier = pl.col("position_after").shift().over("window"), pl.col("ts_ns").shift().over("window")
    check_rows(path, frame, pl.col("ts_ns") < earlier, "the fills of a window are not in time order")
    check_rows(path, frame, pl.col("lots") == 0, "a fill has no lots")
    moved = pl.col("position_after") - before.fill_null(0) != pl.col("lots")
    check_rows(path, frame, moved, "position_after is not the position before plus lots, or a window starts with one")
    is_last = pl.struct("window").is_last_distinct()
    check_rows(path, frame, is_last & (pl.col("position_after") != 0), "a window ends with a position")
    _check_costs(path, frame)
    paid = pl.col("fees_usd") + pl.col("slippage_usd")
    check_rows(path, frame, differs(pl.col("costs_usd"), paid), "costs_usd is not fees_usd + slippage_usd")


def _check_trades(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when a round trip does not add up, ends before it begins, or follows a later one."""
    check_rows(path, frame, pl.col("exit_ts_ns") < pl.col("entry_ts_ns"), "a trade ends before it begins")
    earlier = pl.col("exit_ts_ns").shift().over("window")
    check_rows(path, frame, pl.col("exit_ts_ns") < earlier, "the trades of a window are not in the order of their ends")
    check_rows(path, frame, pl.col("lots") == 0, "a trade has no lots")
    # only the sign: what a price off the tick grid earned is counted in ticks, and the tick is not known here
    earned = (pl.col("exit_price") - pl.col("entry_price")) * pl.col("lots")
    check_rows(path, frame, pl.col("gross_usd") * earned < 0, "a gain has the prices of a loss, or the reverse")
    _check_costs(path, frame)
    owed = pl.col("gross_usd") - pl.col("fees_usd") - pl.col("slippage_usd")
    check_rows(path, frame, differs(pl.col("net_usd"), owed), "net_usd is not gross_usd - fees_usd - slippage_usd")


def _check_costs(path: Path, frame: pl.DataFrame) -> None:
    for column in ("fees_usd", "slippage_usd"):
        check_rows(path, frame, pl.col(column) < 0, f"{column} is below 0")


def _check_members(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when a member without a usable epoch has a validation result, or net is not gross - costs."""
    has_none = (pl.col("best_epoch") == 0) != pl.col("val_net_usd").is_null()
    check_rows(path, frame, has_none, "val_net_usd is null where there is no best epoch (0), and there alone")
    owed = pl.col("test_gross_usd") - pl.col("test_costs_usd")
    is_off = differs(pl.col("test_net_usd"), owed)
    check_rows(path, frame, is_off, "test_net_usd is not test_gross_usd - test_costs_usd")


def _check_surface(path: Path, frame: pl.DataFrame) -> None:
    owed = pl.col("gross_usd") - pl.col("costs_usd")
    check_rows(path, frame, differs(pl.col("net_usd"), owed), "net_usd is not gross_usd - costs_usd")


EQUITY = Table(
    {"policy": pl.String(), "symbol": pl.String(), "window": pl.Int32(), "trade_date": pl.Date()}
    | dict.fromkeys(("net_usd", "gross_usd", "costs_usd", "equity_usd", "position_mean"), pl.Float64())
    | {"trades": pl.Int64()},
    key=("policy", "symbol", "trade_date"),
    law=_check_equity,
)
"""One row per out-of-sample session of each policy and symbol; `trades` counts contract sides."""
FILLS = Table(
    {"symbol": pl.String(), "window": pl.Int32(), "ts_ns": pl.Int64(), "contract": pl.String(), "lots": pl.Int32()}
    | {"position_after": pl.Int32(), "price": pl.Float64()}
    | dict.fromkeys(("fees_usd", "slippage_usd", "costs_usd"), pl.Float64())
    | {"reason": pl.String()},
    words=(("reason", REASONS),),
    law=_check_fills,
)
"""The ensemble's fills: `lots` bought (negative: sold) of a contract at a price, and the position after it."""
TRADES = Table(
    {"symbol": pl.String(), "window": pl.Int32(), "contract": pl.String(), "lots": pl.Int32()}
    | {"entry_ts_ns": pl.Int64(), "entry_price": pl.Float64(), "exit_ts_ns": pl.Int64(), "exit_price": pl.Float64()}
    | dict.fromkeys(("gross_usd", "fees_usd", "slippage_usd", "net_usd"), pl.Float64())
    | {"entry_reason": pl.String(), "exit_reason": pl.String()},
    words=(("entry_reason", REASONS), ("exit_reason", REASONS)),
    law=_check_trades,
)
"""The ensemble's round trips, first in first out: `lots` held (negative: short) of one contract from entry to exit."""
MEMBERS = Table(
    {"symbol": pl.String(), "window": pl.Int32(), "seed": pl.Int32(), "best_epoch": pl.Int32()}
    | dict.fromkeys(("val_net_usd", "test_net_usd", "test_gross_usd", "test_costs_usd"), pl.Float64())
    | {"test_trades": pl.Int64(), "test_sharpe_session": pl.Float64(), "status": pl.String()},
    nullable=("val_net_usd", "test_sharpe_session"),
    words=(("status", MEMBER_STATUSES),),
    key=("window", "seed"),
    law=_check_members,
)
"""One row per window and seed."""
COST_SURFACE = Table(
    {"window": pl.Int32(), "symbol": pl.String(), "policy": pl.String(), "delay_bars": pl.Int32()}
    | dict.fromkeys(("commission_usd", "slippage_ticks", "gross_usd", "costs_usd", "net_usd"), pl.Float64())
    | {"sides": pl.Int64()},
    key=("window", "policy", "delay_bars", "commission_usd", "slippage_ticks"),
    law=_check_surface,
)
"""What each policy would have made in each window under other costs and delays; `policy` is "ensemble" or "seed n"."""


def write_equity(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes equity.parquet: one row per out-of-sample session of each policy and symbol, in time order within both.

    Raises:
        StoreError: the frame breaks the schema `EQUITY`, net is not gross less costs, or equity not the sum of net.
    """
    write_table(run.equity, frame, EQUITY)


def read_equity(run: RunFolder) -> pl.DataFrame:
    """Frame of equity.parquet, checked as when written, and against the manifest once the run is finished."""
    return read_table(run, run.equity, EQUITY)


def portfolio(equity: pl.DataFrame) -> pl.DataFrame:
    """Equity rows of all symbols together: amounts added up by policy and trade date, without `symbol`.

    `position_mean` is the sum over the symbols, in contracts; `window` is that of the first symbol of the day.
    """
    amounts = ("net_usd", "gross_usd", "costs_usd", "position_mean", "trades")
    days = equity.group_by("policy", "trade_date", maintain_order=True)
    table = days.agg(pl.col("window").first(), pl.col(*amounts).sum())
    parts = [part.sort("trade_date") for part in table.partition_by("policy", maintain_order=True)]
    return pl.concat(parts or [table]).with_columns(equity_usd=pl.col("net_usd").cum_sum().over("policy"))


def write_fills(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes fills.parquet and fills.csv: the fills of the ensemble, in time order within a window.

    Raises:
        StoreError: the frame breaks the schema `FILLS`, or a fill does not lead from one position to the next.
    """
    write_table(run.fills, frame, FILLS, with_csv=True)


def read_fills(run: RunFolder) -> pl.DataFrame:
    """Frame of fills.parquet, checked as `read_equity` does."""
    return read_table(run, run.fills, FILLS)


def write_trades(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes trades.parquet and trades.csv: the round trips of the ensemble, in the order of their ends in a window.

    Raises:
        StoreError: the frame breaks the schema `TRADES`, or a round trip does not add up.
    """
    write_table(run.trades, frame, TRADES, with_csv=True)


def read_trades(run: RunFolder) -> pl.DataFrame:
    """Frame of trades.parquet, checked as `read_equity` does."""
    return read_table(run, run.trades, TRADES)


def write_members(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes members.parquet: one row per window and seed.

    Raises:
        StoreError: the frame breaks the schema `MEMBERS`, or a row contradicts itself.
    """
    write_table(run.members, frame, MEMBERS)


def read_members(run: RunFolder) -> pl.DataFrame:
    """Frame of members.parquet, checked as `read_equity` does."""
    return read_table(run, run.members, MEMBERS)


def write_cost_surface(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes cost_surface.parquet: what each policy would have made under other costs and delays.

    Raises:
        StoreError: the frame breaks the schema `COST_SURFACE`, or net is not gross less costs.
    """
    write_table(run.cost_surface, frame, COST_SURFACE)


def read_cost_surface(run: RunFolder) -> pl.DataFrame:
    """Frame of cost_surface.parquet, checked as `read_equity` does."""
    return read_table(run, run.cost_surface, COST_SURFACE)


def ensemble_surface(surface: pl.DataFrame) -> pl.DataFrame:
    """Sums of the ensemble over the windows: one row per symbol, commission, slippage and delay, in that order."""
    points = ("symbol", "commission_usd", "slippage_ticks", "delay_bars")
    own = surface.filter(pl.col("policy") == "ensemble").group_by(points, maintain_order=True)
    return own.agg(pl.col("gross_usd", "costs_usd", "net_usd", "sides").sum()).sort(points)


def append_metrics(run: RunFolder, record: Mapping[str, object], *, durable: bool = False) -> None:
    """Adds the line of one epoch to metrics.jsonl; `durable` waits for the disk, for this line and all before it."""
    check_nested(run.metrics.name, record, METRIC_KEYS, METRIC_OPTIONAL)
    append_jsonl(run.metrics, record, durable=durable)


def read_metrics(run: RunFolder) -> JsonLines:
    """Epoch lines of metrics.jsonl, with a warning for each damaged one."""
    lines = read_jsonl(run.metrics)
    for record in lines.records:
        check_nested(str(run.metrics), record, METRIC_KEYS, METRIC_OPTIONAL)
    return lines


def rewind_metrics(run: RunFolder, last_epoch: int) -> tuple[str, ...]:
    """Drops the epochs after `last_epoch`, and damaged lines, so that a resumed run writes them once.

    Returns:
        Warnings for the damaged lines that are gone.
    """
    lines = read_metrics(run)
    kept = [record for record in lines.records if record["epoch"] <= last_epoch]
    if lines.warnings or len(kept) < len(lines.records):
        write_text_atomic(run.metrics, "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept))
    return lines.warnings


def _check_windows(where: str, value: Any) -> None:
    """Raises a StoreError when the plan of windows lacks something or a range of bars is empty or reversed."""
    check_keys(where, value, ("months", "purge_bars", "windows", "uncovered"))
    check_keys(f"{where}: months", value["months"], ("train", "val", "test", "step"))
    for index, window in enumerate(value["windows"]):
        check_nested(f"{where}: windows[{index}]", window, WINDOW_KEYS)
        for part in ("train", "val", "test"):
            first, end = window[part]["bars"]
            if not 0 <= first < end:
                raise StoreError(f"{where}: windows[{index}].{part}.bars is [{first}, {end}], not a half-open range.")


def write_windows(run: RunFolder, windows: Mapping[str, object]) -> None:
    """Writes windows.json: months of each part, and per window its dates, bar ranges [a, b), contracts and rolls."""
    _check_windows(run.windows.name, windows)
    write_json_atomic(run.windows, windows)


def read_windows(run: RunFolder) -> dict[str, Any]:
    """Content of windows.json, checked as when written."""
    windows = read_object(run.windows)
    _check_windows(str(run.windows), windows)
    return windows


def verify_results(run: RunFolder) -> list[str]:
    """A sentence for every result file that is missing, is not what the manifest says, or is not in it at all."""
    manifest, problems = read_manifest(run), list[str]()
    files = manifest.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(known, dict) for known in files.values()):
        return [f"{run.manifest}: its 'files' are no table of sizes and SHA-256"]
    for name, known in files.items():
        path = run.root / name
        if not path.is_file():
            problems.append(f"{path}: missing, though the manifest lists it")
        elif path.stat().st_size != known.get("bytes") or sha256_file(path) != known.get("sha256"):
            problems.append(f"{path}: not what the run wrote (size or SHA-256 differ from the manifest)")
    if manifest.get("status") == "complete":
        tables = (run.equity, run.fills, run.trades, run.members, run.cost_surface)
        needed = (run.config, run.windows, run.summary, *tables, *sorted(run.policies.glob("*.safetensors")))
        unlisted = [path for path in needed if path.relative_to(run.root).as_posix() not in files]
        problems += [f"{path}: not in the list of files of the manifest" for path in unlisted]
    return problems
