import dataclasses
import datetime
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.contract_tables import DATE, DAY_NS, E9, EPOCH, HOUR_NS, SPEC, by_hand, days_of, loaded, points, table
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.contracts.rolls import FrontSeries, basis_e9, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig, load_bars

MON, TUE, WED, THU, FRI = (DATE(2024, 3, 11 + i) for i in range(5))  # ESH4 expires on this Friday


def crossing_on_wednesday() -> tuple[BarTable, BarTable]:
    old = table("ESH4", {TUE: (900, 5100, 5101), WED: (400, 5102, 5103), THU: (100, 5104, 5105), FRI: (10, 5106)})
    new = table("ESM4", {TUE: (100, 5150, 5151), WED: (600, 5152, 5153), THU: (900, 5154, 5155), FRI: (990, 5156)})
    return old, new


def test_the_front_changes_in_the_session_after_its_volume_was_passed():
    front = front_series(loaded(*crossing_on_wednesday()), SPEC)
    assert days_of(front) == {TUE: "ESH4", WED: "ESH4", THU: "ESM4", FRI: "ESM4"}
    assert front.contracts == ("ESH4", "ESM4")
    assert front.expiry_day == ((FRI - EPOCH).days, (DATE(2024, 6, 21) - EPOCH).days)
    (roll,) = front.rolls
    assert roll.ts_ns == (THU - EPOCH).days * DAY_NS + 10 * HOUR_NS
    assert roll.trade_day == (THU - EPOCH).days
    assert (roll.from_contract, roll.to_contract, roll.reason) == ("ESH4", "ESM4", "volume")
    assert (roll.from_volume, roll.to_volume) == (400.0, 600.0)
    assert (roll.exit_e9, roll.entry_e9) == (5104 * E9, 5154 * E9)
    assert (front.interval_ns, front.has_volume, front.warnings) == (HOUR_NS, True, ())


def test_columns_are_those_of_the_front_contract():
    front = front_series(loaded(*crossing_on_wednesday()), SPEC)
    assert points(front.open_e9) == [5100, 5101, 5102, 5103, 5154, 5155, 5156]
    assert points(front.close_e9 - front.open_e9) == [1] * 7
    assert points(front.high_e9 - front.low_e9) == [3] * 7
    assert front.volume.tolist() == [450, 450, 200, 200, 450, 450, 990]
    assert front.contract_id.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert front.minute_of_session.tolist() == [600, 660, 600, 660, 600, 660, 600]
    assert front.minutes_to_close.tolist() == [840, 780, 840, 780, 840, 780, 840]
    assert np.all(np.diff(front.ts_ns) > 0)
    np.testing.assert_array_equal(front.known_ns, front.ts_ns + HOUR_NS)
    for name in ("contract_id", "trade_day", "minute_of_session", "minutes_to_close"):
        assert getattr(front, name).dtype == np.int32
    for name in ("ts_ns", "known_ns", "open_e9", "high_e9", "low_e9", "close_e9", "close_prev_e9", "exit_open_e9"):
        assert getattr(front, name).dtype == np.int64


def test_previous_close_and_exit_price_stay_inside_one_contract():
    front = front_series(loaded(*crossing_on_wednesday()), SPEC)
    # The first bar ever has its own open; the new contract's first front bar has the close of its bar on Wednesday.
    assert points(front.close_prev_e9) == [5100, 5101, 5102, 5103, 5154, 5155, 5156]
    # Where the contract changes, the old one's own open at that time.
    assert points(front.exit_open_e9) == [5100, 5101, 5102, 5103, 5104, 5155, 5156]
    held = front.exit_open_e9[1:] - front.open_e9[:-1]
    assert points(held) == [1, 1, 1, 1, 1, 1]  # the basis of 50 points is in no move


