"""What a study is measured by on its test months: baselines and random policies, under its own costs and rules."""

from collections.abc import Sequence

import numpy as np

from tidewalk.run.engine import Stage
from tidewalk.run.study import Study
from tidewalk.trading.account import Book, net_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import Tally
from tidewalk.train import random_timing
from tidewalk.train.baselines import baseline_paths
from tidewalk.train.passes import Extent
from tidewalk.train.rollout import stretches_in_test


def test_span(study: Study, window: int) -> tuple[int, int]:
    """First decision, in bars of its symbol, and number of decisions of a window's test range."""
    first, stop = (int(edge) for edge in np.asarray(study.windows.test)[window])
    return first - study.leg_by_window[window].first_bar, stop - first


def trade_baselines(engine: Stage) -> dict[str, np.ndarray]:
    """Positions of every baseline over the test months, name -> `[W, H]` int8."""
    study = engine.study
    legs = enumerate(study.leg_by_window)
    return baseline_paths(
        study.program.env,
        engine.resident.market,
        study.limits,
        np.asarray(study.windows.test),
        [(leg.market, test_span(study, window)[0]) for window, leg in legs],
        extent=_extent(study),
    )


def _extent(study: Study) -> Extent:
    program = study.program
    return Extent(program.compose, program.test_bars, stretches=stretches_in_test(program))


def random_nets_usd(engine: Stage, books: Sequence[Book], positions: np.ndarray) -> np.ndarray:
    """Net results of the agent's paths and of `DRAWS` rotations of them in time, USD.

    Args:
        engine: the study on its device.
        books: the agent's book of every window.
        positions: the same paths as position indices, `[W, H]` int8.

    Returns:
        `[W, 1 + DRAWS]`, the agent's own first.
    """
    study = engine.study
    env, legs = study.program.env, study.leg_by_window
    is_free = np.zeros(positions.shape, bool)
    for window, leg in enumerate(legs):
        first, count = test_span(study, window)
        is_free[window, :count] = random_timing.free_rows(leg.market, env, first, count)
    shifts = random_timing.draw_shifts(is_free.sum(axis=1).tolist())
    if not random_timing.has_memory(env, study.limits):
        rows = zip(legs, books, shifts, strict=True)
        return np.array([random_timing.nets_usd(leg.market, env, book, leg.costs, row) for leg, book, row in rows])
    done = random_timing.tallies_under_rules(
        env,
        engine.resident.market,
        study.limits,
        np.asarray(study.windows.test),
        positions,
        is_free,
        shifts,
        _extent(study),
    )
    return np.array([_net_usd(leg.costs, done, window) for window, leg in enumerate(legs)])


def _net_usd(costs: Costs, done: Tally, window: int) -> np.ndarray:
    counted = {name: part[window] for name, part in vars(done).items() if part is not None}
    return np.asarray(net_usd(costs, **counted))
