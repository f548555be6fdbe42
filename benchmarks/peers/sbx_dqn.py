"""SBX's DQN: Stable-Baselines3's loop with the network and the updates in jax, one agent."""

import jax
import numpy as np
from peers.jax_tools import peak_bytes
from peers.program import Setting
from peers.sb3_family import Host, arguments
from peers.workload import Workload
from sbx import DQN


class Sbx(Host):
    def __init__(self, workload: Workload, setting: Setting) -> None:
        super().__init__(DQN(**arguments(workload, setting)), workload, setting)

    def advance(self, updates: int) -> None:
        super().advance(updates)
        jax.block_until_ready(self._model.policy.qf_state)

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        state = self._model.policy.qf_state
        return np.asarray(state.apply_fn(state.params, observations))[None]

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
