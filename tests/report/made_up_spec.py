"""What a made-up run looks like, and its calendar."""

import datetime
from dataclasses import dataclass
from typing import Any

COSTS = {
    "slippage": "ticks",
    "commission_usd": 2.25,
    "slippage_ticks": 0.18,
    "side_usd": 4.5,
    "roll_as": "sides",
    "roll_usd": 9.0,
    "half_spread_ticks": 0.0,
}
BASELINES = {
    **{"flat": 0.0, "long": 0.0, "short": 0.0, "momentum": -60.0, "tsmom": 20.0, "macd": -30.0, "ma_cross": -10.0},
    "oracle": 2600.0,
}


@dataclass(frozen=True)
class RunSpec:
    """What a made-up run looks like."""

    name: str = "2025-01-03-dqn-es"
    symbol: str = "ES.FUT"
    status: str = "complete"
    windows: int = 8
    seeds: int = 4
    epochs: int = 20
    step_months: int = 3
    trades: bool = True
    phased: bool = True
    losses: bool = True
    more_symbols: tuple[str, ...] = ()
    equals: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        return (self.symbol, *self.more_symbols)

    @property
    def all_windows(self) -> int:
        return self.windows * len(self.symbols)


def month_start(year: int, month: int) -> datetime.date:
    """First day of a month counted from January of `year`; months beyond 12 run into later years."""
    return datetime.date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)


def weekdays(first: datetime.date, last: datetime.date) -> list[datetime.date]:
    """Monday to Friday from `first` until before `last`."""
    days = [first + datetime.timedelta(days=k) for k in range((last - first).days)]
    return [day for day in days if day.weekday() < 5]


def window_record(number: int, spec: RunSpec) -> dict[str, Any]:
    """One entry of windows.json: three months of training, one of validation, one of test."""
    symbol, place = divmod(number, spec.windows)
    at = 1 + place * spec.step_months
    spans = {"train": (at, at + 3), "val": (at + 3, at + 4), "test": (at + 4, at + 5)}
    record: dict[str, Any] = {"window": number, "symbol": spec.symbols[symbol]}
    for part, (start, stop) in spans.items():
        days = weekdays(month_start(2018, start), month_start(2018, stop))
        span = {"first": days[0].isoformat(), "last": days[-1].isoformat()}
        record[part] = span | {"bars": [start * 30000, stop * 30000], "sessions": len(days)}
    roll = {"date": record["test"]["first"], "from": f"ESH{number % 10}", "to": f"ESM{number % 10}"}
    record |= {"partial_test": False, "contracts": [roll["from"], roll["to"]], "rolls": [roll]}
    return record
