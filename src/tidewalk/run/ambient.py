"""Settings of jax that come from outside: from the environment of a command, or from the program that uses the library.

A study has to give the same numbers whatever they say. So a command starts without the variables that would change
numbers or break a run, and says which it left out; a program that set jax up otherwise is told what to undo, since
what belongs to it is not changed under its feet. Devices, caches and logs are followed. Importing this needs no jax.
"""

import os
from collections.abc import Callable, MutableMapping

from tidewalk.core.errors import ConfigError

NEEDED: dict[str, bool | int | str] = {
    # random words
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
    # types of numbers
    "jax_enable_x64": False,
    # what the compiler is asked for
    "jax_disable_jit": False,
    "jax_disable_most_optimizations": False,
    "jax_scan3": False,
    "jax_no_execution": False,
    "jax_no_tracing": False,
    # what a program checks as it runs
    "jax_error_checking_behavior_nan": "ignore",
    "jax_error_checking_behavior_divide": "ignore",
    "jax_error_checking_behavior_oob": "ignore",
}
"""Settings that a study depends on, as jax names them, and their values, jax's own defaults."""
_UNHEEDED = {
    "jax_debug_nans": "a member whose loss is not finite is found and left out",
    "jax_debug_infs": "a member whose loss is not finite is found and left out",
    "jax_default_matmul_precision": "--precision names it",
}
"""Settings that a command has no use for, and why; in a program they are its own affair."""
_PLATFORMS = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES")
"""Variables that say which devices jax may use."""


def pin(environment: MutableMapping[str, str], say: Callable[[str], None]) -> None:
    """Take out of an environment what a study may not depend on, before jax reads it.

    Args:
        environment: of this process, which its children inherit.
        say: receives a line for each variable that asked for something else.
    """
    for name in (*NEEDED, *_UNHEEDED):
        variable, needed = name.upper(), NEEDED.get(name, False)
        asked = environment.pop(variable, None)
        written = {str(needed).lower()} if isinstance(needed, str) else {str(needed).lower(), str(int(needed))}
        if asked is None or asked.lower() in written:
            continue
        why = _UNHEEDED.get(name, f"a study is computed with {needed}, so that its numbers are always the same")
        say(f"note: {variable}={asked} in the environment is not followed: {why}")


def refuse_other() -> None:
    """Refuse a process in which jax is set up in another way than a study needs.

    Raises:
        ConfigError: names the setting, what it is and what it must be.
    """
    import jax

    for name, needed in NEEDED.items():
        found = getattr(jax.config, name, jax.config.values.get(name, needed))  # as this thread has it; a few it shares
        if found != needed:
            raise ConfigError(
                f"jax is set up with {name} = {found}; a study needs {needed}. Undo it where it was set: in the "
                f'environment ({name.upper()}), in the feature module, or with jax.config.update("{name}", {needed!r}).'
            )


def no_device(error: Exception, flag: str | None = None) -> str:
    """What to tell of an error of jax when it first looked for its devices.

    Args:
        error: without a plugin for a platform jax fails an assertion that says nothing.
        flag: what asked for a device on the command line; None: nothing did, so the environment may have.
    """
    reason = f" ({str(error).splitlines()[0].rstrip('.')})" if str(error) else ""
    asked = flag or ", ".join(f"{name}={os.environ[name]}" for name in _PLATFORMS if name in os.environ)
    if not asked:
        return f"jax finds no device here{reason}; `tidewalk doctor` shows what is installed."
    remedy = "" if flag else "Allowed are cpu and cuda; without it jax takes what is there. "
    return (
        f"{asked}: jax finds no such device here{reason}. {remedy}On an NVIDIA GPU install tidewalk[cuda13]; "
        "`tidewalk doctor` shows what is found."
    )
