"""Greedy evaluation: validation of every epoch, and the one pass over the test months at the end."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Bool, Float32, Int8, Int32, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import Step, Tally
from tidewalk.trading.limits import Limits
from tidewalk.train.batches import Batch, batch, buckets, group_size, over_groups, over_members
from tidewalk.train.kernel import greedy
from tidewalk.train.passes import Extent, Rollout, step_at
from tidewalk.train.population import Best, Members, Program, window_of
from tidewalk.train.rollout import (
    QTable,
    bar_bytes,
    ensemble_table,
    member_table,
    rollout,
    stretches_in_test,
    stretches_in_val,
)

_TEST_PADDING = 0.5
"""The test months are traded once: a further bucket costs more to compile than a little padding to evaluate."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["score", "spread", "tally"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Score:
    """Validation result of one member."""

    score: Float32[Array, "*members"]
    """What chooses the best epoch: net reward in volatility units, or the session Sharpe ratio."""
    spread: Float32[Array, "*members"]
    tally: Tally


def validate_all(program: Program, market: Market, windows: Windows, members: Members, params: PyTree) -> Score:
    """Greedy passes of all members over the validation months of their windows, in buckets of similar length.

    Kernels that learn also evaluate; they need no buckets.

    Args:
        program: static settings.
        market: the resident market.
        windows: all windows.
        members: the members, leaves `[M, ...]`.
        params: their parameters, leaves `[M, ...]`.

    Returns:
        Scores, leaves `[M]`. A range that is longer than the program was planned for would be cut short: its score and
        spread are NaN, so that it is never chosen.
    """
    lengths = _lengths(windows.val[members.window])
    if program.learner == "kernel":
        found = _validate_by_kernel(program, market, windows, members, params)
        is_whole = lengths <= program.val_bars
    else:
        plan = buckets(program.val_lengths, lengths.shape[0], program.val_bars)

        def one(row: tuple[Members, PyTree], bars: int, chunk: int) -> Score:
            extent = Extent(program.compose, bars, program.select == "sharpe", chunk, stretches_in_val(program))
            return _validate(program, market, windows, row, extent)

        found, is_whole = over_members(one, (members, params), lengths, plan, _batches(program, params))
    whole = functools.partial(jnp.where, is_whole)
    return Score(whole(found.score, jnp.nan), whole(found.spread, jnp.nan), found.tally)


def _validate(program: Program, market: Market, windows: Windows, row: tuple[Members, PyTree], extent: Extent) -> Score:
    """Greedy pass of one member over the validation months of its window."""
    member, params = row
    window = window_of(windows, member.window)
    table = member_table(program.agent, program.env, params)
    result = rollout(program, market, window, window.val, table, limits=member.limits, extent=extent)
    return _scored(program, market, window, member, result)


def _validate_by_kernel(program: Program, market: Market, windows: Windows, members: Members, params: PyTree) -> Score:
    with_path = program.select == "sharpe"
    scored = jax.vmap(functools.partial(_scored, program, market))

    def many(rows: tuple[Members, PyTree]) -> Score:
        own, bars = (rows[0].window, rows[1]), program.val_bars
        result = greedy.greedy(program, market, windows, windows.val, own, bars=bars, with_path=with_path)
        return scored(jax.tree.map(lambda leaf: leaf[own[0]], windows), rows[0], result)

    count = members.window.shape[0]
    size = group_size(count, program.val_bars, greedy.bar_bytes(with_path=with_path))
    return over_groups(many, (members, params), count, size)


def _scored(program: Program, market: Market, window: Windows, member: Members, result: Rollout) -> Score:
    """What a pass over the validation months of a window is worth to a member."""
    if program.select == "sharpe":
        score = _session_sharpe(program, market, window, member, result.positions)
    else:
        score = env_ops.reward(result.tally, member.cost, window.reward_scale)
    return Score(score, result.spread, result.tally)


def trade_members(
    program: Program, market: Market, windows: Windows, members: Members, best: Best
) -> Int8[Array, "M H"]:
    """Positions of every member's best epoch over the test months of its window, one row per member.

    A member without a best epoch has nothing but its first, random weights: it stays flat.
    """
    trade = _trade_by_kernel if program.learner == "kernel" else _trade_by_bucket
    path = trade(program, market, windows, members, best.params)
    return jnp.where((best.epoch > 0)[:, None], path, jnp.int8(program.env.flat))


def _trade_by_bucket(
    program: Program, market: Market, windows: Windows, members: Members, params: PyTree
) -> Int8[Array, "M H"]:
    def one(row: tuple[Members, PyTree], bars: int, chunk: int) -> Array:
        member, params = row
        table = member_table(program.agent, program.env, params)
        return _traded(program, market, window_of(windows, member.window), table, member.limits, (bars, chunk))

    lengths = _lengths(windows.test[members.window])
    plan = buckets(program.test_lengths, lengths.shape[0], program.test_bars, most_padding=_TEST_PADDING)
    return over_members(one, (members, params), lengths, plan, _batches(program, params))[0]


