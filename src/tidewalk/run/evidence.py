"""Skill or luck: what the configurations tried, the seeds and the baselines leave of a result."""

from collections.abc import Sequence

import numpy as np

from tidewalk.run.figures import Entries, oos_pnl, ruin
from tidewalk.run.outcome import Outcome
from tidewalk.stats import inference, metrics, overfitting, seeds, verdict
from tidewalk.stats.metrics import Figure
from tidewalk.stats.verdict import Rivals
from tidewalk.store.trials import Common, Trial, deflation_inputs
from tidewalk.train.baselines import NAMES as BASELINES


def rivals_of(outcome: Outcome, equals: Sequence[str]) -> Rivals:
    """How the baselines did on the same sessions; `equals` names those that the policy is, bar for bar."""
    legs = outcome.study.legs
    return verdict.rivals(
        oos_pnl(outcome, legs)[1], {name: oos_pnl(outcome, legs, name)[1] for name in BASELINES}, equals
    )


def of_all_trials(outcome: Outcome, oos: Entries, trials: Sequence[Trial], common: Common, rival: Rivals) -> Entries:
    """The keys of the summary's `oos` that are of the study as a whole (`store.summary.OF_ALL_TRIALS`).

    Args:
        outcome: the books.
        oos: the other entries of `oos`, see `figures.performance`.
        trials: every configuration ever evaluated on the data, this one among them.
        common: session P&L of those that can be compared.
        rival: how the baselines did.
    """
    legs = outcome.study.legs
    (_, pnl), lost, (count, sd_of_sharpe) = oos_pnl(outcome, legs), ruin(outcome, legs), deflation_inputs(trials)
    psr = oos["psr"]
    dsr = metrics.undefined(lost) if lost else inference.session_dsr(pnl, count, sd_of_sharpe)
    facts = {name: oos[name] for name in ("net_usd", "sessions", "trades")}
    facts |= {"psr": psr, "dsr": dsr, "ci": oos["sharpe_ci90"], "rival": rival, "is_ruined": lost is not None}
    says = verdict.verdict(**facts)
    return {
        "dsr": dsr,
        "dsr_variant": inference.DSR_VARIANT,
        "sidak_p": psr if psr.value is None else inference.sidak_p(psr.value, count),
        "min_btl_years": inference.min_btl(count),
        "trials": count,
        "effective_trials": _effective_trials(common),
        # with the window or the day, since every window starts with a fresh account
        "verdict": lost
        if says is verdict.Verdict.RUIN
        else verdict.in_words(says, trials=count, psr=psr, dsr=dsr, rival=rival, sessions=oos["sessions"]),
        "verdict_failed": verdict.failed(**facts),
        "verdict_rule": verdict.VERDICT_RULE,
    }


def _effective_trials(common: Common) -> Figure:
    if not common.configs:
        return metrics.undefined("no trial has its sessions recorded")
    return overfitting.effective_trials(common.pnl_usd)


def over_configurations(outcome: Outcome, common: Common, rival: Rivals) -> Entries:
    """The summary's `overfitting`: PBO with its null band, and Hansen's test against the best passive baseline.

    Both are over the session P&L of every configuration in the ledger, on the sessions that they share.
    """
    benchmark = rival.best_passive
    facts = {"configurations": len(common.configs), "sessions": len(common.trade_days)}
    if not common.configs:
        nothing = metrics.undefined("no trial has its sessions recorded")
        names = ("blocks", "pbo", "pbo_null90", "slope", "prob_oos_loss", "spa_p", "spa_p_lower", "spa_p_upper")
        return {**facts, **dict.fromkeys(names, nothing), "spa_benchmark": benchmark}
    days, base_usd = oos_pnl(outcome, outcome.study.legs, benchmark)
    shared = np.isin(days.astype("datetime64[D]"), common.trade_days)
    pbo, spa = overfitting.pbo(common.pnl_usd), overfitting.spa(common.pnl_usd, base_usd[shared])
    return {
        **facts,
        "blocks": pbo.blocks,
        "pbo": pbo.value,
        "pbo_null90": pbo.value if pbo.null90 is None else list(pbo.null90),
        "slope": _or_why(pbo.slope, pbo.value.reason or "the best one of every half has the same figure there"),
        "prob_oos_loss": _or_why(pbo.prob_oos_loss, pbo.value.reason),
        "spa_p": _or_why(spa.consistent, spa.reason),
        "spa_p_lower": _or_why(spa.lower, spa.reason),
        "spa_p_upper": _or_why(spa.upper, spa.reason),
        "spa_benchmark": benchmark,
    }


def _or_why(value: float | None, reason: str | None) -> Figure:
    """The value as a figure, with the reason where there is none."""
    return metrics.undefined(str(reason)) if value is None else metrics.defined(value)


def over_seeds(outcome: Outcome) -> Entries:
    """The summary's `over_seeds`: the middle of what the seeds earned over all windows, and how sure that is."""
    legs, count = outcome.study.legs, outcome.study.config.train.seeds
    days = oos_pnl(outcome, legs)[0]
    pnl = np.stack([oos_pnl(outcome, legs, f"seed {seed}")[1] for seed in range(count)])
    starts = np.unique([np.datetime64(w.test.first_day, "D").astype(int) for leg in legs for w in leg.plan.windows])
    totals = pnl.sum(axis=1)
    return {
        "count": count,
        "statistic": seeds.middle_name(count),
        "net_usd": seeds.iqm(totals),
        "net_ci90": seeds.seed_interval(pnl, lambda rows: rows.sum(axis=1), np.searchsorted(starts, days, "right")),
        "min_usd": float(totals.min()),
        "max_usd": float(totals.max()),
        "profitable_frac": float(np.mean(totals > 0)),
    }
