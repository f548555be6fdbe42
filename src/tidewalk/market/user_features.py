"""Feature sets by name, their check, and the one array that the market keeps.

A user's set is any `build(bars) -> DataFrame` of the same height with one named number column per feature. What it
returns is checked for shape and holes, and it is called again on other bars to see whether a row depends on what comes
after it.
"""

import importlib
import math
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl

from tidewalk.core.errors import ConfigError, DataError, TidewalkError, did_you_mean
from tidewalk.data.contracts.rolls import FrontSeries, basis_e9
from tidewalk.market.features import FEATURES, WARM_UP_BARS, bars_frame, build_default, chunks

FeatureBuilder = Callable[[pl.DataFrame], pl.DataFrame]

PRICES = ("open", "high", "low", "close")
_COMPARED_ROWS = 1000
"""Rows before a cut that are compared; whatever looks ahead does so in the last of them."""
_CUT_OFF, _CHANGED = "cut off", "replaced by others"
_TRIALS = ((0.618, _CUT_OFF), (1.0, _CUT_OFF), (0.4637, _CHANGED), (0.8091, _CHANGED))
"""Where the bars are cut, as a share of their number, and what then happens to the ones after the cut.

The shares are odd so that cuts fall inside hours and sessions: at a session's end its final high is no secret."""


