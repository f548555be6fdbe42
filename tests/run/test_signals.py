import os
import signal
import subprocess
import sys
import threading

import pytest

from tidewalk.run.signals import stop_on_signal

pytestmark = pytest.mark.usefixtures("signals_are_heard")


def test_a_signal_during_an_epoch_asks_for_a_stop_and_a_second_interrupt_insists(capfd):
    with stop_on_signal() as stop:
        stop.can_wait = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_asked
        assert "stopping after this epoch" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_outside_an_epoch_stops_at_once(number):
    with pytest.raises(KeyboardInterrupt), stop_on_signal():
        os.kill(os.getpid(), number)


LOSES_ITS_TERMINAL = """
import os, signal
from tidewalk.run.signals import stop_on_signal
master, slave = os.openpty()
os.dup2(slave, 1)
os.dup2(slave, 2)
with stop_on_signal() as stop:
    stop.can_wait = True
    os.kill(os.getpid(), signal.SIGHUP)
    os.close(slave)
    os.close(master)  # from here on a line to the terminal is an error
    os._exit(0 if stop.is_asked and os.write(1, b"x") == os.write(2, b"x") == 1 else 1)
"""


def test_a_lost_terminal_asks_for_a_stop_and_is_written_to_no_more():
    assert subprocess.run([sys.executable, "-c", LOSES_ITS_TERMINAL], timeout=60, check=False).returncode == 0


def test_a_hang_up_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_asked
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back():
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in heard]
    with stop_on_signal():
        assert not any(signal.getsignal(number) in before for number in heard)
    assert [signal.getsignal(number) for number in heard] == before


def test_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with stop_on_signal() as stop:
            seen.append((stop.is_asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
