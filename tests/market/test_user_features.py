"""Feature sets of the user: how they are found, what is refused, and that a row may not see what comes after it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from market.bar_frames import bars_of, random_bars, rolling
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.market.features import FEATURES, WARM_UP_BARS, bars_frame, build_default
from tidewalk.market.user_features import build_features, load_builder

Columns = dict[str, pl.Expr]


def bars() -> pl.DataFrame:
    return random_bars(7, 1500)


def select(**columns: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: frame.select(**columns)


# The default set.


def test_default_values_are_packed_as_float32_rows_that_are_zero_before_the_first_usable_bar() -> None:
    names, values, first = build_features(bars(), None)
    assert names == tuple(FEATURES)
    assert (values.dtype, values.shape, first) == (np.float32, (1500, len(FEATURES)), WARM_UP_BARS)
    assert values.flags.c_contiguous
    assert values.flags.writeable
    assert not values[:first].any()
    np.testing.assert_array_equal(values[first:], build_default(bars())[first:].cast(pl.Float32).to_numpy())


@pytest.mark.parametrize("count", [1, 2, WARM_UP_BARS])
def test_too_few_bars_for_the_default_set_are_counted(count: int) -> None:
    with pytest.raises(DataError, match=rf"need more than {WARM_UP_BARS} bars; there are {count}"):
        build_features(bars().head(count), None)
    assert build_features(bars().head(WARM_UP_BARS + 1), None)[2] == WARM_UP_BARS


# Finding the function.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules and the search path put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


GOOD = """
import polars as pl

def build(bars):
    return bars.select(body=pl.col("close") - pl.col("open"))
