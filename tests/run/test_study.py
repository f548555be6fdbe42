"""Settings that do not fit the data are refused before anything is trained."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support import as_nq, chain_market, planted_market, planted_signs, random_half_spreads, small_config
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.load import DataConfig
from tidewalk.run.outcome import sessions_per_year
from tidewalk.run.study import data_fingerprint, market_hash, plan_study
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig


def plan(market, **changes):
    config = dataclasses.replace(small_config(Path("none.npz")), **changes)
    return plan_study(config, [market], compose="scan")


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
        plan_study(config, [data], compose="scan")
    longer = dataclasses.replace(config.windows, train_months=6, val_months=3)
    assert plan_study(dataclasses.replace(config, windows=longer), [data], compose="scan").num_windows > 0


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
    assert sessions_per_year(list(plan(one_session_a_month()).legs)) == pytest.approx(12, rel=0.02)
    assert sessions_per_year(list(plan(planted_market(days=182)).legs)) == pytest.approx(365.2, abs=0.2)


def plan_both(*markets, **changes):
    config = dataclasses.replace(small_config(Path("data")), **changes)
    return plan_study(
        dataclasses.replace(config, data=DataConfig(Path("data"), "ES.FUT,NQ.FUT")), markets, compose="scan"
    )


def test_each_symbol_keeps_its_own_windows_costs_and_scaler_in_one_store():
    es, nq = planted_market(days=182), as_nq(planted_market(days=152, bars_per_day=12, seed=1))
    study = plan_both(es, nq, costs=CostConfig(commission_usd=2.5, slippage_ticks=0.5))
    alone = [plan(market, costs=study.config.costs) for market in (es, nq)]
    assert [len(leg.plan.windows) for leg in study.legs] == [one.num_windows for one in alone] == [3, 2]
    assert [window.index for leg in study.legs for window in leg.plan.windows] == [0, 1, 2, 3, 4]
    assert [leg.symbol for leg in study.leg_by_window] == ["ES.FUT"] * 3 + ["NQ.FUT"] * 2
    assert study.side_ticks.tolist() == [np.float32(8.75 / 12.5)] * 3 + [1.0] * 2
    assert (study.num_windows, study.num_members) == (5, 10)
    resident = study.resident_market()
    for leg, one, rows in zip(study.legs, alone, (slice(0, 3), slice(3, 5)), strict=True):
        for name in ("train", "val", "test"):
            own, joined = getattr(one.windows, name), getattr(study.windows, name)[rows]
            assert np.array_equal(joined, own + leg.first_bar)
            for (first, stop), (at, end) in zip(own, joined, strict=True):
                assert np.array_equal(resident.features[at:end], leg.market.features[first:stop])
                assert np.array_equal(resident.move_ticks[at:end], leg.market.move_ticks[first:stop])
        assert study.windows.center[rows].tobytes() == one.windows.center.tobytes()
        assert study.windows.reward_scale[rows].tobytes() == one.windows.reward_scale.tobytes()
    assert study.program.val_bars == max(one.program.val_bars for one in alone)


def test_no_window_reaches_over_a_seam():
    markets = [planted_market(days=182), as_nq(planted_market(days=182)), as_nq(planted_market(days=182), symbol="RTY")]
    study = plan_both(*markets)
    for leg, (first, stop) in zip(study.leg_by_window, study.windows.test, strict=True):
        assert leg.first_bar <= first < stop <= leg.first_bar + leg.market.num_bars - 1


def test_without_enough_history_the_arithmetic_of_every_symbol_is_told():
    with pytest.raises(DataError, match=r"ES.FUT: Not enough history.* 2 complete.*NQ.FUT: Not enough.* 1 complete"):
        plan_both(planted_market(days=60), as_nq(planted_market(days=45)))
    with pytest.raises(DataError, match=r"^NQ.FUT: Not enough history"):
        plan_both(planted_market(days=182), as_nq(planted_market(days=45)))


def test_a_setting_that_does_not_fit_one_symbol_names_it():
    dear = as_nq(planted_market(days=182, move_ticks=65_000))
    with pytest.raises(ConfigError, match=r"^NQ.FUT: --positions 50: "):
        plan_both(planted_market(days=182), dear, env=EnvConfig(positions=50))
    daily = as_nq(chain_market(planted_signs(200, 0.6), 3, bars_per_day=1))
    with pytest.raises(ConfigError, match=r"^NQ.FUT: --flat-at-close leaves no choice"):
        plan_both(planted_market(days=182), daily, env=EnvConfig(flat_at_close=True))


def test_symbols_with_other_features_or_another_currency_are_refused():
    es = planted_market(days=182)
    with pytest.raises(DataError, match=r"ES.FUT and NQ.FUT have different features \(f3, speed\)"):
        plan_both(es, as_nq(es, feature_names=("f0", "f1", "f2", "speed")))
    with pytest.raises(DataError, match=r"ES.FUT is traded in USD and NQ.FUT in EUR"):
        plan_both(es, as_nq(es, currency="EUR"))


def test_a_recorded_spread_is_used_where_asked_for_and_left_out_where_not():
    quoted, bare = random_half_spreads(planted_market(days=182)), planted_market(days=182)
    assert plan(quoted).resident_market().half_spread_ticks is None
    study = plan(quoted, costs=CostConfig(slippage="recorded"))
    assert study.resident_market().half_spread_ticks is quoted.half_spread_ticks
    assert study.program.has_spread
    assert study.legs[0].costs.slippage_ticks == 0.0
    assert market_hash(study) != market_hash(plan(quoted)) == market_hash(plan(bare))
    with pytest.raises(ConfigError, match=r"--slippage recorded: the data of ES.FUT hold no quotes.*--slippage-ticks"):
        plan(bare, costs=CostConfig(slippage="recorded"))
    with pytest.raises(ConfigError, match=r"the data of NQ.FUT hold no quotes"):
        plan_both(quoted, as_nq(bare), costs=CostConfig(slippage="recorded"))


def test_the_fingerprint_of_several_symbols_does_not_hang_on_their_order():
    es, nq = planted_market(days=182), as_nq(planted_market(days=182))
    assert data_fingerprint(plan(es)) == es.info.fingerprint
    assert data_fingerprint(plan_both(es, nq)) == data_fingerprint(plan_both(nq, es))
    assert data_fingerprint(plan_both(es, nq)) != data_fingerprint(plan_both(es, as_nq(nq, fingerprint="other")))
    other = as_nq(planted_market(days=182, seed=1))
    assert len({market_hash(study) for study in (plan(es), plan_both(es, nq), plan_both(es, other))}) == 3
