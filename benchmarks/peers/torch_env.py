"""The workload as torch tensors: a state is one number, a step is a few integer operations on any number of lanes."""

from typing import NamedTuple

import torch
from peers.workload import FLAT, POSITIONS, Workload, make_table, observation_table, reward_table


class Arrays(NamedTuple):
    """The tables on the device, and the train bars."""

    observations: torch.Tensor
    rewards: torch.Tensor
    first_bar: int
    stop_bar: int
    episode_bars: int


def arrays(workload: Workload, device: str) -> Arrays:
    size = workload.num_features
    observations, rewards = torch.from_numpy(observation_table(size)), torch.from_numpy(reward_table(size))
    return Arrays(
        observations.to(device), rewards.to(device), *make_table(size).train, episode_bars=workload.episode_bars
    )


def step(
    tables: Arrays, state: torch.Tensor, age: torch.Tensor, action: torch.Tensor, fresh_bar: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One decision of every lane.

    Args:
        tables: where episodes are cut.
        state: `bar * P + position`.
        age: steps since the restart.
        action: what is held next.
        fresh_bar: where a cut episode starts again.

    Returns:
        (decision taken, `state * A + action`; states after it; ages after it; which episodes were cut).
    """
    bar, older = state // POSITIONS + 1, age + 1
    is_cut = (bar >= tables.stop_bar) | (older >= tables.episode_bars)
    after = torch.where(is_cut, fresh_bar * POSITIONS + FLAT, bar * POSITIONS + action)
    return state * POSITIONS + action, after, older * ~is_cut, is_cut


def observations_of(tables: Arrays, state: torch.Tensor) -> torch.Tensor:
    return tables.observations[state]


def reward_of(tables: Arrays, decision: torch.Tensor) -> torch.Tensor:
    return tables.rewards[decision]


def observation_after(tables: Arrays, decision: torch.Tensor) -> torch.Tensor:
    """What a decision leads to, cut or not."""
    return tables.observations[(decision // (POSITIONS * POSITIONS) + 1) * POSITIONS + decision % POSITIONS]
