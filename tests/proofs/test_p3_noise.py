"""P3: independent markets of pure noise through the whole pipeline: windows, population, selection, books, verdict."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support import chain_market, planted_signs, small_config
from tidewalk.data.load import DataConfig
from tidewalk.market.device import MarketData
from tidewalk.run.engine import start
from tidewalk.run.figures import oos_pnl, performance
from tidewalk.run.outcome import ENSEMBLE, Outcome, money, settle
from tidewalk.run.study import plan_study
from tidewalk.stats import inference
from tidewalk.stats.verdict import Verdict, verdict
from tidewalk.trading.account import by_session, gross_usd
from tidewalk.trading.costs import CostConfig

DAYS, BARS_PER_DAY, MOVE_TICKS = 182, 6, 10
COSTS = CostConfig(commission_usd=0.0, slippage_ticks=0.1)
"""A hundredth of a move: costs that leave the share of lucky markets as it is, and still have to show in the mean."""
LEVEL = 0.05


def noise_market(number: int) -> MarketData:
    """Half a year of independent moves up or down."""
    signs = planted_signs(DAYS * BARS_PER_DAY, 0.5, seed=number)
    market = chain_market(signs, MOVE_TICKS, BARS_PER_DAY, extra_features=1)
    name = {"symbol": f"N{number}", "fingerprint": f"noise {number}"}
    return dataclasses.replace(market, info=dataclasses.replace(market.info, **name))


def settled(numbers: range) -> Outcome:
    """One study of many markets: three windows and two seeds for each of them, all trained in one program."""
    markets = [noise_market(number) for number in numbers]
    config = small_config(Path("noise.npz"), epochs=3, max_steps_per_epoch=60, replay_capacity=256)
    symbols = ",".join(market.info.symbol for market in markets)
    config = dataclasses.replace(config, data=DataConfig(Path("noise.npz"), symbols), costs=COSTS)
    engine, state = start(plan_study(config, markets, compose="scan"))
    for _ in range(config.train.epochs):
        state, _, _ = engine.run_epoch(state)
    return settle(engine, engine.kept(state))


@dataclasses.dataclass(frozen=True)
class Result:
    """What the pipeline says of one market."""

    verdict: Verdict
    is_lucky: bool
    """The claim at the level of 5 %, without costs: PSR of the gross record above .95."""
    gross_usd: float
    net_usd: float
    costs_usd: float
    lots: float
    """Mean absolute position."""


def results_of(outcome: Outcome) -> list[Result]:
    return [_result(outcome, number) for number in range(len(outcome.study.legs))]


def _result(outcome: Outcome, number: int) -> Result:
    leg = outcome.study.legs[number]
    own, found = money(leg.costs, outcome.books_of(ENSEMBLE, leg)), performance(outcome, [leg])
    pnl = oos_pnl(outcome, [leg])[1]
    sessions = [by_session(leg.market, account) for account in outcome.books_of(ENSEMBLE, leg)]
    gross = np.concatenate([gross_usd(leg.costs, part.gross_ticks) for part in sessions])
    psr, gross_psr = found["psr"], inference.session_psr(gross)
    says = verdict(
        net_usd=own["net_usd"],
        sessions=len(pnl),
        trades=own["trades"],
        psr=psr,
        dsr=inference.session_dsr(pnl, 1, None),
        ci=found["sharpe_ci90"],
    )
    held = np.concatenate([account.after_lots for account in outcome.books_of(ENSEMBLE, leg)])
    return Result(
        verdict=says,
        is_lucky=gross_psr.value is not None and gross_psr.value > 1 - LEVEL,
        gross_usd=own["gross_usd"],
        net_usd=own["net_usd"],
        costs_usd=own["costs_usd"],
        lots=float(np.abs(held).mean()),
    )


def check_noise(results: list[Result], most_flagged: int) -> str:
    """At most `most_flagged` markets may pass the claim; the costs are lost and nothing is earned. In words."""
    count = len(results)
    lucky = sum(result.is_lucky for result in results)
    edges = sum(result.verdict is Verdict.EDGE for result in results)
    said = f"{lucky} of {count} noise markets flagged at the {LEVEL:.0%} level, {edges} called evidence of an edge"
    assert lucky <= most_flagged, said
    assert edges <= most_flagged, said
    gross, net, costs = (np.array([getattr(r, n) for r in results]) for n in ("gross_usd", "net_usd", "costs_usd"))
    error = gross.std(ddof=1) / np.sqrt(count)
    assert abs(gross.mean()) <= 4 * error, f"mean gross {gross.mean():.0f} USD, standard error {error:.0f}; {said}"
    assert net == pytest.approx(gross - costs)
    assert net.mean() == pytest.approx(-costs.mean(), abs=4 * error)
    assert (costs > 0).mean() > 0.9, "the policies must trade, or nothing is shown"
    assert np.mean([result.lots for result in results]) > 0.2
    return said


# validity.md P3: 99.9 % quantile of the binomial
@pytest.mark.slow
def test_of_200_noise_markets_no_more_are_flagged_than_chance_allows(capsys):
    results = [result for first in range(0, 200, 50) for result in results_of(settled(range(first, first + 50)))]
    with capsys.disabled():
        print(f"\nP3: {check_noise(results, 21)}")


def test_the_check_finds_skill_and_costs_that_are_not_paid():
    """The check itself can go red: on markets of which all are lucky, or earn, or pay nothing for their trades."""
    rng = np.random.default_rng(0)
    dull = [
        Result(Verdict.LOSES, is_lucky=False, gross_usd=x, net_usd=x - 9.0, costs_usd=9.0, lots=0.3)
        for x in rng.normal(0, 100, 200)
    ]
    check_noise(dull, 21)
    changes = (
        {"is_lucky": True},
        {"verdict": Verdict.EDGE},
        {"gross_usd": 500.0, "net_usd": 491.0},
        {"net_usd": 0.0},
        {"costs_usd": 0.0, "net_usd": 0.0, "gross_usd": 0.0},
        {"lots": 0.0},
    )
    for change in changes:
        with pytest.raises(AssertionError):
            check_noise([dataclasses.replace(result, **change) for result in dull[:100]] + dull[100:], 21)