def load_builder(spec: str) -> FeatureBuilder:
    """The feature function that `--features module:callable` names; modules are looked for in the current folder first.

    Raises:
        ConfigError: the text is not of that form, the module is not there or fails, or it has no such callable.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"--features is {spec!r}; give it as module:callable, for example mypkg.features:build.")
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        raise ConfigError(
            f"--features {spec}: {module_name} is a file; name the module, for example "
            f"{Path(module_name).stem}:{attribute}, and run in the folder that holds it."
        )
    module = _imported(module_name, spec)
    builder = getattr(module, attribute, None)
    if builder is None:
        names = [name for name, value in vars(module).items() if callable(value)]
        place = getattr(module, "__file__", None) or "a folder without __init__.py"
        raise ConfigError(
            f"--features {spec}: module {module_name} ({place}) has no {attribute!r}{did_you_mean(attribute, names)}."
        )
    if not callable(builder):
        raise ConfigError(f"--features {spec}: {attribute} is a {type(builder).__name__}, not a callable.")
    return cast(FeatureBuilder, builder)


def build_features(
    bars: pl.DataFrame | FrontSeries, builder: FeatureBuilder | None
) -> tuple[tuple[str, ...], np.ndarray, int]:
    """Names, values and first usable bar of a feature set.

    Args:
        bars: the front contract's bars, or their `bars_frame`.
        builder: a user's function, or None for the default set.

    Returns:
        (names, `[T, F]` float32 all finite, first bar whose features are all defined). Rows before that bar are zero.

    Raises:
        DataError: the function fails, wrong height, no column, a column that is not numeric, a hole after the warm-up,
            a value that changes when later bars are cut off or replaced (the future leaks in), or one that changes
            with the level of the shadow prices.
    """
    if builder is None:
        names, values = _default_values(bars)
        return names, values, WARM_UP_BARS
    frame_of_bars = bars if isinstance(bars, pl.DataFrame) else bars_frame(bars)
    frame = called(builder, frame_of_bars)
    # Before holes are looked for: a row that looks ahead is undefined at the end, and filling it would hide why.
    _refuse_leak(frame_of_bars, builder, frame)
    _refuse_anchor(frame_of_bars, builder, frame)
    values = frame.cast(pl.Float32, strict=False).to_numpy(order="c", writable=True)
    first = _first_defined(values, frame, frame_of_bars)
    values[:first] = 0.0
    return tuple(frame.columns), values, first


def _default_values(bars: pl.DataFrame | FrontSeries) -> tuple[tuple[str, ...], np.ndarray]:
    """The default features, made run by run of sessions: their intermediate columns are large."""
    is_frame = isinstance(bars, pl.DataFrame)
    trade_day = bars["session"].to_physical().to_numpy() if is_frame else bars.trade_day
    basis = None if is_frame else basis_e9(bars)
    if len(trade_day) <= WARM_UP_BARS:
        raise DataError(f"The default features need more than {WARM_UP_BARS} bars; there are {len(trade_day)}.")
    values = np.empty((len(trade_day), len(FEATURES)), np.float32)
    for needed, start, stop in chunks(trade_day):
        rows = slice(needed, stop)
        made = build_default(bars[rows] if is_frame else bars_frame(bars, rows, basis))
        values[start:stop] = made[start - needed :].cast(pl.Float32).to_numpy()
    values[:WARM_UP_BARS] = 0.0
    return tuple(FEATURES), values


def _imported(module_name: str, spec: str) -> object:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"--features {spec}: importing {module_name} failed with {_told(error)}.") from error
        raise ConfigError(
            f"--features {spec}: there is no module {error.name!r} in the current folder ({here}) or among the "
            "installed packages."
        ) from error
    except Exception as error:
        raise ConfigError(f"--features {spec}: importing {module_name} failed with {_told(error)}.") from error
    finally:
        # Last from now on: what the user's code imports later is found, and no file here hides an installed module.
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _told(error: Exception) -> str:
    """Kind, text and place of an error of the user's code: the deepest line that is neither ours nor a library's."""
    text = f"{type(error).__name__}: {error}".strip().removesuffix(".")
    if isinstance(error, SyntaxError):
        return text  # it names its own line
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (
        "<",
        str(Path(__file__).parent),
        *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
    )
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    place = (own or frames)[-1]
    return f"{text} ({Path(place.filename).name}, line {place.lineno}, in {place.name})"


def called(builder: FeatureBuilder, bars: pl.DataFrame) -> pl.DataFrame:
    """What the function makes of the bars, checked. It gets a copy and may do with that what it likes."""
    try:
        frame = cast(object, builder(bars.clone()))
    except TidewalkError:
        raise
    except Exception as error:
        raise DataError(f"The feature function failed on {bars.height} bars with {_told(error)}.") from error
    if not isinstance(frame, pl.DataFrame):
        raise DataError(f"The feature function returned a {type(frame).__name__}; it must return a polars DataFrame.")
    if not frame.width:
        raise DataError("The feature function returned no column; it must return one float column per feature.")
    if frame.height != bars.height:
        raise DataError(
            f"The feature function returned {frame.height} rows for {bars.height} bars; it must return one row per bar."
        )
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == pl.Boolean):
            raise DataError(f"Feature {name!r} has type {dtype}; features must be numbers.")
    return frame


def _first_defined(values: np.ndarray, frame: pl.DataFrame, bars: pl.DataFrame) -> int:
    """First row whose values are all finite; refuses a set without one, or with a hole after it."""
    is_good = np.logical_and.reduce(np.isfinite(values), axis=1)
    if not is_good.any():
        never = [name for name, column in zip(frame.columns, values.T, strict=True) if not np.isfinite(column).any()]
        culprit = f"feature {never[0]!r} is never defined" if never else "some feature is undefined at each of them"
        raise DataError(f"No bar of {bars.height} has all features: {culprit}. Fill it in the feature function.")
    first = int(np.argmax(is_good))
    if not is_good[first:].all():
        row = first + int(np.argmin(is_good[first:]))
        column = int(np.argmax(~np.isfinite(values[row])))
        raise DataError(
            f"Feature {frame.columns[column]!r} is {frame[row, column]} at bar {row} ({bars['ts'][row]}), which is no "
            "finite float32; a feature may be undefined only in a warm-up at the start. Fill it in the function."
        )
    return first


def _refuse_leak(bars: pl.DataFrame, builder: FeatureBuilder, frame: pl.DataFrame) -> None:
    """Features of a bar must not change when the bars after it are cut off, or are others."""
    for share, fate in _TRIALS:
        cut = min(int(bars.height * share), bars.height - 1)
        if cut < 2:
            continue
        again = called(builder, bars.head(cut) if fate == _CUT_OFF else _with_another_future(bars, cut))
        found = _first_difference(frame, again, cut)
        if found is None:
            continue
        name, row = found
        once, twice = frame[name][row], called(builder, bars)[name][row]
        if not is_same(numbers(pl.Series([once])), numbers(pl.Series([twice]))).all():
            raise DataError(
                f"Feature {name!r} is not repeatable: called twice with the same bars it gave {once} and {twice} at "
                f"bar {row}. Seed random numbers, and keep nothing from call to call."
            )
        raise DataError(
            f"Feature {name!r} sees the future: its value at bar {row} ({bars['ts'][row]}) is {once} with all bars and "
            f"{again[name][row]} when the bars after bar {cut - 1} are {fate}. A row may use bars up to its own only."
        )


def _refuse_anchor(bars: pl.DataFrame, builder: FeatureBuilder, frame: pl.DataFrame) -> None:
    faults = anchor_faults(bars, builder, frame)
    if faults:
        raise DataError(next(iter(faults.values())))


def anchor_faults(bars: pl.DataFrame, builder: FeatureBuilder, frame: pl.DataFrame) -> dict[str, str]:
    """Features that change when all shadow prices are moved by a constant: where those start means nothing.

    Args:
        bars: bars as feature functions get them.
        builder: the feature function.
        frame: what it gives for these bars.

    Returns:
        Name of the feature -> a sentence that says where and how much.
    """
    level = float(bars["close"].abs().max() or 0.0)  # type: ignore[arg-type]
    shift = 2.0 ** math.ceil(math.log2(level)) if 0.0 < level < math.inf else 1.0  # adds no rounding to prices
    again = called(builder, bars.with_columns(pl.col(f"{name}_adj") + shift for name in PRICES))
    faults: dict[str, str] = {}
    for name in frame.columns:
        once, twice = numbers(frame[name]), numbers(again[name])
        differs = ~np.isclose(once, twice, rtol=1e-4, atol=1e-6, equal_nan=True)
        if differs.any():
            row = int(np.argmax(differs))
            faults[name] = (
                f"Feature {name!r} depends on the level of an adjusted price: at bar {row} ({bars['ts'][row]}) it is "
                f"{once[row]}, and {twice[row]} when all adjusted prices are {shift:g} higher. That level means "
                "nothing, as it depends on where the data begin: use differences of adjusted prices."
            )
    return faults


def _with_another_future(bars: pl.DataFrame, cut: int) -> pl.DataFrame:
    """Prices and volumes threefold and a third in turn from row `cut` on; the clock and the contracts stay."""
    row = pl.int_range(pl.len())
    factor = pl.when(row < cut).then(1.0).when(row % 2 == 0).then(3.0).otherwise(1.0 / 3.0)
    changed = [pl.col(name) * factor for name in (*PRICES, *(f"{name}_adj" for name in PRICES), "volume")]
    return bars.with_columns(*changed, pl.col("close_prev") * factor.shift(1, fill_value=1.0))


def _first_difference(frame: pl.DataFrame, again: pl.DataFrame, cut: int) -> tuple[str, int] | None:
    """Column and row, among the last rows before a cut, at which two results differ."""
    if again.columns != frame.columns:
        raise DataError(
            f"The feature function names its columns {frame.columns} for {frame.height} bars and {again.columns} for "
            f"{again.height}; the names must not depend on the bars."
        )
    start = max(0, cut - _COMPARED_ROWS)
    for name in frame.columns:
        pair = (numbers(part[name][start:cut]) for part in (frame, again))
        differs = ~is_same(*pair)
        if differs.any():
            return name, start + int(np.argmax(differs))
    return None


def numbers(column: pl.Series) -> np.ndarray:
    """A column as float64, NaN where it is undefined."""
    return column.cast(pl.Float64).to_numpy()


def is_same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Equal up to the noise of another order of summation; undefined equals undefined."""
    return np.isclose(left, right, rtol=1e-6, atol=1e-9, equal_nan=True)
