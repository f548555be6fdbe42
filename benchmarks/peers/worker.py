"""A process that holds one program and times it when it is asked to: JSON lines in, JSON lines out.

Nothing but answers goes to the standard output; what the frameworks print goes to the error stream.
"""

import dataclasses
import importlib
import json
import os
import statistics
import sys
import time
import traceback
from typing import Any

import children
import common
from peers.program import Program, Setting
from peers.workload import WORKLOADS, captured, held_out_observations

PROGRAMS = {
    "tidewalk": ("peers.tidewalk_dqn", "Tidewalk"),
    "rejax": ("peers.rejax_dqn", "Rejax"),
    "recipe": ("peers.common_recipe", "CommonRecipe"),
    "sb3": ("peers.sb3_dqn", "StableBaselines3"),
    "sbx": ("peers.sbx_dqn", "Sbx"),
    "torch": ("peers.torch_rival", "TorchRival"),
}
ON_JAX = ("tidewalk", "rejax", "recipe", "sbx")


class Worker:
    """Keeps the program between questions."""

    def __init__(self) -> None:
        self._program: Program | None = None

    def build(self, setting: dict[str, Any], cores: list[int] | None) -> dict[str, Any]:
        """Import, build and prefill the program, and run two epochs: what the first takes longer is compilation."""
        if cores:
            os.sched_setaffinity(0, cores)
        self._setting = Setting(**setting)
        self._workload = dataclasses.replace(WORKLOADS[self._setting.workload], lanes=self._setting.lanes)
        began = time.perf_counter()
        if self._setting.program in ON_JAX:
            from peers.jax_tools import set_up

            set_up(self._setting.device, self._setting.precision)
        module, name = PROGRAMS[self._setting.program]
        kind = getattr(importlib.import_module(module), name)
        imported = time.perf_counter()
        self._program = kind(self._workload, self._setting)
        epochs_s = [self._seconds(self._workload.updates_per_epoch) for _ in range(2)]
        ready = time.perf_counter()
        return {"import_s": imported - began, "compile_s": ready - imported - 2 * epochs_s[1]}

    def check(self, updates: int) -> dict[str, Any]:
        """Learn until so many updates are done, and trade the held-out bars greedily."""
        done = self._program.counts()[1]
        if updates > done:
            self._program.advance(updates - done)
        q_values = self._program.q_values(held_out_observations(self._workload))
        shares = [captured(self._workload, values) for values in q_values]
        return {"updates": self._program.counts()[1], "captured": statistics.median(shares), "least": min(shares)}

    def warm(self) -> dict[str, Any]:
        """An epoch that is not counted: what other programs left cold is warm again."""
        self._program.advance(self._workload.updates_per_epoch)
        return {}

    def time(self, updates: int, start_at: float) -> dict[str, Any]:
        """Time a block of updates that begins at the given wall time."""
        before = self._program.counts()
        time.sleep(max(0.0, start_at - time.time()))
        seconds = self._seconds(updates)
        steps, done = (after - old for after, old in zip(self._program.counts(), before, strict=True))
        return {"seconds": seconds, "ended_at": time.time(), "steps": steps, "updates": done}

    def memory(self) -> dict[str, Any]:
        """Peak of the process and, on a GPU, of the program's allocator."""
        peak_rss = int(common.peak_mib() * 2**20)
        return {"peak_rss_bytes": peak_rss, "peak_device_bytes": self._program.peak_device_bytes()}

    def _seconds(self, updates: int) -> float:
        began = time.perf_counter()
        self._program.advance(updates)
        return time.perf_counter() - began


def main() -> None:
    children.leave_signals_to_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(worker, question.pop("do"))(**question)
        except ModuleNotFoundError as error:
            answer = {"error": f"{error.name} is not installed, see benchmarks/peers/README.md"}
        except Exception as error:
            traceback.print_exc()
            lines = str(error).splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {lines[0][:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
