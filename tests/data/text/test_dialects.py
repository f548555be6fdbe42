"""Every text format as its program writes it, read without being told what it is."""

from pathlib import Path

import pytest

from data.market_files import DAY_NS, HOUR_NS, MINUTE_NS, ns, put
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.checks.quality import notes, warnings
from tidewalk.data.files.source import probe
from tidewalk.data.rows import FileRows
from tidewalk.data.text.csv import TextOptions, check_options
from tidewalk.data.text.dialects import DIALECTS, by_shape, named
from tidewalk.data.text.table import open_table, parse_table, spans
from tidewalk.data.text.timing import table_rows

START = ns("2024-01-02 15:00")  # 09:00 in Chicago, 10:00 in New York, a Tuesday


def read(
    folder: Path,
    text: str | bytes,
    *labels: str,
    zone: str | None = None,
    name: str = "es.csv",
    **options: str,
) -> FileRows:
    header = open_table(probe(put(folder, name, text)), TextOptions(**options))  # pyright: ignore[reportArgumentType]
    return table_rows(parse_table(header), labels or ("ES",), zone=zone, bar_label=None)


def rows(template: str, count: int = 5, start_hour: int = 15) -> str:
    """Lines of one-minute bars: {h}, {m} the clock, {o}, {H}, {l}, {c} prices, {v} a volume, {s} seconds since 1970."""
    lines = []
    for i in range(count):
        price = {"o": 4800.25 + i, "H": 4802.5 + i, "l": 4799.0 + i, "c": 4801.25 + i}
        second = (START + i * MINUTE_NS) // 10**9
        lines.append(template.format(h=start_hour, m=i, v=10 + i, s=second, e=second * 1000 + 59_999, **price))
    return "\n".join(lines) + "\n"


def newest_first(lines: str) -> str:
    return "".join(reversed(lines.splitlines(keepends=True)))


# Program, text, zone to be named, close-labelled. The bars are those of `rows`, from START on or one minute later.
WRITTEN = {
    "Databento": ("ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol\n"
                  + rows("2024-01-02T{h}:{m:02d}:00.000000000Z,33,1,100,{o:.9f},{H:.9f},{l:.9f},{c:.9f},{v},ES"),
                  None, False),
    "FirstRate": (rows("2024-01-02 {h}:{m:02d}:00,{o},{H},{l},{c},{v}", start_hour=10), "America/New_York", False),
    "Kibot": (rows("01/16/2024,{h}:{m:02d},{o},{H},{l},{c},{v}", start_hour=10), "America/New_York", False),
    "Barchart": ("Symbol,Time,Open,High,Low,Last,Change,Volume,Open Int\n"
                 + newest_first(rows("ES,1/2/2024 9:{m:02d},{o},{H},{l},{c},0.25,{v},N/A"))
                 + '"Downloaded from Barchart.com as of 01-02-2024 04:06pm CST"\n', "America/Chicago", False),
    "Barchart API": ("symbol,timestamp,tradingDay,open,high,low,close,volume\n"
                     + rows("ES,2024-01-02T09:{m:02d}:00-06:00,1/2/2024,{o},{H},{l},{c},{v}"), None, False),
    "TradingView": ("time,open,high,low,close,EMA,EMA,Volume,Volume MA\n"
                    + rows("{s},{o},{H},{l},{c},NaN,NaN,{v},NaN"), None, False),
    "NinjaTrader": (rows("20240102 {h}{m:02d}00;{o};{H};{l};{c};{v}"), None, True),
    "TradeStation": ('"Date","Time","Open","High","Low","Close","Up","Down"\n'
                     + rows("01/16/2024,09:{m:02d},{o},{H},{l},{c},{v},0"), "America/Chicago", True),
    "Sierra Chart": ("Date, Time, Open, High, Low, Last, Volume, # of Trades, OHLC Avg, Open, \n"
                     + rows("2024-1-2, 09:{m:02d}:00.000000, {o}, {H}, {l}, {c}, {v}, 9, 0, "
                            "340282346638528859811704183484516925440, "), "America/Chicago", False),
    "IBKR": ("date,open,high,low,close,volume,average,barCount\n"
             + rows("20240102 09:{m:02d}:00 US/Central,{o},{H},{l},{c},{v},4801.1,7"), None, False),
    "Binance": (rows("{s}000,{o},{H},{l},{c},{v}.000,{e},1.5,79,0.5,0.25,0"), None, False),
    "Dukascopy": ("Gmt time,Open,High,Low,Close,Volume\n"
                  + rows("02.01.2024 {h}:{m:02d}:00.000,{o},{H},{l},{c},{v}"), None, False),
    "HistData": (rows("20240102 {h}{m:02d}00;{o:.6f};{H:.6f};{l:.6f};{c:.6f};0", start_hour=10), None, False),
    "MetaTrader": ("<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n"
                   + rows("2024.01.02\t{h}:{m:02d}:00\t{o}\t{H}\t{l}\t{c}\t{v}\t0\t1", start_hour=17),
                   "America/New_York+7", False),
    "MetaTrader 4": (rows("2024.01.02,{h}:{m:02d},{o},{H},{l},{c},{v}", start_hour=17), "UTC+2", False),
    "Stooq": ("<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>\n"
              + rows("ES,1,20240102,{h}{m:02d}00,{o},{H},{l},{c},{v},0", start_hour=16), "Europe/Warsaw", True),
    "Yahoo": ("Price,Adj Close,Close,High,Low,Open,Volume\nTicker,ES=F,ES=F,ES=F,ES=F,ES=F,ES=F\nDatetime,,,,,,\n"
              + rows("2024-01-02 {h}:{m:02d}:00+00:00,1.5,{c},{H},{l},{o},{v}"), None, False),
    "VisualChart": ("Date,Open,High,Low,Close,Volume,OpenInterest\n"
                    + rows("2024-01-02,{h}:{m:02d}:00,{o},{H},{l},{c},{v},0", start_hour=16), "Europe/Madrid", True),
    "Sina futures": (",datetime,open,high,low,close,volume,hold,symbol\n"
                     + rows("7,2024-01-02 23:{m:02d}:00,{o},{H},{l},{c},{v},410081,ES"), "Asia/Shanghai", True),
}  # fmt: skip


