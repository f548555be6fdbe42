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
    rows = table(title, ("window", "range", "first", "last", "bars", "sessions", "contracts, since"))
    for row in record["windows"]:
        parts = [row[name] for name in ("train", "val", "test")]
        columns = [
            ["train", "val", "test (part)" if row["partial_test"] else "test"],
            [part["first"] for part in parts],
            [part["last"] for part in parts],
            [f"{part['bars'][1] - part['bars'][0]:,}" for part in parts],
            [str(part["sessions"]) for part in parts],
            _contracts(row),
        ]
        rows.add_row(str(row["window"]), *("\n".join(column) for column in columns))
    console.print(rows)
    say_findings(console, notes, warnings)


def _contracts(row: dict[str, Any]) -> list[str]:
    """The contracts of a window in at most three lines, each with the session in which it takes over."""
    rolls = [f"{roll['to']} {roll['date']}" for roll in row["rolls"]]
    lines = [row["rolls"][0]["from"] if rolls else " ".join(row["contracts"]), *rolls]
    return lines if len(lines) <= 3 else [lines[0], f"{len(lines) - 2} more", lines[-1]]
