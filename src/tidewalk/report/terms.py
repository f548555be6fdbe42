"""How the figures of the report are defined, in words, with the numbers of the run filled in."""

import math
from collections.abc import Mapping
from typing import Any

from tidewalk.core.words import cost
from tidewalk.stats.metrics import DEFAULT_SESSIONS_PER_YEAR, MIN_SPAN_DAYS
from tidewalk.stats.verdict import VERDICT_RULE

TIMING = (
    "The policy decides at the close of bar t, knowing bars up to and including t. The order fills at the open of bar "
    "t+1, in the contract that is held from then on. Each test starts flat."
)
PROFIT = (
    "Counted in ticks of the contract really held, times the value of a tick. The jump of price from one contract to "
    "the next at a roll is nobody’s profit and never enters. P&L is in ¤ for the position sizes traded; nothing is "
    "compounded and no interest is added."
)
SESSION = "A trade date of the exchange; the Sunday evening belongs to Monday’s. Months are months of trade dates."
PORTFOLIO = (
    "One portfolio: the P&L of all symbols, each traded by its own windows, is added up by trade date; Sharpe, "
    "drawdown and interval are those of the sum. Trials and verdict are of the study as a whole: to pick one of its "
    "symbols after the fact is one more trial."
)
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
DRAWDOWN = "Largest fall of net equity from its highest session end so far; the start at 0 counts as a high."
ENSEMBLE = (
    "One policy per window: the action values of its seeds, each in units of its spread on the validation dates, are "
    "averaged, and the action with the highest mean is taken. Seeds without a usable epoch have no vote."
)
BASELINES = (
    "Flat; the largest position held long (buy-and-hold), or short; and rules that hold the largest position in the "
    "direction of a signal: last-move momentum (the last close-to-close move), time-series momentum (tsmom), MACD, and "
    "the crossing of two moving averages (ma_cross). On the same bars, under the same rules, with the same costs."
)
RANDOM = (
    "The ensemble’s own positions of each window, rotated in time by a random number of bars: they trade as often, "
    "hold as long and pay as much (recorded spreads: those of the bars they fill in), and differ in timing alone. "
    "Beaten are those that earned less; ties count half."
)
TRIAL_FIGURES = (
    "Effective number of configurations: exponential of the entropy of the eigenvalues of their correlation matrix. "
    "Šidák p: 1 - PSR^N. MinBTL: length below which the best of N records without skill is expected to show an annual "
    "Sharpe of 1. Moments are those of session P&L, kurtosis not in excess of 3."
)
OVERFITTING = (
    "PBO: combinatorially symmetric cross-validation (Bailey and others 2017) over the session P&L of all "
    "configurations in the ledger; the band is what records of the same kind without skill give. SPA: Hansen (2005), "
    "stationary bootstrap, the consistent p-value; the null says that no configuration beats the benchmark."
)
SEEDS = (
    "Interquartile mean over the seeds of net over all windows (of fewer than 4 seeds the mean). Its interval "
    "resamples time blocks and seeds; fewer than 5 seeds allow none."
)
EFFICIENCY = (
    "Walk-forward efficiency of a window: mean net per test session of its seeds over mean net per validation session "
    "of the same seeds at the epochs chosen there. The denominator is in sample, since it chose the epoch. A "
    "description, no gate; undefined where validation earned nothing."
)
BREAK_EVEN = (
    "What one contract side could cost in all, so that the same fills would have earned exactly nothing: gross over "
    "sides. The policies were trained at the costs of the run; at other costs they would have learned another way."
)
ORACLE = (
    "The best that any sequence of positions could have earned on the test bars after costs, by dynamic programming "
    "over bar and position. It knows the future; no policy can reach it."
)


def definitions(per_year: float, costs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(term, meaning) of every figure that could be read in two ways.

    Args:
        per_year: sessions per year behind the annualised figures.
        costs: by symbol, `costs` of the manifest (`store.summary.PER_SYMBOL_KEYS`); empty where unknown.
    """
    return [
        ("Decision and fill", TIMING),
        ("P&L", PROFIT),
        ("Costs", _costs(costs)),
        ("Session", SESSION),
        *([("Several symbols", PORTFOLIO)] if len(costs) > 1 else []),
        ("Sharpe, annualised", _annualisation(per_year)),
        ("90 % CI", INTERVAL),
        ("PSR", PSR),
        ("DSR", DSR),
        ("Verdict", VERDICT_RULE),
        ("Effective trials, Šidák, MinBTL", TRIAL_FIGURES),
        ("PBO and SPA", OVERFITTING),
        ("Seeds", SEEDS),
        ("Walk-forward efficiency", EFFICIENCY),
        ("Break-even", BREAK_EVEN),
        ("Max drawdown", DRAWDOWN),
        ("Trades", "Contract sides: one contract bought or sold is one, a flip from long to short is two."),
        ("Ensemble", ENSEMBLE),
        ("Baselines", BASELINES),
        ("Random policies", RANDOM),
        ("Hindsight bound (oracle)", ORACLE),
        ("Best epoch", "Chosen per member by the validation result alone, ties to the earlier epoch."),
    ]


def _annualisation(per_year: float) -> str:
    """How session figures become yearly, with the factor of this run."""
    text = f"Mean over standard deviation (ddof 1) of net P&L per session, times the root of {per_year:.1f} sessions a"
    is_default = math.isclose(per_year, DEFAULT_SESSIONS_PER_YEAR, rel_tol=1e-9)
    source = f"taken where the data span under {MIN_SPAN_DAYS} days" if is_default else "as observed in the data"
    return f"{text} year, {source}. No risk-free rate is taken off."


def _costs(costs: Mapping[str, Mapping[str, Any]]) -> str:
    """The cost model, with the amounts of this run."""
    said = [_amounts(record) if len(costs) == 1 else f"{symbol} {_amounts(record)}" for symbol, record in costs.items()]
    amounts = "; ".join(said) or "Commission and slippage per contract and side"
    return f"{amounts}, the same in training, test, baselines and hindsight bound."


def _amounts(costs: Mapping[str, Any]) -> str:
    side, commission = (f"{cost(costs[key])} ¤" for key in ("side_usd", "commission_usd"))
    text = f"{side} per contract and side: {commission} commission and {costs['slippage_ticks']:g} ticks of slippage"
    if costs["slippage"] == "recorded":
        half = f"{costs['half_spread_ticks']:.3g} ticks on average"
        text = f"{text}, and half the spread recorded at the bar of the fill, {half}"
    what = "as a calendar spread, all in" if costs["roll_as"] == "spread" else "two sides"
    return f"{text}; a rolled contract {cost(costs['roll_usd'])} ¤, {what}"
