"""`tidewalk inspect`: what is in data files, and what reading them did."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tidewalk.commands.parsing import parse
from tidewalk.commands.tables import output_console, say, say_findings, table
from tidewalk.core.errors import ConfigError, TidewalkError
from tidewalk.data.bars import Loaded
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.market.device import MarketData, save_market
from tidewalk.market.prepare import SeriesConfig, prepare
from tidewalk.run.console import tell
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import read_market

_BAR_LENGTHS = {1: "1-second", 60: "1-minute", 3600: "1-hour", 86_400: "daily"}


@dataclasses.dataclass(frozen=True)
class InspectCommand:
    """Show what is in data files: contracts, spans, rolls, sessions, and what was assumed or dropped."""

    data: DataConfig
    series: SeriesConfig = dataclasses.field(default_factory=SeriesConfig)
    save_market: Path | None = None
    """Also write the prepared market as one .npz, which --data-dir takes in place of the files."""
    json: bool = False
    """Print JSON in place of text."""


def run(args: list[str]) -> int:
    """Read, prepare and describe."""
    config = parse(InspectCommand, "inspect", args)
    _refuse_bad_target(config.save_market)
    tell(f"reading {config.data.data_dir}")
    if config.data.data_dir.suffix == ".npz":
        market = read_market(RunConfig(data=config.data, series=config.series))
        found = describe_market(market)
    else:
        try:
            prepared = prepare(config.data, config.series)
        except TidewalkError:
            _print_files_alone(config)
            raise
        market, found = prepared.market, describe_files(prepared.loaded) | describe_market(prepared.market)
    if config.save_market:
        save_market(config.save_market, market)
        tell(f"prepared market: {config.save_market}")
    if config.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return 0


def _print_files_alone(config: InspectCommand) -> None:
    """What the files hold, where they can be read but make no market; silent where they cannot be read either."""
    if config.json:
        return
    with contextlib.suppress(TidewalkError):
        _print(describe_files(load_bars(config.data)))


def _refuse_bad_target(path: Path | None) -> None:
    """Say before the files are read that the prepared market could not be written, or not be read again."""
    if path is None:
        return
    if path.suffix != ".npz":
        raise ConfigError(f"--save-market {path}: the name must end in .npz, by which --data-dir knows the file.")
    if not path.parent.is_dir():
        raise ConfigError(f"--save-market {path}: there is no folder {path.parent}.")


def describe_files(loaded: Loaded) -> dict[str, Any]:
    """What data files hold of a symbol, as plain JSON values."""
    contracts = [
        {
            "contract": bars.contract,
            "bars": len(bars.ts_ns),
            "first": _utc(int(bars.ts_ns[0])),
            "last": _utc(int(bars.ts_ns[-1])),
            "volume": float(bars.volume.sum()),
        }
        for bars in loaded.tables
    ]
    return {
        "symbol": loaded.symbol,
        "root": loaded.root,
        "symbology": loaded.symbology,
        "fingerprint": loaded.fingerprint,
        "files": [dataclasses.asdict(file) for file in loaded.files],
        "contracts": contracts,
        "notes": list(loaded.notes),
        "warnings": list(loaded.warnings),
    }


def describe_market(market: MarketData) -> dict[str, Any]:
    """What a prepared market says of itself, as plain JSON values."""
    info = market.info
    first_session, last_session = (str(np.datetime64(int(day), "D")) for day in market.trade_day[[0, -1]])
    return {
        "symbol": info.symbol,
        "root": info.root,
        "fingerprint": info.fingerprint,
        "spec": {
            "tick": info.tick_e9 / 1e9,
            "multiplier": info.multiplier,
            "currency": info.currency,
            "commission_usd": info.commission_usd,
            "sessions": info.sessions,
        },
        "front": {
            "bars": market.num_bars,
            "first": _utc(int(market.ts_ns[0])),
            "last": _utc(int(market.ts_ns[-1])),
            "interval_ns": info.interval_ns,
            "sessions": int(market.session_id[-1]) + 1,
            "first_session": first_session,
            "last_session": last_session,
        },
        "rolls": list(info.rolls),
        "features": list(info.feature_names),
        "notes": list(info.notes),
        "warnings": list(info.warnings),
    }


def _utc(ts_ns: int) -> str:
    return f"{np.datetime64(ts_ns, 'ns').astype('datetime64[s]')}Z"


def _print(found: dict[str, Any]) -> None:
    console = output_console()
    say(console, found["symbol"] + (f" ({found['symbology']} symbology)" if "symbology" in found else ""))
    if "front" in found:
        for line in _headline(found["front"], found["spec"], len(found["features"])):
            say(console, line)
    say(console, f"fingerprint {found['fingerprint']}")
    console.print()
    for name, make in (("contracts", _contracts), ("rolls", _rolls), ("files", _files)):
        if found.get(name):
            console.print(make(found[name]))
    say_findings(console, found["notes"], found["warnings"])


def _headline(front: dict[str, Any], spec: dict[str, Any], features: int) -> list[str]:
    currency = spec["currency"]
    return [
        f"{front['bars']:,} {_bars(front['interval_ns'])} of the front contract, {features} features",
        f"from {_minute(front['first'])} to {_minute(front['last'])} UTC",
        f"{front['sessions']:,} sessions ({spec['sessions']}), {front['first_session']} to {front['last_session']}",
        f"tick {spec['tick']:g}, multiplier {spec['multiplier']:g} {currency}, "
        f"commission {spec['commission_usd']:g} {currency} per side",
    ]


def _bars(interval_ns: int | None) -> str:
    if interval_ns is None:
        return "irregular bars"
    seconds = interval_ns / 1e9
    return f"{_BAR_LENGTHS.get(int(seconds), f'{seconds:g}-second')} bars"


def _minute(utc: str) -> str:
    return utc[:16].replace("T", " ")


def _contracts(rows: list[dict[str, Any]]) -> Table:
    made = table("contracts", ("contract", "bars", "first (UTC)", "last (UTC)", "volume"))
    for row in rows:
        span = (_minute(row["first"]), _minute(row["last"]))
        made.add_row(row["contract"], f"{row['bars']:,}", *span, f"{row['volume']:,.0f}")
    return made


def _rolls(rows: list[dict[str, Any]]) -> Table:
    made = table("rolls", ("session", "from", "to", "basis", "volumes before", "reason"))
    for row in rows:
        volumes = f"{row['from_volume']:,.0f} / {row['to_volume']:,.0f}"
        made.add_row(row["date"], row["from"], row["to"], f"{row['basis']:+g}", volumes, row["reason"])
    return made


def _files(rows: list[dict[str, Any]]) -> Table:
    """Files with their row counts; what was done to them and why is said in the notes."""
    made = table("files", ("file", "kind", "schema", "rows", "kept"))
    for row in rows:
        is_used = row["rows_read"] > 0
        counts = (f"{row['rows_read']:,}", f"{row['rows_kept']:,}") if is_used else ("ignored", "-")
        made.add_row(row["path"], row["kind"], row["schema"] or "-", *counts)
    return made
