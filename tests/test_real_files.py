"""The main job on real market files, against counts made by hand from the calendar and from the contracts' own bars."""

import dataclasses
import datetime as dt
import html

import numpy as np
import polars as pl
import pytest

from agreement.run_files import assert_run_agrees
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core.errors import DataError
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.market.prepare import prepare_market
from tidewalk.market.windows import WindowConfig
from tidewalk.run import loop
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.store import layout
from tidewalk.store.reconcile import disagreements
from tidewalk.store.results import read_cost_surface, read_equity, read_fills, read_members, read_trades
from tidewalk.store.summary import read_summary
from tidewalk.train.baselines import NAMES as BASELINES
from tidewalk.train.population import TrainConfig


def study(out, months, **data) -> RunConfig:
    train, val, test, step = months
    return RunConfig(
        data=DataConfig(**data),
        windows=WindowConfig(train_months=train, val_months=val, test_months=test, step_months=step),
        train=TrainConfig(epochs=1, max_steps_per_epoch=5, seeds=1),
        dqn=DQNConfig(hidden=(16,)),
        output=OutputConfig(out=out, quiet=True),
    )


def summary_of(config: RunConfig) -> tuple[dict, layout.RunFolder]:
    run = layout.open_run(loop.train(config))
    assert run.report.stat().st_size > 100_000
    return read_summary(run), run


@pytest.fixture(scope="module")
def nq_run(shared_data, tmp_path_factory):
    """A run over the year of NQ that trades and has several seeds: its summary, its folder, its market."""
    path = shared_data / "csv" / "nq_5min_2019_pacific.csv"
    config = study(
        tmp_path_factory.mktemp("runs") / "nq", (3, 1, 1, 3), data_dir=path, symbol="NQ", tz="America/Los_Angeles"
    )
    config = dataclasses.replace(config, train=TrainConfig(epochs=2, max_steps_per_epoch=30, seeds=5))
    summary, run = summary_of(config)
    return summary, run, prepare_market(config.data, config.series)


def weekdays(year: int, month: int, closed: tuple[int, ...] = ()) -> int:
    """Weekdays of a month less the days on which the exchange does not open."""
    first = dt.date(year, month, 1)
    days = (first + dt.timedelta(days=n) for n in range(31))
    return sum(day.month == month and day.weekday() < 5 and day.day not in closed for day in days)


def test_a_year_of_nq_five_minute_bars_in_pacific_time(shared_data, tmp_path):
    path = shared_data / "csv" / "nq_5min_2019_pacific.csv"
    summary, _ = summary_of(study(tmp_path / "nq", (3, 1, 1, 3), data_dir=path, symbol="NQ", tz="America/Los_Angeles"))
    assert summary["bars"] == 70_002
    assert summary["windows"] == 3
    tests = [row["test"] for row in summary["per_window"]]
    assert tests == [["2019-05-01", "2019-05-31"], ["2019-08-01", "2019-08-30"], ["2019-11-01", "2019-11-29"]]
    # Globex opens on every weekday of these months; Memorial Day and Thanksgiving are short sessions
    assert summary["oos"]["sessions"] == weekdays(2019, 5) + weekdays(2019, 8) + weekdays(2019, 11) == 66
    assert any("rolls are invisible" in text for text in summary["warnings"])


def test_two_years_of_irregular_es_bars_stamped_at_their_close(shared_data, tmp_path):
    path = shared_data / "csv" / "es_tick-bars_2015-2016.csv"
    config = study(tmp_path / "es", (3, 1, 1, 3), data_dir=path, symbol="ES", tz="UTC", bar_label="close")
    summary, _ = summary_of(config)
    assert summary["bars"] == 41_123
    assert summary["windows"] == 7
    months = [(2015, 5), (2015, 8), (2015, 11), (2016, 2), (2016, 5), (2016, 8), (2016, 11)]
    assert [row["test"][0][:7] for row in summary["per_window"]] == [f"{y}-{m:02d}" for y, m in months]
    assert summary["oos"]["sessions"] == sum(weekdays(*month) for month in months) == 151


@pytest.mark.slow
def test_the_files_of_a_real_run_tell_one_story(nq_run):
    """Ledger, equity, rewards, members and summary agree, and each of them is there to disagree."""
    summary, run, _ = nq_run
    assert disagreements(run) == []
    of = summary["reconciled"]
    assert of["equity_usd"] == of["fills_usd"] == of["trades_usd"] == summary["oos"]["net_usd"]
    assert of["rewards_usd"] == pytest.approx(of["equity_usd"], abs=0.01)
    assert summary["oos"]["round_trips"] > 100
    equity, fills, trades, members = read_equity(run), read_fills(run), read_trades(run), read_members(run)
    own = equity.filter(pl.col("policy") == "ensemble")
    assert own["net_usd"].sum() == pytest.approx(trades["net_usd"].sum(), abs=1e-6)
    assert own["equity_usd"][-1] == pytest.approx(summary["oos"]["net_usd"], abs=1e-6)
    assert own["trades"].sum() == fills["lots"].abs().sum() == summary["oos"]["trades"]
    seeds = equity.filter(pl.col("policy").str.starts_with("seed"))
    assert members["test_net_usd"].sum() == pytest.approx(seeds["net_usd"].sum(), abs=1e-6)


