"""Target positions on bars through NautilusTrader; runs in the environment of `requirements-engines.lock` alone.

    python engine_nautilus.py JOB.json RESULT.json

The engine knows two kinds of data here. A bar arrives when it is complete: the strategy then decides, and sends its
market order with a nanosecond of latency. The opening of every bar arrives as a quote, a slippage away from the open on
both sides: the first thing the order can be filled at. (On bars alone the engine fills a market order at the close of
the bar that was just seen, or with latency at the close of the next one; it has no fill at the next open. So bars tell
the time here: they carry their open four times, and nothing is filled at them.)

A roll has two quotes, of the old contract and, a nanosecond later, of the new one. The exit is sent with the close of
the bar before, the entry when the old contract is quoted. Everything else is the engine's own: positions, their cost,
flips, fees per contract, the balance of the account, unrealised profit.
"""

import json
import sys
from decimal import Decimal
from pathlib import Path

import nautilus_trader
from nautilus_trader.backtest.config import BacktestEngineConfig
from nautilus_trader.backtest.engine import BacktestEngine
from nautilus_trader.backtest.models import LatencyModel, PerContractFeeModel
from nautilus_trader.config import LoggingConfig, RiskEngineConfig
from nautilus_trader.model.data import Bar, BarType, QuoteTick
from nautilus_trader.model.enums import AccountType, AssetClass, CurrencyType, OmsType, OrderSide
from nautilus_trader.model.identifiers import InstrumentId, Symbol, Venue
from nautilus_trader.model.instruments import FuturesContract
from nautilus_trader.model.objects import Currency, Money, Price, Quantity
from nautilus_trader.trading.strategy import Strategy

VENUE = Venue("SIM")
# Dollars to eight places. In whole cents the engine rounds each part of a position that is closed at its average cost,
# which for three lots bought at three prices is off by a cent now and then.
USD = Currency("FINE_USD", precision=8, iso4217=0, name="dollars", currency_type=CurrencyType.FIAT)
Currency.register(USD)
CAPITAL_USD = 1_000_000_000
FAR_NS = 4_000_000_000_000_000_000
SIZE = Quantity.from_int(1_000_000)


def instruments_of(case):
    """One instrument per contract, quoted finely enough for the slippage."""
    increment = Decimal(1).scaleb(-case["price_decimals"])
    return [
        FuturesContract(
            instrument_id=InstrumentId(Symbol(name), VENUE),
            raw_symbol=Symbol(name),
            asset_class=AssetClass.INDEX,
            currency=USD,
            price_precision=case["price_decimals"],
            price_increment=Price.from_str(f"{increment:f}"),
            multiplier=Quantity.from_str(case["multiplier"]),
            lot_size=Quantity.from_int(1),
            underlying="X",
            activation_ns=0,
            expiration_ns=FAR_NS,
            ts_event=0,
            ts_init=0,
        )
        for name in case["contracts"]
    ]


class Follower(Strategy):
    """Trades towards the given position after every bar."""

    def __init__(self, case, instruments, bar_types):
        super().__init__()
        self.case, self.instruments, self.bar_types = case, instruments, bar_types
        self.number = {instrument.id: number for number, instrument in enumerate(instruments)}
        self.bar, self.entry = -1, 0
        self.fills, self.marks, self.closed = [], [], []

    def on_start(self):
        for instrument, bar_type in zip(self.instruments, self.bar_types, strict=True):
            self.subscribe_quote_ticks(instrument.id)
            self.subscribe_bars(bar_type)

    def trade(self, instrument, lots):
        if lots:
            side = OrderSide.BUY if lots > 0 else OrderSide.SELL
            self.submit_order(self.order_factory.market(instrument.id, side, Quantity.from_int(abs(lots))))

    def on_bar(self, _bar):
        self.bar += 1
        row = self.bar - self.case["first"]
        if not 0 <= row < len(self.case["targets"]):
            return
        contracts = self.case["bars"]["contract"]
        held = self.instruments[contracts[self.bar]]
        net, wanted = int(self.portfolio.net_position(held.id)), self.case["targets"][row]
        if contracts[self.bar + 1] == contracts[self.bar]:
            self.trade(held, wanted - net)
        else:
            self.trade(held, -net)
            self.entry = wanted

    def on_quote_tick(self, tick):
        contracts, new = self.case["bars"]["contract"], self.bar + 1
        if new >= 1 and self.number[tick.instrument_id] == contracts[new - 1] and new in self.case["marks"]:
            self.marks.append([new, self.equity(tick)])
        if self.entry and self.number[tick.instrument_id] != contracts[new]:
            self.trade(self.instruments[contracts[new]], self.entry)
            self.entry = 0

    def equity(self, tick):
        """Balance and unrealised profit at the open, before the orders that are on their way."""
        account = self.portfolio.account(VENUE)
        total = account.balance_total(USD).as_decimal()
        mid = Price((float(tick.bid_price) + float(tick.ask_price)) / 2, self.case["price_decimals"])
        for position in self.cache.positions_open():
            total += position.unrealized_pnl(mid).as_decimal()
        return str(total - CAPITAL_USD)

    def on_order_filled(self, event):
        lots = int(event.last_qty) * (1 if event.order_side == OrderSide.BUY else -1)
        commission = str(event.commission.as_decimal())
        self.fills.append(
            [event.instrument_id.symbol.value, event.ts_event, lots, str(event.last_px.as_decimal()), commission]
        )

    def on_position_closed(self, event):
        self.closed.append(
            [event.instrument_id.symbol.value, event.ts_opened, event.ts_closed, str(event.realized_pnl.as_decimal())]
        )


