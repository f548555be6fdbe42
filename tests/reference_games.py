"""The games of the reference test: random markets, what the code makes of them, and lanes walked by the reference.

All games of a case run through one compiled program, mapped over its markets.
"""

import dataclasses
import functools
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference_env as reference
from random_worlds import as_market, random_world
from reference_env import Account, Caps, Fees, Game, Rules, Taken
from sequential import rollout_sequential
from tidewalk.agents import replay
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.agents.value import Transition
from tidewalk.core import keys
from tidewalk.market.device import Market, MarketData
from tidewalk.market.windows import Windows
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import CostConfig, Costs, CostTicks, roll_usd
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig, Limits, open_account
from tidewalk.train import rollout as rollouts
from tidewalk.train.collect import collect, transitions
from tidewalk.train.passes import Extent, Rollout, Stretches
from tidewalk.train.population import Lanes, Program, window_of
from tidewalk.train.rollout import follow, rollout

MARKETS = 500
"""Random markets of a case; there are two cases in the default run."""
BARS = 64
"""Length of every device market: what a world does not fill is poison, so that a gather beyond the data shows."""
LANES, N_STEP, EPISODE_BARS = 1, 3, 12
EXTENTS = (
    Extent("scan", BARS, with_path=True),
    Extent("associative", BARS, with_path=True, stretches=Stretches(BARS, BARS)),
    Extent("scan", BARS, with_path=True, stretches=Stretches(BARS + BARS // 5, 5)),
)
"""Forms of a pass: an account is counted row by row, session by session, in parts of at most five rows of a session."""
TICK_USD = Fraction(25, 2)
CENTER, SCALE = 0.5, 2.0
GAMMA = 0.5
"""A power of two, as are all weights here: sums of rewards are exact in float32."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What is the same for all markets of one compiled program."""

    rules: Rules
    limits: tuple[str, ...] = ()
    """Names of the limits that are set, of `Caps`."""
    has_spread: bool = False
    has_no_entry: bool = False

    @property
    def env(self) -> EnvConfig:
        rules = self.rules
        same = ("positions", "lots_per_level", "max_position", "direction", "flat_at_close", "roll_as", "lookback")
        return EnvConfig(
            **{name: getattr(rules, name) for name in same},
            decision_delay=rules.delay,
            no_entry_minutes=5 if self.has_no_entry else 0,
        )

    @property
    def num_positions(self) -> int:
        return 2 * self.rules.positions + 1

    @property
    def num_features(self) -> int:
        """One column for each action, and the number of the bar."""
        return self.num_positions + 1


ALL_LIMITS = ("capital", "daily_loss", "trailing")
CASES = {
    "long, by spread": Case(
        Rules(positions=3, direction="long", roll_as="spread", delay=2), has_spread=True, has_no_entry=True
    ),
    "everything": Case(
        Rules(positions=3, lots_per_level=3, max_position=8, flat_at_close=True, delay=1, lookback=2),
        limits=ALL_LIMITS,
        has_spread=True,
        has_no_entry=True,
    ),
}
MORE_CASES = {
    "plain": Case(Rules()),
    "limits": Case(Rules(positions=2, lots_per_level=2, max_position=9), limits=("daily_loss", "trailing")),
    "short": Case(Rules(positions=2, direction="short", max_position=1, flat_at_close=True), has_spread=True),
    "no entry, both sides": Case(Rules(positions=2, lots_per_level=5, roll_as="spread"), has_no_entry=True),
    "capital": Case(Rules(positions=2, roll_as="spread"), limits=("capital",), has_spread=True),
    "daily loss": Case(Rules(flat_at_close=True), limits=("daily_loss",), has_no_entry=True),
    "trailing, late": Case(Rules(delay=3, lookback=3), limits=("trailing",)),
    "three levels, closed": Case(Rules(positions=3, flat_at_close=True), has_spread=True),
}


def case_of(name: str) -> Case:
    return (CASES | MORE_CASES)[name]


def rolls_by_spread(case: Case) -> bool:
    return case.rules.roll_as == "spread"


# ---- random games


@dataclasses.dataclass(frozen=True)
class Played:
    """A game, the range that is played, and the targets wanted in it."""

    game: Game
    data: MarketData
    limit_usd: dict[str, float | None]
    first: int
    stop: int
    wanted: list[int]
    epsilon: float


def made_up_game(case: Case, seed: int) -> Played:
    rng = random.Random(seed)
    world = random_world(rng, rng.randint(40, BARS - 8), case.num_features, has_spread=case.has_spread)
    bars = len(world.opens)
    raw = [[*row[:-1], bar / 8] for bar, row in enumerate(world.features)]
    scaled = [[min(max((x - CENTER) * SCALE, -10.0), 10.0) for x in row] for row in raw]
    if not case.has_no_entry:
        world = dataclasses.replace(world, is_no_entry=[False] * bars)
    data = as_market(dataclasses.replace(world, features=raw))
    fees = Fees(
        tick_value_usd=TICK_USD,
        commission_usd=rng.choice([Fraction(0), Fraction(5, 4), Fraction(9, 4), Fraction(5, 2)]),
        slippage_ticks=rng.choice([Fraction(0), Fraction(1, 2), Fraction(1)]),
        roll_fee_usd=rng.choice([None, None, Fraction(3), Fraction(0)]),
    )
    # from a limit that a single move breaches to one that is hardly ever met
    ticks = {name: Fraction(rng.choice((3, 15, 40, 120, 400)) * case.rules.lots_per_level) for name in ALL_LIMITS}
    usd = {name: ticks[name] * TICK_USD if name in case.limits else None for name in ALL_LIMITS}
    caps = Caps.of_usd(TICK_USD, *usd.values())
    first = case.rules.delay + case.rules.lookback - 1 + rng.randint(0, 3)
    stop = bars - 1 - rng.choice((0, 0, 1, 4))
    wanted = [rng.randrange(case.num_positions)]
    while len(wanted) < stop - first:
        wanted.append(wanted[-1] if rng.random() < 0.6 else rng.randrange(case.num_positions))
    game = Game(dataclasses.replace(world, features=scaled), case.rules, fees, caps)
    limit_usd = {name: None if value is None else float(value) for name, value in usd.items()}
    return Played(game, data, limit_usd, first, stop, wanted, rng.choice((0.0, 0.0, 1.0)))


@functools.cache
def games(name: str) -> list[Played]:
    case = case_of(name)
    return [made_up_game(case, 1_000 * [*CASES, *MORE_CASES].index(name) + seed) for seed in range(MARKETS)]


def costs_of(fees: Fees) -> Costs:
    given = None if fees.roll_fee_usd is None else float(fees.roll_fee_usd)
    config = CostConfig(slippage_ticks=float(fees.slippage_ticks), roll_fee_usd=given)
    commission, tick_usd = float(fees.commission_usd), float(fees.tick_value_usd)
    return Costs(tick_usd, commission, float(fees.slippage_ticks), roll_usd(config, commission, tick_usd))


def limits_of(played: Played) -> Limits | None:
    usd = played.limit_usd
    config = LimitConfig(usd["capital"], usd["daily_loss"], usd["trailing"])
    return limit_ops.resolve(config, costs_of(played.game.fees))


def by_values(game: Game):
    """A greedy policy whose action values hang on the bar seen and on the position held; ties to the lower index."""

    def choose(t: int, position: int, low: int, high: int) -> int:
        newest = reference.seen(game, t)[-(2 * game.rules.positions + 2) :]
        count = len(newest) - 1
        return max(range(low, high + 1), key=lambda action: (newest[(action + position) % count], -action))

    return choose


def by_wish(played: Played):
    """A policy that wants a path, and takes what is allowed of it."""
    return lambda t, _, low, high: min(max(played.wanted[t - played.first], low), high)


# ---- the code, compiled once for each case and mapped over its markets


def value_table(case: Case):
    count = case.num_positions
    shifted = (np.arange(count)[None, :] + np.arange(count)[:, None]) % count

    def table(seen):
        return seen[-(count + 1) :][shifted]

    return table


def program_of(case: Case) -> Program:
    env, table = case.env, value_table(case)
    agent = make_dqn(DQNConfig(hidden=(2,), n_step=N_STEP), env.observation_size(case.num_features), env.num_positions)
    chosen = dataclasses.replace(
        agent,
        q_values=lambda _, seen: table(seen[: -env.num_positions])[jnp.argmax(seen[-env.num_positions :])],
        q_table=None,
    )
    return Program(
        agent=chosen,
        env=env,
        num_features=case.num_features,
        lanes=LANES,
        capacity=8,
        steps_per_epoch=1,
        prefill_steps=N_STEP,
        episode_bars=EPISODE_BARS,
        select="reward",
        val_bars=BARS,
        test_bars=BARS,
        val_sessions=10,
        compose="scan",
        has_spread=case.has_spread,
    )


def poisoned(data: MarketData) -> Market:
    """The market for the device, followed by bars that nobody may read."""
    beyond = BARS - data.num_bars
    half = data.half_spread_ticks
    return Market(
        move_ticks=np.append(data.move_ticks, np.full(beyond, 1_000_003, np.int32)),
        flags=np.append(data.flags, np.full(beyond, 63, np.int32)),
        features=np.vstack([data.features, np.full((beyond, data.features.shape[1]), np.nan, np.float32)]),
        session_id=np.append(data.session_id, np.full(beyond, 10**6, np.int32)),
        half_spread_ticks=None if half is None else np.append(half, np.full(beyond, np.nan, np.float32)),
    )


def inputs_of(case: Case, played: Played):
    """Arrays of one game: market, windows, limits, costs, wanted path, exploration."""
    span = np.array([played.first, played.stop], np.int32)
    train = span - np.array([0, 1], np.int32)  # a train decision is marked inside the data
    features = np.ones((1, case.num_features), np.float32)
    windows = Windows(
        train=train[None],
        val=span[None],
        test=span[None],
        center=CENTER * features,
        scale=SCALE * features,
        reward_scale=features[:, 0],
    )
    costs = costs_of(played.game.fees)
    roll_ticks = np.array(costs.roll_ticks, np.float32) if rolls_by_spread(case) else None
    cost = CostTicks(np.array(costs.side_ticks, np.float32), roll_ticks)
    wanted = np.array(played.wanted + [0] * (BARS - len(played.wanted)), np.int8)
    return poisoned(played.data), windows, limits_of(played), cost, wanted, np.float32(played.epsilon)


@dataclasses.dataclass(frozen=True)
class Found:
    """What the code says of all games of a case; leaves `[MARKETS, ...]`."""

    rollouts: list[Rollout]
    sequential: np.ndarray
    followed: list[np.ndarray]
    records: replay.Records
    batch: Transition


@functools.cache
def found(name: str) -> Found:
    case = case_of(name)
    env, table = case.env, value_table(case)
    forms = EXTENTS if case.limits else EXTENTS[:2]

    def evaluate(market, window, limits, wanted):
        given = program_of(case), market, window, window.test, table
        greedy = [rollout(*given, limits=limits, extent=form) for form in forms]
        sequential = rollout_sequential(*given, limits=limits, bars=BARS)
        paths = [
            follow(env, market, limits, window.test, wanted, compose=form.compose, stretches=form.stretches)
            for form in forms[-2:]  # row by row too: `test_counted.py`
        ]
        return greedy, sequential, paths

    def train(market, window, limits, cost, epsilon, bits):
        program = program_of(case)
        zero = jnp.zeros(LANES, jnp.int32)
        account = None if limits is None else open_account((LANES,))
        start = Lanes(bar=zero + window.train[0], position=zero + env.flat, age=zero, account=account)
        _, words = jax.lax.scan(
            lambda lanes, row: collect(program, market, window, {}, lanes, row, epsilon, limits), start, bits
        )
        sequences = jnp.stack([words[i : BARS - N_STEP + 1 + i] for i in range(N_STEP)], axis=2)
        batch = transitions(
            program, market, window, sequences.reshape(-1, N_STEP, replay.WORDS), cost, jnp.float32(GAMMA), limits
        )
        return replay.unpack(words), batch

    def everything(market, windows, limits, cost, wanted, epsilon, bits):
        window = window_of(windows, jnp.int32(0))
        return evaluate(market, window, limits, wanted), train(market, window, limits, cost, epsilon, bits)

    rows = [inputs_of(case, played) for played in games(name)]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *rows)
    bits = jax.random.bits(keys.root_key(3), (MARKETS, BARS, 3 * LANES), dtype="uint32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollouts, "CHUNK", 16)  # several chunks: what is held is carried from one to the next
        (greedy, sequential, paths), (records, batch) = jax.device_get(jax.jit(jax.vmap(everything))(*stacked, bits))
    return Found(greedy, sequential, paths, records, batch)


def of_game(tree, number: int):
    return jax.tree.map(lambda leaf: leaf[number], tree)


# ---- training, walked again


@dataclasses.dataclass(frozen=True)
class Walk:
    """One lane by the reference: its episodes, and for each record the place of its row."""

    episodes: list[list[Taken]]
    places: list[tuple[int, int]]


def walked(played: Played, lane: int, records: replay.Records) -> Walk:
    """The lane walked again by the reference: it takes the actions of the code, and checks that each was allowed.

    The start of an episode is drawn at random, so it is the code's own; it has to lie in the train decisions.
    """
    game, stop = played.game, played.stop - 1
    column = jax.tree.map(lambda leaf: leaf[:, lane], records)
    episodes: list[list[Taken]] = []
    places: list[tuple[int, int]] = []
    is_new, account, t = True, Account(game.rules.flat), played.first
    for number in range(BARS):
        if is_new:
            t, account = int(column.bar[number]), Account(game.rules.flat)
            assert number > 0 or t == played.first
            assert played.first <= t < stop, "a lane starts outside the train decisions"
            episodes.append([])
        why = (number, lane, t)
        assert (int(column.bar[number]), int(column.position[number])) == (t, account.position), why
        assert bool(column.is_fresh[number]) == is_new, why
        action = int(column.action[number])
        age = len(episodes[-1])
        taken = reference.take(
            game, t, account, lambda *_, action=action: action, age=age, stop=stop, episode_bars=EPISODE_BARS
        )
        if played.epsilon == 0.0:
            assert action == by_values(game)(t, account.position, taken.row.low, taken.row.high), why
        assert bool(column.is_terminated[number]) == taken.is_terminated, why
        if not taken.is_terminated:
            assert bool(column.is_halted[number]) == taken.row.account.is_halted, why
        places.append((len(episodes) - 1, age))
        episodes[-1].append(taken)
        is_new, account, t = taken.is_terminated or taken.is_truncated, taken.row.account, t + 1
    return Walk(episodes, places)


@functools.cache
def walks(name: str) -> list[list[Walk]]:
    return [
        [walked(played, lane, of_game(found(name).records, number)) for lane in range(LANES)]
        for number, played in enumerate(games(name))
    ]
