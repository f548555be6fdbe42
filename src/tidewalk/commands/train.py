"""`tidewalk train`: run a walk-forward study."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from tidewalk.commands.parsing import parse
from tidewalk.core.errors import ConfigError
from tidewalk.run.settings import RunConfig, from_toml


def run(args: list[str]) -> int:
    """Train with flags, or with `--config FILE` and flags that win over it."""
    rest, file = _take_config(args)
    config: RunConfig = parse(RunConfig, "train", rest, default=_read(file) if file else None)
    from tidewalk.run.loop import train

    print_result(train(config), as_json=config.output.json)
    return 0


def print_result(folder: Path, *, as_json: bool) -> None:
    """The headline of a finished run on standard output, and where its report lies."""
    from tidewalk.store import layout, results

    run = layout.open_run(folder)
    summary = results.read_summary(run)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    for line in _headline(summary):
        print(line)
    print(f"report: {run.report.resolve()}")


def _headline(summary: dict[str, Any]) -> list[str]:
    oos, baselines, oracle = summary["oos"], summary["baselines"], summary["oracle"]
    interval = "undefined" if oos["sharpe_ci90"] is None else "{:.2f} to {:.2f}".format(*oos["sharpe_ci90"])
    return [
        f"{summary['symbol']} {summary['model']}: {oos['verdict']}",
        f"out of sample, {summary['windows']} window(s), {oos['sessions']} sessions, {oos['trades']:,} contract sides: "
        f"net {oos['net_usd']:+,.0f} = gross {oos['gross_usd']:+,.0f} - costs {oos['costs_usd']:,.0f}",
        f"Sharpe {_number(oos['sharpe_session'])} (90 % {interval}), max drawdown {oos['max_drawdown_usd']:,.0f}, "
        f"PSR {_number(oos['psr'])}, DSR {_number(oos['dsr'])} of {oos['trials']} trial(s)",
        f"baselines: long {baselines['long']:+,.0f}, short {baselines['short']:+,.0f}, momentum {baselines['momentum']:+,.0f}; "
        f"better than {_percent(baselines['random_p'])} of random timing; hindsight bound {oracle['net_usd']:+,.0f}",
    ]


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "an undefined share" if value is None else f"{value:.0%}"


def _take_config(args: list[str]) -> tuple[list[str], Path | None]:
    """The arguments without `--config FILE`, and the file."""
    for index, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name != "--config":
            continue
        if not equals:
            if index + 1 == len(args):
                raise ConfigError("--config needs a file: a run.toml.")
            return args[:index] + args[index + 2 :], Path(args[index + 1])
        return args[:index] + args[index + 1 :], Path(value)
    return args, None


def _read(file: Path) -> RunConfig:
    """A configuration file; its run folder is not taken over, since that run exists already."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {file}: {error}.") from error
    config = from_toml(text, str(file))
    return dataclasses.replace(config, output=dataclasses.replace(config.output, out=None, overwrite=False))
