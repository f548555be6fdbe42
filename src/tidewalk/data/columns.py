"""Which column of a table is what, told by its name; shared by text and Parquet files.

Names are compared without case, blanks, brackets and punctuation, so "Date Time", "<DATE_TIME>" and "datetime" are one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

STAMP_NAMES = (
    *("tsevent", "datetime", "timestamp", "datetimeutc", "timestamputc", "utcdatetime", "utctimestamp", "opentime"),
    *("starttime", "bartime", "gmttime", "localtime", "timeutc", "dt", "date", "dateutc", "day", "time", "ts", "t"),
    *("unix", "unixtime", "epoch", "timestampms", "timestampns", "timems"),
)
PRICE_NAMES = {
    "open": ("open", "o", "openprice", "op", "first"),
    "high": ("high", "h", "highprice", "hi", "max"),
    "low": ("low", "l", "lowprice", "lo", "min"),
    "close": ("close", "c", "closeprice", "last", "lastprice", "cl", "price"),
}
VOLUME_NAMES = (
    "volume",
    "vol",
    "v",
    "cumvol",
    "totalvolume",
    "tradevolume",
    "volumetraded",
    "qty",
    "tickvolume",
    "tickvol",
)
SYMBOL_NAMES = ("symbol", "rawsymbol", "ticker", "contract", "instrument", "sym", "contractcode")
CLOSE_ONLY = "Closes alone do not do: orders fill at the next open, and bars without a range hide what could be traded"
NEEDED = "a time column and open, high, low, close (volume and symbol where there are any)"


@dataclass(frozen=True)
class Columns:
    """Positions of the columns that are used.

    Attributes:
        stamp: column of the stamp or of its date; None when no name tells it.
        time: column of the time of day when the date stands apart, else None.
        open: column of the open price.
        high: column of the high price.
        low: column of the low price.
        close: column of the close price.
        volume: columns whose sum is the volume; empty when there is none.
        symbol: column of the instrument's symbol, None when there is none.
        instrument_id: column of the vendor's instrument id, None when there is none.
        rtype: column of Databento's record type, None when there is none.
    """

    stamp: int | None
    time: int | None
    open: int
    high: int
    low: int
    close: int
    volume: tuple[int, ...]
    symbol: int | None
    instrument_id: int | None
    rtype: int | None


@dataclass(frozen=True)
class Dialect:
    """What the column names say about the program that wrote the file.

    Attributes:
        name: the program or format, "" when it is not recognised.
        close_labelled: which end of the bar it stamps; None when that is not known.
        is_utc: whether the name of the stamp column says UTC.
    """

    name: str
    close_labelled: bool | None
    is_utc: bool


def plain(name: str) -> str:
    """A column name reduced to lower-case letters, digits and "#"."""
    return re.sub(r"[^a-z0-9#]", "", name.lower())


def identify(names: Sequence[str]) -> Columns | None:
    """Positions of the columns; None when a price column is missing."""
    known = [plain(name) for name in names]
    price = _quartet(known) or [_first(known, PRICE_NAMES[role]) for role in PRICE_NAMES]
    found = [position for position in price if position is not None]
    if len(found) < len(PRICE_NAMES):
        return None
    stamp = _first(known, STAMP_NAMES)
    time = known.index("time") if stamp is not None and known[stamp] == "date" and "time" in known else None
    volume = _first(known, VOLUME_NAMES)
    ticks = [known.index(name) for name in ("up", "down") if name in known]
    return Columns(
        stamp,
        time,
        *found,
        volume=(volume,) if volume is not None else tuple(ticks) if len(ticks) == 2 else (),
        symbol=_first(known, SYMBOL_NAMES),
        instrument_id=_first(known, ("instrumentid",)),
        rtype=_first(known, ("rtype",)),
    )


def missing_roles(names: Sequence[str]) -> list[str]:
    """Price columns that no name stands for."""
    known = [plain(name) for name in names]
    return [role for role, allowed in PRICE_NAMES.items() if _first(known, allowed) is None]


def lacking(names: Sequence[str]) -> str:
    """What is missing and what is needed, for errors."""
    roles = missing_roles(names)
    reason = f" {CLOSE_ONLY}." if roles == ["open", "high", "low"] else ""
    return f"missing: {', '.join(roles)}.{reason} Needed: {NEEDED}"


def used(columns: Columns) -> set[int]:
    """Positions that have a role."""
    single = (columns.stamp, columns.time, columns.open, columns.high, columns.low, columns.close)
    rest = (columns.symbol, columns.instrument_id, columns.rtype)
    return {position for position in (*single, *rest, *columns.volume) if position is not None}


def dialect(names: Sequence[str], columns: Columns) -> Dialect:
    """The format recognised from its column names, and which end of the bar it is known to stamp."""
    known = [plain(name) for name in names]
    stamp = "" if columns.stamp is None else known[columns.stamp]
    is_utc = "utc" in stamp or "gmt" in stamp
    opening = {
        "Databento": is_databento(names),
        "Barchart": {"symbol", "last", "change"} <= set(known) or "tradingday" in known,
        "Sierra Chart": "#oftrades" in known,
        "TradingView": list(names[:5]) == ["time", "open", "high", "low", "close"],
        "Yahoo": {"dividends", "stocksplits"} <= set(known) or {"price", "adjclose"} <= set(known),
        "Binance": "opentime" in known,
        "Dukascopy": stamp in ("gmttime", "localtime"),
        "MetaTrader": "tickvol" in known,
    }
    for name, matches in opening.items():
        if matches:
            return Dialect(name, False, is_utc)
    if {"up", "down"} <= set(known):
        return Dialect("TradeStation", True, is_utc)
    return Dialect("", None, is_utc)


def is_databento(names: Sequence[str]) -> bool:
    """Whether the columns are those Databento writes to CSV and Parquet."""
    known = {plain(name) for name in names}
    return "tsevent" in known and bool({"rtype", "instrumentid", "publisherid"} & known)


def _first(known: Sequence[str], allowed: Sequence[str]) -> int | None:
    """Position of the first of the allowed names that occurs."""
    return next((known.index(name) for name in allowed if name in known), None)


def _quartet(known: Sequence[str]) -> list[int] | None:
    """Positions of open, high, low, close standing side by side: studies repeat these names further right."""
    for start in range(len(known) - 3):
        four = known[start : start + 4]
        if all(name in PRICE_NAMES[role] for role, name in zip(PRICE_NAMES, four, strict=True)):
            return list(range(start, start + 4))
    return None
