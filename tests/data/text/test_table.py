"""From columns to rows: what is a bar, when it was, and what is said about the rest."""

import functools
from pathlib import Path

import numpy as np
import pytest

from data.market_files import HOUR_NS, MINUTE_NS, START, csv_text, ns, put
from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import notes, warnings
from tidewalk.data.files.source import probe
from tidewalk.data.rows import FileRows
from tidewalk.data.text.frames import text_frames
from tidewalk.data.text.table import Parsed, open_table, parse_table, spans
from tidewalk.data.text.timing import table_rows

HEADER = "datetime,open,high,low,close,volume"
PLAIN = "datetime,open,high,low,close,volume\n"
SYMBOLS = "symbol,datetime,open,high,low,close,volume"


def parse(folder: Path, text: str) -> Parsed:
    return parse_table(open_table(probe(put(folder, "es.csv", text))))


def read(folder: Path, text: str, *labels: str, zone: str | None = None, bar_label: str | None = None) -> FileRows:
    return table_rows(parse(folder, text), labels or ("ES",), zone=zone, bar_label=bar_label)  # pyright: ignore


def said(found: FileRows) -> tuple[str, ...]:
    """What is said of a file, the line on its columns left out."""
    return notes(finding for finding in found.findings if not finding.text.startswith("read as"))


def warned(found: FileRows) -> tuple[str, ...]:
    return warnings(found.findings)


def line(stamp: str, price: float = 100.0, symbol: str = "") -> str:
    prefix = f"{symbol}," if symbol else ""
    return f"{prefix}{stamp},{price},{price + 1},{price - 1},{price},5\n"


def test_rows_of_a_plain_file(tmp_path: Path) -> None:
    found = read(tmp_path, csv_text(5))
    rows = found.rows["ES"]
    assert rows.stamp_ns.tolist() == [START + i * MINUTE_NS for i in range(5)]
    assert rows.open_e9.tolist() == [(4800 + i) * 10**9 + 250_000_000 for i in range(5)]
    assert rows.row.tolist() == [2, 3, 4, 5, 6]
    assert (found.rows_read, found.interval_ns, found.has_volume, found.close_labelled) == (5, MINUTE_NS, True, False)
    assert said(found)[1:] == (
        "stamps are assumed to be the start of the bar; say --bar-label close if they are its end",
    )


def test_blank_rows_and_footers_are_left_out_and_counted(tmp_path: Path) -> None:
    text = csv_text(3) + ",,,,,\n" * 4 + '"Downloaded from Barchart.com as of 01-03-2020 04:06pm CST"\n'
    found = read(tmp_path, text)
    assert len(found.rows["ES"].row) == 3
    assert found.rows_read == 8
    assert "blank rows: 4" in said(found)
    assert (
        "lines that are no bars: 1, first row 9 ('Downloaded from Barchart.com as of 01-03-2020 04:06pm CST')"
        in said(found)
    )


def test_header_line_repeated_inside_is_left_out(tmp_path: Path) -> None:
    joined = csv_text(3) + HEADER + "\n" + line("2024-01-02 16:00:00+00:00")
    found = read(tmp_path, joined)
    assert len(found.rows["ES"].row) == 4
    assert "lines that are no bars: 1, first row 5 ('datetime')" in said(found)


def test_priced_row_without_a_stamp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"es\.csv row 5: '2024-02-30 10:00:00\+00:00' is no stamp of the form"):
        parse(tmp_path, csv_text(3) + line("2024-02-30 10:00:00+00:00"))


def test_price_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"es\.csv row 5: open, high, low, close are \"112'16\", '1', '1', '1'"):
        parse(tmp_path, csv_text(3) + "2024-01-02 16:00:00+00:00,112'16,1,1,1,5\n")
    with pytest.raises(DataError, match=r"es\.csv row 5: volume is 'many', not a number"):
        parse(tmp_path, csv_text(3) + "2024-01-02 16:00:00+00:00,1,1,1,1,many\n")


def test_header_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a header and no rows"):
        parse(tmp_path, HEADER + "\n")


def test_naive_stamps_need_a_zone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"es\.csv: stamps such as 2024-01-02 15:00:00 say no time zone.* with --tz"):
        read(tmp_path, csv_text(3, zone=""))
    found = read(tmp_path, csv_text(3, zone=""), zone="America/Chicago")
    assert found.rows["ES"].stamp_ns[0] == START + 6 * HOUR_NS
    assert "stamps are wall time of America/Chicago (--tz)" in said(found)


