"""The figures of a summary: of a study as a whole, and of each of its symbols; what is undefined comes with its reason.

Several symbols are one portfolio: P&L is added up by trade date, and risk is measured on the sums.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidewalk.run.outcome import ENSEMBLE, Outcome, money, session_net_usd, sessions_per_year
from tidewalk.run.study import Leg
from tidewalk.stats import inference, metrics
from tidewalk.trading.account import by_session
from tidewalk.train.baselines import NAMES as BASELINES
from tidewalk.train.baselines import Path, timing_percentile

Block = dict[str, Any]
OF_ALL_TRIALS = ("dsr", "trials", "verdict")
"""Figures of the study as a whole: to pick one of its symbols after the fact is a trial that no ledger has counted."""


def oos_pnl(outcome: Outcome, legs: Sequence[Leg], policy: str = ENSEMBLE) -> np.ndarray:
    """Net P&L of every out-of-sample trade date of one policy over some symbols, USD, in time order."""
    days, pnl = [], []
    for leg in legs:
        sessions = [by_session(leg.market, account) for account in outcome.books_of(policy, leg)]
        days += [part.trade_day for part in sessions]
        pnl += [session_net_usd(leg, part) for part in sessions]
    dates, index = np.unique(np.concatenate(days), return_inverse=True)
    total = np.zeros(len(dates))
    np.add.at(total, index, np.concatenate(pnl))
    return total


def statistics(
    outcome: Outcome, legs: Sequence[Leg], trials: int, sd_of_sharpe: float | None
) -> tuple[Block, Block, Block, dict[str, str]]:
    """The summary's `oos`, `baselines` and `oracle` over some symbols, and why those that are undefined are so."""
    pnl, per_year, own = oos_pnl(outcome, legs), sessions_per_year(list(legs)), _money(outcome, legs, ENSEMBLE)
    sharpe = metrics.sharpe(pnl, per_year)
    interval = inference.stationary_bootstrap_ci(pnl, lambda sample: metrics.sharpe(sample, per_year).value)
    psr, dsr = inference.session_psr(pnl), inference.session_dsr(pnl, trials, sd_of_sharpe)
    says = inference.verdict(
        net_usd=own["net_usd"], sessions=len(pnl), trades=own["trades"], psr=psr, dsr=dsr, ci=interval
    )
    percentile = _percentile(outcome, legs)
    bound = _money(outcome, legs, "oracle")["net_usd"]
    captured = metrics.captured_frac(own["net_usd"], bound)
    is_bounded = interval.low is not None and interval.high is not None
    reasons = {
        "oos.sharpe_session": sharpe.reason,
        "oos.sharpe_ci90": None if is_bounded else interval.reason,
        "oos.psr": psr.reason,
        "oos.dsr": dsr.reason,
        "baselines.random_p": None if percentile is not None else "the agent never held a position",
        "oracle.captured_frac": captured.reason,
    }
    oos = {
        "sessions": len(pnl),
        "net_usd": own["net_usd"],
        "gross_usd": own["gross_usd"],
        "costs_usd": own["costs_usd"],
        "trades": own["trades"],
        "sharpe_session": sharpe.value,
        "sharpe_ci90": [interval.low, interval.high] if is_bounded else None,
        "max_drawdown_usd": metrics.max_drawdown(pnl),
        "psr": psr.value,
        "dsr": dsr.value,
        "trials": trials,
        "verdict": str(says),
    }
    baselines = {name: _money(outcome, legs, name)["net_usd"] for name in BASELINES} | {"random_p": percentile}
    undefined = {name: reason for name, reason in reasons.items() if reason}
    return oos, baselines, {"net_usd": bound, "captured_frac": captured.value}, undefined


