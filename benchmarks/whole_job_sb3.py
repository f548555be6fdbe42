"""A walk-forward study by Stable-Baselines3 with a loop by hand: the other side of `whole_job.py`.

For every member (window and seed): train a DQN on the train months, pass greedily over the validation months after
every epoch, keep the weights of the best one, trade the test months once with them. Environment, features, costs,
network, batch, replay, exploration and updates are those of the study that wrote the job file. The environment is a
batch of lanes in numpy, the fastest that SB3 can be given; its greedy pass is either `predict`, bar by bar, or one
batch of all (bar, position) pairs whose positions are then followed in a loop.

    python benchmarks/whole_job_sb3.py job.npz --members 0,1,2 --threads 1 --out result.json
"""

import argparse
import copy
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

ROLL, GAP = 4, 8
FLAT, ACTIONS = 1, 3


class Job:
    """Arrays and numbers of the job file."""

    def __init__(self, path: Path) -> None:
        held = np.load(path, allow_pickle=False)
        self.settings: dict[str, Any] = json.loads(str(held["settings"]))
        self.move_ticks = held["move_ticks"].astype(np.float32)
        self.is_roll = (held["flags"] & ROLL) != 0
        self.is_gap = (held["flags"] & GAP) != 0
        self.features = held["features"]
        self.ranges = {name: held[name] for name in ("train", "val", "test")}
        self.center, self.scale = held["center"], held["scale"]
        self.reward_scale, self.side_ticks = held["reward_scale"], held["side_ticks"]

    def seen(self, window: int, bars: np.ndarray) -> np.ndarray:
        """Scaled features of some bars."""
        rows = (self.features[bars] - self.center[window]) * self.scale[window]
        return np.clip(rows, -10.0, 10.0)

    def observed(self, window: int, bars: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.concatenate([self.seen(window, bars), np.eye(ACTIONS, dtype=np.float32)[positions]], axis=1)

    def net_ticks(self, window: int, bars: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """What decisions earn less their costs; a roll closes all of the old position and opens all of the new."""
        old, new = before.astype(np.float32) - FLAT, after.astype(np.float32) - FLAT
        sides = np.where(self.is_roll[bars], np.abs(old) + np.abs(new), np.abs(new - old))
        return new * self.move_ticks[bars] - sides * self.side_ticks[window]


class Lanes(VecEnv):
    """All lanes of a member as one vector environment."""

    def __init__(self, job: Job, window: int, seed: int) -> None:
        self.job, self.window = job, window
        self.draw = np.random.default_rng([window, seed])
        space = gymnasium.spaces.Box(-10.0, 10.0, (job.features.shape[1] + ACTIONS,), np.float32)
        super().__init__(job.settings["lanes"], space, gymnasium.spaces.Discrete(ACTIONS))

    def reset(self) -> np.ndarray:
        self.bar, self.position = self._starts(self.num_envs), np.full(self.num_envs, FLAT)
        self.age = np.zeros(self.num_envs, np.int64)
        return self._observed()

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        job, bars = self.job, self.bar
        reward = job.net_ticks(self.window, bars, self.position, self.actions) * job.reward_scale[self.window]
        self.bar, self.position, self.age = bars + 1, self.actions.copy(), self.age + 1
        is_over = (self.bar >= job.ranges["train"][self.window, 1]) | (self.age >= job.settings["episode_bars"])
        is_over |= job.is_gap[self.bar]
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if is_over.any():
            last = self._observed()
            for lane in np.flatnonzero(is_over):
                infos[lane] = {"terminal_observation": last[lane], "TimeLimit.truncated": True}
            self.bar[is_over] = self._starts(int(is_over.sum()))
            self.position[is_over], self.age[is_over] = FLAT, 0
        return self._observed(), reward.astype(np.float32), is_over, infos

    def _starts(self, count: int) -> np.ndarray:
        return self.draw.integers(*self.job.ranges["train"][self.window], count)

    def _observed(self) -> np.ndarray:
        return self.job.observed(self.window, self.bar, self.position)

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        del attr_name, indices  # there is nothing to ask for
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        del wrapper_class, indices
        return [False] * self.num_envs


def positions(job: Job, window: int, model: DQN, name: str, form: str) -> np.ndarray:
    """Positions of the greedy pass over a range, flat before it and closed by its last decision."""
    first, stop = (int(edge) for edge in job.ranges[name][window])
    bars = np.arange(first, stop)
    after, held = np.full(len(bars), FLAT), FLAT
    if form == "predict":
        for number, bar in enumerate(bars[:-1]):
            observation = job.observed(window, bar[None], np.array([held]))
            held = int(model.predict(observation, deterministic=True)[0][0])
            after[number] = held
        return after
    pairs = job.observed(window, np.repeat(bars, ACTIONS), np.tile(np.arange(ACTIONS), len(bars)))
    with torch.no_grad():
        q = model.q_net(torch.from_numpy(pairs).to(model.device)).cpu().numpy()
    best = q.argmax(axis=1).reshape(-1, ACTIONS).tolist()
    for number in range(len(bars) - 1):
        held = best[number][held]
        after[number] = held
    return after


def net_ticks(job: Job, window: int, name: str, after: np.ndarray) -> float:
    """Net ticks of a path over a range."""
    bars = np.arange(*job.ranges[name][window])
    before = np.concatenate([[FLAT], after[:-1]])
    return float(job.net_ticks(window, bars, before, after).sum(dtype=np.float64))


class BestEpoch(BaseCallback):
    """Validates at the end of every epoch and keeps the weights of the best."""

    def __init__(self, job: Job, window: int, form: str) -> None:
        super().__init__()
        self.job, self.window, self.form = job, window, form
        self.vector_steps, self.epochs_done = 0, 0
        self.best_net, self.best_epoch, self.best_weights = -np.inf, 0, None

    def _on_step(self) -> bool:
        self.vector_steps += 1
        return True

    def _on_rollout_start(self) -> None:
        steps = self.vector_steps - self.job.settings["prefill_steps"]
        if steps > 0 and steps % self.job.settings["max_steps_per_epoch"] == 0:
            self.validate()

    def validate(self) -> None:
        after = positions(self.job, self.window, self.model, "val", self.form)
        net = net_ticks(self.job, self.window, "val", after)
        self.epochs_done += 1
        if net > self.best_net:
            self.best_net, self.best_epoch = net, self.epochs_done
            self.best_weights = copy.deepcopy(self.model.q_net.state_dict())


def train_member(job: Job, window: int, seed: int, form: str, device: str) -> dict[str, Any]:
    """Train, choose the best epoch, trade the test once."""
    began, set_to = time.perf_counter(), job.settings
    lanes, steps = set_to["lanes"], set_to["epochs"] * set_to["max_steps_per_epoch"]
    whole = steps + set_to["prefill_steps"]
    model = DQN(
        "MlpPolicy",
        Lanes(job, window, seed),
        learning_rate=set_to["lr"],
        buffer_size=set_to["replay_capacity"],
        learning_starts=set_to["prefill_steps"] * lanes,
        batch_size=set_to["batch_size"],
        tau=set_to["tau"],
        gamma=set_to["gamma"],
        train_freq=1,
        gradient_steps=1,
        target_update_interval=lanes,  # in steps of single lanes: after every vector step
        exploration_fraction=(set_to["prefill_steps"] + set_to["epsilon_decay_frac"] * steps) / whole,
        exploration_initial_eps=set_to["epsilon_start"],
        exploration_final_eps=set_to["epsilon"],
        max_grad_norm=set_to["max_grad_norm"],
        policy_kwargs={"net_arch": list(set_to["hidden"])},
        seed=1000 * window + seed,
        device=device,
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    keeper = BestEpoch(job, window, form)
    model.learn(whole * lanes, callback=keeper, log_interval=10**9)
    keeper.validate()
    model.q_net.load_state_dict(keeper.best_weights)
    after = positions(job, window, model, "test", form)
    return {
        "window": window,
        "seed": seed,
        "updates": int(model._n_updates),
        "best_epoch": keeper.best_epoch,
        "val_net_ticks": keeper.best_net,
        "test_net_ticks": net_ticks(job, window, "test", after),
        "test_positions": "".join(map(str, after.tolist())),
        "seconds": time.perf_counter() - began,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("--members", required=True, help="numbers of members, window-major, with commas between")
    parser.add_argument("--validation", choices=("batch", "predict"), default="batch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch; default: its own choice")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    job = Job(options.job)
    found = []
    for member in map(int, options.members.split(",")):
        window, seed = divmod(member, job.settings["seeds"])
        found.append(train_member(job, window, seed, options.validation, options.device))
    options.out.write_text(json.dumps({"members": found, "torch_threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
