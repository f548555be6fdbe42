"""Greedy passes over decision ranges.

With a finite position set a greedy rollout is a composition of small maps position -> position. So the action values of
all (bar, position) pairs are computed in batches, and only the maps are chained along time (see `train.walks`).
`follow` passes over a range with targets that are known beforehand.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from tidewalk.agents.agent import Agent
from tidewalk.core.arrays import Array, Bool, Float32, Int8, Int32, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import Limits
from tidewalk.train.passes import Extent, Rollout, Stretches, Walk, bounds_of_all, scaler_of, stretches
from tidewalk.train.population import Program
from tidewalk.train.walks import walked

CHUNK = 2048
"""Bars whose targets are proposed in one batch where nothing else is asked for."""

QTable = Callable[[Float32[Array, "LF"]], Float32[Array, "P A"]]
"""Seen features of one bar -> action values for every position held; rows that can never be held mean nothing."""


def member_table(agent: Agent, env: EnvConfig, params: PyTree) -> QTable:
    """Q table of one member: the first layer once for each bar, and no position that can never be held."""
    held, q_table = env.reachable, agent.q_table
    if q_table is not None:

        def at_once(seen: Float32[Array, "LF"]) -> Float32[Array, "P A"]:
            values = q_table(params, seen, held)
            return jnp.pad(values, ((held.start, env.num_positions - held.stop), (0, 0)))

        return at_once

    def one_by_one(seen: Float32[Array, "LF"]) -> Float32[Array, "P A"]:
        positions = jnp.eye(env.num_positions, dtype=jnp.float32)
        observations = jnp.concatenate([jnp.broadcast_to(seen, (env.num_positions, seen.shape[0])), positions], axis=1)
        return jax.vmap(functools.partial(agent.q_values, params))(observations)

    return one_by_one


def ensemble_table(
    agent: Agent, env: EnvConfig, params: PyTree, spread: Float32[Array, "S"], is_usable: Bool[Array, "S"]
) -> QTable:
    """Mean over seeds of centred Q in units of each seed's spread; flat has most value without a usable seed.

    Leaves of `params` are `[S, ...]`.
    """
    weight = jnp.where(is_usable, 1.0 / jnp.maximum(spread, 1e-12), 0.0)
    nobody = jnp.where(jnp.any(is_usable), 0.0, 1.0) * jax.nn.one_hot(env.flat, env.num_positions, dtype=jnp.float32)

    def table(seen: Float32[Array, "LF"]) -> Float32[Array, "P A"]:
        q = jax.vmap(lambda p: member_table(agent, env, p)(seen))(params)
        # values of actions that are never allowed are never learned: they must not move the others
        centred = q - jnp.mean(q[..., env.reachable], axis=-1, keepdims=True)
        # a seed that is not usable may hold NaN, which a weight of 0 would not remove
        usable = jnp.where(is_usable[:, None, None], centred * weight[:, None, None], 0.0)
        return jnp.sum(usable, axis=0) / jnp.maximum(jnp.sum(is_usable), 1).astype(jnp.float32) + nobody[None, :]

    return table


def bar_bytes(env: EnvConfig, params: PyTree) -> int:
    """Scratch memory of one bar of one member: two layers of activations of every position that can be held.

    Args:
        env: the rules.
        params: parameters of members, leaves `[M, ...]`; the longest side of an array stands for the widest layer.
    """
    widest = max(max(leaf.shape[1:], default=1) for leaf in jax.tree.leaves(params))
    return 4 * (env.reachable.stop - env.reachable.start) * (2 * widest + env.num_positions)


def stretches_in_val(program: Program) -> Stretches | None:
    """How sessions of a validation range are cut where an account is counted."""
    return stretches(program.val_sessions, program.session_bars, program.val_bars)


def stretches_in_test(program: Program) -> Stretches | None:
    """How sessions of a test range are cut where an account is counted."""
    return stretches(program.test_sessions, program.session_bars, program.test_bars)


def rollout(
    program: Program,
    market: Market,
    window: Windows,
    decisions: Int32[Array, "2"],
    table: QTable,
    *,
    limits: Limits | None,
    extent: Extent,
) -> Rollout:
    """Greedy pass over a decision range, flat before it and closed by its last decision.

    Args:
        program: static settings.
        market: the resident market.
        window: window row (scaler).
        decisions: range `[first, stop)`.
        table: action values of a bar for every position.
        limits: account limits of the window; None where an account is not counted.
        extent: static form of the pass.
    """
    env = program.env

    def propose(bar: Array) -> tuple[Array, Array]:
        q = jax.vmap(lambda b: table(env_ops.see(env, market, scaler_of(window), b)))(bar)
        maps = env_ops.choose(env, q, *bounds_of_all(env, market, decisions, bar))
        learned = q[:, env.reachable, env.reachable]
        centred = learned - jnp.mean(learned, axis=-1, keepdims=True)
        return maps, jnp.mean(centred**2, axis=(1, 2))

    total = walked(Walk(env, market, limits, decisions), propose, _chunked(extent))
    count = jnp.maximum(decisions[1] - decisions[0], 1).astype(jnp.float32)
    return dataclasses.replace(total, spread=jnp.sqrt(total.spread / count))


def follow(
    env: EnvConfig,
    market: Market,
    limits: Limits | None,
    decisions: Int32[Array, "2"],
    wanted: Int8[Array, "H"],
    *,
    compose: str = "scan",
    stretches: Stretches | None = None,
) -> Int8[Array, "H"]:
    """Positions of a path of wanted targets under all rules and account limits.

    Args:
        env: the rules; each wanted index is clamped into what is allowed at its row.
        market: the resident market.
        limits: account limits of the window; None where an account is not counted.
        decisions: range `[first, stop)` of at most H decisions; its last decision is flat.
        wanted: position index wanted after each decision.
        compose: how maps are chained, see `train.passes.Extent`.
        stretches: how the sessions of the range are cut where an account is counted.
    """

    def propose(bar: Array) -> tuple[Array, Array]:
        target = wanted[bar - decisions[0]].astype(jnp.int32)
        return jnp.clip(target[:, None], *bounds_of_all(env, market, decisions, bar)), jnp.zeros(bar.shape)

    extent = Extent(compose, wanted.shape[0], with_path=True, stretches=stretches)
    return walked(Walk(env, market, limits, decisions), propose, _chunked(extent)).positions


def _chunked(extent: Extent) -> Extent:
    return dataclasses.replace(extent, chunk=min(extent.chunk or CHUNK, extent.bars))
