"""Checkpoints of a run: when one is due, and how it is written."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from tidewalk.run.engine import State
from tidewalk.run.shares import Deal
from tidewalk.store import checkpoint
from tidewalk.train.population import TrainState

MOST_SHARE = 0.05
"""Of the time of a training, what checkpoints may take where nobody says how often they are wanted."""


@dataclasses.dataclass
class Saver:
    """Writes the checkpoints of one run, and remembers what that took."""

    folder: Path
    meta: dict[str, Any]
    """Description that goes with each of them."""
    every: int | None
    """Epochs between checkpoints; None: the first epoch, then no oftener than they may take of the time."""
    cost_s: float = 0.0
    """Seconds that the last one took, from the device to the disk."""
    ended_s: float = dataclasses.field(default_factory=lambda: time.monotonic())
    """When it was there."""
    written: list[Path] = dataclasses.field(default_factory=list)
    """Checkpoints that are whole, since this process wrote them, or read them to go on from there."""

    def is_due(self, epoch: int) -> bool:
        """Whether a checkpoint is to follow this epoch, beside the last one of all."""
        if self.every is not None:
            return epoch % self.every == 0
        return time.monotonic() - self.ended_s >= self.cost_s * (1 - MOST_SHARE) / MOST_SHARE

    def save(self, dealt: Deal, state: State, epoch: int, began_s: float) -> None:
        """Write the state on the host, and the best epochs beside it; older checkpoints but one go.

        Args:
            dealt: how its members are dealt out; the files hold the whole.
            state: host arrays.
            epoch: the epoch that it follows.
            began_s: when its way from the device began, by `time.monotonic`.
        """
        meta = {"epoch": epoch, **self.meta}
        best = state.best if isinstance(state, TrainState) else tuple(share.best for share in state)
        path = checkpoint.save_checkpoint(self.folder, f"epoch-{epoch:05d}", dealt.named(state), meta)
        checkpoint.save_checkpoint(self.folder, "best", dealt.named(best), meta)
        self.written.append(path)
        checkpoint.prune_checkpoints(self.folder, keep=2, written=self.written)
        self.ended_s = time.monotonic()
        self.cost_s = self.ended_s - began_s