@pytest.mark.parametrize("program", WRITTEN)
def test_every_format_is_read_as_its_program_writes_it(tmp_path: Path, program: str) -> None:
    text, zone, closes = WRITTEN[program]
    found = read(tmp_path, text, zone=zone)
    bars = found.rows["ES"]
    moved = 14 * DAY_NS if "/16/2024" in text else 0
    assert bars.stamp_ns.tolist() == [START + moved + i * MINUTE_NS for i in range(5)]
    assert [int(column[0]) for column in (bars.open_e9, bars.high_e9, bars.low_e9, bars.close_e9)] == [
        4_800_250_000_000,
        4_802_500_000_000,
        4_799_000_000_000,
        4_801_250_000_000,
    ]
    assert bars.volume.tolist() == [0.0] * 5 if program == "HistData" else [10.0, 11.0, 12.0, 13.0, 14.0]
    assert (found.interval_ns, found.close_labelled) == (MINUTE_NS, closes)
    name = {"Barchart API": "Barchart", "MetaTrader 4": "MetaTrader"}.get(program, program)
    assert notes(found.findings)[0].startswith(f"read as {name}") or warnings(found.findings)[0].startswith(
        f"read as {name}"
    )


@pytest.mark.parametrize("program", [name for name, (_, zone, _) in WRITTEN.items() if zone is not None])
def test_formats_without_a_zone_of_their_own_need_one(tmp_path: Path, program: str) -> None:
    text, _, _ = WRITTEN[program]
    with pytest.raises(DataError, match=r"say no time zone\. Name the zone they are in with --tz"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("NinjaTrader", "stamps are UTC, as NinjaTrader writes them"),
        ("HistData", "stamps are wall time of Etc/GMT+5, as HistData writes them"),
        ("Dukascopy", "stamps are UTC, as the column name 'Gmt time' says"),
        ("IBKR", "stamps are wall time of US/Central, as they say themselves"),
        ("Binance", "stamps are ms since 1970"),
    ],
)
def test_zone_that_a_format_fixes_is_used_and_said(tmp_path: Path, program: str, said: str) -> None:
    assert said in notes(read(tmp_path, WRITTEN[program][0]).findings)


