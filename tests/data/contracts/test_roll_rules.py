"""Roll rules: caps before delivery, crossings that count, absent contracts, open interest, serial months."""

import dataclasses
import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.contract_tables import DATE, DAY_NS, E9, EPOCH, HOUR_NS, SPEC, by_hand, days_of, loaded, points, table
from tidewalk.core.errors import ConfigError
from tidewalk.data.bars import BarTable, Definition, OpenInterest
from tidewalk.data.contracts.expiries import expiry_date, last_safe_date
from tidewalk.data.contracts.roll_rules import PATIENCE
from tidewalk.data.contracts.rolls import FrontSeries, front_series
from tidewalk.data.contracts.specs import ContractMonth, spec_for
from tidewalk.data.contracts.terms import SEASON_DAYS
from tidewalk.data.load import DataConfig, load_bars


def weekdays(first: DATE, count: int) -> list[DATE]:
    days = (first + datetime.timedelta(days=n) for n in range(2 * count + 7))
    return [day for day in days if day.weekday() < 5][:count]


def steady(contract: str, first: DATE, volumes: list[float | None], price: float = 100.0) -> BarTable:
    """One bar per weekday with these volumes, none where a volume is None."""
    days = weekdays(first, len(volumes))
    return table(contract, {day: (v, price) for day, v in zip(days, volumes, strict=True) if v is not None})


def fronts(front: FrontSeries) -> list[str]:
    return list(days_of(front).values())


def roll_dates(front: FrontSeries) -> list[tuple[str, str, str]]:
    return [(str(np.datetime64(r.trade_day, "D")), r.to_contract, r.reason) for r in front.rolls]


# Caps.


@pytest.mark.parametrize("rule", ["volume", "open-interest", "calendar:0", "calendar:3"])
@pytest.mark.parametrize(
    ("root", "contracts", "leave"),
    [
        ("GC", ("GCG4", "GCJ4"), DATE(2024, 1, 30)),  # first notice on the 31st
        ("SI", ("SIH4", "SIK4"), DATE(2024, 2, 28)),
        ("ZN", ("ZNH4", "ZNM4"), DATE(2024, 2, 28)),  # first notice on the 29th
        ("ZB", ("ZBH4", "ZBM4"), DATE(2024, 2, 28)),
        ("ZC", ("ZCH4", "ZCK4"), DATE(2024, 2, 28)),
        ("CL", ("CLH4", "CLJ4"), DATE(2024, 2, 19)),  # trades until the 20th; safe to Friday the 16th
        ("NG", ("NGH4", "NGJ4"), DATE(2024, 2, 27)),
        ("6E", ("6EH4", "6EM4"), DATE(2024, 3, 18)),
    ],
)
def test_what_is_delivered_is_left_before_that_under_every_rule(rule, root, contracts, leave):
    """The old contract trades on, more than the new one, for days after the last one on which it may be held."""
    first, count = DATE(2024, 1, 2), 56
    old_count = int(np.busday_count(first, leave)) + 2
    data = loaded(
        steady(contracts[0], first, [900.0] * old_count),
        steady(contracts[1], first, [100.0] * count),
        open_interest=(counts(contracts[0], first, [900] * count), counts(contracts[1], first, [100] * count)),
    )
    front = front_series(data, by_hand(root), rule)
    left = days_of(front)
    month = ContractMonth(root, 2024, {"G": 2, "H": 3}[contracts[0][2]])
    assert max(day for day, name in left.items() if name == contracts[0]) <= last_safe_date(month)
    assert front.contracts == contracts
    if not rule.startswith("calendar:3") or root in ("GC", "SI", "ZN", "ZB", "ZC"):
        assert roll_dates(front)[0][0] == str(leave)
    if rule in ("volume", "open-interest"):
        assert front.rolls[0].reason == "cap"
        assert "1 of 1 roll happened because the contract could be held no longer" in "".join(front.notes)
    assert front.warnings == ()


def test_what_settles_in_cash_is_held_to_its_last_trading_day():
    first = DATE(2024, 3, 4)
    data = loaded(steady("ESH4", first, [900.0] * 10), steady("ESM4", first, [100.0] * 15))
    front = front_series(data, SPEC)
    assert roll_dates(front) == [("2024-03-18", "ESM4", "expired")]
    stale = loaded(steady("ESH4", first, [900.0] * 15), steady("ESM4", first, [100.0] * 15))
    assert roll_dates(front_series(stale, SPEC)) == [("2024-03-18", "ESM4", "cap")]


