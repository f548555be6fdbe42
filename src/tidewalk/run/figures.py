"""The figures of a summary: of a study as a whole, and of each of its symbols; what is undefined comes with its reason.

Several symbols are one portfolio: P&L is added up by trade date, and risk is measured on the sums. What depends on
how many configurations were tried is in `run.evidence`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from tidewalk.core.errors import listed
from tidewalk.core.words import counted
from tidewalk.run import outcome as books
from tidewalk.run.outcome import ENSEMBLE, Outcome, money, session_net_usd, sessions_per_year
from tidewalk.run.study import Leg, Study
from tidewalk.run.surface import break_even_side_usd
from tidewalk.stats import inference, metrics
from tidewalk.stats.bootstrap import Interval, sharpe_ci
from tidewalk.stats.metrics import Figure
from tidewalk.store.summary import twin_sentences, undefined_warning
from tidewalk.train import random_timing
from tidewalk.train.baselines import NAMES as BASELINES

Entries = Mapping[str, Any]
"""Keys of one part of the summary; a value may be a `Figure` or an `Interval`, which know why they are undefined."""
Block = dict[str, Any]
MOST_LISTED = 8
RANDOM_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def block(part: str, entries: Entries) -> tuple[Block, list[str]]:
    """One part of the summary, with null where a figure is undefined, and the warnings that say why."""
    plain: Block = {}
    reasons: list[str] = []
    for name, entry in entries.items():
        value = entry
        if isinstance(entry, Interval):
            value = None if entry.low is None or entry.high is None else [entry.low, entry.high]
        elif isinstance(entry, Figure):
            value = entry.value
        if isinstance(entry, Figure | Interval) and value is None:
            reasons.append(undefined_warning(f"{part}.{name}", str(entry.reason)))
        plain[name] = value
    return plain, reasons


def oos_pnl(outcome: Outcome, legs: Sequence[Leg], policy: str = ENSEMBLE) -> tuple[np.ndarray, np.ndarray]:
    """Every out-of-sample trade date (days since 1970) of one policy over some symbols, and its net P&L in USD."""
    days, pnl = [], []
    for leg in legs:
        sessions = [outcome.sessions_of(policy, window.index) for window in leg.plan.windows]
        days += [part.trade_day for part in sessions]
        pnl += [session_net_usd(leg, part) for part in sessions]
    dates, index = np.unique(np.concatenate(days), return_inverse=True)
    total = np.zeros(len(dates))
    np.add.at(total, index, np.concatenate(pnl))
    return dates, total


def performance(outcome: Outcome, legs: Sequence[Leg]) -> Entries:
    """What was earned and at what risk, over some symbols: `oos` without what depends on the number of trials."""
    (_, pnl), per_year, own = oos_pnl(outcome, legs), sessions_per_year(list(legs)), _money(outcome, legs, ENSEMBLE)
    held = np.concatenate([account.after_lots for leg in legs for account in outcome.books_of(ENSEMBLE, leg)])
    return {
        "sessions": len(pnl),
        "sessions_per_year": per_year,
        **own,
        "round_trips": sum(len(outcome.trades[window.index]) for leg in legs for window in leg.plan.windows),
        "turnover": own["trades"] / len(pnl),
        "exposure": metrics.exposure(held),
        "hit_rate": metrics.win_rate(pnl),
        "profit_factor": metrics.profit_factor(pnl),
        "expected_shortfall_usd": metrics.expected_shortfall(pnl),
        "max_drawdown_usd": metrics.max_drawdown(pnl),
        "longest_drawdown_sessions": metrics.longest_drawdown_sessions(pnl),
        **_ratios(pnl, per_year, ruin(outcome, legs)),
    }


def _ratios(pnl: np.ndarray, per_year: float, lost: str | None) -> Entries:
    """Figures of reward over risk; all undefined after ruin (`lost` says when), since nothing could be traded on."""
    error = inference.session_sharpe_se(pnl)
    ratios = {
        "sharpe_session": metrics.sharpe(pnl, per_year),
        "sharpe_se": error if error.value is None else metrics.defined(error.value * per_year**0.5),
        "sharpe_ci90": sharpe_ci(pnl, per_year),
        "sortino": metrics.sortino(pnl, per_year),
        "calmar": metrics.calmar(pnl, per_year),
        "psr": inference.session_psr(pnl),
        "min_trl_sessions": inference.session_min_trl(pnl),
    }
    if lost is None:
        return ratios
    return {**dict.fromkeys(ratios, metrics.undefined(lost)), "sharpe_ci90": Interval(None, None, 0.9, lost)}


def ruin(outcome: Outcome, legs: Sequence[Leg]) -> str | None:
    """In which window the ensemble lost its capital, or when the whole record would have; None where neither is so."""
    capital_usd = outcome.study.config.limits.capital_usd
    if capital_usd is None:
        return None
    for leg in legs:
        for window in leg.plan.windows:
            # not by the reasons of fills: the cost of the last one can take the rest of it
            if outcome.halts(window.index).lost_all:
                return f"the capital was lost in window {window.index}"
    days, pnl = oos_pnl(outcome, legs)
    session = metrics.ruin_session(pnl, capital_usd * len(legs))
    return None if session is None else f"the capital was lost on {np.datetime64(int(days[session]), 'D')}"


def yardsticks(outcome: Outcome, legs: Sequence[Leg]) -> Entries:
    """The summary's `baselines` over some symbols: what each earned, which was best, and which the policy resembles."""
    nets = {name: _money(outcome, legs, name)["net_usd"] for name in BASELINES}
    agreement = {name: _agreement(outcome, legs, name) for name in BASELINES}
    nearest = max(agreement, key=lambda name: agreement[name])
    return {
        **nets,
        **_random(outcome, legs),
        "best": max(nets, key=lambda name: nets[name]),
        "equals": [name for name, share in agreement.items() if share == 1.0],
        "nearest": nearest,
        "nearest_agreement": agreement[nearest],
    }


