"""One pass over a decision range: targets of every (bar, position) are proposed in batches and chained along time.

Without account limits the chain is a composition of maps. Account limits depend on the path: with them the same maps
are followed row by row beside the account.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Bool, Float32, Int8, Int32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.env import EnvConfig, Scaler, Step, Tally
from tidewalk.trading.limits import Account, Limits


@functools.partial(jax.tree_util.register_dataclass, data_fields=["tally", "spread", "positions"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Rollout:
    """Result of one pass over a decision range."""

    tally: Tally
    """Sums over the range."""
    spread: Float32[Array, "*members"]
    """Root mean square of the centred action values over all (bar, position) pairs of the range that can be held."""
    positions: Int8[Array, "*members H"]
    """Position index held after each decision; flat beyond the range. H is 0 when the path was not asked for."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """What a pass over a decision range needs beside what it does."""

    env: EnvConfig
    market: Market
    limits: Limits | None
    decisions: Int32[Array, "2"]
    compose: str


def walked(
    walk: Walk, propose: Callable[..., tuple[Array, Array]], *, bars: int, chunk: int, with_path: bool
) -> Rollout:
    """One pass over a range, chunk by chunk.

    Args:
        walk: the range, its market and its rules.
        propose: bars of the range -> target of every (bar, position), and what each bar adds to `spread`.
        bars: static bound on the length of the range.
        chunk: bars whose targets are proposed in one batch.
        with_path: whether to return the positions.

    Returns:
        Sums of the tallies and of `spread`, and the path.
    """
    env, market, decisions = walk.env, walk.market, walk.decisions
    chunks = -(-bars // chunk)
    offsets = jnp.arange(chunk, dtype=jnp.int32)

    def body(carry: tuple[Array, Account | None, Rollout], number: Array) -> tuple[Any, Array]:
        position, account, total = carry
        bar = decisions[0] + number * chunk + offsets
        inside = env_ops.is_inside(decisions, bar)
        bar = jnp.where(inside, bar, decisions[0])
        maps, spread = propose(bar)
        maps = jnp.where(inside[:, None], maps, jnp.arange(env.num_positions, dtype=jnp.int32)[None, :])
        if walk.limits is None or account is None:
            after = chain(walk.compose, position, maps)
        else:
            rows = (bar, inside, maps)
            after, account = _chain_with_account(env, market, walk.limits, (position, account), rows)
        before = jnp.concatenate([position[None], after[:-1]])
        tally = step_at(env, market, bar, before, after).tally
        add = _adding(inside)
        total = Rollout(jax.tree.map(add, total.tally, tally), add(total.spread, spread), total.positions)
        path = jnp.where(inside, after, env.flat).astype(jnp.int8)
        return (after[-1], account, total), path if with_path else path[:0]

    nothing = env_ops.no_tally(env, has_spread=market.half_spread_ticks is not None)
    start = Rollout(nothing, jnp.float32(0.0), jnp.zeros(0, jnp.int8))
    account = None if walk.limits is None else limit_ops.open_account()
    (_, _, total), path = lax.scan(body, (jnp.int32(env.flat), account, start), jnp.arange(chunks, dtype=jnp.int32))
    return dataclasses.replace(total, positions=path.reshape(-1)[:bars])


def _adding(inside: Bool[Array, "H"]) -> Callable[[Array, Array], Array]:
    def add(total: Array, part: Array) -> Array:
        return total + jnp.sum(jnp.where(inside, part, jnp.zeros((), part.dtype)), dtype=part.dtype)

    return add


def scaler_of(window: Windows) -> Scaler:
    """Scaler of one window row."""
    return Scaler(center=window.center, scale=window.scale)


def step_at(
    env: EnvConfig,
    market: Market,
    bar: Int32[Array, "*batch"],
    position: Int32[Array, "*batch"],
    action: Int32[Array, "*batch"],
) -> Step:
    """The step that the decision of `bar` takes in the market, its costs included."""
    half_ticks = env_ops.half_spread(market, bar)
    return env_ops.step(env, market.move_ticks[bar], market.flags[bar], position, action, half_ticks)


def account_after(
    market: Market, limits: Limits, account: Account, bar: Int32[Array, "*batch"], taken: Step
) -> Account:
    """The account after the step that the decision of `bar` took; its result is booked where the decision fills."""
    tally, half_ticks = taken.tally, env_ops.half_spread(market, bar)
    net = limit_ops.net_milliticks(limits, tally.gross_ticks, tally.sides, tally.rolled, half_ticks)
    return limit_ops.booked(account, net, market.session_id[bar + 1])


def bounds_of_all(
    env: EnvConfig, market: Market, decisions: Array, bar: Int32[Array, "H"]
) -> tuple[Int32[Array, "H P"], Int32[Array, "H P"]]:
    """Bounds of every (bar, position); the last decision can only close."""
    shape = (bar.shape[0], env.num_positions)
    position = jnp.broadcast_to(jnp.arange(env.num_positions, dtype=jnp.int32)[None, :], shape)
    flags = jnp.broadcast_to(market.flags[bar][:, None], shape)
    is_last = jnp.broadcast_to((bar == decisions[1] - 1)[:, None], shape)
    return env_ops.bounds(env, flags, position, is_last)


def chain(compose: str, position: Int32[Array, ""], maps: Int32[Array, "H P"]) -> Int32[Array, "H"]:
    """Positions after each map, starting from `position`."""
    if compose == "scan":

        def body(held: Array, mapping: Array) -> tuple[Array, Array]:
            after = mapping[held]
            return after, after

        return lax.scan(body, position, maps)[1]
    composed = lax.associative_scan(lambda first, then: jnp.take_along_axis(then, first, axis=-1), maps, axis=0)
    return composed[:, position]


def _chain_with_account(
    env: EnvConfig,
    market: Market,
    limits: Limits,
    held: tuple[Int32[Array, ""], Account],
    rows: tuple[Int32[Array, "H"], Bool[Array, "H"], Int32[Array, "H P"]],
) -> tuple[Int32[Array, "H"], Account]:
    """Positions after each map where an account is counted: row by row, flat where a limit halts the row.

    Args:
        env: the rules.
        market: the resident market.
        limits: account limits of the window.
        held: position and account before the first row.
        rows: bar of each row, whether it lies in the range, and its map.
    """

    def body(held: tuple[Array, Account], row: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        (before, account), (bar, inside, mapping) = held, row
        is_halted = inside & limit_ops.is_halted(limits, account, market.session_id[bar + 1])
        after = jnp.where(is_halted, env.flat, mapping[before])
        after_row = account_after(market, limits, account, bar, step_at(env, market, bar, before, after))
        account = jax.tree.map(lambda new, old: jnp.where(inside, new, old), after_row, account)
        return (after, account), after

    (_, account), after = lax.scan(body, held, rows)
    return after, account
