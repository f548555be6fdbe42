"""Feature sets: functions from the frame of front-contract bars to causal, scale-free columns.

Row t may use bars <= t only. Prices enter as differences within one contract, in units of recent volatility, so that neither a roll nor
the level of the market shows. A user's set is any `build(bars) -> DataFrame` of the same height with one named float column per feature.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.rolls import FrontSeries

FeatureBuilder = Callable[[pl.DataFrame], pl.DataFrame]

WARM_UP_BARS = 20
"""Bars before which the default features are not defined."""
_HORIZONS = (5, 15, 60, 240)
_SESSION_MINUTES = 1380
_ROLL_HORIZON_DAYS = 90
_ROLL_LEAD_DAYS = 8
"""Liquidity leaves a quarterly contract about eight calendar days before its last trading day."""
_CUT_ROWS = 1000

FEATURES: dict[str, str] = {
    "ret_1": "close-to-close move of the bar, in units of volatility (60-bar EWMA of absolute-square moves)",
    "ret_2": "move of the bar before",
    "ret_5": "move over 5 bars / (volatility x sqrt 5)",
    "ret_15": "move over 15 bars / (volatility x sqrt 15)",
    "ret_60": "move over 60 bars / (volatility x sqrt 60)",
    "ret_240": "move over 240 bars / (volatility x sqrt 240)",
    "ret_session": "move since the session's first open / (volatility x sqrt bars since)",
    "gap": "open less the previous close of the contract, in units of volatility",
    "vol_fast": "log of 20-bar over 240-bar volatility",
    "vol_slow": "log of 240-bar over 2400-bar volatility",
    "range": "high less low, in units of volatility",
    "bar_place": "place of the close in the bar's range, -1 low ... +1 high",
    "channel_60": "place of the close in the range of 60 closes, -1 ... +1",
    "channel_240": "place of the close in the range of 240 closes, -1 ... +1",
    "volume_surprise": "log of volume over its 240-bar mean",
    "volume_trend": "log of 20-bar over 240-bar mean volume",
    "vwap_gap": "close less the session's volume-weighted price / (volatility x sqrt bars in session)",
    "rsi_14": "relative strength index of 14 bars, from -1 to +1",
    "macd": "12-bar less 26-bar exponential mean, in units of volatility",
    "macd_hist": "macd less its 9-bar exponential mean",
    "ema_gap_60": "close less its 60-bar exponential mean / (volatility x sqrt 60)",
    "persistence": "60-bar mean of the product of successive moves over the mean square move",
    "tod_sin": "sine of the minute of the session over the session's 1380 minutes",
    "tod_cos": "cosine of the same",
    "to_close": "exp(-minutes to the scheduled close / 60): 1 at the close",
    "dow_sin": "sine of the day of the week",
    "dow_cos": "cosine of the same",
    "to_roll": "days to the expected roll / 90, from 0 to 1; 0 where the contract is not known",
}
"""The default feature set: column -> meaning."""


def bars_frame(series: FrontSeries) -> pl.DataFrame:
    """The frame that feature functions receive: one row per bar of the front contract, in time order.

    Columns: `ts` (UTC start of the bar), `known_at` (UTC, when it is complete), `open high low close` (float), `volume`, `contract`,
    `session` (trade date), `minute_of_session`, `minutes_to_close`, `close_prev` (previous close of the same contract),
    `days_to_expiry` (calendar days to the scheduled last trading day; null where unknown).
    """
    expiry = np.array([np.iinfo(np.int32).min if day is None else day for day in series.expiry_day], np.int64)[series.contract_id]
    known = expiry > np.iinfo(np.int32).min
    prices = {name: getattr(series, f"{name}_e9") / 1e9 for name in ("open", "high", "low", "close", "close_prev")}
    return pl.DataFrame(
        {
            "ts": pl.Series(series.ts_ns).cast(pl.Datetime("ns", "UTC")),
            "known_at": pl.Series(series.known_ns).cast(pl.Datetime("ns", "UTC")),
            **{name: prices[name] for name in ("open", "high", "low", "close")},
            "volume": series.volume,
            "contract": pl.Series(series.contracts).gather(pl.Series(series.contract_id)),
            "session": pl.Series(series.trade_day).cast(pl.Date),
            "minute_of_session": series.minute_of_session,
            "minutes_to_close": series.minutes_to_close,
            "close_prev": prices["close_prev"],
            "days_to_expiry": pl.Series(np.where(known, expiry - series.trade_day, 0)).set(pl.Series(~known), None),
        }
    )


def build_default(bars: pl.DataFrame) -> pl.DataFrame:
    """The default features (see `FEATURES`) of a bars frame. Rows before the warm-up are null."""
    base = bars.with_columns(move=pl.col("close") - pl.col("close_prev")).with_columns(
        path=pl.col("move").cum_sum(), vol=_ewm_vol("move", 60), first_of_session=pl.col("session") != pl.col("session").shift(1)
    )
    base = base.with_columns(
        session_bar=pl.int_range(pl.len()).over("session") + 1,
        session_start=(pl.col("path") - (pl.col("close") - pl.col("open"))).first().over("session"),
        session_volume=pl.col("volume").cum_sum().over("session"),
        session_value=(pl.col("path") * pl.col("volume")).cum_sum().over("session"),
        session_mean=pl.col("path").cum_sum().over("session") / (pl.int_range(pl.len()).over("session") + 1),
    )
    columns = _returns() | _volatility() | _place() | _volume() | _momentum() | _calendar()
    built = base.select(**{name: columns[name].cast(pl.Float64) for name in FEATURES})
    is_warm = pl.int_range(pl.len()) >= WARM_UP_BARS
    return built.select(pl.when(is_warm).then(pl.all()).otherwise(None))


def load_builder(spec: str) -> FeatureBuilder:
    """The feature function that `--features module:callable` names; modules are also looked for in the current folder.

    Raises:
        ConfigError: the text is not of that form, or the module or the callable is not there.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"--features is {spec!r}; give it as module:callable, for example mypkg.features:build.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        builder = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--features {spec}: {error}. The module must be importable from here or installed.") from error
    if not callable(builder):
        raise ConfigError(f"--features {spec}: {attribute} is a {type(builder).__name__}, not a callable.")
    return builder


