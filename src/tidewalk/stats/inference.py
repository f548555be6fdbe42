"""Is a Sharpe ratio more than luck? Standard errors, probabilistic and deflated Sharpe, bootstrap, verdict.

Host code. Ratios are *per period* (per session), never annualised, unless a name says otherwise; kurtosis is the plain
one, 3 for a normal distribution.

Sources: Lo (2002), The Statistics of Sharpe Ratios; Bailey and Lopez de Prado (2012), The Sharpe Ratio Efficient
Frontier (PSR, MinTRL); the same (2014), The Deflated Sharpe Ratio; Bailey, Borwein, Lopez de Prado and Zhu (2014),
Pseudo-Mathematics and Financial Charlatanism (MinBTL); Politis and Romano (1994), The Stationary Bootstrap; Politis and
White (2004) with the correction of Patton, Politis and White (2009).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tidewalk.core.errors import DataError
from tidewalk.stats.metrics import Figure, Record, checked_record, defined, has_variance, sharpe, undefined

# A resampled record [n] to a number; a `Figure` without value, or None, where the record has no such number.
Statistic = Callable[[NDArray[np.float64]], float | Figure | None]

GATE = 0.95
MIN_SESSIONS_FOR_VERDICT = 20
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


class Verdict(StrEnum):
    """All that may be said about an out-of-sample record."""

    NO_TRADES = "no trades"
    TOO_LITTLE_DATA = "too little data"
    LOSES = "loses money after costs"
    LUCK = "profit not distinguishable from luck"
    BEFORE_TRIALS = "profit significant before multiple trials only"
    EDGE = "evidence of an edge"


def skew_kurt(pnl: Record) -> tuple[float, float]:
    """Skewness and plain kurtosis of a record, both as population moments (biased), as the papers use them.

    Raises:
        DataError: the record has no variance, so neither exists.
    """
    record = checked_record(pnl)
    if not has_variance(record):
        raise DataError("skewness and kurtosis: the record has no variance; ask for its Sharpe ratio first")
    scaled = (record - record.mean()) / record.std()
    return float((scaled**3).mean()), float((scaled**4).mean())


def _spread(sr: float, skew: float, kurt: float) -> float:
    """Variance of the Sharpe estimate times (n - 1); it can reach 0 only for two-point records."""
    return 1.0 - skew * sr + (kurt - 1.0) / 4.0 * sr**2


def sharpe_se(sr: float, n: int, skew: float, kurt: float) -> Figure:
    """Standard error of a Sharpe ratio per period.

    Args:
        sr: Sharpe ratio per period.
        n: periods.
        skew: skewness.
        kurt: plain kurtosis, 3 for normal.

    Returns:
        sqrt((1 - skew sr + (kurt - 1) sr^2 / 4) / (n - 1)); undefined for n < 3 or where that is not positive.
    """
    if n < 3:
        return undefined("fewer than 3 sessions")
    spread = _spread(sr, skew, kurt)
    return defined(math.sqrt(spread / (n - 1))) if spread > 0 else undefined("the moments give no standard error")


def psr(sr: float, n: int, skew: float, kurt: float, sr_star: float = 0.0) -> Figure:
    """Probabilistic Sharpe ratio: probability that the true ratio is above `sr_star`, given one look at the data.

    Says nothing about how many configurations were tried: the best of 50 noise strategies passes 0.95 in 94 % of cases.
    """
    error = sharpe_se(sr, n, skew, kurt)
    return error if error.value is None else defined(ndtr((sr - sr_star) / error.value))


def min_trl(sr: float, skew: float, kurt: float, sr_star: float = 0.0, confidence: float = GATE) -> Figure:
    """Minimum track record length: periods after which `sr` exceeds `sr_star` at the confidence, were it to persist.

    Returns:
        Undefined when `sr` does not exceed `sr_star` (no length would do).
    """
    if sr <= sr_star:
        return undefined("the Sharpe ratio is not above the one it has to beat")
    return defined(1.0 + _spread(sr, skew, kurt) * (ndtri(confidence) / (sr - sr_star)) ** 2)


def _max_multiplier(n_trials: int) -> float:
    """Approximate expected maximum of `n_trials` standard normals (0 for one)."""
    if n_trials < 1:
        raise DataError(f"number of trials: {n_trials} given, at least 1 needed; record the trial before deflating it")
    if n_trials == 1:
        return 0.0
    one_in_n, one_in_ne = ndtri(1.0 - 1.0 / n_trials), ndtri(1.0 - 1.0 / (n_trials * math.e))
    return float((1.0 - np.euler_gamma) * one_in_n + np.euler_gamma * one_in_ne)


def expected_max_sharpe(n_trials: int, sd: float) -> float:
    """Sharpe ratio that the best of `n_trials` without any skill is expected to show.

    Args:
        n_trials: independent trials.
        sd: standard deviation of the trials' Sharpe ratios, in the unit (per session or per year) of the result.
    """
    return sd * _max_multiplier(n_trials)


def dsr(sr: float, n: int, skew: float, kurt: float, n_trials: int, sd_trials: float | None) -> Figure:
    """Deflated Sharpe ratio as defined in 2014: the PSR against the expected maximum of the trials.

    Size on noise: the gate "above 0.95" is far stricter than 5 %. It lets through 0 to 0.3 % of best-of-N noise records
    (5, 20, 50 and 200 independent trials, 500 periods), where `sidak_p` < 0.05 lets through 5 %.

    Args:
        sr: Sharpe ratio per period.
        n: periods.
        skew: skewness.
        kurt: plain kurtosis, 3 for normal.
        n_trials: configurations ever evaluated on these data; correlated ones are counted in full, which errs on the
            strict side.
        sd_trials: standard deviation of their Sharpe ratios *per period*; None when unknown.

    Returns:
        With one trial, the PSR against 0. Undefined when there are more trials but their spread is unknown.
    """
    if n_trials > 1 and sd_trials is None:
        return undefined(f"the spread of the Sharpe ratios of {n_trials} trials is not known")
    return psr(sr, n, skew, kurt, expected_max_sharpe(n_trials, sd_trials or 0.0))


def sidak_p(psr_value: float, n_trials: int) -> float:
    """Probability that the best of `n_trials` independent noise records reaches this PSR (Sidak's adjustment)."""
    return 1.0 - psr_value**n_trials


def min_btl(n_trials: int, target_sharpe_per_year: float = 1.0) -> float:
    """Minimum backtest length in years: below it, `n_trials` without skill are expected to show the target Sharpe."""
    return (_max_multiplier(n_trials) / target_sharpe_per_year) ** 2


def lo_eta(q: int, autocorrelations: Record) -> float:
    """Factor from the Sharpe ratio per period to that of q periods, given autocorrelation; sqrt(q) without any.

    Args:
        q: periods to add up.
        autocorrelations: of lags 1, 2, ..., shape [K]; lags beyond K count as 0.
    """
    rho = np.asarray(autocorrelations, dtype=np.float64)[: q - 1]
    lags = np.arange(1, rho.size + 1)
    return float(q / np.sqrt(q + 2.0 * ((q - lags) * rho).sum()))


def session_psr(pnl: Record, sr_star: float = 0.0) -> Figure:
    """PSR of a session P&L record against `sr_star` per session; undefined where the Sharpe ratio is."""
    ratio = sharpe(pnl, 1.0)
    return ratio if ratio.value is None else psr(ratio.value, len(pnl), *skew_kurt(pnl), sr_star)


def session_dsr(pnl: Record, n_trials: int, sd_trials: float | None) -> Figure:
    """DSR of a session P&L record; `n_trials` and `sd_trials` (per session) as the ledger of trials counts them."""
    ratio = sharpe(pnl, 1.0)
    return ratio if ratio.value is None else dsr(ratio.value, len(pnl), *skew_kurt(pnl), n_trials, sd_trials)


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


def politis_white_block(x: Record) -> float:
    """Mean block length for the stationary bootstrap of a record, in periods, at least 1.

    The rule of Politis and White (2004) with the constant as corrected in 2009: flat-top lag window, run of
    max(5, log10 n) insignificant autocorrelations, at most min(3 sqrt n, n / 3). It is 1 (independent draws) for a
    record under 10 periods or without variance.
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
    block = (n * curvature**2 / long_run**2) ** (1.0 / 3.0)
    return float(max(1.0, min(block, math.ceil(min(3.0 * math.sqrt(n), n / 3.0)))))


def _stationary_rows(rng: np.random.Generator, rows: int, n: int, block: float) -> NDArray[np.int64]:
    """Positions drawn by the stationary bootstrap, shape [rows, n]: circular runs of geometric length, mean `block`."""
    place = np.arange(n)
    begins = rng.random((rows, n)) < 1.0 / block
    starts = rng.integers(0, n, (rows, n))
    # The first place begins a run in any case: 0 is also what stands where none has begun yet.
    run_begin = np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    return (np.take_along_axis(starts, run_begin, axis=1) + place - run_begin) % n


def _resample(record: NDArray[np.float64], statistic: Statistic, *, draws: int, block: float, seed: int) -> list[float]:
    """Statistic of each resample that has one."""
    rng = np.random.default_rng(seed)
    rows_at_once = max(1, _RESAMPLE_CELLS // record.size)
    values: list[float] = []
    for done in range(0, draws, rows_at_once):
        rows = min(rows_at_once, draws - done)
        found = [statistic(record[row]) for row in _stationary_rows(rng, rows, record.size, block)]
        plain = [value.value if isinstance(value, Figure) else value for value in found]
        values += [float(value) for value in plain if value is not None and math.isfinite(value)]
    return values


def stationary_bootstrap_ci(
    pnl: Record,
    statistic: Statistic,
    level: float = 0.90,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of the record, by the stationary bootstrap with the Politis-White block.

    Coverage: for the Sharpe ratio of an AR(1) record (0.3, 600 periods) the 90 % interval covers about 84 %. The same
    seed gives the same interval.

    Args:
        pnl: P&L of each session, shape [n].
        statistic: function of a resampled record [n], giving a number, a `Figure`, or None.
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
    block = politis_white_block(record)
    values = _resample(record, statistic, draws=draws, block=block, seed=seed)
    if len(values) < (1.0 - MAX_UNDEFINED_DRAWS) * draws:
        reason = f"{draws - len(values)} of {draws} resamples have no such figure"
        return Interval(None, None, level, reason, block, len(values))
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level, None, block, len(values))


def verdict(*, net_usd: float, sessions: int, trades: int, psr: Figure, dsr: Figure, ci: Interval) -> Verdict:
    """The one sentence that the record allows.

    "Evidence" needs all three: PSR and DSR above 0.95 and a lower end of the interval above 0. A gate that is undefined
    is not passed. An interval of level 0.90 and a PSR of 0.95 test the same 5 % one-sided claim, with and without
    regard to the order of the sessions; both are asked before the number of trials is.

    Args:
        net_usd: out-of-sample P&L after costs.
        sessions: out-of-sample sessions; fewer than 20 allow no statement.
        trades: lots traded.
        psr: probabilistic Sharpe ratio against 0.
        dsr: deflated Sharpe ratio for all trials on the data.
        ci: interval of the Sharpe ratio (or of the mean).
    """
    if trades == 0:
        return Verdict.NO_TRADES
    if sessions < MIN_SESSIONS_FOR_VERDICT:
        return Verdict.TOO_LITTLE_DATA
    if net_usd < 0:
        return Verdict.LOSES
    if psr.value is None or ci.low is None:
        return Verdict.TOO_LITTLE_DATA
    if psr.value <= GATE or ci.low <= 0:
        return Verdict.LUCK
    return Verdict.EDGE if dsr.value is not None and dsr.value > GATE else Verdict.BEFORE_TRIALS