def test_issue_log_b11_no_profit_from_the_change_of_contract():
    # Old contract 4030.375, new one 4063.375 at the same time, a long position is held over the change.
    old = table("ESZ3", {TUE: (900, 4030.375), WED: (100, 4030.375), THU: (50, 4030.375)})
    new = table("ESH4", {TUE: (100, 4063.375), WED: (500, 4063.375), THU: (900, 4063.375)})
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {TUE: "ESZ3", WED: "ESZ3", THU: "ESH4"}
    assert (front.exit_open_e9[1:] - front.open_e9[:-1]).tolist() == [0, 0]
    assert front.rolls[0].exit_e9 == 4_030_375_000_000
    assert front.rolls[0].entry_e9 == 4_063_375_000_000


def test_issue_log_b12_returns_after_a_change_use_the_new_contracts_own_previous_close():
    # A difference of 76.5 between contracts; the new contract falls by 1 on the day of the change.
    old = table("ESH4", {TUE: (900, 673.75), WED: (100, 674.75)})
    new = table("ESM4", {TUE: (950, 750.25), WED: (900, 750.25)})
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {TUE: "ESH4", WED: "ESM4"}
    assert points(front.open_e9 - front.close_prev_e9)[-1] == -1.0


def test_exit_price_is_the_old_contracts_next_bar_of_the_session_or_its_last_close():
    old = table("ESH4", {TUE: (900, 5100), WED: (100, 5102)})
    late = dataclasses.replace(old, ts_ns=old.ts_ns + np.array([0, 3 * HOUR_NS]), known_ns=old.known_ns + 3 * HOUR_NS)
    new = table("ESM4", {TUE: (950, 5150), WED: (900, 5152)})
    assert front_series(loaded(late, new), SPEC).rolls[0].exit_e9 == 5102 * E9
    gone = table("ESH4", {TUE: (900, 5100), FRI: (100, 5110)})
    assert front_series(loaded(gone, new), SPEC).rolls[0].exit_e9 == 5101 * E9


def test_a_tie_keeps_the_front_and_a_tie_between_rivals_takes_the_nearer():
    old = table("ESH4", {TUE: (500, 5100), WED: (500, 5101)})
    new = table("ESM4", {TUE: (500, 5150), WED: (500, 5151)})
    assert days_of(front_series(loaded(old, new), SPEC)) == {TUE: "ESH4", WED: "ESH4"}
    old = table("ESH4", {TUE: (499, 5100), WED: (500, 5101)})
    far = table("ESU4", {TUE: (500, 5200), WED: (500, 5201)})
    assert days_of(front_series(loaded(old, new, far), SPEC)) == {TUE: "ESH4", WED: "ESM4"}


def test_the_front_never_goes_back():
    old = table("ESH4", {MON: (100, 1), TUE: (900, 1), WED: (900, 1), THU: (900, 1)})
    new = table("ESM4", {MON: (200, 2), TUE: (1, 2), WED: (1, 2), THU: (1, 2)})
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {MON: "ESH4", TUE: "ESM4", WED: "ESM4", THU: "ESM4"}
    assert len(front.rolls) == 1


def test_a_far_contract_with_the_most_volume_once_is_not_followed():
    near = table("ESH4", {MON: (500, 1), TUE: (500, 1), WED: (500, 1)})
    middle = table("ESM4", {MON: (510, 2), TUE: (800, 2), WED: (900, 2)})
    far = table("ESU4", {MON: (520, 3), TUE: (1, 3), WED: (1, 3)})
    front = front_series(loaded(near, middle, far), SPEC)
    assert days_of(front) == {MON: "ESH4", TUE: "ESM4", WED: "ESM4"}
    assert front.contracts == ("ESH4", "ESM4")
    assert (front.rolls[0].from_volume, front.rolls[0].to_volume) == (500.0, 510.0)


def test_an_expired_front_is_left_for_the_next_contract_that_trades():
    old = table("ESH4", {THU: (900, 5100), FRI: (900, 5102)})
    unseen = table("ESM4", {THU: (5, 5150)})
    monday = FRI + datetime.timedelta(days=3)
    new = table("ESU4", {THU: (1, 5200), monday: (5, 5203)})
    front = front_series(loaded(old, unseen, new), SPEC)
    assert days_of(front) == {THU: "ESH4", FRI: "ESH4", monday: "ESU4"}
    assert front.rolls[0].reason == "expired"
    assert (front.rolls[0].exit_e9, front.rolls[0].entry_e9) == (5103 * E9, 5203 * E9)
    assert front.warnings == ()
    assert "1 of 1 roll happened only after the old contract had no bars left" in front.notes


