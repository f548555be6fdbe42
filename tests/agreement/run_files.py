"""The files of a run folder against another engine: positions are read from the fills, everything else is compared."""

import json
import math
from typing import Any

import numpy as np
import polars as pl

from agreement.comparison import QUOTE_DELAY_NS, assert_cents, case_of, run_engine
from tidewalk.market.device import MarketData
from tidewalk.store.layout import RunFolder
from tidewalk.store.results import read_equity, read_fills, read_trades
from tidewalk.store.summary import read_summary
from tidewalk.trading.account import Book, book
from tidewalk.trading.costs import Costs


def assert_run_agrees(run: RunFolder, market: MarketData) -> int:
    """Fills, round trips, sessions and the net result of every window, of a run with one contract each side.

    Returns:
        Number of fills compared.
    """
    summary = read_summary(run)
    paid = summary["per_symbol"][0]["costs"]
    costs = Costs(market.info.tick_value_usd, paid["commission_usd"], paid["slippage_ticks"])
    windows = json.loads(run.windows.read_text())["windows"]
    books = [_positions(run, market, window) for window in windows]
    names = [f"window {window['window']}" for window in windows]
    cases = [case_of(name, market, account, costs) for name, account in zip(names, books, strict=True)]
    results = run_engine("engine_nautilus.py", cases)
    for window, account, name in zip(windows, books, names, strict=True):
        number, result = window["window"], results[name]
        assert_cents(summary["per_window"][number]["net_usd"], result["net_usd"], name)
        _assert_fills(read_fills(run).filter(pl.col("window") == number), result, market.info.multiplier)
        _assert_trips(read_trades(run).filter(pl.col("window") == number), result)
        own = read_equity(run).filter((pl.col("policy") == "ensemble") & (pl.col("window") == number))
        _assert_sessions(own, market, account, result)
    total = sum(float(result["net_usd"]) for result in results.values())
    assert_cents(summary["oos"]["net_usd"], total, "the whole record")
    return read_fills(run).height


def _positions(run: RunFolder, market: MarketData, window: dict[str, Any]) -> Book:
    """The path of positions that the fills of a window tell."""
    first, stop = window["test"]["bars"]
    rows = read_fills(run).filter(pl.col("window") == window["window"])
    after = np.zeros(stop - 1 - first, np.int64)
    at = np.searchsorted(market.ts_ns, rows["ts_ns"].to_numpy()) - 1 - first
    for row, held in zip(at, rows["position_after"].to_list(), strict=True):
        after[row:] = held
    return book(market, first, after)


def _assert_fills(rows: pl.DataFrame, result: dict[str, Any], multiplier: float) -> None:
    assert rows.height == len(result["fills"])
    for own, (contract, ts_ns, lots, price, fees) in zip(rows.iter_rows(named=True), result["fills"], strict=True):
        assert (own["contract"], own["lots"]) == (contract, lots)
        assert 0 < ts_ns - own["ts_ns"] <= QUOTE_DELAY_NS
        slipped = math.copysign(own["slippage_usd"] / abs(lots) / multiplier, lots)
        assert math.isclose(own["price"] + slipped, float(price), abs_tol=1e-9)
        assert_cents(own["fees_usd"], fees, f"fees of {own}")


def _assert_trips(rows: pl.DataFrame, result: dict[str, Any]) -> None:
    """With one contract each side a round trip is a position of the engine."""
    assert rows["lots"].abs().max() in (None, 1)
    assert rows.height == len(result["closed"])
    for own, (contract, opened, closed, net) in zip(rows.iter_rows(named=True), result["closed"], strict=True):
        assert own["contract"] == contract
        assert 0 < opened - own["entry_ts_ns"] <= QUOTE_DELAY_NS
        assert 0 < closed - own["exit_ts_ns"] <= QUOTE_DELAY_NS
        assert_cents(own["net_usd"], net, f"round trip {own}")


def _assert_sessions(rows: pl.DataFrame, market: MarketData, account: Book, result: dict[str, Any]) -> None:
    """The account at the end of each session but the last, at which the position is closed."""
    sums = rows["net_usd"].cum_sum().to_list()
    assert len(sums) == len(np.unique(market.trade_day[account.fill_bars])) == len(result["marks"]) + 1
    for (bar, equity), own in zip(result["marks"], sums[:-1], strict=True):
        assert_cents(own, equity, f"account at bar {bar}")
