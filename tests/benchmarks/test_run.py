"""The folder of benchmarks is whole: every file is asked or listed as a part, and each still runs in tiny sizes."""

import argparse
import json
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import common
import pytest

import run
from tidewalk.commands import bench
from tidewalk.run import mesh

FOLDER = Path(run.__file__).parent
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


def test_every_file_is_a_question_or_a_part() -> None:
    asked = {question.script for question in run.QUESTIONS.values() if not question.is_command}
    assert sorted({name for name in asked if "/" not in name} | set(run.PARTS)) == SCRIPTS
    assert all((FOLDER / name).is_file() for name in asked)


def test_the_page_names_every_file_and_command() -> None:
    page = (FOLDER / "README.md").read_text()
    commands = {f"tidewalk {question.script}" for question in run.QUESTIONS.values() if question.is_command}
    scripts = {question.script for question in run.QUESTIONS.values() if not question.is_command}
    assert not [name for name in {*SCRIPTS, *scripts, *commands} if f"`{name}`" not in page]


def test_every_question_is_one() -> None:
    assert all(question.text.endswith(("?", ".")) for question in run.QUESTIONS.values())


class Parsed(Exception):
    """The options of a question were understood."""


def parsed(*_: object, **__: object) -> None:
    raise Parsed


GIVEN = [(name, "cpu", question.on_cpu) for name, question in run.QUESTIONS.items() if question.on_cpu is not None]
GIVEN += [(name, "gpu", question.on_gpu) for name, question in run.QUESTIONS.items() if question.on_gpu is not None]


@pytest.mark.parametrize(("name", "device", "words"), GIVEN)
def test_every_question_understands_what_it_is_given(
    name: str, device: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = run.QUESTIONS[name]
    options = argparse.Namespace(device=device, quick=False, peers_python="python", out=tmp_path)
    command = run.command_of(question, name, options, words, tmp_path / "figures.json")
    monkeypatch.setattr(mesh, "make_reproducible", lambda: None)
    monkeypatch.setattr(mesh, "choose_platform", lambda _: None)
    if question.is_command:
        monkeypatch.setattr("tidewalk.run.markets.prepare_device", parsed)
        with pytest.raises(Parsed):
            bench.run(list(command[command.index("bench") + 1 :]))
        return
    monkeypatch.setattr(common, "opened", parsed)
    monkeypatch.setattr(sys, "argv", list(command[1:]))
    monkeypatch.setattr(sys, "path", [str(Path(command[1]).parent), *sys.path])
    with pytest.raises(Parsed):
        runpy.run_path(command[1], run_name="__main__")


def folder_of(path: Path, device: str, **figures: dict | None) -> Path:
    """A folder as a run of some questions leaves it."""
    path.mkdir()
    questions = {}
    for name, content in figures.items():
        status = "done" if content else "left out: not reached within 9 minutes"
        found = f"{name}.json" if content else None
        questions[name] = {"status": status, "seconds": 1.0, "command": f"python {name}", "figures": found}
        if content:
            (path / f"{name}.json").write_text(json.dumps(content))
    (path / "summary.json").write_text(json.dumps({"device": device, "questions": questions}))
    return path


def figures_of(epoch_ms: float) -> dict:
    environment = {**dict.fromkeys(("device", "driver", "processor", "cores", "load_average", "python", "commit"), 1)}
    environment |= {"versions": {}, "flags": {}, "date": "today"}
    rows = [{"members": 1, "precision": "float32", "epoch_ms": epoch_ms}]
    return {"rows": rows, "table": f"| {epoch_ms} |", "failures": {}, "notes": [], "environment": environment}


def test_runs_of_several_calls_become_one_summary(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "first", "gpu", population=figures_of(7.0), epoch=None)
    second = folder_of(tmp_path / "second", "gpu", epoch=figures_of(2.0), population=None)
    assert run.merged([first, second], tmp_path / "both") == 0
    found = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert list(found["questions"]) == ["epoch", "population"], "in the order of a run"
    assert {one["status"] for one in found["questions"].values()} == {"done"}
    assert found["figures"]["epoch"]["rows"][0]["epoch_ms"] == 2.0
    assert found["targets"][0]["is_met"]
    text = (tmp_path / "both" / "summary.md").read_text()
    assert "| 2.0 |" in text
    assert "| 7.0 |" in text
    assert run.merged([tmp_path / "both", first], tmp_path / "both") == 0, "a summary can be merged again, in place"


def test_runs_of_different_devices_are_not_merged(tmp_path: Path) -> None:
    folders = [folder_of(tmp_path / device, device, epoch=figures_of(2.0)) for device in ("cpu", "gpu")]
    assert run.merged(folders, tmp_path / "both") == 2


def test_an_unknown_question_is_refused() -> None:
    done = asked("--only", "epoch,epocj")
    assert done.returncode == 2
    assert "there is no question epocj" in done.stderr


def test_what_a_gpu_does_not_change_is_left_out_with_the_reason(tmp_path: Path) -> None:
    done = asked("--only", "cpu", "--device", "gpu", "--out", str(tmp_path))
    assert done.returncode == 1
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["questions"]["cpu"]["status"] == "left out: nothing that a GPU changes"
    assert "nothing that a GPU changes" in (tmp_path / "summary.md").read_text()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the process in /proc")
def test_a_question_is_stopped_in_time_with_all_that_it_started(tmp_path: Path) -> None:
    log, began = tmp_path / "log", time.monotonic()
    status = run.streamed(["sh", "-c", "sleep 60 & echo $!; wait"], log, 2.0)
    assert time.monotonic() - began < 15
    assert status == "stopped after 2 s; what it had measured is kept"
    assert not is_running(int(log.read_text()))


def is_running(process: int) -> bool:
    """Whether a process is there and no corpse that nobody has fetched."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_question_that_fails_says_how(tmp_path: Path) -> None:
    status = run.streamed([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], tmp_path / "log", 30.0)
    assert status == "failed with code 3: no luck"


@pytest.mark.slow
@pytest.mark.bench
@pytest.mark.parametrize("name", run.QUESTIONS)
def test_each_runs_in_tiny_sizes(name: str, tmp_path: Path) -> None:
    if run.QUESTIONS[name].needs_peers and not shutil.which(run.PEERS_PYTHON):
        pytest.skip("there is no .venv-bench with the peers")
    done = asked("--only", name, "--quick", "--out", str(tmp_path), limit_s=400)
    found = json.loads((tmp_path / "summary.json").read_text())["questions"][name]
    assert found["status"] == "done", done.stdout[-2000:]
    assert json.loads((tmp_path / f"{name}.json").read_text())


def asked(*words: str, limit_s: float = 60) -> subprocess.CompletedProcess:
    command = [sys.executable, str(FOLDER / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
