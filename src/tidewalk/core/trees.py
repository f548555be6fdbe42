"""Helpers on pytrees of arrays."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core.arrays import Array, Bool, HostOrDevice, PyTree


def nbytes(tree: PyTree) -> int:
    """Bytes of all leaves of a pytree: arrays on host or device, or their shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def select(mask: Bool[Array, "M"], chosen: PyTree, other: PyTree) -> PyTree:
    """Member-wise choice: leaves `[M, ...]` of `chosen` where `mask` holds, else of `other`."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, chosen, other)


def member(tree: PyTree, index: int) -> PyTree:
    """The leaves of one member of a population, axis M removed."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def to_named(tree: PyTree) -> dict[str, np.ndarray]:
    """Host copies of all leaves by path ("agent.params.layers[0].weight"); typed keys as their raw words."""
    return {name: np.asarray(_plain(leaf)) for name, (_, leaf) in by_name(tree).items()}


def by_name(tree: PyTree) -> dict[str, tuple[tuple[Any, ...], Any]]:
    """Path and leaf of every leaf, by the name that `to_named` gives it."""
    return {_name(path): (path, leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def from_named(template: PyTree, arrays: Mapping[str, HostOrDevice]) -> PyTree:
    """The structure of `template` (arrays or shapes) with the leaves of `arrays`, inverse of `to_named`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree.unflatten(structure, [_typed(leaf, arrays[_name(path)]) for path, leaf in leaves])


def schema(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every leaf by path, as `to_named` would write it."""
    plain = {name: jax.eval_shape(_plain, leaf) for name, (_, leaf) in by_name(tree).items()}
    return {name: (leaf.shape, str(leaf.dtype)) for name, leaf in plain.items()}


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path).removeprefix(".")  # type: ignore[arg-type]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: HostOrDevice) -> HostOrDevice:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(like: Any, plain: HostOrDevice) -> HostOrDevice:
    return jax.random.wrap_key_data(jnp.asarray(plain), impl=jax.random.key_impl(like)) if _is_key(like) else plain
