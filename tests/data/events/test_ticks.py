"""Bars cut out of trades: time, tick, volume and dollar bars, by session and by instrument."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.market_files import DAY_NS, HOUR_NS, MINUTE_NS, ns
from tidewalk.core.errors import DataError
from tidewalk.data.events.bar_rule import grid, parse_bar_rule
from tidewalk.data.events.ticks import (
    Cutter,
    Events,
    concat_events,
    cut_bars,
    in_time_order,
    last_of_each_moment,
    take_events,
)
from tidewalk.data.rows import Rows, concat

E9 = 10**9
NEVER = 2**62


def events(rows: list[tuple[int, float, int]], instrument_id: int = 1) -> Events:
    """Events of (stamp, price, size)."""
    stamps, prices, sizes = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    count = len(rows)
    return Events(
        np.asarray(stamps, np.int64),
        np.array([round(price * E9) for price in prices], np.int64),
        np.asarray(sizes, np.int64),
        np.full(count, instrument_id, np.int64),
        np.arange(1, count + 1),
        np.zeros(count, np.int32),
    )


def bars(
    found: Events, text: str, end_ns: int | None = NEVER, sessions: str = "utc-day", multiplier: float = 1
) -> Rows:
    return cut_bars(found, Cutter(parse_bar_rule(text), sessions, multiplier), end_ns)[0]


def prices(rows: Rows) -> list[tuple[float, float, float, float]]:
    return [
        (a / E9, b / E9, c / E9, d / E9)
        for a, b, c, d in zip(rows.open_e9, rows.high_e9, rows.low_e9, rows.close_e9, strict=True)
    ]


def test_a_time_bar_closes_with_its_own_last_tick() -> None:
    # Bug B16: the bar of 23:59 closed with the first tick of the next day.
    ticks = events([(ns("2024-01-02 23:59:59"), 13.52, 1), (ns("2024-01-03 00:00:01"), 13.63, 1)])
    rows = bars(ticks, "1m")
    assert prices(rows)[0] == (13.52, 13.52, 13.52, 13.52)
    assert (rows.stamp_ns == [ns("2024-01-02 23:59"), ns("2024-01-03 00:00")]).all()


def test_time_bars_hold_first_highest_lowest_last_and_sum_and_skip_quiet_minutes() -> None:
    start = ns("2024-01-02 15:00")
    ticks = events([(start, 10, 3), (start + 1, 12, 1), (start + MINUTE_NS - 1, 9, 2), (start + 3 * MINUTE_NS, 11, 5)])
    rows = bars(ticks, "1m")
    assert (rows.stamp_ns == [start, start + 3 * MINUTE_NS]).all()
    assert prices(rows) == [(10, 12, 9, 9), (11, 11, 11, 11)]
    assert rows.volume.tolist() == [6, 5]
    assert rows.row.tolist() == [3, 4]


def test_repeated_trades_are_all_counted() -> None:
    # 61 % of real E-mini trades repeat an earlier one in time, price and size.
    start = ns("2024-01-02 15:00")
    assert bars(events([(start, 10, 1)] * 7), "1m").volume.tolist() == [7]
    assert bars(events([(start, 10, 1)] * 7), "tick:3").volume.tolist() == [3, 3, 1]


def test_tick_bars_are_known_at_the_trade_that_completes_them() -> None:
    start = ns("2024-01-02 15:00")
    ticks = events([(start + i, 10 + i, 2) for i in range(7)])
    rows, rest = cut_bars(ticks, Cutter(parse_bar_rule("tick:3"), "utc-day"), None)
    assert rows.stamp_ns.tolist() == [start + 2, start + 5]
    assert prices(rows) == [(10, 12, 10, 12), (13, 15, 13, 15)]
    assert rest.price_e9.tolist() == [16 * E9]


def test_the_trade_that_overshoots_completes_a_volume_bar_whole() -> None:
    start = ns("2024-01-02 15:00")
    ticks = events([(start, 10, 4), (start + 1, 11, 9), (start + 2, 12, 25), (start + 3, 13, 2)])
    rows, rest = cut_bars(ticks, Cutter(parse_bar_rule("volume:10"), "utc-day"), None)
    assert rows.volume.tolist() == [13, 25]
    assert prices(rows) == [(10, 11, 10, 11), (12, 12, 12, 12)]
    assert rest.size.tolist() == [2]


def test_dollar_bars_count_price_times_size_times_multiplier_exactly() -> None:
    start = ns("2024-01-02 15:00")
    # Ten lots at 0.10 with a multiplier of 1000 are 1000 dollars: ten times the float 0.1 is not 1.
    ticks = events([(start + i, 0.1, 1) for i in range(25)])
    assert bars(ticks, "dollar:1000", None, multiplier=1000).volume.tolist() == [10, 10]
    assert bars(ticks, "dollar:1001", None, multiplier=1000).volume.tolist() == [11, 11]


def test_dollar_bars_of_negative_prices_count_their_size() -> None:
    # Crude oil settled at -37.63 on 2020-04-20.
    start = ns("2020-04-20 18:00")
    rows = bars(
        events([(start, -37.63, 1), (start + 1, -37.63, 1), (start + 2, 0.0, 1)]), "dollar:75260", None, "utc-day", 1000
    )
    assert prices(rows) == [(-37.63, -37.63, -37.63, -37.63)]


def test_a_session_closes_a_counted_bar_short() -> None:
    # Globex closes at 22:00 UTC and opens at 23:00 UTC in winter.
    ticks = events(
        [
            (ns("2024-01-02 21:59:50"), 10, 1),
            (ns("2024-01-02 21:59:59"), 11, 1),
            (ns("2024-01-02 23:00:00"), 12, 1),
            (ns("2024-01-02 23:00:05"), 13, 1),
            (ns("2024-01-02 23:00:06"), 14, 1),
        ]
    )
    rows = bars(ticks, "tick:3", sessions="cme-globex")
    assert prices(rows) == [(10, 11, 10, 11), (12, 14, 12, 14)]
    assert rows.stamp_ns.tolist() == [ns("2024-01-02 22:00"), ns("2024-01-02 23:00:06")]


def test_the_unfinished_last_bar_waits_for_the_end_of_the_data() -> None:
    start = ns("2024-01-02 15:00")
    for text, over in (("1m", start + MINUTE_NS), ("tick:5", ns("2024-01-03"))):
        cutter = Cutter(parse_bar_rule(text), "utc-day")
        ticks = events([(start, 10, 1), (start + 5, 11, 1)])
        rows, rest = cut_bars(ticks, cutter, over - 1)
        assert (len(rows.row), len(rest.ts_ns)) == (0, 2)
        rows, rest = cut_bars(ticks, cutter, over)
        assert (len(rows.row), len(rest.ts_ns)) == (1, 0)
    assert rows.stamp_ns.tolist() == [ns("2024-01-03")]


def test_a_bar_holds_one_instrument() -> None:
    # A continuous series changes its contract at midnight UTC, which is no start of a bar of 4 hours after 22:00.
    day = ns("2024-06-20")
    both = concat_events(
        [events([(day - 5, 10, 1), (day - 3, 11, 1)], 1), events([(day + 2, 50, 1), (day + 9, 51, 1)], 2)]
    )
    rows = bars(both, "1h", sessions="cme-globex")
    assert rows.instrument_id.tolist() == [1, 2]
    assert prices(rows) == [(10, 11, 10, 11), (50, 51, 50, 51)]
    counted = bars(both, "tick:2", sessions="cme-globex")
    assert counted.instrument_id.tolist() == [1, 2]
    short = bars(both, "tick:3", sessions="cme-globex")
    assert short.stamp_ns[0] == day + 2
    assert short.close_e9[0] == 11 * E9


def test_prices_of_too_many_digits_are_refused_for_dollar_bars() -> None:
    ticks = events([(ns("2024-01-02 15:00"), 8_000_000_000, 2**31), (ns("2024-01-02 15:00"), 0.000000001, 2**31)])
    with pytest.raises(DataError, match="prices have too many digits to be summed exactly"):
        bars(ticks, "dollar:1000")


def test_no_events_make_no_bars() -> None:
    rows, rest = cut_bars(events([]), Cutter(parse_bar_rule("1m"), "utc-day"), NEVER)
    assert len(rows.row) == len(rest.ts_ns) == 0


def test_events_are_sorted_stably() -> None:
    found, falls = in_time_order(events([(5, 1, 1), (3, 2, 1), (5, 3, 1), (3, 4, 1)]))
    assert falls == 2
    assert (found.price_e9 // E9).tolist() == [2, 4, 1, 3]


def test_of_a_moment_the_last_state_counts() -> None:
    found = last_of_each_moment(events([(5, 1, 1), (5, 2, 4), (6, 3, 0), (6, 4, 0)]))
    assert (found.price_e9 // E9).tolist() == [2, 4]
    assert found.size.tolist() == [5, 0]


SESSION = st.sampled_from(["cme-globex", "utc-day"])
RULES = st.sampled_from(["1m", "1h", "4h", "tick:1", "tick:3", "volume:7", "dollar:60"])


@st.composite
def streams(draw: st.DrawFn) -> Events:
    """Trades over some days, on both sides of session breaks, many at one moment, of up to two instruments."""
    count = draw(st.integers(1, 60))
    steps = draw(st.lists(st.sampled_from([0, 1, 30 * E9, HOUR_NS, 9 * HOUR_NS]), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    ticks = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count))
    stamps = ns("2024-03-07 18:00") + np.cumsum(steps)
    found = events([(int(t), p / 4, s) for t, p, s in zip(stamps, ticks, sizes, strict=True)])
    change_day = draw(st.integers(0, 6)) + ns("2024-03-07") // DAY_NS
    found.instrument_id[stamps // DAY_NS >= change_day] = 2
    return found


@settings(max_examples=200, deadline=None)
@given(streams(), RULES, SESSION, st.lists(st.integers(0, 60), max_size=4))
def test_pieces_give_the_bars_of_the_whole(found: Events, text: str, sessions: str, cuts: list[int]) -> None:
    cutter = Cutter(parse_bar_rule(text), sessions, 2.0)
    whole, rest = cut_bars(found, cutter, NEVER)
    parts, waiting = [], take_events(found, slice(0, 0))
    edges = [0, *sorted(min(cut, len(found.ts_ns)) for cut in cuts), len(found.ts_ns)]
    for start, stop in itertools.pairwise(edges):
        rows, waiting = cut_bars(concat_events([waiting, take_events(found, slice(start, stop))]), cutter, None)
        parts.append(rows)
    rows, waiting = cut_bars(waiting, cutter, NEVER)
    pieces = concat([*parts, rows])
    for name in ("stamp_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume", "instrument_id", "row"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name
    assert len(rest.ts_ns) == len(waiting.ts_ns) == 0


@settings(max_examples=200, deadline=None)
@given(streams(), RULES, SESSION)
def test_bars_are_made_of_all_trades_and_of_one_session(found: Events, text: str, sessions: str) -> None:
    rule = parse_bar_rule(text)
    rows = bars(found, text, sessions=sessions, multiplier=2.0)
    assert rows.volume.sum() == found.size.sum()
    last = rows.row - 1
    first = np.append(0, last[:-1] + 1)
    day = grid(found.ts_ns, HOUR_NS, sessions).trade_day
    assert (day[first] == day[last]).all()
    assert (found.instrument_id[first] == found.instrument_id[last]).all()
    assert (np.diff(rows.stamp_ns) >= (1 if rule.kind == "time" else 0)).all()
    known_ns = rows.stamp_ns + rule.base_ns if rule.kind == "time" else rows.stamp_ns
    assert (found.ts_ns[last] <= known_ns).all()
    if rule.kind == "time":
        assert (found.ts_ns[first] >= rows.stamp_ns).all()
    for index, (start, stop) in enumerate(zip(first, last + 1, strict=True)):
        inside = found.price_e9[start:stop]
        assert (rows.high_e9[index], rows.low_e9[index]) == (inside.max(), inside.min())


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(["tick:3", "volume:7", "dollar:60"]), SESSION)
def test_a_counted_bar_is_full_with_its_last_trade_and_not_before(found: Events, text: str, sessions: str) -> None:
    rule = parse_bar_rule(text)
    counted = {"tick": np.ones(len(found.size)), "volume": found.size, "dollar": found.size * found.price_e9 / E9 * 2.0}
    weight = counted[rule.kind]
    rows = bars(found, text, sessions=sessions, multiplier=2.0)
    last = rows.row - 1
    day = grid(found.ts_ns, HOUR_NS, sessions).trade_day
    for first, end in zip(np.append(0, last[:-1] + 1), last + 1, strict=True):
        total = weight[first:end].sum()
        ends_session = (
            end == len(day) or day[end] != day[end - 1] or found.instrument_id[end] != found.instrument_id[end - 1]
        )
        assert total >= rule.amount or ends_session
        assert weight[first : end - 1].sum() < rule.amount
