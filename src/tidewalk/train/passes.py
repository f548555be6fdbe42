"""What every pass over a decision range shares: its rows, its rules and its sums."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Bool, Float32, Int8, Int32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.env import EnvConfig, Scaler, Step, Tally
from tidewalk.trading.limits import Account, Limits

Propose = Callable[[Int32[Array, "H"]], tuple[Int32[Array, "H P"], Float32[Array, "H"]]]
"""Bars of a range -> target of every (bar, position), and what each bar adds to `Rollout.spread`."""


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
class Stretches:
    """How the rows of a range are cut where an account is counted: no stretch holds rows of two sessions."""

    most: int
    """Bound on the number of stretches of a range."""
    rows: int
    """Most rows of a stretch."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """What a pass over a decision range needs beside what it does."""

    env: EnvConfig
    market: Market
    limits: Limits | None
    decisions: Int32[Array, "2"]


@dataclasses.dataclass(frozen=True)
class Extent:
    """Static form of a pass: what changes it changes the compiled program, and no result."""

    compose: str
    """How maps are chained: `scan` or `associative` (see `train.chains.prefix`)."""
    bars: int
    """Bound on the length of the range."""
    with_path: bool = False
    """Whether to return the positions."""
    chunk: int | None = None
    """Bars whose targets are proposed in one batch; None: whatever the caller finds fit."""
    stretches: Stretches | None = None
    """None where nothing is known of the sessions: with an account, every row is then a stretch of its own."""


def stretches(sessions: int, longest: int, bars: int) -> Stretches | None:
    """The cut of ranges that evaluates fewest rows: whole sessions, or parts of even size where sessions are uneven.

    Args:
        sessions: most sessions in a range.
        longest: most decisions of one session in a range.
        bars: most decisions of a range.

    Returns:
        The cut; None where sessions or their lengths are not known (0).
    """
    if not sessions or not longest:
        return None
    even = -(-bars // sessions)
    cut = Stretches(sessions + bars // even, even)
    return Stretches(sessions, longest) if sessions * longest <= cut.most * cut.rows else cut


def rows_of(
    walk: Walk, propose: Propose, first: Array, chunk: int
) -> tuple[Int32[Array, "H"], Bool[Array, "H"], Int32[Array, "H P"], Float32[Array, "H"]]:
    """Bars of `chunk` rows from row `first` on, whether they lie in the range, their maps and parts of the spread.

    Beyond the range the bar is that of the first row and the map moves nothing, so that no index is ever clamped.
    """
    bar = walk.decisions[0] + first + jnp.arange(chunk, dtype=jnp.int32)
    inside = env_ops.is_inside(walk.decisions, bar)
    bar = jnp.where(inside, bar, walk.decisions[0])
    maps, spread = propose(bar)
    stay = jnp.arange(walk.env.num_positions, dtype=jnp.int32)[None, :]
    return bar, inside, jnp.where(inside[:, None], maps, stay), jnp.where(inside, spread, 0.0)


def nothing(walk: Walk) -> Tally:
    """A tally of nothing, with the parts that this pass counts."""
    return env_ops.no_tally(walk.env, has_spread=walk.market.half_spread_ticks is not None)


def added(total: Tally, rows: Tally, inside: Bool[Array, "H"]) -> Tally:
    """A tally and the sums of those rows that lie in the range."""

    def add(total: Array, part: Array) -> Array:
        return total + jnp.sum(jnp.where(inside, part, jnp.zeros((), part.dtype)), dtype=part.dtype)

    return jax.tree.map(add, total, rows)


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


def net_milliticks(market: Market, limits: Limits, bar: Int32[Array, "*batch"], taken: Step) -> Int32[Array, "*batch"]:
    """What the step that the decision of `bar` took adds to an account."""
    tally, half_ticks = taken.tally, env_ops.half_spread(market, bar)
    return limit_ops.net_milliticks(limits, tally.gross_ticks, tally.sides, tally.rolled, half_ticks)


def account_after(
    market: Market, limits: Limits, account: Account, bar: Int32[Array, "*batch"], taken: Step
) -> Account:
    """The account after the step that the decision of `bar` took; its result is booked where the decision fills."""
    return limit_ops.booked(account, net_milliticks(market, limits, bar, taken), market.session_id[bar + 1])


def bounds_of_all(
    env: EnvConfig, market: Market, decisions: Array, bar: Int32[Array, "H"]
) -> tuple[Int32[Array, "H P"], Int32[Array, "H P"]]:
    """Bounds of every (bar, position); the last decision can only close."""
    shape = (bar.shape[0], env.num_positions)
    position = jnp.broadcast_to(jnp.arange(env.num_positions, dtype=jnp.int32)[None, :], shape)
    flags = jnp.broadcast_to(market.flags[bar][:, None], shape)
    is_last = jnp.broadcast_to((bar == decisions[1] - 1)[:, None], shape)
    return env_ops.bounds(env, flags, position, is_last)
