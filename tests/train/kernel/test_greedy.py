"""Greedy passes by kernels are those of the XLA form: their own source, run on the host by an emulator.

Maps are equal but where the two best action values nearly tie: closer than `TIE` of the largest value of the bar.
Every operand and result ends and begins at a page that nobody may touch.
"""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emulated
from support import planted_market, random_half_spreads
from tidewalk.agents.dqn import DQNConfig
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import counts
from tidewalk.trading.env import EnvConfig
from tidewalk.train import batches
from tidewalk.train.evaluate import trade_members, validate_all
from tidewalk.train.kernel import call, greedy
from tidewalk.train.kernel.plan import WalkPlan, map_plan_for
from tidewalk.train.kernel.tables import rule_tables
from tidewalk.train.passes import bounds_of_all, scaler_of
from tidewalk.train.population import Best, window_of
from tidewalk.train.rollout import member_table
from worlds import make_world

pytestmark = pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
TIE, REAL = 1e-5, 2e-5
SMALL = DQNConfig(hidden=(16, 24), batch_size=16)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    monkeypatch.setattr(call, "run_kernel", emulated.run_kernel)


def params_of(world, seed=0):
    """Drawn networks, all of whose numbers matter."""
    members, agent = world.members.window.shape[0], world.program.agent
    shapes, tree = jax.tree.flatten(jax.eval_shape(lambda: agent.params(agent.init(jax.random.key(0)))))
    drawn = np.random.default_rng(seed)
    scales = [shape.shape[-1] ** -0.5 if len(shape.shape) == 2 else 0.2 for shape in shapes]
    leaves = [drawn.normal(0, scale, (members, *shape.shape)) for scale, shape in zip(scales, shapes, strict=True)]
    return jax.tree.unflatten(tree, [jnp.asarray(leaf, jnp.float32) for leaf in leaves])


def by_kernel(program):
    return dataclasses.replace(program, learner="kernel")


def validated(program, world, params, precision="float32"):
    with jax.default_matmul_precision(precision):
        return jax.jit(functools.partial(validate_all, program))(*world.fixed, params)


def maps_of(world, params, program=None, ranges=None, bars=None):
    """Words and squares of the validation months by the kernel, as they leave it."""
    program = program or world.program
    caught = []

    def keep_first(plan, *args, **more):
        found = emulated.run_kernel(plan, *args, **more)
        caught.append(found)
        return found

    with pytest.MonkeyPatch.context() as patch, jax.default_matmul_precision("float32"):
        patch.setattr(call, "run_kernel", keep_first)
        own, ranges = (world.members.window, params), world.windows.val if ranges is None else jnp.asarray(ranges)
        size = {"bars": bars or program.val_bars, "with_path": False}
        greedy.greedy(program, world.market, world.windows, ranges, own, **size)
    return [np.asarray(array) for array in caught[0]]


ROWS = 304
"""Rows that the XLA form computes at a time, so that it is compiled once for each program."""


@functools.cache
def xla_table(program):
    env = program.env

    def values(market, window, params, decisions):
        bar = jnp.minimum(decisions[0] + jnp.arange(ROWS, dtype=jnp.int32), decisions[1] - 1)
        table = member_table(program.agent, env, params)
        q = jax.vmap(lambda b: table(env_ops.see(env, market, scaler_of(window), b)))(bar)
        bounds = bounds_of_all(env, market, decisions, bar)
        return q, env_ops.choose(env, q, *bounds), *bounds

    return jax.jit(values)


def xla_values(world, params, member, decisions):
    """Action values `[H, P, A]`, maps and lower and upper bounds `[H, P]` of a member's range in XLA form."""
    window = window_of(world.windows, world.members.window[member])
    own = jax.tree.map(lambda leaf: leaf[member], params)
    with jax.default_matmul_precision("float32"):
        found = xla_table(world.program)(world.market, window, own, jnp.asarray(decisions, jnp.int32))
    return [np.asarray(array)[: decisions[1] - decisions[0]] for array in found]


