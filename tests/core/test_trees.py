import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core import keys, trees


def tree():
    return {"weights": (jnp.arange(6.0).reshape(2, 3), jnp.int32(4)), "key": jax.random.split(keys.root_key(1), 2)}


def test_named_arrays_restore_the_same_tree_with_typed_keys():
    named = trees.to_named(tree())
    assert set(named) == {"['key']", "['weights'][0]", "['weights'][1]"}
    again = trees.from_named(tree(), named)
    assert np.array_equal(jax.random.key_data(again["key"]), jax.random.key_data(tree()["key"]))
    assert np.array_equal(again["weights"][0], tree()["weights"][0])


def test_schema_describes_what_to_named_writes():
    named = trees.to_named(tree())
    assert trees.schema(tree()) == {name: (array.shape, str(array.dtype)) for name, array in named.items()}


def test_select_chooses_by_member_for_leaves_of_any_rank():
    mask = jnp.array([True, False])
    chosen = trees.select(mask, (jnp.ones((2, 3)), jnp.ones(2)), (jnp.zeros((2, 3)), jnp.zeros(2)))
    assert np.array_equal(chosen[0], [[1, 1, 1], [0, 0, 0]])
    assert np.array_equal(chosen[1], [1, 0])


def test_nbytes_counts_all_leaves():
    assert trees.nbytes((np.zeros((2, 3), np.float32), np.zeros(5, np.int8))) == 29
