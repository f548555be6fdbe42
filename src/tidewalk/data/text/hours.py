"""What the hours of the bars say about their time zone and about the end of the bar that is stamped.

Futures on American exchanges stop from 16:00 to 17:00 in Chicago, and those on shares become busy when shares open at
08:30. The zone in which bars show this is, in all likelihood, the one they are in. Nothing here decides: it suggests,
and it warns where the user's word does not fit the bars.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import E9
from tidewalk.data.rows import DAY_NS
from tidewalk.data.text.zones import clock_of, parse_zone, roughly_utc

MINUTE_NS = 60 * E9
EXCHANGE = "America/Chicago"
CANDIDATES = (
    *("America/Chicago", "America/New_York", "UTC", "America/Los_Angeles", "Europe/London", "Europe/Berlin"),
    *("America/New_York+7", "UTC-5", "UTC-6", "Asia/Shanghai", "Asia/Tokyo"),
)
"""Zones tried, the usual ones first: of zones with the same clock in the bars at hand the first is named."""
AMERICAN = ("America/", "US/", "UTC", "Etc/", "EST", "CST", "MST", "PST")
"""How zones begin in which bars of American exchanges are written."""

OPENING = (8 * 60 + 30, 9 * 60)
BEFORE_OPENING = (8 * 60, 8 * 60 + 30)
BREAK = (16 * 60 + 20, 16 * 60 + 55)  # the close was 16:15 until September 2015
AROUND_BREAK = ((15 * 60, 16 * 60), (17 * 60 + 5, 18 * 60))
LONG_BREAK, AROUND_LONG_BREAK = (16 * 60, 17 * 60), ((15 * 60, 16 * 60), (17 * 60, 18 * 60))
"""The same for bars longer than `MAX_SHORT_NS`, which show no more than the hour that lacks them."""
MIN_JUMP_VOLUME, MIN_JUMP_RANGE = 1.6, 1.2
MAX_BREAK_DENSITY = 0.05
MIN_SIDE_DENSITY, MIN_LONG_SIDE = 0.3, 0.7
MIN_DAYS, MIN_BARS, MAX_BARS = 3, 300, 200_000
MAX_SHORT_NS, MAX_INTERVAL_NS = 15 * MINUTE_NS, 60 * MINUTE_NS

BREAK_NS = 45 * MINUTE_NS
MIN_BREAKS = 4
LABEL_SHARE, OTHER_SHARE = 0.6, 0.15


@dataclass(frozen=True)
class Fit:
    """How well the hours of bars fit those of the American exchanges, if they are read in a zone.

    Attributes:
        zone: the zone.
        jump: activity per bar of the half hour from the opening of shares, over that of the half hour before; 0 where
            the bars do not show it.
        has_break: whether the daily break is empty and both of its sides are not.
        day_only: whether the days begin at the opening of shares, so that there is no break to be seen.
        opening: time of the wall clock at the opening, "08:30".
        break_hour: time of the wall clock at the start of the break, "16:00".
    """

    zone: str
    jump: float
    has_break: bool
    day_only: bool
    opening: str
    break_hour: str


def best_fit(wall_ns: NDArray[np.int64], weight: NDArray[np.float64], interval_ns: int | None) -> Fit | None:
    """The zone in which bars show the American hours best, None where they do not.

    Args:
        wall_ns: int64 [N] stamps as written, rising.
        weight: float64 [N] volume, or range of each bar where there is no volume.
        interval_ns: bar length, None for tick, volume and dollar bars.
    """
    fits = [
        fit for zone in CANDIDATES if (fit := fit_of(wall_ns, weight, interval_ns, zone)) is not None and shows(fit)
    ]
    return max(fits, key=lambda fit: (fit.jump > 0, fit.jump)) if fits else None


def shows(fit: Fit) -> bool:
    """Whether bars read in this zone show the American hours."""
    return fit.has_break or (fit.jump > 0 and fit.day_only)


def misfit(wall_ns: NDArray[np.int64], weight: NDArray[np.float64], interval_ns: int | None, zone: str) -> Fit | None:
    """The zone that bars fit, where they clearly do not fit the one they are read in; else None."""
    given = fit_of(wall_ns, weight, interval_ns, zone)
    if given is None or shows(given):
        return None
    best = best_fit(wall_ns, weight, interval_ns)
    # Shares open at half past nine in many places, and others pause for an hour: one sign alone tells only American
    # zones apart.
    is_certain = best is not None and best.jump > 0 and best.has_break
    return best if is_certain or parse_zone(zone).base.startswith(AMERICAN) else None


def fit_of(wall_ns: NDArray[np.int64], weight: NDArray[np.float64], interval_ns: int | None, zone: str) -> Fit | None:
    """How well bars read in a zone fit the American hours; None where there are too few or too long ones to tell."""
    if (interval_ns or 0) > MAX_INTERVAL_NS or len(wall_ns) < MIN_BARS:
        return None
    wall_ns, weight = _thinned(wall_ns, weight)
    local_ns = clock_of(roughly_utc(wall_ns, zone), EXCHANGE)
    day, minute = local_ns // DAY_NS, local_ns % DAY_NS // MINUTE_NS
    num_days = int(np.count_nonzero(np.diff(day))) + 1
    if num_days < MIN_DAYS:
        return None
    shift = int(np.median(wall_ns - local_ns)) // MINUTE_NS
    jump, day_only = _jump(day, minute, weight, interval_ns)
    is_long = (interval_ns or 0) > MAX_SHORT_NS
    side = min(_density(minute, span, num_days) for span in (AROUND_LONG_BREAK if is_long else AROUND_BREAK))
    mean = len(minute) / (1440 * num_days)
    empty = _density(minute, LONG_BREAK if is_long else BREAK, num_days)
    has_break = side >= (MIN_LONG_SIDE if is_long else MIN_SIDE_DENSITY) * mean and empty <= MAX_BREAK_DENSITY * mean
    if interval_ns is None:  # few bars are made in a quiet evening
        has_break = empty <= MAX_BREAK_DENSITY * side
    return Fit(zone, jump, has_break, day_only, _time(OPENING[0] + shift), _time(16 * 60 + shift))


def _thinned(wall_ns: NDArray[np.int64], weight: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Bars of every so many-th day, at most about `MAX_BARS`."""
    step = -(-len(wall_ns) // MAX_BARS)
    keep = (wall_ns // DAY_NS) % step == 0 if step > 1 else slice(None)
    return wall_ns[keep], weight[keep]


def _jump(
    day: NDArray[np.int64], minute: NDArray[np.int64], weight: NDArray[np.float64], interval_ns: int | None
) -> tuple[float, bool]:
    """Activity at the opening over that before, 0 where there is no clear rise; and whether days begin there."""
    at, before = (_inside(minute, span) for span in (OPENING, BEFORE_OPENING))
    first = minute[np.flatnonzero(np.diff(day, prepend=day[0] - 1))]
    slack = (interval_ns or 0) // MINUTE_NS
    on_time = float(((first >= OPENING[0]) & (first <= OPENING[0] + slack)).mean()) if interval_ns else 0.0
    if on_time >= 0.8:
        return 1.0 + on_time, True
    if not at.any() or before.sum() < 0.1 * at.sum() or not weight[before].sum():
        return 0.0, False
    if interval_ns is None:  # the busier the market, the more bars
        ratio, has_volume = float(at.sum() / before.sum()), True
    else:
        ratio, has_volume = float(weight[at].mean() / weight[before].mean()), float(np.median(weight)) >= 1.0
    return (ratio if ratio >= (MIN_JUMP_VOLUME if has_volume else MIN_JUMP_RANGE) else 0.0), False


def _inside(minute: NDArray[np.int64], span: tuple[int, int]) -> NDArray[np.bool_]:
    return (minute >= span[0]) & (minute < span[1])


def _density(minute: NDArray[np.int64], span: tuple[int, int], num_days: int) -> float:
    """Bars per minute and day."""
    return float(_inside(minute, span).sum()) / ((span[1] - span[0]) * num_days)


def _time(minute: int) -> str:
    return f"{minute % 1440 // 60:02d}:{minute % 60:02d}"


@dataclass(frozen=True)
class LabelEvidence:
    """What the bars beside breaks say about the end of the bar that is stamped.

    Attributes:
        close_labelled: the end they show.
        first: minute of the hour of the first stamp after most breaks.
        last: minute of the hour of the last stamp before most breaks.
        num_breaks: breaks looked at.
    """

    close_labelled: bool
    first: int
    last: int
    num_breaks: int


def label_shown(stamp_ns: NDArray[np.int64], interval_ns: int | None) -> LabelEvidence | None:
    """Which end of the bar stamps name, by the bars beside breaks; None where they do not tell.

    Trading begins on the hour or half past it, so that the first bar is stamped :00 at its start and :01 at its end,
    and it ends on a quarter of an hour.

    Args:
        stamp_ns: int64 [N] UTC stamps, rising.
        interval_ns: bar length.
    """
    if interval_ns is None or interval_ns % MINUTE_NS or not MINUTE_NS <= interval_ns <= 10 * MINUTE_NS:
        return None
    at = np.flatnonzero(np.diff(stamp_ns) >= BREAK_NS)
    if len(at) < MIN_BREAKS:
        return None
    first, last = stamp_ns[at + 1], stamp_ns[at]
    half, quarter = 30 * MINUTE_NS, 15 * MINUTE_NS
    opens = ((first % half == 0).mean() + (last % quarter == (quarter - interval_ns) % quarter).mean()) / 2
    closes = ((first % half == interval_ns).mean() + (last % quarter == 0).mean()) / 2
    if max(opens, closes) < LABEL_SHARE or min(opens, closes) > OTHER_SHARE:
        return None
    shown = [int(np.bincount(stamps // MINUTE_NS % 60).argmax()) for stamps in (first, last)]
    return LabelEvidence(bool(closes > opens), shown[0], shown[1], len(at))
