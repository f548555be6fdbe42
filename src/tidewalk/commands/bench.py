"""`tidewalk bench`: measure on this machine what keeping the market on the device is worth."""

import dataclasses
import functools
import importlib.metadata
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewalk.commands.tables import output_console, say, table
from tidewalk.commands.train import StudyCommand, parse_command, value_of
from tidewalk.core.errors import ConfigError, did_you_mean, listed
from tidewalk.core.words import counted
from tidewalk.data.load import DataConfig
from tidewalk.market.windows import WindowConfig
from tidewalk.run.console import tell
from tidewalk.run.settings import RunConfig
from tidewalk.train.population import TrainConfig

if TYPE_CHECKING:
    from tidewalk.market.device import MarketData
    from tidewalk.run.residency import Case, Trainer
    from tidewalk.run.timing import PhaseTimes

QUESTIONS = {"residency": "an epoch with the market resident, beside one that frees and sends it again"}
SAMPLE = Path("a synthetic market")
"""Stands for the market that is made where no data are given."""
SAMPLE_MONTHS = 24
_VERSIONS = ("tidewalk", "jax", "jaxlib", "numpy")


@dataclasses.dataclass(frozen=True)
class ResidencyCommand(StudyCommand):
    """What residency is worth: an epoch with the market resident, and with it freed and sent again each time.

    By default the epoch of the starting point: 50 updates of batch 64 and a month of validation. Without --data-dir it
    is measured on a synthetic market of 24 months. `--json FILE` writes the figures to a file beside the table.
    """

    rounds: int = 15
    """Epochs of each trainer that are timed, 7 or more, after 3 of warm-up."""


def run(args: list[str]) -> int:
    """Run one of the questions."""
    if args[:1] in (["-h"], ["--help"]):
        listed = "\n".join(f"  {name}  {text}" for name, text in QUESTIONS.items())
        print(f"usage: tidewalk bench QUESTION [options]\n\n{listed}\n\n`tidewalk bench residency --help`: its options")
        return 0
    question = args[0] if args else ""
    if question not in QUESTIONS:
        found = f"unknown question {question!r}{did_you_mean(question, QUESTIONS)}" if args else "no question is given"
        raise ConfigError(f"bench: {found}. Questions: {', '.join(QUESTIONS)}, as in `tidewalk bench residency`.")
    return _residency(args[1:])


def _residency(args: list[str]) -> int:
    args, file = _without_file(args)
    command = parse_command(ResidencyCommand, "bench residency", args, default=ResidencyCommand(_starting_point()))
    if command.study.data.data_dir != SAMPLE and not value_of("--symbol", args) and not value_of("--config", args):
        command = _with_symbol_found(command)
    from tidewalk.run import compile_cache, mesh
    from tidewalk.run.markets import prepare_device
    from tidewalk.run.residency import FEWEST_ROUNDS, measure

    if command.rounds < FEWEST_ROUNDS:
        raise ConfigError(f"--rounds is {command.rounds}; a median needs {FEWEST_ROUNDS} or more.")
    config = command.study
    prepare_device(config, quiet=config.output.quiet)
    for text in mesh.precision_warnings(config.output.precision):
        tell(f"warning: {text}", quiet=config.output.quiet)
    markets = _markets(config)
    cases = measure(config, markets, command.rounds, functools.partial(tell, quiet=config.output.quiet))
    compile_cache.seal()
    record = _record(command, markets, cases)
    if file is not None:
        file.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")
    if config.output.json:
        print(json.dumps(record, indent=2, allow_nan=False))
    else:
        _show(record, cases)
    return 0


def _with_symbol_found(command: ResidencyCommand) -> ResidencyCommand:
    """The command with the one symbol that its data hold, in place of that of the synthetic market.

    Raises:
        ConfigError: the data hold several, or do not name what they hold.
    """
    from tidewalk.data.files.overview import overview, symbols_to_ask_for
    from tidewalk.market.device import load_market

    data = command.study.data
    if data.data_dir.suffix == ".npz":
        found: Sequence[str] = (load_market(data.data_dir).info.symbol,)
    else:
        found = symbols_to_ask_for(overview(data.data_dir))
    if len(found) != 1:
        held = f"holds {listed(found)}" if found else "does not name what it holds"
        raise ConfigError(f"--symbol must be given: {data.data_dir} {held}.")
    tell(f"--symbol {found[0]}, the only one in {data.data_dir}", quiet=command.study.output.quiet)
    data = dataclasses.replace(data, symbol=found[0])
    return dataclasses.replace(command, study=dataclasses.replace(command.study, data=data))


