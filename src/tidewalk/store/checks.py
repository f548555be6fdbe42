"""Checks of what is stored: exact keys, every null explained, money that adds up."""

import re
from collections.abc import Mapping
from typing import Any, cast, overload

import polars as pl

from tidewalk.core.errors import StoreError, did_you_mean

TOLERANCE_USD = 0.005
"""Differences below this are rounding of sums in float64, not money."""


@overload
def differs(left_usd: float, right_usd: float) -> bool: ...
@overload
def differs(left_usd: pl.Expr, right_usd: pl.Expr) -> pl.Expr: ...
def differs(left_usd: Any, right_usd: Any) -> Any:
    """Whether two amounts of money, or the columns of two, differ by more than rounding."""
    return abs(left_usd - right_usd) > TOLERANCE_USD + 1e-9 * abs(right_usd)


def check_keys(
    where: str,
    value: Any,
    keys: tuple[str, ...],
    *,
    noun: str = "key",
    or_more: bool = False,
    optional: tuple[str, ...] = (),
) -> None:
    """Raises a StoreError unless `value` is a mapping with exactly these keys.

    Args:
        where: what the value is, for the error.
        value: what is checked.
        keys: what it must have.
        noun: what a key is called.
        or_more: whether any others may stand beside them.
        optional: others that may.
    """
    if not isinstance(value, Mapping):
        raise StoreError(f"{where}: {type(value).__name__} found, an object with {', '.join(keys)} is needed.")
    for key in map(str, cast("Mapping[Any, Any]", value)):
        if key not in (*keys, *optional) and not or_more:
            raise StoreError(f"{where}: {noun} {key!r} is not one of {', '.join(keys)}{did_you_mean(key, keys)}.")
    missing = [key for key in keys if key not in value]
    if missing:
        raise StoreError(f"{where}: {noun} {', '.join(map(repr, missing))} is missing.")


def check_nested(
    where: str, value: Any, spec: Mapping[str, tuple[str, ...]], optional: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Checks the keys of an object and of the objects in it; the first entry of `spec` is the outer one.

    An inner object may be null as a whole. `optional` holds keys, by the names of `spec`, that may be there or not.
    """
    outer, *inner = spec
    may = optional or {}
    check_keys(where, value, spec[outer], optional=may.get(outer, ()))
    for key in inner:
        if value[key] is not None:
            check_keys(f"{where}: {key}", value[key], spec[key], optional=may.get(key, ()))


def null_paths(value: Any, path: str = "") -> list[str]:
    """Places of all nulls, as in "oos.psr" and "per_window[2].oracle_usd"."""
    if value is None:
        return [path]
    if isinstance(value, Mapping):
        places = [(f"{path}.{key}".lstrip("."), item) for key, item in cast("Mapping[str, Any]", value).items()]
    elif isinstance(value, list | tuple):
        places = [(f"{path}[{index}]", item) for index, item in enumerate(cast("list[Any]", value))]
    else:
        return []
    return [found for place, item in places for found in null_paths(item, place)]


def is_named(path: str, warnings: list[str]) -> bool:
    """Whether a warning names the place, with its list indices or without them (then it covers all rows)."""
    names = "|".join(re.escape(name) for name in {path, re.sub(r"\[\d+\]", "", path)})
    pattern = re.compile(rf"(?<![\w.])(?:{names})(?![\w\[]|\.\w)")
    return any(pattern.search(warning) for warning in warnings)
