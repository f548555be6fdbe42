"""Findings on what a front series lacks: sessions or minutes without a bar, holes, and an end that is not complete.

Also where its level is not continuous: one contract's price does not go elsewhere from one bar to the next for good.

Nothing is filled. A minute in which nobody traded has no price that could be traded at, and a policy that sees made-up
flat bars learns them.
"""

import datetime

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import listed
from tidewalk.core.words import counted
from tidewalk.data.bars import E9, Loaded
from tidewalk.data.calendar.sessions import schedule
from tidewalk.data.checks.quality import Finding
from tidewalk.data.checks.strays import DAILY_MISPRINT_SHARE, MAX_RUN, MISPRINT_SHARE
from tidewalk.data.checks.survey import LONG_GAP_MINUTES, Gap, Survey, survey
from tidewalk.data.contracts.rolls import FrontSeries

EPOCH = datetime.date(1970, 1, 1)
DAY_NS = 86_400_000_000_000
MINUTE_NS = 60_000_000_000
SHOWN = 5
"""Most contracts or holes named in one line; the report has more of them."""
MANY_ABSENT = 0.05
"""Share of sessions without a bar above which files are likely to be missing. A year has ten short holidays in 252
sessions, which some vendors count with the day after."""
PART_OF_DAY = 0.2
"""Share of a usual day's volume below which a daily bar is taken for part of a day."""


def continuity_findings(loaded: Loaded, series: FrontSeries, rule: str) -> list[Finding]:
    """Findings on missing bars, on holes inside sessions and on the end of the front series.

    Args:
        loaded: bars per contract.
        series: their front series.
        rule: session rule of the product.
    """
    found = [*_steps(series), *_absent_sessions(series, rule)]
    if series.interval_ns is None:
        return found
    if series.interval_ns >= DAY_NS:
        return [*found, *_daily(series)]
    held = survey(loaded, rule, series)
    return [*found, *_missing(held, series), *_holes(held), *_unfinished(series)]


def _steps(series: FrontSeries) -> list[Finding]:
    """A warning where a contract is elsewhere from one bar to the next and stays there; a misprint comes back."""
    before_e9, close_e9 = series.close_prev_e9.astype(np.float64), series.close_e9.astype(np.float64)
    since_ns = np.diff(series.ts_ns, prepend=series.ts_ns[:1])
    share = np.where(since_ns >= DAY_NS, DAILY_MISPRINT_SHARE, MISPRINT_SHARE)
    # where prices cross zero, a share of the price is nothing: that of a large price takes its place
    least_e9 = 0.0 if (close_e9 > 0).all() else float(np.quantile(np.abs(close_e9), 0.9))
    bar = np.arange(len(close_e9))
    came_e9 = close_e9[np.maximum(bar - 1 - MAX_RUN, 0)]
    settled_e9 = close_e9[np.minimum(bar + MAX_RUN, bar[-1])]
    ways_e9 = np.stack([close_e9 - before_e9, settled_e9 - before_e9, close_e9 - came_e9])
    far_e9 = share * np.maximum(np.abs(before_e9), least_e9)
    found = np.flatnonzero((ways_e9 > far_e9).all(axis=0) | (ways_e9 < -far_e9).all(axis=0))
    if not len(found):
        return []
    first = int(found[0])
    stamp = str(np.datetime64(int(series.ts_ns[first]), "ns"))[:16].replace("T", " ")
    text = (
        f"prices of one contract that go elsewhere from one bar to the next and stay there: {len(found)}, the first "
        f"{series.contracts[int(series.contract_id[first])]} at {stamp} UTC, from {before_e9[first] / E9:g} to "
        f"{close_e9[first] / E9:g}: another scale, another instrument or adjusted prices from there on?"
    )
    return [Finding("off-tick", text, len(found), is_warning=True)]


def _absent_sessions(series: FrontSeries, rule: str) -> list[Finding]:
    """A finding on scheduled trade dates between the first and the last one that have no bar at all."""
    if rule == "utc-day":
        return []  # on which days the product is open is not known
    first, last = (EPOCH + datetime.timedelta(days=int(day)) for day in series.trade_day[[0, -1]])
    scheduled = schedule(first, last, rule).trade_day
    absent = np.setdiff1d(scheduled, series.trade_day)
    if not len(absent):
        return []
    shown = ", ".join(str(np.datetime64(int(day), "D")) for day in absent[:SHOWN])
    more = ", ..." if len(absent) > SHOWN else ""
    text = f"scheduled sessions without any bar: {len(absent)} of {len(scheduled)}: {shown}{more}"
    is_warning = len(absent) > MANY_ABSENT * len(scheduled)
    return [Finding("missing-sessions", text, len(absent), is_warning=is_warning)]