def test_format_named_by_the_user_brings_its_zone_and_order_of_dates(tmp_path: Path) -> None:
    kibot = rows("01/02/2024,{h}:{m:02d},{o},{H},{l},{c},{v}", start_hour=10)
    with pytest.raises(DataError, match=r"row 1: 1/2/2024 may be .* --date-order mdy or --date-order dmy"):
        read(tmp_path, kibot, zone="America/New_York")
    found = read(tmp_path, kibot, dialect="kibot")
    assert found.rows["ES"].stamp_ns[0] == START
    assert "stamps are wall time of America/New_York, as Kibot writes them" in notes(found.findings)
    other = read(tmp_path, kibot, zone="America/New_York", date_order="dmy")
    assert other.rows["ES"].stamp_ns[0] == ns("2024-02-01 15:00")


def test_histdata_and_ninjatrader_are_told_apart_by_the_volume_or_by_the_user(tmp_path: Path) -> None:
    empty, traded = WRITTEN["HistData"][0], WRITTEN["NinjaTrader"][0]
    assert "NinjaTrader writes the same lines" in warnings(read(tmp_path, empty).findings)[0]
    as_ninja = read(tmp_path, empty, dialect="NinjaTrader")
    assert (as_ninja.rows["ES"].stamp_ns[0], as_ninja.close_labelled) == (START - 5 * HOUR_NS, True)
    late = empty * 20 + traded
    with pytest.raises(DataError, match=r"es\.csv row 101: a volume, which HistData never writes.*--dialect"):
        read(tmp_path, late)


def test_zone_of_the_user_beats_that_of_the_format_with_a_warning(tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN["NinjaTrader"][0], zone="America/Chicago")
    assert found.rows["ES"].stamp_ns[0] == START + 6 * HOUR_NS
    doubt = "stamps are UTC, as NinjaTrader writes them; --tz America/Chicago was used instead"
    assert doubt in warnings(found.findings)


def test_binance_changes_its_unit_from_row_to_row(tmp_path: Path) -> None:
    line = "{},100,101,99,100,5,{},1.5,79,0.5,0.25,0\n"
    text = line.format(1735689540000, 1735689599999) + line.format(1735689600000000, 1735689659999999)
    found = read(tmp_path, text)
    assert found.rows["ES"].stamp_ns.tolist() == [ns("2024-12-31 23:59"), ns("2025-01-01 00:00")]
    assert "stamps are ms and us since 1970" in notes(found.findings)


def test_dukascopy_fills_closed_hours_with_flat_bars(tmp_path: Path) -> None:
    text = WRITTEN["Dukascopy"][0] + "06.01.2024 10:00:00.000,4800,4800,4800,4800,0\n"
    assert "flat bars without volume, as Dukascopy fills closed hours: 1 of 6" in warnings(
        read(tmp_path, text).findings
    )


def test_dukascopy_local_time_has_an_offset(tmp_path: Path) -> None:
    lines = rows("02.01.2024 17:{m:02d}:00.000 GMT+0200,{o},{H},{l},{c},{v}")
    assert read(tmp_path, "Local time,Open,High,Low,Close,Volume\n" + lines).rows["ES"].stamp_ns[0] == START


def test_ibkr_volume_of_minus_one_means_none(tmp_path: Path) -> None:
    text = "date,open,high,low,close,volume,average,barCount\n" + rows(
        "20240102-15:{m:02d}:00,{o},{H},{l},{c},-1,-1,-1"
    )
    found = read(tmp_path, text)
    assert (found.rows["ES"].stamp_ns[0], found.rows["ES"].volume.sum()) == (START, 0.0)
    assert "volume -1, IBKR's word for none, taken as 0: 5" in notes(found.findings)


@pytest.mark.parametrize(("volumes", "taken"), [("7\t0", 7.0), ("7\t3", 3.0)])
def test_metatrader_volume_is_that_of_trades_where_it_has_one(tmp_path: Path, volumes: str, taken: float) -> None:
    head = "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n"
    text = head + rows(f"2024.01.02\t17:{{m:02d}}:00\t{{o}}\t{{H}}\t{{l}}\t{{c}}\t{volumes}\t1")
    assert read(tmp_path, text, zone="UTC+2").rows["ES"].volume.tolist() == [taken] * 5