def test_issue_log_b13_crude_oil_of_april_2020_is_left_on_its_last_trading_day():
    """CLK0 settled at 18.27, -37.63 and 10.01; a position is out with the open of its last session, the 21st."""
    days = [DATE(2020, 4, 17), DATE(2020, 4, 20), DATE(2020, 4, 21), DATE(2020, 4, 22)]
    may = table("CLK0", {day: (900, price) for day, price in zip(days, (18.27, -37.63, 10.01), strict=False)})
    june = table("CLM0", {day: (100, price) for day, price in zip(days, (25.03, 20.43, 11.57, 13.78), strict=True)})
    front = front_series(loaded(may, june), by_hand("CL"))
    assert roll_dates(front) == [("2020-04-21", "CLM0", "cap")]
    moves_usd = (front.exit_open_e9[1:] - front.open_e9[:-1]) * 1000 // E9
    assert moves_usd.tolist() == [-55_900, 47_640, 2_210]
    assert points(front.open_e9) == [18.27, -37.63, 11.57, 13.78]


def test_where_nothing_else_trades_sessions_after_the_cap_are_left_out():
    first = DATE(2024, 1, 24)
    data = loaded(steady("GCG4", first, [900.0] * 10), steady("GCJ4", first, [None] * 8 + [100.0] * 4))
    front = front_series(data, by_hand("GC"))
    assert max(day for day, name in days_of(front).items() if name == "GCG4") == DATE(2024, 1, 29)
    assert roll_dates(front) == [("2024-02-05", "GCJ4", "cap")]
    (warning,) = front.warnings
    assert "4 sessions are left out" in warning
    assert "past its last safe day" in warning
    assert "2024-01-30" in warning


def test_one_contract_alone_is_kept_and_its_unsafe_sessions_are_told():
    front = front_series(loaded(steady("GCG4", DATE(2024, 1, 24), [9.0] * 10), symbology="raw"), by_hand("GC"))
    assert len(front.ts_ns) == 10
    (warning,) = front.warnings
    assert "6 sessions of GCG4 are after 2024-01-29" in warning


def test_a_table_that_holds_a_contract_too_long_is_refused_with_the_day(tmp_path):
    first = DATE(2024, 1, 24)
    data = loaded(steady("GCG4", first, [900.0] * 10), steady("GCJ4", first, [100.0] * 10))
    path = tmp_path / "rolls.csv"
    path.write_text("2024-01-24,GCG4\n2024-02-01,GCJ4\n")
    with pytest.raises(ConfigError) as caught:
        front_series(data, by_hand("GC"), f"table:{path}")
    for fact in ("line 1", "GCG4", "until 2024-01-31", "2024-01-29", "first notice"):
        assert fact in str(caught.value)
    path.write_text("2024-01-24,GCG4\n2024-01-30,GCJ4\n")
    assert roll_dates(front_series(data, by_hand("GC"), f"table:{path}")) == [("2024-01-30", "GCJ4", "table")]


def test_lines_of_a_table_outside_the_data_are_not_used(tmp_path):
    first = DATE(2024, 1, 24)
    data = loaded(steady("GCG4", first, [900.0] * 5), steady("GCJ4", first, [100.0] * 10))
    path = tmp_path / "rolls.csv"
    path.write_text("date,contract\n2023-11-28,GCZ3\n2023-12-01,GCG4\n2024-01-29,GCJ4\n2024-03-26,GCM4\n")
    assert roll_dates(front_series(data, by_hand("GC"), f"table:{path}")) == [("2024-01-29", "GCJ4", "table")]


def test_the_definition_in_the_data_goes_before_the_rule():
    first = DATE(2024, 3, 4)
    data = loaded(steady("ESH4", first, [900.0] * 15), steady("ESM4", first, [100.0] * 15))
    end_ns = (DATE(2024, 3, 13) - EPOCH).days * DAY_NS + 13 * HOUR_NS
    ended = Definition("ESH4", 7, True, 250_000_000, 50.0, "USD", end_ns)
    known = dataclasses.replace(
        data,
        tables=(steady("ESH4", first, [900.0] * 8), data.tables[1]),
        definitions=(ended, dataclasses.replace(ended, symbol="ESH4-ESM4", is_outright=False, expiration_ns=1)),
    )
    front = front_series(known, SPEC)
    assert front.expiry_day[0] == (DATE(2024, 3, 13) - EPOCH).days
    assert roll_dates(front) == [("2024-03-14", "ESM4", "expired")]
    assert front.warnings == ()  # by the rule it would have been missing before its expiry on the 15th


