"""The run-time check of annotations: what it refuses, and the two things it lets pass."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float32, Int32, TypeCheckError, jaxtyped

from typecheck import check


@jaxtyped(typechecker=check)
@functools.partial(jax.tree_util.register_dataclass, data_fields=["prices", "sizes"], meta_fields=["name"])
@dataclasses.dataclass(frozen=True)
class Quotes:
    prices: Float32[Array, "T"]
    sizes: Int32[Array, "T"]
    name: str = ""


@jaxtyped(typechecker=check)
def notional(quotes: Quotes, multiplier: float) -> Float32[Array, "T"]:
    return quotes.prices * quotes.sizes.astype(jnp.float32) * multiplier


def quotes() -> Quotes:
    return Quotes(jnp.ones(3), jnp.ones(3, jnp.int32))


def test_int_passes_for_a_float() -> None:
    assert notional(quotes(), 50).shape == (3,)


def test_wrong_argument_is_refused() -> None:
    with pytest.raises(TypeCheckError, match="multiplier"):
        notional(quotes(), "50")  # type: ignore[arg-type]


def test_record_with_arrays_of_unequal_length_is_refused() -> None:
    with pytest.raises(TypeCheckError, match="sizes"):
        Quotes(jnp.ones(3), jnp.ones(4, jnp.int32))


def test_record_may_be_filled_on_the_host_with_the_right_shapes_and_types() -> None:
    assert Quotes(np.ones(3, np.float32), np.ones(3, np.int32)).name == ""  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError, match="prices"):
        Quotes(np.ones(3, np.float64), np.ones(3, np.int32))  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError, match="sizes"):
        Quotes(np.ones(3, np.float32), np.ones(4, np.int32))  # type: ignore[arg-type]


def test_record_that_a_tree_library_rebuilds_is_not_checked() -> None:
    shapes = jax.tree.map(lambda leaf: leaf.shape, quotes())
    assert shapes.prices == (3,)
    assert jax.eval_shape(lambda record: record, quotes()).sizes.dtype == jnp.int32
    pairs = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), quotes())
    assert jax.vmap(lambda record: notional(record, 2.0))(pairs).shape == (2, 3)


def test_arithmetic_is_strict() -> None:
    with pytest.raises(ValueError, match="jax_numpy_dtype_promotion=strict"):
        jnp.ones(3) + jnp.ones(3, jnp.int32)
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.ones(3) + jnp.ones((2, 3))
    key = jax.random.key(0)
    jax.random.bits(key)
    with pytest.raises(jax.errors.KeyReuseError):
        jax.random.bits(key)


@pytest.mark.multi_device
def test_four_devices_are_simulated() -> None:
    assert len(jax.devices("cpu")) == 4
