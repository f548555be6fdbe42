"""The frame of front-contract bars that feature functions receive, and the default feature set.

Row t uses bars <= t only. Prices enter as differences, in units of recent volatility: of one bar within its contract,
of several bars on the shadow price, which takes the difference between two contracts out of every roll. So neither a
roll nor the level of the market shows, wherever the shadow price is anchored. Every column is bounded whatever the
prices do: a market that stands still, jumps or has no volume gives dull numbers, never huge or undefined ones.
"""

import itertools

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.data.contracts.rolls import FrontSeries, basis_e9

WARM_UP_BARS = 20
"""Bars at the start for which the default features are not given. Longer averages use the bars there are."""
MEMORY_BARS = 48_000
"""Bars after which nothing is left of an older one in any column: (1 - 2/2401)^48000 is below 1e-17, and a session is
never cut."""
CHUNK_BARS = 1 << 18
"""Bars for which the default features are made at a time, so that their intermediate columns stay small."""
LIMIT = 10.0
"""Bound of the columns in units of volatility: x is given as x / sqrt(1 + (x / 10)^2), which hardly touches small x."""

_HORIZONS = {5: 60, 15: 60, 60: 60, 240: 240}
"""Bars of a return -> span of the volatility that divides it: a shorter one would forget the moves it is to measure."""
_CHANNELS = (60, 240)
_SPANS = (20, 60, 240, 960, 2400)
_MINUTES_PER_DAY = 1440
_ROLL_HORIZON_DAYS = 90
_ROLL_LEAD_DAYS = 8
"""Liquidity leaves a quarterly contract about eight calendar days before its last trading day."""
_LOG_FLOOR = 0.1
_PARKINSON = 4.0 * np.log(2.0)
"""Mean squared range of a driftless random walk over its variance (Parkinson, Journal of Business 53, 1980)."""

FEATURES: dict[str, str] = {
    "ret_1": "close-to-close move of the bar / v60",
    "ret_prev": "move of the bar before / v60",
    "ret_5": "move over 5 bars / (v60 x sqrt 5)",
    "ret_15": "move over 15 bars / (v60 x sqrt 15)",
    "ret_60": "move over 60 bars / (v60 x sqrt 60)",
    "ret_240": "move over 240 bars / (v240 x sqrt 240)",
    "ret_session": "move since the session's first open / root of the session's summed squared moves and v60^2",
    "gap": "the session's first open less the close before / (v240 at that bar x sqrt 240), the same all session",
    "vol_fast": "log ratio of v20 to v240",
    "vol_slow": "log ratio of v240 to v2400",
    "range": "high less low / v60",
    "bar_place": "place of the close in the bar's range, -1 low ... +1 high",
    "channel_60": "place of the close in the range of the last 60 closes, -1 ... +1",
    "channel_240": "place of the close in the range of the last 240 closes, -1 ... +1",
    "volume_surprise": "log ratio of volume to its 240-bar mean",
    "volume_trend": "log ratio of the 20-bar to the 240-bar mean volume",
    "vwap_gap": "close less the session's volume-weighted mean of (high + low + close) / 3, in the unit of ret_session",
    "rsi_14": "relative strength index of 14 bars (Wilder), from -1 to +1",
    "macd": "12-bar less 26-bar exponential mean of the close / v60",
    "macd_hist": "12-bar less 26-bar mean, less the 9-bar exponential mean of that / v60",
    "ema_gap_960": "close less its 960-bar exponential mean / (v960 x sqrt 960)",
    "persistence": "60-bar mean of the product of successive steps over their 60-bar mean square",
    "tod_sin": "sine of the time of day, counted from the session's open (1440 minutes to the turn)",
    "tod_cos": "cosine of the same",
    "to_close": "exp(-minutes from the bar's start to the scheduled close / 60)",
    "dow_sin": "sine of the day of the week of the trade date (7 days to the turn)",
    "dow_cos": "cosine of the same",
    "to_roll": "days to the expected roll (8 days before expiry) / 90, from 0 to 1; 0 where the expiry is not known",
}
"""The default feature set: column -> meaning.

A move is a close less the close before it in the same contract; a move over several bars, a mean of closes and a
channel are of the shadow close (`close_adj`). A step is a move without the gap that opens a session (where sessions are
one bar long, with it). vN is the volatility of a bar: the root of the N-bar exponential mean of
(step^2 + (high - low)^2 / (4 log 2)) / 2. A quotient by a volatility is bounded by `LIMIT`. The log ratio of a to b is
log((a / b + 0.1) / 1.1): 0 for equals, bounded below, and 0 where b is 0.
"""


