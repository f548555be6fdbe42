"""Where the future is cut off: rows at which a leak would have something to gain from what comes next.

A leak may show only at the end of a session or before a roll, so cuts are drawn from each kind of row in turn.
"""

import dataclasses

import numpy as np
import polars as pl

_HOUR_NS = 3_600_000_000_000
_GAP_FACTOR = 1.5


@dataclasses.dataclass(frozen=True)
class Cut:
    """A moment: rows before `row` have happened, those from it on have not."""

    row: int
    kind: str


def cuts(bars: pl.DataFrame, count: int, seed: int) -> tuple[Cut, ...]:
    """Rows at which to end the past, of each kind in turn, none twice.

    Args:
        bars: bars as feature functions get them.
        count: how many are wanted; fewer where the bars are few.
        seed: of the draw.

    Returns:
        In order of drawing; all lie within `[2, bars)`.
    """
    rng, size = np.random.default_rng(seed), bars.height
    pools = {kind: rng.permutation(rows[(rows >= 2) & (rows < size)]) for kind, rows in _kinds(bars).items()}
    found: dict[int, str] = {}
    depth = 0
    while len(found) < count and any(len(rows) > depth for rows in pools.values()):
        for kind, rows in pools.items():
            if len(rows) > depth and len(found) < count:
                found.setdefault(int(rows[depth]), kind)
        depth += 1
    return tuple(Cut(row, kind) for row, kind in found.items())


def odd_cuts(frame: pl.DataFrame, count: int, seed: int) -> tuple[Cut, ...]:
    """Cuts right after rows at which a column is not what it usually is, column by column in turn, none twice.

    A leak that shows on few bars (before large moves after eight rises, at one minute of the hour, on the last day of a
    month) is met by no cut that knows only the bars; the column itself tells where it does something.

    Args:
        frame: columns of a feature set for all bars.
        count: how many are wanted; fewer where the columns do nothing.
        seed: of the draw.

    Returns:
        In order of drawing, the columns that have a usual value first, then the others; all lie within `[2, rows)`.
    """
    rng, size = np.random.default_rng(seed), frame.height
    odd = {name: _odd_rows(frame[name].cast(pl.Float64).to_numpy()) for name in frame.columns}
    order = sorted(odd, key=lambda name: (not odd[name][1], len(odd[name][0])))
    drawn = {name: rng.permutation(odd[name][0])[:count] + 1 for name in order}
    found: dict[int, str] = {}
    for depth in range(max(map(len, drawn.values()), default=0)):
        for name, rows in drawn.items():
            if len(rows) > depth and 2 <= rows[depth] < size and len(found) < count:
                found.setdefault(int(rows[depth]), f"where {name} is unusual")
    return tuple(Cut(row, kind) for row, kind in found.items())


def _odd_rows(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Rows at which a column is not at its usual value or, where it has none, farthest from its middle; has it one?"""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return known, True
    distance = np.abs(values[known] - np.median(values[known]))
    odd = known[distance > 0]
    if 2 * len(odd) < len(known):
        return odd, True
    return known[np.argsort(-distance, kind="stable")[: max(1, len(known) // 200)]], False


def _kinds(bars: pl.DataFrame) -> dict[str, np.ndarray]:
    """First rows of the unknown, by what is special about them."""
    size = bars.height
    ts_ns = bars["ts"].to_physical().to_numpy()
    known_ns = bars["known_at"].to_physical().to_numpy()
    session, contract = bars["session"].to_physical().to_numpy(), bars["contract"].rank("dense").to_numpy()
    opens = np.flatnonzero(np.diff(session) != 0) + 1
    rolls = np.flatnonzero(np.diff(contract) != 0) + 1
    hours = np.flatnonzero(np.diff(ts_ns // _HOUR_NS) != 0) + 1
    wait_ns = np.diff(ts_ns)
    usual_ns = float(np.median(wait_ns)) if len(wait_ns) else 0.0
    inside = np.setdiff1d(np.flatnonzero(wait_ns > _GAP_FACTOR * usual_ns) + 1, opens)
    move = np.abs(bars["close"].to_numpy() - bars["close_prev"].to_numpy())
    largest = np.argsort(-move, kind="stable")[: max(1, size // 500)]
    still = np.flatnonzero((bars["volume"].to_numpy() <= 0) | (bars["high"].to_numpy() == bars["low"].to_numpy()))
    kinds = {
        "inside a session": np.arange(size),
        "session end": opens,
        "before a roll": rolls,
        "first bar of a session": opens + 1,
        "last bar of a session": opens - 1,
        "after a roll": rolls + 1,
        "hour end": hours,
        "first bar of an hour": hours + 1,
        "last bar of an hour": hours - 1,
        "before a large move": largest,
        "before a hole": inside,
        "at a bar without trade or range": np.concatenate([still, still + 1]),
        "end of the data": np.arange(max(size - 3, 0), size),
        "before a bar known late": np.flatnonzero(known_ns[:-1] > ts_ns[1:]) + 1,
    }
    return {kind: rows for kind, rows in kinds.items() if len(rows)}
