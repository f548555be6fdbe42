"""How long does the starting-point epoch take, where does the time go, and how far is it from the machine's limit?

50 vector steps of 64 lanes, each followed by an update of batch 64 (28 features, 31-128-128-3, 3-step double DQN with a
duelling head, Adam), then a greedy pass over a month of validation: the epoch of the engine, in a row with others as in
a training, and alone, from the call to its metrics on the host. Beside it the same with four bars of validation, so
next to none: the steps alone. All forms take turns in one process.

    python benchmarks/epoch.py [--device gpu] [--members 1,28] [--precision float32,tf32] [--json FILE]
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import children
import common
import floors
import jax
import jax.numpy as jnp
import numpy as np
import world
from common import Column, Report
from floors import Machine
from world import Setting

from tidewalk.run import mesh

COLUMNS = (
    Column("members", "members", "{:,}"),
    Column("learner", "steps by"),
    Column("precision", "precision"),
    Column("epoch_ms", "epoch in a row, ms", "{:,.2f}"),
    Column("p10_p90", "p10-p90"),
    Column("alone_ms", "epoch alone, ms", "{:,.2f}"),
    Column("steps_ms", "steps alone, ms", "{:,.2f}"),
    Column("validation_ms", "the rest: validation, ms", "{:,.3f}"),
    Column("update_us", "us per step and update", "{:,.1f}"),
    Column("updates_per_s", "agent-updates/s", "{:,.0f}"),
    Column("floor_ms", "floor of the epoch, ms", "{:,.3f}"),
    Column("alone_floor_ms", "floor on one multiprocessor each, ms", "{:,.3f}"),
    Column("compile_s", "compile, s", "{:.1f}"),
)
_CLOSE = 5e-3
"""Largest difference between the weights of two forms after an epoch at which their times may be compared."""


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--members", type=common.numbers, help="default 1,28; with tf32 by default 1")
    precisions = common.several(common.one_of(mesh.PRECISIONS))
    parser.add_argument("--precision", type=precisions, help="default float32, on a GPU float32,tf32")
    learners = common.several(common.one_of(("xla", "kernel")))
    parser.add_argument(
        "--learner", type=learners, default="xla,kernel", help="what runs an epoch; xla in float32 alone"
    )
    parser.add_argument(
        "--budget-s",
        type=common.at_least(0, float),
        default=6.0,
        help="time for more than the least rounds, by variant",
    )
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("epoch", options, COLUMNS)
    is_cpu = jax.default_backend() == "cpu"
    for precision in options.precision or (("float32",) if is_cpu else ("float32", "tf32")):
        machine = world.measured_machine(report, precision)
        common.say(f"  {precision}: {machine.flop_per_s / 1e12:.2f} TFLOP/s, {machine.bytes_per_s / 1e12:.3f} TB/s")
        few = options.quick or (precision != "float32" and not options.precision)
        for members in options.members or ((1,) if few else (1, 28)):
            measure(report, options, setting_of(members, precision, is_quick=options.quick), machine)
    report.notes.append(
        "floor: the longer of arithmetic and memory traffic at the rates that this device reached in this process on a "
        "large matrix product and a large copy"
    )
    return common.close(report)


def setting_of(members: int, precision: str, *, is_quick: bool) -> Setting:
    """The starting point, in as many of the sample's seven windows as divide the members."""
    windows = 7 if members % 7 == 0 else 1
    found = Setting(members=members, windows=windows, precision=precision)
    return small(found) if is_quick else found


def small(setting: Setting) -> Setting:
    """The same study in sizes that show that it runs."""
    return dataclasses.replace(
        setting, bars=40_000, train_bars=6_000, val_bars=1_500, hidden=(16, 16), steps=4, capacity=2_048
    )


def learners_of(report: Report, asked: Sequence[str], setting: Setting) -> list[str]:
    """Those of the learners that can run a setting; the reason is kept where the kernel cannot.

    XLA's form is the reference in float32; elsewhere it runs where nothing else does.
    """
    names, reason = list(asked), None
    if "kernel" in names:
        reason = world.no_kernel(setting)
    if reason is not None:
        report.failures[f"{setting.members} members, kernel, {setting.precision}"] = reason
        names.remove("kernel")
    return [name for name in names if name == "kernel" or setting.precision == "float32" or len(names) == 1]


