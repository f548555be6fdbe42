"""Dates of three numbers: settled by the file, by the user, or refused."""

import datetime

import numpy as np
import polars as pl
import pytest

from tidewalk.core.errors import DataError
from tidewalk.data.text.dates import date_runs, settle_order
from tidewalk.data.text.stamps import parse_stamps


def days(*texts: str, order: str | None = None) -> list[str]:
    stamps = parse_stamps(pl.Series(list(texts)), None, "f.csv", order)
    return [str(np.datetime64(int(value), "ns"))[:10] for value in stamps.ns]


def order_of(*texts: str, known: str | None = None) -> str:
    return settle_order(date_runs(pl.Series(list(texts)), 2), "f.csv", known)[0]


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (("12/31/2019", "01/02/2020"), "mdy"),
        (("31.12.2019", "02.01.2020"), "dmy"),
        (("12/31/19", "01/02/20"), "mdy"),
        (("20-01-31", "20-02-01", "20-02-03"), "ymd"),
        (("31/01/20", "01/02/20", "03/02/20"), "dmy"),
    ],
)
def test_dates_that_exist_in_one_order_or_run_in_one(texts: tuple[str, ...], order: str) -> None:
    assert order_of(*texts) == order


def test_runs_hold_each_date_once_with_its_row() -> None:
    runs = date_runs(pl.Series(["1/2/2020 09:30", "1/2/2020 09:31", None, "the end", "1/3/20"]), 10)
    assert runs.numbers.tolist() == [[1, 2, 2020], [1, 3, 20]]
    assert runs.row.tolist() == [10, 14]
    assert runs.long_year.tolist() == [True, False]


@pytest.mark.parametrize("texts", [("03/04/2020", "03/04/2020"), ("03/04/2020", "04/04/2020", "05/04/2020")])
def test_open_orders_are_refused_with_the_option(texts: tuple[str, ...]) -> None:
    with pytest.raises(
        DataError,
        match=r"f\.csv row 2: 3/4/2020 may be month/day/year or day/month/year .* --date-order mdy or --date-order dmy",
    ):
        order_of(*texts)
    assert order_of(*texts, known="dmy") == "dmy"


def test_two_digit_years_may_stand_first_too() -> None:
    with pytest.raises(DataError, match="3/4/05 may be month/day/year or day/month/year or year/month/day"):
        order_of("03/04/05")
    assert days("03/04/05", order="ymd") == ["2003-04-05"]
    assert days("03/04/69", "03/04/70", order="dmy") == ["2069-04-03", "1970-04-03"]


def test_both_orders_in_one_file_are_refused_with_both_rows() -> None:
    with pytest.raises(
        DataError,
        match=r"row 2 \(13/4/2020\) is not month/day/year and row 3 \(4/13/2020\) is not day/month/year",
    ):
        order_of("13/04/2020", "04/13/2020")


def test_date_that_contradicts_the_known_order_is_refused_with_its_row() -> None:
    with pytest.raises(
        DataError, match=r"f\.csv row 2: '13/04/2020' is day/month/year, and the dates are month/day/year"
    ):
        days("04/13/2020", "13/04/2020", order="mdy")


def test_order_settled_after_the_first_rows() -> None:
    assert days("1/2/2020", "1/2/2020", "12/31/2020")[0] == "2020-01-02"
    assert days("1/2/2020", "1/2/2020", "31/12/2020")[0] == "2020-02-01"


def test_days_and_months_that_a_spreadsheet_exchanged_are_refused():
    days = np.arange(np.datetime64("2024-01-01"), np.datetime64("2024-07-01")).astype(datetime.date)
    mangled = [f"{d:%m/%d/%Y}" if d.day > 12 else f"{d:%d/%m/%Y}" for d in days]
    with pytest.raises(DataError, match=r"f\.csv row 2: 2/1/2024 is day/month/year and other dates are month/day/year"):
        settle_order(date_runs(pl.Series(mangled), 1), "f.csv", None)
    with pytest.raises(DataError, match="exchanged"):
        settle_order(date_runs(pl.Series(mangled), 1), "f.csv", "mdy")
    shuffled = [f"{d:%m/%d/%Y}" for d in [*days[90:], *days[:90]]]
    assert settle_order(date_runs(pl.Series(shuffled), 1), "f.csv", None)[0] == "mdy"
