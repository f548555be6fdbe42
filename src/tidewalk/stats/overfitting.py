"""Was the best of many configurations only the luckiest? Measures over the session records of all that were tried.

Host code. Records stand as a matrix `[T, N]`: a row per session, a column per configuration, all on the same sessions.

Sources: Bailey, Borwein, Lopez de Prado and Zhu (2017), The Probability of Backtest Overfitting (CSCV); Hansen (2005),
A Test for Superior Predictive Ability; Romano and Wolf (2005), Stepwise Multiple Testing as Formalized Data Snooping;
Roy and Vetterli (2007), The Effective Rank.
"""

import itertools
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.stats.bootstrap import politis_white_block
from tidewalk.stats.metrics import RELATIVE_ROUNDING, Figure, Record, checked_record, defined, undefined

Matrix = NDArray[np.float64]
Metric = Literal["sharpe", "mean"]

MAX_BLOCKS = 16
MIN_SESSIONS_PER_BLOCK = 10
MIN_BLOCKS = 4
NULL_DRAWS = 200
# Pairs of halves that each draw of the null band looks at: enough for two digits, a tenth of all with 16 blocks.
NULL_PAIRS = 600
SPA_DRAWS = 1000
SPA_SIZE = 0.05


@dataclass(frozen=True)
class Pbo:
    """Probability of backtest overfitting and what it is worth.

    Attributes:
        value: share of the splits in which the best configuration of one half ranks at or below the middle of the
            other half (logit of its rank at or below 0, as in the paper).
        lambdas: the logit of each split, shape [splits].
        null90: the 5 % and 95 % points of `value` for records without skill that are as long, as many, as wild and as
            alike as these. Inside this band the value proves nothing.
        slope: least-squares slope, over the splits, of the best one's figure in the other half on that in its own.
        prob_oos_loss: share of the splits in which the best one loses money in the other half.
        blocks: pieces that the sessions were cut into.
    """

    value: Figure
    lambdas: NDArray[np.float64]
    null90: tuple[float, float] | None = None
    slope: float | None = None
    prob_oos_loss: float | None = None
    blocks: int = 0


@dataclass(frozen=True)
class Spa:
    """p-values of Hansen's test that no configuration beats the benchmark, or the reason why there are none.

    `consistent` is the one to use; `lower` and `upper` bound it. `superior` lists the columns that beat the benchmark
    by the stepwise test at 5 %, in order.
    """

    lower: float | None
    consistent: float | None
    upper: float | None
    superior: tuple[int, ...] = ()
    reason: str | None = None