def hindsight(outcome: Outcome, legs: Sequence[Leg]) -> Entries:
    """The summary's `oracle` over some symbols."""
    bound = _money(outcome, legs, "oracle")["net_usd"]
    return {
        "net_usd": bound,
        "captured_frac": metrics.captured_frac(_money(outcome, legs, ENSEMBLE)["net_usd"], bound),
    }


def per_symbol(outcome: Outcome) -> tuple[list[Block], list[str]]:
    """The summary's row of every symbol, and a warning for every figure in them that is undefined.

    A single symbol is the whole study, whose undefined figures are explained already.
    """
    rows, undefined = [], []
    legs = outcome.study.legs
    for number, leg in enumerate(legs):
        where = f"per_symbol[{number}]"
        oos, of_oos = block(f"{where}.oos", performance(outcome, [leg]))
        baselines, of_baselines = block(f"{where}.baselines", yardsticks(outcome, [leg]))
        oracle, of_oracle = block(f"{where}.oracle", hindsight(outcome, [leg]))
        rows.append(
            {
                "symbol": leg.symbol,
                "data_fingerprint": leg.market.info.fingerprint,
                "bars": leg.market.num_bars,
                "windows": len(leg.plan.windows),
                "oos": oos,
                "baselines": baselines,
                "oracle": oracle,
                "costs": costs_record(outcome.study, leg),
            }
        )
        undefined += [*of_oos, *of_baselines, *of_oracle] if len(legs) > 1 else []
    return rows, undefined


