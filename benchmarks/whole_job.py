"""How long does a whole walk-forward study take, from data files to its result: tidewalk, and SB3 with a loop by hand?

7 windows of 3/1/1 months every 3 months x 8 seeds x 5 epochs of 50 steps on the 24-month sample market. tidewalk: the
command `tidewalk train`, a process from its start to its end, files to report, without and with what an earlier run
left in its caches. SB3: `whole_job_sb3.py` in processes of its own, on the prepared arrays of the same study (reading
the files is not asked of it). Both: plain one-step DQN, the same network, batch, replay, exploration, soft target,
features, windows, costs and number of updates; the validation picks the best epoch, the test is traded once. The test
paths of SB3 are booked again by tidewalk's books. A ratio counts when both have learned a planted market.

    python benchmarks/whole_job.py [--sb3-python .venv-bench/bin/python] [--sb3-members 4] [--full] [--json FILE]

SB3 has one process, and as many as there are cores. Where not all members are timed, the row says how many were, and
the whole job is reckoned from them.
"""

import argparse
import contextlib
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import common
import numpy as np
from common import Column, Report

COLUMNS = (
    Column("program", "program"),
    Column("processes", "processes", "{:,}"),
    Column("validation", "validation"),
    Column("members", "members timed", "{:,}"),
    Column("wall_s", "wall, s", "{:,.1f}"),
    Column("whole_s", "whole job, s", "{:,.1f}"),
    Column("how", "how"),
    Column("times_cold", "times tidewalk, cold", "{:,.1f}"),
    Column("times_warm", "times tidewalk, warm", "{:,.1f}"),
    Column("median_test_usd", "median member's test net, USD", "{:+,.0f}"),
)
_LEARNED = 0.8
"""Share of the best policy's result on the planted market that counts as learned."""
_PLANTED_P = 0.7
_OF_DQN = (
    "lr",
    "gamma",
    "tau",
    "batch_size",
    "hidden",
    "epsilon",
    "epsilon_start",
    "epsilon_decay_frac",
    "max_grad_norm",
)
_OF_TRAINING = ("seeds", "epochs", "max_steps_per_epoch", "lanes", "replay_capacity", "prefill_steps", "episode_bars")


@dataclass(frozen=True)
class Sizes:
    """A study in numbers; the learner is what both sides have."""

    months: int = 24
    seeds: int = 8
    epochs: int = 5
    steps: int = 50
    hidden: str = "128,128"
    kind: str = "market"

    def flags(self, data_dir: Path) -> list[str]:
        """Flags of `tidewalk train`."""
        words = f"--symbol ES.FUT --train-months 3 --val-months 1 --test-months 1 --step-months 3 --seeds {self.seeds}"
        words += f" --epochs {self.epochs} --max-steps-per-epoch {self.steps} --hidden {self.hidden}"
        words += " --n-step 1 --no-double --no-duelling --huber-delta 1 --batch-size 64 --lanes 64"
        return ["--data-dir", str(data_dir), *words.split()]


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--sb3-python", type=Path, default=common.ROOT / ".venv-bench" / "bin" / "python")
    parser.add_argument("--sb3-device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--sb3-members", type=common.at_least(1), default=4, help="members that SB3 is timed for in one process"
    )
    parser.add_argument(
        "--at-once-members", type=common.at_least(1), default=8, help="the same in as many processes as cores"
    )
    parser.add_argument(
        "--predict-members", type=common.at_least(0), default=1, help="the same where it predicts bar by bar; 0: not so"
    )
    parser.add_argument("--full", action="store_true", help="all members by SB3 but where it predicts bar by bar")
    parser.add_argument("--runs", type=common.at_least(1), default=3, help="warm runs of tidewalk")
    options = parser.parse_args()
    report = common.opened("whole_job", options, COLUMNS)
    sizes = Sizes(months=6, seeds=2, epochs=2, steps=4, hidden="16,16") if options.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="tidewalk-whole-job-") as name:
        folder = Path(name)
        made(folder / "market", sizes)
        write_job(folder / "job.npz", folder / "market", sizes)
        own_s = by_tidewalk(report, options, folder, sizes)
        if is_there(report, options):
            has_learned = both_learn(report, options, folder)
            for processes, validation in forms(options):
                with common.attempt(report, f"SB3, {processes} process(es), {validation}"):
                    by_sb3(report, options, folder, sizes, (processes, validation), own_s if has_learned else {})
    return common.close(report)


def made(data_dir: Path, sizes: Sizes) -> None:
    from tidewalk.data.sample.synthetic import SampleConfig, write_sample

    write_sample(data_dir, SampleConfig(kind=sizes.kind, months=sizes.months, signal_p=_PLANTED_P))


