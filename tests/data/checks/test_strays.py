"""Prints of closed hours: left out only where the market was elsewhere before and after."""

import numpy as np
import pytest

from data.market_files import DAY_NS, HOUR_NS, MINUTE_NS, ns
from tidewalk.data.bars import E9
from tidewalk.data.checks.strays import misprints, stray_prints
from tidewalk.data.rows import Rows

HALF_HOUR_NS = 30 * MINUTE_NS


def rows_of(stamps_ns: list[int], prices: list[float]) -> Rows:
    """Bars that close a point above their open."""
    open_e9 = np.array([round(price * E9) for price in prices], np.int64)
    count = len(stamps_ns)
    ids, numbers, files = np.zeros(count, np.int64), np.arange(count), np.zeros(count, np.int32)
    stamps = np.array(stamps_ns, np.int64)
    return Rows(stamps, open_e9, open_e9 + 2 * E9, open_e9 - E9, open_e9 + E9, np.ones(count), ids, numbers, files)


def week(friday: str, *, price: float = 15000.0) -> tuple[list[int], list[float]]:
    """Half-hours of the five days that end on a Friday."""
    first_ns = ns(f"{friday} 08:00") - 4 * 24 * HOUR_NS
    stamps = [first_ns + day * 24 * HOUR_NS + i * HALF_HOUR_NS for day in range(5) for i in range(26)]
    return stamps, [price + i % 3 for i in range(len(stamps))]


def two_weeks(
    saturday: float, later: float = 15000.0, stamps: tuple[str, ...] = ("2024-01-06 10:00", "2024-01-06 10:30")
) -> tuple[Rows, np.ndarray]:
    """Two weeks with prints in between, and which rows those are."""
    first, second = week("2024-01-05"), week("2024-01-12", price=later)
    between = [ns(stamp) for stamp in stamps]
    rows = rows_of([*first[0], *between, *second[0]], [*first[1], *[saturday] * len(between), *second[1]])
    return rows, np.isin(rows.stamp_ns, between)


@pytest.mark.parametrize("saturday", [11352.0, 1.0, 20000.0])
def test_a_saturday_far_from_both_weeks_is_stray(saturday: float) -> None:
    rows, is_saturday = two_weeks(saturday)
    assert (stray_prints(rows, HALF_HOUR_NS, "utc-day") == is_saturday).all()


@pytest.mark.parametrize(
    ("saturday", "later"), [(15003.0, 15000.0), (14950.0, 15000.0), (11352.0, 11352.0), (15003.0, 20000.0)]
)
def test_a_saturday_near_one_of_them_is_kept(saturday: float, later: float) -> None:
    rows, _ = two_weeks(saturday, later)
    assert not stray_prints(rows, HALF_HOUR_NS, "utc-day").any()


def test_a_market_of_every_day_has_no_closed_days() -> None:
    stamps = [ns("2024-01-01") + i * HALF_HOUR_NS for i in range(48 * 21)]
    prices = [40000.0 + (i % 5) - (20000.0 if i // 48 == 12 else 0) for i in range(len(stamps))]  # a Saturday at half
    assert not stray_prints(rows_of(stamps, prices), HALF_HOUR_NS, "utc-day").any()


def test_a_known_schedule_tells_what_is_outside() -> None:
    stamps = [ns("2024-03-05 15:00") + i * MINUTE_NS for i in range(60)]
    pause = [ns("2024-03-05 22:30"), ns("2024-03-05 22:31")]  # 16:30 in Chicago
    after = [ns("2024-03-06 15:00") + i * MINUTE_NS for i in range(60)]
    rows = rows_of([*stamps, *pause, *after], [*[5100.0] * 60, 4000.0, 5101.0, *[5102.0] * 60])
    # Of the two prints of the pause only the one far away goes.
    assert np.flatnonzero(stray_prints(rows, MINUTE_NS, "cme-globex")).tolist() == [60]
    # The same prices inside the session are a crash, and stay.
    inside = rows_of([*stamps, *after], [*[5100.0] * 59, 4000.0, *[5102.0] * 60])
    assert not stray_prints(inside, MINUTE_NS, "cme-globex").any()


def test_at_the_ends_there_is_nothing_to_compare_with() -> None:
    stamps, prices = week("2024-01-05")
    late = rows_of([*stamps, ns("2024-01-06 10:00")], [*prices, 11352.0])
    assert not stray_prints(late, HALF_HOUR_NS, "utc-day").any()
    early = rows_of([stamps[0] - 48 * HOUR_NS, *stamps], [11352.0, *prices])
    assert not stray_prints(early, HALF_HOUR_NS, "utc-day").any()


def test_irregular_bars_are_not_judged() -> None:
    rows, _ = two_weeks(11352.0)
    assert not stray_prints(rows, None, "utc-day").any()
    assert not stray_prints(rows_of([0, MINUTE_NS], [1.0, 2.0]), MINUTE_NS, "utc-day").any()


def test_a_market_that_does_not_move_gives_no_measure() -> None:
    rows, _ = two_weeks(11352.0)
    is_inside = rows.open_e9 > 12_000 * E9
    flat_e9 = np.where(is_inside, 15_000 * E9, rows.open_e9)
    flat = Rows(**{**vars(rows), "open_e9": flat_e9, "close_e9": flat_e9})
    assert not stray_prints(flat, HALF_HOUR_NS, "utc-day").any()


# --- misprints in open hours


def minutes(prices: list[float]) -> Rows:
    return rows_of([ns("2024-01-02 15:00") + i * MINUTE_NS for i in range(len(prices))], prices)


@pytest.mark.parametrize("wrong", [48010.0, 480.1, 2400.0, 5900.0])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_price_that_no_bar_around_it_comes_near_is_a_misprint(wrong: float, count: int) -> None:
    rows = minutes([4800.0 + i % 3 for i in range(30)] + [wrong] * count + [4801.0 + i % 3 for i in range(30)])
    assert np.flatnonzero(misprints(rows, MINUTE_NS)).tolist() == list(range(30, 30 + count))


@pytest.mark.parametrize("column", ["high_e9", "low_e9"])
def test_one_wrong_extreme_is_enough(column: str) -> None:
    rows = minutes([4800.0] * 20)
    getattr(rows, column)[7] = {"high_e9": 48000, "low_e9": 1}[column] * E9
    assert np.flatnonzero(misprints(rows, MINUTE_NS)).tolist() == [7]


@pytest.mark.parametrize(
    "prices",
    [
        [4800.0] * 10 + [2400.0] * 10,  # a split, or another contract
        [4800.0, 4500.0, 4200.0, 4000.0, 4300.0, 4600.0, 4800.0],  # a crash and a rebound within minutes
        [18.0, 25.0, 33.0, 36.0, 33.0, 30.0, 28.0],  # VX on 2018-02-05
        [5.0, 1.0, 0.1, -3.0, -20.0, -36.0, -38.0, -37.0, -30.0, -25.0],  # CL on 2020-04-20
        [4800.0, 48000.0],
        [],
    ],
)
def test_a_market_that_moves_is_none(prices: list[float]) -> None:
    assert not misprints(minutes(prices), MINUTE_NS).any()


def test_days_move_further_than_minutes() -> None:
    prices = [100.0] * 10 + [130.0] + [100.0] * 10
    assert misprints(minutes(prices), MINUTE_NS).any()
    assert not misprints(minutes(prices), DAY_NS).any()
