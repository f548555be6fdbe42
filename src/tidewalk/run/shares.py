"""Members of a CPU in shares: populations of their own, all run by one compiled program, as many at a time as cores.

The matrix products of these networks are too small to be cut over threads, so a second core gains little inside a
program and everything beside it. A share is no device: there is one copy of the market and one compilation. How large
the shares are follows from the number of members alone, since a compiler may round otherwise where it makes a program
for more members or fewer; so the number of cores decides when a share is computed, and not what comes out. Products of
large batches or layers are the exception: XLA cuts them over its threads, and sums them as it cut (`threads`).
"""

import concurrent.futures
import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from tidewalk.core import trees
from tidewalk.core.arrays import PyTree
from tidewalk.run import control_groups
from tidewalk.run.packed import Packed, unpack
from tidewalk.train.population import Members, Program, member_axis

SIZES = range(2, 8)
"""Members of a share. An update of all of them takes as long as a third of a member more; beyond, caches overflow."""
MANY = 200
"""Members from which on shares are of the largest size: cores that wait for the last one matter no more."""


@dataclasses.dataclass(frozen=True)
class Deal:
    """How the members of a population are dealt out, one by one in turn; a lone share is the population itself.

    What a population function takes and gives by member (members, state, metrics) is, of several shares, a tuple with
    one entry for each. In turn, since neighbours are seeds of one window: so every share has long windows and short
    ones. A share that got one member less than the others computes the last member as well.
    """

    members: int
    size: int
    """Members of every share."""
    cores: int = 1
    """Cores that compute them."""

    @property
    def count(self) -> int:
        """Shares."""
        return -(-self.members // self.size)

    @property
    def at_a_time(self) -> int:
        """Shares that are computed at a time."""
        return min(self.count, self.cores)

    def said(self) -> str:
        """In words, to follow the name of the device."""
        return "" if self.count == 1 else f", in {self.count} shares of {self.size}, {self.at_a_time} at a time"

    def rows(self) -> list[np.ndarray]:
        """The members of each share."""
        dealt = np.minimum(np.arange(self.size * self.count, dtype=np.int32), self.members - 1)
        return list(dealt.reshape(self.size, self.count).T)

    def program(self, program: Program) -> Program:
        """The program of one share, which knows the validation ranges of all of them."""
        if self.count == 1 or not program.val_lengths:
            return program
        lengths = tuple(program.val_lengths[row] for share in self.rows() for row in share)
        return dataclasses.replace(program, val_lengths=lengths)

    def split(self, path: tuple[Any, ...], leaf: np.ndarray) -> Iterator[np.ndarray]:
        """What each share has of a leaf of a train state on the host: a view, or a copy where a member is there twice.

        Args:
            path: of the leaf, as jax tells it.
            leaf: the leaf, of all members.
        """
        axis = member_axis(path)
        return (leaf if axis is None else self._part(share, axis, leaf) for share in range(self.count))

    def _part(self, share: int, axis: int, leaf: np.ndarray) -> np.ndarray:
        part = leaf[_along(axis, slice(share, None, self.count))]
        missing = self.size - part.shape[axis]
        return np.concatenate([part, *[leaf[_along(axis, slice(-1, None))]] * missing], axis) if missing else part

    def split_members(self, whole: Members) -> Members | tuple[Members, ...]:
        """What each share has of the members, on their device."""
        if self.count == 1:
            return whole

        def split(whole: Members) -> tuple[Members, ...]:
            return tuple(jax.tree.map(operator.itemgetter(rows), whole) for rows in self.rows())

        return jax.jit(split)(whole)

    def join(self, shares: PyTree) -> PyTree:
        """The whole of what was split, from host arrays; inverse of `split`. It makes one copy, and nothing beside."""
        return shares if self.count == 1 else jax.tree_util.tree_map_with_path(self._joined, *shares)

    def _joined(self, path: tuple[Any, ...], *leaves: np.ndarray) -> np.ndarray:
        axis = member_axis(path)
        if axis is None:
            return leaves[0]
        whole = np.empty(self._whole_shape(axis, leaves[0]), leaves[0].dtype)
        for share, leaf in enumerate(leaves):
            part = whole[_along(axis, slice(share, None, self.count))]
            part[...] = leaf[_along(axis, slice(part.shape[axis]))]
        return whole

    def named(self, shares: PyTree) -> Mapping[str, np.ndarray]:
        """The whole of a train state on the host, leaf by leaf under its name, each joined when it is asked for."""
        if self.count == 1:
            return trees.to_named(shares)
        each = [trees.by_name(share) for share in shares]
        return _Made(
            {
                name: functools.partial(self._joined, path, *(share[name][1] for share in each))
                for name, (path, _) in each[0].items()
            }
        )

    def joined_shape(self, shares: PyTree) -> PyTree:
        """Shapes of the whole."""

        def shape(path: tuple[Any, ...], leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(self._whole_shape(member_axis(path), leaf), leaf.dtype)

        return jax.tree_util.tree_map_with_path(shape, shares if self.count == 1 else shares[0])

    def _whole_shape(self, axis: int | None, leaf: Any) -> tuple[int, ...]:
        return leaf.shape if axis is None else (*leaf.shape[:axis], self.members, *leaf.shape[axis + 1 :])

    def one(self, fixed: tuple[Any, ...], *by_member: Any) -> tuple[Any, ...]:
        """The arguments of the first share: market, windows, members and what follows."""
        market, windows, members = fixed
        mine = (members, *by_member) if self.count == 1 else (members[0], *(part[0] for part in by_member))
        return market, windows, *mine

    def run(self, program: Callable[..., Any], fixed: tuple[Any, ...], *by_member: Any) -> Any:
        """What a program gives for all members, begun at once; it waits for the device no more than the program does.

        Args:
            program: compiled for `one`.
            fixed: market, windows and members.
            by_member: what follows them.

        Returns:
            What the program does; of several shares a tuple with one entry for each, or, where the program gives a
            plain tuple (not a named one), a tuple of such tuples.

        Raises:
            Exception: what the first share that failed raised, once none of them is computed any more.
        """
        market, windows, members = fixed
        if self.count == 1:
            return program(market, windows, members, *by_member)
        begun = [
            _thread(number % self.cores).submit(_guarded, program, market, windows, *share)
            for number, share in enumerate(zip(members, *by_member, strict=True))
        ]
        try:
            concurrent.futures.wait(begun)
        except BaseException:
            for one in begun:
                one.cancel()
            raise
        found = [one.result() for one in begun]
        return tuple(zip(*found, strict=True)) if type(found[0]) is tuple else tuple(found)

    def metrics(self, packed: Packed | tuple[Packed, ...]) -> dict[str, np.ndarray]:
        """Metrics of all members `[M]`, from what came to the host."""
        if isinstance(packed, Packed):
            return unpack(packed)
        return self.join([unpack(one) for one in packed])


@dataclasses.dataclass(frozen=True)
class _Made(Mapping[str, np.ndarray]):
    """Arrays by name that are made anew whenever they are asked for."""

    makers: dict[str, Callable[[], np.ndarray]]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def deal(members: int) -> Deal:
    """How M members are dealt out: on a CPU so that two cores take least time, or else four, or else with few shares.

    On an accelerator, and where they are fewer than four, they stay together.
    """
    if jax.default_backend() != "cpu" or members < 4:
        return Deal(members, max(members, 1))

    def turns(size: int) -> tuple[int, int, int]:
        count = -(-members // size)
        return -(-count // 2) * (3 * size + 1), -(-count // 4) * (3 * size + 1), count

    sizes = SIZES if members < MANY else SIZES[-1:]
    return Deal(members, min(sizes, key=turns), usable_cores())


def said() -> str:
    """In words, how a study will be computed here on a CPU."""
    return f"cores: {usable_cores()} work at a time for a study, each on a share of up to {SIZES[-1]} members"


@functools.cache
def usable_cores() -> int:
    """Cores that this process may use: what it was confined to, or the host devices that its user asked jax for."""
    devices = len(jax.local_devices(backend="cpu"))
    asked = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]  # it is there only at run time
    if asked > 0 or devices > 1:
        return devices
    cores = _affinity()
    return min(cores, control_groups.cores() or cores)


def threads() -> int:
    """Threads that XLA cuts a large matrix product over: another number of them may change its last bits."""
    for name in ("PJRT_NPROC", "NPROC"):
        if os.environ.get(name, "").isdecimal():
            return max(int(os.environ[name]), len(jax.local_devices(backend="cpu")))
    return max(_affinity(), len(jax.local_devices(backend="cpu")))


def _affinity() -> int:
    """Cores that this process was confined to."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _along(axis: int, members: slice) -> tuple[slice, ...]:
    """The index of some members where they lie along an axis."""
    return (*(slice(None),) * axis, members)


def _guarded(program: Callable[..., Any], *args: Any) -> Any:
    """A call whose arguments have to be resident: the guard of the thread that asks for it does not reach here."""
    with jax.transfer_guard("disallow_explicit"):
        return program(*args)


@functools.cache
def _thread(number: int) -> concurrent.futures.ThreadPoolExecutor:
    """A thread that begins shares. jax runs what one thread asks for in turn, and what several ask for side by side."""
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"shares-{number}")
