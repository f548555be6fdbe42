"""Markets with all that makes a ledger hard: rolls, prices off the tick grid, moves that are left out, spreads."""

import dataclasses
import random
from fractions import Fraction

import numpy as np

from random_worlds import TICK_E9, as_market, random_world
from tidewalk.market.device import ROLL, MarketData

BARS = 64


def in_ticks(price_e9: int) -> int:
    """The tick nearest to a price, halves upwards."""
    return (Fraction(price_e9, TICK_E9) + Fraction(1, 2)).__floor__()


def odd_market(seed: int, *, has_spread: bool = True, is_off_tick: bool = True) -> MarketData:
    """A random market of three contracts.

    With `is_off_tick` opens lie anywhere between two ticks, and a few bars carry a hidden roll: what is held is left at
    another price than it is taken up again.
    """
    rng = random.Random(seed)
    data = as_market(random_world(rng, BARS, 1, has_spread=has_spread))
    if not is_off_tick:
        return data
    opens, exits = data.open_e9.copy(), data.exit_open_e9.copy()
    for bar in range(BARS):
        shift, is_roll = rng.randrange(-TICK_E9, TICK_E9), bar > 0 and data.flags[bar - 1] & ROLL
        opens[bar] += shift
        exits[bar] += rng.randrange(-TICK_E9, TICK_E9) if is_roll or rng.random() < 0.1 else shift
    moves = [in_ticks(int(exits[bar + 2])) - in_ticks(int(opens[bar + 1])) for bar in range(BARS - 2)] + [0, 0]
    return dataclasses.replace(data, open_e9=opens, exit_open_e9=exits, move_ticks=np.array(moves, np.int32))
