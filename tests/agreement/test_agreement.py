"""Agreement with independent engines, to the cent: docs/agreement.md says what was compared and what cannot be."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agreement.comparison import (
    assert_backtesting_agrees,
    assert_nautilus_agrees,
    case_of,
    cycles,
    fills_by_order,
    net_usd,
    run_engine,
)
from made_up_bars import hourly_contracts, prepared, table
from random_worlds import as_market, random_world
from support import random_half_spreads
from tidewalk.data.load import DataConfig
from tidewalk.market.device import CLOSING, NO_ENTRY, ROLL, MarketData
from tidewalk.market.prepare import SeriesConfig, prepare_market
from tidewalk.market.rules import with_no_entry
from tidewalk.trading.account import Book, book
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.ledger import fills, trades
from tidewalk.trading.limits import LimitConfig, Limits, resolve
from tidewalk.train.baselines import NAMES, wanted
from tidewalk.train.rollout import follow

NAUTILUS, BACKTESTING = "engine_nautilus.py", "engine_backtesting.py"
ES_COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)
Case = tuple[str, MarketData, Book, Costs]


def costs_of(market: MarketData, slippage_ticks: float = 0.5) -> Costs:
    return Costs(market.info.tick_value_usd, market.info.commission_usd, slippage_ticks)


def path(market: MarketData, env: EnvConfig, first: int, wanted_lots: np.ndarray, limits: Limits | None = None) -> Book:
    """The book of wanted positions as the device lets them fill under the rules."""
    index = jnp.asarray(wanted_lots // env.lots_per_level + env.flat, jnp.int8)
    decisions = jnp.asarray([first, first + len(wanted_lots)], jnp.int32)
    held = np.asarray(follow(env, jax.device_put(market.on_device()), limits, decisions, index)).astype(np.int64)
    return book(market, first, (held - env.flat) * env.lots_per_level)


def random_lots(seed: int, count: int, levels: int, stay: float = 0.5) -> np.ndarray:
    """Positions of up to so many lots each side, each kept for a while."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-levels, levels + 1, count)
    fresh = rng.random(count) >= stay
    fresh[0] = True
    return drawn[np.maximum.accumulate(np.where(fresh, np.arange(count), 0))]


def agree(cases: list[Case], *, backtesting: bool = True) -> dict[str, int]:
    """Run all cases through the engines; number of fills of each."""
    jobs = [case_of(*case) for case in cases]
    by_nautilus = run_engine(NAUTILUS, jobs)
    by_backtesting = run_engine(BACKTESTING, jobs) if backtesting else {}
    counted = {}
    for name, market, account, costs in cases:
        counted[name] = assert_nautilus_agrees(market, account, costs, by_nautilus[name])
        if backtesting:
            assert_backtesting_agrees(market, account, costs, by_backtesting[name])
        print(f"{name}: {counted[name]} fills, {net_usd(account, costs):.2f}")
    return counted


# Markets made up: rolls, flips, several lots, both signs of prices.


