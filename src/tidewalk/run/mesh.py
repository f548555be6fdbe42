"""Devices and their memory, the mesh of the member axis, and the counted ways to the device and back."""

import dataclasses
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from tidewalk.core.arrays import PyTree
from tidewalk.core.errors import ConfigError
from tidewalk.core.trees import nbytes
from tidewalk.run import ambient, compiler, control_groups

PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bf16": "BF16_BF16_F32"}
"""What jax calls each `--precision`. Its own `bfloat16` means the backend's fastest, which is tf32 on a GPU."""
MEMBER_AXIS = "members"


@dataclasses.dataclass
class Transfers:
    """Counters of what crosses between host and device: the one mutable thing of a study beside its train state."""

    uploads: int = 0
    """Times that a market went up; once in a study that keeps it resident."""
    bytes_market: int = 0
    """What they sent."""
    bytes_h2d: int = 0
    """All that went up, markets included."""
    bytes_d2h: int = 0
    """All that came down."""
    host_syncs: int = 0
    """Times that the host waited for the device."""

    def since(self, before: "Transfers") -> "Transfers":
        """What was counted after `before`, a copy of an earlier state of these counters."""
        return Transfers(*(now - then for now, then in zip(vars(self).values(), vars(before).values(), strict=True)))

    def plus(self, other: "Transfers") -> "Transfers":
        """What both counted."""
        return Transfers(*(one + more for one, more in zip(vars(self).values(), vars(other).values(), strict=True)))


def choose_platform(device: str | None) -> None:
    """Select the jax platform before jax first touches a device; None leaves the choice to jax and the environment.

    Raises:
        ConfigError: the platform is not there.
    """
    if device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(ambient.no_device(error, f"--device {device}" if device else None)) from error


def make_reproducible() -> None:
    """Ask XLA for kernels that give the same bits run after run; must come before jax first touches a GPU."""
    compiler.set_flags()


def devices() -> list[Any]:
    """The devices that work: all local accelerators, or the one CPU, of whose cores `run.shares` makes use.

    A program that is split over several CPU devices is rewritten by the compiler (a division becomes a product here and
    there), and rounds differently.
    """
    found = jax.local_devices()
    return found[:1] if jax.default_backend() == "cpu" else found


def member_mesh(members: int) -> Mesh | None:
    """Mesh over the most devices that divide the members evenly; None for a single device."""
    used = used_devices(members)
    return Mesh(np.array(devices()[:used]), (MEMBER_AXIS,)) if used > 1 else None


def used_devices(members: int) -> int:
    """Number of devices that members are spread over: the most that hold equal parts of them."""
    return max(n for n in range(1, len(devices()) + 1) if members % n == 0)


def idle_devices(windows: int, seeds: int) -> str | None:
    """A warning where members do not fill all local devices, with the next number of seeds that does; None else."""
    there, members = len(devices()), windows * seeds
    used = used_devices(members)
    if used == there:
        return None
    more = next(count for count in range(seeds + 1, seeds + there + 1) if windows * count % there == 0)
    return (
        f"{there - used} of {there} devices are idle: {members} members cannot be shared out evenly over more than "
        f"{used}. --seeds {more} would use all of them."
    )


def host_memory(mesh: Mesh | None) -> SingleDeviceSharding | None:
    """Where an accelerator leaves its metrics: in memory of the host that it can write to itself.

    Asking for them afterwards costs a copy of its own, 0.25 ms on an H200. None for a CPU, whose memory is the host's,
    and for several devices, where it was never measured.
    """
    device = jax.local_devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    if mesh is not None or device.platform == "cpu" or "pinned_host" not in kinds:
        return None
    return SingleDeviceSharding(device, memory_kind="pinned_host")


def limit_bytes() -> int | None:
    """Memory that programs may use on one device; None where the system does not tell.

    On a CPU the memory of the machine, or what control groups leave of it.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats["bytes_limit"]) if "bytes_limit" in stats else _host_bytes()


def _host_bytes() -> int | None:
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return min(machine, control_groups.memory_bytes() or machine)


def upload(tree: PyTree, transfers: Transfers, placement: Any = None) -> PyTree:
    """Copy a market, with what belongs to it, to the device in one counted call."""
    before = transfers.bytes_h2d
    placed = put(tree, transfers, placement)
    transfers.uploads += 1
    transfers.bytes_market += transfers.bytes_h2d - before
    return placed


def put(tree: PyTree, transfers: Transfers, placement: Any = None) -> PyTree:
    """Copy a pytree of host arrays to the device: counted, and there when the call is back.

    This is the one way up that the guard of an epoch lets pass, so what is not counted is refused there.

    Args:
        tree: the arrays.
        transfers: counts the bytes that every device receives.
        placement: a sharding for all of them, or a pytree of shardings; None for the default device.
    """
    with jax.transfer_guard_host_to_device("allow"):
        placed = wait(jax.device_put(tree, placement), transfers)
    leaves = jax.tree.leaves(placed)
    transfers.bytes_h2d += sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards)
    return placed


def fetch(tree: PyTree, transfers: Transfers) -> PyTree:
    """Copies of device arrays on the host: waits until they are computed, and counts them."""
    transfers.host_syncs += 1
    with jax.transfer_guard_device_to_host("allow"):
        host = jax.device_get(tree)
    transfers.bytes_d2h += nbytes(host)
    return host


def wait(tree: PyTree, transfers: Transfers) -> PyTree:
    """The same arrays, computed."""
    transfers.host_syncs += 1
    return jax.block_until_ready(tree)


def compose_form() -> str:
    """How rollouts chain position maps: parallel in time on accelerators, sequential on a CPU, where that is faster."""
    return "scan" if jax.default_backend() == "cpu" else "associative"


def precision_warnings(asked: str) -> tuple[str, ...]:
    """What a reader must know of `--precision`: nothing where products have the precision that was asked for."""
    if asked == "float32" or jax.default_backend() != "cpu":
        return ()
    return (f"--precision {asked} changes nothing on a CPU: its products are all in float32.",)


def describe() -> str:
    """The device in words, for summaries and reports."""
    found = devices()
    kind = found[0].device_kind
    return f"{len(found)} x {kind}" if len(found) > 1 else kind