def test_column_name_may_say_utc(tmp_path: Path) -> None:
    text = csv_text(3, "timestamp_utc,open,high,low,close,volume", zone="")
    found = read(tmp_path, text)
    assert found.rows["ES"].stamp_ns[0] == START
    assert "stamps are UTC, as the column name 'timestamp_utc' says" in said(found)
    doubtful = read(tmp_path, text, zone="America/Chicago")
    assert warned(doubtful) == (
        "stamps are UTC, as the column name 'timestamp_utc' says; --tz America/Chicago was used instead",
    )


def test_zone_is_not_used_where_stamps_say_theirs(tmp_path: Path) -> None:
    found = read(tmp_path, csv_text(3), zone="America/Chicago")
    assert found.rows["ES"].stamp_ns[0] == START
    assert said(found)[0].startswith("--tz is not used: the stamps say their zone themselves")


@pytest.mark.parametrize("clock", ["", " 00:00:00"])
def test_dates_are_utc_days_and_need_no_zone(tmp_path: Path, clock: str) -> None:
    days = "".join(line(f"2024-01-0{day}{clock}") for day in (2, 3, 4, 5, 8))
    found = read(tmp_path, f"{HEADER}\n{days}", bar_label="close")
    assert found.rows["ES"].stamp_ns[0] == ns("2024-01-02")
    assert (found.interval_ns, found.close_labelled) == (24 * HOUR_NS, False)
    assert "stamps are dates: each bar is taken as one UTC day" in said(found)


def test_bar_label_is_the_users_then_the_formats_then_assumed(tmp_path: Path) -> None:
    trade_station = '"Date","Time","Open","High","Low","Close","Up","Down"\n' + "".join(
        f"01/{day}/2020,0931,1,2,1,2,3,4\n" for day in (13, 14, 15)
    )
    assert read(tmp_path, trade_station, zone="America/Chicago").close_labelled
    assert not read(tmp_path, trade_station, zone="America/Chicago", bar_label="open").close_labelled
    assert read(tmp_path, csv_text(3), bar_label="close").close_labelled
    found = read(tmp_path, trade_station, zone="America/Chicago")
    assert "stamps are taken as the end of the bar, as TradeStation writes them" in said(found)
    assert found.rows["ES"].volume.tolist() == [7.0, 7.0, 7.0]


def test_tradingview_label_is_known_only_for_its_own_stamps(tmp_path: Path) -> None:
    columns = "time,open,high,low,close,Volume"
    assert "as TradingView writes them" in said(read(tmp_path, csv_text(3, columns)))[1]
    assert "are assumed to be the start" in said(read(tmp_path, csv_text(3, columns, zone=""), zone="UTC"))[-1]