def two_contracts(shift_ticks: int = 0) -> MarketData:
    """Sixty sessions of hourly bars and a roll in the middle, prices moved by a number of ticks."""
    moved = []
    for part in hourly_contracts(60, roll_after=30, seed=4):
        columns = (part.open_e9, part.high_e9, part.low_e9, part.close_e9)
        ticks = np.stack([column // 250_000_000 + shift_ticks for column in columns], axis=1)
        moved.append(table(part.contract, part.ts_ns, ticks, part.volume))
    return prepared(moved).market


@pytest.mark.slow
def test_flips_rolls_and_several_lots_in_a_market_made_up():
    market = two_contracts()
    assert np.count_nonzero(market.flags & ROLL) == 1
    count, cases = market.num_bars - 8, []
    for levels in (1, 3, 50):
        for seed in range(4):
            account = path(market, EnvConfig(positions=levels), 5, random_lots(seed, count, levels))
            cases.append((f"{levels} levels, seed {seed}", market, account, ES_COSTS))
    env = EnvConfig(positions=2, lots_per_level=5, flat_at_close=True, no_entry_minutes=480)
    ruled = with_no_entry(market, 480)
    assert np.count_nonzero(ruled.flags & NO_ENTRY) > 50
    account = path(ruled, env, 5, 5 * random_lots(9, count, 2))
    assert not account.after_lots[(ruled.flags[5 : 5 + count] & CLOSING) != 0].any()
    cases.append(("rules of the session", ruled, account, ES_COSTS))
    assert min(agree(cases).values()) > 100


@pytest.mark.slow
def test_a_hundred_small_markets_with_rolls_anywhere():
    """Contracts that are front for a single bar, rolls inside a session, flat and reversed over a roll."""
    cases, seen = [], set()
    for seed in range(100):
        market = random_half_spreads(as_market(random_world(random.Random(seed), 40, 1, has_spread=False)), seed)
        market = dataclasses.replace(market, half_spread_ticks=market.half_spread_ticks if seed % 2 else None)
        account = book(market, 2, np.append(random_lots(seed, 36, 3, stay=0.6), 0))
        at_roll = np.flatnonzero(market.flags[2:39] & ROLL)
        seen |= {tuple(np.sign([account.before_lots[row], account.after_lots[row]])) for row in at_roll}
        cases.append((f"world {seed}", market, account, ES_COSTS))
    assert len(seen) == 9  # long, flat and short before and after a roll
    agree(cases, backtesting=False)
    # Backtesting.py takes slippage as a fee, so not that of a recorded spread, and a price of exactly 0 for none.
    plain = [case for case in cases if case[1].half_spread_ticks is None and case[1].open_e9.all()]
    plain = [case for case in plain if case[1].exit_open_e9.all()]
    assert len(plain) > 30
    agree(plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shift_ticks"), [("around zero", -20_057), ("below zero", -40_000), ("at zero", None)]
)
def test_prices_at_and_below_zero(name, shift_ticks):
    """Backtesting.py takes a price of exactly 0 for none."""
    if shift_ticks is None:
        shift_ticks = -int(two_contracts().open_e9[100]) // 250_000_000
    market = two_contracts(shift_ticks)
    account = path(market, EnvConfig(positions=2), 5, random_lots(3, market.num_bars - 8, 2))
    is_at_zero = not (market.open_e9[account.fill_bars].all() and market.exit_open_e9[account.fill_bars].all())
    assert market.open_e9.min() < 0
    assert is_at_zero == (name == "at zero")
    agree([(name, market, account, ES_COSTS)], backtesting=not is_at_zero)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "halts"),
    [
        ({"daily_loss_usd": 400.0}, 10),
        ({"trailing_drawdown_usd": 3000.0}, 100),
        ({"capital_usd": 2500.0}, 100),
        ({"capital_usd": 4000.0, "daily_loss_usd": 350.0, "trailing_drawdown_usd": 3500.0}, 50),
    ],
)
def test_account_limits_act_on_the_equity_that_another_engine_has(given, halts):
    """The rule in plain words on the engine's equity at every open: a position is wanted, or forced flat."""
    market, first = two_contracts(), 5
    wanted = random_lots(4, market.num_bars - 8, 2)
    config = LimitConfig(**given)
    account = path(market, EnvConfig(positions=2), first, wanted, resolve(config, ES_COSTS))
    opens = range(first + 2, first + len(wanted) + 1)  # what a row earned is known at the open of the next fill
    job = {**case_of("limits", market, account, ES_COSTS), "marks": list(opens)}
    equity_usd = {bar: float(equity) for bar, equity in run_engine(NAUTILUS, [job])["limits"]["marks"]}
    session, before, peak, day, is_over, forced = market.session_id, 0.0, 0.0, 0.0, False, 0
    for row, bar in enumerate(opens):
        equity = equity_usd[bar]
        day = equity - before + (day if session[bar - 1] == session[bar - 2] and row else 0.0)
        before, peak = equity, max(peak, equity)
        is_over |= config.capital_usd is not None and config.capital_usd + equity <= 0
        is_over |= config.trailing_drawdown_usd is not None and peak - equity >= config.trailing_drawdown_usd
        is_daily = config.daily_loss_usd is not None and day <= -config.daily_loss_usd
        is_halted = is_over or (is_daily and session[bar] == session[bar - 1])
        is_last = row + 2 == len(wanted)
        assert account.after_lots[row + 1] == (0 if is_halted or is_last else wanted[row + 1]), f"row {row + 1}"
        forced += is_halted
    assert forced > halts


