"""`tidewalk audit`: look for leaks of the future in data, features and the pipeline."""

import dataclasses
import functools
import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tidewalk.commands.tables import output_console, say, say_findings, table
from tidewalk.commands.train import StudyCommand, parse_command
from tidewalk.run.console import tell

if TYPE_CHECKING:
    from tidewalk.run.audit.checks import Audit, Check

LEAKS = 2
"""Exit code where something leaks or a control failed."""
_STYLES = {"pass": "green", "LEAK": "bold red", "FAIL": "bold red", "warning": "bold yellow", "skipped": "dim"}


@dataclasses.dataclass(frozen=True)
class AuditCommand(StudyCommand):
    """Look for leaks of the future in the data, the features and the pipeline of a study; exits with 2 on a leak."""

    quick: bool = False
    """Fewer cuts and shorter trainings."""


def run(args: list[str]) -> int:
    """Audit the study that `train` with the same flags would run; 0 when all is clean, 2 on a leak."""
    command = parse_command(AuditCommand, "audit", args)
    output = command.study.output
    from tidewalk.run.audit.audit import audit
    from tidewalk.run.audit.checks import as_record

    found = audit(command.study, quick=command.quick, say=functools.partial(tell, quiet=output.quiet))
    if output.json:
        print(json.dumps(as_record(found), indent=2))
    else:
        show(found, output_console())
    return 0 if found.is_clean else LEAKS


def show(found: "Audit", console: Console) -> None:
    """The table of all checks, what is wrong in whole sentences, and the outcome in one line."""
    for symbol in found.symbols:
        checks = [check for check in found.checks if check.symbol == symbol]
        rows = table(f"audit of {symbol}", ("stage", "check", "what was done", "result", "s"))
        rows.columns[-1].justify = "right"
        for check in checks:
            result = Text(f"{check.status}: ", style=_STYLES[check.status]) + Text(check.found, style="")
            rows.add_row(check.stage, check.name, check.done, result, f"{check.seconds:.1f}")
        console.print(rows)
    say_findings(console, [*found.notes, *_texts(found, "skipped")], _texts(found, "warning"))
    for text in dict.fromkeys(_sentences(found)):
        say_line(console, text)
    say(console, outcome(found))


def say_line(console: Console, text: str) -> None:
    """A sentence about a leak, in the colour of one on a terminal."""
    console.print(Text(text, style="bold red" if console.is_terminal else ""), soft_wrap=not console.is_terminal)


def _texts(found: "Audit", status: str) -> list[str]:
    return [f"{_place(found, check)}: {text}" for check in found.checks if check.status == status
            for text in check.details]  # fmt: skip


def _sentences(found: "Audit") -> list[str]:
    """What is wrong, a column once for all checks that found it."""
    texts, told = [], set[tuple[str, str]]()
    for check in found.bad:
        columns = check.columns or ("",)
        for number, text in enumerate(check.details):
            column = columns[number] if number < len(columns) else ""
            if column and (check.symbol, column) in told:
                continue
            told.add((check.symbol, column))
            texts.append(f"{check.status}, {_place(found, check)}: {text}")
    return texts


def _place(found: "Audit", check: "Check") -> str:
    where = f"{check.stage}, {check.name}"
    return f"{check.symbol}, {where}" if len(found.symbols) > 1 else where


def outcome(found: "Audit") -> str:
    """The audit in one line."""
    done = [check for check in found.checks if check.status != "skipped"]
    passed = sum(check.status == "pass" for check in done)
    warned = sum(check.status == "warning" for check in done)
    skipped = len(found.checks) - len(done)
    counts = f"{passed} of {len(done)} checks pass"
    counts += f", {warned} with a warning" if warned else ""
    counts += f", {skipped} skipped" if skipped else ""
    if found.is_clean:
        return f"no leak found: {counts}"
    columns = list(dict.fromkeys(column for check in found.bad for column in check.columns))
    stages = list(dict.fromkeys(check.stage for check in found.bad if not check.columns))
    parts = [f"columns {', '.join(columns)}" if columns else "", f"stages {', '.join(stages)}" if stages else ""]
    return f"NOT CLEAN ({'; '.join(part for part in parts if part)}): {counts}"
