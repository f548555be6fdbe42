"""The account of sessions, missing bars and holes; golden counts by hand from bars made here."""

import numpy as np

from made_up_bars import HOUR_NS, hourly_contracts, loaded, table
from tidewalk.data.bars import BarTable
from tidewalk.data.checks.survey import survey
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for

MINUTE_NS = HOUR_NS // 60


def minutes(contract: str, first_ns: int, skip: set[int], count: int) -> BarTable:
    """One-minute bars at a price of 5000, some left out."""
    ts_ns = first_ns + MINUTE_NS * np.array([n for n in range(count) if n not in skip], np.int64)
    price_e9 = np.full(len(ts_ns), 5_000 * 10**9, np.int64)
    prices = [price_e9.copy() for _ in range(4)]
    return BarTable(contract, 1, MINUTE_NS, ts_ns, ts_ns + MINUTE_NS, *prices, np.ones(len(ts_ns)), has_volume=True)


def at(text: str) -> int:
    return int(np.datetime64(text, "ns").astype(np.int64))


def account(tables, rule: str = "cme-equity"):
    held = loaded(tables)
    return survey(held, rule, front_series(held, spec_for("ES")))


def test_bars_and_volume_are_counted_per_contract_and_session():
    old, new = hourly_contracts(4, bars_per_day=3, roll_after=1)
    found = account([old, new])
    assert found.contracts == ("ESH4", "ESM4")
    assert found.bars.tolist() == [[3, 3, 3, 3], [3, 3, 3, 3]]
    assert found.front.tolist() == [0, 0, 1, 1]
    assert found.volume.sum() == old.volume.sum() + new.volume.sum()
    assert found.front_volume.tolist() == [found.volume[held, s] for s, held in enumerate(found.front)]
    assert found.close_e9[-1] == new.close_e9[-1]


def test_missing_bars_are_those_of_the_schedule_without_a_trade():
    # Tuesday 2024-03-05, 17:00 to 16:00 Chicago: 1,380 minutes
    found = account([minutes("ESH4", at("2024-03-04T23:00"), {10, 11, 700}, 23 * 60)])
    assert found.expected_bars.tolist() == [1380]
    assert found.missing_bars.tolist() == [3]
    assert [gap.minutes for gap in found.gaps] == [2, 1]
    assert found.num_long_gaps == 0


def test_a_scheduled_pause_is_neither_a_hole_nor_missing():
    # 2020-03-04: no trading from 15:15 to 15:30 Chicago, which is minute 1,335 of the session
    pause = set(range(1335, 1350))
    found = account([minutes("ESH0", at("2020-03-03T23:00"), pause, 23 * 60)])
    assert found.expected_bars.tolist() == [1365]
    assert found.missing_bars.tolist() == [0]
    assert found.gaps == ()


def test_a_hole_that_reaches_beyond_the_pause_is_counted_without_it_and_named_whole():
    hole = set(range(1290, 1360))
    found = account([minutes("ESH0", at("2020-03-03T23:00"), hole, 23 * 60)])
    assert found.num_long_gaps == 1
    assert found.gaps[0].from_ns == at("2020-03-04T20:30")
    assert found.gaps[0].to_ns == at("2020-03-04T21:40")


def test_a_break_between_sessions_is_no_hole():
    first = minutes("ESH4", at("2024-03-04T23:00"), set(), 23 * 60)
    second = minutes("ESH4", at("2024-03-05T23:00"), set(), 23 * 60)
    both = table("ESH4", [*first.ts_ns, *second.ts_ns], np.full((2 * 23 * 60, 4), 20_000), np.ones(2 * 23 * 60))
    both = BarTable(**{**both.__dict__, "interval_ns": MINUTE_NS, "known_ns": both.ts_ns + MINUTE_NS})
    assert account([both]).gaps == ()


def test_without_a_front_series_nothing_is_held_and_nothing_missing():
    held = loaded(hourly_contracts(2))
    found = survey(held, "cme-equity", None)
    assert found.front.tolist() == [-1, -1]
    assert found.missing_bars.tolist() == [0, 0]
    assert found.bars.sum() == sum(len(one.ts_ns) for one in held.tables)


def test_a_print_of_closed_hours_makes_no_hole():
    sunday_noon = minutes("ESH4", at("2024-03-03T20:00"), set(), 1)
    session = minutes("ESH4", at("2024-03-03T23:00"), set(), 23 * 60)
    ts_ns = np.concatenate([sunday_noon.ts_ns, session.ts_ns])
    both = minutes("ESH4", 0, set(), len(ts_ns))
    both = BarTable(**{**both.__dict__, "ts_ns": ts_ns, "known_ns": ts_ns + MINUTE_NS})
    found = account([both])
    assert found.bars.tolist() == [[23 * 60 + 1]]
    assert (found.gaps, found.num_long_gaps) == ((), 0)
