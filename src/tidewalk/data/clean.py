"""From raw rows to rows that can be bars: missing and impossible rows out, time order, no row twice.

Nothing is repaired. A row is kept as it is, dropped and counted, or the file is refused with the row that cannot be
trusted.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, ohlc_inconsistent
from tidewalk.data.rows import Rows, concat, iso, missing, prices, same_bar, take

MAX_BAD_SHARE = 0.01
"""Share of impossible rows above which the source, not the row, is taken to be wrong."""

HOUR_NS = 3_600 * E9


def describe(rows: Rows, index: int, names: Sequence[str]) -> str:
    """One row in words: file, row number, stamp, prices and volume."""
    quoted = " ".join(f"{name} {column[index] / E9:.9g}" for name, column in zip("OHLC", prices(rows), strict=True))
    where = f"{names[int(rows.file_id[index])]} row {int(rows.row[index])}"
    return f"{where} ({iso(int(rows.stamp_ns[index]))}, {quoted}, volume {rows.volume[index]:g})"


def drop_missing(parts: Sequence[Rows]) -> tuple[list[Rows], int]:
    """Rows that have all four prices, per part, and the number of rows left out."""
    gone = [missing(part) for part in parts]
    return [take(part, ~mask) for part, mask in zip(parts, gone, strict=True)], sum(int(mask.sum()) for mask in gone)


def drop_impossible(parts: Sequence[Rows], names: Sequence[str]) -> tuple[list[Rows], list[str]]:
    """Rows whose high and low enclose open and close, per part, with a note that counts the others.

    Raises:
        DataError: more than `MAX_BAD_SHARE` of all rows are impossible, or a volume is negative.
    """
    for part in parts:
        for index in np.flatnonzero(part.volume < 0)[:1]:
            raise DataError(f"{describe(part, int(index), names)}: negative volume. Correct or remove the row.")
    bad = [ohlc_inconsistent(*prices(part)) for part in parts]
    count, total = sum(int(mask.sum()) for mask in bad), sum(len(part.row) for part in parts)
    if count == 0:
        return list(parts), []
    part, mask = next((part, mask) for part, mask in zip(parts, bad, strict=True) if mask.any())
    example = describe(part, int(np.flatnonzero(mask)[0]), names)
    if count > MAX_BAD_SHARE * total:
        raise DataError(
            f"{example}: high and low do not enclose open and close, in {count} of {total} rows. Up to "
            f"{MAX_BAD_SHARE:.0%} of such rows are dropped; here the columns are misread or the file is damaged."
        )
    note = f"bars dropped because high and low do not enclose open and close: {count} of {total}, first {example}"
    return [take(part, ~mask) for part, mask in zip(parts, bad, strict=True)], [note]


def regular(rows: Rows, interval_ns: int, names: Sequence[str]) -> tuple[Rows, int, int]:
    """Rows of bars of equal length in time order, the duplicates dropped and the overlapping ones dropped.

    A repeated row is dropped. Two different rows for one stamp are refused: which is right is not ours to guess.

    Returns:
        rows, number of exact duplicates dropped, number of bars dropped that began before the last one was complete.

    Raises:
        DataError: conflicting rows.
    """
    rows = _sorted(rows)
    later = np.flatnonzero(np.diff(rows.stamp_ns) == 0) + 1
    same = same_bar(rows, later - 1, later)
    if not same.all():
        index = int(later[~same][0])
        raise DataError(
            f"two different bars for one moment: {describe(rows, index - 1, names)} and {describe(rows, index, names)}"
            f" ({int((~same).sum())} such pairs). Keep one source per period, or remove the wrong rows."
        )
    keep = np.ones(len(rows.row), np.bool_)
    keep[later] = False
    rows = take(rows, keep)
    kept = take(rows, _not_overlapping(rows.stamp_ns, interval_ns))
    return kept, len(later), len(rows.row) - len(kept.row)


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


def irregular(rows: Rows, names: Sequence[str]) -> tuple[Rows, int]:
    """Rows of tick, volume or dollar bars in time order, each stamp made later than the one before.

    Equal stamps are legitimate here: the order of the file is kept and a repeated stamp is moved by 1 ns. Rows are
    never taken for duplicates within one file; where two files overlap in time they must agree row by row.

    Returns:
        rows, number of rows dropped because another file has the same stretch.

    Raises:
        DataError: two files differ where they overlap.
    """
    parts = [take(rows, np.flatnonzero(rows.file_id == file_id)) for file_id in np.unique(rows.file_id)]
    parts = [_sorted(part) for part in parts]
    parts.sort(key=lambda part: (int(part.stamp_ns[0]), -int(part.stamp_ns[-1]), part.close_e9.tobytes()))
    merged = parts[0]
    for part in parts[1:]:
        merged = concat([merged, _continuation(merged, part, names)])
    dropped = len(rows.row) - len(merged.row)
    steps = np.arange(len(merged.row))
    nudged_ns = np.maximum.accumulate(merged.stamp_ns - steps) + steps
    return Rows(nudged_ns, *prices(merged), merged.volume, merged.instrument_id, merged.row, merged.file_id), dropped


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
            f"{here}. Keep one source per period."
        )
    return take(part, np.flatnonzero(part.stamp_ns > end_ns))
