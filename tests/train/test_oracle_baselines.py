import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_market, planted_signs, random_half_spreads, with_half_spreads
from tidewalk.market.device import CLOSING
from tidewalk.trading.account import allowed, book
from tidewalk.trading.env import EnvConfig
from tidewalk.train.baselines import NAMES, Path, baseline_book, timing_percentile
from tidewalk.train.oracle import hindsight


def net_ticks(data, first, lots, cost):
    account = book(data, first, lots)
    return account.gross_ticks.sum() - cost * account.sides.sum() - account.crossed_ticks.sum()


def costs_of(*by_window):
    return jnp.asarray(by_window, jnp.float32)


@pytest.mark.parametrize("env", [EnvConfig(), EnvConfig(flat_at_close=True)])
@pytest.mark.parametrize(("cost", "is_recorded"), [(0.0, False), (1.5, False), (20.0, False), (0.0, True), (0.5, True)])
def test_hindsight_equals_the_best_of_all_paths(env, cost, is_recorded):
    data = chain_market(planted_signs(40, 0.5, seed=4), 3, bars_per_day=4, roll_at=12)
    data = random_half_spreads(data) if is_recorded else data
    first, count = 7, 9
    best = max(
        net_ticks(data, first, allowed(data, env, first, np.array([*path, 0])), cost)
        for path in itertools.product((-1, 0, 1), repeat=count - 1)
    )
    found = hindsight(env, data.on_device(), jnp.array([[first, first + count]], jnp.int32), costs_of(cost), bars=16)
    lots = np.asarray(found[0], np.int64)[:count] - env.flat
    assert np.array_equal(lots, allowed(data, env, first, lots))
    assert net_ticks(data, first, lots, cost) == pytest.approx(best)


# validity.md P1: alternating market, mean reward per bar max(1 - 2c, (1 - 2c) / 2, 0)
@pytest.mark.parametrize(("cost", "mean"), [(0.0, 1.0), (0.1, 0.8), (0.25, 0.5), (0.6, 0.0)])
def test_hindsight_of_the_alternating_market_is_the_closed_form(cost, mean):
    data = chain_market(np.tile([1, -1], 500), 1, bars_per_day=24)
    found = hindsight(EnvConfig(), data.on_device(), jnp.array([[10, 910]], jnp.int32), costs_of(cost), bars=900)
    lots = np.asarray(found[0], np.int64) - 1
    assert net_ticks(data, 10, lots, cost) / 900 == pytest.approx(mean, abs=3e-3)


def test_no_policy_beats_the_hindsight_bound():
    data = planted_market(days=20)
    env = EnvConfig()
    bound = (
        np.asarray(
            hindsight(env, data.on_device(), jnp.array([[0, 470]], jnp.int32), costs_of(1.0), bars=470)[0], np.int64
        )
        - 1
    )
    best = net_ticks(data, 0, bound, 1.0)
    rng = np.random.default_rng(0)
    others = [allowed(data, env, 0, rng.integers(-1, 2, 470)) for _ in range(50)]
    others += [baseline_book(name, data, env, 0, 470).after_lots for name in NAMES]
    assert all(net_ticks(data, 0, lots, 1.0) <= best for lots in others)


def test_baselines_hold_what_their_names_say():
    data = planted_market(days=5)
    env = EnvConfig(positions=2)
    assert (baseline_book("long", data, env, 3, 50).after_lots[:-1] == 2).all()
    assert (baseline_book("short", data, env, 3, 50).after_lots[:-1] == -2).all()
    assert not baseline_book("flat", data, env, 3, 50).after_lots.any()
    momentum = baseline_book("momentum", data, env, 3, 50).after_lots
    assert np.array_equal(momentum[:-1], 2 * np.sign(data.close_move_ticks[3:52]))


# validity.md P2: following the sign earns .4 - .6 c per bar at P = .7
def test_momentum_on_the_planted_chain_earns_the_closed_form():
    data = planted_market(days=4000)
    count = len(data.move_ticks) - 3
    account = baseline_book("momentum", data, EnvConfig(), 0, count)
    mean = (account.gross_ticks.sum() - 1.0 * account.sides.sum()) / count / 10
    assert mean == pytest.approx(0.34, abs=4 * 0.92 / np.sqrt(count) * 1.5)


def test_timing_percentile_is_high_for_skill_and_half_for_a_constant_position():
    data = planted_market(days=200)
    rank = {name: timing_percentile([Path(data, baseline_book(name, data, EnvConfig(), 0, 4000))]) for name in NAMES}
    assert (rank["momentum"], rank["long"], rank["flat"]) == (1.0, 0.5, None)


