"""Which label of the files a table comes from; the rest is tested through `load_bars` in test_finish.py."""

import numpy as np
import pytest

from data.market_files import MINUTE_NS, START
from tidewalk.data.bars import BarTable
from tidewalk.data.extras import label_of


@pytest.mark.parametrize(
    ("contract", "labels", "label"),
    [
        ("ESH4", ("ESH4", "ESM4"), "ESH4"),
        ("ESH14", ("ESH4", "ESM4"), "ESH4"),
        ("ESH24", ("ESH24",), "ESH24"),
        ("ES.c.0#100", ("ES.c.0",), "ES.c.0"),
        ("ES.c.0#100.2", ("ES.c.0",), "ES.c.0"),
        ("NQ", ("ESH4",), "NQ"),
    ],
)
def test_label_of_a_table(contract: str, labels: tuple[str, ...], label: str) -> None:
    one = np.array([START])
    price_e9 = np.array([10**9])
    table = BarTable(contract, 1, MINUTE_NS, one, one + MINUTE_NS, *(price_e9,) * 4, volume=np.ones(1), has_volume=True)
    assert label_of(table, labels) == label
