"""Who takes part, how often each is timed, and when a ratio may be stated."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from peers.program import Setting
from peers.workload import ENOUGH

OURS = "tidewalk"
LABELS = {
    "tidewalk": "tidewalk",
    "rejax": "rejax 0.1",
    "recipe": "common jax recipe (ours)",
    "sbx": "SBX",
    "sb3": "Stable-Baselines3",
    "torch": "torch, stacked (ours)",
}
HAS_POPULATION = ("tidewalk", "rejax", "recipe", "torch")
MODES = {
    "cpu": {
        "tidewalk": ("scan",),
        "rejax": ("vmap",),
        "recipe": ("vmap",),
        "torch": ("eager", "compiled"),
        "sbx": ("1/1", "50/50"),
        "sb3": ("1/1", "50/50"),
    },
    "gpu": {
        "tidewalk": ("scan", "kernel"),
        "rejax": ("vmap",),
        "recipe": ("vmap",),
        "torch": ("eager", "graph", "compiled graph"),
        "sbx": ("1/1", "50/50"),
        "sb3": ("1/1", "50/50"),
    },
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row: a program in one mode, in one or several processes."""

    program: str
    mode: str
    device: str
    processes: int
    members_each: int
    threads: int | None
    is_in_turn: bool = False
    """One agent after another: what is timed is one of them."""

    @property
    def label(self) -> str:
        where = f", {self.processes} processes" if self.processes > 1 else ", in turn" if self.is_in_turn else ""
        return f"{LABELS[self.program]}, {self.mode}, {self.device}{where}"

    @property
    def team(self) -> "Entry":
        """The entry whose processes do this one's work: one agent in turn is one agent."""
        return dataclasses.replace(self, is_in_turn=False)

    @property
    def members(self) -> int:
        """Agents that are trained at the same time."""
        return self.processes * self.members_each

    def setting(self, number: int, workload: str, lanes: int, precision: str) -> Setting:
        """What the process of this number is told."""
        return Setting(
            workload=workload,
            lanes=lanes,
            program=self.program,
            mode=self.mode,
            members=self.members_each,
            device=self.device,
            precision=precision,
            threads=self.threads,
            seed=number,
        )


def line_up(device: str, members: int, cores: int, programs: Sequence[str]) -> list[Entry]:
    """Entries for so many agents.

    A program without a population trains one agent after another (one process: its speed is that of one agent) and,
    beside it, as many at once as there are cores; for many agents in its best mode alone, which is its last. On a CPU
    the population of a peer may also be split over the cores. On a GPU machine the programs of the host are tried on
    its CPU too, where small networks are faster, and run at once there alone: on the GPU they would take turns.
    """
    found = []
    for program in programs:
        modes = MODES[device][program]
        for mode in modes if members == 1 or program in HAS_POPULATION else modes[-1:]:
            if program in HAS_POPULATION:
                threads = None if members > 1 else 1
                found.append(Entry(program, mode, device, 1, members, threads))
                if device == "cpu" and program != OURS and members % cores == 0 and 1 < cores < members:
                    found.append(Entry(program, mode, device, cores, members // cores, 1))
                continue
            for where in (device,) if device == "cpu" else ("gpu", "cpu"):
                found.append(Entry(program, mode, where, 1, 1, 1, is_in_turn=members > 1))
                if members > 1 < cores and where == "cpu":
                    found.append(Entry(program, mode, where, cores, 1, 1))
    return found


def why_withheld(check: dict[str, Any], reference: dict[str, Any] | None, asked_updates: int) -> str | None:
    """Why no ratio may be stated; None: it may. Both sides must have learned by the same number of updates."""
    for name, one in (("it", check), ("tidewalk", reference)):
        if one is None:
            return f"{name} was not measured"
        if set(one["updates"]) != {asked_updates}:
            return f"{name} had done {one['updates']} updates at its check, {asked_updates} were asked for"
        if not one["captured"] >= ENOUGH:
            return (
                f"{name} had not learned: {one['captured']:.2f} of the best policy's result, {ENOUGH:g} are asked for"
            )
    return None


def ratios(ours_ms: Sequence[float], ours: int, theirs_ms: Sequence[float], theirs: int) -> dict[str, float]:
    """How many times as many agent-updates a second tidewalk does, round by round: median, lowest and highest.

    Args:
        ours_ms: blocks of tidewalk.
        ours: its members.
        theirs_ms: blocks of the peer in the same rounds, of as many updates.
        theirs: its members.
    """
    found = [(ours / mine) / (theirs / other) for mine, other in zip(ours_ms, theirs_ms, strict=True)]
    return {"ratio": statistics.median(found), "ratio_low": min(found), "ratio_high": max(found)}
