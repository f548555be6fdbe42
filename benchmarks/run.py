"""All questions of this folder in turn, each in a process of its own; figures, logs and a summary in one folder.

It stops itself before ten minutes (--minutes), and every question after its own share of them (--seconds: after that
many). What is not reached by then is left out and named; so is what cannot run here, with the reason; of what is
stopped, the figures so far are kept. `--device gpu` asks the questions of an accelerator in sizes for one. Where one
call is too short for all of them, later calls ask the others into other folders, and `--merge` makes one summary.

    python benchmarks/run.py [--device gpu] [--only epoch,population] [--out DIR] [--minutes 9.7] [--quick]
    python benchmarks/run.py --merge DIR,DIR --out DIR
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import targets

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS_PYTHON = str(ROOT / ".venv-bench" / "bin" / "python")
PARTS = ("common.py", "floors.py", "targets.py", "whole_job_sb3.py", "world.py", "run.py")
"""Files of this folder that are not asked anything themselves."""


@dataclass(frozen=True)
class Question:
    """A benchmark and what it is given in a run of all."""

    text: str
    script: str
    """File in this folder, or the words of a `tidewalk` command."""
    on_cpu: str = ""
    on_gpu: str | None = ""
    """None: nothing that a GPU changes."""
    needs_peers: bool = False
    is_command: bool = False
    quick: str = "--quick"
    cpu_s: float = 90
    """Seconds after which it is stopped on a CPU."""
    gpu_s: float = 120


QUESTIONS = {
    "epoch": Question(
        "How long does the starting-point epoch take, where does the time go, how far is it from the machine's limit?",
        "epoch.py",
        on_cpu="--members 1 --budget-s 2",
        on_gpu="--members 1 --budget-s 3",
    ),
    "population": Question(
        "What do 1 to 4,096 members in one program do per second, and in how much memory?",
        "population.py",
        on_cpu="--members 8 --budget-s 1",
        on_gpu="--reference 1024 --plain 1024 --budget-s 0.5",
        gpu_s=150,
    ),
    "residency": Question(
        "What is it worth to keep the market on the device instead of uploading it at every epoch?",
        "bench residency",
        is_command=True,
        on_cpu="--rounds 7",
        quick="--rounds 7 --seeds 1 --step-months 30 --max-steps-per-epoch 4 --hidden 16,16",
    ),
    "rollouts": Question(
        "What is a greedy pass worth in parallel, and how far is it from its matrix products?",
        "rollouts.py",
        on_cpu="--bars 30000 --budget-s 1",
        on_gpu="--members 1,1024 --precision float32 --budget-s 1",
    ),
    "peers": Question(
        "How fast are other trainers on the same work?",
        "peers/run.py",
        on_cpu="--members 8,1 --updates 500 --at-once 2 --without compiled,eager,1/1",
        on_gpu="--members 1024,1 --updates 200 --at-once 32 --patience-s 90 --without eager,1/1",
        needs_peers=True,
        cpu_s=150,
        gpu_s=210,
    ),
    "whole_job": Question(
        "How long does a whole walk-forward study take, by tidewalk and by SB3 with a loop by hand?",
        "whole_job.py",
        on_cpu="--runs 1 --sb3-members 1 --at-once-members 4 --predict-members 0",
        on_gpu="--runs 1 --sb3-members 3 --at-once-members 56 --predict-members 0",
        cpu_s=150,
        gpu_s=140,
    ),
    "compile": Question(
        "How long from the start of a process to its first epoch, cold and warm?",
        "compile.py",
        on_cpu="--cold-rounds 1 --rounds 3",
        on_gpu="--cold-rounds 2 --rounds 3",
    ),
    "cpu": Question(
        "How fast do the cores learn: members in shares or undivided, on all cores or on one?",
        "cpu.py",
        on_cpu="--members 8",
        on_gpu=None,
    ),
    "decode": Question(
        "How fast do DBN files become columns and bars?",
        "decode.py",
        on_cpu="--rows 200000",
        on_gpu=None,
        quick="--rows 40000 --rounds 2",
    ),
    "market_files": Question(
        "How long do years of one-minute bars take from files to a market, in how much memory?",
        "market_files.py",
        on_cpu="--years 3",
        on_gpu=None,
        quick="--years 1 --repeat 1",
    ),
    "curves": Question(
        "What do members, bars, windows, batch and width cost, in time and in memory?",
        "curves.py",
        cpu_s=120,
        gpu_s=180,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--only", help=f"of {','.join(QUESTIONS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--minutes", type=float, default=9.7, help="what is not reached by then is left out")
    parser.add_argument("--seconds", type=float, help="after which a question is stopped; default: each has its own")
    parser.add_argument("--peers-python", default=PEERS_PYTHON, help="interpreter that has the packages of the peers")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that all of it runs, measures nothing")
    parser.add_argument("--merge", help="folders of earlier runs: measure nothing, make one summary of them")
    options = parser.parse_args()
    unknown = sorted(set((options.only or "").split(",")) - {"", *QUESTIONS})
    if unknown:
        parser.error(f"--only: there is no question {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    if options.merge:
        return merged([Path(name) for name in options.merge.split(",")], options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    asked: dict[str, dict[str, Any]] = {}
    for name in options.only.split(",") if options.only else QUESTIONS:
        common.say(f"\n=== {name}: {QUESTIONS[name].text}")
        asked[name] = ask(name, options, until)
        common.say(f"=== {name}: {asked[name]['status']} in {asked[name]['seconds']:.0f} s")
        summary = summarise(options.out, options.device, asked)
    common.say(f"\n{summary}")
    return int(all(one["status"] != "done" for one in asked.values()))


def merged(folders: Sequence[Path], out: Path) -> int:
    """One summary of several runs: of a question that several have asked, the last that has figures counts."""
    asked: dict[str, dict[str, Any]] = {}
    devices = set()
    out.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        content = json.loads((folder / "summary.json").read_text())
        devices.add(content["device"])
        for name, one in content["questions"].items():
            if one["figures"] or not asked.get(name, {}).get("figures"):
                asked[name] = one
                if one["figures"] and folder.resolve() != out.resolve():
                    shutil.copy(folder / one["figures"], out / one["figures"])
    if len(devices) != 1:
        common.say(f"--merge: these runs are of different devices: {', '.join(sorted(devices))}")
        return 2
    in_order = {name: asked[name] for name in QUESTIONS if name in asked}
    common.say(summarise(out, devices.pop(), in_order))
    return 0


def ask(name: str, options: argparse.Namespace, until: float) -> dict[str, Any]:
    """Run a question to its end or to the end of the time; how it went."""
    question, began = QUESTIONS[name], time.monotonic()
    words = question.on_cpu if options.device == "cpu" else question.on_gpu
    left_s = until - began
    reason = None
    if words is None:
        reason = "nothing that a GPU changes"
    elif question.needs_peers and not shutil.which(options.peers_python):
        reason = f"there is no {options.peers_python} with the peers, see README.md"
    elif left_s < 5:
        reason = f"not reached within {options.minutes:g} minutes"
    if reason:
        return {"status": f"left out: {reason}", "seconds": 0.0, "command": None, "figures": None}
    figures = options.out / f"{name}.json"
    figures.unlink(missing_ok=True)
    command = command_of(question, name, options, words or "", figures)
    own_s = options.seconds or (question.cpu_s if options.device == "cpu" else question.gpu_s)
    status = streamed(command, options.out / f"{name}.log", min(own_s, left_s))
    return {
        "status": status,
        "seconds": time.monotonic() - began,
        "command": " ".join(["python", *(word.removeprefix(f"{ROOT}/") for word in command[1:])]),
        "figures": figures.name if figures.exists() else None,
    }


def command_of(question: Question, name: str, options: argparse.Namespace, words: str, figures: Path) -> Sequence[str]:
    python = options.peers_python if question.needs_peers else sys.executable
    start = ["-m", "tidewalk.cli", *question.script.split()] if question.is_command else [str(HERE / question.script)]
    given = question.quick.split() if options.quick else words.split()
    if question.script not in ("decode.py", "market_files.py"):
        given += ["--device", options.device]
    if name == "whole_job":
        given += ["--sb3-python", options.peers_python]
    if name == "curves":
        given += ["--plot", str(options.out / "curves.svg")]
    return [python, *start, *given, "--json", str(figures)]


def streamed(command: Sequence[str], log: Path, limit_s: float) -> str:
    """Run a command, its output on the terminal and in a file; `done`, or why not."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    started = {"cwd": ROOT, "env": environment, "stderr": subprocess.STDOUT, "start_new_session": True}
    with log.open("w") as file, log.open() as reader, subprocess.Popen(command, stdout=file, **started) as process:
        ends = time.monotonic() + limit_s
        while process.poll() is None and time.monotonic() < ends:
            print(reader.read(), end="", flush=True)
            time.sleep(0.2)
        is_late = process.poll() is None
        if is_late:
            _stop(process)
        print(reader.read(), end="", flush=True)
    if is_late:
        return f"stopped after {limit_s:.0f} s; what it had measured is kept"
    return "done" if process.returncode == 0 else f"failed with code {process.returncode}: {_last_line(log)}"


