"""What may be said about an out-of-sample record, in words, and the rule behind the words. Pure functions.

Size of "evidence of an edge" on records without any skill (500 sessions): PSR and interval together let through 4 % of
single records; from 60 sessions on at most 6 % (9 % of autocorrelated ones, AR(1) 0.3), where with 20 sessions it is
38 % of records that win a little on most days and lose much on one in twenty, because many have not lost yet; the
deflated ratio lets through under 1 % of the best of 5 to 200 independent ones; and of 600 single records beside a
market as wild as they are, the comparison with long and short left none. The words are hard to earn, by intent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.stats.bootstrap import Interval, mean_rows, stationary_bootstrap_ci
from tidewalk.stats.inference import DSR_VARIANT, GATE
from tidewalk.stats.metrics import Figure, Record, checked_record, describe

MIN_SESSIONS_FOR_VERDICT = 60
FLAT = "flat"
PASSIVE = (FLAT, "long", "short")
"""Baselines that decide nothing: what a policy has to beat to be worth its trades."""


class Verdict(StrEnum):
    """All that may be said about an out-of-sample record, in the order in which it is asked."""

    NO_TRADES = "no trades"
    BASELINE = "equals a baseline"
    RUIN = "the capital was lost"
    TOO_LITTLE_DATA = "too little data"
    LOSES = "loses money after costs"
    LUCK = "profit not distinguishable from luck"
    BEFORE_TRIALS = "profit significant before multiple trials only"
    NOT_BETTER = "profit, but not better than a baseline"
    EDGE = "evidence of an edge"


VERDICT_RULE = (
    f"Evidence of an edge needs all of: {MIN_SESSIONS_FOR_VERDICT} sessions or more; net P&L of 0 or more, capital "
    f"never lost; PSR above {GATE:.2f}; lower end of the 90 % interval of the Sharpe ratio above 0; deflated Sharpe "
    f"ratio ({DSR_VARIANT}) above {GATE:.2f} for all configurations tried on the data; positions other than those of "
    "every baseline; no baseline with a higher net P&L; lower end of the 90 % interval of the mean difference per "
    "session to the best of long and short above 0, where that baseline earned anything. An undefined figure passes "
    "nothing."
)


@dataclass(frozen=True)
class Rivals:
    """How the baselines did on the same sessions.

    Attributes:
        best_passive: the passive baseline (flat, long, short) with the highest net P&L.
        excess: interval of the mean difference per session, policy less that baseline, USD.
        richer: the baseline of all that earned most, where it earned more than the policy.
        equal: a baseline that held the same positions on every bar.
    """

    best_passive: str
    excess: Interval
    richer: str | None = None
    equal: str | None = None


def rivals(pnl: Record, baselines: Mapping[str, Record], equals: Sequence[str] = ()) -> Rivals:
    """Compares a record with the baselines on the same sessions.

    The best passive one is chosen after the fact, which favours it; the paired test errs on the strict side.

    Args:
        pnl: net P&L of the policy in each session, shape [n].
        baselines: net P&L of each baseline in the same sessions, shape [n]; flat, long and short among them.
        equals: names of the baselines whose positions are the policy's on every bar.

    Raises:
        DataError: a passive baseline is missing, or a record has another length.
    """
    record = checked_record(pnl)
    others = {name: checked_record(values, f"baseline {name}") for name, values in baselines.items()}
    if missing := [name for name in PASSIVE if name not in others]:
        raise DataError(f"baselines: {', '.join(missing)} missing; given are {', '.join(others) or 'none'}")
    for name, values in others.items():
        if values.size != record.size:
            raise DataError(f"baseline {name}: {values.size} sessions against {record.size}; both need the same ones")
    net_usd = {name: float(values.sum()) for name, values in others.items()}
    best_passive = max(PASSIVE, key=lambda name: net_usd[name])
    excess = stationary_bootstrap_ci(record - others[best_passive], mean_rows)
    top = max(net_usd, key=lambda name: net_usd[name])
    # A baseline that shares all fills sums to the same money up to rounding, and is not richer for it.
    is_richer = net_usd[top] > record.sum() + 1e-9 * np.abs(record).sum()
    return Rivals(best_passive, excess, top if is_richer else None, equals[0] if equals else None)


def _is_close(rival: Rivals) -> bool:
    """Whether the best of long and short may be as good. Against flat the test is the one of the Sharpe interval."""
    return rival.best_passive != FLAT and (rival.excess.low is None or rival.excess.low <= 0)


def verdict(
    *,
    net_usd: float,
    sessions: int,
    trades: int,
    psr: Figure,
    dsr: Figure,
    ci: Interval,
    rival: Rivals | None = None,
    is_ruined: bool = False,
) -> Verdict:
    """The one thing that the record allows to say, by `VERDICT_RULE`.

    A gate that is undefined is not passed. An interval of level 0.90 and a PSR of 0.95 test the same 5 % one-sided
    claim, with and without regard to the order of the sessions; both are asked before the number of trials is.

    Args:
        net_usd: out-of-sample P&L after costs.
        sessions: out-of-sample sessions; fewer than 60 allow no statement.
        trades: lots traded.
        psr: probabilistic Sharpe ratio against 0.
        dsr: deflated Sharpe ratio for all trials on the data.
        ci: interval of the Sharpe ratio (or of the mean).
        rival: comparison with the baselines; None asks nothing of them, which only a test should.
        is_ruined: the capital was lost on the way.
    """
    if trades == 0:
        return Verdict.NO_TRADES
    if rival is not None and rival.equal is not None:
        return Verdict.BASELINE
    if is_ruined:
        return Verdict.RUIN
    if sessions < MIN_SESSIONS_FOR_VERDICT:
        return Verdict.TOO_LITTLE_DATA
    if net_usd < 0:
        return Verdict.LOSES
    if psr.value is None or ci.low is None:
        return Verdict.TOO_LITTLE_DATA
    if psr.value <= GATE or ci.low <= 0:
        return Verdict.LUCK
    if dsr.value is None or dsr.value <= GATE:
        return Verdict.BEFORE_TRIALS
    return Verdict.NOT_BETTER if rival is not None and (rival.richer or _is_close(rival)) else Verdict.EDGE


def failed(
    *,
    net_usd: float,
    sessions: int,
    trades: int,
    psr: Figure,
    dsr: Figure,
    ci: Interval,
    rival: Rivals | None = None,
    is_ruined: bool = False,
) -> list[str]:
    """The conditions of `VERDICT_RULE` that a record does not meet, each in a few words with its figure.

    All of them and not the first alone, as `verdict` says; none is left where that says "evidence of an edge". The
    arguments are those of `verdict`.
    """
    low = f"undefined: {ci.reason}" if ci.low is None else f"{ci.low:.2f}"
    found = [
        ("no trades", trades == 0),
        (f"{counted(sessions, 'session')}, {MIN_SESSIONS_FOR_VERDICT} needed", sessions < MIN_SESSIONS_FOR_VERDICT),
        ("capital lost", is_ruined),
        ("a loss after costs", net_usd < 0),
        (f"PSR {describe(psr)}, above {GATE:.2f} needed", psr.value is None or psr.value <= GATE),
        (f"lower end of the Sharpe interval {low}, above 0 needed", ci.low is None or ci.low <= 0),
        (f"DSR {describe(dsr)}, above {GATE:.2f} needed", dsr.value is None or dsr.value <= GATE),
    ]
    if rival is not None:
        found += [
            (f"the positions are those of the {rival.equal} baseline", rival.equal is not None),
            (f"the {rival.richer} baseline earned more", rival.richer is not None),
            (f"not surely better than the {rival.best_passive} baseline", _is_close(rival)),
        ]
    return [words for words, is_failed in found if is_failed]


def in_words(
    says: Verdict, *, trials: int, psr: Figure, dsr: Figure, rival: Rivals | None = None, sessions: int | None = None
) -> str:
    """The verdict with the figures it rests on, as "profit not distinguishable from luck: one of 48 ...".

    Args:
        says: the verdict.
        trials: configurations ever evaluated on the data, this one among them.
        psr: probabilistic Sharpe ratio, named where the deflated one is not asked.
        dsr: deflated Sharpe ratio.
        rival: as given to `verdict`.
        sessions: out-of-sample sessions, named where they are too few.
    """
    if rival is not None and rival.equal is not None and says is Verdict.BASELINE:
        return f"equals the {rival.equal} baseline on every bar: nothing was learned beyond it"
    tried = "only configuration in the ledger" if trials == 1 else f"one of {trials} configurations tried on these data"
    richer = "" if rival is None or rival.richer is None else f"; the {rival.richer} baseline earned more"
    match says:
        case Verdict.LUCK:
            return f"{says}: {tried}, PSR {describe(psr)}, DSR {describe(dsr)}{richer}"
        case Verdict.BEFORE_TRIALS | Verdict.EDGE:
            return f"{says}: {tried}, DSR {describe(dsr)}{richer}"
        case Verdict.NOT_BETTER if rival is not None:
            name = rival.richer or rival.best_passive
            return f"profit, but not better than the {name} baseline: {tried}, DSR {describe(dsr)}{richer}"
        case Verdict.LOSES:
            return f"{says}{richer}"
        case Verdict.TOO_LITTLE_DATA if sessions is not None and sessions < MIN_SESSIONS_FOR_VERDICT:
            return f"{says}: {counted(sessions, 'session')}, {MIN_SESSIONS_FOR_VERDICT} needed"
        case _:
            return str(says)
