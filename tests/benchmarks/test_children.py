"""Nothing that a benchmark has started outlives it, whatever signal stops it, and it ends with a line."""

import signal
import subprocess
import sys
from pathlib import Path

import children
import pytest

from processes import is_running

pytestmark = pytest.mark.usefixtures("signals_are_heard")

FOLDER = Path(children.__file__).parent
PROGRAMS = sorted(path for path in FOLDER.rglob("*.py") if '__name__ == "__main__"' in path.read_text())
NOT_GUARDED = ("whole_job_sb3.py", "worker.py")
"""Children themselves, whose signals are their parent's."""
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

DEAF = "trap '' INT TERM HUP; echo $$; exec sleep 60"
BUSY = f"""
import concurrent.futures, subprocess, sys, time
import children

def waits(_):  # as the pools of the peers wait for their workers, with more to start than there are threads
    process = children.start(["sh", "-c", {DEAF!r}], stdout=subprocess.PIPE, text=True)
    print("pid", process.stdout.readline(), end="", flush=True)
    process.stdout.read()
    children.end(process)

def main():
    leader = ["sh", "-c", "echo pid $$; sleep 60 & echo pid $!; wait"]
    with children.child(leader, is_leader=True), children.child(["sleep", "60"]) as plain:
        print("pid", plain.pid, flush=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(waits, range(4)))

sys.exit(children.guarded(main))
"""


def begun(program: str, *, before: str = "") -> subprocess.Popen:
    """A Python program in the folder of the benchmarks."""
    words = ["sh", "-c", f'{before} exec "$@"', "sh", sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=FOLDER, **pipes)


@needs_proc
@pytest.mark.parametrize("number", children.SIGNALS)
def test_a_signal_ends_every_child_in_a_line(number: signal.Signals) -> None:
    with begun(BUSY) as process:
        found = [int(process.stdout.readline().split()[1]) for _ in range(5)]
        assert all(is_running(one, patience_s=0.01) for one in found)
        process.send_signal(number)
        later, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert errors == f"-c: stopped by {number.name}\n"
    assert later == "", "nothing is started any more"
    assert not any(map(is_running, found))


@needs_proc
def test_a_child_ends_with_its_block_however_that_ends() -> None:
    found = []

    def fails() -> None:
        with children.child(["sleep", "60"], stdin=subprocess.PIPE) as process:
            found.append(process)
            raise RuntimeError("the question failed")

    with pytest.raises(RuntimeError, match="the question failed"):
        fails()
    assert found[0].returncode == -signal.SIGKILL
    with children.child(["true"]) as process:
        process.wait()
    assert process.returncode == 0


def test_a_signal_while_a_process_is_being_started_waits_for_it() -> None:
    program = """
import os, signal, subprocess, sys
import children

class Slow(subprocess.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))  # the handler has run

children.subprocess.Popen = Slow
sys.exit(children.guarded(lambda: children.start(["sleep", "60"])))
"""
    with begun(program) as process:
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert not is_running(int(out))


def test_what_ignores_a_signal_goes_on_doing_so() -> None:
    program = (
        "import os, signal, children; children.guarded(lambda: os.kill(os.getpid(), signal.SIGHUP)); print('done')"
    )
    with begun(program, before="trap '' HUP;") as process:
        assert process.communicate(timeout=20) == ("done\n", "")


def test_a_reader_that_leaves_ends_it_without_a_word() -> None:
    program = "import sys, children; sys.exit(children.guarded(lambda: [print('x' * 99) for _ in range(9999)] and 0))"
    with begun(program) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (children.PIPE_CLOSED, "")


def test_a_refusal_of_tidewalk_is_a_line() -> None:
    program = """
import sys, children
from tidewalk.core.errors import ConfigError

def main():
    raise ConfigError("--device gpu: there is none.")

sys.exit(children.guarded(main))
"""
    with begun(program) as process:
        assert process.communicate(timeout=20) == ("", "-c: --device gpu: there is none.\n")
    assert process.returncode == 2


def test_what_a_stop_has_broken_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    import common

    report = common.Report("question", {}, None, {})
    common.failed(report, "before", RuntimeError("out of memory"))
    monkeypatch.setattr(children, "_STATE", children._State(stopped_by=signal.SIGINT))
    common.failed(report, "SBX", RuntimeError("the worker ended"))
    assert list(report.failures) == ["before"]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_is_guarded(path: Path) -> None:
    last = path.read_text().rstrip().splitlines()[-1].strip()
    assert (last == "sys.exit(children.guarded(main))") == (path.name not in NOT_GUARDED)


def test_every_process_is_begun_where_it_is_ended() -> None:
    for path in FOLDER.rglob("*.py"):
        if path.name != "children.py":
            text = path.read_text()
            assert not [word for word in ("Popen(", "os.fork", "multiprocessing", "os.system") if word in text], path
