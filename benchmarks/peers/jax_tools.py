"""What the programs on jax share."""

import os

import jax

_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32"}


def set_up(device: str, precision: str) -> None:
    """Choose the platform and name the precision of matrix products, before jax first touches a device.

    Memory is taken as it is needed: a program's peak is then its own, and several processes share a GPU.
    """
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    jax.config.update("jax_default_matmul_precision", _PRECISIONS[precision])


def peak_bytes() -> int | None:
    """Most bytes that the device's allocator held; None where it does not count (a CPU)."""
    stats = jax.local_devices()[0].memory_stats()
    return None if stats is None else stats["peak_bytes_in_use"]
