import os
import signal
import threading

import pytest

from tidewalk.run.signals import stop_on_signal


def test_a_signal_during_an_epoch_asks_for_a_stop_and_a_second_interrupt_insists(capfd):
    with stop_on_signal() as stop:
        stop.can_wait = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_asked
        assert "stopping after this epoch" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_outside_an_epoch_stops_at_once(number):
    with pytest.raises(KeyboardInterrupt), stop_on_signal():
        os.kill(os.getpid(), number)


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_on_signal():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


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
