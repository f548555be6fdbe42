"""What a person sees while a study runs: a progress bar on a terminal, plain lines in a log, nothing when quiet."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from tidewalk.core import progress

BAR_AFTER_SECONDS = 1.0
"""A job that is done sooner shows no bar."""
LINE_EVERY_SECONDS = 10.0
"""Time between lines of progress in a log."""


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
def reading(*, quiet: bool) -> Generator[progress.Progress]:
    """Progress of reading files: a bar that goes when it is done, or now and then a line in a log."""
    console = Console(stderr=True)
    start = time.monotonic()
    if quiet:
        yield progress.silent
    elif console.is_terminal:
        columns = (_Yielding("{task.description}"), _bar(), TaskProgressColumn(table_column=_firm()), _time_left())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("reading", total=1.0, visible=False)

            def advance(what: str, share: float) -> None:
                is_long = time.monotonic() - start > BAR_AFTER_SECONDS
                bar.update(task, description=what, completed=share, visible=is_long)

            yield advance
    else:
        yield _Lines(start)


@dataclasses.dataclass
class _Lines:
    """Progress as lines, the first after as long a time as lies between them."""

    last: float

    def __call__(self, what: str, share: float) -> None:
        """Say where the job is, if the line before was long enough ago."""
        if time.monotonic() - self.last >= LINE_EVERY_SECONDS:
            self.last = time.monotonic()
            tell(f"{what} ({share:.0%})")


@contextlib.contextmanager
def reporter(epochs: int, *, quiet: bool) -> Generator[Reporter]:
    """A reporter fit for where standard error goes."""
    console = Console(stderr=True)
    if quiet:
        yield Reporter(say=lambda _: None, advance=lambda *_: None)
    elif not console.is_terminal:
        yield Reporter(say=tell, advance=lambda *_: None)
    else:
        count = MofNCompleteColumn(table_column=_firm())
        columns = (TextColumn("{task.description}"), _bar(), count, _Yielding("{task.fields[status]}"), _time_left())
        with Progress(*columns, console=console) as bar:
            # Hidden until the first epoch can begin: nothing advances while programs are compiled.
            task = bar.add_task("training", total=epochs, visible=False, status="")
            yield Reporter(
                say=lambda text: console.print(text, style=style_of(text), highlight=False, markup=False),
                # drawn at once, as lines that are said bring back the bar as it was drawn last
                advance=lambda epoch, status: bar.update(
                    task, completed=epoch, visible=True, status=status, refresh=True
                ),
            )


def style_of(text: str) -> str | None:
    """How a line looks on a terminal: warnings stand out, what is said of every epoch's phases steps back."""
    if text.startswith("warning:"):
        return "bold yellow"
    return "dim" if text.startswith("phase breakdown:") else None


class _Yielding(TextColumn):
    """Text that is cut where a terminal is narrow, so that what is firm stays whole."""

    def __init__(self, text_format: str) -> None:
        """Take the format of the text."""
        super().__init__(text_format, table_column=Column())

    def render(self, task: Task) -> Text:
        """The text, on one line."""
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def _firm() -> Column:
    return Column(no_wrap=True)


def _bar() -> BarColumn:
    return BarColumn(bar_width=20, table_column=_firm())


def _time_left() -> TimeRemainingColumn:
    return TimeRemainingColumn(table_column=_firm())
