"""The audit of front contract and fills: passes as it is, and goes red with every planted fault."""

import dataclasses

import numpy as np
import pytest

import audit_world as world
from made_up_bars import TICK_E9
from tidewalk.data.contracts import rolls
from tidewalk.market import prepare
from tidewalk.market.features import bars_frame
from tidewalk.market.prepare import SeriesConfig
from tidewalk.run.audit import poison, series
from tidewalk.run.audit.moments import cuts
from tidewalk.run.audit.series import Source

CUTS, SEED = 20, 0


def test_bars_and_fills_as_they_are_pass() -> None:
    source = world.source()
    checks = [
        series.front_check(source, CUTS, SEED),
        series.order_check(source),
        series.price_check(source),
        series.past_check(source, CUTS, SEED),
        series.mark_check(source, CUTS, SEED),
    ]
    assert [check.status for check in checks] == ["pass"] * 5
    assert checks[0].found == "1 rolls, 1,408 bars: equal to the bit"
    assert checks[2].found == "1,406 decisions fill at the next open"


def test_rolls_and_session_ends_are_among_the_cuts() -> None:
    kinds = {cut.kind for cut in cuts(bars_frame(world.source().series), CUTS, SEED)}
    assert {"before a roll", "after a roll", "session end", "inside a session"} <= kinds


# ---- fills


@pytest.mark.parametrize("name", world.MOVES)
def test_a_fill_at_another_price_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(prepare, "moves", world.with_moves(world.MOVES[name]))
    check = series.price_check(world.source())
    assert check.status == "LEAK"
    assert check.details[0].startswith("The decision of bar ")


def test_fills_in_the_past_are_found_without_looking_prices_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "moves", world.with_moves(world.MOVES["filled at the observed bar's own open"]))
    source = world.source()
    assert series.past_check(source, CUTS, SEED).status == "LEAK"
    assert series.mark_check(source, CUTS, SEED).status == "pass"


def test_marks_in_the_future_are_found_without_looking_prices_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "moves", world.with_moves(world.MOVES["marked a bar late"]))
    source = world.source()
    assert series.mark_check(source, CUTS, SEED).status == "LEAK"
    assert series.past_check(source, CUTS, SEED).status == "pass"


def test_a_roll_jump_booked_as_profit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def jumping(front: rolls.FrontSeries, spec: object) -> object:
        return original(dataclasses.replace(front, exit_open_e9=front.open_e9), spec)

    original = prepare.moves
    monkeypatch.setattr(prepare, "moves", jumping)
    check = series.price_check(world.source())
    assert check.status == "LEAK"
    assert check.found == "1 decisions at other prices"


def test_bars_that_overlap_their_successor_are_found() -> None:
    source = world.source()
    known = source.series.known_ns.copy()
    known[300:305] += 3 * 3_600_000_000_000
    late = dataclasses.replace(source.front, series=dataclasses.replace(source.series, known_ns=known))
    check = series.order_check(dataclasses.replace(source, front=late))
    assert (check.status, check.found) == ("LEAK", "5 fills too early")
    assert check.details[0].startswith("Bar 300 is complete at ")


# ---- the front contract


def test_a_roll_chosen_by_the_volume_of_its_own_session_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = rolls._choose

    def peeking(name, argument, tables, terms, activity, interest):
        ahead = np.hstack([activity.volume[:, 1:], activity.volume[:, -1:]])
        return choose(name, argument, tables, terms, dataclasses.replace(activity, volume=ahead), interest)

    monkeypatch.setattr(rolls, "_choose", peeking)
    check = series.front_check(world.source(), CUTS, SEED)
    assert check.status == "LEAK"
    assert " (" in check.details[0]


def test_prices_adjusted_backwards_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjusted backwards, every price before a roll changes when the roll comes."""
    build = prepare.front_series

    def adjusted(loaded: object, spec: object, rule: str) -> rolls.FrontSeries:
        front = build(loaded, spec, rule)
        basis = rolls.basis_e9(front)
        shift = basis[-1] - basis
        names = ("open_e9", "high_e9", "low_e9", "close_e9", "close_prev_e9", "exit_open_e9")
        return dataclasses.replace(front, **{name: getattr(front, name) + shift for name in names})

    monkeypatch.setattr(prepare, "front_series", adjusted)
    check = series.front_check(world.source(), CUTS, SEED)
    assert check.status == "LEAK"
    assert "changes in a bar before it" in check.details[0]


# ---- poison


def test_each_poison_leaves_the_past_to_the_bit_and_changes_the_future() -> None:
    front = world.source().series
    cut, size = 700, len(front.ts_ns)
    for changed in (
        poison.shifted_series(front, cut, size, 10**6 * TICK_E9),
        poison.shifted_series(front, cut, size, poison.random_walk_e9(size - cut, TICK_E9, 1)),
    ):
        for name in ("open_e9", "high_e9", "low_e9", "close_e9", "volume"):
            left, right = getattr(front, name), getattr(changed, name)
            assert np.array_equal(left[:cut], right[:cut]), name
            assert not np.array_equal(left[cut:], right[cut:]), name
        assert (changed.high_e9 >= np.maximum(changed.open_e9, changed.close_e9)).all()
        assert (changed.low_e9 <= np.minimum(changed.open_e9, changed.close_e9)).all()


def test_shuffled_bars_are_bars_and_keep_what_a_roll_costs() -> None:
    front = world.source().series
    shuffled = poison.shuffled_series(front, 3)
    assert (shuffled.high_e9 >= np.maximum(shuffled.open_e9, shuffled.close_e9)).all()
    assert (shuffled.low_e9 <= np.minimum(shuffled.open_e9, shuffled.close_e9)).all()
    assert np.array_equal(shuffled.open_e9 - shuffled.exit_open_e9, front.open_e9 - front.exit_open_e9)
    bodies = [np.sort(np.abs(one.close_e9 - one.open_e9)) for one in (front, shuffled)]
    assert np.array_equal(*bodies)
    gaps = [np.sort(np.abs(one.open_e9 - one.close_prev_e9)) for one in (front, shuffled)]
    assert np.array_equal(*gaps)
    assert not np.array_equal(front.open_e9, shuffled.open_e9)


def test_the_moves_of_shuffled_bars_know_nothing_of_the_bars_before() -> None:
    """Correlation of each move with body and gap of the bar observed: within 4 standard errors of 0 over 40 draws."""
    source, found = world.source(), []
    for seed in range(40):
        shuffled = poison.shuffled_series(source.series, seed)
        moves = prepare.moves(shuffled, source.front.spec)[0][:-2]
        body = (shuffled.close_e9 - shuffled.close_prev_e9)[:-2]
        found.append([np.corrcoef(moves, body)[0, 1], moves.mean() / moves.std() * np.sqrt(len(moves))])
    correlation, mean = np.mean(found, axis=0)
    assert abs(correlation) < 4 / np.sqrt(40 * 1400)
    assert abs(mean) < 4 / np.sqrt(40)


def test_source_of_refuses_what_prepare_refuses() -> None:
    with pytest.raises(Exception, match="calendar"):
        series.source_of(world.tables(), SeriesConfig(roll="calendar:x"))
    assert isinstance(world.source(), Source)