def per_window(outcome: Outcome, members: pl.DataFrame) -> tuple[list[Block], list[str]]:
    """The summary's row of every window, and a warning for every figure in them that is undefined.

    `wfe`, the walk-forward efficiency, divides what the seeds earned per test session by what the same seeds earned per
    validation session at the epochs chosen there, both means over seeds with a usable epoch. The denominator is in
    sample, since validation chose the epoch. It describes and gates nothing; without a gain in validation it means
    nothing.
    """
    rows, no_member = [], metrics.undefined("no usable member")
    undefined: dict[str, dict[str, list[str]]] = {}
    windows = [window for leg in outcome.study.legs for window in leg.plan.windows]
    for row, window in zip(books.per_window(outcome), windows, strict=True):
        usable = members.filter((pl.col("window") == window.index) & (pl.col("best_epoch") > 0))
        val, test = (usable[name].to_numpy() for name in ("val_net_usd", "test_net_usd"))
        entries = {
            "val_net_usd": val.mean().item() if val.size else no_member,
            "wfe": metrics.walk_forward_efficiency(
                val.mean().item(), window.val.sessions, test.mean().item(), window.test.sessions
            )
            if val.size
            else no_member,
            "break_even_side_usd": break_even(outcome, [window.index])["break_even_side_usd"],
            "captured_frac": metrics.captured_frac(row["net_usd"], row["oracle_usd"]),
        }
        rows.append({**row, **block("", entries)[0]})
        for name, entry in entries.items():
            if isinstance(entry, Figure) and entry.reason:
                undefined.setdefault(name, {}).setdefault(entry.reason, []).append(str(window.index))
    return rows, [_of_windows(name, reasons) for name, reasons in undefined.items()]


def _of_windows(name: str, reasons: Mapping[str, list[str]]) -> str:
    """One warning for all windows in which a figure is undefined."""
    said = [
        f"{reason} (window{'s' * (len(windows) > 1)} {listed(windows, MOST_LISTED, 'windows')})"
        for reason, windows in reasons.items()
    ]
    return undefined_warning(f"per_window.{name}", "; ".join(said))


def cost_surface(outcome: Outcome, legs: Sequence[Leg]) -> Entries:
    """The summary's `cost_surface` over some symbols."""
    return break_even(outcome, [window.index for leg in legs for window in leg.plan.windows])


def break_even(outcome: Outcome, windows: Sequence[int]) -> Entries:
    """Break-even and own cost of the ensemble per contract side in some windows, means over all sides traded.

    Fees of calendar spreads are of no side: they are taken off both.
    """
    legs = outcome.study.leg_by_window
    parts = [money(legs[w].costs, [outcome.books[ENSEMBLE][w]]) for w in windows]
    gross_usd, costs_usd, traded = (sum(part[name] for part in parts) for name in ("gross_usd", "costs_usd", "trades"))
    rolls_usd = sum(int(outcome.books[ENSEMBLE][w].rolled.sum()) * legs[w].costs.roll_usd for w in windows)
    none = metrics.undefined("nothing was traded")
    return {
        "break_even_side_usd": break_even_side_usd(gross_usd, traded, rolls_usd),
        "own_side_usd": (costs_usd - rolls_usd) / traded if traded else none,
    }


