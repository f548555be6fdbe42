"""The audit of a feature set: every planted leak is named by column, and honest columns raise no alarm."""

import functools
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from market.bar_frames import bars_of, random_bars
from tidewalk.market import user_features
from tidewalk.market.features import build_default
from tidewalk.market.user_features import load_builder
from tidewalk.run.audit import audit, features, sources
from tidewalk.run.audit.features import FUTURES, Effort, Subject, feature_checks, subject_of
from tidewalk.run.audit.moments import Cut, cuts, odd_cuts

close, row = pl.col("close"), pl.int_range(pl.len())
EFFORT, LITTLE = Effort(places=28, seconds=60.0), Effort(places=14, seconds=60.0)
BARS = 2400


@functools.cache
def bars() -> pl.DataFrame:
    """Minutes in sessions of 50 bars, two contracts: the second one from session 30 on."""
    made = random_bars(7, BARS)
    is_new = pl.col("session") >= made["session"][1500]
    return made.with_columns(contract=pl.when(is_new).then(pl.lit("B")).otherwise(pl.lit("A")))


def subject(columns: dict[str, pl.Expr]) -> Subject:
    return subject_of(bars(), lambda frame: frame.select(**columns), EFFORT, seed=0)


def leaking(checked: Subject) -> dict[str, set[str]]:
    """Column -> names of the checks of the future that name it."""
    found = [(name, features.future_check(checked, name)) for name in FUTURES]
    assert all((check.status == "LEAK") == bool(check.columns) for _, check in found)
    return {
        column: {name for name, check in found if column in check.columns}
        for column in {column for _, check in found for column in check.columns}
    }


# ---- mutations: every one has to be found, by name


def coarser(label: str) -> pl.Expr:
    """Close of the hour, given to the minutes that begin at `label`: an hour is known when it is over."""
    hour = pl.col("ts").dt.truncate("1h")
    if label == "start":
        return close.last().over(hour)
    ended = pl.when(hour != hour.shift(1)).then(close.shift(1))  # the last close of the hour before
    return ended.forward_fill()


LEAKS: dict[str, pl.Expr] = {
    "next close": close.shift(-1).forward_fill() - close,
    "centred mean": close.rolling_mean(11, center=True, min_samples=1) - close,
    "z-score of all rows": (close - close.mean()) / close.std(),
    "rank in all rows": close.rank() / pl.len(),
    "above the median of all rows": (close > close.median()).cast(pl.Float64),
    "hour joined at its start": coarser("start") - close,
    "filled backwards": pl.when(row % 30 == 0).then(close).backward_fill().forward_fill() - close,
    "filled backwards where nothing traded": pl.when(pl.col("volume") > 0).then(close).backward_fill().forward_fill(),
    "final high of the session": pl.col("high").max().over("session") - close,
    "number of bars": row / pl.len(),
    "only at a session's end": pl.when(pl.col("session") != pl.col("session").shift(-1))
    .then(close.shift(-1) - close)
    .otherwise(0.0),
    "only before a roll": (pl.col("contract") != pl.col("contract").shift(-1)).fill_null(value=False).cast(pl.Float64),
    "only before large moves": ((close.shift(-1) - close).abs() > 2.4).fill_null(value=False).cast(pl.Float64),
    "only before absurd moves": ((close.shift(-1) - close).abs() > 1e9).fill_null(value=False).cast(pl.Float64),
    "only after eight rises": pl.when(pl.all_horizontal((close > close.shift(1)).shift(k) for k in range(8)))
    .then((close.shift(-1) - close).sign())
    .otherwise(0.0)
    .fill_null(0.0),
    "only at one minute of the session": pl.when(pl.col("minute_of_session") == 17)
    .then(close.shift(-1) - close)
    .otherwise(0.0)
    .fill_null(0.0),
    "only in the last row": pl.when(row == pl.len() - 1).then(1.0).otherwise(0.0),
    "far ahead": (close.shift(-200) - close).fill_null(0.0),
}
HONEST: dict[str, pl.Expr] = {
    "difference": close - pl.col("close_prev"),
    "expanding mean": close - close.cum_sum() / (row + 1),
    "exponential mean": close - close.ewm_mean(span=50),
    "rolling z-score": ((close - close.rolling_mean(100)) / close.rolling_std(100)),
    "since the session's open": close - pl.col("open").first().over("session"),
    "volume of the session so far": pl.col("volume").cum_sum().over("session"),
    "hour joined when it is known": close - coarser("end"),
    "filled forwards": pl.when(row % 30 == 0).then(close).forward_fill() - close,
    "weekday": pl.col("session").dt.weekday().cast(pl.Float64),
    "hour": pl.col("ts").dt.hour().cast(pl.Float64),
    "minutes to the close": pl.col("minutes_to_close").cast(pl.Float64),
    "days to expiry": pl.col("days_to_expiry").cast(pl.Float64),
    "constant": close * 0 + 1,
}