# Crossings.


def test_a_busy_day_of_a_far_contract_is_no_migration():
    """In February ESZ4, nine months out, trades more than the front for one session by an error."""
    first = DATE(2024, 2, 1)
    near, next_ = steady("ESH4", first, [900.0] * 30), steady("ESM4", first, [100.0] * 30)
    far = steady("ESZ4", first, [1.0] * 10 + [5000.0] + [1.0] * 19)
    assert set(fronts(front_series(loaded(near, next_, far), SPEC))) == {"ESH4"}
    in_season = steady("ESZ4", first, [1.0] * 25 + [5000.0] + [1.0] * 4)
    assert set(fronts(front_series(loaded(near, next_, in_season), SPEC))) == {"ESH4"}


@pytest.mark.parametrize(
    ("root", "codes", "first", "is_followed"),
    [
        ("ES", ("ESH4", "ESM4", "ESU4"), DATE(2024, 3, 4), False),
        ("CL", ("CLH4", "CLJ4", "CLK4"), DATE(2024, 2, 6), False),
        ("GC", ("GCQ4", "GCV4", "GCZ4"), DATE(2024, 7, 15), True),  # the October contract hardly trades
    ],
)
def test_one_busy_day_of_the_contract_after_next_counts_only_where_months_are_passed_by(
    root, codes, first, *, is_followed
):
    near, thin = steady(codes[0], first, [900.0] * 8), steady(codes[1], first, [10.0] * 8)
    busy = steady(codes[2], first, [10.0, 10.0, 5000.0, *[10.0] * 5])
    front = front_series(loaded(near, thin, busy), by_hand(root))
    assert (codes[2] in front.contracts) == is_followed


def test_a_month_apart_the_season_is_half_a_month():
    """CLM0 follows CLK0, safe until 2020-04-20: one busy session of it in March is no migration, in April it is."""
    first = DATE(2020, 3, 23)
    near = steady("CLK0", first, [900.0] * 15)
    for busy, contracts in ((4, ("CLK0",)), (12, ("CLK0", "CLM0"))):
        spike = steady("CLM0", first, [5000.0 if s == busy else 100.0 for s in range(15)])
        assert front_series(loaded(near, spike), by_hand("CL")).contracts == contracts


def test_a_crossing_out_of_season_counts_when_it_lasts():
    first = DATE(2024, 1, 8)
    near = steady("ESH4", first, [900.0] * 15)
    spike = steady("ESM4", first, [100.0] * 5 + [2000.0] * (PATIENCE - 1) + [100.0] * (11 - PATIENCE))
    assert set(fronts(front_series(loaded(near, spike), SPEC))) == {"ESH4"}
    lasting = steady("ESM4", first, [100.0] * 5 + [2000.0] * 10)
    assert fronts(front_series(loaded(near, lasting), SPEC)) == ["ESH4"] * (5 + PATIENCE) + ["ESM4"] * (10 - PATIENCE)
    far = steady("ESZ4", first, [100.0] * 5 + [2000.0] * 10)
    assert fronts(front_series(loaded(near, spike, far), SPEC))[-1] == "ESZ4"


def test_a_crossing_out_of_season_counts_at_once_when_the_front_has_lost_its_trading():
    first = DATE(2024, 1, 8)
    near = steady("ESH4", first, [900.0] * 5 + [300.0] * 5)
    new = steady("ESM4", first, [100.0] * 5 + [800.0] * 5)
    assert fronts(front_series(loaded(near, new), SPEC)) == ["ESH4"] * 6 + ["ESM4"] * 4


def test_a_crossing_in_season_counts_in_the_next_session_and_for_good():
    first = DATE(2024, 2, 20)
    assert (DATE(2024, 3, 15) - first).days <= SEASON_DAYS
    near = steady("ESH4", first, [900.0, 900.0, 400.0, 900.0, 400.0, 900.0])
    new = steady("ESM4", first, [100.0, 100.0, 500.0, 100.0, 500.0, 100.0])
    front = front_series(loaded(near, new), SPEC)
    assert fronts(front) == ["ESH4"] * 3 + ["ESM4"] * 3  # crosses three times; the first one stays


