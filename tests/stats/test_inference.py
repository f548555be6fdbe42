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
from tidewalk.stats.inference import Interval, Verdict
from tidewalk.stats.metrics import Figure, defined, sharpe, undefined

PER_MONTH, PER_SESSION = math.sqrt(12), math.sqrt(250)


def noise(seed: int, shape: tuple[int, ...] | int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def autoregressive(shocks: np.ndarray, rho: float) -> np.ndarray:
    out = shocks.copy()
    for step in range(1, out.shape[-1]):
        out[..., step] += rho * out[..., step - 1]
    return out


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
    ("skew", "kurt", "n_trials", "deflated"),
    [(-3.0, 10.0, 100, 0.90039683), (-3.0, 10.0, 46, 0.950502), (0.0, 3.0, 88, 0.950491)],
)
def test_dsr_golden(skew: float, kurt: float, n_trials: int, deflated: float) -> None:
    spread = math.sqrt(0.5 / 250)
    assert inference.expected_max_sharpe(100, spread) == pytest.approx(0.113172, abs=5e-7)
    assert inference.dsr(2.5 / PER_SESSION, 1250, skew, kurt, n_trials, spread).value == pytest.approx(
        deflated, abs=1e-6
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
    # Plain kurtosis, 3 for a normal record, never the excess.
    assert inference.skew_kurt(noise(4, 100_000))[1] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(("record", "reason"), [([1.0], "fewer than 3 sessions"), ([5.0] * 9, "no variance")])
def test_degenerate_records_give_reasons(record: list[float], reason: str) -> None:
    assert inference.session_psr(record) == undefined(reason)
    assert inference.session_dsr(record, 3, 0.1) == undefined(reason)


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


def test_politis_white_golden() -> None:
    # The series and the value of arch's own test of its block length for the stationary bootstrap (6 decimals).
    shocks = np.random.RandomState(0).standard_normal(10_100)
    assert inference.politis_white_block(autoregressive(shocks, 0.3)[100:]) == pytest.approx(13.635665, abs=5e-7)


@pytest.mark.parametrize(
    ("large", "width"),
    [([], 2), ([1], 4), ([1, 2], 6), ([2], 6), ([7], 2), ([6], 2), ([5], 12), (range(1, 20), 20)],
)
def test_lag_window_is_twice_the_first_lag_of_five_small_ones(large: list[int], width: int) -> None:
    rho = np.zeros(21)
    rho[[0, *large]] = 0.9
    assert inference._bandwidth(rho, 400, 5) == width


def test_block_is_short_on_noise_and_grows_with_memory() -> None:
    blocks = [inference.politis_white_block(autoregressive(noise(5, 2000), rho)) for rho in (0.0, 0.3, 0.7, 0.9)]
    assert blocks[0] < 8
    assert blocks == sorted(blocks)
    assert blocks[-1] <= math.ceil(3 * math.sqrt(2000))


@given(st.lists(st.integers(-1000, 1000), max_size=80))
def test_block_is_always_usable(record: list[int]) -> None:
    block = inference.politis_white_block(np.array(record, float))
    assert 1.0 <= block <= max(1, math.ceil(min(3 * math.sqrt(len(record)), len(record) / 3)))


def test_block_of_degenerate_records_is_one() -> None:
    for record in ([], [1.0] * 50, noise(1, 9)):
        assert inference.politis_white_block(record) == 1.0


def test_interval_is_repeatable_and_moves_with_the_seed() -> None:
    record = noise(2, 300)
    first = inference.stationary_bootstrap_ci(record, np.mean)
    assert first == inference.stationary_bootstrap_ci(record, np.mean)
    assert first != inference.stationary_bootstrap_ci(record, np.mean, seed=1)
    assert (first.draws, first.level, first.reason) == (2000, 0.90, None)


def test_interval_of_the_mean_has_the_width_of_theory() -> None:
    record = noise(11, 900)
    found = inference.stationary_bootstrap_ci(record, np.mean, draws=4000)
    assert found.low is not None
    assert found.high is not None
    assert found.low < record.mean() < found.high
    assert found.high - found.low == pytest.approx(2 * 1.645 * record.std() / 30, rel=0.15)
    wider = inference.stationary_bootstrap_ci(record, np.mean, level=0.99, draws=4000)
    assert (wider.high or 0) - (wider.low or 0) > 1.3 * (found.high - found.low)


def test_interval_of_the_sharpe_covers_under_autocorrelation() -> None:
    # AR(1) .3, 600 sessions, 90 % interval: an independent bootstrap covers 74 %, a stationary one about 84 %.
    records = autoregressive(noise(13, (160, 700)), 0.3)[:, 100:] + 0.1
    truth = 0.1 * math.sqrt(1 - 0.09)

    def ratio(sample: np.ndarray) -> float:
        return sample.mean() / sample.std(ddof=1)

    found = [inference.stationary_bootstrap_ci(record, ratio, draws=300) for record in records]
    covered = sum(interval.low <= truth <= interval.high for interval in found if interval.low and interval.high)
    assert 0.80 < covered / 160 < 0.95


def test_resampling_keeps_neighbours_together() -> None:
    # In the record 0, 1, ..., n - 1 the mean length of unbroken runs is the block length (golden seed, 5 % tolerance).
    rows = inference._stationary_rows(np.random.default_rng(0), 400, 500, 10.0)
    breaks = (np.diff(rows, axis=1) % 500 != 1).mean()
    assert 1 / breaks == pytest.approx(10.0, rel=0.05)
    assert rows.min() == 0
    assert rows.max() == 499
    counts = np.bincount(rows.ravel(), minlength=500)
    assert counts.std() / counts.mean() < 0.2


def test_large_records_are_resampled_in_pieces_with_the_same_number_of_draws() -> None:
    found = inference.stationary_bootstrap_ci(noise(1, 30_000), np.mean, draws=70)
    assert found.draws == 70


def test_interval_is_undefined_with_a_reason() -> None:
    assert inference.stationary_bootstrap_ci([1.0, 2.0], np.mean).reason == "fewer than 10 sessions"
    assert inference.stationary_bootstrap_ci([1.0] * 40, np.mean).reason == "no variance"
    one_trade = np.zeros(40)
    one_trade[7] = 100.0
    for statistic in (lambda sample: sharpe(sample, 252), lambda sample: sharpe(sample, 252).value):
        found = inference.stationary_bootstrap_ci(one_trade, statistic)
        assert (found.low, found.high) == (None, None)
        assert "of 2000 resamples have no such figure" in (found.reason or "")


FAIR, UNSURE, SURE = defined(0.5), undefined("no variance"), defined(0.96)
ABOVE, AROUND = Interval(0.1, 2.0, 0.9), Interval(-0.1, 2.0, 0.9)
NO_INTERVAL = Interval(None, None, 0.9, "no variance")


@pytest.mark.parametrize(
    ("net_usd", "sessions", "trades", "psr", "dsr", "ci", "expected"),
    [
        (0.0, 300, 0, UNSURE, UNSURE, NO_INTERVAL, Verdict.NO_TRADES),
        (900.0, 19, 5, SURE, SURE, ABOVE, Verdict.TOO_LITTLE_DATA),
        (-900.0, 19, 5, FAIR, FAIR, AROUND, Verdict.TOO_LITTLE_DATA),
        (-900.0, 20, 5, FAIR, FAIR, AROUND, Verdict.LOSES),
        (-900.0, 300, 5, UNSURE, UNSURE, NO_INTERVAL, Verdict.LOSES),
        (900.0, 300, 5, UNSURE, UNSURE, NO_INTERVAL, Verdict.TOO_LITTLE_DATA),
        (0.0, 300, 5, FAIR, FAIR, AROUND, Verdict.LUCK),
        (900.0, 300, 5, FAIR, FAIR, AROUND, Verdict.LUCK),
        (900.0, 300, 5, defined(0.95), SURE, ABOVE, Verdict.LUCK),
        (900.0, 300, 5, SURE, SURE, AROUND, Verdict.LUCK),
        (900.0, 300, 5, SURE, SURE, Interval(0.0, 1.0, 0.9), Verdict.LUCK),
        (900.0, 300, 5, SURE, FAIR, ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, defined(0.95), ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, undefined("unknown spread"), ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, SURE, ABOVE, Verdict.EDGE),
    ],
)
def test_verdict(
    net_usd: float, sessions: int, trades: int, psr: Figure, dsr: Figure, ci: Interval, expected: Verdict
) -> None:
    found = inference.verdict(net_usd=net_usd, sessions=sessions, trades=trades, psr=psr, dsr=dsr, ci=ci)
    assert found is expected


def test_verdicts_are_the_fixed_sentences() -> None:
    assert [str(verdict) for verdict in Verdict] == [
        "no trades",
        "too little data",
        "loses money after costs",
        "profit not distinguishable from luck",
        "profit significant before multiple trials only",
        "evidence of an edge",
    ]


def test_noise_is_rarely_called_an_edge() -> None:
    claimed = 0
    for seed in range(120):
        record = noise(1000 + seed, 250)
        verdict = inference.verdict(
            net_usd=float(record.sum()),
            sessions=250,
            trades=100,
            psr=inference.session_psr(record),
            dsr=inference.session_dsr(record, 1, None),
            ci=inference.stationary_bootstrap_ci(record, np.mean, draws=200),
        )
        claimed += verdict is Verdict.EDGE
    # 5 % of 120 is 6; 14 is the 99.9 % point of the binomial.
    assert claimed <= 14


def test_statistics_do_not_load_the_accelerator() -> None:
    code = "import sys, tidewalk.stats.inference, tidewalk.stats.metrics; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
