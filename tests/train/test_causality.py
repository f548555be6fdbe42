"""Nothing sees the future: bars are poisoned from some moment on, and what was decided before must not change by a bit.

Every detector is a function that fails on a leak. The last tests inject leaks into the pipeline, one for each detector,
and show that it goes red: a detector that cannot is decoration. (validity.md 1.1)
"""

import dataclasses
import datetime as dt
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from made_up_bars import TICK_E9, day_ns, hourly_contracts, prepared
from support import baseline_book, planted_signs
from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import trees
from tidewalk.data.bars import BarTable
from tidewalk.market import prepare, user_features, windows
from tidewalk.market.device import Market, MarketData
from tidewalk.market.windows import WindowConfig, WindowPlan, Windows
from tidewalk.trading import env as env_ops
from tidewalk.trading.account import book
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train.passes import Extent, scaler_of
from tidewalk.train.population import Members, Program, initial_state, longest, make_members, window_of
from tidewalk.train.rollout import rollout

BARS_PER_DAY, ROLL_AFTER = 8, 48
STEPS, EPOCHS, SEEDS = 8, 2, 2
ENV = EnvConfig(lookback=2)
MONTHS = WindowConfig(train_months=2, val_months=1, test_months=1, step_months=1)


# ---- the pipeline under test: tables -> market -> windows -> population


@functools.cache
def clean_tables() -> tuple[BarTable, ...]:
    """January to May 2024, hourly; the second contract is front from the middle of March on, when the first expires."""
    first, second = hourly_contracts(109, bars_per_day=BARS_PER_DAY, roll_after=ROLL_AFTER, seed=1)
    return (*cut([first], day_ns(dt.date(2024, 3, 16))), second)


@dataclasses.dataclass(frozen=True)
class Study:
    market: MarketData
    plan: WindowPlan
    windows: Windows


def study_of(tables) -> Study:
    """Windows without purge, so that train and validation reach as far as they ever may."""
    market = prepared(tables).market
    first_usable = market.info.first_usable + ENV.lookback - 1
    plan = windows.plan_windows(market.trade_day, "cme-globex", MONTHS, purge_bars=0, first_usable=first_usable)
    return Study(market, plan, windows.fit_windows(plan, market.features, market.move_ticks))


@functools.cache
def clean() -> Study:
    return study_of(clean_tables())


@dataclasses.dataclass(frozen=True)
class History:
    weights: list[dict[str, np.ndarray]]
    """After every vector step; leaves `[M, ...]`."""
    replay: np.ndarray
    best: dict[str, np.ndarray]
    """Parameters, score and epoch of the best epoch of every member; leaves `[M, ...]`."""
    scores: np.ndarray
    """`[epochs, M]`"""


@functools.cache
def program() -> Program:
    config = DQNConfig(hidden=(8,), batch_size=32, n_step=3)
    ranges = windows.decision_ranges(clean().plan)
    features = clean().market.features.shape[1]
    return Program(
        agent=make_dqn(config, ENV.observation_size(features), ENV.num_positions),
        env=ENV,
        num_features=features,
        lanes=32,
        capacity=2048,
        steps_per_epoch=STEPS,
        prefill_steps=20,
        episode_bars=64,
        select="reward",
        val_bars=longest(ranges["val"]) + 8,
        test_bars=longest(ranges["test"]),
        val_sessions=30,
        compose="scan",
    )


@functools.cache
def members() -> Members:
    cost = CostTicks(np.asarray(0.7, np.float32))
    return make_members(2, SEEDS, 0, cost, dqn.hyper(DQNConfig(lr=3e-3), STEPS * EPOCHS))


def first_row(rows: Windows) -> Windows:
    return window_of(rows, jnp.int32(0))


def random_table():
    """Action values that hang on every feature, so that positions change often."""
    size = ENV.observation_size(program().num_features) - ENV.num_positions
    weights = np.random.default_rng(5).standard_normal((size, 9)).astype(np.float32)
    return lambda seen: (seen @ weights).reshape(3, 3)


@functools.cache
def compiled(name: str):
    functions = {
        "start": lambda market, rows, members: phases.prefill(
            program(), market, rows, members, initial_state(program(), rows, members)
        ),
        "step": lambda *args: phases.learn_step(program(), *args[:3], phases.collect_step(program(), *args)),
        "evaluate": lambda *args: phases.evaluate_step(program(), *args),
        "play": lambda market, rows, span: (
            rollout(
                program(), market, first_row(rows), span, random_table(), limits=None, extent=Extent("scan", 128, True)
            ).positions
        ),
        "see": lambda market, rows, bars: jax.vmap(
            lambda bar: env_ops.see(ENV, market, scaler_of(first_row(rows)), bar)
        )(bars),
    }
    return jax.jit(functions[name])