def bars_frame(series: FrontSeries, rows: slice = slice(None), basis: NDArray[np.int64] | None = None) -> pl.DataFrame:
    """The frame that feature functions receive: one row per bar of the front contract, in time order.

    Columns: `ts` (UTC start of the bar), `known_at` (UTC, when it is complete), `open high low close` (float),
    `volume`, `contract`, `session` (trade date), `minute_of_session`, `minutes_to_close`, `close_prev` (previous close
    of the same contract), `days_to_expiry` (calendar days to the scheduled last trading day; null where unknown),
    `open_adj high_adj low_adj close_adj` (shadow prices: continuous over rolls, anchored at the first bar).

    Args:
        series: the front contract's bars.
        rows: the bars wanted.
        basis: `basis_e9(series)` where it is at hand.
    """
    basis = basis_e9(series) if basis is None else basis
    contract_id, trade_day = series.contract_id[rows], series.trade_day[rows]
    expiry = np.array([-1 if day is None else day for day in series.expiry_day], np.int64)[contract_id]
    is_known = np.array([day is not None for day in series.expiry_day])[contract_id]
    prices_e9 = {name: getattr(series, f"{name}_e9")[rows] for name in ("open", "high", "low", "close")}
    return pl.DataFrame(
        {
            "ts": pl.Series(series.ts_ns[rows]).cast(pl.Datetime("ns", "UTC")),
            "known_at": pl.Series(series.known_ns[rows]).cast(pl.Datetime("ns", "UTC")),
            **{name: price_e9 / 1e9 for name, price_e9 in prices_e9.items()},
            "volume": series.volume[rows],
            "contract": pl.Series(series.contracts).gather(pl.Series(contract_id)),
            "session": pl.Series(trade_day).cast(pl.Date),
            "minute_of_session": series.minute_of_session[rows],
            "minutes_to_close": series.minutes_to_close[rows],
            "close_prev": series.close_prev_e9[rows] / 1e9,
            "days_to_expiry": pl.Series(expiry - trade_day).set(pl.Series(~is_known), None),
            **{f"{name}_adj": (price_e9 - basis[rows]) / 1e9 for name, price_e9 in prices_e9.items()},
        }
    )


def chunks(trade_day: NDArray[np.int32]) -> list[tuple[int, int, int]]:
    """Runs of whole sessions, `CHUNK_BARS` or more each, as (first bar that matters, first bar, end).

    Where a run begins depends on no bar after it. Features made of the bars from the first one that matters are those
    made of all bars, to the precision of a double.
    """
    opens = np.flatnonzero(np.diff(trade_day, prepend=trade_day[0] - 1))
    cuts = [0]
    while (row := int(np.searchsorted(opens, cuts[-1] + CHUNK_BARS))) < len(opens):
        cuts.append(int(opens[row]))
    return [(max(0, a - MEMORY_BARS), a, b) for a, b in itertools.pairwise([*cuts, len(trade_day)])]


def build_default(bars: pl.DataFrame) -> pl.DataFrame:
    """The default features (see `FEATURES`) of a bars frame, float64. Rows before the warm-up are null."""
    base = _with_channels(_with_means(_with_session(_with_moves(bars))))
    columns = _returns() | _volatility() | _place() | _volume() | _momentum() | _calendar()
    is_warm = pl.int_range(pl.len()) >= WARM_UP_BARS
    return base.select(pl.when(is_warm).then(columns[name].cast(pl.Float64)).alias(name) for name in FEATURES)


