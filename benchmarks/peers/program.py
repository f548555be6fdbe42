"""What the comparison asks of a program: do so many updates, say how many you have done, show what you have learned."""

import dataclasses
from typing import Literal, Protocol

import numpy as np

MOST_CHECKED = 16
"""Members whose held-out result is computed, evenly spread over a population."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a program is run."""

    workload: str
    lanes: int
    program: str
    mode: str
    members: int
    device: Literal["cpu", "gpu"]
    precision: Literal["float32", "tf32"]
    threads: int | None
    """CPU threads of torch; None: all cores. jax has no such switch: its processes are pinned to cores instead."""
    seed: int


class Program(Protocol):
    """A learner in steady state: the replay is prefilled, nothing is left to compile after the first `advance`."""

    def advance(self, updates: int) -> None:
        """Do so many updates of every member, each after one vector step; returns when the results are there."""
        ...

    def counts(self) -> tuple[int, int]:
        """Vector steps after the prefill and updates of each member so far, by the program's own counters."""
        ...

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        """Action values `[K, B, A]` of up to `MOST_CHECKED` members for observations `[B, D]`."""
        ...

    def peak_device_bytes(self) -> int | None:
        """Most GPU memory that the program's allocator held; None on a CPU."""
        ...


def checked(members: int) -> np.ndarray:
    """Which members are checked."""
    return np.unique(np.linspace(0, members - 1, min(members, MOST_CHECKED)).astype(int))
