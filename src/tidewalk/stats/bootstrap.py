"""Intervals from resampled session records: the stationary bootstrap, whole batches of resamples at once.

Host code. Sources: Politis and Romano (1994), The Stationary Bootstrap; Politis and White (2004), Automatic Block
Length Selection for the Dependent Bootstrap, with the correction of Patton, Politis and White (2009).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.stats.metrics import RELATIVE_ROUNDING, Record, checked_record, has_variance

# Resampled records [k, n] to a number each [k], NaN for a record that has none.
RowStatistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

MIN_SESSIONS_FOR_INTERVAL = 10
# Above this share of resamples without the statistic, the rest no longer stands for the record.
MAX_UNDEFINED_DRAWS = 0.01
_RESAMPLE_CELLS = 1_000_000


@dataclass(frozen=True)
class Interval:
    """Confidence interval of a statistic; both ends, or neither and the reason.

    `block` is the mean block length of the resampling in sessions, `draws` the number of resamples behind the ends.
    """

    low: float | None
    high: float | None
    level: float
    reason: str | None = None
    block: float | None = None
    draws: int = 0


def mean_rows(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each record `[k, n]`, shape `[k]`."""
    return samples.mean(axis=1)


def sharpe_rows(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sharpe ratio per period of each record `[k, n]`, shape `[k]`; NaN without variance, as `metrics.sharpe` says."""
    spread = samples.std(axis=1, ddof=1)
    is_level = np.ptp(samples, axis=1) <= RELATIVE_ROUNDING * np.abs(samples).max(axis=1)
    spread = np.where(is_level | (spread <= 0.0), np.nan, spread)
    return samples.mean(axis=1) / spread


def _autocovariances(record: NDArray[np.float64], lags: int) -> NDArray[np.float64]:
    """Autocovariances of lags 0 to `lags`, each over n (not n - lag), shape [lags + 1]."""
    centred = record - record.mean()
    return np.array([centred[lag:] @ centred[: centred.size - lag] for lag in range(lags + 1)]) / centred.size


def _bandwidth(rho: NDArray[np.float64], n: int, run: int) -> int:
    """Lag window: twice the lag at which the first run of insignificant autocorrelations begins.

    The paper's wording gives the lag before the run; the authors' published program and the packages that follow it
    count the first lag of the run, and so does this function, to agree with them.

    Args:
        rho: autocorrelations of lags 0, 1, ..., shape [K + 1].
        n: length of the record.
        run: how many in a row must be insignificant.
    """
    largest = rho.size - 1
    small = np.abs(rho) < 2.0 * math.sqrt(math.log10(n) / n)
    for first in range(1, largest - run + 2):
        if small[first : first + run].all():
            return min(2 * first, largest)
    return largest


def politis_white_block(x: Record, *, circular: bool = False) -> float:
    """Mean block length for the stationary bootstrap of a record, in periods, at least 1.

    The rule of Politis and White (2004) with the constant as corrected in 2009: flat-top lag window, run of
    max(5, log10 n) insignificant autocorrelations, at most min(3 sqrt n, n / 3). It is 1 (independent draws) for a
    record under 10 periods or without variance.

    Args:
        x: the record, shape [n].
        circular: the length for blocks of fixed length instead, as the paper gives both.
    """
    record = checked_record(x, "record")
    n = record.size
    if n < MIN_SESSIONS_FOR_INTERVAL or not has_variance(record):
        return 1.0
    run = max(5, math.floor(math.log10(n)))
    acov = _autocovariances(record, min(math.ceil(math.sqrt(n)) + run, n - 1))
    width = _bandwidth(acov / acov[0], n, run)
    lags = np.arange(1, width + 1)
    weighted = np.minimum(1.0, 2.0 * (1.0 - lags / width)) * acov[1 : width + 1]
    long_run = acov[0] + 2.0 * weighted.sum()
    if long_run <= 0.0:
        return 1.0
    curvature = 2.0 * (lags * weighted).sum()
    variance = (4.0 / 3.0 if circular else 2.0) * long_run**2
    block = (2.0 * n * curvature**2 / variance) ** (1.0 / 3.0)
    return float(max(1.0, min(block, math.ceil(min(3.0 * math.sqrt(n), n / 3.0)))))


def stationary_rows(rng: np.random.Generator, rows: int, n: int, block: float) -> NDArray[np.int64]:
    """Positions drawn by the stationary bootstrap, shape [rows, n]: circular runs of geometric length, mean `block`."""
    place = np.arange(n)
    begins = rng.random((rows, n)) < 1.0 / block
    starts = rng.integers(0, n, (rows, n))
    # The first place begins a run in any case: 0 is also what stands where none has begun yet.
    run_begin = np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    return (np.take_along_axis(starts, run_begin, axis=1) + place - run_begin) % n


def batches(draws: int, cells_per_draw: int) -> Iterator[int]:
    """Numbers of draws to make at once, adding up to `draws`, so that a batch stays within some megabytes."""
    at_once = max(1, _RESAMPLE_CELLS // max(1, cells_per_draw))
    for done in range(0, draws, at_once):
        yield min(at_once, draws - done)


def percentile_interval(values: NDArray[np.float64], level: float, block: float) -> Interval:
    """The middle share `level` of resampled values; undefined when over 1 % of them are not finite."""
    finite, draws = values[np.isfinite(values)], values.size
    if finite.size < (1.0 - MAX_UNDEFINED_DRAWS) * draws:
        reason = f"{draws - finite.size} of {draws} resamples have no such figure"
        return Interval(None, None, level, reason, block, finite.size)
    low, high = np.quantile(finite, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level, None, block, finite.size)


def stationary_bootstrap_ci(
    pnl: Record,
    statistic: RowStatistic,
    level: float = 0.90,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of the record, by the stationary bootstrap with the Politis-White block.

    Coverage: for the Sharpe ratio of an AR(1) record (0.3, 600 periods) the 90 % interval covers about 84 %, where
    independent draws cover 74 %. The same seed gives the same interval.

    Args:
        pnl: P&L of each session, shape [n].
        statistic: of resampled records [k, n], shape [k]: `mean_rows`, `sharpe_rows` or one of your own.
        level: share of resamples between the two ends.
        draws: resamples.
        seed: of the resampling.

    Returns:
        Undefined for fewer than 10 sessions, without variance, or when over 1 % of the resamples have no statistic.
    """
    record = checked_record(pnl)
    if record.size < MIN_SESSIONS_FOR_INTERVAL:
        return Interval(None, None, level, f"fewer than {MIN_SESSIONS_FOR_INTERVAL} sessions")
    if not has_variance(record):
        return Interval(None, None, level, "no variance")
    rng, block = np.random.default_rng(seed), politis_white_block(record)
    counts = batches(draws, record.size)
    values = [statistic(record[stationary_rows(rng, count, record.size, block)]) for count in counts]
    return percentile_interval(np.concatenate(values), level, block)


def sharpe_ci(pnl: Record, periods_per_year: float, level: float = 0.90) -> Interval:
    """Interval of the annualised Sharpe ratio of a record; as `stationary_bootstrap_ci`."""
    root = math.sqrt(periods_per_year)
    return stationary_bootstrap_ci(pnl, lambda samples: root * sharpe_rows(samples), level)