def assert_maps(world, params, found, member, decisions):
    """The words and squares of one member against its values in XLA form."""
    words, squares = (array[member] for array in found)
    q, expected, low, high = xla_values(world, params, member, decisions)
    count, env = len(q), world.program.env
    fields = words[:, None] >> (4 * np.arange(env.num_positions)) & 15
    actions = np.arange(env.num_positions)
    allowed = (actions >= low[..., None]) & (actions <= high[..., None])
    best = np.sort(np.where(allowed, q, -np.inf), axis=-1)
    nearly = best[..., -1] - best[..., -2] < TIE * np.abs(q).max()
    differs = fields[:count] != expected
    assert not (differs & ~nearly).any()
    assert differs.mean() < 0.01
    assert (fields[count:] == actions).all()
    assert (squares[count:] == 0).all()
    learned = q[:, env.reachable, env.reachable].astype(np.float64)
    spread = ((learned - learned.mean(axis=-1, keepdims=True)) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(squares[:count], spread, rtol=0, atol=10 * REAL * spread.max())


CASES = {
    "default": {},
    "plain": {"config": DQNConfig(hidden=(32, 16), duelling=False)},
    "seven positions": {"env": EnvConfig(positions=3, lots_per_level=2, max_position=4)},
    "spread rolls": {"env": EnvConfig(positions=2, roll_as="spread")},
    "session rules": {"env": EnvConfig(flat_at_close=True, no_entry_minutes=30, direction="long")},
    "short alone": {"env": EnvConfig(positions=2, direction="short")},
    "look back": {"env": EnvConfig(lookback=9, decision_delay=2)},
    "wide": {"config": DQNConfig(hidden=(128, 100)), "seeds": 1},
    "long look back": {"config": DQNConfig(hidden=(70, 128)), "env": EnvConfig(lookback=20), "seeds": 1},
    "narrow and long": {"env": EnvConfig(lookback=20), "seeds": 1},
}


def cases(quick):
    return [name if name == quick else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@functools.cache
def world_of(name):
    changes = {"config": SMALL, "windows": 2, "seeds": 2, "data": planted_market(days=50)} | CASES[name]
    return make_world(**changes)


@functools.cache
def networks(name):
    return params_of(world_of(name))


@pytest.mark.parametrize("name", cases("default"))
def test_maps_are_those_of_the_xla_form(name):
    world, params = world_of(name), networks(name)
    found = maps_of(world, params)
    for member, window in enumerate(np.asarray(world.members.window)):
        assert_maps(world, params, found, member, np.asarray(world.windows.val[window]))


def assert_same_scores(expected, found):
    for name in ("gross_ticks", "sides", "crossed_ticks", "rolled"):
        one, other = getattr(expected.tally, name), getattr(found.tally, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=name)
    np.testing.assert_array_equal(expected.score, found.score)
    np.testing.assert_allclose(found.spread, expected.spread, rtol=REAL)
    assert np.asarray(expected.tally.sides).max() > 0


@pytest.mark.parametrize("name", cases("seven positions"))
def test_validation_is_that_of_the_xla_form(name):
    world, params = world_of(name), networks(name)
    expected = validated(world.program, world, params)
    assert_same_scores(expected, validated(by_kernel(world.program), world, params))


@pytest.mark.parametrize("select", ["sharpe", pytest.param("reward", marks=pytest.mark.slow)])
def test_recorded_spreads_are_paid_as_in_the_xla_form(select):
    data = random_half_spreads(planted_market(days=50))
    env = EnvConfig(roll_as="spread")
    world = make_world(config=SMALL, env=env, windows=2, seeds=1, data=data, has_spread=True, select=select)
    params = params_of(world)
    expected = validated(world.program, world, params)
    assert_same_scores(expected, validated(by_kernel(world.program), world, params))
    assert np.asarray(expected.tally.crossed_ticks).max() > 0


@pytest.mark.slow
def test_the_test_months_are_traded_as_in_the_xla_form(monkeypatch):
    """Also a few members at a time, where not all of them find room."""
    world = make_world(config=SMALL, windows=1, seeds=5, data=planted_market(days=50))
    params, zero = params_of(world), jnp.zeros(5)
    tally = env_ops.no_tally(world.program.env, (5,), has_spread=False)
    best = Best(params=params, score=zero, epoch=jnp.array([1, 1, 0, 1, 1]), spread=zero, tally=tally)

    def paths(program):
        with jax.default_matmul_precision("float32"):
            return np.asarray(jax.jit(functools.partial(trade_members, program))(*world.fixed, best))

    expected, found = paths(world.program), paths(by_kernel(world.program))
    np.testing.assert_array_equal(expected, found)
    assert (expected[2] == world.program.env.flat).all()
    assert len(np.unique(expected)) == 3
    monkeypatch.setattr(batches, "SCRATCH_BYTES", 2 * world.program.test_bars * greedy.bar_bytes(with_path=True))
    jax.clear_caches()
    np.testing.assert_array_equal(expected, paths(by_kernel(world.program)))


def test_ranges_of_any_length_and_place():
    """From the first bar that can be decided to the last; below a tile, at its edges, and beyond the bound: cut off."""
    world = make_world(config=SMALL, env=EnvConfig(lookback=3, decision_delay=1), windows=7, seeds=1)
    params, size = params_of(world), len(world.data.move_ticks)
    ranges = np.array([[3, 4], [3, 66], [3, 67], [3, 68], [3, 3], [size - 102, size - 1], [10, 300]], np.int32)
    found = maps_of(world, params, ranges=ranges, bars=150)
    assert found[0].shape == (7, 192)
    for member, (first, stop) in enumerate(ranges):
        if stop <= first:
            assert (found[0][member] == 0x210).all()
            assert (found[1][member] == 0).all()
        elif stop - first <= 150:
            assert_maps(world, params, found, member, (first, stop))
    expected = xla_values(world, params, 6, (10, 300))[1]
    fields = found[0][6][:150, None] >> (4 * np.arange(3)) & 15
    assert (fields == expected[:150]).mean() > 0.99
    assert (found[0][6][150:] == 0x210).all()


def test_a_range_that_would_be_cut_short_is_never_chosen():
    world, params = world_of("default"), networks("default")
    longer = world.windows.val.at[1, 1].add(30)
    found = validated(
        by_kernel(world.program),
        dataclasses.replace(world, windows=dataclasses.replace(world.windows, val=longer)),
        params,
    )
    assert list(np.isnan(found.score)) == [False, False, True, True]
    assert list(np.isnan(found.spread)) == [False, False, True, True]


@pytest.mark.slow
def test_bits_depend_neither_on_the_cut_into_blocks_nor_on_the_order_of_warps(monkeypatch):
    world, params = world_of("default"), networks("default")
    program = by_kernel(world.program)
    expected = jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), validated(program, world, params))
    monkeypatch.setattr(call, "run_kernel", functools.partial(emulated.run_kernel, is_falling=True))
    for count in (1, 3, 4):
        monkeypatch.setattr(greedy, "parts", lambda *_, count=count: count)
        jax.clear_caches()
        found = jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), validated(program, world, params))
        assert jax.tree.leaves(found) == jax.tree.leaves(expected)


