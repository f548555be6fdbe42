"""Prices are the decimals that were written, to the last 1e-9."""

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.data.bars import UNDEF_PRICE_E9
from tidewalk.data.text.numbers import are_raw, looks_numeric, price_columns, volume_column

WHOLE_E9 = st.integers(min_value=-(9 * 10**17), max_value=9 * 10**17)


def prices_e9(*texts: object, raw: bool = False, dtype: object = None) -> list[int]:
    column = pl.Series(list(texts), dtype=dtype)  # pyright: ignore
    values, _ = price_columns([column] * 4, "f.csv", raw=raw)
    return values[0].tolist()


@settings(deadline=None)  # the machine may be busy
@given(price_e9=WHOLE_E9)
def test_every_price_of_nine_decimals_is_exact(price_e9: int) -> None:
    text = f"{Decimal(price_e9) / 10**9:f}"
    assert prices_e9(text) == [price_e9]


@settings(deadline=None)  # the machine may be busy
@given(price_e9=st.integers(min_value=-(10**15), max_value=10**15))
def test_floats_give_the_decimal_they_print_as(price_e9: int) -> None:
    assert prices_e9(price_e9 / 10**9) == [round(Decimal(repr(price_e9 / 10**9)) * 10**9)]


@pytest.mark.parametrize(
    ("text", "price_e9"),
    [
        ("4801.25", 4_801_250_000_000),  # multiplying by 1e-9 and back misses this grid
        ("1.10785", 1_107_850_000),
        ("112.515625", 112_515_625_000),  # ZN, 1/64
        ("0.00002853", 28_530),
        ("-37.63", -37_630_000_000),
        (" 4801.25 ", 4_801_250_000_000),
        ("5.", 5_000_000_000),
        ("1e-5", 10_000),
        ("4320.83693687025", 4_320_836_936_870),
        ("123456789.123456789", 123_456_789_123_456_789),
    ],
)
def test_price_texts(text: str, price_e9: int) -> None:
    assert prices_e9(text) == [price_e9]


@pytest.mark.parametrize(
    "text",
    ["", " ", "NaN", "n/a", "NULL", "-", "inf", "340282346638528859811704183484516925440", "9223372036.854775807"],
)
def test_missing_prices_and_sentinels(text: str) -> None:
    values, garbage = price_columns([pl.Series([text, "1.5"])] * 4, "f.csv", raw=False)
    assert values[0].tolist() == [UNDEF_PRICE_E9, 1_500_000_000]
    assert not garbage.any()


def test_words_are_garbage_not_missing() -> None:
    values, garbage = price_columns([pl.Series(["112'16", "1.5", "abc"])] * 4, "f.csv", raw=False)
    assert garbage.tolist() == [True, False, True]
    assert values[0][1] == 1_500_000_000


def test_raw_integers_are_taken_as_they_are() -> None:
    assert prices_e9("5199750000000", "9223372036854775807", raw=True) == [5_199_750_000_000, UNDEF_PRICE_E9]
    assert prices_e9(5_199_750_000_000, raw=True) == [5_199_750_000_000]
    columns = [pl.Series(["5199.75", "5200"]), pl.Series(["34000", "34001"]), pl.Series(["5199750000000", None])]
    assert [are_raw([column]) for column in columns] == [False, False, True]  # decimals are never raw
    assert prices_e9("5199", raw=False) == [5_199_000_000_000]
    assert prices_e9(5199) == [5_199_000_000_000]


def test_typed_columns() -> None:
    assert prices_e9(1.10785, dtype=pl.Float32) == [1_107_850_000]
    assert prices_e9(Decimal("4801.25"), dtype=pl.Decimal(12, 2)) == [4_801_250_000_000]
    assert prices_e9(float("nan"), 2.0) == [UNDEF_PRICE_E9, 2_000_000_000]
    assert prices_e9(None, 7) == [UNDEF_PRICE_E9, 7_000_000_000]


def test_thousands_separators_are_removed() -> None:
    assert prices_e9("2,890.88", "890.00", "1,234,567.5") == [2_890_880_000_000, 890_000_000_000, 1_234_567_500_000_000]


def test_decimal_commas_are_read() -> None:
    assert prices_e9("1,1076", "1.234,5", "7") == [1_107_600_000, 1_234_500_000_000, 7_000_000_000]


