"""Stable-Baselines3's DQN: PyTorch, one agent."""

import numpy as np
import torch
from peers.program import Setting
from peers.sb3_family import Host, arguments
from peers.torch_tools import peak_bytes, set_up
from peers.workload import Workload
from stable_baselines3 import DQN


class StableBaselines3(Host):
    """Its gradient clip is set out of reach."""

    def __init__(self, workload: Workload, setting: Setting) -> None:
        set_up(setting)
        device = "cuda" if setting.device == "gpu" else "cpu"
        model = DQN(**arguments(workload, setting), max_grad_norm=1e9, device=device)
        super().__init__(model, workload, setting)

    def advance(self, updates: int) -> None:
        super().advance(updates)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            network = self._model.q_net
            return network(torch.from_numpy(observations).to(self._model.device)).cpu().numpy()[None]

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
