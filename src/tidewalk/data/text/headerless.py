"""Columns of a file without a header, found by the form of its first rows.

A stamp, perhaps a time of day, four prices of which the second is never below and the third never above the others, and
the volume behind them. Anything that does not show this is left to the user.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.data.text.stamps import stamp_share

CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
DIGIT_CLOCK = re.compile(r"(\d|1\d|2[0-3]|0\d)[0-5]\d([0-5]\d)?|0")
SYMBOL = re.compile(r"[A-Za-z0-9]*[A-Za-z][A-Za-z0-9]*([._=!/-][A-Za-z0-9]+)*[!]?")
MIN_ROWS_FOR_ORDER = 10


def columns_by_form(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Names of the columns of rows of data, "-" for those not used; None where their form does not tell."""
    rows = [row for row in rows if any(field.strip() for field in row)]
    if not rows:
        return None
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    columns = [[row[position].strip() for row in rows] for position in range(width)]
    stamp = next((p for p in range(min(3, width)) if stamp_share(pl.Series(columns[p])) == 1.0), None)
    if stamp is None:
        return None
    fits = [names for time in _possible_times(columns, stamp) if (names := _names(columns, stamp, time)) is not None]
    return fits[0] if len(fits) == 1 else None


def _possible_times(columns: Sequence[Sequence[str]], stamp: int) -> list[int | None]:
    """Where the time of day may stand: nowhere else, or right behind the date."""
    behind = columns[stamp + 1] if stamp + 1 < len(columns) else []
    if behind and all(CLOCK.fullmatch(text) for text in behind):
        return [stamp + 1]
    whole_days = not any(":" in text or re.search(r"\d[ T]\d", text) for text in columns[stamp])
    if behind and whole_days and all(DIGIT_CLOCK.fullmatch(text) for text in behind):
        return [None, stamp + 1]
    return [None]


def _names(columns: Sequence[Sequence[str]], stamp: int, time: int | None) -> tuple[str, ...] | None:
    first = next((p for p in range((time or stamp) + 1, len(columns)) if as_numbers(columns[p]) is not None), None)
    if first is None or first + 4 > len(columns):
        return None
    prices = [as_numbers(columns[position]) for position in range(first, first + 4)]
    if any(column is None for column in prices) or not _in_this_order(np.array(prices), columns[stamp]):
        return None
    names = ["-"] * len(columns)
    names[stamp] = "datetime" if time is None else "date"
    if time is not None:
        names[time] = "time"
    names[first : first + 4] = ("open", "high", "low", "close")
    volume = as_numbers(columns[first + 4]) if first + 4 < len(columns) else None
    if volume is not None and (volume >= 0).all():
        names[first + 4] = "volume"
    words = [p for p, name in enumerate(names) if name == "-" and all(SYMBOL.fullmatch(text) for text in columns[p])]
    if len(words) == 1:
        names[words[0]] = "symbol"
    return tuple(names)


def as_numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Numbers for looking at their form only: a comma is a decimal mark unless there is a point as well."""
    try:
        return np.array([float(text.replace(",", "") if "." in text else text.replace(",", ".")) for text in texts])
    except ValueError:
        return None


def are_bars(rows: Sequence[Sequence[str]], price: Sequence[int]) -> bool:
    """Whether the fields at four positions are open, high, low and close of a bar in every row."""
    prices = [as_numbers([row[position] for row in rows]) for position in price]
    found = [column for column in prices if column is not None]
    return len(found) == len(price) and _enclose(np.array(found))


def _enclose(prices: NDArray[np.float64]) -> bool:
    """Whether rows of open, high, low, close [4, N] are all bars."""
    open_, high, low, close = prices
    return bool((high >= np.maximum(open_, close)).all() and (low <= np.minimum(open_, close)).all())


def _in_this_order(prices: NDArray[np.float64], stamps: Sequence[str]) -> bool:
    """Whether four columns are open, high, low, close in this order; close and open may not have changed places."""
    if not np.isfinite(prices).all() or not _enclose(prices) or not (prices[1] > prices[2]).any():
        return False
    is_rising, is_falling = list(stamps) == sorted(stamps), list(stamps) == sorted(stamps, reverse=True)
    if is_rising == is_falling or prices.shape[1] < MIN_ROWS_FOR_ORDER:
        return True
    open_, _, _, close = prices if is_rising else prices[:, ::-1]
    as_named = float(np.abs(open_[1:] - close[:-1]).mean())
    exchanged = float(np.abs(close[1:] - open_[:-1]).mean())
    return as_named <= exchanged
