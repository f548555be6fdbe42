"""Intervals of session records: golden block lengths, coverage, and reasons in place of ends."""

import math
import time

import arch.bootstrap
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.stats import bootstrap
from tidewalk.stats.bootstrap import mean_rows, sharpe_rows
from tidewalk.stats.metrics import sharpe


def noise(seed: int, shape: tuple[int, ...] | int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def autoregressive(shocks: np.ndarray, rho: float) -> np.ndarray:
    out = shocks.copy()
    for step in range(1, out.shape[-1]):
        out[..., step] += rho * out[..., step - 1]
    return out


def test_politis_white_golden() -> None:
    # The series and the values of arch's own test of its block lengths, stationary and circular (6 decimals).
    record = autoregressive(np.random.RandomState(0).standard_normal(10_100), 0.3)[100:]
    assert bootstrap.politis_white_block(record) == pytest.approx(13.635665, abs=5e-7)
    assert bootstrap.politis_white_block(record, circular=True) == pytest.approx(15.608940, abs=5e-7)


@pytest.mark.parametrize(("rho", "n"), [(0.0, 250), (0.3, 600), (0.8, 2000), (-0.4, 400)])
def test_block_lengths_are_those_of_arch(rho: float, n: int) -> None:
    record = autoregressive(noise(21, n), rho)
    theirs = arch.bootstrap.optimal_block_length(record)
    for name, is_circular in (("stationary", False), ("circular", True)):
        ours = bootstrap.politis_white_block(record, circular=is_circular)
        assert ours == pytest.approx(max(1.0, float(theirs[name].iloc[0])), rel=1e-9)


@pytest.mark.parametrize(
    ("large", "width"),
    [([], 2), ([1], 4), ([1, 2], 6), ([2], 6), ([7], 2), ([6], 2), ([5], 12), (range(1, 20), 20)],
)
def test_lag_window_is_twice_the_first_lag_of_five_small_ones(large: list[int], width: int) -> None:
    rho = np.zeros(21)
    rho[[0, *large]] = 0.9
    assert bootstrap._bandwidth(rho, 400, 5) == width


def test_block_is_short_on_noise_and_grows_with_memory() -> None:
    blocks = [bootstrap.politis_white_block(autoregressive(noise(5, 2000), rho)) for rho in (0.0, 0.3, 0.7, 0.9)]
    assert blocks[0] < 8
    assert blocks == sorted(blocks)
    assert blocks[-1] <= math.ceil(3 * math.sqrt(2000))


@given(st.lists(st.integers(-1000, 1000), max_size=80))
def test_block_is_always_usable(record: list[int]) -> None:
    block = bootstrap.politis_white_block(np.array(record, float))
    assert 1.0 <= block <= max(1, math.ceil(min(3 * math.sqrt(len(record)), len(record) / 3)))


def test_block_of_degenerate_records_is_one() -> None:
    for record in ([], [1.0] * 50, noise(1, 9)):
        assert bootstrap.politis_white_block(record) == 1.0


def test_interval_is_repeatable_and_moves_with_the_seed() -> None:
    record = noise(2, 300)
    first = bootstrap.stationary_bootstrap_ci(record, mean_rows)
    assert first == bootstrap.stationary_bootstrap_ci(record, mean_rows)
    assert first != bootstrap.stationary_bootstrap_ci(record, mean_rows, seed=1)
    assert (first.draws, first.level, first.reason) == (2000, 0.90, None)


def test_interval_of_the_mean_has_the_width_of_theory() -> None:
    record = noise(11, 900)
    found = bootstrap.stationary_bootstrap_ci(record, mean_rows, draws=4000)
    assert found.low is not None
    assert found.high is not None
    assert found.low < record.mean() < found.high
    assert found.high - found.low == pytest.approx(2 * 1.645 * record.std() / 30, rel=0.15)
    wider = bootstrap.stationary_bootstrap_ci(record, mean_rows, level=0.99, draws=4000)
    assert (wider.high or 0) - (wider.low or 0) > 1.3 * (found.high - found.low)


def test_interval_of_the_sharpe_covers_under_autocorrelation(monkeypatch: pytest.MonkeyPatch) -> None:
    # AR(1) .3, 600 sessions, 90 % interval: an independent bootstrap covers 74 %, a stationary one about 84 %.
    records = autoregressive(noise(13, (160, 700)), 0.3)[:, 100:] + 0.1
    truth = 0.1 * math.sqrt(1 - 0.09)

    def coverage() -> float:
        found = [bootstrap.stationary_bootstrap_ci(record, sharpe_rows, draws=200) for record in records]
        return sum((interval.low or 0) <= truth <= (interval.high or 0) for interval in found) / len(found)

    covered = coverage()
    assert 0.80 < covered < 0.95
    monkeypatch.setattr(bootstrap, "politis_white_block", lambda _: 1.0)
    assert coverage() < covered - 0.04


def test_resampling_keeps_neighbours_together() -> None:
    # In the record 0, 1, ..., n - 1 the mean length of unbroken runs is the block length (golden seed, 5 % tolerance).
    rows = bootstrap.stationary_rows(np.random.default_rng(0), 400, 500, 10.0)
    breaks = (np.diff(rows, axis=1) % 500 != 1).mean()
    assert 1 / breaks == pytest.approx(10.0, rel=0.05)
    assert rows.min() == 0
    assert rows.max() == 499
    counts = np.bincount(rows.ravel(), minlength=500)
    assert counts.std() / counts.mean() < 0.2


def test_large_records_are_resampled_in_pieces_with_the_same_number_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_RESAMPLE_CELLS", 3_000)
    assert list(bootstrap.batches(70, 100)) == [30, 30, 10]
    assert list(bootstrap.batches(2, 5_000)) == [1, 1]
    assert bootstrap.stationary_bootstrap_ci(noise(1, 100), mean_rows, draws=70).draws == 70


def test_interval_is_undefined_with_a_reason() -> None:
    assert bootstrap.stationary_bootstrap_ci([1.0, 2.0], mean_rows).reason == "fewer than 10 sessions"
    assert bootstrap.stationary_bootstrap_ci([1.0] * 40, mean_rows).reason == "no variance"
    one_trade = np.zeros(40)
    one_trade[7] = 100.0
    found = bootstrap.stationary_bootstrap_ci(one_trade, sharpe_rows)
    assert (found.low, found.high) == (None, None)
    assert "of 2000 resamples have no such figure" in (found.reason or "")


def test_statistics_of_rows_are_those_of_single_records() -> None:
    samples = np.stack([noise(seed, 30) for seed in range(5)])
    assert sharpe_rows(samples) == pytest.approx([sharpe(sample, 1).value for sample in samples], abs=1e-12)
    assert mean_rows(samples) == pytest.approx([sample.mean() for sample in samples], abs=1e-12)
    level = np.array([[0.0] * 9, [0.1] * 9, [0.1 + 0.2, *[0.3] * 8]])
    assert np.isnan(sharpe_rows(level)).all()
    assert all(sharpe(row, 1).value is None for row in level)


def test_interval_of_the_sharpe_scales_with_the_year() -> None:
    record = noise(4, 200)
    per_session, per_year = bootstrap.sharpe_ci(record, 1.0), bootstrap.sharpe_ci(record, 252.0)
    assert per_year.low == pytest.approx((per_session.low or 0) * math.sqrt(252))
    assert per_year.high == pytest.approx((per_session.high or 0) * math.sqrt(252))


@pytest.mark.bench
def test_figures_of_many_sessions_are_quick() -> None:
    start = time.perf_counter()
    assert bootstrap.sharpe_ci(noise(1, 5_000), 252.0).draws == 2000
    assert time.perf_counter() - start < 5.0  # 0.2 s on an idle core
