import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sequential import rollout_sequential, tally_of, with_account
from support import chain_market, planted_signs, random_half_spreads
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import keys
from tidewalk.market.device import CLOSING, NO_ENTRY
from tidewalk.trading.env import EnvConfig
from tidewalk.train import rollout as rollouts
from tidewalk.train.passes import Extent, Stretches
from tidewalk.train.population import window_of
from tidewalk.train.rollout import ensemble_table, follow, member_table, rollout
from worlds import made_limits, make_world


def roll_market():
    return chain_market(planted_signs(1200, 0.6, seed=3), 3, bars_per_day=24, roll_at=900)


ENVS = [
    EnvConfig(),
    EnvConfig(positions=2, lookback=3),
    EnvConfig(flat_at_close=True),
    EnvConfig(positions=3, lots_per_level=2, max_position=4, direction="long", roll_as="spread", decision_delay=2),
    EnvConfig(positions=2, no_entry_minutes=60, flat_at_close=True, direction="short"),
    EnvConfig(positions=4, no_entry_minutes=60, roll_as="spread"),
]


def made_market(*, is_recorded=False):
    """A market with a roll, no entries in the last four hours of a day, and spreads where asked."""
    data = roll_market()
    late = np.where(np.arange(data.num_bars) % 24 >= 18, NO_ENTRY, 0).astype(np.int32)
    data = dataclasses.replace(data, flags=data.flags | late)
    return random_half_spreads(data) if is_recorded else data


@dataclasses.dataclass(frozen=True)
class Played:
    """One world and one random policy on it, every form of its rollout compiled once."""

    world: object
    forms: object
    """limits -> composed by scan and by association; beside the account by session, and by parts of one; then bar by
    bar, without the account and with it"""
    followed: object
    """(limits or None, wanted, how maps are chained) -> positions"""


@functools.cache
def played(number: int) -> Played:
    env, is_recorded = ENVS[number], number in (1, 3)
    world = make_world(env=env, data=made_market(is_recorded=is_recorded), has_spread=is_recorded)
    table, window = random_table(world, seed=7), window_of(world.windows, jnp.int32(0))
    program, bars = world.program, world.program.test_bars

    def forms(limits):
        given = (world.market, window, window.test, table)
        composed = [
            rollout(program, *given, limits=None, extent=Extent(c, bars, with_path=True))
            for c in ("scan", "associative")
        ]
        by_session = Extent("associative", bars, with_path=True, stretches=Stretches(30, 24))
        by_part = Extent("scan", bars, with_path=True, chunk=100, stretches=Stretches(150, 7))
        counted = [rollout(program, *given, limits=limits, extent=extent) for extent in (by_session, by_part)]
        sequential = [rollout_sequential(program, *given, limits=kept, bars=bars) for kept in (None, limits)]
        return *composed, *counted, *sequential

    def followed(limits, wanted, compose):
        return follow(env, world.market, limits, world.windows.test[0], wanted, compose=compose)

    return Played(world, jax.jit(forms), jax.jit(followed, static_argnums=2))


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """What is held, and the account, are carried from one chunk to the next."""
    monkeypatch.setattr(rollouts, "CHUNK", 64)


def random_table(world, seed=1):
    agent = world.program.agent
    params = jax.jit(lambda: agent.params(agent.init(keys.root_key(seed))))()
    return member_table(agent, world.program.env, params)


@pytest.mark.parametrize("config", [DQNConfig(), DQNConfig(hidden=(5, 9, 7), duelling=False), DQNConfig(hidden=(16,))])
@pytest.mark.parametrize("env", ENVS, ids=str)
def test_the_table_of_a_bar_is_that_of_single_observations(env, config):
    """The first layer once per bar: the same values to rounding and the same choices, for what can be held."""
    size = 5 * env.lookback
    agent = make_dqn(config, size + env.num_positions, env.num_positions)
    params, held = jax.jit(lambda: agent.params(agent.init(keys.root_key(3))))(), env.reachable
    seen = jnp.asarray(np.random.default_rng(0).normal(0, 3, (200, size)), jnp.float32)
    agents = agent, dataclasses.replace(agent, q_table=None)
    forms = [jax.jit(jax.vmap(member_table(one, env, params)))(seen) for one in agents]
    at_once, one_by_one = (np.asarray(form)[:, held, held] for form in forms)
    np.testing.assert_allclose(at_once, one_by_one, atol=1e-6 * np.abs(one_by_one).max())
    assert np.ptp(one_by_one, axis=1).max() > 1e-3, "the position held must matter"
    clear = np.ptp(np.sort(one_by_one, axis=-1)[..., -2:], axis=-1) > 1e-5
    assert clear.mean() > 0.99
    assert np.array_equal(at_once.argmax(axis=-1)[clear], one_by_one.argmax(axis=-1)[clear])