@pytest.mark.slow
def test_a_diverged_network_is_its_own_trouble():
    """NaN or infinite weights: choices as in the XLA form, a spread that is not finite, and no neighbour hurt."""
    world, params = world_of("default"), networks("default")
    leaves, tree = jax.tree.flatten(params)
    leaves[2] = leaves[2].at[1, 3, 5].set(jnp.nan)
    leaves[5] = leaves[5].at[2, 1].set(jnp.inf)
    broken = jax.tree.unflatten(tree, leaves)
    found, whole = maps_of(world, broken), maps_of(world, params)
    for member in (0, 3):
        for one, other in zip(found, whole, strict=True):
            np.testing.assert_array_equal(one[member], other[member])
    for member in (1, 2):
        decisions = np.asarray(world.windows.val[world.members.window[member]])
        expected = xla_values(world, broken, member, decisions)[1]
        fields = found[0][member][: len(expected), None] >> (4 * np.arange(3)) & 15
        np.testing.assert_array_equal(fields, expected)
    spread = np.asarray(validated(by_kernel(world.program), world, broken).spread)
    assert list(np.isfinite(spread)) == [True, False, False, True]


@pytest.mark.slow
def test_one_product_of_halves_is_as_exact_as_tf32():
    world, params = world_of("default"), networks("default")
    expected = np.asarray(validated(world.program, world, params).spread)
    found = np.asarray(validated(by_kernel(world.program), world, params, "tensorfloat32").spread)
    np.testing.assert_allclose(found, expected, rtol=1e-2)
    assert (np.abs(found / expected - 1) > REAL).any()