def test_a_front_missing_before_its_expiry_is_left_with_a_warning():
    old = table("ESH4", {MON: (900, 5100), WED: (900, 5102)})
    new = table("ESM4", {MON: (1, 5150), TUE: (1, 5151), WED: (1, 5152)})
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {MON: "ESH4", TUE: "ESM4", WED: "ESM4"}
    (warning,) = front.warnings
    for fact in ("ESH4", "2024-03-12", "2024-03-15", "ESM4"):
        assert fact in warning


def test_a_session_in_which_only_an_older_contract_trades_is_left_out():
    old = table("ESH4", {MON: (100, 5100), TUE: (100, 5101), WED: (100, 5102)})
    new = table("ESM4", {MON: (200, 5150), TUE: (200, 5151), THU: (200, 5153)})
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {MON: "ESH4", TUE: "ESM4", THU: "ESM4"}
    assert "1 session is left out" in front.warnings[0]
    assert "2024-03-13" in front.warnings[0]


def test_a_rival_without_bars_in_the_session_cannot_be_entered_yet():
    old = table("ESH4", {MON: (100, 5100), TUE: (100, 5101), WED: (100, 5102)})
    new = table("ESM4", {MON: (200, 5150), WED: (200, 5152)})
    assert days_of(front_series(loaded(old, new), SPEC)) == {MON: "ESH4", TUE: "ESH4", WED: "ESH4"}


def test_the_first_front_is_the_nearest_expiry_with_bars_whatever_its_volume():
    old = table("ESH4", {TUE: (10, 5100), WED: (400, 5102)})
    new = table("ESM4", {MON: (5, 5149), TUE: (900, 5150), WED: (600, 5152)})
    assert days_of(front_series(loaded(old, new), SPEC))[MON] == "ESM4"
    later = table("ESM4", {TUE: (900, 5150), WED: (600, 5152)})
    assert days_of(front_series(loaded(old, later), SPEC)) == {TUE: "ESH4", WED: "ESM4"}


def test_one_contract_has_no_rolls():
    front = front_series(loaded(crossing_on_wednesday()[0], symbology="raw"), SPEC)
    assert front.rolls == ()
    np.testing.assert_array_equal(front.exit_open_e9, front.open_e9)
    assert set(days_of(front).values()) == {"ESH4"}


def test_every_change_of_instrument_in_a_continuous_series_is_a_roll():
    first = table("ES.c.0#10", {MON: (500, 5100, 5101), TUE: (400, 5102)})
    second = table("ES.c.0#11", {WED: (300, 5152), THU: (600, 5153)})
    front = front_series(loaded(first, second, symbology="continuous"), SPEC, "volume")
    assert front.contracts == ("ES.c.0#10", "ES.c.0#11")
    assert front.expiry_day == (None, None)
    (roll,) = front.rolls
    assert (roll.reason, roll.exit_e9, roll.entry_e9) == ("continuous", 5103 * E9, 5152 * E9)
    assert (roll.from_volume, roll.to_volume) == (400.0, 0.0)
    assert points(front.close_prev_e9)[3] == 5152  # its own open: the vendor gives no earlier price of it
    told = front_series(loaded(first, second, symbology="continuous"), SPEC, "calendar:8")
    assert "rolled by its vendor" in told.warnings[0]


def test_a_continuous_series_may_roll_inside_a_session():
    first = table("ES.c.0#10", {MON: (500, 5100, 5101)})
    second = table("ES.c.0#11", {MON: (300, 5150, 5151, 5152, 5153)})
    late = dataclasses.replace(
        second, **{name: getattr(second, name)[2:] for name in ("ts_ns", "known_ns", "open_e9", "high_e9", "low_e9")}
    )
    late = dataclasses.replace(late, close_e9=second.close_e9[2:], volume=second.volume[2:])
    front = front_series(loaded(first, late, symbology="continuous"), SPEC)
    assert points(front.open_e9) == [5100, 5101, 5152, 5153]
    assert points(front.exit_open_e9) == [5100, 5101, 5102, 5153]
    assert (front.rolls[0].from_volume, front.rolls[0].to_volume) == (0.0, 0.0)


