"""Checks of a feature set, column by column: what a row gives may depend on bars up to its own only.

The function is called on pieces of the data and with other futures, and what it gives for the past is compared. A set
that `train` would refuse at its first leaking column is looked at whole.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.market.user_features import (
    FeatureBuilder,
    anchor_faults,
    build_features,
    called,
    is_same,
    numbers,
)
from tidewalk.run.audit import poison
from tidewalk.run.audit.checks import MOST_DETAILS, Check, named
from tidewalk.run.audit.moments import Cut, cuts, odd_cuts
from tidewalk.run.audit.poison import FramePoison

STAGE = "features"
_LEAD_BARS = 1500
"""Bars of a piece before its cut, and after it: more than a session of minutes."""
_WHOLE_SHARES = (0.618, 0.4637)
"""Where the whole data are cut once more: odd shares, so that the cuts lie inside hours and sessions."""
_FEWEST_PLACES = 14
_CALLS_PER_PLACE = 5
_SETTLED = 1e-3
"""A column has settled when other history changes it by less than this share of its standard deviation."""
_WARM_UP_UNIT, _LEAST_UNIT = 2400, 30
_WARM_UP_FACTORS = (1, 2, 5)
_WARM_UP_ROWS = 200

FUTURES: dict[str, tuple[str, FramePoison]] = {
    "prefix": ("cut off", poison.cut_off),
    "future missing": ("without prices", poison.missing),
    "future huge": ("at plus and minus 1e30", poison.huge),
    "future, other market": ("those of another market", poison.other_market),
}
"""Name of the check -> what the bars after a cut then are, and what makes them so."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How thorough a feature set is looked at."""

    places: int
    seconds: float
    """Time for the calls on pieces, and again for those on all bars; a slow function is called at fewer cuts, 14 of
    pieces and one of all bars at least."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """A piece of the data with a cut inside it."""

    start: int
    stop: int
    row: int
    """First row of the future, counted from the start of the data."""
    kind: str
    base: pl.DataFrame
    """What the function gives for the piece as it is."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A feature set under audit."""

    bars: pl.DataFrame
    build: FeatureBuilder
    frame: pl.DataFrame
    """What it gives for all bars."""
    places: tuple[_Place, ...]
    is_users: bool

    @property
    def columns(self) -> list[str]:
        """Names of the features."""
        return self.frame.columns


@dataclasses.dataclass(frozen=True)
class _Fault:
    """Where a column changed first, and at what kinds of cut it did."""

    text: str
    kinds: tuple[str, ...]


def subject_of(bars: pl.DataFrame, builder: FeatureBuilder | None, effort: Effort, seed: int) -> Subject:
    """A feature set, called once on all bars and once on every piece.

    Args:
        bars: all bars, as feature functions get them.
        builder: the user's function, or None for the default set.
        effort: number of pieces of each sort: by the bars, and by the columns.
        seed: of their draw.

    Raises:
        DataError: the function fails on all bars or gives no feature set for them.
    """
    build = _default_set if builder is None else builder
    began = time.perf_counter()
    frame = called(build, bars)
    first = _first_whole_row(frame)
    lead = max(_LEAD_BARS, 3 * first)
    drawn = [cut for cut in _drawn(bars, frame, effort, seed) if cut.row > first]  # before, nothing can be compared
    places: list[_Place] = []
    whole_s = time.perf_counter() - began
    began = time.perf_counter()
    for number, cut in enumerate(drawn):
        spent = time.perf_counter() - began
        if number >= _FEWEST_PLACES and spent * _CALLS_PER_PLACE > effort.seconds:
            break
        start, stop = max(0, cut.row - lead), min(bars.height, cut.row + _LEAD_BARS)
        try:
            base = called(build, bars.slice(start, stop - start))
        except DataError:  # the piece is too short for it: the whole data then
            start, stop, base = 0, bars.height, frame
        places.append(_Place(start, stop, cut.row, cut.kind, base))
    rows = [bars.height - 1, *(int(bars.height * share) for share in _WHOLE_SHARES)]
    affordable = rows if whole_s * len(rows) * len(FUTURES) < effort.seconds else rows[:1]
    places += [_Place(0, bars.height, row, "inside the data", frame) for row in affordable if row >= max(2, first + 1)]
    return Subject(bars, build, frame, tuple(places), builder is not None)


