"""tidewalk beside other trainers on the same work: one agent against one, a population against a population.

Every program keeps a process of its own and is asked in turn, so that all of them see the same machine; a ratio counts
only where both sides did the same number of updates and learned the planted signal.

    python benchmarks/peers/run.py [--device cpu|gpu] [--members 1,8,64] [--json FILE] [--quick]

Needs the packages of requirements-bench.lock and a build of torch, see benchmarks/peers/README.md. Programs whose
packages are missing are left out, with the reason.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import children
import common
from common import Column, Report, Timing
from peers.contest import HAS_POPULATION, LABELS, MODES, OURS, Entry, line_up, ratios, why_withheld
from peers.processes import Process, Team
from peers.workload import ENOUGH, WORKLOADS

_TEAMS = itertools.count()
FEWEST_CHECKED = 500
Ready = tuple[Team, dict[str, Any]]
Standing = dict[Entry, Ready | None]
"""Teams by their entry, with the figures of build and check; None: it failed, and is not tried again."""
COLUMNS = (
    Column("members", "members"),
    Column("label", "program"),
    Column("agents_at_once", "at once"),
    Column("us_per_update", "us per step + update", "{:,.0f}"),
    Column("agent_updates_per_s", "agent-updates/s", "{:,.0f}"),
    Column("spread", "p10-p90"),
    Column("ratio", "tidewalk is faster by", "{:.2f}x"),
    Column("compile_s", "compile, s", "{:.1f}"),
    Column("peak_mib", "peak, MiB", "{:,.0f}"),
    Column("captured", "learned", "{:.2f}"),
    Column("withheld", "no ratio because"),
)


def options() -> argparse.Namespace:
    parser = common.parser(__doc__, device=False)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--members", type=common.numbers, default=(1, 8))
    parser.add_argument("--programs", type=common.several(common.one_of(LABELS)), default=tuple(MODES["cpu"]))
    modes = common.several(common.one_of(mode for of in MODES.values() for found in of.values() for mode in found))
    parser.add_argument("--without", type=modes, default=(), help="modes to leave out")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="W1")
    parser.add_argument(
        "--lanes", type=common.at_least(1), default=1, help="environments that move a bar before each update"
    )
    parser.add_argument(
        "--precision", choices=("float32", "tf32"), default="float32", help="of matrix products on a GPU"
    )
    parser.add_argument("--rounds", type=common.at_least(1), default=common.ROUNDS)
    parser.add_argument(
        "--updates", type=common.at_least(1), default=1000, help="of a timed block of one agent; fewer for more agents"
    )
    parser.add_argument("--check-updates", type=int, default=2500, help="after which the learning check is made")
    count = common.at_least(1)
    parser.add_argument("--at-once", type=count, default=1, help="programs that are built and checked at the same time")
    parser.add_argument("--processes", type=count, help="of a program without a population; default: one per core")
    patience = common.at_least(1, float)
    parser.add_argument("--patience-s", type=patience, default=600, help="after which a program is given up")
    found = parser.parse_args()
    if found.quick:
        found.rounds, found.updates, found.check_updates = 2, 100, 500
    refuse(parser, found)
    return found


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a word on the first option that measures nothing."""
    work = WORKLOADS[options.workload]
    if not any(mode not in options.without for one in options.programs for mode in MODES[options.device][one]):
        parser.error("--without leaves nothing of the programs")
    if work.capacity % options.lanes:
        parser.error(f"--lanes is {options.lanes}; it must divide the {work.capacity} transitions of the replay")
    if options.check_updates < FEWEST_CHECKED or options.check_updates % work.updates_per_epoch:
        parser.error(
            f"--check-updates is {options.check_updates}; it must be a multiple of {work.updates_per_epoch} and "
            f"{FEWEST_CHECKED} or more, which the programs use up to get ready"
        )