def test_a_continuous_series_that_runs_backwards_is_refused():
    first, second = crossing_on_wednesday()
    with pytest.raises(DataError, match=r"overlap at 2024-03-15T10:00:00Z"):
        front_series(loaded(first, second, symbology="continuous"), SPEC)


def test_without_volumes_contracts_are_held_to_the_end_with_a_warning():
    old = table("ESH4", {TUE: (0, 1), WED: (0, 1)}, has_volume=False)
    new = table("ESM4", {TUE: (0, 2), WED: (0, 2), THU: (0, 2)}, has_volume=False)
    front = front_series(loaded(old, new), SPEC)
    assert days_of(front) == {TUE: "ESH4", WED: "ESH4", THU: "ESM4"}
    assert not front.has_volume
    assert "no volume" in front.warnings[0]


def test_calendar_rule_leaves_a_contract_days_before_its_expiry():
    old, new = crossing_on_wednesday()
    zero = front_series(loaded(old, new), SPEC, "calendar:0")
    assert days_of(zero) == {TUE: "ESH4", WED: "ESH4", THU: "ESH4", FRI: "ESM4"}
    two = front_series(loaded(old, new), SPEC, "calendar:2")
    assert days_of(two) == {TUE: "ESH4", WED: "ESM4", THU: "ESM4", FRI: "ESM4"}
    assert two.rolls[0].reason == "calendar"
    assert set(days_of(front_series(loaded(old, new), SPEC, "calendar:30")).values()) == {"ESM4"}


def test_calendar_rule_skips_months_that_do_not_trade():
    gold = dataclasses.replace(spec_for("GC"), sessions="utc-day")  # GCG4 expires on 2024-02-27
    near = table("GCG4", {DATE(2024, 1, 16): (9, 2000), DATE(2024, 1, 18): (9, 2001)})
    serial = table("GCH4", {DATE(2024, 1, 16): (1, 2010), DATE(2024, 1, 18): (1, 2011)})
    next_ = table("GCJ4", {DATE(2024, 1, 16): (5, 2020), DATE(2024, 1, 18): (5, 2021)})
    front = front_series(loaded(near, serial, next_), gold, "calendar:40")
    assert front.contracts == ("GCG4", "GCJ4")
    assert front.rolls[0].reason == "calendar"


def test_calendar_rule_needs_delivery_months():
    first, second = crossing_on_wednesday()
    named = dataclasses.replace(second, contract="E-mini")
    with pytest.raises(ConfigError, match=r"'E-mini' names none.*table:FILE"):
        front_series(loaded(first, named), SPEC, "calendar:8")


def test_table_rule_follows_the_file(tmp_path):
    path = tmp_path / "rolls.csv"
    path.write_text("date,contract\n2024-03-12,ESH4\n2024-03-13,ESM4\n")
    front = front_series(loaded(*crossing_on_wednesday()), SPEC, f"table:{path}")
    assert days_of(front) == {TUE: "ESH4", WED: "ESM4", THU: "ESM4", FRI: "ESM4"}
    assert front.rolls[0].reason == "table"
    path.write_text("2024-03-13,ESH4\n2024-03-15,ESM4\n")
    front = front_series(loaded(*crossing_on_wednesday()), SPEC, f"table:{path}")
    assert days_of(front) == {WED: "ESH4", THU: "ESH4", FRI: "ESM4"}
    assert "1 session is left out" in front.warnings[0]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("2024-03-12,ESZ9\n", ("line 1", "'ESZ9'", "ESH4, ESM4")),
        ("date,contract\n2024-03-12,ESM4\n2024-03-13,ESH4\n", ("line 3", "ESH4", "only go forward")),
        ("2024-03-13,ESH4\n2024-03-13,ESM4\n", ("line 2", "only go forward")),
        ("12.3.2024,ESH4\n", ("line 1", "12.3.2024", "2024-03-12,ESM4")),
        ("2024-03-12\n", ("line 1", "date,contract")),
        ("", ("no line",)),
    ],
)
def test_table_rule_refuses_a_file_it_cannot_follow(tmp_path, text, facts):
    path = tmp_path / "rolls.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        front_series(loaded(*crossing_on_wednesday()), SPEC, f"table:{path}")
    assert all(fact in str(caught.value) for fact in (*facts, "rolls.csv"))


