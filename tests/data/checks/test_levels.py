"""Prices at a wrong scale are refused; a level the product never had is doubted; made-up prices are let be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import MINUTE_NS, ns
from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, BarTable
from tidewalk.data.checks.levels import RANGES, adjusted_columns, level_findings, only_positive, plausible
from tidewalk.data.contracts.specs import KNOWN_ROOTS, spec_for


def table(prices_e9: list[int], when: str = "2024-05-09 10:00", contract: str = "ESM4") -> BarTable:
    """Flat bars at these prices."""
    price_e9 = np.array(prices_e9, np.int64)
    ts_ns = ns(when) + np.arange(len(price_e9)) * MINUTE_NS
    return BarTable(contract, 1, MINUTE_NS, ts_ns, ts_ns + MINUTE_NS, *[price_e9] * 4, np.ones(len(price_e9)), True)


# Levels of some years, from the exchange's own settlement prices.
TRUE_LEVELS = [
    ("ES", 2009, 930.0),
    ("ES", 2013, 1640.0),
    ("ES", 2020, 3230.0),
    ("ES", 2022, 4050.0),
    ("ES", 2026, 6900.0),
    ("NQ", 2009, 1450.0),
    ("NQ", 2022, 12500.0),
    ("YM", 2009, 8800.0),
    ("RTY", 2024, 2100.0),
    ("CL", 2008, 100.0),
    ("CL", 2016, 45.0),
    ("CL", 2020, 40.0),
    ("NG", 2020, 2.0),
    ("GC", 2001, 270.0),
    ("GC", 2011, 1570.0),
    ("GC", 2025, 3300.0),
    ("SI", 2020, 20.0),
    ("HG", 2024, 4.2),
    ("ZN", 2007, 107.0),
    ("ZB", 2020, 175.0),
    ("6E", 2008, 1.47),
    ("6J", 2024, 0.0066),
    ("FDAX", 2024, 18500.0),
    ("FESX", 2006, 3700.0),
    ("ZC", 2005, 210.0),
    ("ZS", 2012, 1450.0),
    ("BTC", 2018, 7500.0),
    ("BTC", 2024, 65000.0),
]


@pytest.mark.parametrize(("root", "year", "level"), TRUE_LEVELS)
def test_true_levels_are_believed_and_those_ten_times_off_are_not(root: str, year: int, level: float) -> None:
    believed = plausible(root, year)
    assert believed is not None
    low, high = believed
    assert low <= level <= high
    assert not low <= level * 10 <= high
    assert not low <= level / 10 <= high


def test_every_range_is_of_a_known_root_and_in_order() -> None:
    assert set(RANGES) <= set(KNOWN_ROOTS)
    for eras in RANGES.values():
        years = [year for year, _, _ in eras]
        assert years == sorted(set(years))
        assert all(0 < low < high for _, low, high in eras)
    assert plausible("ES", 1990) is None
    assert plausible("XYZ", 2024) is None


@given(
    ticks=st.lists(st.integers(18_000, 24_000), min_size=2, max_size=40),
    scale=st.sampled_from([10, 100, 1000, 10**9]),
)
def test_prices_written_too_large_are_refused_with_the_factor(ticks: list[int], scale: int) -> None:
    tick_e9 = spec_for("ES").tick_e9
    if max(ticks) * tick_e9 * scale >= 2**63:
        return
    with pytest.raises(DataError, match=rf"ESM4: prices are {scale} times too large"):
        level_findings("ES", [table([tick * tick_e9 * scale for tick in ticks])])


@given(ticks=st.lists(st.integers(18_000, 24_000), min_size=2, max_size=40), scale=st.sampled_from([10, 100, 1000]))
def test_prices_written_too_small_are_refused_with_the_factor(ticks: list[int], scale: int) -> None:
    tick_e9 = spec_for("ES").tick_e9
    small = [tick * tick_e9 // scale for tick in [*ticks, 20_799, 20_801]]
    with pytest.raises(DataError, match=rf"ESM4: prices are {scale} times too small"):
        level_findings("ES", [table(small)])


def test_the_legacy_files_of_the_vendor_are_100_times_too_large() -> None:
    # ESH1 on 2020-12-28 is written as 372025 and 372050; it traded at 3720.25.
    with pytest.raises(DataError, match=r"100 times too large: the median close in 2020 is 372038.*3720\.38 would fit"):
        level_findings("ES", [table([372_025 * E9, 372_050 * E9], "2020-12-28 13:00", "ESH1")])


@pytest.mark.parametrize("price", [100.0, 100.25, 100.37, 1.0, 52.0, 2.0])
def test_made_up_prices_are_doubted_and_not_refused(price: float) -> None:
    made_up = [
        round((price + i / 100) * E9) if price % 0.25 else round(price * E9) + i % 4 * E9 // 4 for i in range(50)
    ]
    (finding,) = level_findings("ES", [table(made_up)])
    assert finding.is_warning
    assert "the median close of ESM4 in 2024 is" in finding.text
    assert "where ES was between 3000 and 25000" in finding.text


def test_several_odd_years_are_one_line() -> None:
    tables = [table([7 * E9] * 3, f"{year}-05-09 10:00", f"ESM{year % 10}") for year in (2021, 2022, 2024)]
    (finding,) = level_findings("ES", tables)
    assert "the median close of ESM1 in 2021 is 7" in finding.text
    assert "(and 2 more such years)" in finding.text
    assert finding.count == 3
    assert not level_findings("XYZ", tables)


def test_negative_oil_in_one_month_is_no_wrong_level() -> None:
    prices = [40 * E9] * 200 + [-37_630_000_000] * 3
    assert not level_findings("CL", [table(prices, "2020-04-20 10:00", "CLK0")])


@pytest.mark.parametrize(
    ("root", "is_positive"), [("ES", True), ("GC", True), ("ZN", True), ("CL", False), ("XY", False)]
)
def test_which_products_are_always_above_zero(root: str, *, is_positive: bool) -> None:
    assert only_positive(root) == is_positive


@pytest.mark.parametrize(
    ("names", "telling"),
    [
        (("open", "close", "close_unadjusted", "is_roll_date"), "columns close_unadjusted, is_roll_date"),
        (("Open", "Close", "UnadjClose"), "column UnadjClose"),
        (("open", "close", "adj_factor"), "column adj_factor"),
        (("Date", "Open", "High", "Low", "Close", "Adj Close", "Volume"), ""),
        (("time", "open", "high", "low", "close", "rolling_mean"), ""),
    ],
)
def test_columns_that_tell_of_adjustment(names: tuple[str, ...], telling: str) -> None:
    found = adjusted_columns(names)
    assert bool(found) == bool(telling)
    assert all(finding.text.startswith(telling + ":") and finding.is_warning for finding in found)


def test_decimals_that_are_32nds_are_refused():
    in_32nds = [110 * E9 + (n // 2) * 10**7 + (n % 2) * 5 * 10**6 for n in range(8, 40)]  # 110.040 is 110 and 4/32
    with pytest.raises(DataError, match=r"ZNM4: prices such as 110\.04 .* may be 32nds \(110\.04 for 110 and 4/32\)"):
        level_findings("ZN", [table(in_32nds, contract="ZNM4")])
    decimal = [110 * E9 + n * 15_625_000 for n in range(64)]
    assert not level_findings("ZN", [table(decimal, contract="ZNM4")])
    assert not level_findings("SR3", [table([95 * E9 + n * 10**7 for n in range(5, 31)], contract="SR3M4")])
