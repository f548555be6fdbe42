"""The tables against LEAN's market hours, two calendar packages, announcements of the exchange, and real bars."""

import datetime
import json
from zoneinfo import ZoneInfo

import numpy as np
import polars
import pytest

from tidewalk.data.calendar.hours import GROUPS
from tidewalk.data.calendar.sessions import outside_findings, schedule, scheduled_minutes, session_columns

DATE = datetime.date
TIME = datetime.time
EPOCH = DATE(1970, 1, 1)
ONE_DAY = datetime.timedelta(days=1)
CHICAGO = ZoneInfo("America/Chicago")
MINUTE_NS = 60 * 10**9
DAY_NS = 1440 * MINUTE_NS


def hours(rule: str, first: DATE, last: DATE, zone: ZoneInfo = CHICAGO):
    """Local open and close of each trade date, and whether it is short."""
    table = schedule(first, last, rule)
    local = [
        [datetime.datetime.fromtimestamp(at // 10**9, zone).replace(tzinfo=None) for at in column.tolist()]
        for column in (table.open_ns, table.close_ns)
    ]
    dates = [EPOCH + datetime.timedelta(days=day) for day in table.trade_day.tolist()]
    return dict(zip(dates, zip(*local, table.is_short.tolist(), strict=True), strict=True))


def close_on(rule: str, date: DATE) -> TIME | None:
    """Local closing time of a trade date; None where it has no session."""
    found = hours(rule, date, date)
    return found[date][1].time() if date in found else None


def at(text: str) -> TIME:
    return TIME.fromisoformat(text)


@pytest.mark.parametrize(
    ("rule", "date", "close"),
    [
        # CME Group, 2018-12-02: "closing after overnight trading at 8:30 a.m."; rates "will not reopen until ...
        # Dec. 6"; "all other markets will remain open for regular trading hours".
        ("cme-equity", DATE(2018, 12, 5), "08:30"),
        ("cme-rates", DATE(2018, 12, 5), None),
        *((rule, DATE(2018, 12, 5), "16:00") for rule in ("cme-fx", "nymex-energy", "comex-metals", "cme-crypto")),
        # CME Group, 2024-12-30: equity 8:30, interest rates and agriculture 12:15, the others normal.
        ("cme-equity", DATE(2025, 1, 9), "08:30"),
        ("cme-rates", DATE(2025, 1, 9), "12:15"),
        ("cbot-grains", DATE(2025, 1, 9), "12:15"),
        *((rule, DATE(2025, 1, 9), "16:00") for rule in ("cme-fx", "nymex-energy", "comex-metals", "cme-crypto")),
        # CME Group, 2012-10-28 and 29: Hurricane Sandy.
        ("cme-equity", DATE(2012, 10, 29), "08:15"),
        ("cme-equity", DATE(2012, 10, 30), "08:15"),
        ("cme-rates", DATE(2012, 10, 29), "11:00"),
        ("cme-rates", DATE(2012, 10, 30), "16:00"),
        ("nymex-energy", DATE(2012, 10, 29), "16:15"),
        # A broker's transcript of July 2013, and of Christmas Eve 2013.
        ("cme-equity", DATE(2013, 7, 3), "12:15"),
        ("cbot-grains", DATE(2013, 7, 4), None),
        *((rule, DATE(2013, 7, 3), "16:00") for rule in ("cme-fx", "cme-rates")),
        *((rule, DATE(2013, 7, 4), "12:00") for rule in ("cme-fx", "cme-rates")),
        ("nymex-energy", DATE(2013, 7, 4), "12:15"),
        ("cme-equity", DATE(2013, 7, 4), "10:30"),
        *((rule, DATE(2013, 12, 24), "12:15") for rule in ("cme-equity", "cme-rates", "cme-fx")),
        ("nymex-energy", DATE(2013, 12, 24), "12:45"),
        # DTN, July 2024 and Presidents' Day 2023.
        ("cme-equity", DATE(2024, 7, 3), "12:15"),
        *((rule, DATE(2024, 7, 3), "16:00") for rule in ("cme-rates", "nymex-energy", "cme-fx", "cme-crypto")),
        *((rule, DATE(2024, 7, 4), "12:00") for rule in ("cme-equity", "cme-rates")),
        *((rule, DATE(2024, 7, 4), "13:30") for rule in ("nymex-energy", "comex-metals")),
        *((rule, DATE(2023, 2, 20), "16:00") for rule in ("cme-fx", "cme-crypto")),
        ("cbot-grains", DATE(2023, 2, 20), None),
        # CME Group, 2007-08-20, on Labor Day.
        ("cme-equity", DATE(2007, 9, 3), "10:30"),
        *((rule, DATE(2007, 9, 3), "12:00") for rule in ("cme-rates", "cme-fx")),
        ("nymex-energy", DATE(2007, 9, 3), "16:15"),
        *((rule, DATE(2007, 8, 31), "15:15") for rule in ("cme-rates", "cme-fx")),
    ],
)
def test_what_the_exchange_announced(rule, date, close):
    assert close_on(rule, date) == (None if close is None else at(close))


@pytest.mark.parametrize(
    ("rule", "date", "opens", "closes", "pause"),
    [
        # E-mini S&P until 2012-11-16: a trade date began at 15:30 of the day before and paused from 16:30 to 17:00.
        ("cme-equity", DATE(2012, 11, 15), (-1, "15:30"), "15:15", (-1, "16:30", "17:00")),
        ("cme-equity", DATE(2012, 11, 12), (-1, "17:00"), "15:15", None),  # a Monday
        ("cme-equity", DATE(2012, 7, 5), (-1, "17:00"), "15:15", None),  # after a short day
        ("cme-equity", DATE(2012, 11, 19), (-1, "17:00"), "16:15", (0, "15:15", "15:30")),
        ("cme-equity", DATE(2015, 9, 18), (-1, "17:00"), "16:15", (0, "15:15", "15:30")),
        ("cme-equity", DATE(2015, 9, 21), (-1, "17:00"), "16:00", (0, "15:15", "15:30")),
        ("cme-equity", DATE(2021, 6, 25), (-1, "17:00"), "16:00", (0, "15:15", "15:30")),
        ("cme-equity", DATE(2021, 6, 28), (-1, "17:00"), "16:00", None),
        ("nymex-energy", DATE(2015, 9, 18), (-1, "17:00"), "16:15", None),
        ("comex-metals", DATE(2015, 9, 21), (-1, "17:00"), "16:00", None),
        ("cme-rates", DATE(2012, 11, 15), (-1, "17:00"), "16:00", None),
        # Index, rate and currency futures after Christmas and New Year 2011 to 2013.
        ("cme-equity", DATE(2012, 12, 26), (0, "05:00"), "16:15", (0, "15:15", "15:30")),
        ("cme-rates", DATE(2014, 1, 2), (0, "05:00"), "16:00", None),
        ("nymex-energy", DATE(2014, 1, 2), (-1, "17:00"), "16:15", None),
        ("cme-fx", DATE(2015, 1, 2), (-1, "17:00"), "16:00", None),
        # Bitcoin around the clock since the evening of 2026-05-29; the 3rd of July is no trade date then.
        ("cme-crypto", DATE(2026, 5, 29), (-1, "17:00"), "16:00", None),
        ("cme-crypto", DATE(2026, 6, 1), (-3, "16:00"), "16:00", None),
        ("cme-crypto", DATE(2026, 6, 2), (-1, "16:00"), "16:00", None),
        ("cme-crypto", DATE(2026, 7, 6), (-4, "16:00"), "16:00", None),
        # Corn: 17 hours, then 21, then the night, a pause and the day.
        ("cbot-grains", DATE(2012, 5, 18), (-1, "18:00"), "13:15", (0, "07:15", "09:30")),
        ("cbot-grains", DATE(2012, 5, 21), (-1, "17:00"), "14:00", None),
        ("cbot-grains", DATE(2013, 4, 8), (-1, "19:00"), "13:15", (0, "07:45", "08:30")),
        ("cbot-grains", DATE(2015, 7, 6), (-1, "19:00"), "13:20", (0, "07:45", "08:30")),
        ("cbot-grains", DATE(2018, 12, 26), (0, "08:30"), "13:20", None),
    ],
)
def test_eras_of_regular_hours(rule, date, opens, closes, pause):
    def utc_ns(days: int, clock: str) -> int:
        local = datetime.datetime.combine(date + days * ONE_DAY, at(clock), CHICAGO)
        return int(local.timestamp()) * 10**9

    table = schedule(date, date, rule)
    assert table.open_ns.tolist() == [utc_ns(*opens)]
    assert table.close_ns.tolist() == [utc_ns(0, closes)]
    pauses = [] if pause is None else [(utc_ns(pause[0], pause[1]), utc_ns(pause[0], pause[2]))]
    found = [(a, b) for a, b in zip(table.halt_from_ns.tolist(), table.halt_to_ns.tolist(), strict=True) if a < b]
    assert found == pauses


def test_eurex_opens_at_one_hour_of_singapore_all_year():
    berlin = ZoneInfo("Europe/Berlin")
    found = hours("eurex-index", DATE(2018, 12, 7), DATE(2024, 7, 1), berlin)
    assert [moment.time() for moment in found[DATE(2018, 12, 7)][:2]] == [at("07:50"), at("22:00")]
    assert [moment.time() for moment in found[DATE(2018, 12, 10)][:2]] == [at("01:00"), at("22:00")]
    assert [moment.time() for moment in found[DATE(2024, 7, 1)][:2]] == [at("02:00"), at("22:00")]
    assert DATE(2024, 4, 1) not in found  # Easter Monday
    assert DATE(2024, 5, 1) not in found


LEAN = {
    "Future-cme-ES": "cme-equity",
    "Future-cme-NQ": "cme-equity",
    "Future-cme-RTY": "cme-equity",
    "Future-cbot-YM": "cme-equity",
    "Future-cme-MES": "cme-equity",
    "Future-cme-MNQ": "cme-equity",
    "Future-cbot-ZN": "cme-rates",
    "Future-cbot-ZB": "cme-rates",
    "Future-cme-6E": "cme-fx",
    "Future-nymex-CL": "nymex-energy",
    "Future-comex-GC": "comex-metals",
    "Future-cme-BTC": "cme-crypto",
}
BLACK_FRIDAY_2024 = DATE(2024, 11, 29)  # in no entry
LEAN_LACKS = {
    "cme-equity": {
        *(DATE(2012, 10, 29), DATE(2012, 10, 30), DATE(2018, 12, 5), DATE(2025, 1, 9)),
        *(DATE(2023, 7, 3), DATE(2024, 7, 3), BLACK_FRIDAY_2024),
    },
    "cme-rates": {DATE(2012, 10, 29), DATE(2025, 1, 9), BLACK_FRIDAY_2024},
    "cme-fx": {BLACK_FRIDAY_2024},
    "nymex-energy": {BLACK_FRIDAY_2024},
    "comex-metals": {BLACK_FRIDAY_2024},
    "cme-crypto": {BLACK_FRIDAY_2024, DATE(2018, 2, 19)},  # Presidents' Day
}


@pytest.mark.parametrize("entry", LEAN)
def test_every_early_close_and_late_open_of_lean(entry, shared_data):
    """All of 2009-2026: what LEAN lists is ours, and what is ours LEAN lists, but for the differences named here."""
    rule, table = LEAN[entry], json.loads((shared_data / "reference" / "lean_market_hours_cme_subset.json").read_text())
    theirs = table["entries"][entry]
    behind = 1 if theirs["exchangeTimeZone"] == "America/New_York" else 0

    def times(column: str) -> dict[DATE, TIME]:
        return {
            datetime.datetime.strptime(day, "%m/%d/%Y").date(): TIME(int(clock[:2]) - behind, int(clock[3:5]))
            for day, clock in theirs[column].items()
        }

    closes, opens = times("earlyCloses"), times("lateOpens")
    ours = hours(rule, DATE(2009, 1, 1), DATE(2027, 12, 31))
    closes.pop(DATE(2025, 12, 25), None)  # Christmas as a full session: its own bank holidays say otherwise
    if entry in ("Future-cbot-ZN", "Future-cbot-ZB"):
        assert closes[DATE(2011, 5, 30)] == at("10:30")  # that of the index futures; pandas_market_calendars: 12:00
        closes[DATE(2011, 5, 30)] = at("12:00")
    if rule == "cme-crypto":  # written before trading around the clock
        closes = {day: close for day, close in closes.items() if day < DATE(2026, 6, 1)}
        opens = {day: time for day, time in opens.items() if day < DATE(2026, 6, 1)}
    if opens.get(DATE(2020, 7, 3)):
        del opens[DATE(2020, 7, 3)]  # the evening of a Friday
    assert {day: ours[day][1].time() for day in closes} == closes
    ends = min(max(closes), DATE(2026, 12, 31))
    short = {day for day, (*_, is_short) in ours.items() if is_short and min(closes) <= day <= ends}
    assert short - set(closes) == {day for day in LEAN_LACKS[rule] if day >= min(closes)}
    days = sorted(ours)
    following = {day: next(later for later in days if later > day) for day in opens}
    assert {day: ours[following[day]][0] for day in opens} == {
        day: datetime.datetime.combine(day, time) for day, time in opens.items()
    }
    assert len(closes) + len(opens) > 50


# Where the packages are wrong, and what is right: announcements (see above) and days with or without trades of ES.
NO_SESSION = {DATE(2024, 3, 29), DATE(2025, 4, 18), DATE(2027, 3, 26)}  # Good Fridays without a report
LATE = {DATE(2012, 12, 26), DATE(2013, 1, 2), DATE(2013, 12, 26), DATE(2014, 1, 2)}
COLUMBUS = {DATE(2009, 10, 9), DATE(2010, 10, 8), DATE(2011, 10, 7), DATE(2012, 10, 5)}  # LEAN has them
ALL_YEARS = (DATE(2009, 1, 1), DATE(2027, 12, 31))


@pytest.mark.filterwarnings("ignore")  # the calendars' own, about pandas
@pytest.mark.parametrize(
    ("calendar", "rule", "span", "wrong_there"),
    [
        (
            "CME Globex Equity",
            "cme-equity",
            (DATE(2012, 11, 19), DATE(2027, 12, 31)),
            NO_SESSION | LATE | {DATE(2018, 12, 5), DATE(2025, 1, 9)},
        ),
        (
            "CME Globex Fixed Income",
            "cme-rates",
            ALL_YEARS,
            NO_SESSION
            | LATE
            | COLUMBUS
            | {DATE(2011, 12, 27), DATE(2012, 1, 3), DATE(2012, 10, 29), DATE(2018, 12, 5), DATE(2025, 1, 9)},
        ),
        ("CMEGlobex_FX", "cme-fx", (DATE(2020, 1, 1), DATE(2022, 12, 31)), set()),  # the years it says it knows
        ("CME Globex Crypto", "cme-crypto", (DATE(2018, 1, 1), DATE(2023, 6, 30)), set()),
    ],
)
def test_pandas_market_calendars_agrees(calendar, rule, span, wrong_there):
    mcal = pytest.importorskip("pandas_market_calendars")
    table = mcal.get_calendar(calendar).schedule(*span)
    theirs = {
        day.date(): tuple(moment.tz_convert(CHICAGO).tz_localize(None).to_pydatetime() for moment in moments)
        for day, *moments in zip(table.index, table["market_open"], table["market_close"], strict=True)
    }
    ours = {day: (open_, close) for day, (open_, close, _) in hours(rule, *span).items()}
    different = {day for day in theirs.keys() | ours.keys() if theirs.get(day) != ours.get(day)}
    # It does not have the close of 16:15 until September 2015.
    old_close = {day for day in different if day < DATE(2015, 9, 21) and ours[day][1].time() == at("16:15")}
    assert different - (old_close - LATE if rule == "cme-equity" else set()) == wrong_there
    assert len(ours) > 700


@pytest.mark.filterwarnings("ignore")  # the calendar's own, about pandas
def test_exchange_calendars_has_the_same_trade_dates():
    xcals = pytest.importorskip("exchange_calendars")
    theirs = {day.date() for day in xcals.get_calendar("CMES", start="2012-11-19", end="2026-11-27").sessions}
    ours = set(hours("cme-equity", DATE(2012, 11, 19), DATE(2026, 11, 27)))
    good_fridays_with_report = {DATE(2015, 4, 3), DATE(2021, 4, 2), DATE(2023, 4, 7), DATE(2026, 4, 3)}
    assert theirs - ours == set()
    assert ours - theirs == good_fridays_with_report | {DATE(2018, 12, 5), DATE(2025, 1, 9)}


@pytest.mark.parametrize("rule", GROUPS)
def test_sessions_follow_each_other_and_pauses_lie_inside(rule):
    table = schedule(DATE(2009, 1, 1), DATE(2030, 12, 31), rule)
    assert (table.close_ns > table.open_ns).all()
    assert (table.open_ns[1:] >= table.close_ns[:-1]).all()
    assert (table.halt_from_ns >= table.open_ns).all()
    assert (table.halt_to_ns >= table.halt_from_ns).all()
    assert (table.halt_to_ns <= table.close_ns).all()


@pytest.mark.parametrize("rule", GROUPS)
def test_sessions_per_year(rule):
    fewest, most = {"cbot-grains": (248, 253), "cme-rates": (256, 260)}.get(rule, (249, 260))
    for year in range(2009, 2026):
        assert fewest <= schedule(DATE(year, 1, 1), DATE(year, 12, 31), rule).trade_day.size <= most


def utc_days(rule: str, first: DATE, last: DATE) -> set[DATE]:
    """UTC dates in [first, last] on which something is scheduled to trade."""
    table = schedule(first - 10 * ONE_DAY, last + 10 * ONE_DAY, rule)
    spans = zip((table.open_ns // DAY_NS).tolist(), ((table.close_ns - 1) // DAY_NS).tolist(), strict=True)
    days = {EPOCH + datetime.timedelta(days=day) for start, stop in spans for day in range(start, stop + 1)}
    return {day for day in days if first <= day <= last}


# What the vendor's files lack: sessions of holidays on a Monday in 2013, and single days. On 2014-08-24 the exchange
# itself opened four hours late.
HOLIDAY_SUNDAYS = {
    *(DATE(2013, 1, 20), DATE(2013, 2, 17), DATE(2013, 5, 26), DATE(2013, 9, 1)),
    *(DATE(2014, 1, 19), DATE(2014, 2, 16)),
}
GLOBEX_LACKS = HOLIDAY_SUNDAYS | {
    *(DATE(2014, 6, 12), DATE(2014, 6, 13), DATE(2014, 8, 24)),
    *(DATE(2014, 9, 23), DATE(2014, 9, 24), DATE(2014, 9, 25), DATE(2014, 12, 31)),
}
CL_HAS = {DATE(2014, 6, 12), DATE(2014, 8, 24), DATE(2014, 12, 31)}


@pytest.mark.parametrize(
    ("root", "rule", "lacking"),
    [
        ("es", "cme-equity", GLOBEX_LACKS),
        ("nq", "cme-equity", GLOBEX_LACKS),
        ("ym", "cme-equity", HOLIDAY_SUNDAYS | {DATE(2014, 8, 24), DATE(2014, 10, 3), DATE(2020, 2, 28)}),
        ("cl", "nymex-energy", GLOBEX_LACKS - CL_HAS | {DATE(2020, 2, 28)}),
        ("zn", "cme-rates", None),  # the vendor's front contract is all but expired around each roll
        ("6e", "cme-fx", None),
    ],
)
def test_sixteen_years_trade_on_the_days_scheduled_and_on_no_other(root, rule, lacking, shared_data):
    """UTC days with a bar are those that a session touches: Sundays, Good Fridays, evenings of holidays and all."""
    path = shared_data / "csv" / f"databento_{root}.c.0_daily_2010-2026.csv"
    table = polars.read_csv(path, try_parse_dates=True)
    traded = set(table["date"].to_list())
    scheduled = utc_days(rule, min(traded), max(traded))
    assert traded - scheduled == set()
    assert len(traded) > 4_700
    if lacking is not None:
        assert scheduled - traded == lacking


def placed(ts_ns: np.ndarray, rule: str):
    """Session columns of real bars none of which lies outside the hours."""
    columns = session_columns(ts_ns, rule)
    assert outside_findings(ts_ns, columns, rule) == ()
    last = np.flatnonzero(np.diff(columns.trade_day, append=columns.trade_day[-1:] + 1))
    first = np.flatnonzero(np.diff(columns.trade_day, prepend=columns.trade_day[:1] - 1))
    return columns, first, last


def from_wall_time(path, column: str, zone: str) -> np.ndarray:
    """UTC nanoseconds of a column of naive local times."""
    at = polars.read_csv(path, columns=[column])[column].str.to_datetime(time_unit="ns")
    return at.dt.replace_time_zone(zone, ambiguous="earliest").dt.convert_time_zone("UTC").dt.epoch("ns").to_numpy()


def test_a_whole_real_year_begins_and_ends_as_scheduled(shared_data):
    """NQ, every five minutes of 2019, both clock changes and all holidays: a vendor's stamps in Pacific time."""
    ts_ns = from_wall_time(shared_data / "csv" / "nq_5min_2019_pacific.csv", "DT", "America/Los_Angeles")
    columns, first, last = placed(ts_ns, "cme-equity")
    assert columns.trade_day.size == 70_002
    assert set(columns.minute_of_session[first].tolist()) == {0}
    assert set(columns.minutes_to_close[last].tolist()) == {5}
    scheduled = schedule(DATE(2019, 1, 1), DATE(2019, 12, 31), "cme-equity").trade_day
    days, bars = np.unique(columns.trade_day, return_counts=True)
    np.testing.assert_array_equal(days, scheduled)
    lacking = dict(zip(days.tolist(), (scheduled_minutes("cme-equity", days) // 5 - bars).tolist(), strict=True))
    # The exchange stood still for three hours on the evening of 2019-02-26.
    assert {day: count for day, count in lacking.items() if count} == {(DATE(2019, 2, 27) - EPOCH).days: 36}


def test_real_ticks_stop_at_the_pause_and_at_the_old_close(shared_data):
    """41,123 bars of 2,800 trades, stamped by their last one, in the two years around the change of the close."""
    ts_ns = from_wall_time(shared_data / "csv" / "es_tick-bars_2015-2016.csv", "date_time", "UTC")
    columns, *_ = placed(ts_ns - 1, "cme-equity")
    local = [datetime.datetime.fromtimestamp(stamp_ns // 10**9, CHICAGO) for stamp_ns in ts_ns.tolist()]
    late = [moment.date() for moment in local if at("16:00") < moment.time() < at("16:15")]
    assert len(late) >= 20
    assert max(late) <= DATE(2015, 9, 18)
    assert np.unique(columns.trade_day).size == 517


def test_real_euro_minutes_of_a_month(shared_data):
    """6E in January 2024, stamped at the end of each minute; Martin Luther King's Day is a whole session."""
    ts_ns = from_wall_time(shared_data / "csv" / "6eh4_1min_2024-01_utc.csv.gz", "timestamp_utc", "UTC") - MINUTE_NS
    columns, first, last = placed(ts_ns, "cme-fx")
    assert set(columns.minute_of_session[first].tolist()) == {0}
    assert set(columns.minutes_to_close[last[:-1]].tolist()) == {1}
    holiday = (DATE(2024, 1, 15) - EPOCH).days
    assert np.count_nonzero(columns.trade_day == holiday) > 1200


def test_real_minutes_around_presidents_day(shared_data):
    table = polars.read_csv(shared_data / "csv" / "esh20_1min_2020-01_2020-02_barchart-api.csv")
    at_ns = [int(datetime.datetime.fromisoformat(text).timestamp()) * 10**9 for text in table["timestamp"]]
    columns, first, last = placed(np.array(at_ns), "cme-equity")
    assert set(columns.minute_of_session[first[1:]].tolist()) == {0}
    assert set(columns.minutes_to_close[last[:-1]].tolist()) == {1}
    # The vendor's trading day is ours, but for the holiday, which the exchange books under the day after.
    theirs = [datetime.datetime.strptime(text, "%m/%d/%Y").date() for text in table["tradingDay"]]
    ours = [EPOCH + datetime.timedelta(days=day) for day in columns.trade_day.tolist()]
    different = {(a, b) for a, b in zip(theirs, ours, strict=True) if a != b}
    assert different == {(DATE(2020, 2, 18), DATE(2020, 2, 17))}


def test_real_prints_of_a_saturday_are_found(shared_data):
    """DAX futures with mock trading on a Saturday and lone prints on Sundays and holidays, Frankfurt time."""
    lines = (shared_data / "csv" / "fdax_30min_2023-2024_sierrachart.txt").read_text().splitlines()[1:]
    cells = [line.split(", ")[:2] for line in lines]
    wall = [datetime.datetime(*map(int, day.split("-")), int(time[:2]), int(time[3:5])) for day, time in cells]
    ts_ns = np.array([int(moment.replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()) * 10**9 for moment in wall])
    findings = outside_findings(ts_ns, session_columns(ts_ns, "eurex-index"), "eurex-index", 30 * MINUTE_NS)
    assert [(finding.count, finding.text[:28]) for finding in findings] == [
        (16, "16 bars lie on a weekend, ou"),
        (2, "2 bars lie on a full holiday"),
    ]
