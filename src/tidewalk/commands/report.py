"""`tidewalk report`: write the report of a run anew."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from tidewalk.commands.parsing import parse
from tidewalk.run.console import tell


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Write the report of a run anew from its files."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""


def run(args: list[str]) -> int:
    """Write `report.html` and print its path."""
    config = parse(ReportConfig, "report", args)
    from tidewalk.report.page import write_report
    from tidewalk.store import layout, results

    path = write_report(config.run)
    for text in results.verify_results(layout.open_run(config.run)):
        tell(f"warning: {text}")
    print(path.resolve())
    return 0
