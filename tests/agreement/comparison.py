"""The books against other engines: what an engine is given, how it is run, and what must be equal to the cent."""

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidewalk.market.device import MarketData
from tidewalk.trading.account import Book, costs_usd, gross_usd, half_spreads
from tidewalk.trading.costs import Costs
from tidewalk.trading.ledger import Fills, Trades, fills, trades

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("TIDEWALK_ENGINES_PYTHON", HERE.parents[1] / ".venv-engines" / "bin" / "python"))
NOTHING_USD = 1e-5
"""Difference that the engines' own arithmetic may leave, in binary numbers or in dollars to eight places."""
HALF_A_CENT = 0.005
QUOTE_DELAY_NS = 2
"""An opening quote is put so long after the opening at most, to be told from the bar that closes at that moment."""


def case_of(name: str, market: MarketData, account: Book, costs: Costs) -> dict[str, Any]:
    """A path of positions as an engine is given it: bars, contracts, opens, and the position wanted after every bar.

    Gross results, fees, fills and sums are left to the engine. `slip_e9` is what a fill gives up to the spread, as a
    price; `side_usd` the same and the commission, for an engine that knows no spread in ticks.
    """
    half_ticks = np.zeros(market.num_bars)
    half_ticks[account.fill_bars] = half_spreads(market, account.first, len(account.after_lots))
    slip_e9 = (costs.slippage_ticks + half_ticks) * market.info.tick_e9
    assert (slip_e9 == np.rint(slip_e9)).all()
    prices = np.concatenate([market.open_e9, market.exit_open_e9, market.open_e9 + slip_e9.astype(np.int64)])
    interval_ns = market.info.interval_ns or 1
    known_ns = market.ts_ns + interval_ns
    known_ns[:-1] = np.minimum(known_ns[:-1], market.ts_ns[1:])
    return {
        "name": name,
        "contracts": list(market.info.contracts),
        "multiplier": f"{market.info.multiplier:.9g}",
        "price_decimals": next(n for n in range(10) if (prices % 10 ** (9 - n) == 0).all()),
        "commission_usd": f"{costs.commission_usd:.9g}",
        "side_usd": costs.side_usd,
        "first": account.first,
        "targets": account.after_lots.tolist(),
        "marks": [int(bar) for bar in marked_bars(market, account)],
        "bars": {
            "contract": market.contract_id.tolist(),
            "open_ns": market.ts_ns.tolist(),
            "known_ns": known_ns.tolist(),
            "open_e9": market.open_e9.tolist(),
            "exit_e9": market.exit_open_e9.tolist(),
            "slip_e9": slip_e9.astype(np.int64).tolist(),
        },
    }


def marked_bars(market: MarketData, account: Book) -> np.ndarray:
    """Bars at whose open the last decision of each session is marked: the account by sessions."""
    day = market.trade_day[account.fill_bars]
    last = np.flatnonzero(np.append(day[1:] != day[:-1], True))
    return account.fill_bars[last][:-1] + 1


