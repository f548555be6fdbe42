"""One pass over a decision range: targets of every (bar, position) are proposed in batches and chained along time.

Without account limits the chain is a composition of maps. Account limits depend on the path: with them the same maps
are followed beside the account, a stretch of one session at a time (`train.counted`).
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array
from tidewalk.train.chains import chain
from tidewalk.train.counted import walked_with_account
from tidewalk.train.passes import Extent, Propose, Rollout, Walk, added, nothing, rows_of, step_at


def walked(walk: Walk, propose: Propose, extent: Extent) -> Rollout:
    """One pass over a range.

    Args:
        walk: the range, its market and its rules.
        propose: what is wanted at each bar.
        extent: its static form.

    Returns:
        Sums of the tallies and of `spread`, and the path.
    """
    if walk.limits is not None:
        return walked_with_account(walk, walk.limits, propose, extent)
    env, chunk = walk.env, extent.chunk or extent.bars

    def body(carry: Any, number: Array) -> tuple[Any, Array]:
        position, tally, spread = carry
        bar, inside, maps, parts = rows_of(walk, propose, number * chunk, chunk)
        after = chain(extent.compose, position, maps)
        before = jnp.concatenate([position[None], after[:-1]])
        tally = added(tally, step_at(env, walk.market, bar, before, after).tally, inside)
        path = jnp.where(inside, after, env.flat).astype(jnp.int8)
        return (after[-1], tally, spread + jnp.sum(parts)), path if extent.with_path else path[:0]

    start, chunks = (jnp.int32(env.flat), nothing(walk), jnp.float32(0.0)), -(-extent.bars // chunk)
    (_, tally, spread), path = lax.scan(body, start, jnp.arange(chunks, dtype=jnp.int32))
    return Rollout(tally, spread, path.reshape(-1)[: extent.bars])
