"""All questions of this folder in turn, each in a process of its own; figures, logs and a summary in one folder.

It stops itself before ten minutes (--minutes), and every question after its own share of them (--seconds: after that
many). What is not reached by then is left out and named; so is what cannot run here, with the reason; of what is
stopped, the figures so far are kept. `--device gpu` asks the questions of an accelerator in sizes for one. Where one
call is too short for all of them, later calls ask the others into other folders, and `--merge` makes one summary.

    python benchmarks/run.py [--device gpu] [--only epoch,population] [--out DIR] [--minutes 9.7] [--quick]
    python benchmarks/run.py --merge DIR,DIR --out DIR
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children
import common
import targets

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS_PYTHON = str(ROOT / ".venv-bench" / "bin" / "python")
PARTS = ("children.py", "common.py", "floors.py", "targets.py", "whole_job_sb3.py", "world.py", "run.py")
"""Files of this folder that are not asked anything themselves."""
SCHEMA = 3
"""Form of `summary.json`."""


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
    names = common.several(common.one_of(QUESTIONS))
    parser.add_argument("--only", type=names, default=tuple(QUESTIONS), help=f"of {','.join(QUESTIONS)}")
    parser.add_argument("--out", type=common.folder, help="default: runs/bench, with --quick runs/bench-quick")
    minutes, seconds = common.at_least(0.1, float), common.at_least(1, float)
    parser.add_argument("--minutes", type=minutes, default=9.7, help="what is not reached by then is left out")
    parser.add_argument("--seconds", type=seconds, help="after which a question is stopped; default: each has its own")
    parser.add_argument("--peers-python", default=PEERS_PYTHON, help="interpreter that has the packages of the peers")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that all of it runs, measures nothing")
    folders = common.several(common.folder)
    parser.add_argument("--merge", type=folders, help="folders of runs: measure nothing, make one summary in --out")
    options = parser.parse_args()
    if options.merge and not options.out:
        parser.error("--merge needs --out, the folder of the summary")
    if options.merge:
        try:
            common.say(merged(options.merge, options.out))
        except ValueError as error:
            parser.error(f"--merge: {error}")
        return 0
    out = options.out or ROOT / "runs" / ("bench-quick" if options.quick else "bench")
    options.out = out.absolute()  # questions are asked from the root
    if os.sep in options.peers_python:
        options.peers_python = str(Path(options.peers_python).absolute())
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    asked: dict[str, dict[str, Any]] = {}
    basis = basis_of(options)
    for name in options.only:
        common.say(f"\n=== {name}: {QUESTIONS[name].text}")
        asked[name] = ask(name, options, until)
        common.say(f"=== {name}: {asked[name]['status']} in {asked[name]['seconds']:.0f} s")
        summary = summarise(options.out, basis, asked)
    common.say(f"\n{summary}")
    return int(all(one["status"] != "done" for one in asked.values()))


def basis_of(options: argparse.Namespace) -> dict[str, Any]:
    """What two runs must have in common to be one: device, sizes, machine, versions and sources."""
    found = common.environment()
    keys = ("processor", "cores", "gpu", "driver", "python", "versions", "flags", "commit")
    same = {key: found[key] for key in keys}
    return {"device": options.device, "is_quick": options.quick, **same, "sources": sources()}


def sources() -> str:
    """A digest of all that is measured and measures; a commit says nothing of changes since."""
    total = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "benchmarks").rglob("*.py")]):
        if path.is_file() and path.suffix != ".pyc":
            total.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def merged(folders: Sequence[Path], out: Path) -> str:
    """One summary of several runs: of a question that several have asked, the last that has figures counts.

    Raises:
        ValueError: one is not the folder of a run, they are of different kinds, or there is no figure in them.
    """
    contents = {folder: content_of(folder) for folder in folders}
    (first, one), *others = contents.items()
    for folder, other in others:
        for key in one["basis"]:
            if one["basis"][key] != other["basis"].get(key):
                found = f"{one['basis'][key]} in {first} and {other['basis'].get(key)} in {folder}"
                raise ValueError(
                    f"{key} is {found}; only runs of one kind make one summary. Measure one of them again."
                )
    asked: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for content in contents.values():
        for name, one_of in content["questions"].items():
            if one_of["figures"] or not asked.get(name, {}).get("figures"):
                asked[name], found[name] = one_of, content["figures"].get(name)
    if not any(one_of["figures"] for one_of in asked.values()):
        raise ValueError(f"nothing was measured in {', '.join(map(str, folders))}.")
    for name, one_of in asked.items():
        if one_of["figures"]:
            common.put(out / one_of["figures"], json.dumps(found[name], indent=1))
    return summarise(out, one["basis"], {name: asked[name] for name in QUESTIONS if name in asked})


def content_of(folder: Path) -> dict[str, Any]:
    """The summary of a run, which holds all of its figures: files beside it may be of a later run that was stopped.

    Raises:
        ValueError: it is none.
    """
    path = folder / "summary.json"
    try:
        content = json.loads(path.read_text())
        if content["schema"] != SCHEMA:
            raise ValueError(f"it is of form {content['schema']}, and this program writes form {SCHEMA}")
        questions = content["basis"] and content["questions"]
        for name, one in questions.items():
            if name not in QUESTIONS:
                raise ValueError(f"there is no question {name}")
            if one["figures"] and not isinstance(content["figures"][name], dict):
                raise ValueError(f"there are no figures of {name} in it")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__} {error}" if isinstance(error, KeyError | TypeError | AttributeError) else error
        raise ValueError(f"{folder} is not what a run of this program has left ({said}).") from error
    return content


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
    command = command_of(question, name, options, words or "", figures)
    own_s = options.seconds or (question.cpu_s if options.device == "cpu" else question.gpu_s)
    with aside(figures):
        status = streamed(command, options.out / f"{name}.log", min(own_s, left_s))
        found = read(figures)
    if status.startswith("stopped"):
        status += "; what it had measured is kept" if has_measured(found) else "; it had measured nothing"
    return {
        "status": status,
        "seconds": time.monotonic() - began,
        "command": common.typed(command),
        "figures": figures.name if found else None,
    }


def read(path: Path) -> dict[str, Any]:
    """JSON of a file; nothing where it is not there or was not written to its end."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text())
    return {}


