"""Contract specifications in the data themselves: tick, multiplier, currency, expiry and kind of every instrument.

Fields are those of Databento's definition schema. The multiplier is the value of a tick in money over the tick, where
the exchange gives that value (`min_price_increment_amount`, in units of the venue's display price, so divided by
`display_factor`); else the quantity of the unit that the price is quoted for.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import E9, UNDEF_PRICE_E9, Definition

OUTRIGHT_CLASS = b"F"
UNDEF_MULTIPLIER = 2**31 - 1
END_OF_TIME_NS = 2**62
DELETED = b"D"


@dataclass(frozen=True)
class DefinitionBook:
    """Definitions of the labels in use, one for each symbol and expiry, sorted.

    Attributes:
        entries: the definitions.
        roots: product root of each symbol that the definitions know, "" for a symbol that is no outright contract.
    """

    entries: tuple[Definition, ...]
    roots: dict[str, str]

    def of(self, labels: Collection[str]) -> tuple[Definition, ...]:
        """Definitions of some symbols."""
        return tuple(entry for entry in self.entries if entry.symbol in labels)


def definition_book(parts: Iterable[NDArray[Any]], labels: Collection[str], root: str) -> DefinitionBook:
    """The latest definition of every symbol and expiry among the labels and the outright contracts of a root.

    Args:
        parts: records of the definition schema, in any order.
        labels: symbols of interest.
        root: product root.
    """
    wanted = np.array(sorted(label.encode() for label in labels), "S71")
    latest: dict[tuple[str, int], tuple[tuple[int, bytes], Definition, str]] = {}
    for records in parts:
        of_root = (records["asset"] == root.encode()) & (records["instrument_class"] == OUTRIGHT_CLASS)
        meant = of_root | np.isin(records["raw_symbol"].astype("S71"), wanted)
        for record in _newest(records[meant & (records["security_update_action"] != DELETED)]):
            entry = _definition(record)
            age = (int(record["ts_recv"]), record.tobytes())
            key = (entry.symbol, entry.expiration_ns or 0)
            if key not in latest or age > latest[key][0]:
                latest[key] = (age, entry, _text(record["asset"]))
    entries = tuple(latest[key][1] for key in sorted(latest))
    roots = {latest[key][1].symbol: latest[key][2] if latest[key][1].is_outright else "" for key in sorted(latest)}
    return DefinitionBook(entries, roots)


def _newest(records: NDArray[Any]) -> NDArray[Any]:
    """Of the records of one symbol and expiry the one that came last; files repeat all of them every day."""
    kinds = np.empty(len(records), [("symbol", "S71"), ("expiration", "<u8")])
    kinds["symbol"], kinds["expiration"] = records["raw_symbol"], records["expiration"]
    order = np.argsort(records["ts_recv"], kind="stable")[::-1]
    _, first = np.unique(kinds[order], return_index=True)
    return records[order[first]]


def _definition(record: Any) -> Definition:
    tick_e9 = int(record["min_price_increment"])
    expiration_ns = int(record["expiration"])
    known_tick = 0 < tick_e9 < UNDEF_PRICE_E9
    return Definition(
        symbol=_text(record["raw_symbol"]),
        instrument_id=int(record["instrument_id"]),
        is_outright=bool(record["instrument_class"] == OUTRIGHT_CLASS),
        tick_e9=tick_e9 if known_tick else 0,
        multiplier=_multiplier(record, tick_e9) if known_tick else None,
        currency=_text(record["currency"]),
        expiration_ns=expiration_ns if 0 < expiration_ns < END_OF_TIME_NS else None,
    )


def _multiplier(record: Any, tick_e9: int) -> float | None:
    """Money per contract for a price change of 1.0."""
    tick_value_e9, display_e9 = int(record["min_price_increment_amount"]), int(record["display_factor"])
    if 0 < tick_value_e9 < UNDEF_PRICE_E9 and 0 < display_e9 < UNDEF_PRICE_E9:
        return float(Fraction(tick_value_e9 * E9, display_e9 * tick_e9))
    quantity_e9 = int(record["unit_of_measure_qty"])
    if 0 < quantity_e9 < UNDEF_PRICE_E9:
        return float(Fraction(quantity_e9, E9))
    lots = int(record["contract_multiplier"])
    return float(lots) if 0 < lots < UNDEF_MULTIPLIER else None


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")