"""


def test_a_module_of_the_current_folder_is_found(folder: Path) -> None:
    (folder / "my_features.py").write_text(GOOD)
    names, values, first = build_features(bars(), load_builder("my_features:build"))
    assert (names, first) == (("body",), 0)
    np.testing.assert_allclose(values[:, 0], (bars()["close"] - bars()["open"]).to_numpy())


def test_a_module_in_a_package_may_import_its_neighbours_even_late(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text("")
    (folder / "mine" / "parts.py").write_text(GOOD)
    (folder / "mine" / "sets.py").write_text(
        "def build(bars):\n    from mine.parts import build\n    return build(bars)\n"
    )
    assert build_features(bars(), load_builder("mine.sets:build"))[0] == ("body",)


def test_files_of_the_current_folder_do_not_hide_installed_modules_later(folder: Path) -> None:
    (folder / "my_features.py").write_text(GOOD)
    (folder / "this.py").write_text("raise SystemExit('hidden')")
    load_builder("my_features:build")
    assert sys.path[0] != str(folder)
    assert sys.path[-1] == str(folder)
    load_builder("my_features:build")
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize("spec", ["features", ":build", "features:", ""])
def test_text_that_is_no_module_and_callable_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"--features is .* give it as module:callable, for example"):
        load_builder(spec)


def test_a_file_name_is_answered_with_the_module_name(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"sets/my_features\.py is a file; name the module, .* my_features:build"):
        load_builder("sets/my_features.py:build")


def test_a_missing_module_is_named_with_where_it_was_looked_for(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no module 'my_featurs' in the current folder") as caught:
        load_builder("my_featurs:build")
    assert str(folder) in str(caught.value)
    with pytest.raises(ConfigError, match=r"no module 'mine' in the current folder"):
        load_builder("mine.sets:build")


def test_a_missing_function_is_answered_with_the_nearest(folder: Path) -> None:
    (folder / "my_features.py").write_text(GOOD + "\nTABLE = {}\n")
    with pytest.raises(ConfigError, match=r"my_features\.py\) has no 'biuld' \(did you mean build\?\)"):
        load_builder("my_features:biuld")
    with pytest.raises(ConfigError, match=r"my_features:TABLE: TABLE is a dict, not a callable"):
        load_builder("my_features:TABLE")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "import polars\n\nLIMIT = 1 / 0\n",
            r"ZeroDivisionError: division by zero \(my_features\.py, line 3, in <module>\)",
        ),
        (
            "import no_such_library_\n",
            r"ModuleNotFoundError: No module named 'no_such_library_' \(my_features\.py, line 1, in <module>\)",
        ),
        (
            "import polars\npolars.no_such_name\n",
            r"AttributeError: .*no_such_name.* \(my_features\.py, line 2, in <module>\)",
        ),
        ("def build(bars)\n    return bars\n", r"SyntaxError: .*my_features\.py, line 1"),
        ("from polars import no_such_name\n", r"ImportError: cannot import name 'no_such_name'.* line 1, in <module>"),
        ("import json\njson.loads('{')\n", r"JSONDecodeError: .* \(my_features\.py, line 2, in <module>\)"),
    ],
)
def test_a_module_that_fails_is_told_by_error_and_line(folder: Path, source: str, told: str) -> None:
    (folder / "my_features.py").write_text(source)
    with pytest.raises(ConfigError, match=rf"importing my_features failed with {told}") as caught:
        load_builder("my_features:build")
    assert caught.value.__cause__ is not None


def test_a_function_that_fails_is_told_by_error_and_its_own_line(folder: Path) -> None:
    (folder / "my_features.py").write_text(
        "def helper(bars):\n    return bars.select('opne')\n\ndef build(bars):\n    return helper(bars)\n"
    )
    with pytest.raises(DataError, match=r"failed on 1500 bars with ColumnNotFoundError: .*opne") as caught:
        build_features(bars(), load_builder("my_features:build"))
    assert "(my_features.py, line 2, in helper)" in str(caught.value)
    assert caught.value.__cause__ is not None


# What is refused of a result.


def test_results_of_the_wrong_shape_or_type_are_refused() -> None:
    cases: dict[str, Callable[[pl.DataFrame], object]] = {
        r"returned 1499 rows for 1500 bars; it must return one row per bar": lambda b: b.select("close").tail(1499),
        r"returned no column": lambda b: b.select(),
        r"returned a LazyFrame; it must return a polars DataFrame": lambda b: b.lazy().select("close"),
        r"returned a ndarray": lambda b: b["close"].to_numpy(),
        r"returned a NoneType": lambda _: None,
        r"Feature 'contract' has type String; features must be numbers": lambda b: b.select("close", "contract"),
        r"Feature 'session' has type Date": lambda b: b.select("session"),
        r"Feature 'ts' has type Datetime": lambda b: b.select("ts"),
        r"Feature 'x' has type Null": lambda b: b.select("close", x=pl.lit(None)).select("x"),
    }
    for message, builder in cases.items():
        with pytest.raises(DataError, match=message):
            build_features(bars(), builder)  # type: ignore[arg-type]


def test_integers_and_truth_values_are_numbers() -> None:
    builder = select(minute=pl.col("minute_of_session"), up=pl.col("close") > pl.col("open"), day=pl.lit(3, pl.Int8))
    names, values, first = build_features(bars(), builder)
    assert (names, first) == (("minute", "up", "day"), 0)
    assert set(values[:, 1]) == {0.0, 1.0}


def hole(row: int, value: float | None) -> Callable[[pl.DataFrame], pl.DataFrame]:
    close = pl.col("close")
    return lambda b: b.select(close, x=pl.when(pl.int_range(pl.len()) == row).then(value).otherwise(close))


@pytest.mark.parametrize(("value", "shown"), [(None, "None"), (np.nan, "nan"), (np.inf, "inf"), (1e39, r"1e\+39")])
def test_a_hole_after_the_warm_up_is_named_with_row_and_time(value: float | None, shown: str) -> None:
    stamp = str(bars()["ts"][900])
    with pytest.raises(DataError, match=rf"Feature 'x' is {shown} at bar 900 \(") as caught:
        build_features(bars(), hole(900, value))
    assert stamp in str(caught.value)
    assert "only in a warm-up at the start" in str(caught.value)


def test_holes_at_the_start_are_the_warm_up() -> None:
    warm = select(mean=pl.col("close").rolling_mean(30), change=pl.col("close").diff(50))
    _, values, first = build_features(bars(), warm)
    assert first == 50
    assert not values[:50].any()
    assert build_features(bars(), hole(0, None))[2] == 1


def test_a_set_without_a_whole_row_is_told_by_its_empty_column() -> None:
    with pytest.raises(DataError, match=r"No bar of 1500 has all features: feature 'x' is never defined"):
        build_features(bars(), select(close=pl.col("close"), x=pl.lit(None, pl.Float64)))
    row = pl.int_range(pl.len())
    halves = select(a=pl.when(row < 700).then(1.0), b=pl.when(row >= 700).then(1.0))
    with pytest.raises(DataError, match=r"No bar of 1500 has all features: some feature is undefined at each"):
        build_features(bars(), halves)


# Leaks.

close = pl.col("close")
leaks: dict[str, Columns] = {
    "next close": {"x": close.shift(-1)},
    "next close, filled": {"x": close.shift(-1).fill_null(strategy="forward")},
    "next close, filled with a number": {"x": (close.shift(-1) - close).fill_null(0.0)},
    "far ahead": {"x": (close.shift(-200) - close).fill_null(0.0)},
    "z-score of the whole sample": {"x": (close - close.mean()) / close.std()},
    "highest close of all": {"x": close / close.max()},
    "rank in the whole sample": {"x": close.rank()},
    "mean around the bar": {"x": close.rolling_mean(11, center=True, min_samples=1)},
    "high of the session": {"x": pl.col("high").max().over("session") - close},
    "close of the session": {"x": close.last().over("session")},
    "volume of the hour": {"x": pl.col("volume").sum().over(pl.col("ts").dt.truncate("1h"))},
    "filled backwards": {
        "x": pl.when(pl.col("minute_of_session") % 30 == 0).then(close).fill_null(strategy="backward")
    },
    "number of bars": {"x": pl.len() - pl.int_range(pl.len())},
    "next contract": {"x": pl.col("days_to_expiry").shift(-1).fill_null(0)},
}


@pytest.mark.parametrize("name", leaks)
def test_a_leak_is_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match=r"Feature 'x' sees the future: its value at bar \d+ \(20.* A row may use bars"):
        build_features(bars(), select(good=close - pl.col("close_prev"), **leaks[name]))


def test_the_message_shows_both_values_and_what_was_done() -> None:
    price = bars()["close"][927]
    told = rf"at bar 926 .* is {price} with all bars and None when the bars after bar 926 are cut off"
    with pytest.raises(DataError, match=told):
        build_features(bars(), select(x=close.shift(-1)))
    told = r"at bar 689 .* is \d.* with all bars and \d.* when the bars after bar 694 are replaced by others"
    with pytest.raises(DataError, match=told):
        build_features(bars(), looks_ahead_unseen_by_cuts)


def looks_ahead_unseen_by_cuts(frame: pl.DataFrame) -> pl.DataFrame:
    """Looks 6 bars ahead up to bar 800 only: wherever the end is cut off, the last rows are innocent."""
    row = pl.int_range(pl.len())
    return frame.select(x=pl.when(row < 800).then(close.shift(-6)).otherwise(close))


legal: dict[str, Columns] = {
    "difference": {"x": close.diff().fill_null(0.0)},
    "cumulative": {"x": pl.col("volume").cum_sum()},
    "expanding mean": {"x": close.cum_sum() / (pl.int_range(pl.len()) + 1)},
    "expanding maximum": {"x": close.cum_max() - close},
    "rolling mean and deviation": {"x": (close - close.rolling_mean(100)) / close.rolling_std(100)},
    "exponential mean": {"x": close - close.ewm_mean(span=50)},
    "since the session's open": {"x": close - pl.col("open").first().over("session")},
    "session's volume so far": {"x": pl.col("volume").cum_sum().over("session")},
    "calendar": {"x": pl.col("minutes_to_close"), "y": pl.col("days_to_expiry")},
    "constant": {"x": close * 0 + 1},
    "raw price": {"x": close},
}


@pytest.mark.parametrize("name", legal)
def test_a_causal_feature_is_accepted(name: str) -> None:
    names, values, _ = build_features(bars(), select(**legal[name]))
    assert names == tuple(legal[name])
    assert np.isfinite(values).all()


def test_the_default_set_passes_as_a_user_set() -> None:
    names, values, first = build_features(bars(), build_default)
    np.testing.assert_array_equal(values, build_features(bars(), None)[1])
    assert (names, first) == (tuple(FEATURES), WARM_UP_BARS)


def test_a_recursive_filter_in_plain_python_is_accepted() -> None:
    def build(frame: pl.DataFrame) -> pl.DataFrame:
        state, out = 0.0, []
        for price, before in frame.select("close", "close_prev").iter_rows():
            state = 0.9 * state + price - before
            out.append(state)
        return pl.DataFrame({"x": out})

    assert build_features(bars(), build)[0] == ("x",)


# The level of shadow prices.

shadow = pl.col("close_adj")
anchored: dict[str, pl.Expr] = {
    "level": shadow,
    "percent change": shadow / shadow.shift(1).fill_null(1.0) - 1,
    "logarithm": (shadow + 1e4).log(),
    "difference of shadow and raw": shadow - close,
    "threshold": (shadow > 400).cast(pl.Float64),
    "sum": shadow.cum_sum(),
    "product": shadow.diff().fill_null(0.0) * shadow,
}
free: dict[str, pl.Expr] = {
    "difference": shadow.diff().fill_null(0.0),
    "z-score": ((shadow - shadow.rolling_mean(100)) / shadow.rolling_std(100)).fill_nan(0.0),
    "mean": shadow - shadow.ewm_mean(span=900),
    "channel": (shadow - shadow.rolling_min(50)) / (shadow.rolling_max(50) - shadow.rolling_min(50) + 1.0),
    "range": pl.col("high_adj") - pl.col("low_adj"),
    "session": shadow - pl.col("open_adj").first().over("session"),
    "expanding": shadow - shadow.cum_sum() / (pl.int_range(pl.len()) + 1),
}


@pytest.mark.parametrize("name", anchored)
def test_a_feature_of_the_level_of_a_shadow_price_is_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match=r"Feature 'x' depends on the level of an adjusted price: .* use differences"):
        build_features(bars(), select(good=close - pl.col("close_prev"), x=anchored[name]))


@pytest.mark.parametrize("name", free)
def test_a_feature_of_differences_of_a_shadow_price_is_accepted(name: str) -> None:
    assert build_features(bars(), select(x=free[name]))[0] == ("x",)


def test_a_leak_through_a_shadow_price_is_refused() -> None:
    with pytest.raises(DataError, match="'x' sees the future"):
        build_features(bars(), select(x=shadow.shift(-1).fill_null(0.0) - shadow))
    unseen_by_cuts = pl.when(pl.int_range(pl.len()) < 800).then(shadow.shift(-6) - shadow).otherwise(0.0)
    with pytest.raises(DataError, match=r"'x' sees the future: .* are replaced by others"):
        build_features(bars(), select(x=unseen_by_cuts))


def test_default_features_of_a_front_are_those_of_its_frame() -> None:
    front = front_series(rolling(40.0), spec_for("ES"))
    names, values, first = build_features(front, None)
    again = build_features(bars_frame(front), None)
    np.testing.assert_array_equal(values, again[1])
    assert (names, first) == (again[0], again[2])
    mine = build_features(front, select(x=shadow.diff().fill_null(0.0)))
    np.testing.assert_array_equal(mine[1], build_features(bars_frame(front), select(x=shadow.diff().fill_null(0.0)))[1])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_user_set_works_on_very_few_bars(count: int) -> None:
    assert build_features(bars().head(count), select(x=close))[1].shape == (count, 1)


def test_a_leak_is_seen_in_a_market_without_volume_or_movement_of_some_columns() -> None:
    still = bars_of(100 + np.cumsum(np.tile([0.25, -0.25], 300)), volume=np.zeros(600))
    with pytest.raises(DataError, match="'x' sees the future"):
        build_features(still, select(x=close - close.mean()))


def test_rows_in_another_order_are_refused() -> None:
    with pytest.raises(DataError, match="sees the future"):
        build_features(bars(), lambda b: b.sort("close").select("close"))
    with pytest.raises(DataError, match="sees the future"):
        build_features(bars(), lambda b: b.reverse().select("close"))


def test_a_function_that_changes_the_frame_it_got_changes_nothing_else() -> None:
    def rude(frame: pl.DataFrame) -> pl.DataFrame:
        frame.insert_column(0, pl.Series("extra", np.zeros(frame.height)))
        frame.replace_column(frame.get_column_index("close"), pl.Series("close", np.zeros(frame.height)))
        frame[0, "open"] = -1.0
        frame.drop_in_place("volume")
        return frame.select("extra", "close")

    mine = bars()
    build_features(mine, rude)
    assert mine.equals(bars())


def test_random_features_are_refused_as_not_repeatable() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match=r"Feature 'x' is not repeatable: called twice with the same bars it gave"):
        build_features(bars(), lambda b: pl.DataFrame({"x": rng.random(b.height)}))
    seeded = build_features(bars(), lambda b: pl.DataFrame({"x": np.random.default_rng(0).random(b.height)}))
    assert seeded[0] == ("x",)


def test_names_must_not_depend_on_the_bars() -> None:
    with pytest.raises(DataError, match=r"names its columns \['x1500'\] for 1500 bars and \['x927'\] for 927"):
        build_features(bars(), lambda b: b.select(close.alias(f"x{b.height}")))


def test_a_function_that_fails_on_fewer_bars_is_told_by_their_number() -> None:
    def build(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height < 1500:
            raise ValueError("too short for me")
        return frame.select("close")

    with pytest.raises(
        DataError, match=r"failed on 927 bars with ValueError: too short for me \(test_user_features\.py"
    ):
        build_features(bars(), build)


# The documentation.

DOCS = Path(__file__).parents[2] / "docs" / "features.md"


def test_the_example_of_the_documentation_works_as_it_stands(folder: Path) -> None:
    source = DOCS.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (folder / "my_features.py").write_text(source, encoding="utf-8")
    names, values, first = build_features(bars(), load_builder("my_features:build"))
    assert (names, first) == (("trend", "place", "busy"), 50)  # the first session of 50 bars is the warm-up
    assert np.isfinite(values).all()


def test_the_documentation_has_every_default_column_and_every_column_of_the_frame() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [name for name in (*FEATURES, *bars().columns) if f"`{name}`" not in text]
    assert not missing
