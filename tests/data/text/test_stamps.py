"""Stamps in every form that vendors write, and none guessed."""

import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.data.text.stamps import Stamps, looks_like_stamp, parse_stamps

MOMENTS = st.datetimes(datetime.datetime(1990, 1, 2), datetime.datetime(2099, 12, 30))


def parse(*texts: str, times: list[str] | None = None) -> Stamps:
    return parse_stamps(pl.Series(list(texts)), None if times is None else pl.Series(times), "f.csv")


def seen(stamps: Stamps) -> list[str]:
    return [str(np.datetime64(int(value), "ms")).replace("T", " ") for value in stamps.ns // 10**6]


@pytest.mark.parametrize(
    ("text", "expected", "form"),
    [
        ("2019-01-01 15:00:00", "2019-01-01 15:00:00.000", "naive"),
        ("2019-01-01T15:00", "2019-01-01 15:00:00.000", "naive"),
        ("2015-01-01 23:16:58.834", "2015-01-01 23:16:58.834", "naive"),
        ("2020-01-23T00:00:00-06:00", "2020-01-23 06:00:00.000", "utc"),
        ("2020-01-23 00:00:00+0530", "2020-01-22 18:30:00.000", "utc"),
        ("2020-01-23 00:00:00+05", "2020-01-22 19:00:00.000", "utc"),
        ("2020-01-23T00:00:00.000000000Z", "2020-01-23 00:00:00.000", "utc"),
        ("2020-01-23 00:00:00 UTC", "2020-01-23 00:00:00.000", "utc"),
        ("1/23/2020 15:59", "2020-01-23 15:59:00.000", "naive"),
        ("1/23/2020 3:59 PM", "2020-01-23 15:59:00.000", "naive"),
        ("1/23/2020 12:05:00 am", "2020-01-23 00:05:00.000", "naive"),
        ("23.01.2020 03:00:00.500", "2020-01-23 03:00:00.500", "naive"),
        ("23/1/2020", "2020-01-23 00:00:00.000", "date"),
        ("20200123 093000", "2020-01-23 09:30:00.000", "naive"),
        ("20200123093000", "2020-01-23 09:30:00.000", "naive"),
        ("202001230930", "2020-01-23 09:30:00.000", "naive"),
        ("20200123  09:30:00", "2020-01-23 09:30:00.000", "naive"),
        ("20200123", "2020-01-23 00:00:00.000", "date"),
        ("2020-1-2", "2020-01-02 00:00:00.000", "date"),
        ("Apr 08, 2019", "2019-04-08 00:00:00.000", "date"),
        ("8 April 2019 09:30", "2019-04-08 09:30:00.000", "naive"),
        ("08-Apr-2019", "2019-04-08 00:00:00.000", "date"),
        ("1655321400", "2022-06-15 19:30:00.000", "utc"),
        ("1655321400.25", "2022-06-15 19:30:00.250", "utc"),
        ("1637971200000", "2021-11-27 00:00:00.000", "utc"),
        ("1637971200000000", "2021-11-27 00:00:00.000", "utc"),
        ("1637971200000000000", "2021-11-27 00:00:00.000", "utc"),
        ("915148800000", "1999-01-01 00:00:00.000", "utc"),  # 12 digits, and no YYYYMMDDHHMM
    ],
)
def test_forms(text: str, expected: str, form: str) -> None:
    stamps = parse(text)
    assert (seen(stamps), stamps.form, stamps.valid.all()) == ([expected], form, True)
    assert looks_like_stamp(text)


@settings(deadline=None)  # the machine may be busy
@given(moment=MOMENTS)
def test_forms_agree_on_every_moment(moment: datetime.datetime) -> None:
    moment = moment.replace(microsecond=0)
    count = int((moment - datetime.datetime(1970, 1, 1)).total_seconds())
    texts = [
        moment.isoformat(" "),
        moment.strftime("%Y%m%d %H%M%S"),
        moment.strftime("%Y/%m/%d %I:%M:%S %p"),
        moment.strftime("%d %b %Y %H:%M:%S"),
        str(count),
        str(count * 1000),
    ]
    assert {int(parse(text).ns[0]) for text in texts} == {count * 10**9}


def test_each_row_may_have_its_own_unit_of_the_epoch() -> None:
    # Binance: milliseconds to the end of 2024, microseconds since.
    stamps = parse("1735689540000", "1735689600000000")
    assert seen(stamps) == ["2024-12-31 23:59:00.000", "2025-01-01 00:00:00.000"]
    assert [f.text for f in stamps.findings] == ["stamps are ms and us since 1970"]


@pytest.mark.parametrize("text", ["999999999999999999", "600000000"])
def test_counts_outside_the_century_are_refused(text: str) -> None:
    if text == "600000000":
        with pytest.raises(DataError, match="600000000 lies outside 1990 to 2100"):
            parse(text)
    else:
        assert seen(parse(text)) == ["2001-09-09 01:46:39.999"]


@pytest.mark.parametrize(
    ("dates", "times", "expected"),
    [
        (["2023-8-28"], ["02:00:00.000000"], "2023-08-28 02:00:00.000"),
        (["20230828"], ["0930"], "2023-08-28 09:30:00.000"),
        (["8/28/2023"], ["930"], "2023-08-28 09:30:00.000"),
        (["20230828"], ["93005"], "2023-08-28 09:30:05.000"),
        (["2023.08.28"], ["2023-08-29 10:00"], "2023-08-29 10:00:00.000"),
    ],
)
def test_date_and_time_in_two_columns(dates: list[str], times: list[str], expected: str) -> None:
    assert seen(parse(*dates, times=times)) == [expected]


def test_month_and_day_are_settled_by_any_date_of_the_file() -> None:
    assert seen(parse("1/3/2020 15:59", "12/31/2019 15:59"))[0] == "2020-01-03 15:59:00.000"
    assert seen(parse("1/3/2020 15:59", "31/12/2019 15:59"))[0] == "2020-03-01 15:59:00.000"


def test_month_and_day_are_settled_by_the_order_of_rows() -> None:
    stamps = parse("1/2/2020", "1/3/2020", "1/6/2020", "2/3/2020")
    assert seen(stamps)[3] == "2020-02-03 00:00:00.000"
    assert "only so are the rows in time order" in stamps.findings[0].text
    assert seen(parse("12/1/2020", "1/2/2020", "2/2/2020"))[0] == "2020-01-12 00:00:00.000"


def test_month_and_day_that_nothing_settles_are_refused() -> None:
    with pytest.raises(
        DataError,
        match=r"f\.csv row 1: 1/3/2020 may be .* --date-order mdy or --date-order dmy",
    ):
        parse("1/3/2020 15:59", "1/2/2020 15:59")
    with pytest.raises(DataError, match="dates mix day/month/year and month/day/year"):
        parse("13/1/2020", "1/13/2020")


def test_offsets_in_some_rows_only_are_refused() -> None:
    with pytest.raises(DataError, match="some stamps have an offset from UTC and some have none"):
        parse("2020-01-23 00:00:00-06:00", "2020-01-23 00:01:00")


@pytest.mark.parametrize("text", ["2020-02-30 10:00", "2020-13-01 10:00", "2020-01-01 25:00", "x", "", "Ticker"])
def test_impossible_stamps_are_not_valid(text: str) -> None:
    assert parse("2020-01-01 10:00", text).valid.tolist() == [True, False]


def test_unknown_form_is_refused_with_examples() -> None:
    with pytest.raises(DataError, match=r"f\.csv: the stamp 'tomorrow' has no known form\. Known are 2024-01-31"):
        parse("tomorrow")
    assert not looks_like_stamp("4801.25")
    assert not looks_like_stamp("ESZ4")


def test_typed_columns() -> None:
    wall = pl.Series([datetime.datetime(2024, 1, 2, 15)])
    assert parse_stamps(wall, None, "f").form == "naive"
    for unit in ("ms", "us", "ns"):
        zoned = wall.cast(pl.Datetime(unit)).dt.replace_time_zone("America/Chicago")
        stamps = parse_stamps(zoned, None, "f")
        assert (seen(stamps), stamps.form) == (["2024-01-02 21:00:00.000"], "utc")
    assert parse_stamps(pl.Series([datetime.date(2024, 1, 2)]), None, "f").form == "date"
    assert seen(parse_stamps(pl.Series([1655321400000]), None, "f")) == ["2022-06-15 19:30:00.000"]
    assert parse_stamps(pl.Series([None, datetime.datetime(2024, 1, 2)]), None, "f").valid.tolist() == [False, True]


OTHERWISE = {  # the same moments, written so that the quick way does not serve
    "2024-01-02 15:04:05": "2024-1-02 15:04:05",
    "2024-01-02T15:04:05Z": "2024-1-02T15:04:05Z",
    "2024-01-02T15:04:05.123456789-06:00": "2024-1-02T15:04:05.123456789-06:00",
    "20240102 150405": "20240102  150405",
    "20240102T15:04": "20240102_T15:04",
    "2024-01-02": "2024-1-02",
    "2024/02/29 15:04": "2024/2/29 15:04",
}


@settings(deadline=None)
@given(
    first=st.sampled_from(list(OTHERWISE)),
    at=st.integers(0, 34),
    char=st.sampled_from("0123456789-:. TZ+/x"),
    drop=st.booleans(),
)
def test_law_rows_like_the_first_are_read_as_any_other_row(first: str, at: int, char: str, *, drop: bool) -> None:
    # The quick way for rows written as the first one must read neither more nor otherwise than the slow one.
    at %= len(first)
    odd = first[:at] + ("" if drop else char) + first[at + 1 :]
    try:
        quick = parse(first, odd)
    except DataError as error:  # an offset in one of the two rows only
        with pytest.raises(DataError, match=str(error).partition(":")[0]):
            parse(OTHERWISE[first], odd)
        return
    alone = parse(OTHERWISE[first], odd)
    assert (quick.ns.tolist(), quick.valid.tolist()) == (alone.ns.tolist(), alone.valid.tolist())


@pytest.mark.parametrize(
    ("text", "expected", "zones"),
    [
        ("20231002 09:30:00 US/Central", "2023-10-02 09:30:00.000", {"US/Central"}),
        ("20231002  09:30:00", "2023-10-02 09:30:00.000", set()),
        ("2023-10-02 09:30:00 CST", "2023-10-02 09:30:00.000", {"CST"}),
        ("2023-10-02T09:30:00-05:00[America/Chicago]", "2023-10-02 14:30:00.000", {"America/Chicago"}),
        ("2023-10-02 09:30:00 UTC", "2023-10-02 09:30:00.000", set()),
        ("10/02/2023 09:30 AM", "2023-10-02 09:30:00.000", set()),
        ("02.10.2023 12:30:00.000 GMT+0300", "2023-10-02 09:30:00.000", set()),
    ],
)
def test_zones_written_behind_stamps(text: str, expected: str, zones: set[str]) -> None:
    stamps = parse_stamps(pl.Series([text]), None, "f.csv", "dmy" if text[2] == "." else "mdy")
    assert (seen(stamps), stamps.zones, stamps.valid.all()) == ([expected], zones, True)
    assert looks_like_stamp(text)


@pytest.mark.parametrize(
    ("dates", "times", "expected", "form"),
    [
        (["45293.5", "45294"], None, "2024-01-02 12:00:00.000", "naive"),
        (["45293", "45294"], None, "2024-01-02 00:00:00.000", "date"),
        (["45293.3958333333"], None, "2024-01-02 09:30:00.000", "naive"),
        (["45293"], ["0.395833333333333"], "2024-01-02 09:30:00.000", "naive"),
    ],
)
def test_days_of_a_spreadsheet(dates: list[str], times: list[str] | None, expected: str, form: str) -> None:
    stamps = parse(*dates, times=times)
    assert (seen(stamps)[0], stamps.form) == (expected, form)
    assert "a spreadsheet's count of days" in stamps.findings[0].text
    assert not looks_like_stamp(dates[0])  # five digits may be a price


def test_midnight_at_the_end_of_a_day() -> None:
    assert seen(parse("2024-01-02 24:00:00", "2024-01-02 23:59:00"))[0] == "2024-01-03 00:00:00.000"
    assert parse("2024-01-02 23:59:00", "2024-01-02 24:00:01").valid.tolist() == [True, False]
    assert parse("2024-01-02 23:59:00", "2024-01-02 23:59:60").valid.tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1655321400.0], "2022-06-15 19:30:00.000"),
        ([1655321400.25], "2022-06-15 19:30:00.250"),
        ([1655321400250.0], "2022-06-15 19:30:00.250"),
        ([20220615.0], "2022-06-15 00:00:00.000"),
    ],
)
def test_counts_in_floats(values: list[float], expected: str) -> None:
    assert seen(parse_stamps(pl.Series(values), None, "f")) == [expected]


