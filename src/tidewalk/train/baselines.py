"""Baselines on the same bars under the same costs and rules: what an agent must beat before anyone should listen to it.

A baseline wants the largest position in the direction of a signal that knows the bars up to its own, warmed up on the
bars before the range. It trades what the rules leave of that, as an agent does (`train.rollout.follow`). Prices are
running sums of moves within the contract held, so that no roll shows in a signal. A signal of exactly nothing keeps the
side it had; before its first full look-back it is flat.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from tidewalk.core.arrays import Array, HostOrDevice, Int8, Int32
from tidewalk.market.device import Market, MarketData
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import Limits
from tidewalk.train.passes import Extent
from tidewalk.train.rollout import follow

TSMOM_SESSIONS = 20
"""Look-back of time-series momentum: about a month, the shortest that Moskowitz, Ooi and Pedersen (2012) report."""
MACD_BARS = (12, 26, 9)
"""Fast, slow and signal line of Appel's moving average convergence/divergence (1979)."""
MA_CROSS_BARS = (20, 100)
"""Short and long average. Brock, Lakonishok and LeBaron (1992) test pairs up to 200 bars; this one is customary."""
_ROUNDING_TICKS = 1e-6
"""Differences of exponential averages below this are rounding, and count as nothing."""


def wanted(name: str, market: MarketData, env: EnvConfig) -> np.ndarray:
    """Position indices that a baseline wants after the decision of every bar, int8 `[T]`.

    Signals lag by the decision delay, as what an agent sees does.
    """
    side = np.concatenate([np.zeros(env.decision_delay, np.int64), _SIDES[name](market)])[: market.num_bars]
    return (env.flat + side * env.positions).astype(np.int8)


def baseline_paths(
    env: EnvConfig,
    market: Market,
    limits: Limits | None,
    decisions: np.ndarray,
    spans: Sequence[tuple[MarketData, int]],
    *,
    extent: Extent,
) -> dict[str, np.ndarray]:
    """Positions of every baseline over the test range of every window, under all rules and account limits.

    Args:
        env: the rules.
        market: the resident market.
        limits: account limits, leaves `[W]`; None where an account is not counted.
        decisions: `[W, 2]` ranges `[first, stop)` in bars of the resident market.
        spans: for each window the market of its symbol, and the first decision in bars of that.
        extent: form of a pass over a range of at most H bars.

    Returns:
        Name -> position indices `[W, H]` int8, flat beyond a range.
    """
    want = np.full((len(NAMES), len(decisions), extent.bars), env.flat, np.int8)
    counts = (decisions[:, 1] - decisions[:, 0]).tolist()
    for number, name in enumerate(NAMES):
        of_market: dict[int, np.ndarray] = {}  # each symbol's signal once, whatever the number of its windows
        for window, (count, (data, first)) in enumerate(zip(counts, spans, strict=True)):
            if id(data) not in of_market:
                of_market[id(data)] = wanted(name, data, env)
            want[number, window, :count] = of_market[id(data)][first : first + count]
    paths = _followed(env, market, limits, decisions, want, extent=extent)
    return dict(zip(NAMES, np.asarray(paths), strict=True))


@functools.partial(jax.jit, static_argnames=("env", "extent"))
def _followed(
    env: EnvConfig,
    market: Market,
    limits: Limits | None,
    decisions: Int32[HostOrDevice, "W 2"],
    want: Int8[HostOrDevice, "N W H"],
    *,
    extent: Extent,
) -> Int8[Array, "N W H"]:
    def one(limits: Limits | None, decisions: Array, want: Array) -> Array:
        return follow(env, market, limits, decisions, want, compose=extent.compose, stretches=extent.stretches)

    return jax.vmap(jax.vmap(one), in_axes=(None, None, 0))(limits, decisions, want)


def roll_free_price_ticks(market: MarketData) -> np.ndarray:
    """Close of every bar as the sum of all close-to-close moves of the contract held, in ticks, int64 `[T]`."""
    return np.cumsum(market.close_move_ticks, dtype=np.int64)


def _always(side: int) -> Callable[[MarketData], np.ndarray]:
    return lambda market: np.full(market.num_bars, side, np.int64)


def _momentum(market: MarketData) -> np.ndarray:
    """Direction of the last bar that moved."""
    return _held_on(market.close_move_ticks)


def _tsmom(market: MarketData) -> np.ndarray:
    """Direction of the price since the close `TSMOM_SESSIONS` sessions ago."""
    price = roll_free_price_ticks(market)
    ends = np.flatnonzero(np.append(np.diff(market.session_id) != 0, True))
    session = np.searchsorted(ends, np.arange(len(price)))
    is_warm = session >= TSMOM_SESSIONS
    then = ends[np.maximum(session - TSMOM_SESSIONS, 0)]
    return _held_on(np.where(is_warm, price - price[then], 0))


def _macd(market: MarketData) -> np.ndarray:
    """Whether the difference of the fast and the slow average stands above or below its own average."""
    fast, slow, signal = MACD_BARS
    price = roll_free_price_ticks(market).astype(np.float64)
    spread = _ema(price, fast) - _ema(price, slow)
    above = spread - _ema(spread, signal)
    above[np.abs(above) < _ROUNDING_TICKS] = 0.0
    above[: slow + signal - 2] = 0.0
    return _held_on(above)


def _ma_cross(market: MarketData) -> np.ndarray:
    """Whether the short average of the price stands above or below the long one; compared in whole numbers."""
    short, long = MA_CROSS_BARS
    total = np.concatenate([[0], np.cumsum(roll_free_price_ticks(market))])
    above = np.zeros(market.num_bars, np.int64)
    warm = np.arange(long, len(total))
    above[long - 1 :] = (total[warm] - total[warm - short]) * long - (total[warm] - total[warm - long]) * short
    return _held_on(above)


def _ema(values: np.ndarray, bars: int) -> np.ndarray:
    """Exponential average with weight 2 / (bars + 1) on the newest value, starting from the first."""
    weight = 2.0 / (bars + 1)
    from scipy.signal import lfilter  # half a second that no training waits for

    return lfilter([weight], [1.0, weight - 1.0], values, zi=values[:1] * (1.0 - weight))[0]


def _held_on(signal: np.ndarray) -> np.ndarray:
    """Sign of a signal, of its last value that was not 0 where it is; 0 before the first."""
    sign = np.sign(signal).astype(np.int64)
    return sign[np.maximum.accumulate(np.where(sign != 0, np.arange(len(sign)), 0))]


_SIDES: dict[str, Callable[[MarketData], np.ndarray]] = {
    "flat": _always(0),
    "long": _always(1),
    "short": _always(-1),
    "momentum": _momentum,
    "tsmom": _tsmom,
    "macd": _macd,
    "ma_cross": _ma_cross,
}
NAMES = tuple(_SIDES)