@functools.cache
def study_of(data_dir: Path, sizes: Sizes) -> Any:
    """The study that `tidewalk train` plans from the same flags."""
    from tidewalk.commands.parsing import parse
    from tidewalk.commands.train import StudyCommand
    from tidewalk.run.markets import plan

    command = parse(StudyCommand, "train", [*sizes.flags(data_dir), "--quiet", "--device", "cpu"])
    return plan(command.study, quiet=True)


def write_job(path: Path, data_dir: Path, sizes: Sizes) -> None:
    """What SB3 needs of the study, in numpy's own form."""
    study = study_of(data_dir, sizes)
    market, windows, train, dqn = study.resident_market(), study.windows, study.config.train, study.config.dqn
    settings = {name: getattr(dqn, name) for name in _OF_DQN} | {name: getattr(train, name) for name in _OF_TRAINING}
    np.savez(
        path,
        settings=np.array(json.dumps(settings)),
        move_ticks=market.move_ticks,
        flags=market.flags,
        features=market.features,
        side_ticks=study.cost_ticks.side,
        **{name: getattr(windows, name) for name in ("train", "val", "test", "center", "scale", "reward_scale")},
    )


def by_tidewalk(report: Report, options: argparse.Namespace, folder: Path, sizes: Sizes) -> dict[str, float]:
    """A row without and one with caches; seconds of both."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for number in range(1 + (1 if options.quick else options.runs)):
        seconds["warm" if number else "cold"].append(train(options, folder, sizes, f"run-{number}"))
    summary = json.loads((folder / "run-0" / "summary.json").read_text())
    members, report.environment["device"] = summary["members"], summary["device"]
    for name, found in seconds.items():
        common.add(
            report,
            program=f"tidewalk, {name}",
            processes=1,
            validation="in the epoch",
            members=members,
            wall_s=statistics.median(found),
            whole_s=statistics.median(found),
            how="measured" if len(found) == 1 else f"median of {len(found)}",
            median_test_usd=tidewalk_test_usd(folder / "run-0"),
            samples_s=found,
        )
    return {name: statistics.median(found) for name, found in seconds.items()}


def train(options: argparse.Namespace, folder: Path, sizes: Sizes, name: str, data: str = "market") -> float:
    """Seconds of `tidewalk train` as a user starts it; its caches are those of the folder."""
    command = [sys.executable, "-m", "tidewalk.cli", "train", *sizes.flags(folder / data), "--quiet"]
    command += ["--out", str(folder / name), *(["--device", options.device] if options.device else [])]
    began = time.perf_counter()
    children.run_quietly(command, TIDEWALK_CACHE=str(folder / "cache"))
    return time.perf_counter() - began


def tidewalk_test_usd(run: Path) -> float:
    import polars as pl

    return float(pl.read_parquet(run / "members.parquet")["test_net_usd"].median())


def is_there(report: Report, options: argparse.Namespace) -> bool:
    """Whether SB3 can be run; the reason is kept where not."""
    try:
        children.run_quietly([options.sb3_python, "-c", "import stable_baselines3"])
    except (OSError, RuntimeError):
        report.failures["SB3"] = f"{options.sb3_python} has no stable_baselines3: see benchmarks/README.md"
        return False
    return True


def forms(options: argparse.Namespace) -> list[tuple[int, str]]:
    cores = len(os.sched_getaffinity(0))
    at_once = [(cores, "batch")] * (cores > 1 and options.sb3_device == "cpu")
    return [*at_once, (1, "batch")] + [(1, "predict")] * (options.predict_members > 0)


def by_sb3(
    report: Report,
    options: argparse.Namespace,
    folder: Path,
    sizes: Sizes,
    form: tuple[int, str],
    own_s: dict[str, float],
) -> None:
    """A row of SB3: some members timed, and the whole job reckoned from them unless all were."""
    processes, validation = form
    count = members_of(folder / "job.npz")
    timed = options.sb3_members if processes == 1 else max(processes, options.at_once_members)
    timed = options.predict_members if validation == "predict" else count if options.full else timed
    timed = min(count, timed)
    processes = min(processes, timed)
    wall_s, found = run_sb3(options, folder, "job.npz", spread(count, timed), (processes, validation))
    alone_s = statistics.mean(member["seconds"] for member in found)
    start_s = wall_s - alone_s * timed / processes
    whole_s = wall_s if timed == count else start_s + alone_s * count / processes
    check_books(study_of(folder / "market", sizes), found)
    common.add(
        report,
        program=f"SB3 on {options.sb3_device}",
        processes=processes,
        validation={"batch": "one batch, followed by hand", "predict": "predict, bar by bar"}[validation],
        members=timed,
        wall_s=wall_s,
        whole_s=whole_s,
        how="measured" if timed == count else f"reckoned from {timed} of {count} members",
        **{f"times_{name}": whole_s / seconds for name, seconds in own_s.items()},
        median_test_usd=statistics.median(member["test_net_usd"] for member in found),
    )


def members_of(job: Path) -> int:
    held = np.load(job, allow_pickle=False)
    return len(held["train"]) * json.loads(str(held["settings"]))["seeds"]


def spread(count: int, timed: int) -> list[int]:
    """Members evenly over the study."""
    return np.linspace(0, count - 1, timed).round().astype(int).tolist()


def run_sb3(
    options: argparse.Namespace, folder: Path, job: str, members: list[int], form: tuple[int, str]
) -> tuple[float, list[dict[str, Any]]]:
    """Seconds from the start of the processes to the end of the last, and the result of every member."""
    processes, validation = form
    script, began = Path(__file__).with_name("whole_job_sb3.py"), time.perf_counter()
    outs = [folder / f"sb3-{number}.json" for number in range(processes)]
    with contextlib.ExitStack() as stack:  # where one fails the others end too
        started = []
        for number, out in enumerate(outs):
            command = [options.sb3_python, script, folder / job, "--validation", validation, "--out", out]
            command += ["--members", ",".join(map(str, members[number::processes]))]
            command += ["--device", options.sb3_device, "--threads", 1]  # faster for one small network than all cores
            log = stack.enter_context(out.with_suffix(".log").open("w"))
            started.append(stack.enter_context(children.child(command, stdout=log, stderr=log)))
        for process, out in zip(started, outs, strict=True):
            if process.wait() != 0:
                said = children.last_line(out.with_suffix(".log").read_text(errors="replace"))
                raise RuntimeError(f"whole_job_sb3.py ended with code {process.returncode}: {said}")
        wall_s = time.perf_counter() - began
    return wall_s, [member for out in outs for member in json.loads(out.read_text())["members"]]


def check_books(study: Any, found: list[dict[str, Any]]) -> None:
    """Book the test paths of SB3 by tidewalk's books: the same money, or the comparison is void."""
    from tidewalk.trading.account import book, net_usd

    (leg,) = study.legs
    updates = study.config.train.epochs * study.config.train.max_steps_per_epoch
    for member in found:
        first = int(study.windows.test[member["window"], 0])
        account = book(leg.market, first, np.array(list(member["test_positions"]), np.int64) - study.config.env.flat)
        member["test_net_usd"] = float(net_usd(leg.costs, account.gross_ticks.sum(), account.sides.sum()))
        own_usd = member["test_net_ticks"] * leg.costs.tick_value_usd
        if abs(own_usd - member["test_net_usd"]) > 0.01 * max(1.0, abs(own_usd)):
            raise RuntimeError(f"SB3's environment counts {own_usd:.2f} USD, the books {member['test_net_usd']:.2f}")
        if member["updates"] != updates:
            raise RuntimeError(f"SB3 did {member['updates']} updates, the job has {updates}")


