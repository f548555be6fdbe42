"""`tidewalk report`: write the report of a run anew."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from tidewalk.commands.parsing import parse


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Write the report of a run anew from its files."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""


def run(args: list[str]) -> int:
    """Write `report.html` and print its path."""
    config = parse(ReportConfig, "report", args)
    from tidewalk.report.page import write_report

    print(write_report(config.run).resolve())
    return 0