def block_updates(options: argparse.Namespace, members: int) -> int:
    """Updates of a timed block: whole epochs, at least two."""
    epoch = WORKLOADS[options.workload].updates_per_epoch
    return max(2 * epoch, options.updates // members // epoch * epoch)


def opened(entry: Entry, options: argparse.Namespace) -> Team:
    """The processes of an entry. Several, and one of one agent on the host alone, are pinned to a core each."""
    cores = sorted(os.sched_getaffinity(0))
    is_pinned = entry.processes > 1 or (entry.device == "cpu" and entry.program not in HAS_POPULATION)
    first = next(_TEAMS)  # teams that are built at the same time do not all share the first core
    processes = []
    for number in range(entry.processes):
        mine = [cores[(first + number) % len(cores)]] if is_pinned else None
        setting = entry.setting(number, options.workload, options.lanes, options.precision)
        processes.append(Process(setting, mine, options.patience_s))
    return Team(processes)


def prepared(report: Report, entry: Entry, options: argparse.Namespace) -> Ready | None:
    """An entry that is built and checked; None where it fails, with the reason in the report."""
    team, name = opened(entry, options), f"{entry.label}, {entry.members_each} member(s)"
    try:
        built = team.build()
        check = team.check(options.check_updates)
    except Exception as error:
        common.failed(report, name, error)
        team.close()
        return None
    common.say(f"  {name}: ready after {sum(built.values()):.0f} s, learned {check['captured']:.2f}")
    return team, {**built, **check}


def prepare(report: Report, entries: Sequence[Entry], options: argparse.Namespace, standing: Standing) -> None:
    """Build and check the teams that do not stand yet."""
    missing = [entry for entry in dict.fromkeys(entry.team for entry in entries) if entry not in standing]
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        ready = pool.map(lambda entry: prepared(report, entry, options), missing)
        standing.update(zip(missing, ready, strict=True))


def dismiss(standing: Standing, still_needed: set[Entry]) -> None:
    """End the processes of teams that no later comparison needs."""
    for entry in standing.keys() - still_needed:
        found = standing.pop(entry)
        if found is not None:
            found[0].close()


def compare(report: Report, members: int, teams: dict[Entry, Ready], options: argparse.Namespace) -> None:
    """Time the teams in turn, and write a row for each."""
    updates = block_updates(options, members)
    calls = {entry.label: functools.partial(team.block_ms, updates) for entry, (team, _) in teams.items()}
    timed = common.interleaved(report, calls, rounds=options.rounds, warm_up=1)
    ours = [entry for entry in teams if entry.program == OURS and entry.label in timed]
    learned = [entry for entry in ours if not why_withheld(teams[entry][1], teams[entry][1], options.check_updates)]
    best = min(learned or ours, key=lambda entry: timed[entry.label].median_ms, default=None)
    for entry, (team, check) in teams.items():
        if entry.label not in timed:
            continue
        withheld = why_withheld(check, best and teams[best][1], options.check_updates)
        ratio = {}
        if best is not None and withheld is None and entry != best:
            blocks_ms = [timed[one.label].samples_ms for one in (best, entry)]
            ratio = ratios(blocks_ms[0], best.members, blocks_ms[1], entry.members)
        speed = speed_of(entry, timed[entry.label], updates)
        report.rows.append(
            {"members": members, "label": entry.label, **speed, **ratio, "withheld": withheld}
            | {**check, **peaks_of(team), **dataclasses.asdict(entry)}
        )
        common.write(report)


def speed_of(entry: Entry, timing: Timing, updates: int) -> dict[str, Any]:
    """Figures of the timed blocks of one entry."""
    per_second = {share: 1e3 * entry.members * updates / timing.quantile_ms(share) for share in (0.1, 0.9)}
    return {
        "us_per_update": 1e3 * timing.median_ms / updates,
        "agent_updates_per_s": 1e3 * entry.members * updates / timing.median_ms,
        "spread": f"{per_second[0.9]:,.0f}-{per_second[0.1]:,.0f}",
        "agents_at_once": entry.members,
        "block_updates": updates,
        "samples_ms": [round(ms, 3) for ms in timing.samples_ms],
    }


def peaks_of(team: Team) -> dict[str, float | None]:
    """Most memory so far, in MiB: of the GPU's allocators where there are, else resident memory of the processes."""
    found = {name: None if size is None else size / 2**20 for name, size in team.peak_bytes().items()}
    device, resident = found["peak_device_bytes"], found["peak_rss_bytes"]
    return {"peak_mib": device or resident, "peak_device_mib": device, "peak_rss_mib": resident}


def at_its_best(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for every program and number of agents: its fastest row, and what may be said of it."""
    said = []
    for members in dict.fromkeys(row["members"] for row in rows):
        for program in LABELS:
            found = [row for row in rows if (row["members"], row["program"]) == (members, program)]
            if not found:
                continue
            best = max(found, key=lambda row: row["agent_updates_per_s"])
            ratio = "" if best.get("ratio") is None else f": tidewalk is {best['ratio']:.2f} times as fast"
            ratio = f": no ratio, for {best['withheld']}" if best["withheld"] else ratio
            speed = f"{best['agent_updates_per_s']:,.0f} agent-updates/s"
            said.append(f"{members} agent(s), the fastest of {LABELS[program]} ({best['label']}): {speed}{ratio}")
    return said


def main() -> int:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    chosen = options()
    report = common.opened("tidewalk beside other trainers on the same work", chosen, COLUMNS)
    count = chosen.processes or len(os.sched_getaffinity(0))
    groups = {members: line_up(chosen.device, members, count, chosen.programs) for members in chosen.members}
    groups = {n: [entry for entry in entries if entry.mode not in chosen.without] for n, entries in groups.items()}
    standing: Standing = {}
    try:
        if chosen.at_once > 1:  # where there is room for many processes, all of them at the same time
            prepare(report, [entry for entries in groups.values() for entry in entries], chosen, standing)
        for members in list(groups):
            entries = groups.pop(members)
            common.say(f"{members} member(s): {len(entries)} rows")
            prepare(report, entries, chosen, standing)
            teams = {entry: ready for entry in entries if (ready := standing[entry.team]) is not None}
            compare(report, members, teams, chosen)
            dismiss(standing, {entry.team for later in groups.values() for entry in later})
    finally:
        dismiss(standing, set())
    report.notes.extend(at_its_best(report.rows))
    report.notes.append(
        f"learned: share of the best policy's held-out result after {chosen.check_updates} updates, {ENOUGH:g} are "
        "asked for; ratios are of agent-updates a second, paired by round, against tidewalk's fastest row that learned."
    )
    return common.close(report)


if __name__ == "__main__":
    sys.exit(children.guarded(main))
