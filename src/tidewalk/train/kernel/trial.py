"""Whether kernels run on a device after all: the smallest of them, tried before a study relies on the others.

What a device is says little of what its driver takes: one that is too old for the shipped assembly text refuses it only
at the first launch.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core.arrays import Array
from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import TAKEN_SINCE, WalkPlan
from tidewalk.train.kernel.tables import FLAG_WORDS

_POSITIONS, _FLAT, _HELD = 3, 1, 2
_MOVE_TICKS, _LOTS, _SIDES, _ROLLED, _SQUARE = 7, 3, 5, 2, 0.25


@functools.cache
def refusal() -> str | None:
    """Why the walk along maps does not run on the first device, in words; None where it does.

    A process asks its device once.
    """
    try:
        counts, reals, _ = _walked()
    except jax.errors.JaxRuntimeError as error:
        said = (str(error).splitlines() or ["no reason given"])[0].rstrip(". ")
        remedy = f"; drivers of {TAKEN_SINCE} and later do" if "UNSUPPORTED_PTX_VERSION" in said else ""
        return f"the device does not run it ({said}){remedy}"
    found, expected = [*counts.ravel(), *reals.ravel()], [_LOTS * _MOVE_TICKS, _SIDES, _ROLLED, 0.0, _SQUARE]
    return None if found == expected else f"tried on the device it gave {found} in place of {expected}"


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs, and is no fault of the device
def _walked() -> Sequence[np.ndarray]:
    """Results of the walk along one bar, as `walk.cuh` orders them."""
    kinds = [((1, 3), jnp.int32), ((1, 2), jnp.float32), ((1, 1), jnp.int8)]
    shapes = [jax.ShapeDtypeStruct(*kind) for kind in kinds]

    def launch(*operands: Array) -> Sequence[Array]:
        return call.run_kernel(WalkPlan(), operands, shapes, (1, 1))

    return jax.device_get(jax.jit(launch)(*_one_bar()))


def _one_bar() -> tuple[np.ndarray, ...]:
    """Operands of one member and bar; its map leads from flat to a position, whose entries of the tables are set."""
    bounds, lots = np.zeros((FLAG_WORDS, _POSITIONS, 2), np.int32), np.zeros(_POSITIONS, np.int32)
    sides, rolled = np.zeros((2, 2, _POSITIONS, _POSITIONS), np.int32)
    lots[_HELD], sides[0, _FLAT, _HELD], rolled[0, _FLAT, _HELD] = _LOTS, _SIDES, _ROLLED
    tables = np.concatenate([part.ravel() for part in (bounds, sides, rolled, lots)])
    sizes, nothing = np.array([1, 1, _POSITIONS, _FLAT, 0, 0], np.int32), np.zeros(1, np.int32)
    ranges, words = np.array([[0, 1]], np.int32), np.array([[_HELD << (4 * _FLAT)]], np.int32)
    moves, squares = np.array([_MOVE_TICKS], np.int32), np.array([[_SQUARE]], np.float32)
    return sizes, nothing, ranges, moves, nothing, np.zeros(1, np.float32), tables, words, squares
