"""Members of a CPU in shares: populations of their own, all run by one compiled program, as many at a time as cores.

The matrix products of these networks are too small to be cut over threads, so a second core gains little inside a
program and everything beside it. A share is no device: there is one copy of the market and one compilation. How large
the shares are follows from the number of members alone, since a compiler may round otherwise where it makes a program
for more members or fewer; so the number of cores decides when a share is computed, and never what comes out.
"""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core import trees
from tidewalk.core.arrays import PyTree
from tidewalk.run.packed import Packed, unpack
from tidewalk.train.population import Members, Program

SIZES = range(2, 8)
"""Members of a share. An update of all of them takes as long as a third of a member more; beyond, caches overflow."""
MANY = 200
"""Members from which on shares are of the largest size: cores that wait for the last one matter no more."""
_MEMBER_AXES = {"replay": 1, "clock": None}
"""Axis of the members in a leaf of a train state, where it is not the first."""
_QUOTA = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")


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

    @property
    def _places(self) -> np.ndarray:
        """Where each member is among all shares end to end."""
        member = np.arange(self.members, dtype=np.int32)
        return member % self.count * self.size + member // self.count

    def program(self, program: Program) -> Program:
        """The program of one share, which knows the validation ranges of all of them."""
        if self.count == 1 or not program.val_lengths:
            return program
        lengths = tuple(program.val_lengths[row] for share in self.rows() for row in share)
        return dataclasses.replace(program, val_lengths=lengths)

    def split(self, whole: PyTree) -> PyTree:
        """What each share has of a train state on the host."""
        if self.count == 1:
            return whole
        return tuple(_taken(whole, rows) for rows in self.rows())

    def split_members(self, whole: Members) -> Members | tuple[Members, ...]:
        """What each share has of the members, on their device."""
        if self.count == 1:
            return whole
        rows = np.stack(self.rows())
        every = jax.jit(functools.partial(jax.tree.map, lambda leaf: leaf[rows]))(whole)
        return tuple(trees.member(every, share) for share in range(self.count))

    def join(self, shares: PyTree, concatenate: Callable[..., Any] = np.concatenate) -> PyTree:
        """The whole of what was split, from host arrays; inverse of `split`."""
        if self.count == 1:
            return shares

        def joined(path: tuple[Any, ...], *leaves: Any) -> Any:
            axis = _axis(path)
            if axis is None:
                return leaves[0]
            return concatenate(leaves, axis=axis)[(slice(None),) * axis + (self._places,)]

        return jax.tree_util.tree_map_with_path(joined, *shares)

    def joined_shape(self, shares: PyTree) -> PyTree:
        """Shapes of the whole."""
        return jax.eval_shape(functools.partial(self.join, concatenate=jnp.concatenate), shares)

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
        """
        market, windows, members = fixed
        if self.count == 1:
            return program(market, windows, members, *by_member)
        begun = [
            _thread(number % self.cores).submit(_guarded, program, market, windows, *share)
            for number, share in enumerate(zip(members, *by_member, strict=True))
        ]
        found = [one.result() for one in begun]
        return tuple(zip(*found, strict=True)) if isinstance(found[0], tuple) else tuple(found)

    def metrics(self, packed: Packed | tuple[Packed, ...]) -> dict[str, np.ndarray]:
        """Metrics of all members `[M]`, from what came to the host."""
        if isinstance(packed, Packed):
            return unpack(packed)
        shares = [unpack(one) for one in packed]
        return {name: np.concatenate([one[name] for one in shares])[self._places] for name in shares[0]}


def deal(members: int) -> Deal:
    """How M members are dealt out: on a CPU so that two cores take least time, or else four, or else with few shares.

    On an accelerator, and where they are fewer than four, they stay together.
    """
    if jax.default_backend() != "cpu" or members < 4:
        return Deal(members, members)

    def turns(size: int) -> tuple[int, int, int]:
        count = -(-members // size)
        return -(-count // 2) * (3 * size + 1), -(-count // 4) * (3 * size + 1), count

    sizes = SIZES if members < MANY else SIZES[-1:]
    return Deal(members, min(sizes, key=turns), usable_cores())


@functools.cache
def usable_cores() -> int:
    """Cores that this process may use: what it was confined to, or the host devices that its user asked jax for."""
    devices = len(jax.local_devices(backend="cpu"))
    if jax.config.values["jax_num_cpu_devices"] > 0 or devices > 1:
        return devices
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, _quota() or cores))


def _quota() -> int | None:
    """Whole cores that the control group of the process may use at a time; None where it sets no bound."""
    unified, quota, period = map(Path, _QUOTA)
    for texts in (lambda: unified.read_text().split(), lambda: [quota.read_text(), period.read_text()]):
        try:
            granted, each = (int(text) for text in texts())
        except (OSError, ValueError):  # no such group, or "max"
            continue
        if granted > 0:
            return max(1, granted // each)
    return None


def _axis(path: tuple[Any, ...]) -> int | None:
    return _MEMBER_AXES.get(getattr(path[0], "name", ""), 0)


def _taken(whole: PyTree, rows: np.ndarray) -> PyTree:
    def taken(path: tuple[Any, ...], leaf: Any) -> Any:
        axis = _axis(path)
        return leaf if axis is None else leaf[(slice(None),) * axis + (rows,)]

    return jax.tree_util.tree_map_with_path(taken, whole)


def _guarded(program: Callable[..., Any], *args: Any) -> Any:
    """A call whose arguments have to be resident: the guard of the thread that asks for it does not reach here."""
    with jax.transfer_guard("disallow_explicit"):
        return program(*args)


@functools.cache
def _thread(number: int) -> concurrent.futures.ThreadPoolExecutor:
    """A thread that begins shares. jax runs what one thread asks for in turn, and what several ask for side by side."""
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"shares-{number}")
