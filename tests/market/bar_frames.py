"""Frames of bars made by hand, with the columns that feature functions receive."""

from typing import Any

import numpy as np
import polars as pl

MINUTE_NS = 60 * 10**9
FIRST_DAY = 19_723  # Monday 2024-01-01
SESSION_MINUTES = 1380


def bars_of(close: Any, **columns: Any) -> pl.DataFrame:
    """One-minute bars with given closes.

    Every column may be given. Otherwise: a bar opens at the close before it, its range is that of open and close, its
    volume 10; all bars lie in one session of contract A, the first 40 days before its expiry.
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
    return pl.DataFrame({name: columns.get(name, value) for name, value in made.items()})


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
