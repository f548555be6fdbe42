"""A greedy pass that acts bar by bar: slow, and what the composed forms of `rollout` have to equal."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Int8, Int32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.limits import Account, Limits
from tidewalk.train.passes import account_after, scaler_of, step_at
from tidewalk.train.population import Program
from tidewalk.train.rollout import QTable


def rollout_sequential(
    program: Program,
    market: Market,
    window: Windows,
    decisions: Int32[Array, "2"],
    table: QTable,
    *,
    limits: Limits | None,
    bars: int,
) -> Int8[Array, "H"]:
    """Positions of the greedy pass of `rollout`."""
    env = program.env

    def body(carry: tuple[Array, Account], offset: Array) -> tuple[Any, Array]:
        position, account = carry
        bar = decisions[0] + offset
        inside = env_ops.is_inside(decisions, bar)
        bar = jnp.where(inside, bar, decisions[0])
        must_close = bar == decisions[1] - 1
        if limits is not None:
            must_close = must_close | limit_ops.is_halted(limits, account, market.session_id[bar + 1])
        q = table(env_ops.see(env, market, scaler_of(window), bar))[position]
        after = env_ops.choose(env, q, *env_ops.bounds(env, market.flags[bar], position, must_close))
        if limits is not None:
            after_row = account_after(market, limits, account, bar, step_at(env, market, bar, position, after))
            account = jax.tree.map(lambda new, old: jnp.where(inside, new, old), after_row, account)
        after = jnp.where(inside, after, position)
        return (after, account), jnp.where(inside, after, env.flat).astype(jnp.int8)

    start = (jnp.int32(env.flat), limit_ops.open_account())
    return lax.scan(body, start, jnp.arange(bars, dtype=jnp.int32))[1]