@pytest.mark.slow
def test_a_real_report_holds_what_a_result_is_judged_by(nq_run):
    """Baselines, share of the hindsight bound, cost surface and verdict, in the summary and on the page."""
    summary, run, _ = nq_run
    page = html.unescape(run.report.read_text())
    assert summary["oos"]["verdict"] in page
    assert "Evidence of an edge" in summary["oos"]["verdict_rule"]
    policies = set(read_equity(run)["policy"].unique())
    assert policies >= {"ensemble", *BASELINES, *(f"seed {n}" for n in range(5))}
    for name in BASELINES:
        amount = summary["baselines"][name]
        assert amount == pytest.approx(read_equity(run).filter(pl.col("policy") == name)["net_usd"].sum(), abs=1e-6)
        assert f"{abs(amount):,.0f}" in page
    oracle, net_usd = summary["oracle"], summary["oos"]["net_usd"]
    assert oracle["net_usd"] > max(0.0, net_usd, *(summary["baselines"][name] for name in BASELINES))
    assert oracle["captured_frac"] == pytest.approx(net_usd / oracle["net_usd"])
    assert f"{oracle['net_usd']:,.0f}" in page
    surface = read_cost_surface(run)
    at_own = surface.filter(
        (pl.col("policy") == "ensemble")
        & (pl.col("delay_bars") == 0)
        & (pl.col("commission_usd") == 2.25)
        & (pl.col("slippage_ticks") == 0.5)
    )
    assert at_own["net_usd"].sum() == pytest.approx(net_usd, abs=1e-6)
    assert surface["delay_bars"].n_unique() > 1
    assert surface.filter(pl.col("policy") == "ensemble")["window"].unique().sort().to_list() == [0, 1, 2]
    assert summary["cost_surface"]["own_side_usd"] == 4.75
    gross, sides = summary["oos"]["gross_usd"], summary["oos"]["trades"]
    assert summary["cost_surface"]["break_even_side_usd"] == pytest.approx(gross / sides)


@pytest.mark.slow
def test_another_engine_makes_the_same_of_the_fills_of_a_real_run(nq_run):
    """NautilusTrader on NQ 2019: every fill, round trip, session and sum, to the cent."""
    _, run, market = nq_run
    assert assert_run_agrees(run, market) > 100


@pytest.mark.slow
def test_another_engine_makes_the_same_of_a_real_run_over_a_roll(shared_data, tmp_path):
    path = shared_data / "dbn_built" / LEAN
    config = study(tmp_path / "lean", (1, 1, 1, 1), data_dir=path, symbol="ES.FUT")
    config = dataclasses.replace(config, windows=dataclasses.replace(config.windows, partial_test=True))
    _, run = summary_of(config)
    assert assert_run_agrees(run, prepare_market(config.data, config.series)) > 10


LEAN = "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"


def test_a_parent_file_with_a_roll_and_an_incomplete_test_month(shared_data, tmp_path):
    path = shared_data / "dbn_built" / LEAN
    config = study(tmp_path / "lean", (1, 1, 1, 1), data_dir=path, symbol="ES.FUT")
    with pytest.raises(
        DataError, match=r"2 complete month.*= 3\. 2013-12 is incomplete: the data end on 2013-12-20.*--partial-test"
    ):
        loop.train(config)
    partial = dataclasses.replace(config, windows=dataclasses.replace(config.windows, partial_test=True))
    summary, run = summary_of(partial)
    assert (summary["windows"], summary["contracts"], summary["rolls"]) == (1, 2, 1)
    row = summary["per_window"][0]
    assert row["partial_test"]
    assert row["contracts"] == ["ESZ3", "ESH4"]
    (roll,) = layout.read_manifest(run)["symbols"][0]["rolls"]
    assert (roll["from"], roll["to"], roll["date"][:7]) == ("ESZ3", "ESH4", "2013-12")
    assert roll["basis"] == pytest.approx(-6.25, abs=0.5)
    assert row["long_usd"] == pytest.approx(_long_by_hand(path, roll, partial, run))


def _long_by_hand(path, roll, config, run) -> float:
    """Net P&L of one contract held long over the test range: two holding periods, each at its own contract's opens."""
    tables = {table.contract: table for table in load_bars(config.data).tables}
    old, new = tables["ESZ3"], tables["ESH4"]
    roll_ns = roll["ts_ns"]
    first_ns = dt.datetime(2013, 11, 30, 12, tzinfo=dt.UTC).timestamp() * 1e9
    bought = np.flatnonzero(old.ts_ns > first_ns)[1]  # decided at the close of December's first bar
    sold = np.searchsorted(old.ts_ns, roll_ns)
    entered = np.searchsorted(new.ts_ns, roll_ns)
    points = (old.open_e9[sold] - old.open_e9[bought]) + (new.open_e9[-1] - new.open_e9[entered])
    side_usd = 0.5 * 12.5 + 2.25
    return points / 1e9 * 50 - 4 * side_usd
