"""Target positions on bars through Backtesting.py; runs in the environment of `requirements-engines.lock` alone.

    python engine_backtesting.py JOB.json RESULT.json

The engine fills an order at the open of the next bar, closes trades first in, first out, and knows one series of prices
without a multiplier. So every contract is a run of its own, on its own bars and the one in which it is left at a roll;
prices are money per contract; slippage, which the engine knows as a share of the price alone, is part of the fee.
"""

import json
import sys
import warnings
from pathlib import Path

import backtesting
import pandas as pd
from backtesting import Backtest, Strategy
from backtesting import backtesting as library

CAPITAL_USD = 1_000_000_000


def run_contract(case, contract):
    """Trades of one contract: [contract, lots, entry bar, exit bar, entry, exit, net, fees]."""
    bars, first, targets = case["bars"], case["first"], case["targets"]
    size, fee_usd = float(case["multiplier"]), float(case["side_usd"])
    numbers = [i for i, held in enumerate(bars["contract"]) if held == contract]
    opens_e9 = [bars["open_e9"][i] for i in numbers]
    if numbers[-1] + 1 < len(bars["contract"]):
        numbers.append(numbers[-1] + 1)
        opens_e9.append(bars["exit_e9"][numbers[-1]])
    # The engine asks for no decision before its second bar, so one without meaning comes first. Orders fill at opens;
    # the other three prices enter no fill.
    opens = [price_e9 / 1e9 * size for price_e9 in (opens_e9[0], *opens_e9)]
    frame = pd.DataFrame(dict.fromkeys(("Open", "High", "Low", "Close"), opens))
    wanted = []
    for number in [numbers[0] - 1, *numbers]:
        row = number - first
        leaves = number + 1 >= len(bars["contract"]) or bars["contract"][number + 1] != contract
        wanted.append(0 if leaves or not 0 <= row < len(targets) else targets[row])
    # The first decision that fills in this contract is that of the bar before its first one.
    before = numbers[0] - 1 - first
    wanted[0] = targets[before] if 0 <= before < len(targets) else 0

    class Follower(Strategy):
        """Trades towards the given position after every bar; the loop begins after the second one."""

        def init(self):
            self.trade(wanted[0])

        def next(self):
            self.trade(wanted[len(self.data) - 1] - self.position.size)

        def trade(self, lots):
            if lots:
                (self.buy if lots > 0 else self.sell)(size=abs(lots))

    test = Backtest(frame, Follower, cash=CAPITAL_USD, commission=lambda lots, _price: abs(lots) * fee_usd)
    stats = test.run()
    trades = stats["_trades"]
    return [
        [
            case["contracts"][contract],
            int(trade.Size),
            numbers[int(trade.EntryBar) - 1],
            numbers[int(trade.ExitBar) - 1],
            trade.EntryPrice / size,
            trade.ExitPrice / size,
            trade.PnL,
            trade.Commission,
        ]
        for trade in trades.itertuples()
    ], float(stats["Equity Final [$]"]) - CAPITAL_USD


def run(case):
    """Trades of all contracts and the change of their accounts."""
    found, net_usd = [], 0.0
    for contract in sorted(set(case["bars"]["contract"])):
        trades, gained_usd = run_contract(case, contract)
        found += trades
        net_usd += gained_usd
    return {"trades": found, "net_usd": net_usd}


def main(job_path, result_path):
    """All cases of a job."""
    warnings.simplefilter("ignore", RuntimeWarning)  # its table of statistics divides by prices, of which one may be 0
    warnings.simplefilter("error", UserWarning)  # an order was cancelled
    warnings.filterwarnings("ignore", message="Data index is not datetime")
    library._tqdm = lambda rows, **_: rows
    results = {case["name"]: run(case) for case in json.loads(Path(job_path).read_text())}
    Path(result_path).write_text(json.dumps({"version": backtesting.__version__, "cases": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])