def measure(report: Report, options: argparse.Namespace, setting: Setting, machine: Machine) -> None:
    """A row for every learner there is; all their programs take turns."""
    calls: dict[str, Callable[[], Any]] = {}
    compile_s: dict[str, float] = {}
    weights: dict[str, list[np.ndarray]] = {}
    learners = learners_of(report, options.learner, setting)
    for learner in learners:
        with common.attempt(report, f"{setting.members} members, {learner}, {setting.precision}"):
            own = dataclasses.replace(setting, learner=learner)
            running, state = world.started(own)
            compile_s[learner] = world.compile_s(running)
            state, _, _ = running.run_epoch(state)
            weights[learner] = world.weights(running, state)
            calls[f"{learner} alone"] = world.alone(running, jax.tree.map(jnp.copy, state))
            calls[f"{learner} epoch"] = world.in_a_row(running, state)
            calls[f"{learner} steps"] = world.in_a_row(*world.started(world.without_validation(own)))
    times = common.interleaved(report, calls, budget_s=0.0 if options.quick else options.budget_s * len(calls) / 2)
    for learner in learners:
        if f"{learner} epoch" in times:
            own = {form: times.get(f"{learner} {form}") for form in ("epoch", "alone", "steps")}
            common.add(report, **row(setting, learner, own, machine), compile_s=compile_s[learner])
    if len(weights) == 2:
        report.notes.append(agreement(setting, weights))


def row(setting: Setting, learner: str, times: dict[str, common.Timing | None], machine: Machine) -> dict[str, Any]:
    epoch, alone, steps = times["epoch"], times["alone"], times["steps"]
    updates = setting.members * setting.steps
    flop, traffic = floor_work(setting)
    return {
        "members": setting.members,
        "learner": learner,
        "precision": setting.precision,
        "epoch_ms": epoch.median_ms,
        "p10_p90": common.spread(epoch),
        "alone_ms": alone and alone.median_ms,
        "steps_ms": steps and steps.median_ms,
        "validation_ms": steps and epoch.median_ms - steps.median_ms,
        "update_us": steps and steps.median_ms * 1e3 / setting.steps,
        "updates_per_s": updates / epoch.median_ms * 1e3,
        "floor_ms": floors.seconds(machine, flop, traffic) * 1e3,
        "alone_floor_ms": alone_floor_ms(setting, machine) if machine.multiprocessors > 1 else None,
        "samples_ms": epoch.samples_ms,
    }


def floor_work(setting: Setting) -> tuple[float, float]:
    """FLOP and least bytes of an epoch with its validation, of all members."""
    network, updates = setting.network, setting.members * setting.steps
    learned = updates * floors.update_flop(network, setting.batch, double=not setting.is_plain, lanes=setting.lanes)
    passed = setting.members * floors.greedy_flop(network, setting.val_bars, 3)
    return learned + passed, updates * floors.fused_bytes(network, setting.batch)


def alone_floor_ms(setting: Setting, machine: Machine) -> float:
    """All updates of a member one after another on a multiprocessor of its own, then the validation on all of them."""
    network = setting.network
    update = floors.update_flop(network, setting.batch, double=not setting.is_plain, lanes=setting.lanes)
    turns = -(-setting.members // machine.multiprocessors)
    passed = setting.members * floors.greedy_flop(network, setting.val_bars, 3) / machine.flop_per_s
    return (turns * setting.steps * floors.alone_s(machine, update) + passed) * 1e3


def agreement(setting: Setting, weights: dict[str, list[np.ndarray]]) -> str:
    first, second = weights.values()
    difference = max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))
    verdict = "the same learning" if difference <= _CLOSE else "NOT the same learning: do not compare their times"
    return (
        f"{setting.members} members, {setting.precision}: after one epoch the weights of {' and '.join(weights)} "
        f"differ by {difference:.1e} at most: {verdict}"
    )


if __name__ == "__main__":
    sys.exit(children.guarded(main))