def test_table_rule_names_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        front_series(loaded(*crossing_on_wednesday()), SPEC, f"table:{tmp_path / 'none.csv'}")


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("open-interests", ("'open-interests'", "did you mean open-interest?")),
        ("calendar:99999", ("calendar:N",)),
        ("volum", ("'volum'", "did you mean volume?", "calendar:N", "table:FILE")),
        ("calendar", ("'calendar'", "calendar:N")),
        ("calendar:soon", ("calendar:N",)),
        ("calendar:-3", ("calendar:N",)),
        ("table:", ("table:FILE",)),
    ],
)
def test_unknown_rules_are_refused(rule, facts):
    for tables in (crossing_on_wednesday(), crossing_on_wednesday()[:1]):
        with pytest.raises(ConfigError) as caught:
            front_series(loaded(*tables), SPEC, rule)
        assert all(fact in str(caught.value) for fact in facts)


def test_no_bars_and_mixed_bar_lengths_are_refused():
    with pytest.raises(DataError, match=r"ES\.FUT: no bars"):
        front_series(loaded(), SPEC)
    first, second = crossing_on_wednesday()
    with pytest.raises(DataError, match="60000000000"):
        front_series(loaded(first, dataclasses.replace(second, interval_ns=60_000_000_000)), SPEC)


def test_bars_outside_the_sessions_are_kept_and_reported():
    friday_evening = int(datetime.datetime(2024, 3, 8, 23, tzinfo=datetime.UTC).timestamp()) * E9
    bar = table("ESH4", {MON: (5, 5100)})
    stray = dataclasses.replace(bar, ts_ns=np.array([friday_evening]), known_ns=np.array([friday_evening + HOUR_NS]))
    front = front_series(loaded(stray, symbology="raw"), spec_for("ES"))
    assert front.trade_day.tolist() == [(MON - EPOCH).days]
    (finding,) = front.findings
    assert (finding.defect, finding.count, finding.is_warning) == ("outside-session", 1, False)
    assert "2024-03-08T23:00:00Z" in finding.text


def test_issue_log_b13_negative_prices_are_prices():
    crude = dataclasses.replace(spec_for("CL"), sessions="utc-day")
    bars = table("CLK0", {MON: (5, 18.27), TUE: (5, -37.63), WED: (5, 10.01)})
    front = front_series(loaded(bars, symbology="raw"), crude)
    usd = [move / E9 * crude.multiplier for move in np.diff(front.exit_open_e9).tolist()]
    assert usd == [-55_900.0, 47_640.0]


def test_real_roll_of_december_2013(shared_data):
    """Twelve days of real ES minutes with five contracts: on 2013-12-18 ESH4 traded 2.25 M, ESZ3 0.28 M."""
    path = shared_data / "dbn_built" / "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"
    front = front_series(load_bars(DataConfig(data_dir=path, symbol="ES.FUT")), spec_for("ES"))
    assert front.contracts == ("ESZ3", "ESH4")
    assert front.expiry_day == ((DATE(2013, 12, 20) - EPOCH).days, (DATE(2014, 3, 21) - EPOCH).days)
    (roll,) = front.rolls
    assert (roll.from_contract, roll.to_contract, roll.reason) == ("ESZ3", "ESH4", "volume")
    assert EPOCH + datetime.timedelta(days=roll.trade_day) == DATE(2013, 12, 19)
    assert roll.ts_ns == int(datetime.datetime(2013, 12, 18, 23, tzinfo=datetime.UTC).timestamp()) * E9
    assert (roll.from_volume, roll.to_volume) == (282_813.0, 2_253_915.0)
    basis = (roll.entry_e9 - roll.exit_e9) / E9
    assert basis == pytest.approx(-6.25, abs=0.25)
    moves = np.abs(front.exit_open_e9[1:] - front.open_e9[:-1]) / E9
    row = int(np.searchsorted(front.ts_ns, roll.ts_ns))
    assert front.trade_day[row - 1] == front.trade_day[row] - 1
    assert moves[row - 1] <= 1.0
    assert abs(front.open_e9[row] - front.close_prev_e9[row]) / E9 <= 1.0
    same_session = np.diff(front.trade_day) == 0
    assert moves[same_session].max() < 20.0
    assert front.minutes_to_close.min() == 1  # the close was at 16:15 then
    assert (front.notes, front.warnings) == ((), ())


