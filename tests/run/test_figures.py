"""The figures of a summary, from the books of policies that are known: one that always buys, one that never trades."""

import dataclasses
import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from support import planted_market, small_config
from tidewalk.report.page import write_report
from tidewalk.run import engine, evidence, figures, outcome, records
from tidewalk.run.mesh import Uploads
from tidewalk.run.study import plan_study, windows_record
from tidewalk.store import layout, results
from tidewalk.store.summary import read_summary
from tidewalk.store.trials import Common, Trial
from tidewalk.train.population import initial_state

SEEDS = 5
LONG = 2


@functools.cache
def started():
    """A study on a planted market without any signal (P = .5), on its device, never trained."""
    config = small_config(Path("data"), seeds=SEEDS)
    study = plan_study(config, [planted_market(days=182, persistence=0.5)], compose="scan")
    uploads = Uploads()
    resident = engine.upload_study(study, uploads, None)
    state = jax.jit(functools.partial(initial_state, study.program))(resident.windows, resident.members)
    return engine.Engine(study, resident, uploads, None, lambda state: (state, {}, None), 0.0), state


def always(state, action):
    """The state with networks that value one action above all others, whatever they see."""
    blank = jax.tree.map(jnp.zeros_like, state.best.params)
    bias = blank.layers[-1].bias.at[:, 1 + action].set(1.0)
    params = eqx.tree_at(lambda network: network.layers[-1].bias, blank, bias)
    ones = {name: jnp.ones_like(getattr(state.best, name)) for name in ("epoch", "spread")}
    return dataclasses.replace(state, best=dataclasses.replace(state.best, params=params, **ones))


@functools.cache
def settled() -> outcome.Outcome:
    """The books of the policy that always buys."""
    ready, state = started()
    return outcome.settle(ready, always(state, LONG))


def idle() -> outcome.Outcome:
    """The same study with an ensemble and seeds that never trade."""
    flat = settled().books["flat"]
    own = {name: flat for name in settled().books if name == "ensemble" or name.startswith("seed ")}
    return dataclasses.replace(settled(), books={**settled().books, **own}, rewards_usd=0.0)


def written(folder: Path, made: outcome.Outcome) -> layout.RunFolder:
    """The run folder of a study that ended with these books."""
    ready, state = started()
    run = layout.create_run(folder, overwrite=False)
    results.write_windows(run, windows_record(ready.study))
    layout.write_manifest(run, records.manifest_fields(ready.study))
    no_surface = pl.DataFrame(schema=results.COST_SURFACE.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records.outcome, "settle", lambda *_: made)
        patch.setattr(records, "cost_surface", lambda *_: no_surface)
        records.write_results(run, ready, always(state, LONG))
    layout.unlock_run(run)
    return run


@pytest.fixture(scope="module")
def buyer(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "buyer", settled())


def test_a_policy_that_always_buys_is_not_sold_as_learned(buyer):
    # B39 of the bug log.
    summary = read_summary(buyer)
    assert "long" in summary["baselines"]["equals"]
    assert summary["baselines"]["nearest_agreement"] == 1.0
    assert summary["oos"]["net_usd"] == summary["baselines"]["long"]
    assert summary["oos"]["verdict"].startswith("equals the long baseline on every bar")
    says = "The policy equals buy-and-hold on 100 % of bars: it is that baseline, not a learned strategy."
    assert says in summary["warnings"]
    page = buyer.report.read_text(encoding="utf-8")
    assert page.index(says) < page.index("Net, out of sample")


def test_a_policy_that_differs_on_one_bar_is_no_baseline():
    held = settled()
    (own, *others) = held.books["ensemble"]
    after = own.after_lots.copy()
    after[3] = 0
    other = dataclasses.replace(
        held, books={**held.books, "ensemble": [dataclasses.replace(own, after_lots=after), *others]}
    )
    entries = figures.yardsticks(other, other.study.legs)
    assert "long" not in entries["equals"]
    assert entries["nearest"] == "long"
    assert 0.999 < entries["nearest_agreement"] < 1.0


