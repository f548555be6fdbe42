"""From raw rows to rows that can be bars: missing and impossible rows out, time order, no row twice.

Nothing is repaired: a high and low that do not fit are not widened, and no price is carried into a row that lacks one.
A row is kept as it is, dropped and counted, or the file is refused with the row that cannot be trusted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, ohlc_inconsistent
from tidewalk.data.checks.quality import Finding
from tidewalk.data.rows import Rows, concat, incomplete, is_absent, iso, missing, prices, same_bar, take

WARN_MISSING_SHARE = 0.01
MAX_MISSING_SHARE = 0.2
"""Share of rows without prices above which a contract is refused: a vendor leaves out what did not trade, so that many
empty rows are a column misread or a file half written."""
FEWEST_MISSING = 20
"""Number of rows without prices below which no share says anything: a back month may have three rows in all."""

FEW_CONFLICTS = 20
"""Conflicting rows up to which they may be a vendor's corrections; more, and a tenth of all, they are not."""

MAX_VOLUME = 1e17
"""Largest volume of a bar believed: coins of a millionth of a cent trade less, the sentinels of vendors lie above."""

HOUR_NS = 3_600 * E9


@dataclass(frozen=True)
class Handling:
    """What to do with rows that cannot be right: the flags of the same names."""

    on_bad_bar: Literal["refuse", "drop"] = "refuse"
    on_conflict: Literal["refuse", "later"] = "refuse"


@dataclass(frozen=True)
class Ordered:
    """Rows of one contract in time order, no moment twice, and how many were left out on the way.

    Attributes:
        rows: the rows left.
        num_repeated: rows that were there already in the same file.
        num_shared: rows that another file has too.
        num_overlapping: bars that began before the one before them was complete.
        num_conflicting: rows given up for a later one of the same moment.
        example: the first conflict in words, "" where there is none.
    """

    rows: Rows
    num_repeated: int = 0
    num_shared: int = 0
    num_overlapping: int = 0
    num_conflicting: int = 0
    example: str = ""


def describe(rows: Rows, index: int, names: Sequence[str]) -> str:
    """One row in words: file, row number, stamp, prices and volume; a missing price is a dash."""
    values = [(name, column[index : index + 1]) for name, column in zip("OHLC", prices(rows), strict=True)]
    quoted = " ".join(f"{name} {'-' if is_absent(value)[0] else f'{value[0] / E9:.9g}'}" for name, value in values)
    where = f"{names[int(rows.file_id[index])]} row {int(rows.row[index])}"
    return f"{where} ({iso(int(rows.stamp_ns[index]))}, {quoted}, volume {rows.volume[index]:g})"


def drop_missing(
    parts: Sequence[Rows], contracts: Sequence[str], names: Sequence[str]
) -> tuple[list[Rows], list[Finding]]:
    """Rows that have a price, per part, with a finding that counts those that have none.

    Args:
        parts: rows of each contract.
        contracts: names of the contracts.
        names: file names, by file id.

    Raises:
        DataError: more than `MAX_MISSING_SHARE` of the rows of one contract have no price.
    """
    gone = [missing(part) for part in parts]
    for contract, part, mask in zip(contracts, parts, gone, strict=True):
        count = int(mask.sum())
        if count >= FEWEST_MISSING and count > MAX_MISSING_SHARE * len(mask):
            example = describe(part, int(np.flatnonzero(mask)[0]), names)
            raise DataError(
                f"{contract}: {count} of {len(mask)} rows have no price, the first is {example}. Up to "
                f"{MAX_MISSING_SHARE:.0%} are left out as minutes without a trade; here a column is misread or the "
                "file is damaged. Get it again, or remove those rows."
            )
    count, total = sum(int(mask.sum()) for mask in gone), sum(map(len, gone))
    if not count:
        return list(parts), []
    part, mask = next((part, mask) for part, mask in zip(parts, gone, strict=True) if mask.any())
    example = describe(part, int(np.flatnonzero(mask)[0]), names)
    text = f"rows without a price left out: {count} of {total}, first {example}"
    finding = Finding("missing-price", text, count, is_warning=count > WARN_MISSING_SHARE * total)
    return [take(part, ~mask) for part, mask in zip(parts, gone, strict=True)], [finding]