def has_measured(figures: dict[str, Any]) -> bool:
    return bool(figures.get("rows") or figures.get("cases"))


@contextlib.contextmanager
def aside(figures: Path) -> Iterator[None]:
    """Figures of an earlier run make room, and come back where this one has none."""
    before = figures.with_suffix(".before")
    if figures.exists():
        figures.replace(before)
    try:
        yield
    finally:
        if before.exists() and not figures.exists():
            before.replace(figures)
        before.unlink(missing_ok=True)


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
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with log.open("w") as file, log.open() as reader:
        with children.child(command, is_leader=True, cwd=ROOT, env=environment, stdout=file, **pipes) as process:
            ends = time.monotonic() + limit_s
            while process.poll() is None and time.monotonic() < ends:
                print(reader.read(), end="", flush=True)
                time.sleep(0.2)
            is_late = process.poll() is None
        print(reader.read(), end="", flush=True)
    if is_late:
        return f"stopped after {limit_s:.0f} s"
    return (
        "done"
        if process.returncode == 0
        else f"failed with code {process.returncode}: {children.last_line(log.read_text(errors='replace'))}"
    )


def summarise(out: Path, basis: dict[str, Any], asked: dict[str, dict[str, Any]]) -> str:
    """`summary.json`, all figures for machines, and `summary.md` for people, whole after every question; the latter.

    A run that has measured nothing leaves the summary of one that has.
    """
    found = {name: _figures(out, one) for name, one in asked.items()}
    aims = targets.compared(found, basis["device"])
    content = {"schema": SCHEMA, "basis": basis, "questions": asked, "targets": aims, "figures": found}
    lines = ["# Benchmarks", "", *targets.in_words(aims)]
    for name, one in asked.items():
        lines += [f"## {name}", "", QUESTIONS[name].text, ""]
        lines += [f"    {one['command']}", ""] if one["command"] else []
        if one["status"] != "done":
            lines += [f"{one['status']}.", ""]
        if found[name]:
            lines += _in_words(found[name])
    path, text = out / "summary.json", "\n".join(lines)
    if not _is_anything(found) and _is_anything(read(path).get("figures", {})):
        return f"{text}\nNothing was measured: {path} is left as it was."
    common.put(path, json.dumps(content, indent=1))
    common.put(path.with_suffix(".md"), text)
    return text


def _is_anything(figures: dict[str, Any]) -> bool:
    return any(has_measured(one or {}) for one in figures.values())


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
    sys.exit(children.guarded(main))
