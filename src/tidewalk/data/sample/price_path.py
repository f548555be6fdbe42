"""Price paths with a known answer: a synthetic index future, minute by minute, over given trading hours.

There are three kinds:

* `planted`: a signal of chosen strength that can be read off every bar. With the cost of one tick per side the best
  policy earns a known amount (`planted_mean_ticks_per_bar`), which a trainer must reach.
* `noise`: a martingale. Nothing can be earned; whatever is found in it is an error or luck.
* `market`: the same random numbers as `noise` plus a drift of `MARKET_EDGE_TICKS` per bar in the direction of a slow
  average of past moves (`true_edge_ticks_per_bar`): weak, real, and worth its costs only to a patient policy.

All prices are whole ticks of 0.25 and every move is an integer drawn with its exact mean (stochastic rounding), so
rounding to the grid adds no predictable bounce.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.calendar.sessions import Schedule

Kind = Literal["market", "planted", "noise"]
"""Kind of sample market."""

TICK_E9 = 250_000_000
"""Tick of the sample's outrights, in 1e-9 units."""

PLANTED_MOVE_TICKS = 10
"""Size of every bar's move in the planted market."""

MARKET_EDGE_TICKS = 0.05
"""Drift per bar of the `market` kind, in ticks: about 1/55 of the standard deviation of one bar's move.

Measured on two years with three seeds: following the drift's sign gains 62 to 70 ticks per session before costs and
changes side 14 times a day. Waiting until the average is half a standard deviation on the other side trades about three
sides a day and gains 50 to 61 ticks per session, for a daily standard deviation of about 105."""

MARKET_EDGE_HALF_LIFE_BARS = 240
"""Half-life of the average whose sign gives the drift's direction, in bars."""

_MINUTE_NS = 60_000_000_000
_BLOCK = 1 << 16
"""Bars that are Python numbers at a time: they take several times the memory of an array's."""

_RANDOM_START_TICKS = 4_700 * 4
# Off the grid of the planted market's own moves by a tick: else its prices look like those of a contract of ten times
# the tick, at a tenth of the price.
_PLANTED_START_TICKS = 20_000 * 4 + 1
_FLOOR_TICKS = 1_000 * 4 + 1

# Minutes after the open at 17:00 Chicago.
_EUROPE_OPEN, _US_REPORTS, _CASH_OPEN, _CASH_CLOSE = 540, 870, 930, 1320
_THIN_FROM, _THIN_TO = 30, 840


@dataclass(frozen=True)
class PricePath:
    """Bars of the common price all contracts follow, in ticks; arrays of one length N, in time order."""

    session: NDArray[np.int64]
    """Index into the schedule."""
    minute: NDArray[np.int64]
    """Minutes from the session's open."""
    ts_ns: NDArray[np.int64]
    open: NDArray[np.int64]
    high: NDArray[np.int64]
    low: NDArray[np.int64]
    close: NDArray[np.int64]
    volume: NDArray[np.float64]
    """Contracts traded in all delivery months together, before rounding."""


@dataclass(frozen=True)
class _Clock:
    """When bars happen; arrays of one length N, as in `PricePath`."""

    session: NDArray[np.int64]
    minute: NDArray[np.int64]
    ts_ns: NDArray[np.int64]


def price_path(kind: Kind, seed: int, signal_p: float, sessions: Schedule) -> PricePath:
    """The common price path of all contracts of a sample.

    Args:
        kind: which law the moves follow.
        seed: seed of all random numbers.
        signal_p: probability that a move of the planted kind has the direction of the move before.
        sessions: trading hours.
    """
    minutes = (sessions.close_ns - sessions.open_ns) // _MINUTE_NS
    session = np.repeat(np.arange(minutes.size), minutes)
    minute = np.arange(session.size) - np.repeat(np.cumsum(minutes) - minutes, minutes)
    ts_ns = sessions.open_ns[session] + minute * _MINUTE_NS
    is_open = (ts_ns < sessions.halt_from_ns[session]) | (ts_ns >= sessions.halt_to_ns[session])
    session, minute = session[is_open], minute[is_open]
    if kind != "planted":
        traded = _is_traded(minute, np.random.default_rng([seed, 1]))
        session, minute = session[traded], minute[traded]
    clock = _Clock(session, minute, sessions.open_ns[session] + minute * _MINUTE_NS)
    if kind == "planted":
        return _planted_path(clock, seed, signal_p)
    return _random_path(clock, seed, edge_ticks=MARKET_EDGE_TICKS if kind == "market" else 0.0)


