"""Last trading days, first notice days and last safe days, against listed dates and LEAN's calendars."""

import datetime
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.data.contracts.expiries import expiry_date, first_notice_date, has_expiry_rule, last_safe_date
from tidewalk.data.contracts.specs import KNOWN_ROOTS, MONTH_CODES, ContractMonth, spec_for
from tidewalk.data.contracts.terms import SEASON_DAYS

DATE = datetime.date
ONE_DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("contract", "expiry"),
    [
        # Listed last trading days: CME Group product calendars and data with a known last bar.
        (ContractMonth("ES", 2013, 12), DATE(2013, 12, 20)),
        (ContractMonth("ES", 2024, 3), DATE(2024, 3, 15)),
        (ContractMonth("ES", 2025, 12), DATE(2025, 12, 19)),
        (ContractMonth("ES", 2008, 3), DATE(2008, 3, 20)),  # third Friday was Good Friday
        (ContractMonth("MNQ", 2026, 6), DATE(2026, 6, 18)),  # third Friday is Juneteenth
        (ContractMonth("CL", 2020, 5), DATE(2020, 4, 21)),  # the day after the negative settlement
        (ContractMonth("CL", 2024, 1), DATE(2023, 12, 19)),  # the 25th is Christmas
        (ContractMonth("MCL", 2020, 5), DATE(2020, 4, 20)),
        (ContractMonth("NG", 2024, 1), DATE(2023, 12, 27)),
        (ContractMonth("GC", 2024, 2), DATE(2024, 2, 27)),
        (ContractMonth("ZN", 2024, 3), DATE(2024, 3, 19)),
        (ContractMonth("ZF", 2024, 3), DATE(2024, 3, 28)),  # the 29th was Good Friday
        (ContractMonth("6E", 2024, 3), DATE(2024, 3, 18)),
        (ContractMonth("6C", 2024, 3), DATE(2024, 3, 19)),
        (ContractMonth("BTC", 2024, 3), DATE(2024, 3, 28)),
        (ContractMonth("BZ", 2024, 3), DATE(2024, 1, 31)),
        (ContractMonth("RB", 2024, 3), DATE(2024, 2, 29)),
        (ContractMonth("ZC", 2024, 5), DATE(2024, 5, 14)),
        (ContractMonth("HE", 2024, 6), DATE(2024, 6, 14)),
        (ContractMonth("LE", 2024, 2), DATE(2024, 2, 29)),
        (ContractMonth("GF", 2024, 11), DATE(2024, 11, 21)),  # the last Thursday is Thanksgiving
        (ContractMonth("VX", 2024, 5), DATE(2024, 5, 21)),
        (ContractMonth("VX", 2025, 3), DATE(2025, 3, 17)),  # 30 days before a third Friday that is Good Friday
        (ContractMonth("SR3", 2024, 3), DATE(2024, 6, 17)),
        (ContractMonth("NKD", 2024, 3), DATE(2024, 3, 7)),
        (ContractMonth("XX", 2024, 12), DATE(2024, 12, 31)),
    ],
)
def test_scheduled_expiry(contract, expiry):
    assert expiry_date(contract) == expiry


@pytest.mark.parametrize(
    ("contract", "notice", "safe"),
    [
        # First notice days: CME Group product calendars.
        (ContractMonth("GC", 2024, 2), DATE(2024, 1, 31), DATE(2024, 1, 29)),
        (ContractMonth("SI", 2024, 3), DATE(2024, 2, 29), DATE(2024, 2, 27)),
        (ContractMonth("GC", 2020, 6), DATE(2020, 5, 29), DATE(2020, 5, 27)),
        (ContractMonth("ZN", 2024, 3), DATE(2024, 2, 29), DATE(2024, 2, 27)),
        (ContractMonth("ZB", 2023, 6), DATE(2023, 5, 31), DATE(2023, 5, 26)),  # over Memorial Day
        (ContractMonth("ZC", 2024, 5), DATE(2024, 4, 30), DATE(2024, 4, 26)),
        (ContractMonth("LE", 2024, 2), DATE(2024, 2, 5), DATE(2024, 2, 1)),
        # Delivered after the last trading day: out before it.
        (ContractMonth("CL", 2020, 5), None, DATE(2020, 4, 20)),
        (ContractMonth("NG", 2024, 1), None, DATE(2023, 12, 26)),
        (ContractMonth("6E", 2024, 3), None, DATE(2024, 3, 15)),
        # Settled in cash: to the last trading day.
        (ContractMonth("ES", 2024, 3), None, DATE(2024, 3, 15)),
        (ContractMonth("MCL", 2020, 5), None, DATE(2020, 4, 20)),
        (ContractMonth("BTC", 2024, 3), None, DATE(2024, 3, 28)),
        (ContractMonth("HE", 2024, 6), None, DATE(2024, 6, 14)),
        (ContractMonth("XX", 2024, 6), None, None),
    ],
)
def test_first_notice_and_last_safe_day(contract, notice, safe):
    assert first_notice_date(contract) == notice
    assert last_safe_date(contract) == safe


def test_a_defined_last_trading_day_goes_before_the_rule():
    assert last_safe_date(ContractMonth("ES", 2024, 3), DATE(2024, 3, 14)) == DATE(2024, 3, 14)
    assert last_safe_date(ContractMonth("CL", 2020, 5), DATE(2020, 4, 22)) == DATE(2020, 4, 21)
    assert last_safe_date(ContractMonth("GC", 2024, 2), DATE(2024, 2, 26)) == DATE(2024, 1, 29)  # notice comes first
    assert last_safe_date(ContractMonth("XX", 2024, 6), DATE(2024, 6, 12)) == DATE(2024, 6, 12)


