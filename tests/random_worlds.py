"""Random markets for the reference environment, as lists for it and as arrays for the code."""

import dataclasses
import random
from fractions import Fraction

import numpy as np

from reference_env import World
from support import FIRST_DAY, NS_PER_HOUR, market_info
from tidewalk.market.device import CLOSING, GAP, LAST_OF_SESSION, NO_ENTRY, ROLL, TRADABLE, MarketData

TICK_E9 = 250_000_000
NAMES = ("ESH4", "ESM4", "ESU4")


def last_of_runs(values: list[int]) -> list[bool]:
    """Whether the next value is another one; True at the end."""
    return [i + 1 == len(values) or values[i + 1] != values[i] for i in range(len(values))]


def walk(rng: random.Random, bars: int, level: int) -> list[int]:
    """Opens of a random walk in ticks, with bars that do not move and a few that jump."""
    prices = [level]
    while len(prices) < bars:
        prices.append(prices[-1] + rng.choice((0, rng.randint(-3, 3), rng.randint(-9, 9), rng.choice((-25, 25)))))
    return prices


def random_sessions(rng: random.Random, bars: int) -> list[int]:
    """Session numbers; some sessions have a single bar, some number is left out."""
    sessions, number = [], 0
    while len(sessions) < bars:
        sessions += [number] * rng.choice((1, 2, 5, 9, 13))
        number += 1
    return sessions[:bars]


def random_contracts(rng: random.Random, sessions: list[int]) -> list[int]:
    """Front contract by bar: rolls at the start of a session, or anywhere."""
    edges = sorted(rng.sample(range(1, len(sessions)), 2))
    if rng.random() < 0.7:
        starts = [bar for bar in range(1, len(sessions)) if sessions[bar] != sessions[bar - 1]]
        edges = sorted(rng.sample(starts, min(2, len(starts))))
    return [sum(bar >= edge for edge in edges) for bar in range(len(sessions))]


def random_world(rng: random.Random, bars: int, num_features: int, *, has_spread: bool) -> World:
    """Three contracts at their own levels with rolls, holes, session ends, late bars and, if asked for, spreads."""
    sessions = random_sessions(rng, bars)
    contract = random_contracts(rng, sessions)
    paths = [walk(rng, bars, rng.randint(-900, 20_000)) for _ in NAMES]
    late = rng.choice((0, 0, 1, 3))
    is_last = last_of_runs(sessions)
    to_close = [next(k for k in range(bars - bar) if is_last[bar + k]) for bar in range(bars)]
    stray = [rng.random() < 0.03 for _ in range(bars)]
    return World(
        opens=[paths[contract[bar]][bar] for bar in range(bars)],
        exits=[paths[contract[max(bar - 1, 0)]][bar] for bar in range(bars)],
        contract=contract,
        session=sessions,
        is_closing=[bar + 1 < bars and (is_last[bar + 1] or stray[bar + 1]) for bar in range(bars)],
        is_hole=[rng.random() < 0.04 for _ in range(bars)],
        is_no_entry=[bar + 1 < bars and to_close[bar + 1] < late for bar in range(bars)],
        half_spread=[Fraction(rng.randint(0, 12), 8) for _ in range(bars)] if has_spread else None,
        # few and small integers: action values that tie, exactly
        features=[[float(rng.randint(-3, 3)) for _ in range(num_features)] for _ in range(bars)],
    )


def as_market(world: World) -> MarketData:
    """The arrays of a market that say the same."""
    bars = len(world.opens)
    bits = (
        (TRADABLE, [bar < bars - 2 for bar in range(bars)]),
        (LAST_OF_SESSION, last_of_runs(world.session)),
        (ROLL, [world.is_roll(bar) for bar in range(bars)]),
        (GAP, world.is_hole),
        (CLOSING, world.is_closing),
        (NO_ENTRY, world.is_no_entry),
    )
    half = None if world.half_spread is None else np.array([float(x) for x in world.half_spread], np.float32)
    opens, exits = (np.array(ticks, np.int64) for ticks in (world.opens, world.exits))
    return MarketData(
        move_ticks=np.array([world.move_ticks(bar) for bar in range(bars)], np.int32),
        flags=sum(np.where(where, bit, 0) for bit, where in bits).astype(np.int32),
        features=np.array(world.features, np.float32),
        session_id=np.array(world.session, np.int32),
        close_move_ticks=np.zeros(bars, np.int32),
        ts_ns=FIRST_DAY * 24 * NS_PER_HOUR + np.arange(bars) * NS_PER_HOUR,
        trade_day=np.array(world.session, np.int32) + FIRST_DAY,
        contract_id=np.array(world.contract, np.int32),
        open_e9=opens * TICK_E9,
        exit_open_e9=exits * TICK_E9,
        info=dataclasses.replace(market_info(len(world.features[0])), contracts=NAMES),
        half_spread_ticks=half,
    )