def test_a_tie_keeps_the_front_and_goes_to_the_nearer_of_two_rivals():
    first = DATE(2024, 3, 4)
    near, tie = steady("ESH4", first, [500.0] * 4), steady("ESM4", first, [500.0] * 4)
    assert set(fronts(front_series(loaded(near, tie), SPEC))) == {"ESH4"}
    two = (steady("ESM4", first, [600.0] * 4), steady("ESU4", first, [600.0] * 4))
    assert fronts(front_series(loaded(near, *two), SPEC))[1] == "ESM4"


def test_data_that_begin_in_the_roll_week_change_in_their_second_session():
    first = DATE(2024, 3, 12)
    data = loaded(steady("ESH4", first, [100.0] * 4), steady("ESM4", first, [900.0] * 6))
    assert roll_dates(front_series(data, SPEC)) == [("2024-03-13", "ESM4", "volume")]


# Serial months.


def test_serial_months_are_entered_only_where_nothing_else_trades():
    first = DATE(2024, 1, 15)
    near = steady("GCG4", first, [900.0] * 30)
    serial = steady("GCH4", first, [5000.0] * 30)
    usual = steady("GCJ4", first, [10.0] * 30)
    assert front_series(loaded(near, serial, usual), by_hand("GC")).contracts == ("GCG4", "GCJ4")
    front = front_series(loaded(near, serial), by_hand("GC"))
    assert roll_dates(front) == [("2024-01-30", "GCH4", "cap")]


def test_the_first_front_is_a_usual_month_that_may_still_be_held():
    first = DATE(2024, 2, 1)  # GCG4 trades until the 27th, but deliveries are assigned
    tables = (
        steady("GCG4", first, [900.0] * 5),
        steady("GCH4", first, [90.0] * 5),
        steady("GCJ4", first, [9.0] * 5),
    )
    assert front_series(loaded(*tables), by_hand("GC")).contracts == ("GCJ4",)
    assert front_series(loaded(*tables[:2]), by_hand("GC")).contracts == ("GCH4",)


def test_of_the_next_usual_months_the_one_that_trades_follows():
    """Gold goes from August to December: October is listed as usual, but thin."""
    first = DATE(2024, 7, 15)
    near = steady("GCQ4", first, [900.0] * 15)
    thin, full = steady("GCV4", first, [10.0] * 15), steady("GCZ4", first, [800.0] * 15)
    front = front_series(loaded(near, thin, full), by_hand("GC"))
    assert roll_dates(front) == [("2024-07-30", "GCZ4", "cap")]


# Absent contracts.


def test_a_contract_missing_out_of_season_is_waited_for():
    first = DATE(2024, 1, 8)
    gap = PATIENCE - 1
    near = steady("ESH4", first, [900.0] * 5 + [None] * gap + [900.0] * 5)
    new = steady("ESM4", first, [100.0] * (10 + gap))
    front = front_series(loaded(near, new), SPEC)
    assert set(fronts(front)) == {"ESH4"}
    (warning,) = front.warnings
    assert f"{gap} sessions are left out" in warning


def test_a_contract_missing_for_longer_is_left_with_a_warning():
    first = DATE(2024, 1, 8)
    near = steady("ESH4", first, [900.0] * 5 + [None] * PATIENCE + [900.0] * 5)
    front = front_series(loaded(near, steady("ESM4", first, [100.0] * (10 + PATIENCE))), SPEC)
    assert fronts(front) == ["ESH4"] * 5 + ["ESM4"] * 6
    assert roll_dates(front) == [("2024-01-17", "ESM4", "expired")]
    assert any("ESH4 has no bars" in warning for warning in front.warnings)


def test_a_front_that_stops_inside_a_session_is_kept():
    """A halt: the front has its morning bars only, the next contract trades on."""
    first = DATE(2024, 3, 4)
    days = weekdays(first, 3)
    near = table("ESH4", {days[0]: (900, 1, 2, 3), days[1]: (900, 4), days[2]: (900, 5, 6, 7)})
    new = table("ESM4", dict.fromkeys(days, (9, 1, 2, 3)))
    front = front_series(loaded(near, new), SPEC)
    assert (front.contracts, len(front.ts_ns), front.warnings) == (("ESH4",), 7, ())


# Open interest.


