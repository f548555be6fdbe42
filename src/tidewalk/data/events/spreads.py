"""The recorded bid-ask spread at the moment each bar opens.

The spread of a bar is that of the last two-sided quote at or before its start, within its session. A bar whose session
has shown no quote before it takes, if the bars are made of the same quotes, the first quote inside it; else the last
spread known from before; the bars before any quote take the first one there is. The last two are counted: they are
stand-ins, not records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import E9, BarTable
from tidewalk.data.calendar.sessions import session_columns
from tidewalk.data.checks.quality import Finding

NONE_NS = -(2**63)
WIDE_SHARE = 0.05
"""Share of the price that no spread of a traded future reaches."""
WARN_WIDE_SHARE = 0.01
"""Share of such spreads above which costs taken from them mean nothing."""


@dataclass(frozen=True)
class QuoteSlots:
    """For each of T moments, the last quote since the moment before it and the first one after it; filled in place.

    Attributes:
        at_ns: int64 [T] moments, never falling.
        last_ns: int64 [T] stamp of the last quote in (moment before, moment], `NONE_NS` for none.
        last_e9: int64 [T] its spread.
        next_ns: int64 [T] stamp of the first quote after the moment and not after the one that follows.
        next_e9: int64 [T] its spread.
    """

    at_ns: NDArray[np.int64]
    last_ns: NDArray[np.int64]
    last_e9: NDArray[np.int64]
    next_ns: NDArray[np.int64]
    next_e9: NDArray[np.int64]


def slots_for(table: BarTable) -> QuoteSlots:
    """Empty slots for the moments at which the bars of a table open.

    When an irregular bar began is not known: the bar before it was complete then, so that moment is taken.
    """
    at_ns = table.ts_ns if table.interval_ns is not None else np.append(table.ts_ns[:1], table.known_ns[:-1])
    none, zero = np.full(len(at_ns), NONE_NS), np.zeros(len(at_ns), np.int64)
    return QuoteSlots(at_ns, none, zero, none.copy(), zero.copy())


def put_quotes(slots: QuoteSlots, ts_ns: NDArray[np.int64], spread_e9: NDArray[np.int64]) -> None:
    """Let quotes (in any order of calls, each call in the order of time) take their slots."""
    if not len(ts_ns):
        return
    place = np.searchsorted(slots.at_ns, ts_ns, side="left")
    last = np.flatnonzero(np.diff(place, append=place[-1] + 1) != 0)
    last = last[place[last] < len(slots.at_ns)]
    later = last[ts_ns[last] >= slots.last_ns[place[last]]]
    slots.last_ns[place[later]], slots.last_e9[place[later]] = ts_ns[later], spread_e9[later]
    first = np.flatnonzero(np.diff(place, prepend=place[0] - 1) != 0)
    first = first[place[first] > 0]
    before = place[first] - 1
    sooner = (slots.next_ns[before] == NONE_NS) | (ts_ns[first] < slots.next_ns[before])
    first, before = first[sooner], before[sooner]
    slots.next_ns[before], slots.next_e9[before] = ts_ns[first], spread_e9[first]


@dataclass(frozen=True)
class Spreads:
    """Spread of every bar with where it is from: int64 [T], and counts of the bars that were given a stand-in."""

    spread_e9: NDArray[np.int64]
    num_carried: int
    num_from_later: int


def spreads_of(slots: QuoteSlots, known_ns: NDArray[np.int64], sessions: str, *, own_quotes: bool) -> Spreads | None:
    """Spread in force at every moment; None where no quote was put.

    Args:
        slots: with all quotes put.
        known_ns: int64 [T] end of each bar.
        sessions: session rule.
        own_quotes: whether the bars are made of these quotes, so that the first quote inside a bar is its open.
    """
    index = np.maximum.accumulate(np.where(slots.last_ns != NONE_NS, np.arange(len(slots.at_ns)), -1))
    found = index >= 0
    from_ns = np.where(found, slots.last_ns[index], 0)
    spread_e9 = np.where(found, slots.last_e9[index], 0)
    # A bar's start lies in its session; what is quoted exactly then may still belong to the session before.
    bar_day = session_columns(slots.at_ns, sessions).trade_day
    current = found & (session_columns(from_ns, sessions).trade_day == bar_day)
    if own_quotes:
        inside = ~current & (slots.next_ns != NONE_NS) & (slots.next_ns < known_ns)
        spread_e9[inside], found, current = slots.next_e9[inside], found | inside, current | inside
    if not found.any():
        return None
    first = int(np.flatnonzero(found)[0])
    spread_e9[:first] = spread_e9[first]
    return Spreads(spread_e9, int((~current[first:]).sum()), first)


def with_spreads(
    tables: Sequence[BarTable], spreads: Sequence[Spreads | None], tick_e9: int | None, source: str
) -> tuple[tuple[BarTable, ...], Finding]:
    """The tables with their spreads, and the finding that says how large and how well covered they are.

    Args:
        tables: bars.
        spreads: of each table, None where it had no quotes.
        tick_e9: smallest price step, None when not known.
        source: schema of the quotes.
    """
    joined = tuple(
        table if spread is None else replace(table, open_spread_e9=spread.spread_e9)
        for table, spread in zip(tables, spreads, strict=True)
    )
    known = [spread for spread in spreads if spread is not None]
    total = sum(len(table.ts_ns) for table in tables)
    with_any = sum(len(spread.spread_e9) for spread in known)
    carried, later = sum(spread.num_carried for spread in known), sum(spread.num_from_later for spread in known)
    own = with_any - carried - later
    if not known:
        text = f"{source} quotes are there, but none for the contracts in use: no recorded spread"
        return joined, Finding("spread", text, is_warning=True)
    median_e9 = float(np.median(np.concatenate([spread.spread_e9 for spread in known])))
    size = f"{median_e9 / tick_e9:g} ticks" if tick_e9 else f"{median_e9 / E9:g}"
    text = f"spread of {source} quotes joined: median {size}, in force at the start of {own} of {total} bars"
    if carried or later:
        text += f"; {carried} bars take the last one of an earlier session, {later} before any quote the first one"
    if with_any < total:
        text += f"; {total - with_any} bars are of contracts without quotes"
    wide = sum(
        int((spread.spread_e9 > WIDE_SHARE * np.abs(table.open_e9)).sum())
        for table, spread in zip(tables, spreads, strict=True)
        if spread is not None
    )
    is_wide = wide > WARN_WIDE_SHARE * with_any
    if is_wide:
        text += f"; {wide} spreads are wider than {WIDE_SHARE:.0%} of the price, as of quotes nobody meant to fill"
    return joined, Finding("spread", text, own, is_warning=is_wide or 2 * own < total)