def _missing(held: Survey, series: FrontSeries) -> list[Finding]:
    missing, expected = held.missing_bars, np.where(held.front >= 0, held.expected_bars, 0).astype(np.int32)
    interval_minutes = (series.interval_ns or MINUTE_NS) / MINUTE_NS
    # What lies before the first bar of the data and after the last one was not asked for.
    for session, minutes in ((0, series.minute_of_session[0]), (-1, series.minutes_to_close[-1] - interval_minutes)):
        beyond = min(max(int(minutes / interval_minutes), 0), int(missing[session]))
        missing[session] -= beyond
        expected[session] -= beyond
    count = int(missing.sum())
    if not count:
        return []
    by_contract = np.bincount(held.front[held.front >= 0], missing[held.front >= 0], len(held.contracts)).astype(int)
    worst = [i for i in np.argsort(-by_contract, kind="stable").tolist() if by_contract[i]]
    named = listed([f"{held.contracts[i]} {by_contract[i]}" for i in worst], SHOWN, "contracts")
    text = (
        f"bars missing inside sessions of the contract held, not filled: {count} of {int(expected.sum())} "
        f"({count / expected.sum():.1%}): {named}"
    )
    return [Finding("missing-minutes", text, count)]


def _holes(held: Survey) -> list[Finding]:
    if not held.num_long_gaps:
        return []
    longest = [gap for gap in held.gaps if gap.minutes > LONG_GAP_MINUTES][:SHOWN]
    text = (
        f"holes of more than {LONG_GAP_MINUTES} minutes inside a session: {held.num_long_gaps}, the longest "
        f"{', '.join(map(_hole, longest))}"
    )
    return [Finding("gap-in-session", text, held.num_long_gaps)]


def _hole(gap: Gap) -> str:
    first, last = (str(np.datetime64(stamp_ns, "ns"))[:16].replace("T", " ") for stamp_ns in (gap.from_ns, gap.to_ns))
    until = last[11:] if first[:10] == last[:10] else last
    return f"{first} to {until} UTC ({gap.minutes:g} min)"


def _unfinished(series: FrontSeries) -> list[Finding]:
    """A finding where the data end inside a session that others of its kind see to the close."""
    last = np.flatnonzero(np.diff(series.trade_day, append=series.trade_day[-1] + 1))
    short = series.minutes_to_close[last] - (series.known_ns[last] - series.ts_ns[last]) // MINUTE_NS
    if len(last) < 3 or short[-1] <= max(LONG_GAP_MINUTES, int(short[:-1].max())):
        return []
    day = np.datetime64(int(series.trade_day[-1]), "D")
    early = counted(int(short[-1]), "minute")
    text = f"the last session, {day}, ends {early} before its close, earlier than any before it"
    return [Finding("partial-end", text, 1)]


def _daily(series: FrontSeries) -> list[Finding]:
    """Findings on daily bars that hold part of a day: those of Sundays, and the last one."""
    weekday = (series.ts_ns // DAY_NS + 3) % 7  # 1970-01-01 was a Thursday
    usual = float(np.median(series.volume[weekday < 5])) if (weekday < 5).any() else 0.0
    is_part = (series.volume < PART_OF_DAY * usual) & (usual > 0)
    sundays = int((is_part & (weekday == 6)).sum())
    found = []
    if sundays:
        text = f"daily bars of a Sunday evening only, counted with Monday's session: {sundays} of {len(weekday)}"
        found.append(Finding("partial-end", text, sundays))
    if is_part[-1]:
        found.append(_part_day(series.ts_ns, series.volume, usual))
    return found


def _part_day(ts_ns: NDArray[np.int64], volume: NDArray[np.float64], usual: float) -> Finding:
    day = np.datetime64(int(ts_ns[-1]), "ns").astype("datetime64[D]")
    text = f"the last daily bar, {day}, has {volume[-1] / usual:.1%} of the usual volume: a part of a day"
    return Finding("partial-end", text, 1)
