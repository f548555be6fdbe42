"""P8: shuffling. What lies ahead may be shuffled without a trace behind it; shuffling everything destroys the edge."""

import dataclasses
import datetime as dt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from made_up_bars import day_ns, hourly_contracts, prepared
from support import chain_market, planted_signs
from tidewalk.data.bars import BarTable
from tidewalk.market.device import MarketData
from tidewalk.market.windows import Windows
from tidewalk.trading.account import book
from tidewalk.trading.env import EnvConfig
from tidewalk.train.passes import Extent
from tidewalk.train.population import window_of
from tidewalk.train.rollout import rollout
from worlds import make_world

BARS_PER_DAY = 8
COLUMNS = ("open_e9", "high_e9", "low_e9", "close_e9", "volume")


# ---- what lies ahead


def contracts() -> list[BarTable]:
    """Two contracts; the second one is front from session 48 on."""
    return hourly_contracts(80, bars_per_day=BARS_PER_DAY, roll_after=48, seed=1)


def shuffled_after(tables: list[BarTable], moment_ns: int, seed: int) -> list[BarTable]:
    """The tables with the bars that start after a moment in another order, the same in all contracts."""
    later = np.flatnonzero(tables[0].ts_ns > moment_ns)
    order = np.arange(len(tables[0].ts_ns))
    order[later] = np.random.default_rng(seed).permutation(later)
    return [dataclasses.replace(t, **{name: getattr(t, name)[order] for name in COLUMNS}) for t in tables]


def greedy_path(market: MarketData, first: int, count: int) -> np.ndarray:
    """Positions of a policy that hangs on every feature."""
    world = make_world(data=market, windows=1, seeds=1, env=EnvConfig(positions=2))
    weights = np.random.default_rng(5).standard_normal((market.features.shape[1], 25)).astype(np.float32)

    def table(seen):
        return (seen @ weights).reshape(5, 5)

    def play(arrays, windows: Windows):
        window, span = window_of(windows, jnp.int32(0)), jnp.array([first, first + count], jnp.int32)
        extent = Extent("scan", count, with_path=True)
        return rollout(world.program, arrays, window, span, table, limits=None, extent=extent).positions

    return np.asarray(jax.jit(play)(world.market, world.windows), np.int64) - 2


@pytest.mark.parametrize("bar", [300, 48 * BARS_PER_DAY - 1, 48 * BARS_PER_DAY + 5])
def test_shuffling_the_bars_after_a_moment_changes_nothing_up_to_it(bar):
    """Features, prices and contracts of the past, positions decided in it, and their money as far as it is marked."""
    one = prepared(contracts()).market
    other = prepared(shuffled_after(contracts(), int(one.ts_ns[bar]), seed=bar)).market
    for name in ("features", "session_id", "contract_id", "close_move_ticks", "open_e9", "exit_open_e9"):
        assert getattr(one, name)[: bar + 1].tobytes() == getattr(other, name)[: bar + 1].tobytes(), name
    first, count = bar - 80, 160
    paths = [greedy_path(market, first, count) for market in (one, other)]
    books = [book(market, first, path) for market, path in zip((one, other), paths, strict=True)]
    decided, marked = bar + 1 - first, bar - 1 - first
    assert len(np.unique(paths[0][:decided])) == 5
    assert paths[0][:decided].tolist() == paths[1][:decided].tolist()
    assert books[0].gross_ticks[:marked].tolist() == books[1].gross_ticks[:marked].tolist()
    assert books[0].sides[:decided].tolist() == books[1].sides[:decided].tolist()
    assert paths[0].tolist() != paths[1].tolist(), "the shuffle must reach the decisions after it"


# ---- everything

COUNT, SHUFFLES = 150, 79


def followed_ticks(signs: np.ndarray) -> np.ndarray:
    """Gross result of following the last sign on markets `[..., COUNT + 3]`, by the books of each."""
    results = []
    for row in signs.reshape(-1, signs.shape[-1]):
        market = chain_market(row, 1, bars_per_day=24, extra_features=0)
        lots = row[:COUNT].copy()
        lots[-1] = 0
        results.append(book(market, 0, lots).gross_ticks.sum())
    return np.array(results).reshape(signs.shape[:-1])


def permutation_p(signs: np.ndarray, rng: np.random.Generator) -> float:
    """Share of shuffles of all moves that earn as much as the market itself, the market counted among them."""
    shuffled = np.stack([rng.permutation(signs) for _ in range(SHUFFLES)])
    own, others = followed_ticks(signs), followed_ticks(shuffled)
    ties = rng.random() * (1 + (others == own).sum())  # ties are broken at random, so that p is uniform
    return float(((others > own).sum() + ties) / (SHUFFLES + 1))


def test_shuffling_all_moves_destroys_a_planted_edge():
    """Following a chain of persistence .7 earns .4 a bar; shuffled it earns 0 within four standard errors."""
    rng = np.random.default_rng(0)
    signs = planted_signs(COUNT + 3, 0.7, seed=1)
    shuffled = followed_ticks(np.stack([rng.permutation(signs) for _ in range(400)])) / (COUNT - 1)
    assert followed_ticks(signs) / (COUNT - 1) == pytest.approx(0.4, abs=4 * 0.92 / np.sqrt(COUNT))
    drift = signs.mean() ** 2  # what following earns on average where signs are independent
    assert shuffled.mean() == pytest.approx(drift, abs=4 / np.sqrt(400 * COUNT))
    assert permutation_p(signs, rng) <= 2 / (SHUFFLES + 1)


def p_values(markets: int) -> list[float]:
    rng = np.random.default_rng(2)
    return [permutation_p(planted_signs(COUNT + 3, 0.5, seed=100 + k), rng) for k in range(markets)]


def test_the_p_value_of_shuffling_is_uniform_on_noise():
    """Kolmogorov-Smirnov on 40 noise markets at 99.9 %; an edge or a leak would push the values to 0."""
    assert scipy.stats.kstest(p_values(40), "uniform").pvalue > 0.001


@pytest.mark.slow
def test_the_p_value_of_shuffling_is_uniform_on_much_noise():
    """The same on 500 markets; at the level of 5 % at most 41 may be below (99.9 % of the binomial)."""
    values = np.array(p_values(500))
    assert scipy.stats.kstest(values, "uniform").pvalue > 0.001
    assert (values < 0.05).sum() <= 41


def test_every_day_of_the_calendar_is_there():
    """The moments above lie before, at and after the roll."""
    market = prepared(contracts()).market
    assert market.contract_id[48 * BARS_PER_DAY - 1] != market.contract_id[49 * BARS_PER_DAY]
    assert market.ts_ns[0] >= day_ns(dt.date(2024, 1, 2))
