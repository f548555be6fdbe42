"""Options of the XLA compiler for each backend, chosen by measurement (docs/decisions.md, RESULTS.md).

Every program of a study must give the same bits run after run. On a GPU that leaves nothing to a timing: kernels are
not tuned by trying them out, and float scatters add in one order. The learn loop has no scatter and its reductions no
atomic additions, so it needs no slower kernels for that; the flag `xla_gpu_deterministic_ops` would forbid the fused
matrix products, which made an epoch of one member half as slow again.
"""

import functools
import os
import re

import jax

from tidewalk.core.errors import ConfigError

Option = str | bool

REPRODUCIBLE: dict[str, Option] = {
    "xla_gpu_autotune_level": "0",
    "xla_gpu_enable_scatter_determinism_expander": True,
}
"""What every program of the process needs on a GPU, whoever compiles it."""

FASTER: dict[str, dict[str, Option]] = {
    "gpu": {
        # kernels of a step that do not wait for one another run side by side inside its CUDA graph
        "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
        # products of the online network with two inputs are not joined: joining them copies the activations
        "xla_gpu_dot_merger_threshold_mb": "1",
        # untuned, the compiler's own kernels take four times as long as the library's for a month of validation
        "xla_gpu_enable_triton_gemm": False,
    },
}
"""By backend, what makes a program faster and never another."""


def set_flags() -> None:
    """Put what every program needs into `XLA_FLAGS`, which must come before jax first touches a device.

    A flag that the user has set there stays as it is.

    Raises:
        ConfigError: what is there names a file of flags, or is none; XLA would end the process over it.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if flags.strip() and not flags.strip().startswith("--"):
        raise ConfigError(
            f"XLA_FLAGS={flags}: must be flags, which begin with --; a file of flags is not read, since tidewalk adds "
            "some of its own. Write the flags themselves, or unset the variable."
        )
    missing = [f"--{name}={str(value).lower()}" for name, value in REPRODUCIBLE.items() if not _is_set(name)]
    os.environ["XLA_FLAGS"] = " ".join([*flags.split(), *missing])


def options(backend: str) -> dict[str, Option]:
    """Options for compiling the programs of a study, beside the flags of `set_flags`.

    Args:
        backend: as `jax.default_backend` names it.

    Returns:
        Name and value. Left out are options that the user has set in `XLA_FLAGS`, and those that this version of the
        compiler does not know: they make a program faster, never another.
    """
    return {name: value for name, value in _known(backend).items() if not _is_set(name)}


def _is_set(name: str) -> bool:
    return re.search(rf"--{name}(=|\s|$)", os.environ.get("XLA_FLAGS", "")) is not None


@functools.cache
def _known(backend: str) -> dict[str, Option]:
    return {name: value for name, value in FASTER.get(backend, {}).items() if _is_known(name, value)}


def _is_known(name: str, value: Option) -> bool:
    """Whether the compiler takes an option: asked by compiling a program of nothing."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
