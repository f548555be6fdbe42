"""The workload as an object with the interface of gymnax 0.0.9: `step` returns five values and restarts by itself."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from peers.workload import FLAT, POSITIONS, Workload, make_table, observation_table, reward_table


class Arrays(NamedTuple):
    """The tables on the device; an argument of the compiled program, never a constant in it."""

    observations: jax.Array
    rewards: jax.Array


class State(NamedTuple):
    """Where an environment stands."""

    bar: jax.Array
    position: jax.Array
    age: jax.Array


class MarketEnv:
    """Episodes of the train bars, each from a random bar. This interface has no truncation: a cut reads as an end."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._first, self._stop = make_table(workload.num_features).train

    @functools.cached_property
    def default_params(self) -> Arrays:
        size = self._workload.num_features
        return Arrays(jnp.asarray(observation_table(size)), jnp.asarray(reward_table(size)))

    def observation_space(self, _: Arrays) -> spaces.Box:
        return spaces.Box(-10.0, 10.0, (self._workload.observation_size,), jnp.float32)

    def action_space(self, _: Arrays | None = None) -> spaces.Discrete:
        return spaces.Discrete(POSITIONS)

    def reset(self, key: jax.Array, params: Arrays) -> tuple[jax.Array, State]:
        """Flat at a random train bar."""
        bar = jax.random.randint(key, (), self._first, self._stop, jnp.int32)
        state = State(bar, jnp.int32(FLAT), jnp.int32(0))
        return params.observations[bar * POSITIONS + FLAT], state

    def step(
        self, key: jax.Array, state: State, action: jax.Array, params: Arrays
    ) -> tuple[jax.Array, State, jax.Array, jax.Array, dict[str, Any]]:
        """One decision; after a cut the observation is that of the next episode."""
        action = action.astype(jnp.int32)
        reward = params.rewards[(state.bar * POSITIONS + state.position) * POSITIONS + action]
        bar, age = state.bar + 1, state.age + 1
        is_cut = (bar >= self._stop) | (age >= self._workload.episode_bars)
        fresh = jax.random.randint(key, (), self._first, self._stop, jnp.int32)
        after = State(jnp.where(is_cut, fresh, bar), jnp.where(is_cut, FLAT, action), jnp.where(is_cut, 0, age))
        return params.observations[after.bar * POSITIONS + after.position], after, reward, is_cut, {}


def final_observation(params: Arrays, state: State, action: jax.Array) -> np.ndarray | jax.Array:
    """What the decision of `state` leads to, cut or not."""
    return params.observations[(state.bar + 1) * POSITIONS + action]
