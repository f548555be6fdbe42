"""The table that readers hand on keeps its promises, or says which bar breaks them."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from tidewalk.core.errors import DataError
from tidewalk.data.bars import UNDEF_PRICE_E9, BarTable, ohlc_inconsistent, validate


def table(**changes: Any) -> BarTable:
    ts_ns = np.array([0, 60, 120], np.int64)
    price = np.array([5, 6, 7], np.int64)
    good = BarTable(
        "ESZ4", 1, 60, ts_ns, ts_ns + 60, price, price + 2, price - 2, price + 1, np.ones(3), has_volume=True
    )
    return dataclasses.replace(good, **changes)


def test_good_table_passes() -> None:
    validate(table())
    validate(table(low_e9=np.array([-9, -9, -9])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ts_ns": np.array([0, 60, 60])}, r"ESZ4: bar 2 starts no later than the bar before, ts_ns = 60 \(1 such"),
        ({"known_ns": np.array([60, 60, 120])}, r"ESZ4: bar 1 is complete no later than it starts, known_ns = 60"),
        ({"high_e9": np.array([5, 9, 9])}, r"ESZ4: bar 0 has high or low inside open/close, high_e9 = 5"),
        ({"low_e9": np.array([0, 0, 8])}, r"ESZ4: bar 2 has high or low inside open/close"),
        ({"close_e9": np.array([6, UNDEF_PRICE_E9, 8])}, r"bar 1 has a missing-price sentinel, close_e9 = 92233"),
        ({"volume": np.array([1.0, np.nan, 1.0])}, r"ESZ4: bar 1 has an impossible volume = nan"),
        ({"volume": np.array([1.0, 1.0, -1.0])}, r"ESZ4: bar 2 has an impossible volume = -1\.0"),
        ({"volume": np.ones(2)}, r"column volume is float64\[2\], needed float64\[3\]"),
        ({"open_spread_e9": np.array([1, 0, 1])}, r"ESZ4: bar 1 has no spread, e9 = 0"),
        ({"open_spread_e9": np.array([1, 1])}, r"column open_spread_e9 is int64\[2\], needed int64\[3\]"),
        ({"ts_ns": np.array([], np.int64)}, r"ESZ4: no bars"),
    ],
)  # fmt: skip
def test_each_broken_promise_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        validate(table(**changes))


def test_inconsistency_is_found_on_either_side() -> None:
    four = (np.array([5, 5, 5]), np.array([6, 4, 6]), np.array([4, 4, 6]), np.array([5, 5, 5]))
    assert ohlc_inconsistent(*four).tolist() == [False, True, True]
