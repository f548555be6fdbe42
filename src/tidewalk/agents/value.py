"""Value targets, written for one transition; the caller maps. The tests hold them against rlax."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax

from tidewalk.core.arrays import Array, Bool, Float32, Int32


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["observation_tm1", "action_tm1", "reward_t", "discount_t", "observation_t", "is_allowed_t"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Transition:
    """An n-step transition: `discount_t` is gamma^k where k <= n steps were taken, 0 after a termination.

    Truncation keeps its discount: `observation_t` is then the final observation, never that of a restarted lane.
    """

    observation_tm1: Float32[Array, "*batch D"]
    action_tm1: Int32[Array, "*batch"]
    reward_t: Float32[Array, "*batch"]
    discount_t: Float32[Array, "*batch"]
    observation_t: Float32[Array, "*batch D"]
    is_allowed_t: Bool[Array, "*batch A"]
    """Actions that may be taken at `observation_t`; at least one."""


def n_step_return(
    reward_t: Float32[Array, "N"],
    is_valid: Bool[Array, "N"],
    is_terminated: Bool[Array, "N"],
    gamma: Float32[Array, ""],
) -> tuple[Float32[Array, ""], Float32[Array, ""]]:
    """Discounted sum of the valid rewards and the discount of the bootstrap after them.

    Args:
        reward_t: rewards of N consecutive steps.
        is_valid: which of them belong to the episode: true, then false from the first cut on.
        is_terminated: steps that ended an episode for good; what follows one is not valid.
        gamma: discount of one step.

    Returns:
        (sum of gamma^i r_i over valid steps, gamma^k with k valid steps, or 0 after a termination).
    """
    powers = gamma ** jnp.arange(reward_t.shape[0], dtype=jnp.float32)
    valid = is_valid.astype(jnp.float32)
    discount = jnp.where(jnp.any(is_valid & is_terminated), 0.0, gamma ** jnp.sum(valid))
    return jnp.sum(powers * valid * reward_t), discount


def double_q_error(
    q_tm1: Float32[Array, "A"],
    action_tm1: Int32[Array, ""],
    reward_t: Float32[Array, ""],
    discount_t: Float32[Array, ""],
    q_t_value: Float32[Array, "A"],
    q_t_selector: Float32[Array, "A"],
    is_allowed_t: Bool[Array, "A"],
) -> Float32[Array, ""]:
    """TD error of double Q-learning (van Hasselt et al. 2016): the online network selects, the target network values.

    The selection is among the actions that are allowed: a maximum over others would promise what no policy can earn.
    Actions are read by one-hot products, whose gradient has no scatter. No gradient passes through the target.
    """
    taken = jnp.sum(q_tm1 * jax.nn.one_hot(action_tm1, q_tm1.shape[-1], dtype=q_tm1.dtype))
    best = jnp.argmax(jnp.where(is_allowed_t, q_t_selector, -jnp.inf))
    greedy = jax.nn.one_hot(best, q_t_value.shape[-1], dtype=q_t_value.dtype)
    target = reward_t + discount_t * jnp.sum(q_t_value * greedy)
    return jax.lax.stop_gradient(target) - taken


def huber(td_error: Float32[Array, "*batch"], delta: float) -> Float32[Array, "*batch"]:
    """Huber loss: quadratic within `delta`, linear beyond."""
    return optax.losses.huber_loss(td_error, delta=delta)
