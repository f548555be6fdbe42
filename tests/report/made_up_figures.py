"""summary.json of a made-up run."""

import re
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import trim_mean

from report.made_up_spec import BASELINES, COSTS, RunSpec
from tidewalk.stats import metrics
from tidewalk.store import results
from tidewalk.store.checks import null_paths
from tidewalk.store.summary import SUMMARY_SCHEMA, undefined_warning


def summary_record(
    windows: list[dict[str, Any]], equity: pl.DataFrame, members: pl.DataFrame, spec: RunSpec
) -> dict[str, Any]:
    """summary.json, its sums taken from the tables."""
    per_window = [_window_summary(record, equity, members) for record in windows]
    per_symbol = [_symbol_summary(symbol, equity, spec) for symbol in spec.symbols]
    whole = {key: sum(row["oos"][key] for row in per_symbol) for key in ("net_usd", "gross_usd", "costs_usd")}
    oos = _oos(equity, spec) | whole
    net = oos["net_usd"]
    record = {
        "schema": SUMMARY_SCHEMA,
        "run": spec.name,
        "status": spec.status,
        "model": "dqn",
        "symbol": ", ".join(spec.symbols),
        "currency": "USD",
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
        "oos": {**oos, **_of_all_trials(spec)},
        "baselines": _baselines(equity, spec),
        "oracle": {"net_usd": _total(equity, "oracle"), "captured_frac": 0.0312},
        "over_seeds": _over_seeds(equity, spec),
        "overfitting": _overfitting(oos, spec),
        "cost_surface": {"break_even_side_usd": 8.75 if spec.trades else None, "own_side_usd": 4.5},
        "reconciled": dict.fromkeys(("equity_usd", "fills_usd", "trades_usd", "rewards_usd"), net),
        "per_symbol": per_symbol,
        "per_window": per_window,
        "warnings": ["2 bars are off the tick grid."],
    }
    paths = {re.sub(r"\[\d+\]", "", path) for path in null_paths({**record, "per_symbol": []})}
    record["warnings"] += [undefined_warning(path, _reason(path, spec)) for path in sorted(paths)]
    return record


def _reason(path: str, spec: RunSpec) -> str:
    if path.startswith("baselines"):
        return "the ensemble never held a position"
    if path == "over_seeds.net_ci90" and spec.seeds < 5:
        return f"{spec.seeds} seeds, 5 needed for an interval over seeds"
    return "no variance"


def _total(equity: pl.DataFrame, policy: str) -> float:
    return equity.filter(pl.col("policy") == policy)["net_usd"].sum()


def _oos(equity: pl.DataFrame, spec: RunSpec) -> dict[str, Any]:
    """Performance of the ensemble over the symbols in a frame."""
    own = results.portfolio(equity).filter(pl.col("policy") == "ensemble")
    pnl, days = own["net_usd"].to_numpy(), own["trade_date"].to_list()
    costs, trades = own["costs_usd"].sum(), own["trades"].sum()

    def known(value: Any) -> Any:
        return value if spec.trades else None

    return {
        "sessions": own.height,
        "sessions_per_year": metrics.sessions_per_year(days),
        "net_usd": own["net_usd"].sum(),
        "gross_usd": own["gross_usd"].sum(),
        "costs_usd": costs,
        "fees_usd": costs / 2,
        "slippage_usd": costs / 2,
        "trades": trades,
        "round_trips": trades // 2,
        "turnover": trades / own.height,
        "exposure": known(0.62) or 0.0,
        "hit_rate": known(0.53),
        "profit_factor": metrics.profit_factor(pnl).value,
        "expected_shortfall_usd": metrics.expected_shortfall(pnl).value,
        "sharpe_session": metrics.sharpe(pnl, metrics.sessions_per_year(days)).value,
        "sharpe_se": known(0.66),
        "sharpe_ci90": known([-0.31, 1.92]),
        "sortino": known(1.1),
        "calmar": known(0.8),
        "max_drawdown_usd": metrics.max_drawdown(pnl),
        "longest_drawdown_sessions": metrics.longest_drawdown_sessions(pnl),
        "psr": known(0.913),
        "min_trl_sessions": known(311.4),
    }


