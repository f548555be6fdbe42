"""Specifications out of definition records, in the three layouts of the format."""

from typing import Any

import numpy as np
import pytest

from data.market_files import START, UNDEF, definitions, ns
from tidewalk.data.bars import Definition
from tidewalk.data.events.definitions import definition_book

EXPIRY = ns("2024-03-15 13:30")
ESH4 = {"raw_symbol": b"ESH4", "instrument_id": 100, "expiration": EXPIRY}


def only(records: np.ndarray, labels: tuple[str, ...] = ("ESH4",), root: str = "ES") -> Definition:
    entries = definition_book([records], labels, root).entries
    assert len(entries) == 1
    return entries[0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_layout_gives_the_facts_of_the_contract(version: int) -> None:
    assert only(definitions([ESH4], version)) == Definition("ESH4", 100, True, 250_000_000, 50.0, "USD", EXPIRY)


@pytest.mark.parametrize(
    ("facts", "multiplier"),
    [
        # CME Group: value of a tick (in units of the display price) over tick over display factor.
        (
            {"min_price_increment": 10_000_000, "min_price_increment_amount": 10 * 10**9, "display_factor": 10**9},
            1000.0,
        ),
        (
            {"min_price_increment": 500, "min_price_increment_amount": 6_250_000_000, "display_factor": 10**9},
            12_500_000.0,
        ),
        ({"min_price_increment_amount": UNDEF}, 50.0),
        ({"min_price_increment_amount": UNDEF, "unit_of_measure_qty": UNDEF, "contract_multiplier": 20}, 20.0),
        ({"min_price_increment_amount": UNDEF, "unit_of_measure_qty": UNDEF}, None),
    ],
    ids=["CL", "6J", "unit", "lots", "unknown"],
)
def test_multiplier(facts: dict[str, Any], multiplier: float | None) -> None:
    assert only(definitions([{**ESH4, **facts}])).multiplier == multiplier


def test_undefined_values_are_none() -> None:
    entry = only(definitions([{**ESH4, "min_price_increment": UNDEF, "expiration": 2**64 - 1, "currency": b""}]))
    assert (entry.tick_e9, entry.multiplier, entry.expiration_ns, entry.currency) == (0, None, None, "")


def test_the_class_tells_outrights_from_spreads() -> None:
    rows = [
        ESH4,
        {"raw_symbol": b"ESH4-ESM4", "instrument_class": b"S", "instrument_id": 300},
        {"raw_symbol": b"XX Z4", "asset": b"XX", "instrument_id": 400},
    ]
    book = definition_book([definitions(rows)], ("ESH4", "ESH4-ESM4", "XX Z4"), "ES")
    assert book.roots == {"ESH4": "ES", "ESH4-ESM4": "", "XX Z4": "XX"}
    assert [entry.symbol for entry in book.of(("ESH4-ESM4",))] == ["ESH4-ESM4"]


def test_the_latest_definition_counts_whatever_the_order() -> None:
    old = definitions([{**ESH4, "min_price_increment": 100_000_000}])
    new = definitions([{**ESH4, "ts_recv": START + 5}])
    for parts in ([old, new], [new, old], [np.concatenate([new, old])]):
        assert definition_book(parts, ("ESH4",), "ES").entries[0].tick_e9 == 250_000_000


def test_a_code_of_two_decades_has_two_definitions() -> None:
    rows = [ESH4, {**ESH4, "instrument_id": 7, "expiration": ns("2014-03-21 13:30")}]
    entries = definition_book([definitions(rows)], ("ESH4",), "ES").entries
    assert [entry.instrument_id for entry in entries] == [7, 100]


def test_other_products_options_and_deletions_are_left_out() -> None:
    rows = [
        {"raw_symbol": b"NQH4", "asset": b"NQ"},
        {"raw_symbol": b"ESH4 C4800", "instrument_class": b"C"},
        {**ESH4, "security_update_action": b"D"},
        {"raw_symbol": b"ESM4", "expiration": EXPIRY},
    ]
    assert [entry.symbol for entry in definition_book([definitions(rows)], ("ESH4",), "ES").entries] == ["ESM4"]


def test_no_records() -> None:
    assert definition_book([definitions([])], ("ESH4",), "ES").entries == ()
