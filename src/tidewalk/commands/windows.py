"""`tidewalk windows`: the walk-forward windows of a study, without training."""

import json
from typing import Any

from tidewalk.commands.tables import output_console, say_findings, table
from tidewalk.commands.train import parse_study
from tidewalk.core.words import counted
from tidewalk.run.console import tell


def run(args: list[str]) -> int:
    """Print the windows that `train` with the same flags would use."""
    config = parse_study("windows", args)
    from tidewalk.run import memory
    from tidewalk.run.markets import read_markets
    from tidewalk.run.study import plan_study, windows_record

    tell(f"reading {config.data.data_dir}", quiet=config.output.quiet)
    compose = "associative" if config.output.device == "gpu" else "scan"  # no device is touched
    study = plan_study(config, read_markets(config), compose=compose)
    record = windows_record(study)
    if config.output.json:
        print(json.dumps(record, indent=2))
        return 0
    for leg in study.legs:
        _print(leg.symbol, [row for row in record["windows"] if row["symbol"] == leg.symbol], record["purge_bars"])
    notes = [memory.said(study), *([record["uncovered"]] if record["uncovered"] else [])]
    warnings = [study.said(leg, text) for leg in study.legs for text in leg.plan.warnings]
    say_findings(output_console(), notes, warnings)
    return 0


def _print(symbol: str, windows: list[dict[str, Any]], purged: int) -> None:
    cut = f"{counted(purged, 'bar')} purged after train and validation"
    title = f"{symbol}: {counted(len(windows), 'walk-forward window')}, {cut}"
    rows = table(title, ("no.", "range", "first", "last", "bars", "sessions", "contracts, roll"))
    for row in windows:
        for name in ("train", "val", "test"):
            part = row[name]
            first, last, (start, stop) = part["first"], part["last"], part["bars"]
            label = "test (part)" if name == "test" and row["partial_test"] else name
            cells = (label, first, last, f"{stop - start:,}", str(part["sessions"]), _contracts(row, first, last))
            rows.add_row(str(row["window"]) if name == "train" else "", *cells)
    output_console().print(rows)


def _contracts(row: dict[str, Any], first: str, last: str) -> str:
    """The contracts that are front between two sessions of a window, each with the session from which on it is."""
    before = [roll["to"] for roll in row["rolls"] if roll["date"] <= first]
    rolls = [roll for roll in row["rolls"] if first < roll["date"] <= last]
    held = before[-1] if before else row["rolls"][0]["from"] if row["rolls"] else row["contracts"][0]
    return ", ".join([held, *(f"{roll['to']} {roll['date']}" for roll in rolls)])
