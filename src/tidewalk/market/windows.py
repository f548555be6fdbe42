"""Calendar walk-forward windows: train, validation and test months as half-open bar ranges.

Months are calendar months of trade dates, counted from the month of the first bar. A month is complete when the data
reach its last session. Purging shortens train and validation, never test.
"""

import dataclasses
import datetime as dt
import functools
from collections.abc import Sequence

import jax
import numpy as np

from tidewalk.core.arrays import Float32, HostOrDevice, Int32
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.words import are, counted
from tidewalk.data.calendar.sessions import last_session_of_month

_ROUNDING, _NO_SPREAD = 1e-7, 1e-10
"""A feature whose spread is below this share of its mean, or below this number, is rounding: it counts as constant."""
_RANGES = ("train", "val", "test")
MIN_BARS = 5
"""Bars that a range needs for three decisions and their fills: the fewest from which anything can be said."""
_FEW_FRAC = 0.25
"""A range with fewer bars than this share of what is usual at its length is said: it holds a hole, not a market."""


@dataclasses.dataclass(frozen=True)
class WindowConfig:
    """Walk-forward windows in calendar months."""

    train_months: int = 12
    """Months of training data in a window."""
    val_months: int = 1
    """Months that choose the best epoch of a window."""
    test_months: int = 1
    """Months that are traded once, out of sample."""
    step_months: int = 1
    """Months from one window to the next; at least --test-months, so that no test month is counted twice."""
    partial_test: bool = False
    """Accept a last window whose test months are not complete."""
    purge_bars: int | None = None
    """Bars dropped at the end of train and validation; default n-step + 1: no target reads into the next range."""
    min_bars: int = MIN_BARS
    """Fewest bars in a range; a window with fewer in its train, validation or test is left out, with a warning."""

    def __post_init__(self) -> None:
        """Refuse lengths that make no window."""
        for name in ("train_months", "val_months", "test_months", "step_months"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be 1 or more.")
        if self.step_months < self.test_months:
            raise ConfigError(
                f"--step-months {self.step_months} is less than --test-months {self.test_months}: test months would be "
                f"traded and counted twice. Use --step-months {self.test_months} or more."
            )
        if self.purge_bars is not None and self.purge_bars < 0:
            raise ConfigError(f"--purge-bars is {self.purge_bars}; it must be 0 or more.")
        if self.min_bars < MIN_BARS:
            raise ConfigError(f"--min-bars is {self.min_bars}; it must be {MIN_BARS} or more.")


@dataclasses.dataclass(frozen=True)
class BarRange:
    """Half-open range of bars `[first, stop)` with its trade dates."""

    first: int
    stop: int
    first_day: dt.date
    last_day: dt.date
    sessions: int

    @property
    def bars(self) -> int:
        """Number of bars."""
        return self.stop - self.first


@dataclasses.dataclass(frozen=True)
class Window:
    """One walk-forward window. Train and validation are already purged."""

    index: int
    train: BarRange
    val: BarRange
    test: BarRange
    test_month: int
    """First month of the test, counted from year 0 (see `month_name`)."""
    is_partial_test: bool


@dataclasses.dataclass(frozen=True)
class WindowPlan:
    """All windows of a study, with what a reader should know of them."""

    windows: tuple[Window, ...]
    purge_bars: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["train", "val", "test", "center", "scale", "reward_scale"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows for the device: offsets and a row of numbers each. `[W, 2]` ranges are decisions `[first, stop)`."""

    train: Int32[HostOrDevice, "W 2"]
    val: Int32[HostOrDevice, "W 2"]
    test: Int32[HostOrDevice, "W 2"]
    center: Float32[HostOrDevice, "W F"]
    scale: Float32[HostOrDevice, "W F"]
    """Features are seen as (raw - center) * scale, both from train bars alone."""
    reward_scale: Float32[HostOrDevice, "W"]
    """One over the standard deviation of `move_ticks` on train bars: rewards are in units of volatility."""


def month_name(index: int) -> str:
    """`2024-03` for a month counted from year 0."""
    return f"{index // 12:04d}-{index % 12 + 1:02d}"


def plan_windows(
    trade_day: np.ndarray, sessions_rule: str, config: WindowConfig, *, purge_bars: int, first_usable: int
) -> WindowPlan:
    """Walk-forward windows of a series of bars.

    Args:
        trade_day: `[T]` trade dates, days since 1970-01-01, non-decreasing.
        sessions_rule: session rule that knows the last session of a month.
        config: lengths in months.
        purge_bars: bars dropped at the end of train and validation.
        first_usable: first bar with defined features; a train range starts no earlier.

    Returns:
        floor((complete months - (train + val + test)) / step) + 1 windows, one more with `partial_test` where an
        incomplete month allows it.

    Raises:
        DataError: not enough history, with the arithmetic.
    """
    months = _months_of(trade_day)
    first_month, last_month = int(months[0]), int(months[-1])
    last_day = _as_date(int(trade_day[-1]))
    last_session = last_session_of_month(last_day.year, last_day.month, sessions_rule)
    complete = last_month - first_month + (1 if last_day >= last_session else 0)
    starts = _window_starts(complete, last_month - first_month + 1, config)
    if not starts:
        raise DataError(_too_short(first_month, last_month, complete, last_day, last_session, config))
    cut = functools.partial(_one_window, months, trade_day, config=config, purge=purge_bars, first_usable=first_usable)
    found = [cut(first_month + start, complete_stop=first_month + complete) for start in starts]
    windows, warnings = _without_thin(found, config)
    if not windows:
        raise DataError(
            f"No window is left. {' '.join(warnings)} Warm-up takes {counted(first_usable, 'bar')} (--lookback and the "
            f"features), the purge {purge_bars:,} at each end (--purge-bars, by default --n-step + 1)."
        )
    notes = []
    warnings += _sparse_ranges(windows)
    if config.step_months > config.test_months:
        uncovered = config.step_months - config.test_months
        notes.append(
            f"Not traded between test ranges: {counted(uncovered, 'month')} (--step-months {config.step_months} > "
            f"--test-months {config.test_months})."
        )
    if windows[-1].is_partial_test:
        warnings.append(
            f"The last test range is incomplete: the data end on {last_day}, the month's last session is "
            f"{last_session}."
        )
    return WindowPlan(tuple(windows), purge_bars, tuple(notes), tuple(warnings))


def decision_ranges(plan: WindowPlan) -> dict[str, np.ndarray]:
    """Decision ranges `[W, 2]` int32 of train, val and test.

    A decision of bar t fills at the open of bar t+1 and is marked at the open of bar t+2. In train, over bars `[a, b)`,
    decisions stop before bar b-2: lanes are truncated there and bootstrap. In validation and test the last decision, of
    bar b-2, closes the position at the open of bar b-1.
    """
    last = {"train": 2, "val": 1, "test": 1}
    return {
        name: np.array([(getattr(w, name).first, getattr(w, name).stop - behind) for w in plan.windows], np.int32)
        for name, behind in last.items()
    }


def fit_windows(plan: WindowPlan, features: np.ndarray, move_ticks: np.ndarray) -> Windows:
    """Device windows with the train-only scaler of each (host arrays, ready for the one upload).

    Constant features get scale 0: they are seen as 0, never as a division by zero.

    Args:
        plan: the windows.
        features: `[T, F]` raw features.
        move_ticks: `[T]` moves in ticks.
    """
    center, scale, reward_scale = [], [], []
    for window in plan.windows:
        rows = features[window.train.first : window.train.stop].astype(np.float64)
        mean, std = rows.mean(0), rows.std(0)
        center.append(mean)
        least = np.maximum(_ROUNDING * np.abs(mean), _NO_SPREAD)
        scale.append(np.where(std > least, 1.0 / np.maximum(std, least), 0.0))
        # the last two moves of the range reach prices after it
        std_ticks = float(move_ticks[window.train.first : max(window.train.stop - 2, window.train.first + 1)].std())
        reward_scale.append(1.0 / std_ticks if std_ticks > 0 else 1.0)
    ranges = decision_ranges(plan)
    return Windows(
        **ranges,
        center=np.asarray(center, np.float32),
        scale=np.asarray(scale, np.float32),
        reward_scale=np.asarray(reward_scale, np.float32),
    )


def end_to_end(parts: Sequence[tuple[Windows, int]]) -> Windows:
    """Windows of several symbols for one resident store, host arrays.

    Args:
        parts: the windows of each symbol in its own bars, and the place of its first bar in the store.
    """
    if len(parts) == 1:
        return parts[0][0]
    moved = [
        dataclasses.replace(w, **{name: getattr(w, name) + np.int32(first) for name in ("train", "val", "test")})
        for w, first in parts
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *moved)


def _as_date(day: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=day)


def _months_of(trade_day: np.ndarray) -> np.ndarray:
    days = trade_day.astype("datetime64[D]")
    return days.astype("datetime64[M]").astype(np.int64) + 1970 * 12


def _window_starts(complete: int, present: int, config: WindowConfig) -> list[int]:
    """First month of each window, counted from the anchor month."""
    before_test = config.train_months + config.val_months
    starts = list(range(0, complete - (before_test + config.test_months) + 1, config.step_months))
    following = starts[-1] + config.step_months if starts else 0
    if config.partial_test and following + before_test < present and following + before_test <= complete:
        starts.append(following)
    return starts


def _one_window(
    months: np.ndarray,
    trade_day: np.ndarray,
    start: int,
    *,
    config: WindowConfig,
    purge: int,
    first_usable: int,
    complete_stop: int,
) -> Window:
    edges = np.cumsum([start, config.train_months, config.val_months, config.test_months])
    bars = np.searchsorted(months, edges)
    return Window(
        index=0,
        train=_bar_range(trade_day, max(int(bars[0]), first_usable), int(bars[1]) - purge),
        val=_bar_range(trade_day, max(int(bars[1]), first_usable), int(bars[2]) - purge),
        test=_bar_range(trade_day, max(int(bars[2]), first_usable), int(bars[3])),
        test_month=int(edges[2]),
        is_partial_test=int(edges[3]) > complete_stop,
    )


def _without_thin(found: Sequence[Window], config: WindowConfig) -> tuple[list[Window], list[str]]:
    """The windows whose ranges hold enough bars, numbered, and for each range a line on those where it does not."""
    kept, thin = list[Window](), {name: list[Window]() for name in _RANGES}
    for window in found:
        short = next((name for name in _RANGES if getattr(window, name).bars < config.min_bars), None)
        if short:
            thin[short].append(window)
        else:
            kept.append(dataclasses.replace(window, index=len(kept)))
    return kept, [_left_out(name, windows, config.min_bars) for name, windows in thin.items() if windows]


def _left_out(name: str, windows: Sequence[Window], min_bars: int) -> str:
    held = _bars_held(name, windows)
    return (
        f"{_testing(windows)} {are(len(windows))} left out: the {name} range holds {held} after warm-up and purge, at "
        f"least {min_bars} are needed."
    )


def _testing(windows: Sequence[Window]) -> str:
    """Windows by their test months: one by its month, several by the first and the last."""
    first, last = (month_name(window.test_month) for window in (windows[0], windows[-1]))
    if len(windows) == 1:
        return f"The window that tests {first}"
    return f"{counted(len(windows), 'window')} (the first tests {first}, the last {last})"


def _bars_held(name: str, windows: Sequence[Window]) -> str:
    """Bars of a range of the windows: `3 bars`, or `0 to 3 bars`."""
    bars = [getattr(window, name).bars for window in windows]
    most = counted(max(bars), "bar")
    return most if min(bars) == max(bars) else f"{min(bars):,} to {most}"


def _bar_range(trade_day: np.ndarray, first: int, stop: int) -> BarRange:
    stop = max(stop, first)
    days = trade_day[first:stop]
    if not len(days):
        nothing = _as_date(int(trade_day[min(first, len(trade_day) - 1)]))
        return BarRange(first, stop, nothing, nothing, 0)
    return BarRange(first, stop, _as_date(int(days[0])), _as_date(int(days[-1])), len(np.unique(days)))


def _sparse_ranges(windows: Sequence[Window]) -> list[str]:
    """For each range a line on those with far fewer bars than is usual; an incomplete test is said anyway."""
    lines = []
    for name in _RANGES:
        usual = float(np.median([getattr(window, name).bars for window in windows]))
        sparse = [
            window
            for window in windows
            if getattr(window, name).bars < _FEW_FRAC * usual and not (name == "test" and window.is_partial_test)
        ]
        if sparse:
            most = max(getattr(window, name).sessions for window in sparse)
            extent = "in" if len(sparse) == 1 else "in at most"
            lines.append(
                f"{_testing(sparse)}: the {name} range holds {_bars_held(name, sparse)} {extent} "
                f"{counted(most, 'session')}, where {usual:,.0f} bars are usual, so its figures mean little. "
                "--min-bars leaves such windows out."
            )
    return lines


def _too_short(
    first: int, last: int, complete: int, last_day: dt.date, last_session: dt.date, config: WindowConfig
) -> str:
    need = config.train_months + config.val_months + config.test_months
    text = (
        f"Not enough history: the data hold {counted(complete, 'complete month')} ({month_name(first)} to "
        f"{month_name(first + complete - 1)})"
        if complete
        else f"Not enough history: the data hold no complete month ({month_name(first)} only)"
    )
    text += (
        f", a window needs train {config.train_months} + val {config.val_months} + test {config.test_months} = {need}."
    )
    if last_day < last_session:
        text += f" {month_name(last)} is incomplete: the data end on {last_day}, its last session is {last_session}"
        partial = dataclasses.replace(config, partial_test=True)
        text += (
            "; --partial-test accepts it as the last test month."
            if _window_starts(complete, last - first + 1, partial)
            else "."
        )
    return text + " Give more data, or fewer months."
