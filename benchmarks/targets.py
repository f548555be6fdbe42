"""What tidewalk aims at, beside what a run has found: read from the figures of the questions, nothing measured here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import common
from peers.contest import LABELS

Figures = Mapping[str, Any]
"""The JSON content of every question by its name; None where there is none."""
_PEERS = {"rejax": "rejax", "sbx": "SBX", "sb3": "Stable-Baselines3", "torch": "the stacked torch rival"}
_NOT_FOUND = "no figure"


@dataclass(frozen=True)
class Target:
    """A figure and what it shall be."""

    what: str
    least: float | None
    """At least so much; None: at most `most`."""
    most: float | None
    form: str
    found: Callable[[Figures], float | None]


def compared(figures: Figures, device: str) -> list[dict[str, Any]]:
    """Every target of a device: what was found, and whether it is met; None where it was not measured."""
    rows = []
    for target in _ON_A_GPU if device == "gpu" else _ON_A_CPU:
        found = target.found(figures)
        is_met = None
        if found is not None:
            is_met = found >= target.least if target.least is not None else found <= target.most
        aim = f"at least {target.form.format(target.least)}" if target.least is not None else ""
        aim = aim or f"at most {target.form.format(target.most)}"
        said = _NOT_FOUND if found is None else target.form.format(found)
        rows.append({"what": target.what, "aim": aim, "found": said, "value": found, "is_met": is_met})
    return rows


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a table; nothing where nothing was measured."""
    if all(row["is_met"] is None for row in rows):
        return []
    shown = [{**row, "met": {True: "yes", False: "no", None: ""}[row["is_met"]]} for row in rows]
    columns = [common.Column(key, key) for key in ("what", "aim", "found", "met")]
    return [common.table(shown, columns), ""]


def rows_of(figures: Figures, question: str, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of a question whose values are these."""
    content = figures.get(question) or {}
    return [row for row in content.get("rows", ()) if all(row.get(key) == value for key, value in wanted.items())]


def epoch_ms(figures: Figures) -> float | None:
    """The fastest epoch of one member in float32, with its month of validation."""
    found = rows_of(figures, "epoch", members=1, precision="float32")
    return min((row["epoch_ms"] for row in found), default=None)


def updates_per_s(members: int) -> Callable[[Figures], float | None]:
    """Most agent-updates a second of so many members in float32, without validation, of the default learner."""

    def found(figures: Figures) -> float | None:
        rows = rows_of(figures, "population", members=members, precision="float32", validation="none")
        return max((row["updates_per_s"] for row in rows), default=None)

    return found


def times_matmul(figures: Figures) -> float | None:
    """A month of validation for 1,024 members, in times of its matrix products at the rate of a large one."""
    found = rows_of(figures, "rollouts", what="greedy pass", members=1024, bars=30_000, precision="float32")
    return min((row["times_floor"] for row in found), default=None)


def resident(part: str, name: str) -> Callable[[Figures], float | None]:
    """The largest figure of this name in a part of what is known of a resident epoch, over all cases."""

    def found(figures: Figures) -> float | None:
        cases = (figures.get("residency") or {}).get("cases", ())
        return max((case["trainers"]["resident"][part][name] for case in cases), default=None)

    return found


def over_peer(
    program: str, members: int | None = None, *, processes: int | None = None
) -> Callable[[Figures], float | None]:
    """How many times as fast as a peer tidewalk is, the peer in its fastest form, of any or of so many processes.

    None where a form of it was asked for and not measured, which might be the fastest.

    Args:
        program: the peer.
        members: agents of both; None: the largest population that was measured.
        processes: None: any number.
    """

    def found(figures: Figures) -> float | None:
        if not _is_complete(figures, program, processes):
            return None
        rows = rows_of(figures, "peers")
        size = members or max((row["members"] for row in rows if row["members"] > 1), default=0)
        theirs = [row for row in rows if row["members"] == size and row["program"] == program]
        theirs = [row for row in theirs if processes is None or row["processes"] == processes]
        best = max(theirs, key=lambda row: row["agent_updates_per_s"], default=None)
        return best and best.get("ratio")  # withheld where either has not learned

    return found


def _is_complete(figures: Figures, program: str, processes: int | None) -> bool:
    """Whether the question of the peers came to its end, and no form of this one, in so many processes, failed."""
    content = figures.get("peers") or {}
    failed = [name for name in content.get("failures", ()) if name.startswith(f"{LABELS[program]}, ")]
    if processes == 1:
        failed = [name for name in failed if " processes" not in name]
    return bool(content.get("is_whole")) and not failed


def of_peers(name: str, members: int) -> Callable[[Figures], float | None]:
    """Agent-updates a second of a program at so many members, at its fastest; None where it has not learned."""

    def found(figures: Figures) -> float | None:
        rows = [row for row in rows_of(figures, "peers", members=members, program=name) if not row["withheld"]]
        return max((row["agent_updates_per_s"] for row in rows), default=None)

    return found


def _beside(program: str, least: float, crowd: str, **which: Any) -> Target:
    form = "in one process" if "processes" in which else "at its fastest"
    return Target(f"{crowd}, times {_PEERS[program]} {form}", least, None, "{:,.1f}", over_peer(program, **which))


_ON_A_GPU = (
    Target("starting-point epoch with a month of validation, 1 member, ms", None, 3.0, "{:,.2f}", epoch_ms),
    Target("the same (stretch)", None, 1.0, "{:,.2f}", epoch_ms),
    Target("init of an epoch, ms", None, 0.1, "{:.3f}", resident("fused", "init")),
    Target("bytes sent in an epoch after the first", None, 0, "{:,}", resident("moved", "bytes_h2d")),
    Target("1,024 members, agent-updates/s", 2e6, None, "{:,.0f}", updates_per_s(1024)),
    Target("the same (stretch)", 4e6, None, "{:,.0f}", updates_per_s(1024)),
    Target("month of validation of 1,024 members, times its matrix products", None, 3.0, "{:,.1f}", times_matmul),
    _beside("rejax", 10, "population"),
    _beside("sb3", 1000, "population", processes=1),
    _beside("sb3", 1000, "population"),
    _beside("sbx", 100, "population", processes=1),
    _beside("sbx", 100, "population"),
    _beside("torch", 3, "population"),
)
_ON_A_CPU = (
    Target("8 members, agent-updates/s", 10_000, None, "{:,.0f}", of_peers("tidewalk", 8)),
    _beside("sbx", 3, "8 members", members=8, processes=1),
    _beside("sbx", 3, "8 members", members=8),
    _beside("rejax", 2, "8 members", members=8, processes=1),
    _beside("rejax", 2, "8 members", members=8),
)
