"""Maps from the position held before a decision to the one held after it, and how they are chained along time.

Maps compose, and composition is associative: a pass over H bars has depth log H. The map of up to 8 positions is one
int32 word with 4 bits for each, so that two are composed by a handful of shifts; larger maps are rows of indices.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Int32, PyTree

_BITS, _FIELD, _MOST_IN_A_WORD = 4, 15, 8


def prefix(compose: str, combine: Callable[[Any, Any], Any], rows: PyTree, nothing: PyTree) -> PyTree:
    """Running combination of rows `[H, ...]` along time.

    Args:
        compose: `scan` goes row by row, the faster form on a CPU; `associative` has depth log H, for accelerators.
        combine: (what came first, what comes then) -> both. Associative and exact, so that the forms agree.
        rows: arrays with time in front.
        nothing: a row that changes nothing when combined.
    """
    if compose == "associative":
        return lax.associative_scan(combine, rows)

    def body(held: Any, row: Any) -> tuple[Any, Any]:
        after = combine(held, row)
        return after, after

    return lax.scan(body, nothing, rows)[1]


def packed(maps: Int32[Array, "H P"]) -> Int32[Array, "H ..."]:
    """Maps in their shortest form: words `[H]` of up to 8 positions; else the rows `[H, P]` as they are."""
    positions = maps.shape[1]
    if positions > _MOST_IN_A_WORD:
        return maps
    return _joined([maps[:, position] for position in range(positions)])


def chain(compose: str, position: Int32[Array, ""], maps: Int32[Array, "H P"]) -> Int32[Array, "H"]:
    """Positions after each map, starting from `position` (see `prefix` for `compose`)."""
    return chain_packed(compose, position, packed(maps), maps.shape[1])


def chain_packed(
    compose: str, position: Int32[Array, ""], maps: Int32[Array, "H ..."], num_positions: int
) -> Int32[Array, "H"]:
    """Positions after each map in its shortest form, starting from `position`."""
    is_word = maps.ndim == 1
    if compose == "scan":

        def body(held: Array, one: Array) -> tuple[Array, Array]:
            after = _field(one, held) if is_word else one[held]
            return after, after

        return lax.scan(body, position, maps)[1]

    def words(first: Array, then: Array) -> Array:
        return _joined([_field(then, _field(first, p)) for p in range(num_positions)])

    def rows(first: Array, then: Array) -> Array:
        return jnp.take_along_axis(then, first, axis=-1)

    if is_word:
        stay = _joined([jnp.int32(p) for p in range(num_positions)])
        return _field(prefix(compose, words, maps, stay), position)
    return lax.associative_scan(rows, maps)[:, position]


def _field(word: Array, number: Array | int) -> Array:
    return (word >> (_BITS * number)) & _FIELD


def _joined(fields: list[Array]) -> Array:
    return functools.reduce(operator.or_, (field << (_BITS * p) for p, field in enumerate(fields)))
