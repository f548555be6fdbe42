"""Exact numbers from text and from typed columns: prices as integers of 1e-9, volumes as floats."""

import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, MAX_PRICE_E9, UNDEF_PRICE_E9

MISSING_TOKENS = (
    *("", "nan", "-nan", "n/a", "n.a.", "na", "#n/a", "#na", "<na>", "nat", "null", "none", "nil", "-", "--", "."),
    *("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "1.#inf", "-1.#inf", "1.#qnan", "-1.#ind"),
    *("#value!", "#div/0!", "#ref!", "\\n", "undef", "missing", "void"),
)
SAFE_PRICE = 2.0**50 / E9
"""Below it the float product price * 1e9 is off by less than 1/4, so rounding it gives the decimal that was written.

The decimal is read with relative error 2^-53 and multiplied with another: |error| < 2^-52 * 2^50 = 1/4.
"""

DECIMAL_POINT = r"^[+-]?(?:(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$"
DECIMAL_COMMA = r"^[+-]?(?:(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d*)?|,\d+)(?:[eE][+-]?\d+)?$"
BLANK_THOUSANDS = r"^[+-]?\d{1,3}(?:[ \u00a0\u202f']\d{3})+(?:[.,]\d*)?$"
IN_32NDS = r"^[+-]?\d{1,3}'(?:[0-2]\d|3[01])[0257]$"
FRACTION = re.compile(r"[+-]?\d{1,3}(?:['-]\d{2}[\d+]?(?:\.\d+)?| \d+/\d+)")
"""Prices of notes and bonds: 110'16 and 110-16 are 110 and 16/32, 110'165 and 110-16+ half a 32nd more."""
IN_FRACTIONS = "Prices in 32nds, such as 110'16, are not read: write them as decimals, 110.5."
THREE_DIGITS = r",(\d{3})\b"
RAW_FLOOR = 10**7
"""Prices in units of 1e-9 lie above it (0.01), prices that happen to be whole below."""
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9}


def texts(column: pl.Series) -> pl.Series:
    """A text column without surrounding blanks and quotes, null where the text stands for "nothing"."""
    stripped = column.str.strip_chars(" \t\u00a0\"'")
    return stripped.set(stripped.str.to_lowercase().is_in(list(MISSING_TOKENS)), None)


