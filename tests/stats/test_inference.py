"""Sharpe inference against published numbers, and its behaviour on noise."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.stats import inference
from tidewalk.stats.metrics import Figure, autocorrelation, sharpe, undefined

PER_MONTH, PER_SESSION = math.sqrt(12), math.sqrt(250)


def noise(seed: int, shape: tuple[int, ...] | int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# Bailey and Lopez de Prado (2012), as the tests of rubenbriones/Probabilistic-Sharpe-Ratio quote it (4 digits).
@pytest.mark.parametrize(
    ("sr", "skew", "kurt", "error"), [(0.7079, -0.2250, 2.9570, 0.1028), (0.8183, -1.4455, 7.0497, 0.1550)]
)
def test_standard_error_golden(sr: float, skew: float, kurt: float, error: float) -> None:
    assert inference.sharpe_se(sr, 134, skew, kurt).value == pytest.approx(error, abs=5e-5)


# Lo (2002), Table 1, Sharpe .5 without autocorrelation. It divides by T where ours divides by n - 1.
@pytest.mark.parametrize(
    ("periods", "error"),
    [(12, 0.306), (24, 0.217), (36, 0.177), (48, 0.153), (60, 0.137), (125, 0.095), (250, 0.067), (500, 0.047)],
)
def test_standard_error_agrees_with_lo(periods: int, error: float) -> None:
    assert inference.sharpe_se(0.5, periods + 1, 0.0, 3.0).value == pytest.approx(error, abs=5e-4)


def test_psr_golden() -> None:
    # Same source (3 digits); the last from pypbo (10 digits).
    assert inference.psr(0.458, 24, 0.0, 3.0).value == pytest.approx(0.982, abs=5e-4)
    assert inference.psr(0.458, 24, -2.448, 10.164).value == pytest.approx(0.913, abs=5e-4)
    assert inference.psr(1.585 / PER_MONTH, 24, -2.448, 10.164).value == pytest.approx(0.9132343069, abs=1e-10)


# Minimum track record in years (2012 paper via pypbo, 4 digits): Sharpe ratios per year, periods in it, moments.
@pytest.mark.parametrize(
    ("sr", "star", "periods", "skew", "kurt", "years"),
    [
        (2.0, 1.0, 250, 0.0, 3.0, 2.7312),
        (2.0, 1.0, 52, 0.0, 3.0, 2.8288),
        (2.0, 1.0, 12, 0.0, 3.0, 3.2398),
        (2.0, 1.0, 12, -0.72, 5.78, 4.9913),
        (3.0, 2.5, 12, -0.72, 5.78, 27.3529),
        (0.7079 * PER_MONTH, 0.0, 12, -0.2250, 2.9570, 0.7152),
        (0.8183 * PER_MONTH, 0.0, 12, -1.4455, 7.0497, 1.1593),
    ],
)
def test_min_trl_golden(sr: float, star: float, periods: int, skew: float, kurt: float, years: float) -> None:
    root = math.sqrt(periods)
    found = inference.min_trl(sr / root, skew, kurt, star / root)
    assert found.value is not None
    assert found.value / periods == pytest.approx(years, abs=5e-5)


# The 2025 paper's example (tests of zoonek/2025-sharpe-ratio, 3 digits): 24 months, mean .036, deviation .079.
EXAMPLE = 0.036 / 0.079
WILD, NORMAL = (-2.448, 10.164), (0.0, 3.0)


def test_revision_of_2025_golden() -> None:
    assert inference.sharpe_se_2025(EXAMPLE, 24, *WILD).value == pytest.approx(0.329, abs=5e-4)
    assert inference.sharpe_se_2025(EXAMPLE, 24, *NORMAL).value == pytest.approx(0.214, abs=5e-4)
    assert inference.psr_2025(EXAMPLE, 24, *WILD).value == pytest.approx(0.987, abs=5e-4)
    assert inference.psr_2025(EXAMPLE, 24, *WILD, 0.1).value == pytest.approx(0.939, abs=5e-4)
    assert inference.min_trl_2025(EXAMPLE, *WILD).value == pytest.approx(13.029, abs=5e-4)
    assert inference.min_trl_2025(EXAMPLE, *WILD, confidence=0.9).value == pytest.approx(7.909, abs=5e-4)


def test_revision_of_2025_golden_with_autocorrelation() -> None:
    # A run of the same program with rho .2 (3 digits).
    assert inference.sharpe_se_2025(EXAMPLE, 24, *WILD, 0.2).value == pytest.approx(0.379, abs=5e-4)
    assert inference.psr_2025(EXAMPLE, 24, *WILD, rho=0.2).value == pytest.approx(0.966, abs=5e-4)
    assert inference.min_trl_2025(EXAMPLE, *WILD, rho=0.2, confidence=0.9).value == pytest.approx(11.863, abs=5e-4)


def test_revision_of_2025_golden_with_ten_trials() -> None:
    # Ten trials, variance of their ratios .1: expected best .498; deflated .451, with the variance of the best .416.
    star = inference.expected_max_sharpe(10, math.sqrt(0.1))
    assert star == pytest.approx(0.498, abs=5e-4)
    assert inference.psr_2025(EXAMPLE, 24, *WILD, star).value == pytest.approx(0.451, abs=5e-4)
    assert inference.dsr_2025(EXAMPLE, 24, *WILD, 10, math.sqrt(0.1)).value == pytest.approx(0.416, abs=5e-4)
    assert inference.dsr_2025(EXAMPLE, 24, *WILD, 10, None).reason == (
        "the spread of the Sharpe ratios of 10 trials is not known"
    )


def test_revision_of_2025_is_undefined_or_refused_where_it_says_nothing() -> None:
    assert inference.sharpe_se_2025(0.1, 2, *NORMAL).reason == "fewer than 3 sessions"
    assert inference.sharpe_se_2025(1.0, 50, 2.0, 5.0).reason == "the moments give no standard error"
    assert inference.min_trl_2025(2.0, 2.0, 5.0, 1.0).reason == "the moments give no standard error"
    assert inference.min_trl_2025(0.1, *NORMAL, 0.1).reason == "the Sharpe ratio is not above the one it has to beat"
    with pytest.raises(DataError, match=r"autocorrelation: 1\.0 given"):
        inference.psr_2025(0.1, 50, *NORMAL, rho=1.0)


# Exact mean (4 digits) and variance (3 digits) of the largest of N normals, as tables of order statistics give them.
@pytest.mark.parametrize(("count", "mean"), [(1, 0.0), (2, 0.5642), (5, 1.1630), (10, 1.5388), (100, 2.5076)])
def test_exact_expected_maximum_golden(count: int, mean: float) -> None:
    assert inference.normal_maximum(count)[0] == pytest.approx(mean, abs=5e-5)


@pytest.mark.parametrize(("count", "variance"), [(1, 1.0), (5, 0.448), (20, 0.276), (50, 0.216), (200, 0.161)])
def test_variance_of_the_maximum_golden(count: int, variance: float) -> None:
    assert inference.normal_maximum(count)[1] == pytest.approx(variance, abs=5e-4)


def test_the_revision_estimates_its_error_right_under_autocorrelation() -> None:
    # 3,000 AR(1) records without skill: spread of their ratios against the error that the form of 2025 claims.
    shocks = noise(31, (3_000, 400))
    records = shocks.copy()
    for step in range(1, 400):
        records[:, step] += 0.3 * records[:, step - 1]
    ratios = records.mean(axis=1) / records.std(axis=1, ddof=1)
    claimed = inference.sharpe_se_2025(0.0, 400, *NORMAL, 0.3).value
    assert ratios.std() == pytest.approx(claimed, rel=0.05)
    assert ratios.std() > 1.25 * (inference.sharpe_se(0.0, 400, *NORMAL).value or 0)
    found = [autocorrelation(record).value or 0.0 for record in records[:200]]
    assert np.mean(found) == pytest.approx(0.3, abs=0.02)


def test_min_trl_is_undefined_where_no_length_would_do() -> None:
    assert inference.min_trl(0.1, 0.0, 3.0, 0.1).reason == "the Sharpe ratio is not above the one it has to beat"
    assert inference.min_trl(-0.1, 0.0, 3.0).value is None


@given(st.floats(0.02, 0.5), st.floats(-1.0, 1.0), st.floats(3.0, 9.0))
def test_min_trl_is_where_psr_reaches_the_gate(sr: float, skew: float, kurt: float) -> None:
    length = inference.min_trl(sr, skew, kurt).value
    assert length is not None
    n = math.ceil(length)
    if n >= 4:
        assert (inference.psr(sr, n + 1, skew, kurt).value or 0) >= 0.95
        assert (inference.psr(sr, n - 1, skew, kurt).value or 0) < 0.95


# Computed from the formula, 6 digits; N = 100 is also in pypbo.
@pytest.mark.parametrize(
    ("n_trials", "multiplier"),
    [
        *((1, 0.0), (2, 0.519755), (5, 1.192594), (10, 1.574598), (45, 2.235640), (100, 2.530603)),
        *((1000, 3.255122), (10_000, 3.860665)),
    ],
)
def test_expected_maximum_golden(n_trials: int, multiplier: float) -> None:
    assert inference.expected_max_sharpe(n_trials, 1.0) == pytest.approx(multiplier, abs=5e-7)
    assert inference.expected_max_sharpe(n_trials, 0.25) == pytest.approx(multiplier / 4, abs=5e-7)


def test_expected_maximum_against_simulation() -> None:
    # The formula is an approximation: exact 1.5388 for N = 10, it gives 1.5746.
    best = noise(1, (20_000, 10)).max(axis=1).mean()
    assert inference.expected_max_sharpe(10, 1.0) == pytest.approx(best, abs=0.06)


def test_no_trials_is_an_error() -> None:
    with pytest.raises(DataError, match="number of trials: 0 given, at least 1"):
        inference.expected_max_sharpe(0, 1.0)


# The example of the 2014 paper (8 digits in pypbo): 2.5 a year, 1,250 sessions, variance of the trials .5 a year.
@pytest.mark.parametrize(
    ("skew", "kurt", "n_trials", "deflated", "last_digit"),
    [(-3.0, 10.0, 100, 0.90039683, 1e-8), (-3.0, 10.0, 46, 0.950502, 1e-6), (0.0, 3.0, 88, 0.950491, 1e-6)],
)
def test_dsr_golden(skew: float, kurt: float, n_trials: int, deflated: float, last_digit: float) -> None:
    spread = math.sqrt(0.5 / 250)
    assert inference.expected_max_sharpe(100, spread) == pytest.approx(0.113172, abs=5e-7)
    assert inference.dsr(2.5 / PER_SESSION, 1250, skew, kurt, n_trials, spread).value == pytest.approx(
        deflated, abs=last_digit / 2
    )


def test_dsr_of_one_trial_is_psr_and_of_unknown_spread_undefined() -> None:
    alone = inference.dsr(0.1, 500, 0.0, 3.0, 1, None)
    assert alone == inference.psr(0.1, 500, 0.0, 3.0)
    unknown = inference.dsr(0.1, 500, 0.0, 3.0, 7, None)
    assert unknown == Figure(None, "the spread of the Sharpe ratios of 7 trials is not known")


def test_session_forms_use_the_moments_of_the_record() -> None:
    record = 0.1 + noise(3, 400) ** 3
    sr, n = sharpe(record, 1.0).value, len(record)
    assert sr is not None
    skew, kurt = inference.skew_kurt(record)
    centred = record - record.mean()
    assert skew == pytest.approx((centred**3).mean() / (centred**2).mean() ** 1.5)
    assert kurt == pytest.approx((centred**4).mean() / (centred**2).mean() ** 2)
    assert inference.session_psr(record, 0.01) == inference.psr(sr, n, skew, kurt, 0.01)
    assert inference.session_dsr(record, 9, 0.05) == inference.dsr(sr, n, skew, kurt, 9, 0.05)
    assert inference.session_sharpe_se(record) == inference.sharpe_se(sr, n, skew, kurt)
    assert inference.session_min_trl(record, 0.01) == inference.min_trl(sr, skew, kurt, 0.01)
    # Plain kurtosis, 3 for a normal record, never the excess.
    assert inference.skew_kurt(noise(4, 100_000))[1] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(("record", "reason"), [([1.0], "fewer than 3 sessions"), ([5.0] * 9, "no variance")])
def test_degenerate_records_give_reasons(record: list[float], reason: str) -> None:
    for found in (
        inference.session_psr(record),
        inference.session_dsr(record, 3, 0.1),
        inference.session_sharpe_se(record),
        inference.session_min_trl(record),
    ):
        assert found == undefined(reason)


def test_moments_of_a_constant_record_are_refused() -> None:
    with pytest.raises(DataError, match="no variance"):
        inference.skew_kurt([1.0, 1.0, 1.0])


def test_psr_of_a_record_with_two_values_is_undefined_rather_than_infinite() -> None:
    # Skewness s, kurtosis 1 + s^2 and Sharpe 2 / s leave no estimation error at all.
    assert inference.psr(1.0, 50, 2.0, 5.0) == undefined("the moments give no standard error")
    assert inference.sharpe_se(0.1, 2, 0.0, 3.0) == undefined("fewer than 3 sessions")


def test_size_of_the_gates_on_noise() -> None:
    # 400 draws of the best of 20 noise records, 500 sessions each. Known sizes: naive .617, DSR .001, Sidak .050.
    records = noise(7, (400, 20, 500))
    ratios = records.mean(axis=2) / records.std(axis=2, ddof=1)
    best = ratios.argmax(axis=1)
    naive = deflated = adjusted = 0
    for draw, column in enumerate(best):
        record, spread = records[draw, column], float(ratios[draw].std(ddof=1))
        alone = inference.session_psr(record).value or 0.0
        naive += alone > 0.95
        deflated += (inference.session_dsr(record, 20, spread).value or 0.0) > 0.95
        adjusted += inference.sidak_p(alone, 20) < 0.05
    assert 0.5 < naive / 400 < 0.75
    assert deflated / 400 < 0.02
    assert 0.02 < adjusted / 400 < 0.09


# Share of 1,500 draws in which the best of N noise records of 500 sessions passes: PSR, DSR 2014, DSR 2025, Sidak.
NULL_SIZES = {
    5: (0.235, 0.003, 0.028, 0.061),
    20: (0.617, 0.001, 0.025, 0.050),
    50: (0.939, 0.000, 0.047, 0.048),
    200: (1.000, 0.001, 0.062, 0.050),
}


@pytest.mark.slow
@pytest.mark.parametrize("n_trials", NULL_SIZES)
def test_null_sizes_of_the_gates_golden(n_trials: int) -> None:
    draws, rng, passed = 1_500, np.random.default_rng((2024, n_trials)), np.zeros(4)
    for _ in range(draws):
        records = rng.standard_normal((500, n_trials))
        ratios = records.mean(axis=0) / records.std(axis=0, ddof=1)
        best, spread = int(ratios.argmax()), float(ratios.std(ddof=1))
        moments = (float(ratios[best]), 500, *inference.skew_kurt(records[:, best]))
        alone = inference.psr(*moments).value or 0.0
        deflated = [form(*moments, n_trials, spread).value or 0.0 for form in (inference.dsr, inference.dsr_2025)]
        passed += [alone > 0.95, *(value > 0.95 for value in deflated), inference.sidak_p(alone, n_trials) < 0.05]
    for found, golden in zip(passed / draws, NULL_SIZES[n_trials], strict=True):
        # Both are counts of 1,500 draws: four standard errors of their difference, and three counts where it is 0.
        assert abs(found - golden) <= 4 * math.sqrt(2 * golden * (1 - golden) / draws) + 3 / draws


# Years below which a Sharpe of 1 is expected by luck; N = 45 is in the tests of pypbo (3 digits).
@pytest.mark.parametrize(("n_trials", "years"), [(7, 1.923), (10, 2.479), (45, 4.998), (100, 6.404), (1000, 10.596)])
def test_min_btl_golden(n_trials: int, years: float) -> None:
    assert inference.min_btl(n_trials) == pytest.approx(years, abs=5e-4)
    assert inference.min_btl(n_trials) < 2 * math.log(n_trials)
    assert inference.min_btl(n_trials, 2.0) == pytest.approx(years / 4, abs=5e-4)


# Lo (2002), Table 2, autocorrelation .9 (2 digits), and q = 12 for other values.
@pytest.mark.parametrize(
    ("q", "rho", "eta"),
    [
        *((2, 0.9, 1.03), (3, 0.9, 1.05), (4, 0.9, 1.07), (6, 0.9, 1.10), (12, 0.9, 1.21), (24, 0.9, 1.41)),
        *((36, 0.9, 1.60), (48, 0.9, 1.77), (125, 0.9, 2.67), (250, 0.9, 3.70)),
        *((12, 0.5, 2.12), (12, 0.2, 2.88), (12, 0.0, 3.46), (12, -0.2, 4.17), (12, -0.5, 5.69)),
    ],
)
def test_lo_eta_golden(q: int, rho: float, eta: float) -> None:
    assert inference.lo_eta(q, rho ** np.arange(1.0, q)) == pytest.approx(eta, abs=5e-3)


def test_lo_eta_without_autocorrelation_is_the_root() -> None:
    assert inference.lo_eta(252, []) == pytest.approx(math.sqrt(252))
    assert inference.lo_eta(2, [0.1, 0.9, 0.9]) == inference.lo_eta(2, [0.1])


def test_an_autocorrelated_record_is_annualised_by_lo_and_no_other() -> None:
    # AR(1) .5 and -.4 at 252 sessions: as the factor of the paper for the autocorrelation that is measured.
    shocks = noise(17, 2_000)
    for rho, is_smaller in ((0.5, True), (-0.4, False)):
        record = shocks.copy()
        for step in range(1, 2_000):
            record[step] += rho * record[step - 1]
        record += 0.1
        by_lo, by_root = inference.sharpe_of_ar1(record, 252.4).value, sharpe(record, 252.4).value
        assert by_lo is not None
        assert by_root is not None
        assert (abs(by_lo) < abs(by_root)) == is_smaller
        measured = autocorrelation(record).value or 0.0
        assert by_lo / (sharpe(record, 1.0).value or 0.0) == pytest.approx(
            inference.lo_eta(252, measured ** np.arange(1, 252)), rel=1e-12
        )
    assert inference.sharpe_of_ar1(shocks, 252.0).reason == "the autocorrelation of +0.01 is not distinguishable from 0"
    assert inference.sharpe_of_ar1([1.0, 2.0], 252.0).reason == "fewer than 3 sessions"
    assert inference.sharpe_of_ar1([1.0] * 9, 252.0).reason == "no variance"
    told = sum(inference.sharpe_of_ar1(noise(500 + seed, 250), 252.0).value is not None for seed in range(300))
    assert told <= 11  # 1 % of 300 is 3; 11 is the 99.9 % point of the binomial


def test_statistics_do_not_load_the_accelerator() -> None:
    names = ("bootstrap", "inference", "metrics", "overfitting", "seeds", "verdict")
    modules = ", ".join(f"tidewalk.stats.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit('jax' in sys.modules or 'arch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
