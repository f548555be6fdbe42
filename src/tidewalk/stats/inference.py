"""Is a Sharpe ratio more than luck? Standard errors, probabilistic and deflated Sharpe ratios, lengths needed.

Host code. Ratios are *per period* (per session), never annualised, unless a name says otherwise; kurtosis is the plain
one, 3 for a normal distribution. Names with 2025 are those of the revision; without, the published forms of before.

Sources: Lo (2002), The Statistics of Sharpe Ratios; Bailey and Lopez de Prado (2012), The Sharpe Ratio Efficient
Frontier (PSR, MinTRL); the same (2014), The Deflated Sharpe Ratio; Bailey, Borwein, Lopez de Prado and Zhu (2014),
Pseudo-Mathematics and Financial Charlatanism (MinBTL); Lopez de Prado, Lipton and Zoonekynd (2025), How to Use the
Sharpe Ratio.
"""

import functools
import math

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from tidewalk.core.errors import DataError
from tidewalk.stats.metrics import (
    Figure,
    Record,
    autocorrelation,
    checked_record,
    defined,
    has_variance,
    sharpe,
    undefined,
)

GATE = 0.95
DSR_VARIANT = "2014"
"""The deflated Sharpe ratio that the verdict is gated on: `dsr`, not `dsr_2025`."""


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


def sharpe_se_2025(sr_star: float, n: int, skew: float, kurt: float, rho: float = 0.0) -> Figure:
    """Standard error of a Sharpe ratio per period if the true one is `sr_star`, in the form of 2025.

    Args:
        sr_star: the true ratio under the hypothesis, not the one observed: this is what the revision corrects.
        n: periods.
        skew: skewness.
        kurt: plain kurtosis, 3 for normal.
        rho: autocorrelation of lag 1 of the record, taken as AR(1), inside (-1, 1).

    Returns:
        sqrt((a - b skew sr* + c (kurt - 1) sr*^2 / 4) / n), where a, b and c are 1 without autocorrelation; undefined
        for n < 3 or where that is not positive.
    """
    if n < 3:
        return undefined("fewer than 3 sessions")
    spread = _spread_2025(sr_star, skew, kurt, rho)
    return defined(math.sqrt(spread / n)) if spread > 0 else undefined("the moments give no standard error")


def _spread_2025(sr_star: float, skew: float, kurt: float, rho: float) -> float:
    """Variance of the Sharpe estimate times n, if the true ratio is `sr_star`."""
    if not -1.0 < rho < 1.0:
        raise DataError(f"autocorrelation: {rho} given, it has to lie between -1 and 1, both excluded")
    once, twice = rho / (1.0 - rho), rho**2 / (1.0 - rho**2)
    return (1 + 2 * once) - (1 + once + twice) * skew * sr_star + (1 + 2 * twice) * (kurt - 1) / 4 * sr_star**2


def psr_2025(
    sr: float, n: int, skew: float, kurt: float, sr_star: float = 0.0, *, rho: float = 0.0, best_of: int = 1
) -> Figure:
    """Probabilistic Sharpe ratio in the form of 2025: the error is the one that holds if `sr_star` is the truth.

    Args:
        sr: Sharpe ratio per period.
        n: periods.
        skew: skewness.
        kurt: plain kurtosis, 3 for normal.
        sr_star: ratio per period to compare with.
        rho: autocorrelation of lag 1.
        best_of: number of independent trials of which `sr` is the best; the best of many varies less than each does.
    """
    error = sharpe_se_2025(sr_star, n, skew, kurt, rho)
    if error.value is None:
        return error
    return defined(ndtr((sr - sr_star) / (error.value * math.sqrt(normal_maximum(best_of)[1]))))


def min_trl_2025(
    sr: float, skew: float, kurt: float, sr_star: float = 0.0, *, rho: float = 0.0, confidence: float = GATE
) -> Figure:
    """Minimum track record length in the form of 2025, in periods; undefined when `sr` does not exceed `sr_star`."""
    if sr <= sr_star:
        return undefined("the Sharpe ratio is not above the one it has to beat")
    spread = _spread_2025(sr_star, skew, kurt, rho)
    if spread <= 0:
        return undefined("the moments give no standard error")
    return defined(spread * (ndtri(confidence) / (sr - sr_star)) ** 2)


