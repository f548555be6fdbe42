"""Text formats of the programs and vendors of this field: what they write, and how they are recognised.

Which end of the bar is stamped, the zone and the order of dates are facts of a format, taken from its definition. What
a format leaves to the user's settings (the zone of a chart or of a broker) is never taken from here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.text.columns import Columns, is_databento, plain, says_end


@dataclass(frozen=True)
class Dialect:
    """A text format.

    Attributes:
        name: the program or vendor, "" where the file could be anyone's.
        close_labelled: which end of the bar it stamps; None where that is not known.
        zone: zone of stamps without one, where the format fixes it.
        date_order: order in which it writes dates of three numbers, where the format fixes it.
        columns: columns of its files without a header, "" where they always have one.
        hint: where stamps without a zone usually are, for errors.
        is_sure: whether the file could be nobody else's; else zone and order are not taken from here.
    """

    name: str = ""
    close_labelled: bool | None = None
    zone: str | None = None
    date_order: str | None = None
    columns: str = ""
    hint: str = ""
    is_sure: bool = True


_DATE_TIME = "datetime,open,high,low,close,volume"
_DATE_AND_TIME = "date,time,open,high,low,close,volume"

DIALECTS = (
    Dialect("Databento", False),
    Dialect("FirstRate", False, "America/New_York", None, _DATE_TIME, "FirstRate Data writes --tz America/New_York"),
    Dialect("Kibot", False, "America/New_York", "mdy", _DATE_AND_TIME, "Kibot writes --tz America/New_York"),
    Dialect("Barchart", False, None, "mdy", "", "Barchart writes exchange time, for CME --tz America/Chicago"),
    Dialect("TradingView", False),
    Dialect("NinjaTrader", True, "UTC", None, _DATE_TIME),
    Dialect("HistData", False, "Etc/GMT+5", None, _DATE_TIME),
    Dialect("TradeStation", True, None, None, "", "TradeStation writes exchange time or that of the computer"),
    Dialect("Sierra Chart", False, None, None, "", "Sierra Chart writes the time zone set for the chart"),
    Dialect("IBKR", False, None, None, "", "IBKR writes the zone chosen at login"),
    Dialect(
        "Binance",
        False,
        "UTC",
        None,
        "opentime,open,high,low,close,volume,closetime,quotevolume,count,takerbase,takerquote,ignore",
    ),
    Dialect("Dukascopy", False, "UTC", "dmy"),
    Dialect(
        "MetaTrader",
        False,
        None,
        None,
        _DATE_AND_TIME,
        "MetaTrader writes the broker's time, often New York's plus seven hours: --tz America/New_York+7",
    ),
    Dialect("Stooq", True, None, None, "", "Stooq writes --tz Europe/Warsaw"),
    Dialect("Yahoo", False),
    Dialect("VisualChart", True, None, None, "", "VisualChart writes local time"),
    Dialect("Sina futures", True, None, None, "", "Chinese exchanges are in --tz Asia/Shanghai"),
    Dialect("investing.com", None),
    Dialect("LEAN", False, "UTC", None, "msofday,open,high,low,close,volume"),
)
"""Formats known by name. Sources: the vendors' own format pages; the labels of Barchart, TradingView, Sierra Chart,
VisualChart, Sina and LEAN were checked on real files (first bar after breaks)."""

BY_KEY = {plain(dialect.name): dialect for dialect in DIALECTS}

_N = r"[+-]?\d+(?:\.\d+)?"
_COMMA_ROW, _TAB_ROW = ",".join([_N] * 5), r"\t".join([_N] * 5)
_SEMICOLON_ROW = ";".join([r"[+-]?\d+(?:[.,]\d+)?"] * 5)
SHAPES = (
    ("Kibot", r"\d{2}/\d{2}/\d{4},(?:\d{2}:\d{2},)?" + _COMMA_ROW),
    ("MetaTrader", rf"\d{{4}}\.\d{{2}}\.\d{{2}}(?:,\d{{2}}:\d{{2}},{_COMMA_ROW}|\t\d{{2}}:\d{{2}}\t{_TAB_ROW})"),
    ("FirstRate", rf"\d{{4}}-\d{{2}}-\d{{2}}(?: \d{{2}}:\d{{2}}:\d{{2}})?,{_COMMA_ROW}(?:,{_N})?"),
    ("Binance", rf"\d{{13,16}},{_COMMA_ROW},\d{{13,16}},{_COMMA_ROW}"),
    ("NinjaTrader", r"\d{8}(?: \d{6})?;" + _SEMICOLON_ROW),
)
"""Lines of header-less formats. Those of FirstRate, Kibot and MetaTrader are plain enough to be anyone's."""
SURE_SHAPES = ("Binance", "NinjaTrader", "HistData")

