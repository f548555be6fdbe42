"""The folder of benchmarks is whole: every file is asked or listed as a part, and each still runs in tiny sizes."""

import argparse
import contextlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import children
import common
import pytest

import run
from processes import is_running
from tidewalk.commands import bench
from tidewalk.run import mesh

FOLDER = Path(run.__file__).parent
LEFT_OUT = {"status": "left out: not reached within 9 minutes", "seconds": 0.0, "command": None, "figures": None}
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


BASIS = {"device": "cpu", "is_quick": False, "processor": "EPYC", "commit": "85234ba", "versions": {"jax": "0.10.2"}}


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
    content = {"schema": run.SCHEMA, "basis": BASIS | {"device": device}, "questions": questions, "figures": figures}
    (path / "summary.json").write_text(json.dumps(content))
    return path


def figures_of(epoch_ms: float) -> dict:
    environment = {**dict.fromkeys(("device", "driver", "processor", "cores", "load_average", "python", "commit"), 1)}
    environment |= {"versions": {}, "flags": {}, "date": "today"}
    rows = [{"members": 1, "precision": "float32", "epoch_ms": epoch_ms}]
    return {"rows": rows, "table": f"| {epoch_ms} |", "failures": {}, "notes": [], "environment": environment}


def test_runs_of_several_calls_become_one_summary(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "first", "gpu", population=figures_of(7.0), epoch=None)
    second = folder_of(tmp_path / "second", "gpu", epoch=figures_of(2.0), population=None)
    (second / "epoch.json").write_text("{}")  # of a later run that was stopped
    run.merged([first, second], tmp_path / "both")
    found = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert list(found["questions"]) == ["epoch", "population"], "in the order of a run"
    assert {one["status"] for one in found["questions"].values()} == {"done"}
    assert found["figures"]["epoch"]["rows"][0]["epoch_ms"] == 2.0
    assert found["targets"][0]["is_met"]
    assert json.loads((tmp_path / "both" / "epoch.json").read_text()) == figures_of(2.0)
    text = (tmp_path / "both" / "summary.md").read_text()
    assert "| 2.0 |" in text
    assert "| 7.0 |" in text
    assert "| 7.0 |" in run.merged([tmp_path / "both", first], tmp_path / "both"), "it can be merged again, in place"


@pytest.mark.parametrize(
    "other", [{"device": "gpu"}, {"processor": "Xeon"}, {"commit": "c1ea6a9"}, {"versions": {}}, {"is_quick": True}]
)
def test_runs_of_different_kinds_are_not_merged(other: dict, tmp_path: Path) -> None:
    folders = [folder_of(tmp_path / name, "cpu", epoch=figures_of(2.0)) for name in ("one", "other")]
    path = folders[1] / "summary.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"basis": content["basis"] | other}))
    with pytest.raises(ValueError, match=next(iter(other))):
        run.merged(folders, tmp_path / "both")
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize("content", [None, "no JSON", "[]", "{}", '{"schema": 2, "device": "cpu", "questions": {}}'])
def test_a_folder_that_is_no_run_is_not_merged(content: str | None, tmp_path: Path) -> None:
    good = folder_of(tmp_path / "good", "cpu", epoch=figures_of(2.0))
    (tmp_path / "bad").mkdir()
    if content is not None:
        (tmp_path / "bad" / "summary.json").write_text(content)
    with pytest.raises(ValueError, match="bad is not what a run of this program has left"):
        run.merged([good, tmp_path / "bad"], tmp_path / "both")
    content = json.loads((good / "summary.json").read_text())
    (good / "summary.json").write_text(json.dumps(content | {"figures": {}}))
    with pytest.raises(ValueError, match=r"good is not .*epoch"):
        run.merged([good], tmp_path / "both")
    nothing = folder_of(tmp_path / "nothing", "cpu", epoch=None)
    with pytest.raises(ValueError, match="nothing was measured in"):
        run.merged([nothing], tmp_path / "both")


def test_a_run_that_measures_nothing_leaves_an_earlier_summary(tmp_path: Path) -> None:
    out = folder_of(tmp_path / "out", "cpu", epoch=figures_of(2.0))
    before = (out / "summary.json").read_text()
    assert "is left as it was" in run.summarise(out, BASIS, {"cpu": LEFT_OUT})
    assert (out / "summary.json").read_text() == before
    (out / "summary.json").write_text("cut o")
    run.summarise(out, BASIS, {"cpu": LEFT_OUT})
    assert json.loads((out / "summary.json").read_text())["questions"] == {"cpu": LEFT_OUT}, "nothing was lost"


