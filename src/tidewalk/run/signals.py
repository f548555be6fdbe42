"""How Ctrl-C, SIGTERM and a terminal that is gone stop a run.

After the epoch where one runs, at once elsewhere or when asked twice.
"""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Generator

_HANG_UP: int | None = getattr(signal, "SIGHUP", None)
"""The terminal is gone; there is no such signal on Windows."""


@dataclasses.dataclass
class Stop:
    """What the signal handler and the loop tell each other."""

    is_asked: bool = False
    """A signal asked for a stop."""
    can_wait: bool = False
    """An epoch runs, after which a stop loses nothing."""


@contextlib.contextmanager
def stop_on_signal() -> Generator[Stop]:
    """Handle SIGINT, SIGTERM and SIGHUP while a run has its folder; a SIGHUP that is ignored (`nohup`) stays so.

    The first signal sets `Stop.is_asked` where an epoch runs, and raises KeyboardInterrupt elsewhere; a second SIGINT
    raises it everywhere. Python handles a signal only when the call that runs comes back or looks for signals: waiting
    for the device does, compiling does not.
    """
    stop, terminal = Stop(), [stream for stream in (1, 2) if os.isatty(stream)]

    def ask(number: int, frame: object) -> None:
        del frame
        if number == _HANG_UP:
            _leave(terminal)
        if not stop.can_wait or (stop.is_asked and number == signal.SIGINT):
            raise KeyboardInterrupt
        stop.is_asked = True
        with contextlib.suppress(OSError):  # not print: the signal may have come in the middle of one
            os.write(2, b"\ntidewalk: stopping after this epoch; Ctrl-C again stops at once\n")

    try:
        previous = {number: signal.signal(number, ask) for number in _asked_by()}
    except ValueError:  # not in the main thread: signals are not ours to handle
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _asked_by() -> list[int]:
    """Signals that ask for a stop."""
    if _HANG_UP is None or signal.getsignal(_HANG_UP) == signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, _HANG_UP]


def _leave(terminal: list[int]) -> None:
    """Say no more to a terminal that is gone: a line to it would end the run before its checkpoint is written."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in terminal:
        os.dup2(nothing, stream)
    os.close(nothing)