def test_timing_percentile_ranks_by_brute_force_rotation():
    data = planted_market(days=3)
    path = book(data, 2, allowed(data, EnvConfig(), 2, np.random.default_rng(1).integers(-1, 2, 31)))
    held, move = path.after_lots[:-1], data.move_ticks[2:32]
    every = np.array([np.sum(np.roll(held, k) * move) for k in range(30)])
    own = path.gross_ticks.sum()
    exact = np.mean((every < own) + 0.5 * (every == own))
    assert timing_percentile([Path(data, path)], draws=200_000) == pytest.approx(exact, abs=0.01)


def test_random_timing_of_an_unskilled_policy_is_uniform():
    data = chain_market(planted_signs(3000, 0.5, seed=9), 3, bars_per_day=24)
    rng = np.random.default_rng(2)
    ranks = [
        timing_percentile(
            [Path(data, book(data, 0, allowed(data, EnvConfig(), 0, np.repeat(rng.integers(-1, 2, 250), 10))))],
            draws=200,
        )
        for _ in range(60)
    ]
    assert 0.35 < np.mean(ranks) < 0.65
    assert min(ranks) < 0.2
    assert max(ranks) > 0.8


def test_random_timing_keeps_out_of_session_breaks_where_the_agent_must():
    """A market that moves over session breaks only: who must be flat there earns nothing, random policies too."""
    data = planted_market(days=40)
    over_a_break = np.isin(np.arange(len(data.move_ticks)), np.flatnonzero(data.flags & CLOSING))
    data = dataclasses.replace(data, move_ticks=np.where(over_a_break, data.move_ticks, 0).astype(np.int32))
    env = EnvConfig(flat_at_close=True)
    own = [Path(data, book(data, 0, allowed(data, env, 0, np.random.default_rng(0).integers(-1, 2, 900))))]
    assert timing_percentile(own, flat_at_close=True) == 0.5
    assert timing_percentile(own, draws=50) != 0.5


def test_hindsight_pays_the_costs_of_each_window():
    """Two windows over the same bars, one so dear that nothing is worth a trade."""
    data = planted_market(days=3)
    spans = jnp.array([[5, 60], [5, 60]], jnp.int32)
    cheap, dear = np.asarray(hindsight(EnvConfig(), data.on_device(), spans, costs_of(0.5, 1e6), bars=55))
    assert len(np.unique(cheap)) > 1
    assert (dear == 1).all()


def test_random_timing_pays_the_spreads_of_the_bars_it_fills_in():
    """A still market that is cheap at one hour of the day: who trades then beats who trades at a random hour."""
    length, hour = 24 * 20, np.arange(24 * 20) % 24
    still = chain_market(np.zeros(length, np.int64), 1, bars_per_day=24)
    data = with_half_spreads(still, np.where(np.isin(hour, (7, 8)), 0.5, 5.0))
    wanted = (hour[: length - 3] == 6).astype(np.int64)  # decided at 6, filled at 7, out at 8
    paths = [Path(data, book(data, 0, allowed(data, EnvConfig(), 0, wanted)))]
    rotated = np.array([_net_of_rotation(data, paths[0].account, k) for k in range(len(wanted) - 1)])
    exact = np.mean((rotated < rotated[0]) + 0.5 * (rotated == rotated[0]))
    assert timing_percentile(paths, draws=100_000) == pytest.approx(exact, abs=0.01)
    assert exact > 0.95
    assert timing_percentile([Path(still, book(still, 0, allowed(still, EnvConfig(), 0, wanted)))]) == 0.5


def _net_of_rotation(data, account, k):
    """Ticks of the path and its fills moved by `k` bars, around the end."""
    count = len(account.after_lots) - 1
    held, sides = (np.roll(part[:count], k) for part in (account.after_lots, account.sides))
    return (held * data.move_ticks[:count]).sum() - (sides * data.half_spread_ticks[1 : count + 1]).sum()


def test_paths_of_several_markets_are_weighed_by_the_worth_of_their_ticks():
    """Skill in one market and its mirror image in another cancel in ticks, not in money."""
    data = planted_market(days=100)
    good = baseline_book("momentum", data, EnvConfig(), 0, 2000)
    bad = book(data, 0, -good.after_lots)
    assert timing_percentile([Path(data, good, 10.0), Path(data, bad, 1.0)]) > 0.95
    assert timing_percentile([Path(data, good, 1.0), Path(data, bad, 10.0)]) < 0.05
