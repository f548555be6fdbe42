"""What the saved policies would have done under other costs and delays: one batched pass over the test months.

A greedy policy does not look at costs, so without account limits they change money alone, and only the delay changes
what is traded. With account limits costs decide when an account is halted, and every point is followed on its own. The
action values of a bar are computed once and read again by every delay and every point.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.env import Tally
from tidewalk.trading.limits import Limits
from tidewalk.train.passes import Extent, Walk, bounds_of_all, scaler_of
from tidewalk.train.population import Best, Program
from tidewalk.train.rollout import CHUNK, QTable, ensemble_table, member_table, stretches_in_test
from tidewalk.train.walks import walked

_MOST_ELEMENTS = 2**28


def surface_tallies(
    program: Program,
    market: Market,
    windows: Windows,
    best: Best,
    limits: Limits | None,
    *,
    seeds: int,
    delays: tuple[int, ...],
) -> Tally:
    """What every policy does over its test months at every delay, and at every point where there are account limits.

    Args:
        program: static settings; their own decision delay is replaced by those asked for.
        market: the resident market.
        windows: all windows.
        best: best epoch of every member; one without any stays flat.
        limits: account limits at the costs of every point, leaves `[W, G]`; None where an account is not counted.
        seeds: members per window S.
        delays: decision delays in bars, K of them. Every test range has that many bars, and a look-back, before it.

    Returns:
        Sums over the test ranges, leaves `[W, 1 + S, K, G]`: the seed ensemble first, then the seeds. G is 1 without
        account limits.
    """
    by_window: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, seeds, *leaf.shape[1:]), best)

    def one(row: tuple[Windows, Best, Limits | None]) -> Tally:
        return _of_window(program, market, row, delays)

    points = 1 if limits is None else jax.tree.leaves(limits)[0].shape[1]
    widths = sum(leaf.shape[-1] for leaf in jax.tree.leaves(best.params))
    positions = program.env.num_positions
    by_bar = positions * (positions + widths) + len(delays) * (positions + 8 * points)
    by_policy = min(CHUNK, program.test_bars) * by_bar + len(delays) * program.test_bars * (limits is not None)
    batch = max(1, _MOST_ELEMENTS // ((1 + seeds) * by_policy))
    return lax.map(one, (windows, by_window, limits), batch_size=min(batch, windows.test.shape[0]))


def _of_window(
    program: Program, market: Market, row: tuple[Windows, Best, Limits | None], delays: tuple[int, ...]
) -> Tally:
    """Tallies `[1 + S, K, G]` of one window."""
    window, members, limits = row
    env, agent = program.env, program.agent

    def of_seed(params: PyTree, epoch: Array) -> Tally:
        done = _of_table(program, market, window, member_table(agent, env, params), limits, delays)
        return jax.tree.map(lambda leaf: jnp.where(epoch > 0, leaf, jnp.zeros_like(leaf)), done)

    table = ensemble_table(agent, env, members.params, members.spread, members.epoch > 0)
    together = _of_table(program, market, window, table, limits, delays)
    alone = jax.vmap(of_seed)(members.params, members.epoch)
    return jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), together, alone)


def _of_table(
    program: Program, market: Market, window: Windows, table: QTable, limits: Limits | None, delays: tuple[int, ...]
) -> Tally:
    """Tallies `[K, G]` of one policy over the test range of one window."""
    env, bars, most = program.env, program.test_bars, max(delays)
    prompt, chunk, span = dataclasses.replace(env, decision_delay=0), min(CHUNK, bars), window.test

    extent = Extent(program.compose, bars, chunk=chunk, stretches=stretches_in_test(program))

    def of_point(delay: Array, limits: Limits | None) -> Tally:
        def propose(bar: Array) -> tuple[Array, Array]:
            # nothing here depends on delay or limits, so that a map over these leaves it alone
            seen = bar[0] + jnp.arange(-most, chunk, dtype=jnp.int32)
            seen = jnp.minimum(seen, span[1] - 1)
            q = jax.vmap(lambda b: table(env_ops.see(prompt, market, scaler_of(window), b)))(seen)
            known = lax.dynamic_slice_in_dim(q, most - delay, chunk)
            return env_ops.choose(env, known, *bounds_of_all(env, market, span, bar)), jnp.zeros(bar.shape)

        return walked(Walk(env, market, limits, span), propose, extent).tally

    def of_delay(delay: Array) -> Tally:
        if limits is None:
            return jax.tree.map(lambda leaf: leaf[None], of_point(delay, None))
        return jax.vmap(of_point, in_axes=(None, 0))(delay, limits)

    return jax.vmap(of_delay)(jnp.array(delays, jnp.int32))
