"""The folder of benchmarks is whole: every file is asked or listed as a part, and each still runs in tiny sizes."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import run

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
    if name == "population_tf32":
        assert found["status"] == "left out: a CPU has no tf32"
        return
    assert found["status"] == "done", done.stdout[-2000:]
    assert json.loads((tmp_path / f"{name}.json").read_text())


def asked(*words: str, limit_s: float = 60) -> subprocess.CompletedProcess:
    command = [sys.executable, str(FOLDER / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