def _stop(process: subprocess.Popen) -> None:
    """End a question and the processes that it started: they are one group."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, signal_number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        return


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing said"


def summarise(out: Path, device: str, asked: dict[str, dict[str, Any]]) -> str:
    """`summary.json`, all figures for machines, and `summary.md` for people, whole after every question; the latter."""
    found = {name: _figures(out, one) for name, one in asked.items()}
    aims = targets.compared(found, device)
    content = {"schema": 2, "device": device, "questions": asked, "targets": aims, "figures": found}
    (out / "summary.json").write_text(json.dumps(content, indent=1))
    lines = ["# Benchmarks", "", *targets.in_words(aims)]
    for name, one in asked.items():
        lines += [f"## {name}", "", QUESTIONS[name].text, ""]
        lines += [f"    {one['command']}", ""] if one["command"] else []
        if one["status"] != "done":
            lines += [f"{one['status']}.", ""]
        if found[name]:
            lines += _in_words(found[name])
    (out / "summary.md").write_text("\n".join(lines))
    return "\n".join(lines)


def _figures(out: Path, one: dict[str, Any]) -> Any:
    return json.loads((out / one["figures"]).read_text()) if one["figures"] else None


def _in_words(figures: dict[str, Any]) -> list[str]:
    if "cases" in figures:
        return _residency_in_words(figures)
    lines = [common.in_words(figures["environment"]), ""]
    lines += [figures["table"], ""] if figures["table"] else []
    lines += [f"- not measured: {name}: {reason}" for name, reason in figures["failures"].items()]
    lines += [f"- {note}" for note in figures["notes"]]
    return [*lines, ""]


def _residency_in_words(figures: dict[str, Any]) -> list[str]:
    """The figures of `tidewalk bench residency`, a row for each case."""
    columns = [
        common.Column("members", "members", "{:,}"),
        common.Column("resident", "resident: init / epoch, ms"),
        common.Column("reuploading", "sent each epoch: init / epoch, ms"),
        common.Column("ratio", "ratio", "{:.2f}"),
        common.Column("uploaded", "bytes sent per epoch: resident / other"),
    ]
    rows = []
    for case in figures["cases"]:
        by_name = {name: case["trainers"][name] for name in ("resident", "reuploading")}
        times = {name: f"{one['fused']['init']:.3f} / {one['fused']['total']:.2f}" for name, one in by_name.items()}
        sent = " / ".join(f"{one['moved']['bytes_h2d']:,}" for one in by_name.values())
        rows.append({"members": case["members"], **times, "ratio": case["ratio"], "uploaded": sent})
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    what = (
        f"{figures['device']}, {figures['precision']}; {versions}; {figures['bars']:,} bars, {figures['rounds']} rounds"
    )
    return [what, "", common.table(rows, columns), ""]


if __name__ == "__main__":
    sys.exit(main())
