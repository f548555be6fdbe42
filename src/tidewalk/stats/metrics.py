"""Measures of a session P&L record, on the host, in USD.

A figure that may not exist is a `Figure`: a finite value, or a reason. Nothing here returns NaN or infinity.
Futures P&L is already an excess over cash, so no risk-free rate is taken off unless a hurdle is named.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted

# A value per session or bar, shape [n], in any numeric type; functions work on its float64 form.
Record = NDArray[Any] | Sequence[float]
TradeDays = NDArray[Any] | Sequence[date]

MIN_SESSIONS_FOR_SHARPE = 3
DEFAULT_SESSIONS_PER_YEAR = 252.0
DAYS_PER_YEAR = 365.2425
# Below this covered span the observed rate of sessions is mostly the accident of where a weekend or holiday falls.
MIN_SPAN_DAYS = 60
# Longer pauses are calendar that the record does not cover (test months apart), not closed exchanges.
MAX_CLOSED_DAYS = 14
# A spread this small against the numbers themselves is rounding, not variance.
RELATIVE_ROUNDING = 1e-12


@dataclass(frozen=True)
class Figure:
    """A finite number, or the reason why there is none; exactly one of the two is given."""

    value: float | None
    reason: str | None = None

    def __post_init__(self) -> None:
        """Refuse a figure that is both, neither, or not finite.

        Raises:
            DataError: the figure breaks the rule above.
        """
        if (self.value is None) == (not self.reason):
            raise DataError(f"a figure needs a value or a reason, one of them: got {self.value!r} and {self.reason!r}")
        if self.value is not None and not math.isfinite(self.value):
            raise DataError(f"a figure must be finite: got {self.value!r}; give the reason why it is undefined instead")


def defined(value: float) -> Figure:
    """A figure with a value."""
    return Figure(float(value))


def undefined(reason: str) -> Figure:
    """A figure without a value, and why."""
    return Figure(None, reason)


def describe(figure: Figure, spec: str = ".2f") -> str:
    """Text of a figure: the value in the format `spec`, or "undefined: reason"."""
    return f"undefined: {figure.reason}" if figure.value is None else format(figure.value, spec)


def checked_record(values: Record, name: str = "session P&L") -> NDArray[np.float64]:
    """The record as a float64 array, shape [n].

    Raises:
        DataError: the record is not one-dimensional, or holds NaN or infinity.
    """
    record = np.asarray(values, dtype=np.float64)
    if record.ndim != 1:
        raise DataError(f"{name}: shape {record.shape} given, one dimension needed (a value per session)")
    if not np.isfinite(record).all():
        bad = int(np.flatnonzero(~np.isfinite(record))[0])
        raise DataError(f"{name}: value {bad} is {record[bad]}; every session needs a finite number")
    return record


def has_variance(record: NDArray[np.float64]) -> bool:
    """Whether the values differ by more than rounding."""
    return record.size > 1 and bool(np.ptp(record) > RELATIVE_ROUNDING * np.abs(record).max() and record.std() > 0.0)


def ruin_session(pnl: Record, capital_usd: float) -> int | None:
    """First session, counted from 0, after which capital plus P&L is at or below 0; None if it never is."""
    ruined = np.flatnonzero(capital_usd + np.cumsum(checked_record(pnl)) <= 0.0)
    return int(ruined[0]) if ruined.size else None


def sharpe(pnl: Record, periods_per_year: float, *, hurdle_per_year: float = 0.0) -> Figure:
    """Sharpe ratio of the record: mean over standard deviation (ddof 1), times the root of `periods_per_year`.

    The root rule holds for records without autocorrelation; `inference.lo_eta` gives the factor for others.

    Args:
        pnl: P&L of each session in USD, shape [n]; any other unit will do, the ratio has none.
        periods_per_year: sessions in a year; 1 gives the ratio per session.
        hurdle_per_year: amount per *year* taken off first, in the unit of `pnl`.

    Returns:
        Undefined for fewer than 3 sessions, or without variance.
    """
    record = checked_record(pnl)
    if record.size < MIN_SESSIONS_FOR_SHARPE:
        return undefined(f"fewer than {MIN_SESSIONS_FOR_SHARPE} sessions")
    if not has_variance(record):
        return undefined("no variance")
    excess = record.mean() - hurdle_per_year / periods_per_year
    return defined(excess / record.std(ddof=1) * math.sqrt(periods_per_year))


def autocorrelation(pnl: Record, lag: int = 1) -> Figure:
    """Autocorrelation of the record at a lag, both sums over the whole record, so that it lies between -1 and 1."""
    record = checked_record(pnl)
    if record.size < max(MIN_SESSIONS_FOR_SHARPE, lag + 2):
        return undefined(f"fewer than {max(MIN_SESSIONS_FOR_SHARPE, lag + 2)} sessions")
    if not has_variance(record):
        return undefined("no variance")
    centred = record - record.mean()
    return defined(centred[lag:] @ centred[:-lag] / (centred @ centred))


def equity_curve(pnl: Record) -> NDArray[np.float64]:
    """Cumulative P&L in USD, shape [n + 1], starting from 0 before the first session."""
    return np.concatenate([[0.0], np.cumsum(checked_record(pnl))])


def drawdown_curve(pnl: Record) -> NDArray[np.float64]:
    """USD below the highest equity so far after each session, shape [n], never negative.

    The start at 0 counts as a high, so a loss in the first session is a drawdown.
    """
    equity_usd = equity_curve(pnl)
    return (np.maximum.accumulate(equity_usd) - equity_usd)[1:]


def max_drawdown(pnl: Record) -> float:
    """Largest fall from a high of the equity in USD, positive; 0 when it never falls (also for an empty record)."""
    return float(drawdown_curve(pnl).max(initial=0.0))


def longest_drawdown_sessions(pnl: Record) -> int:
    """Most consecutive sessions that end below an earlier high of the equity."""
    recovered = np.flatnonzero(np.concatenate([[True], drawdown_curve(pnl) <= 0.0, [True]]))
    return int(np.diff(recovered).max(initial=1)) - 1


def observed_sessions_per_year(trade_days: TradeDays) -> Figure:
    """Sessions per year seen in the record: steps from session to session over the calendar days they span.

    Pauses of more than 14 days are left out of both counts, so that test months which lie apart are annualised by
    the pace inside them and not by the share of the calendar they cover.

    Args:
        trade_days: trade dates in order, each once (`datetime.date` or numpy `datetime64`).

    Returns:
        Undefined when the covered span is under 60 days.

    Raises:
        DataError: the dates are not strictly increasing.
    """
    steps_days = np.diff(np.asarray(trade_days, dtype="datetime64[D]")).astype(np.int64)
    if (steps_days <= 0).any():
        row = int(np.flatnonzero(steps_days <= 0)[0]) + 1
        day, before = trade_days[row], trade_days[row - 1]
        raise DataError(f"trade dates: row {row} ({day}) does not follow {before}; each date once, in time order")
    covered = steps_days[steps_days <= MAX_CLOSED_DAYS]
    span_days = int(covered.sum())
    if span_days < MIN_SPAN_DAYS:
        span = counted(span_days, "day")
        return undefined(f"the sessions span {span}, {MIN_SPAN_DAYS} needed to see their yearly rate")
    return defined(covered.size / span_days * DAYS_PER_YEAR)


def sessions_per_year(trade_days: TradeDays) -> float:
    """Annualisation factor of session figures: the observed rate, or 252 when the span is under 60 days.

    `observed_sessions_per_year` tells which of the two it was, and why.
    """
    observed = observed_sessions_per_year(trade_days).value
    return DEFAULT_SESSIONS_PER_YEAR if observed is None else observed


def win_rate(pnl: Record) -> Figure:
    """Share of winning sessions among those that won or lost; sessions at exactly 0 are left out."""
    record = checked_record(pnl)
    decided = int(np.count_nonzero(record))
    return defined(np.count_nonzero(record > 0) / decided) if decided else undefined("no session won or lost")


def profit_factor(pnl: Record) -> Figure:
    """Sum of winning sessions over sum of losing sessions, both positive."""
    record = checked_record(pnl)
    lost_usd = -record[record < 0].sum()
    return defined(record[record > 0].sum() / lost_usd) if lost_usd > 0 else undefined("no losing session")


def downside_deviation(pnl: Record, target_usd: float = 0.0) -> Figure:
    """Root of the mean squared shortfall below `target_usd` per session, in USD, over all sessions."""
    record = checked_record(pnl)
    if record.size == 0:
        return undefined("no sessions")
    return defined(math.sqrt(np.square(np.minimum(record - target_usd, 0.0)).mean()))


def sortino(pnl: Record, periods_per_year: float) -> Figure:
    """Mean over downside deviation below 0, times the root of `periods_per_year`."""
    record = checked_record(pnl)
    if record.size < MIN_SESSIONS_FOR_SHARPE:
        return undefined(f"fewer than {MIN_SESSIONS_FOR_SHARPE} sessions")
    downside_usd = downside_deviation(record).value
    if not downside_usd:
        return undefined("no losing session")
    return defined(record.mean() / downside_usd * math.sqrt(periods_per_year))


def expected_shortfall(pnl: Record, tail_frac: float = 0.05) -> Figure:
    """Mean loss of the worst `tail_frac` of the sessions, in USD, positive for a loss.

    Returns:
        Undefined when the tail holds less than one session.
    """
    record = np.sort(checked_record(pnl))
    # The small allowance keeps 0.05 * 20 at one session whatever the last bit of the product is.
    in_tail = math.floor(tail_frac * record.size + 1e-9)
    if in_tail < 1:
        return undefined(f"fewer than {math.ceil(1 / tail_frac)} sessions")
    return defined(-record[:in_tail].mean())


def calmar(pnl: Record, periods_per_year: float) -> Figure:
    """Net P&L per year over the maximum drawdown."""
    record = checked_record(pnl)
    drawdown_usd = max_drawdown(record)
    if drawdown_usd <= 0:
        return undefined("no drawdown")
    return defined(record.mean() * periods_per_year / drawdown_usd)


def exposure(positions: Record) -> Figure:
    """Share of the bars (or sessions) with a position, long or short.

    Args:
        positions: lots held at each bar, signed, shape [n].
    """
    held = checked_record(positions, "positions")
    return defined(np.count_nonzero(held) / held.size) if held.size else undefined("no bars")


def position_agreement(positions: Record, others: Record) -> Figure:
    """Share of the bars on which two policies hold the same lots; 1 means that one is the other under a new name.

    Raises:
        DataError: the two records differ in length.
    """
    ours, theirs = checked_record(positions, "positions"), checked_record(others, "positions compared with")
    if ours.size != theirs.size:
        raise DataError(f"positions: {ours.size} bars against {theirs.size}; both policies need the same bars")
    return defined(np.count_nonzero(ours == theirs) / ours.size) if ours.size else undefined("no bars")


def captured_frac(net_usd: float, oracle_net_usd: float) -> Figure:
    """Net P&L over the hindsight optimum under the same costs."""
    return defined(net_usd / oracle_net_usd) if oracle_net_usd > 0 else undefined("the hindsight optimum earns nothing")


def walk_forward_efficiency(in_usd: float, in_sessions: int, out_usd: float, out_sessions: int) -> Figure:
    """P&L per year out of sample over P&L per year in sample (Pardo): a description of a window, never a verdict.

    Args:
        in_usd: net P&L in sample, the denominator.
        in_sessions: sessions behind it.
        out_usd: net P&L out of sample.
        out_sessions: sessions behind it.

    Returns:
        Undefined when the sample itself earned nothing: the sign of the ratio would then mean the opposite.
    """
    if min(in_sessions, out_sessions) < 1:
        return undefined("no sessions")
    if in_usd <= 0:
        return undefined("nothing was earned in sample")
    return defined((out_usd / out_sessions) / (in_usd / in_sessions))  # sessions per year cancel
