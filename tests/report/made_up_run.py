"""A run folder as training writes it, small and made up, for the report to read."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w

from tidewalk.stats.metrics import max_drawdown, sessions_per_year, sharpe
from tidewalk.store import layout, quality, results

ROLL = {
    "ts_ns": 1_525_132_800_000_000_000,
    "from_volume": 410_233.0,
    "to_volume": 655_120.0,
    "exit": 4811.25,
    "entry": 4855.75,
    "basis": 44.5,
    "reason": "volume",
}
COSTS = {
    "slippage": "ticks",
    "commission_usd": 2.25,
    "slippage_ticks": 0.18,
    "side_usd": 4.5,
    "half_spread_ticks": 0.0,
}
DATA = {
    "files": [
        {
            "path": "es-2018.dbn.zst",
            "kind": "dbn v1 zstd",
            "schema": "ohlcv-1m",
            "rows_read": 812_756,
            "rows_kept": 812_344,
            "first_ts_ns": 1_514_847_600_000_000_000,
            "last_ts_ns": None,
            "notes": [],
        }
    ],
    "findings": [
        {"defect": "spreads", "text": "3 calendar spreads were left out", "count": 412, "is_warning": False}
        | {"file": "es-2018.dbn.zst"},
        {"defect": "off-tick", "text": "2 bars are off the tick grid", "count": 2, "is_warning": True, "file": None},
    ],
}
BASELINES = {"long": 0.0, "short": 0.0, "momentum": -60.0, "flat": 0.0, "oracle": 2600.0}


@dataclass(frozen=True)
class RunSpec:
    """What a made-up run looks like."""

    name: str = "2025-01-03-dqn-es"
    symbol: str = "ES.FUT"
    status: str = "complete"
    windows: int = 8
    seeds: int = 4
    epochs: int = 20
    step_months: int = 3
    trades: bool = True
    phased: bool = True
    losses: bool = True
    more_symbols: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        return (self.symbol, *self.more_symbols)

    @property
    def all_windows(self) -> int:
        return self.windows * len(self.symbols)


def month_start(year: int, month: int) -> datetime.date:
    """First day of a month counted from January of `year`; months beyond 12 run into later years."""
    return datetime.date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)


def weekdays(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    """Monday to Friday from `first` until before `last`."""
    days = [first + datetime.timedelta(days=k) for k in range((last - first).days)]
    return [day for day in days if day.weekday() < 5]


def window_record(number: int, spec: RunSpec) -> dict[str, Any]:
    """One entry of windows.json: three months of training, one of validation, one of test."""
    symbol, place = divmod(number, spec.windows)
    at = 1 + place * spec.step_months
    spans = {"train": (at, at + 3), "val": (at + 3, at + 4), "test": (at + 4, at + 5)}
    record: dict[str, Any] = {"window": number, "symbol": spec.symbols[symbol]}
    for part, (start, stop) in spans.items():
        days = weekdays(month_start(2018, start), month_start(2018, stop))
        span = {"first": days[0].isoformat(), "last": days[-1].isoformat()}
        record[part] = span | {"bars": [start * 30000, stop * 30000], "sessions": len(days)}
    roll = {"date": record["test"]["first"], "from": f"ESH{number % 10}", "to": f"ESM{number % 10}"}
    record |= {"partial_test": False, "contracts": [roll["from"], roll["to"]], "rolls": [roll]}
    return record


def equity_table(windows: list[dict[str, Any]], spec: RunSpec, rng: np.random.Generator) -> pl.DataFrame:
    """Sessions of the ensemble, every seed and the baselines, in each symbol."""
    return pl.concat([_equity_of(symbol, windows, spec, rng) for symbol in spec.symbols])


def _equity_of(symbol: str, windows: list[dict[str, Any]], spec: RunSpec, rng: np.random.Generator) -> pl.DataFrame:
    days = [
        (record["window"], day)
        for record in windows
        if record["symbol"] == symbol
        for day in weekdays(
            datetime.date.fromisoformat(record["test"]["first"]),
            datetime.date.fromisoformat(record["test"]["last"]) + datetime.timedelta(days=1),
        )
    ]
    market = rng.normal(12, 900, len(days))
    names = {"ensemble": 90.0} | {f"seed {k}": 60.0 for k in range(spec.seeds)} | BASELINES
    frames = []
    for name, edge in names.items():
        idle = name == "flat" or (name == "ensemble" and not spec.trades)
        sign = {"long": 1.0, "short": -1.0}.get(name)
        gross = edge + (market * sign if sign else rng.normal(0, 520, len(days)))
        gross = np.zeros(len(days)) if idle else np.round(gross / 12.5) * 12.5
        trades = np.zeros(len(days), dtype=np.int64) if idle else rng.integers(2, 14, len(days))
        net = gross - 4.5 * trades
        columns = {
            "policy": [name] * len(days),
            "symbol": [symbol] * len(days),
            "window": [window for window, _ in days],
            "trade_date": [day for _, day in days],
            "net_usd": net,
            "gross_usd": gross,
            "costs_usd": 4.5 * trades,
            "equity_usd": np.cumsum(net),
            "position_mean": np.zeros(len(days)) if idle else rng.uniform(-0.4, 0.6, len(days)),
            "trades": trades,
        }
        frames.append(pl.DataFrame(columns).cast(results.EQUITY.schema))
    return pl.concat(frames)


def trades_table(equity: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Three fills in every session of the ensemble that traded."""
    rows = []
    symbols = dict(equity.select("window", "symbol").unique().iter_rows())
    position, last = 0, -1
    active = equity.filter((pl.col("policy") == "ensemble") & (pl.col("trades") > 0))
    for number, (window, day) in enumerate(active.select("window", "trade_date").iter_rows()):
        position, last = (position if window == last else 0), window
        for hour in sorted(rng.choice([1, 8, 13, 14, 15, 19, 20], 3, replace=False).tolist()):
            target = int(rng.choice([lots for lots in (-1, 0, 1) if lots != position]))
            time = datetime.datetime.combine(day, datetime.time(hour, int(rng.integers(60))), datetime.UTC)
            reason = "roll-in" if number % 21 == 0 else "roll-out" if number % 21 == 1 else "decision"
            lots = target - position
            position = target
            price = 4800 + 0.25 * int(rng.integers(-400, 400))
            fill = (
                symbols[window],
                window,
                int(time.timestamp()) * 10**9,
                f"ES{'HMUZ'[window % 4]}{window % 10}",
                lots,
                target,
                price,
            )
            rows.append((*fill, 4.5 * abs(lots), reason))
    return pl.DataFrame(rows, schema=results.TRADES.schema, orient="row")


