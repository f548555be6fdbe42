"""Baselines on the same bars under the same costs: what an agent must beat before anyone should listen to it."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tidewalk.market.device import CLOSING, MarketData
from tidewalk.trading.account import Book, allowed, book, half_spreads
from tidewalk.trading.env import EnvConfig

NAMES = ("flat", "long", "short", "momentum")


def baseline_book(name: str, market: MarketData, env: EnvConfig, first: int, count: int) -> Book:
    """Book of one baseline over `count` decisions from bar `first`.

    `long` and `short` hold the largest position; `momentum` holds it in the direction of the last close-to-close move
    and keeps what it holds after a bar that did not move.
    """
    return book(market, first, allowed(market, env, first, _wanted(name, market, env, first, count)))


@dataclasses.dataclass(frozen=True)
class Path:
    """What the agent held in one window."""

    market: MarketData
    account: Book
    tick_worth: float = 1.0
    """Money of a tick, where paths of several markets are added up; any constant where there is one market."""


def timing_percentile(
    paths: Sequence[Path], *, flat_at_close: bool = False, draws: int = 1000, seed: int = 0
) -> float | None:
    """Share of random policies of the same turnover and exposure that earned less, ties counted half.

    A random policy holds the agent's own positions of each window, rotated in time by a random number of bars. It
    trades as often, holds as long and pays as many fixed costs, and differs in timing alone; so its net result ranks as
    its gross one does. Recorded spreads are part of the timing: a random policy pays those of the bars it fills in.

    Args:
        paths: the agent's path of each window.
        flat_at_close: whether the agent had to be flat over session breaks; then so are the random policies.
        draws: number of random policies.
        seed: seed of the rotations.

    Returns:
        From 0 to 1; None when the agent never held a position.
    """
    if not any(path.account.sides.any() for path in paths):
        return None
    rng = np.random.default_rng(seed)
    own, random_worth = 0.0, np.zeros(draws)
    for path in paths:
        by_rotation = _ticks_by_rotation(path, flat_at_close=flat_at_close)
        own += by_rotation[0] * path.tick_worth
        random_worth += by_rotation[rng.integers(0, len(by_rotation), draws)] * path.tick_worth
    return float(np.mean((random_worth < own) + 0.5 * (random_worth == own)))


def _ticks_by_rotation(path: Path, *, flat_at_close: bool) -> np.ndarray:
    """Gross ticks less recorded half spreads of the path rotated by 0, 1, 2 ... bars."""
    market, account = path.market, path.account
    count = len(account.after_lots) - 1
    rows = slice(account.first, account.first + count)
    is_free = ~(flat_at_close & ((market.flags[rows] & CLOSING) != 0))
    if not is_free.any():
        return np.zeros(1)
    gross = np.rint(_rotated_sums(market.move_ticks[rows][is_free], account.after_lots[:-1][is_free]))
    if market.half_spread_ticks is None:
        return gross
    half_ticks = half_spreads(market, account.first, count)[is_free]
    # to a millionth of a tick: what is left of the transform's rounding must not decide a tie
    return np.round(gross - _rotated_sums(half_ticks, account.sides[:-1][is_free]), 6)


def _rotated_sums(fixed: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Sum of `fixed * roll(moved, k)` for every k, by the Fourier transform."""
    spectrum = np.fft.rfft(fixed.astype(np.float64)) * np.conj(np.fft.rfft(moved.astype(np.float64)))
    return np.fft.irfft(spectrum, n=len(moved))


def _wanted(name: str, market: MarketData, env: EnvConfig, first: int, count: int) -> np.ndarray:
    most = env.positions
    if name == "momentum":
        sign = np.sign(market.close_move_ticks[first : first + count]).astype(np.int64)
        last = np.maximum.accumulate(np.where(sign != 0, np.arange(count), 0))
        return sign[last] * most
    constant = {"flat": 0, "long": most, "short": -most}[name]
    return np.full(count, constant, np.int64)
