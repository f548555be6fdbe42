"""The hindsight bound: the best that any policy could have earned in a decision range, under the same costs and rules.

Prices are exogenous, so it is an exact dynamic programme over (bar, position).
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Float32, Int8, Int32
from tidewalk.market.device import Market
from tidewalk.trading import env as env_ops
from tidewalk.trading.env import EnvConfig


@functools.partial(jax.jit, static_argnames=("env", "bars"))
def hindsight(
    env: EnvConfig, market: Market, decisions: Int32[Array, "W 2"], cost_ticks: Float32[Array, "W"], *, bars: int
) -> Int8[Array, "W H"]:
    """Positions (indices) of the optimal path of each window, flat before the range and after its last decision.

    Args:
        env: positions and rules.
        market: the resident market.
        decisions: ranges `[first, stop)`.
        cost_ticks: cost per contract and side of each window, in ticks, without a recorded spread.
        bars: static bound H on the length of a range; beyond the range the path is flat.
    """
    return jax.vmap(lambda one, cost: _best_path(env, market, one, cost, bars))(decisions, cost_ticks)


def _best_path(env: EnvConfig, market: Market, decisions: Array, cost_ticks: Array, bars: int) -> Array:
    positions = jnp.arange(env.num_positions, dtype=jnp.int32)

    def value(worth: Array, offset: Array) -> tuple[Array, Array]:
        bar = decisions[0] + offset
        inside = env_ops.is_inside(decisions, bar)
        bar = jnp.where(inside, bar, decisions[0])
        given = (env, market.move_ticks[bar], market.flags[bar])
        step = functools.partial(env_ops.step, *given, half_spread_ticks=env_ops.half_spread(market, bar))
        taken = jax.vmap(lambda before: jax.vmap(lambda action: step(before, action))(positions))(positions)
        ticks = env_ops.reward(taken, cost_ticks, jnp.float32(1.0)) + worth[taken.position]
        # the last decision can only close
        ticks = jnp.where((bar == decisions[1] - 1) & (positions != env.flat)[None, :], -jnp.inf, ticks)
        best = jnp.argmax(ticks, axis=1).astype(jnp.int32)
        now = jnp.max(ticks, axis=1)
        # only differences between positions matter: keeping them near 0 keeps float32 exact to a small part of a tick
        now = now - now[env.flat]
        return jnp.where(inside, now, worth), jnp.where(inside, best, positions)

    offsets = jnp.arange(bars, dtype=jnp.int32)
    _, choice = lax.scan(value, jnp.zeros(env.num_positions, jnp.float32), offsets, reverse=True)

    def follow(held: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        mapping, offset = row
        bar = decisions[0] + offset
        inside = env_ops.is_inside(decisions, bar)
        flags = market.flags[jnp.where(inside, bar, decisions[0])]
        after = jnp.where(inside, env_ops.target(env, flags, mapping[held]), env.flat)
        return after, after.astype(jnp.int8)

    return lax.scan(follow, jnp.int32(env.flat), (choice, offsets))[1]