def costs_record(study: Study, leg: Leg) -> Block:
    """What a contract side and a rolled contract cost, and the mean recorded half spread over the test bars."""
    return {
        "slippage": study.config.costs.slippage,
        "commission_usd": leg.costs.commission_usd,
        "slippage_ticks": leg.costs.slippage_ticks,
        "side_usd": leg.costs.side_usd,
        "roll_as": study.config.env.roll_as,
        "roll_usd": leg.costs.roll_usd if study.config.env.roll_as == "spread" else 2.0 * leg.costs.side_usd,
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
    """What a reader must know of the money, of a policy that only looks learned, of lost members and uneven symbols."""
    study = outcome.study
    money_in = f"Money is in {study.currency}; keys and columns of files end in _usd all the same."
    warnings = [] if study.currency == "USD" else [money_in]
    warnings += [study.said(leg, text) for leg in study.legs for text in _copied_baselines(outcome, leg)]
    dead = int((~outcome.is_alive).sum())
    if dead:
        warnings.append(
            f"{dead} of {study.num_members} members diverged (loss not finite); each is represented by its best epoch "
            "before that, or left out."
        )
    lost = [w for w in range(study.num_windows) if not (outcome.best_epoch[w] > 0).any()]
    if lost:
        warnings.append(f"Windows {lost} have no usable member and stay flat in the record.")
    return warnings + _limits_reached(outcome) + _autocorrelated_record(outcome) + _uneven_record(study.legs)


def _limits_reached(outcome: Outcome) -> list[str]:
    """A warning where account limits kept the ensemble from trading: what is flat from then on is no choice of its."""
    ended, days = [], 0
    for window, leg in enumerate(outcome.study.leg_by_window):
        halts, account = outcome.halts(window), outcome.books[ENSEMBLE][window]
        sessions = leg.market.session_id[account.fill_bars]
        days += len(np.unique(sessions[halts.reason == "daily-loss"]))
        if halts.over is not None:
            row, why = halts.over
            day = np.datetime64(int(leg.market.trade_day[account.fill_bars[row]]), "D")
            ended.append(f"window {window} by {why} on {day}")
    said = [f"ended the account of {listed(ended, MOST_LISTED, 'windows')}, flat from then on"] if ended else []
    said += [f"reached the daily loss in {counted(days, 'session')}, flat to the end of each"] if days else []
    return [f"Account limits: the ensemble {' and '.join(said)}."] if said else []


def _autocorrelated_record(outcome: Outcome) -> list[str]:
    """A warning where sessions hang together, so that the root of their number is not what annualises the ratio."""
    legs = outcome.study.legs
    pnl, per_year = oos_pnl(outcome, legs)[1], sessions_per_year(list(legs))
    by_root, by_lo = metrics.sharpe(pnl, per_year).value, inference.sharpe_of_ar1(pnl, per_year).value
    if by_root is None or by_lo is None or ruin(outcome, legs):
        return []
    memory = metrics.describe(metrics.autocorrelation(pnl), "+.2f")
    return [
        f"Session P&L is autocorrelated ({memory} at lag 1): the Sharpe ratio of {by_root:.2f} a year rests on "
        f"sessions without memory; by the factor of Lo (2002) it is {by_lo:.2f}."
    ]


def _copied_baselines(outcome: Outcome, leg: Leg) -> list[str]:
    own = block("baselines", yardsticks(outcome, [leg]))[0]
    return twin_sentences(own) if own["equals"] else []


def _agreement(outcome: Outcome, legs: Sequence[Leg], policy: str) -> float:
    """Share of the test bars on which the ensemble holds what another policy holds."""
    ours, theirs = (
        np.concatenate([account.after_lots for leg in legs for account in outcome.books_of(name, leg)])
        for name in (ENSEMBLE, policy)
    )
    return metrics.position_agreement(ours, theirs).value or 0.0


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
    by_leg = [[outcome.sessions_of(policy, window.index) for window in leg.plan.windows] for leg in legs]
    first, *others = [money(leg.costs, sessions) for leg, sessions in zip(legs, by_leg, strict=True)]
    return {name: first[name] + sum(part[name] for part in others) for name in first}


def _random(outcome: Outcome, legs: Sequence[Leg]) -> Entries:
    """Share of the random policies of the same turnover and exposure that earned less, and quantiles of their nets."""
    windows = [window.index for leg in legs for window in leg.plan.windows]
    if not any(outcome.books[ENSEMBLE][window].sides.any() for window in windows):
        return dict.fromkeys(("random_p", "random_usd"), metrics.undefined("the agent never held a position"))
    nets_usd = outcome.random_nets_usd[windows].sum(axis=0)
    quantiles = np.quantile(nets_usd[1:], RANDOM_QUANTILES)
    return {"random_p": random_timing.percentile(nets_usd), "random_usd": quantiles.tolist()}