def on_device(study: Study) -> tuple[Market, Windows]:
    return jax.device_put((study.market.on_device(), study.windows))


def train(study: Study) -> History:
    fixed = (*on_device(study), members())
    state = compiled("start")(*fixed)
    weights, scores = [], []
    for step in range(1, STEPS * EPOCHS + 1):
        state, means = compiled("step")(*fixed, state)
        weights.append(trees.to_named(state.agent))
        if step % STEPS == 0:
            state, score = compiled("evaluate")(*fixed, state, means["loss"])
            scores.append(np.asarray(score.score))
    best = {"params": state.best.params, "score": state.best.score, "epoch": state.best.epoch}
    return History(weights, np.asarray(state.replay), trees.to_named(best), np.stack(scores))


@functools.cache
def clean_history() -> History:
    return train(clean())


# ---- poison


def poisoned(tables, from_ns: int, to_ns: int | None = None, how: str = "huge") -> list[BarTable]:
    """The tables with other prices and volumes in bars that start in `[from_ns, to_ns)`."""
    rng, done = np.random.default_rng(99), []
    for table in tables:
        rows = (table.ts_ns >= from_ns) & (table.ts_ns < (2**62 if to_ns is None else to_ns))
        size = len(table.ts_ns)
        shift = {"huge": np.full(size, 10**6), "other": np.cumsum(rng.integers(-99, 100, size))}[how] * TICK_E9
        prices = {
            name: np.where(rows, getattr(table, name) + shift, getattr(table, name))
            for name in ("open_e9", "high_e9", "low_e9", "close_e9")
        }
        volume = np.where(rows, rng.permutation(table.volume) * 3, table.volume)
        done.append(dataclasses.replace(table, **prices, volume=volume))
    return done


def cut(tables, from_ns: int) -> list[BarTable]:
    """The tables without the bars that start at `from_ns` or later."""
    arrays = ("ts_ns", "known_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume")
    kept = [(table, table.ts_ns < from_ns) for table in tables]
    return [dataclasses.replace(table, **{name: getattr(table, name)[rows] for name in arrays}) for table, rows in kept]


# ---- the detectors


MOMENTS = (
    100,
    345,
    BARS_PER_DAY * ROLL_AFTER + 3,  # in the session whose volumes decide the roll
    BARS_PER_DAY * (ROLL_AFTER + 1) - 1,  # at its last bar, whose decision fills in the new contract
    BARS_PER_DAY * (ROLL_AFTER + 1),  # at the first bar of the new contract
    700,
)


def check_the_past_does_not_move(bar: int) -> None:
    """Bars after `bar` change, or are not there yet: nothing that was seen, done or earned up to `bar` may change."""
    study, moment_ns = study_of(clean_tables()), int(clean().market.ts_ns[bar]) + 1
    seen = compiled("see")(*on_device(study), jnp.arange(60, bar + 1))
    futures = [poisoned(clean_tables(), moment_ns, how=how) for how in ("huge", "other")]
    for tables in (*futures, cut(clean_tables(), moment_ns)):
        other = prepared(tables).market
        assert np.array_equal(other.ts_ns[: bar + 1], study.market.ts_ns[: bar + 1])
        for name in ("features", "session_id", "contract_id", "close_move_ticks", "open_e9", "exit_open_e9"):
            assert getattr(other, name)[: bar + 1].tobytes() == getattr(study.market, name)[: bar + 1].tobytes(), name
        # the mark of decision t is the open of bar t+2
        assert np.array_equal(other.move_ticks[: bar - 1], study.market.move_ticks[: bar - 1])
        assert np.array_equal(other.flags[: bar - 1], study.market.flags[: bar - 1])
        on_other = jax.device_put((other.on_device(), study.windows))
        assert np.array_equal(compiled("see")(*on_other, jnp.arange(60, bar + 1)), seen)


def check_actions_of_the_past_do_not_move(bar: int) -> None:
    """A greedy pass across the moment: positions decided up to `bar`, and their money as far as it is marked then."""
    study = study_of(clean_tables())
    tables = poisoned(clean_tables(), int(clean().market.ts_ns[bar]) + 1)
    other = dataclasses.replace(study, market=prepared(tables).market)
    first, books = bar - 60, []
    for one in (study, other):
        lots = np.asarray(compiled("play")(*on_device(one), jnp.array([first, first + 120], jnp.int32)), np.int64)
        books.append(book(one.market, first, lots[:120] - ENV.flat))
    decided, marked = bar + 1 - first, bar - 1 - first
    assert len(np.unique(books[0].after_lots[:decided])) > 1
    assert np.array_equal(books[0].after_lots[:decided], books[1].after_lots[:decided])
    assert np.array_equal(books[0].gross_ticks[:marked], books[1].gross_ticks[:marked])
    assert not np.array_equal(books[0].after_lots, books[1].after_lots), "the poison must reach the decisions after it"


