"""Devices, the mesh of the member axis, and the one counted way onto the device. No other file names a device."""

import dataclasses
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from tidewalk.core.arrays import PyTree
from tidewalk.core.errors import ConfigError
from tidewalk.core.trees import nbytes

PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bf16": "bfloat16"}
MEMBER_AXIS = "members"


@dataclasses.dataclass
class Uploads:
    """Counter of what crosses from host to device: the one mutable thing of a study beside its train state."""

    count: int = 0
    nbytes: int = 0


def choose_platform(device: str | None) -> None:
    """Select the jax platform before jax first touches a device; None leaves the choice to jax.

    Raises:
        ConfigError: the platform is not there.
    """
    if device is None:
        return
    jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # without its plugin jax fails an assertion
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise ConfigError(
            f"--device {device}: jax finds no such device here{reason}. On an NVIDIA GPU install tidewalk[cuda13]; "
            "`tidewalk doctor` shows what is found."
        ) from error


def make_reproducible() -> None:
    """Ask XLA for kernels that give the same bits run after run; must come before jax first touches a GPU."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def member_mesh(members: int) -> Mesh | None:
    """Mesh over the most local devices that divide the members evenly; None for a single device."""
    devices = jax.local_devices()
    usable = max(n for n in range(1, len(devices) + 1) if members % n == 0)
    return Mesh(np.array(devices[:usable]), (MEMBER_AXIS,)) if usable > 1 else None


def upload(tree: PyTree, uploads: Uploads, placement: Any = None) -> PyTree:
    """Copy a pytree of host arrays to the device in one counted call."""
    uploads.count += 1
    uploads.nbytes += nbytes(tree)
    return jax.block_until_ready(jax.device_put(tree, placement))


def compose_form() -> str:
    """How rollouts chain position maps: parallel in time on accelerators, sequential on a CPU, where that is faster."""
    return "scan" if jax.default_backend() == "cpu" else "associative"


def describe() -> str:
    """The device in words, for summaries and reports."""
    devices = jax.local_devices()
    kind = devices[0].device_kind
    return f"{len(devices)} x {kind}" if len(devices) > 1 else kind
