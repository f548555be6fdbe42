"""Many seeds, one answer: what a training run earns whatever its seed, and how sure that is.

Host code. Scores stand as a matrix `[S, W]`: a row per seed, a column per window. A single seed is an anecdote, the
best of several a selection; the middle of all of them is a result.

Source: Agarwal, Schwarzer, Castro, Courville and Bellemare (2021), Deep Reinforcement Learning at the Edge of the
Statistical Precipice.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.stats.bootstrap import (
    MIN_SESSIONS_FOR_INTERVAL,
    Interval,
    RowStatistic,
    batches,
    percentile_interval,
    politis_white_block,
    stationary_rows,
)
from tidewalk.stats.metrics import Figure, Record, checked_record, defined, has_variance, undefined

Scores = NDArray[np.float64]

MIN_SEEDS_FOR_INTERVAL = 5
# A quarter of fewer values is none of them: nothing is cut.
MIN_VALUES_FOR_IQM = 4


def checked_scores(scores: Any, name: str = "scores") -> Scores:
    """The scores as a float64 matrix `[S, W]`; one dimension is taken as one window.

    Raises:
        DataError: more than two dimensions, NaN or infinity.
    """
    matrix = np.asarray(scores, dtype=np.float64)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2:
        raise DataError(f"{name}: shape {matrix.shape} given, needed are seeds x windows")
    if not np.isfinite(matrix).all():
        seed, window = (int(index) for index in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(f"{name}: seed {seed} of window {window} is {matrix[seed, window]}; leave the seed out")
    return matrix


def middle_name(count: int) -> str:
    """What `iqm` of so many values is to be called: with fewer than 4 nothing is trimmed, and it is a mean."""
    return "IQM" if count >= MIN_VALUES_FOR_IQM else "mean"


def iqm(scores: Any) -> Figure:
    """Interquartile mean of all values: the mean of the middle half, over seeds and windows together.

    Args:
        scores: any shape; every value counts alike.

    Returns:
        Undefined without values. `middle_name` says what to call it.
    """
    values = np.asarray(scores, dtype=np.float64).ravel()
    return defined(_middle_rows(values[None])[0]) if values.size else undefined("no values")


def _middle_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interquartile mean of each row `[k, S]`: a quarter, in whole values, is cut at both ends; NaN if a value is."""
    cut = values.shape[1] // 4
    middle = np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1)
    return np.where(np.isfinite(values).all(axis=1), middle, np.nan)


def probability_of_improvement(ours: Any, theirs: Any) -> Figure:
    """Probability that a seed of ours beats a seed of theirs, mean over windows; equal scores count half.

    Args:
        ours: scores `[S, W]`.
        theirs: scores `[R, W]` in the same windows.

    Raises:
        DataError: the windows differ in number.
    """
    x, y = checked_scores(ours), checked_scores(theirs, "scores compared with")
    if x.shape[1] != y.shape[1]:
        raise DataError(f"scores: {x.shape[1]} windows against {y.shape[1]}; both need the same ones")
    if not x.size or not y.size:
        return undefined("no scores")
    pairs = np.sign(x[:, None, :] - y[None, :, :])  # 1 where ours is ahead, 0 where they are equal, -1 behind
    return defined((1.0 + pairs.mean()) / 2.0)


def performance_profile(scores: Any, thresholds: Record) -> NDArray[np.float64]:
    """Share of all seeds and windows that score above each threshold, shape [thresholds], never rising.

    Raises:
        DataError: there are no scores.
    """
    values, levels = checked_scores(scores).ravel(), checked_record(thresholds, "thresholds")
    if not values.size:
        raise DataError("scores: none given; a profile needs at least one")
    return 1.0 - np.searchsorted(np.sort(values), levels, side="right") / values.size


def seed_interval(
    pnl: NDArray[Any],
    statistic: RowStatistic,
    windows: NDArray[Any] | None = None,
    *,
    level: float = 0.90,
    draws: int = 1000,
    seed: int = 0,
) -> Interval:
    """Interval of the interquartile mean over seeds of a statistic, by resampling time blocks and seeds together.

    Two levels: the sessions are drawn in blocks, the same for all seeds, since all meet the same market; in every
    window the seeds are drawn anew, since each window trains its own. An interval over sessions alone says nothing of
    the luck in training, one over seeds alone nothing of the luck in the market.

    Args:
        pnl: P&L of each seed in each session, shape `[S, T]`.
        statistic: of records `[k, T]`, shape [k]: `bootstrap.mean_rows`, `bootstrap.sharpe_rows` or one of your own.
        windows: number of the window of each session, shape [T]; None takes all sessions as one window.
        level: share of resamples between the two ends.
        draws: resamples.
        seed: of the resampling.

    Returns:
        Undefined with fewer than 5 seeds or 10 sessions, or when no seed has variance.
    """
    records = checked_scores(pnl, "P&L of the seeds")
    seeds, sessions = records.shape
    if seeds < MIN_SEEDS_FOR_INTERVAL:
        reason = f"{counted(seeds, 'seed')}, {MIN_SEEDS_FOR_INTERVAL} needed for an interval over seeds"
        return Interval(None, None, level, reason)
    if sessions < MIN_SESSIONS_FOR_INTERVAL:
        return Interval(None, None, level, f"fewer than {MIN_SESSIONS_FOR_INTERVAL} sessions")
    middle = records.mean(axis=0)
    if not has_variance(records.ravel()):
        return Interval(None, None, level, "no variance")
    stratum = np.zeros(sessions, np.int64) if windows is None else np.unique(windows, return_inverse=True)[1]
    if stratum.shape != (sessions,):
        raise DataError(f"windows: shape {stratum.shape} given, one number for each of {sessions} sessions needed")
    rng, block = np.random.default_rng(seed), politis_white_block(middle)
    values: list[NDArray[np.float64]] = []
    for count in batches(draws, seeds * sessions):
        chosen = rng.integers(0, seeds, (count, seeds, int(stratum.max()) + 1))[:, :, stratum]
        rows = stationary_rows(rng, count, sessions, block)[:, None, :]
        sampled = records[np.take_along_axis(chosen, np.broadcast_to(rows, chosen.shape), axis=2), rows]
        found = statistic(sampled.reshape(count * seeds, sessions)).reshape(count, seeds)
        values.append(_middle_rows(found))
    return percentile_interval(np.concatenate(values), level, block)
