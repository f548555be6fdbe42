"""A run folder as training writes it, small and made up, for the report to read."""

from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from report.made_up_figures import summary_record
from report.made_up_spec import COSTS, RunSpec, window_record
from report.made_up_tables import equity_table, fills_table, members_table, surface_table, trades_table
from tidewalk.store import layout, quality, results
from tidewalk.store.summary import write_summary

ROLL = {
    "ts_ns": 1_525_132_800_000_000_000,
    "from_volume": 410_233.0,
    "to_volume": 655_120.0,
    "exit": 4811.25,
    "entry": 4855.75,
    "basis": 44.5,
    "reason": "volume",
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
RULES = {
    **{"positions": 1, "lots_per_level": 1, "max_position": None, "direction": "both", "lookback": 1},
    **{"flat_at_close": False, "no_entry_minutes": 0, "roll_as": "sides", "decision_delay": 0},
    **{"capital_usd": None, "daily_loss_usd": 500.0, "trailing_drawdown_usd": None},
}


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
    write_summary(run, summary_record(windows, equity, members, spec))
    for line in metric_lines(spec, rng):
        results.append_metrics(run, line)
    config = {"symbol": spec.symbol, "model": "dqn", "costs": {"commission_usd": 2.25, "slippage_ticks": 0.5}}
    run.config.write_text(tomli_w.dumps(config))
    results.write_equity(run, equity)
    results.write_members(run, members)
    fills = fills_table(equity, rng)
    results.write_fills(run, fills)
    results.write_trades(run, trades_table(fills))
    results.write_cost_surface(run, surface_table(windows, spec))
    rolls = [roll | ROLL for record in windows for roll in record["rolls"]]
    manifest = {
        "started": "2025-01-03T09:00:00+00:00",
        "versions": {"python": "3.11.7", "tidewalk": "0.1.0", "jax": "0.10.2"},
        "device": "NVIDIA H200",
        "git": {"commit": "0123abc", "dirty": False},
        "rules": RULES,
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
