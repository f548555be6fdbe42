"""Made-up bars of a few contracts, and the real preparation of a market from them, without files."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tidewalk.data.bars import BarTable, Loaded, validate
from tidewalk.data.load import DataConfig
from tidewalk.market import prepare
from tidewalk.market.prepare import Prepared, SeriesConfig

HOUR_NS = 3_600_000_000_000
TICK_E9 = 250_000_000


def day_ns(day: dt.date) -> int:
    return (day - dt.date(1970, 1, 1)).days * 24 * HOUR_NS


def weekdays(first: dt.date, count: int) -> list[dt.date]:
    days = (first + dt.timedelta(days=n) for n in range(2 * count + 7))
    return [day for day in days if day.weekday() < 5][:count]


def table(contract: str, ts_ns: Sequence[int], ohlc_ticks: np.ndarray, volume: Sequence[float]) -> BarTable:
    """Hourly bars with prices `[T, 4]` in ticks of 0.25."""
    stamps = np.asarray(ts_ns, np.int64)
    prices = np.asarray(ohlc_ticks, np.int64) * TICK_E9
    made = BarTable(
        contract,
        0,
        HOUR_NS,
        stamps,
        stamps + HOUR_NS,
        *(np.ascontiguousarray(prices[:, column]) for column in range(4)),
        volume=np.asarray(volume, np.float64),
        has_volume=True,
    )
    validate(made)
    return made


def loaded(tables: Sequence[BarTable], symbol: str = "ES.FUT") -> Loaded:
    return Loaded(symbol, symbol.split(".")[0], "parent", tuple(tables), (), (), "made up")


def prepared(tables: Sequence[BarTable], config: SeriesConfig | None = None, symbol: str = "ES.FUT") -> Prepared:
    """The market that `prepare` makes of these tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "load_bars", lambda *_: loaded(tables, symbol))
        return prepare.prepare(DataConfig(Path(), symbol), config or SeriesConfig())


def hourly_contracts(
    days: int, *, bars_per_day: int = 8, roll_after: int | None = None, seed: int = 0
) -> list[BarTable]:
    """Two contracts with hourly bars on weekdays from 2024-01-02 on, random walks 40 ticks apart.

    The volume moves to the second one in session `roll_after`, so that it is front from the session after.
    """
    rng = np.random.default_rng(seed)
    sessions = weekdays(dt.date(2024, 1, 2), days)
    ts_ns = [day_ns(day) + (8 + hour) * HOUR_NS for day in sessions for hour in range(bars_per_day)]
    size = len(ts_ns)
    close = 20_000 + np.cumsum(rng.integers(-8, 9, size))
    open_ = np.concatenate([[20_000], close[:-1]]) + rng.integers(-1, 2, size)
    high = np.maximum(open_, close) + rng.integers(0, 4, size)
    low = np.minimum(open_, close) - rng.integers(0, 4, size)
    ohlc = np.stack([open_, high, low, close], axis=1)
    roll_bar = size if roll_after is None else roll_after * bars_per_day
    old_share = np.where(np.arange(size) < roll_bar, 0.9, 0.1)
    volume = rng.integers(100, 200, size)
    return [
        table("ESH4", ts_ns, ohlc, volume * old_share),
        table("ESM4", ts_ns, ohlc + 40, volume * (1 - old_share)),
    ]
