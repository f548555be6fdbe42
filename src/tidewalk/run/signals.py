"""How Ctrl-C and SIGTERM stop a run: after the epoch where one runs, at once elsewhere or when asked twice."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Generator


@dataclasses.dataclass
class Stop:
    """What the signal handler and the loop tell each other."""

    is_asked: bool = False
    """A signal asked for a stop."""
    can_wait: bool = False
    """An epoch runs, after which a stop loses nothing."""


@contextlib.contextmanager
def stop_on_signal() -> Generator[Stop]:
    """Handle SIGINT and SIGTERM while a run has its folder.

    The first signal sets `Stop.is_asked` where an epoch runs, and raises KeyboardInterrupt elsewhere; a second SIGINT
    raises it everywhere. Python handles a signal only when the call that runs comes back or looks for signals: waiting
    for the device does, compiling does not.
    """
    stop = Stop()

    def ask(number: int, frame: object) -> None:
        del frame
        if not stop.can_wait or (stop.is_asked and number == signal.SIGINT):
            raise KeyboardInterrupt
        stop.is_asked = True
        with contextlib.suppress(OSError):  # not print: the signal may have come in the middle of one
            os.write(2, b"\ntidewalk: stopping after this epoch; Ctrl-C again stops at once\n")

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are not ours to handle
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