def _drawn(bars: pl.DataFrame, frame: pl.DataFrame, effort: Effort, seed: int) -> list[Cut]:
    """Cuts by what is special about the bars, and by turns with them those by what is special in the columns."""
    usual, odd = cuts(bars, effort.places, seed), odd_cuts(frame, effort.places, seed)
    turns = itertools.chain.from_iterable(itertools.zip_longest(odd, usual[_FEWEST_PLACES:]))
    found: dict[int, Cut] = {}
    for cut in (*usual[:_FEWEST_PLACES], *turns):
        if cut is not None:
            found.setdefault(cut.row, cut)
    return list(found.values())


def _default_set(bars: pl.DataFrame) -> pl.DataFrame:
    names, values, first = build_features(bars, None)
    values[:first] = np.nan  # zeros stand there
    return pl.DataFrame(values, schema=list(names))


def _first_whole_row(frame: pl.DataFrame) -> int:
    """First row in which every column that is ever defined is; 0 where there is none."""
    columns = [np.isfinite(numbers(frame[name])) for name in frame.columns]
    whole = np.logical_and.reduce([column for column in columns if column.any()] or [np.ones(frame.height, bool)])
    return int(np.argmax(whole))


# ---- the same bars, another future


def future_check(subject: Subject, name: str) -> Check:
    """Whether any row changes when the bars after it are others: one of `FUTURES`."""
    fate, change = FUTURES[name]
    faults: dict[str, _Fault] = {}
    failed: list[str] = []
    largest, reached = 0.0, set[str]()
    for place in subject.places:
        piece = subject.bars.slice(place.start, place.stop - place.start)
        try:
            again = called(subject.build, change(piece, place.row - place.start))
        except DataError as error:
            failed.append(str(error))
            continue
        moved, size = _moved(place.base, again, place.row - place.start)
        largest = max(largest, size)
        reached |= _reached(place, again, place.row - place.start)
        for column, row in moved.items():
            faults[column] = _with_fault(faults.get(column), subject, place, column, row, again, fate)
    done = f"{len(subject.places)} cuts, bars after them {fate}"
    if faults:
        return _leak(name, done, faults, subject)
    if failed:
        return _failed(name, done, failed, len(subject.places))
    equal = "to the bit" if largest == 0 else f"to rounding ({largest:.0e})"
    found = f"{counted(len(subject.columns), 'column')} equal {equal}"
    if name != "prefix" and not reached:
        found += "; none depends on prices or volumes"
    return Check(STAGE, name, done, "pass", found)


def _moved(base: pl.DataFrame, again: pl.DataFrame, cut: int) -> tuple[dict[str, int], float]:
    """Columns that differ before a cut with the first such row, and the largest difference of the rest."""
    moved: dict[str, int] = {}
    largest = 0.0
    for name in base.columns:
        if name not in again.columns:
            moved[name] = 0
            continue
        once, twice = numbers(base[name][:cut]), numbers(again[name][:cut])
        differs = ~is_same(once, twice)
        if differs.any():
            moved[name] = int(np.argmax(differs))
        else:
            gap = np.abs(once - twice)
            largest = max(largest, float(np.nanmax(gap, initial=0.0, where=np.isfinite(gap))))
    return moved, largest


def _reached(place: _Place, again: pl.DataFrame, cut: int) -> set[str]:
    """Columns that did change after the cut: there the poison is seen."""
    if again.height <= cut:
        return set()
    names = [name for name in place.base.columns if name in again.columns]
    return {name for name in names if not is_same(numbers(place.base[name][cut:]), numbers(again[name][cut:])).all()}


