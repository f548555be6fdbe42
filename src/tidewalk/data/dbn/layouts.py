"""Record layouts of Databento Binary Encoding, as numpy dtypes: the fields that are used, at their places.

Offsets and sizes are those of the DBN specification for versions 1 to 3 (records of bars, trades and quotes are the
same in all three); the tests compare every field with the vendor's own package. Integers are little-endian, prices in
1e-9 units with 2^63-1 for none, stamps in ns UTC with 2^64-1 for none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidewalk.data.bars import E9
from tidewalk.data.rows import DAY_NS

RTYPE_BY_SCHEMA = {"ohlcv-1s": 0x20, "ohlcv-1m": 0x21, "ohlcv-1h": 0x22, "ohlcv-1d": 0x23}
"""Record types of the bar schemas."""

INTERVAL_NS_BY_SCHEMA = {"ohlcv-1s": E9, "ohlcv-1m": 60 * E9, "ohlcv-1h": 3_600 * E9, "ohlcv-1d": DAY_NS}
"""Bar lengths of the bar schemas."""

SYMBOL_MAPPING_RTYPE = 0x16
TS_OUT_BYTES = 8

Fields = dict[str, tuple[str, int]]

_HEAD: Fields = {
    "length": ("u1", 0),  # in words of 4 bytes
    "rtype": ("u1", 1),
    "publisher_id": ("<u2", 2),
    "instrument_id": ("<u4", 4),
    "ts_event": ("<u8", 8),
}
_OHLCV: Fields = {
    **_HEAD,
    **{name: ("<i8", 16 + 8 * place) for place, name in enumerate(("open", "high", "low", "close"))},
    "volume": ("<u8", 48),
}
_TICK: Fields = {
    **_HEAD,
    "price": ("<i8", 16),
    "size": ("<u4", 24),
    "action": ("S1", 28),
    "side": ("S1", 29),
    "flags": ("u1", 30),
    "ts_recv": ("<u8", 32),
}
_TRADE: Fields = {**_TICK, "depth": ("u1", 31), "ts_in_delta": ("<i4", 40), "sequence": ("<u4", 44)}
_TOP: Fields = {
    "bid_px_00": ("<i8", 48),
    "ask_px_00": ("<i8", 56),
    "bid_sz_00": ("<u4", 64),
    "ask_sz_00": ("<u4", 68),
}
_COUNTS: Fields = {"bid_ct_00": ("<u4", 72), "ask_ct_00": ("<u4", 76)}
_SAMPLED: Fields = {name: field for name, field in _TICK.items() if name != "action"}  # reserved bytes in bbo records
_DEFINITION: Fields = {
    **_HEAD,
    "ts_recv": ("<u8", 16),
    "min_price_increment": ("<i8", 24),
    "display_factor": ("<i8", 32),
    "expiration": ("<u8", 40),
    "activation": ("<u8", 48),
}
_DEFINITION_V1: Fields = {
    **_DEFINITION,
    "unit_of_measure_qty": ("<i8", 88),
    "min_price_increment_amount": ("<i8", 96),
    "underlying_id": ("<u4", 116),
    "raw_instrument_id": ("<u4", 120),
    "contract_multiplier": ("<i4", 160),
    "original_contract_size": ("<i4", 168),
    "maturity_year": ("<u2", 180),
    "currency": ("S4", 186),
    "settl_currency": ("S4", 190),
    "raw_symbol": ("S22", 200),
    "group": ("S21", 222),
    "exchange": ("S5", 243),
    "asset": ("S7", 248),
    "cfi": ("S7", 255),
    "security_type": ("S7", 262),
    "unit_of_measure": ("S31", 269),
    "underlying": ("S21", 300),
    "instrument_class": ("S1", 325),
    "strike_price": ("<i8", 328),
    "security_update_action": ("S1", 349),
    "maturity_month": ("u1", 350),
    "maturity_day": ("u1", 351),
    "user_defined_instrument": ("S1", 353),
}
_DEFINITION_V2: Fields = {
    **_DEFINITION,
    "unit_of_measure_qty": ("<i8", 88),
    "min_price_increment_amount": ("<i8", 96),
    "strike_price": ("<i8", 112),
    "underlying_id": ("<u4", 124),
    "raw_instrument_id": ("<u4", 128),
    "contract_multiplier": ("<i4", 164),
    "original_contract_size": ("<i4", 172),
    "maturity_year": ("<u2", 180),
    "currency": ("S4", 186),
    "settl_currency": ("S4", 190),
    "raw_symbol": ("S71", 200),
    "group": ("S21", 271),
    "exchange": ("S5", 292),
    "asset": ("S7", 297),
    "cfi": ("S7", 304),
    "security_type": ("S7", 311),
    "unit_of_measure": ("S31", 318),
    "underlying": ("S21", 349),
    "instrument_class": ("S1", 374),
    "security_update_action": ("S1", 382),
    "maturity_month": ("u1", 383),
    "maturity_day": ("u1", 384),
    "user_defined_instrument": ("S1", 386),
}
_DEFINITION_V3: Fields = {
    **_DEFINITION,
    "unit_of_measure_qty": ("<i8", 80),
    "min_price_increment_amount": ("<i8", 88),
    "strike_price": ("<i8", 104),
    "raw_instrument_id": ("<u8", 112),
    "underlying_id": ("<u4", 140),
    "contract_multiplier": ("<i4", 176),
    "original_contract_size": ("<i4", 184),
    "maturity_year": ("<u2", 214),
    "leg_count": ("<u2", 220),
    "leg_index": ("<u2", 222),
    "currency": ("S4", 224),
    "settl_currency": ("S4", 228),
    "raw_symbol": ("S71", 238),
    "group": ("S21", 309),
    "exchange": ("S5", 330),
    "asset": ("S11", 335),
    "cfi": ("S7", 346),
    "security_type": ("S7", 353),
    "unit_of_measure": ("S31", 360),
    "underlying": ("S21", 391),
    "instrument_class": ("S1", 487),
    "security_update_action": ("S1", 493),
    "maturity_month": ("u1", 494),
    "maturity_day": ("u1", 495),
    "user_defined_instrument": ("S1", 497),
}
_STATISTICS: Fields = {**_HEAD, "ts_recv": ("<u8", 16), "ts_ref": ("<u8", 24), "price": ("<i8", 32)}
_STATISTICS_V1: Fields = {
    **_STATISTICS,
    "quantity": ("<i4", 40),
    "sequence": ("<u4", 44),
    "stat_type": ("<u2", 52),
    "update_action": ("u1", 56),
    "stat_flags": ("u1", 57),
}
_STATISTICS_V3: Fields = {
    **_STATISTICS,
    "quantity": ("<i8", 40),
    "sequence": ("<u4", 48),
    "stat_type": ("<u2", 56),
    "update_action": ("u1", 60),
    "stat_flags": ("u1", 61),
}
_SYMBOL_MAPPING_V1: Fields = {
    **_HEAD,
    "stype_in_symbol": ("S22", 16),
    "stype_out_symbol": ("S22", 38),
    "start_ts": ("<u8", 64),
    "end_ts": ("<u8", 72),
}
_SYMBOL_MAPPING_V2: Fields = {
    **_HEAD,
    "stype_in_symbol": ("S71", 17),
    "stype_out_symbol": ("S71", 89),
    "start_ts": ("<u8", 160),
    "end_ts": ("<u8", 168),
}


def _dtype(fields: Fields, size: int) -> np.dtype[Any]:
    kinds = [kind for kind, _ in fields.values()]
    offsets = [offset for _, offset in fields.values()]
    return np.dtype({"names": list(fields), "formats": kinds, "offsets": offsets, "itemsize": size})


_BARS = _dtype(_OHLCV, 56)
_QUOTED = _dtype({**_TRADE, **_TOP, **_COUNTS}, 80)
_SAMPLED_QUOTES = _dtype({**_SAMPLED, "sequence": ("<u4", 44), **_TOP, **_COUNTS}, 80)
_CONSOLIDATED = _dtype({**_TICK, "ts_in_delta": ("<i4", 40), **_TOP}, 80)
_CONSOLIDATED_SAMPLES = _dtype({**_SAMPLED, **_TOP}, 80)

LAYOUTS: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(RTYPE_BY_SCHEMA, _BARS),
    "trades": _dtype(_TRADE, 48),
    "tbbo": _QUOTED,
    "mbp-1": _QUOTED,
    "mbp-10": _dtype({**_TRADE, **_TOP, **_COUNTS}, 368),
    "bbo-1s": _SAMPLED_QUOTES,
    "bbo-1m": _SAMPLED_QUOTES,
    "cmbp-1": _CONSOLIDATED,
    "tcbbo": _CONSOLIDATED,
    "cbbo-1s": _CONSOLIDATED_SAMPLES,
    "cbbo-1m": _CONSOLIDATED_SAMPLES,
    "definition": _dtype(_DEFINITION_V3, 520),
    "statistics": _dtype(_STATISTICS_V3, 80),
    "symbol mapping": _dtype(_SYMBOL_MAPPING_V2, 176),
}
"""Layout of every schema that is read, in the newest version; the first level only of a book of ten."""

_OLDER: Mapping[tuple[str, int], np.dtype[Any]] = {
    ("definition", 1): _dtype(_DEFINITION_V1, 360),
    ("definition", 2): _dtype(_DEFINITION_V2, 400),
    ("statistics", 1): _dtype(_STATISTICS_V1, 64),
    ("statistics", 2): _dtype(_STATISTICS_V1, 64),
    ("symbol mapping", 1): _dtype(_SYMBOL_MAPPING_V1, 80),
}

RTYPES: dict[str, tuple[int, ...]] = {
    **{schema: (rtype,) for schema, rtype in RTYPE_BY_SCHEMA.items()},
    "trades": (0x00,),
    "mbp-1": (0x01,),
    "tbbo": (0x01, 0xC5),
    "mbp-10": (0x0A,),
    "bbo-1s": (0xC3,),
    "bbo-1m": (0xC4,),
    "cmbp-1": (0xB1,),
    "tcbbo": (0xC2,),
    "cbbo-1s": (0xC0,),
    "cbbo-1m": (0xC1,),
    "definition": (0x13,),
    "statistics": (0x18,),
    "symbol mapping": (SYMBOL_MAPPING_RTYPE,),
}
"""Record types that each schema may hold."""


def layout_of(schema: str, version: int, *, ts_out: bool) -> np.dtype[Any]:
    """Layout of a schema's records in a version of DBN, 1 to 3.

    Args:
        schema: a key of `LAYOUTS`.
        version: DBN version of the file.
        ts_out: whether each record carries 8 more bytes, the time it was sent; they are passed over.
    """
    layout = _OLDER.get((schema, version), LAYOUTS[schema])
    if not ts_out:
        return layout
    fields = {name: (field[0].str, field[1]) for name, field in (layout.fields or {}).items()}
    return _dtype(fields, layout.itemsize + TS_OUT_BYTES)