def counts(contract: str, first: DATE, lots: list[int], *, hour: int = 31) -> OpenInterest:
    """Open interest of each weekday, published so many hours after its start: 31 is 07:00 of the day after."""
    days = np.array([(day - EPOCH).days for day in weekdays(first, len(lots))], np.int64)
    return OpenInterest(contract, days.astype(np.int32), days * DAY_NS + hour * HOUR_NS, np.array(lots, np.int64))


def migration(hour: int = 31, **more: object):
    """Open interest goes over on the third day; volumes never do."""
    first = DATE(2024, 3, 4)
    return loaded(
        steady("ESH4", first, [900.0] * 8),
        steady("ESM4", first, [100.0] * 8),
        open_interest=(
            counts("ESH4", first, [900, 900, 400, 300, 200, 100, 50, 20], hour=hour),
            counts("ESM4", first, [100, 100, 500, 600, 700, 800, 900, 900], hour=hour),
        ),
        **more,
    )


def test_open_interest_counts_from_the_first_session_that_opens_after_its_publication():
    # Of Wednesday the 6th, published on Thursday at 07:00, after the session of Thursday has opened: Friday's.
    front = front_series(migration(), SPEC, "open-interest")
    assert roll_dates(front) == [("2024-03-08", "ESM4", "open-interest")]
    assert (front.rolls[0].from_open_interest, front.rolls[0].to_open_interest) == (400.0, 500.0)
    assert (front.rolls[0].from_volume, front.rolls[0].to_volume) == (900.0, 100.0)
    early = front_series(migration(hour=24), SPEC, "open-interest")  # as Thursday opens
    assert roll_dates(early) == [("2024-03-07", "ESM4", "open-interest")]
    late = front_series(migration(hour=24 + 25), SPEC, "open-interest")
    assert roll_dates(late) == [("2024-03-11", "ESM4", "open-interest")]
    assert roll_dates(front_series(migration(), SPEC, "volume")) == []


def test_open_interest_that_is_not_there_is_refused_with_the_remedy():
    data = migration()
    for less in ((), tuple(dataclasses.replace(entry, contract="NQH4") for entry in data.open_interest)):
        with pytest.raises(ConfigError) as caught:
            front_series(dataclasses.replace(data, open_interest=less), SPEC, "open-interest")
        for fact in ("--roll open-interest", "statistics schema", "--roll volume", "--roll table:FILE"):
            assert fact in str(caught.value)


def test_a_front_whose_open_interest_is_not_known_is_held():
    data = migration()
    front = front_series(dataclasses.replace(data, open_interest=data.open_interest[1:]), SPEC, "open-interest")
    assert front.contracts == ("ESH4",)
    assert any("open interest of the front is not known in 8 of 8 sessions" in text for text in front.warnings)


def test_open_interest_of_long_ago_is_no_longer_known():
    data = migration()
    years = tuple(
        dataclasses.replace(entry, known_ns=entry.known_ns - 3653 * DAY_NS, trade_day=entry.trade_day - 3653)
        for entry in data.open_interest
    )
    with pytest.raises(ConfigError, match="none that was known before a session of these contracts"):
        front_series(dataclasses.replace(data, open_interest=years), SPEC, "open-interest")


@settings(deadline=None, max_examples=40)  # the machine may be busy
@given(st.integers(0, 7), st.integers(0, 2000), st.sampled_from([0, 1]))
def test_law_open_interest_published_after_a_session_opens_does_not_change_its_front(session, lots, contract):
    data = migration()
    changed = list(data.open_interest)
    new_lots = changed[contract].lots.copy()
    new_lots[session:] = lots
    changed[contract] = dataclasses.replace(changed[contract], lots=new_lots)
    before = days_of(front_series(data, SPEC, "open-interest"))
    after = days_of(front_series(dataclasses.replace(data, open_interest=tuple(changed)), SPEC, "open-interest"))
    published = weekdays(DATE(2024, 3, 4), 8)[session] + datetime.timedelta(days=1)
    assert {d: n for d, n in before.items() if d <= published} == {d: n for d, n in after.items() if d <= published}


# Whole calendars.