def run_engine(script: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """What an engine makes of the cases, each in the environment of its own.

    Skips the test where that environment is not there.
    """
    if not PYTHON.exists():
        pytest.skip(f"the other engines are not at {PYTHON}: `make agreement` installs them")
    with tempfile.TemporaryDirectory() as folder:
        job, result = Path(folder) / "job.json", Path(folder) / "result.json"
        job.write_text(json.dumps(cases))
        command = [str(PYTHON), str(HERE / script), str(job), str(result)]
        done = subprocess.run(command, capture_output=True, text=True, env=_clean_environment(), check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(result.read_text())["cases"]


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA"))}


# What the books say.


def net_usd(account: Book, costs: Costs) -> float:
    """Net result of a book."""
    paid = costs_usd(costs, int(account.sides.sum()), float(account.crossed_ticks.sum()), int(account.rolled.sum()))
    return float(gross_usd(costs, int(account.gross_ticks.sum())) - paid)


def marks(market: MarketData, account: Book, costs: Costs) -> dict[int, float]:
    """Account at each of `marked_bars`, in money, before the order that fills there."""
    rows = marked_bars(market, account) - account.first - 2
    gross, sides, crossed = (np.cumsum(part) for part in (account.gross_ticks, account.sides, account.crossed_ticks))
    worth = gross_usd(costs, gross[rows]) - costs_usd(costs, sides[rows], crossed[rows])
    return dict(zip((rows + account.first + 2).tolist(), np.asarray(worth).tolist(), strict=True))


def fills_by_order(made: Fills) -> list[tuple[str, int, int, float, float, float]]:
    """(contract, time, lots, price, fees, slippage per lot) by order: the legs of a roll in one contract are one."""
    orders: dict[tuple[int, str], list[float]] = {}
    for i in range(len(made)):
        key = (int(made.ts_ns[i]), str(made.contract[i]))
        order = orders.setdefault(key, [0, float(made.price[i]), 0.0, float(made.lot_slippage_usd[i])])
        order[0] += int(made.lots[i])
        order[2] += float(made.fees_usd[i])
    return [(contract, ts_ns, int(o[0]), o[1], o[2], o[3]) for (ts_ns, contract), o in orders.items()]


def cycles(trips: Trades) -> list[tuple[str, int, int, float]]:
    """(contract, opened, closed, net) of each position from flat to flat: the round trips that overlap, together."""
    found: list[list[Any]] = []
    for i in range(len(trips)):
        contract, side = str(trips.contract[i]), int(np.sign(trips.lots[i]))
        entry, exit_, net = int(trips.entry_ts_ns[i]), int(trips.exit_ts_ns[i]), float(trips.net_usd[i])
        if found and found[-1][:2] == [contract, side] and entry < found[-1][3]:
            found[-1][3] = exit_
            found[-1][4] += net
        else:
            found.append([contract, side, entry, exit_, net])
    return [(contract, entry, exit_, net) for contract, _, entry, exit_, net in found]


# What must be equal.


def assert_cents(ours: float, theirs: float | str, what: str) -> None:
    """Equal to the cent, and to what lies below it."""
    assert abs(ours - float(theirs)) < NOTHING_USD, (
        f"{what}: {ours:.4f} in the books, {float(theirs):.4f} in the engine"
    )


def assert_nautilus_agrees(market: MarketData, account: Book, costs: Costs, result: dict[str, Any]) -> int:
    """Order by order, position by position, session by session, and in sum; returns the number of fills."""
    made = fills(market, account, costs)
    own_orders = fills_by_order(made)
    assert len(own_orders) == len(result["fills"])
    for own, (contract, ts_ns, lots, price, fees) in zip(own_orders, result["fills"], strict=True):
        assert (own[0], own[2]) == (contract, lots), f"at {own[1]}: {own} in the books, {contract} {lots} in the engine"
        assert 0 < ts_ns - own[1] <= QUOTE_DELAY_NS
        paid = own[3] + math.copysign(own[5] / market.info.multiplier, lots)
        assert math.isclose(paid, float(price), abs_tol=1e-9), f"{own}: filled at {price} in the engine"
        assert_cents(own[4], fees, f"fees of {own}")
    own_cycles = cycles(trades(made, costs))
    assert len(own_cycles) == len(result["closed"])
    for own, (contract, opened, closed, net) in zip(own_cycles, result["closed"], strict=True):
        assert own[0] == contract
        assert 0 < opened - own[1] <= QUOTE_DELAY_NS
        assert 0 < closed - own[2] <= QUOTE_DELAY_NS
        assert_cents(own[3], net, f"position {own}")
    own_marks = marks(market, account, costs)
    assert list(own_marks) == [bar for bar, _ in result["marks"]]
    for bar, equity in result["marks"]:
        assert_cents(own_marks[bar], equity, f"account at bar {bar}")
    assert result["open_lots"] == 0
    assert_cents(net_usd(account, costs), result["net_usd"], "net result")
    assert Decimal(result["net_usd"]) == sum((Decimal(net) for *_, net in result["closed"]), Decimal(0))
    return len(own_orders)


def assert_backtesting_agrees(market: MarketData, account: Book, costs: Costs, result: dict[str, Any]) -> int:
    """Round trip by round trip, first in first out, and in sum; returns the number of round trips."""
    trips = trades(fills(market, account, costs), costs)
    bar_at = {int(ts_ns): bar for bar, ts_ns in enumerate(market.ts_ns)}
    entries, exits = ([bar_at[int(at)] for at in stamps] for stamps in (trips.entry_ts_ns, trips.exit_ts_ns))
    own = (trips.entry_price, trips.exit_price, trips.lots, trips.net_usd, trips.fees_usd + trips.slippage_usd)
    ours = _merged(zip(trips.contract, entries, exits, *own, strict=True))
    theirs = _merged(
        (contract, i, k, at, to, lots, *money) for contract, lots, i, k, at, to, *money in result["trades"]
    )
    assert ours.keys() == theirs.keys()
    for key, amounts in ours.items():
        for own_usd, their_usd in zip(amounts, theirs[key], strict=True):
            assert_cents(own_usd, their_usd, f"round trip {key}")
    # a balance of 1e9 in binary numbers, to which every trade is added, is not kept better than this
    assert abs(net_usd(account, costs) - result["net_usd"]) < HALF_A_CENT
    return len(ours)


def _merged(trips: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[float]]:
    """Lots, net and costs by (contract, entry, exit, prices): lots that came and went together are one round trip."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for contract, entry, exit_, at, to, *amounts in trips:
        sums = found.setdefault((str(contract), entry, exit_, round(at, 6), round(to, 6)), [0.0] * len(amounts))
        for i, amount in enumerate(amounts):
            sums[i] += float(amount)
    return found