def _with_fault(
    known: _Fault | None, subject: Subject, place: _Place, column: str, row: int, again: pl.DataFrame, fate: str
) -> _Fault:
    if known is not None:
        return dataclasses.replace(known, kinds=(*known.kinds, place.kind))
    at, when = place.start + row, subject.bars["ts"]
    if column not in again.columns:
        text = f"Feature {column!r} has another name or is not given when the bars from {when[place.row]} on are {fate}"
        return _Fault(f"{text}: names must not depend on the bars.", (place.kind,))
    text = (
        f"Feature {column!r} sees the future: at bar {at} ({when[at]}) it is {place.base[column][row]}, and "
        f"{again[column][row]} when the bars from {when[place.row]} on are {fate}. A row may use bars up to its own "
        "only."
    )
    return _Fault(text, (place.kind,))


def _leak(name: str, done: str, faults: dict[str, _Fault], subject: Subject) -> Check:
    columns = tuple(faults)
    details = [
        f"{fault.text} Seen at {len(fault.kinds)} of {len(subject.places)} cuts ({named(sorted(set(fault.kinds)))})."
        for fault in faults.values()
    ]
    return Check(STAGE, name, done, "LEAK", named(columns), _cut(details), columns)


def _failed(name: str, done: str, failed: Sequence[str], places: int) -> Check:
    """The function fails on other bars: excusable where there are no prices, or absurd ones, or at few cuts."""
    found = f"the function fails at {len(failed)} of {places} cuts, equal at the others"
    if name in ("future missing", "future huge"):
        return Check(STAGE, name, done, "skipped", found, (failed[0],))
    return Check(STAGE, name, done, "FAIL" if 2 * len(failed) >= places else "warning", found, (failed[0],))