@pytest.mark.parametrize(("rule", "days_before"), [("calendar:0", 0), ("calendar:8", 8)])
def test_the_calendar_rule_over_fourteen_years_of_lean_expiries(shared_data, rule, days_before):
    lines = (shared_data / "lean" / "es_map_file.csv").read_text().splitlines()
    mapped_until = [datetime.datetime.strptime(line[:8], "%Y%m%d").date() for line in lines if line.endswith(",0")]
    tables = []
    for day in mapped_until:
        expiry = day + datetime.timedelta(days=1)
        sessions = weekdays(expiry - datetime.timedelta(days=110), 79)
        code = f"ES{'HMUZ'[expiry.month // 3 - 1]}{expiry.year % 10}"
        tables.append(table(code, {d: (1, 100.0) for d in sessions if d <= expiry}))
    front = front_series(loaded(*tables), SPEC, rule)
    leave = [day + datetime.timedelta(days=1 - days_before) for day in mapped_until[:-1]]
    rolled = [EPOCH + datetime.timedelta(days=roll.trade_day) for roll in front.rolls]
    assert rolled == [day if day.weekday() < 5 else weekdays(day, 1)[0] for day in leave]
    assert {roll.reason for roll in front.rolls} == {"calendar"}


def test_real_volumes_of_december_2013_roll_a_session_before_leans_open_interest(shared_data):
    """Daily bars of LEAN's sample: ESH4 passes ESZ3 on Friday 2013-12-13; LEAN rolls by open interest after the 17th.

    LEAN's difference factor steps by 6.5 at that roll (rule 2) and by 6.75 on the last trading day.
    """
    tables = []
    for code, month in (("ESZ3", "201312"), ("ESH4", "201403"), ("ESM4", "201406")):
        tables.append(lean_daily(shared_data / "lean" / "daily_es_trade.zip", code, f"es_trade_{month}.csv"))
    front = front_series(loaded(*tables), spec_for("ES"))
    assert roll_dates(front)[0] == ("2013-12-16", "ESH4", "volume")
    roll = front.rolls[0]
    assert (roll.from_volume, roll.to_volume) == (347_764.0, 868_208.0)
    assert (roll.entry_e9 - roll.exit_e9) / E9 == pytest.approx(-6.5, abs=0.75)


def lean_daily(path, code: str, member: str) -> BarTable:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        rows = [line.split(",") for line in archive.read(member).decode().split("\n") if line.strip()]
    rows = [row for row in rows if row[0] < "20140101"]
    ts_ns = np.array([np.datetime64(f"{r[0][:4]}-{r[0][4:6]}-{r[0][6:8]}", "ns").astype(np.int64) for r in rows])
    prices = np.array([[round(float(cell) * E9) for cell in row[1:5]] for row in rows], np.int64)
    volume = np.array([float(row[5]) for row in rows])
    return BarTable(code, 0, DAY_NS, ts_ns, ts_ns + DAY_NS, *np.ascontiguousarray(prices.T), volume, True)


def test_real_open_interest_of_december_2013(shared_data):
    """Counts of 2013-12-18, 07:07 UTC: 2,325,119 of ESH4 against 1,045,113 of ESZ3; the session after rolls."""
    path = shared_data / "dbn_built" / "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"
    data = load_bars(DataConfig(data_dir=path, symbol="ES.FUT"))
    published = tuple(
        lean_open_interest(shared_data / "lean" / "es_minute", code, month)
        for code, month in (("ESZ3", "201312"), ("ESH4", "201403"))
    )
    front = front_series(dataclasses.replace(data, open_interest=published), spec_for("ES"), "open-interest")
    assert roll_dates(front) == [("2013-12-19", "ESH4", "open-interest")]
    assert (front.rolls[0].from_open_interest, front.rolls[0].to_open_interest) == (1_037_604.0, 2_327_433.0)


def lean_open_interest(folder, code: str, month: str) -> OpenInterest:
    import zipfile

    stamps, lots = [], []
    for path in sorted(folder.glob("*_openinterest.zip")):
        day_ns = int(np.datetime64(f"{path.name[:4]}-{path.name[4:6]}-{path.name[6:8]}", "ns").astype(np.int64))
        with zipfile.ZipFile(path) as archive:
            for name in (name for name in archive.namelist() if name.endswith(f"_{month}.csv")):
                for line in archive.read(name).decode().split():
                    millisecond, count = line.split(",")
                    stamps.append(day_ns + int(millisecond) * 1_000_000)
                    lots.append(int(count))
    known_ns = np.array(stamps, np.int64)
    return OpenInterest(code, (known_ns // DAY_NS).astype(np.int32), known_ns, np.array(lots, np.int64))


def test_expiries_used_here_are_those_of_the_rule():
    assert expiry_date(ContractMonth("ES", 2024, 3)) == DATE(2024, 3, 15)