@functools.lru_cache(maxsize=256)
def normal_maximum(count: int) -> tuple[float, float]:
    """Mean and variance of the largest of `count` independent standard normals, by integration, to 9 digits.

    The published deflated ratios use an approximation of the mean, which `expected_max_sharpe` keeps.
    """
    _check_trials(count)
    x = np.linspace(-12.0, 12.0, 24_001)
    density = count * np.exp(-0.5 * x**2 + (count - 1) * log_ndtr(x)) / math.sqrt(2.0 * math.pi) * (x[1] - x[0])
    mean = float((x * density).sum())
    return mean, float(((x - mean) ** 2 * density).sum())


def _check_trials(n_trials: int) -> None:
    if n_trials < 1:
        raise DataError(f"number of trials: {n_trials} given, at least 1 needed; record the trial before deflating it")


def _max_multiplier(n_trials: int) -> float:
    """Approximate expected maximum of `n_trials` standard normals (0 for one)."""
    _check_trials(n_trials)
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


def dsr_2025(
    sr: float, n: int, skew: float, kurt: float, n_trials: int, sd_trials: float | None, *, rho: float = 0.0
) -> Figure:
    """Deflated Sharpe ratio in the form of 2025: error under the hypothesis, and that of the best of the trials.

    Size on noise: the gate "above 0.95" lets through 2 to 6 % of best-of-N noise records (5, 20, 50 and 200 independent
    trials, 500 periods), close to what it claims; with few trials their spread is a guess and the gate is strict.

    Args:
        sr: Sharpe ratio per period.
        n: periods.
        skew: skewness.
        kurt: plain kurtosis, 3 for normal.
        n_trials: configurations ever evaluated on these data.
        sd_trials: standard deviation of their Sharpe ratios *per period*; None when unknown.
        rho: autocorrelation of lag 1.
    """
    if n_trials > 1 and sd_trials is None:
        return undefined(f"the spread of the Sharpe ratios of {n_trials} trials is not known")
    star = expected_max_sharpe(n_trials, sd_trials or 0.0)
    return psr_2025(sr, n, skew, kurt, star, rho=rho, best_of=n_trials)


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


def sharpe_of_ar1(pnl: Record, periods_per_year: float) -> Figure:
    """Sharpe ratio per year of an autocorrelated record: `lo_eta` of an AR(1) in place of the root of the periods.

    Returns:
        Undefined where the autocorrelation of lag 1 can not be told from none at 1 % (two-sided), or where the ratio
        is: the root rule stands.
    """
    ratio, rho = sharpe(pnl, 1.0), autocorrelation(pnl).value
    if ratio.value is None or rho is None:
        return ratio
    if abs(rho) * math.sqrt(len(pnl)) <= ndtri(0.995):
        return undefined(f"the autocorrelation of {rho:+.2f} is not distinguishable from 0")
    periods = max(1, round(periods_per_year))
    return defined(ratio.value * lo_eta(periods, rho ** np.arange(1.0, periods)))


def _session_ratio(pnl: Record) -> tuple[Figure, tuple[int, float, float]]:
    """Sharpe ratio per session, and length, skewness and kurtosis where that is defined."""
    ratio = sharpe(pnl, 1.0)
    return ratio, (0, 0.0, 0.0) if ratio.value is None else (len(pnl), *skew_kurt(pnl))


def session_sharpe_se(pnl: Record) -> Figure:
    """Standard error of the Sharpe ratio *per session* of a P&L record; undefined where that ratio is."""
    ratio, moments = _session_ratio(pnl)
    return ratio if ratio.value is None else sharpe_se(ratio.value, *moments)


def session_psr(pnl: Record, sr_star: float = 0.0) -> Figure:
    """PSR of a session P&L record against `sr_star` per session; undefined where the Sharpe ratio is."""
    ratio, moments = _session_ratio(pnl)
    return ratio if ratio.value is None else psr(ratio.value, *moments, sr_star)


def session_min_trl(pnl: Record, sr_star: float = 0.0) -> Figure:
    """Sessions after which the ratio of this record would exceed `sr_star` at 95 %, were it to persist."""
    ratio, (_, skew, kurt) = _session_ratio(pnl)
    return ratio if ratio.value is None else min_trl(ratio.value, skew, kurt, sr_star)


def session_dsr(pnl: Record, n_trials: int, sd_trials: float | None) -> Figure:
    """DSR of a session P&L record; `n_trials` and `sd_trials` (per session) as the ledger of trials counts them."""
    ratio, moments = _session_ratio(pnl)
    return ratio if ratio.value is None else dsr(ratio.value, *moments, n_trials, sd_trials)
