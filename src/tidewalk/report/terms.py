"""How the figures of the report are defined, in words, with the numbers of the run filled in."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from tidewalk.report.source import find
from tidewalk.stats.inference import GATE, MIN_SESSIONS_FOR_VERDICT
from tidewalk.stats.metrics import DEFAULT_SESSIONS_PER_YEAR, observed_sessions_per_year

TIMING = (
    "The policy decides at the close of bar t, knowing bars up to and including t. The order fills at the open of bar "
    "t+1, in the contract that is held from then on. Each test starts flat."
)
PROFIT = (
    "Counted in ticks of the contract really held, times the value of a tick. The jump of price from one contract to "
    "the next at a roll is nobody’s profit and never enters. P&L is in USD for the position sizes traded; nothing is "
    "compounded and no interest is added."
)
SESSION = "A trade date of the exchange; the Sunday evening belongs to Monday’s. Months are months of trade dates."
INTERVAL = (
    "Stationary bootstrap of session P&L (Politis and Romano 1994), mean block length by the rule of Politis and "
    "White. It covers the chance in the sessions; chance in the training shows in the spread of the seeds."
)
PSR = (
    "Probabilistic Sharpe ratio (Bailey and López de Prado 2012): probability that the true ratio per session is above "
    "0, given length, skewness and kurtosis of this record, had it been the only one looked at."
)
DSR = (
    "Deflated Sharpe ratio in the form of 2014: the PSR against the best ratio that as many trials without any skill "
    "are expected to show. Trials are all configurations ever evaluated on these data, as the ledger trials.jsonl "
    "counts them. On pure noise the gate passes far less often than 5 %."
)
VERDICT = (
    f"“Evidence of an edge” needs PSR and DSR above {GATE:.2f} and a lower end of the interval above 0; below "
    f"{MIN_SESSIONS_FOR_VERDICT} sessions nothing is said."
)
DRAWDOWN = "Largest fall of net equity from its highest session end so far; the start at 0 counts as a high."
ENSEMBLE = (
    "One policy per window: the action values of its seeds, each in units of its spread on the validation dates, are "
    "averaged, and the action with the highest mean is taken. Seeds that diverged have no vote."
)
BASELINES = (
    "Flat; the largest position held long, or short; momentum, the largest position in the direction of the last "
    "close-to-close move. On the same bars with the same costs."
)
RANDOM = (
    "The ensemble’s own positions of each window, rotated in time by a random number of bars: they trade as often, "
    "hold as long and pay as much, and differ in timing alone. Beaten are those that earned less; ties count half."
)
ORACLE = (
    "The best that any sequence of positions could have earned on the test bars after costs, by dynamic programming "
    "over bar and position. It knows the future; no policy can reach it."
)


def definitions(equity: pl.DataFrame, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(term, meaning) of every figure that could be read in two ways.

    Args:
        equity: rows of equity.parquet, for the sessions per year that were observed.
        config: run.toml, for commission and slippage; their amounts are left out where it does not name them.
    """
    return [
        ("Decision and fill", TIMING),
        ("P&L", PROFIT),
        ("Costs", _costs(equity, config)),
        ("Session", SESSION),
        ("Sharpe, annualised", _annualisation(equity)),
        ("90 % CI", INTERVAL),
        ("PSR", PSR),
        ("DSR", DSR),
        ("Verdict", VERDICT),
        ("Max drawdown", DRAWDOWN),
        ("Trades", "Contract sides: one contract bought or sold is one, a flip from long to short is two."),
        ("Ensemble", ENSEMBLE),
        ("Baselines", BASELINES),
        ("Random policies", RANDOM),
        ("Hindsight bound (oracle)", ORACLE),
        ("Best epoch", "Chosen per member by the validation result alone, ties to the earlier epoch."),
    ]


def _annualisation(equity: pl.DataFrame) -> str:
    """How session figures become yearly, with the factor of this run."""
    text = "Mean over standard deviation (ddof 1) of net P&L per session, times the root of the sessions per year"
    dates = equity.filter(pl.col("policy") == "ensemble")["trade_date"].unique().sort().to_list()
    observed = observed_sessions_per_year(dates)
    if observed.value is None:
        return f"{text}: {DEFAULT_SESSIONS_PER_YEAR:.0f}, because {observed.reason}. No risk-free rate is taken off."
    return f"{text}: {observed.value:.1f} as observed inside the tests. No risk-free rate is taken off."


def _costs(equity: pl.DataFrame, config: Mapping[str, Any]) -> str:
    """The cost model, with the amounts that the configuration names and the mean that was paid."""
    text = "Commission and slippage per contract and side, the same in training, test, baselines and hindsight bound"
    units = {"commission_usd": "USD commission", "slippage_ticks": "ticks of slippage"}
    amounts = [f"{value} {unit}" for key, unit in units.items() if (value := find(config, key)) is not None]
    named = f": {' and '.join(amounts)}" if amounts else ""
    own = equity.filter(pl.col("policy") == "ensemble")
    sides, costs_usd = int(own["trades"].sum()), float(own["costs_usd"].sum())
    paid = f" The ensemble paid {costs_usd / sides:,.2f} USD per side on average." if sides else ""
    return f"{text}{named}.{paid} A roll closes the old contract and opens the new one: two sides per contract held."
