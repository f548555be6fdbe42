"""Which phase an operation of a trace belongs to: written into the trace, as a track of its own, and summed up.

The profiler names operations as the compiler does (`fusion.29`) and says nothing of scopes; the compiled program knows
the scope of each. A library's kernel inside a CUDA graph has neither name: it is taken for what ran before it.
"""

import collections
import gzip
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax.stages import Compiled

SCOPES = ("collect", "store", "learn", "evaluate")
_OTHER = "other"
"""Random words, copies, and whatever else stands in no scope."""
_KERNELS = {"learn_": "collect+store+learn", "maps_": "evaluate", "walk": "evaluate"}
"""Phases of tidewalk's own GPU kernels by how their names begin; all vector steps are one kernel."""
_INSTRUCTION = re.compile(r'^\s*(?:ROOT )?%?(\S+) = .*op_name="([^"]*)"', re.MULTILINE)
_PAUSE_US = 200.0
"""Pause that ends a slice of a track, as between two epochs."""
_TRACKS_PID = 1_000_000
"""Process of the added tracks, above any that a system gives."""

Event = dict[str, Any]


def by_operation(compiled: Compiled) -> dict[str, str]:
    """Phase of every operation of a program that stands in a scope of one, by its name."""
    found = _INSTRUCTION.findall(compiled.as_text() or "")
    phases = ((name, next((part for part in path.split("/") if part in SCOPES), None)) for name, path in found)
    return {name: phase for name, phase in phases if phase}


def annotate(folder: Path, phases: dict[str, str]) -> dict[str, float]:
    """Write the phase of every operation into the trace of a folder, and a track of them for every thread or stream.

    Args:
        folder: where the profiler wrote.
        phases: of the operations, by name.

    Returns:
        Milliseconds of the operations of every phase, of all threads or streams together; nothing where there is no
        trace.

    Raises:
        OSError, EOFError, ValueError: the trace cannot be read or written.
    """
    paths = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    if not paths:
        return {}
    with gzip.open(paths[-1], "rt", encoding="utf-8") as file:
        trace = json.load(file)
    rows = _operations(trace["traceEvents"])
    total_us: dict[str, float] = collections.defaultdict(float)
    tracks: list[Event] = []
    for number, ((pid, tid), events) in enumerate(sorted(rows.items())):
        _name_phases(events, phases)
        for event, own_us in _own_times(events):
            total_us[event["args"]["phase"]] += own_us
        name = f"phases of {_name_of(trace['traceEvents'], pid, tid)}"
        tracks += [_label("thread_name", number, name=name), *_slices(events, number)]
    added = [_label("process_name", 0, name="phases"), _label("process_sort_index", 0, sort_index=-1), *tracks]
    trace["traceEvents"] = [*trace["traceEvents"], *added]
    with gzip.open(paths[-1], "wt", encoding="utf-8") as file:
        json.dump(trace, file)
    return {name: us / 1e3 for name, us in sorted(total_us.items(), key=lambda item: -item[1])}


def in_words(milliseconds: dict[str, float]) -> str:
    """The sums as one line, with shares."""
    whole = sum(milliseconds.values()) or 1.0
    return " · ".join(f"{name} {ms:.2f} ms ({ms / whole:.0%})" for name, ms in milliseconds.items())


def _operations(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """What was done for the compiled programs, by thread or stream, in the order of time; enclosing ones first."""
    rows: dict[tuple[int, int], list[Event]] = collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
            rows[event["pid"], event["tid"]].append(event)
    for row in rows.values():
        row.sort(key=lambda event: (event["ts"], -event["dur"]))
    return rows


def _name_phases(events: list[Event], phases: dict[str, str]) -> None:
    last = _OTHER
    for event in events:
        own = next((phase for start, phase in _KERNELS.items() if event["name"].startswith(start)), None)
        names = (event["args"]["hlo_op"], event["name"], re.sub(r"_(\d+)$", r".\1", event["name"]))
        own = own or next((phases[name] for name in names if name in phases), None)
        is_known = own is not None or not event["args"]["hlo_op"].startswith("command_buffer")
        last = event["args"]["phase"] = (own or _OTHER) if is_known else last


def _own_times(events: list[Event]) -> Iterator[tuple[Event, float]]:
    """Microseconds of every operation without those inside it, as the body of a loop is."""
    open_ones: list[tuple[Event, float]] = []
    for event in [*events, None]:
        while open_ones and (event is None or event["ts"] >= open_ones[-1][0]["ts"] + open_ones[-1][0]["dur"]):
            yield open_ones.pop()
        if event is None:
            return
        if open_ones and event["ts"] + event["dur"] <= open_ones[-1][0]["ts"] + open_ones[-1][0]["dur"]:
            outer, own_us = open_ones.pop()
            open_ones.append((outer, own_us - event["dur"]))
        open_ones.append((event, event["dur"]))


def _slices(events: list[Event], tid: int) -> Iterator[Event]:
    """One slice for each stretch of operations of one phase, what stands in none of them passed over."""
    innermost = [event for event, own_us in _own_times(events) if own_us == event["dur"]]
    known = [event for event in innermost if event["args"]["phase"] != _OTHER]
    known.sort(key=lambda event: event["ts"])
    pauses = (later["ts"] - event["ts"] - event["dur"] > _PAUSE_US for event, later in itertools.pairwise(known))
    stretches = itertools.accumulate(pauses, initial=0)
    keyed = [(event["args"]["phase"], number, event) for number, event in zip(stretches, known, strict=False)]
    for (phase, _), stretch in itertools.groupby(keyed, key=lambda item: item[:2]):
        first, *_, last = [event for *_, event in stretch] * 2
        duration = last["ts"] + last["dur"] - first["ts"]
        yield {"ph": "X", "pid": _TRACKS_PID, "tid": tid, "ts": first["ts"], "dur": duration, "name": phase}


def _label(kind: str, tid: int, **args: Any) -> Event:
    return {"ph": "M", "pid": _TRACKS_PID, "tid": tid, "name": kind, "args": args}


def _name_of(events: list[Event], pid: int, tid: int) -> str:
    own = (
        event["args"]["name"]
        for event in events
        if event.get("name") == "thread_name" and (event.get("pid"), event.get("tid")) == (pid, tid)
    )
    return next(own, str(tid))