def lots_of(world, positions):
    first, stop = (int(edge) for edge in world.windows.test[0])
    env = world.program.env
    return first, ((np.asarray(positions, np.int64)[: stop - first] - env.flat) * env.lots_per_level).tolist()


def assert_within_the_rules(data, env, first, lots):
    held, most = 0, env.max_lots
    for bar, after in enumerate(lots, first):
        low, high = (0 if env.direction == "long" else -most), (0 if env.direction == "short" else most)
        if env.no_entry_minutes and data.flags[bar] & NO_ENTRY:
            low, high = max(low, min(held, 0)), min(high, max(held, 0))
        if env.flat_at_close and data.flags[bar] & CLOSING:
            low = high = 0
        assert low <= after <= high, bar
        held = after
    assert held == 0, "the last decision closes"


IMPLIED = (1, 2, 5)
"""Rules that others of the list imply; each costs a compilation of five forms."""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.slow if n in IMPLIED else ()) for n in range(len(ENVS))]
)
def test_all_forms_of_a_greedy_rollout_take_the_same_positions(number):
    """Composed maps, in both ways, and acting bar by bar; and beside an account that reaches no limit."""
    made = played(number)
    env, data = made.world.program.env, made.world.data
    *forms, reference, counted_reference = made.forms(made_limits())
    assert len(np.unique(reference)) > 1
    assert np.array_equal(counted_reference, reference)
    first, lots = lots_of(made.world, reference)
    assert_within_the_rules(data, env, first, lots)
    gross, sides, rolled, crossed = tally_of(data, env, first, lots)
    for form in forms:
        assert np.array_equal(form.positions, reference)
        tally = form.tally
        assert (int(tally.gross_ticks), int(tally.sides)) == (gross, sides)
        assert tally.rolled is None if env.roll_as == "sides" else int(tally.rolled) == rolled
        assert tally.crossed_ticks is None if data.half_spread_ticks is None else float(tally.crossed_ticks) == crossed
    assert crossed > 0 or data.half_spread_ticks is None


def test_a_chunk_is_a_matter_of_memory_alone(monkeypatch):
    world, found = played(0).world, []
    table, window, bars = random_table(world), window_of(world.windows, jnp.int32(0)), world.program.test_bars
    for chunk in (64, 2048):
        monkeypatch.setattr(rollouts, "CHUNK", chunk)
        given = (world.program, world.market, window, window.test, table)
        play = jax.jit(functools.partial(rollout, *given, extent=Extent("scan", bars, with_path=True)))
        found.append(play(limits=made_limits(drawdown=60)))
    assert np.array_equal(found[0].positions, found[1].positions)
    assert int(found[0].tally.gross_ticks) == int(found[1].tally.gross_ticks)


# ---- account limits


LIMITS = [{"capital": 40}, {"daily": 6}, {"drawdown": 45}, {"capital": 300, "daily": 12, "drawdown": 200}]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("number", [0, 3, 4])
def test_account_limits_halt_a_rollout_row_by_row(number, limits):
    """The rollout, acting bar by bar, the followed path and plain Python agree on every position."""
    played_here, made = played(number), made_limits(**limits)
    world = played_here.world
    free, _, found, by_part, _, reference = played_here.forms(made)
    assert np.array_equal(found.positions, reference)
    assert np.array_equal(by_part.positions, reference)
    first, lots = lots_of(world, reference)
    assert_within_the_rules(world.data, world.program.env, first, lots)
    assert lots != lots_of(world, free.positions)[1], "the limits must act"
    # a path that is allowed is followed as it is
    by_bar = dict(enumerate(lots, first))
    path, halted_rows, is_over = with_account(world, made, lambda bar, _: by_bar[bar])
    assert path == lots
    assert len(halted_rows) > 3
    assert all(by_bar[bar] == 0 for bar in halted_rows)
    assert is_over or "daily" in limits
    assert np.array_equal(played_here.followed(made, found.positions, "scan"), found.positions)
    gross, sides, _, _ = tally_of(world.data, world.program.env, first, lots)
    assert (int(found.tally.gross_ticks), int(found.tally.sides)) == (gross, sides)


