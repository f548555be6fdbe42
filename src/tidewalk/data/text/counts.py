"""Stamps that are counts: seconds to nanoseconds since 1970, and a spreadsheet's days since 1899-12-30."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9

EPOCH = r"^(?P<epoch>\d{9,19})(?:\.(?P<fraction>\d{1,9})\d*)?$"
SERIAL = r"^([3-7]\d{4}(?:\.\d+)?)$"
"""Five digits are no stamp by their look, only under a name that says so."""
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH_FLOOR_S, EPOCH_CEILING_S = 631_152_000, 4_102_444_800  # 1990-01-01, 2100-01-01
SERIAL_OF_1970, SERIAL_FLOOR, SERIAL_CEILING = 25_569, 32_874, 73_051  # 1970-01-01, 1990-01-01, 2100-01-01
DAY_MS = 86_400_000


def from_epoch(
    text: pl.Series, where: str, first_row: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], tuple[str, ...]]:
    """Nanoseconds from counts since 1970, the unit told by the size of each count.

    Returns:
        int64 [N] nanoseconds, 0 where there is no count; bool [N] whether there is one; the units found.

    Raises:
        DataError: a count that is outside 1990 to 2100 in every unit.
    """
    whole = text.cast(pl.UInt64, strict=False)
    fraction_ns = np.zeros(len(text), np.int64)
    with_point = (whole.is_null() & text.str.contains(EPOCH)).fill_null(value=False).to_numpy()
    if with_point.any():
        index = np.flatnonzero(with_point)
        parts = text.gather(index).str.extract_groups(EPOCH).struct.unnest()
        fraction_ns[index] = parts["fraction"].str.pad_end(9, "0").cast(pl.Int64, strict=False).fill_null(0).to_numpy()
        whole = whole.scatter(index, parts["epoch"].cast(pl.UInt64, strict=False))
    valid = whole.is_not_null().to_numpy()
    count = whole.fill_null(0).to_numpy()
    ns, units = np.zeros(len(count), np.int64), []
    for unit, per_second in UNITS.items():
        inside = valid & (count >= EPOCH_FLOOR_S * per_second) & (count < EPOCH_CEILING_S * per_second)
        ns[inside] = count[inside].astype(np.int64) * (E9 // per_second)
        units += [unit] if inside.any() else []
        if unit == "s":
            ns[inside] += fraction_ns[inside]
    outside = np.flatnonzero(valid & (ns == 0))
    if len(outside):
        raise DataError(
            f"{where} row {first_row + outside[0]}: the stamp {text[int(outside[0])]} lies outside 1990 to 2100 in s, "
            "ms, us and ns since 1970."
        )
    return ns, valid, tuple(units)


def from_serial(text: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Nanoseconds of wall time from a spreadsheet's day count, to the millisecond that its doubles hold.

    Returns:
        int64 [N] nanoseconds, 0 where there is no count; bool [N] whether there is one, between 1990 and 2100.
    """
    serial = text.str.extract(SERIAL).cast(pl.Float64).fill_null(0.0).to_numpy()
    valid = (serial >= SERIAL_FLOOR) & (serial < SERIAL_CEILING)
    ms = np.rint((serial - SERIAL_OF_1970) * DAY_MS).astype(np.int64)
    return np.where(valid, ms * 10**6, 0), valid
