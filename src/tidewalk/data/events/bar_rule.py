"""How bars are cut: a length of time, or a number of trades, contracts or currency units, never across a session break.

Time bars whose length divides an hour start at its whole multiples since 1970, as Databento cuts them; longer ones are
counted from the open of their session. The first bar of a session starts no earlier than the session, and what is left
when it ends is a shorter last bar.
"""

import datetime
import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError
from tidewalk.data.bars import E9
from tidewalk.data.calendar.sessions import schedule, session_columns

HOUR_S = 3_600
QUARTER_S = 900
DAY_S = 86_400
UNIT_S = {"s": 1, "m": 60, "h": HOUR_S, "d": DAY_S}
COUNTED = ("tick", "volume", "dollar")
FORMS = "5m, 1h, 1d (time bars), tick:N (trades), volume:N (contracts) or dollar:N (currency units)"
MAX_AMOUNT = 10**15

_TIME = re.compile(r"(?:time:)?(\d{1,5})([smhd])")
_COUNT = re.compile(rf"({'|'.join(COUNTED)}):(\d+(?:_\d+)*)")


@dataclass(frozen=True)
class BarRule:
    """A parsed `--bars`.

    Attributes:
        text: as given, in its shortest form.
        kind: what is counted.
        amount: seconds, trades, contracts or units of the contract's currency that fill a bar.
    """

    text: str
    kind: Literal["time", "tick", "volume", "dollar"]
    amount: int

    @property
    def interval_ns(self) -> int | None:
        """Bar length, None for bars that are not cut by time."""
        return self.amount * E9 if self.kind == "time" else None

    @property
    def base_ns(self) -> int:
        """Length of the bars first built from trades: sessions and the bars of this rule are made of whole ones."""
        return math.gcd(self.amount, QUARTER_S) * E9


ONE_MINUTE = BarRule("1m", "time", 60)


def parse_bar_rule(text: str) -> BarRule:
    """A bar rule from "5m", "time:5m", "tick:1000", "volume:5000" or "dollar:50000000".

    Raises:
        ConfigError: not of these forms, an amount of 0, or a time that does not divide a day.
    """
    word = text.strip().lower()
    timed, counted = _TIME.fullmatch(word), _COUNT.fullmatch(word)
    if timed:
        seconds = int(timed[1]) * UNIT_S[timed[2]]
        if seconds and DAY_S % seconds == 0:
            return BarRule(f"{int(timed[1])}{timed[2]}", "time", seconds)
        raise ConfigError(f"--bars {text}: a day is no whole number of such bars. Allowed are times that divide a day.")
    if counted and 0 < int(counted[2]) <= MAX_AMOUNT:
        kind: Literal["tick", "volume", "dollar"] = counted[1]  # pyright: ignore[reportAssignmentType]
        return BarRule(f"{kind}:{int(counted[2])}", kind, int(counted[2]))
    raise ConfigError(f"--bars {text}: not understood. Use {FORMS}, N a whole number above 0.")


@dataclass(frozen=True)
class Grid:
    """Session and bar of every stamp, int64 [N] each: trade date (days since 1970), and start of the time bar."""

    trade_day: NDArray[np.int64]
    start_ns: NDArray[np.int64]


def grid(ts_ns: NDArray[np.int64], interval_ns: int, rule: str) -> Grid:
    """The time bar that each stamp falls into.

    Args:
        ts_ns: UTC stamps.
        interval_ns: length of the bars.
        rule: session rule.
    """
    trade_day = session_columns(ts_ns, rule).trade_day.astype(np.int64)
    if not len(ts_ns):
        return Grid(trade_day, ts_ns)
    days, which = np.unique(trade_day, return_inverse=True)
    open_ns = _edges_ns(days, rule)[0][which]
    anchor_ns = 0 if HOUR_S * E9 % interval_ns == 0 else open_ns
    start_ns = anchor_ns + (ts_ns - anchor_ns) // interval_ns * interval_ns
    return Grid(trade_day, np.where(ts_ns >= open_ns, np.maximum(start_ns, open_ns), start_ns))


def close_ns(trade_day: NDArray[np.int64], rule: str) -> NDArray[np.int64]:
    """Scheduled end of the session of each trade date; its beginning in UTC where the exchange is shut all day."""
    days, which = np.unique(trade_day, return_inverse=True)
    return _edges_ns(days, rule)[1][which]


def _edges_ns(days: NDArray[np.int64], rule: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Open and close of trade dates in rising order; midnight UTC for dates on which nothing is scheduled."""
    first, last = (datetime.date(1970, 1, 1) + datetime.timedelta(days=int(day)) for day in (days[0], days[-1]))
    table = schedule(first, last, rule)
    midnight_ns = days * DAY_S * E9
    if not len(table.trade_day):
        return midnight_ns, midnight_ns
    place = np.minimum(np.searchsorted(table.trade_day, days), len(table.trade_day) - 1)
    listed = table.trade_day[place] == days
    return np.where(listed, table.open_ns[place], midnight_ns), np.where(listed, table.close_ns[place], midnight_ns)
