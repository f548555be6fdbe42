"""Every path through a small market, in plain integers: what the hindsight bound is checked against.

Written from the rules and not from the code: nothing of `trading` is imported but the record of settings.
"""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np

from tidewalk.market.device import CLOSING, NO_ENTRY, ROLL, MarketData
from tidewalk.trading.env import EnvConfig


@dataclasses.dataclass(frozen=True)
class Prices:
    """What a side and a rolled lot cost, in ticks."""

    side: Fraction
    roll: Fraction = Fraction(0)


def levels(env: EnvConfig) -> list[int]:
    """Position levels that may ever be held."""
    most = env.positions
    if env.max_position is not None:
        most = min(most, env.max_position // env.lots_per_level)
    low = 0 if env.direction == "long" else -most
    high = 0 if env.direction == "short" else most
    return list(range(low, high + 1))


def is_allowed(env: EnvConfig, flags: int, before: int, after: int, *, is_last: bool) -> bool:
    """Whether a decision may go from one level to another."""
    if is_last or (env.flat_at_close and flags & CLOSING):
        return after == 0
    if env.no_entry_minutes and flags & NO_ENTRY:
        return after == 0 or (before * after > 0 and abs(after) <= abs(before))
    return True


def net_ticks(env: EnvConfig, market: MarketData, bar: int, before: int, after: int, prices: Prices) -> Fraction:
    """What the decision of `bar` earns, levels before and after its fill."""
    held, now = before * env.lots_per_level, after * env.lots_per_level
    traded, rolled = abs(now - held), 0
    if market.flags[bar] & ROLL:
        traded = abs(now) + abs(held)
        if env.roll_as == "spread" and now * held > 0:
            rolled = min(abs(now), abs(held))
            traded -= 2 * rolled
    side = prices.side
    if market.half_spread_ticks is not None:
        side += Fraction(float(market.half_spread_ticks[bar + 1]))
    return now * int(market.move_ticks[bar]) - side * traded - prices.roll * rolled


def net_of_path(env: EnvConfig, market: MarketData, first: int, path: list[int], prices: Prices) -> Fraction | None:
    """Net ticks of a path of levels, whose last must be 0; None where it breaks a rule."""
    total, before = Fraction(0), 0
    for row, after in enumerate(path):
        bar, is_last = first + row, row == len(path) - 1
        if not is_allowed(env, int(market.flags[bar]), before, after, is_last=is_last):
            return None
        total += net_ticks(env, market, bar, before, after, prices)
        before = after
    return total


def best_of_all(env: EnvConfig, market: MarketData, first: int, count: int, prices: Prices) -> Fraction:
    """Most that any path of `count` decisions from bar `first` earns in ticks, by trying all."""
    nets = (
        net_of_path(env, market, first, [*path, 0], prices) for path in itertools.product(levels(env), repeat=count - 1)
    )
    return max(net for net in nets if net is not None)


def best_by_recursion(env: EnvConfig, market: MarketData, first: int, count: int, prices: Prices) -> Fraction:
    """The same, backwards over the rows: the value of a level is the best of what it may go to."""
    value: dict[int, Fraction] = {0: Fraction(0)}
    for row in reversed(range(count)):
        flags, bar, later = int(market.flags[first + row]), first + row, value
        value = {
            before: max(
                net_ticks(env, market, bar, before, after, prices) + later[after]
                for after in later
                if is_allowed(env, flags, before, after, is_last=row == count - 1)
            )
            for before in levels(env)
        }
    return value[0]


def path_of(env: EnvConfig, found: np.ndarray, count: int) -> list[int]:
    """Levels of a path of position indices."""
    return [int(index) - env.flat for index in found[:count]]
