"""Wall time of phases, blocked on their results, with compile time apart."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax

PHASES = ("init", "collect", "learn", "evaluate")


@dataclasses.dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds of one epoch; `collect`, `learn`, `evaluate` are None in the fused form, which is one program."""

    init: float
    collect: float | None
    learn: float | None
    evaluate: float | None
    total: float


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Result of a call, ready on the device, and its milliseconds."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return result, (time.perf_counter() - start) * 1e3


def breakdown(times: PhaseTimes, uploaded_bytes: int) -> str:
    """The log line of an epoch: `phase breakdown: init ... total ... uploaded N B`."""
    parts = [f"init {times.init:.2f} ms"]
    if times.collect is None:
        parts.append(f"fused collect+learn+evaluate {times.total - times.init:.2f} ms")
    else:
        parts += [f"{name} {getattr(times, name):.2f} ms" for name in PHASES[1:]]
    return "phase breakdown: " + " · ".join([*parts, f"total {times.total:.2f} ms", f"uploaded {uploaded_bytes} B"])