@functools.cache
def found() -> dict[str, set[str]]:
    return leaking(subject(LEAKS | HONEST))


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_and_named(name: str) -> None:
    assert found().get(name), name


def test_honest_columns_raise_no_alarm() -> None:
    assert set(found()) == set(LEAKS)


def test_an_honest_set_passes_every_check() -> None:
    checked = subject(HONEST)
    outcome = {name: check() for name, check in feature_checks(checked).items()}
    assert {name: check.status for name, check in outcome.items() if check.status != "pass"} == {"warm-up": "warning"}
    assert outcome["warm-up"].columns == ("expanding mean",)


def test_a_leak_says_bar_time_values_and_where_it_was_seen() -> None:
    check = features.future_check(subject({"x": LEAKS["only at a session's end"]}), "prefix")
    (text,) = check.details
    assert text.startswith("Feature 'x' sees the future: at bar ")
    assert " are cut off. A row may use bars up to its own only. Seen at " in text
    assert "first bar of a session" not in text
    assert check.found == "x"


def test_the_default_set_passes_to_the_bit() -> None:
    checked = subject_of(bars(), None, LITTLE, seed=0)
    for name, check in feature_checks(checked).items():
        outcome = check()
        assert outcome.status in ("pass", "warning" if name == "warm-up" else "pass"), outcome
        if name in FUTURES:
            assert outcome.found == "28 columns equal to the bit"


def test_a_leak_planted_in_the_default_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ahead(frame: pl.DataFrame) -> pl.DataFrame:
        made = build_default(frame)
        return made.with_columns(made["rsi_14"].shift(-1).forward_fill())

    monkeypatch.setattr(user_features, "build_default", ahead)
    assert set(leaking(subject_of(bars(), None, LITTLE, seed=0))) == {"rsi_14"}


def test_columns_by_names_that_hang_on_the_bars_are_a_leak() -> None:
    checked = subject_of(bars(), lambda frame: frame.select(close.alias(f"x{frame.height % 2}")), EFFORT, seed=0)
    assert features.future_check(checked, "prefix").status == "LEAK"


# ---- what is no leak, and wrong all the same