def build_features(bars: pl.DataFrame, builder: FeatureBuilder | None) -> tuple[tuple[str, ...], np.ndarray, int]:
    """Names, values and first usable bar of a feature set.

    Args:
        bars: frame of `bars_frame`.
        builder: a user's function, or None for the default set.

    Returns:
        (names, `[T, F]` float32 all finite, first bar whose features are all defined). Rows before that bar are zero.

    Raises:
        DataError: wrong height, no column, a column that is not numeric, a hole after the warm-up, or a value that changes when later bars
            are cut off (the future leaks in).
    """
    frame = _checked(builder(bars) if builder else build_default(bars), bars.height)
    values = frame.cast(pl.Float64).fill_null(np.nan).to_numpy()
    bad_row = ~np.isfinite(values).all(axis=1)
    first = int(np.argmin(bad_row)) if not bad_row.all() else bars.height
    late = np.flatnonzero(bad_row[first:])
    if first == bars.height or late.size:
        row = first + int(late[0]) if late.size else bars.height - 1
        column = frame.columns[int(np.flatnonzero(~np.isfinite(values[row]))[0])]
        raise DataError(
            f"Feature {column!r} is not finite at bar {row} ({bars['ts'][row]}); a feature may be undefined only in a warm-up at the start. "
            "Fill it in the feature function."
        )
    if builder:
        _refuse_leak(bars, builder, frame.columns, values)
    values[:first] = 0.0
    return tuple(frame.columns), values.astype(np.float32), first


def _checked(frame: object, height: int) -> pl.DataFrame:
    if not isinstance(frame, pl.DataFrame):
        raise DataError(f"The feature function returned a {type(frame).__name__}; it must return a polars DataFrame.")
    if frame.height != height:
        raise DataError(f"The feature function returned {frame.height} rows for {height} bars; it must return one row per bar.")
    if not frame.width:
        raise DataError("The feature function returned no column; it must return one float column per feature.")
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == pl.Boolean):
            raise DataError(f"Feature {name!r} has type {dtype}; features must be numbers.")
    return frame


