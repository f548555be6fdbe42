"""What `tidewalk inspect` found, as plain JSON values: the content of `--json`, of the tables and of the page."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidewalk.data.bars import Loaded
from tidewalk.data.checks import quality
from tidewalk.data.checks.survey import LONG_GAP_MINUTES, Survey
from tidewalk.data.files.overview import FileOverview
from tidewalk.market.device import MarketData
from tidewalk.report.market_picture import MarketPicture


def describe_overview(entries: Sequence[FileOverview]) -> dict[str, Any]:
    """Every file of a directory, whatever it holds."""
    return {"files": [_file_overview(entry) for entry in entries]}


def _file_overview(entry: FileOverview) -> dict[str, Any]:
    return {
        "file": entry.file,
        "kind": entry.kind,
        "schema": entry.schema,
        "rows": entry.rows,
        "first": None if entry.first_ns is None else utc(entry.first_ns),
        "last": None if entry.last_ns is None else utc(entry.last_ns),
        "stamps": entry.stamps or None,
        "symbols": sorted({span.label for span in entry.labels}),
        "found": entry.symbols,
        "findings": list(quality.records(entry.findings)),
        "problem": entry.problem,
    }


def describe_files(loaded: Loaded) -> dict[str, Any]:
    """What data files hold of a symbol."""
    contracts = [
        {
            "contract": bars.contract,
            "bars": len(bars.ts_ns),
            "first": utc(int(bars.ts_ns[0])),
            "last": utc(int(bars.ts_ns[-1])),
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
        "data_quality": list(quality.records(loaded.findings)),
    }


def describe_market(market: MarketData) -> dict[str, Any]:
    """What a prepared market says of itself."""
    info = market.info
    first_session, last_session = (day(int(number)) for number in market.trade_day[[0, -1]])
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
            "first": utc(int(market.ts_ns[0])),
            "last": utc(int(market.ts_ns[-1])),
            "interval_ns": info.interval_ns,
            "sessions": int(market.session_id[-1]) + 1,
            "first_session": first_session,
            "last_session": last_session,
            "median_spread_ticks": _median_spread_ticks(market),
        },
        "rolls": list(info.rolls),
        "features": list(info.feature_names),
        "data_quality": list(info.quality),
    }


def _median_spread_ticks(market: MarketData) -> float | None:
    half = market.half_spread_ticks
    return None if half is None else float(2 * np.median(half))


def describe_survey(found: Survey) -> dict[str, Any]:
    """Sessions one by one, and the longest holes inside them."""
    missing = found.missing_bars
    sessions = [
        {
            "session": day(int(number)),
            "front": found.contracts[held] if held >= 0 else None,
            "bars": int(bars),
            "expected_bars": int(expected) or None,
            "volume": float(volume),
        }
        for number, held, bars, expected, volume in zip(
            found.session_day, found.front, found.front_bars, found.expected_bars, found.front_volume, strict=True
        )
    ]
    gaps = [
        {
            "session": day(gap.trade_day),
            "contract": gap.contract,
            "from": utc(gap.from_ns),
            "to": utc(gap.to_ns),
            "minutes": round(gap.minutes, 3),
        }
        for gap in found.gaps
    ]
    return {
        "sessions": sessions,
        "missing_bars": int(missing.sum()),
        "expected_bars": int(found.expected_bars[found.front >= 0].sum()),
        "gaps": gaps,
        f"gaps_over_{LONG_GAP_MINUTES}_minutes": found.num_long_gaps,
    }


def picture_of(title: str, found: Survey, rolls: Sequence[dict[str, Any]]) -> MarketPicture:
    """What is drawn of a survey."""
    held, known = found.front >= 0, (found.front >= 0) & (found.expected_bars > 0)
    missing = np.full(len(found.front), np.nan)
    missing[known] = found.missing_bars[known] / found.expected_bars[known]
    return MarketPicture(
        title=title,
        contracts=found.contracts,
        dates=found.session_day.astype("datetime64[D]"),
        has_bars=found.bars > 0,
        volume=found.volume,
        front=found.front,
        close=np.where(held, found.close_e9 / 1e9, np.nan),
        missing_frac=missing,
        rolls=tuple((np.datetime64(roll["date"], "D"), roll["from"], roll["to"]) for roll in rolls),
    )


def utc(ts_ns: int) -> str:
    """A UTC stamp to the second."""
    return f"{np.datetime64(ts_ns, 'ns').astype('datetime64[s]')}Z"


def day(number: int) -> str:
    """The date of a number of days since 1970-01-01."""
    return str(np.datetime64(number, "D"))
