"""Columns are told by name, whatever the program that wrote them called them."""

import pytest

from tidewalk.data.text.columns import identify, lacking, says_utc, used
from tidewalk.data.text.dialects import by_names


def found(header: str) -> str:
    """The role of each column that has one."""
    names = header.split(",")
    columns = identify(names)
    assert columns is not None
    roles = {"stamp": columns.stamp, "time": columns.time, "open": columns.open, "close": columns.close}
    roles |= {"symbol": columns.symbol, "volume": columns.volume[0] if columns.volume else None}
    return " ".join(f"{role}={names[position].strip()}" for role, position in roles.items() if position is not None)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("DT,O,H,L,C", "stamp=DT open=O close=C"),
        ("date_time,open,high,low,close,cum_vol", "stamp=date_time open=open close=close volume=cum_vol"),
        (
            "Symbol,Time,Open,High,Low,Last,Change,Volume,Open Int",
            "stamp=Time open=Open close=Last symbol=Symbol volume=Volume",
        ),
        (
            "symbol,timestamp,tradingDay,open,high,low,close,volume",
            "stamp=timestamp open=open close=close symbol=symbol volume=volume",
        ),
        (
            "Date, Time, Open, High, Low, Last, Volume, # of Trades, Open, High, Low, Close",
            "stamp=Date time=Time open=Open close=Last volume=Volume",
        ),
        (
            "<TICKER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>",
            "stamp=<DATE> time=<TIME> open=<OPEN> close=<CLOSE> symbol=<TICKER> volume=<VOL>",
        ),
        (
            "ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol",
            "stamp=ts_event open=open close=close symbol=symbol volume=volume",
        ),
        ("Datetime,Open,High,Low,Close,Volume,date", "stamp=Datetime open=Open close=Close volume=Volume"),
        ("Date,Price,Open,High,Low,Vol.,Change %", "stamp=Date open=Open close=Price volume=Vol."),
        ("Price,Adj Close,Close,High,Low,Open,Volume", "open=Open close=Close volume=Volume"),
        ("CL,time,Open,High,Low,Close_adj,C", "stamp=time open=Open close=C"),
    ],
)
def test_headers_of_vendors(header: str, expected: str) -> None:
    assert found(header) == expected


def test_up_and_down_volumes_are_summed() -> None:
    columns = identify(["Date", "Time", "Open", "High", "Low", "Close", "Up", "Down"])
    assert columns is not None
    assert columns.volume == (6, 7)
    assert used(columns) == set(range(8))


def test_missing_prices_are_named() -> None:
    assert identify(["time", "close"]) is None
    text = lacking(["time", "close"])
    assert "missing: open, high, low." in text
    assert "Closes alone do not do" in text
    assert "a time column and open, high, low, close" in text
    assert "missing: low." in lacking(["time", "open", "high", "close"])


@pytest.mark.parametrize(
    ("header", "name", "closes", "in_utc"),
    [
        ("ts_event,rtype,instrument_id,open,high,low,close,volume,symbol", "Databento", False, False),
        ("Symbol,Time,Open,High,Low,Last,Change,Volume,Open Int", "Barchart", False, False),
        ("time,open,high,low,close,Volume", "TradingView", False, False),
        ("Time,Open,High,Low,Close,Volume", "", None, False),
        ("Date,Time,Open,High,Low,Close,Up,Down", "TradeStation", True, False),
        ("open_time,open,high,low,close,volume,close_time", "Binance", False, False),
        ("Gmt time,Open,High,Low,Close,Volume", "Dukascopy", False, True),
        ("timestamp_utc,open,high,low,close,volume", "", None, True),
        ("Datetime,Open,High,Low,Close,Volume,Dividends,Stock Splits", "Yahoo", False, False),
        ("datetime,open,high,low,close", "", None, False),
    ],
)
def test_programs_and_the_end_of_the_bar_they_stamp(header: str, name: str, closes: object, in_utc: object) -> None:
    names = header.split(",")
    columns = identify(names)
    assert columns is not None
    known = by_names(names, columns)
    assert (known.name, known.close_labelled) == (name, closes)
    assert columns.stamp is not None
    assert says_utc(names[columns.stamp]) == in_utc
