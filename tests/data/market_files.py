"""Market data files made in the test: DBN bytes with any defect wanted, and text."""

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import databento_dbn
import numpy as np
import zstandard

from tidewalk.data.bars import Loaded, validate
from tidewalk.data.load import DataConfig, load_bars

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
RTYPE = {"ohlcv-1s": 32, "ohlcv-1m": 33, "ohlcv-1h": 34, "ohlcv-1d": 35}
RECORD = np.dtype(databento_dbn.OHLCVMsg._dtypes)  # the vendor's own layout
UNDEF = 2**63 - 1


def ns(text: str) -> int:
    """Nanoseconds of a UTC time such as "2024-01-02 15:00"."""
    return int(np.datetime64(text, "ns").astype(np.int64))


START = ns("2024-01-02 15:00")


@dataclass(frozen=True)
class Span:
    start_date: datetime.date
    end_date: datetime.date
    symbol: str


@dataclass(frozen=True)
class Mapped:
    raw_symbol: str
    intervals: list[Span]


def mapped(symbol: str, *spans: tuple[str, str, int | str]) -> Mapped:
    """A mapping: symbol, then (first date, end date, instrument id) each."""
    day = datetime.date.fromisoformat
    return Mapped(symbol, [Span(day(first), day(end), str(number)) for first, end, number in spans])


ALWAYS = ("2000-01-01", "2100-01-01")
ES_PARENT = (
    mapped("ESH4", (*ALWAYS, 100)),
    mapped("ESM4", (*ALWAYS, 200)),
    mapped("ESH4-ESM4", (*ALWAYS, 300)),
)


def bar(instrument_id: int, ts_ns: int, price: float = 4800.0, volume: int = 10) -> tuple[int, int, float, int]:
    return instrument_id, ts_ns, price, volume


def bars(instrument_id: int, count: int, start_ns: int = START, step_ns: int = MINUTE_NS) -> list[Any]:
    """Bars around 4800 with a different close each."""
    return [bar(instrument_id, start_ns + i * step_ns, 4800.0 + i % 40 / 4) for i in range(count)]


def records(rows: Sequence[tuple[int, int, float, int]], rtype: int = 33) -> np.ndarray:
    """Records of (instrument id, ts, price, volume): open at the price, high and low one point off, close .25 above."""
    array = np.zeros(len(rows), RECORD)
    array["length"], array["rtype"], array["publisher_id"] = 14, rtype, 1
    for index, (instrument_id, ts_ns, price, volume) in enumerate(rows):
        price_e9 = round(price * 10**9)
        array[index]["instrument_id"], array[index]["ts_event"], array[index]["volume"] = instrument_id, ts_ns, volume
        array[index]["open"], array[index]["close"] = price_e9, price_e9 + 250_000_000
        array[index]["high"], array[index]["low"] = price_e9 + 10**9, price_e9 - 10**9
    return array


def header(mappings: Sequence[Mapped] = ES_PARENT, schema: str | None = "ohlcv-1m", **facts: Any) -> bytes:
    """Encoded metadata; `stype_in`, `symbols`, `limit`, `not_found`, `version`, `ts_out` may be given."""
    stype_in = facts.pop("stype_in", "parent")
    return bytes(
        databento_dbn.Metadata(
            dataset="GLBX.MDP3",
            start=facts.pop("start", 0),
            stype_in=None if stype_in is None else databento_dbn.SType.from_str(stype_in),
            stype_out=databento_dbn.SType.from_str(facts.pop("stype_out", "instrument_id")),
            schema=None if schema is None else databento_dbn.Schema.from_str(schema),
            symbols=facts.pop("symbols", ["ES.FUT"]),
            mappings=list(mappings),
            **facts,
        )
    )


def dbn(rows: Sequence[Any], mappings: Sequence[Mapped] = ES_PARENT, schema: str = "ohlcv-1m", **facts: Any) -> bytes:
    """A whole DBN file."""
    return header(mappings, schema, **facts) + records(rows, RTYPE.get(schema, 0)).tobytes()


def zst(content: bytes, *, frames: int = 1, level: int = 1) -> bytes:
    """Content compressed into one or several zstd frames."""
    cuts = np.linspace(0, len(content), frames + 1).astype(int)
    compressor = zstandard.ZstdCompressor(level=level)
    pieces = itertools.pairwise(cuts)
    return b"".join(compressor.compress(content[start:end]) for start, end in pieces)


