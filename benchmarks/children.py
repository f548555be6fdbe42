"""Programs that stop as they should: a signal ends all that they have started, says so in a line, and nothing lives on.

`guarded` is round the `main` of every benchmark, and `child` or `start` begins every process of one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PIPE_CLOSED = 141
_GRACE_S = 5.0
"""Time that the leader of a group has to end its own children and to remove what it has written."""


class Stopped(BaseException):
    """A signal has come; no `except Exception` holds it up."""


@dataclass
class _State:
    """What the handler of signals and the program tell each other."""

    running: dict[subprocess.Popen, bool] = field(default_factory=dict)
    """Processes that have been started, and whether each leads a group of its own."""
    stopped_by: int | None = None
    is_held: bool = False
    """The main thread is starting a process that nobody knows yet: nothing may be raised."""


_STATE = _State()


def guarded(main: Callable[[], int]) -> int:
    """Exit code of a program; a signal, a closed pipe or a refusal of tidewalk ends it with a line at most."""
    # what ignores a signal, as `nohup` has it, goes on doing so
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in handled}
    try:
        code = main()
        sys.stdout.flush()
        return code
    except Stopped:
        _leave(f"stopped by {signal.Signals(_STATE.stopped_by).name}", 128 + _STATE.stopped_by)
    except BrokenPipeError:
        _leave(None, PIPE_CLOSED)
    except Exception as error:
        errors = sys.modules.get("tidewalk.core.errors")
        if errors is None or not isinstance(error, errors.TidewalkError):
            raise
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(said: str | None, code: int) -> None:
    """End at once: the interpreter's own way out waits for what the device still computes."""
    for process in list(_STATE.running):  # begun in the moment of the signal
        end(process)
    with contextlib.suppress(OSError):
        if said:
            print(f"{Path(sys.argv[0]).name}: {said}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(code)


def _stop(number: int, frame: FrameType | None) -> None:
    """End the children, so that no thread waits for their answers any more, and let the program come to its end."""
    del frame
    if _STATE.stopped_by is not None:
        return
    _STATE.stopped_by = number
    for process, is_leader in list(_STATE.running.items()):
        if not is_leader:
            process.kill()
    if not _STATE.is_held:
        raise Stopped


def is_stopping() -> bool:
    """Whether a signal has come: what fails from then on is no failure."""
    return _STATE.stopped_by is not None


def leave_signals_to_parent() -> None:
    """For a process that ends with its pipe: Ctrl-C reaches it too, but its parent is the one to act."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def child(command: Sequence[str | Path], *, is_leader: bool = False, **how: Any) -> Iterator[subprocess.Popen]:
    """A process that is over when the block is, whatever ends the block.

    Args:
        command: its words.
        is_leader: it starts processes of its own, and is the leader of a group: it is asked to end, and after a moment
            the group is made to.
        how: of `subprocess.Popen`.
    """
    process = start(command, is_leader=is_leader, **how)
    try:
        yield process
    finally:
        end(process)


def start(command: Sequence[str | Path], *, is_leader: bool = False, **how: Any) -> subprocess.Popen:
    """Begin a process as `child` does; `end` has to be called for it.

    Raises:
        Stopped: a signal has come.
    """
    with _held():
        process = subprocess.Popen(list(map(str, command)), start_new_session=is_leader, **how)
        _STATE.running[process] = is_leader
    if is_stopping():
        end(process)
        raise Stopped
    return process


@contextlib.contextmanager
def _held() -> Iterator[None]:
    """Signals only leave their mark; they are handled by the main thread, so other threads need not hold them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _STATE.is_held = True
    try:
        yield
    finally:
        _STATE.is_held = False


def end(process: subprocess.Popen) -> None:
    """Make a process end, and the group that it leads, and wait for it."""
    if _STATE.running.pop(process, False):
        # Ctrl-C, which Python unwinds; its own answer to SIGTERM leaves temporary folders behind
        is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        process.send_signal(signal.SIGTERM if is_deaf else signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def run_quietly(command: Sequence[str | Path], **environment: str) -> str:
    """Standard output of a command that must succeed.

    Raises:
        RuntimeError: it did not; with the last line that it said.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with child(command, env={**os.environ, **environment}, **pipes) as process:
        answer, errors = process.communicate()
    if process.returncode != 0:
        words, said = f"{Path(command[0]).name} {command[1]}", last_line(errors if errors.strip() else answer)
        raise RuntimeError(f"{words} ended with code {process.returncode}: {said}")
    return answer


def last_line(text: str) -> str:
    """What a program said last, which is often why it ended."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing said"
