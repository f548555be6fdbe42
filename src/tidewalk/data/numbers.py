"""Exact numbers from text and from typed columns: prices as integers of 1e-9, volumes as floats."""

import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, MAX_PRICE_E9, UNDEF_PRICE_E9

MISSING_TOKENS = ("", "nan", "n/a", "na", "#n/a", "null", "none", "-", "--", ".", "inf", "-inf")
SAFE_PRICE = 2.0**50 / E9
"""Below it the float product price * 1e9 is off by less than 1/4, so rounding it gives the decimal that was written.

The decimal is read with relative error 2^-53 and multiplied with another: |error| < 2^-52 * 2^50 = 1/4.
"""

THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"
DECIMAL_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+),\d*$"
THREE_DIGITS = r",(\d{3})\b"
SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9}


def texts(column: pl.Series) -> pl.Series:
    """A text column without surrounding blanks, null where the text stands for "nothing"."""
    stripped = column.str.strip_chars()
    return stripped.set(stripped.str.to_lowercase().is_in(MISSING_TOKENS), None)


def price_columns(
    columns: Sequence[pl.Series], where: str, *, raw: bool
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """Prices in 1e-9 units, exact for what was written.

    Args:
        columns: open, high, low, close; text, floats, integers or decimals.
        where: file name for errors.
        raw: whether whole numbers are already in 1e-9 units (Databento).

    Returns:
        One int64 [N] array per column, `UNDEF_PRICE_E9` where there is no price; bool [N], true where a text is neither
        a number nor one of `MISSING_TOKENS`.

    Raises:
        DataError: commas that may be decimal points or thousands separators.
    """
    columns = [_as_text_if_inexact(column) for column in columns]
    if all(column.dtype == pl.String for column in columns):
        cleaned = unify_commas([texts(column) for column in columns], where)
        parsed = [_text_e9(column, raw=raw and _all_whole(cleaned)) for column in cleaned]
        return [values for values, _ in parsed], np.logical_or.reduce([garbage for _, garbage in parsed])
    values = [_typed_e9(column, raw=raw) for column in columns]
    return values, np.zeros(len(values[0]), np.bool_)


def volume_column(columns: Sequence[pl.Series], where: str) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Volume as the sum of the columns, 0 where it is missing.

    Returns:
        float64 [N]; bool [N], true where a text is no number; number of rows where it is missing.
    """
    total, garbage, absent = np.zeros(len(columns[0])), np.zeros(len(columns[0]), np.bool_), 0
    for column in columns:
        if column.dtype == pl.String:
            text = texts(column)
            factor = text.str.to_uppercase().str.extract(r"([KMB])$").replace_strict(SUFFIXES, default=1.0)
            # Three digits after a comma are thousands: no volume is given to a thousandth.
            bare = text.str.strip_chars_end("kKmMbB").str.replace_all(THREE_DIGITS, "$1")
            number = unify_commas([bare], where)[0].cast(pl.Float64, strict=False)
            garbage |= (number.is_null() & text.is_not_null()).to_numpy()
            number = number * factor.cast(pl.Float64)
        else:
            number = column.cast(pl.Float64)
        values = number.fill_null(np.nan).to_numpy()
        absent = max(absent, int((~np.isfinite(values)).sum()))
        total = total + np.where(np.isfinite(values), values, 0.0)
    return total, garbage, absent


def unify_commas(columns: Sequence[pl.Series], where: str) -> list[pl.Series]:
    """Texts with "." as decimal point and no thousands separators, one convention for all columns.

    Raises:
        DataError: every comma may be either, or neither convention fits all texts.
    """
    both = pl.concat([column.rename("n") for column in columns])
    commas = both.filter(both.str.contains(",", literal=True).fill_null(value=False))
    if not len(commas):
        return list(columns)
    thousands, decimal = commas.str.contains(THOUSANDS), commas.str.contains(DECIMAL_COMMA)
    if thousands.all() and not decimal.all():
        return [column.str.replace_all(",", "", literal=True) for column in columns]
    if decimal.all() and not thousands.all():
        return [_from_decimal_comma(column) for column in columns]
    if not (thousands | decimal).all():
        return list(columns)
    raise DataError(
        f"{where}: the comma in {commas[0]!r} may be a decimal point or a thousands separator, and the other numbers "
        "do not settle it. Write numbers with a decimal point and no separators."
    )


def _from_decimal_comma(column: pl.Series) -> pl.Series:
    european = column.str.contains(",", literal=True).fill_null(value=False)
    plain = column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    return column.zip_with(~european, plain)


def _all_whole(columns: Sequence[pl.Series]) -> bool:
    return all(column.drop_nulls().str.contains(r"^[+-]?\d+$").all() for column in columns)


def _as_text_if_inexact(column: pl.Series) -> pl.Series:
    """Narrow floats and decimals as the shortest text that means them."""
    narrow = column.dtype == pl.Float32 or column.dtype == pl.Decimal
    return column.cast(pl.String) if narrow else column


def _text_e9(text: pl.Series, *, raw: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if raw:
        whole = text.cast(pl.Int64, strict=False)
        return whole.fill_null(UNDEF_PRICE_E9).to_numpy(), (whole.is_null() & text.is_not_null()).to_numpy()
    number = text.cast(pl.Float64, strict=False)
    garbage = (number.is_null() & text.is_not_null()).to_numpy()
    return _float_e9(number.fill_null(np.nan).to_numpy(), text), garbage


def _typed_e9(column: pl.Series, *, raw: bool) -> NDArray[np.int64]:
    if column.dtype == pl.String:
        return _text_e9(texts(column), raw=raw and _all_whole([texts(column)]))[0]
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