def test_real_january_2020_has_no_roll(shared_data):
    path = shared_data / "dbn_built" / "esfut-from-lean_2020-01.ohlcv-1m.dbn.zst"
    front = front_series(load_bars(DataConfig(data_dir=path, symbol="ES.FUT")), spec_for("ES"))
    assert (front.contracts, front.rolls, front.warnings) == (("ESH0",), (), ())
    np.testing.assert_array_equal(front.exit_open_e9, front.open_e9)


# Random markets: up to four contracts, up to eight sessions, volumes with ties and gaps.
CODES = ("ESH4", "ESM4", "ESU4", "ESZ4")
volumes = st.lists(
    st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=8, max_size=8), min_size=2, max_size=4
).filter(lambda rows: all(any(v is not None for v in row) for row in rows))


def market(rows: list[list[int | None]]) -> Loaded:
    tables = []
    for i, row in enumerate(rows):
        sessions = {
            MON + datetime.timedelta(days=s): (volume, 5000 + 100 * i + s, 5000.5 + 100 * i + s)
            for s, volume in enumerate(row)
            if volume is not None
        }
        tables.append(table(CODES[i], sessions))
    return loaded(*tables)


@settings(deadline=None)  # the machine may be busy
@given(volumes)
def test_law_the_front_only_goes_forward_and_one_leg_is_one_run(rows):
    front = front_series(market(rows), SPEC)
    assert np.all(np.diff(front.contract_id) >= 0)
    assert np.all(np.diff(front.ts_ns) > 0)
    assert len(front.rolls) == len(front.contracts) - 1 == int(np.count_nonzero(np.diff(front.contract_id)))
    order = [CODES.index(name) for name in front.contracts]
    assert order == sorted(set(order))
    for day in np.unique(front.trade_day):  # a contract is changed at a session boundary only
        assert np.unique(front.contract_id[front.trade_day == day]).size == 1


@settings(deadline=None)  # the machine may be busy
@given(volumes, st.integers(0, 7), st.integers(0, 3), st.integers(0, 9))
def test_law_volumes_of_a_session_do_not_change_its_front_or_an_earlier_one(rows, session, contract, volume):
    contract %= len(rows)
    changed = [list(row) for row in rows]
    if changed[contract][session] is not None:
        changed[contract][session] = volume
    day = MON + datetime.timedelta(days=session)
    before, after = days_of(front_series(market(rows), SPEC)), days_of(front_series(market(changed), SPEC))
    assert {d: name for d, name in before.items() if d <= day} == {d: name for d, name in after.items() if d <= day}


@settings(deadline=None)  # the machine may be busy
@given(volumes)
def test_law_no_move_and_no_return_holds_a_basis(rows):
    # Contracts lie 100 points apart, sessions at most 7 points apart: any move across contracts would show.
    front = front_series(market(rows), SPEC)
    assert np.all(np.abs(front.exit_open_e9[1:] - front.open_e9[:-1]) < 20 * E9)
    assert np.all(np.abs(front.open_e9 - front.close_prev_e9) < 20 * E9)