def _trade_by_kernel(
    program: Program, market: Market, windows: Windows, members: Members, params: PyTree
) -> Int8[Array, "M H"]:
    def many(rows: tuple[Members, PyTree]) -> Array:
        own, bars = (rows[0].window, rows[1]), program.test_bars
        return greedy.greedy(program, market, windows, windows.test, own, bars=bars, with_path=True).positions

    count = members.window.shape[0]
    size = group_size(count, program.test_bars, greedy.bar_bytes(with_path=True))
    return over_groups(many, (members, params), count, size)


def trade_ensembles(
    program: Program, market: Market, windows: Windows, members: Members, best: Best, *, seeds: int
) -> Int8[Array, "W H"]:
    """Positions of the seed ensemble of every window over its test months.

    Action values are averaged in units of each seed's spread on the validation months. Members without a finished epoch
    are left out. The ensemble has an account of its own, with the limits of its window.
    """
    by_window: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, seeds, *leaf.shape[1:]), best)
    limits = jax.tree.map(lambda leaf: leaf[::seeds], members.limits)

    def one(row: tuple[Windows, Best, Limits | None], bars: int, chunk: int) -> Array:
        window, members, limits = row
        table = ensemble_table(program.agent, program.env, members.params, members.spread, members.epoch > 0)
        return _traded(program, market, window, table, limits, (bars, chunk))

    lengths = _lengths(windows.test)
    known = program.test_lengths[::seeds]
    plan = buckets(known, lengths.shape[0], program.test_bars, most_padding=_TEST_PADDING)
    return over_members(one, (windows, by_window, limits), lengths, plan, _batches(program, best.params, seeds))[0]


def _traded(
    program: Program, market: Market, window: Windows, table: QTable, limits: Limits | None, size: tuple[int, int]
) -> Int8[Array, "H"]:
    """Positions over the test months of one window, flat beyond them up to the longest of all windows."""
    bars, chunk = size
    extent = Extent(program.compose, bars, True, chunk, stretches_in_test(program))
    path = rollout(program, market, window, window.test, table, limits=limits, extent=extent).positions
    return jnp.pad(path, (0, program.test_bars - bars), constant_values=program.env.flat)


def _lengths(decisions: Int32[Array, "M 2"]) -> Int32[Array, "M"]:
    return decisions[:, 1] - decisions[:, 0]


def _batches(program: Program, params: PyTree, policies: int = 1) -> Callable[[int, int], Batch]:
    """How many members, of `policies` networks each, and bars are evaluated at a time."""
    each = policies * bar_bytes(program.env, params)
    return lambda members, bars: batch(program.compose, members, bars, each)


def path_rewards(
    program: Program, market: Market, windows: Windows, costs: CostTicks, positions: Int8[Array, "W H"]
) -> Float32[Array, "W H"]:
    """Reward of every decision along given paths over the test months of each window; 0 beyond the range.

    Args:
        program: static settings.
        market: the resident market.
        windows: all windows.
        costs: costs of each window, leaves `[W]`.
        positions: position index held after each decision.
    """

    def one(window: Windows, cost: CostTicks, path: Array) -> Array:
        _, inside, taken = _along(program, market, window.test, path)
        return jnp.where(inside, env_ops.reward(taken.tally, cost, window.reward_scale), 0.0)

    return jax.vmap(one)(windows, costs, positions)


def _along(
    program: Program, market: Market, decisions: Int32[Array, "2"], positions: Int8[Array, "H"]
) -> tuple[Int32[Array, "H"], Bool[Array, "H"], Step]:
    """Bars of a path from the start of a range, whether they lie in it, and what each of its decisions does."""
    bar = decisions[0] + jnp.arange(positions.shape[0], dtype=jnp.int32)
    inside = env_ops.is_inside(decisions, bar)
    bar = jnp.where(inside, bar, decisions[0])
    after = positions.astype(jnp.int32)
    before = jnp.concatenate([jnp.full(1, program.env.flat, jnp.int32), after[:-1]])
    return bar, inside, step_at(program.env, market, bar, before, after)


def _session_sharpe(
    program: Program, market: Market, window: Windows, member: Members, positions: Array
) -> Float32[Array, ""]:
    """Mean over standard deviation of the session net rewards; -inf where undefined (under 3 sessions, no variance).

    As in the books, a decision belongs to the session of the bar in which it fills.
    """
    bar, inside, taken = _along(program, market, window.val, positions)
    session = market.session_id[bar + 1] - market.session_id[window.val[0] + 1]
    count = session[jnp.maximum(window.val[1] - window.val[0] - 1, 0)] + 1

    def by_session(values: Array) -> Array:
        return jax.ops.segment_sum(
            jnp.where(inside, values, jnp.zeros((), values.dtype)), session, program.val_sessions
        )

    # Sums of integers, and of half spreads of whole ticks: the order in which an accelerator adds cannot change them.
    net = env_ops.reward(jax.tree.map(by_session, taken.tally), member.cost, window.reward_scale)
    is_session = jnp.arange(program.val_sessions, dtype=jnp.int32) < count
    n = count.astype(jnp.float32)
    mean = jnp.sum(jnp.where(is_session, net, 0.0)) / n
    variance = jnp.sum(jnp.where(is_session, (net - mean) ** 2, 0.0)) / jnp.maximum(n - 1.0, 1.0)
    is_defined = (count >= 3) & (variance > 0)
    return jnp.where(is_defined, mean / jnp.sqrt(jnp.maximum(variance, 1e-30)), -jnp.inf)