def per_symbol(outcome: Outcome, trials: int, sd_of_sharpe: float | None) -> tuple[list[Block], list[str]]:
    """The summary's row of every symbol, and a warning for every figure in them that is undefined.

    A single symbol is the whole study, whose undefined figures are explained already.
    """
    rows, undefined = [], []
    for number, leg in enumerate(outcome.study.legs):
        oos, baselines, oracle, reasons = statistics(outcome, [leg], trials, sd_of_sharpe)
        rows.append(
            {
                "symbol": leg.symbol,
                "data_fingerprint": leg.market.info.fingerprint,
                "bars": leg.market.num_bars,
                "windows": len(leg.plan.windows),
                "oos": {name: value for name, value in oos.items() if name not in OF_ALL_TRIALS},
                "baselines": baselines,
                "oracle": oracle,
                "costs": costs_record(outcome.study.config.costs.slippage, leg),
            }
        )
        if len(outcome.study.legs) > 1:
            reasons.pop("oos.dsr", None)
            undefined += [f"per_symbol[{number}].{name} is undefined: {reason}" for name, reason in reasons.items()]
    return rows, undefined


def costs_record(slippage: str, leg: Leg) -> Block:
    """What a contract side of a symbol costs: the fixed part, and the mean recorded half spread over its test bars."""
    return {
        "slippage": slippage,
        "commission_usd": leg.costs.commission_usd,
        "slippage_ticks": leg.costs.slippage_ticks,
        "side_usd": leg.costs.side_usd,
        "half_spread_ticks": mean_half_spread_ticks(leg),
    }


def mean_half_spread_ticks(leg: Leg) -> float:
    """Mean recorded half spread over the test bars of a symbol; 0 where costs use none."""
    half_ticks = leg.market.half_spread_ticks
    if half_ticks is None:
        return 0.0
    tests = [half_ticks[window.test.first : window.test.stop] for window in leg.plan.windows]
    return float(np.concatenate(tests).mean(dtype=np.float64))


def behaviour_warnings(outcome: Outcome) -> list[str]:
    """What a reader must know of a policy that only looks learned, of members that were lost, and of uneven symbols."""
    study = outcome.study
    warnings = [study.said(leg, text) for leg in study.legs for text in _copied_baselines(outcome, leg)]
    dead = int((~outcome.is_alive).sum())
    if dead:
        warnings.append(
            f"{dead} of {study.num_members} members diverged (loss not finite); each is represented by its best epoch "
            "before that, or left out."
        )
    lost = [w for w in range(study.num_windows) if not (outcome.best_epoch[w] > 0).any()]
    if lost:
        warnings.append(f"Windows {lost} have no usable member and stay flat in the record.")
    return warnings + _uneven_record(study.legs)


def _copied_baselines(outcome: Outcome, leg: Leg) -> list[str]:
    def held(policy: str) -> np.ndarray:
        return np.concatenate([account.after_lots for account in outcome.books_of(policy, leg)])

    own = held(ENSEMBLE)
    return [
        f"The policy equals the {name} baseline on 100 % of bars: it is that baseline, not a learned strategy."
        for name in BASELINES
        if np.array_equal(own, held(name))
    ]


def _uneven_record(legs: Sequence[Leg]) -> list[str]:
    """A warning where the symbols are not tested over the same months: the portfolio then changes its make-up."""
    spans = {(str(w.test.first_day)[:7], str(w.test.last_day)[:7]) for leg in legs for w in leg.plan.windows}
    missing = {
        leg.symbol: len(spans - {(str(w.test.first_day)[:7], str(w.test.last_day)[:7]) for w in leg.plan.windows})
        for leg in legs
    }
    lacking = [f"{symbol} lacks {count}" for symbol, count in missing.items() if count]
    if not lacking:
        return []
    return [
        f"The symbols are not tested over the same months: of {len(spans)} test periods, {' and '.join(lacking)}; "
        "there the portfolio is the others alone."
    ]


def _money(outcome: Outcome, legs: Sequence[Leg], policy: str) -> Block:
    """Net, gross, costs and sides of a policy over some symbols."""
    first, *others = [money(leg.costs, outcome.books_of(policy, leg)) for leg in legs]
    return {name: first[name] + sum(part[name] for part in others) for name in first}


def _percentile(outcome: Outcome, legs: Sequence[Leg]) -> float | None:
    def worth(leg: Leg) -> float:
        return leg.costs.tick_value_usd if len(legs) > 1 else 1.0

    paths = [Path(leg.market, account, worth(leg)) for leg in legs for account in outcome.books_of(ENSEMBLE, leg)]
    return timing_percentile(paths, flat_at_close=outcome.study.program.env.flat_at_close)
