"""Settings that do not fit the data are refused before anything is trained."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support import as_nq, chain_market, planted_market, planted_signs, random_half_spreads, small_config
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.load import DataConfig
from tidewalk.market.device import NO_ENTRY
from tidewalk.run.outcome import sessions_per_year
from tidewalk.run.study import data_fingerprint, market_hash, plan_study
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig


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


def test_lots_count_in_what_could_overflow_and_the_remedy_fits():
    data = planted_market(days=182, move_ticks=65_000)
    with pytest.raises(ConfigError, match=r"--positions 2 x --lots-per-level 25: .* 50 contracts.* --positions 1 or"):
        plan(data, env=EnvConfig(positions=2, lots_per_level=25))
    assert plan(data, env=EnvConfig(positions=1, lots_per_level=25)).num_windows > 0
    with pytest.raises(ConfigError, match=r"--lots-per-level 90: .*Use --max-position \d+ or fewer") as refused:
        plan(data, env=EnvConfig(lots_per_level=90))
    most = int(str(refused.value).split("Use --max-position ")[1].split(" ")[0])
    assert plan(data, env=EnvConfig(lots_per_level=most)).num_windows > 0
    assert plan(data, env=EnvConfig(positions=90 // 9, lots_per_level=9, max_position=most)).num_windows > 0


@pytest.mark.parametrize(
    ("limits", "where"),
    [
        (LimitConfig(trailing_drawdown_usd=26_000_000.0), "in one row"),
        (LimitConfig(daily_loss_usd=1000.0), "in one session"),
    ],
)
def test_an_account_that_could_not_be_counted_is_refused(limits, where):
    """24 bars a day with moves of 60,000 ticks: a session may reach 1.4 million ticks with one contract."""
    config = small_config(Path("none.npz"))
    data = planted_market(days=213, move_ticks=60_000)
    config = dataclasses.replace(config, limits=LimitConfig(capital_usd=1e6))
    with pytest.raises(ConfigError, match=rf"counted in int32.*2 contract.*{where}"):
        plan_study(dataclasses.replace(config, limits=limits, env=EnvConfig(positions=2)), [data], compose="scan")
    # a month moves by 43 million ticks: more than milliticks could hold, and counted all the same
    assert plan_study(config, [data], compose="scan").limits is not None


def test_a_delay_takes_bars_from_the_warm_up_and_lots_none_from_the_learning():
    data = planted_market(days=182)
    one, late = plan(data), plan(data, env=EnvConfig(lookback=3, decision_delay=5))
    assert one.windows.train[0, 0] == 0
    assert late.windows.train[0, 0] == 2 + 5
    lots = plan(data, env=EnvConfig(lots_per_level=4))
    np.testing.assert_allclose(lots.windows.reward_scale, one.windows.reward_scale / 4)


def test_a_contract_without_a_known_commission_is_traded_with_a_warning_until_one_is_given():
    known = planted_market(days=182)
    unknown = dataclasses.replace(known, info=dataclasses.replace(known.info, root="XYZ", commission_usd=0.0))
    said = "no commission is known of XYZ, and none is charged: say what one costs with --commission-usd"
    assert said in plan(unknown, costs=CostConfig()).warnings
    for commission_usd in (0.0, 2.25):
        assert not any("commission" in text for text in plan(unknown, costs=CostConfig(commission_usd)).warnings)
    assert not any("commission" in text for text in plan(known, costs=CostConfig()).warnings)


def test_a_roll_fee_is_paid_by_spreads_alone():
    data = planted_market(days=182)
    costs = CostConfig(commission_usd=2.25, slippage_ticks=0.5)
    study = plan(data, costs=costs, env=EnvConfig(roll_as="spread"))
    assert study.legs[0].costs.roll_usd == 10.75
    assert study.cost_ticks.roll.tolist() == [np.float32(0.86)] * 3
    given = dataclasses.replace(costs, roll_fee_usd=5.0)
    assert plan(data, costs=given, env=EnvConfig(roll_as="spread")).cost_ticks.roll.tolist() == [np.float32(0.4)] * 3
    with pytest.raises(ConfigError, match=r"--roll-fee-usd 5 .*Use --roll-as spread"):
        plan(data, costs=given)


def test_no_entries_before_the_close_are_marked_on_the_resident_market():
    hourly = planted_market(days=182)
    study = plan(hourly, env=EnvConfig(no_entry_minutes=90))
    marked = np.asarray(study.resident_market().flags) & NO_ENTRY
    assert 0 < np.count_nonzero(marked) < hourly.num_bars / 4
    assert not (np.asarray(plan(hourly).resident_market().flags) & NO_ENTRY).any()
    assert market_hash(study) != market_hash(plan(hourly))


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
    assert study.cost_ticks.side.tolist() == [np.float32(8.75 / 12.5)] * 3 + [1.0] * 2
    assert (study.cost_ticks.roll, study.limits) == (None, None)
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


def test_the_plan_of_evaluation_holds_every_range_and_every_session():
    """Of each member in order, and of the longest session: decisions belong to the session of the bar they fill in."""
    es, nq = planted_market(days=182), as_nq(planted_market(days=152, bars_per_day=12, seed=1))
    study = plan_both(es, nq)
    program, resident = study.program, study.resident_market()
    for name, lengths, sessions in (
        ("val", program.val_lengths, program.val_sessions),
        ("test", program.test_lengths, program.test_sessions),
    ):
        decisions = getattr(study.windows, name)
        assert lengths == tuple(np.repeat(decisions[:, 1] - decisions[:, 0], study.config.train.seeds))
        filled = [resident.session_id[first + 1 : stop + 1] for first, stop in decisions]
        assert max(len(np.unique(rows)) for rows in filled) <= sessions
        assert max(np.ptp(rows) + 1 for rows in filled) <= sessions
        assert max(np.bincount(rows - rows[0]).max() for rows in filled) <= program.session_bars
    assert program.session_bars == 24
    assert len(set(program.val_lengths)) > 1


def test_limits_are_counted_in_the_ticks_of_each_symbol():
    es, nq = planted_market(days=182), as_nq(planted_market(days=152))
    limits = LimitConfig(capital_usd=10_000.0, daily_loss_usd=500.0)
    found = plan_both(es, nq, limits=limits, costs=CostConfig(commission_usd=2.5, slippage_ticks=0.5)).limits
    assert found.capital.tolist() == [800_000] * 3 + [2_000_000] * 2
    assert found.daily_loss.tolist() == [40_000] * 3 + [100_000] * 2
    assert found.side.tolist() == [700] * 3 + [1000] * 2
    assert found.drawdown is None


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
