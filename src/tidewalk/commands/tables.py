"""How commands show tables and findings on standard output."""

import os

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_OF_FILES = 240
_NUMBERS = ("no.", "bars", "sessions", "volume", "rows", "kept", "basis", "missing", "minutes", "count")


def output_console() -> Console:
    """Standard output: as wide as the terminal, and wide enough for every column where it is a file or a pipe."""
    console = Console(highlight=False, markup=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, markup=False, width=_WIDTH_OF_FILES)


def table(title: str, columns: tuple[str, ...], *, right: tuple[str, ...] = ()) -> Table:
    """An empty table that folds a cell that is too wide rather than cutting it; `right` names columns of numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in (*_NUMBERS, *right) else "left", overflow="fold")
    return made


def say(console: Console, text: str) -> None:
    """A line of text: wrapped at words on a terminal, whole in a file or a pipe."""
    console.print(Text(text), soft_wrap=not console.is_terminal)


def say_findings(console: Console, notes: list[str], warnings: list[str]) -> None:
    """Notes, then warnings where they are seen: last, and in colour on a terminal."""
    findings = [("note", "", text) for text in notes] + [("WARNING", "bold yellow", text) for text in warnings]
    if not console.is_terminal:
        for word, _, text in findings:
            say(console, f"{word}: {text}")
        return
    if not findings:
        return
    grid = Table.grid(padding=(0, 1))
    for word, style, text in findings:
        grid.add_row(Text(f"{word}:", style=style), Text(text, style=style))
    console.print(grid)