def planted_mean_ticks_per_bar(signal_p: float, cost_ticks_per_side: float) -> float:
    """Expected net ticks per bar of the best policy in the planted market, per contract held.

    The signal is the direction of the last bar. With persistence p its follower gains (2p - 1) moves per bar, its
    opponent (1 - 2p); both trade two sides with probability 1 - p. Standing aside earns nothing. For p = 0.7 and a
    cost of 1 tick per side: 0.4 - 0.6 x 0.1 = 0.34 moves, 3.4 ticks per bar.
    """
    gain = abs(2.0 * signal_p - 1.0) * PLANTED_MOVE_TICKS
    return max(gain - 2.0 * (1.0 - signal_p) * cost_ticks_per_side, 0.0)


def true_edge_ticks_per_bar(move_ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Expected move of the next bar in the `market` kind, given the moves so far.

    Args:
        move_ticks: [T] change from close to close of successive bars of one contract, from the sample's first bar on.

    Returns:
        [T] the drift of the bar after each bar, in ticks: `MARKET_EDGE_TICKS` with the sign of an exponential average
        of the moves, of half-life `MARKET_EDGE_HALF_LIFE_BARS`.
    """
    keep = 0.5 ** (1.0 / MARKET_EDGE_HALF_LIFE_BARS)
    average = _filtered(move_ticks.astype(np.float64), gain=1.0 - keep, keep=keep)
    return MARKET_EDGE_TICKS * np.sign(average)


def _is_traded(minute: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether anything trades in a minute: 2 to 6 % of the quiet minutes of the night have no bar."""
    quiet = np.where((minute >= 240) & (minute < 480), 0.06, 0.02)
    may_be_thin = (minute >= _THIN_FROM) & (minute < _THIN_TO)
    return (rng.random(minute.size) >= quiet) | ~may_be_thin


def _planted_path(clock: _Clock, seed: int, signal_p: float) -> PricePath:
    rng = np.random.default_rng([seed, 2])
    size = clock.minute.size
    first_sign = 2 * int(rng.integers(2)) - 1
    turns = rng.random(size) >= signal_p
    turns[0] = False
    sign = first_sign * (1 - 2 * (np.cumsum(turns) % 2))
    close = np.cumsum(sign * PLANTED_MOVE_TICKS)
    open_ = np.concatenate([np.zeros(1, np.int64), close[:-1]])
    volume = _volume_season(clock.minute) * np.exp(0.3 * rng.standard_normal(size))
    return _path(
        clock, (open_, np.maximum(open_, close), np.minimum(open_, close), close), volume, _PLANTED_START_TICKS
    )


def _random_path(clock: _Clock, seed: int, edge_ticks: float) -> PricePath:
    rng = np.random.default_rng([seed, 3])
    size = clock.minute.size
    session_vol = _autoregressive(rng, int(clock.session[-1]) + 1, half_life=14.0, std=0.35)[clock.session]
    log_vol = session_vol + _autoregressive(rng, size, half_life=45.0, std=0.3) - 0.1
    sigma = _sigma_season(clock.minute) * np.exp(log_vol)
    shock = rng.standard_t(5, size) / math.sqrt(5.0 / 3.0)  # fat tails, unit variance
    gap = rng.choice(np.array([-1, 0, 1]), p=[0.08, 0.84, 0.08], size=size)
    over_night = np.floor(6.0 * np.exp(log_vol) * rng.standard_normal(size) + rng.random(size)).astype(np.int64)
    gap = np.where(np.diff(clock.session, prepend=-1) != 0, over_night, gap)
    body = _moves(sigma * shock + rng.random(size), gap, edge_ticks)
    close = np.cumsum(gap + body)
    open_ = close - body
    high = np.maximum(open_, close) + np.floor(0.5 * sigma * rng.exponential(size=size)).astype(np.int64)
    low = np.minimum(open_, close) - np.floor(0.5 * sigma * rng.exponential(size=size)).astype(np.int64)
    activity = np.exp(0.8 * log_vol + 0.3 * rng.standard_normal(size)) * (0.6 + 0.5 * np.abs(shock))
    return _path(clock, (open_, high, low, close), _volume_season(clock.minute) * activity, _RANDOM_START_TICKS)


def _path(
    clock: _Clock, prices: tuple[NDArray[np.int64], ...], volume: NDArray[np.float64], start_ticks: int
) -> PricePath:
    """Puts a path that starts at zero on its level: the usual one, or as much higher as keeps it well above zero.

    The moves do not depend on the level, so a shift changes nothing that can be earned.
    """
    open_, high, low, close = prices
    level = max(start_ticks, _FLOOR_TICKS - int(low.min()))
    return PricePath(
        session=clock.session,
        minute=clock.minute,
        ts_ns=clock.ts_ns,
        open=open_ + level,
        high=high + level,
        low=low + level,
        close=close + level,
        volume=volume,
    )


def _moves(latent_ticks: NDArray[np.float64], gap_ticks: NDArray[np.int64], edge_ticks: float) -> NDArray[np.int64]:
    """Open-to-close moves. The drift depends on the moves before it, so this is a loop over bars.

    Args:
        latent_ticks: [N] shock plus a uniform number of [0, 1), whose floor is a move with the shock as its mean.
        gap_ticks: [N] open against the close before.
        edge_ticks: size of the drift.
    """
    if edge_ticks == 0.0:
        return np.floor(latent_ticks).astype(np.int64)
    keep = 0.5 ** (1.0 / MARKET_EDGE_HALF_LIFE_BARS)
    gain, average, floor = 1.0 - keep, 0.0, math.floor
    moves = np.empty(latent_ticks.size, np.int64)
    for start in range(0, moves.size, _BLOCK):
        block: list[int] = []
        for latent, gap in zip(
            *(part[start : start + _BLOCK].tolist() for part in (latent_ticks, gap_ticks)), strict=True
        ):
            drift = edge_ticks if average > 0.0 else -edge_ticks if average < 0.0 else 0.0
            move = floor(latent + drift)
            average = gain * (gap + move) + keep * average
            block.append(move)
        moves[start : start + _BLOCK] = block
    return moves


def _filtered(values: NDArray[np.float64], *, gain: float, keep: float) -> NDArray[np.float64]:
    """y[t] = gain x[t] + keep y[t-1], from y = 0."""
    inputs = itertools.chain.from_iterable(
        (gain * values[start : start + _BLOCK]).tolist() for start in range(0, values.size, _BLOCK)
    )
    steps = itertools.accumulate(inputs, lambda last, value: value + keep * last)
    return np.fromiter(steps, np.float64, values.size)


def _autoregressive(rng: np.random.Generator, size: int, half_life: float, std: float) -> NDArray[np.float64]:
    """A stationary first-order autoregression, started from its own distribution."""
    keep = 0.5 ** (1.0 / half_life)
    shocks = rng.standard_normal(size) * math.sqrt(1.0 - keep * keep)
    shocks[0] = rng.standard_normal()
    return std * _filtered(shocks, gain=1.0, keep=keep)


def _sigma_season(minute: NDArray[np.int64]) -> NDArray[np.float64]:
    """Usual standard deviation of a bar's move in ticks: a smile over the US day, small bumps in the night."""
    night = (
        1.1
        + 1.2 * np.exp(-minute / 30.0)
        + 1.2 * np.exp(-(((minute - _EUROPE_OPEN) / 50.0) ** 2))
        + 1.0 * np.exp(-(((minute - _US_REPORTS) / 30.0) ** 2))
    )
    since_open, to_close = np.maximum(minute - _CASH_OPEN, 0), np.maximum(_CASH_CLOSE - minute, 0)
    day = 3.6 + 3.5 * np.exp(-since_open / 30.0) + 2.2 * np.exp(-to_close / 25.0)
    return np.where(minute < _CASH_OPEN, night, np.where(minute < _CASH_CLOSE, day, 2.0))


def _volume_season(minute: NDArray[np.int64]) -> NDArray[np.float64]:
    """Usual contracts per minute: about 1.1 million a session, most of them in the US day."""
    sigma = _sigma_season(minute)
    return np.where((minute >= _CASH_OPEN) & (minute < _CASH_CLOSE), 900.0 * (sigma - 1.0), 110.0 * sigma)
