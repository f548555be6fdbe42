"""The figures of a summary, from the books of policies that are known: one that always buys, one that never trades."""

import dataclasses
import functools
import math
import statistics
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
from tidewalk.run.mesh import Transfers
from tidewalk.run.programs import Building
from tidewalk.run.shares import Deal
from tidewalk.run.study import plan_study, windows_record
from tidewalk.stats import inference, metrics
from tidewalk.store import layout, results
from tidewalk.store.summary import read_summary
from tidewalk.store.trials import Common, Trial
from tidewalk.trading.account import book
from tidewalk.trading.limits import LimitConfig
from tidewalk.train.population import initial_state

SEEDS = 5
LONG = 2


@functools.cache
def started():
    """A study on a planted market without any signal (P = .5), on its device, never trained."""
    config = small_config(Path("data"), seeds=SEEDS)
    study = plan_study(config, [planted_market(days=182, persistence=0.5)], compose="scan")
    transfers = Transfers()
    resident = engine.upload_study(study, transfers, None)
    state = jax.jit(functools.partial(initial_state, study.program))(resident.windows, resident.members)
    nothing = jax.jit(lambda: 0).lower().compile()
    dealt = Deal(study.num_members, study.num_members)
    ready = engine.Engine(study, resident, transfers, None, lambda: resident.fixed, nothing, dealt, Building())
    return ready, state


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


def limited(**usd: float) -> outcome.Outcome:
    """The same study with an ensemble that gains in window 0 and loses in window 1, on one lot held for one bar.

    Args:
        usd: account limits.
    """
    held, (leg, *_) = settled(), settled().study.legs
    flat, lots = held.books["flat"], np.zeros(len(held.books["flat"][1].after_lots), np.int64)
    lots[np.argmax(leg.market.move_ticks[flat[1].first :] < 0)] = 1
    own = [held.books["oracle"][0], book(leg.market, flat[1].first, lots), *flat[2:]]
    config = dataclasses.replace(held.study.config, limits=LimitConfig(**usd))
    return dataclasses.replace(
        held, study=dataclasses.replace(held.study, config=config), books={**held.books, "ensemble": own}
    )


def lost_usd() -> float:
    """What `limited` loses in window 1, the cost of getting out included."""
    held = limited()
    return -outcome.money(held.study.legs[0].costs, [held.books["ensemble"][1]])["net_usd"]


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


def test_b39_a_policy_that_always_buys_is_not_sold_as_learned(buyer):
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


def test_b40_without_a_trade_everything_renders_and_nothing_is_nan(tmp_path):
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


