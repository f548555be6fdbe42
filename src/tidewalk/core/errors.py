"""Errors a user can act on; each carries the exit code of the command line."""

import difflib
from collections.abc import Iterable, Sequence


class TidewalkError(Exception):
    """Base of every error that is reported as one short paragraph, without a traceback."""

    exit_code = 2


class ConfigError(TidewalkError):
    """A flag, a configuration file or their combination asks for something that cannot be done."""


class DataError(TidewalkError):
    """A data file cannot be trusted, or holds too little for what was asked."""


class StoreError(TidewalkError):
    """A run folder cannot be written, read or trusted."""


class TrainError(TidewalkError):
    """Training failed: no member is left, or the device ran out of memory."""

    exit_code = 3


class BooksError(TidewalkError):
    """Two accounts of the same trades disagree: a fault of the program, and no figure of the run may be believed."""

    exit_code = 1


class Interrupted(TidewalkError):
    """The run was stopped on request and can be resumed."""

    exit_code = 75


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name closest to `name` (case ignored), or None when nothing is close."""
    by_folded = {choice.lower(): choice for choice in allowed}
    hits = difflib.get_close_matches(name.lower(), list(by_folded), n=1, cutoff=0.5)
    return by_folded[hits[0]] if hits else None


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """A sentence fragment " (did you mean X?)" for error messages, empty when nothing is close."""
    hit = nearest(name, allowed)
    return f" (did you mean {hit}?)" if hit else ""


def listed(names: Sequence[str], most: int = 8, what: str = "") -> str:
    """The first names, and how many more there are: "a, b and 3 more files"; empty without a name."""
    shown, rest = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {rest} more{f' {what}' if what else ''}" if rest > 0 else shown
