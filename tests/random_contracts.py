"""Random bars of three successive contracts, the market that the code makes of them, and the same by the reference.

The reference chooses the front contract by itself and hands its choice on as a roll table: which rule chooses is not at
stake here, but what follows from the choice is.
"""

import dataclasses
import datetime as dt
import random
import tempfile

import numpy as np

from made_up_bars import HOUR_NS, TICK_E9, day_ns, loaded, table, weekdays
from random_worlds import last_of_runs
from reference_env import World
from support import market_info
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.market.device import MarketData
from tidewalk.market.prepare import flags, moves

NAMES = ("ESH4", "ESM4", "ESU4")
PRICES = ("open", "high", "low", "close")


@dataclasses.dataclass(frozen=True)
class Bar:
    """An hour of one contract; prices in ticks."""

    contract: str
    day: dt.date
    hour: int
    open: int
    high: int
    low: int
    close: int
    volume: int


# ---- random bars


def made_up_contract(rng: random.Random, name: str, days: list[dt.date], level: int, loud: range) -> list[Bar]:
    """Hourly bars with holes, some of a whole day; much volume on the days numbered in `loud`."""
    bars, price = [], level
    for number, day in enumerate(days):
        if 0 < number < len(days) - 1 and rng.random() < 0.15:
            continue
        for hour in sorted(rng.sample(range(21), rng.randint(1, 6))):
            price += rng.choice((0, 0, rng.randint(-9, 9)))
            close = price + rng.randint(-6, 6)
            high, low = max(price, close) + rng.randint(0, 3), min(price, close) - rng.randint(0, 3)
            volume = rng.randint(50, 99) if number in loud else rng.randint(0, 9)
            bars.append(Bar(name, day, hour, price, high, low, close, volume))
            price = close
    return bars


def made_up_contracts(seed: int) -> list[list[Bar]]:
    """Three contracts: successive ones take over the volume, may end early or begin late, and sell at other levels."""
    rng = random.Random(seed)
    days = weekdays(dt.date(2024, 1, rng.randint(2, 5)), rng.randint(4, 9))
    one, two = sorted(rng.sample(range(len(days) + 2), 2))
    loud = (range(one), range(one, two), range(two, len(days)))
    level = rng.choice((20_000, 40, -800))
    contracts = []
    for number, name in enumerate(NAMES):
        start = 0 if number == 0 else rng.randint(0, min(2, len(days) - 1))
        stop = len(days) if number == len(NAMES) - 1 else rng.randint(start + 1, len(days))
        kept = days[start:stop]
        level += rng.randint(-200, 200)
        shifted = range(loud[number].start - start, loud[number].stop - start)
        contracts.append(made_up_contract(rng, name, kept, level, shifted))
    return contracts


def changed(contracts: list[list[Bar]], change) -> list[list[Bar]]:
    """The contracts with other fields in every bar."""
    return [[dataclasses.replace(bar, **change(bar)) for bar in bars] for bars in contracts]


# ---- by the reference


def reference_front(contracts: list[list[Bar]]) -> list[Bar]:
    """Bars of the front contract: the session before decides by volume, rolls go forward, an absent one is left."""
    days = sorted({bar.day for bars in contracts for bar in bars})
    by_day = [{day: [bar for bar in bars if bar.day == day] for day in days} for bars in contracts]
    volume = [{day: sum(bar.volume for bar in bars) for day, bars in of.items()} for of in by_day]
    current = next(i for i in range(len(contracts)) if by_day[i][days[0]])
    front = []
    for number, day in enumerate(days):
        if number > 0:
            before = days[number - 1]
            rivals = [i for i in range(current + 1, len(contracts)) if by_day[i][day]]
            best = max(rivals, key=lambda i: volume[i][before], default=current)
            if volume[best][before] > volume[current][before]:
                current = best
        if not by_day[current][day]:
            current = next((i for i in range(current + 1, len(contracts)) if by_day[i][day]), current)
        front += by_day[current][day]
    return front


def leaving_ticks(contracts: list[list[Bar]], name: str, at: Bar) -> int:
    """Price at which contract `name` can be left when the bar `at` opens."""
    bars = contracts[NAMES.index(name)]
    now_or_later = [bar for bar in bars if bar.day == at.day and bar.hour >= at.hour]
    before = [bar for bar in bars if (bar.day, bar.hour) < (at.day, at.hour)]
    return now_or_later[0].open if now_or_later else before[-1].close


def is_last_scheduled(bar: Bar) -> bool:
    """Whether the bar reaches the scheduled close: 22:00 UTC in winter, 18:00 on the holiday among these days."""
    return bar.hour + 1 >= (18 if bar.day == dt.date(2024, 1, 15) else 22)


def reference_world(contracts: list[list[Bar]]) -> World:
    """The bars of the front contract as the reference environment wants them; without features."""
    front = reference_front(contracts)
    before = [front[0], *front[:-1]]
    days = sorted({bar.day for bar in front})
    sessions = [days.index(bar.day) for bar in front]
    is_last = last_of_runs(sessions)
    return World(
        opens=[bar.open for bar in front],
        exits=[
            bar.open if bar.contract == last.contract else leaving_ticks(contracts, last.contract, bar)
            for last, bar in zip(before, front, strict=True)
        ],
        contract=[NAMES.index(bar.contract) for bar in front],
        session=sessions,
        is_closing=[*[last or is_last_scheduled(bar) for last, bar in zip(is_last, front, strict=True)][1:], False],
        is_hole=[False] * len(front),
        is_no_entry=[False] * len(front),
        half_spread=None,
        features=[[] for _ in front],
    )


# ---- by the code


def front_table(contracts: list[list[Bar]]) -> str:
    """The choice of the reference as a roll table: which contract is front from which day on."""
    front = reference_front(contracts)
    changes = [
        bar for before, bar in zip([None, *front], front, strict=False) if not before or before.contract != bar.contract
    ]
    return "date,contract\n" + "".join(f"{bar.day},{bar.contract}\n" for bar in changes)


def prepared_market(contracts: list[list[Bar]]) -> MarketData:
    """The code's own way from tables of contracts to a market; without features."""
    tables = [
        table(
            bars[0].contract,
            [day_ns(bar.day) + bar.hour * HOUR_NS for bar in bars],
            np.array([(bar.open, bar.high, bar.low, bar.close) for bar in bars]),
            [bar.volume for bar in bars],
        )
        for bars in contracts
    ]
    spec = spec_for("ES")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(front_table(contracts))
        file.flush()
        series = front_series(loaded(tables), spec, f"table:{file.name}")
    move_ticks, findings = moves(series, spec)
    assert not findings
    return MarketData(
        move_ticks=move_ticks,
        flags=flags(series, spec.sessions),
        features=np.zeros((len(series.ts_ns), 0), np.float32),
        session_id=np.unique(series.trade_day, return_inverse=True)[1].astype(np.int32),
        close_move_ticks=((series.close_e9 - series.close_prev_e9) // TICK_E9).astype(np.int32),
        ts_ns=series.ts_ns,
        trade_day=series.trade_day,
        contract_id=series.contract_id,
        open_e9=series.open_e9,
        exit_open_e9=series.exit_open_e9,
        info=market_info(0, contracts=series.contracts),
    )
