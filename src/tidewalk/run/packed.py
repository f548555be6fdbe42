"""Metrics of an epoch as one array of words, so that they come to the host in one copy and one wait."""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tidewalk.core.arrays import Array, HostOrDevice, Int32


@functools.partial(jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["layout"])
@dataclasses.dataclass(frozen=True)
class Packed:
    """Metrics of all members, a row for each; the layout travels with the compiled program."""

    words: Int32[HostOrDevice, "K M"]
    layout: tuple[tuple[str, str], ...]
    """Name and dtype of every row."""


def pack(metrics: Mapping[str, Array], members: int) -> Packed:
    """Metrics as one array.

    Args:
        metrics: arrays `[M]` or scalars, of 32 bits or bool.
        members: M.
    """
    rows = [jnp.broadcast_to(_as_words(values), (members,)) for values in metrics.values()]
    return Packed(jnp.stack(rows), tuple((name, values.dtype.name) for name, values in metrics.items()))


def unpack(packed: Packed) -> dict[str, np.ndarray]:
    """The metrics `[M]` of host words, by name, inverse of `pack`; a scalar is there once for each member."""
    rows = zip(packed.layout, np.asarray(packed.words), strict=True)
    return {name: row.astype(bool) if dtype == "bool" else row.view(dtype) for (name, dtype), row in rows}


def _as_words(values: Array) -> Array:
    plain = values.astype(jnp.int32) if values.dtype == bool else values
    return lax.bitcast_convert_type(plain, jnp.int32)
