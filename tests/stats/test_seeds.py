"""Many seeds: golden values of the robust middle, intervals over sessions and seeds, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from tidewalk.core.errors import DataError
from tidewalk.stats import bootstrap, seeds
from tidewalk.stats.bootstrap import mean_rows, sharpe_rows
from tidewalk.stats.metrics import undefined

# The two score matrices of the tests of rliable (runs x tasks).
X, Y = [[1, 2], [2, 2], [1, 1], [2, 1]], [[1, 1], [2, 2], [3, 3]]


def noise(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_golden_values_of_rliable() -> None:
    for scores, middle in ((X, 1.5), (Y, 2.0)):
        assert seeds.iqm(scores).value == middle
        assert np.mean(scores) == np.median(scores) == middle
    assert seeds.probability_of_improvement(X, Y).value == pytest.approx(1 / 3)
    assert seeds.probability_of_improvement(Y, X).value == pytest.approx(2 / 3)
    assert seeds.probability_of_improvement(X, X).value == 0.5


@pytest.mark.parametrize(
    ("values", "middle", "name"),
    [
        ([0, 0, 0, 1, 2, 100], 0.75, "IQM"),
        (range(10), 4.5, "IQM"),
        ([1, 2, 300], 101.0, "mean"),  # a quarter of three is none
        ([5, 1, 1, 1], 1.0, "IQM"),
        ([7], 7.0, "mean"),
    ],
)
def test_interquartile_mean_golden(values: list[float], middle: float, name: str) -> None:
    assert seeds.iqm(list(values)).value == middle
    assert seeds.middle_name(len(values)) == name


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_is_the_trimmed_mean_of_scipy(values: list[float]) -> None:
    assert seeds.iqm(values).value == pytest.approx(trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


def test_nothing_has_no_middle() -> None:
    assert seeds.iqm([]) == undefined("no values")
    assert seeds.probability_of_improvement(np.empty((0, 2)), X) == undefined("no scores")


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_probability_of_improvement_is_the_share_of_pairs(ours: list[int], theirs: list[int]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a in ours for b in theirs]
    assert seeds.probability_of_improvement(ours, theirs).value == pytest.approx(np.mean(pairs))


def test_performance_profile_counts_what_is_above() -> None:
    assert seeds.performance_profile(X, [0, 1, 1.5, 2]).tolist() == [1.0, 0.5, 0.5, 0.0]
    with pytest.raises(DataError, match="none given"):
        seeds.performance_profile([], [0.0])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_performance_profile_never_rises(values: list[float]) -> None:
    levels = np.linspace(-101, 101, 50)
    profile = seeds.performance_profile(values, levels)
    assert (np.diff(profile) <= 0).all()
    assert profile == pytest.approx([np.mean(np.array(values) > level) for level in levels])


def test_fewer_than_five_seeds_have_no_interval() -> None:
    found = seeds.seed_interval(noise(1, (4, 100)), mean_rows)
    assert (found.low, found.reason) == (None, "4 seeds, 5 needed for an interval over seeds")
    assert seeds.seed_interval(noise(1, (5, 100)), mean_rows).low is not None
    assert seeds.seed_interval(noise(1, (5, 9)), mean_rows).reason == "fewer than 10 sessions"
    assert seeds.seed_interval(np.ones((5, 50)), mean_rows).reason == "no variance"


def test_interval_holds_both_kinds_of_luck() -> None:
    # Eight seeds with the same market and a level of their own: sessions alone would give a far narrower interval.
    market, level = noise(2, (1, 500)), 0.5 * noise(3, (8, 1))
    pnl = market + level + 0.1 * noise(4, (8, 500))
    both = seeds.seed_interval(pnl, mean_rows)
    of_time = bootstrap.stationary_bootstrap_ci(pnl.mean(axis=0), mean_rows)
    alike = seeds.seed_interval(market + 0.1 * noise(4, (8, 500)), mean_rows)
    width = (both.high or 0) - (both.low or 0)
    assert width > 2 * ((of_time.high or 0) - (of_time.low or 0))
    # Seeds that agree add nothing: the interval of the common market is left, and more seeds do not narrow it.
    assert (alike.high or 0) - (alike.low or 0) == pytest.approx((of_time.high or 0) - (of_time.low or 0), rel=0.2)
    assert (both.low or 0) < pnl.mean() < (both.high or 0)


def test_every_window_draws_its_own_seeds() -> None:
    # One level per seed and window: windows average it out, a single window cannot.
    windows = np.repeat(np.arange(10), 30)
    pnl = np.repeat(noise(5, (6, 10)), 30, axis=1) + 0.1 * noise(6, (6, 300))
    apart = seeds.seed_interval(pnl, mean_rows, windows)
    together = seeds.seed_interval(np.repeat(noise(5, (6, 1)), 300, axis=1) + 0.1 * noise(6, (6, 300)), mean_rows)
    assert (apart.high or 0) - (apart.low or 0) < 0.7 * ((together.high or 0) - (together.low or 0))
    # What a seed wins in odd sessions it loses in even ones: that cancels only if the same seed trades both.
    halves, level = np.arange(300) % 2, noise(8, (6, 1))
    mirrored = (level - level.mean()) * (2 * halves - 1) + 0.01 * noise(9, (6, 300))
    drawn, stuck = (seeds.seed_interval(mirrored, mean_rows, strata) for strata in (halves, None))
    assert (drawn.high or 0) - (drawn.low or 0) > 1.5 * ((stuck.high or 0) - (stuck.low or 0))
    names = np.array([f"window {w}" for w in windows])
    assert seeds.seed_interval(pnl, mean_rows, names) == apart
    with pytest.raises(DataError, match=r"windows: shape \(3,\) given"):
        seeds.seed_interval(pnl, mean_rows, windows[:3])


@pytest.mark.slow
def test_interval_covers_the_truth() -> None:
    # A market common to all seeds, and a level per seed, both drawn anew: 90 % intervals cover the mean of 0.
    covered = 0
    for trial in range(150):
        rng = np.random.default_rng(trial)
        pnl = rng.standard_normal((1, 250)) + 0.1 * rng.standard_normal((10, 1)) + 0.3 * rng.standard_normal((10, 250))
        found = seeds.seed_interval(pnl, mean_rows, draws=300)
        covered += (found.low or 0) <= 0.0 <= (found.high or 0)
    assert 0.80 < covered / 150 < 0.97


def test_interval_is_repeatable_and_takes_other_statistics() -> None:
    pnl = 0.1 + noise(7, (6, 200))
    assert seeds.seed_interval(pnl, sharpe_rows) == seeds.seed_interval(pnl, sharpe_rows)
    assert seeds.seed_interval(pnl, sharpe_rows) != seeds.seed_interval(pnl, sharpe_rows, seed=1)
    never = np.zeros((6, 200))
    never[0, 3] = 1.0
    assert "resamples have no such figure" in (seeds.seed_interval(never, sharpe_rows).reason or "")


def test_bad_scores_are_named() -> None:
    with pytest.raises(DataError, match="seed 1 of window 0 is nan"):
        seeds.performance_profile([1.0, math.nan], [0.0])
    with pytest.raises(DataError, match="2 windows against 1"):
        seeds.probability_of_improvement(X, [1.0, 2.0])
    with pytest.raises(DataError, match="seeds x windows"):
        seeds.probability_of_improvement(np.zeros((1, 1, 1)), X)
