"""What do 1 to 4,096 members in one program do per second, and in how much memory?

The starting-point epoch of `epoch.py`, all members in one program, with and without the month of validation, by the
learner that tidewalk would choose, and by XLA's form for one size. Memory: what the formula of `tidewalk.train.memory`
predicts, what the compiler says that the program needs, and the most that the device has held (members in rising
order, one program at a time). Last, in turn: windows whose validation months are equally long, and windows where they
are from half to one and a half times as long, which are as many bars in all.

    python benchmarks/population.py [--device gpu] [--members 1,8,64,256,1024,4096] [--precision float32,tf32]
"""

import argparse
import dataclasses
import gc
import sys
from typing import Any

import children
import common
import epoch
import floors
import jax
import world
from common import Column, Report
from world import Setting

from tidewalk.run import mesh
from tidewalk.train.batches import buckets, padding

COLUMNS = (
    Column("members", "members", "{:,}"),
    Column("learner", "steps by"),
    Column("precision", "precision"),
    Column("validation", "validation"),
    Column("epoch_ms", "epoch, ms", "{:,.1f}"),
    Column("p10_p90", "p10-p90"),
    Column("updates_per_s", "agent-updates/s", "{:,.0f}"),
    Column("env_steps_per_s", "env steps/s", "{:,.0f}"),
    Column("update_us", "us per agent-update", "{:,.3f}"),
    Column("floor_us", "floor, us", "{:,.3f}"),
    Column("predicted_mib", "predicted, MiB", "{:,.0f}"),
    Column("compiler_mib", "by the compiler, MiB", "{:,.0f}"),
    Column("device_mib", "peak on the device, MiB", "{:,.0f}"),
    Column("compile_s", "compile, s", "{:.1f}"),
)
_ON_A_CPU, _ON_A_GPU = (1, 8, 64), (1, 8, 64, 256, 1024, 4096)
_MOST_VALIDATED_ON_A_CPU = 8
_NOT_VALIDATED_ON_A_GPU = (8, 256)
"""Sizes between others, whose validation tells nothing new."""
_MOST_WINDOWS, _SPREAD = 32, 0.5
"""Of the study with unequal windows, and by what share its validation months are shorter and longer."""


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--members", type=common.numbers)
    precisions = common.several(common.one_of(mesh.PRECISIONS))
    parser.add_argument(
        "--precision", type=precisions, help="default float32, on a GPU float32,tf32; tf32 from 1,024 members on"
    )
    parser.add_argument("--reference", type=common.at_least(1), help="members that XLA's form is timed with too")
    parser.add_argument(
        "--plain", type=common.at_least(1), help="members that are also timed as plain one-step DQN, without validation"
    )
    parser.add_argument(
        "--unequal", type=common.at_least(0), help="members in unequal windows; default 8, on a GPU 1,024"
    )
    parser.add_argument(
        "--budget-s", type=common.at_least(0, float), default=1.5, help="time for more than the least rounds"
    )
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("population", options, COLUMNS)
    is_cpu = jax.default_backend() == "cpu"
    counts = options.members or ((1, 4) if options.quick else _ON_A_CPU if is_cpu else _ON_A_GPU)
    for name in ("reference", "plain"):
        asked = getattr(options, name)
        if asked is not None and asked not in counts and not options.quick:
            parser.error(f"--{name} is {asked}; allowed is one of the members, {', '.join(map(str, counts))}")
    precisions = options.precision or (("float32",) if is_cpu else ("float32", "tf32"))
    for setting in settings(options, counts, precisions):
        measure(report, options, setting)
        gc.collect()
    unequal = options.unequal if options.unequal is not None else 4 if options.quick else 8 if is_cpu else 1024
    if unequal:
        with common.attempt(report, f"{unequal} members in windows of unequal length"):
            compare_windows(report, options, setting_of(unequal, precisions[0], is_quick=options.quick))
    for precision in precisions:  # last, because it takes memory of its own
        add_floors(report, setting_of(counts[0], precision, is_quick=options.quick))
    return common.close(report)


def settings(options: argparse.Namespace, counts: tuple[int, ...], precisions: tuple[str, ...]) -> list[Setting]:
    """What is measured, in an order in which memory grows."""
    found = []
    for precision in precisions:
        few = precision != precisions[0] and not options.members
        for members in [count for count in counts if not few or count >= 1024]:
            one_of = setting_of(members, precision, is_quick=options.quick)
            found.append(one_of)
            if members == options.plain and precision == "float32":
                found.append(dataclasses.replace(one_of, is_plain=True))
            if members == options.reference and precision == "float32" and world.no_kernel(one_of) is None:
                found.append(dataclasses.replace(one_of, learner="xla"))
    return found


