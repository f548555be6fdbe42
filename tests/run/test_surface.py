"""The cost surface of a study: whole grids, the arithmetic of costs, and rows that are those of the books."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from finished import finished_run
from support import planted_market, random_half_spreads, small_config
from tidewalk.core.errors import ConfigError
from tidewalk.run import surface
from tidewalk.run.engine import start
from tidewalk.run.evaluation import Reload, reload
from tidewalk.run.outcome import ENSEMBLE, money, settle
from tidewalk.run.study import plan_study
from tidewalk.run.surface import GridConfig, break_even_side_usd, cost_surface
from tidewalk.store import layout, results
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig

AXES = ("delay_bars", "commission_usd", "slippage_ticks")


@pytest.fixture(scope="module")
def traded():
    reloaded = reload(finished_run(), Reload())
    settled = settle(reloaded.stage, reloaded.kept)
    frame = cost_surface(reloaded.stage, reloaded.kept.best, settled.books, GridConfig())
    return reloaded, settled, frame


def test_the_surface_of_a_run_is_the_whole_grid_and_what_the_run_wrote(traded):
    _, _, frame = traded
    assert frame.height == 3 * 3 * 4 * 5 * 5
    assert frame["commission_usd"].unique().sort().to_list() == [0.0, 1.0, 2.0, 4.0, 8.0]
    assert frame["slippage_ticks"].unique().sort().to_list() == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert frame["delay_bars"].unique().sort().to_list() == [0, 1, 2, 5]
    assert frame["policy"].unique().sort().to_list() == ["ensemble", "seed 0", "seed 1"]
    written = results.read_cost_surface(layout.open_run(finished_run()))
    assert written.equals(frame.select(written.columns))


def test_at_its_own_costs_the_surface_is_the_record(traded):
    _, settled, frame = traded
    own = frame.filter(delay_bars=0, commission_usd=2.0, slippage_ticks=0.5)
    for row in own.iter_rows(named=True):
        leg = settled.study.leg_by_window[row["window"]]
        made = money(leg.costs, [settled.books[row["policy"]][row["window"]]])
        assert (row["net_usd"], row["sides"]) == (pytest.approx(made["net_usd"]), made["trades"])
    assert own["sides"].sum() > 100


def test_costs_move_money_alone_and_by_what_they_say(traded):
    """A tick of this market is 12.50 USD: a row costs sides x (commission + slippage x 12.5)."""
    _, _, frame = traded
    side = pl.col("commission_usd") + 12.5 * pl.col("slippage_ticks")
    assert frame.filter((pl.col("costs_usd") - pl.col("sides") * side).abs() > 1e-6).is_empty()
    same = frame.group_by("window", "policy", "delay_bars").agg(pl.col("sides", "gross_usd").n_unique())
    assert same["sides"].to_list() == [1] * same.height
    assert same["gross_usd"].to_list() == [1] * same.height
    assert frame.group_by("window", "policy").agg(pl.col("gross_usd").n_unique())["gross_usd"].min() > 1


def test_a_grid_of_ones_own_keeps_the_costs_and_the_delay_of_the_run(traded):
    reloaded, settled, _ = traded
    grid = GridConfig(commission_usd=(7.0,), slippage_ticks=(3.0,), delay_bars=(4,))
    frame = cost_surface(reloaded.stage, reloaded.kept.best, settled.books, grid)
    assert [frame[name].unique().sort().to_list() for name in AXES] == [[0, 4], [2.0, 7.0], [0.5, 3.0]]


def test_a_delay_that_reaches_before_the_data_is_refused(traded):
    reloaded, settled, _ = traded
    first = int(np.asarray(reloaded.stage.study.windows.test)[:, 0].min())
    with pytest.raises(ConfigError, match=f"--delay-bars holds {first + 1}; the first test month has {first} usable"):
        cost_surface(reloaded.stage, reloaded.kept.best, settled.books, GridConfig(delay_bars=(0, first + 1)))


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"commission_usd": (1.0, -2.0)}, "--commission-usd holds -2; each value must be from 0"),
        ({"slippage_ticks": (float("nan"),)}, "--slippage-ticks holds nan"),
        ({"delay_bars": (-1,)}, "--delay-bars holds -1"),
        ({"delay_bars": (5000,)}, "--delay-bars holds 5000; each value must be from 0 to 4096"),
        ({"commission_usd": tuple(map(float, range(90)))}, "give 450 points"),
        ({"delay_bars": tuple(range(40))}, "40 delays"),
    ],
)
def test_costs_and_delays_that_make_no_sense_are_refused(grid, says):
    with pytest.raises(ConfigError, match=says):
        GridConfig(**grid)


def test_break_even_is_what_would_have_taken_all_of_the_gross():
    assert break_even_side_usd(300.0, 40).value == 7.5
    assert break_even_side_usd(300.0, 40, rolls_usd=100.0).value == 5.0
    assert break_even_side_usd(300.0, 0).reason == "nothing was traded"
    assert break_even_side_usd(-1.0, 40).reason == "no gross profit to pay costs from"
    assert break_even_side_usd(50.0, 40, rolls_usd=60.0).reason == "no gross profit to pay costs from"


def small_study(tmp_path, market, **changes):
    """A study of one window and one seed whose member keeps its first weights."""
    config = dataclasses.replace(small_config(tmp_path / "m.npz", seeds=1), **changes)
    study = plan_study(config, [market], compose="scan")
    engine, state = start(study)
    best = dataclasses.replace(state.best, epoch=state.best.epoch + 1)
    return engine, dataclasses.replace(state, best=best)


@pytest.mark.slow
def test_spreads_rolls_and_account_limits_at_every_point(tmp_path):
    """Recorded half spreads stay under every slippage; an account that is dearer to trade is halted sooner."""
    engine, state = small_study(
        tmp_path,
        random_half_spreads(planted_market(days=122)),
        env=EnvConfig(roll_as="spread"),
        costs=CostConfig(commission_usd=2.0, slippage="recorded"),
        limits=LimitConfig(trailing_drawdown_usd=3000.0),
    )
    settled = settle(engine, state)
    frame = cost_surface(engine, state.best, settled.books, GridConfig())
    assert frame["slippage_ticks"].unique().sort().to_list() == [0.0, 0.25, 0.5, 1.0, 2.0]
    free = frame.filter(commission_usd=0.0, slippage_ticks=0.0, policy="ensemble")
    assert (free["costs_usd"] > 0).all()  # the recorded half spreads
    prompt = frame.filter(delay_bars=0, policy="ensemble").sort("commission_usd", "slippage_ticks")
    assert prompt["sides"].n_unique() > 1
    assert prompt["sides"][-1] < prompt["sides"][0]
    own = money(settled.study.legs[0].costs, settled.books[ENSEMBLE])
    row = prompt.filter(commission_usd=2.0, slippage_ticks=0.0).row(0, named=True)
    assert (row["net_usd"], row["sides"]) == (pytest.approx(own["net_usd"]), own["trades"])


def test_points_that_an_account_could_not_be_counted_at_are_left_out(tmp_path, monkeypatch):
    config = dataclasses.replace(small_config(tmp_path / "m.npz", seeds=1), limits=LimitConfig(daily_loss_usd=500.0))
    study = plan_study(config, [planted_market(days=122)], compose="scan")
    grid = GridConfig(commission_usd=(0.0, 1e8))
    points = surface._points(study, study.legs[0], grid)
    assert {point.commission_usd for point in points} == {0.0}
    assert study.legs[0].costs in points
    free = dataclasses.replace(study, config=dataclasses.replace(config, limits=LimitConfig()))
    assert {point.commission_usd for point in surface._points(free, free.legs[0], grid)} == {0.0, 1e8}
