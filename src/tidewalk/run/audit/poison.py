"""Other futures: bars from some row on are cut off, missing, absurdly large, or those of another market.

Frames are what feature functions see, a series is what windows, training and books are made of, and tables are what the
roll rule chooses from. Each poison leaves every row before its first one as it is, to the bit.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import polars as pl

from tidewalk.data.bars import MAX_PRICE_E9, BarTable, Loaded
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.market.user_features import PRICES

FramePoison = Callable[[pl.DataFrame, int], pl.DataFrame]
"""(bars, first changed row) -> bars."""
WALK_TICKS = 40
HUGE = 1e30
"""A price and a volume that no causal column can overlook; sums and squares of it are still finite doubles."""
_ADJUSTED = tuple(f"{name}_adj" for name in PRICES)


# ---- frames, for feature functions


def cut_off(bars: pl.DataFrame, first: int) -> pl.DataFrame:
    """The bars before row `first` alone."""
    return bars.head(first)


def missing(bars: pl.DataFrame, first: int) -> pl.DataFrame:
    """No prices and volumes from row `first` on; the clock and the contracts stay."""
    row = pl.int_range(pl.len())
    names = (*PRICES, *_ADJUSTED, "volume")
    gone = [pl.when(row < first).then(pl.col(name)).alias(name) for name in names]
    return bars.with_columns(*gone, pl.when(row <= first).then(pl.col("close_prev")).alias("close_prev"))


def huge(bars: pl.DataFrame, first: int) -> pl.DataFrame:
    """Prices of plus and minus 1e30 in turn, and volumes of 1e30, from row `first` on."""
    row = pl.int_range(pl.len())
    price = pl.when(row % 2 == 0).then(HUGE).otherwise(-HUGE)
    changed = [pl.when(row < first).then(pl.col(name)).otherwise(price).alias(name) for name in (*PRICES, *_ADJUSTED)]
    volume = pl.when(row < first).then(pl.col("volume")).otherwise(HUGE).alias("volume")
    before = pl.when(row <= first).then(pl.col("close_prev")).otherwise(-price).alias("close_prev")
    return bars.with_columns(*changed, volume, before)


def other_market(bars: pl.DataFrame, first: int, seed: int = 0) -> pl.DataFrame:
    """Bars of another market from row `first` on; the clock and the contracts stay.

    They are these bars in another order, mirrored at random, three times as large, with other volumes.
    """
    size = bars.height - first
    rng, values = np.random.default_rng(seed), {name: bars[name].to_numpy() for name in (*PRICES, *_ADJUSTED)}
    open_, high, low, close = (values[name] for name in PRICES)
    shape = _Shape.of(open_, high, low, close, bars["close_prev"].to_numpy()).tail(size)
    shape = shape.shuffled(rng, 3.0)
    start = values["close_adj"][first - 1] if first else values["open_adj"][0]
    path = shape.path(float(start))
    basis = values["close"] - values["close_adj"]
    columns: dict[str, np.ndarray] = {}
    for name, tail in zip(PRICES, path, strict=True):
        columns[f"{name}_adj"] = np.concatenate([values[f"{name}_adj"][:first], tail])
        columns[name] = np.concatenate([values[name][:first], tail + basis[first:]])
    before = np.array(bars["close_prev"].to_numpy(), float)
    before[first + 1 :] = path[3][:-1] + basis[first + 1 :]
    volume = np.array(bars["volume"].to_numpy(), float)
    volume[first:] = 2 * rng.permutation(volume[first:]) + 1
    made = pl.DataFrame({**columns, "close_prev": before, "volume": volume})
    return bars.with_columns(made[name] for name in made.columns)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """Bars as what they add to the close before: open less close before, close less open, and the two wicks."""

    gap: np.ndarray
    body: np.ndarray
    up: np.ndarray
    down: np.ndarray

    @staticmethod
    def of(open_: np.ndarray, high: np.ndarray, low: np.ndarray, close: np.ndarray, close_prev: np.ndarray) -> "_Shape":
        top, bottom = np.maximum(open_, close), np.minimum(open_, close)
        return _Shape(open_ - close_prev, close - open_, high - top, bottom - low)

    def tail(self, size: int) -> "_Shape":
        start = len(self.gap) - size
        return _Shape(self.gap[start:], self.body[start:], self.up[start:], self.down[start:])

    def shuffled(self, rng: np.random.Generator, factor: float | int = 1) -> "_Shape":
        """The bars in another order, gaps apart from bodies, each mirrored or not by the toss of a coin."""
        size = len(self.gap)
        order, is_mirrored = rng.permutation(size), rng.random(size) < 0.5
        up, down = self.up[order], self.down[order]
        return _Shape(
            gap=factor * rng.permutation(self.gap) * np.where(rng.random(size) < 0.5, -1, 1),
            body=factor * self.body[order] * np.where(is_mirrored, -1, 1),
            up=factor * np.where(is_mirrored, down, up),
            down=factor * np.where(is_mirrored, up, down),
        )

    def path(self, start: float | int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Open, high, low and close of the bars one after the other, from a close before the first."""
        close = start + np.cumsum(self.gap + self.body)
        open_ = close - self.body
        return open_, np.maximum(open_, close) + self.up, np.minimum(open_, close) - self.down, close


# ---- series, for everything that is made of the front contract


