"""The whole environment against a slow reference: plain Python, Decimal money, from the rules and not from the code.

The rules: the decision of bar t is made at its close, fills at the open of bar t+1 in the contract that is front there,
and earns until the open of bar t+2. Where the front contract changes, the old one is left at its own price and the new
one is entered at its own: two fills. A range starts flat and its last decision is flat. With flat-at-close nothing is
held over the end of a session. A decision is booked to the session of the bar it fills in. (validity.md P5, P6, P7)
"""

import dataclasses
import datetime as dt
import functools
import random
import tempfile
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from made_up_bars import HOUR_NS, TICK_E9, day_ns, loaded, table, weekdays
from support import market_info
from tidewalk.agents import replay
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import keys
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.market.device import GAP, Market, MarketData
from tidewalk.market.prepare import flags, moves
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.account import allowed, book, by_session, costs_usd, gross_usd, ledger
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.train import rollout as rollouts
from tidewalk.train.population import Lanes, Program, window_of
from tidewalk.train.rollout import collect, rollout, rollout_sequential, transitions

CASES = 80
"""Random markets per environment; there are four environments."""
BARS = 96
"""Length of every device market: what a case does not fill is poison, so that a gather beyond the data shows."""
ENVS = [
    EnvConfig(),
    EnvConfig(flat_at_close=True),
    EnvConfig(positions=3),
    EnvConfig(positions=3, flat_at_close=True),
]
TICK, MULTIPLIER = Decimal("0.25"), Decimal(50)
COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)
SIDE_USD = Decimal("0.5") * TICK * MULTIPLIER + Decimal("2.25")
NAMES = ("ESH4", "ESM4", "ESU4")


# ---- the reference


@dataclasses.dataclass(frozen=True)
class Bar:
    contract: str
    day: dt.date
    hour: int
    open: int
    high: int
    low: int
    close: int
    volume: int


@dataclasses.dataclass(frozen=True)
class Result:
    positions: list[int]
    decision_usd: list[Decimal]
    sides: list[int]
    fills: list[tuple[Bar, str, int, int, Decimal]]
    """bar, contract, lots, position after, price"""
    session_usd: dict[dt.date, Decimal]
    equity: Decimal


def reference_front(contracts: list[list[Bar]]) -> list[Bar]:
    """Bars of the front contract: the session before decides by volume, rolls go forward, an absent one is left.

    The choice is the reference's own and is handed on as a table: which rule chooses is not at stake here.
    """
    days = sorted({bar.day for bars in contracts for bar in bars})
    by_day = [{day: [bar for bar in bars if bar.day == day] for day in days} for bars in contracts]
    volume = [{day: sum(bar.volume for bar in bars) for day, bars in of.items()} for of in by_day]
    current = next(i for i in range(len(contracts)) if by_day[i][days[0]])
    front = []
    for number, day in enumerate(days):
        if number > 0:
            before = days[number - 1]
            rivals = [i for i in range(current + 1, len(contracts)) if by_day[i][day]]
            best = max(rivals, key=lambda i: volume[i][before], default=current)
            if volume[best][before] > volume[current][before]:
                current = best
        if not by_day[current][day]:
            current = next((i for i in range(current + 1, len(contracts)) if by_day[i][day]), current)
        front += by_day[current][day]
    return front


def front_table(contracts: list[list[Bar]]) -> str:
    """The choice of the reference as a roll table: which contract is front from which day on."""
    front = reference_front(contracts)
    changes = [
        bar for before, bar in zip([None, *front], front, strict=False) if not before or before.contract != bar.contract
    ]
    return "date,contract\n" + "".join(f"{bar.day},{bar.contract}\n" for bar in changes)


def leaving_ticks(contracts: list[list[Bar]], name: str, at: Bar) -> int:
    """Price at which contract `name` can be left when the bar `at` opens."""
    bars = contracts[NAMES.index(name)]
    now_or_later = [bar for bar in bars if bar.day == at.day and bar.hour >= at.hour]
    before = [bar for bar in bars if (bar.day, bar.hour) < (at.day, at.hour)]
    return now_or_later[0].open if now_or_later else before[-1].close