def test_without_a_trade_everything_renders_and_nothing_is_nan(tmp_path):
    # B40 of the bug log.
    run = written(tmp_path / "idle", idle())
    summary = read_summary(run)
    oos = summary["oos"]
    assert (oos["net_usd"], oos["trades"], oos["round_trips"], oos["exposure"]) == (0.0, 0, 0, 0.0)
    assert oos["sharpe_session"] is None
    assert "oos.sharpe_session is undefined: no variance" in summary["warnings"]
    assert oos["verdict"] == "no trades"
    assert summary["baselines"]["random_p"] is None
    page = write_report(run.root).read_text(encoding="utf-8")
    assert "The ensemble made no trade." in page
    assert ">nan<" not in page.lower()
    assert results.read_trades(run).is_empty()


def test_the_policies_were_fixed_before_the_test_was_traded(buyer, monkeypatch, tmp_path):
    digest = layout.read_manifest(buyer)["policies_sha256"]
    seen = []

    def stopped(*_):
        run = layout.open_run(tmp_path / "again")
        seen.append((layout.read_manifest(run)["policies_sha256"], len(list(run.policies.iterdir()))))
        raise KeyboardInterrupt

    monkeypatch.setattr(records.outcome, "settle", stopped)
    ready, state = started()
    run = layout.create_run(tmp_path / "again", overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        records.write_results(run, ready, always(state, LONG))
    layout.unlock_run(run)
    assert seen == [(digest, ready.study.num_members)]


def test_every_figure_of_the_record_has_a_value_or_a_reason():
    entries = figures.performance(settled(), settled().study.legs)
    plain, reasons = figures.block("oos", entries)
    assert not [name for name, value in plain.items() if value is None and f"oos.{name}" not in " ".join(reasons)]
    assert plain["turnover"] == plain["trades"] / plain["sessions"]
    assert plain["sharpe_ci90"][0] < plain["sharpe_session"] < plain["sharpe_ci90"][1]
    assert plain["exposure"] > 0.99
    per_session = plain["sharpe_session"] / plain["sessions_per_year"] ** 0.5
    _, pnl = figures.oos_pnl(settled(), settled().study.legs)
    assert per_session == pytest.approx(pnl.mean() / pnl.std(ddof=1), rel=1e-12)


def test_after_ruin_there_are_no_ratios(monkeypatch):
    # B13 of the bug log: no figure of reward over risk once the capital is gone.
    held = settled()
    legs = held.study.legs
    lost = dataclasses.replace(held.fills[1], reason=np.array(["ruin"] * len(held.fills[1]), object))
    ruined = dataclasses.replace(held)
    ruined.__dict__["fills"] = [held.fills[0], lost, *held.fills[2:]]
    entries = figures.performance(ruined, legs)
    for name in ("sharpe_session", "sharpe_se", "sharpe_ci90", "sortino", "calmar", "psr", "min_trl_sessions"):
        assert entries[name].reason == "the capital was lost in window 1"
        assert figures.block("oos", entries)[0][name] is None
    assert figures.block("oos", entries)[0]["net_usd"] == entries["net_usd"]
    common = Common(np.empty(0, "datetime64[D]"), np.empty((0, 0)), (), ())
    rival = evidence.rivals_of(ruined, [])
    trial = Trial("data", "config", "dqn", 0.1, 1.0, 91, "2026-01-01")
    said = evidence.of_all_trials(ruined, entries, [trial], common, rival)
    assert said["verdict"] == "the capital was lost in window 1"
    assert said["dsr"].reason == "the capital was lost in window 1"
    capital = dataclasses.replace(held.study.config.limits, capital_usd=1.0)
    config = dataclasses.replace(held.study.config, limits=capital)
    poor = dataclasses.replace(held, study=dataclasses.replace(held.study, config=config))
    poor.__dict__["fills"] = held.fills
    if figures.oos_pnl(poor, legs)[1].cumsum().min() <= -1.0:
        assert figures.ruin(poor, legs).startswith("the capital was lost on 2")


@pytest.mark.parametrize("trials", [1, 6])
def test_overfitting_is_judged_over_all_configurations(trials):
    held = settled()
    days, own = figures.oos_pnl(held, held.study.legs)
    others = np.random.default_rng(3).normal(0.0, own.std(), (len(own), trials - 1))
    names = tuple(f"c{k}" for k in range(trials))
    common = Common(days.astype("datetime64[D]"), np.column_stack([own, others]), names, ())
    rival = evidence.rivals_of(held, [])
    plain, reasons = figures.block("overfitting", evidence.over_configurations(held, common, rival))
    assert (plain["configurations"], plain["sessions"]) == (trials, len(own))
    assert plain["spa_benchmark"] == rival.best_passive
    if trials == 1:
        assert plain["pbo"] is plain["pbo_null90"] is plain["slope"] is None
        assert "overfitting.pbo is undefined: a single configuration: nothing was selected" in reasons
    else:
        assert plain["pbo_null90"][0] <= plain["pbo_null90"][1]
        assert 0.0 <= plain["pbo"] <= 1.0
        assert plain["spa_p_lower"] <= plain["spa_p"] <= plain["spa_p_upper"]


def test_without_recorded_sessions_nothing_is_said_of_overfitting():
    common = Common(np.empty(0, "datetime64[D]"), np.empty((0, 0)), (), ())
    rival = evidence.rivals_of(settled(), [])
    plain, reasons = figures.block("overfitting", evidence.over_configurations(settled(), common, rival))
    assert plain["configurations"] == 0
    assert {name for name, value in plain.items() if value is None} == {
        *("blocks", "pbo", "pbo_null90", "slope", "prob_oos_loss", "spa_p", "spa_p_lower", "spa_p_upper")
    }
    assert all("no trial has its sessions recorded" in text for text in reasons)


def test_equal_seeds_have_one_middle():
    plain, reasons = figures.block("over_seeds", evidence.over_seeds(settled()))
    (_, pnl) = figures.oos_pnl(settled(), settled().study.legs)
    assert plain["count"] == SEEDS
    assert plain["statistic"] == "IQM"
    assert plain["net_usd"] == plain["min_usd"] == plain["max_usd"] == pytest.approx(pnl.sum())
    assert plain["net_ci90"][0] < plain["net_usd"] < plain["net_ci90"][1]
    assert reasons == []


def test_windows_have_efficiency_break_even_and_share_or_one_reason_for_all():
    held = settled()
    val = pl.col("window").replace_strict({0: 300.0, 1: -5.0, 2: None}, return_dtype=pl.Float64)
    usable = pl.when(pl.col("window") < 2).then(1).otherwise(0).cast(pl.Int32)
    members = outcome.members_frame(held).with_columns(val_net_usd=val, best_epoch=usable)
    rows, reasons = figures.per_window(held, members)
    (first, *_), windows = rows, held.study.legs[0].plan.windows
    earned = members.filter(window=0)["test_net_usd"].mean()
    assert first["wfe"] == pytest.approx((earned / windows[0].test.sessions) / (300.0 / windows[0].val.sessions))
    assert [row["val_net_usd"] for row in rows] == [300.0, -5.0, None]
    assert [row["wfe"] for row in rows[1:]] == [None, None]
    assert (
        "per_window.wfe is undefined: nothing was earned in sample (window 1); no usable member (window 2)" in reasons
    )
    assert "per_window.val_net_usd is undefined: no usable member (window 2)" in reasons
    for row in rows:
        assert row["captured_frac"] == row["net_usd"] / row["oracle_usd"]
        assert row["break_even_side_usd"] in (None, pytest.approx(row["gross_usd"] / row["trades"]))
