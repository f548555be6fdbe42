"""Memory that is free, given back to the system."""

import contextlib
import ctypes


def release_freed() -> None:
    """Let the system have what was freed: the C library keeps arrays below 32 MiB for later, which is most of ours.

    Does nothing where the C library has no such call (it is glibc's `malloc_trim`).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
