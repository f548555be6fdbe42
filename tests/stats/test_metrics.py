"""Measures of a session record: golden values, laws, and reasons in place of numbers that do not exist."""

import math
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.stats import metrics
from tidewalk.stats.metrics import Figure

CENTS = st.lists(st.integers(-10_000_000, 10_000_000), max_size=60).map(lambda cents: np.array(cents) / 100.0)


def business_days(first: date, count: int) -> list[date]:
    days = (first + timedelta(days=offset) for offset in range(2 * count + 10))
    return [day for day in days if day.weekday() < 5][:count]


def test_figure_is_a_value_or_a_reason() -> None:
    for value, reason in ((None, None), (1.0, "why"), (None, ""), (math.nan, None), (math.inf, None)):
        with pytest.raises(DataError, match="figure"):
            Figure(value, reason)


def test_describe_shows_value_or_reason() -> None:
    assert metrics.describe(metrics.defined(1.234)) == "1.23"
    assert metrics.describe(metrics.defined(0.5), ".0%") == "50%"
    assert metrics.describe(metrics.undefined("no variance")) == "undefined: no variance"


# 30-minute returns whose ratio was reported 30 times too high (pmorissette/ffn issue 303).
HALF_HOURS = [0.001, -0.0005, 0.0007, -0.0002, 0.0004, -0.0001, 0.0003, -0.0006, 0.0008, -0.0003]


def test_sharpe_per_period_and_annualised_golden() -> None:
    assert metrics.sharpe(HALF_HOURS, 1).value == pytest.approx(0.2640216, abs=5e-8)
    assert metrics.sharpe(HALF_HOURS, 12_096).value == pytest.approx(29.0376, abs=5e-5)


def test_sharpe_takes_the_hurdle_per_year() -> None:
    # Mean .0005, deviation .01, 2 % a year, 252 periods: .6677 (skfolio pull request 288).
    wave = np.resize([1.0, -1.0], 252)
    record = 0.0005 + 0.01 * wave / wave.std(ddof=1)
    assert metrics.sharpe(record, 252, hurdle_per_year=0.02).value == pytest.approx(0.6677, abs=5e-5)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([], "fewer than 3 sessions"),
        ([1.0, 2.0], "fewer than 3 sessions"),
        ([0.0] * 10, "no variance"),  # a policy that never trades (FinRL issue 258)
        ([0.1] * 1000, "no variance"),  # other packages give 7e16 or infinity here
        ([0.1 + 0.2, 0.3, 0.3], "no variance"),  # equal up to rounding
        ([5e-324, 0.0, 0.0], "no variance"),  # the deviation underflows
    ],
)
def test_sharpe_is_undefined_with_a_reason(record: list[float], reason: str) -> None:
    assert metrics.sharpe(record, 252) == Figure(None, reason)


@given(CENTS, st.floats(1e-3, 1e3))
def test_sharpe_ignores_the_unit_and_flips_with_the_sign(record: np.ndarray, unit: float) -> None:
    ours, scaled = metrics.sharpe(record, 252), metrics.sharpe(record * -unit, 252)
    if ours.value is None:
        assert scaled.reason == ours.reason
    else:
        assert scaled.value == pytest.approx(-ours.value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_record_with_nan_is_refused_and_named(bad: float) -> None:
    with pytest.raises(DataError, match=r"session P&L: value 2 is"):
        metrics.max_drawdown([1.0, 2.0, bad])


def test_record_needs_one_dimension() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 2\)"):
        metrics.sharpe(np.zeros((2, 2)), 252)


def test_drawdown_counts_a_loss_in_the_first_session() -> None:
    # Equity 1.00, .90, .75: 25 %, not 16.67 % (pyfolio issue 179, quantstats issue 438).
    assert metrics.max_drawdown([-0.10, -0.15]) == pytest.approx(0.25)
    assert metrics.max_drawdown([-5.0]) == 5.0


def test_drawdown_measures() -> None:
    record = [10.0, -4.0, -3.0, 5.0, 2.0, 1.0, -1.0]
    assert metrics.equity_curve(record).tolist() == [0.0, 10.0, 6.0, 3.0, 8.0, 10.0, 11.0, 10.0]
    assert metrics.drawdown_curve(record).tolist() == [0.0, 4.0, 7.0, 2.0, 0.0, 0.0, 1.0]
    assert metrics.max_drawdown(record) == 7.0
    assert metrics.longest_drawdown_sessions(record) == 3
    assert metrics.longest_drawdown_sessions([1.0, 1.0]) == 0
    assert metrics.longest_drawdown_sessions([-1.0, -1.0]) == 2
    assert metrics.max_drawdown([]) == 0.0
    assert metrics.longest_drawdown_sessions([]) == 0