def shuffled_series(series: FrontSeries, seed: int) -> FrontSeries:
    """The bars of a series in a random order, mirrored at random: nothing that has happened says what follows.

    Gaps and bodies are shuffled apart and mirrored apart, so that the move of a decision (the body of the next bar and
    the gap after it) depends on nothing known when it is taken, and has a mean of exactly 0. Times, sessions and
    contracts stay, and so does what the old contract costs more or less than the new one at a roll.
    """
    rng = np.random.default_rng(seed)
    prices = (series.open_e9, series.high_e9, series.low_e9, series.close_e9)
    shape = _Shape.of(*prices, series.close_prev_e9).shuffled(rng)
    basis = np.cumsum(series.open_e9 - series.exit_open_e9)
    path = shape.path(int(series.open_e9[0]))
    changed = tuple(price_e9 + basis for price_e9 in path)
    order = rng.permutation(len(series.volume))
    return _with_prices(dataclasses.replace(series, volume=series.volume[order]), changed)


def shifted_series(series: FrontSeries, first: int, stop: int, by_e9: np.ndarray | int, seed: int = 0) -> FrontSeries:
    """The series with all prices of the bars `[first, stop)` changed by an amount, and their volumes exchanged."""
    shift = np.zeros(len(series.ts_ns), np.int64)
    shift[first:stop] = by_e9
    volume = series.volume.copy()
    volume[first:stop] = 3 * np.random.default_rng(seed).permutation(volume[first:stop])
    spread = None if series.open_spread_e9 is None else series.open_spread_e9.copy()
    if spread is not None:
        spread[first:stop] *= 3
    prices = (series.open_e9, series.high_e9, series.low_e9, series.close_e9)
    changed = tuple(price_e9 + shift for price_e9 in prices)
    return _with_prices(dataclasses.replace(series, volume=volume, open_spread_e9=spread), changed)


def _with_prices(series: FrontSeries, prices_e9: tuple[np.ndarray, ...]) -> FrontSeries:
    """The series with other prices: what was before a bar, in the same contract, moves as the bar before did."""
    open_e9, high_e9, low_e9, close_e9 = prices_e9
    before = series.close_prev_e9.copy()
    before[1:] += close_e9[:-1] - series.close_e9[:-1]
    return dataclasses.replace(
        series,
        open_e9=open_e9,
        high_e9=high_e9,
        low_e9=low_e9,
        close_e9=close_e9,
        close_prev_e9=before,
        exit_open_e9=series.exit_open_e9 + (open_e9 - series.open_e9),
    )


def random_walk_e9(size: int, tick_e9: int, seed: int) -> np.ndarray:
    """A walk of up to `WALK_TICKS` a bar, in 1e-9: added to prices, it makes another market of them."""
    steps = np.random.default_rng(seed).integers(-WALK_TICKS, WALK_TICKS + 1, size)
    return np.cumsum(steps) * tick_e9


# ---- tables, for the roll rule


def without_future(loaded: Loaded, moment_ns: int) -> Loaded:
    """The bars that start before a moment alone, in all contracts, and the open interest published before it."""
    tables = [_rows(table, table.ts_ns < moment_ns) for table in loaded.tables]
    interest = [
        dataclasses.replace(
            entry,
            trade_day=entry.trade_day[entry.known_ns < moment_ns],
            known_ns=entry.known_ns[entry.known_ns < moment_ns],
            lots=entry.lots[entry.known_ns < moment_ns],
        )
        for entry in loaded.open_interest
    ]
    return dataclasses.replace(
        loaded,
        tables=tuple(table for table in tables if len(table.ts_ns)),
        open_interest=tuple(entry for entry in interest if len(entry.known_ns)),
    )


def with_shift(loaded: Loaded, moment_ns: int, by_e9: Callable[[np.ndarray], np.ndarray], seed: int) -> Loaded:
    """All contracts with other prices, volumes and open interest from a moment on.

    Args:
        loaded: bars of all contracts.
        moment_ns: bars that start then or later are changed.
        by_e9: start of a bar -> what its prices change by, in 1e-9.
        seed: of the volumes, which go to other bars, and to other contracts by turns.
    """
    rng = np.random.default_rng(seed)
    tables = []
    for number, table in enumerate(loaded.tables):
        rows = table.ts_ns >= moment_ns
        shift = np.where(rows, by_e9(table.ts_ns), 0)
        prices = {f"{name}_e9": getattr(table, f"{name}_e9") + shift for name in PRICES}
        volume = table.volume.copy()
        # by turns far more and far less, so that a rule which could see it would roll at another time
        volume[rows] = rng.permutation(volume[rows]) * (1e3 if number % 2 else 1e-3)
        tables.append(dataclasses.replace(table, **prices, volume=volume))
    interest = [
        dataclasses.replace(entry, lots=np.where(entry.known_ns >= moment_ns, entry.lots[::-1] * 7, entry.lots))
        for entry in loaded.open_interest
    ]
    return dataclasses.replace(loaded, tables=tuple(tables), open_interest=tuple(interest))


def largest_shift_e9(loaded: Loaded, tick_e9: int, most_ticks: int) -> int:
    """The largest change of price, in whole ticks, that the price type and a count of ticks hold."""
    highest = max(int(np.abs(getattr(table, f"{name}_e9")).max()) for table in loaded.tables for name in PRICES)
    return min((MAX_PRICE_E9 - highest) // tick_e9, most_ticks) * tick_e9


def _rows(table: BarTable, rows: np.ndarray) -> BarTable:
    arrays = {
        field.name: value[rows]
        for field in dataclasses.fields(table)
        if isinstance(value := getattr(table, field.name), np.ndarray)
    }
    return dataclasses.replace(table, **arrays)