def test_comma_that_may_be_either_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"f\.csv: the comma in '2,890' may be a decimal point or a thousands separator"
    ):
        prices_e9("2,890", "3,100")


def test_one_price_column_settles_the_comma_for_all() -> None:
    columns = [pl.Series([text]) for text in ("2,890", "2,900.5", "2,880", "2,885")]
    values, _ = price_columns(columns, "f.csv", raw=False)
    assert [column[0] for column in values] == [
        2_890_000_000_000,
        2_900_500_000_000,
        2_880_000_000_000,
        2_885_000_000_000,
    ]


def test_volume_suffixes_sums_and_missing() -> None:
    volume, garbage, missing = volume_column([pl.Series(["1.93M", "779.92K", "-", "12", "1,200"])])
    assert volume.tolist() == [1_930_000.0, 779_920.0, 0.0, 12.0, 1200.0]
    assert (garbage.any(), missing) == (np.False_, 1)
    both, _, _ = volume_column([pl.Series(["3"]), pl.Series([4])])
    assert both.tolist() == [7.0]
    _, garbage, _ = volume_column([pl.Series(["many"])])
    assert garbage.tolist() == [True]


def test_numbers_are_told_from_names() -> None:
    assert all(map(looks_numeric, ("1637971200000", "-0.5", "1,200", "3%", "1e-5")))
    assert not any(map(looks_numeric, ("open", "", "2024-01-01", "ES")))


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["0,853", "1,107"], [0.853, 1.107]),  # no thousands begin with 0
        (["12.345,5", "12.345"], [12345.5, 12345.0]),  # a point between thousands, with and without decimals
        (["4 801,25", "998,5"], [4801.25, 998.5]),
        (["4'801.25", "998.5"], [4801.25, 998.5]),
        (["4\u202f801.25"], [4801.25]),
        (['"4801.25"', "4801"], [4801.25, 4801.0]),
    ],
)
def test_marks_of_thousands_and_decimals(texts: list[str], values: list[float]) -> None:
    assert prices_e9(*texts) == [round(value * 10**9) for value in values]


def test_number_of_the_other_mark_is_garbage_not_a_thousandth() -> None:
    _, garbage = price_columns([pl.Series(["4801,25", "4.8"])] * 4, "f.csv", raw=False)
    assert garbage.any()
    _, garbage = price_columns([pl.Series(["4801,25", "4801.25"])] * 4, "f.csv", raw=False, decimal=".")
    assert garbage.tolist() == [True, False]
    _, garbage = price_columns([pl.Series(["4801,25", "4801.25", None])] * 4, "f.csv", raw=False, decimal=",")
    assert garbage.tolist() == [False, True, False]


def test_volume_has_the_decimal_mark_of_the_prices() -> None:
    assert volume_column([pl.Series(["1.200", "1,5K"])], ",")[0].tolist() == [1200.0, 1500.0]
    assert volume_column([pl.Series(["1.2", "1,200"])], ".")[0].tolist() == [1.2, 1200.0]


@pytest.mark.parametrize("word", ["-nan", "+inf", "Infinity", "1.#QNAN", "#VALUE!", "<NA>", "n.a.", "\\N"])
def test_words_for_nothing_of_many_programs(word: str) -> None:
    values, garbage = price_columns([pl.Series([word, "1.5"])] * 4, "f.csv", raw=False)
    assert (values[0].tolist(), garbage.any()) == ([UNDEF_PRICE_E9, 1_500_000_000], np.False_)


def test_prices_in_32nds_are_no_thousands():
    noted = pl.Series(["110'165", "110'070", "111'310"])
    prices, garbage = price_columns([noted] * 4, "f.csv", raw=False)
    assert garbage.all()
    assert (prices[0] == UNDEF_PRICE_E9).all()
    swiss = pl.Series(["4'800.25", "4'801.5", "42'335"])
    prices, garbage = price_columns([swiss] * 4, "f.csv", raw=False)
    assert not garbage.any()
    assert prices[0].tolist() == [4_800_250_000_000, 4_801_500_000_000, 42_335_000_000_000]


def test_volumes_with_a_suffix_are_whole():
    volume, _, _ = volume_column([pl.Series(["16.156K", "1.37M", "0.001K", "0.12345678"])])
    assert volume.tolist() == [16_156.0, 1_370_000.0, 1.0, 0.12345678]
