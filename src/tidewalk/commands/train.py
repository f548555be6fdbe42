"""`tidewalk train`: run a walk-forward study."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Annotated, TypeVar, cast

import tyro

from tidewalk.commands.headline import headline, laid_out
from tidewalk.commands.parsing import gathered, parse
from tidewalk.commands.tables import output_console, say, say_findings
from tidewalk.core.errors import ConfigError
from tidewalk.run.settings import RunConfig, from_toml


@dataclasses.dataclass(frozen=True)
class StudyCommand:
    """A walk-forward study: `train` runs it, `windows` shows its windows only."""

    study: Annotated[RunConfig, tyro.conf.arg(name="")]
    config: Path | None = None
    """Take the settings from this file, such as the run.toml of a run; flags win over it."""


Command = TypeVar("Command", bound=StudyCommand)


def run(args: list[str]) -> int:
    """Train with flags, or with `--config FILE` and flags that win over it."""
    config = parse_study("train", args)
    from tidewalk.run.loop import train

    print_result(train(config), as_json=config.output.json)
    return 0


def parse_study(command: str, args: list[str]) -> RunConfig:
    """The study that flags and a configuration file ask for; `--symbol` may be given several times."""
    return parse_command(StudyCommand, command, args).study


def parse_command(record: type[Command], command: str, args: list[str], *, default: Command | None = None) -> Command:
    """The same with the flags that a record adds to those of a study; `default` stands where no file is given."""
    args = gathered("--symbol", args)
    given = _from_file(args)
    default = default if given is None else record(given.study)
    return cast(Command, parse(record, command, args, default=default, needs=("--symbol",)))


def print_result(folder: Path, *, as_json: bool) -> None:
    """The headline of a finished run on standard output, and where its report lies."""
    from tidewalk.store import layout
    from tidewalk.store.summary import IS_UNDEFINED, read_summary, twin_sentences

    run = layout.open_run(folder)
    summary = read_summary(run)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    console = output_console()
    for line in laid_out(headline(summary), console.width if console.is_terminal else None):
        say(console, line)
    # What is undefined or a twin of a baseline the headline shows already.
    told = twin_sentences(summary["baselines"])
    warnings = [text for text in summary["warnings"] if IS_UNDEFINED not in text and text not in told]
    say_findings(console, [], warnings)
    say(console, f"report: {run.report.resolve()}")


def value_of(flag: str, args: list[str]) -> str | None:
    """The last value given for a flag; whether it may stand there is for the parser to say."""
    pairs = [(word, value) for word, value in itertools.pairwise(args) if word == flag]
    pairs += [
        (name, value) for name, equals, value in (word.partition("=") for word in args) if equals and name == flag
    ]
    return pairs[-1][1] if pairs else None


def _from_file(args: list[str]) -> StudyCommand | None:
    """The settings of `--config FILE`; its run folder is not taken over, since that run exists already."""
    name = value_of("--config", args)
    if name is None:
        return None
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {name}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {name}: not a text file ({error.reason} at byte {error.start}).") from error
    flags = {"data_dir": value_of("--data-dir", args), "symbol": value_of("--symbol", args)}
    config = from_toml(text, name, data={key: value for key, value in flags.items() if value is not None})
    output = dataclasses.replace(config.output, out=None, overwrite=False)
    return StudyCommand(dataclasses.replace(config, output=output))