@settings(deadline=None)  # the machine may be busy
@given(st.sampled_from(KNOWN_ROOTS), st.integers(2005, 2040), st.integers(1, 12))
def test_law_safe_days_are_business_days_in_order_of_the_contracts(root, year, month):
    assert has_expiry_rule(root)
    contract = ContractMonth(root, year, month)
    after = ContractMonth(root, year + month // 12, month % 12 + 1)
    expiry, safe, notice = expiry_date(contract), last_safe_date(contract), first_notice_date(contract)
    assert safe <= expiry
    assert safe.weekday() < 5
    assert expiry.weekday() < 5
    assert expiry < expiry_date(after)
    assert safe < last_safe_date(after)
    assert abs((expiry - DATE(year, month, 15)).days) < 110
    if notice:
        assert safe < notice - ONE_DAY  # nobody who is long at the close before notice is safe


# The calendars of QuantConnect LEAN: lines of date until which a contract is mapped, contract, exchange, roll rule.
LAST_TRADING_DAY, OPEN_INTEREST, OPEN_INTEREST_ANNUAL = 0, 2, 3


def lean_expiry(identifier: str) -> DATE:
    """Expiry in LEAN's identifier of a future: days since 1899-12-30 in digits 15 to 19 of a number in base 36."""
    days = int(identifier.split()[1], 36) // 10**14 % 10**5
    return DATE(1899, 12, 30) + datetime.timedelta(days=days)


def lean_map(folder: Path, root: str, rule: int) -> list[tuple[DATE, DATE]]:
    """Day until which each contract is mapped, and its expiry."""
    lines = (folder / "lean" / f"{root.lower()}_map_file.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines if line.endswith(f",{rule}")]
    found = [(datetime.datetime.strptime(cell[0], "%Y%m%d").date(), lean_expiry(cell[1])) for cell in cells]
    return [(day, expiry) for day, expiry in found if day.year < 2050]  # the last line is open


def named(root: str, expiry: DATE) -> ContractMonth:
    return ContractMonth(root, expiry.year, expiry.month)  # both expire in their delivery month


@pytest.mark.parametrize(("root", "count"), [("ES", 55), ("GC", 21)])
def test_every_last_trading_day_agrees_with_lean(shared_data, root, count):
    calendar = lean_map(shared_data, root, LAST_TRADING_DAY)
    assert len(calendar) == count
    for mapped_until, expiry in calendar:
        assert expiry_date(named(root, expiry)) == expiry
        assert mapped_until == expiry - ONE_DAY


@pytest.mark.parametrize(
    ("root", "rule", "count", "strays"),
    [
        ("ES", OPEN_INTEREST, 51, {DATE(2012, 10, 28)}),
        ("ES", OPEN_INTEREST_ANNUAL, 50, {DATE(2012, 10, 28), DATE(2013, 11, 17)}),
        ("GC", OPEN_INTEREST_ANNUAL, 9, set()),
    ],
)
def test_liquidity_leaves_a_contract_in_season_and_in_time(shared_data, root, rule, count, strays):
    """Rolls by open interest as LEAN recorded them: none after the last safe day, and in season but for its own errors.

    Two of its rolls of ES follow one odd day: ESZ2 was left seven weeks early, and at that of November 2013 the factor
    file steps by 12.00 where a quarter is worth 6.5. Rule 2 is not used for gold, where it enters serial months.
    """
    calendar = lean_map(shared_data, root, rule)
    assert len(calendar) == count
    lead = {day: (last_safe_date(named(root, expiry)) - day).days for day, expiry in calendar}
    assert min(lead.values()) >= 2
    assert {day for day, days in lead.items() if days > SEASON_DAYS} == strays
    assert max(days for day, days in lead.items() if day not in strays) <= 13
    assert all(MONTH_CODES[expiry.month - 1] in spec_for(root).months for _, expiry in calendar)


@pytest.mark.parametrize(
    ("root", "until", "count", "least"),
    [("ES", 2027, 63, 60), ("NQ", 2027, 63, 60), ("YM", 2027, 63, 60), ("ZN", 2027, 63, 63), ("CL", 2027, 189, 180),
     ("6E", 2017, 26, 26)],
)  # fmt: skip
def test_expiries_are_the_days_on_which_a_real_calendar_series_changes_its_contract(
    shared_data, root, until, count, least
):
    """Databento's c.0 holds each contract to its end, when it hardly trades: the volume jumps on the next day.

    The day after an expiry must have the largest rise of volume within two days; holidays may hide a few. Currencies
    have monthly contracts from 2017 on, so their c.0 changes each month.
    """
    bars = polars.read_csv(
        shared_data / "csv" / f"databento_{root.lower()}.c.0_daily_2010-2026.csv", try_parse_dates=True
    ).filter(polars.col("date").dt.weekday() < 6)
    days, volume = bars["date"].to_list(), np.log(bars["volume"].to_numpy() + 1.0)
    months = [month for month in range(1, 13) if MONTH_CODES[month - 1] in spec_for(root).months]
    expiries = [expiry_date(ContractMonth(root, year, month)) for year in range(2010, until) for month in months]
    rows = [days.index(day) for day in expiries if days[8] < day < days[-8]]
    assert len(rows) == count
    rises = [np.diff(volume[row - 2 : row + 4]) for row in rows]
    assert sum(int(np.argmax(rise)) == 2 for rise in rises) >= least