def check_fills(market: MarketData, tables) -> None:
    """Decision t fills at the open of bar t+1 and is marked at the open of bar t+2, both of the contract of bar t+1."""
    opens = {(one.contract, int(ts)): int(p) for one in tables for ts, p in zip(one.ts_ns, one.open_e9, strict=True)}
    for t in range(market.num_bars - 2):
        held = market.info.contracts[market.contract_id[t + 1]]
        filled, marked = (opens[held, int(market.ts_ns[t + k])] for k in (1, 2))
        assert market.move_ticks[t] == (marked - filled) // TICK_E9, t


def same(one: History, other: History, window: int, names: tuple[str, ...]) -> None:
    rows = slice(window * SEEDS, (window + 1) * SEEDS)
    if "weights" in names:
        for step, (left, right) in enumerate(zip(one.weights, other.weights, strict=True)):
            for name in left:
                assert left[name][rows].tobytes() == right[name][rows].tobytes(), (window, step, name)
        assert one.replay[:, rows].tobytes() == other.replay[:, rows].tobytes(), window
    if "best" in names:
        for name in one.best:
            assert one.best[name][rows].tobytes() == other.best[name][rows].tobytes(), (window, name)


def check_train_tail(window: int) -> None:
    """From the first bar after the train months on all is poison: scaler, replay and all weights of the window stay."""
    study = study_of(clean_tables())
    stop = study.plan.windows[window].train.stop
    before = train(study)
    for last in (stop + 1, None):
        to_ns = None if last is None else int(study.market.ts_ns[last])
        other = study_of(poisoned(clean_tables(), int(study.market.ts_ns[stop]), to_ns))
        for name in ("center", "scale", "reward_scale"):
            left, right = (np.asarray(getattr(one.windows, name))[window] for one in (study, other))
            assert left.tobytes() == right.tobytes(), name
        same(before, train(other), window, ("weights",))


def check_test_months(window: int) -> None:
    """The test months are poison: weights, replay and the chosen epoch of the window stay."""
    study = study_of(clean_tables())
    first_ns = int(study.market.ts_ns[study.plan.windows[window].test.first])
    same(train(study), train(study_of(poisoned(clean_tables(), first_ns))), window, ("weights", "best"))


# ---- the pipeline as it is


@pytest.mark.parametrize("bar", MOMENTS)
def test_bars_after_a_moment_change_nothing_up_to_it(bar):
    check_the_past_does_not_move(bar)


@pytest.mark.parametrize("bar", [MOMENTS[1], MOMENTS[3], MOMENTS[5]])
def test_actions_and_rewards_up_to_a_moment_do_not_know_what_follows(bar):
    check_actions_of_the_past_do_not_move(bar)


def test_every_decision_fills_at_the_next_open_and_is_marked_at_the_one_after():
    check_fills(clean().market, clean_tables())
    assert set(clean().market.contract_id) == {0, 1}


@pytest.mark.parametrize("window", [0, 1])
def test_bars_after_the_train_months_reach_neither_replay_nor_weights(window):
    check_train_tail(window)


@pytest.mark.parametrize("window", [0, 1])
def test_one_bar_earlier_the_poison_shows(window):
    """The last open of the train months marks the last train decision, and its features are part of the scaler."""
    bar = clean().plan.windows[window].train.stop - 1
    edges = (int(clean().market.ts_ns[bar]), int(clean().market.ts_ns[bar + 1]))
    other = study_of(poisoned(clean_tables(), *edges))
    assert windows.decision_ranges(clean().plan)["train"][window, 1] - 1 == bar - 2
    assert other.market.move_ticks[bar - 2] != clean().market.move_ticks[bar - 2]
    assert not np.array_equal(clean().windows.scale[window], other.windows.scale[window])
    assert other.windows.reward_scale[window] != clean().windows.reward_scale[window]


@pytest.mark.parametrize("window", [0, 1])
def test_test_months_change_neither_weights_nor_the_chosen_epoch(window):
    check_test_months(window)


def test_validation_months_choose_and_never_teach():
    """Other bars in the validation months of the last window: its weights stay step by step, its scores do not."""
    span = clean().plan.windows[1].val
    edges = (int(clean().market.ts_ns[span.first]), int(clean().market.ts_ns[span.stop]))
    other = train(study_of(poisoned(clean_tables(), *edges, how="other")))
    same(clean_history(), other, 1, ("weights",))
    assert not np.array_equal(clean_history().scores[:, 2:], other.scores[:, 2:])


# ---- lag and shuffle: a planted edge must vanish as the closed form says


