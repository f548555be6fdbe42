import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core import keys


def words(root_seed: int, window: int, seed: int, clock: int) -> np.ndarray:
    member = keys.member_key(keys.root_key(root_seed), jnp.int32(window), jnp.int32(seed))
    return np.asarray(keys.step_bits(member, jnp.int32(clock), 8))


def test_streams_differ_by_root_window_seed_and_clock_and_repeat_exactly():
    base = words(0, 0, 0, 0)
    assert np.array_equal(base, words(0, 0, 0, 0))
    others = [words(1, 0, 0, 0), words(0, 1, 0, 0), words(0, 0, 1, 0), words(0, 0, 0, 1)]
    for other in others:
        assert not np.intersect1d(base, other).size


def test_generator_is_pinned_whatever_the_ambient_default():
    with jax.default_prng_impl("rbg"):
        ambient = jax.random.key_data(keys.root_key(3))
    assert np.array_equal(ambient, jax.random.key_data(keys.root_key(3)))
    assert str(jax.random.key_impl(keys.root_key(3))) == "threefry2x32"


# jax's split(key)[i] is fold_in(key, i): a key folded again with 1 would be that of the second layer's weights
def test_lanes_start_from_another_key_than_any_layer_of_the_network():
    member = keys.member_key(keys.root_key(0), jnp.int32(0), jnp.int32(0))
    layers = np.asarray(jax.random.key_data(jax.random.split(keys.init_key(member), 8)))
    assert not (layers == np.asarray(jax.random.key_data(keys.lanes_key(member)))).all(axis=1).any()
