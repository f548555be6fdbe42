"""`--profile`: a trace of steady epochs, and the phases of an epoch timed one by one on a copy of its state.

Neither changes a result: the trace only listens, and the copy is thrown away.
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from tidewalk.core.errors import StoreError
from tidewalk.run import trace
from tidewalk.run.engine import Engine, State, phased
from tidewalk.run.timing import PhaseTimes, medians, phases
from tidewalk.store.layout import read_object, write_json_atomic

PHASES_FILE = "phases.json"
MOST_STEPS = 100
"""Of an epoch, for a trace of two: on a CPU a step of a small study leaves some 140 kB in it."""
_ENOUGH = 7
"""Epochs timed phase by phase, if they take no more than `_BUDGET_S`; the one before them warms up."""
_BUDGET_S = 10.0


@dataclasses.dataclass
class Tracer:
    """Traces some epochs."""

    folder: Path
    say: Callable[[str], None]
    epochs: range
    first: int = 0
    """First epoch of this process, which is slower than those after it."""
    is_on: bool = False

    @contextlib.contextmanager
    def watching(self, epoch: int) -> Generator[None]:
        """The time of one epoch, in the trace where it belongs to it."""
        if epoch == self.epochs.start:
            self._begin()
        try:
            with jax.profiler.StepTraceAnnotation("epoch", step_num=epoch) if self.is_on else contextlib.nullcontext():
                yield
        except BaseException:
            self._end()
            raise
        if epoch == self.epochs.stop - 1:
            self._end()

    def is_near(self, epoch: int) -> bool:
        """Whether this epoch or the next is traced; a trace holds whole epochs, so one ends before the next begins."""
        return epoch in self.epochs or epoch + 1 in self.epochs

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.mkdir(parents=True)
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # every Python call would drown the device
            jax.profiler.start_trace(str(self.folder), profiler_options=options)
            self.is_on = True
        except (OSError, RuntimeError) as error:
            self.say(f"warning: no trace is kept: {str(error).splitlines()[0]}")

    def _end(self) -> None:
        if not self.is_on:
            return
        self.is_on = False
        try:
            jax.profiler.stop_trace()
            self.say(f"trace of {self._traced()}: {self.folder}")
        except (OSError, RuntimeError) as error:
            self.say(f"warning: the trace is lost: {str(error).splitlines()[0]}")

    def _traced(self) -> str:
        """The epochs in words."""
        start, last = self.epochs.start, self.epochs.stop - 1
        if start == self.first:
            return (
                f"epoch {start}, the only one of this process (the first is slower than a steady one; train for more)"
            )
        return f"epoch {start}" if start == last else f"epochs {start} and {last}"


def steady(epochs: range, steps: int) -> range:
    """Which of some epochs to trace: the second, and the third where they are short; where there is one, that one."""
    return epochs[1 : 3 if steps <= MOST_STEPS else 2] or epochs[:1]


def measure(engine: Engine, state: State, folder: Path, epochs: range, say: Callable[[str], None]) -> None:
    """What traced epochs spent on every phase, and the phases after them one by one: say and keep what was found."""
    kept: dict[str, Any] = {"after_epoch": epochs.stop - 1}
    try:
        traced = trace.annotate(folder, trace.by_operation(engine.compiled))
    except (OSError, EOFError, ValueError, KeyError, jax.errors.JaxRuntimeError) as error:
        traced = {}
        say(f"warning: the trace does not name the phases: {str(error).splitlines()[0]}")
    if traced:
        kept["traced_ms"] = {name: ms / len(epochs) for name, ms in traced.items()}
        say(f"traced, per epoch: {trace.in_words(kept['traced_ms'])} (the work of all threads or streams)")
    try:
        times = phase_times(engine, state)
    except jax.errors.JaxRuntimeError as error:  # the copy of the state finds no room
        say(f"warning: the phases are not timed by themselves: {str(error).splitlines()[0]}")
    else:
        say(f"{phases(times)} (one call each)")
        kept["phases_ms"] = dataclasses.asdict(times)
    folder.mkdir(parents=True, exist_ok=True)
    write_json_atomic(folder / PHASES_FILE, kept)


def phase_times(engine: Engine, state: State) -> PhaseTimes:
    """Medians of the phases of the next epochs, on a copy of the state, so that training goes on as if nothing were."""
    run = phased(engine, state)
    spare, times = jax.tree.map(jnp.copy, state), list[PhaseTimes]()
    end = time.monotonic() + _BUDGET_S
    while len(times) < 2 or (len(times) <= _ENOUGH and time.monotonic() < end):
        spare, took = run(engine, spare)
        times.append(took)
    return medians(times[1:])


def read_phases(folder: Path) -> dict[str, Any] | None:
    """Milliseconds by phase, as `measure` kept them; None where there are none."""
    with contextlib.suppress(StoreError, KeyError):
        return dict(read_object(folder / PHASES_FILE)["phases_ms"])
    return None