@settings(deadline=None)  # the machine may be busy
@given(volumes)
def test_law_constant_shifts_of_a_contract_change_no_move(rows):
    plain = market(rows)
    names = ("open_e9", "high_e9", "low_e9", "close_e9")
    shifted = dataclasses.replace(
        plain,
        tables=tuple(
            dataclasses.replace(t, **{name: getattr(t, name) - 7 * (i + 1) * E9 for name in names})
            for i, t in enumerate(plain.tables)
        ),
    )
    one, two = front_series(plain, SPEC), front_series(shifted, SPEC)
    for move in (
        lambda front: front.exit_open_e9[1:] - front.open_e9[:-1],
        lambda front: front.close_e9 - front.close_prev_e9,
    ):
        np.testing.assert_array_equal(move(one), move(two))


# The shadow price.


def shadow_e9(front: FrontSeries, name: str = "close") -> np.ndarray:
    return getattr(front, f"{name}_e9") - basis_e9(front)


def test_issue_log_b12_the_shadow_price_changes_by_what_the_contract_does():
    # A difference of 76.5; the new contract falls by 1 from the session before the roll to that of the roll.
    old = table("ESH4", {TUE: (900, 673.75), WED: (100, 672.75)})
    new = table("ESM4", {TUE: (950, 750.25), WED: (900, 749.25), THU: (900, 752.25)})
    front = front_series(loaded(old, new), SPEC)
    assert points(front.close_e9) == [674.75, 750.25, 753.25]
    assert points(basis_e9(front)) == [0.0, 76.5, 76.5]
    assert points(shadow_e9(front)) == [674.75, 673.75, 676.75]
    assert points(np.diff(shadow_e9(front)))[0] == -1.0


def test_the_shadow_price_keeps_the_way_of_prices_below_zero():
    bars = table("CLK0", {MON: (5, 18.27), TUE: (5, -37.63), WED: (5, 10.01)})
    front = front_series(loaded(bars, symbology="raw"), by_hand("CL"))
    assert points(np.diff(shadow_e9(front, "open"))) == [-55.9, 47.64]


@settings(deadline=None)  # the machine may be busy
@given(volumes)
def test_law_the_shadow_price_is_the_raw_one_less_a_constant_and_gains_what_a_holder_gains(rows):
    front = front_series(market(rows), SPEC)
    basis = basis_e9(front)
    first_bars = np.flatnonzero(np.diff(front.contract_id, prepend=-1))
    assert basis[0] == 0
    for start, stop in itertools.pairwise([*first_bars.tolist(), len(basis)]):
        assert np.unique(basis[start:stop]).size == 1
    np.testing.assert_array_equal(np.diff(shadow_e9(front, "open")), front.exit_open_e9[1:] - front.open_e9[:-1])
    assert np.all(np.abs(np.diff(shadow_e9(front, "open"))) < 20 * E9)  # contracts lie 100 points apart


@settings(deadline=None)  # the machine may be busy
@given(volumes, st.integers(0, 7))
def test_law_later_sessions_and_rolls_change_no_earlier_shadow_price(rows, last):
    whole = front_series(market(rows), SPEC)
    cut = [[volume if s <= last else None for s, volume in enumerate(row)] for row in rows]
    kept = [row for row in cut if any(volume is not None for volume in row)]
    if len(kept) < len(rows):
        return  # contracts that only later begin: another market
    front = front_series(market(cut), SPEC)
    np.testing.assert_array_equal(shadow_e9(front), shadow_e9(whole)[: len(front.ts_ns)])


def test_recorded_spreads_are_those_of_the_front_and_only_where_all_contracts_have_them():
    old, new = crossing_on_wednesday()
    assert front_series(loaded(old, new), SPEC).open_spread_e9 is None
    quoted = [
        dataclasses.replace(t, open_spread_e9=np.arange(1, len(t.ts_ns) + 1) * n) for t, n in ((old, 1), (new, 100))
    ]
    assert front_series(loaded(*quoted), SPEC).open_spread_e9.tolist() == [1, 2, 3, 4, 500, 600, 700]
    assert front_series(loaded(quoted[0], new), SPEC).open_spread_e9 is None
