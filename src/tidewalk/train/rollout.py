"""Where agent meets environment: collection, the transitions of replay records, and greedy rollouts in both forms.

With a finite position set a greedy rollout is a composition of small maps position -> position, and composition is
associative. So the action values of all (bar, position) pairs are computed in batches and only the maps are chained
along time: by `scan` on a CPU, by `associative_scan` on accelerators. `rollout_sequential` acts bar by bar and is the
reference; all forms read one table of Q.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.agents import replay as replay_ops
from tidewalk.agents.agent import Agent
from tidewalk.agents.value import Transition, n_step_return
from tidewalk.core.arrays import Array, Bool, Float32, Int8, Int32, PyTree, UInt32
from tidewalk.market.device import GAP, Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.env import EnvConfig, Scaler
from tidewalk.train.population import Lanes, Program, random_bar

CHUNK = 2048
"""Bars whose (bar, position) pairs are evaluated in one batch: bounds the memory of a rollout, whatever its length."""

QTable = Callable[[Float32[Array, "LF"]], Float32[Array, "P A"]]
"""Seen features of one bar -> action values for every position held."""


def scaler_of(window: Windows) -> Scaler:
    """Scaler of one window row."""
    return Scaler(center=window.center, scale=window.scale)


def collect(
    program: Program,
    market: Market,
    window: Windows,
    params: PyTree,
    lanes: Lanes,
    bits: UInt32[Array, "R"],
    epsilon: Float32[Array, ""],
) -> tuple[Lanes, Int32[Array, "E 2"]]:
    """One vector step of a member: every lane decides and moves one bar.

    Args:
        program: static settings.
        market: the resident market.
        window: window row of the member.
        params: acting parameters.
        lanes: where the lanes stand.
        bits: three random words per lane: explore, action, restart.
        epsilon: probability of a random action.

    Returns:
        The lanes after the step, and the replay records of the step. A lane that reaches the end of the train
        decisions, its episode length, or a decision whose move spans a hole in the data is truncated and restarts flat
        at a random bar.
    """
    env = program.env
    explore_bits, action_bits, restart_bits = jnp.split(bits, 3)
    observations = jax.vmap(functools.partial(env_ops.observe, env, market, scaler_of(window)))(
        lanes.bar, lanes.position
    )
    greedy = jnp.argmax(jax.vmap(functools.partial(program.agent.q_values, params))(observations), axis=-1).astype(
        jnp.int32
    )
    is_exploring = (explore_bits >> 8).astype(jnp.float32) * (1.0 / (1 << 24)) < epsilon
    action = jnp.where(is_exploring, (action_bits % env.num_positions).astype(jnp.int32), greedy)
    rows = replay_ops.pack(lanes.bar, lanes.position, action, lanes.age == 0)
    after = env_ops.target(env, market.flags[lanes.bar], action)
    bar, age = lanes.bar + 1, lanes.age + 1
    is_hole = (market.flags[bar] & GAP) != 0
    is_truncated = (bar >= window.train[1]) | (age >= program.episode_bars) | is_hole
    moved = Lanes(
        bar=jnp.where(is_truncated, random_bar(window.train, restart_bits), bar),
        position=jnp.where(is_truncated, env.flat, after),
        age=jnp.where(is_truncated, 0, age),
    )
    return moved, rows


def transitions(
    program: Program,
    market: Market,
    window: Windows,
    records: Int32[Array, "B N 2"],
    cost_ticks: Float32[Array, ""],
    gamma: Float32[Array, ""],
) -> Transition:
    """Transitions `[B]` of sampled record sequences, all computed again from the resident market.

    A sequence is cut where a later record is fresh: the lane was truncated there, so the target bootstraps from its
    final observation.
    """
    env = program.env
    bar, position, action, is_fresh = replay_ops.unpack(records)
    is_valid = jnp.cumsum(is_fresh[:, 1:].astype(jnp.int32), axis=1) == 0
    is_valid = jnp.concatenate([jnp.ones_like(is_fresh[:, :1]), is_valid], axis=1)
    taken = env_ops.step(
        env, market.move_ticks[bar], market.flags[bar], position, action, env_ops.half_spread(market, bar)
    )
    rewards = env_ops.reward(taken, cost_ticks, window.reward_scale)
    reward, discount = jax.vmap(n_step_return, in_axes=(0, 0, None))(rewards, is_valid, gamma)
    steps = jnp.sum(is_valid, axis=1, dtype=jnp.int32)
    last = jnp.arange(records.shape[1], dtype=jnp.int32)[None, :] == (steps - 1)[:, None]
    final_position = jnp.sum(jnp.where(last, taken.position, 0), axis=1, dtype=jnp.int32)
    observe = jax.vmap(functools.partial(env_ops.observe, env, market, scaler_of(window)))
    return Transition(
        observation_tm1=observe(bar[:, 0], position[:, 0]),
        action_tm1=action[:, 0],
        reward_t=reward,
        discount_t=discount,
        observation_t=observe(bar[:, 0] + steps, final_position),
    )


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gross_ticks", "sides", "spread", "positions", "crossed_ticks"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Rollout:
    """Result of one greedy pass over a decision range."""

    gross_ticks: Int32[Array, "*members"]
    sides: Int32[Array, "*members"]
    spread: Float32[Array, "*members"]
    """Root mean square of the centred action values over all (bar, position) pairs of the range."""
    positions: Int8[Array, "*members H"]
    """Position index held after each decision; flat beyond the range. H is 0 when the path was not asked for."""
    crossed_ticks: Float32[Array, "*members"] | None = None
    """Recorded half spreads paid; None where costs do not use them."""


def member_table(agent: Agent, env: EnvConfig, params: PyTree) -> QTable:
    """Q table of one member."""

    def table(seen: Float32[Array, "LF"]) -> Float32[Array, "P A"]:
        held = jnp.eye(env.num_positions, dtype=jnp.float32)
        observations = jnp.concatenate([jnp.broadcast_to(seen, (env.num_positions, seen.shape[0])), held], axis=1)
        return jax.vmap(functools.partial(agent.q_values, params))(observations)

    return table


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
        centred = q - jnp.mean(q, axis=-1, keepdims=True)
        # a seed that is not usable may hold NaN, which a weight of 0 would not remove
        usable = jnp.where(is_usable[:, None, None], centred * weight[:, None, None], 0.0)
        return jnp.sum(usable, axis=0) / jnp.maximum(jnp.sum(is_usable), 1).astype(jnp.float32) + nobody[None, :]

    return table


def rollout(
    program: Program,
    market: Market,
    window: Windows,
    decisions: Int32[Array, "2"],
    table: QTable,
    *,
    bars: int,
    with_path: bool,
) -> Rollout:
    """Greedy pass over a decision range, flat before it and closed by its last decision.

    Args:
        program: static settings; `compose` chooses how maps are chained.
        market: the resident market.
        window: window row (scaler).
        decisions: range `[first, stop)`.
        table: action values of a bar for every position.
        bars: static bound on the length of the range.
        with_path: whether to return the positions.
    """
    chunk = min(CHUNK, bars)
    chunks = -(-bars // chunk)
    offsets = jnp.arange(chunk, dtype=jnp.int32)

    def body(carry: tuple[Array, Rollout], number: Array) -> tuple[tuple[Array, Rollout], Array]:
        position, total = carry
        bar = decisions[0] + number * chunk + offsets
        inside = env_ops.is_inside(decisions, bar)
        bar = jnp.where(inside, bar, decisions[0])
        q = jax.vmap(lambda b: table(env_ops.see(program.env, market, scaler_of(window), b)))(bar)
        after = _chain(program.compose, position, _maps(program.env, market, decisions, bar, inside, q))
        before = jnp.concatenate([position[None], after[:-1]])
        taken = env_ops.step(
            program.env, market.move_ticks[bar], market.flags[bar], before, after, env_ops.half_spread(market, bar)
        )
        centred = q - jnp.mean(q, axis=-1, keepdims=True)
        total = Rollout(
            gross_ticks=total.gross_ticks + jnp.sum(jnp.where(inside, taken.gross_ticks, 0), dtype=jnp.int32),
            sides=total.sides + jnp.sum(jnp.where(inside, taken.sides, 0), dtype=jnp.int32),
            spread=total.spread + jnp.sum(jnp.where(inside, jnp.mean(centred**2, axis=(1, 2)), 0.0)),
            positions=total.positions,
            crossed_ticks=_added(total.crossed_ticks, taken.crossed_ticks, inside),
        )
        path = jnp.where(inside, after, program.env.flat).astype(jnp.int8)
        return (after[-1], total), path if with_path else path[:0]

    crossed = None if market.half_spread_ticks is None else jnp.float32(0.0)
    start = Rollout(jnp.int32(0), jnp.int32(0), jnp.float32(0.0), jnp.zeros(0, jnp.int8), crossed)
    flat = jnp.int32(program.env.flat)
    (_, total), path = lax.scan(body, (flat, start), jnp.arange(chunks, dtype=jnp.int32))
    count = jnp.maximum(decisions[1] - decisions[0], 1).astype(jnp.float32)
    return dataclasses.replace(total, spread=jnp.sqrt(total.spread / count), positions=path.reshape(-1)[:bars])


def _added(total: Array | None, part: Array | None, inside: Bool[Array, "H"]) -> Array | None:
    return None if total is None or part is None else total + jnp.sum(jnp.where(inside, part, 0.0))


def rollout_sequential(
    program: Program, market: Market, window: Windows, decisions: Int32[Array, "2"], table: QTable, *, bars: int
) -> Int8[Array, "H"]:
    """Positions of the same greedy pass, acting bar by bar: the reference, and what path-dependent features need."""

    def body(position: Array, offset: Array) -> tuple[Array, Array]:
        bar = decisions[0] + offset
        inside = env_ops.is_inside(decisions, bar)
        bar = jnp.where(inside, bar, decisions[0])
        q = table(env_ops.see(program.env, market, scaler_of(window), bar))[position]
        action = jnp.where(bar == decisions[1] - 1, program.env.flat, jnp.argmax(q).astype(jnp.int32))
        after = env_ops.target(program.env, market.flags[bar], action)
        after = jnp.where(inside, after, position)
        return after, jnp.where(inside, after, program.env.flat).astype(jnp.int8)

    return lax.scan(body, jnp.int32(program.env.flat), jnp.arange(bars, dtype=jnp.int32))[1]


def _maps(
    env: EnvConfig,
    market: Market,
    decisions: Array,
    bar: Int32[Array, "H"],
    inside: Bool[Array, "H"],
    q: Float32[Array, "H P A"],
) -> Int32[Array, "H P"]:
    """Map position -> position of each bar: the greedy target, flat at the last decision, identity outside."""
    action = jnp.argmax(q, axis=-1).astype(jnp.int32)
    action = jnp.where((bar == decisions[1] - 1)[:, None], env.flat, action)
    after = env_ops.target(env, jnp.broadcast_to(market.flags[bar][:, None], action.shape), action)
    return jnp.where(inside[:, None], after, jnp.arange(env.num_positions, dtype=jnp.int32)[None, :])


def _chain(compose: str, position: Int32[Array, ""], maps: Int32[Array, "H P"]) -> Int32[Array, "H"]:
    """Positions after each map, starting from `position`."""
    if compose == "scan":

        def body(held: Array, mapping: Array) -> tuple[Array, Array]:
            after = mapping[held]
            return after, after

        return lax.scan(body, position, maps)[1]
    composed = lax.associative_scan(lambda first, then: jnp.take_along_axis(then, first, axis=-1), maps, axis=0)
    return composed[:, position]
