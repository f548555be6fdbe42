"""`tidewalk windows`: the walk-forward windows of a study, without training."""

import json
from typing import Any

from tidewalk.commands.tables import output_console, say_findings, table
from tidewalk.commands.train import parse_study
from tidewalk.run.console import tell


def run(args: list[str]) -> int:
    """Print the windows that `train` with the same flags would use."""
    config = parse_study("windows", args)
    from tidewalk.run.study import plan_study, read_market, windows_record

    tell(f"reading {config.data.data_dir}", quiet=config.output.quiet)
    study = plan_study(config, read_market(config), compose="scan")
    record = windows_record(study)
    if config.output.json:
        print(json.dumps(record, indent=2))
        return 0
    _print(record, list(study.plan.notes), list(study.plan.warnings))
    return 0


def _print(record: dict[str, Any], notes: list[str], warnings: list[str]) -> None:
    console = output_console()
    count, purged = len(record["windows"]), record["purge_bars"]
    title = f"{count} walk-forward window(s), {purged} bars purged after train and validation"
    rows = table(title, ("no.", "range", "first", "last", "bars", "sessions", "contracts, roll"))
    for row in record["windows"]:
        for name in ("train", "val", "test"):
            part = row[name]
            first, last, (start, stop) = part["first"], part["last"], part["bars"]
            label = "test (part)" if name == "test" and row["partial_test"] else name
            cells = (label, first, last, f"{stop - start:,}", str(part["sessions"]), _contracts(row, first, last))
            rows.add_row(str(row["window"]) if name == "train" else "", *cells)
    console.print(rows)
    say_findings(console, notes, warnings)


def _contracts(row: dict[str, Any], first: str, last: str) -> str:
    """The contracts held between two sessions of a window, and when the front one changed."""
    before = [roll["to"] for roll in row["rolls"] if roll["date"] <= first]
    rolls = [roll for roll in row["rolls"] if first < roll["date"] <= last]
    held = before[-1] if before else row["rolls"][0]["from"] if row["rolls"] else row["contracts"][0]
    if not rolls:
        return held
    when = rolls[0]["date"] if len(rolls) == 1 else f"{len(rolls)} rolls"
    return f"{held} {rolls[-1]['to']} {when}"