@pytest.mark.parametrize("limits", [None, LIMITS[3]], ids=str)
@pytest.mark.parametrize("number", [1, 4])
def test_a_wanted_path_is_clamped_into_the_rules(number, limits):
    world = played(number).world
    env, made = world.program.env, None if limits is None else made_limits(**limits)
    first, stop = (int(edge) for edge in world.windows.test[0])
    wanted = np.random.default_rng(3).integers(0, env.num_positions, world.program.test_bars).astype(np.int8)
    found = [played(number).followed(made, jnp.asarray(wanted), compose) for compose in ("scan", "associative")]
    assert np.array_equal(*found)

    def clamped(bar, held):
        low, high = (0 if env.direction == "long" else -2), (0 if env.direction == "short" else 2)
        if env.no_entry_minutes and world.data.flags[bar] & NO_ENTRY:
            low, high = max(low, min(held, 0)), min(high, max(held, 0))
        return min(max(int(wanted[bar - first]) - env.flat, low), high)

    path, halted_rows, _ = with_account(world, made or made_limits(), clamped)
    assert lots_of(world, found[0])[1] == path
    assert (np.asarray(found[0])[stop - first :] == env.flat).all()
    assert bool(halted_rows) == (limits is not None)


def test_a_rollout_starts_flat_and_is_flat_beyond_its_range(world_factory):
    world = world_factory()
    window = window_of(world.windows, jnp.int32(1))

    def always_long(seen):
        return jnp.tile(jnp.array([[0.0, 0.0, 1.0]]), (3, 1))

    short = jnp.array([100, 110], jnp.int32)
    given = (world.program, world.market, window, short, always_long)
    found = jax.jit(functools.partial(rollout, *given, limits=None, extent=Extent("scan", 16, with_path=True)))()
    assert found.positions.tolist() == [2] * 9 + [1] * 7
    assert int(found.tally.sides) == 2


@pytest.mark.parametrize("delay", [1, 4])
def test_a_delay_shifts_what_a_policy_sees_and_nothing_else(world_factory, delay):
    """A policy that follows the sign of the bar it sees holds under a delay what it held that many bars before."""

    def follow_sign(seen):
        return jnp.tile(jnp.stack([-seen[0], jnp.float32(0.0), seen[0]])[None, :], (3, 1))

    def held(bars):
        world = make_world(windows=1, seeds=1, env=EnvConfig(decision_delay=bars), data=roll_market())
        window = window_of(world.windows, jnp.int32(0))
        given = (world.program, world.market, window, window.test, follow_sign)
        extent = Extent("scan", world.program.test_bars, with_path=True)
        play = functools.partial(rollout, *given, limits=None, extent=extent)
        return np.asarray(jax.jit(play)().positions)

    now, late = held(0), held(delay)
    last = len(now) - 1
    assert np.array_equal(late[delay:last], now[: last - delay])
    assert late[last] == now[last] == 1


def test_ensemble_averages_seeds_in_their_own_units_and_ignores_a_dead_one(world_factory):
    world = world_factory()
    agent, env = world.program.agent, world.program.env
    one = agent.params(agent.init(keys.root_key(1)))
    dead = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), one)
    pair = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, dead)
    seen = jnp.array([1.0, 0.2, -0.3, 0.5])
    alone = member_table(agent, env, one)(seen)
    centred = alone - alone.mean(axis=-1, keepdims=True)
    both = ensemble_table(agent, env, pair, jnp.array([2.0, 1.0]), jnp.array([True, False]))(seen)
    np.testing.assert_allclose(both, centred / 2.0, rtol=1e-5)
    # a value that no policy can choose, of a side that is never held, changes nothing
    long_only = EnvConfig(direction="long")
    spoiled = jax.tree.map(lambda leaf: leaf, one)
    bias = spoiled.layers[-1].bias.at[1].add(1e6)  # the advantage of going short
    spoiled = eqx.tree_at(lambda tree: tree.layers[-1].bias, spoiled, bias)
    usable = (jnp.ones(1), jnp.array([True]))
    values = [
        np.asarray(ensemble_table(agent, long_only, jax.tree.map(lambda leaf: leaf[None], tree), *usable)(seen))
        for tree in (one, spoiled)
    ]
    np.testing.assert_allclose(values[0][:, 1:], values[1][:, 1:], atol=0.05)
    nobody = ensemble_table(agent, env, pair, jnp.ones(2), jnp.array([False, False]))(seen)
    assert np.argmax(nobody, axis=-1).tolist() == [env.flat] * 3
