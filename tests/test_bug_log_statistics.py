"""Faults that other programs were reported for, B36 to B41 of the bug log: the smallest input, and the right result."""

import dataclasses
import math
import re
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from support import planted_market, small_config
from tidewalk.market.device import CLOSING, save_market
from tidewalk.run import loop
from tidewalk.stats import inference, metrics, verdict
from tidewalk.stats.bootstrap import sharpe_ci
from tidewalk.stats.metrics import Figure
from tidewalk.stats.verdict import Verdict
from tidewalk.store.layout import open_run
from tidewalk.store.summary import read_summary


def test_b36_bars_of_half_an_hour_are_annualised_by_their_own_number() -> None:
    # pmorissette/ffn 303: 871 instead of 29.04.
    record = [0.001, -0.0005, 0.0007, -0.0002, 0.0004, -0.0001, 0.0003, -0.0006, 0.0008, -0.0003]
    assert metrics.sharpe(record, 1).value == pytest.approx(0.2640216, abs=5e-8)
    assert metrics.sharpe(record, 12_096).value == pytest.approx(29.0376, abs=5e-5)


def test_b37_a_loss_on_the_first_session_is_a_drawdown() -> None:
    # pyfolio 179, quantstats 438, freqtrade 11593: 16.67 % instead of 25 %.
    equity = [1.00, 0.90, 0.75]
    assert metrics.max_drawdown(np.diff(equity)) == pytest.approx(0.25)
    assert metrics.max_drawdown([-5.0]) == 5.0
    assert metrics.drawdown_curve([-0.10, -0.15]).tolist() == pytest.approx([0.10, 0.25])


def test_b38_a_year_of_sessions_is_a_year_whatever_was_warmed_up_before() -> None:
    # Lean 2279, vectorbt 294: 60 flat bars before 252 sessions counted in years, mean, deviation and number.
    first = date(2024, 1, 1)
    days = [day for day in (first + timedelta(days=n) for n in range(366)) if day.weekday() < 5]
    sessions = [day for number, day in enumerate(days) if number % 26 != 25]
    assert len(sessions) == 252
    assert len(sessions) / metrics.sessions_per_year(sessions) == pytest.approx(1.0, abs=0.01)
    record = np.random.default_rng(1).standard_normal(252) + 0.1
    ratio = record.mean() / record.std(ddof=1) * math.sqrt(metrics.sessions_per_year(sessions))
    assert metrics.sharpe(record, metrics.sessions_per_year(sessions)).value == pytest.approx(ratio)
    warmed = metrics.sharpe(np.concatenate([np.zeros(60), record]), metrics.sessions_per_year(sessions)).value
    assert warmed is not None
    assert abs(warmed) < abs(ratio)  # what the fault would have shown


def test_b39_a_policy_that_is_a_baseline_is_called_by_its_name() -> None:
    # jsboige/CoursIA 3359: a policy that always buys, sold as learned.
    market = np.random.default_rng(2).standard_normal(300) + 0.4
    baselines = {"flat": np.zeros(300), "long": market, "short": -market}
    always = np.ones(300)
    assert metrics.position_agreement(always, np.ones(300)) == Figure(1.0)
    rival = verdict.rivals(market, baselines, equals=["long"])
    psr = inference.session_psr(market)
    says = verdict.verdict(
        net_usd=float(market.sum()),
        sessions=300,
        trades=2,
        psr=psr,
        dsr=inference.session_dsr(market, 1, None),
        ci=sharpe_ci(market, 252.0),
        rival=rival,
    )
    assert says is Verdict.BASELINE
    assert verdict.in_words(says, trials=1, psr=psr, dsr=psr, rival=rival).startswith(
        "equals the long baseline on every bar"
    )


def test_b40_no_trades_are_zeros_and_reasons() -> None:
    # FinRL 258: NaN in every metric.
    record = np.zeros(250)
    assert record.sum() == 0.0
    assert metrics.max_drawdown(record) == 0.0
    assert metrics.describe(metrics.sharpe(record, 252)) == "undefined: no variance"
    undefined = [
        metrics.sharpe(record, 252),
        metrics.sortino(record, 252),
        metrics.calmar(record, 252),
        metrics.win_rate(record),
        metrics.profit_factor(record),
        inference.session_psr(record),
        inference.session_dsr(record, 4, 0.1),
        inference.session_min_trl(record),
    ]
    assert all(figure.value is None and figure.reason for figure in undefined)
    interval = sharpe_ci(record, 252.0)
    assert (interval.low, interval.high, interval.reason) == (None, None, "no variance")
    says = verdict.verdict(
        net_usd=0.0, sessions=250, trades=0, psr=undefined[0], dsr=undefined[0], ci=interval, rival=None
    )
    assert says is Verdict.NO_TRADES


@pytest.mark.slow
def test_b40_a_run_that_may_never_enter_ends_with_a_report(tmp_path: Path) -> None:
    # In the test months every fill is the last chance to be flat before a break, so no position is ever held there.
    market = planted_market(days=150)
    is_test = market.trade_day >= market.trade_day[0] + 91  # three months of training and validation come before
    closed = dataclasses.replace(market, flags=np.where(is_test, market.flags | CLOSING, market.flags))
    save_market(tmp_path / "market.npz", closed)
    config = small_config(tmp_path / "market.npz", tmp_path / "run")
    run = loop.train(dataclasses.replace(config, env=dataclasses.replace(config.env, flat_at_close=True)))
    summary = read_summary(open_run(run))
    oos = summary["oos"]
    assert (oos["net_usd"], oos["costs_usd"], oos["trades"], oos["max_drawdown_usd"]) == (0.0, 0.0, 0, 0.0)
    assert oos["verdict"] == "no trades"
    assert (oos["sharpe_session"], oos["psr"], oos["profit_factor"]) == (None, None, None)
    assert "oos.sharpe_session is undefined: no variance" in summary["warnings"]
    page = (run / "report.html").read_text()
    assert "undefined" in page
    assert not re.search(r">\s*[-+]?(nan|inf|infinity)\s*<", page, flags=re.IGNORECASE)


def test_b41_a_hurdle_is_an_amount_per_year() -> None:
    # skfolio 288: mean .0005, deviation .01, 2 % a year, 252 sessions.
    wave = np.resize([1.0, -1.0], 252)
    record = 0.0005 + 0.01 * wave / wave.std(ddof=1)
    expected = (0.0005 - 0.02 / 252) / 0.01 * math.sqrt(252)
    assert expected == pytest.approx(0.6677, abs=5e-5)
    assert metrics.sharpe(record, 252, hurdle_per_year=0.02).value == pytest.approx(expected)