@pytest.mark.parametrize("env", [EnvConfig(), EnvConfig(positions=3, lots_per_level=2, roll_as="spread")], ids=str)
def test_a_walk_is_that_of_a_plain_loop(env):
    """Ranges of odd lengths, from none to several rows for each thread.

    Maps are permutations but for a few: others soon lead to one position from wherever, and hide what went before.
    """
    lengths, room, count = [0, 1, 4, 1023, 4096, 8200], 8256, env.num_positions
    drawn, first = np.random.default_rng(3), 5
    size = first + room + 2
    maps = drawn.permuted(np.broadcast_to(np.arange(count), (len(lengths), room, count)), axis=-1)
    maps = np.where(drawn.random((len(lengths), room, 1)) < 1e-3, drawn.integers(0, count, maps.shape), maps)
    words = (maps << (4 * np.arange(count))).sum(axis=-1).astype(np.int32)
    squares = drawn.random((len(lengths), room), np.float32)
    moves, flags = drawn.integers(-9, 9, size).astype(np.int32), drawn.integers(0, 64, size).astype(np.int32)
    half = (drawn.integers(0, 5, size) / 2).astype(np.float32)
    ranges = np.array([[first, first + length] for length in lengths], np.int32)
    sizes = np.array([8200, room, count, env.flat, 1, 1], np.int32)
    window = np.arange(len(lengths), dtype=np.int32)
    operands = (sizes, window, ranges, moves, flags, half, rule_tables(env), words, squares)
    shapes = [((6, 3), np.int32), ((6, 2), np.float32), ((6, 8200), np.int8)]
    shapes = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    found = [np.asarray(array) for array in emulated.run_kernel(WalkPlan(), operands, shapes, (6, 1))]
    backwards = emulated.run_kernel(WalkPlan(), operands, shapes, (6, 1), is_falling=True)
    assert [np.asarray(array).tobytes() for array in backwards] == [array.tobytes() for array in found]
    lots = (np.arange(count) - env.flat) * env.lots_per_level
    for member, length in enumerate(lengths):
        position, sums, crossed = env.flat, np.zeros(3, np.int64), 0.0
        path = np.full(8200, env.flat, np.int8)
        for row in range(length):
            after = words[member, row] >> (4 * position) & 15
            is_roll = (flags[first + row] >> 2) & 1
            sides, rolled = counts(lots[position], lots[after], is_roll, env.roll_as)
            sums += [lots[after] * moves[first + row], sides, 0 if rolled is None else rolled]
            crossed += sides * half[first + row + 1]
            path[row] = position = after
        np.testing.assert_array_equal(found[0][member], sums)
        assert found[1][member, 0] == crossed
        np.testing.assert_allclose(found[1][member, 1], squares[member, :length].sum(dtype=np.float64), rtol=1e-5)
        np.testing.assert_array_equal(found[2][member], path)


@pytest.mark.parametrize("at_a_time", [16, 132])
@pytest.mark.parametrize(("members", "tiles"), [(1, 1), (1, 466), (28, 466), (132, 466), (200, 466), (1024, 466)])
def test_blocks_are_cut_so_that_they_end_soon(members, tiles, at_a_time):
    count = greedy.parts(members, tiles, at_a_time)
    assert 1 <= count <= tiles
    rounds = -(-members * count // at_a_time) * -(-tiles // count)
    assert rounds <= max(-(-tiles // count), 1.2 * members * tiles / at_a_time)


@pytest.mark.parametrize(("device", "at_a_time"), [({"core_count": 20}, 20), ({}, 132)])
def test_blocks_are_cut_for_the_device_that_runs_them(monkeypatch, device, at_a_time):
    asked = []
    monkeypatch.setattr(greedy, "parts", lambda *given: asked.append(given[-1]) or 1)
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(**device)])
    world = world_of("default")
    shapes = jax.eval_shape(lambda: networks("default"))
    with jax.default_matmul_precision("float32"):
        jax.eval_shape(functools.partial(validate_all, by_kernel(world.program)), *world.fixed, shapes)
    assert asked == [at_a_time]


def test_validation_is_two_calls_and_no_loop(monkeypatch):
    monkeypatch.undo()
    world = world_of("default")
    shapes = jax.eval_shape(lambda: networks("default"))
    with jax.default_matmul_precision("float32"):
        traced = jax.jit(functools.partial(validate_all, by_kernel(world.program))).trace(*world.fixed, shapes)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.ptx(") == 2
    assert "stablehlo.while" not in text
    assert "dot_general" not in text
    assert map_plan_for(world.program, "float32").name in text
