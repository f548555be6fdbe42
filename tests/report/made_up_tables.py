"""Tables of a made-up run: equity, fills, round trips, cost surface, members."""

import datetime
import itertools
from typing import Any

import numpy as np
import polars as pl

from report.made_up_spec import BASELINES, RunSpec, weekdays
from tidewalk.store import results


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


def fills_table(equity: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Three fills in every session of the ensemble that traded; a window ends flat."""
    rows = []
    active = equity.filter((pl.col("policy") == "ensemble") & (pl.col("trades") > 0))
    for (window, symbol), days in active.group_by("window", "symbol", maintain_order=True):
        position, hours = 0, (1, 8, 13, 14, 15, 19, 20)
        stamps = [
            datetime.datetime.combine(day, datetime.time(hour, int(rng.integers(60))), datetime.UTC)
            for day in days["trade_date"]
            for hour in sorted(rng.choice(hours, 3, replace=False).tolist())
        ]
        targets = [0]
        while len(targets) < len(stamps):
            targets.insert(0, int(rng.choice([lots for lots in (-1, 0, 1) if lots != targets[0]])))
        first = 1 if targets[0] == 0 else 0
        for number, (stamp, target) in enumerate(zip(stamps[first:], targets[first:], strict=True)):
            lots, position = target - position, target
            reason = "end" if number + first + 1 == len(stamps) else "close" if number % 40 == 7 else "decision"
            price = 4800 + 0.25 * int(rng.integers(-400, 400))
            fill = (
                symbol,
                window,
                int(stamp.timestamp()) * 10**9,
                f"ES{'HMUZ'[window % 4]}{window % 10}",
                lots,
                target,
            )
            rows.append((*fill, price, 2.25 * abs(lots), 2.25 * abs(lots), 4.5 * abs(lots), reason))
    return pl.DataFrame(rows, schema=results.FILLS.schema, orient="row")


def trades_table(fills: pl.DataFrame) -> pl.DataFrame:
    """Round trips of the fills, whose positions are one contract at most."""
    rows = []
    for _, own in fills.group_by("window", maintain_order=True):
        for entry, leave in itertools.pairwise(own.iter_rows(named=True)):
            lots = entry["position_after"]
            if lots:
                gross = (leave["price"] - entry["price"]) * lots * 50.0
                ends = [entry["ts_ns"], entry["price"], leave["ts_ns"], leave["price"]]
                facts = [gross, 4.5, 4.5, gross - 9.0, entry["reason"], leave["reason"]]
                rows.append([entry["symbol"], entry["window"], entry["contract"], lots, *ends, *facts])
    return pl.DataFrame(rows, schema=results.TRADES.schema, orient="row")


def surface_table(windows: list[dict[str, Any]], spec: RunSpec) -> pl.DataFrame:
    """Every window at four commissions, four slippages and three delays."""
    rows = []
    sides = 80 if spec.trades else 0
    for record, delay in itertools.product(windows, (0, 1, 2)):
        gross = (700.0 - 900.0 * (record["window"] % 3 == 2)) / (1 + delay) if spec.trades else 0.0
        for commission, slippage in itertools.product((0.0, 1.125, 2.25, 4.5), (0.0, 0.18, 0.5, 1.0)):
            costs = sides * (commission + 12.5 * slippage)
            cell = [delay, commission, slippage, gross, costs, gross - costs, sides]
            rows.append([record["window"], record["symbol"], "ensemble", *cell])
    return pl.DataFrame(rows, schema=results.COST_SURFACE.schema, orient="row")


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
        rows[-1][3:] = [0, None, 0.0, 0.0, 0.0, 0, None, "diverged"]
    return pl.DataFrame(rows, schema=results.MEMBERS.schema, orient="row")