@pytest.mark.slow
def test_the_comparison_sees_a_cent_a_bar_and_a_lot():
    """What must not agree: each change of what the engine is given is found."""
    market = two_contracts()
    account = path(market, EnvConfig(positions=2), 5, random_lots(1, market.num_bars - 8, 2))
    job = case_of("as it is", market, account, ES_COSTS)
    later = [0, *account.after_lots[:-2].tolist(), 0]
    dearer = float(job["commission_usd"]) + 0.01
    stale = {**job["bars"], "open_e9": [job["bars"]["open_e9"][0], *job["bars"]["open_e9"][:-1]]}
    held_over = {**job["bars"], "exit_e9": job["bars"]["open_e9"]}
    changed = [
        {**job, "name": "a bar later", "targets": later},
        {**job, "name": "a cent dearer", "commission_usd": f"{dearer:.2f}", "side_usd": job["side_usd"] + 0.01},
        {**job, "name": "another multiplier", "multiplier": "50.1"},
        {**job, "name": "at the open before", "bars": stale},
        {**job, "name": "the roll as a move", "bars": held_over},
    ]
    assert account.before_lots[market.flags[5 : 5 + len(account.after_lots)] & ROLL != 0].all()
    nautilus, backtesting = (run_engine(script, [job, *changed]) for script in (NAUTILUS, BACKTESTING))
    assert_nautilus_agrees(market, account, ES_COSTS, nautilus["as it is"])
    assert_backtesting_agrees(market, account, ES_COSTS, backtesting["as it is"])
    for wrong in changed:
        with pytest.raises(AssertionError):
            assert_nautilus_agrees(market, account, ES_COSTS, nautilus[wrong["name"]])
        with pytest.raises(AssertionError):
            assert_backtesting_agrees(market, account, ES_COSTS, backtesting[wrong["name"]])


# Real files.


def real_market(path, symbol: str, **data) -> MarketData:
    return prepare_market(DataConfig(path, symbol, **data), SeriesConfig())


@pytest.mark.slow
def test_a_year_of_nq(shared_data):
    """All of 2019 in bars of five minutes: random positions, and every baseline."""
    path_ = shared_data / "csv" / "nq_5min_2019_pacific.csv"
    market = real_market(path_, "NQ", tz="America/Los_Angeles")
    first, count = 1000, market.num_bars - 1003
    costs = costs_of(market)
    env = EnvConfig()
    books = {
        name: path(market, env, first, wanted(name, market, env)[first : first + count].astype(np.int64) - env.flat)
        for name in NAMES
        if name != "flat"
    }
    books["random"] = path(market, EnvConfig(positions=3), first, random_lots(0, count, 3, stay=0.9))
    books["flat at the close"] = path(market, EnvConfig(flat_at_close=True), first, random_lots(1, count, 1, stay=0.97))
    counted = agree([(name, market, account, costs) for name, account in books.items()])
    assert counted["long"] == counted["short"] == 2
    assert counted["random"] > 5000


@pytest.mark.slow
@pytest.mark.parametrize(("name", "symbol"), [("es", "ES"), ("cl", "CL"), ("zn", "ZN"), ("6e", "6E")])
def test_fifteen_years_of_days(shared_data, name, symbol):
    market = real_market(shared_data / "csv" / f"databento_{name}.c.0_daily_2010-2026.csv", symbol)
    first, count = 100, market.num_bars - 103
    account = path(market, EnvConfig(positions=2), first, random_lots(5, count, 2))
    agree([(name, market, account, costs_of(market))])


@pytest.mark.slow
def test_a_roll_between_two_real_contracts(shared_data):
    """ESZ3 to ESH4 in December 2013, each at its own prices."""
    file = shared_data / "dbn_built" / "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"
    market = real_market(file, "ES.FUT")
    roll = np.flatnonzero(market.flags & ROLL)
    assert [market.info.contracts[i] for i in np.unique(market.contract_id)] == ["ESZ3", "ESH4"]
    first, count = 200, market.num_bars - 203
    cases = []
    for seed in range(3):
        account = path(market, EnvConfig(positions=2), first, random_lots(seed, count, 2, stay=0.95))
        cases.append((f"seed {seed}", market, account, costs_of(market)))
    steady = np.full(count, 2)
    cases.append(("held over the roll", market, path(market, EnvConfig(positions=2), first, steady), costs_of(market)))
    counted = agree(cases)
    assert counted["held over the roll"] == 2 + 2 * len(roll)


# The comparison itself, without an engine.


def test_positions_from_flat_to_flat_are_the_round_trips_that_overlap():
    market = two_contracts()
    lots = np.zeros(40, np.int64)
    lots[:12] = (1, 2, 1, 2, 2, 0, 0, -1, 1, 1, 3, 0)
    account = book(market, 5, lots)
    trips = trades(fills(market, account, ES_COSTS), ES_COSTS)
    found = cycles(trips)
    opened = market.ts_ns[[6, 13, 14]].tolist()
    closed = market.ts_ns[[11, 14, 17]].tolist()
    assert [(entry, exit_) for _, entry, exit_, _ in found] == list(zip(opened, closed, strict=True))
    assert sum(net for *_, net in found) == pytest.approx(net_usd(account, ES_COSTS), abs=1e-9)
    assert [order[2] for order in fills_by_order(fills(market, account, ES_COSTS))] == [1, 1, -1, 1, -2, -1, 2, 2, -3]
