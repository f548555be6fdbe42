import sys

import pytest

from tidewalk.run import console
from tidewalk.run.console import reporter, style_of, tell

EPOCH = "epoch 10/12  loss 0.2426  val -872 USD (p10 -3,395, p90 -165)  2.85 epochs/s"
PHASES = "phase breakdown: init 0.11 ms · fused collect+learn+evaluate 350.76 ms · total 350.87 ms · uploaded 0 B"


def test_a_log_gets_plain_lines_whole(capsys):
    with reporter(12, quiet=False) as out:
        out.say(PHASES)
        out.advance(10, "loss 0.2426")
    captured = capsys.readouterr()
    assert captured.err == f"{PHASES}\n"
    assert captured.out == ""


def test_quiet_says_nothing(capsys):
    tell("reading", quiet=True)
    with reporter(12, quiet=True) as out:
        out.say(EPOCH)
        out.advance(10, "loss")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_once_an_epoch_can_begin(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with reporter(12, quiet=False) as out:
        out.say("compiling")
        assert "training" not in capsys.readouterr().err
        out.advance(0, "")
        out.say(EPOCH)
        out.say("warning: [bold]beware[/bold]")
        out.advance(12, "loss 0.2426  val -872 USD  2.85 epochs/s")
    err = capsys.readouterr().err
    assert EPOCH in err
    assert "warning: [bold]beware[/bold]" in err
    assert "12/12" in err


@pytest.mark.parametrize(("text", "style"), [("warning: x", "bold yellow"), (PHASES, "dim"), (EPOCH, None)])
def test_warnings_stand_out(text, style):
    assert style_of(text) == style


def test_an_epoch_fits_a_terminal():
    assert len(EPOCH) <= 80
    assert console.tell is tell
