"""Passes beside an account whose limits end or interrupt trading, parallel in time within a session.

Between two breaches of a limit the composed maps hold. A limit that is reached makes all later rows of its session
flat, and an account that is over stays flat for good, so a session holds one breach at most: its rows are chained as if
there were no limits, counted by running sums, and cut at the first row that reaches one. Only sessions follow one
another.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Bool, Int8, Int32
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.limits import MAX, MILLI, Account, Limits
from tidewalk.train.chains import chain_packed, packed, prefix
from tidewalk.train.passes import (
    Extent,
    Propose,
    Rollout,
    Stretches,
    Walk,
    added,
    net_milliticks,
    nothing,
    rows_of,
    step_at,
)


def walked_with_account(walk: Walk, limits: Limits, propose: Propose, extent: Extent) -> Rollout:
    """`walks.walked` with account limits: the maps of all rows first, then stretch by stretch beside the account."""
    bars, chunk, with_path = extent.bars, extent.chunk or extent.bars, extent.with_path

    def propose_chunk(total: Array, number: Array) -> tuple[Array, Array]:
        _, _, maps, parts = rows_of(walk, propose, number * chunk, chunk)
        return total + jnp.sum(parts), packed(maps)

    chunks = jnp.arange(-(-bars // chunk), dtype=jnp.int32)
    spread, maps = lax.scan(propose_chunk, jnp.float32(0.0), chunks)
    maps = maps.reshape(-1, *maps.shape[2:])
    cut = extent.stretches or Stretches(bars, 1)
    first, stop = _edges(walk, cut)
    row = jnp.arange(cut.rows, dtype=jnp.int32)

    def body(carry: Any, edge: tuple[Array, Array]) -> tuple[Any, Array]:
        position, account, tally = carry
        inside = edge[0] + row < edge[1]
        number = jnp.where(inside, edge[0] + row, 0)
        rows = walk.decisions[0] + number, inside, maps[number]
        after, account, tallies = _stretch(walk, limits, extent.compose, (position, account), rows)
        # what follows the last row of the stretch is not part of it
        position = jnp.where(inside[0], after[jnp.sum(inside, dtype=jnp.int32) - 1], position)
        path = after.astype(jnp.int8) if with_path else jnp.zeros(0, jnp.int8)
        return (position, account, added(tally, tallies, inside)), path

    start = (jnp.int32(walk.env.flat), limit_ops.open_account(), nothing(walk))
    (_, _, tally), path = lax.scan(body, start, (first, stop))
    return Rollout(tally, spread, _placed(walk, cut, first, path, bars) if with_path else path.reshape(-1))


def _edges(walk: Walk, cut: Stretches) -> tuple[Int32[Array, "N"], Int32[Array, "N"]]:
    """First row of each stretch and the row after its last; both the end of the range beyond the last stretch."""
    first, stop = walk.decisions[0], walk.decisions[1]
    if cut.rows == 1:
        start = jnp.minimum(jnp.arange(cut.most, dtype=jnp.int32), stop - first)
        return start, jnp.minimum(start + 1, stop - first)
    session_id = walk.market.session_id
    # a decision belongs to the session of the bar in which it fills
    number = session_id[first + 1] + jnp.arange(cut.most + 1, dtype=jnp.int32)
    opens = jnp.searchsorted(session_id, number).astype(jnp.int32) - 1 - first
    opens = jnp.clip(opens, 0, stop - first)
    parts = -(-jnp.diff(opens) // cut.rows)
    ends = jnp.cumsum(parts)
    number = jnp.arange(cut.most, dtype=jnp.int32)
    session = jnp.sum(number[:, None] >= ends[None, :], axis=1, dtype=jnp.int32)
    of = jnp.minimum(session, cut.most - 1)
    start = opens[of] + (number - (ends - parts)[of]) * cut.rows
    is_any = session < cut.most
    end = stop - first
    return jnp.where(is_any, start, end), jnp.where(is_any, jnp.minimum(start + cut.rows, opens[of + 1]), end)


def _stretch(
    walk: Walk,
    limits: Limits,
    compose: str,
    held: tuple[Int32[Array, ""], Account],
    rows: tuple[Int32[Array, "H"], Bool[Array, "H"], Array],
) -> tuple[Int32[Array, "H"], Account, Any]:
    """Positions after each row of one session or a part of it, the account after them, and the tallies of the rows.

    Args:
        walk: the range, its market and its rules.
        limits: account limits of the window.
        compose: how maps and sums are chained.
        held: position and account before the first row.
        rows: bar of each row, whether it is one, and its map.
    """
    (position, account), (bar, inside, maps) = held, rows
    env, market, size = walk.env, walk.market, bar.shape[0]
    session = market.session_id[bar[0] + 1]
    is_halted = limit_ops.is_halted(limits, account, session)
    free = chain_packed(compose, position, maps, env.num_positions)
    taken = step_at(env, market, bar, jnp.concatenate([position[None], free[:-1]]), free)
    net = jnp.where(inside, net_milliticks(market, limits, bar, taken), 0)
    accounts = _running(compose, account, net, session)
    number = jnp.arange(size, dtype=jnp.int32)
    breached = inside & limit_ops.is_halted(limits, accounts, jnp.broadcast_to(session, (size,)))
    last = jnp.where(is_halted, -1, jnp.min(jnp.where(breached, number, size)))  # the row that reaches a limit
    after = jnp.where(number > last, env.flat, free)
    taken = step_at(env, market, bar, jnp.concatenate([position[None], after[:-1]]), after)
    # up to that row the account is as counted; the row after it closes, and what follows is flat
    kept = jnp.clip(last, 0, size - 1)
    before = jax.tree.map(lambda many, one: jnp.where(last < 0, one, many[kept]), accounts, account)
    is_closing = inside & (number == last + 1)
    closing = jnp.sum(jnp.where(is_closing, net_milliticks(market, limits, bar, taken), 0), dtype=jnp.int32)
    closed = limit_ops.booked(before, closing, session)
    account = jax.tree.map(lambda new, old: jnp.where(inside[0], new, old), closed, account)
    return after, account, taken.tally


def _running(compose: str, account: Account, net: Int32[Array, "H"], session: Int32[Array, ""]) -> Account:
    """The account after each row of one session that earns `net`: `limits.booked` row by row, or by running sums."""
    if compose == "scan":

        def body(held: Account, earned: Array) -> tuple[Account, Account]:
            after = limit_ops.booked(held, earned, session)
            return after, after

        return lax.scan(body, account, net)[1]
    zero, least = jnp.int32(0), jnp.int32(-(2**31))
    parts = net // MILLI, net % MILLI, net
    ticks, milli, day = prefix(compose, functools.partial(jax.tree.map, jnp.add), parts, (zero, zero, zero))
    ticks, milli = ticks + milli // MILLI, milli % MILLI
    equity = account.equity_milli + milli

    def higher(first: tuple[Array, Array], then: tuple[Array, Array]) -> tuple[Array, Array]:
        is_first = (first[0] > then[0]) | ((first[0] == then[0]) & (first[1] >= then[1]))
        return jnp.where(is_first, first[0], then[0]), jnp.where(is_first, first[1], then[1])

    # whole ticks apart from their thousandths: a session may move by more than int32 holds of these
    peak = (account.drawdown // MILLI, account.drawdown % MILLI)
    top = higher(prefix(compose, higher, (ticks, milli), (least, zero)), peak)
    fall = top[0] - ticks
    drawdown = jnp.where(fall < MAX // MILLI, fall * MILLI + top[1] - milli, MAX)
    return Account(
        equity_ticks=account.equity_ticks + ticks + equity // MILLI,
        equity_milli=equity % MILLI,
        drawdown=drawdown,
        day=jnp.where(session == account.session, account.day, 0) + day,
        session=jnp.broadcast_to(session, net.shape),
    )


def _placed(walk: Walk, cut: Stretches, first: Int32[Array, "N"], path: Int8[Array, "N R"], bars: int) -> Array:
    """The path `[bars]` from the rows of its stretches `[N, rows]`, flat beyond the range."""
    row = jnp.arange(bars, dtype=jnp.int32)
    number = jnp.searchsorted(first, row, side="right").astype(jnp.int32) - 1
    found = path[number, jnp.clip(row - first[number], 0, cut.rows - 1)]
    return jnp.where(row < walk.decisions[1] - walk.decisions[0], found, jnp.int8(walk.env.flat))