def events_of(case, instruments, bar_types):
    """Bars when they are complete, and quotes when a bar opens."""
    bars, places = case["bars"], case["price_decimals"]

    def price(value_e9):
        return Price(value_e9 / 1e9, places)

    def quote(contract, open_e9, slip_e9, ts_ns):
        bid, ask = price(open_e9 - slip_e9), price(open_e9 + slip_e9)
        return QuoteTick(instruments[contract].id, bid, ask, SIZE, SIZE, ts_ns, ts_ns)

    found = []
    for number, contract in enumerate(bars["contract"]):
        opens_ns, slip_e9 = bars["open_ns"][number], bars["slip_e9"][number]
        before = bars["contract"][number - 1] if number else contract
        if before != contract:
            found.append(quote(before, bars["exit_e9"][number], slip_e9, opens_ns + 1))
        found.append(quote(contract, bars["open_e9"][number], slip_e9, opens_ns + 2))
        at, known_ns = price(bars["open_e9"][number]), bars["known_ns"][number]
        found.append(Bar(bar_types[contract], at, at, at, at, Quantity.from_int(1), known_ns, known_ns))
    return found


def run(case):
    """Fills, closed positions, the change of the balance and marks of one case."""
    engine = BacktestEngine(
        BacktestEngineConfig(
            logging=LoggingConfig(bypass_logging=True), risk_engine=RiskEngineConfig(bypass=True), run_analysis=False
        )
    )
    engine.add_venue(
        venue=VENUE,
        oms_type=OmsType.NETTING,
        account_type=AccountType.MARGIN,
        base_currency=USD,
        starting_balances=[Money(CAPITAL_USD, USD)],
        fee_model=PerContractFeeModel(Money(Decimal(case["commission_usd"]), USD)),
        latency_model=LatencyModel(base_latency_nanos=1),
        bar_execution=False,
    )
    instruments = instruments_of(case)
    bar_types = [BarType.from_str(f"{instrument.id}-1-MINUTE-LAST-EXTERNAL") for instrument in instruments]
    for instrument in instruments:
        engine.add_instrument(instrument)
    engine.add_data(events_of(case, instruments, bar_types))
    follower = Follower(case, instruments, bar_types)
    engine.add_strategy(follower)
    engine.run()
    balance = engine.kernel.portfolio.account(VENUE).balance_total(USD).as_decimal() - CAPITAL_USD
    open_lots = sum(int(abs(position.signed_qty)) for position in engine.kernel.cache.positions_open())
    result = {
        "fills": follower.fills,
        "closed": follower.closed,
        "marks": follower.marks,
        "net_usd": str(balance),
        "open_lots": open_lots,
    }
    engine.dispose()
    return result


def main(job_path, result_path):
    """All cases of a job."""
    cases = json.loads(Path(job_path).read_text())
    for case in cases:
        case["marks"] = set(case["marks"])
    results = {case["name"]: run(case) for case in cases}
    Path(result_path).write_text(json.dumps({"version": nautilus_trader.__version__, "cases": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])
