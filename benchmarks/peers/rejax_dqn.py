"""rejax's DQN on the workload: its own training iteration, a population by `vmap` over seeds as its authors do."""

import functools
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from peers.jax_env import Arrays, MarketEnv
from peers.jax_tools import peak_bytes
from peers.program import Setting, checked
from peers.workload import POSITIONS, Workload
from rejax import DQN
from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy


def algorithm(workload: Workload) -> DQN:
    """rejax with the workload's numbers. Its clip is element by element and set out of reach."""
    env = MarketEnv(workload)
    found = DQN.create(
        env=env,
        env_params=env.default_params,
        num_envs=workload.lanes,
        num_epochs=1,
        learning_rate=workload.learning_rate,
        gamma=workload.gamma,
        batch_size=workload.batch_size,
        buffer_size=workload.capacity,
        # Training starts above this count there, at it here.
        fill_buffer=workload.prefill_steps * workload.lanes - 1,
        # Counted in environment steps there, in updates here.
        target_update_freq=workload.target_period * workload.lanes,
        polyak=0.0,
        eps_start=workload.epsilon,
        eps_end=workload.epsilon,
        max_grad_norm=1e9,
        total_timesteps=workload.updates_per_epoch * workload.lanes,
        eval_freq=workload.updates_per_epoch * workload.lanes,
        skip_initial_evaluation=True,
    )
    network = EpsilonGreedyPolicy(DiscreteQNetwork)(
        hidden_layer_sizes=workload.hidden, action_dim=POSITIONS, activation=nn.relu
    )
    return found.replace(agent=network, ddqn=False, eval_callback=lambda *_: ())


class Rejax:
    """One `train` call of rejax is an epoch of 50 iterations; the state goes from call to call, donated."""

    def __init__(self, workload: Workload, setting: Setting) -> None:
        self._workload, self._checked = workload, checked(setting.members)
        self._algorithm = algorithm(workload)
        # The market is an argument that is not mapped: neither copied for every seed nor folded into the program.
        self._market = self._algorithm.env_params
        keys = jax.random.split(jax.random.key(setting.seed), setting.members)
        over_seeds = functools.partial(jax.vmap, in_axes=(None, 0))
        state = jax.jit(over_seeds(self._start))(self._market, keys)
        self._state = jax.jit(over_seeds(self._fill))(self._market, state)
        self._epoch = jax.jit(over_seeds(self._train), donate_argnums=1)

    def _start(self, market: Arrays, key: jax.Array) -> Any:
        return self._algorithm.replace(env_params=market).init_state(key)

    def _fill(self, market: Arrays, state: Any) -> Any:
        algo = self._algorithm.replace(env_params=market)
        return jax.lax.fori_loop(0, self._workload.prefill_steps, lambda _, ts: algo.train_iteration(ts), state)

    def _train(self, market: Arrays, state: Any) -> Any:
        return self._algorithm.replace(env_params=market).train(train_state=state)[0]

    def advance(self, updates: int) -> None:
        for _ in range(updates // self._workload.updates_per_epoch):
            self._state = self._epoch(self._market, self._state)
        jax.block_until_ready(self._state)

    def counts(self) -> tuple[int, int]:
        steps = int(np.unique(self._state.global_step).item()) // self._workload.lanes
        return steps - self._workload.prefill_steps, int(np.unique(self._state.q_ts.step).item())

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        params = jax.tree.map(lambda leaf: leaf[self._checked], self._state.q_ts.params)
        return np.asarray(jax.jit(jax.vmap(self._algorithm.agent.apply, in_axes=(0, None)))(params, observations))

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