def test_the_record_is_what_anyone_computes_anew_from_its_sessions(buyer):
    """All ratios of the summary from equity.parquet, by formulas written out here: units, signs and factors."""
    oos, equity = read_summary(buyer)["oos"], results.read_equity(buyer).filter(pl.col("policy") == "ensemble")
    x, normal = equity["net_usd"].to_numpy(), statistics.NormalDist()
    n, year, mean, sd = len(x), oos["sessions_per_year"], x.mean(), x.std(ddof=1)
    skew, kurt = (((x - mean) ** k).mean() / x.std() ** k for k in (3, 4))
    ratio = mean / sd
    error = math.sqrt((1 - skew * ratio + (kurt - 1) / 4 * ratio**2) / (n - 1))
    path = np.concatenate([[0.0], x.cumsum()])
    below = np.maximum.accumulate(path) - path
    psr = normal.cdf(ratio / error)
    expected = {
        "net_usd": x.sum(),
        "sharpe_session": ratio * math.sqrt(year),
        "sharpe_se": error * math.sqrt(year),
        "sortino": mean / math.sqrt((np.minimum(x, 0) ** 2).mean()) * math.sqrt(year),
        "calmar": mean * year / below.max(),
        "max_drawdown_usd": below.max(),
        "longest_drawdown_sessions": max(len(run) for run in "".join("1" if b > 0 else "0" for b in below).split("0")),
        "psr": psr,
        "dsr": psr,  # a single trial
        "sidak_p": 1 - psr,
        "hit_rate": (x > 0).sum() / (x != 0).sum(),
        "profit_factor": x[x > 0].sum() / -x[x < 0].sum(),
        "expected_shortfall_usd": -np.sort(x)[: n // 20].mean(),
        "turnover": equity["trades"].sum() / n,
        "sessions": n,
    }
    assert {name: oos[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    if ratio > 0:
        length = 1 + (error * math.sqrt(n - 1) * normal.inv_cdf(0.95) / ratio) ** 2
        assert oos["min_trl_sessions"] == pytest.approx(length)
    assert (oos["trials"], oos["min_btl_years"], oos["dsr_variant"]) == (1, 0.0, "2014")


def test_all_trials_of_the_ledger_deflate_per_session():
    """Four trials of known ratios: E[max] from their spread per session, against the record's own ratio per session."""
    held = settled()
    x, normal, gamma = figures.oos_pnl(held, held.study.legs)[1], statistics.NormalDist(), 0.5772156649015329
    entries = figures.performance(held, held.study.legs)
    ratios = [0.02, -0.05, 0.01, 0.04]
    tried = [Trial("data", f"config {k}", "dqn", value, 1.0, 91, "2026-01-01") for k, value in enumerate(ratios)]
    common = Common(np.empty(0, "datetime64[D]"), np.empty((0, 0)), (), ())
    said = evidence.of_all_trials(held, entries, tried, common, evidence.rivals_of(held, []))
    most = (1 - gamma) * normal.inv_cdf(1 - 1 / 4) + gamma * normal.inv_cdf(1 - 1 / (4 * math.e))
    star, ratio = most * statistics.stdev(ratios), x.mean() / x.std(ddof=1)
    skew, kurt = (((x - x.mean()) ** k).mean() / x.std() ** k for k in (3, 4))
    error = math.sqrt((1 - skew * ratio + (kurt - 1) / 4 * ratio**2) / (len(x) - 1))
    assert said["trials"] == 4
    assert said["dsr"].value == pytest.approx(normal.cdf((ratio - star) / error), rel=1e-9)
    assert said["sidak_p"] == pytest.approx(1 - normal.cdf(ratio / error) ** 4, rel=1e-9)
    assert said["min_btl_years"] == pytest.approx(most**2, rel=1e-9)


def test_a_thousand_random_policies_stand_beside_the_record():
    held = settled()
    assert held.random_nets_usd.shape == (len(held.study.legs[0].plan.windows), 1 + 1000)
    own = outcome.money(held.study.legs[0].costs, held.books_of("ensemble", held.study.legs[0]))["net_usd"]
    assert held.random_nets_usd[:, 0].sum() == pytest.approx(own)


def test_sessions_that_hang_together_are_told_with_the_ratio_that_allows_for_it(monkeypatch):
    held, shocks = settled(), np.random.default_rng(4).standard_normal(400)
    assert not [text for text in figures.behaviour_warnings(held) if "autocorrelated" in text]
    record = 0.1 + np.convolve(shocks, 0.6 ** np.arange(12))[:400]
    monkeypatch.setattr(figures, "oos_pnl", lambda *_: (np.arange(400), record))
    (text,) = [text for text in figures.behaviour_warnings(held) if "autocorrelated" in text]
    per_year = figures.sessions_per_year(list(held.study.legs))
    plain, by_lo = metrics.sharpe(record, per_year).value, inference.sharpe_of_ar1(record, per_year).value
    assert by_lo < 0.6 * plain
    assert f"ratio of {plain:.2f} a year rests" in text
    assert text.endswith(f"(2002) it is {by_lo:.2f}.")


def test_after_ruin_there_are_no_ratios(monkeypatch):
    # B13 of the bug log: no figure of reward over risk once the capital is gone. Here it is gone with the last fill.
    ruined = limited(capital_usd=lost_usd())
    legs = ruined.study.legs
    assert set(ruined.fills[1].reason) == {"decision"}
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
    assert figures.ruin(limited(capital_usd=lost_usd() + 0.1), legs) is None


def test_windows_that_each_keep_their_capital_can_lose_it_together():
    held = limited(capital_usd=1.5 * lost_usd())
    gain, losing, *rest = held.books["ensemble"]
    assert figures.ruin(held, held.study.legs) is None
    never_gained = dataclasses.replace(losing, first=gain.first)
    held = dataclasses.replace(held, books={**held.books, "ensemble": [never_gained, losing, *rest]})
    assert figures.ruin(held, held.study.legs).startswith("the capital was lost on 2")


def test_money_of_another_currency_is_called_what_it_is():
    held = settled()
    (leg,) = held.study.legs
    info = dataclasses.replace(leg.market.info, currency="EUR")
    leg = dataclasses.replace(leg, market=dataclasses.replace(leg.market, info=info))
    in_euro = dataclasses.replace(held, study=dataclasses.replace(held.study, legs=(leg,)))
    said = "Money is in EUR; keys and columns of files end in _usd all the same."
    assert said in figures.behaviour_warnings(in_euro)
    assert said.replace("EUR", "USD") not in figures.behaviour_warnings(held)


def test_what_account_limits_kept_from_trading_is_told():
    assert not [text for text in figures.behaviour_warnings(settled()) if "Account limits" in text]
    market = settled().study.legs[0].market
    losing = limited().books["ensemble"][1]
    day = np.datetime64(int(market.trade_day[losing.fill_bars[np.flatnonzero(losing.after_lots)[0]]]), "D")
    for usd, said in (
        ({"capital_usd": lost_usd()}, f"ended the account of window 1 by ruin on {day}, flat from then on"),
        (
            {"trailing_drawdown_usd": lost_usd()},
            f"ended the account of window 1 by drawdown on {day}, flat from then on",
        ),
        ({"daily_loss_usd": lost_usd()}, "reached the daily loss in 1 session, flat to the end of each"),
    ):
        (text,) = [text for text in figures.behaviour_warnings(limited(**usd)) if "Account limits" in text]
        assert text == f"Account limits: the ensemble {said}."


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
