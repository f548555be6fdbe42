"""Collection, and the transitions of replay records: where agent meets environment while it learns."""

import functools

import jax
import jax.numpy as jnp

from tidewalk.agents import replay as replay_ops
from tidewalk.agents.replay import Records
from tidewalk.agents.value import Transition, n_step_return
from tidewalk.core import trees
from tidewalk.core.arrays import Array, Bool, Float32, Int32, PyTree, UInt32
from tidewalk.market.device import GAP, Market
from tidewalk.market.windows import Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import Account, Limits
from tidewalk.train.passes import account_after, scaler_of, step_at
from tidewalk.train.population import Lanes, Program, random_bar


def collect(
    program: Program,
    market: Market,
    window: Windows,
    params: PyTree,
    lanes: Lanes,
    bits: UInt32[Array, "R"],
    epsilon: Float32[Array, ""],
    limits: Limits | None,
) -> tuple[Lanes, Int32[Array, "E 2"]]:
    """One vector step of a member: every lane decides and moves one bar.

    Args:
        program: static settings.
        market: the resident market.
        window: window row of the member.
        params: acting parameters.
        lanes: where the lanes stand.
        bits: three random words per lane: explore, action, restart.
        epsilon: probability of a random action, drawn evenly from those that are allowed.
        limits: account limits of the member; None where an account is not counted.

    Returns:
        The lanes after the step, and the replay records of the step. A lane that reaches the end of the train
        decisions, its episode length, or a decision whose move spans a hole in the data is truncated; one whose account
        is over is terminated. Both restart flat at a random bar, with a new account.
    """
    env = program.env
    explore_bits, action_bits, restart_bits = jnp.split(bits, 3)
    observations = jax.vmap(functools.partial(env_ops.observe, env, market, scaler_of(window)))(
        lanes.bar, lanes.position
    )
    is_halted = None
    if limits is not None and lanes.account is not None:
        is_halted = limit_ops.is_halted(limits, lanes.account, market.session_id[lanes.bar + 1])
    low, high = env_ops.bounds(env, market.flags[lanes.bar], lanes.position, is_halted)
    greedy = env_ops.choose(env, jax.vmap(functools.partial(program.agent.q_values, params))(observations), low, high)
    is_exploring = (explore_bits >> 8).astype(jnp.float32) * (1.0 / (1 << 24)) < epsilon
    random = low + (action_bits % (high - low + 1).astype(jnp.uint32)).astype(jnp.int32)
    action = jnp.where(is_exploring, random, greedy)
    account, is_halted, is_over = _after_row(env, market, limits, lanes, action)
    rows = replay_ops.pack(Records(lanes.bar, lanes.position, action, lanes.age == 0, is_halted, is_over))
    bar, age = lanes.bar + 1, lanes.age + 1
    is_hole = (market.flags[bar] & GAP) != 0
    restarts = (bar >= window.train[1]) | (age >= program.episode_bars) | is_hole | is_over
    fresh = None if account is None else limit_ops.open_account(age.shape)
    moved = Lanes(
        bar=jnp.where(restarts, random_bar(window.train, restart_bits), bar),
        position=jnp.where(restarts, env.flat, action),
        age=jnp.where(restarts, 0, age),
        account=trees.select(restarts, fresh, account),
    )
    return moved, rows


def _after_row(
    env: EnvConfig, market: Market, limits: Limits | None, lanes: Lanes, action: Int32[Array, "E"]
) -> tuple[Account | None, Bool[Array, "E"], Bool[Array, "E"]]:
    """Accounts after the row that the lanes decide, whether the row after it is halted, and whether they are over."""
    never = jnp.zeros(action.shape, bool)
    if limits is None or lanes.account is None:
        return None, never, never
    taken = step_at(env, market, lanes.bar, lanes.position, action)
    account = account_after(market, limits, lanes.account, lanes.bar, taken)
    session = market.session_id[lanes.bar + 2]
    return account, limit_ops.is_halted(limits, account, session), limit_ops.is_over(limits, account)


def transitions(
    program: Program,
    market: Market,
    window: Windows,
    records: Int32[Array, "B N 2"],
    cost: CostTicks,
    gamma: Float32[Array, ""],
    limits: Limits | None,
) -> Transition:
    """Transitions `[B]` of sampled record sequences, all computed again from the resident market.

    A sequence is cut where a later record is fresh. If the lane was truncated there, the target bootstraps from its
    final observation; if its account was over, there is no bootstrap, and the last reward carries the closing fill.

    Args:
        program: static settings.
        market: the resident market.
        window: window row of the member.
        records: packed records of consecutive steps of one lane, oldest first.
        cost: costs of the member.
        gamma: discount of one bar.
        limits: account limits of the member; with None no record is halted or terminated.
    """
    env = program.env
    found = replay_ops.unpack(records)
    is_valid = jnp.cumsum(found.is_fresh[:, 1:].astype(jnp.int32), axis=1) == 0
    is_valid = jnp.concatenate([jnp.ones_like(found.is_fresh[:, :1]), is_valid], axis=1)
    taken = step_at(env, market, found.bar, found.position, found.action)
    rewards = env_ops.reward(taken.tally, cost, window.reward_scale)
    is_terminated = jnp.zeros_like(found.is_fresh) if limits is None else found.is_terminated
    if limits is not None:
        closed = step_at(env, market, found.bar + 1, found.action, jnp.full_like(found.action, env.flat))
        closing = env_ops.reward(closed.tally, cost, window.reward_scale)
        rewards = jnp.where(is_terminated, rewards + closing, rewards)
    reward, discount = jax.vmap(n_step_return, in_axes=(0, 0, 0, None))(rewards, is_valid, is_terminated, gamma)
    steps = jnp.sum(is_valid, axis=1, dtype=jnp.int32)
    last = jnp.arange(records.shape[1], dtype=jnp.int32)[None, :] == (steps - 1)[:, None]
    final_position = jnp.sum(jnp.where(last, found.action, 0), axis=1, dtype=jnp.int32)
    final_bar = found.bar[:, 0] + steps
    is_halted = None if limits is None else jnp.any(last & found.is_halted, axis=1)
    bounds = env_ops.bounds(env, market.flags[final_bar], final_position, is_halted)
    observe = jax.vmap(functools.partial(env_ops.observe, env, market, scaler_of(window)))
    return Transition(
        observation_tm1=observe(found.bar[:, 0], found.position[:, 0]),
        action_tm1=found.action[:, 0],
        reward_t=reward,
        discount_t=discount,
        observation_t=observe(final_bar, final_position),
        is_allowed_t=env_ops.is_allowed(env, *bounds),
    )
