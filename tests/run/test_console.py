import re
import sys

import pytest

from tidewalk.run import console
from tidewalk.run.console import reading, reporter, style_of, tell

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
        err = capsys.readouterr().err
        assert EPOCH in err
        assert "warning: [bold]beware[/bold]" in err
        for epoch in range(1, 13):
            out.advance(epoch, "loss 0.2426  val -872 USD  2.85 epochs/s")
            out.say(EPOCH)
            _, line, below = capsys.readouterr().err.rpartition(EPOCH)
            assert line, "said at once"
            assert f"{epoch}/12" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", below), (
                "the bar is as new as the line above it"
            )


@pytest.mark.parametrize("columns", [46, 48, 60])
def test_a_narrow_terminal_keeps_bar_count_and_time_left_and_cuts_what_is_said_beside(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with reporter(12, quiet=False) as out:
        out.advance(12, "loss 0.2426  val -872 USD  2.85 epochs/s")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).rstrip().splitlines()[-1]
    assert re.search(r"training ━{20} 12/12 \S?.*… 0:00:00$", drawn), drawn
    with reading(quiet=False) as progress:
        monkeypatch.setattr(console, "BAR_AFTER_SECONDS", -1.0)
        progress("reading a file with a long name, the last one of 20", 1.0)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"reading.*… ━{20} 100% 0:00:00", drawn), drawn


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_reading_says_a_line_now_and_then_in_a_log(capsys, clock):
    with reading(quiet=False) as progress:
        for second in range(35):
            clock[0] = 100.0 + second
            progress("reading file 3 of 20", second / 35)
    assert capsys.readouterr() == (
        "",
        "reading file 3 of 20 (29%)\nreading file 3 of 20 (57%)\nreading file 3 of 20 (86%)\n",
    )


def test_reading_quickly_or_quietly_says_nothing(capsys, clock):
    for quiet in (False, True):
        with reading(quiet=quiet) as progress:
            progress("reading file 1 of 20", 0.0)
            clock[0] += 50.0 if quiet else 5.0
            progress("reading file 2 of 20", 0.5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "is_shown"), [(0.5, False), (1.5, True)])
def test_a_terminal_shows_a_bar_where_reading_takes_more_than_a_second(capsys, monkeypatch, clock, seconds, is_shown):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with reading(quiet=False) as progress:
        progress("reading file 1 of 20", 0.0)
        clock[0] += seconds
        progress("reading file 11 of 20", 0.5)
    captured = capsys.readouterr()
    assert ("reading file 11 of 20" in captured.err) == is_shown
    assert ("50%" in captured.err) == is_shown
    assert captured.out == ""


@pytest.mark.parametrize(("text", "style"), [("warning: x", "bold yellow"), (PHASES, "dim"), (EPOCH, None)])
def test_warnings_stand_out(text, style):
    assert style_of(text) == style


def test_an_epoch_fits_a_terminal():
    assert len(EPOCH) <= 80
    assert console.tell is tell
