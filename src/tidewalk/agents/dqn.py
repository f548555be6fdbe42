"""DQN with n-step targets, Huber loss and Adam; by default double and with a duelling network.

Sources: Mnih et al. 2015; van Hasselt et al. 2016; Wang et al. 2016; Hessel et al. 2018.
"""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import lax

from tidewalk.agents.agent import Agent
from tidewalk.agents.networks import QNetwork
from tidewalk.agents.value import Transition, double_q_error, huber
from tidewalk.core.arrays import Array, Float32, Int32, Key, PyTree
from tidewalk.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class DQNConfig:
    """DQN, by default double and with a duelling head."""

    lr: float = 5e-4
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount per bar."""
    n_step: int = 3
    """Steps of reward before the bootstrap."""
    batch_size: int = 64
    """Transitions in an update."""
    updates_per_step: int = 1
    """Updates after each vector step."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers, as 128,128."""
    double: bool = True
    """The online network selects the action whose value the target network gives; off: the target network does both."""
    duelling: bool = True
    """Q is a value plus advantages of mean zero; off: Q is the output layer as it is."""
    target_update: Literal["soft", "hard"] = "soft"
    """Target network: moved by --tau after every update, or copied every --target-period updates."""
    tau: float = 0.005
    """Share of the online network in a soft target update."""
    target_period: int = 500
    """Updates between hard target copies."""
    epsilon: float = 0.05
    """Final probability of a random action."""
    epsilon_start: float = 1.0
    """First probability of a random action."""
    epsilon_decay_frac: float = 0.5
    """Share of all training steps over which epsilon falls linearly."""
    huber_delta: float = 10.0
    """TD error (in volatilities of a bar) beyond which the loss is linear; small values learn medians, not means."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this global norm."""
    adam_eps: float = 1e-8
    """Denominator term of Adam."""

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        for name in ("lr", "gamma", "tau", "huber_delta", "max_grad_norm", "adam_eps"):
            most = 1e9 if name in ("huber_delta", "max_grad_norm") else 1.0
            if not 0.0 < getattr(self, name) <= most:
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag} is {getattr(self, name)}; it must be above 0 and at most {most:g}.")
        for name in ("epsilon", "epsilon_start", "epsilon_decay_frac"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be from 0 to 1.")
        for name in ("n_step", "batch_size", "updates_per_step", "target_period"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be from 1 to 2147483647."
                )
        if not self.hidden or min(self.hidden) < 1 or max(self.hidden) >= 2**31:
            given = ",".join(map(str, self.hidden))
            raise ConfigError(f"--hidden is {given}; give one or more widths from 1 to 2147483647, as 128,128.")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["lr", "gamma", "tau", "epsilon", "epsilon_start", "decay_steps"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Hyper:
    """What may differ between members of one program; scalars, or `[M]` in a population."""

    lr: Float32[Array, "*members"]
    gamma: Float32[Array, "*members"]
    tau: Float32[Array, "*members"]
    epsilon: Float32[Array, "*members"]
    epsilon_start: Float32[Array, "*members"]
    decay_steps: Float32[Array, "*members"]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["params", "target", "optimizer"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class DQNState:
    """Everything a DQN learns."""

    params: PyTree
    target: PyTree
    optimizer: PyTree


def hyper(config: DQNConfig, total_steps: int) -> Hyper:
    """Leaf hyper-parameters of one member; epsilon falls over its share of `total_steps` vector steps."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(Hyper) if f.name != "decay_steps"}
    decay = max(1.0, config.epsilon_decay_frac * total_steps)
    return Hyper(**{name: jnp.float32(value) for name, value in values.items()}, decay_steps=jnp.float32(decay))


def epsilon(hyper: Hyper, steps: Int32[Array, ""]) -> Float32[Array, ""]:
    """Probability of a random action after `steps` vector steps: linear from start to final value, then constant."""
    progress = jnp.minimum(steps.astype(jnp.float32) / hyper.decay_steps, 1.0)
    return hyper.epsilon_start + progress * (hyper.epsilon - hyper.epsilon_start)


def make_dqn(config: DQNConfig, observation_size: int, num_actions: int) -> Agent:
    """The DQN functions bound to their sizes."""
    return Agent(
        init=functools.partial(init, config, observation_size, num_actions),
        params=lambda state: state.params,
        q_values=q_values,
        epsilon=epsilon,
        learn=functools.partial(learn, config),
        config=config,
        n_step=config.n_step,
        updates_per_step=config.updates_per_step,
        batch_size=config.batch_size,
        q_table=QNetwork.table,
    )


def init(config: DQNConfig, observation_size: int, num_actions: int, key: Key[Array, ""]) -> DQNState:
    """A fresh learner; the target network starts as a copy of the online network."""
    params: Any = QNetwork(key, observation_size, config.hidden, num_actions, is_duelling=config.duelling)
    return DQNState(params=params, target=jax.tree.map(jnp.copy, params), optimizer=_optimizer(config).init(params))


def q_values(params: QNetwork, observation: Float32[Array, "D"]) -> Float32[Array, "A"]:
    """Action values of one observation."""
    return params(observation)


def loss(config: DQNConfig, params: QNetwork, target: QNetwork, batch: Transition) -> tuple[Array, dict[str, Any]]:
    """Mean Huber loss of the TD errors of a batch `[B]`, and the mean of all its action values."""
    q_tm1 = params(batch.observation_tm1)
    q_t_value = target(batch.observation_t)
    q_t_selector = params(batch.observation_t) if config.double else q_t_value
    errors = jax.vmap(double_q_error)(
        q_tm1, batch.action_tm1, batch.reward_t, batch.discount_t, q_t_value, q_t_selector, batch.is_allowed_t
    )
    return jnp.mean(huber(errors, config.huber_delta)), {"q_mean": jnp.mean(q_tm1)}


def learn(
    config: DQNConfig, state: DQNState, batch: Transition, hyper: Hyper, updates: Int32[Array, ""]
) -> tuple[DQNState, dict[str, Any]]:
    """One update of one member.

    Args:
        config: static settings.
        state: the learner.
        batch: transitions `[B]`.
        hyper: leaf hyper-parameters.
        updates: updates done before this one; shared by all members, so that a hard copy stays a branch under `vmap`.

    Returns:
        The learner after the update, and the metrics `loss` and `q_mean` before it.
    """
    (value, aux), gradients = jax.value_and_grad(functools.partial(loss, config), has_aux=True)(
        state.params, state.target, batch
    )
    with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay, a Python float, to an integer count
        direction, optimizer = _optimizer(config).update(gradients, state.optimizer)
    params = jax.tree.map(lambda p, d: p - hyper.lr * d, state.params, direction)
    target = _move_target(config, state.target, params, hyper.tau, updates + 1)
    return DQNState(params=params, target=target, optimizer=optimizer), {"loss": value, **aux}


def _optimizer(config: DQNConfig) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=config.adam_eps))


def _move_target(config: DQNConfig, target: PyTree, params: PyTree, tau: Array, updates: Array) -> PyTree:
    if config.target_update == "soft":
        return jax.tree.map(lambda t, p: t + tau * (p - t), target, params)
    return lax.cond(updates % config.target_period == 0, lambda: params, lambda: target)