def test_figures_of_an_earlier_run_come_back_where_there_are_no_others(tmp_path: Path) -> None:
    figures = tmp_path / "epoch.json"
    figures.write_text("earlier")
    with contextlib.suppress(children.Stopped), run.aside(figures):
        assert not figures.exists()
        raise children.Stopped
    assert figures.read_text() == "earlier"
    with run.aside(figures):
        figures.write_text("newer")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["newer"]


def test_folders_are_those_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.chdir(tmp_path)
    words = ["--only", "cpu", "--out", "out", "--peers-python", "env/bin/python"]
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    monkeypatch.setattr(run, "ask", lambda _, options, __: seen.update(vars(options)) or LEFT_OUT)
    assert run.main() == 1
    assert (seen["out"], seen["peers_python"]) == (tmp_path / "out", str(tmp_path / "env" / "bin" / "python"))
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("figures", "said"), [("{}", "nothing"), ('{"rows": [{"ms": 1.0}]}', "is kept"), ("{", "nothing")]
)
def test_what_a_question_had_measured_when_it_was_stopped_is_said(
    figures: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(command: list[str], log: Path, limit_s: float) -> str:
        (tmp_path / "cpu.json").write_text(figures)
        return f"stopped after {limit_s:.0f} s"

    monkeypatch.setattr(run, "streamed", stopped)
    options = argparse.Namespace(device="cpu", quick=False, peers_python="python", out=tmp_path, seconds=1, minutes=1)
    found = run.ask("cpu", options, time.monotonic() + 100)
    assert found["status"].startswith("stopped after 1 s; ")
    assert said in found["status"]
    assert bool(found["figures"]) == (said == "is kept")


def test_an_unknown_question_is_refused() -> None:
    done = asked("--only", "epoch,epocj")
    assert done.returncode == 2
    assert "there is no 'epocj'" in done.stderr


def test_what_a_gpu_does_not_change_is_left_out_with_the_reason(tmp_path: Path) -> None:
    done = asked("--only", "cpu", "--device", "gpu", "--out", str(tmp_path))
    assert done.returncode == 1
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["questions"]["cpu"]["status"] == "left out: nothing that a GPU changes"
    assert "nothing that a GPU changes" in (tmp_path / "summary.md").read_text()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the process in /proc")
def test_a_question_is_stopped_in_time_with_all_that_it_started(tmp_path: Path) -> None:
    log, began = tmp_path / "log", time.monotonic()
    status = run.streamed(["sh", "-c", "sleep 60 & echo $!; wait"], log, 1.0)
    assert time.monotonic() - began < 15
    assert status == "stopped after 1 s"
    assert not is_running(int(log.read_text()))


STOPPED_RUN = """
import sys
import children, run
run.command_of = lambda *given: ["sh", "-c", "sleep 60 & echo pid $! started; wait"]
sys.exit(children.guarded(run.main))
"""


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the process in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_stopped_takes_its_question_along(number: signal.Signals, tmp_path: Path) -> None:
    out = folder_of(tmp_path / "out", "cpu", epoch=figures_of(2.0))
    before = {path.name: path.read_text() for path in out.iterdir()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": FOLDER}
    command = [sys.executable, "-c", STOPPED_RUN, "--only", "epoch", "--out", str(out)]
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        line = next(line for line in process.stdout if line.startswith("pid "))
        os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert errors == f"-c: stopped by {number.name}\n"
    assert not is_running(int(line.split()[1]))
    after = {path.name: path.read_text() for path in out.iterdir() if path.suffix != ".log"}
    assert after == before, "what an earlier run has found is still there"


def test_a_question_that_fails_says_how(tmp_path: Path) -> None:
    status = run.streamed([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], tmp_path / "log", 30.0)
    assert status == "failed with code 3: no luck"


def test_the_digest_of_the_sources_follows_what_is_measured_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "package").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(run, "ROOT", tmp_path)
    found = [run.sources()]
    for name in ("src/package/a.py", "src/package/kernel.cuh", "benchmarks/epoch.py"):
        (tmp_path / name).write_text("1")
        found.append(run.sources())
        (tmp_path / name).write_text("2")
        found.append(run.sources())
    assert len(set(found)) == 7
    for name in ("src/package/a.pyc", "benchmarks/RESULTS.md"):
        (tmp_path / name).write_text("1")
    assert run.sources() == found[-1]


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
