"""Stable-Baselines3 and SBX on the workload: one agent per process, the environment and the replay on the host.

Modes: `1/1`, an update after every step; `50/50`, fifty updates after fifty steps, which SBX scans in one call.
"""

from typing import Any

from peers.gym_env import MarketEnv
from peers.program import Setting
from peers.workload import Workload
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv


def fill_steps(workload: Workload, mode: str) -> int:
    """Steps before the first update: the prefill, in whole blocks of collection."""
    block = block_of(mode)
    return -(-workload.prefill_steps // block) * block


def block_of(mode: str) -> int:
    """Steps, and then updates, of one block."""
    return int(mode.split("/")[0])


def arguments(workload: Workload, setting: Setting) -> dict[str, Any]:
    """What both take. They count single environment steps where the workload counts vector steps."""
    lanes, block = workload.lanes, block_of(setting.mode)
    return {
        "policy": "MlpPolicy",
        "env": DummyVecEnv([lambda: MarketEnv(workload)] * lanes),
        "learning_rate": workload.learning_rate,
        "gamma": workload.gamma,
        "buffer_size": workload.capacity,
        "batch_size": workload.batch_size,
        "learning_starts": fill_steps(workload, setting.mode) * lanes,
        # Divided by the number of environments there.
        "target_update_interval": workload.target_period * lanes,
        "train_freq": block,
        "gradient_steps": block,
        "exploration_initial_eps": workload.epsilon,
        "exploration_final_eps": workload.epsilon,
        "policy_kwargs": {"net_arch": list(workload.hidden)},
        "seed": setting.seed,
        "verbose": 0,
    }


class Host:
    """An SB3 algorithm that goes on learning from call to call."""

    def __init__(self, model: Any, workload: Workload, setting: Setting) -> None:
        if setting.members != 1:
            raise ValueError(f"{setting.program} trains one agent, {setting.members} were asked for")
        self._model, self._lanes = model, workload.lanes
        self._fill_steps = fill_steps(workload, setting.mode)
        model.set_logger(Logger(folder=None, output_formats=[]))
        self.advance(self._fill_steps)

    def advance(self, updates: int) -> None:
        # An update follows every step, or fifty follow fifty: as many steps are as many updates.
        self._model.learn(updates * self._lanes, reset_num_timesteps=False, log_interval=10**9)

    def counts(self) -> tuple[int, int]:
        return self._model.num_timesteps // self._lanes - self._fill_steps, int(self._model._n_updates)
