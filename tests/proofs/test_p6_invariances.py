"""P6: what must not matter does not: level, scale, mirror, time and names of prices; order and number of members."""

import dataclasses
import datetime as dt
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from random_contracts import PRICES, Bar, changed, made_up_contracts, prepared_market
from support import as_nq, chain_market, planted_market, planted_signs, small_config
from tidewalk.core import trees
from tidewalk.market.device import MarketData
from tidewalk.run.study import plan_study
from tidewalk.trading.account import book, gross_usd
from tidewalk.trading.costs import Costs, CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train.passes import Extent
from tidewalk.train.population import window_of
from tidewalk.train.rollout import follow, rollout
from worlds import World, base, base_epoch, fresh, make_world

CASES, FIRST, LEVELS = 25, 1, 3
ROWS = slice(FIRST, -1)


# ---- from bars to books


def made(contracts: list[list[Bar]], seed: int, sign: int = 1):
    """Market, and the books of a random path (or of its mirror image) over it."""
    market = prepared_market(contracts)
    lots = sign * np.random.default_rng(seed).integers(-LEVELS, LEVELS + 1, market.num_bars - 1 - FIRST)
    lots[-1:] = 0
    return market, book(market, FIRST, lots)


def priced(price):
    """A change of all prices of a bar; `price` must keep their order."""
    return lambda bar: {name: price(getattr(bar, name)) for name in PRICES}


def mirrored(bar: Bar) -> dict[str, int]:
    return {"open": -bar.open, "high": -bar.low, "low": -bar.high, "close": -bar.close}


def later(bar: Bar) -> dict[str, dt.date]:
    return {"day": bar.day + dt.timedelta(weeks=4)}


@pytest.mark.parametrize(
    ("change", "sign", "factor"),
    [
        (priced(lambda ticks: ticks + 777), 1, 1),
        (priced(lambda ticks: 2 * ticks), 1, 2),
        (mirrored, -1, 1),
        (later, 1, 1),
    ],
    ids=["level", "scale", "mirror", "time"],
)
def test_books_do_not_hang_on_level_scale_mirror_and_time(change, sign, factor):
    for seed in range(CASES):
        contracts = made_up_contracts(seed)
        (market, own), (_, other) = made(contracts, seed), made(changed(contracts, change), seed, sign)
        assert (factor * own.gross_ticks).tolist() == other.gross_ticks.tolist(), seed
        assert own.sides.tolist() == other.sides.tolist(), seed
        assert len(own.sides) == market.num_bars - 1 - FIRST


def test_prices_twice_as_high_of_half_the_multiplier_are_the_same_money():
    """The tick keeps its size: twice the ticks, each worth half."""
    for seed in range(CASES):
        contracts = made_up_contracts(seed)
        _, own = made(contracts, seed)
        _, doubled = made(changed(contracts, priced(lambda ticks: 2 * ticks)), seed)
        whole, half = (Costs(tick_value_usd=usd, commission_usd=0.0, slippage_ticks=0.0) for usd in (12.5, 6.25))
        assert gross_usd(whole, own.gross_ticks).tolist() == gross_usd(half, doubled.gross_ticks).tolist(), seed


def test_the_name_of_a_symbol_changes_nothing_that_the_device_gets():
    config = small_config(Path("none.npz"))
    es = planted_market(days=182)
    named = as_nq(es, multiplier=es.info.multiplier)
    studies = [plan_study(config, [market], compose="scan") for market in (es, named)]
    one, other = ((study.resident_market(), study.windows, study.cost_ticks) for study in studies)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    programs = [{**vars(study.program), "agent": None} for study in studies]
    assert programs[0] == programs[1]


# ---- greedy passes


def mirrored_market(market: MarketData) -> MarketData:
    return dataclasses.replace(market, move_ticks=-market.move_ticks)


