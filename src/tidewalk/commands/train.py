"""`tidewalk train`: run a walk-forward study."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import tyro

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


def run(args: list[str]) -> int:
    """Train with flags, or with `--config FILE` and flags that win over it."""
    config = parse_study("train", args)
    from tidewalk.run.loop import train

    print_result(train(config), as_json=config.output.json)
    return 0


def parse_study(command: str, args: list[str]) -> RunConfig:
    """The study that flags and a configuration file ask for; `--symbol` may be given several times."""
    args = gathered("--symbol", args)
    return parse(StudyCommand, command, args, default=_from_file(args), needs=("--symbol",)).study


def print_result(folder: Path, *, as_json: bool) -> None:
    """The headline of a finished run on standard output, and where its report lies."""
    from tidewalk.store import layout, results

    run = layout.open_run(folder)
    summary = results.read_summary(run)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    console = output_console()
    for line in _headline(summary):
        say(console, line)
    # What is undefined the headline shows already.
    say_findings(console, [], [text for text in summary["warnings"] if " is undefined: " not in text])
    say(console, f"report: {run.report.resolve()}")


def _headline(summary: dict[str, Any]) -> list[str]:
    oos, baselines, oracle = summary["oos"], summary["baselines"], summary["oracle"]
    interval = "undefined" if oos["sharpe_ci90"] is None else "{:.2f} to {:.2f}".format(*oos["sharpe_ci90"])
    return [
        f"{summary['symbol']} {summary['model']}: {oos['verdict']}",
        f"out of sample, {summary['windows']} window(s), {oos['sessions']} sessions, {_result(oos)}",
        f"Sharpe {_number(oos['sharpe_session'])} (90 % {interval}), max drawdown {oos['max_drawdown_usd']:,.0f}, "
        f"PSR {_number(oos['psr'])}, DSR {_number(oos['dsr'])} of {oos['trials']} trial(s)",
        f"baselines: long {baselines['long']:+,.0f}, short {baselines['short']:+,.0f}, "
        f"momentum {baselines['momentum']:+,.0f}; better than {_percent(baselines['random_p'])} of random timing; "
        f"hindsight bound {oracle['net_usd']:+,.0f}",
        *(_symbol_line(row) for row in summary["per_symbol"] if len(summary["per_symbol"]) > 1),
    ]


def _symbol_line(row: dict[str, Any]) -> str:
    oos = row["oos"]
    return (
        f"{row['symbol']}: {row['windows']} window(s), {oos['sessions']} sessions, {_result(oos)}; "
        f"Sharpe {_number(oos['sharpe_session'])}; long {row['baselines']['long']:+,.0f}, "
        f"hindsight bound {row['oracle']['net_usd']:+,.0f}"
    )


def _result(oos: dict[str, Any]) -> str:
    return (
        f"{oos['trades']:,} contract sides: net {oos['net_usd']:+,.0f} = gross {oos['gross_usd']:+,.0f} "
        f"- costs {oos['costs_usd']:,.0f}"
    )


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "an undefined share" if value is None else f"{value:.0%}"


def _value_of(flag: str, args: list[str]) -> str | None:
    """The last value given for a flag; whether it may stand there is for the parser to say."""
    pairs = [(word, value) for word, value in itertools.pairwise(args) if word == flag]
    pairs += [
        (name, value) for name, equals, value in (word.partition("=") for word in args) if equals and name == flag
    ]
    return pairs[-1][1] if pairs else None


def _from_file(args: list[str]) -> StudyCommand | None:
    """The settings of `--config FILE`; its run folder is not taken over, since that run exists already."""
    name = _value_of("--config", args)
    if name is None:
        return None
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {name}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {name}: not a text file ({error.reason} at byte {error.start}).") from error
    flags = {"data_dir": _value_of("--data-dir", args), "symbol": _value_of("--symbol", args)}
    config = from_toml(text, name, data={key: value for key, value in flags.items() if value is not None})
    output = dataclasses.replace(config.output, out=None, overwrite=False)
    return StudyCommand(dataclasses.replace(config, output=output))
