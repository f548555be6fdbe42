"""The workload as a gymnasium environment in NumPy: what a step costs here is two look-ups."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from peers.workload import FLAT, POSITIONS, Workload, make_table, observation_table, reward_table


class MarketEnv(gymnasium.Env):
    """Episodes of the train bars, each from a random bar; they are cut, never ended."""

    def __init__(self, workload: Workload) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (workload.observation_size,), np.float32)
        self.action_space = spaces.Discrete(POSITIONS)
        self._first, self._stop = make_table(workload.num_features).train
        self._episode_bars = workload.episode_bars
        self._observations = observation_table(workload.num_features)
        self._rewards = reward_table(workload.num_features)
        self._bar, self._position, self._age = self._first, FLAT, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Flat at a random train bar, or at that of `options["bar"]`."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self._first, self._stop))
        self._bar, self._position, self._age = (options or {}).get("bar", drawn), FLAT, 0
        return self._observations[self._bar * POSITIONS + FLAT], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One decision; the observation of a cut episode is its last."""
        action = int(action)
        reward = float(self._rewards[(self._bar * POSITIONS + self._position) * POSITIONS + action])
        self._bar, self._position, self._age = self._bar + 1, action, self._age + 1
        is_cut = self._bar >= self._stop or self._age >= self._episode_bars
        return self._observations[self._bar * POSITIONS + action], reward, False, is_cut, {}
