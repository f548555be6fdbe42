"""How fast do the cores learn: members in shares or undivided, on all cores or on one?

Two workloads of a 128-128 network at batch 64: the one of the peers (one lane, one-step plain DQN, 32 inputs) and the
default (64 lanes, 3-step double DQN with a duelling head, 31 inputs); a validation of 64 bars, so next to none. Every
setting is a process of its own that lives through the run; they are asked in turn for one epoch at a time, while the
others wait.

    python benchmarks/cpu.py [--members 1,8,16] [--json FILE]
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import common
import floors
from common import Column, Report

COLUMNS = (
    Column("workload", "workload"),
    Column("members", "members", "{:,}"),
    Column("how", "how"),
    Column("shares", "shares"),
    Column("epoch_ms", "50 updates, ms", "{:,.2f}"),
    Column("p10_p90", "p10-p90"),
    Column("updates_per_s", "agent-updates/s", "{:,.0f}"),
    Column("gflop_per_s", "GFLOP/s", "{:,.0f}"),
)
WORKLOADS = ("peers", "default")
_DEVICES = "JAX_NUM_CPU_DEVICES"
"""tidewalk computes as many shares at a time, or one on every core that it may use where this is not set."""


@dataclass(frozen=True)
class How:
    """What a process is given."""

    environment: dict[str, str]
    cores: int | None = None
    """Cores that it may use; None: all."""
    is_whole: bool = False
    """Whether the members stay one population."""


HOWS = {
    "as tidewalk sets it": How({}),
    "its shares one after another": How({_DEVICES: "1"}),
    "its shares on one core": How({}, cores=1),
    "undivided": How({}, is_whole=True),
    "undivided on one core": How({}, cores=1, is_whole=True),
}
"""The settings that are compared."""


def main() -> int:
    parser = common.parser(__doc__, device=False)
    parser.add_argument("--device", choices=("cpu",), help="the CPU it is")
    parser.add_argument("--members", type=common.numbers)
    workloads = common.several(common.one_of(WORKLOADS))
    parser.add_argument("--workloads", type=workloads, default=WORKLOADS)
    parser.add_argument(
        "--budget-s",
        type=common.at_least(0, float),
        default=1.0,
        help="time for more than the least rounds, by setting",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(json.loads(options.worker))
    report = common.opened("cpu", options, COLUMNS)
    for workload in options.workloads:
        for members in options.members or ((2,) if options.quick else (1, 8)):
            measure(report, options, workload, members)
    return common.close(report)


def measure(report: Report, options: argparse.Namespace, workload: str, members: int) -> None:
    """A row for each setting."""
    with contextlib.ExitStack() as stack:
        calls: dict[str, Callable[[], float]] = {}
        shares: dict[str, int] = {}
        for name, how in HOWS.items():
            job = {"workload": workload, "members": members, "is_quick": options.quick}
            job |= {"cores": how.cores, "is_whole": how.is_whole}
            with common.attempt(report, f"{workload}, {members} members, {name}"):
                calls[name], shares[name] = stack.enter_context(worker(job, how))
        budget_s = 0.0 if options.quick else options.budget_s * len(calls)
        times = common.interleaved(report, calls, budget_s=budget_s)
    for name, timing in times.items():
        updates = members * (4 if options.quick else 50)
        rate = updates / timing.median_ms * 1e3
        common.add(
            report,
            workload=workload,
            members=members,
            how=name,
            shares=shares[name],
            epoch_ms=timing.median_ms,
            p10_p90=common.spread(timing),
            updates_per_s=rate,
            gflop_per_s=rate * update_flop(workload, is_quick=options.quick) / 1e9,
            samples_ms=timing.samples_ms,
        )


def update_flop(workload: str, *, is_quick: bool) -> int:
    setting = setting_of(workload, 1, is_quick=is_quick)
    return floors.update_flop(setting.network, setting.batch, double=not setting.is_plain, lanes=setting.lanes)


@contextlib.contextmanager
def worker(job: dict[str, Any], how: How) -> Iterator[tuple[Callable[[], float], int]]:
    """A process that waits; a call that has it run an epoch, in milliseconds by its own clock; its shares."""
    command = [sys.executable, str(Path(__file__)), "--worker", json.dumps(job)]
    environment = {**os.environ, **how.environment}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with children.child(command, env=environment, **pipes) as process:

        def ask() -> float:
            process.stdin.write("epoch\n")
            return float(_answer(process))

        yield ask, int(_answer(process))


def _answer(process: subprocess.Popen) -> str:
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the process ended with code {process.wait()}")
    return line


def setting_of(workload: str, members: int, *, is_quick: bool) -> Any:
    import epoch
    import world

    found = world.Setting(members=members, windows=1, val_bars=64)
    if workload == "peers":
        found = world.Setting(members=members, val_bars=64, features=29, lanes=1, capacity=16_384, is_plain=True)
    return epoch.small(found) if is_quick else found


def work(job: dict[str, Any]) -> int:
    """Answer each line with the milliseconds of an epoch, by the programs that the engine runs."""
    children.leave_signals_to_parent()
    if job["cores"]:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["cores"]])
    import world

    from tidewalk.run import engine, mesh
    from tidewalk.run.shares import Deal

    mesh.make_reproducible()
    mesh.choose_platform("cpu")
    if job["is_whole"]:
        engine.deal = lambda members: Deal(members, members)
    running, state = world.started(setting_of(job["workload"], job["members"], is_quick=job["is_quick"]))
    call = world.in_a_row(running, state)
    print(running.deal.count, flush=True)
    for _ in sys.stdin:
        print(common.elapsed_ms(call), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(children.guarded(main))