def reference(
    contracts: list[list[Bar]], first: int, wanted: list[int], *, flat_at_close: bool, closes_at_end: bool = True
) -> Result:
    bars = reference_front(contracts)
    position, cash, costs = 0, Decimal(0), Decimal(0)
    result = Result([], [], [], [], {}, Decimal(0))
    for number, target in enumerate(wanted):
        before, fill = bars[first + number], bars[first + number + 1]
        after = bars[first + number + 2] if first + number + 2 < len(bars) else None
        is_last_of_session = after is None or after.day != fill.day
        if (closes_at_end and number == len(wanted) - 1) or (flat_at_close and is_last_of_session):
            target = 0
        parts = [(fill.contract, target - position, target, fill.open)]
        if fill.contract != before.contract:
            old_ticks = leaving_ticks(contracts, before.contract, fill)
            parts = [(before.contract, -position, 0, old_ticks), (fill.contract, target, target, fill.open)]
        traded = 0
        for name, lots, held, ticks in parts:
            if lots:
                result.fills.append((fill, name, lots, held, ticks * TICK))
                cash -= lots * ticks * TICK * MULTIPLIER
                traded += abs(lots)
        position = target
        assert after is not None or position == 0, "nothing can be marked after the last bar"
        mark = fill.open if after is None else after.open
        if after is not None and after.contract != fill.contract:
            mark = leaving_ticks(contracts, fill.contract, after)
        earned = position * (mark - fill.open) * TICK * MULTIPLIER
        costs += traded * SIDE_USD
        result.positions.append(position)
        result.sides.append(traded)
        result.decision_usd.append(earned)
        result.session_usd[fill.day] = result.session_usd.get(fill.day, Decimal(0)) + earned - traded * SIDE_USD
    if closes_at_end:
        assert position == 0
        assert sum(result.decision_usd) == cash, "the marks of a path that ends flat are the cash of its fills"
        assert sum(result.session_usd.values()) == cash - costs
    return dataclasses.replace(result, equity=cash - costs)


# ---- random situations


@dataclasses.dataclass(frozen=True)
class Case:
    contracts: list[list[Bar]]
    data: MarketData
    first: int
    wanted: list[int]


def made_up_contract(rng: random.Random, name: str, days: list[dt.date], level: int, loud: range) -> list[Bar]:
    """Hourly bars with holes, some of a whole day; much volume on the days numbered in `loud`."""
    bars, price = [], level
    for number, day in enumerate(days):
        if 0 < number < len(days) - 1 and rng.random() < 0.15:
            continue
        for hour in sorted(rng.sample(range(21), rng.randint(1, 6))):
            price += rng.choice((0, 0, rng.randint(-9, 9)))
            close = price + rng.randint(-6, 6)
            high, low = max(price, close) + rng.randint(0, 3), min(price, close) - rng.randint(0, 3)
            volume = rng.randint(50, 99) if number in loud else rng.randint(0, 9)
            bars.append(Bar(name, day, hour, price, high, low, close, volume))
            price = close
    return bars


def made_up_contracts(rng: random.Random) -> list[list[Bar]]:
    """Three contracts: successive ones take over the volume, may end early or begin late, and sell at other levels."""
    days = weekdays(dt.date(2024, 1, rng.randint(2, 5)), rng.randint(4, 9))
    one, two = sorted(rng.sample(range(len(days) + 2), 2))
    loud = (range(one), range(one, two), range(two, len(days)))
    level = rng.choice((20_000, 40, -800))
    contracts = []
    for number, name in enumerate(NAMES):
        start = 0 if number == 0 else rng.randint(0, min(2, len(days) - 1))
        stop = len(days) if number == len(NAMES) - 1 else rng.randint(start + 1, len(days))
        kept = days[start:stop]
        level += rng.randint(-200, 200)
        shifted = range(loud[number].start - start, loud[number].stop - start)
        contracts.append(made_up_contract(rng, name, kept, level, shifted))
    return contracts