def _with_moves(bars: pl.DataFrame) -> pl.DataFrame:
    """Adds moves, steps, changes of the shadow close and a variance per span."""
    is_open = pl.col("session").ne_missing(pl.col("session").shift(1))
    base = bars.with_columns(
        move=pl.col("close") - pl.col("close_prev"),
        body=pl.col("close") - pl.col("open"),
        is_open=is_open,
    ).with_columns(
        change=pl.col("close_adj").diff().fill_null(0.0),
        # Where each session is one bar (daily bars), the gap is most of what a bar risks.
        step=pl.when(pl.col("is_open") & ~pl.col("is_open").shift(1, fill_value=False))
        .then(pl.col("body"))
        .otherwise(pl.col("move")),
    )
    variance = (pl.col("step") ** 2 + (pl.col("high") - pl.col("low")) ** 2 / _PARKINSON) / 2
    return base.with_columns(variance.ewm_mean(span=span).alias(f"var_{span}") for span in _SPANS)


def _with_session(base: pl.DataFrame) -> pl.DataFrame:
    """Adds what a session accumulates, with prices as differences from its first open (`level`)."""
    inside = pl.when(pl.col("is_open")).then(pl.col("body")).otherwise(pl.col("move"))
    typical = pl.col("level") + (pl.col("high") + pl.col("low") - 2 * pl.col("close")) / 3
    return (
        base.with_columns(
            level=pl.col("close_adj") - pl.col("open_adj").first().over("session"),
            session_var=(inside**2).cum_sum().over("session") + pl.col("var_60"),
            session_bar=(pl.int_range(pl.len()) + 1).over("session"),
            session_volume=pl.col("volume").cum_sum().over("session"),
        )
        .with_columns(typical=typical)
        .with_columns(
            typical_mean=pl.col("typical").cum_sum().over("session") / pl.col("session_bar"),
            typical_value=(pl.col("typical") * pl.col("volume")).cum_sum().over("session"),
        )
    )


def _with_means(base: pl.DataFrame) -> pl.DataFrame:
    """Adds the exponential means that several columns are made of."""
    move, volume = pl.col("move"), pl.col("volume")
    return base.with_columns(
        up=move.clip(lower_bound=0.0).ewm_mean(alpha=1 / 14, adjust=False),
        down=(-move).clip(lower_bound=0.0).ewm_mean(alpha=1 / 14, adjust=False),
        trend=_over_mean(26) - _over_mean(12),
        mean_volume=volume.ewm_mean(span=240),
    )


def _with_channels(base: pl.DataFrame) -> pl.DataFrame:
    """Adds lowest and highest shadow close of the last bars."""
    close = base["close_adj"].to_numpy()
    lows, highs = _extremes(close, np.minimum), _extremes(close, np.maximum)
    columns = {f"bottom_{bars}": low for bars, low in zip(_CHANNELS, lows, strict=True)}
    return base.with_columns(**columns, **{f"top_{bars}": high for bars, high in zip(_CHANNELS, highs, strict=True)})


def _extremes(values: NDArray[np.float64], pick: np.ufunc) -> list[NDArray[np.float64]]:
    """Extreme of the last N values, or of those there are, for each N of `_CHANNELS`; from extremes of 2, 4, 8, ..."""
    found: list[NDArray[np.float64]] = []
    width, widest = 1, values
    for bars in _CHANNELS:
        while 2 * width <= bars:
            widest = _with_lag(widest, width, pick)
            width *= 2
        found.append(_with_lag(widest, bars - width, pick))
    return found


def _with_lag(values: NDArray[np.float64], lag: int, pick: np.ufunc) -> NDArray[np.float64]:
    picked = values.copy()
    if lag < len(values):
        pick(values[lag:], values[: len(values) - lag], out=picked[lag:])
    return picked


def _units(value: pl.Expr, variance: pl.Expr) -> pl.Expr:
    """Quotient value / sqrt(variance), bounded by `LIMIT`; 0 where both are 0 (a market that does not move)."""
    unit = (variance + (value / LIMIT) ** 2).sqrt()
    return pl.when(unit > 0).then(value / unit).otherwise(0.0)


def _log_ratio(top: pl.Expr, bottom: pl.Expr) -> pl.Expr:
    """Log of top / bottom, softened so that a zero of `top` is no abyss; 0 where `bottom` is 0."""
    return pl.when(bottom > 0).then(((top / bottom + _LOG_FLOOR) / (1 + _LOG_FLOOR)).log()).otherwise(0.0)


def _ratio(top: pl.Expr, bottom: pl.Expr) -> pl.Expr:
    return pl.when(bottom > 0).then(top / bottom).otherwise(0.0)


