"""Findings: what reading market data assumed, left out, counted or doubts, one record each.

A finding is one line for a person and a record for a program. Its `defect` is one of `DEFECTS`, so that a check can ask
for a kind and not for a wording.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidewalk.core.errors import listed

DEFECTS = {
    "spreads": "calendar spreads, combinations and other instruments beside the ones asked for",
    "several-contracts": "several contracts in one minute, of which the roll rule holds one",
    "truncated-archive": "a compressed file that ends before its archive does",
    "truncated-records": "a plain file that ends inside a record or a row",
    "multi-frame": "an archive of several frames",
    "damaged-archive": "an archive that cannot be decompressed",
    "not-one-stream": "records whose length or type is not the declared one",
    "no-rows": "a file without rows",
    "foreign-format": "a file that is no market data of a kind that is read",
    "other-schema": "a file of another schema or bar length than the one in use",
    "overlapping-files": "files that hold the same time twice",
    "duplicate-rows": "a row that is there twice",
    "out-of-order": "rows that are not in the order of time",
    "missing-price": "a row without prices",
    "price-at-or-below-zero": "a price of zero or less",
    "impossible-bar": "a bar whose high and low do not enclose open and close, or with some of its prices missing",
    "misprint": "a price that the bars before and after do not come near",
    "off-tick": "prices off the tick grid, or at a wrong scale",
    "zero-volume": "bars, or a whole source, without volume",
    "missing-minutes": "minutes without a bar inside a session",
    "gap-in-session": "a long hole inside a session",
    "missing-sessions": "scheduled sessions without a single bar",
    "outside-session": "bars outside the scheduled sessions",
    "clock-change": "wall times that a clock change repeats or leaves out",
    "time-zone": "the time zone of the stamps, and how it is known",
    "bar-label": "which end of a bar its stamp names, and how it is known",
    "rolls-invisible": "a continuous series that does not say which contract is behind a bar",
    "adjusted-prices": "prices that look adjusted, or of another instrument",
    "partial-end": "a last bar, session or month that is not complete",
    "symbol": "how the symbol asked for was understood",
    "dialect": "how a text file was understood",
    "size": "a file, or an amount of history, that is too large or too small",
    "unmapped": "records that belong to no symbol",
    "request": "what the vendor's request left out: symbols not found or listed for part of the time, a limit",
    "roll": "how rolls were chosen",
    "spread": "the recorded bid-ask spread",
    "bars": "how bars were made of trades, quotes or shorter bars",
    "open-interest": "open interest found in the data",
    "definition": "contract specifications found in the data",
}
"""Kinds of findings, by name."""

MAX_LINES = 12
"""Most lines of one kind that a person is shown; a program gets all of them."""
MAX_FILES = 4
"""Most file names in one line."""


@dataclass(frozen=True)
class Finding:
    """One line of the load report.

    Attributes:
        defect: kind, a key of `DEFECTS`.
        text: the line, complete without the other fields; names no file where `file` is set.
        count: rows, bars, records or files concerned; 0 where there is nothing to count.
        is_warning: whether the user has to know it before believing a result.
        file: name of the file concerned, or the first few of several; None when it concerns the whole.
    """

    defect: str
    text: str
    count: int = 0
    is_warning: bool = False
    file: str | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that no check could ask for."""
        if self.defect not in DEFECTS:
            raise ValueError(f"{self.defect!r} is no key of DEFECTS")

    @property
    def line(self) -> str:
        """The text, with the file it concerns before it."""
        return f"{self.file}: {self.text}" if self.file else self.text


def notes(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Lines of the findings that are no warnings, at most `MAX_LINES` of a kind."""
    return _lines(finding for finding in findings if not finding.is_warning)


def warnings(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Lines of the findings that are warnings, at most `MAX_LINES` of a kind."""
    return _lines(finding for finding in findings if finding.is_warning)


def _lines(findings: Iterable[Finding]) -> tuple[str, ...]:
    lines, seen = list[str](), Counter[str]()
    for finding in findings:
        seen[finding.defect] += 1
        if seen[finding.defect] <= MAX_LINES:
            lines.append(finding.line)
    more = [f"and {count - MAX_LINES} more on {DEFECTS[defect]}" for defect, count in seen.items() if count > MAX_LINES]
    return (*lines, *more)


def in_file(name: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, said of a file."""
    return tuple(dataclasses.replace(finding, file=name) for finding in findings)


def records(findings: Iterable[Finding]) -> tuple[dict[str, object], ...]:
    """The findings as plain JSON values: the `data_quality` of a study."""
    return tuple(dataclasses.asdict(finding) for finding in findings)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without repetitions, those that several files share said once, warnings last."""
    holders: dict[Finding, list[Finding]] = {}
    for finding in findings:
        holders.setdefault(dataclasses.replace(finding, file=None, count=0), []).append(finding)
    said = [_joined(same) for same in holders.values()]
    return tuple(sorted(said, key=lambda finding: finding.is_warning))


def _joined(same: Sequence[Finding]) -> Finding:
    """One finding for those that differ in file and count only."""
    count_by_file = {finding.file: finding.count for finding in same}
    names = sorted(name for name in count_by_file if name)
    return dataclasses.replace(same[0], file=listed(names, MAX_FILES) or None, count=sum(count_by_file.values()))