@pytest.mark.parametrize("env", [EnvConfig(positions=2, flat_at_close=True), EnvConfig(positions=2, roll_as="spread")])
def test_mirrored_prices_and_actions_give_the_same_money_in_mirrored_positions(env):
    """Action values read from the other end, on a market upside down; and the same for a path of wanted targets."""
    data = chain_market(planted_signs(600, 0.6, seed=3), 3, bars_per_day=24, roll_at=200)
    world = make_world(env=env, data=data, windows=1, seeds=1)
    weights = np.random.default_rng(5).standard_normal((data.features.shape[1], env.num_positions**2))

    def table(seen):
        return (seen @ weights.astype(np.float32)).reshape(env.num_positions, env.num_positions)

    def upside_down(seen):
        return table(seen)[::-1, ::-1]

    span, bars = jnp.array([100, 400], jnp.int32), 300
    kept = {"limits": None, "extent": Extent("scan", bars, with_path=True)}
    window = window_of(world.windows, jnp.int32(0))

    @functools.partial(jax.jit, static_argnames="table")
    def played(market, table):
        return rollout(world.program, market, window, span, table, **kept)

    one = played(world.market, table)
    flipped = jax.device_put(mirrored_market(data).on_device())
    other = played(flipped, upside_down)
    assert (np.asarray(one.positions) + np.asarray(other.positions)).tolist() == [2 * env.flat] * bars
    assert jax.tree.map(int, one.tally) == jax.tree.map(int, other.tally)
    assert len(np.unique(one.positions)) == env.num_positions
    wanted = jnp.asarray(np.random.default_rng(6).integers(0, env.num_positions, bars), jnp.int8)
    followed = jax.jit(lambda market, path: follow(env, market, None, span, path))
    there = followed(world.market, wanted)
    back = followed(flipped, jnp.int8(2 * env.flat) - wanted)
    assert (there + back).tolist() == [2 * env.flat] * bars


# ---- training


@functools.cache
def trained(change: str = "none") -> dict[str, np.ndarray]:
    """Everything that is known after an epoch of the base world, or of a changed one."""
    return trees.to_named(base_epoch()(*changed_world(change).fixed, fresh(changed_world(change)))[0])


@functools.cache
def changed_world(change: str) -> World:
    world = base()
    if change == "none":
        return world
    market = dataclasses.replace(world.market, move_ticks=2 * world.market.move_ticks)
    windows = dataclasses.replace(world.windows, reward_scale=world.windows.reward_scale / 2)
    members = dataclasses.replace(world.members, cost=CostTicks(2 * world.members.cost.side))
    return dataclasses.replace(world, market=market, windows=windows, members=members)


def test_twice_the_moves_at_twice_the_costs_teach_the_same_to_the_bit():
    """Rewards are in units of volatility: a factor of two cancels without rounding, in every weight and every score."""
    for name, value in trained().items():
        if "gross_ticks" in name:
            assert (2 * value == trained("twice")[name]).all(), name
        else:
            assert value.tobytes() == trained("twice")[name].tobytes(), name
    assert trained()["best.tally.gross_ticks"].any()


def by_member(name: str) -> bool:
    return name not in ("clock", "replay")


def test_members_in_another_order_are_the_same_members():
    world, order = base(), np.array([2, 0, 3, 1])
    members = jax.tree.map(lambda leaf: leaf[order], world.members)
    other = dataclasses.replace(world, members=members)
    permuted = trees.to_named(base_epoch()(*other.fixed, fresh(other))[0])
    for name, value in trained().items():
        rows = value[:, order] if name == "replay" else value[order] if by_member(name) else value
        np.testing.assert_allclose(permuted[name], rows, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_window_alone_is_that_window_in_the_full_study():
    world, kept = base(), slice(2, 4)  # the two seeds of window 1
    members = jax.tree.map(lambda leaf: leaf[kept], world.members)
    alone = dataclasses.replace(
        world,
        windows=jax.tree.map(lambda leaf: leaf[1:], world.windows),
        members=dataclasses.replace(members, window=jnp.zeros(2, jnp.int32)),
    )
    found = trees.to_named(base_epoch()(*alone.fixed, fresh(alone))[0])
    for name, value in trained().items():
        rows = value[:, kept] if name == "replay" else value[kept] if by_member(name) else value
        np.testing.assert_allclose(found[name], rows, rtol=1e-6, atol=1e-6, err_msg=name)


def test_one_observation_is_valued_as_in_a_batch():
    agent = base().program.agent
    params = agent.params(agent.init(jax.random.key(0)))
    seen = jax.random.normal(jax.random.key(1), (257, base().program.env.observation_size(4)))
    one = jax.jit(functools.partial(agent.q_values, params))
    batch = jax.jit(jax.vmap(functools.partial(agent.q_values, params)))(seen)
    for row in (0, 100, 256):
        np.testing.assert_allclose(one(seen[row]), batch[row], rtol=1e-6, atol=1e-6)
