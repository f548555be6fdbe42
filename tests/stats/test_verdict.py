"""What may be said of a record: every branch of the rule, the comparison with the baselines, and its size on noise."""

import numpy as np
import pytest

from tidewalk.core.errors import DataError
from tidewalk.stats import bootstrap, inference, verdict
from tidewalk.stats.bootstrap import Interval
from tidewalk.stats.metrics import Figure, defined, undefined
from tidewalk.stats.verdict import PASSIVE, Rivals, Verdict


def noise(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


FAIR, UNSURE, SURE = defined(0.5), undefined("no variance"), defined(0.96)
ABOVE, AROUND = Interval(0.1, 2.0, 0.9), Interval(-0.1, 2.0, 0.9)
NO_INTERVAL = Interval(None, None, 0.9, "no variance")


@pytest.mark.parametrize(
    ("net_usd", "sessions", "trades", "psr", "dsr", "ci", "expected"),
    [
        (0.0, 300, 0, UNSURE, UNSURE, NO_INTERVAL, Verdict.NO_TRADES),
        (900.0, 59, 5, SURE, SURE, ABOVE, Verdict.TOO_LITTLE_DATA),
        (-900.0, 59, 5, FAIR, FAIR, AROUND, Verdict.TOO_LITTLE_DATA),
        (-900.0, 60, 5, FAIR, FAIR, AROUND, Verdict.LOSES),
        (-900.0, 300, 5, UNSURE, UNSURE, NO_INTERVAL, Verdict.LOSES),
        (900.0, 300, 5, UNSURE, UNSURE, NO_INTERVAL, Verdict.TOO_LITTLE_DATA),
        (0.0, 300, 5, FAIR, FAIR, AROUND, Verdict.LUCK),
        (900.0, 300, 5, FAIR, FAIR, AROUND, Verdict.LUCK),
        (900.0, 300, 5, defined(0.95), SURE, ABOVE, Verdict.LUCK),
        (900.0, 300, 5, SURE, SURE, AROUND, Verdict.LUCK),
        (900.0, 300, 5, SURE, SURE, Interval(0.0, 1.0, 0.9), Verdict.LUCK),
        (900.0, 300, 5, SURE, FAIR, ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, defined(0.95), ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, undefined("unknown spread"), ABOVE, Verdict.BEFORE_TRIALS),
        (900.0, 300, 5, SURE, SURE, ABOVE, Verdict.EDGE),
    ],
)
def test_verdict(
    net_usd: float, sessions: int, trades: int, psr: Figure, dsr: Figure, ci: Interval, expected: Verdict
) -> None:
    facts = {"net_usd": net_usd, "sessions": sessions, "trades": trades, "psr": psr, "dsr": dsr, "ci": ci}
    assert verdict.verdict(**facts) is expected
    # An edge is what fails no condition, and nothing else is.
    assert (verdict.failed(**facts) == []) == (expected is Verdict.EDGE)


def test_verdicts_are_the_fixed_sentences() -> None:
    assert [str(says) for says in Verdict] == [
        "no trades",
        "equals a baseline",
        "the capital was lost",
        "too little data",
        "loses money after costs",
        "profit not distinguishable from luck",
        "profit significant before multiple trials only",
        "profit, but not better than a baseline",
        "evidence of an edge",
    ]


def say(rival: Rivals | None = None, **change: object) -> Verdict:
    """The verdict on a record that passes every gate, but for what is changed."""
    facts = {"net_usd": 900.0, "sessions": 300, "trades": 5, "psr": SURE, "dsr": SURE, "ci": ABOVE}
    return verdict.verdict(**(facts | change), rival=rival)


@pytest.mark.parametrize(
    ("rival", "expected"),
    [
        (Rivals("long", ABOVE), Verdict.EDGE),
        (Rivals("long", AROUND), Verdict.NOT_BETTER),
        (Rivals("long", NO_INTERVAL), Verdict.NOT_BETTER),
        (Rivals("long", Interval(0.0, 1.0, 0.9)), Verdict.NOT_BETTER),
        (Rivals("flat", AROUND), Verdict.EDGE),  # the test against flat is that of the Sharpe interval
        (Rivals("flat", AROUND, richer="momentum"), Verdict.NOT_BETTER),
        (Rivals("long", ABOVE, richer="macd"), Verdict.NOT_BETTER),
        (Rivals("long", ABOVE, equal="momentum"), Verdict.BASELINE),
    ],
)
def test_an_edge_has_to_beat_the_baselines(rival: Rivals, expected: Verdict) -> None:
    assert say(rival) is expected
    facts = {"net_usd": 900.0, "sessions": 300, "trades": 5, "psr": SURE, "dsr": SURE, "ci": ABOVE}
    assert (verdict.failed(**facts, rival=rival) == []) == (expected is Verdict.EDGE)


def test_every_failed_condition_is_named_with_its_figure() -> None:
    rival = Rivals("long", AROUND, richer="macd", equal="macd")
    said = verdict.failed(
        net_usd=-1.0,
        sessions=5,
        trades=0,
        psr=undefined("no variance"),
        dsr=defined(0.31),
        ci=Interval(-0.4, 1.0, 0.9),
        rival=rival,
        is_ruined=True,
    )
    assert said == [
        "no trades",
        "5 sessions, 60 needed",
        "capital lost",
        "a loss after costs",
        "PSR undefined: no variance, above 0.95 needed",
        "lower end of the Sharpe interval -0.40, above 0 needed",
        "DSR 0.31, above 0.95 needed",
        "the positions are those of the macd baseline",
        "the macd baseline earned more",
        "not surely better than the long baseline",
    ]


def test_few_sessions_prove_nothing_where_the_loss_may_not_have_come_yet() -> None:
    # Wins on 19 days, gives all of it back on the 20th: without skill, and over 20 sessions often without a loss.
    edges = {20: 0, verdict.MIN_SESSIONS_FOR_VERDICT: 0}
    rng = np.random.default_rng(0)
    for sessions in edges:
        for _ in range(60):
            is_bad = rng.random(sessions) < 0.05
            record = np.where(is_bad, -19.0, 1.0) + 0.3 * rng.standard_normal(sessions)
            ci = bootstrap.stationary_bootstrap_ci(record, bootstrap.mean_rows, draws=200)
            psr = inference.session_psr(record)
            says = say(net_usd=float(record.sum()), sessions=sessions, psr=psr, dsr=psr, ci=ci)
            edges[sessions] += says is Verdict.EDGE
    # 5 % of 60 is 3; 9 is the 99.9 % point of the binomial.
    assert edges[20] == 0
    assert edges[verdict.MIN_SESSIONS_FOR_VERDICT] <= 9


def test_what_is_asked_first_is_said_first() -> None:
    weak, same = Rivals("long", AROUND, richer="long"), Rivals("long", NO_INTERVAL, equal="long")
    assert say(weak, psr=FAIR) is Verdict.LUCK
    assert say(weak, dsr=FAIR) is Verdict.BEFORE_TRIALS
    assert say(same, net_usd=-5.0, sessions=3) is Verdict.BASELINE
    assert say(same, trades=0) is Verdict.NO_TRADES
    assert say(is_ruined=True) is Verdict.RUIN
    assert say(is_ruined=True, trades=0) is Verdict.NO_TRADES


def test_rivals_are_compared_session_by_session() -> None:
    market, skill = 0.3 + noise(1, 400), 0.5 + 0.1 * noise(2, 400)
    both = {"flat": np.zeros(400), "long": market, "short": -market - 0.01, "momentum": np.full(400, 0.2)}
    better = verdict.rivals(market + skill, both)
    assert better == verdict.rivals(market + skill, both)
    assert better.best_passive == "long"
    # The market itself cancels in the difference: the interval is the narrow one of the skill alone.
    assert better.excess.low == pytest.approx(0.5, abs=0.02)
    assert better.excess.high == pytest.approx(0.5, abs=0.02)
    assert verdict.rivals(market, both | {"long": -market, "short": market}).best_passive == "short"
    assert better.richer is None
    poor = verdict.rivals(np.full(400, 0.1), both)
    assert poor.richer == "long"
    assert verdict.rivals(market, both, ["long"]).equal == "long"
    # The same money, added up in another order, is not more money.
    thirds = np.resize([1.1, 1.2, 1.3], 400)
    assert verdict.rivals(thirds, both | {"momentum": thirds + 1e-16}).richer is None


def test_baselines_need_the_same_sessions() -> None:
    with pytest.raises(DataError, match="baselines: short missing; given are flat, long"):
        verdict.rivals([1.0, 2.0], {"flat": [0.0, 0.0], "long": [1.0, 2.0]})
    with pytest.raises(DataError, match="baseline long: 1 sessions against 2"):
        verdict.rivals([1.0, 2.0], {"flat": [0.0, 0.0], "long": [1.0], "short": [0.0, 0.0]})


def test_words_carry_the_figures() -> None:
    def words(says: Verdict, trials: int = 48, rival: Rivals | None = None) -> str:
        return verdict.in_words(says, trials=trials, psr=defined(0.71), dsr=defined(0.31), rival=rival)

    assert words(Verdict.LUCK) == (
        "profit not distinguishable from luck: one of 48 configurations tried on these data, PSR 0.71, DSR 0.31"
    )
    assert words(Verdict.EDGE, 1) == "evidence of an edge: only configuration in the ledger, DSR 0.31"
    assert words(Verdict.BEFORE_TRIALS, 2).startswith(f"{Verdict.BEFORE_TRIALS}: one of 2 configurations")
    assert words(Verdict.NOT_BETTER, rival=Rivals("long", AROUND)).startswith(
        "profit, but not better than the long baseline: one of 48"
    )
    macd = Rivals("long", ABOVE, richer="macd")
    assert words(Verdict.NOT_BETTER, rival=macd).startswith("profit, but not better than the macd baseline")
    assert words(Verdict.LUCK, rival=macd).endswith("; the macd baseline earned more")
    assert words(Verdict.LOSES, rival=macd) == "loses money after costs; the macd baseline earned more"
    same = Rivals("long", NO_INTERVAL, equal="long")
    assert words(Verdict.BASELINE, rival=same).startswith("equals the long baseline on every bar")
    assert words(Verdict.NO_TRADES) == "no trades"
    few = verdict.in_words(Verdict.TOO_LITTLE_DATA, trials=1, psr=SURE, dsr=SURE, sessions=1)
    assert few == "too little data: 1 session, 60 needed"
    unknown = verdict.in_words(Verdict.BEFORE_TRIALS, trials=3, psr=SURE, dsr=undefined("spread not known"))
    assert unknown.endswith("DSR undefined: spread not known")


def test_the_rule_names_every_gate() -> None:
    for gate in ("60 sessions", "PSR above 0.95", "interval", "(2014) above 0.95", "baseline", "long and short"):
        assert gate in verdict.VERDICT_RULE


def claims(seeds: range, *, with_rivals: bool) -> int:
    """How many noise records of 250 sessions, the only ones tried, are called an edge."""
    count = 0
    for seed in seeds:
        record, market = noise(1000 + seed, 250), noise(5000 + seed, 250)
        passive = dict(zip(PASSIVE, (np.zeros(250), market, -market), strict=True))
        says = verdict.verdict(
            net_usd=float(record.sum()),
            sessions=250,
            trades=100,
            psr=inference.session_psr(record),
            dsr=inference.session_dsr(record, 1, None),
            ci=bootstrap.stationary_bootstrap_ci(record, bootstrap.mean_rows, draws=200),
            rival=verdict.rivals(record, passive) if with_rivals else None,
        )
        count += says is Verdict.EDGE
    return count


def test_noise_is_rarely_called_an_edge() -> None:
    # 5 % of 120 is 6; 14 is the 99.9 % point of the binomial.
    assert 0 < claims(range(120), with_rivals=False) <= 14
    assert claims(range(40), with_rivals=True) <= 2


def test_the_long_market_is_no_edge_and_skill_beside_it_is() -> None:
    market = 0.15 + noise(8, 500)
    passive = dict(zip(PASSIVE, (np.zeros(500), market, -market), strict=True))

    def judged(record: np.ndarray) -> Verdict:
        return verdict.verdict(
            net_usd=float(record.sum()),
            sessions=500,
            trades=900,
            psr=inference.session_psr(record),
            dsr=inference.session_dsr(record, 1, None),
            ci=bootstrap.stationary_bootstrap_ci(record, bootstrap.mean_rows),
            rival=verdict.rivals(record, passive),
        )

    assert judged(0.98 * market) is Verdict.NOT_BETTER
    # A little more than the market, and not distinguishable from it.
    assert judged(market + 0.01 + 0.5 * noise(9, 500)) is Verdict.NOT_BETTER
    assert judged(0.4 + noise(10, 500)) is Verdict.EDGE
