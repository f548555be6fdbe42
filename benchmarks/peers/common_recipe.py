"""The common recipe of DQN in jax, in our own words: not a product, and labelled so.

The style of PureJaxRL and its relatives: environment steps, a flashbax item buffer that holds whole observations, an
optax optimiser and the update in one `scan`, branches by `cond` on the runner's own step counter, a population by
`vmap` over all of it.
"""

import functools
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from peers.jax_env import Arrays, MarketEnv, State, final_observation
from peers.jax_tools import peak_bytes
from peers.program import Setting, checked
from peers.workload import FLAT, POSITIONS, Workload

Params = list[tuple[jax.Array, jax.Array]]


class Runner(NamedTuple):
    """All that one agent carries."""

    params: Params
    target: Params
    optimizer: Any
    buffer: Any
    environments: State
    observations: jax.Array
    steps: jax.Array
    updates: jax.Array
    key: jax.Array


def q_values(params: Params, x: jax.Array) -> jax.Array:
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = params[-1]
    return x @ weight + bias


def initial_params(key: jax.Array, sizes: tuple[int, ...]) -> Params:
    """Lecun-normal weights, zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


class CommonRecipe:
    def __init__(self, workload: Workload, setting: Setting) -> None:
        self._workload, self._checked = workload, checked(setting.members)
        self._env = MarketEnv(workload)
        self._optimizer = optax.adam(workload.learning_rate)
        self._buffer = flashbax.make_item_buffer(
            max_length=workload.capacity,
            min_length=workload.prefill_steps * workload.lanes,
            sample_batch_size=workload.batch_size,
            add_batches=True,
        )
        self._arrays = self._env.default_params
        keys = jax.random.split(jax.random.key(setting.seed), setting.members)
        over_seeds = functools.partial(jax.vmap, in_axes=(None, 0))
        state = jax.jit(over_seeds(self._start))(self._arrays, keys)
        run = {
            n: over_seeds(functools.partial(self._run, n)) for n in (workload.prefill_steps, workload.updates_per_epoch)
        }
        self._state = jax.jit(run[workload.prefill_steps])(self._arrays, state)
        self._epoch = jax.jit(run[workload.updates_per_epoch], donate_argnums=1)

    def _start(self, arrays: Arrays, key: jax.Array) -> Runner:
        workload = self._workload
        key, init_key, reset_key = jax.random.split(key, 3)
        params = initial_params(init_key, (workload.observation_size, *workload.hidden, POSITIONS))
        resets = jax.random.split(reset_key, workload.lanes)
        observations, environments = jax.vmap(self._env.reset, in_axes=(0, None))(resets, arrays)
        item = {
            "before": observations[0],
            "action": jnp.int32(FLAT),
            "reward": jnp.float32(0),
            "after": observations[0],
        }
        return Runner(
            params=params,
            target=jax.tree.map(jnp.copy, params),
            optimizer=self._optimizer.init(params),
            buffer=self._buffer.init(item),
            environments=environments,
            observations=observations,
            steps=jnp.int32(0),
            updates=jnp.int32(0),
            key=key,
        )

    def _run(self, steps: int, arrays: Arrays, runner: Runner) -> Runner:
        return jax.lax.scan(lambda carry, _: (self._step(arrays, carry), None), runner, None, length=steps)[0]

    def _step(self, arrays: Arrays, runner: Runner) -> Runner:
        """One vector step, and an update once the buffer is filled."""
        lanes, is_filling = self._workload.lanes, runner.steps < self._workload.prefill_steps
        key, explore_key, action_key, step_key, sample_key = jax.random.split(runner.key, 5)
        greedy = jnp.argmax(q_values(runner.params, runner.observations), axis=-1)
        random = jax.random.randint(action_key, (lanes,), 0, POSITIONS)
        epsilon = jnp.where(is_filling, 1.0, self._workload.epsilon)
        action = jnp.where(jax.random.uniform(explore_key, (lanes,)) < epsilon, random, greedy)
        keys = jax.random.split(step_key, lanes)
        last = jax.vmap(final_observation, in_axes=(None, 0, 0))(arrays, runner.environments, action)
        observations, environments, reward, _, _ = jax.vmap(self._env.step, in_axes=(0, 0, 0, None))(
            keys, runner.environments, action, arrays
        )
        items = {"before": runner.observations, "action": action, "reward": reward, "after": last}
        runner = runner._replace(
            buffer=self._buffer.add(runner.buffer, items),
            environments=environments,
            observations=observations,
            steps=runner.steps + 1,
            key=key,
        )
        return jax.lax.cond(is_filling, lambda r, _: r, self._learn, runner, sample_key)

    def _learn(self, runner: Runner, key: jax.Array) -> Runner:
        batch = self._buffer.sample(runner.buffer, key).experience

        def loss(params: Params) -> jax.Array:
            target = batch["reward"] + self._workload.gamma * q_values(runner.target, batch["after"]).max(axis=-1)
            taken = jnp.take_along_axis(q_values(params, batch["before"]), batch["action"][:, None], axis=-1)[:, 0]
            return optax.huber_loss(taken, target).mean()

        direction, optimizer = self._optimizer.update(jax.grad(loss)(runner.params), runner.optimizer)
        params, updates = optax.apply_updates(runner.params, direction), runner.updates + 1
        is_due = updates % self._workload.target_period == 0
        target = jax.lax.cond(is_due, lambda: params, lambda: runner.target)
        return runner._replace(params=params, target=target, optimizer=optimizer, updates=updates)

    def advance(self, updates: int) -> None:
        for _ in range(updates // self._workload.updates_per_epoch):
            self._state = self._epoch(self._arrays, self._state)
        jax.block_until_ready(self._state)

    def counts(self) -> tuple[int, int]:
        steps = int(np.unique(self._state.steps).item()) - self._workload.prefill_steps
        return steps, int(np.unique(self._state.updates).item())

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        params = jax.tree.map(lambda leaf: leaf[self._checked], self._state.params)
        return np.asarray(jax.jit(jax.vmap(q_values, in_axes=(0, None)))(params, observations))

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
