"""What a person sees while a study runs: a progress bar on a terminal, plain lines in a log, nothing when quiet."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Where a running study says what it does."""

    def say(self, text: str) -> None:
        """One line of log."""
        ...

    def advance(self, epoch: int, status: str) -> None:
        """An epoch is done."""
        ...


class _Silent:
    def say(self, text: str) -> None:
        del text

    def advance(self, epoch: int, status: str) -> None:
        del epoch, status


class _Lines:
    """Plain lines, flushed, on standard error: results alone go to standard output."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def advance(self, epoch: int, status: str) -> None:
        del epoch, status


class _Bar:
    def __init__(self, progress: Progress, epochs: int, done: int) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=epochs, completed=done, status="")

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def advance(self, epoch: int, status: str) -> None:
        self._progress.update(self._task, completed=epoch, status=status)


@contextlib.contextmanager
def reporter(epochs: int, done: int, *, quiet: bool) -> Iterator[Reporter]:
    """A reporter fit for where standard error goes."""
    console = Console(stderr=True)
    if quiet:
        yield _Silent()
    elif not console.is_terminal:
        yield _Lines()
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            yield _Bar(progress, epochs, done)
