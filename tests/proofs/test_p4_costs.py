"""P4: uniform random positions on a market without drift lose their costs, and these are known in closed form.

E[cost] = c (E|p| + (T - 1) E|dp| + E|p|): one fill in, T - 1 changes, and one fill out where the range is closed.
"""

import functools
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market
from tidewalk.trading.account import book, costs_usd, gross_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.train.rollout import follow

# validity.md P4: position set, E|dp|, E|p|
SETS = [
    ((-1, 0, 1), Fraction(8, 9), Fraction(2, 3)),
    ((0, 1), Fraction(1, 2), Fraction(1, 2)),
    ((-1, 1), Fraction(1), Fraction(1)),
    ((-2, -1, 0, 1, 2), Fraction(8, 5), Fraction(6, 5)),
]
COUNT, PATHS, MOVE_TICKS = 400, 200, 8
COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)


@pytest.mark.parametrize(("positions", "mean_change", "mean_size"), SETS)
def test_the_means_of_the_design_page_are_those_of_all_pairs(positions, mean_change, mean_size):
    pairs = list(itertools.product(positions, repeat=2))
    assert Fraction(sum(abs(a - b) for a, b in pairs), len(pairs)) == mean_change
    assert Fraction(sum(map(abs, positions)), len(positions)) == mean_size


def env_of(positions: tuple[int, ...]) -> EnvConfig:
    return EnvConfig(positions=max(positions), direction="long" if min(positions) == 0 else "both")


@functools.cache
def random_paths(positions: tuple[int, ...]) -> np.ndarray:
    """Lots held, `[PATHS, COUNT]`: what the environment makes of uniform random wishes; its last decision is flat."""
    env, rng = env_of(positions), np.random.default_rng(0)
    wanted = rng.choice(positions, (PATHS, COUNT)) + env.flat
    decisions = jnp.array([3, 3 + COUNT], jnp.int32)
    every = jax.vmap(lambda market, path: follow(env, market, None, decisions, path), in_axes=(None, 0))
    held = np.asarray(jax.jit(every)(still().on_device(), jnp.asarray(wanted, jnp.int8)), np.int64)
    assert (held[:, :-1] == wanted[:, :-1]).all(), "every wish is allowed"
    return held - env.flat


def still():
    return chain_market(np.zeros(COUNT + 8, np.int64), 1, bars_per_day=24)


@pytest.mark.parametrize(("positions", "mean_change", "mean_size"), SETS)
def test_random_positions_pay_the_closed_form(positions, mean_change, mean_size):
    """A closed range of T decisions holds T - 1 random positions: T - 2 changes, one fill in and one out."""
    sides = np.array([book(still(), 3, path).sides.sum() for path in random_paths(positions)])
    expected = float(2 * mean_size + (COUNT - 2) * mean_change)
    assert sides.mean() == pytest.approx(expected, abs=4 * sides.std(ddof=1) / np.sqrt(PATHS))
    costs = [float(costs_usd(COSTS, count)) for count in sides]
    assert np.mean(costs) == pytest.approx(8.5 * sides.mean())


@pytest.mark.parametrize(("positions", "mean_change", "mean_size"), SETS)
def test_on_a_market_without_drift_the_net_is_minus_the_costs(positions, mean_change, mean_size):
    """Each path on a random walk of its own: the mean net lies within four standard errors of the expected costs."""
    rng, net = np.random.default_rng(1), []
    for path in random_paths(positions):
        market = chain_market(rng.choice([-1, 1], COUNT + 8), MOVE_TICKS, bars_per_day=24)
        own = book(market, 3, path)
        net.append(float(gross_usd(COSTS, own.gross_ticks.sum()) - costs_usd(COSTS, own.sides.sum())))
    expected = -COSTS.side_usd * float(2 * mean_size + (COUNT - 2) * mean_change)
    error = np.std(net, ddof=1) / np.sqrt(PATHS)
    assert np.mean(net) == pytest.approx(expected, abs=4 * error)
    assert 4 * error < 0.25 * -expected, "the band is narrow enough to see a cost that is missing"