def test_newest_first_is_reversed_and_equal_stamps_with_it(tmp_path: Path) -> None:
    stamps = ["15:02", "15:01", "15:01", "15:00"]
    text = HEADER + "\n" + "".join(line(f"2024-01-02 {at}Z", 100 + i) for i, at in enumerate(stamps))
    found = read(tmp_path, text)
    assert (found.rows["ES"].close_e9 // 10**9).tolist() == [103, 102, 101, 100]
    assert "rows run newest first: reversed" in said(found)


def test_rows_out_of_order_are_noted(tmp_path: Path) -> None:
    text = HEADER + "\n" + "".join(line(f"2024-01-02 {at}Z") for at in ("15:00", "15:05", "15:01", "15:06", "15:07"))
    assert "rows are out of time order in 1 place: sorted" in said(read(tmp_path, text))


def test_autumn_hour_is_resolved_per_symbol(tmp_path: Path) -> None:
    hours = [f"2024-11-03 {hour:02d}:{minute}:00" for hour in (0, 1, 1, 2) for minute in ("00", "30")]
    # One block per symbol, and rows that take turns.
    blocks = "".join(line(stamp, symbol=symbol) for symbol in ("BTCX4", "BTCZ4") for stamp in hours)
    turns = "".join(line(stamp, symbol=symbol) for stamp in hours for symbol in ("BTCX4", "BTCZ4"))
    for body in (blocks, turns):
        found = read(tmp_path, f"{SYMBOLS}\n{body}", "BTCX4", "BTCZ4", zone="America/New_York")
        for rows in found.rows.values():
            assert (np.diff(rows.stamp_ns) == 30 * MINUTE_NS).all()
        assert found.interval_ns == 30 * MINUTE_NS


def test_symbols_are_told_apart_and_blank_ones_counted(tmp_path: Path) -> None:
    text = SYMBOLS + "\n" + line("2024-01-02 15:00Z", symbol="ESH4") + line("2024-01-02 15:01Z", symbol=" ")
    text += line("2024-01-03 15:00Z", symbol=" ESH4 ") + line("2024-01-02 15:00Z", symbol="ESM4")
    parsed = parse(tmp_path, text)
    assert [(span.label, span.end_day - span.first_day) for span in spans(parsed)] == [("ESH4", 2), ("ESM4", 1)]
    found = table_rows(parsed, ("ESH4",), zone=None, bar_label=None)
    assert (found.rows_read, found.rows_unmapped, len(found.rows["ESH4"].row)) == (4, 1, 2)


def test_thin_symbol_has_the_bar_length_of_its_file(tmp_path: Path) -> None:
    full = "".join(line(f"2024-01-02 15:{minute:02d}Z", symbol="ESH4") for minute in range(0, 50, 5))
    thin = "".join(line(f"2024-01-02 {at}Z", symbol="ESZ9") for at in ("15:05", "15:20", "16:25", "19:30"))
    assert read(tmp_path, f"{SYMBOLS}\n{full}{thin}", "ESZ9").interval_ns == 5 * MINUTE_NS


DATABENTO = "ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol"


@pytest.mark.parametrize(
    ("stamp", "price"),
    [("1704207600000000000", "4801250000000"), ("2024-01-02T15:00:00.000000000Z", "4801.250000000")],
)
def test_databento_csv_pretty_or_raw(tmp_path: Path, stamp: str, price: str) -> None:
    text = f"{DATABENTO}\n{stamp},33,1,100,{price},{price},{price},{price},7,ESH4\n"
    found = read(tmp_path, text, "ESH4")
    rows = found.rows["ESH4"]
    assert (rows.stamp_ns[0], rows.open_e9[0], rows.instrument_id[0]) == (START, 4_801_250_000_000, 100)
    assert (found.interval_ns, found.close_labelled) == (MINUTE_NS, False)


def test_databento_csv_of_two_bar_lengths_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"1704207600000000000,{rtype},1,100,1.5,1.5,1.5,1.5,7,ESH4\n" for rtype in (33, 34))
    with pytest.raises(DataError, match="mixed bar intervals: ohlcv-1m and ohlcv-1h"):
        parse(tmp_path, f"{DATABENTO}\n{rows}")


def test_order_of_dates_may_be_settled_far_down_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The blocks are small here, so that the day above 12 lies in a later one than the first rows.
    monkeypatch.setattr("tidewalk.data.text.table.text_frames", functools.partial(text_frames, block_bytes=256))
    early = "".join(line(f"1/2/2024 15:{minute:02d}:00") for minute in range(40))
    late = "".join(line(f"1/31/2024 15:{minute:02d}:00") for minute in range(40))
    found = read(tmp_path, f"{HEADER}\n{early}{late}", zone="UTC")
    assert found.rows["ES"].stamp_ns[0] == START
    assert len(found.rows["ES"].row) == 80
    assert found.rows["ES"].row.tolist() == list(range(2, 82))
    assert "dates are month/day/year" in said(found)


def test_decimal_comma_of_a_semicolon_file(tmp_path: Path) -> None:
    rows = "".join(f"2024-01-02 15:0{i}Z;100,25;101;99,5;100;1.200\n" for i in range(3))
    found = read(tmp_path, HEADER.replace(",", ";") + "\n" + rows)
    assert found.rows["ES"].open_e9.tolist() == [100_250_000_000] * 3
    assert found.rows["ES"].volume.tolist() == [1200.0] * 3
    assert "numbers have a decimal comma" in said(found)


def test_header_shorter_than_the_rows(tmp_path: Path) -> None:
    rows = "".join(f"2024-01-02 15:0{i}Z,100,101,99,100,5\n" for i in range(3))
    found = read(tmp_path, f"open,high,low,close,volume\n{rows}")
    assert found.rows["ES"].open_e9.tolist() == [100 * 10**9] * 3
    assert "the header has no name for the first column, which holds the stamps" in said(found)
    trailing = read(tmp_path, f"{HEADER}\n{rows.replace(chr(10), ',7,8' + chr(10))}")
    assert "not used, because without a name: the last 2 columns" in said(trailing)
    with pytest.raises(DataError, match=r"rows have 7 fields under a header of 6 names .* not plain which are unnamed"):
        read(tmp_path, f"{HEADER}\n{rows.replace('Z,', 'Z,7,')}")


