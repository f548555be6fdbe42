"""Helpers on pytrees of arrays."""

import math
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
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


def from_named(template: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """The structure of `template` (arrays or shapes) with the leaves of `arrays` (host), inverse of `to_named`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree.unflatten(structure, [_typed(leaf, arrays[_name(path)]) for path, leaf in leaves])


def schema(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every leaf by path, as `to_named` would write it."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    plain = {_name(path): jax.eval_shape(_plain, leaf) for path, leaf in leaves}
    return {name: (leaf.shape, str(leaf.dtype)) for name, leaf in plain.items()}


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path).removeprefix(".")  # type: ignore[arg-type]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: HostOrDevice) -> HostOrDevice:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(like: Any, host: np.ndarray) -> HostOrDevice:
    return jax.random.wrap_key_data(jnp.asarray(host), impl=jax.random.key_impl(like)) if _is_key(like) else host