def test_random_columns_and_readings_of_the_clock_are_named_as_not_repeatable() -> None:
    rng = np.random.default_rng(0)

    def build(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(fine=close, x=pl.Series(rng.random(frame.height)), clock=pl.lit(time.perf_counter()))

    check = features.repeat_check(subject_of(bars(), build, LITTLE, seed=0))
    assert (check.status, check.columns) == ("FAIL", ("x", "clock"))


def test_holes_and_empty_columns_are_named() -> None:
    columns = {
        "fine": close.rolling_mean(10),
        "hole": pl.when(row != 700).then(close),
        "endless": pl.when(row != 800).then(close).otherwise(float("inf")),
        "empty": pl.lit(None, pl.Float64),
    }
    check = features.hole_check(subject(columns))
    assert (check.status, check.columns) == ("FAIL", ("hole", "endless", "empty"))
    assert "is None at bar 700" in check.details[0]


def test_levels_of_shadow_prices_are_named() -> None:
    check = features.level_check(subject({"level": pl.col("close_adj"), "fine": pl.col("close_adj").diff()}))
    assert (check.status, check.columns) == ("FAIL", ("level",))


def test_a_function_that_fails_without_prices_is_told_and_not_condemned() -> None:
    def strict(frame: pl.DataFrame) -> pl.DataFrame:
        if frame["close"].null_count():
            raise ValueError("prices are missing")
        return frame.select(x=close)

    checked = subject_of(bars(), strict, EFFORT, seed=0)
    assert features.future_check(checked, "future missing").status == "skipped"
    assert features.future_check(checked, "prefix").status == "pass"


def test_a_function_that_needs_all_bars_fails_the_audit() -> None:
    def whole(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height < BARS:
            raise ValueError("too short for me")
        return frame.select(x=close)

    check = features.future_check(subject_of(bars(), whole, EFFORT, seed=0), "prefix")
    assert check.status == "FAIL"
    assert "too short for me" in check.details[0]


def test_a_function_that_fails_at_few_cuts_is_a_warning() -> None:
    def fussy(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height % 7 == 3:
            raise ValueError("I do not like this number")
        return frame.select(x=close)

    check = features.future_check(subject_of(bars(), fussy, EFFORT, seed=0), "prefix")
    assert check.status == "warning"
    assert "equal at the others" in check.found


def test_warm_up_tells_how_much_history_a_column_needs() -> None:
    columns = {"short": close.rolling_mean(5), "long": close.ewm_mean(span=200), "never": close.cum_sum()}
    check = features.warm_up_check(subject(columns))
    assert (check.status, check.columns) == ("warning", ("never",))
    assert check.done == "last 200 bars with 220, 440, 1,100 bars before"
    assert check.found == "settled: 1 at 1x, 0 at 2x, 1 at 5x; not: never"


# ---- state


STATEFUL = """
import polars as pl

KEPT = {}

def build(bars):
    KEPT.setdefault("mean", bars["close"].mean())
    return bars.select(x=pl.col("close") - KEPT["mean"], fine=pl.col("close"))
"""


def test_statistics_kept_from_the_first_call_are_found_by_a_fresh_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keeps_state.py").write_text(STATEFUL)
    checked = subject_of(bars(), load_builder("keeps_state:build"), EFFORT, seed=0)
    assert all(features.future_check(checked, name).status == "pass" for name in FUTURES), "no cut can show it"
    check = features.state_check(checked, lambda: audit._fresh("keeps_state:build"))
    assert (check.status, check.columns) == ("LEAK", ("x",))


def test_a_leak_without_state_is_not_called_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = STATEFUL.replace('KEPT["mean"]', 'bars["close"].mean()')
    (tmp_path / "keeps_nothing.py").write_text(source)
    checked = subject_of(bars(), load_builder("keeps_nothing:build"), EFFORT, seed=0)
    assert features.state_check(checked, lambda: audit._fresh("keeps_nothing:build")).status == "pass"


# ---- other sources


def dated_subject() -> Subject:
    """A column that a file would give: the close of the day, stamped with the day, joined by date."""
    daily = bars().group_by("session", maintain_order=True).agg(day_close=close.last(), opened=close.first())
    daily = daily.select("session", tomorrow=(pl.col("day_close") - pl.col("opened")))

    def build(frame: pl.DataFrame) -> pl.DataFrame:
        joined = frame.join(daily, on="session", how="left", maintain_order="left")
        return joined.select(pl.col("tomorrow").fill_null(0.0), fine=close - pl.col("close_prev"))

    return subject_of(bars(), build, EFFORT, seed=0)


def test_a_table_that_knows_the_days_close_is_found_by_its_foresight() -> None:
    checked = dated_subject()
    assert all(features.future_check(checked, name).status == "pass" for name in FUTURES), "no cut can show it"
    dated = sources.dated_columns(checked)
    assert dated == ("tomorrow",)
    date = sources.date_check(checked)
    assert (date.status, date.columns) == ("warning", dated)
    check = sources.foresight_check(checked, checked.columns, moves(), dated)
    assert (check.status, check.columns) == ("LEAK", ("tomorrow",))
    assert "the rest of the session" in check.details[0]


def test_honest_columns_show_no_foresight_and_no_date() -> None:
    checked = subject(HONEST)
    assert sources.dated_columns(checked) == ()
    assert sources.foresight_check(checked, checked.columns, moves(), ()).status == "pass"


def moves() -> np.ndarray:
    """Moves of decisions in the frame, in ticks."""
    opened = np.round(bars()["open_adj"].to_numpy() / 0.25).astype(np.int32)
    return np.concatenate([opened[2:] - opened[1:-1], np.zeros(2, np.int32)])


# ---- where the future is cut off


def test_cuts_come_from_every_kind_of_row_and_none_twice() -> None:
    found = cuts(bars(), 60, seed=3)
    assert len({cut.row for cut in found}) == len(found) == 60
    by_kind = {cut.kind: cut.row for cut in found}
    sessions, contracts = bars()["session"], bars()["contract"]
    assert sessions[by_kind["session end"]] != sessions[by_kind["session end"] - 1]
    assert contracts[by_kind["before a roll"]] != contracts[by_kind["before a roll"] - 1]
    assert contracts[by_kind["after a roll"] - 1] != contracts[by_kind["after a roll"] - 2]
    assert by_kind["end of the data"] >= BARS - 3
    hours = bars()["ts"].dt.truncate("1h")
    assert hours[by_kind["hour end"]] != hours[by_kind["hour end"] - 1]
    assert cuts(bars(), 60, seed=3) == found
    assert cuts(bars(), 60, seed=4) != found


def test_cuts_come_right_after_what_columns_do_rarely() -> None:
    frame = bars().select(rare=pl.when(row == 600).then(1.0).otherwise(0.0), dense=close, dull=close * 0, none=None)
    found = odd_cuts(frame, 9, seed=3)
    assert found[0] == Cut(601, "where rare is unusual")
    assert len({cut.row for cut in found}) == len(found) == 9
    far = (frame["dense"] - frame["dense"].median()).abs()
    assert {cut.kind for cut in found[1:]} == {"where dense is unusual"}
    assert min(far[cut.row - 1] for cut in found[1:]) >= far.quantile(0.99)
    assert odd_cuts(frame, 9, seed=3) == found
    assert odd_cuts(frame.select("dull", "none"), 9, seed=3) == ()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_very_few_bars_can_be_audited(count: int) -> None:
    few = bars_of(100.0 + np.arange(count) * 0.25)
    checked = subject_of(few, lambda frame: frame.select(x=close), EFFORT, seed=0)
    for name, check in feature_checks(checked).items():
        assert check().status in ("pass", "skipped"), name