def _of_all_trials(spec: RunSpec) -> dict[str, Any]:
    is_known = spec.trades
    return {
        "dsr": 0.412 if is_known else None,
        "dsr_variant": "2014",
        "sidak_p": 0.985 if is_known else None,
        "min_btl_years": 5.02,
        "trials": 46,
        "effective_trials": 11.3,
        "verdict": "not distinguishable from luck: best of 46 configurations, DSR 0.41" if is_known else "no trades",
        "verdict_failed": ["DSR 0.41, above 0.95 needed"] if is_known else ["no trades"],
        "verdict_rule": "evidence needs PSR and DSR above 0.95 and a lower end of the interval above 0",
    }


def _baselines(equity: pl.DataFrame, spec: RunSpec) -> dict[str, Any]:
    nets = {name: _total(equity, name) for name in BASELINES if name != "oracle"}
    equals = [*spec.equals] if spec.trades else ["flat"]
    return {
        **nets,
        "random_p": 0.73 if spec.trades else None,
        "random_usd": [-9000.0, -3500.0, -700.0, 2100.0, 7000.0] if spec.trades else None,
        "best": max(nets, key=lambda name: nets[name]),
        "equals": equals,
        "nearest": equals[0] if equals else "momentum",
        "nearest_agreement": 1.0 if equals else 0.41,
    }


def _over_seeds(equity: pl.DataFrame, spec: RunSpec) -> dict[str, Any]:
    nets = [_total(equity, f"seed {seed}") for seed in range(spec.seeds)]
    return {
        "count": spec.seeds,
        "statistic": "interquartile mean" if spec.seeds >= 4 else "mean",
        "net_usd": float(trim_mean(nets, 0.25)),
        "net_ci90": [min(nets), max(nets)] if spec.seeds >= 5 else None,
        "min_usd": min(nets),
        "max_usd": max(nets),
        "profitable_frac": float(np.mean(np.array(nets) > 0)),
    }


def _overfitting(oos: dict[str, Any], spec: RunSpec) -> dict[str, Any]:
    counts = {"configurations": 46, "sessions": oos["sessions"], "blocks": 8}
    figures = {"pbo": 0.44, "pbo_null90": [0.2, 0.79], "slope": -0.12, "prob_oos_loss": 0.35}
    figures |= {"spa_p": 0.27, "spa_p_lower": 0.21, "spa_p_upper": 0.4}
    known = figures if spec.trades else dict.fromkeys(figures)
    return {**counts, **known, "spa_benchmark": "flat"}


def _symbol_summary(symbol: str, equity: pl.DataFrame, spec: RunSpec) -> dict[str, Any]:
    rows = equity.filter(pl.col("symbol") == symbol)
    return {
        "symbol": symbol,
        "data_fingerprint": "9f2c" * 16,
        "bars": 812_344,
        "windows": spec.windows,
        "oos": _oos(rows, spec),
        "baselines": _baselines(rows, spec),
        "oracle": {"net_usd": _total(rows, "oracle"), "captured_frac": 0.02},
        "costs": COSTS,
    }


def _window_summary(record: dict[str, Any], equity: pl.DataFrame, members: pl.DataFrame) -> dict[str, Any]:
    own = equity.filter(pl.col("window") == record["window"])
    sums = own.group_by("policy", maintain_order=True).agg(pl.col("net_usd", "gross_usd", "costs_usd", "trades").sum())
    by_name = {row["policy"]: row for row in sums.iter_rows(named=True)}
    seeds = members.filter(pl.col("window") == record["window"])
    spans = {part: [record[part]["first"], record[part]["last"]] for part in ("train", "val", "test")}
    money = {key: by_name["ensemble"][key] for key in ("net_usd", "gross_usd", "costs_usd", "trades")}
    bound, traded, val = by_name["oracle"]["net_usd"], money["trades"], seeds["val_net_usd"].mean()
    return {
        "window": record["window"],
        "symbol": record["symbol"],
        **spans,
        **money,
        "best_epoch": seeds["best_epoch"].to_list(),
        "seeds_net_usd": [by_name[name]["net_usd"] for name in by_name if name.startswith("seed ")],
        "val_net_usd": val,
        "wfe": 0.6 if val and val > 0 else None,
        "break_even_side_usd": money["gross_usd"] / traded if traded else None,
        "captured_frac": money["net_usd"] / bound if bound > 0 else None,
        "contracts": record["contracts"],
        "rolls": len(record["rolls"]),
        "oracle_usd": bound,
        "long_usd": by_name["long"]["net_usd"],
        "partial_test": record["partial_test"],
    }
