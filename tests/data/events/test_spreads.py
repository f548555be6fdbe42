"""The spread in force when a bar opens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import MINUTE_NS, ns
from tidewalk.data.bars import BarTable
from tidewalk.data.events.spreads import Spreads, put_quotes, slots_for, spreads_of, with_spreads

START = ns("2024-01-02 15:00")


def table(starts_ns: list[int], length_ns: int | None = MINUTE_NS, contract: str = "ESH4") -> BarTable:
    ts_ns = np.array(starts_ns)
    price_e9 = np.full(len(ts_ns), 4800 * 10**9)
    known_ns = ts_ns + (length_ns or 1)
    volume = np.ones(len(ts_ns))
    return BarTable(contract, 1, length_ns, ts_ns, known_ns, *(price_e9,) * 4, volume, has_volume=True)


def joined(bars: BarTable, *quotes: tuple[int, int], own: bool = False, sessions: str = "utc-day") -> Spreads | None:
    slots = slots_for(bars)
    for ts_ns, spread_e9 in quotes:
        put_quotes(slots, np.array([ts_ns]), np.array([spread_e9]))
    return spreads_of(slots, bars.known_ns, sessions, own_quotes=own)


def test_the_last_quote_at_or_before_the_open_counts() -> None:
    bars = table([START, START + MINUTE_NS, START + 2 * MINUTE_NS])
    found = joined(bars, (START - 9, 1), (START, 2), (START + 1, 3), (START + MINUTE_NS + 1, 4))
    assert found is not None
    assert found.spread_e9.tolist() == [2, 3, 4]
    assert (found.num_carried, found.num_from_later) == (0, 0)


def test_a_later_quote_never_reaches_an_earlier_bar() -> None:
    bars = table([START, START + MINUTE_NS])
    found = joined(bars, (START - 1, 1), (START + MINUTE_NS + 1, 9))
    assert found is not None
    assert found.spread_e9.tolist() == [1, 1]


def test_a_quote_of_an_earlier_session_is_carried_and_counted() -> None:
    day = ns("2024-01-03")
    bars = table([day - MINUTE_NS, day, day + MINUTE_NS])
    found = joined(bars, (day - MINUTE_NS, 5), (day + 1, 7))
    assert found is not None
    assert found.spread_e9.tolist() == [5, 5, 7]
    assert (found.num_carried, found.num_from_later) == (1, 0)


def test_bars_before_any_quote_take_the_first_one_and_are_counted() -> None:
    bars = table([START, START + MINUTE_NS, START + 2 * MINUTE_NS])
    found = joined(bars, (START + MINUTE_NS + 5, 6))
    assert found is not None
    assert found.spread_e9.tolist() == [6, 6, 6]
    assert (found.num_carried, found.num_from_later) == (0, 2)


def test_a_bar_made_of_the_quotes_opens_with_its_own_first_quote() -> None:
    day = ns("2024-01-03")
    bars = table([day - MINUTE_NS, day, day + MINUTE_NS])
    found = joined(bars, (day - MINUTE_NS + 1, 5), (day + 1, 7), (day + 2, 8), own=True)
    assert found is not None
    assert found.spread_e9.tolist() == [5, 7, 8]
    assert (found.num_carried, found.num_from_later) == (0, 0)


def test_an_irregular_bar_opens_when_the_one_before_is_known() -> None:
    bars = table([START, START + 10, START + 20], None)
    found = joined(bars, (START, 1), (START + 2, 2), (START + 15, 3))
    assert found is not None
    assert found.spread_e9.tolist() == [1, 1, 2]


def test_no_quotes_give_no_spread() -> None:
    assert joined(table([START])) is None
    assert joined(table([START]), (START + 5 * MINUTE_NS, 3)) is None


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=30, unique_by=lambda row: row[0]),
    st.lists(st.integers(0, 40), min_size=1, max_size=10, unique=True),
    st.randoms(),
)
def test_any_order_of_pieces_gives_the_search_by_hand(quotes: list[tuple[int, int]], bars: list[int], order) -> None:
    day = ns("2024-01-02")
    opened = table([day + start for start in sorted(bars)], 1)
    slots = slots_for(opened)
    pieces = [quotes[start : start + 4] for start in range(0, len(quotes), 4)]
    order.shuffle(pieces)
    for piece in pieces:
        stamps, spreads = zip(*sorted(piece), strict=True)
        put_quotes(slots, day + np.array(stamps), np.array(spreads))
    found = spreads_of(slots, opened.known_ns, "utc-day", own_quotes=False)
    by_hand = [max((q for q in quotes if q[0] <= start), default=None) for start in sorted(bars)]
    if all(hit is None for hit in by_hand):
        assert found is None
        return
    assert found is not None
    first = next(hit[1] for hit in by_hand if hit)
    assert found.spread_e9.tolist() == [first if hit is None else hit[1] for hit in by_hand]


def test_the_finding_says_median_and_coverage() -> None:
    bars = [table([START, START + MINUTE_NS]), table([START], contract="ESM4")]
    spreads = [Spreads(np.array([250_000_000, 500_000_000]), 1, 0), None]
    made, finding = with_spreads(bars, spreads, 250_000_000, "bbo-1m")
    assert made[0].open_spread_e9 is not None
    assert made[0].open_spread_e9.tolist() == [250_000_000, 500_000_000]
    assert made[1].open_spread_e9 is None
    assert finding.text == (
        "spread of bbo-1m quotes joined: median 1.5 ticks, in force at the start of 1 of 3 bars; 1 bars take the last "
        "one of an earlier session, 0 before any quote the first one; 1 bars are of contracts without quotes"
    )
    _, finding = with_spreads(bars, [None, None], None, "bbo-1m")
    assert finding.is_warning
    assert "none for the contracts in use" in finding.text


def test_spreads_of_quotes_nobody_meant_to_fill_are_a_warning() -> None:
    bars = [table([START + i * MINUTE_NS for i in range(100)])]
    for num_wide, is_warned in ((0, False), (1, False), (2, True)):
        spread_e9 = np.full(100, 250_000_000)
        spread_e9[:num_wide] = 9_000 * 10**9
        _, finding = with_spreads(bars, [Spreads(spread_e9, 0, 0)], 250_000_000, "bbo-1m")
        assert finding.is_warning == is_warned
        assert ("2 spreads are wider than 5% of the price" in finding.text) == is_warned


@pytest.mark.parametrize("own", [False, True])
def test_spreads_are_above_zero(own: bool) -> None:  # noqa: FBT001
    found = joined(table([START]), (START - 5, 3), own=own)
    assert found is not None
    assert (found.spread_e9 > 0).all()
