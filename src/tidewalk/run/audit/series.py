"""Checks of the way from bars to fills: which contract is front, and at which price a decision is filled and marked."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.market import prepare
from tidewalk.market.features import bars_frame
from tidewalk.market.prepare import Front, SeriesConfig
from tidewalk.run.audit import poison
from tidewalk.run.audit.checks import Check
from tidewalk.run.audit.moments import Cut, cuts

BARS, FILLS = "bars", "fills"
_INT32 = 2**31 - 1
_ARRAYS = (
    *(f"{name}_e9" for name in ("open", "high", "low", "close", "close_prev", "exit_open")),
    *("ts_ns", "known_ns", "volume", "contract_id", "trade_day", "minute_of_session", "minutes_to_close"),
)
"""What feature functions and the environment see of a bar, or is made of it."""
MARKED_LATE = 2
"""Decisions whose mark lies after the moment: the fill of the one before it, and its own."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Bars of all contracts, and the tradable series that is made of them."""

    loaded: Loaded
    config: SeriesConfig
    front: Front

    @property
    def series(self) -> FrontSeries:
        """The front contract."""
        return self.front.series


def source_of(loaded: Loaded, config: SeriesConfig) -> Source:
    """Choose the front contract of loaded bars, as `train` does.

    Raises:
        DataError, ConfigError: as `market.prepare.front_of`.
    """
    return Source(loaded, config, prepare.front_of(loaded, config))


def with_series(front: Front, series: FrontSeries) -> Front:
    """A front with other prices, and the moves that follow from them."""
    return dataclasses.replace(front, series=series, move_ticks=prepare.moves(series, front.spec)[0])