def _without_file(args: list[str]) -> tuple[list[str], Path | None]:
    """The words of a command line without `--json FILE`, and that file; a `--json` alone is a switch, as elsewhere."""
    for index, (word, value) in enumerate(itertools.pairwise(args)):
        if word != "--json" or value.startswith("-"):
            continue
        if not Path(value).parent.is_dir():
            raise ConfigError(f"--json {value}: there is no folder {Path(value).parent} to write it to.")
        if Path(value).is_dir():
            raise ConfigError(f"--json {value}: this is a folder; name a file in it.")
        return args[:index] + args[index + 2 :], Path(value)
    return args, None


def _starting_point() -> RunConfig:
    return RunConfig(
        data=DataConfig(data_dir=SAMPLE, symbol="ES.FUT"),
        windows=WindowConfig(train_months=3, val_months=1, test_months=1, step_months=3),
        train=TrainConfig(max_steps_per_epoch=50),
    )


def _markets(config: RunConfig) -> "Sequence[MarketData]":
    from tidewalk.data.sample.synthetic import SampleConfig, write_sample
    from tidewalk.run.markets import read_markets

    if config.data.data_dir != SAMPLE:
        tell(f"reading {config.data.data_dir}", quiet=config.output.quiet)
        return read_markets(config)
    tell(f"making a synthetic market of {SAMPLE_MONTHS} months", quiet=config.output.quiet)
    with tempfile.TemporaryDirectory(prefix="tidewalk-") as folder:
        path = Path(folder) / "market"
        write_sample(path, SampleConfig(months=SAMPLE_MONTHS))
        return read_markets(dataclasses.replace(config, data=dataclasses.replace(config.data, data_dir=path)))


def _record(command: ResidencyCommand, markets: "Sequence[MarketData]", cases: "list[Case]") -> dict[str, Any]:
    """All that was found, as plain JSON values."""
    from tidewalk.run import mesh

    config = command.study
    return {
        "question": "residency",
        "device": mesh.describe(),
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS},
        "precision": config.output.precision,
        "symbol": config.data.symbol,
        "bars": sum(market.num_bars for market in markets),
        "features": len(markets[0].info.feature_names),
        "steps": config.train.max_steps_per_epoch,
        "batch_size": config.dqn.batch_size,
        "lanes": config.train.lanes,
        "rounds": command.rounds,
        "cases": [{**dataclasses.asdict(case), "ratio": case.ratio} for case in cases],
    }


def _show(record: dict[str, Any], cases: "list[Case]") -> None:
    """A table for every case, and what it says."""
    from tidewalk.run.residency import RESIDENT, REUPLOADING

    console = output_console()
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    say(console, f"{record['device']}, {record['precision']}; {versions}")
    say(
        console,
        f"{record['symbol']}: {record['bars']:,} bars, {record['features']} features; an epoch is {record['steps']} "
        f"steps of {record['lanes']} lanes, updates of batch {record['batch_size']}, and the validation; medians of "
        f"{record['rounds']} epochs of both trainers in turn",
    )
    for case in cases:
        windows = f"{counted(case.windows, 'window')} x {counted(case.seeds, 'seed')}"
        members, heads = counted(case.members, "member"), ("resident", "sent each epoch")
        title = f"{members}, {windows}, {case.validation_bars:,} bars of validation"
        rows = table(title, ("an epoch", *heads), right=heads)
        for name, *values in _rows(case.trainers[RESIDENT], case.trainers[REUPLOADING]):
            rows.add_row(name, *values)
        console.print()
        console.print(rows)
        say(console, f"The epoch that sends its market takes {case.ratio:.2f} times as long as the resident one.")


def _rows(*trainers: "Trainer") -> list[tuple[str, ...]]:
    """Rows of the table: what is measured, then the figure of each trainer."""
    from tidewalk.run.timing import PHASES

    rows = [
        ("init, ms", *(f"{one.fused.init:.3f}" for one in trainers)),
        ("collect, learn, evaluate as one program, ms", *(f"{_work_ms(one.fused):.2f}" for one in trainers)),
        ("total, ms", *(f"{one.fused.total:.2f}" for one in trainers)),
        ("total, p10 to p90, ms", *("{:.2f} to {:.2f}".format(*one.fused_p10_p90_ms) for one in trainers)),
        ("uploaded, bytes", *(f"{one.moved.bytes_h2d:,}" for one in trainers)),
        ("downloaded, bytes", *(f"{one.moved.bytes_d2h:,}" for one in trainers)),
        ("waits for the device", *(str(one.moved.host_syncs) for one in trainers)),
        ("one call for each phase and step:", *("" for _ in trainers)),
    ]
    for phase in (*PHASES, "total"):
        digits = 3 if phase == "init" else 2
        rows.append((f"  {phase}, ms", *(f"{getattr(one.phased, phase):.{digits}f}" for one in trainers)))
    return rows


def _work_ms(times: "PhaseTimes") -> float:
    return times.total - times.init
