"""Greedy passes of a population as two GPU kernels: the maps of all bars, then the walk along them.

The same meaning as `train.rollout.rollout` without account limits. Activations never leave the chip, and of a bar there
remain a word and a float, so that hundreds of members are evaluated at a time.
"""

import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Int32, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading.env import Tally
from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import MapPlan, WalkPlan, map_plan_for, multiprocessors
from tidewalk.train.kernel.tables import rule_tables
from tidewalk.train.passes import Rollout
from tidewalk.train.population import Program

_BAR_BYTES, _PATH_BYTES = 8, 40
"""Memory of a bar of a member between the two kernels, a map and a square; and of what is counted along a path."""
_LOAD_TILES, _MOST_WAVES = 1, 8
"""What bringing a network on chip takes, in tiles; and the most blocks that follow one another on a multiprocessor
before members alone fill them well."""
_MULTIPROCESSORS = 132
"""Of a large GPU, for a device that does not say how many it has."""


def greedy(
    program: Program,
    market: Market,
    windows: Windows,
    ranges: Int32[Array, "W 2"],
    own: tuple[Int32[Array, "N"], PyTree],
    *,
    bars: int,
    with_path: bool,
) -> Rollout:
    """Greedy passes of N members over ranges of their windows: flat before it, closed by its last decision.

    Args:
        program: static settings, of a study that fits the kernels (see `plan.unsupported`).
        market: the resident market.
        windows: all windows.
        ranges: decisions `[first, stop)` of each window.
        own: the window of each member, and their parameters, leaves `[N, ...]`.
        bars: static bound on the length of a range; what lies beyond is cut off.
        with_path: whether to return the positions.

    Returns:
        Sums and positions, leaves `[N, ...]`.
    """
    plan, (window, params) = map_plan_for(program, call.precision_name()), own
    leaves = jax.tree.leaves(params)
    assert [leaf.ndim for leaf in leaves] == [3, 2] * 3, "a network is three layers of weight and bias in turn"
    tables, half_ticks = jnp.asarray(rule_tables(program.env)), market.half_spread_ticks
    where = window, ranges
    scaler = windows.center, windows.scale
    fixed = market.features, market.flags, *where, *scaler, tables
    words, squares = _maps(plan, program, (*fixed, *leaves), bars)
    spread = jnp.zeros(1, jnp.float32) if half_ticks is None else half_ticks
    counts, reals, path = _walk(
        program,
        (*where, market.move_ticks, market.flags, spread, tables, words, squares),
        bars,
        flags=(half_ticks is not None, with_path),
    )
    crossed = None if half_ticks is None else reals[:, 0]
    tally = Tally(counts[:, 0], counts[:, 1], crossed, counts[:, 2] if program.env.roll_as == "spread" else None)
    length = jnp.maximum(ranges[:, 1] - ranges[:, 0], 1).astype(jnp.float32)[window]
    return Rollout(tally, jnp.sqrt(reals[:, 1] / length), path if with_path else path[:, :0])


def bar_bytes(*, with_path: bool) -> int:
    """Scratch memory of one bar of one member."""
    return _BAR_BYTES + with_path * _PATH_BYTES


def parts(members: int, tiles: int, at_a_time: int) -> int:
    """Blocks that share the tiles of a member: as many as end soonest, by the waves in which all blocks run.

    Args:
        members: N.
        tiles: of a member.
        at_a_time: blocks that run at a time; each fills a multiprocessor.
    """

    def tiles_of_time(count: int) -> int:
        return -(-members * count // at_a_time) * (-(-tiles // count) + _LOAD_TILES)

    return min(range(1, min(tiles, at_a_time * _MOST_WAVES) + 1), key=tiles_of_time)


def _maps(plan: MapPlan, program: Program, operands: tuple[Array, ...], bars: int) -> tuple[Array, Array]:
    """Map and mean square of the centred action values of every bar, `[N, R]`; R is `bars` rounded up to tiles.

    `operands` are those of `MapArgs` in maps.cuh after the first.
    """
    members, tiles = operands[-1].shape[0], -(-bars // plan.rows)
    shapes = [jax.ShapeDtypeStruct((members, tiles * plan.rows), dtype) for dtype in (jnp.int32, jnp.float32)]
    operands = (_map_sizes(program, bars, tiles), *operands)
    blocks = parts(members, tiles, multiprocessors(jax.local_devices()[0]) or _MULTIPROCESSORS)
    words, squares = call.run_kernel(plan, operands, shapes, (members, blocks))
    return words, squares


def _map_sizes(program: Program, bars: int, tiles: int) -> Array:
    """The fields of `MapSizes` in maps.cuh, in their order."""
    env, config = program.env, program.agent.config
    is_duelling = 2  # DUELLING of `Flag` in layout.cuh
    sizes = (
        bars,
        tiles,
        program.num_features,
        env.lookback * program.num_features,
        env.num_positions,
        is_duelling * config.duelling,
        env.flat,
        env.decision_delay + env.lookback - 1,
        *config.hidden,
        env.num_positions + config.duelling,
        env.reachable.start,
        env.reachable.stop - 1,
    )
    return jnp.array(sizes, jnp.int32)


def _walk(
    program: Program, operands: tuple[Array, ...], bars: int, *, flags: tuple[bool, bool]
) -> tuple[Array, Array, Array]:
    """Counts `[N, 3]` and reals `[N, 2]` of the passes, as `walk.cuh` orders them, and the path `[N, bars or 1]`.

    `operands` are those of `WalkArgs` in walk.cuh after the first, `flags` the last two of `WalkSizes`.
    """
    members, room = operands[-1].shape
    sizes = jnp.array((bars, room, program.env.num_positions, program.env.flat, *flags), jnp.int32)
    shapes = [
        jax.ShapeDtypeStruct((members, 3), jnp.int32),
        jax.ShapeDtypeStruct((members, 2), jnp.float32),
        jax.ShapeDtypeStruct((members, bars if flags[1] else 1), jnp.int8),
    ]
    counts, reals, path = call.run_kernel(WalkPlan(), (sizes, *operands), shapes, (members, 1))
    return counts, reals, path