def test_investing_daily_quoted_with_suffixes(tmp_path: Path) -> None:
    text = '"Date","Price","Open","High","Low","Vol.","Change %"\n' + "".join(
        f'"Apr {day:02d}, 2019","2,890.88","2,888.5","2,897.62","2,880.25","{volume}","-0.24%"\n'
        for day, volume in ((8, "-"), (5, "1.37M"), (4, "779.92K"), (3, "1,200"))
    )
    found = read(tmp_path, text.encode("utf-8-sig"))
    bars = found.rows["ES"]
    assert bars.stamp_ns.tolist() == [ns(f"2019-04-0{day}") for day in (3, 4, 5, 8)]
    assert bars.volume.tolist() == [1200.0, 779_920.0, 1_370_000.0, 0.0]
    assert bars.close_e9[0] == 2_890_880_000_000
    assert "read as investing.com" in notes(found.findings)[0]


def test_adjusted_close_is_not_taken_for_the_close(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="An adjusted close is no price that was traded"):
        read(tmp_path, "Date,Open,High,Low,Adj Close,Volume\n2024-01-02,1,2,1,2,5\n")


def test_lean_minutes_have_their_day_and_contract_in_the_name(tmp_path: Path) -> None:
    text = "54000000,4800.25,4802,4799,4801.5,10\n54060000,4801.5,4802,4799,4800,20\n"
    name = "20240102_es_minute_trade_202403.csv"
    header = open_table(probe(put(tmp_path, name, text)))
    parsed = parse_table(header)
    assert [(span.label, span.first_day) for span in spans(parsed)] == [("ESH4", START // DAY_NS)]
    found = table_rows(parsed, ("ESH4",), zone=None, bar_label=None)
    assert found.rows["ESH4"].stamp_ns.tolist() == [START, START + MINUTE_NS]
    assert header.has_symbols
    assert "stamps are UTC, as LEAN writes them" in notes(found.findings)
    with pytest.raises(DataError, match="LEAN's openinterest file; bars of trades are needed"):
        open_table(probe(put(tmp_path, "20240102_es_minute_openinterest_202403.csv", "21960000,2691941\n")))


def test_lean_hours_have_their_contract_in_the_name(tmp_path: Path) -> None:
    text = "20240102 14:00,4800.25,4802,4799,4801.5,10\n20240102 15:00,4801.5,4802,4799,4800,20\n"
    parsed = parse_table(open_table(probe(put(tmp_path, "es_trade_202403.csv", text))))
    found = table_rows(parsed, ("ESH4",), zone=None, bar_label=None)
    assert found.rows["ESH4"].stamp_ns.tolist() == [START - HOUR_NS, START]


def test_unknown_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"--dialect ninja: unknown \(did you mean ninjatrader\?\)\. Known are barchart"
    ):
        check_options(TextOptions(dialect="ninja"))
    with pytest.raises(ConfigError, match=r"--columns .*: 'hihg' is no kind of column \(did you mean high\?\)"):
        check_options(TextOptions(columns="datetime,open,hihg,low,close"))
    with pytest.raises(ConfigError, match="missing: low"):
        check_options(TextOptions(columns="datetime,open,high,-,close"))
    with pytest.raises(ConfigError, match="--date-order ddmm: allowed are mdy, dmy, ymd"):
        check_options(TextOptions(date_order="ddmm"))
    assert named("sierra-chart").name == "Sierra Chart"


def test_shapes_belong_to_known_formats() -> None:
    assert by_shape(["2024-01-02 15:00:00,1,2,1,2,5,9,9"]) is None
    assert by_shape(["2024-01-02 15:00:00,1,2,1,2,5", "2024-01-02 15:01:00,1,2,1,2,5,6,7"]) is None
    assert by_shape([]) is None
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)


def test_barchart_calls_the_close_latest(tmp_path: Path) -> None:
    text = "Time,Open,High,Low,Latest,Change,%Change,Volume\n2024-01-02 09:01,2,3,1,2,0,0.0%,5\n"
    header = open_table(probe(put(tmp_path, "b.csv", text + "2024-01-02 09:00,2,3,1,2,0,0.0%,5\n")))
    assert header.dialect.name == "Barchart"
    assert header.columns.close == 4
