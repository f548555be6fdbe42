"""Which column of a table is what, told by its name; shared by text and Parquet files.

Names are compared without case, blanks, brackets and punctuation, so "Date Time", "<DATE_TIME>" and "datetime" are one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidewalk.core.errors import DataError

STAMP_NAMES = (
    *("tsevent", "datetime", "timestamp", "datetimeutc", "timestamputc", "utcdatetime", "utctimestamp", "opentime"),
    *("starttime", "bartime", "gmttime", "localtime", "timeutc", "timegmt", "timeeet", "dt", "date", "dateutc"),
    *("dtyyyymmdd", "tradedate", "tradingdate", "day", "time", "ts", "t"),
    *("unix", "unixtime", "epoch", "timestampms", "timestampns", "timems"),
)
END_STAMP_NAMES = ("closetime", "timeclose", "endtime", "timeend", "barend", "endts", "tsend")
"""Names of stamps at the end of the bar, taken where no other stamp is there."""
DATE_NAMES = ("date", "day", "dtyyyymmdd", "tradedate", "tradingdate")
TIME_NAMES = ("time", "timeofday", "hhmm", "hhmmss", "clock")
PRICE_NAMES = {
    "open": ("open", "o", "openprice", "op", "first"),
    "high": ("high", "h", "highprice", "hi", "max"),
    "low": ("low", "l", "lowprice", "lo", "min"),
    "close": ("close", "c", "closeprice", "last", "lastprice", "latest", "cl", "price"),
}
VOLUME_NAMES = (
    *("volume", "vol", "v", "cumvol", "totalvolume", "tradevolume", "volumetraded", "qty", "tickvolume", "tickvol"),
    *("ticks",),
)
SYMBOL_NAMES = ("symbol", "rawsymbol", "ticker", "contract", "instrument", "sym", "contractcode")
CLOSE_ONLY = "Closes alone do not do: orders fill at the next open, and bars without a range hide what could be traded"
ADJUSTED = "An adjusted close is no price that was traded and is not taken for it"
_NOT_PLAIN = re.compile(r"[^a-z0-9#]")
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

    @property
    def price(self) -> tuple[int, int, int, int]:
        """Columns of open, high, low and close."""
        return self.open, self.high, self.low, self.close


def plain(name: str) -> str:
    """A column name reduced to lower-case letters, digits and "#"."""
    return _NOT_PLAIN.sub("", name.lower())


def identify(names: Sequence[str]) -> Columns | None:
    """Positions of the columns; None when a price column is missing."""
    known = [plain(name) for name in names]
    price = _quartet(known) or [_first(known, PRICE_NAMES[role]) for role in PRICE_NAMES]
    found = [position for position in price if position is not None]
    if len(found) < len(PRICE_NAMES):
        return None
    stamp = _first(known, (*STAMP_NAMES, *END_STAMP_NAMES))
    time = _first(known, TIME_NAMES) if stamp is not None and known[stamp] in DATE_NAMES else None
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
    if "close" in roles and any(plain(name).startswith("adjclose") for name in names):
        reason = f" {ADJUSTED}."
    return f"missing: {', '.join(roles)}.{reason} Needed: {NEEDED}"


def several_tickers(tickers: Sequence[str], where: str) -> DataError:
    """The error for columns of several instruments side by side."""
    return DataError(
        f"{where}: columns of several instruments side by side ({', '.join(tickers[:8])}). Write one file for each."
    )


def used(columns: Columns) -> set[int]:
    """Positions that have a role."""
    rest = (columns.stamp, columns.time, columns.symbol, columns.instrument_id, columns.rtype)
    return {position for position in (*columns.price, *rest, *columns.volume) if position is not None}


def mapping(names: Sequence[str], columns: Columns) -> str:
    """Which column is taken for what, in one line."""
    roles: dict[str, tuple[int | None, ...]] = {
        "stamp": (columns.stamp, columns.time),
        "open": (columns.open,),
        "high": (columns.high,),
        "low": (columns.low,),
        "close": (columns.close,),
        "volume": columns.volume,
        "symbol": (columns.symbol,),
    }
    parts = []
    for role, positions in roles.items():
        taken = [names[p].strip() or f"column {p + 1}" for p in positions if p is not None]
        parts += [f"{role} from {' + '.join(taken)}"] if taken else []
    return ", ".join(parts) + ("" if columns.volume else ", no volume")


def says_utc(name: str) -> bool:
    """Whether the name of a stamp column says that it is in UTC."""
    return "utc" in plain(name) or "gmt" in plain(name)


def says_end(name: str) -> bool:
    """Whether the name of a stamp column says that it is the end of the bar."""
    return plain(name) in END_STAMP_NAMES


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
