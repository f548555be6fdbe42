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