def put(folder: Path, name: str, content: bytes | str) -> Path:
    """A file in a folder."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def csv_text(count: int = 5, columns: str = "datetime,open,high,low,close,volume", zone: str = "+00:00") -> str:
    """A CSV of one-minute bars from 2024-01-02 15:00 on."""
    lines = [columns]
    for i in range(count):
        stamp = str(np.datetime64(START + i * MINUTE_NS, "ns"))[:19].replace("T", " ") + zone
        lines.append(f"{stamp},{4800 + i}.25,{4802 + i},{4799 + i},{4801 + i}.5,{10 + i}")
    return "\n".join(lines) + "\n"


# --- trades, quotes, definitions, statistics

TRADE = np.dtype(databento_dbn.TradeMsg._dtypes)
QUOTE = np.dtype(databento_dbn.MBP1Msg._dtypes)
SAMPLE = np.dtype(databento_dbn.BBOMsg._dtypes)
SNAPSHOT = 32 | 8


def _field_by_field(array: np.ndarray, **columns: Any) -> np.ndarray:
    for name, values in columns.items():
        array[name] = values
    return array


def trades(
    instrument_id: int, rows: Sequence[tuple[int, float, int]], flags: int = 0, action: bytes = b"T"
) -> np.ndarray:
    """Trade records of (ts_recv, price, size); the exchange stamped them 200 microseconds earlier."""
    ts_ns, price, size = zip(*rows, strict=True) if rows else ((), (), ())
    return _field_by_field(
        np.zeros(len(rows), TRADE),
        length=TRADE.itemsize // 4,
        publisher_id=1,
        instrument_id=instrument_id,
        ts_event=np.array(ts_ns, "<u8") - 200_000,
        price=[round(value * 10**9) for value in price],
        size=size,
        action=action,
        side=b"B",
        flags=flags,
        ts_recv=ts_ns,
    )


def quotes(
    instrument_id: int, rows: Sequence[tuple[int, float, float]], schema: str = "bbo-1m", flags: int = 128
) -> np.ndarray:
    """Quote records of (ts_recv, bid, ask), of a sampled schema or, with action A, of mbp-1."""
    ts_ns, bid, ask = zip(*rows, strict=True) if rows else ((), (), ())
    sampled = schema.startswith("bbo")
    array = _field_by_field(
        np.zeros(len(rows), SAMPLE if sampled else QUOTE),
        length=20,
        rtype={"bbo-1s": 195, "bbo-1m": 196}.get(schema, 1),
        publisher_id=1,
        instrument_id=instrument_id,
        ts_event=np.array(ts_ns, "<u8") - 200_000,
        price=UNDEF,
        side=b"N",
        flags=flags,
        ts_recv=ts_ns,
        bid_px_00=[_fixed(value) for value in bid],
        ask_px_00=[_fixed(value) for value in ask],
        bid_sz_00=5,
        ask_sz_00=7,
    )
    return array if sampled else _field_by_field(array, action=b"A")


def quoted_trades(instrument_id: int, rows: Sequence[tuple[int, float, int, float, float]]) -> np.ndarray:
    """Records of tbbo, or trades inside mbp-1: (ts_recv, price, size, bid, ask)."""
    array = quotes(instrument_id, [(row[0], row[3], row[4]) for row in rows], "tbbo", flags=0)
    price, size = [round(row[1] * 10**9) for row in rows], [row[2] for row in rows]
    return _field_by_field(array, action=b"T", price=price, size=size)


def _fixed(price: float | None) -> int:
    return UNDEF if price is None else round(price * 10**9)


def in_order(*parts: np.ndarray) -> np.ndarray:
    """Records of several instruments, by their receive time."""
    joined = np.concatenate(parts)
    return joined[np.argsort(joined["ts_recv"], kind="stable")]


def stream(records: np.ndarray, schema: str, mappings: Sequence[Mapped] = ES_PARENT, **facts: Any) -> bytes:
    """A whole DBN file of records made by the functions above."""
    return header(mappings, schema, **facts) + records.tobytes()


DEFINITION_LAYOUTS = {
    1: databento_dbn.InstrumentDefMsgV1,
    2: databento_dbn.InstrumentDefMsgV2,
    3: databento_dbn.InstrumentDefMsg,
}
STATISTICS_LAYOUTS = {1: databento_dbn.StatMsgV1, 2: databento_dbn.StatMsgV1, 3: databento_dbn.StatMsg}
ES_FACTS = {
    "min_price_increment": 250_000_000,
    "min_price_increment_amount": 125_000_000,
    "display_factor": 10_000_000,
    "unit_of_measure_qty": 50_000_000_000,
    "contract_multiplier": 2**31 - 1,
    "currency": b"USD",
    "asset": b"ES",
    "instrument_class": b"F",
    "security_update_action": b"A",
}
"""An E-mini S&P 500 contract as the vendor describes it."""


def definitions(rows: Sequence[dict[str, Any]], version: int = 3) -> np.ndarray:
    """Definition records of the E-mini, each with the fields given changed."""
    layout = np.dtype(DEFINITION_LAYOUTS[version]._dtypes)
    array = np.zeros(len(rows), layout)
    array["length"], array["rtype"], array["publisher_id"] = layout.itemsize // 4, 19, 1
    for index, changes in enumerate(rows):
        facts = {**ES_FACTS, "ts_event": START, "ts_recv": START, **changes}
        for name, value in facts.items():
            array[index][name] = value
    return array


def statistics(rows: Sequence[dict[str, Any]], version: int = 3) -> np.ndarray:
    """Open interest records, each with the fields given."""
    layout = np.dtype(STATISTICS_LAYOUTS[version]._dtypes)
    array = np.zeros(len(rows), layout)
    array["length"], array["rtype"], array["publisher_id"] = layout.itemsize // 4, 24, 1
    array["stat_type"], array["update_action"], array["price"] = 9, 1, UNDEF
    for index, changes in enumerate(rows):
        for name, value in {"ts_event": changes.get("ts_recv", START), **changes}.items():
            array[index][name] = value
    return array


def load(path: Path, symbol: str = "ES.FUT", **flags: Any) -> Loaded:
    """What `load_bars` makes of a file or folder, every table validated."""
    loaded = load_bars(DataConfig(path, symbol, **flags))
    for table in loaded.tables:
        validate(table)
    return loaded
