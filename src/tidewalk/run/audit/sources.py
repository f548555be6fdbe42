"""What no change of the bars can show: columns that know the future from another source.

A column made of the bars alone does not change when the whole calendar is moved by 28 years, after which weekdays and
dates fall together again; one joined from a file by date does. Such a column is proved by nothing else, so it is asked
whether it foretells the moves that follow better than any column may.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.market.user_features import called, is_same, numbers
from tidewalk.run.audit.checks import Check, named
from tidewalk.run.audit.features import STAGE, Subject

_CALENDAR_DAYS = 10_227
"""28 years: the calendar of weekdays and dates repeats."""
_MOST_BARS = 40_000
_DATED_SHARE = 0.2
"""A column counts as dated where the move of the calendar changes more than this share of its rows: hours of a local
clock change in a few weeks of the year only."""
WARN_CORRELATION, LEAK_CORRELATION, T_VALUE = 0.3, 0.5, 6.0
_HORIZONS = (1, 60)


@dataclasses.dataclass(frozen=True)
class _Foresight:
    """How well a column foretells."""

    correlation: float
    what: str
    count: int


def dated_columns(subject: Subject) -> tuple[str, ...]:
    """Columns that depend on the date itself: read from another source, or made of the year."""
    start = max(0, subject.bars.height - _MOST_BARS)
    piece = subject.bars.slice(start)
    try:
        base = called(subject.build, piece)
    except DataError:  # too short for it
        piece, base = subject.bars, subject.frame
    day = pl.duration(days=_CALENDAR_DAYS)
    moved = piece.with_columns(pl.col("ts") - day, pl.col("known_at") - day, (pl.col("session") - day).cast(pl.Date))
    try:
        again = called(subject.build, moved)
    except DataError:
        return tuple(base.columns)  # it does not know other dates at all
    found = []
    for name in base.columns:
        once, twice = numbers(base[name]), numbers(again[name]) if name in again.columns else np.full(len(base), np.nan)
        if np.mean(~is_same(once, twice)) > _DATED_SHARE:
            found.append(name)
    return tuple(found)


def date_check(subject: Subject) -> Check:
    """Says which columns come from another source than the bars."""
    dated = dated_columns(subject)
    done = "calendar moved back by 28 years"
    if not dated:
        return Check(STAGE, "other sources", done, "pass", "all columns are made of the bars")
    text = (
        f"{named(dated, 20)}: depends on the date itself, so it comes from another source than the bars (a file?) or "
        "from the year. Changing bars proves nothing about that source: make sure that each of its rows was published "
        "before the bars it is joined to, at the revision that was published then."
    )
    return Check(STAGE, "other sources", done, "warning", f"from elsewhere: {named(dated)}", (text,), tuple(dated))


def foresight_check(subject: Subject, names: Sequence[str], move_ticks: np.ndarray, dated: tuple[str, ...]) -> Check:
    """Whether a column goes with the moves that follow it more than markets allow.

    Rule: correlation above 0.3 with t above 6, over moves that do not overlap, is a warning; above 0.5 it is a leak if
    the column comes from another source than the bars.

    Args:
        subject: the feature set.
        names: columns to look at.
        move_ticks: `[T]` moves of the decisions.
        dated: columns that come from elsewhere.
    """
    targets = _targets(move_ticks, subject.bars["session"].to_physical().to_numpy())
    warned, leaks, details = [], [], []
    best = _Foresight(0.0, "", 0)
    for name in names:
        column = numbers(subject.frame[name])
        found = max((_foresight(column, *target) for target in targets), key=lambda f: abs(f.correlation))
        best = max(best, found, key=lambda one: abs(one.correlation))
        size, t_value = abs(found.correlation), abs(found.correlation) * np.sqrt(found.count)
        if size <= WARN_CORRELATION or t_value <= T_VALUE:
            continue
        is_leak = name in dated and size > LEAK_CORRELATION
        (leaks if is_leak else warned).append(name)
        details.append(_told(name, found, is_leak=is_leak))
    done = f"correlation with what follows ({', '.join(what for what, *_ in targets)})"
    if leaks:
        return Check(STAGE, "foresight", done, "LEAK", named(leaks), tuple(details), tuple(leaks))
    if warned:
        return Check(STAGE, "foresight", done, "warning", named(warned), tuple(details), tuple(warned))
    seen = f"{best.what}, {best.count:,} times" if best.what else "no column"
    return Check(STAGE, "foresight", done, "pass", f"largest {best.correlation:+.2f} ({seen})")


def _told(name: str, found: _Foresight, *, is_leak: bool) -> str:
    text = f"Feature {name!r} has a correlation of {found.correlation:+.2f} with {found.what} ({found.count:,} times)"
    if is_leak:
        return f"{text}, and it comes from another source than the bars: that source knows the future."
    return f"{text}, which is more than markets give away. Is it known when the bar is complete?"


def _targets(move_ticks: np.ndarray, session: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(what, rows, ticks): moves that follow the rows and do not overlap."""
    path = np.concatenate([[0], np.cumsum(move_ticks, dtype=np.int64)])
    last = len(move_ticks) - 2
    targets = []
    for bars in _HORIZONS:
        rows = np.arange(0, last - bars + 1, bars)
        if len(rows) > 1:
            what = "the next move" if bars == 1 else f"the next {bars} moves"
            targets.append((what, rows, path[rows + bars] - path[rows]))
    opens = np.flatnonzero(np.diff(session) != 0) + 1
    if len(opens) > 2:
        rows, ends = opens[:-1], np.minimum(opens[1:] - 2, last)
        is_whole = ends > rows
        targets.append(("the rest of the session", rows[is_whole], (path[ends] - path[rows])[is_whole]))
    return targets


def _foresight(column: np.ndarray, what: str, rows: np.ndarray, ticks: np.ndarray) -> _Foresight:
    """Correlation of a column with moves, both cut at four standard deviations."""
    seen = column[rows]
    is_known = np.isfinite(seen)
    seen, ticks = _trimmed(seen[is_known]), _trimmed(ticks[is_known].astype(np.float64))
    if len(seen) < 3 or seen.std() == 0 or ticks.std() == 0:
        return _Foresight(0.0, what, len(seen))
    return _Foresight(float(np.corrcoef(seen, ticks)[0, 1]), what, len(seen))


def _trimmed(values: np.ndarray) -> np.ndarray:
    if not len(values):
        return values
    middle, width = np.median(values), 4 * values.std()
    return np.clip(values, middle - width, middle + width)