def metric_lines(spec: RunSpec, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl."""
    lines = []
    size = spec.all_windows * spec.seeds
    for epoch in range(1, spec.epochs + 1):
        loss = 4.0 * np.exp(-epoch / 6) * rng.lognormal(0, 0.3, size) + 0.05
        val = 3000 * (1 - np.exp(-epoch / 5)) - 1800 + rng.normal(0, 900, size)
        low, middle, high = np.quantile(loss, [0.1, 0.5, 0.9])
        val_low, val_middle, val_high = np.quantile(val, [0.1, 0.5, 0.9])
        split = spec.phased
        lines.append(
            {
                "epoch": epoch,
                "step": 50 * epoch,
                "loss": middle if spec.losses else None,
                "loss_p10": low if spec.losses else None,
                "loss_p90": high if spec.losses else None,
                "epsilon": max(0.05, 1 - epoch / 10),
                "val_net_usd": {"median": val_middle, "p10": val_low, "p90": val_high, "best": float(val.max())},
                "val_reward": {"median": 0.1, "p10": 0.0, "p90": 0.2, "best": 0.3},
                "q_mean": 0.4,
                "phases_ms": {
                    "init": 0.4,
                    "collect": 3 + rng.normal(0, 0.2) if split else None,
                    "learn": 5 + rng.normal(0, 0.3) if split else None,
                    "evaluate": 1.2,
                    "total": 10.1,
                },
                "uploaded_bytes": 22_000_000 if epoch == 1 else 0,
                "compile_ms": 5210.0 if epoch == 1 else None,
                "epochs_per_s": 98.0,
                "members": {"loss": loss.tolist() if spec.losses else [None] * size, "val_net_usd": val.tolist()},
            }
        )
    return lines


def members_table(spec: RunSpec, rng: np.random.Generator) -> pl.DataFrame:
    """Rows of members.parquet; the last member diverged."""
    rows = []
    for window in range(spec.all_windows):
        for seed in range(spec.seeds):
            val = float(rng.normal(1500, 1500))
            test = 0.3 * val + float(rng.normal(0, 1500))
            epoch = int(rng.integers(1, spec.epochs + 1))
            rows.append(
                [
                    spec.symbols[window // spec.windows],
                    window,
                    seed,
                    epoch,
                    val,
                    test,
                    test + 300,
                    300.0,
                    70,
                    test / 1000,
                    "ok",
                ]
            )
    if len(rows) > 1:
        rows[-1][3:] = [0, 0.0, 0.0, 0.0, 0.0, 0, None, "diverged"]
    return pl.DataFrame(rows, schema=results.MEMBERS.schema, orient="row")


def summary_record(
    windows: list[dict[str, Any]], equity: pl.DataFrame, members: pl.DataFrame, spec: RunSpec
) -> dict[str, Any]:
    """summary.json, its sums taken from the tables."""
    own = results.portfolio(equity).filter(pl.col("policy") == "ensemble")
    ratio = sharpe(own["net_usd"].to_numpy(), sessions_per_year(own["trade_date"].to_list())).value
    sums = {key: own[key].sum() for key in ("net_usd", "gross_usd", "costs_usd", "trades")}
    totals = dict(equity.group_by("policy").agg(pl.col("net_usd").sum()).iter_rows())
    per_window = [_window_summary(record, equity, members) for record in windows]
    undefined = dict.fromkeys(("oos.sharpe_session", "oos.sharpe_ci90", "oos.psr", "oos.dsr"), "no variance")
    undefined["baselines.random_p"] = "the ensemble never held a position"
    warnings = [results.undefined_warning(path, reason) for path, reason in undefined.items()]

    def known(value: Any) -> Any:
        return value if spec.trades else None

    return {
        "schema": 1,
        "run": spec.name,
        "status": spec.status,
        "model": "dqn",
        "symbol": ", ".join(spec.symbols),
        "device": "NVIDIA H200",
        "data_fingerprint": "9f2c" * 16,
        "bars": 812_344,
        "contracts": 12,
        "rolls": 11,
        "windows": spec.all_windows,
        "seeds": spec.seeds,
        "members": spec.all_windows * spec.seeds,
        "epochs": spec.epochs,
        "transfers": {"uploads": 1, "bytes_market": 22_000_000, "bytes_h2d_per_epoch": 0},
        "phases_ms": {"init": 0.4, "collect": 3.0, "learn": 5.0, "evaluate": 1.2, "total": 10.1},
        "compile_ms": 5210.0,
        "oos": {
            "sessions": own.height,
            **sums,
            "sharpe_session": known(ratio),
            "sharpe_ci90": known([-0.31, 1.92]),
            "max_drawdown_usd": max_drawdown(own["net_usd"].to_numpy()),
            "psr": known(0.913),
            "dsr": known(0.412),
            "trials": 46,
            "verdict": "profit not distinguishable from luck" if spec.trades else "no trades",
        },
        "baselines": {name: totals.get(name) for name in ("flat", "long", "short", "momentum")}
        | {"random_p": known(0.73)},
        "oracle": {"net_usd": totals.get("oracle"), "captured_frac": 0.0312},
        "per_symbol": [_symbol_summary(symbol, equity, spec) for symbol in spec.symbols],
        "per_window": per_window,
        "warnings": ["2 bars are off the tick grid.", *([] if spec.trades else warnings)],
    }


def _symbol_summary(symbol: str, equity: pl.DataFrame, spec: RunSpec) -> dict[str, Any]:
    rows = equity.filter(pl.col("symbol") == symbol)
    own = rows.filter(pl.col("policy") == "ensemble")
    totals = dict(rows.group_by("policy").agg(pl.col("net_usd").sum()).iter_rows())

    def known(value: Any) -> Any:
        return value if spec.trades else None

    return {
        "symbol": symbol,
        "data_fingerprint": "9f2c" * 16,
        "bars": 812_344,
        "windows": spec.windows,
        "oos": {
            "sessions": own.height,
            **{key: own[key].sum() for key in ("net_usd", "gross_usd", "costs_usd", "trades")},
            "sharpe_session": known(0.4),
            "sharpe_ci90": known([-0.5, 1.4]),
            "max_drawdown_usd": max_drawdown(own["net_usd"].to_numpy()),
            "psr": known(0.8),
        },
        "baselines": {name: totals.get(name) for name in ("flat", "long", "short", "momentum")}
        | {"random_p": known(0.61)},
        "oracle": {"net_usd": totals.get("oracle"), "captured_frac": 0.02},
        "costs": COSTS,
    }


def _window_summary(record: dict[str, Any], equity: pl.DataFrame, members: pl.DataFrame) -> dict[str, Any]:
    own = equity.filter(pl.col("window") == record["window"])
    sums = own.group_by("policy", maintain_order=True).agg(pl.col("net_usd", "gross_usd", "costs_usd", "trades").sum())
    by_name = {row["policy"]: row for row in sums.iter_rows(named=True)}
    seeds = members.filter(pl.col("window") == record["window"])
    spans = {part: [record[part]["first"], record[part]["last"]] for part in ("train", "val", "test")}
    money = {key: by_name["ensemble"][key] for key in ("net_usd", "gross_usd", "costs_usd", "trades")}
    return {
        "window": record["window"],
        "symbol": record["symbol"],
        **spans,
        **money,
        "best_epoch": seeds["best_epoch"].to_list(),
        "seeds_net_usd": [by_name[name]["net_usd"] for name in by_name if name.startswith("seed ")],
        "contracts": record["contracts"],
        "rolls": len(record["rolls"]),
        "oracle_usd": by_name["oracle"]["net_usd"],
        "long_usd": by_name["long"]["net_usd"],
        "partial_test": record["partial_test"],
    }


def write_run(folder: Path, spec: RunSpec) -> Path:
    """Write all files of a run but its report, through the store, and return the folder."""
    rng = np.random.default_rng(7)
    run = layout.create_run(folder, overwrite=False)
    windows = [window_record(number, spec) for number in range(spec.all_windows)]
    equity = equity_table(windows, spec, rng)
    members = members_table(spec, rng)
    gap = "Two months of every three are not tested." if spec.step_months > 1 else None
    months = {"train": 3, "val": 1, "test": 1, "step": spec.step_months}
    results.write_windows(run, {"months": months, "purge_bars": 2, "windows": windows, "uncovered": gap})
    results.write_summary(run, summary_record(windows, equity, members, spec))
    for line in metric_lines(spec, rng):
        results.append_metrics(run, line)
    config = {"symbol": spec.symbol, "model": "dqn", "costs": {"commission_usd": 2.25, "slippage_ticks": 0.5}}
    run.config.write_text(tomli_w.dumps(config))
    results.write_equity(run, equity)
    results.write_members(run, members)
    results.write_trades(run, trades_table(equity, rng))
    rolls = [roll | ROLL for record in windows for roll in record["rolls"]]
    manifest = {
        "started": "2025-01-03T09:00:00+00:00",
        "versions": {"python": "3.11.7", "tidewalk": "0.1.0", "jax": "0.10.2"},
        "device": "NVIDIA H200",
        "git": {"commit": "0123abc", "dirty": False},
        "symbols": [
            {
                "symbol": symbol,
                "contracts": sorted({name for record in windows for name in record["contracts"]}),
                "rolls": rolls,
                "features": ["return_1", "return_5", "range_20"],
                "notes": ["3 calendar spreads, 412 rows, were left out."],
                "warnings": ["2 bars are off the tick grid."],
                "tick": 0.25,
                "multiplier": 50.0,
                "currency": "USD",
                "costs": COSTS,
            }
            for symbol in spec.symbols
        ],
    }
    quality.write_quality(run, [{"symbol": symbol, "data_fingerprint": "9f2c" * 16} | DATA for symbol in spec.symbols])
    layout.write_manifest(run, manifest)
    layout.finish_manifest(run, spec.status)
    layout.unlock_run(run)
    return folder
