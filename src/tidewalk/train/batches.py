"""Which members, and how many bars, are evaluated at a time: memory is bounded whatever M, T and P.

Everything here is decided before compilation, from lengths that are known on the host. Members whose ranges differ in
length are sorted by it and evaluated in a few buckets, each padded to its own longest.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tidewalk.core.arrays import Array, Bool, Int32, PyTree

CACHE_BYTES = 3 << 20
"""Activations held at a time on a CPU: they stay in its caches."""
SCRATCH_BYTES = 512 << 20
"""Activations held at a time on an accelerator."""
LEAST_CHUNK = 4096
"""Bars that a member is given on an accelerator before further members join it in a batch."""
MOST_BUCKETS = 8
MOST_PADDING = 0.05
"""Share of the evaluated bars that may be padding before members are put into one bucket more."""


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Members of neighbouring ranks by length, evaluated in one form."""

    first: int
    stop: int
    """Ranks `[first, stop)`, longest range first."""
    bars: int
    """Static bound on the length of a range."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What is evaluated at a time."""

    members: int
    chunk: int
    """Bars of each member."""


def batch(compose: str, members: int, bars: int, bar_bytes: int) -> Batch:
    """The batch that fills the scratch memory: on a CPU one member at a time, in chunks that stay in its caches.

    Args:
        compose: `associative` means an accelerator (see `Program`).
        members: members to evaluate.
        bars: static bound on the length of a range.
        bar_bytes: scratch bytes of one bar of one member.
    """
    if compose == "scan":
        return Batch(1, _even(bars, max(1, CACHE_BYTES // bar_bytes)))
    most = max(1, SCRATCH_BYTES // bar_bytes)
    chunk = _even(bars, min(most, max(LEAST_CHUNK, most // members)))
    return Batch(_even(members, max(1, most // chunk)), chunk)


def group_size(members: int, bars: int, bar_bytes: int) -> int:
    """Members that are evaluated at a time, each over the whole of its range, where little is held of a bar."""
    return _even(members, max(1, SCRATCH_BYTES // (bars * bar_bytes)))


def _even(total: int, most: int) -> int:
    """Size of the parts when `total` is cut into as few equal parts of at most `most` as will do."""
    return -(-total // -(-total // most))


def buckets(lengths: Sequence[int], members: int, bars: int, *, most_padding: float = MOST_PADDING) -> list[Bucket]:
    """Buckets of the members that one device evaluates.

    Args:
        lengths: length of the range of every member of the population, in order; empty where they are not known.
        members: members on this device. Devices hold equal shares, in order, and run the same program: a rank is as
            long as the longest that any of them has there.
        bars: static bound on all lengths; what is assumed where lengths are not known.
        most_padding: share of padding that is put up with; above it there is one bucket more, up to `MOST_BUCKETS`.
    """
    if not lengths or len(lengths) % members:
        return [Bucket(0, members, bars)]
    shares = np.sort(np.maximum(np.asarray(lengths, np.int64), 1).reshape(-1, members), axis=1)[:, ::-1]
    longest = np.minimum(shares.max(axis=0), bars)
    found: list[Bucket] = []
    for count in range(1, MOST_BUCKETS + 1):
        cuts = _cuts(longest, count)
        found = [Bucket(first, stop, int(longest[first])) for first, stop in itertools.pairwise(cuts)]
        if padding(found, lengths) <= most_padding:
            break
    return found


def padding(found: Sequence[Bucket], lengths: Sequence[int]) -> float:
    """Share of the bars evaluated on all devices that lie in no range."""
    each = sum(bucket.bars * (bucket.stop - bucket.first) for bucket in found)
    devices = len(lengths) // max(bucket.stop for bucket in found)
    return 1.0 - sum(lengths) / (each * devices)


def _cuts(longest: np.ndarray, count: int) -> list[int]:
    """Edges of at most `count` buckets of ranks with the least padding: dynamic programming over distinct lengths."""
    edges = np.append(np.flatnonzero(np.diff(longest, prepend=longest[0] + 1)), len(longest))
    cost = longest[edges[:-1], None] * (edges[None, :] - edges[:-1, None])  # of a bucket from edge i to edge j
    best, back = np.where(np.arange(len(edges)) == 0, 0.0, np.inf), []
    for _ in range(min(count, len(edges) - 1)):
        total = np.where(cost > 0, best[:-1, None] + cost, np.inf)
        back.append(np.argmin(total, axis=0))
        best = total.min(axis=0)
    at, cuts = len(edges) - 1, [len(longest)]
    for origin in reversed(back):
        at = int(origin[at])
        cuts.append(int(edges[at]))
    return cuts[::-1]


def over_members(
    one: Callable[[Any, int, int], Any],
    rows: PyTree,
    lengths: Int32[Array, "M"],
    plan: Sequence[Bucket],
    batch_of: Callable[[int, int], Batch],
) -> tuple[Any, Bool[Array, "M"]]:
    """`one` for every member, in buckets and batches.

    Args:
        one: (leaves of one member, bound on its range, bars of a chunk) -> arrays of one shape, whatever the bound.
        rows: leaves `[M, ...]`.
        lengths: length of the range of every member.
        plan: buckets that hold these lengths.
        batch_of: (members, bars) -> what to evaluate at a time.

    Returns:
        Leaves `[M, ...]` in the order of the members, and whether each range lay within the bound of its bucket.
    """
    if len(plan) == 1:
        return _in_batches(one, rows, None, plan[0], batch_of), lengths <= plan[0].bars
    order = jnp.argsort(-lengths, stable=True).astype(jnp.int32)
    parts = [_in_batches(one, rows, order[part.first : part.stop], part, batch_of) for part in plan]
    rank = jnp.argsort(order, stable=True)
    bounds = np.repeat([part.bars for part in plan], [part.stop - part.first for part in plan]).astype(np.int32)
    found = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[rank], *parts)
    return found, lengths <= jnp.asarray(bounds)[rank]


def _in_batches(
    one: Callable[[Any, int, int], Any],
    rows: PyTree,
    order: Int32[Array, "N"] | None,
    bucket: Bucket,
    batch_of: Callable[[int, int], Batch],
) -> Any:
    count = bucket.stop - bucket.first
    size = batch_of(count, bucket.bars)

    def of_one(row: PyTree) -> Any:
        return one(row, bucket.bars, size.chunk)

    def taken(where: Array) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[where], rows)

    if size.members >= count:
        return jax.vmap(of_one)(rows if order is None else taken(order))
    order = jnp.arange(count, dtype=jnp.int32) if order is None else order
    if size.members == 1:
        return lax.map(lambda member: of_one(taken(member)), order)
    return _in_groups(lambda group: jax.vmap(of_one)(taken(group)), order, size.members)


def over_groups(many: Callable[[Any], Any], rows: PyTree, members: int, size: int) -> Any:
    """`many` for all members, `size` at a time: leaves `[N, ...]` of some of them -> leaves `[N, ...]`."""
    if size >= members:
        return many(rows)
    order = jnp.arange(members, dtype=jnp.int32)
    return _in_groups(lambda group: many(jax.tree.map(lambda leaf: leaf[group], rows)), order, size)


def _in_groups(many: Callable[[Array], Any], order: Int32[Array, "N"], size: int) -> Any:
    count = order.shape[0]
    groups = -(-count // size)
    filled = order[jnp.arange(groups * size, dtype=jnp.int32) % count]
    found = lax.map(many, filled.reshape(groups, size))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], found)
