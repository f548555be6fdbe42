"""Frames of bars made by hand, with the columns that feature functions receive."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from tidewalk.data.bars import BarTable, Loaded

MINUTE_NS = 60 * 10**9
FIRST_DAY = 19_723  # Monday 2024-01-01
SESSION_MINUTES = 1380


def bars_of(close: Any, **columns: Any) -> pl.DataFrame:
    """One-minute bars with given closes.

    Every column may be given. Otherwise: a bar opens at the close before it, its range is that of open and close, its
    volume 10; all bars lie in one session of contract A, the first 40 days before its expiry. Shadow prices follow.
    """
    close = np.asarray(close, float)
    length = len(close)
    close_prev = np.asarray(columns.pop("close_prev", np.concatenate([close[:1], close[:-1]])), float)
    open_ = np.asarray(columns.pop("open", close_prev), float)
    session = np.asarray(columns.pop("session", np.zeros(length)), int)
    start = np.flatnonzero(np.diff(session, prepend=-1))
    minute = np.asarray(
        columns.pop("minute_of_session", np.arange(length) - np.repeat(start, np.diff([*start, length])))
    )
    ts_ns = (FIRST_DAY + session - 1) * 86_400 * 10**9 + (23 * 60 + minute) * MINUTE_NS
    made = {
        "ts": pl.Series(ts_ns).cast(pl.Datetime("ns", "UTC")),
        "known_at": pl.Series(ts_ns + MINUTE_NS).cast(pl.Datetime("ns", "UTC")),
        "open": open_,
        "high": np.maximum(open_, close),
        "low": np.minimum(open_, close),
        "close": close,
        "volume": np.full(length, 10.0),
        "contract": ["A"] * length,
        "session": pl.Series((FIRST_DAY + session).astype(np.int32)).cast(pl.Date),
        "minute_of_session": minute.astype(np.int32),
        "minutes_to_close": (SESSION_MINUTES - minute).astype(np.int32),
        "close_prev": close_prev,
        "days_to_expiry": (40 - session).astype(np.int64),
    }
    frame = pl.DataFrame({name: columns.get(name, value) for name, value in made.items()})
    return frame if "close_adj" in columns else with_shadow(frame)


def with_shadow(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with shadow prices whose closes change by close less close before, anchored at the first bar."""
    close, close_prev = frame["close"].to_numpy(), frame["close_prev"].to_numpy()
    basis = np.concatenate([[0.0], np.cumsum(close_prev[1:] - close[:-1])])
    return frame.with_columns((pl.col(name) - basis).alias(f"{name}_adj") for name in ("open", "high", "low", "close"))


def random_bars(seed: int, length: int, *, session_bars: int = 50, tick: float = 0.25) -> pl.DataFrame:
    """A random walk on the tick grid: gaps between sessions, bars without a range, bars without volume."""
    rng = np.random.default_rng(seed)
    session = np.arange(length) // session_bars
    gap = np.where(np.diff(session, prepend=-1) != 0, rng.integers(-40, 41, length), rng.integers(-1, 2, length))
    body = rng.integers(-6, 7, length) * (rng.random(length) < 0.8)
    close = 400 + np.cumsum(gap + body)
    open_ = close - body
    close_prev = np.concatenate([open_[:1], close[:-1]])
    up, down = (rng.integers(0, 4, length) * (rng.random(length) < 0.7) for _ in range(2))
    return bars_of(
        tick * close,
        open=tick * open_,
        close_prev=tick * close_prev,
        high=tick * (np.maximum(open_, close) + up),
        low=tick * (np.minimum(open_, close) - down),
        volume=(rng.integers(0, 500, length) * (rng.random(length) < 0.9)).astype(float),
        session=session,
    )


def table(contract: str, ts_ns: list[int], close: list[float], volume: float) -> BarTable:
    """Minutes with these closes; each bar opens a tick below its close and is 2.25 wide."""
    close_e9 = np.array([round(price * 1e9) for price in close])
    open_e9 = close_e9 - 250_000_000
    ts = np.array(ts_ns, np.int64)
    return BarTable(
        contract, 1, 60 * 10**9, ts, ts + 60 * 10**9, open_e9, close_e9 + 10**9, open_e9 - 10**9, close_e9,
        np.full(len(close), volume), has_volume=True,
    )  # fmt: skip


def minutes(first: str, count: int) -> list[int]:
    """UTC starts of so many minutes in a row."""
    start = int(np.datetime64(first, "ns").astype(np.int64))
    return [start + i * 60 * 10**9 for i in range(count)]


def rolling(basis: float) -> Loaded:
    """ESZ3 and ESH4 on eight days with one walk; the new contract lies `basis` higher and takes over on the fifth."""
    rng = np.random.default_rng(5)
    days = [f"2023-12-{day:02d}T15:00" for day in (4, 5, 6, 7, 8, 11, 12, 13)]
    ts_ns = [stamp for day in days for stamp in minutes(day, 60)]
    close = 4600 + 0.25 * np.cumsum(rng.integers(-4, 5, len(ts_ns)))
    volumes = np.repeat([[100.0] * 4 + [10.0] * 4, [10.0] * 3 + [100.0] * 5], 60, axis=1)
    tables = tuple(
        dataclasses.replace(table(code, ts_ns, [float(price) for price in close + level], 1.0), volume=volume)
        for code, level, volume in zip(("ESZ3", "ESH4"), (0.0, basis), volumes, strict=True)
    )
    return Loaded("ES.FUT", "ES", "parent", tables, (), (), "f")