def safe_shift_e9(source: Source) -> int:
    """A change of price as large as the price type and the accounting in int32 ticks allow."""
    reach = int(np.abs(source.front.move_ticks.astype(np.int64)).sum())
    return poison.largest_shift_e9(source.loaded, source.front.spec.tick_e9, (_INT32 - 2 * reach) // 4)


# ---- the front contract


def front_check(source: Source, count: int, seed: int) -> Check:
    """Whether contract, prices, session and moves up to a bar hang on bars of any contract after it.

    Args:
        source: the bars.
        count: number of moments; every kind of row in turn, rolls and the session before them among these.
        seed: of their draw.
    """
    frame = bars_frame(source.series)
    moments = cuts(frame, count, seed)
    stamps = np.unique(np.concatenate([table.ts_ns for table in source.loaded.tables]))
    for cut in moments:
        for fate, other in _futures(source, cut, stamps, seed):
            text = _first_change(source, other, cut.row)
            if text is not None:
                when = frame["ts"][cut.row]
                detail = f"With the bars of all contracts from {when} on {fate} ({cut.kind}), {text}."
                return Check(BARS, "future", _done(moments), "LEAK", "the past of the front contract", (detail,))
    found = f"{len(source.series.rolls)} rolls, {len(source.series.ts_ns):,} bars: equal to the bit"
    return Check(BARS, "future", _done(moments), "pass", found)


def _done(moments: tuple[Cut, ...]) -> str:
    return f"{len(moments)} cuts, bars of all contracts cut off, huge, of another market"


def _futures(source: Source, cut: Cut, stamps: np.ndarray, seed: int) -> Iterator[tuple[str, Front]]:
    """The series with other bars from a row on, in all contracts; what cannot be traded at all is left out."""
    moment_ns = int(source.series.ts_ns[cut.row - 1]) + 1
    tick_e9, loaded = source.front.spec.tick_e9, source.loaded
    walk_e9 = poison.random_walk_e9(len(stamps), tick_e9, seed + cut.row)
    walk_e9 = walk_e9 - walk_e9[min(int(np.searchsorted(stamps, moment_ns)), len(stamps) - 1)]
    shift_e9 = safe_shift_e9(source)
    futures: dict[str, Callable[[], Loaded]] = {
        "cut off": lambda: poison.without_future(loaded, moment_ns),
        "huge": lambda: poison.with_shift(loaded, moment_ns, lambda ts: np.full(len(ts), shift_e9), seed),
        "those of another market": lambda: poison.with_shift(
            loaded, moment_ns, lambda ts: walk_e9[np.searchsorted(stamps, ts)], seed + 1
        ),
    }
    for fate, change in futures.items():
        if fate == "cut off" and cut.row < 3:
            continue  # fewer than three bars make no market
        yield fate, prepare.front_of(change(), source.config)


def _first_change(source: Source, other: Front, row: int) -> str | None:
    """What differs before a row, or None."""
    once, twice = source.series, other.series
    if len(twice.ts_ns) < row:
        return f"{len(twice.ts_ns)} of {row} bars are left"
    for name in _ARRAYS:
        if not np.array_equal(getattr(once, name)[:row], getattr(twice, name)[:row]):
            return f"{name.removesuffix('_e9')} changes in a bar before it"
    used = int(once.contract_id[row - 1]) + 1
    if once.contracts[:used] != twice.contracts[:used] or once.expiry_day[:used] != twice.expiry_day[:used]:
        return "another contract is front before it"
    marked = max(row - MARKED_LATE, 0)
    if not np.array_equal(source.front.move_ticks[:marked], other.move_ticks[:marked]):
        bar = int(np.argmax(source.front.move_ticks[:marked] != other.move_ticks[:marked]))
        return f"the move of the decision of bar {bar} changes, which is marked before"
    rule = source.front.spec.sessions
    left, right = (prepare.flags(front.series, rule, front.breaks)[:marked] for front in (source.front, other))
    if not np.array_equal(left, right):
        return f"the flags of bar {int(np.argmax(left != right))} change"
    return None


# ---- fills


def order_check(source: Source) -> Check:
    """Whether each bar is complete before the next one opens, where its decision fills."""
    series = source.series
    late = np.flatnonzero(series.known_ns[:-1] > series.ts_ns[1:])
    done = "each bar's completion against the next bar's open"
    if not late.size:
        return Check(FILLS, "order", done, "pass", f"all {len(series.ts_ns) - 1:,} come after it")
    row = int(late[0])
    known, opens = (np.datetime64(int(stamp), "ns") for stamp in (series.known_ns[row], series.ts_ns[row + 1]))
    text = (
        f"Bar {row} is complete at {known}Z, and its decision would fill at {opens}Z, before that ({late.size:,} such "
        "bars). Are the bars as long as their files say, and is --bar-label right?"
    )
    return Check(FILLS, "order", done, "LEAK", f"{late.size:,} fills too early", (text,))


def price_check(source: Source) -> Check:
    """Whether every move is the open at which the next decision fills less the open at which this one does.

    Both are looked up anew in the bars of the contract held; at a roll the old contract is left at its own price.
    """
    done = "every move against the opens of the contract held"
    filled, marked, is_known = _looked_up(source)
    tick_e9 = source.front.spec.tick_e9
    ticks = (2 * marked + tick_e9) // (2 * tick_e9) - (2 * filled + tick_e9) // (2 * tick_e9)
    rows = np.flatnonzero(is_known & (ticks != source.front.move_ticks[: len(ticks)]))
    if not rows.size:
        found = f"{int(is_known.sum()):,} decisions fill at the next open"
        rest = int((~is_known).sum())
        return Check(FILLS, "prices", done, "pass", found + (f", {rest} marked at a last price" if rest else ""))
    row = int(rows[0])
    text = (
        f"The decision of bar {row} ({np.datetime64(int(source.series.ts_ns[row]), 'ns')}Z) has a move of "
        f"{source.front.move_ticks[row]} ticks; from the next open to the one after it are {ticks[row]} "
        f"({rows.size:,} such decisions). It would fill at a price known before it, or one that nobody traded at."
    )
    return Check(FILLS, "prices", done, "LEAK", f"{rows.size:,} decisions at other prices", (text,))


def _looked_up(source: Source) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Price of the fill and of the mark of decisions `[T-2]`, and where both are opens of the contract held."""
    series, size = source.series, len(source.series.ts_ns) - 2
    filled, marked = series.open_e9[1:-1].copy(), series.exit_open_e9[2:].copy()
    is_known = np.zeros(size, bool)
    tables = {table.contract: table for table in source.loaded.tables}
    held = series.contract_id[1:-1]
    for number, contract in enumerate(series.contracts):
        rows = np.flatnonzero(held == number)
        table = tables.get(contract)
        if table is None or not rows.size:
            continue
        opens = [_open_at(table, series.ts_ns[rows + ahead]) for ahead in (1, 2)]
        has_both = opens[0][1] & opens[1][1]
        filled[rows[has_both]], marked[rows[has_both]] = (open_[has_both] for open_, _ in opens)
        is_known[rows] = has_both
    is_known &= ~source.front.breaks[2:]  # left at the last close there: a roll may hide
    return filled, marked, is_known


def _open_at(table: BarTable, ts_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Open of the bars that start at given times, and whether there is one."""
    place = np.minimum(np.searchsorted(table.ts_ns, ts_ns), len(table.ts_ns) - 1)
    return table.open_e9[place], table.ts_ns[place] == ts_ns


def past_check(source: Source, count: int, seed: int) -> Check:
    """Whether what a decision earns hangs on a price known when it is taken: bars up to it are moved far away."""
    moments = cuts(bars_frame(source.series), count, seed)
    shift_e9 = safe_shift_e9(source)
    done = f"{len(moments)} cuts, all prices up to the decision moved"
    for cut in moments:
        bar = cut.row - 1
        try:
            other = with_series(source.front, poison.shifted_series(source.series, 0, cut.row, shift_e9))
        except DataError:
            continue
        rows = np.flatnonzero(other.move_ticks[bar:] != source.front.move_ticks[bar:])
        if rows.size:
            row = bar + int(rows[0])
            text = (
                f"With other prices up to bar {bar} ({cut.kind}) the decision of bar {row} earns "
                f"{other.move_ticks[row]} ticks a lot instead of {source.front.move_ticks[row]}: it fills or is marked "
                "at a price that was known when it was taken."
            )
            return Check(FILLS, "past prices", done, "LEAK", "fills at known prices", (text,))
    return Check(FILLS, "past prices", done, "pass", "moves from the decision on unchanged")


def mark_check(source: Source, count: int, seed: int) -> Check:
    """Whether a decision is marked at the fill of the next one: bars after its mark are moved far away."""
    moments = cuts(bars_frame(source.series), count, seed + 1)
    shift_e9, size = safe_shift_e9(source), len(source.series.ts_ns)
    done = f"{len(moments)} cuts, all prices after a mark moved"
    for cut in moments:
        other = with_series(source.front, poison.shifted_series(source.series, cut.row, size, shift_e9))
        marked = max(cut.row - MARKED_LATE, 0)
        if not np.array_equal(other.move_ticks[:marked], source.front.move_ticks[:marked]):
            row = int(np.argmax(other.move_ticks[:marked] != source.front.move_ticks[:marked]))
            text = f"The decision of bar {row} is marked at a price of bar {cut.row} or later ({cut.kind})."
            return Check(FILLS, "marks", done, "LEAK", "marked too late", (text,))
    return Check(FILLS, "marks", done, "pass", "moves up to the mark unchanged")