def add_floors(report: Report, setting: Setting) -> None:
    """The least time of an agent-update beside each figure without validation: arithmetic or memory traffic."""
    machine, network = world.measured_machine(report, setting.precision), setting.network
    flop = floors.update_flop(network, setting.batch, double=not setting.is_plain, lanes=setting.lanes)
    for row in report.rows:
        if row["precision"] == setting.precision and row["validation"] == "none":
            row["floor_us"] = floors.seconds(machine, flop, floors.fused_bytes(network, setting.batch)) * 1e6


def setting_of(members: int, precision: str, *, is_quick: bool) -> Setting:
    """The members spread over up to eight windows, with the learner that tidewalk would choose."""
    windows = max(count for count in (1, 2, 4, 8) if members % count == 0)
    found = Setting(members=members, windows=windows, precision=precision, learner="auto")
    return epoch.small(found) if is_quick else found


def measure(report: Report, options: argparse.Namespace, setting: Setting) -> None:
    """A row without validation, and one with it where it is no reference; a program is gone before the next is made."""
    is_reference = setting.learner == "xla" or setting.is_plain
    wholes = {"none": world.without_validation(setting)}
    if not is_reference and is_validated(setting.members, is_asked=options.members is not None):
        wholes["a month"] = setting
    for validation, whole in wholes.items():
        with common.attempt(report, f"{setting.members} members, {setting.precision}, validation {validation}"):
            one(report, options, whole, validation + ", plain DQN" * setting.is_plain)
        gc.collect()


def is_validated(members: int, *, is_asked: bool) -> bool:
    """Whether so many members are also timed with their validation."""
    if jax.default_backend() == "cpu":
        return is_asked or members <= _MOST_VALIDATED_ON_A_CPU
    return members not in _NOT_VALIDATED_ON_A_GPU


def one(report: Report, options: argparse.Namespace, setting: Setting, validation: str) -> None:
    held_before = world.device_peak_bytes()
    running, state = world.started(setting)
    times = common.interleaved(
        report, {"epoch": world.in_a_row(running, state)}, budget_s=0.0 if options.quick else options.budget_s
    )
    del state
    if "epoch" not in times:
        return
    held = world.device_peak_bytes()
    common.add(
        report,
        **speed(setting, times["epoch"]),
        learner=running.study.program.learner,
        validation=validation,
        predicted_mib=world.predicted_mib(running),
        compiler_mib=world.mib(world.peak_bytes(running)),
        device_mib=None if held == held_before else world.mib(held),  # a peak of before tells nothing
        compile_s=world.compile_s(running),
    )


def speed(setting: Setting, timing: common.Timing) -> dict[str, Any]:
    seconds, updates = timing.median_ms / 1e3, setting.members * setting.steps
    return {
        "members": setting.members,
        "precision": setting.precision,
        "epoch_ms": seconds * 1e3,
        "p10_p90": common.spread(timing),
        "updates_per_s": updates / seconds,
        "env_steps_per_s": updates * setting.lanes / seconds,
        "update_us": seconds / updates * 1e6,
        "samples_ms": timing.samples_ms,
    }


def compare_windows(report: Report, options: argparse.Namespace, setting: Setting) -> None:
    """A row for equal windows and one for unequal ones, and what the second takes more than the first."""
    windows = max(count for count in range(1, _MOST_WINDOWS + 1) if setting.members % count == 0)
    equal = dataclasses.replace(setting, windows=windows)
    kinds = {"equal months": equal, "unequal months": dataclasses.replace(equal, val_spread=_SPREAD)}
    calls, learner, lengths = {}, "", ()
    for name, one_of in kinds.items():
        running, state = world.started(one_of)
        calls[name], learner = world.in_a_row(running, state), running.study.program.learner
        lengths = running.study.program.val_lengths
    times = common.interleaved(report, calls, budget_s=0.0 if options.quick else 2 * options.budget_s)
    for name, timing in times.items():
        common.add(report, **speed(equal, timing), learner=learner, validation=f"{name}, {windows} windows")
    ratio = times["unequal months"].median_ms / times["equal months"].median_ms
    padded = padding(buckets(lengths, equal.members, max(lengths)), lengths)
    pads = "a kernel that stops at the end of each" if learner == "kernel" else f"buckets with {padded:.1%} of padding"
    report.notes.append(
        f"{equal.members} members in {windows} windows whose validation months are from {min(lengths):,} to "
        f"{max(lengths):,} bars long, evaluated by {pads}: {ratio:.3f} times the epoch of equal windows"
    )


if __name__ == "__main__":
    sys.exit(children.guarded(main))
