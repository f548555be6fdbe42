"""`tidewalk inspect`: what is in data files, and what reading them did."""

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from tidewalk.commands import described
from tidewalk.commands.inspect_tables import headline, overview_tables, rendered, tables_of
from tidewalk.commands.parsing import gathered, parse
from tidewalk.commands.tables import output_console, say, say_findings
from tidewalk.core.errors import ConfigError, TidewalkError, listed
from tidewalk.data.checks import quality
from tidewalk.data.checks.survey import survey
from tidewalk.data.files.overview import overview, symbols_to_ask_for
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.market.device import MarketData, save_market
from tidewalk.market.prepare import SeriesConfig, prepare
from tidewalk.report.market_page import write_market_page
from tidewalk.report.market_picture import write_png
from tidewalk.run.console import reading, tell
from tidewalk.run.markets import read_market
from tidewalk.run.settings import RunConfig


@dataclasses.dataclass(frozen=True)
class InspectCommand:
    """Show what is in data files: contracts, spans, rolls, sessions, gaps, and what was assumed or dropped.

    Without --symbol: what each file holds, and which symbols can be asked for.
    """

    data: DataConfig
    series: SeriesConfig = dataclasses.field(default_factory=SeriesConfig)
    save_market: Path | None = None
    """Also write the prepared market as one .npz, which --data-dir takes in place of the files."""
    picture: Path | None = None
    """Also draw coverage, rolls, volume, missing bars and price: NAME.html and NAME.png, or one of them by suffix."""
    json: bool = False
    """Print JSON in place of text."""


def run(args: list[str]) -> int:
    """Read, prepare and describe."""
    config = parse(InspectCommand, "inspect", gathered("--symbol", args))
    _refuse_bad_targets(config)
    tell(f"reading {config.data.data_dir}")
    if config.data.data_dir.suffix == ".npz":
        market = read_market(RunConfig(data=config.data, series=config.series))
        _show([described.describe_market(market)], as_json=config.json)
        return 0
    if not config.data.symbol:
        _show_overview(config)
        return 0
    symbols = RunConfig(data=config.data).symbols
    _show(
        [_inspected(config, symbol, tag=f"-{_plain(symbol)}" * (len(symbols) > 1)) for symbol in symbols],
        as_json=config.json,
    )
    return 0


def _inspected(config: InspectCommand, symbol: str, *, tag: str) -> dict[str, Any]:
    """Everything about one symbol; market and picture are written where they are asked for, `tag` in their names."""
    data = dataclasses.replace(config.data, symbol=symbol)
    try:
        with reading(quiet=config.json) as progress:
            prepared = prepare(data, config.series, progress)
    except TidewalkError as error:
        _show_files_alone(data, str(error), as_json=config.json)
        raise
    account = survey(prepared.loaded, prepared.spec.sessions, prepared.series)
    found = described.describe_files(prepared.loaded) | described.describe_market(prepared.market)
    found |= described.describe_survey(account)
    if config.save_market:
        _save(prepared.market, _tagged(config.save_market, tag))
    if config.picture:
        title = f"{symbol} · {found['front']['first_session']} to {found['front']['last_session']}"
        picture = described.picture_of(title, account, found["rolls"])
        for path in _picture_paths(_tagged(config.picture, tag)):
            if path.suffix == ".png":
                write_png(picture, path)
            else:
                write_market_page(path, picture, dict(headline(found)), tables_of(found), found["data_quality"])
            tell(f"picture: {path}")
    return found


def _plain(symbol: str) -> str:
    return re.sub(r"[^\w.+-]", "_", symbol)


def _tagged(path: Path, tag: str) -> Path:
    suffix = path.suffix if path.suffix in (".npz", ".html", ".png") else ""
    return path.with_name(f"{path.name.removesuffix(suffix)}{tag}{suffix}")


def _picture_paths(path: Path) -> tuple[Path, ...]:
    if path.suffix in (".html", ".png"):
        return (path,)
    return tuple(path.with_name(path.name + suffix) for suffix in (".html", ".png"))


def _save(market: MarketData, path: Path) -> None:
    save_market(path, market)
    tell(f"prepared market: {path}")


def _show_files_alone(data: DataConfig, problem: str, *, as_json: bool) -> None:
    """What the files hold, where they can be read but make no market; silent where they cannot be read either."""
    with contextlib.suppress(TidewalkError):
        _show([described.describe_files(load_bars(data)) | {"problem": problem}], as_json=as_json)


def _refuse_bad_targets(config: InspectCommand) -> None:
    """Say before the files are read that a result could not be written, or not be read again."""
    market, picture = config.save_market, config.picture
    if market and market.suffix != ".npz":
        raise ConfigError(f"--save-market {market}: the name must end in .npz, by which --data-dir knows the file.")
    for flag, path in (("--save-market", market), ("--picture", picture)):
        if path and not path.parent.is_dir():
            raise ConfigError(f"{flag} {path}: there is no folder {path.parent}.")
        if path and not config.data.symbol:
            raise ConfigError(f"{flag} {path}: needs --symbol, such as ES.FUT.")
    if picture and config.data.data_dir.suffix == ".npz":
        raise ConfigError("--picture: a prepared market has lost its contracts; point --data-dir at the data files.")


def _show_overview(config: InspectCommand) -> None:
    entries = overview(config.data.data_dir)
    found = described.describe_overview(entries)
    if config.json:
        print(json.dumps(found, indent=2))
        return
    console = output_console()
    for cells in overview_tables(found["files"]):
        console.print(rendered(cells))
    findings = [finding for entry in entries for finding in quality.in_file(entry.file, entry.findings)]
    say_findings(console, list(quality.notes(findings)), list(quality.warnings(findings)))
    symbols = symbols_to_ask_for(entries)
    if symbols:
        say(console, f"look into one with --symbol: {listed(symbols, 12)}")
    elif any(entry.rows for entry in entries):
        say(console, "look into it with --symbol and the name of what it holds, such as ES")


def _show(found: list[dict[str, Any]], *, as_json: bool) -> None:
    """One symbol as itself, several as a list."""
    if as_json:
        print(json.dumps(found[0] if len(found) == 1 else {"symbols": found}, indent=2))
        return
    for entry in found:
        _print(entry)


def _print(found: dict[str, Any]) -> None:
    console = output_console()
    say(console, found["symbol"] + (f" ({found['symbology']} symbology)" if "symbology" in found else ""))
    if "front" in found:
        for _, line in headline(found):
            say(console, line)
    say(console, f"fingerprint {found['fingerprint']}")
    console.print()
    for cells in tables_of(found):
        console.print(rendered(cells))
    findings = [quality.Finding(**record) for record in found["data_quality"]]
    say_findings(console, list(quality.notes(findings)), list(quality.warnings(findings)))