def planted_study(persistence: float = 0.7, length: int = 12_000):
    """A sign chain in one contract: open = close before, every move 10 ticks."""
    close = 40_000 + 10 * np.cumsum(planted_signs(length, persistence, seed=5))
    opened = np.concatenate([[40_000], close[:-1]])
    ohlc = np.stack([opened, np.maximum(opened, close), np.minimum(opened, close), close], axis=1)
    (old, _) = hourly_contracts(length // 24, bars_per_day=24)
    prices = dict(zip(("open_e9", "high_e9", "low_e9", "close_e9"), (ohlc * TICK_E9).T.copy(), strict=True))
    return prepared([dataclasses.replace(old, ts_ns=old.ts_ns, **prices)]).market


def mean_moves(market: MarketData, lots: np.ndarray, cost_ticks: float = 1.0) -> float:
    account = book(market, 10, np.append(lots[:-1], 0))
    return (account.gross_ticks.sum() - cost_ticks * account.sides.sum()) / len(lots) / 10


def check_planted_edge(market: MarketData) -> None:
    """Following the last sign earns .4 - .6 c = .34 moves a bar; a bar later (.7^2 + .3^2 = .58) .16 - .6 c = .10."""
    count = market.num_bars - 30
    followed = baseline_book("momentum", market, EnvConfig(), 10, count).after_lots
    error = 4 * 0.97 / np.sqrt(count)  # sd of the sum over 10,000 bars is 97 moves (validity.md P2)
    assert mean_moves(market, followed) == pytest.approx(0.34, abs=error)
    assert mean_moves(market, np.concatenate([[0], followed[:-1]])) == pytest.approx(0.10, abs=1.5 * error)


def test_a_planted_edge_pays_as_the_closed_form_says_and_less_when_a_bar_late():
    check_planted_edge(planted_study())


def test_a_shuffled_market_pays_nothing():
    market = planted_study(persistence=0.5)
    count = market.num_bars - 30
    followed = baseline_book("momentum", market, EnvConfig(), 10, count).after_lots
    assert mean_moves(market, followed) == pytest.approx(-0.10, abs=4 / np.sqrt(count))


# ---- mutation: every detector can go red


def test_a_feature_of_the_next_bar_is_found(monkeypatch):
    build = user_features.build_default

    def of_the_next_bar(bars):
        return build(bars).with_columns(build(bars)["ret_1"].shift(-1).fill_null(0.0))

    monkeypatch.setattr(user_features, "build_default", of_the_next_bar)
    for bar in MOMENTS:
        with pytest.raises(AssertionError, match="features"):
            check_the_past_does_not_move(bar)
    with pytest.raises(AssertionError):
        check_actions_of_the_past_do_not_move(MOMENTS[1])


def test_a_scaler_of_all_rows_is_found(monkeypatch):
    fit = windows.fit_windows

    def of_all_rows(plan, features, move_ticks):
        fitted = fit(plan, features, move_ticks)
        mean, std = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
        rows = np.ones((len(plan.windows), 1), np.float32)
        scale = 1 / np.maximum(std, 1e-6)
        return dataclasses.replace(fitted, center=rows * mean.astype(np.float32), scale=rows * scale.astype(np.float32))

    monkeypatch.setattr(windows, "fit_windows", of_all_rows)
    with pytest.raises(AssertionError, match="center"):
        check_train_tail(1)
    with pytest.raises(AssertionError):
        check_test_months(1)


def test_a_fill_at_the_observed_bars_own_open_is_found(monkeypatch):
    moves = prepare.moves

    def too_early(series, spec):
        found = moves(series, spec)
        return np.concatenate([[0], found[0][:-1]]).astype(np.int32), *found[1:]

    monkeypatch.setattr(prepare, "moves", too_early)
    with pytest.raises(AssertionError):
        check_fills(study_of(clean_tables()).market, clean_tables())
    with pytest.raises(AssertionError):
        check_planted_edge(planted_study())


def test_train_decisions_beyond_the_train_months_are_found(monkeypatch):
    ranges = windows.decision_ranges

    def too_long(plan):
        found = ranges(plan)
        return found | {"train": found["train"] + np.array([0, 2], np.int32)}

    monkeypatch.setattr(windows, "decision_ranges", too_long)
    with pytest.raises(AssertionError):
        check_train_tail(1)


def test_an_epoch_chosen_with_a_bar_of_the_test_months_is_found(monkeypatch):
    ranges = windows.decision_ranges

    def too_long(plan):
        found = ranges(plan)
        return found | {"val": found["val"] + np.array([0, 2], np.int32)}

    monkeypatch.setattr(windows, "decision_ranges", too_long)
    with pytest.raises(AssertionError):
        check_test_months(1)
