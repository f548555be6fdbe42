"""Wall time of phases, with compile time apart."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidewalk.run.mesh import Transfers, wait

PHASES = ("init", "collect", "learn", "evaluate")


@dataclasses.dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds of one epoch; `collect`, `learn`, `evaluate` are None in the fused form, which is one program."""

    init: float
    collect: float | None
    learn: float | None
    evaluate: float | None
    total: float


class Clock:
    """Milliseconds since it was made, or since its last lap."""

    def __init__(self) -> None:
        """Start."""
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Milliseconds since the last lap; the next one begins."""
        last, self._last = self._last, time.perf_counter()
        return (self._last - last) * 1e3


def timed(transfers: Transfers, function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Result of a call, ready on the device, and its milliseconds."""
    clock = Clock()
    result = wait(function(*args), transfers)
    return result, clock.lap()


def medians(times: Sequence[PhaseTimes]) -> PhaseTimes:
    """The median of every phase by itself; None where a phase was not measured in each of them.

    The total is the sum of these, as it is in each of the times, or the median of totals where a phase is not known.
    """
    columns: dict[str, Any] = {
        field.name: [getattr(one, field.name) for one in times] for field in dataclasses.fields(PhaseTimes)
    }
    middle: dict[str, Any] = {name: None if None in row else statistics.median(row) for name, row in columns.items()}
    known = [middle[name] for name in PHASES if middle[name] is not None]
    return PhaseTimes(**middle | ({"total": sum(known)} if len(known) == len(PHASES) else {}))


def breakdown(times: PhaseTimes, moved: Transfers) -> str:
    """The log line of an epoch: phases, total, bytes in both directions, and times that the host waited."""
    return " · ".join(
        [
            phases(times),
            f"uploaded {moved.bytes_h2d} B",
            f"downloaded {moved.bytes_d2h} B",
            f"host syncs {moved.host_syncs}",
        ]
    )


def phases(times: PhaseTimes) -> str:
    """The times in words: `phase breakdown: init ... total ...`."""
    parts = [f"init {times.init:.2f} ms"]
    if times.collect is None:
        parts.append(f"fused collect+learn+evaluate {times.total - times.init:.2f} ms")
    else:
        parts += [f"{name} {getattr(times, name):.2f} ms" for name in PHASES[1:]]
    return "phase breakdown: " + " · ".join([*parts, f"total {times.total:.2f} ms"])
