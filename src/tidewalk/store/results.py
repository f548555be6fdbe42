"""Result files of a run: fixed schemas, checked when written and when read; equal content gives equal bytes.

Money columns are USD, costs positive, so that net = gross - costs. Nulls stand only where a schema says so, NaN and
infinity nowhere.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tidewalk.core.errors import StoreError
from tidewalk.store.checks import check_keys, check_nested, is_named, null_paths
from tidewalk.store.layout import (
    STATUSES,
    JsonLines,
    RunFolder,
    append_jsonl,
    plain_json,
    read_bytes,
    read_jsonl,
    read_manifest,
    read_object,
    sha256_file,
    write_bytes_atomic,
    write_json_atomic,
    write_text_atomic,
)

SUMMARY_SCHEMA = 1
# Differences below this are rounding of sums in float64, not money.
TOLERANCE_USD = 0.005
MEMBER_STATUSES = ("ok", "diverged")
TRADE_REASONS = ("decision", "roll-out", "roll-in", "flat")
_PHASES = ("init", "collect", "learn", "evaluate", "total")
_SPREAD = ("median", "p10", "p90", "best")

SUMMARY_KEYS: dict[str, tuple[str, ...]] = {
    "summary": (
        *("schema", "run", "status", "model", "symbol", "device", "data_fingerprint", "bars", "contracts", "rolls"),
        *("windows", "seeds", "members", "epochs", "transfers", "phases_ms", "compile_ms", "oos", "baselines"),
        *("oracle", "per_symbol", "per_window", "warnings"),
    ),
    "transfers": ("uploads", "bytes_market", "bytes_h2d_per_epoch"),
    "phases_ms": _PHASES,
    "oos": (
        *("sessions", "net_usd", "gross_usd", "costs_usd", "trades", "sharpe_session", "sharpe_ci90"),
        *("max_drawdown_usd", "psr", "dsr", "trials", "verdict"),
    ),
    "baselines": ("flat", "long", "short", "momentum", "random_p"),
    "oracle": ("net_usd", "captured_frac"),
}
PER_SYMBOL_KEYS: dict[str, tuple[str, ...]] = {
    "symbol": ("symbol", "data_fingerprint", "bars", "windows", "oos", "baselines", "oracle", "costs"),
    # without those that count trials: they are of the study as a whole
    "oos": tuple(key for key in SUMMARY_KEYS["oos"] if key not in ("dsr", "trials", "verdict")),
    "baselines": SUMMARY_KEYS["baselines"],
    "oracle": SUMMARY_KEYS["oracle"],
    "costs": ("slippage", "commission_usd", "slippage_ticks", "side_usd", "half_spread_ticks"),
}
PER_WINDOW_KEYS = (
    *("window", "symbol", "train", "val", "test", "best_epoch", "net_usd", "gross_usd", "costs_usd", "trades"),
    *("seeds_net_usd", "contracts", "rolls", "oracle_usd", "long_usd", "partial_test"),
)
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
WINDOW_KEYS: dict[str, tuple[str, ...]] = {
    "window": ("window", "symbol", "train", "val", "test", "partial_test", "contracts", "rolls"),
    "train": ("first", "last", "bars", "sessions"),
    "val": ("first", "last", "bars", "sessions"),
    "test": ("first", "last", "bars", "sessions"),
}


@dataclass(frozen=True)
class Table:
    """Columns of a result table in file order, what may be null, the allowed words, and what no two rows share."""

    schema: dict[str, Any]
    nullable: tuple[str, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    key: tuple[str, ...] = ()


EQUITY = Table(
    {"policy": pl.String(), "symbol": pl.String(), "window": pl.Int32(), "trade_date": pl.Date()}
    | dict.fromkeys(("net_usd", "gross_usd", "costs_usd", "equity_usd", "position_mean"), pl.Float64())
    | {"trades": pl.Int64()},
    key=("policy", "symbol", "trade_date"),
)
TRADES = Table(
    {"symbol": pl.String(), "window": pl.Int32(), "ts_ns": pl.Int64(), "contract": pl.String(), "lots": pl.Int32()}
    | {"position_after": pl.Int32(), "price": pl.Float64(), "costs_usd": pl.Float64(), "reason": pl.String()},
    words=(("reason", TRADE_REASONS),),
)
MEMBERS = Table(
    {"symbol": pl.String(), "window": pl.Int32(), "seed": pl.Int32(), "best_epoch": pl.Int32()}
    | dict.fromkeys(("val_net_usd", "test_net_usd", "test_gross_usd", "test_costs_usd"), pl.Float64())
    | {"test_trades": pl.Int64(), "test_sharpe_session": pl.Float64(), "status": pl.String()},
    nullable=("test_sharpe_session",),
    words=(("status", MEMBER_STATUSES),),
    key=("window", "seed"),
)


def _check_rows(path: Path, frame: pl.DataFrame, is_bad: pl.Expr, problem: str) -> None:
    """Raises a StoreError that shows the first row where `is_bad` holds."""
    bad = frame.with_row_index("row").filter(is_bad)
    if bad.height:
        raise StoreError(
            f"{path}: {problem}; {bad.height} of {frame.height} rows, the first is {bad.row(0, named=True)}."
        )


def _check_columns(path: Path, frame: pl.DataFrame, table: Table) -> None:
    """Raises a StoreError when a column is missing, unknown, or of another type."""
    check_keys(str(path), dict.fromkeys(frame.columns), tuple(table.schema), noun="column")
    for column, dtype in table.schema.items():
        if frame.schema[column] != dtype:
            raise StoreError(f"{path}: column {column!r} is {frame.schema[column]}, needed is {dtype}. Cast it first.")


def _checked(path: Path, frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The frame with its columns in file order.

    Raises:
        StoreError: columns, types, nulls, NaN, unknown words or repeated keys; shows the first row at fault.
    """
    _check_columns(path, frame, table)
    for column, dtype in table.schema.items():
        if column not in table.nullable:
            _check_rows(path, frame, pl.col(column).is_null(), f"column {column!r} has nulls")
        if dtype.is_float():
            _check_rows(path, frame, ~pl.col(column).is_finite(), f"column {column!r} has NaN or infinity")
    for column, allowed in table.words:
        _check_rows(path, frame, ~pl.col(column).is_in(allowed), f"column {column!r} allows {', '.join(allowed)} only")
    if table.key:
        _check_rows(path, frame, ~pl.struct(table.key).is_first_distinct(), f"rows repeat {' and '.join(table.key)}")
    return frame.select(list(table.schema))


