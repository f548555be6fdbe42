"""What the programs on torch share."""

import os
import time
from collections.abc import Callable

import torch
from peers.program import Setting


def set_up(setting: Setting) -> None:
    """Threads and the precision of matrix products."""
    if setting.threads is not None:
        torch.set_num_threads(setting.threads)
    torch.set_float32_matmul_precision({"float32": "highest", "tf32": "high"}[setting.precision])


def choose_threads(run: Callable[[], None]) -> int:
    """The faster of one thread and one for every core: each is tried three times, the best counts."""
    best_s = {}
    for threads in (1, len(os.sched_getaffinity(0))):
        torch.set_num_threads(threads)
        best_s[threads] = min(_seconds(run) for _ in range(3))
    chosen = min(best_s, key=best_s.__getitem__)
    torch.set_num_threads(chosen)
    return chosen


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def peak_bytes() -> int | None:
    """Most bytes that the GPU's allocator held; None on a CPU."""
    return torch.cuda.max_memory_reserved() if torch.cuda.is_initialized() else None