def price_columns(
    columns: Sequence[pl.Series], where: str, *, raw: bool, decimal: str | None = None
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Prices in 1e-9 units, exact for what was written.

    Args:
        columns: open, high, low, close; text, floats, integers or decimals.
        where: file name for errors.
        raw: whether prices are whole numbers of 1e-9 units already (see `are_raw`).
        decimal: the decimal mark "." or ",", None to find it from these columns.

    Returns:
        One int64 [N] array per column, `UNDEF_PRICE_E9` where there is no price; bool [N], true where a text is neither
        a number nor one of `MISSING_TOKENS`.

    Raises:
        DataError: commas that may be decimal points or thousands separators.
    """
    columns = [_as_text_if_inexact(column) for column in columns]
    if all(column.dtype == pl.String for column in columns):
        decimal = decimal or settle_decimal([texts(column) for column in columns], where)
        parsed = [_text_e9(column, decimal, raw=raw) for column in columns]
        return [values for values, _ in parsed], np.logical_or.reduce([garbage for _, garbage in parsed])
    values = [_typed_e9(column, raw=raw) for column in columns]
    return values, np.zeros(len(values[0]), np.bool_)


def volume_column(
    columns: Sequence[pl.Series], decimal: str = "."
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Volume as the sum of the columns, 0 where it is missing.

    Args:
        columns: text or numbers.
        decimal: the decimal mark of the file's prices.

    Returns:
        float64 [N]; bool [N], true where a text is no number; number of rows where it is missing.
    """
    total, garbage, absent = np.zeros(len(columns[0])), np.zeros(len(columns[0]), np.bool_), 0
    for column in columns:
        if column.dtype == pl.String:
            number, text, doubtful = as_floats(column, decimal)
            if doubtful.any() or decimal != ".":
                text = texts(column)
                number = _volume_number(text, decimal)
                doubtful = (number.is_null() & text.is_not_null()).to_numpy()
            garbage |= doubtful
        else:
            number = column.cast(pl.Float64)
        values = number.fill_null(np.nan).to_numpy()
        absent = max(absent, int((~np.isfinite(values)).sum()))
        total = total + np.where(np.isfinite(values), values, 0.0)
    return total, garbage, absent


def _volume_number(text: pl.Series, decimal: str) -> pl.Series:
    factor = text.str.to_uppercase().str.extract(r"([KMB])$").replace_strict(SUFFIXES, default=1.0)
    # Three digits after a comma are thousands: no volume is given to a thousandth.
    bare = text.str.strip_chars_end("kKmMbB ").str.replace_all(THREE_DIGITS, "$1")
    number = _with_point(bare, decimal).cast(pl.Float64, strict=False) * factor.cast(pl.Float64)
    return number.round(3).zip_with(factor > 1.0, number)  # 16.156 times 1000 is not 16156 in binary


def possible_decimals(columns: Sequence[pl.Series]) -> tuple[frozenset[str], str | None]:
    """Decimal marks with which all numbers can be read, and the first number with a comma.

    Numbers without any comma say nothing against a decimal point, which is then taken.
    """
    both = pl.concat([column.rename("n") for column in columns])
    commas = both.filter(both.str.contains(",", literal=True).fill_null(value=False))
    if not len(commas):
        return frozenset("."), None
    numbers = both.filter(both.str.contains(r"^[+-]?[\d.,]*\d[\d.,]*$").fill_null(value=False))
    found = {
        mark for mark, pattern in ((".", DECIMAL_POINT), (",", DECIMAL_COMMA)) if numbers.str.contains(pattern).all()
    }
    return frozenset(found), commas[0]


def settle_decimal(columns: Sequence[pl.Series], where: str) -> str:
    """The decimal mark of a file.

    Raises:
        DataError: every comma may be either.
    """
    marks, shown = possible_decimals(columns)
    if len(marks) > 1:
        raise ambiguous_comma(str(shown), where)
    return next(iter(marks), ".")


def ambiguous_comma(shown: str, where: str) -> DataError:
    """The error for a comma that may be decimal or separate thousands."""
    return DataError(
        f"{where}: the comma in {shown!r} may be a decimal point or a thousands separator, and the other numbers "
        "do not settle it. Write numbers with a decimal point and no separators."
    )


def _with_point(column: pl.Series, decimal: str) -> pl.Series:
    """Texts with "." as decimal point and no thousands separators; those that do not fit the mark as they are."""
    if column.str.contains(r"\d[ \u00a0\u202f']\d").any():
        parted = column.str.contains(BLANK_THOUSANDS).fill_null(value=False)
        # 110'165 is 110 and 16.5/32, or a Swiss 110 thousand: where all may be the one, none is taken for the other.
        with_mark = column.filter(column.str.contains("'", literal=True).fill_null(value=False))
        if len(with_mark) and with_mark.str.contains(IN_32NDS).all():
            parted = parted & ~column.str.contains("'", literal=True).fill_null(value=False)
        column = column.str.replace_all(r"[ \u00a0\u202f']", "").zip_with(parted, column)
    if decimal == ".":
        if not column.str.contains(",", literal=True).any():
            return column
        fits = column.str.contains(DECIMAL_POINT).fill_null(value=False)
        return column.str.replace_all(",", "", literal=True).zip_with(fits, column)
    fits = column.str.contains(DECIMAL_COMMA).fill_null(value=False)
    plain = column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    # A point that separates no thousands belongs to no number of this file.
    return plain.set(~fits & column.is_not_null(), "?")


def are_raw(columns: Sequence[pl.Series]) -> bool:
    """Whether Databento's prices are whole numbers of 1e-9 units, and not decimals that happen to be whole."""
    if all(column.dtype.is_integer() for column in columns):
        return True
    if not all(column.dtype == pl.String for column in columns):
        return False
    cleaned = pl.concat([texts(column).rename("n") for column in columns]).drop_nulls()
    whole = cleaned.str.contains(r"^[+-]?\d+$").all()
    return whole and bool((cleaned.cast(pl.Int64, strict=False).abs() >= RAW_FLOOR).any())


def _as_text_if_inexact(column: pl.Series) -> pl.Series:
    """Narrow floats and decimals as the shortest text that means them."""
    narrow = column.dtype == pl.Float32 or column.dtype == pl.Decimal
    return column.cast(pl.String) if narrow else column


def _text_e9(text: pl.Series, decimal: str, *, raw: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if raw:
        whole = text.cast(pl.Int64, strict=False)
        odd = np.flatnonzero((whole.is_null() & text.is_not_null()).to_numpy())
        garbage = np.zeros(len(text), np.bool_)
        if len(odd):
            cleaned = texts(text.gather(odd))
            whole = whole.scatter(odd, cleaned.cast(pl.Int64, strict=False))
            garbage[odd] = (cleaned.is_not_null() & cleaned.cast(pl.Int64, strict=False).is_null()).to_numpy()
        return whole.fill_null(UNDEF_PRICE_E9).to_numpy(), garbage
    number, plain, garbage = as_floats(text, decimal)
    return _float_e9(number.fill_null(np.nan).to_numpy(), plain), garbage


def as_floats(text: pl.Series, decimal: str) -> tuple[pl.Series, pl.Series, NDArray[np.bool_]]:
    """Numbers of a text column, their texts with a decimal point, and bool [N] where a text is neither number nor none.

    Only what is no plain number is looked at more closely; with a decimal comma that is everything.
    """
    number = text.cast(pl.Float64, strict=False)
    odd = (number.is_null() & text.is_not_null()).to_numpy() if decimal == "." else np.ones(len(text), np.bool_)
    garbage = np.zeros(len(text), np.bool_)
    if odd.any():
        index = np.flatnonzero(odd)
        cleaned = _with_point(texts(text.gather(index)), decimal)
        read = cleaned.cast(pl.Float64, strict=False)
        garbage[index] = (read.is_null() & cleaned.is_not_null()).to_numpy()
        number, text = number.scatter(index, read), text.clone().scatter(index, cleaned)  # scatter works in place
    return number, text, garbage


def _typed_e9(column: pl.Series, *, raw: bool) -> NDArray[np.int64]:
    if column.dtype == pl.String:
        return _text_e9(column, ".", raw=raw)[0]
    if column.dtype.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        if raw:
            return whole.fill_null(UNDEF_PRICE_E9).to_numpy()
        values = whole.fill_null(UNDEF_PRICE_E9).to_numpy()
        return np.where(np.abs(values) <= MAX_PRICE_E9 // E9, values * E9, UNDEF_PRICE_E9)
    number = column.cast(pl.Float64).fill_null(np.nan)
    return _float_e9(number.to_numpy(), number)


def _float_e9(number: NDArray[np.float64], written: pl.Series) -> NDArray[np.int64]:
    """1e-9 units of floats; large ones are converted from the decimal text they stand for."""
    real = np.isfinite(number) & (np.abs(number) <= MAX_PRICE_E9 / E9)
    safe = np.where(real & (np.abs(number) < SAFE_PRICE), number, 0.0)
    price_e9 = np.where(real, np.rint(safe * E9).astype(np.int64), UNDEF_PRICE_E9)
    for index in np.flatnonzero(real & (np.abs(number) >= SAFE_PRICE)).tolist():
        price_e9[index] = round(Decimal(str(written[index])) * E9)
    return price_e9


def looks_numeric(text: str) -> bool:
    """Whether a field of a line is a number, as in a line of data and not in a header."""
    return re.fullmatch(r"[+-]?[\d.,]*\d[\d.,]*(e[+-]?\d+)?%?", text.strip().lower()) is not None
