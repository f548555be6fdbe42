"""Index-only replay of a population: a transition is two int32 words, because the market does not answer back.

One packed record array `[C, M, 2]` with a ring cursor that all members share: a vector step writes E contiguous rows, a
sample is one gather. Rewards and observations are computed again from the resident market. Word 0 is the bar; word 1
packs position, action and what the account of the lane did, which the market alone does not tell. Separate buffers per
field made XLA copy whole buffers in every iteration.

The cursor and the fill level are functions of the shared clock (vector steps stored so far), so they are not stored.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from tidewalk.core.arrays import Array, Bool, Int32, UInt32

WORDS = 2
_ACTION_SHIFT, _FRESH_SHIFT, _HALTED_SHIFT, _TERMINATED_SHIFT = 8, 16, 17, 18
_MASK = 0xFF


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["bar", "position", "action", "is_fresh", "is_halted", "is_terminated"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Records:
    """One-step transitions, as few numbers as tell all of them."""

    bar: Int32[Array, "*batch"]
    position: Int32[Array, "*batch"]
    action: Int32[Array, "*batch"]
    is_fresh: Bool[Array, "*batch"]
    """First step of a lane after a restart."""
    is_halted: Bool[Array, "*batch"]
    """The decision after this one may only be flat, by an account limit."""
    is_terminated: Bool[Array, "*batch"]
    """The account ended with this step."""


def empty(capacity: int, members: int) -> Int32[Array, "C M 2"]:
    """A replay of `capacity` rows for each member, all zero."""
    return jnp.zeros((capacity, members, WORDS), jnp.int32)


def pack(records: Records) -> Int32[Array, "*batch 2"]:
    """Two words for each record."""
    flags = (
        (records.is_fresh.astype(jnp.int32) << _FRESH_SHIFT)
        | (records.is_halted.astype(jnp.int32) << _HALTED_SHIFT)
        | (records.is_terminated.astype(jnp.int32) << _TERMINATED_SHIFT)
    )
    return jnp.stack([records.bar, records.position | (records.action << _ACTION_SHIFT) | flags], axis=-1)


def unpack(words: Int32[Array, "*batch 2"]) -> Records:
    """Inverse of `pack`."""
    word = words[..., 1]

    def flag(shift: int) -> Bool[Array, "*batch"]:
        return ((word >> shift) & 1) == 1

    return Records(
        bar=words[..., 0],
        position=word & _MASK,
        action=(word >> _ACTION_SHIFT) & _MASK,
        is_fresh=flag(_FRESH_SHIFT),
        is_halted=flag(_HALTED_SHIFT),
        is_terminated=flag(_TERMINATED_SHIFT),
    )


def add(replay: Int32[Array, "C M 2"], rows: Int32[Array, "E M 2"], clock: Int32[Array, ""]) -> Int32[Array, "C M 2"]:
    """Store the E rows of vector step `clock` (0-based): one contiguous write. C is a multiple of E.

    The rows are asked for in the order of the replay. Where they come out of a transposition, XLA on a GPU would rather
    keep the whole replay transposed through the loop, with a second replay in memory and two copies in every epoch.
    """
    lanes = rows.shape[0]
    rows = with_layout_constraint(rows, Layout(major_to_minor=(0, 1, 2)))
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