def both_learn(report: Report, options: argparse.Namespace, folder: Path) -> bool:
    """Whether both sides find most of what a planted market gives, on the test months of one window."""
    from tidewalk.data.sample.synthetic import planted_mean_ticks_per_bar

    sizes = Sizes(months=5, seeds=2, steps=20 if options.quick else 50, kind="planted")
    made(folder / "planted", sizes)
    write_job(folder / "planted.npz", folder / "planted", sizes)
    study = study_of(folder / "planted", sizes)
    (leg,) = study.legs
    first, stop = study.windows.test[0]
    best_usd = planted_mean_ticks_per_bar(_PLANTED_P, leg.costs.side_ticks) * (stop - first) * leg.costs.tick_value_usd
    train(options, folder, sizes, "planted-run", "planted")
    _, found = run_sb3(options, folder, "planted.npz", [0, 1], (1, "batch"))
    check_books(study, found)
    share = {
        "tidewalk": tidewalk_test_usd(folder / "planted-run") / best_usd,
        "SB3": statistics.median(member["test_net_usd"] for member in found) / best_usd,
    }
    has_learned = all(value >= _LEARNED for value in share.values())
    said = ", ".join(f"{name} {value:.0%}" for name, value in share.items())
    report.notes.append(
        f"learning check: of the best policy's test result on a planted market, after {sizes.epochs * sizes.steps} "
        f"updates: {said}{'' if has_learned else '; a ratio is withheld'}"
    )
    return has_learned


if __name__ == "__main__":
    sys.exit(children.guarded(main))
