"""What a check of the audit found, and how checks are run one after the other."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from tidewalk.core.errors import ConfigError, DataError

Status = Literal["pass", "LEAK", "FAIL", "warning", "skipped"]
BAD: tuple[Status, ...] = ("LEAK", "FAIL")
"""What makes `tidewalk audit` exit with 2: the future was seen, or a control did not come out as it has to."""

MOST_DETAILS = 12
"""Sentences shown for one check; more columns than this are named without a sentence each."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One row of the audit."""

    stage: str
    """Part of the pipeline that is looked at: features, bars, scaler, training, ..."""
    name: str
    done: str
    """What was done."""
    status: Status
    found: str
    """The result in a few words; it names the columns of a leak."""
    details: tuple[str, ...] = ()
    """Whole sentences: where, with both values, and what to do."""
    columns: tuple[str, ...] = ()
    """Feature columns at fault."""
    symbol: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Audit:
    """All checks of an audit."""

    symbols: tuple[str, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    """What the reader has to know of how it was done."""

    @property
    def bad(self) -> tuple[Check, ...]:
        """Checks that found a leak or failed."""
        return tuple(check for check in self.checks if check.status in BAD)

    @property
    def is_clean(self) -> bool:
        """Whether nothing leaks and no control failed."""
        return not self.bad


def as_record(audit: Audit) -> dict[str, Any]:
    """The audit as plain JSON values."""
    counts = {status: sum(check.status == status for check in audit.checks) for status in get_args(Status)}
    return {
        "symbols": list(audit.symbols),
        "is_clean": audit.is_clean,
        "counts": counts,
        "checks": [
            {**dataclasses.asdict(check), "details": list(check.details), "columns": list(check.columns)}
            for check in audit.checks
        ],
        "notes": list(audit.notes),
    }


@dataclasses.dataclass
class Record:
    """The checks so far; each is announced before it runs and told when it is done."""

    symbol: str
    say: Callable[[str], None]
    checks: list[Check] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def run(self, what: str, check: Callable[[], Check]) -> Check:
        """Run one check, time it and keep it.

        A check that the data or the feature function make impossible is a failure of the audit, not its end.
        """
        self.say(f"audit: {what}")
        began = time.perf_counter()
        try:
            found = check()
        except (ConfigError, DataError) as error:
            stage, _, name = what.partition(": ")
            found = Check(stage, name, "could not be done", "FAIL", "could not be done", (str(error),))
        found = dataclasses.replace(found, symbol=self.symbol, seconds=round(time.perf_counter() - began, 3))
        self.checks.append(found)
        return found


def named(columns: Sequence[str], most: int = 6) -> str:
    """Column names in a row, cut where there are many."""
    shown = ", ".join(columns[:most])
    return shown if len(columns) <= most else f"{shown} and {len(columns) - most} more"
