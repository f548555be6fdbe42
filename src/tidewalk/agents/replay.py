"""Index-only replay of a population: a transition is two int32 words, because the market does not answer back.

One packed record array `[C, M, 2]` with a ring cursor that all members share: a vector step writes E contiguous rows, a
sample is one gather. Rewards and observations are computed again from the resident market. Word 0 is the bar; word 1
packs position, action and the flag of a lane's first step after a restart. Separate buffers per field made XLA copy
whole buffers in every iteration.

The cursor and the fill level are functions of the shared clock (vector steps stored so far), so they are not stored.
"""

import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Bool, Int32, UInt32

WORDS = 2
_ACTION_SHIFT, _FRESH_SHIFT = 8, 16
_MASK = 0xFF


def empty(capacity: int, members: int) -> Int32[Array, "C M 2"]:
    """A replay of `capacity` rows for each member, all zero."""
    return jnp.zeros((capacity, members, WORDS), jnp.int32)


def pack(
    bar: Int32[Array, "*batch"],
    position: Int32[Array, "*batch"],
    action: Int32[Array, "*batch"],
    is_fresh: Bool[Array, "*batch"],
) -> Int32[Array, "*batch 2"]:
    """Records of one-step transitions; `is_fresh` marks the first step of a lane after a restart."""
    word = position | (action << _ACTION_SHIFT) | (is_fresh.astype(jnp.int32) << _FRESH_SHIFT)
    return jnp.stack([bar, word], axis=-1)


def unpack(
    records: Int32[Array, "*batch 2"],
) -> tuple[Int32[Array, "*batch"], Int32[Array, "*batch"], Int32[Array, "*batch"], Bool[Array, "*batch"]]:
    """Bar, position, action and is_fresh of packed records, inverse of `pack`."""
    word = records[..., 1]
    return records[..., 0], word & _MASK, (word >> _ACTION_SHIFT) & _MASK, ((word >> _FRESH_SHIFT) & 1) == 1


def add(replay: Int32[Array, "C M 2"], rows: Int32[Array, "E M 2"], clock: Int32[Array, ""]) -> Int32[Array, "C M 2"]:
    """Store the E rows of vector step `clock` (0-based): one contiguous write. C is a multiple of E."""
    lanes = rows.shape[0]
    slot = clock % (replay.shape[0] // lanes)
    zero = jnp.zeros_like(slot)
    return lax.dynamic_update_slice(replay, rows, (slot * lanes, zero, zero))


def sample(
    replay: Int32[Array, "C M 2"], stored: Int32[Array, ""], bits: UInt32[Array, "M B"], lanes: int, n_step: int
) -> Int32[Array, "M B N 2"]:
    """Sequences of `n_step` consecutive records of one lane, drawn uniformly with replacement.

    Args:
        replay: the records.
        stored: vector steps stored so far, at least `n_step`.
        bits: one random word per draw.
        lanes: E, rows of one vector step.
        n_step: N; a start is never so recent that its sequence would cross the ring cursor.

    Returns:
        Record sequences, oldest first. A later record that is fresh belongs to another episode: the caller cuts there.
    """
    slots = replay.shape[0] // lanes
    filled = jnp.minimum(stored, slots)
    starts = (filled - (n_step - 1)).astype(jnp.uint32)
    draw = bits % (starts * jnp.uint32(lanes))
    age = (n_step - 1) + (draw // jnp.uint32(lanes)).astype(jnp.int32)
    lane = (draw % jnp.uint32(lanes)).astype(jnp.int32)
    first = (stored - 1 - age)[..., None] + jnp.arange(n_step, dtype=jnp.int32)[None, None, :]
    rows = (first % slots) * lanes + lane[..., None]
    members = jnp.arange(bits.shape[0], dtype=jnp.int32)[:, None, None]
    return replay[rows, members]