def _refuse_leak(bars: pl.DataFrame, builder: FeatureBuilder, names: list[str], values: np.ndarray) -> None:
    """Features of the first bars must not change when later bars are cut off."""
    for cut in {bars.height * 2 // 3, bars.height - 1}:
        if cut < 2:
            continue
        again = _checked(builder(bars.head(cut)), cut).cast(pl.Float64).fill_null(np.nan).to_numpy()
        rows = slice(max(0, cut - _CUT_ROWS), cut)
        differs = ~np.isclose(again[rows], values[rows], rtol=1e-6, atol=1e-9, equal_nan=True)
        if differs.any():
            row, column = np.argwhere(differs)[0]
            raise DataError(
                f"Feature {names[column]!r} sees the future: its value at bar {rows.start + row} ({bars['ts'][rows.start + int(row)]}) is "
                f"{values[rows][row, column]:g} with all bars and {again[row, column]:g} when the bars after {cut - 1} are cut off. A row may use bars up to its own only."
            )


def _ewm_vol(column: str, span: int) -> pl.Expr:
    return (pl.col(column) ** 2).ewm_mean(span=span).sqrt()


def _ratio(top: pl.Expr, bottom: pl.Expr) -> pl.Expr:
    """Quotient, 0 where the divisor is 0 (a market that did not move)."""
    return pl.when(bottom > 0).then(top / bottom).otherwise(0.0)


def _log_ratio(top: pl.Expr, bottom: pl.Expr) -> pl.Expr:
    return pl.when((bottom > 0) & (top > 0)).then((top / bottom).log()).otherwise(0.0)


def _returns() -> dict[str, pl.Expr]:
    vol = pl.col("vol")
    path = pl.col("path")
    over = {f"ret_{h}": _ratio(path - path.shift(h).fill_null(path.first()), vol * np.sqrt(h)) for h in _HORIZONS}
    return over | {
        "ret_1": _ratio(pl.col("move"), vol),
        "ret_2": _ratio(pl.col("move").shift(1).fill_null(0.0), vol),
        "ret_session": _ratio(path - pl.col("session_start"), vol * pl.col("session_bar").sqrt()),
        "gap": _ratio(pl.col("open") - pl.col("close_prev"), vol),
    }


def _volatility() -> dict[str, pl.Expr]:
    return {
        "vol_fast": _log_ratio(_ewm_vol("move", 20), _ewm_vol("move", 240)),
        "vol_slow": _log_ratio(_ewm_vol("move", 240), _ewm_vol("move", 2400)),
        "range": _ratio(pl.col("high") - pl.col("low"), pl.col("vol")),
    }


def _place() -> dict[str, pl.Expr]:
    def channel(bars: int) -> pl.Expr:
        low = pl.col("path").rolling_min(bars, min_samples=1)
        high = pl.col("path").rolling_max(bars, min_samples=1)
        return _ratio(2 * (pl.col("path") - low), high - low) - pl.when(high > low).then(1.0).otherwise(0.0)

    span = pl.col("high") - pl.col("low")
    return {
        "bar_place": pl.when(span > 0).then((2 * pl.col("close") - pl.col("high") - pl.col("low")) / span).otherwise(0.0),
        "channel_60": channel(60),
        "channel_240": channel(240),
    }


def _volume() -> dict[str, pl.Expr]:
    volume = pl.col("volume")
    mean = pl.when(pl.col("session_volume") > 0).then(pl.col("session_value") / pl.col("session_volume")).otherwise(pl.col("session_mean"))
    return {
        "volume_surprise": ((volume + 1.0) / (volume.ewm_mean(span=240) + 1.0)).log(),
        "volume_trend": ((volume.ewm_mean(span=20) + 1.0) / (volume.ewm_mean(span=240) + 1.0)).log(),
        "vwap_gap": _ratio(pl.col("path") - mean, pl.col("vol") * pl.col("session_bar").sqrt()),
    }


def _momentum() -> dict[str, pl.Expr]:
    move, path, vol = pl.col("move"), pl.col("path"), pl.col("vol")
    up = move.clip(lower_bound=0.0).ewm_mean(alpha=1 / 14, adjust=False)
    down = (-move).clip(lower_bound=0.0).ewm_mean(alpha=1 / 14, adjust=False)
    macd = path.ewm_mean(span=12, adjust=False) - path.ewm_mean(span=26, adjust=False)
    return {
        "rsi_14": _ratio(up - down, up + down),
        "macd": _ratio(macd, vol),
        "macd_hist": _ratio(macd - macd.ewm_mean(span=9, adjust=False), vol),
        "ema_gap_60": _ratio(path - path.ewm_mean(span=60, adjust=False), vol * np.sqrt(60)),
        "persistence": _ratio((move * move.shift(1).fill_null(0.0)).ewm_mean(span=60), (move**2).ewm_mean(span=60)),
    }


def _calendar() -> dict[str, pl.Expr]:
    minute = pl.col("minute_of_session") * (2 * np.pi / _SESSION_MINUTES)
    weekday = pl.col("session").dt.weekday() * (2 * np.pi / 7)
    to_roll = (pl.col("days_to_expiry") - _ROLL_LEAD_DAYS).clip(0, _ROLL_HORIZON_DAYS) / _ROLL_HORIZON_DAYS
    return {
        "tod_sin": minute.sin(),
        "tod_cos": minute.cos(),
        "to_close": (-pl.col("minutes_to_close") / 60.0).exp(),
        "dow_sin": weekday.sin(),
        "dow_cos": weekday.cos(),
        "to_roll": to_roll.fill_null(0.0),
    }
