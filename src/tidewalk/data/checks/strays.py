"""Prints that no trade can have made, told by the market having been elsewhere both before and after.

In closed hours these are such as an exchange's mock trading on a Saturday; a bar outside the scheduled hours is no
error by itself, for a calendar may not know of a session. In open hours they are misprints, such as a price without its
decimal point; those have to be much further off to be told from a market that fell and came back.
"""

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.calendar.sessions import session_columns
from tidewalk.data.rows import DAY_NS, Rows

FAR_SIGMAS = 12.0
"""Distance from the market, in standard deviations of the moves to be expected in the time between, from which a print
is no trade. The widest real opening after a week-end in the index futures was below half of it."""
NEIGHBOURS = 500
"""Bars on either side from which the size of a usual move is taken."""
CLOSED_DAY_SHARE = 0.05
"""Share of all bars below which a day of the week counts as closed, where no calendar is known. A market open every
day has a seventh of its bars on each."""

MISPRINT_SHARE, DAILY_MISPRINT_SHARE = 0.2, 0.5
"""Share of the price, for bars shorter than a day and for others, by which a misprint is off. The index futures came
back by 5 % within minutes in May 2010; crude oil by more than its price, in days, in April 2020."""
MAX_RUN = 3
"""Most bars in a row taken for misprints; a market may really go elsewhere and come back, but not at once."""


def stray_prints(rows: Rows, interval_ns: int | None, rule: str) -> NDArray[np.bool_]:
    """Which bars are prints of closed hours far from the bars before and after, bool [N].

    Args:
        rows: bars in time order, stamped at their start.
        interval_ns: bar length; of irregular bars none is called stray.
        rule: session rule of the product; under "utc-day" the week-end is told from the data.
    """
    stray = np.zeros(len(rows.row), np.bool_)
    if interval_ns is None or len(rows.row) < 3:
        return stray
    is_outside = _outside(rows.stamp_ns, rule)
    inside = np.flatnonzero(~is_outside)
    if len(inside) < 3 or len(inside) == len(stray):
        return stray
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_outside, [False]]).astype(np.int8)))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        stray[start:stop] = _is_far(rows, inside, start, stop, interval_ns)
    return stray


def _outside(stamp_ns: NDArray[np.int64], rule: str) -> NDArray[np.bool_]:
    if rule != "utc-day":
        return session_columns(stamp_ns, rule).is_outside
    weekday = (stamp_ns // DAY_NS + 3) % 7  # 1970-01-01 was a Thursday
    share = np.bincount(weekday, minlength=7) / len(stamp_ns)
    is_closed = (share < CLOSED_DAY_SHARE) & (np.arange(7) >= 5)
    return is_closed[weekday]


def _is_far(rows: Rows, inside: NDArray[np.int64], start: int, stop: int, interval_ns: int) -> NDArray[np.bool_]:
    """Which of the bars [start, stop), all outside, are far from the last bar inside before and the first one after.

    At the end of the data there is nothing after to compare with, and a print is kept.
    """
    at = int(np.searchsorted(inside, start))
    if at == 0 or at == len(inside):
        return np.zeros(stop - start, np.bool_)
    before, after = int(inside[at - 1]), int(inside[at])
    sigma_e9 = _usual_move_e9(rows, inside[max(0, at - NEIGHBOURS) : at + NEIGHBOURS], interval_ns)
    if sigma_e9 == 0:
        return np.zeros(stop - start, np.bool_)
    own = slice(start, stop)
    low_e9, high_e9 = rows.low_e9[own], rows.high_e9[own]
    is_far = np.ones(stop - start, np.bool_)
    for market_e9, market_ns in (
        (rows.close_e9[before], rows.stamp_ns[before]),
        (rows.open_e9[after], rows.stamp_ns[after]),
    ):
        distance_e9 = np.maximum(low_e9 - market_e9, market_e9 - high_e9).astype(np.float64)
        bars_between = np.maximum(np.abs(rows.stamp_ns[own] - market_ns) / interval_ns, 1.0)
        is_far &= distance_e9 > FAR_SIGMAS * sigma_e9 * np.sqrt(bars_between)
    return is_far


def _usual_move_e9(rows: Rows, around: NDArray[np.int64], interval_ns: int) -> float:
    """Standard deviation of the moves of one bar's length, from those inside bars and those from bar to bar."""
    inside_e9 = np.abs(rows.close_e9[around] - rows.open_e9[around]).astype(np.float64)
    bars_between = np.maximum(np.diff(rows.stamp_ns[around]) / interval_ns, 1.0)
    between_e9 = np.abs(np.diff(rows.close_e9[around])) / np.sqrt(bars_between)
    return max(_sigma(inside_e9), _sigma(between_e9))


def _sigma(sizes: NDArray[np.float64]) -> float:
    """Standard deviation of a normal variable from the mean of its absolute values."""
    return float(np.mean(sizes)) * 1.2533 if len(sizes) else 0.0


def misprints(rows: Rows, interval_ns: int | None) -> NDArray[np.bool_]:
    """Which bars have a price far above or far below both the bar before and the bar after, bool [N].

    Also up to `MAX_RUN` bars in a row that are so from the bars around them.

    Args:
        rows: bars in time order.
        interval_ns: bar length, None for irregular bars.
    """
    found = np.zeros(len(rows.row), np.bool_)
    if len(found) < 3:
        return found
    share = DAILY_MISPRINT_SHARE if (interval_ns or 0) >= DAY_NS else MISPRINT_SHARE
    # Where prices cross zero, a share of the price is nothing: that of a large price takes its place.
    least_e9 = 0.0 if int(rows.low_e9.min()) > 0 else float(np.quantile(np.abs(rows.close_e9), 0.9))
    before_e9 = rows.close_e9[:-1]
    jump_e9 = np.maximum(rows.high_e9[1:] - before_e9, before_e9 - rows.low_e9[1:])
    jumps = np.flatnonzero(jump_e9 > share * np.maximum(np.abs(before_e9), least_e9)) + 1
    for length in range(1, MAX_RUN + 1):
        first = jumps[jumps + length < len(found)]
        run = first[:, None] + np.arange(length)
        around_e9 = np.stack([rows.close_e9[first - 1], rows.open_e9[first + length]])
        # Of one bar the extremes tell, of several the whole of each: else the way to a true extreme would count.
        top_e9 = rows.high_e9[first] if length == 1 else rows.low_e9[run].min(axis=1)
        bottom_e9 = rows.low_e9[first] if length == 1 else rows.high_e9[run].max(axis=1)
        off_e9 = np.maximum(top_e9 - around_e9.max(axis=0), around_e9.min(axis=0) - bottom_e9)
        found[run[off_e9 > share * np.maximum(np.abs(around_e9).min(axis=0), least_e9)]] = True
    return found