def _differs(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Whether two amounts of money differ by more than rounding."""
    return (left - right).abs() > TOLERANCE_USD + 1e-9 * right.abs()


def _check_equity(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when the P&L of a policy does not add up or its sessions are not in time order."""
    one = ("policy", "symbol")
    net, earlier = pl.col("net_usd"), pl.col("trade_date").shift().over(one)
    _check_rows(path, frame, pl.col("trade_date") <= earlier, "the sessions of a policy are not in time order")
    total, owed = net.cum_sum().over(one), pl.col("gross_usd") - pl.col("costs_usd")
    _check_rows(path, frame, _differs(net, owed), "net_usd is not gross_usd - costs_usd")
    _check_rows(path, frame, _differs(pl.col("equity_usd"), total), "equity_usd is not the running sum of net_usd")


def _check_trades(path: Path, frame: pl.DataFrame) -> None:
    """Raises a StoreError when fills are out of time order or do not lead from position to position."""
    before, earlier = pl.col("position_after").shift().over("window"), pl.col("ts_ns").shift().over("window")
    _check_rows(path, frame, pl.col("ts_ns") < earlier, "the fills of a window are not in time order")
    moved = pl.col("position_after") - before != pl.col("lots")
    _check_rows(path, frame, moved, "position_after is not the position before plus lots")


def _check_nothing(path: Path, frame: pl.DataFrame) -> None:
    """The table has no law between its rows."""


def _write_table(path: Path, frame: pl.DataFrame, table: Table, law: Callable[[Path, pl.DataFrame], None]) -> None:
    checked = _checked(path, frame, table)
    law(path, checked)
    buffer = io.BytesIO()
    # Everything that shapes the bytes is fixed here, not left to the defaults of a version.
    checked.write_parquet(buffer, compression="zstd", compression_level=3, statistics=True, row_group_size=65_536)
    write_bytes_atomic(path, buffer.getvalue())


def _read_table(run: RunFolder, path: Path, table: Table, law: Callable[[Path, pl.DataFrame], None]) -> pl.DataFrame:
    data = read_bytes(path)
    known = read_manifest(run).get("files", {}).get(path.name) if run.manifest.is_file() else None
    try:
        # Before anything is decoded, since a flipped bit can make the decoder end the whole process.
        if known is not None and hashlib.sha256(data).hexdigest() != known["sha256"]:
            raise ValueError("its SHA-256 is not the one in the manifest")
        # From bytes, because a path with brackets or stars would be taken for a pattern.
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise StoreError(
            f"{path}: not readable as Parquet ({error}): damaged or cut short. Restore or rerun."
        ) from error
    checked = _checked(path, frame, table)
    law(path, checked)
    return checked


def write_equity(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes equity.parquet: one row per out-of-sample session of each policy and symbol, in time order within both.

    Raises:
        StoreError: the frame breaks the schema `EQUITY`, net is not gross less costs, or equity not the sum of net.
    """
    _write_table(run.equity, frame, EQUITY, _check_equity)


def read_equity(run: RunFolder) -> pl.DataFrame:
    """Frame of equity.parquet, checked as when written, and against the manifest once the run is finished."""
    return _read_table(run, run.equity, EQUITY, _check_equity)


def portfolio(equity: pl.DataFrame) -> pl.DataFrame:
    """Equity rows of all symbols together: amounts added up by policy and trade date, without `symbol`.

    `position_mean` is the sum over the symbols, in contracts; `window` is that of the first symbol of the day.
    """
    amounts = ("net_usd", "gross_usd", "costs_usd", "position_mean", "trades")
    days = equity.group_by("policy", "trade_date", maintain_order=True)
    table = days.agg(pl.col("window").first(), pl.col(*amounts).sum())
    parts = [part.sort("trade_date") for part in table.partition_by("policy", maintain_order=True)]
    return pl.concat(parts or [table]).with_columns(equity_usd=pl.col("net_usd").cum_sum().over("policy"))


def write_trades(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes trades.parquet: the fills of the ensemble, in time order within a window.

    Raises:
        StoreError: the frame breaks the schema `TRADES`, or a fill does not lead from one position to the next.
    """
    _write_table(run.trades, frame, TRADES, _check_trades)


def read_trades(run: RunFolder) -> pl.DataFrame:
    """Frame of trades.parquet, checked as `read_equity` does."""
    return _read_table(run, run.trades, TRADES, _check_trades)


def write_members(run: RunFolder, frame: pl.DataFrame) -> None:
    """Writes members.parquet: one row per window and seed.

    Raises:
        StoreError: the frame breaks the schema `MEMBERS`.
    """
    _write_table(run.members, frame, MEMBERS, _check_nothing)


def read_members(run: RunFolder) -> pl.DataFrame:
    """Frame of members.parquet, checked as `read_equity` does."""
    return _read_table(run, run.members, MEMBERS, _check_nothing)


def append_metrics(run: RunFolder, record: Mapping[str, object], *, durable: bool = False) -> None:
    """Adds the line of one epoch to metrics.jsonl; `durable` waits for the disk, for this line and all before it."""
    check_nested(run.metrics.name, record, METRIC_KEYS)
    append_jsonl(run.metrics, record, durable=durable)


def read_metrics(run: RunFolder) -> JsonLines:
    """Epoch lines of metrics.jsonl, with a warning for each damaged one."""
    lines = read_jsonl(run.metrics)
    for record in lines.records:
        check_nested(str(run.metrics), record, METRIC_KEYS)
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


def undefined_warning(path: str, reason: str) -> str:
    """The warning that explains a null of the summary, as `validate_summary` looks for it."""
    return f"{path} is undefined: {reason}"


def _check_money(where: str, row: Mapping[str, Any]) -> None:
    """Raises a StoreError when net is not gross less costs, where all three are known."""
    net, gross, costs = (row[key] for key in ("net_usd", "gross_usd", "costs_usd"))
    if None not in (net, gross, costs) and abs(net - gross + costs) > TOLERANCE_USD + 1e-9 * abs(gross):
        raise StoreError(f"{where}: net_usd is {net}, which is not gross_usd {gross} less costs_usd {costs}.")


def validate_summary(summary: Mapping[str, Any]) -> None:
    """Checks the contract of summary.json: exact keys, no NaN, every null explained, money that adds up.

    The rows of `per_window` may hold more than `PER_WINDOW_KEYS`, all else is exact.

    Raises:
        StoreError: names the key at fault. A null needs a warning with its dotted path (`undefined_warning` writes
            one); for rows of a list the path without the index explains all of them.
    """
    plain = plain_json(summary, "summary")
    check_nested("summary", plain, SUMMARY_KEYS)
    if plain["schema"] != SUMMARY_SCHEMA or plain["status"] not in STATUSES:
        found, statuses = f"{plain['schema']!r} and {plain['status']!r}", ", ".join(STATUSES)
        raise StoreError(f"summary: schema and status are {found}; needed are {SUMMARY_SCHEMA} and one of {statuses}.")
    for index, row in enumerate(plain["per_symbol"] or []):
        check_nested(f"summary: per_symbol[{index}]", row, PER_SYMBOL_KEYS)
        _check_money(f"summary: per_symbol[{index}].oos", row["oos"])
    for index, row in enumerate(plain["per_window"] or []):
        check_keys(f"summary: per_window[{index}]", row, PER_WINDOW_KEYS, or_more=True)
        _check_money(f"summary: per_window[{index}]", row)
    if plain["oos"] is not None:
        _check_money("summary: oos", plain["oos"])
    # The row of a single symbol repeats figures that are explained where they are said of the study.
    of_symbols = plain["per_symbol"] if len(plain["per_symbol"] or []) > 1 else []
    for path in null_paths({**plain, "per_symbol": of_symbols}):
        if not is_named(path, plain["warnings"] or []):
            raise StoreError(f"summary: {path} is null, and no warning names {path!r} with the reason.")


def write_summary(run: RunFolder, summary: Mapping[str, Any]) -> None:
    """Writes summary.json after `validate_summary`."""
    validate_summary(summary)
    write_json_atomic(run.summary, summary)


def read_summary(run: RunFolder) -> dict[str, Any]:
    """Content of summary.json, checked as when written."""
    summary = read_object(run.summary)
    validate_summary(summary)
    return summary


def verify_results(run: RunFolder) -> list[str]:
    """One sentence for every result file that is missing or differs from the manifest; empty when all is well."""
    problems: list[str] = []
    for name, known in read_manifest(run).get("files", {}).items():
        path = run.root / name
        if not path.is_file():
            problems.append(f"{path}: missing, though the manifest lists it")
        elif path.stat().st_size != known["bytes"] or sha256_file(path) != known["sha256"]:
            problems.append(f"{path}: not what the run wrote (size or SHA-256 differ from the manifest)")
    return problems
