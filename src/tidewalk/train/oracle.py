"""The hindsight bound: the best that any policy could have earned in a decision range, under the same costs and rules.

Prices are exogenous, so it is an exact dynamic programme over (bar, position). Costs and the rules that hold bar by bar
(closing, late entries, largest position, direction) bind it as they bind an agent; account limits and a decision delay
do not, so with them it is an upper bound all the same.

Values are whole numbers of a small part of a tick, kept relative to the value of being flat. So nothing is rounded
along the way, the two forms (one bar after another, or max-plus products of all bars at once) find the same path, and
ties go to the lowest position in both.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Int8, Int32
from tidewalk.market.device import NO_ENTRY, ROLL, Market
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import CostTicks, counts
from tidewalk.trading.env import EnvConfig
from tidewalk.train.chains import chain

CHUNK = 2048
"""Most bars whose gains are held at a time; of what lies before and after, only the values at the seams are kept."""
_CHUNK_ELEMENTS = 2**24
_MOST_POSITIONS_OF_PRODUCTS = 9
"""A product of P x P matrices costs P cubed per bar: with more positions than these the scan is the cheaper form."""
_IMPOSSIBLE = -(2**30)
_REACH_BITS = 26
"""Values stay below 2^26 units, so that the sum of any two, and of one and `_IMPOSSIBLE`, fits in int32."""
_FINEST_BITS = 20


@functools.partial(jax.jit, static_argnames=("env", "bars", "compose"))
def hindsight(
    env: EnvConfig,
    market: Market,
    decisions: Int32[Array, "W 2"],
    costs: CostTicks,
    *,
    bars: int,
    compose: Literal["scan", "associative"] = "scan",
) -> Int8[Array, "W H"]:
    """Positions (indices) of the optimal path of each window, flat before the range and after its last decision.

    Args:
        env: positions and rules.
        market: the resident market.
        decisions: ranges `[first, stop)`.
        costs: costs of each window in ticks, leaves `[W]`; recorded half spreads come from the market.
        bars: static bound H on the length of a range; beyond the range the path is flat.
        compose: `scan` walks bar by bar, the faster form on a CPU; `associative` composes all bars of a chunk at once,
            the faster form on an accelerator. Both give the same path.

    Returns:
        The path that earns most where costs are rounded to the unit of the window: a millionth of a tick or a little
        more, a share of 2^-26 of the largest move and cost at worst. Its exact money comes from the books.
    """
    windows, positions = decisions.shape[0], env.num_positions
    form = compose if positions <= _MOST_POSITIONS_OF_PRODUCTS else "scan"
    by_bar = windows * positions ** (3 if form == "associative" else 2)
    chunk = max(1, min(CHUNK, bars, _CHUNK_ELEMENTS // by_bar))
    best = functools.partial(_best_path, env, market, bars=bars, chunk=chunk, form=form)
    return jax.vmap(best)(decisions, costs)


def _best_path(
    env: EnvConfig, market: Market, decisions: Array, costs: CostTicks, *, bars: int, chunk: int, form: str
) -> Array:
    """Backward over the chunks for the values at their ends, then forward over them along the best choices."""
    numbers = jnp.arange(-(-bars // chunk), dtype=jnp.int32)
    bits = _unit_bits(env, market, decisions, costs, bars)
    offsets = jnp.arange(chunk, dtype=jnp.int32)

    def gains(number: Array) -> Array:
        return _gains(env, market, decisions, costs, bits, decisions[0] + number * chunk + offsets)

    def backward(worth: Array, number: Array) -> tuple[Array, Array]:
        return _worths(form, env.flat, gains(number), worth)[0], worth

    _, ends = lax.scan(backward, jnp.zeros(env.num_positions, jnp.int32), numbers, reverse=True)

    def forward(held: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        number, end = row
        gain = gains(number)
        later = jnp.concatenate([_worths(form, env.flat, gain, end)[1:], end[None]])
        # int32: as an index beside the row number, int8 makes XLA narrow both, wrong beyond 128 rows
        choice = jnp.argmax(gain + later[:, None, :], axis=-1).astype(jnp.int32)
        path = chain(form, held, choice)
        return path[-1], path

    return lax.scan(forward, jnp.int32(env.flat), (numbers, ends))[1].reshape(-1)[:bars].astype(jnp.int8)


def _gains(
    env: EnvConfig, market: Market, decisions: Array, costs: CostTicks, bits: Array, bar: Int32[Array, "H"]
) -> Int32[Array, "H P P"]:
    """What going from one position to another earns at each bar, in units; outside the range all stay where they are.

    Args:
        env: positions and rules.
        market: the resident market.
        decisions: range `[first, stop)`.
        costs: costs of the window.
        bits: a tick has 2^bits units.
        bar: bars, also outside the range.
    """
    inside = env_ops.is_inside(decisions, bar)
    bar = jnp.where(inside, bar, decisions[0])
    position = jnp.arange(env.num_positions, dtype=jnp.int32)
    flags = jnp.broadcast_to(market.flags[bar][:, None], (bar.shape[0], env.num_positions))
    is_last = jnp.broadcast_to((bar == decisions[1] - 1)[:, None], flags.shape)
    low, high = env_ops.bounds(env, flags, jnp.broadcast_to(position, flags.shape), is_last)
    lots = env_ops.lots(env, position)
    is_roll = ((market.flags[bar] & ROLL) != 0).astype(jnp.int32)[:, None, None]
    traded, rolled = counts(lots[None, :, None], lots[None, None, :], is_roll, env.roll_as)
    side = _units(costs.side, bits)
    half_spread = env_ops.half_spread(market, bar)
    if half_spread is not None:
        side = (side + _units(half_spread, bits))[:, None, None]
    gain = _shifted(lots[None, :] * market.move_ticks[bar][:, None], bits)[:, None, :] - side * traded
    if rolled is not None and costs.roll is not None:
        gain = gain - _units(costs.roll, bits) * rolled
    stays = jnp.where(position[:, None] == position[None, :], 0, _IMPOSSIBLE)
    return jnp.where(
        inside[:, None, None], jnp.where(env_ops.is_allowed(env, low, high), gain, _IMPOSSIBLE), stays[None]
    )


def _worths(form: str, flat: int, gain: Int32[Array, "H P P"], end: Int32[Array, "P"]) -> Int32[Array, "H P"]:
    """Value of each position before each bar, relative to being flat, given that after the last bar."""
    if form == "scan":

        def body(worth: Array, row: Array) -> tuple[Array, Array]:
            now = jnp.max(row + worth[None, :], axis=1)
            now = now - now[flat]
            return now, now

        return lax.scan(body, end, gain, reverse=True)[1]

    def product(later: Array, earlier: Array) -> Array:
        best = jnp.max(earlier[..., :, :, None] + later[..., None, :, :], axis=-2)
        # being flat can always be chosen, so what is relative to it is finite, and subtracting keeps max-plus whole
        relative = best - best[..., flat, flat][..., None, None]
        return jnp.where(best < _IMPOSSIBLE // 2, _IMPOSSIBLE, relative)

    onward = lax.associative_scan(product, gain, reverse=True)
    worth = jnp.max(onward + end[None, None, :], axis=-1)
    return worth - worth[:, flat][:, None]


def _unit_bits(env: EnvConfig, market: Market, decisions: Array, costs: CostTicks, bars: int) -> Int32[Array, ""]:
    """Bits of the unit of a window: the finest in which no value relative to being flat passes 2^`_REACH_BITS`.

    Who is flat can take any position at once, at the cost of a few changes of position and a move, or has to wait until
    entries are allowed again: then the moves of that time come on top.
    """
    bar = decisions[0] + jnp.arange(bars, dtype=jnp.int32)
    inside = env_ops.is_inside(decisions, bar)
    bar = jnp.where(inside, bar, decisions[0])
    move_ticks = jnp.where(inside, jnp.abs(market.move_ticks[bar]), 0)
    is_late = inside & ((market.flags[bar] & NO_ENTRY) != 0)
    total = jnp.cumsum(jnp.where(is_late, move_ticks, 0))
    waited_ticks = jnp.max(total - lax.cummax(jnp.where(is_late, 0, total)))
    half_spread = env_ops.half_spread(market, bar)
    side = costs.side if half_spread is None else costs.side + jnp.max(half_spread)
    roll = jnp.float32(0.0) if costs.roll is None else costs.roll
    moved_ticks = (waited_ticks + jnp.max(move_ticks)).astype(jnp.float32)
    reach_ticks = float(env.max_lots) * (2.0 * moved_ticks + 12.0 * side + 6.0 * roll) + 1.0
    bits = jnp.floor(_REACH_BITS - jnp.log2(reach_ticks)).astype(jnp.int32)
    return jnp.clip(bits, -31, _FINEST_BITS)


def _units(ticks: Array, bits: Array) -> Array:
    """Whole units of a number of ticks."""
    return jnp.round(jnp.ldexp(ticks, bits)).astype(jnp.int32)


def _shifted(ticks: Int32[Array, "..."], bits: Array) -> Int32[Array, "..."]:
    """Whole ticks in units; exact unless a unit is more than a tick."""
    return jnp.where(bits >= 0, ticks << jnp.maximum(bits, 0), ticks >> jnp.maximum(-bits, 0))