@given(CENTS)
def test_drawdown_laws(record: np.ndarray) -> None:
    worst = metrics.max_drawdown(record)
    assert worst >= max(0.0, -record.sum()) - 1e-6
    assert worst <= -record[record < 0].sum() + 1e-6
    assert metrics.max_drawdown(np.append(record, 1e9)) == pytest.approx(worst)
    highs = np.maximum.accumulate(metrics.equity_curve(record))
    slow = max((highs[t] - metrics.equity_curve(record)[t] for t in range(len(record) + 1)), default=0.0)
    assert worst == pytest.approx(slow)


def test_a_full_year_of_sessions_is_one_year() -> None:
    # The years of a record come from its sessions; bars of warm-up are no part of it (Lean 2279, vectorbt 294).
    days = [day for day in business_days(date(2024, 1, 2), 262) if day.year == 2024]
    holidays = days[10::26]
    sessions = [day for day in days if day not in holidays]
    assert len(sessions) == 251
    assert len(sessions) / metrics.sessions_per_year(sessions) == pytest.approx(1.0, abs=0.005)


def test_test_months_that_lie_apart_are_annualised_by_their_own_pace() -> None:
    months = [[day for day in business_days(date(2024, month, 1), 23) if day.month == month] for month in (1, 4, 7, 10)]
    apart = [day for month in months for day in month]
    assert metrics.sessions_per_year(apart) == pytest.approx(261, abs=8)
    # The share of the calendar would have given about 90.
    assert len(apart) < 95


def test_short_record_falls_back_to_252_and_says_so() -> None:
    days = business_days(date(2024, 1, 2), 30)
    assert metrics.sessions_per_year(days) == 252.0
    assert (
        metrics.observed_sessions_per_year(days).reason
        == "the sessions span 41 days, 60 needed to see their yearly rate"
    )
    assert metrics.sessions_per_year([]) == 252.0
    assert metrics.observed_sessions_per_year(business_days(date(2024, 1, 2), 45)).value is not None


def test_sessions_per_year_takes_numpy_dates() -> None:
    days = business_days(date(2023, 1, 2), 300)
    assert metrics.sessions_per_year(np.array(days, "datetime64[D]")) == metrics.sessions_per_year(days)


@pytest.mark.parametrize("second", [date(2024, 1, 2), date(2024, 1, 1)])
def test_dates_out_of_order_are_refused(second: date) -> None:
    with pytest.raises(DataError, match=rf"row 1 \({second}\) does not follow 2024-01-02"):
        metrics.sessions_per_year([date(2024, 1, 2), second])


def test_win_rate_and_profit_factor() -> None:
    record = [10.0, -5.0, 0.0, 20.0, -5.0]
    assert metrics.win_rate(record).value == 0.5
    assert metrics.profit_factor(record).value == 3.0
    assert metrics.win_rate([0.0]).reason == "no session won or lost"
    assert metrics.profit_factor([1.0, 2.0]).reason == "no losing session"
    assert metrics.profit_factor([-1.0]).value == 0.0


def test_downside_measures() -> None:
    record = [3.0, -4.0, 1.0, 0.0]
    assert metrics.downside_deviation(record).value == 2.0
    assert metrics.downside_deviation(record, 1.0).value == pytest.approx(math.sqrt((25 + 1) / 4))
    assert metrics.sortino([4.0, -4.0, 4.0, 4.0], 1.0).value == pytest.approx(1.0)
    assert metrics.sortino([1.0, 2.0, 3.0], 252).reason == "no losing session"
    assert metrics.sortino([1.0, -2.0], 252).reason == "fewer than 3 sessions"
    assert metrics.downside_deviation([]).reason == "no sessions"


def test_expected_shortfall_is_the_mean_of_the_worst() -> None:
    record = np.arange(-10.0, 30.0)
    assert metrics.expected_shortfall(record).value == 9.5
    assert metrics.expected_shortfall(np.arange(1.0, 21.0)).value == -1.0
    assert metrics.expected_shortfall(record[:19]).reason == "fewer than 20 sessions"


def test_calmar() -> None:
    assert metrics.calmar([2.0, -1.0, 2.0], 252).value == pytest.approx(252.0)
    assert metrics.calmar([1.0], 252).reason == "no drawdown"


