"""Rolls that nothing in the data shows: a quarterly series without contract codes, kept from booking its jumps.

A roll is never told from a jump in price: a crash looks the same, and the series would be bent where it matters most.
What is known is when vendors roll: at a change of session or of the UTC day, from the week before the expiry to the
Monday after it. There a position is left at the last close and taken again at the next open, so that no difference
between two contracts is ever gained or lost, nor seen as a return.
"""

import dataclasses
import datetime

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError
from tidewalk.core.words import counted
from tidewalk.data.bars import Loaded
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.expiries import expiry_date
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.data.contracts.specs import MONTH_CODES, ContractMonth, ContractSpec

DAY_NS = 86_400_000_000_000
EPOCH = datetime.date(1970, 1, 1)
INDEX_GROUPS = ("equity-index", "eurex-index")
DAYS_BEFORE, DAYS_AFTER = 11, 3
"""From the Monday of the week before that of an expiry on a Friday to the Monday after it."""


class NoRollWeeks(ConfigError):
    """No roll may hide in a series, or none knows when; so there is nothing to leave out."""


def has_roll_weeks(spec: ContractSpec) -> bool:
    """Whether the weeks of hidden rolls are known: index futures are rolled around their quarterly expiries.

    Others are left before their first notice day or at any time their trading moves on.
    """
    return spec.group in INDEX_GROUPS and spec.months == "HMUZ"


def break_roll_weeks(loaded: Loaded, series: FrontSeries, spec: ContractSpec) -> tuple[FrontSeries, NDArray[np.bool_]]:
    """The series with no price difference across the bars that may follow a hidden roll, and those bars, bool [T].

    Raises:
        NoRollWeeks: the series shows its contracts, or its rolls follow no known rule.
    """
    if loaded.symbology != "single":
        raise NoRollWeeks(f"--break-roll-weeks: {loaded.symbol} shows its contracts, so that its rolls are known.")
    if not has_roll_weeks(spec):
        raise NoRollWeeks(f"--break-roll-weeks: {spec.root} is no index future, whose quarterly roll weeks are known.")
    breaks = roll_week_breaks(series, spec)
    before = np.flatnonzero(breaks) - 1
    exit_open_e9, close_prev_e9 = series.exit_open_e9.copy(), series.close_prev_e9.copy()
    exit_open_e9[breaks] = series.close_e9[before]
    close_prev_e9[breaks] = series.open_e9[breaks]
    changes = counted(len(before), "change")
    text = f"moves across {changes} of session or day in weeks of expiry are left out: rolls may hide there"
    finding = Finding("rolls-invisible", text, len(before))
    kept = dataclasses.replace(
        series, exit_open_e9=exit_open_e9, close_prev_e9=close_prev_e9, findings=(*series.findings, finding)
    )
    return kept, breaks


def roll_week_breaks(series: FrontSeries, spec: ContractSpec) -> NDArray[np.bool_]:
    """Bars that may be the first one after a hidden roll, bool [T]."""
    days = np.arange(int(series.trade_day[0]), int(series.trade_day[-1]) + 1)
    years = range(_date(int(days[0])).year, _date(int(days[-1])).year + 1)
    months = [ContractMonth(spec.root, year, MONTH_CODES.index(code) + 1) for year in years for code in spec.months]
    expiries = np.array([(expiry_date(month) - EPOCH).days for month in months])
    since = days[:, None] - expiries
    in_weeks = np.any((since >= -DAYS_BEFORE) & (since <= DAYS_AFTER), axis=1)
    changes = (np.diff(series.trade_day) != 0) | (np.diff(series.ts_ns // DAY_NS) != 0)
    return np.append(False, changes & in_weeks[series.trade_day[1:] - series.trade_day[0]])


def _date(day: int) -> datetime.date:
    return EPOCH + datetime.timedelta(days=day)