def test_zones_named_by_the_stamps(tmp_path: Path) -> None:
    rows = "".join(line(f"20240102 09:0{i}:00 US/Central") for i in range(3))
    found = read(tmp_path, f"{HEADER}\n{rows}", zone="UTC")
    assert found.rows["ES"].stamp_ns[0] == START
    assert "--tz is not used: the stamps say their zone themselves" in said(found)
    with pytest.raises(DataError, match="stamps name several zones: US/Central, US/Eastern"):
        read(tmp_path, f"{HEADER}\n{rows}{line('20240102 10:05:00 US/Eastern')}")
    with pytest.raises(DataError, match="They end in CST, which is not the name of one zone"):
        read(tmp_path, f"{HEADER}\n{rows.replace('US/Central', 'CST')}")


def test_newest_first_file_keeps_the_two_passes_of_the_autumn_hour(tmp_path: Path) -> None:
    hours = [f"2024-11-03 {hour:02d}:{minute}:00" for hour in (0, 1, 1, 2) for minute in ("00", "30")]
    rising = "".join(line(stamp, 100 + i) for i, stamp in enumerate(hours))
    falling = "".join(reversed(rising.splitlines(keepends=True)))
    one, other = (read(tmp_path, f"{HEADER}\n{body}", zone="America/New_York").rows["ES"] for body in (rising, falling))
    assert one.stamp_ns.tolist() == other.stamp_ns.tolist()
    assert one.close_e9.tolist() == other.close_e9.tolist()


def test_second_header_with_other_columns_is_refused(tmp_path: Path) -> None:
    first, second = csv_text(3), csv_text(9).splitlines(keepends=True)[4:]
    same = put(tmp_path, "same.csv", first + first.splitlines(keepends=True)[0] + "".join(second))
    assert len(parse_table(open_table(probe(same))).rows.row) == 9
    other = put(tmp_path, "other.csv", first + "datetime,close,high,low,open,volume\n" + "".join(second))
    with pytest.raises(
        DataError, match=r"other\.csv row 5: a second header, close, high, low, open, volume where .*Split them"
    ):
        parse_table(open_table(probe(other)))
    longer = put(tmp_path, "volume.csv", first + "datetime,open,high,low,close,openint\n" + "".join(second))
    with pytest.raises(DataError, match="second header"):
        parse_table(open_table(probe(longer)))


def test_prices_in_fractions_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = put(tmp_path, "zn.csv", csv_text(2).replace("4800.25", "110-16+").replace("4801.25", "110'165"))
    with pytest.raises(DataError, match=r"row 2.*'110-16\+'.*32nds.*write them as decimals"):
        parse_table(open_table(probe(path)))


def test_a_clock_of_twelve_hours_without_am_and_pm_is_refused(tmp_path: Path) -> None:
    hours = [*range(9, 13), 1, 2]
    stamps = [f"2024-01-{day:02d} {hour:02d}:{minute:02d}" for day in (2, 3, 4) for hour in hours for minute in (0, 30)]
    rows = "".join(line(stamp, 100.0 + i) for i, stamp in enumerate(stamps))
    with pytest.raises(
        DataError, match=r"row 10: the clock runs back from 12 to 1 .* 2 more places.*without AM and PM"
    ):
        read(tmp_path, PLAIN + rows, zone="America/Chicago")
    first = "".join(line(stamp, 100.0 + i) for i, stamp in enumerate(stamps[:8]))
    assert len(read(tmp_path, PLAIN + first, zone="America/Chicago").rows["ES"].row) == 8


@pytest.mark.parametrize(("tail", "late"), [(":59Z", "1 s"), (":59.999Z", "0.001 s")])
def test_stamps_of_the_last_instant_are_the_end_of_the_bar(tmp_path: Path, tail: str, late: str) -> None:
    rows = "".join(line(f"2024-01-02 15:{minute:02d}{tail}") for minute in range(9))
    found = read(tmp_path, PLAIN + rows)
    assert found.close_labelled
    assert found.rows["ES"].stamp_ns[0] == ns("2024-01-02 15:01")
    assert f"stamps are {late} before the end of the bar: taken as its end" in said(found)
    assert not read(tmp_path, PLAIN + rows, bar_label="open").close_labelled
    within = read(tmp_path, PLAIN + rows.replace(tail, ":30Z"))
    assert not within.close_labelled
