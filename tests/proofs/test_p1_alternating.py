"""P1: a market that goes up and down in turn. The best mean per bar is max(1 - 2c, (1 - 2c) / 2, 0) moves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from planted_lab import ENV, MOVE_TICKS, TURN, TURN_TOO_DEAR, Lab, Task, make_lab, traded_lots, train, trained
from support import chain_market
from tidewalk.agents.dqn import DQNConfig
from tidewalk.trading.account import book
from tidewalk.trading.costs import CostTicks
from tidewalk.train.oracle import hindsight

# validity.md P1; at c = .4 being long every other bar (.1) is worse than always turning (.2)
CLOSED_FORM = [(0.0, 1.0), (0.1, 0.8), (0.25, 0.5), (0.4, 0.2), (0.5, 0.0), (0.6, 0.0), (1.0, 0.0)]


def best_mean(cost: float) -> float:
    return max(1 - 2 * cost, (1 - 2 * cost) / 2, 0.0)


def test_the_closed_form_is_that_of_the_design_page():
    assert [best_mean(cost) for cost, _ in CLOSED_FORM] == pytest.approx([mean for _, mean in CLOSED_FORM])


@pytest.mark.parametrize(("cost", "mean"), CLOSED_FORM)
def test_hindsight_earns_the_closed_form_to_the_tick(cost, mean):
    """Over n decisions the first turn costs one side less, the last decision closes and pays one."""
    count = 900
    data = chain_market(np.tile([1, -1], 500), MOVE_TICKS, bars_per_day=24)
    side_ticks = cost * MOVE_TICKS
    cost = CostTicks(np.array([side_ticks], np.float32))
    spans = jnp.array([[10, 10 + count]], jnp.int32)
    found = hindsight(ENV, jax.device_put(data.on_device()), spans, cost, bars=count, compose="scan")
    account = book(data, 10, np.asarray(found[0], np.int64) - ENV.flat)
    net = account.gross_ticks.sum() - side_ticks * account.sides.sum()
    # n-1 moves, n-2 turns of two sides, one side in and one out; nothing where that is not worth it
    turning = (count - 1) * MOVE_TICKS - side_ticks * (2 * (count - 2) + 2)
    assert net == pytest.approx(max(turning, 0.0), abs=1e-6)
    assert net / count / MOVE_TICKS == pytest.approx(mean, abs=2 / count)


def check_learned(lab: Lab, paths: dict[Task, np.ndarray], task: Task) -> None:
    lots = paths[task]
    account = book(lab.data, int(lab.windows.test[lab.tasks.index(task), 0]), lots)
    mean = (account.gross_ticks.sum() - task.cost * account.sides.sum()) / len(lots) / MOVE_TICKS
    assert mean == pytest.approx(task.mean, abs=2e-3), task
    if task.cost > 0.5 * MOVE_TICKS:
        assert not lots.any(), f"{task}: the agent must stay flat"
    else:
        assert set(lots[:-1].tolist()) == {-1, 1}, f"{task}: the agent must turn at every bar"


@pytest.mark.parametrize("task", [TURN, TURN_TOO_DEAR], ids=["it pays", "it does not"])
def test_the_agent_learns_to_turn_at_every_bar_where_that_pays_and_to_stay_flat_where_not(task):
    lab, _, paths = trained()
    check_learned(lab, paths, task)


@pytest.mark.slow
def test_the_agent_learns_the_closed_form_at_every_cost():
    costs = (0.0, 0.1, 0.25, 0.4, 0.6, 1.0)
    tasks = [Task(0.0, cost * MOVE_TICKS, cost * MOVE_TICKS, best_mean(cost)) for cost in costs]
    config = DQNConfig(hidden=(32,), lr=1e-3, tau=0.01)
    lab = make_lab(tasks, config, train=8_000, steps=300, epochs=6, seeds=3)
    paths = traded_lots(lab, train(lab, 6))
    for task in tasks:
        check_learned(lab, paths, task)
