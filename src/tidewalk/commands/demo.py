"""`tidewalk demo`: the main job on an embedded sample market."""

import dataclasses
from pathlib import Path

from tidewalk.agents.dqn import DQNConfig
from tidewalk.commands.parsing import parse
from tidewalk.commands.train import print_result
from tidewalk.core.words import counted
from tidewalk.data.load import DataConfig
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.market.windows import WindowConfig
from tidewalk.run.console import tell
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.train.population import TrainConfig


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """A sample market, a walk-forward study on it, a report: the whole job in a few minutes on a laptop."""

    out: Path = Path("runs/demo")
    """Run folder; the sample market goes beside it."""
    months: int = 24
    """Months of the sample market."""
    seed: int = 0
    """Seed of market and study."""
    epochs: int = 15
    """Epochs of training."""
    overwrite: bool = False
    """Replace the run that --out holds; the default folder is always replaced."""


def run(args: list[str]) -> int:
    """Write the market, run the study, print the report's path."""
    config = parse(DemoConfig, "demo", args)
    from tidewalk.run.loop import train

    data = config.out.parent / f"{config.out.name}-market-{config.months}-months-seed-{config.seed}"
    tell(f"writing {counted(config.months, 'month')} of a synthetic ES.FUT market to {data}")
    write_sample(data, SampleConfig(months=config.months, seed=config.seed))
    study = RunConfig(
        data=DataConfig(data_dir=data, symbol="ES.FUT"),
        windows=WindowConfig(train_months=3, val_months=1, test_months=1, step_months=3),
        train=TrainConfig(epochs=config.epochs, max_steps_per_epoch=500, seed=config.seed),
        dqn=DQNConfig(batch_size=64),
        output=OutputConfig(out=config.out, overwrite=config.overwrite or config.out == DemoConfig.out),
    )
    print_result(train(study), as_json=False)
    return 0
