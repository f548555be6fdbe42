import dataclasses
import datetime as dt
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import chain_market, planted_signs
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.market.windows import WindowConfig, decision_ranges, end_to_end, fit_windows, plan_windows
from tidewalk.run.study import contracts_between, rolls_between
from tidewalk.stats.metrics import sharpe
from tidewalk.trading.account import book
from tidewalk.trading.costs import Costs
from tidewalk.trading.ledger import fills

COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)


def days(first: str, last: str, per_day: int = 4) -> np.ndarray:
    """Trade days (weekdays) from first to last, `per_day` bars each."""
    span = np.arange(np.datetime64(first), np.datetime64(last) + np.timedelta64(1, "D"))
    weekdays = span[np.is_busday(span)]
    return np.repeat(weekdays.astype("datetime64[D]").astype(np.int32), per_day)


def plan(trade_day, months, *, purge=0, partial=False, first_usable=0, rule="cme-globex"):
    train, val, test, step = months
    config = WindowConfig(train_months=train, val_months=val, test_months=test, step_months=step, partial_test=partial)
    return plan_windows(trade_day, rule, config, purge_bars=purge, first_usable=first_usable)


def months_of(count: int) -> np.ndarray:
    """Weekdays of `count` whole months from 2020-01."""
    last = (np.datetime64("2020-01") + np.timedelta64(count, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")
    return days("2020-01-01", str(last), per_day=5)


# count = floor((M - (train + val + test)) / step) + 1; values of design/validity.md 1.4
@pytest.mark.parametrize(
    ("months", "lengths", "count"),
    [
        (15, (12, 3, 1, 1), 0),
        (16, (12, 3, 1, 1), 1),
        (17, (12, 3, 1, 1), 2),
        (28, (12, 3, 1, 1), 13),
        (36, (12, 3, 3, 3), 7),
        (60, (24, 6, 6, 6), 5),
        (24, (3, 1, 1, 3), 7),
    ],
)
def test_number_of_windows_is_the_closed_form(months, lengths, count):
    train, val, test, step = lengths
    assert max((months - (train + val + test)) // step + 1, 0) == count
    if count:
        assert len(plan(months_of(months), lengths).windows) == count
    else:
        with pytest.raises(DataError, match="Not enough history"):
            plan(months_of(months), lengths)


@settings(max_examples=60)
@given(st.integers(1, 40), *(st.integers(1, limit) for limit in (6, 3, 3, 4)))
def test_windows_tile_the_months_in_order(months, train, val, test, step):
    """Every window: train, validation and test months end to end, tests that share no month, none left over."""
    step = max(step, test)
    count = max((months - (train + val + test)) // step + 1, 0)
    if not count:
        with pytest.raises(DataError):
            plan(months_of(months), (train, val, test, step))
        return
    trade_day = months_of(months)
    month = trade_day.astype("datetime64[D]").astype("datetime64[M]").astype(int) - 50 * 12
    found = plan(trade_day, (train, val, test, step)).windows
    assert len(found) == count
    for number, window in enumerate(found):
        edges = step * number + np.cumsum([0, train, val, test])
        for held, first, stop in zip((window.train, window.val, window.test), edges[:-1], edges[1:], strict=True):
            assert (month[held.first], month[held.stop - 1]) == (first, stop - 1)
            assert held.first == 0 or month[held.first - 1] < first
            assert held.stop == len(month) or month[held.stop] >= stop


def test_too_little_history_is_refused_with_the_arithmetic():
    with pytest.raises(DataError, match=r"15 complete months \(2020-01 to 2021-03\).*12 \+ val 3 \+ test 1 = 16"):
        plan(months_of(15), (12, 3, 1, 1))


# folds as skfolio's WalkForward gives them (validity.md 1.4): business days 2021-01-01 ... 2022-04-15, train 12, test 1
def test_a_partial_test_month_is_an_explicit_choice():
    trade_day = days("2021-01-01", "2022-04-14")  # 2022-04-15 is Good Friday
    without = plan(trade_day, (11, 1, 1, 1))
    assert [w.test.last_day for w in without.windows][-1] == dt.date(2022, 3, 31)
    assert len(without.windows) == 3
    with_partial = plan(trade_day, (11, 1, 1, 1), partial=True)
    assert len(with_partial.windows) == 4
    last = with_partial.windows[-1]
    assert (last.test.first_day, last.test.last_day, last.is_partial_test) == (
        dt.date(2022, 4, 1),
        dt.date(2022, 4, 14),
        True,
    )
    assert any("incomplete" in text for text in with_partial.warnings)


def test_a_partial_test_golden():
    """With the weekday of Good Friday, which skfolio's business days hold: the fourth test runs to 2022-04-15."""
    trade_day = days("2021-01-01", "2022-04-15")
    for partial, tests in ((False, 3), (True, 4)):
        found = plan(trade_day, (11, 1, 1, 1), partial=partial, rule="utc-day").windows
        spans = [(str(w.test.first_day), str(w.test.last_day)) for w in found]
        assert len(spans) == tests
        assert spans[2] == ("2022-03-01", "2022-03-31")
        assert spans[3:] == [("2022-04-01", "2022-04-15")][: tests - 3]


def test_refusal_names_the_option_only_where_it_helps():
    trade_day = days("2013-10-07", "2013-12-20")
    with pytest.raises(
        DataError,
        match=r"2 complete.*2013-12 is incomplete: the data end on 2013-12-20, its last session is 2013-12-31; "
        "--partial-test",
    ):
        plan(trade_day, (1, 1, 1, 1))
    with pytest.raises(DataError) as refused:
        plan(days("2013-11-01", "2013-12-20"), (1, 1, 1, 1))
    assert "--partial-test" not in str(refused.value)
    assert len(plan(trade_day, (1, 1, 1, 1), partial=True).windows) == 1


def test_a_month_that_ends_on_good_friday_is_complete_on_the_thursday():
    assert len(plan(days("2024-01-01", "2024-03-28"), (1, 1, 1, 1)).windows) == 1
    with pytest.raises(DataError):
        plan(days("2024-01-01", "2024-03-27"), (1, 1, 1, 1))


# validity.md 1.2 and B43, from skfolio PR 269: 120 daily rows, purge 1 -> first train 0..29, test 31..58 (and with the
# purge taken from the test: train 0..30, test 31..57). The range before a test is the validation here, so December 2021
# is put in front, and rows are counted from 2022-01-01.
def test_b43_purge_is_taken_from_the_range_before_the_test():
    trade_day = np.arange(np.datetime64("2021-12-01"), np.datetime64("2022-05-01")).astype(np.int32)
    offset = 31
    first, second, _ = plan(trade_day, (1, 1, 1, 1), purge=1, rule="utc-day").windows
    assert (first.val.first - offset, first.val.stop - 1 - offset) == (0, 29)
    assert (first.test.first - offset, first.test.stop - 1 - offset) == (31, 58)
    # train and validation of the next window are purged alike
    assert (second.train.first - offset, second.train.stop - 1 - offset) == (0, 29)
    assert (second.val.first - offset, second.val.stop - 1 - offset) == (31, 57)
    assert (second.test.first - offset, second.test.stop - 1 - offset) == (59, 89)


@pytest.mark.parametrize(("purge", "train_months", "test_months"), [(1, 1, 1), (4, 2, 1), (3, 3, 2)])
def test_ranges_are_those_of_another_program(purge, train_months, test_months):
    """skfolio purges the train range before a test, which is our validation range."""
    selection = pytest.importorskip("skfolio.model_selection", reason="skfolio is in the extra `oracles`")
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2021-01-01", "2023-01-01", freq="D")  # it knows the end of a month by the next one
    rows = pandas.DataFrame(np.zeros((len(index), 2)), index=index)
    theirs = selection.WalkForward(test_size=test_months, train_size=train_months, freq="MS", purged_size=purge)
    trade_day = np.arange(np.datetime64("2020-12-01"), np.datetime64("2023-01-01")).astype(np.int32)
    ours = plan(trade_day, (1, train_months, test_months, test_months), purge=purge, rule="utc-day").windows
    expected = [(train[0], train[-1], test[0], test[-1]) for train, test in theirs.split(rows)]
    found = [(w.val.first - 31, w.val.stop - 32, w.test.first - 31, w.test.stop - 32) for w in ours]
    assert found == expected


def test_purge_shortens_train_and_validation_and_never_test():
    trade_day = np.arange(np.datetime64("2022-01-01"), np.datetime64("2022-05-01")).astype(np.int32)
    plain = plan(trade_day, (1, 1, 1, 1), rule="utc-day").windows[0]
    purged = plan(trade_day, (1, 1, 1, 1), purge=2, rule="utc-day").windows[0]
    assert (plain.train.first, plain.train.stop, plain.val.first) == (0, 31, 31)
    assert (purged.train.stop, purged.val.first, purged.val.stop) == (29, 31, 57)
    assert (purged.test.first, purged.test.stop) == (plain.test.first, plain.test.stop) == (59, 90)


def test_no_decision_of_a_range_needs_a_price_after_it():
    trade_day = months_of(6)
    ranges = decision_ranges(plan(trade_day, (2, 1, 1, 1)))
    windows = plan(trade_day, (2, 1, 1, 1)).windows
    for name, reach in (("train", 2), ("val", 1), ("test", 1)):
        # train marks at the open of bar t+2; the last decision of validation and test only closes, at the open of bar
        # t+1
        last_price = ranges[name][:, 1] - 1 + reach
        assert (last_price == [getattr(w, name).stop - 1 for w in windows]).all()


def test_windows_start_no_earlier_than_the_features_are_defined():
    window = plan(months_of(4), (2, 1, 1, 1), first_usable=17).windows[0]
    assert window.train.first == 17


# validity.md B46: a step shorter than the test counts months twice; a longer one leaves months out, which is said
def test_b46_overlapping_tests_are_refused_and_gaps_are_said():
    with pytest.raises(ConfigError, match="--step-months 1 is less than --test-months 3"):
        WindowConfig(train_months=12, val_months=3, test_months=3, step_months=1)
    assert "Not traded between test ranges: 2 months (" in plan(months_of(12), (3, 1, 1, 3)).notes[0]
    assert plan(months_of(12), (3, 1, 1, 1)).notes == ()


def test_b46_what_chooses_a_policy_never_overlaps_what_it_is_judged_by():
    """Validation months of a window lie before its test months, and test months of all windows are disjoint."""
    windows = plan(months_of(24), (6, 2, 3, 3), purge=2).windows
    for window in windows:
        assert window.train.stop <= window.val.first < window.val.stop <= window.test.first
    assert all(a.test.stop <= b.test.first for a, b in itertools.pairwise(windows))


# validity.md B45: windows with almost no bars
def test_b45_a_test_month_with_one_bar_makes_no_window():
    trade_day = np.concatenate([days("2020-01-01", "2020-03-31"), days("2020-04-01", "2020-04-30", 1)[-1:]])
    with pytest.raises(DataError, match="tests 2020-04 is left out: the test range holds 1 bar after"):
        plan(trade_day, (2, 1, 1, 1))
    more = np.concatenate([trade_day, days("2020-05-01", "2020-07-31")])
    found = plan(more, (2, 1, 1, 1))
    # April is no test, and no validation of the window after it
    assert [str(w.test.first_day)[:7] for w in found.windows] == ["2020-06", "2020-07"]
    assert [w.index for w in found.windows] == [0, 1]
    assert len([text for text in found.warnings if "left out" in text]) == 2


def test_b45_there_is_no_sharpe_of_fewer_than_three_sessions():
    for record in ([], [5.0], [5.0, -3.0]):
        figure = sharpe(record, 252.0)
        assert figure.value is None
        assert figure.reason == "fewer than 3 sessions"
    assert sharpe([5.0, -3.0, 4.0], 252.0).value is not None


def test_b45_the_fewest_bars_are_the_users_choice():
    trade_day = np.concatenate([days("2020-01-01", "2020-06-10"), days("2020-06-30", "2020-08-31")])
    # June holds 9 of 22 sessions: 36 bars where 84 are usual
    assert len(plan(trade_day, (2, 1, 1, 1)).windows) == 5
    config = WindowConfig(train_months=2, val_months=1, test_months=1, min_bars=40)
    found = plan_windows(trade_day, "cme-globex", config, purge_bars=0, first_usable=0)
    assert [str(w.test.first_day)[:7] for w in found.windows] == ["2020-04", "2020-05", "2020-08"]
    assert "The window that tests 2020-07 is left out: the val range holds 36 bars after" in found.warnings[0]
    assert "at least 40 are needed" in found.warnings[0]
    for few in (4, 0, -1):
        with pytest.raises(ConfigError, match=f"--min-bars is {few}; it must be 5 or more"):
            WindowConfig(min_bars=few)


def test_b45_a_range_with_far_fewer_bars_than_is_usual_is_said():
    """A month of two days among whole months is traded, with a warning."""
    trade_day = np.concatenate([days("2020-01-01", "2020-05-29"), days("2020-06-29", "2020-08-31")])
    found = plan(trade_day, (1, 1, 1, 1))
    said = [text for text in found.warnings if "in 2 sessions" in text]
    assert len(found.windows) == 6
    assert [text.split(": the ")[1].split()[0] for text in said] == ["train", "val", "test"]
    assert said[2].startswith("The window that tests 2020-06: the test range holds 8 bars in 2 sessions, where ")
    assert plan(days("2020-01-01", "2020-08-31"), (1, 1, 1, 1)).warnings == ()
    partial = plan(days("2020-01-01", "2020-05-04"), (1, 1, 1, 1), partial=True).warnings
    assert [text for text in partial if "usual" in text] == []
    assert "incomplete" in partial[0]


def test_a_window_with_an_empty_month_is_left_out_with_a_warning():
    trade_day = np.concatenate([days("2020-01-01", "2020-02-28"), days("2020-04-01", "2020-07-31")])
    found = plan(trade_day, (1, 1, 1, 1))
    assert [str(w.test.first_day)[:7] for w in found.windows] == ["2020-06", "2020-07"]
    assert len(found.warnings) == 3


def test_windows_left_out_are_said_once_for_each_reason():
    """Files of 2013 and of 2020 leave 75 months without bars between them."""
    trade_day = np.concatenate([days("2013-09-01", "2014-01-31"), days("2020-04-01", "2020-07-31")])
    found = plan(trade_day, (1, 1, 1, 1))
    assert len(found.windows) == 5
    assert found.warnings == (
        "74 windows (the first tests 2014-04, the last 2020-05) are left out: the train range holds 0 bars after "
        "warm-up and purge, at least 5 are needed.",
        "The window that tests 2014-03 is left out: the val range holds 0 bars after warm-up and purge, at least 5 "
        "are needed.",
        "The window that tests 2014-02 is left out: the test range holds 0 bars after warm-up and purge, at least 5 "
        "are needed.",
    )
    with pytest.raises(DataError, match=r"^No window is left\. 76 windows \(.* Warm-up takes 0 bars") as refusal:
        plan(np.concatenate([days("2013-09-01", "2013-10-31"), days("2020-04-01", "2020-04-30")]), (1, 1, 1, 1))
    assert len(str(refusal.value)) < 600


def test_sparse_ranges_are_said_once_for_each_kind():
    few = [days(f"2020-{month:02d}-29", f"2020-{month:02d}-30") for month in (4, 6)]
    whole = [days("2020-01-01", "2020-03-31"), few[0], days("2020-05-01", "2020-05-29"), few[1]]
    found = plan(np.concatenate([*whole, days("2020-07-01", "2020-12-31")]), (1, 1, 1, 1))
    said = [text for text in found.warnings if "usual" in text]
    assert [text.split(": the ")[1].split()[0] for text in said] == ["train", "val", "test"]
    assert said[2].startswith("2 windows (the first tests 2020-04, the last 2020-06): the test range holds ")


def test_scaler_reads_train_bars_only_and_a_constant_feature_is_not_divided_by():
    trade_day = months_of(6)
    rng = np.random.default_rng(0)
    features = np.stack([rng.standard_normal(len(trade_day)) * 3 + 1, np.full(len(trade_day), 5.0)], axis=1).astype(
        np.float32
    )
    moves = rng.integers(-9, 9, len(trade_day)).astype(np.int32)
    found = plan(trade_day, (2, 1, 1, 1), purge=3)
    fitted = fit_windows(found, features, moves)
    train = found.windows[0].train
    expected = features[train.first : train.stop, 0]
    np.testing.assert_allclose(fitted.center[0, 0], expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(fitted.scale[0, 0], 1 / expected.std(), rtol=1e-5)
    assert fitted.scale[0, 1] == 0
    poisoned, other_moves = features.copy(), moves.copy()
    poisoned[train.stop :] = 1e30
    other_moves[train.stop - 2 :] = 10**6
    again = fit_windows(found, poisoned, other_moves)
    assert again.center[0].tobytes() == fitted.center[0].tobytes()
    assert again.scale[0].tobytes() == fitted.scale[0].tobytes()
    assert again.reward_scale[0] == fitted.reward_scale[0]


@pytest.mark.parametrize("field", ["train_months", "val_months", "test_months", "step_months"])
def test_zero_months_are_refused_by_flag(field):
    with pytest.raises(ConfigError, match=f"--{field.replace('_', '-')} is 0"):
        WindowConfig(**{field: 0})


def test_a_feature_of_small_numbers_is_scaled_and_rounding_is_not():
    """Squared returns are of the order of 1e-8 and mean something; the last bits of a constant do not."""
    trade_day = months_of(4)
    noise = np.random.default_rng(1).standard_normal(len(trade_day))
    columns = [1e-8 * noise, 1e-12 * noise, 5000.0 + 1e-4 * np.sign(noise)]
    fitted = fit_windows(plan(trade_day, (2, 1, 1, 1)), np.stack(columns, axis=1), np.ones(len(trade_day), np.int32))
    assert fitted.scale[0, 0] == pytest.approx(1e8, rel=0.1)
    assert fitted.scale[0, 1:].tolist() == [0.0, 0.0]


# validity.md B44
def test_b44_data_that_end_with_the_last_train_month_give_no_window_for_it():
    """Six months, then two more: the windows stay those of the six where the rest is train (and validation) alone."""
    lengths = (3, 1, 2, 2)
    assert len(plan(months_of(6), lengths).windows) == 1
    for more in (7, 7.5):  # the next window would train to month 5, validate in 6 and test 7 and 8
        whole, part = divmod(more, 1)
        trade_day = months_of(int(whole))
        if part:
            trade_day = np.concatenate([trade_day, days("2020-08-03", "2020-08-14", per_day=5)])
        assert [w.test.last_day for w in plan(trade_day, lengths).windows] == [dt.date(2020, 6, 30)]
    with pytest.raises(DataError, match=r"3 complete months \(2020-01 to 2020-03\), a window needs train 3"):
        plan(months_of(3), lengths)


# validity.md B44: indicators do not start cold in a test, and nothing trades outside it
def test_b44_a_long_average_is_warm_in_a_short_test_which_trades_inside_itself_alone():
    data = chain_market(planted_signs(430, 0.5), 3, bars_per_day=1)
    close = np.cumsum(data.close_move_ticks.astype(np.float64))
    average = np.convolve(close, np.ones(200) / 200)[: len(close)]
    average[:199] = 0.0
    data = dataclasses.replace(data, features=np.tile(average.astype(np.float32)[:, None], (1, 4)))
    config = WindowConfig(train_months=3, val_months=1, test_months=1)
    found = plan_windows(data.trade_day, "utc-day", config, purge_bars=2, first_usable=199)
    first = found.windows[0]
    assert first.train.first == 199
    window = end_to_end([(fit_windows(found, data.features, data.move_ticks), 0)])
    assert 28 <= first.test.bars <= 31 < 200
    row = (average[first.test.first] - window.center[0, 0]) * window.scale[0, 0]
    assert data.features[first.test.first, 0] == np.float32(close[first.test.first - 199 : first.test.first + 1].mean())
    assert np.isfinite(row)
    span = decision_ranges(found)["test"][0]
    assert span.tolist() == [first.test.first, first.test.stop - 1]
    lots = np.ones(span[1] - span[0], np.int64)
    lots[-1] = 0
    account = book(data, int(span[0]), lots)
    fill_days = fills(data, account, COSTS).ts_ns.astype("datetime64[ns]").astype("datetime64[D]")
    assert np.datetime64(first.test.first_day) < min(fill_days) <= max(fill_days) == np.datetime64(first.test.last_day)


# A roll at the edge of a range: the book of a test begins and ends flat, so a roll there is not a roll of its position.


@pytest.mark.parametrize(("roll_after_first", "is_rolled"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_roll_at_the_first_bars_of_a_test_costs_only_what_is_held_over_it(roll_after_first, is_rolled):
    """The first decision, of bar 30, fills at bar 31: with a roll at bar 30 or 31 nothing is held that could roll."""
    data = chain_market(planted_signs(200, 0.7), 3, bars_per_day=4, roll_at=30 + roll_after_first)
    lots = np.ones(50, np.int64)
    lots[-1] = 0
    account = book(data, 30, lots)
    reasons = fills(data, account, COSTS).reason.tolist()
    assert account.sides.sum() == (4 if is_rolled else 2)
    assert reasons == (["decision", "roll-out", "roll-in", "end"] if is_rolled else ["decision", "end"])
    bought = fills(data, account, COSTS).contract[0]
    assert bought == ("ESH4" if is_rolled else "ESM4")
    # what it earns is the way of the contracts themselves: opens of bar 31 to 80 without the 100 ticks of the roll
    way = (data.open_e9[80] - data.open_e9[31]) // 250_000_000 - (100 if is_rolled else 0)
    assert account.gross_ticks.sum() == way


@pytest.mark.parametrize("roll_before_end", [0, 1])
def test_a_roll_at_the_last_bars_of_a_test(roll_before_end):
    """Bars 30 to 80, the last fill at the open of bar 80: with a roll there the old contract is left at its price."""
    data = chain_market(planted_signs(200, 0.7), 3, bars_per_day=4, roll_at=80 - roll_before_end)
    lots = np.ones(50, np.int64)
    lots[-1] = 0
    account = book(data, 30, lots)
    made = fills(data, account, COSTS)
    assert account.sides.sum() == (2 if roll_before_end == 0 else 4)
    assert (made.contract[-1], made.reason[-1]) == ("ESH4" if roll_before_end == 0 else "ESM4", "end")
    assert made.price_e9[-1] == data.exit_open_e9[80]
    assert account.gross_ticks.sum() == (data.open_e9[80] - data.open_e9[31]) // 250_000_000 - 100


def test_a_window_lists_the_roll_of_its_first_test_bar():
    """The roll at the first bar of a test belongs to that test, and to no range before it."""
    data = chain_market(planted_signs(28 * 4, 0.7), 3, bars_per_day=4, roll_at=60)
    roll = {"date": "2024-01-16", "ts_ns": int(data.ts_ns[60]), "from": "ESH4", "to": "ESM4"}
    data = dataclasses.replace(data, info=dataclasses.replace(data.info, rolls=(roll,)))
    assert rolls_between(data, 40, 60) == []
    assert rolls_between(data, 60, 80) == [{"date": "2024-01-16", "from": "ESH4", "to": "ESM4"}]
    assert contracts_between(data, 40, 60) == ["ESH4"]
    assert contracts_between(data, 60, 80) == ["ESM4"]


def test_windows_of_several_symbols_lie_end_to_end():
    one = fit_windows(plan(months_of(6), (2, 1, 1, 1)), np.ones((630, 2), np.float32), np.ones(630, np.int32))
    two = fit_windows(plan(months_of(5), (2, 1, 1, 1)), np.zeros((525, 2), np.float32), np.ones(525, np.int32))
    both = end_to_end([(one, 0), (two, 1000)])
    assert len(both.test) == len(one.test) + len(two.test)
    for name in ("train", "val", "test"):
        joined = np.concatenate([getattr(one, name), getattr(two, name) + 1000])
        assert np.array_equal(getattr(both, name), joined)
        assert getattr(both, name).dtype == np.int32
    assert np.array_equal(both.center[len(one.test) :], two.center)
    assert end_to_end([(one, 0)]) is one
