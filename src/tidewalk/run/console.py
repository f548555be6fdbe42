"""What a person sees while a study runs: a progress bar on a terminal, plain lines in a log, nothing when quiet."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@dataclasses.dataclass(frozen=True)
class Reporter:
    """Where a running study says what it does: standard error, so that standard output holds results alone."""

    say: Callable[[str], None]
    """One line of log."""
    advance: Callable[[int, str], None]
    """(epoch, status): this many epochs are done."""


def tell(text: str, *, quiet: bool = False) -> None:
    """One line on standard error, at once."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def reporter(epochs: int, *, quiet: bool) -> Generator[Reporter]:
    """A reporter fit for where standard error goes."""
    console = Console(stderr=True)
    if quiet:
        yield Reporter(say=lambda _: None, advance=lambda *_: None)
    elif not console.is_terminal:
        yield Reporter(say=tell, advance=lambda *_: None)
    else:
        with _bar(console) as progress:
            # Hidden until the first epoch can begin: nothing advances while programs are compiled.
            task = progress.add_task("training", total=epochs, visible=False, status="")
            yield Reporter(
                say=lambda text: console.print(text, style=style_of(text), highlight=False, markup=False),
                advance=lambda epoch, status: progress.update(task, completed=epoch, visible=True, status=status),
            )


def style_of(text: str) -> str | None:
    """How a line looks on a terminal: warnings stand out, what is said of every epoch's phases steps back."""
    if text.startswith("warning:"):
        return "bold yellow"
    return "dim" if text.startswith("phase breakdown:") else None


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)
