"""Maps chained along time against following them one by one, in plain Python."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidewalk.train.chains import chain, packed, prefix

FORMS = ("scan", "associative")


@functools.partial(jax.jit, static_argnums=0)
def chained(compose, start, maps):
    return chain(compose, start, maps)


@pytest.mark.parametrize("positions", [2, 3, 8, 9])
@pytest.mark.parametrize("kind", ["random", "rotations", "one that forgets"])
def test_both_forms_follow_the_maps_one_by_one(positions, kind):
    rng = np.random.default_rng(positions)
    maps = rng.integers(0, positions, (150, positions))
    if kind == "rotations":  # nothing is ever forgotten: the last position hangs on the first and on every map
        maps = (np.arange(positions)[None, :] + rng.integers(0, positions, 150)[:, None]) % positions
    if kind == "one that forgets":
        maps[20] = positions - 1
    for start in (0, positions - 1):
        held, expected = start, []
        for row in maps:
            held = int(row[held])
            expected.append(held)
        for form in FORMS:
            found = chained(form, jnp.int32(start), jnp.asarray(maps, jnp.int32))
            assert found.tolist() == expected


def test_a_map_of_up_to_eight_positions_is_one_word():
    """More positions than bits for them would spill from one field into the next."""
    for positions in range(2, 12):
        maps = jnp.broadcast_to(jnp.arange(positions, dtype=jnp.int32)[::-1], (5, positions))
        assert packed(maps).shape == ((5,) if positions <= 8 else (5, positions))
        assert (packed(maps) >= 0).all()


def test_a_running_combination_is_the_same_in_both_forms():
    values = jnp.asarray(np.random.default_rng(0).integers(-90, 10, 100), jnp.int32)
    found = [prefix(form, jnp.maximum, values, jnp.int32(-100)).tolist() for form in FORMS]
    assert found[0] == found[1] == np.maximum.accumulate(np.asarray(values)).tolist()