def _returns() -> dict[str, pl.Expr]:
    path, move = pl.col("close_adj"), pl.col("move")
    gap = _units(pl.col("open") - pl.col("close_prev"), 240 * pl.col("var_240"))

    def over(bars: int, span: int) -> pl.Expr:
        bars_there = pl.int_range(pl.len()).clip(1, bars)
        return _units(path - path.shift(bars).fill_null(path.first()), bars_there * pl.col(f"var_{span}"))

    return {f"ret_{bars}": over(bars, span) for bars, span in _HORIZONS.items()} | {
        "ret_1": _units(move, pl.col("var_60")),
        "ret_prev": _units(move.shift(1, fill_value=0.0), pl.col("var_60")),
        "ret_session": _units(pl.col("level"), pl.col("session_var")),
        "gap": gap.first().over("session"),
    }


def _volatility() -> dict[str, pl.Expr]:
    return {
        "vol_fast": _log_ratio(pl.col("var_20").sqrt(), pl.col("var_240").sqrt()),
        "vol_slow": _log_ratio(pl.col("var_240").sqrt(), pl.col("var_2400").sqrt()),
        "range": _units(pl.col("high") - pl.col("low"), pl.col("var_60")),
    }


def _place() -> dict[str, pl.Expr]:
    path, high, low = pl.col("close_adj"), pl.col("high"), pl.col("low")

    def channel(bars: int) -> pl.Expr:
        bottom, top = pl.col(f"bottom_{bars}"), pl.col(f"top_{bars}")
        return _ratio((path - bottom) - (top - path), top - bottom)

    return {
        "bar_place": _ratio((pl.col("close") - low) - (high - pl.col("close")), high - low),
        **{f"channel_{bars}": channel(bars) for bars in _CHANNELS},
    }


def _volume() -> dict[str, pl.Expr]:
    volume, mean = pl.col("volume"), pl.col("mean_volume")
    vwap = pl.when(pl.col("session_volume") > 0).then(pl.col("typical_value") / pl.col("session_volume"))
    return {
        "volume_surprise": _log_ratio(volume, mean),
        "volume_trend": _log_ratio(volume.ewm_mean(span=20), mean),
        "vwap_gap": _units(pl.col("level") - vwap.otherwise(pl.col("typical_mean")), pl.col("session_var")),
    }


def _momentum() -> dict[str, pl.Expr]:
    step, macd = pl.col("step"), pl.col("trend")
    up, down = pl.col("up"), pl.col("down")
    return {
        "rsi_14": _ratio(up - down, up + down),
        "macd": _units(macd, pl.col("var_60")),
        "macd_hist": _units(macd - macd.ewm_mean(span=9, adjust=False), pl.col("var_60")),
        "ema_gap_960": _units(_over_mean(960), 960 * pl.col("var_960")),
        "persistence": _ratio((step * step.shift(1, fill_value=0.0)).ewm_mean(span=60), (step**2).ewm_mean(span=60)),
    }


def _over_mean(span: int) -> pl.Expr:
    """Shadow close less its exponential mean, from the changes: a difference of two levels would leave rounding noise.

    The mean starts at the first close, so c[t] - mean[t] is the sum over i < t of (1 - a)^(i+1) change[t - i].
    """
    gain = 2 / (span + 1)
    return pl.col("change").ewm_mean(alpha=gain, adjust=False) * ((1 - gain) / gain)


def _calendar() -> dict[str, pl.Expr]:
    time_of_day = pl.col("minute_of_session") * (2 * np.pi / _MINUTES_PER_DAY)
    weekday = pl.col("session").dt.weekday() * (2 * np.pi / 7)
    to_roll = (pl.col("days_to_expiry") - _ROLL_LEAD_DAYS).clip(0, _ROLL_HORIZON_DAYS) / _ROLL_HORIZON_DAYS
    return {
        "tod_sin": time_of_day.sin(),
        "tod_cos": time_of_day.cos(),
        "to_close": (-pl.col("minutes_to_close") / 60.0).exp(),
        "dow_sin": weekday.sin(),
        "dow_cos": weekday.cos(),
        "to_roll": to_roll.fill_null(0.0),
    }