IBKR_UTC = re.compile(r"\d{8}-\d{2}:\d{2}:\d{2}")
DUKASCOPY_STAMP = re.compile(r"\d{2}\.\d{2}\.\d{4} \d{2}:\d{2}:\d{2}\.\d{3}")


def named(key: str) -> Dialect:
    """The dialect that --dialect names.

    Raises:
        ConfigError: unknown name, with the nearest known one.
    """
    found = BY_KEY.get(plain(key))
    if found is None:
        raise ConfigError(
            f"--dialect {key}: unknown{did_you_mean(plain(key), BY_KEY)}. Known are {', '.join(sorted(BY_KEY))}."
        )
    return found


def by_names(names: Sequence[str], columns: Columns, sample: Sequence[Sequence[str]] = ()) -> Dialect:
    """The format recognised from its column names, with the look of its stamps where names do not tell enough."""
    known = {plain(name) for name in names}
    first = sample[0][columns.stamp] if sample and columns.stamp is not None and len(sample[0]) > columns.stamp else ""
    stamp = "" if columns.stamp is None else plain(names[columns.stamp])
    tests = {
        "databento": is_databento(names),
        "barchart": {"symbol", "last", "change"} <= known
        or "tradingday" in known
        or {"last", "openint"} <= known
        or {"latest", "change"} <= known,
        "sierrachart": bool({"#oftrades", "numberoftrades"} & known),
        "ibkr": {"average", "barcount"} <= known,
        "tradingview": list(names[:5]) == ["time", "open", "high", "low", "close"],
        "yahoo": {"dividends", "stocksplits"} <= known or {"adjclose"} <= known,
        "binance": {"opentime", "closetime"} <= known or "opentime" in known,
        "dukascopy": stamp in ("gmttime", "localtime", "timeeet") or DUKASCOPY_STAMP.match(first) is not None,
        "stooq": {"ticker", "per"} <= known and "openint" in known,
        "metatrader": {"tickvol", "spread"} <= known or "tickvol" in known,
        "tradestation": {"up", "down"} <= known or [plain(name) for name in names[2:9]] == [*_OHLC, "vol", "oi"],
        "sinafutures": "hold" in known,
        "investingcom": {"price", "vol", "change"} <= known,
    }
    found = next((BY_KEY[key] for key, matches in tests.items() if matches), Dialect())
    if found.name == "Dukascopy" and stamp == "timeeet":
        return replace(found, zone="EET")
    if found.name == "IBKR" and IBKR_UTC.match(first):
        return replace(found, zone="UTC")
    if not found.name and columns.stamp is not None and says_end(names[columns.stamp]):
        return Dialect("", True)
    return found


_OHLC = ("open", "high", "low", "close")


def by_shape(lines: Sequence[str]) -> Dialect | None:
    """The format of a file without a header, from its first lines; None when they look like no known one.

    NinjaTrader and HistData write the same line; HistData's volume is always 0, and its zone and label are others.
    """
    for name, pattern in SHAPES:
        if lines and all(re.fullmatch(pattern, line.strip()) for line in lines):
            is_empty = all(
                float(line.strip().rpartition(";")[2].replace(",", ".")) == 0 for line in lines if ";" in line
            )
            name = "HistData" if name == "NinjaTrader" and is_empty else name
            return replace(BY_KEY[plain(name)], is_sure=name in SURE_SHAPES)
    return None
