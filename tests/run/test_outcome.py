"""What a study settles: device, books, ledger and tables of every policy agree, whatever the rules and costs."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest

from support import as_nq, chain_market, planted_signs, random_half_spreads, small_config
from tidewalk.core.errors import BooksError
from tidewalk.data.load import DataConfig
from tidewalk.market.device import ROLL
from tidewalk.run import engine, outcome
from tidewalk.run.mesh import Transfers
from tidewalk.run.study import plan_study
from tidewalk.store import results
from tidewalk.store.tables import checked
from tidewalk.trading.account import book
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig
from tidewalk.train.population import initial_state

ROLL_BARS = (105 * 24 + 7, 121 * 12)
"""ES rolls within a session of its first test month, NQ at the first bar of its second, which starts flat."""
CASES = {
    "limits": (
        EnvConfig(positions=2, lots_per_level=2, no_entry_minutes=120, roll_as="spread"),
        LimitConfig(capital_usd=40_000, daily_loss_usd=3_000, trailing_drawdown_usd=12_000),
        CostConfig(commission_usd=2.31, slippage="recorded", slippage_ticks=0.25),
    ),
    "free": (
        EnvConfig(positions=2, flat_at_close=True, direction="long"),
        LimitConfig(),
        CostConfig(commission_usd=2.31, slippage_ticks=0.5),
    ),
}


@functools.cache
def markets():
    es = chain_market(planted_signs(182 * 24, 0.6), 10, 24, roll_at=ROLL_BARS[0])
    nq = as_nq(chain_market(planted_signs(152 * 12, 0.6, 1), 10, 12, roll_at=ROLL_BARS[1]))
    return random_half_spreads(es), random_half_spreads(nq, 1)


@functools.cache
def started(case: str):
    """A study of two symbols on its device, never trained: random networks trade too, all but the first member."""
    env, limits, costs = CASES[case]
    config = small_config(Path("data"))
    config = dataclasses.replace(config, env=env, limits=limits, costs=costs, data=DataConfig(Path("d"), "ES,NQ"))
    study = plan_study(config, markets(), compose="scan")
    transfers = Transfers()
    resident = engine.upload_study(study, transfers, None)
    state = jax.jit(functools.partial(initial_state, study.program))(resident.windows, resident.members)
    best = dataclasses.replace(state.best, epoch=state.best.epoch.at[1:].set(1))
    ready = engine.Stage(study, resident, transfers)
    return ready, dataclasses.replace(state, best=best)


@functools.cache
def settled(case: str) -> outcome.Outcome:
    return outcome.settle(*started(case))


every_case = pytest.mark.parametrize("case", ["limits", pytest.param("free", marks=pytest.mark.slow)])


@every_case
def test_sessions_fills_round_trips_and_rewards_are_one_amount(case):
    done = settled(case)
    amounts = outcome.reconciled(done)
    net = sum(outcome.money(leg.costs, done.books_of("ensemble", leg))["net_usd"] for leg in done.study.legs)
    for name in ("equity_usd", "fills_usd", "trades_usd"):
        assert amounts[name] == pytest.approx(net, abs=0.005)
    # the rewards are float32: 24 bits of each of some thousand rewards
    assert amounts["rewards_usd"] == pytest.approx(net, abs=0.05)
    assert net != 0


@every_case
def test_every_policy_has_the_same_net_in_equity_and_books(case):
    done = settled(case)
    equity = checked(Path("equity"), outcome.equity_frame(done), results.EQUITY)
    assert set(equity["policy"]) == set(done.books)
    for policy in done.books:
        for leg in done.study.legs:
            own = equity.filter((pl.col("policy") == policy) & (pl.col("symbol") == leg.symbol))
            total = outcome.money(leg.costs, done.books_of(policy, leg))
            assert own["equity_usd"][-1] == pytest.approx(total["net_usd"], abs=0.005)
            assert own["trades"].sum() == total["trades"]
            assert total["costs_usd"] == total["fees_usd"] + total["slippage_usd"]


@every_case
def test_the_tables_keep_their_laws(case):
    done = settled(case)
    fills = checked(Path("fills"), outcome.fills_frame(done), results.FILLS)
    trades = checked(Path("trades"), outcome.trades_frame(done), results.TRADES)
    members = checked(Path("members"), outcome.members_frame(done), results.MEMBERS)
    assert trades["lots"].abs().sum() * 2 == fills["lots"].abs().sum()
    assert members["val_net_usd"].null_count() == (members["best_epoch"] == 0).sum() == 1
    reasons = set(fills["reason"])
    if case == "limits":
        assert reasons >= {"decision", "daily-loss"}
        assert reasons & {"drawdown", "ruin"}
        assert fills.filter(pl.col("reason").is_in(["roll-out", "roll-in"]))["slippage_usd"].sum() == 0.0
    else:
        assert reasons == {"decision", "close"}
        assert (trades["lots"] > 0).all()


def with_ensemble(done: outcome.Outcome, lots: int) -> outcome.Outcome:
    """The outcome as if the ensemble had held so many contracts all the time."""
    paths = [np.append(np.full(len(account.after_lots) - 1, lots), 0) for account in done.books["flat"]]
    rows = zip(done.study.leg_by_window, done.books["flat"], paths, strict=True)
    own = [book(leg.market, account.first, path, "spread") for leg, account, path in rows]
    return dataclasses.replace(done, books=done.books | {"ensemble": own})


def test_an_empty_ledger_keeps_its_columns():
    idle = with_ensemble(settled("limits"), 0)
    assert outcome.fills_frame(idle).schema == pl.Schema(results.FILLS.schema)
    assert outcome.trades_frame(idle).schema == pl.Schema(results.TRADES.schema)
    assert outcome.fills_frame(idle).height == outcome.trades_frame(idle).height == 0


def test_a_window_counts_the_rolls_that_it_paid():
    """A long position pays for the roll within the month, and not for the one at the first bar of a month."""
    done = settled("limits")
    held = with_ensemble(done, 2)
    firsts = [leg.market.flags[window.test.first - 1] & ROLL for leg in done.study.legs for window in leg.plan.windows]
    assert [bool(at) for at in firsts] == [False, False, False, False, True]
    assert [row["rolls"] for row in outcome.per_window(held)] == [1, 0, 0, 0, 0]
    assert [int(account.rolled.sum()) for account in held.books["ensemble"]] == [2, 0, 0, 0, 0]
    assert [row["rolls"] for row in outcome.per_window(with_ensemble(done, 0))] == [0] * 5


# ---- what must not pass in silence


def test_a_path_that_breaks_a_rule_stops_the_study(monkeypatch):
    ready, state = started("limits")
    trade = engine.trade

    def disobedient(*args):
        members, ensembles = (np.array(path) for path in trade(*args))
        ensembles[2] = 4
        return members, ensembles

    monkeypatch.setattr(outcome, "trade", disobedient)
    with pytest.raises(BooksError, match=r"the book of ensemble on ES\.FUT breaks a rule .*is not flat where it must"):
        outcome.settle(ready, state)


def test_a_reward_that_the_books_do_not_have_stops_the_study(monkeypatch):
    """The books of the second symbol pay a dollar less per side, as a second cost function would."""
    ready, state = started("limits")
    cheaper = dataclasses.replace(ready.study.legs[1].costs, commission_usd=1.31)
    legs = (ready.study.legs[0], dataclasses.replace(ready.study.legs[1], costs=cheaper))

    def books_of_others(study, policy, by_window, rewards):
        return as_booked(dataclasses.replace(study, legs=legs), policy, by_window, rewards)

    as_booked = outcome._as_booked
    monkeypatch.setattr(outcome, "_as_booked", books_of_others)
    with pytest.raises(BooksError, match=r"ensemble, window 3, decision \d+: the reward is .* books have another"):
        outcome.settle(ready, state)


def test_a_window_ends_flat_and_the_next_starts_flat():
    for policy, books in settled("limits").books.items():
        assert all(account.before_lots[0] == account.after_lots[-1] == 0 for account in books), policy
