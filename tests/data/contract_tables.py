"""Bars of contracts made by hand: hourly, per session its volume and the open of each bar."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.data.contracts.specs import ContractSpec, spec_for

DATE = datetime.date
EPOCH = DATE(1970, 1, 1)
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
E9 = 1_000_000_000
SPEC = dataclasses.replace(spec_for("ES"), sessions="utc-day")  # sessions that can be written by hand


def by_hand(root: str) -> ContractSpec:
    """Specification of a root with sessions that can be written by hand."""
    return dataclasses.replace(spec_for(root), sessions="utc-day")


def table(contract: str, sessions: Mapping[datetime.date, tuple], *, has_volume: bool = True) -> BarTable:
    """Hourly bars from 10:00 on: per session its volume and then the open of each bar; closes are one above."""
    stamps, opens, volumes = [], [], []
    for date, (volume, *session_opens) in sessions.items():
        for i, open_ in enumerate(session_opens):
            stamps.append((date - EPOCH).days * DAY_NS + (10 + i) * HOUR_NS)
            opens.append(open_)
            volumes.append(volume / len(session_opens))
    open_e9 = np.round(np.array(opens) * E9).astype(np.int64)
    ts_ns = np.array(stamps, np.int64)
    return BarTable(
        contract=contract,
        instrument_id=1,
        interval_ns=HOUR_NS,
        ts_ns=ts_ns,
        known_ns=ts_ns + HOUR_NS,
        open_e9=open_e9,
        high_e9=open_e9 + 2 * E9,
        low_e9=open_e9 - E9,
        close_e9=open_e9 + E9,
        volume=np.array(volumes, np.float64),
        has_volume=has_volume,
    )


def loaded(*tables: BarTable, symbology: str = "parent", **more: Any) -> Loaded:
    """What a reader hands on."""
    return Loaded("ES.FUT", "ES", symbology, tables, (), (), "0" * 64, **more)


def days_of(front: FrontSeries) -> dict[datetime.date, str]:
    """Front contract per session."""
    days = [EPOCH + datetime.timedelta(days=day) for day in front.trade_day.tolist()]
    return {day: front.contracts[i] for day, i in zip(days, front.contract_id.tolist(), strict=True)}


def points(prices_e9: np.ndarray) -> list[float]:
    """Prices as numbers."""
    return [price / E9 for price in prices_e9.tolist()]
