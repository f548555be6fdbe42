"""What a person sees while a study runs: a progress bar on a terminal, plain lines in a log, nothing when quiet."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@dataclasses.dataclass(frozen=True)
class Reporter:
    """Where a running study says what it does; always standard error, so that standard output holds results alone."""

    say: Callable[[str], None]
    """One line of log."""
    advance: Callable[[int, str], None]
    """(epoch, status): an epoch is done."""


@contextlib.contextmanager
def reporter(epochs: int, done: int, *, quiet: bool) -> Generator[Reporter, None, None]:
    """A reporter fit for where standard error goes."""
    console = Console(stderr=True)
    if quiet:
        yield Reporter(say=lambda _: None, advance=lambda *_: None)
    elif not console.is_terminal:
        yield Reporter(say=lambda text: print(text, file=sys.stderr, flush=True), advance=lambda *_: None)
    else:
        with _bar(console) as progress:
            task = progress.add_task("training", total=epochs, completed=done, status="")
            yield Reporter(
                say=lambda text: progress.console.print(text, highlight=False, markup=False, soft_wrap=True),
                advance=lambda epoch, status: progress.update(task, completed=epoch, status=status),
            )


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)