def checked_matrix(returns: NDArray[Any]) -> Matrix:
    """The records as a float64 matrix `[T, N]`.

    Raises:
        DataError: other than two dimensions, no configuration, NaN or infinity.
    """
    matrix = np.asarray(returns, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise DataError(f"records: shape {matrix.shape} given, needed are sessions x configurations, one at least")
    if not np.isfinite(matrix).all():
        row, column = (int(index) for index in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(f"records: session {row} of configuration {column} is {matrix[row, column]}; cut to the common")
    return matrix


def varies(matrix: Matrix) -> NDArray[np.bool_]:
    """Whether each configuration's record `[T]` has variance beyond rounding, shape [N]."""
    return np.ptp(matrix, axis=0) > RELATIVE_ROUNDING * np.abs(matrix).max(axis=0)


def effective_trials(returns: NDArray[Any]) -> Figure:
    """How many independent configurations these are worth: the effective rank of their correlation matrix.

    exp of the entropy of the eigenvalues, each over their sum: N for uncorrelated records, 1 for copies of one. It is
    shown beside the number of trials and never put in its place, because it is an estimate and the number is a fact.

    Returns:
        Undefined for fewer than 3 sessions, or when no record has variance. Records without variance add nothing.
    """
    matrix = checked_matrix(returns)
    if matrix.shape[0] < 3:
        return undefined("fewer than 3 sessions")
    moving = matrix[:, varies(matrix)]
    if moving.shape[1] == 0:
        return undefined("no configuration has variance")
    if moving.shape[1] == 1:
        return defined(1.0)
    shares = np.clip(np.linalg.eigvalsh(np.corrcoef(moving, rowvar=False)), 0.0, None)
    shares /= shares.sum()
    return defined(math.exp(-xlogy(shares, shares).sum()))


def distinct(matrix: Matrix, metric: Metric = "sharpe") -> Matrix:
    """The configurations that can be ranked: those with variance, copies once, shape `[T, n]`.

    A record that never moves has no figure to rank, and a copy ties with its original in every half: two of them would
    stand at the middle of each other and show a PBO of 1 for nothing. A multiple of a record has its Sharpe ratio.
    """
    moving = matrix[:, varies(matrix)]
    size = np.abs(moving).sum(axis=0) if metric == "sharpe" else np.abs(moving).sum()
    first = np.unique(np.round(moving / size * len(matrix), 9), axis=1, return_index=True)[1]
    return moving[:, np.sort(first)]


@dataclass(frozen=True)
class _Cut:
    """Sums over each block of sessions, from which the figures of every half follow.

    Attributes:
        counts: sessions of each block, shape [blocks].
        sums: of the records less their `centre`, shape [blocks, N].
        squares: of the same, squared, shape [blocks, N].
        centre: mean of each record, taken off so that the squares stay exact, shape [N].
        metric: what is best.
    """

    counts: NDArray[np.float64]
    sums: Matrix
    squares: Matrix
    centre: NDArray[np.float64]
    metric: Metric


def _halves(blocks: int) -> NDArray[np.float64]:
    """Every choice of half the blocks as 0 and 1, shape [splits, blocks]; the complement of the first is the last."""
    chosen = np.array(list(itertools.combinations(range(blocks), blocks // 2)))
    halves = np.zeros((len(chosen), blocks))
    np.put_along_axis(halves, chosen, 1.0, axis=1)
    return halves


def _figures(halves: NDArray[np.float64], cut: _Cut) -> Matrix:
    """Mean or Sharpe ratio (ddof 1) of each configuration in each half, [splits, N]."""
    counts, sums = (halves @ cut.counts)[:, None], halves @ cut.sums
    mean = sums / counts
    if cut.metric == "mean":
        return mean + cut.centre
    squares = halves @ cut.squares
    left = squares - sums * mean
    # A half in which a configuration did not trade is no evidence for it, and none against it.
    is_level = left <= RELATIVE_ROUNDING * squares
    deviation = np.sqrt(np.where(is_level, 1.0, left) / (counts - 1.0))
    return np.where(is_level, 0.0, (mean + cut.centre) / deviation)


def _ranked(figures: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Logit of the rank that each half's best has in the other half, and its figure in its own and in the other."""
    other, splits = figures[::-1], np.arange(len(figures))
    best = figures.argmax(axis=1)
    own, out = figures[splits, best], other[splits, best]
    # Ties share their ranks: half of those that are equal, itself apart, stand below.
    below = (other < out[:, None]).sum(axis=1) + 0.5 * ((other == out[:, None]).sum(axis=1) - 1)
    share = (below + 1.0) / (figures.shape[1] + 1.0)
    return np.log(share / (1.0 - share)), own, out


def _null_band(centred: Matrix, edges: NDArray[np.int64], cut: _Cut, seed: int) -> tuple[float, float]:
    """5 % and 95 % points of the PBO of the centred records with every session's row times a random sign."""
    rng, halves = np.random.default_rng(seed), _halves(len(cut.counts))
    if len(halves) > 2 * NULL_PAIRS:
        first = np.sort(rng.choice(len(halves) // 2, NULL_PAIRS, replace=False))
        halves = halves[np.concatenate([first, len(halves) - 1 - first[::-1]])]
    signs = rng.choice([-1.0, 1.0], (NULL_DRAWS, len(centred)))
    drawn = np.stack([signs[:, a:b] @ centred[a:b] for a, b in itertools.pairwise(edges)], axis=1)
    nulls = (replace(cut, sums=sums, centre=np.zeros_like(cut.centre)) for sums in drawn)
    found = [(_ranked(_figures(halves, null))[0] <= 0.0).mean() for null in nulls]
    low, high = np.quantile(found, [0.05, 0.95])
    return float(low), float(high)


def default_blocks(sessions: int) -> int:
    """The largest even number of blocks up to 16 with at least 10 sessions in each; under 4 there is no measure."""
    return min(MAX_BLOCKS, sessions // MIN_SESSIONS_PER_BLOCK // 2 * 2)


def pbo(returns: NDArray[Any], blocks: int | None = None, metric: Metric = "sharpe", *, seed: int = 0) -> Pbo:
    """Probability of backtest overfitting by combinatorially symmetric cross-validation.

    The sessions are cut into an even number of blocks; for every choice of half of them, the configuration that is
    best there is looked up in the other half. A small value says that the ranking lasts, not that anything is earned.

    The null band comes from the records themselves: centred, and every session's row multiplied by a random sign, which
    leaves no skill, keeps how alike the configurations are and how wild the sessions, and drops autocorrelation. On
    independent noise (500 sessions, 50 configurations, 8 blocks) it is about 0.2 to 0.8: one PBO of 0.2 proves nothing.
    Records without variance, and copies of others, take no part.

    Args:
        returns: records `[T, N]`, sessions by configurations; transposed ones give another number without complaint.
        blocks: even number of blocks; by default the most, up to 16, that leave 10 sessions in each.
        metric: what is best: Sharpe ratio (ddof 1) or mean.
        seed: of the null band.

    Returns:
        Undefined with fewer than two configurations that differ, too few sessions for 4 blocks, or, where the blocks
        are not given, so few of both that the null band begins at 0: then no value could be told from noise.

    Raises:
        DataError: the number of blocks is odd, not within 2 to 16, or leaves fewer than 2 sessions in a block.
    """
    given = checked_matrix(returns)
    matrix = distinct(given, metric)
    sessions, count = matrix.shape
    pieces = default_blocks(sessions) if blocks is None else blocks
    if reason := _nothing_ranked(given, count):
        return Pbo(undefined(reason), np.empty(0))
    if blocks is None and pieces < MIN_BLOCKS:
        needed = MIN_BLOCKS * MIN_SESSIONS_PER_BLOCK
        return Pbo(undefined(f"{counted(sessions, 'session')}, {needed} needed"), np.empty(0))
    if pieces % 2 or not 2 <= pieces <= MAX_BLOCKS or sessions < 2 * pieces:
        raise DataError(
            f"blocks: {pieces} given for {sessions} sessions; an even number from 2 to {MAX_BLOCKS} is needed, with 2 "
            "sessions or more in each"
        )
    edges = np.linspace(0, sessions, pieces + 1).astype(np.int64)
    centre = matrix.mean(axis=0)
    centred = matrix - centre
    sums, squares = (np.add.reduceat(part, edges[:-1], axis=0) for part in (centred, centred**2))
    cut = _Cut(np.diff(edges).astype(np.float64), sums, squares, centre, metric)
    lambdas, own, out = _ranked(_figures(_halves(pieces), cut))
    spread = float(np.square(own - own.mean()).sum())
    slope = float(((own - own.mean()) * (out - out.mean())).sum() / spread) if spread > 0 else None
    band = _null_band(centred, edges, cut, seed)
    if blocks is None and band[0] <= 0.0:
        known = f"{counted(count, 'configuration')} over {counted(sessions, 'session')}"
        reason = f"{known} are too few: noise gives 0.00 to {band[1]:.2f}"
        return Pbo(undefined(reason), lambdas)
    return Pbo(defined((lambdas <= 0.0).mean()), lambdas, band, slope, float((out < 0).mean()), pieces)


def _nothing_ranked(given: Matrix, count: int) -> str | None:
    """Why there is nothing to rank with so many distinct configurations; None where there is."""
    if given.shape[1] == 1:
        return "a single configuration: nothing was selected"
    if count == 0:
        return f"none of {counted(given.shape[1], 'configuration')} has variance"
    if count == 1:
        return f"only 1 of {given.shape[1]} configurations can be ranked: the others copy it or have no variance"
    return None


def spa(returns: NDArray[Any], benchmark: Record, *, draws: int = SPA_DRAWS, seed: int = 0) -> Spa:
    """Hansen's test of superior predictive ability: is the best configuration better than the benchmark by luck alone?

    The null says that no configuration beats the benchmark in the mean. Computed by `arch`: differences are studentised
    and resampled by the stationary bootstrap, with the median Politis-White block of the differences.

    Args:
        returns: records `[T, N]`, sessions by configurations.
        benchmark: record of the benchmark on the same sessions, shape [T]; zeros stand for doing nothing.
        draws: resamples.
        seed: of the resampling.

    Returns:
        Undefined under 40 sessions, when every configuration is the benchmark, or where arch is not installed.
        Configurations that differ from the benchmark by a constant or not at all take no part.

    Raises:
        DataError: the benchmark has another number of sessions.
    """
    matrix, base = checked_matrix(returns), checked_record(benchmark, "benchmark")
    if base.size != matrix.shape[0]:
        raise DataError(f"benchmark: {base.size} sessions against {matrix.shape[0]}; both need the same ones")
    needed = MIN_BLOCKS * MIN_SESSIONS_PER_BLOCK
    if base.size < needed:
        return Spa(None, None, None, reason=f"{counted(base.size, 'session')}, {needed} needed")
    differences = matrix - base[:, None]
    apart = np.flatnonzero(varies(differences))
    if not apart.size:
        return Spa(None, None, None, reason="no configuration differs from the benchmark")
    block = max(1, round(float(np.median([politis_white_block(differences[:, column]) for column in apart]))))
    # In the unit of one session's usual difference, so that nothing depends on the size of the account.
    losses = -differences[:, apart] / np.abs(differences[:, apart]).mean()
    none = np.zeros(base.size)
    try:
        test, stepwise = _arch()
    except ImportError as error:  # of a finished study, one figure may be missing, not all
        return Spa(None, None, None, reason=f"the package arch cannot be loaded ({error})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arch's own; what is undefined was sorted out above
        result = test(none, losses, block_size=block, reps=draws, seed=np.random.default_rng(seed))
        result.compute()
        lower, consistent, upper = (float(result.pvalues[name]) for name in ("lower", "consistent", "upper"))
        if consistent > SPA_SIZE:
            return Spa(lower, consistent, upper)
        steps = stepwise(none, losses, size=SPA_SIZE, block_size=block, reps=draws, seed=np.random.default_rng(seed))
        steps.compute()
    return Spa(lower, consistent, upper, tuple(int(apart[index]) for index in steps.superior_models))


def _arch() -> tuple[Any, Any]:
    """SPA and StepM of `arch`, loaded where they are needed: it brings pandas and statsmodels along."""
    from arch.bootstrap import SPA, StepM

    return SPA, StepM
