"""A small market of hourly bars with a roll, and the compiled bench of an audit on it, shared by its tests."""

import datetime as dt
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from made_up_bars import day_ns, hourly_contracts, loaded
from tidewalk.agents.dqn import DQNConfig
from tidewalk.data.bars import Loaded
from tidewalk.data.load import DataConfig
from tidewalk.market import prepare
from tidewalk.market.prepare import SeriesConfig, features_of
from tidewalk.market.windows import WindowConfig
from tidewalk.run.audit import bench as benches
from tidewalk.run.audit import poison, series
from tidewalk.run.audit.bench import Bench, Markets, Run
from tidewalk.run.audit.series import Source
from tidewalk.run.settings import RunConfig
from tidewalk.trading.env import EnvConfig

BARS_PER_DAY, ROLL_AFTER, EPOCHS = 22, 48, 2
CONFIG = RunConfig(
    data=DataConfig(Path(), "ES.FUT"),
    windows=WindowConfig(train_months=1, val_months=1, test_months=1, step_months=1),
    env=EnvConfig(lookback=2),
    dqn=DQNConfig(n_step=3),
)


@functools.cache
def tables() -> Loaded:
    """January to March 2024; the second contract is front from the 11th of March on, and the first ends on the 15th."""
    first, second = hourly_contracts(64, bars_per_day=BARS_PER_DAY, roll_after=ROLL_AFTER, seed=1)
    ended = poison.without_future(loaded([first]), day_ns(dt.date(2024, 3, 16)))
    return loaded([*ended.tables, second])


def source() -> Source:
    """The bars, with the front contract that `prepare` chooses now."""
    return series.source_of(tables(), SeriesConfig())


def markets(config: RunConfig = CONFIG) -> Markets:
    """Markets of the bars, made as `prepare` makes them now."""
    return benches.markets_of_front(source().front, features_of(SeriesConfig()), config)


@functools.cache
def bench() -> Bench:
    """Compiled programs of the pipeline as it is."""
    return benches.bench_of(CONFIG, markets(), EPOCHS)


@functools.cache
def base() -> Run:
    """The training on the bars as they are, by the pipeline as it is."""
    return benches.train(bench(), bench().markets.base)


def with_moves(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., object]:
    """The moves of a market as `prepare` makes them, changed."""
    original = prepare.moves

    def moves(front: object, spec: object) -> object:
        found = original(front, spec)
        return change(found[0]).astype(np.int32), *found[1:]

    return moves


MOVES = {
    "filled at the observed bar's own open": lambda moves: np.concatenate([[0], moves[:-1]]),
    "filled a bar late": lambda moves: np.concatenate([moves[1:], [0]]),
    "marked a bar late": lambda moves: moves + np.concatenate([moves[1:], [0]]),
    "filled at the observed bar's own open, after a roll alone": lambda moves: np.where(
        np.arange(len(moves)) == BARS_PER_DAY * (ROLL_AFTER + 1), np.roll(moves, 1), moves
    ),
}
