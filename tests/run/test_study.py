"""Settings that do not fit the data are refused before anything is trained."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support import chain_market, planted_market, planted_signs, small_config
from tidewalk.core.errors import ConfigError
from tidewalk.run.outcome import _sessions_per_year
from tidewalk.run.study import plan_study
from tidewalk.trading.env import EnvConfig


def plan(market, **changes):
    config = dataclasses.replace(small_config(Path("none.npz")), **changes)
    return plan_study(config, market, compose="scan")


def one_session_a_month(bars: int = 40):
    """Twelve months with a single session each, on the 15th."""
    data = chain_market(planted_signs(12 * bars, 0.6), 3, bars_per_day=bars)
    days = np.array([f"2024-{month:02d}-15" for month in range(1, 13)], "datetime64[D]").astype(np.int32)
    return dataclasses.replace(data, trade_day=np.repeat(days, bars))


def test_flat_at_close_on_bars_as_long_as_a_session_is_refused():
    daily = chain_market(planted_signs(200, 0.6), 3, bars_per_day=1)
    assert plan(daily).num_windows > 0
    with pytest.raises(ConfigError, match=r"--flat-at-close leaves no choice at 100% of the bars.*shorter bars"):
        plan(daily, env=EnvConfig(flat_at_close=True))
    assert plan(planted_market(days=182), env=EnvConfig(flat_at_close=True)).num_windows > 0


def test_select_sharpe_without_sessions_to_compare_is_refused():
    data = one_session_a_month()
    config = small_config(Path("none.npz"), select="sharpe")
    with pytest.raises(ConfigError, match=r"--select sharpe needs 3 or more sessions.*shortest has 1.*--val-months"):
        plan_study(config, data, compose="scan")
    longer = dataclasses.replace(config.windows, train_months=6, val_months=3)
    assert plan_study(dataclasses.replace(config, windows=longer), data, compose="scan").num_windows > 0


def test_positions_whose_ticks_overflow_int32_are_refused():
    data = planted_market(days=182, move_ticks=65_000)
    assert plan(data, env=EnvConfig(positions=20)).num_windows > 0
    with pytest.raises(ConfigError, match=r"--positions 50: .* Use --positions \d+ or fewer") as refused:
        plan(data, env=EnvConfig(positions=50))
    most = int(str(refused.value).split("Use --positions ")[1].split(" ")[0])
    assert plan(data, env=EnvConfig(positions=most)).num_windows > 0
    with pytest.raises(ConfigError, match="--positions"):
        plan(data, env=EnvConfig(positions=most + 1))


# validity.md B38: the years of a record are those of its sessions
def test_sessions_that_lie_weeks_apart_are_counted_by_the_calendar():
    assert _sessions_per_year(plan(one_session_a_month())) == pytest.approx(12, rel=0.02)
    assert _sessions_per_year(plan(planted_market(days=182))) == pytest.approx(365.2, abs=0.2)