def as_market(contracts: list[list[Bar]], features: np.ndarray | None = None) -> MarketData:
    """The code's own way from tables of contracts to a market; features are left to the caller."""
    tables = [
        table(
            bars[0].contract,
            [day_ns(bar.day) + bar.hour * HOUR_NS for bar in bars],
            np.array([(bar.open, bar.high, bar.low, bar.close) for bar in bars]),
            [bar.volume for bar in bars],
        )
        for bars in contracts
    ]
    spec = spec_for("ES")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(front_table(contracts))
        file.flush()
        series = front_series(loaded(tables), spec, f"table:{file.name}")
    length = len(series.ts_ns)
    move_ticks, findings = moves(series, spec)
    assert not findings
    return MarketData(
        move_ticks=move_ticks,
        flags=flags(series),
        features=np.zeros((length, 2), np.float32) if features is None else features,
        session_id=np.unique(series.trade_day, return_inverse=True)[1].astype(np.int32),
        close_move_ticks=((series.close_e9 - series.close_prev_e9) // TICK_E9).astype(np.int32),
        ts_ns=series.ts_ns,
        trade_day=series.trade_day,
        contract_id=series.contract_id,
        open_e9=series.open_e9,
        exit_open_e9=series.exit_open_e9,
        info=market_info(2, contracts=series.contracts),
    )


def made_up_case(seed: int, levels: int) -> Case:
    rng = random.Random(seed)
    while True:
        contracts = made_up_contracts(rng)
        data = as_market(contracts)
        if 8 <= data.num_bars <= BARS - 8:
            break
    first = rng.randint(0, 3)
    count = data.num_bars - 1 - first - rng.choice((0, 0, 1, 3))
    wanted = [rng.randint(-levels, levels)]
    while len(wanted) < count:
        wanted.append(wanted[-1] if rng.random() < 0.5 else rng.randint(-levels, levels))
    features = np.zeros((data.num_bars, 2), np.float32)
    features[first : first + count, 0] = np.array(wanted) + levels
    features[:, 1] = 0.1 * np.arange(data.num_bars)  # says which bar was seen, within the clip of observations
    return Case(contracts, dataclasses.replace(data, features=features), first, wanted)


def cases(env: EnvConfig) -> list[Case]:
    return [made_up_case(seed, env.positions) for seed in range(CASES)]


# ---- the books on the host


@pytest.mark.parametrize("env", ENVS, ids=str)
def test_books_ledger_and_sessions_equal_the_reference(env):
    rolls = 0
    for seed, case in enumerate(cases(env)):
        right = reference(case.contracts, case.first, case.wanted, flat_at_close=env.flat_at_close)
        lots = allowed(case.data, env, case.first, np.array(case.wanted))
        account = book(case.data, case.first, lots)
        assert account.after_lots.tolist() == right.positions, seed
        assert account.sides.tolist() == right.sides, seed
        earned = [Decimal(int(ticks)) * TICK * MULTIPLIER for ticks in account.gross_ticks]
        assert earned == right.decision_usd, seed
        fills = ledger(case.data, account, COSTS)
        found = [(f.ts_ns, f.contract, f.lots, f.position_after, Decimal(f.price)) for f in fills]
        assert found == [(day_ns(b.day) + b.hour * HOUR_NS, *rest) for b, *rest in right.fills], seed
        assert [Decimal(f.costs_usd) for f in fills] == [abs(lots) * SIDE_USD for _, _, lots, _, _ in right.fills], seed
        sessions = by_session(case.data, account)
        net = gross_usd(COSTS, sessions.gross_ticks) - costs_usd(COSTS, sessions.sides)
        days = [dt.date(1970, 1, 1) + dt.timedelta(days=int(day)) for day in sessions.trade_day]
        assert dict(zip(days, map(Decimal, net.tolist()), strict=True)) == right.session_usd, seed
        total = gross_usd(COSTS, account.gross_ticks.sum()) - costs_usd(COSTS, account.sides.sum())
        assert Decimal(float(total)) == right.equity, seed
        rolls += sum(reason == "roll-out" for reason in (f.reason for f in fills))
    assert rolls > CASES / 4 or env.flat_at_close, "the cases must hold positions over rolls"


# ---- the device


def poisoned(data: MarketData) -> Market:
    """The market on the device, followed by bars that nobody may read."""
    beyond = BARS - data.num_bars
    return Market(
        move_ticks=jnp.asarray(np.append(data.move_ticks, np.full(beyond, 1_000_003, np.int32))),
        flags=jnp.asarray(np.append(data.flags, np.full(beyond, 31, np.int32))),
        features=jnp.asarray(np.vstack([data.features, np.full((beyond, 2), np.nan, np.float32)])),
        session_id=jnp.asarray(np.append(data.session_id, np.full(beyond, 10**6, np.int32))),
    )


def window_row(first: int, count: int) -> Windows:
    span, one = jnp.array([[first, first + count]], jnp.int32), jnp.ones((1, 2), jnp.float32)
    windows = Windows(train=span, val=span, test=span, center=0 * one, scale=one, reward_scale=one[:, 0])
    return window_of(windows, jnp.int32(0))


def wanted_table(env: EnvConfig):
    """Action values that prefer the action which the market's first feature names, whatever is held."""

    def values(seen):
        best = jax.nn.one_hot(seen[0].astype(jnp.int32), env.num_positions, dtype=jnp.float32)
        return jnp.broadcast_to(best, (env.num_positions, env.num_positions))

    return values


def program_of(env: EnvConfig, compose: str = "scan") -> Program:
    agent = make_dqn(DQNConfig(hidden=(2,)), env.observation_size(2), env.num_positions)
    sizes = {"num_features": 2, "lanes": 1, "capacity": 8, "steps_per_epoch": 1, "prefill_steps": 3}
    limits = {"val_bars": BARS, "test_bars": BARS, "val_sessions": 10, "episode_bars": 1000}
    chosen = dataclasses.replace(agent, q_values=lambda _, observation: wanted_table(env)(observation)[0])
    return Program(agent=chosen, env=env, select="reward", compose=compose, **sizes, **limits)


@pytest.mark.parametrize("env", ENVS, ids=str)
def test_greedy_rollouts_equal_the_reference(env, monkeypatch):
    monkeypatch.setattr(rollouts, "CHUNK", 8)  # several chunks: what is held is carried from one to the next

    def play(market, window):
        found = [
            rollout(program_of(env, form), market, window, window.test, wanted_table(env), bars=BARS, with_path=True)
            for form in ("scan", "associative")
        ]
        again = rollout_sequential(program_of(env), market, window, window.test, wanted_table(env), bars=BARS)
        return found, again

    played = jax.jit(play)
    for seed, case in enumerate(cases(env)):
        right = reference(case.contracts, case.first, case.wanted, flat_at_close=env.flat_at_close)
        found, again = played(poisoned(case.data), window_row(case.first, len(case.wanted)))
        ticks = sum(right.decision_usd) / (TICK * MULTIPLIER)
        path = [*right.positions, *[0] * (BARS - len(right.positions))]
        for form in found:
            assert (np.asarray(form.positions, int) - env.flat).tolist() == path, seed
            assert (int(form.gross_ticks), int(form.sides)) == (ticks, sum(right.sides)), seed
        assert (np.asarray(again, int) - env.flat).tolist() == path, seed


@pytest.mark.parametrize("env", ENVS, ids=str)
def test_collected_lanes_and_replayed_transitions_equal_the_reference(env):
    """One lane that acts greedily walks the reference path; its records, replayed, earn the reference's money."""
    program, n_step = program_of(env), 3

    @jax.jit
    def walk(market, window, lanes, bits):
        def body(lanes, words):
            return collect(program, market, window, {}, lanes, words, jnp.float32(0.0))

        return jax.lax.scan(body, lanes, bits)

    @jax.jit
    def replayed(market, window, records, cost_ticks, gamma):
        return transitions(program, market, window, records, cost_ticks, gamma)

    taken = jax.jit(functools.partial(env_ops.step, env))
    bits = jax.random.bits(keys.root_key(0), (BARS, 3), dtype="uint32")
    for seed, case in enumerate(cases(env)):
        wanted = case.wanted[: case.data.num_bars - 2 - case.first]  # a train decision is marked inside the data
        count = len(wanted)
        right = reference(case.contracts, case.first, wanted, flat_at_close=env.flat_at_close, closes_at_end=False)
        # the made-up bars are full of holes, at which a lane would restart: of that tests/train/test_rollout.py speaks
        whole = dataclasses.replace(case.data, flags=case.data.flags & ~GAP)
        market, window = poisoned(whole), window_row(case.first, count)
        zero = jnp.zeros(1, jnp.int32)
        start = Lanes(bar=zero + case.first, position=zero + env.flat, age=zero)
        _, rows = walk(market, window, start, bits)
        bar, position, action, is_fresh = (np.asarray(part)[:, 0] for part in replay.unpack(rows))
        assert bar[:count].tolist() == list(range(case.first, case.first + count)), seed
        assert (position[:count] - env.flat).tolist() == [0, *right.positions[:-1]], seed
        assert (action[:count] - env.flat).tolist() == wanted, seed
        assert is_fresh[: count + 1].tolist() == [True, *[False] * (count - 1), True], seed
        assert (position[count], case.first <= bar[count] < case.first + count) == (env.flat, True), seed
        assert ((bar >= case.first) & (bar < case.first + count)).all(), seed

        step = taken(market.move_ticks[bar], market.flags[bar], jnp.asarray(position), jnp.asarray(action))
        ticks = [int(usd / (TICK * MULTIPLIER)) for usd in right.decision_usd]
        assert step.gross_ticks[:count].tolist() == ticks, seed
        assert step.sides[:count].tolist() == right.sides, seed
        assert (np.asarray(step.position[:count]) - env.flat).tolist() == right.positions, seed

        sequences = jnp.stack([rows[i : BARS - n_step + 1 + i, 0] for i in range(n_step)], axis=1)
        batch = replayed(market, window, sequences, jnp.float32(2.0), jnp.float32(1.0))
        net = [t - 2 * s for t, s in zip(ticks, right.sides, strict=True)]
        last = [min(i + n_step, count) for i in range(count)]
        assert batch.reward_t[:count].tolist() == [sum(net[i:stop]) for i, stop in enumerate(last)], seed
        final = np.asarray(batch.observation_t[:count])
        assert (final[:, 2:].argmax(axis=1) - env.flat).tolist() == [right.positions[stop - 1] for stop in last], seed
        assert final[:, 1].tolist() == case.data.features[case.first + np.array(last), 1].tolist(), seed


# ---- P5, P6: what must not matter


def outcome(contracts: list[list[Bar]], first: int, wanted: list[int], env: EnvConfig):
    data = as_market(contracts)
    account = book(data, first, allowed(data, env, first, np.array(wanted)))
    return account.gross_ticks.tolist(), account.sides.tolist()


def changed(contracts: list[list[Bar]], change) -> list[list[Bar]]:
    return [[dataclasses.replace(bar, **change(bar)) for bar in bars] for bars in contracts]


def priced(price) -> object:
    """A change of all prices of a bar; `price` must keep their order."""
    return lambda bar: {name: price(getattr(bar, name)) for name in ("open", "high", "low", "close")}


def mirrored(bar: Bar) -> dict[str, int]:
    return {"open": -bar.open, "high": -bar.low, "low": -bar.high, "close": -bar.close}


@pytest.mark.parametrize("env", ENVS[2:], ids=str)
def test_level_scale_mirror_and_time_do_not_matter(env):
    for seed, case in enumerate(cases(env)[:25]):
        gross, sides = outcome(case.contracts, case.first, case.wanted, env)
        lifted = changed(case.contracts, priced(lambda ticks: ticks + 777))
        assert outcome(lifted, case.first, case.wanted, env) == (gross, sides), seed
        doubled = changed(case.contracts, priced(lambda ticks: 2 * ticks))
        assert outcome(doubled, case.first, case.wanted, env) == ([2 * ticks for ticks in gross], sides), seed
        upside_down = changed(case.contracts, mirrored)
        assert outcome(upside_down, case.first, [-lots for lots in case.wanted], env) == (gross, sides), seed
        later = changed(case.contracts, lambda bar: {"day": bar.day + dt.timedelta(weeks=4)})
        assert outcome(later, case.first, case.wanted, env) == (gross, sides), seed


def level_of_the_contract(bar: Bar) -> dict[str, int]:
    return dict.fromkeys(("open", "high", "low", "close"), 100 * NAMES.index(bar.contract))


def test_a_market_that_does_not_move_returns_nothing_but_costs():
    env = EnvConfig(positions=3)
    for seed, case in enumerate(cases(env)[:25]):
        still = changed(case.contracts, level_of_the_contract)
        right = reference(still, case.first, case.wanted, flat_at_close=False)
        assert right.equity == -sum(right.sides) * SIDE_USD, seed
        assert not any(outcome(still, case.first, case.wanted, env)[0]), seed


# validity.md B13: CL closes 18.27, -37.63, 10.01; long 1 over them is -55,900 and +47,640 USD
def test_a_price_that_turns_negative_is_booked_as_it_is():
    cents = [1827, 1827, 1827, -3763, 1001, 1001]
    days = weekdays(dt.date(2024, 1, 2), len(cents))
    bars = [Bar("ESH4", day, 10, *[price] * 4, volume=1) for day, price in zip(days, cents, strict=True)]
    data = as_market([bars])
    account = book(data, 0, allowed(data, EnvConfig(), 0, np.array([0, 1, 1, 1, 0])))
    in_cents = account.gross_ticks * 10  # one tick of the made-up contract stands for 0.01 of 1,000 barrels
    assert in_cents.tolist() == [0, -55_900, 47_640, 0, 0]
