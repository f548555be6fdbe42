"""A summary of two windows whose figures fit together, for tests of what is stored."""

import copy
from typing import Any


def summary() -> dict[str, Any]:
    """A fresh copy of the made-up summary: every key of the contract once, in order."""
    oos, baselines = _oos(), _baselines()
    alone = {key: value for key, value in oos.items() if key not in _of_all_trials()}
    oracle = {"net_usd": 10_000.0, "captured_frac": 0.0182}
    return {
        "schema": 2,
        "run": "demo",
        "status": "complete",
        "model": "dqn",
        "symbol": "ES.FUT",
        "currency": "USD",
        "device": "cpu",
        "data_fingerprint": "abc",
        "bars": 1000,
        "contracts": 2,
        "rolls": 1,
        "windows": 2,
        "seeds": 2,
        "members": 4,
        "epochs": 5,
        "transfers": {"uploads": 1, "bytes_market": 9000, "bytes_h2d_per_epoch": 0},
        "phases_ms": {"init": 0.1, "collect": 1.0, "learn": 2.0, "evaluate": 0.4, "total": 3.5},
        "compile_ms": 5000.0,
        "oos": {**oos, **_of_all_trials()},
        "baselines": baselines,
        "oracle": oracle,
        "over_seeds": {
            "count": 2,
            "statistic": "mean",
            "net_usd": 182.0,
            "net_ci90": [10.0, 300.0],
            "min_usd": 180.0,
            "max_usd": 184.0,
            "profitable_frac": 1.0,
        },
        "overfitting": {
            "configurations": 3,
            "sessions": 44,
            "blocks": 8,
            "pbo": 0.4,
            "pbo_null90": [0.2, 0.8],
            "slope": -0.1,
            "prob_oos_loss": 0.3,
            "spa_p": 0.2,
            "spa_p_lower": 0.15,
            "spa_p_upper": 0.3,
            "spa_benchmark": "flat",
        },
        "cost_surface": {"break_even_side_usd": 25.0, "own_side_usd": 2.25},
        "reconciled": dict.fromkeys(("equity_usd", "fills_usd", "trades_usd", "rewards_usd"), 182.0),
        "per_symbol": [
            {
                "symbol": "ES.FUT",
                "data_fingerprint": "abc",
                "bars": 1000,
                "windows": 2,
                "oos": alone,
                "baselines": baselines,
                "oracle": oracle,
                "costs": _costs(),
            }
        ],
        "per_window": [_window(), copy.deepcopy(_window()) | {"window": 1}],
        "warnings": [],
    }


def _window() -> dict[str, Any]:
    return {
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
        "val_net_usd": 120.0,
        "wfe": 0.7,
        "break_even_side_usd": 25.0,
        "captured_frac": 0.0182,
        "contracts": ["ESM4"],
        "rolls": 0,
        "oracle_usd": 5000.0,
        "long_usd": 250.0,
        "partial_test": False,
    }


def _oos() -> dict[str, Any]:
    return {
        "sessions": 44,
        "sessions_per_year": 252.0,
        "net_usd": 182.0,
        "gross_usd": 200.0,
        "costs_usd": 18.0,
        "fees_usd": 10.0,
        "slippage_usd": 8.0,
        "trades": 8,
        "round_trips": 4,
        "turnover": 0.18,
        "exposure": 0.6,
        "hit_rate": 0.55,
        "profit_factor": 1.2,
        "expected_shortfall_usd": 30.0,
        "sharpe_session": 1.2,
        "sharpe_se": 0.9,
        "sharpe_ci90": [-0.4, 2.8],
        "sortino": 1.5,
        "calmar": 2.0,
        "max_drawdown_usd": 40.0,
        "longest_drawdown_sessions": 7,
        "psr": 0.8,
        "min_trl_sessions": 480.0,
    }


def _of_all_trials() -> dict[str, Any]:
    return {
        "dsr": 0.4,
        "dsr_variant": "2014",
        "sidak_p": 0.49,
        "min_btl_years": 0.7,
        "trials": 3,
        "effective_trials": 2.4,
        "verdict": "profit not distinguishable from luck",
        "verdict_failed": ["PSR 0.80, above 0.95 needed", "a loss after costs"],
        "verdict_rule": "PSR 0.80 is not above 0.95",
    }


def _baselines() -> dict[str, Any]:
    nets = {"flat": 0.0, "long": 500.0, "short": -500.0, "momentum": -9.0, "tsmom": 3.0, "macd": -4.0, "ma_cross": 5.0}
    return {
        **nets,
        "random_p": 0.7,
        "random_usd": [-90.0, -9.0, 0.0, 8.0, 95.0],
        "best": "long",
        "equals": [],
        "nearest": "flat",
        "nearest_agreement": 0.4,
    }


def _costs() -> dict[str, Any]:
    return {
        "slippage": "ticks",
        "commission_usd": 2.25,
        "slippage_ticks": 0.5,
        "side_usd": 8.5,
        "roll_as": "sides",
        "roll_usd": 17.0,
        "half_spread_ticks": 0.0,
    }
