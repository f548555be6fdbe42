"""`tidewalk windows`: the walk-forward windows of a study, without training."""

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from tidewalk.agents.dqn import DQNConfig
from tidewalk.commands.parsing import parse
from tidewalk.data.load import DataConfig
from tidewalk.market.prepare import SeriesConfig
from tidewalk.market.windows import WindowConfig
from tidewalk.run.settings import RunConfig


@dataclasses.dataclass(frozen=True)
class WindowsCommand:
    """Show the walk-forward windows of a study without training."""

    data: DataConfig
    series: SeriesConfig = dataclasses.field(default_factory=SeriesConfig)
    windows: WindowConfig = dataclasses.field(default_factory=WindowConfig)
    n_step: int = DQNConfig.n_step
    """Steps of reward before the bootstrap; sets the default purge."""
    json: bool = False
    """Print windows.json instead of the table."""


def run(args: list[str]) -> int:
    """Print the windows."""
    config = parse(WindowsCommand, "windows", args)
    from tidewalk.run.study import plan_study, read_market, windows_record

    study_config = RunConfig(
        data=config.data, series=config.series, windows=config.windows, dqn=dataclasses.replace(DQNConfig(), n_step=config.n_step)
    )
    study = plan_study(study_config, read_market(study_config), compose="scan")
    record = windows_record(study)
    if config.json:
        print(json.dumps(record, indent=2))
        return 0
    console = Console()
    console.print(_table(record))
    for text in (*study.plan.notes, *(f"warning: {text}" for text in study.plan.warnings)):
        console.print(text, markup=False, highlight=False)
    return 0


def _table(record: dict[str, Any]) -> Table:
    rows = record["windows"]
    table = Table(title=f"{len(rows)} walk-forward window(s), {record['purge_bars']} bars purged after train and validation")
    for name in ("window", "train", "validation", "test", "bars", "sessions", "contracts", "rolls"):
        table.add_column(name, justify="right" if name in ("window", "rolls") else "left")
    for row in rows:
        parts = [row[name] for name in ("train", "val", "test")]
        table.add_row(
            str(row["window"]),
            *(f"{part['first']} to {part['last']}" for part in parts),
            " / ".join(f"{part['bars'][1] - part['bars'][0]:,}" for part in parts),
            " / ".join(str(part["sessions"]) for part in parts),
            " ".join(row["contracts"]),
            ", ".join(f"{roll['date']} {roll['from']}>{roll['to']}" for roll in row["rolls"]) or "-",
        )
    return table