def drop_impossible(
    parts: Sequence[Rows], names: Sequence[str], handling: Handling, *, only_positive: bool
) -> tuple[list[Rows], list[Finding]]:
    """Rows that can be bars, per part, with a finding for each kind of row left out.

    Args:
        parts: rows of each contract, none of them without any price.
        names: file names, by file id.
        handling: whether a row that cannot be a bar is refused or left out.
        only_positive: whether the price of the product is always above zero.

    Raises:
        DataError: a row cannot be a bar and such rows are to be refused.
    """
    kinds: list[tuple[str, str, Callable[[Rows], NDArray[np.bool_]]]] = [
        ("impossible-bar", "a price is missing", incomplete),
        ("impossible-bar", "high and low do not enclose open and close", lambda rows: ohlc_inconsistent(*prices(rows))),
        ("impossible-bar", "volume is below zero", lambda rows: rows.volume < 0),
        ("impossible-bar", "volume is more than any market trades", lambda rows: rows.volume > MAX_VOLUME),
    ]
    if only_positive:
        at_zero = "a price is zero or less, which this product never traded at (bad data, or adjusted prices)"
        kinds.append(("price-at-or-below-zero", at_zero, lambda rows: rows.low_e9 <= 0))
    kept, findings = list(parts), list[Finding]()
    for defect, what, is_bad in kinds:
        bad = [is_bad(part) for part in kept]
        count, total = sum(int(mask.sum()) for mask in bad), sum(len(part.row) for part in parts)
        if not count:
            continue
        part, mask = next((part, mask) for part, mask in zip(kept, bad, strict=True) if mask.any())
        example = describe(part, int(np.flatnonzero(mask)[0]), names)
        if handling.on_bad_bar == "refuse":
            raise DataError(
                f"{example}: {what}, in {count} of {total} rows. Correct or remove them, or leave them out with "
                "--on-bad-bar drop."
            )
        text = f"bars left out because {what}: {count} of {total}, first {example}"
        findings.append(Finding(defect, text, count, is_warning=True))
        kept = [take(part, ~mask) for part, mask in zip(kept, bad, strict=True)]
    return kept, findings


