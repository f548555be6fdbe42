"""`tidewalk sample`: write a synthetic market."""

import dataclasses
import shlex
from pathlib import Path

from tidewalk.commands.parsing import parse
from tidewalk.core.words import counted
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.run.console import tell


@dataclasses.dataclass(frozen=True)
class SampleCommand:
    """Write a synthetic ES.FUT market (one-minute bars, parent symbology) as DBN files."""

    out: Path
    """Folder for the files."""
    sample: SampleConfig = dataclasses.field(default_factory=SampleConfig)


def run(args: list[str]) -> int:
    """Write the files and print what they are."""
    config = parse(SampleCommand, "sample", args)
    sample = config.sample
    tell(f"writing {counted(sample.num_months, 'month')} to {config.out}")
    paths = write_sample(config.out, sample)
    size = sum(path.stat().st_size for path in paths) / 2**20
    print(f"{counted(len(paths), 'DBN file')}, {size:.1f} MiB, kind {sample.kind}, seed {sample.seed}: {config.out}")
    flags = "--symbol ES.FUT --train-months 3 --val-months 1 --test-months 1 --step-months 3"
    print(f"next: tidewalk train --data-dir {shlex.quote(str(config.out))} {flags}")
    return 0