def _cut(details: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(details[:MOST_DETAILS])
    return shown if len(details) <= MOST_DETAILS else (*shown, f"{len(details) - MOST_DETAILS} more columns likewise.")


# ---- the same bars, twice; other histories; other levels


def repeat_check(subject: Subject) -> Check:
    """Whether the same bars give the same numbers, to the bit."""
    again = called(subject.build, subject.bars)
    differing = [name for name in subject.columns if not _equal(subject.frame, again, name)]
    done = "called twice with all bars"
    if not differing:
        return Check(STAGE, "repeatable", done, "pass", f"{counted(len(subject.columns), 'column')} equal to the bit")
    details = [
        f"Feature {name!r} is not repeatable: the same bars gave other numbers the second time. Seed random numbers, "
        "read no clock, and keep nothing from call to call."
        for name in differing
    ]
    return Check(STAGE, "repeatable", done, "FAIL", named(differing), _cut(details), tuple(differing))


def _equal(one: pl.DataFrame, other: pl.DataFrame, name: str) -> bool:
    return name in other.columns and numbers(one[name]).tobytes() == numbers(other[name]).tobytes()


def state_check(subject: Subject, fresh: Callable[[], FeatureBuilder]) -> Check:
    """Whether a function that has never seen the future gives the same: it is loaded anew and called with a part first.

    A function that keeps statistics of its first call shows the whole sample to every later one, which no change of
    later bars can reveal.

    Args:
        subject: the feature set.
        fresh: loads the function anew, with nothing kept.
    """
    half = subject.bars.head(max(2, subject.bars.height // 2))
    again, kept = called(fresh(), half), called(subject.build, half)
    moved, _ = _moved(kept, again, half.height)
    done = "module loaded anew, first called with half of the bars"
    if not moved:
        return Check(STAGE, "fresh start", done, "pass", f"{counted(len(subject.columns), 'column')} equal")
    details = [
        f"Feature {name!r} keeps something from call to call: at bar {row} ({subject.bars['ts'][row]}) it is "
        f"{kept[name][row]}, and {again[name][row] if name in again.columns else 'not given'} when the module "
        "is loaded anew and has seen no bar after the middle of the data."
        for name, row in moved.items()
    ]
    return Check(STAGE, "fresh start", done, "LEAK", named(list(moved)), _cut(details), tuple(moved))


def hole_check(subject: Subject) -> Check:
    """Whether every column is defined from its warm-up on."""
    details: dict[str, str] = {}
    for name in subject.columns:
        is_good = np.isfinite(numbers(subject.frame[name]).astype(np.float32))
        if not is_good.any():
            details[name] = f"Feature {name!r} is defined at no bar. Fill it in the function, or leave it out."
            continue
        first = int(np.argmax(is_good))
        if not is_good[first:].all():
            row = first + int(np.argmin(is_good[first:]))
            details[name] = (
                f"Feature {name!r} is {subject.frame[name][row]} at bar {row} ({subject.bars['ts'][row]}), after its "
                f"warm-up of {first} bars. A feature may be undefined only at the start; fill it in the function."
            )
    done = "looked for undefined values after the warm-up"
    if details:
        return Check(
            STAGE, "no holes", done, "FAIL", named(list(details)), _cut(list(details.values())), tuple(details)
        )
    warm = _first_whole_row(subject.frame)
    return Check(STAGE, "no holes", done, "pass", f"all defined from bar {warm:,} on")


def level_check(subject: Subject) -> Check:
    """Whether a column hangs on the level of the shadow prices, which says only where the data begin."""
    faults = anchor_faults(subject.bars, subject.build, subject.frame)
    done = "all shadow prices moved by a constant"
    if faults:
        return Check(STAGE, "level", done, "FAIL", named(list(faults)), _cut(list(faults.values())), tuple(faults))
    return Check(STAGE, "level", done, "pass", f"{counted(len(subject.columns), 'column')} unmoved")


def warm_up_check(subject: Subject) -> Check:
    """How much history each column needs before more of it changes nothing (a description, and no leak).

    The last rows of the data are computed with 1, 2 and 5 times a unit of history and with all of it.
    """
    size = subject.bars.height
    rows = min(_WARM_UP_ROWS, size // 10)
    unit = min(_WARM_UP_UNIT, (size - rows) // (2 * max(_WARM_UP_FACTORS)))
    if unit < _LEAST_UNIT or rows < 2:
        return Check(STAGE, "warm-up", "history shortened", "skipped", f"{size} bars are too few")
    whole = {name: numbers(subject.frame[name])[-rows:] for name in subject.columns}
    spread = {name: _spread(numbers(subject.frame[name])) for name in subject.columns}
    settled: dict[str, int] = {}
    for factor in _WARM_UP_FACTORS:
        try:
            short = called(subject.build, subject.bars.tail(rows + factor * unit))
        except DataError:
            continue  # too few bars for it
        for name in subject.columns:
            gap = np.abs(numbers(short[name])[-rows:] - whole[name])
            if name not in settled and np.all(gap <= _SETTLED * spread[name]):
                settled[name] = factor
    done = f"last {rows} bars with " + ", ".join(f"{factor * unit:,}" for factor in _WARM_UP_FACTORS) + " bars before"
    counts = [f"{list(settled.values()).count(factor)} at {factor}x" for factor in _WARM_UP_FACTORS]
    never = [name for name in subject.columns if name not in settled]
    found = "settled: " + ", ".join(counts)
    if not never:
        return Check(STAGE, "warm-up", done, "pass", found)
    longest = _WARM_UP_FACTORS[-1] * unit
    text = (
        f"{named(never, 20)}: still changed by history older than {longest:,} bars (by more than {_SETTLED:g} of the "
        "standard deviation). No leak, but live the column has to be fed as much history as it was trained with, and "
        "a column anchored at the start of the data drifts."
    )
    return Check(STAGE, "warm-up", done, "warning", f"{found}; not: {named(never)}", (text,), tuple(never))


def _spread(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.std()) if len(known) else 0.0


def feature_checks(subject: Subject) -> dict[str, Callable[[], Check]]:
    """The checks of every feature set, by name, in the order of their rows."""
    futures = {name: functools.partial(future_check, subject, name) for name in FUTURES}
    others = {"repeatable": repeat_check, "no holes": hole_check, "level": level_check, "warm-up": warm_up_check}
    return futures | {name: functools.partial(check, subject) for name, check in others.items()}
