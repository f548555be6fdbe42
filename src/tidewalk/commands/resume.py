"""`tidewalk resume`: go on with an interrupted study."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from tidewalk.commands.parsing import parse
from tidewalk.commands.train import print_result


@dataclasses.dataclass(frozen=True)
class ResumeConfig:
    """Go on with an interrupted study from its last checkpoint."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    data_dir: Path | None = None
    """Where the data lie now, if they were moved since."""
    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print JSON on standard output in place of text: summary.json."""


def run(args: list[str]) -> int:
    """Resume and print the result."""
    config = parse(ResumeConfig, "resume", args)
    from tidewalk.run.loop import resume

    print_result(resume(config.run, data_dir=config.data_dir, quiet=config.quiet), as_json=config.json)
    return 0
