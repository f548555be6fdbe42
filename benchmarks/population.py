"""What do 1 to 4,096 members in one program do per second, and in how much memory?

The starting-point epoch of `epoch.py`, all members in one program on one device, with and without the month of
validation. Memory: what the formula of `tidewalk.train.memory` predicts, what the compiler says that the program needs,
and the most that the device has held (members in rising order, one program at a time).

    python benchmarks/population.py [--device gpu] [--members 1,8,64,256,1024,4096] [--precision float32,tf32]
"""

import argparse
import gc
import sys

import common
import epoch
import floors
import jax
import world
from common import Column, Report
from world import Setting

from tidewalk.run import mesh

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


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--members", type=common.numbers)
    parser.add_argument("--precision", help="default float32, on a GPU float32,tf32")
    parser.add_argument("--learner", default="xla,kernel")
    parser.add_argument("--budget-s", type=float, default=1.5, help="time for more than the least rounds")
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("population", options)
    is_cpu = jax.default_backend() == "cpu"
    counts = options.members or ((1, 4) if options.quick else _ON_A_CPU if is_cpu else _ON_A_GPU)
    precisions = (options.precision or ("float32" if is_cpu else "float32,tf32")).split(",")
    for precision in precisions:
        for members in counts:
            setting = setting_of(members, precision, is_quick=options.quick)
            learners = [
                name for name in options.learner.split(",") if name == "xla" or epoch.has_kernel(report, setting)
            ]
            for learner in learners:
                measure(report, options, setting, learner, is_chosen=learner == learners[-1])
    for precision in precisions:  # last, because it takes memory of its own
        add_floors(report, setting_of(counts[0], precision, is_quick=options.quick))
    return common.close(report, COLUMNS)


def add_floors(report: Report, setting: Setting) -> None:
    """The least time of an agent-update beside each figure without validation: arithmetic or memory traffic."""
    machine, network = world.measured_machine(report, setting.precision), setting.network
    flop = floors.update_flop(network, setting.batch, double=not setting.is_plain, lanes=setting.lanes)
    for row in report.rows:
        if row["precision"] == setting.precision and row["validation"] == "no":
            row["floor_us"] = floors.seconds(machine, flop, floors.fused_bytes(network, setting.batch)) * 1e6


def setting_of(members: int, precision: str, *, is_quick: bool) -> Setting:
    """The members spread over up to eight windows."""
    windows = max(count for count in (1, 2, 4, 8) if members % count == 0)
    found = Setting(members=members, windows=windows, precision=precision)
    return epoch.small(found) if is_quick else found


def measure(report: Report, options: argparse.Namespace, setting: Setting, learner: str, *, is_chosen: bool) -> None:
    """A row without validation, and one with it for the learner that tidewalk would choose.

    A program is gone before the next one is made.
    """
    is_cpu = jax.default_backend() == "cpu"
    for validation in ("no", "a month"):
        is_long = is_cpu and setting.members > _MOST_VALIDATED_ON_A_CPU and not options.members
        if validation != "no" and (is_long or not is_chosen):
            continue
        name = f"{setting.members} members, {learner}, {setting.precision}, validation {validation}"
        with common.attempt(report, name):
            one(report, options, epoch.with_learner(setting, learner), validation)
        gc.collect()


def one(report: Report, options: argparse.Namespace, setting: Setting, validation: str) -> None:
    held_before, study = world.device_peak_bytes(), world.made(setting)
    if validation == "no":
        program, compile_s = world.compiled(study, world.steps_alone)
        call = world.stepper(program, study, world.first_state(study))
    else:
        program, compile_s = world.compiled_epoch(study)
        call = world.epochs(program, study.fixed, world.first_state(study))
    times = common.interleaved(report, {"epoch": call}, budget_s=0.0 if options.quick else options.budget_s)
    if "epoch" not in times:
        return
    seconds, updates = times["epoch"].median_ms / 1e3, setting.members * setting.steps
    held = world.device_peak_bytes()
    common.add(
        report,
        members=setting.members,
        learner=setting.learner,
        precision=setting.precision,
        validation=validation,
        epoch_ms=seconds * 1e3,
        p10_p90=common.spread(times["epoch"]),
        updates_per_s=updates / seconds,
        env_steps_per_s=updates * setting.lanes / seconds,
        update_us=seconds / updates * 1e6,
        predicted_mib=world.predicted_mib(report, study) if validation != "no" else None,
        compiler_mib=world.mib(world.peak_bytes(program)),
        device_mib=None if held == held_before else world.mib(held),  # a peak of before tells nothing
        compile_s=compile_s,
        samples_ms=times["epoch"].samples_ms,
    )


if __name__ == "__main__":
    sys.exit(main())
