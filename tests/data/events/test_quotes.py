"""What trade and quote records give."""

import numpy as np
import pytest

from data.market_files import SNAPSHOT, START, UNDEF, in_order, quoted_trades, quotes, trades
from tidewalk.data.events.bar_rule import parse_bar_rule
from tidewalk.data.events.quotes import is_mid, is_quote, mids_in, trades_in


def test_trades_need_a_price_and_a_size() -> None:
    records = trades(1, [(START, 10.0, 2), (START, 11.0, 0), (START, 12.0, 3)])
    records["price"][2] = UNDEF
    found = trades_in(records)
    assert found.index.tolist() == [0]
    assert (found.price_e9.tolist(), found.size.tolist()) == ([10 * 10**9], [2])
    assert found.left_out["trades without a price"] == 1
    assert found.left_out["trades of no size"] == 1


def test_trades_of_any_side_count_and_snapshots_and_book_changes_do_not() -> None:
    records = in_order(
        trades(1, [(START, 10.0, 2)]),
        trades(1, [(START + 1, 10.0, 2)], flags=SNAPSHOT),
        trades(1, [(START + 2, 10.0, 2)], action=b"A"),
        trades(1, [(START + 3, 10.0, 2)]),
    )
    records["side"] = b"N"
    found = trades_in(records)
    assert found.index.tolist() == [0, 3]
    assert found.left_out["snapshot records, which are no trades"] == 1


@pytest.mark.parametrize("schema", ["bbo-1s", "bbo-1m", "mbp-1"])
def test_one_sided_locked_and_crossed_books_are_no_quotes(schema: str) -> None:
    rows = [(START, 10.0, 10.25), (START, None, 10.25), (START, 10.0, None), (START, 10.0, 10.0), (START, 10.25, 10.0)]
    records = quotes(1, rows, schema)  # pyright: ignore[reportArgumentType]
    assert is_quote(records).tolist() == [True, False, False, False, False]
    found = mids_in(records)
    assert found.price_e9.tolist() == [10_125_000_000]
    assert found.left_out["quotes that are one-sided, locked or crossed"] == 4


def test_negative_prices_have_mids_too() -> None:
    assert mids_in(quotes(1, [(START, -40.34, -40.30)])).price_e9.tolist() == [-40_320_000_000]


def test_volume_of_a_book_is_that_of_its_trades() -> None:
    records = in_order(
        quotes(1, [(START, 10.0, 10.25), (START + 2, 10.25, 10.5)], "mbp-1"),
        quoted_trades(1, [(START + 1, 10.25, 4, 10.0, 10.25)]),
    )
    found = mids_in(records)
    assert found.size.tolist() == [0, 4, 0]
    assert trades_in(records).size.tolist() == [4]


def test_snapshots_of_a_book_are_no_events() -> None:
    records = quotes(1, [(START, 10.0, 10.25), (START + 1, 10.0, 10.25)], "mbp-1")
    records["flags"][0] |= SNAPSHOT
    found = mids_in(records)
    assert found.index.tolist() == [1]
    assert is_quote(records).all()


def test_which_bars_are_of_mid_prices() -> None:
    minute, ticks = parse_bar_rule("1m"), parse_bar_rule("tick:5")
    assert {schema: is_mid(schema, minute) for schema in ("trades", "tbbo", "mbp-1", "bbo-1m")} == {
        "trades": False,
        "tbbo": False,
        "mbp-1": True,
        "bbo-1m": True,
    }
    assert not is_mid("mbp-1", ticks)
    assert np.array_equal(is_quote(quotes(1, [], "mbp-1")), np.empty(0, bool))
