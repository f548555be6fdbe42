"""One study of two symbols with recorded spreads, from the markets to the run folder."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from support import as_nq, planted_market, random_half_spreads, small_config
from tidewalk.core.errors import Interrupted
from tidewalk.data.load import DataConfig
from tidewalk.market.device import MarketData
from tidewalk.run import loop
from tidewalk.run import markets as reading
from tidewalk.run.engine import Engine
from tidewalk.stats import metrics
from tidewalk.store import checkpoint, layout, quality, results
from tidewalk.store.summary import read_summary
from tidewalk.trading.costs import CostConfig

FINDING = {"defect": "off-tick", "text": "2 opens are off the tick", "count": 2, "is_warning": True, "file": None}


def markets() -> dict[str, MarketData]:
    """ES hourly over six months and NQ every two hours over five, so that they share two of three test months."""
    es = random_half_spreads(planted_market(days=182))
    nq = random_half_spreads(as_nq(planted_market(days=152, bars_per_day=12, seed=1)), seed=1)
    facts = dataclasses.replace(nq.info, warnings=("2 opens are off the tick",), quality=(FINDING,))
    return {"ES.FUT": es, "NQ.FUT": dataclasses.replace(nq, info=facts)}


@pytest.fixture(autouse=True)
def made_up_markets(monkeypatch):
    monkeypatch.setattr(
        reading, "read_markets", lambda config, **_: tuple(markets()[symbol] for symbol in config.symbols)
    )


def config_of(out: Path, *symbols: str, **train: object):
    config = small_config(Path("data"), out, **train)
    costs = CostConfig(commission_usd=2.5, slippage="recorded", slippage_ticks=0.25)
    return dataclasses.replace(config, data=DataConfig(Path("data"), ",".join(symbols)), costs=costs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            reading, "read_markets", lambda config, **_: tuple(markets()[symbol] for symbol in config.symbols)
        )
        return layout.open_run(
            loop.train(config_of(tmp_path_factory.mktemp("runs") / "both", "ES.FUT", "NQ.FUT", seeds=2))
        )


def policies(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "policies").iterdir())}


def test_counts_names_and_one_upload(finished):
    summary = read_summary(finished)
    assert summary["symbol"] == "ES.FUT, NQ.FUT"
    assert (summary["windows"], summary["seeds"], summary["members"]) == (5, 2, 10)
    assert [row["symbol"] for row in summary["per_window"]] == ["ES.FUT"] * 3 + ["NQ.FUT"] * 2
    assert [(row["symbol"], row["windows"], row["bars"]) for row in summary["per_symbol"]] == [
        ("ES.FUT", 3, 182 * 24),
        ("NQ.FUT", 2, 152 * 12),
    ]
    assert (summary["transfers"]["uploads"], summary["transfers"]["bytes_h2d_per_epoch"]) == (1, 0)
    assert any("of 3 test periods, NQ.FUT lacks 1" in text for text in summary["warnings"])
    assert "NQ.FUT: 2 opens are off the tick" in summary["warnings"]
    meta = [
        checkpoint.load_policy(finished.policies / f"window-{w:02d}-seed-00.safetensors")[1]["symbol"] for w in range(5)
    ]
    assert meta == ["ES.FUT"] * 3 + ["NQ.FUT"] * 2
    windows = results.read_windows(finished)["windows"]
    assert [(row["window"], row["symbol"]) for row in windows] == list(enumerate(meta))
    assert max(row["test"]["bars"][1] for row in windows if row["symbol"] == "NQ.FUT") <= 152 * 12


def test_the_portfolio_is_the_sum_of_the_symbols_by_trade_date(finished):
    summary, equity = read_summary(finished), results.read_equity(finished)
    own = equity.filter(pl.col("policy") == "ensemble")
    by_date = own.group_by("trade_date").agg(pl.col("net_usd").sum()).sort("trade_date")["net_usd"].to_numpy()
    together = results.portfolio(equity).filter(pl.col("policy") == "ensemble")
    assert together["net_usd"].to_list() == pytest.approx(by_date.tolist())
    oos = summary["oos"]
    assert oos["sessions"] == len(by_date) < own.height
    assert oos["net_usd"] == pytest.approx(by_date.sum())
    assert oos["max_drawdown_usd"] == pytest.approx(metrics.max_drawdown(by_date))
    assert oos["sharpe_session"] == pytest.approx(metrics.sharpe(by_date, 365.2425).value, rel=1e-3)
    for name in ("net_usd", "gross_usd", "costs_usd", "trades"):
        assert sum(row["oos"][name] for row in summary["per_symbol"]) == pytest.approx(oos[name])
    for name in ("flat", "long", "short", "momentum"):
        parts = [row["baselines"][name] for row in summary["per_symbol"]]
        assert sum(parts) == pytest.approx(summary["baselines"][name])
    assert sum(row["oracle"]["net_usd"] for row in summary["per_symbol"]) == pytest.approx(summary["oracle"]["net_usd"])
    for row in summary["per_symbol"]:
        alone = own.filter(pl.col("symbol") == row["symbol"])["net_usd"].to_numpy()
        assert row["oos"]["max_drawdown_usd"] == pytest.approx(metrics.max_drawdown(alone))
        assert row["oos"]["sessions"] == len(alone)
    for policy, symbol in equity.select("policy", "symbol").unique().iter_rows():
        bound = next(row["oracle"]["net_usd"] for row in summary["per_symbol"] if row["symbol"] == symbol)
        rows = equity.filter((pl.col("policy") == policy) & (pl.col("symbol") == symbol))
        assert rows["net_usd"].sum() <= bound + 1e-6


def test_every_fill_pays_commission_slippage_and_half_its_own_spread(finished):
    whole = results.read_fills(finished)
    assert set(whole["symbol"]) == {"ES.FUT", "NQ.FUT"}
    for symbol, market in markets().items():
        fills = whole.filter(pl.col("symbol") == symbol)
        bars = np.searchsorted(market.ts_ns, fills["ts_ns"].to_numpy())
        tick_usd = market.info.tick_value_usd
        per_side = 2.5 + (0.25 + market.half_spread_ticks[bars].astype(float)) * tick_usd
        assert fills["costs_usd"].to_numpy() == pytest.approx(fills["lots"].abs().to_numpy() * per_side)
        cash = -(fills["lots"] * fills["price"]).sum() * market.info.multiplier
        (row,) = (row for row in read_summary(finished)["per_symbol"] if row["symbol"] == symbol)
        assert row["oos"]["gross_usd"] == pytest.approx(cash)
        assert row["oos"]["costs_usd"] == pytest.approx(fills["costs_usd"].sum())
        assert row["costs"]["slippage"] == "recorded"
        assert row["costs"]["side_usd"] == 2.5 + 0.25 * tick_usd
        assert 1.5 < row["costs"]["half_spread_ticks"] < 3.0


def test_what_chose_the_best_epoch_paid_the_spread_of_the_validation_months(finished):
    """The validation result of every member, as the device added it up, is what the metrics of that epoch say."""
    lines = results.read_metrics(finished).records
    for row in results.read_members(finished).iter_rows(named=True):
        epoch, member = row["best_epoch"], 2 * row["window"] + row["seed"]
        assert lines[epoch - 1]["members"]["val_net_usd"][member] == pytest.approx(row["val_net_usd"])
        assert row["symbol"] == ("ES.FUT" if row["window"] < 3 else "NQ.FUT")


def test_a_symbol_learns_beside_another_what_it_learns_alone(finished, tmp_path):
    """To the bit, but for the spread of the action values: a sum over bars that are batched with other windows."""
    alone = loop.train(config_of(tmp_path / "es", "ES.FUT", seeds=2))
    paths = sorted((alone / "policies").iterdir())
    assert len(paths) == 3 * 2
    for path in paths:
        (arrays, meta), (theirs, their_meta) = map(checkpoint.load_policy, (path, finished.policies / path.name))
        assert {name: array.tobytes() for name, array in arrays.items()} == {
            name: array.tobytes() for name, array in theirs.items()
        }
        assert meta == {**their_meta, "spread": pytest.approx(their_meta["spread"], rel=1e-6)}
    ours = results.read_equity(layout.open_run(alone))
    theirs = results.read_equity(finished).filter(pl.col("symbol") == "ES.FUT")
    assert ours.sort("policy", "trade_date").equals(theirs.sort("policy", "trade_date"))


def test_data_quality_is_in_the_folder_the_manifest_and_the_report(finished):
    record = quality.read_quality(finished)
    assert [(of["symbol"], of["data_fingerprint"], of["findings"]) for of in record["symbols"]] == [
        ("ES.FUT", "test", []),
        ("NQ.FUT", "nq", [FINDING]),
    ]
    manifest = layout.read_manifest(finished)
    assert "data_quality.json" in manifest["files"]
    assert [of["symbol"] for of in manifest["symbols"]] == ["ES.FUT", "NQ.FUT"]
    text = finished.report.read_text()
    for words in ("By symbol", "2 opens are off the tick", "Several symbols", "4 NQ.FUT"):
        assert words in text


def _stopped(finish):
    def run(*args):
        ended = finish(*args)
        os.kill(os.getpid(), signal.SIGTERM)
        return ended

    return run


@pytest.mark.slow
def test_a_resumed_study_of_two_symbols_equals_one_that_never_stopped(finished, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "finish", _stopped(Engine.finish))
        with pytest.raises(Interrupted):
            loop.train(config_of(tmp_path / "both", "ES.FUT", "NQ.FUT", seeds=2))
    assert json.loads((tmp_path / "both" / "summary.json").read_text())["per_symbol"] == []
    loop.resume(tmp_path / "both", quiet=True)
    assert policies(tmp_path / "both") == policies(finished.root)
    whole, again = (read_summary(layout.run_paths(path)) for path in (finished.root, tmp_path / "both"))
    for name in ("oos", "baselines", "oracle", "per_symbol", "per_window", "data_fingerprint"):
        assert whole[name] == again[name], name
