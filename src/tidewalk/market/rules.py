"""Trading rules that come from the calendar: which fills are the last of a session, and which come too late to enter.

The schedule is known before the session, so a rule that reads it looks at nothing that a trader could not know. Which
bar is the last one *present* is known only afterwards.
"""

import dataclasses

import numpy as np

from tidewalk.core.errors import ConfigError
from tidewalk.data.calendar.sessions import until_close_ns
from tidewalk.market.device import LAST_OF_SESSION, NO_ENTRY, MarketData

_MINUTE_NS = 60_000_000_000


def is_closing(ts_ns: np.ndarray, is_last: np.ndarray, interval_ns: int | None, rule: str) -> np.ndarray:
    """Decisions whose fill is the last chance to be flat before the break, bool `[T]`.

    The fill is the open of bar t+1. That is the last chance when the bar is the last one scheduled, or comes after the
    scheduled close (stray prints do not keep a position open), or is the last one present in the data. The third case
    alone looks ahead, in sessions whose end is missing: a position could not be closed later there.
    Of irregular bars none is scheduled, and the last one present it is.

    Args:
        ts_ns: `[T]` UTC start of the bars, in order.
        is_last: bool `[T]` the bar is the last of its session in the data.
        interval_ns: bar length; None for irregular bars.
        rule: session rule.
    """
    is_end = is_last
    if interval_ns is not None:
        is_end = is_end | (until_close_ns(ts_ns, rule) <= interval_ns)
    closing = np.zeros(len(ts_ns), np.bool_)
    closing[:-1] = is_end[1:]
    return closing


def with_no_entry(market: MarketData, minutes: int) -> MarketData:
    """The market with NO_ENTRY on every decision that fills in the last minutes of a scheduled session.

    Row t is flagged where the open of bar t+1 lies `minutes` or less before the scheduled close of that bar's session
    (early closes included), or after it; at exactly `minutes` before the close it is. The session is that of the fill,
    so the last decision of a session, which fills at the next open, is free. Sessions of the rule `utc-day` close at
    midnight UTC. A fill in an irregular bar counts at the bar's stamp, which for bars stamped at their end is when they
    were complete: the rule then begins a bar early rather than late.

    Args:
        market: a prepared market.
        minutes: length of the time without entries; 0 leaves the market as it is.

    Returns:
        The market; with a warning in its `info` where the rule flags no decision.

    Raises:
        ConfigError: a negative number of minutes, so many that every fill is late, or a session rule that is not known.
    """
    if minutes < 0:
        raise ConfigError(f"--no-entry-minutes is {minutes}; it must be 0 or more.")
    if minutes == 0:
        return market
    is_late = until_close_ns(market.ts_ns[1:], market.info.sessions) <= minutes * _MINUTE_NS
    if is_late.all():
        raise ConfigError(
            f"--no-entry-minutes {minutes}: every fill of {market.info.symbol} lies in the last {minutes} minutes of a "
            f"session ({market.info.sessions}), so nothing could ever be traded. Use fewer minutes."
        )
    flags = market.flags & ~np.int32(NO_ENTRY)
    flags[:-1] |= np.where(is_late, np.int32(NO_ENTRY), np.int32(0))
    info = market.info
    if not is_late.any():
        text = f"--no-entry-minutes {minutes} has no effect: no bar opens in the last {minutes} minutes of a session."
        info = dataclasses.replace(info, warnings=(*info.warnings, text))
    return dataclasses.replace(market, flags=flags, info=info)


def with_close_warning(market: MarketData) -> MarketData:
    """The market with a warning of the sessions that have no bar at their scheduled end, if there are any.

    There a rule "flat at the close" acts on the last bar present, which was not known to be the last when it opened.
    """
    ends = np.flatnonzero(market.flags & LAST_OF_SESSION)[:-1]  # where the data end, the range ends too
    interval_ns = market.info.interval_ns
    if interval_ns is None:
        text = "--flat-at-close: of irregular bars the last of a session is known only when the next session opens."
    else:
        early = int(np.count_nonzero(until_close_ns(market.ts_ns[ends], market.info.sessions) > interval_ns))
        if not early:
            return market
        text = (
            f"--flat-at-close: {early} of {len(ends)} sessions have no bar at their scheduled end; positions close at "
            "the open of the last bar present, which nobody could know to be the last."
        )
    return dataclasses.replace(market, info=dataclasses.replace(market.info, warnings=(*market.info.warnings, text)))