def test_exposure() -> None:
    assert metrics.exposure(np.array([1, 0, -1, 0], np.int32)).value == 0.5
    assert metrics.exposure([]).reason == "no bars"


def test_agreement_unmasks_a_policy_that_is_a_baseline() -> None:
    # A policy that always buys, sold as learned (jsboige/CoursIA issue 3359).
    assert metrics.position_agreement([1, 1, 1, 1], [1, 1, 1, 1]).value == 1.0
    assert metrics.position_agreement([1, -1, 0, 1], [1, 1, 1, 1]).value == 0.5
    with pytest.raises(DataError, match="3 bars against 4"):
        metrics.position_agreement([1, 1, 1], [1, 1, 1, 1])


def test_the_captured_share_is_undefined_where_hindsight_earns_nothing() -> None:
    assert metrics.captured_frac(30.0, 120.0).value == 0.25
    assert metrics.captured_frac(-30.0, 0.0).reason == "the hindsight optimum earns nothing"


@given(CENTS)
def test_every_figure_is_finite_or_has_a_reason(record: np.ndarray) -> None:
    figures = [
        metrics.sharpe(record, 252),
        metrics.sortino(record, 252),
        metrics.calmar(record, 252),
        metrics.win_rate(record),
        metrics.profit_factor(record),
        metrics.expected_shortfall(record),
        metrics.downside_deviation(record),
        metrics.exposure(record),
    ]
    assert all(bool(figure.reason) if figure.value is None else math.isfinite(figure.value) for figure in figures)


def test_ruin_is_the_session_that_leaves_nothing() -> None:
    # Equity 100, -50, -25, -75 (B13): the report gives no ratio of such a record (`figures.ruin`).
    record = [-150.0, 25.0, -50.0]
    assert metrics.ruin_session(record, 100.0) == 0
    assert metrics.max_drawdown(record) == 175.0  # money is counted on
    # Exactly 0 is ruin too; a cent above is not.
    assert metrics.ruin_session([-60.0, -40.0, 500.0], 100.0) == 1
    assert metrics.ruin_session([-60.0, -39.99, 500.0], 100.0) is None


@given(CENTS, st.floats(0.01, 1e6))
def test_ruin_is_where_equity_first_reaches_nothing(record: np.ndarray, capital: float) -> None:
    equity = capital + metrics.equity_curve(record)[1:]
    found = metrics.ruin_session(record, capital)
    assert (found is None) == bool((equity > 0).all())
    if found is not None:
        assert equity[found] <= 0
        assert (equity[:found] > 0).all()


def test_walk_forward_efficiency_is_a_ratio_of_yearly_profits() -> None:
    # In sample 1,200 USD in 60 sessions, out of sample 200 USD in 20: half of the pace.
    assert metrics.walk_forward_efficiency(1200.0, 60, 200.0, 20).value == 0.5
    assert metrics.walk_forward_efficiency(1200.0, 60, -200.0, 20).value == -0.5
    for nothing in (0.0, -900.0):
        assert metrics.walk_forward_efficiency(nothing, 60, -900.0, 60).reason == "nothing was earned in sample"
    assert metrics.walk_forward_efficiency(1200.0, 60, 0.0, 0).reason == "no sessions"


def test_autocorrelation_golden() -> None:
    assert metrics.autocorrelation([1.0, -1.0] * 50).value == pytest.approx(-0.99)
    assert metrics.autocorrelation([1.0, 2.0, 3.0, 4.0]).value == pytest.approx(0.25)
    assert metrics.autocorrelation([1.0, 2.0, 3.0, 4.0], 2).value == pytest.approx(-0.3)
    assert metrics.autocorrelation([1.0, 2.0]).reason == "fewer than 3 sessions"
    assert metrics.autocorrelation([1.0, 2.0, 3.0], 2).reason == "fewer than 4 sessions"
    assert metrics.autocorrelation([1.0] * 5).reason == "no variance"


def test_annualisation_is_by_what_the_calendar_holds() -> None:
    # 23 hours of minutes are 347,760 bars a year (root 589.71); 26 quarter hours a day 6,552, where the wrong factor
    # of a market that never closes, 24,192, shows a ratio 1.92 times too high.
    assert math.sqrt(252 * 1380) == pytest.approx(589.71, abs=5e-3)
    record = np.random.default_rng(0).standard_normal(100) + 0.1
    right, wrong = (metrics.sharpe(record, per_year).value for per_year in (6_552, 24_192))
    assert right is not None
    assert wrong == pytest.approx(1.92 * right, rel=2e-3)