def regular(
    rows: Rows, interval_ns: int, names: Sequence[str], handling: Handling, file_end_ns: Sequence[int]
) -> Ordered:
    """Bars of equal length in time order, the repeated and the overlapping ones left out.

    Two different bars for one moment are refused, which is right is not ours to guess. Where the user said so the one
    of the file that reaches further in time is kept, and inside one file the one further down.

    Args:
        rows: rows of one contract.
        interval_ns: bar length.
        names: file names, by file id.
        handling: what to do with conflicting rows.
        file_end_ns: last stamp of each file, by file id.

    Raises:
        DataError: conflicting rows that are to be refused, or of two files that end at the same moment.
    """
    rows = _sorted(rows)
    later = np.flatnonzero(np.diff(rows.stamp_ns) == 0) + 1
    differs = later[~same_bar(rows, later - 1, later)]
    example, num_conflicting = "", 0
    if len(differs):
        index = int(differs[0])
        example = f"{describe(rows, index - 1, names)} and {describe(rows, index, names)}"
        if handling.on_conflict == "refuse":
            remedy = "Keep one source per period, or keep the later file's bar with --on-conflict later."
            if len(differs) > max(FEW_CONFLICTS, len(rows.row) // 10):
                remedy = (
                    "So many are no corrections: the rows are of two instruments, or their stamps are misread (a clock "
                    "of 12 hours without AM or PM, a date without its time)."
                )
            raise DataError(f"two different bars for one moment: {example} ({len(differs)} such pairs). {remedy}")
        count = len(rows.row)
        rows = _latest(rows, np.unique(rows.stamp_ns[differs]), names, np.asarray(file_end_ns))
        num_conflicting = count - len(rows.row)
    later = np.flatnonzero(np.diff(rows.stamp_ns) == 0) + 1
    num_shared = int((rows.file_id[later] != rows.file_id[later - 1]).sum())
    keep = np.ones(len(rows.row), np.bool_)
    keep[later] = False
    rows = take(rows, keep)
    kept = take(rows, _not_overlapping(rows.stamp_ns, interval_ns))
    num_overlapping = len(rows.row) - len(kept.row)
    return Ordered(kept, len(later) - num_shared, num_shared, num_overlapping, num_conflicting, example)


def _latest(rows: Rows, stamps_ns: NDArray[np.int64], names: Sequence[str], file_end_ns: NDArray[np.int64]) -> Rows:
    """Rows in time order, at each of these stamps only the one of the file that reaches furthest."""
    at = np.flatnonzero(np.isin(rows.stamp_ns, stamps_ns))
    rank = np.lexsort((rows.row[at], file_end_ns[rows.file_id[at]], rows.stamp_ns[at]))
    at = at[rank]
    is_last = np.append(rows.stamp_ns[at][1:] != rows.stamp_ns[at][:-1], True)
    chosen = at[is_last]
    winner = np.repeat(chosen, np.diff(np.flatnonzero(np.concatenate([[True], is_last]))))
    is_tie = (rows.file_id[at] != rows.file_id[winner]) & ~same_bar(rows, at, winner)
    is_tie &= file_end_ns[rows.file_id[at]] == file_end_ns[rows.file_id[winner]]
    for loser in np.flatnonzero(is_tie)[:1]:
        one, two = describe(rows, int(at[loser]), names), describe(rows, int(winner[loser]), names)
        raise DataError(
            f"two different bars for one moment: {one} and {two}. Both files end at the same moment, so that "
            "--on-conflict later does not say which is right. Remove one of them."
        )
    keep = np.ones(len(rows.row), np.bool_)
    keep[at[~is_last]] = False
    return take(rows, keep)


def _sorted(rows: Rows) -> Rows:
    """Rows in time order, rows of one stamp in the order given."""
    in_order = (np.diff(rows.stamp_ns) >= 0).all()
    return rows if in_order else take(rows, np.argsort(rows.stamp_ns, kind="stable"))


def shortest_step_ns(interval_ns: int) -> int:
    """Least distance of two bars of this length: long bars cut at local time lose an hour on a day clocks change."""
    return interval_ns - HOUR_NS if interval_ns > 2 * HOUR_NS else interval_ns


def _not_overlapping(stamp_ns: NDArray[np.int64], interval_ns: int) -> NDArray[np.bool_]:
    """Mask of bars that begin no earlier than the last kept one ends."""
    keep = np.ones(len(stamp_ns), np.bool_)
    least_ns = shortest_step_ns(interval_ns)
    if len(stamp_ns) < 2 or int(np.diff(stamp_ns).min()) >= least_ns:
        return keep
    last_ns = int(stamp_ns[0])
    for index, now_ns in enumerate(stamp_ns[1:].tolist(), start=1):
        keep[index] = now_ns - last_ns >= least_ns
        last_ns = now_ns if keep[index] else last_ns
    return keep


def irregular(rows: Rows, names: Sequence[str]) -> Ordered:
    """Tick, volume or dollar bars in time order, each stamp made later than the one before.

    Equal stamps are legitimate here: the order of the file is kept and a repeated stamp is moved by 1 ns. Rows are
    never taken for duplicates within one file; where two files overlap in time they must agree row by row.

    Raises:
        DataError: two files differ where they overlap.
    """
    parts = [take(rows, np.flatnonzero(rows.file_id == file_id)) for file_id in np.unique(rows.file_id)]
    parts = [_sorted(part) for part in parts]
    parts.sort(key=lambda part: (int(part.stamp_ns[0]), -int(part.stamp_ns[-1]), part.close_e9.tobytes()))
    merged = parts[0]
    for part in parts[1:]:
        merged = concat([merged, _continuation(merged, part, names)])
    num_shared = len(rows.row) - len(merged.row)
    steps = np.arange(len(merged.row))
    nudged_ns = np.maximum.accumulate(merged.stamp_ns - steps) + steps
    nudged = Rows(nudged_ns, *prices(merged), merged.volume, merged.instrument_id, merged.row, merged.file_id)
    return Ordered(nudged, num_shared=num_shared)


def _continuation(merged: Rows, part: Rows, names: Sequence[str]) -> Rows:
    """Rows of `part` after the last stamp of `merged`; the rows before it must repeat those of `merged`."""
    start_ns, end_ns = part.stamp_ns[0], min(part.stamp_ns[-1], merged.stamp_ns[-1])
    known = take(merged, np.flatnonzero((merged.stamp_ns >= start_ns) & (merged.stamp_ns <= end_ns)))
    again = take(part, np.flatnonzero(part.stamp_ns <= end_ns))
    both = concat([known, again])
    shared = min(len(known.row), len(again.row))
    first = np.arange(shared)
    differs = np.flatnonzero(~same_bar(both, first, first + len(known.row)))
    if len(differs) or len(known.row) != len(again.row):
        at = int(differs[0]) if len(differs) else shared
        here = describe(known if at < len(known.row) else again, at, names)
        raise DataError(
            f"{names[int(part.file_id[0])]} and {names[int(merged.file_id[0])]} overlap in time and differ, first at "
            f"{here}. Keep one source per period (--on-conflict later is for bars of equal length)."
        )
    return take(part, np.flatnonzero(part.stamp_ns > end_ns))
