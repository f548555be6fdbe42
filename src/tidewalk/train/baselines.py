"""Baselines on the same bars under the same costs: what an agent must beat before anyone should listen to it."""

import numpy as np

from tidewalk.market.device import CLOSING, MarketData
from tidewalk.trading.account import Book, allowed, book
from tidewalk.trading.env import EnvConfig

NAMES = ("flat", "long", "short", "momentum")


def baseline_book(name: str, market: MarketData, env: EnvConfig, first: int, count: int) -> Book:
    """Book of one baseline over `count` decisions from bar `first`.

    `long` and `short` hold the largest position; `momentum` holds it in the direction of the last close-to-close move
    and keeps what it holds after a bar that did not move.
    """
    return book(market, first, allowed(market, env, first, _wanted(name, market, env, first, count)))


def timing_percentile(
    market: MarketData, paths: list[Book], *, flat_at_close: bool = False, draws: int = 1000, seed: int = 0
) -> float | None:
    """Share of random policies of the same turnover and exposure that earned less, ties counted half.

    A random policy holds the agent's own positions of each window, rotated in time by a random number of bars. It
    trades as often, holds as long and pays as much, and differs in timing alone; so its net result ranks as its gross
    one does.

    Args:
        market: the market.
        paths: the agent's book of each window.
        flat_at_close: whether the agent had to be flat over session breaks; then so are the random policies.
        draws: number of random policies.
        seed: seed of the rotations.

    Returns:
        From 0 to 1; None when the agent never held a position.
    """
    if not any(path.sides.any() for path in paths):
        return None
    rng = np.random.default_rng(seed)
    random_ticks = np.zeros(draws)
    for path in paths:
        rows = slice(path.first, path.first + len(path.after_lots) - 1)
        is_free = ~(flat_at_close & ((market.flags[rows] & CLOSING) != 0))
        held = path.after_lots[:-1][is_free].astype(np.float64)
        move = market.move_ticks[rows][is_free].astype(np.float64)
        spectrum = np.fft.rfft(move) * np.conj(np.fft.rfft(held))
        by_rotation = np.rint(np.fft.irfft(spectrum, n=len(held)))
        random_ticks += by_rotation[rng.integers(0, len(held), draws)]
    own = float(sum(path.gross_ticks.sum() for path in paths))
    return float(np.mean((random_ticks < own) + 0.5 * (random_ticks == own)))


def _wanted(name: str, market: MarketData, env: EnvConfig, first: int, count: int) -> np.ndarray:
    most = env.positions
    if name == "momentum":
        sign = np.sign(market.close_move_ticks[first : first + count]).astype(np.int64)
        last = np.maximum.accumulate(np.where(sign != 0, np.arange(count), 0))
        return sign[last] * most
    constant = {"flat": 0, "long": most, "short": -most}[name]
    return np.full(count, constant, np.int64)
