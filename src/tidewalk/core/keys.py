"""Random keys, named by their use; every stream of a study derives from one root seed."""

import jax

from tidewalk.core.arrays import Array, Key, UInt32

_INIT, _STEP, _LANES = 0, 1, 2


def root_key(seed: int) -> Key[Array, ""]:
    """Root key of a study. The generator is pinned, so ambient jax settings cannot change a result."""
    return jax.random.key(seed, impl="threefry2x32")


def member_key(root: Key[Array, ""], window: Array, seed: Array) -> Key[Array, ""]:
    """Key of one member: a function of its window and seed alone, never of its place in the population."""
    return jax.random.fold_in(jax.random.fold_in(root, window), seed)


def init_key(member: Key[Array, ""]) -> Key[Array, ""]:
    """Key for the initial weights of a member."""
    return jax.random.fold_in(member, _INIT)


def lanes_key(member: Key[Array, ""]) -> Key[Array, ""]:
    """Key for the bars at which the lanes of a member start."""
    return jax.random.fold_in(member, _LANES)


def step_key(member: Key[Array, ""], clock: Array) -> Key[Array, ""]:
    """Key for all that a member draws in the vector step `clock`."""
    return jax.random.fold_in(jax.random.fold_in(member, _STEP), clock)


def words(key: Key[Array, ""], count: int) -> UInt32[Array, "count"]:
    """Random words, drawn at once."""
    return jax.random.bits(key, (count,), dtype="uint32")


def step_bits(member: Key[Array, ""], clock: Array, count: int) -> UInt32[Array, "count"]:
    """All random words that a member uses in the vector step `clock`: one draw per step."""
    return words(step_key(member, clock), count)
