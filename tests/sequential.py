"""Passes that act bar by bar: slow, and what the composed forms of `rollout` have to equal."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Int8, Int32
from tidewalk.market.device import CLOSING, ROLL, Market
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


def tally_of(data, env, first, lots, *, held=0):
    """Sums of a path that starts with a position, in plain Python."""
    gross = sides = rolled = crossed = 0
    for bar, after in enumerate(lots, first):
        is_roll = data.flags[bar] & ROLL
        kept = min(abs(held), abs(after)) if is_roll and held * after > 0 else 0
        traded = abs(held) + abs(after) - 2 * kept if is_roll else abs(after - held)
        traded += 2 * kept if env.roll_as == "sides" else 0
        rolled += kept
        gross, sides = gross + after * int(data.move_ticks[bar]), sides + traded
        crossed += traded * (0.0 if data.half_spread_ticks is None else float(data.half_spread_ticks[bar + 1]))
        held = after
    return gross, sides, rolled, crossed


def with_account(world, limits, wanted):
    """The path of wanted lots under the limits, in plain Python and exact: the contract, row by row.

    Args:
        world: market, rules and range.
        limits: in milliticks.
        wanted: (bar, lots held) -> lots wanted.

    Returns:
        The path in lots, the bars whose decisions were halted, and whether the account ended.
    """
    data, env = world.data, world.program.env
    first, stop = (int(edge) for edge in world.windows.test[0])
    given = (limits.capital, limits.daily_loss, limits.drawdown)
    capital, daily, drawdown = (2**62 if limit is None else int(limit) for limit in given)
    equity = peak = day = held = 0
    is_over, halted_rows, path = False, [], []
    for bar in range(first, stop):
        is_same_day = bar > first and data.session_id[bar + 1] == data.session_id[bar]
        is_halted = is_over or (is_same_day and day <= -daily)
        is_closing = env.flat_at_close and data.flags[bar] & CLOSING
        after = 0 if is_halted or is_closing or bar == stop - 1 else wanted(bar, held)
        gross, sides, rolled, crossed = tally_of(data, env, bar, [after], held=held)
        by_spread = rolled * int(limits.roll) if env.roll_as == "spread" else 0
        net = gross * 1000 - sides * int(limits.side) - by_spread - round(crossed * 1000)
        equity, day = equity + net, (day if is_same_day else 0) + net
        peak = max(peak, equity)
        is_over = is_over or equity <= -capital or peak - equity >= drawdown
        halted_rows += [bar] if is_halted else []
        path.append(after)
        held = after
    return path, halted_rows, is_over
