"""`tidewalk inspect`: what is in data files, and what reading them did."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tidewalk.commands.parsing import parse
from tidewalk.data.load import DataConfig
from tidewalk.market.device import save_market
from tidewalk.market.prepare import Prepared, SeriesConfig, prepare


@dataclasses.dataclass(frozen=True)
class InspectCommand:
    """Show what is in data files: contracts, spans, rolls, sessions, and what was assumed or dropped."""

    data: DataConfig
    series: SeriesConfig = dataclasses.field(default_factory=SeriesConfig)
    save_market: Path | None = None
    """Also write the prepared market as one .npz, which `--data-dir` takes in place of the files."""
    json: bool = False
    """Machine-readable output."""


def run(args: list[str]) -> int:
    """Read, prepare and describe."""
    config = parse(InspectCommand, "inspect", args)
    prepared = prepare(config.data, config.series)
    description = describe(prepared)
    if config.save_market:
        save_market(config.save_market, prepared.market)
    if config.json:
        print(json.dumps(description, indent=2))
    else:
        _print(description)
        if config.save_market:
            print(f"prepared market: {config.save_market}")
    return 0


def describe(prepared: Prepared) -> dict[str, Any]:
    """Everything `inspect` shows, as plain JSON values."""
    market, loaded, series, spec = prepared.market, prepared.loaded, prepared.series, prepared.spec
    return {
        "symbol": loaded.symbol,
        "root": loaded.root,
        "symbology": loaded.symbology,
        "fingerprint": loaded.fingerprint,
        "spec": {
            "tick": spec.tick_e9 / 1e9, "multiplier": spec.multiplier, "currency": spec.currency,
            "commission_usd": spec.commission_usd, "sessions": spec.sessions,
        },  # fmt: skip
        "files": [dataclasses.asdict(file) for file in loaded.files],
        "contracts": [
            {"contract": t.contract, "bars": len(t.ts_ns), "first": _utc(t.ts_ns[0]), "last": _utc(t.ts_ns[-1]), "volume": float(t.volume.sum())}
            for t in loaded.tables
        ],
        "front": {
            "bars": market.num_bars,
            "first": _utc(series.ts_ns[0]),
            "last": _utc(series.ts_ns[-1]),
            "interval_ns": series.interval_ns,
            "sessions": int(market.session_id[-1]) + 1,
            "first_session": str(np.datetime64(int(market.trade_day[0]), "D")),
            "last_session": str(np.datetime64(int(market.trade_day[-1]), "D")),
        },
        "rolls": list(market.info.rolls),
        "features": list(market.info.feature_names),
        "notes": list(market.info.notes),
        "warnings": list(market.info.warnings),
    }


def _utc(ts_ns: int) -> str:
    return f"{np.datetime64(int(ts_ns), 'ns').astype('datetime64[s]')}Z"


def _print(found: dict[str, Any]) -> None:
    console = Console()
    front, spec = found["front"], found["spec"]
    interval = "irregular bars" if front["interval_ns"] is None else f"{front['interval_ns'] / 1e9:g} s bars"
    _say(console, f"{found['symbol']} ({found['symbology']}): {front['bars']:,} {interval} of the front contract, {front['first']} to {front['last']}")
    _say(console, f"{front['sessions']:,} sessions ({spec['sessions']}), {front['first_session']} to {front['last_session']}")
    _say(console, f"tick {spec['tick']:g}, multiplier {spec['multiplier']:g} {spec['currency']}, commission {spec['commission_usd']:g} per side")
    console.print(_contracts(found))
    if found["rolls"]:
        console.print(_rolls(found))
    console.print(_files(found))
    for text in found["notes"]:
        _say(console, f"note: {text}")
    for text in found["warnings"]:
        _say(console, f"warning: {text}")
    _say(console, f"fingerprint {found['fingerprint']}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name)
    return table


def _contracts(found: dict[str, Any]) -> Table:
    table = _table("contracts", ("contract", "bars", "first", "last", "volume"))
    for row in found["contracts"]:
        table.add_row(row["contract"], f"{row['bars']:,}", row["first"], row["last"], f"{row['volume']:,.0f}")
    return table


def _rolls(found: dict[str, Any]) -> Table:
    table = _table("rolls", ("session", "from", "to", "basis", "volumes of the session before", "reason"))
    for row in found["rolls"]:
        volumes = f"{row['from_volume']:,.0f} / {row['to_volume']:,.0f}"
        table.add_row(row["date"], row["from"], row["to"], f"{row['basis']:+g}", volumes, row["reason"])
    return table


def _files(found: dict[str, Any]) -> Table:
    table = _table("files", ("file", "kind", "schema", "rows", "kept", "notes"))
    for row in found["files"]:
        table.add_row(row["path"], row["kind"], row["schema"] or "-", f"{row['rows_read']:,}", f"{row['rows_kept']:,}", "; ".join(row["notes"]) or "-")
    return table