def test_typed_dates_with_typed_or_written_times() -> None:
    date = pl.Series([datetime.date(2024, 1, 2)])
    for time in (pl.Series([datetime.time(9, 30)]), pl.Series(["09:30"]), pl.Series(["930"])):
        assert seen(parse_stamps(date, time, "f")) == ["2024-01-02 09:30:00.000"]


def test_a_day_stored_as_a_time_is_joined_with_its_time_of_day():
    day = pl.Series([datetime.datetime(2024, 1, 2)] * 2)
    for time in (pl.Series(["09:30:00", "09:31:00"]), pl.Series([datetime.time(9, 30), datetime.time(9, 31)])):
        stamps = parse_stamps(day, time, "f.parquet")
        assert stamps.form == "naive"
        assert [str(ns) for ns in stamps.ns.astype("datetime64[ns]").astype("datetime64[m]")] == [
            "2024-01-02T09:30",
            "2024-01-02T09:31",
        ]


def test_named_months_with_years_of_two_digits():
    stamps = parse_stamps(pl.Series(["03-Jan-22", "31-Dec-99"]), None, "f.csv")
    assert stamps.ns.astype("datetime64[ns]").astype("datetime64[D]").astype(str).tolist() == [
        "2022-01-03",
        "1999-12-31",
    ]


def test_short_times_among_times_of_six_digits_have_seconds() -> None:
    stamps = parse_stamps(pl.Series(["20240102"] * 3), pl.Series(["0", "500", "93000"]), "f.csv")
    clock = stamps.ns.astype("datetime64[ns]").astype("datetime64[s]").astype(str).tolist()
    assert clock == ["2024-01-02T00:00:00", "2024-01-02T00:05:00", "2024-01-02T09:30:00"]
