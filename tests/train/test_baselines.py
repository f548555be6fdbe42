"""Baselines: what they hold on series worked out by hand, that they see no future, and that they obey the rules."""

import dataclasses

import jax
import numpy as np
import pytest

from support import baseline_book, chain_market, planted_market
from tidewalk.market.device import LAST_OF_SESSION, NO_ENTRY, MarketData
from tidewalk.trading.account import book
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig, resolve
from tidewalk.trading.verify import verify_book
from tidewalk.train import baselines
from tidewalk.train.baselines import NAMES, baseline_paths, wanted
from tidewalk.train.passes import Extent

ENV = EnvConfig()


def market_of(moves: list[int] | np.ndarray, sessions: list[int] | None = None) -> MarketData:
    """A market of given close-to-close moves in ticks, all in one session unless said otherwise."""
    data = chain_market(np.asarray(moves, np.int64), 1, bars_per_day=len(moves))
    if sessions is None:
        return data
    session_id = np.array(sessions, np.int32)
    flags = np.where(np.append(session_id[1:] != session_id[:-1], True), LAST_OF_SESSION, 0).astype(np.int32)
    return dataclasses.replace(data, session_id=session_id, flags=flags)


def sides(name: str, data: MarketData, env: EnvConfig = ENV) -> list[int]:
    """Signed levels that a baseline wants at every bar, in units of the largest position."""
    held = wanted(name, data, env).astype(int) - env.flat
    assert not (held % env.positions).any()
    return (held // env.positions).tolist()


def random_walk(bars: int = 400, seed: int = 5) -> MarketData:
    rng = np.random.default_rng(seed)
    return market_of(rng.integers(-3, 4, bars), np.repeat(np.arange(bars // 10), 10).tolist())


def test_baselines_hold_what_their_names_say():
    data = planted_market(days=5)
    env = EnvConfig(positions=2)
    assert (baseline_book("long", data, env, 3, 50).after_lots[:-1] == 2).all()
    assert (baseline_book("short", data, env, 3, 50).after_lots[:-1] == -2).all()
    assert not baseline_book("flat", data, env, 3, 50).after_lots.any()
    momentum = baseline_book("momentum", data, env, 3, 50).after_lots
    assert np.array_equal(momentum[:-1], 2 * np.sign(data.close_move_ticks[3:52]))
    assert momentum[-1] == 0


def test_momentum_keeps_its_side_over_bars_that_do_not_move():
    assert sides("momentum", market_of([0, 2, 0, 0, -1, 0, 5])) == [0, 1, 1, 1, -1, -1, 1]


def test_time_series_momentum_by_hand(monkeypatch):
    """Look-back of two sessions. Prices 1 3 | 2 6 | 6 3 5 | 6 2; ends of sessions 3, 6, 5."""
    monkeypatch.setattr(baselines, "TSMOM_SESSIONS", 2)
    data = market_of([1, 2, -1, 4, 0, -3, 2, 1, -4], [0, 0, 1, 1, 2, 2, 2, 3, 3])
    # bars of session 2 against 3: 6 up, 3 equal keeps, 5 up; of session 3 against 6: 6 equal keeps, 2 down
    assert sides("tsmom", data) == [0, 0, 0, 0, 1, 1, 1, 1, -1]


def test_macd_by_hand(monkeypatch):
    """Averages of 1, 3 and 3 bars, weights 1, 1/2 and 1/2. Prices 0 8 8 8 0 0 8; the difference lies above its average
    by 0 2 0 -.5 -2.5 -.375 2.25, and four bars are warm-up."""
    monkeypatch.setattr(baselines, "MACD_BARS", (1, 3, 3))
    assert sides("macd", market_of([0, 8, 0, 0, -8, 0, 8])) == [0, 0, 0, 0, -1, -1, 1]


def test_moving_averages_by_hand(monkeypatch):
    """Averages of 2 and 4 bars. Prices 0 4 4 0 4 0 0 8; from bar 3 on 2-2, 2-3, 2-2, 0-1 and 4-3."""
    monkeypatch.setattr(baselines, "MA_CROSS_BARS", (2, 4))
    assert sides("ma_cross", market_of([0, 4, 0, -4, 4, -4, 0, 8])) == [0, 0, 0, 0, -1, -1, -1, 1]


def test_macd_is_the_recursion_of_its_inventor():
    """12, 26 and 9 bars in plain Python, on a walk; flat for the first 33 bars."""
    data = random_walk()
    price = np.cumsum(data.close_move_ticks).tolist()

    def average(values: list[float], bars: int) -> list[float]:
        made = values[:1]
        for value in values[1:]:
            made.append(made[-1] + 2 / (bars + 1) * (value - made[-1]))
        return made

    spread = [fast - slow for fast, slow in zip(average(price, 12), average(price, 26), strict=True)]
    above = np.subtract(spread, average(spread, 9))
    found = np.array(sides("macd", data))
    assert np.abs(above[33:]).min() > 1e-6
    assert np.array_equal(found[33:], np.sign(above[33:]))
    assert not found[:33].any()


@pytest.mark.parametrize("seed", [13, 16])
def test_a_market_that_stands_still_gives_no_signal_from_rounding(seed):
    """Walks after which the rounding of an average that has come to rest would turn the MACD's side once more."""
    moves = np.concatenate([np.random.default_rng(seed).integers(-9, 10, 200), np.zeros(4000, np.int64)])
    for name in ("macd", "ma_cross", "momentum"):
        assert len(set(sides(name, market_of(moves))[600:])) == 1, name


@pytest.mark.parametrize("name", NAMES)
def test_signals_see_no_future_and_are_warm_from_the_bars_before(name):
    data, cut = random_walk(), 300
    later = data.close_move_ticks.copy()
    later[cut:] = np.random.default_rng(9).integers(-50, 50, len(later) - cut)
    other = dataclasses.replace(data, close_move_ticks=later)
    assert sides(name, other)[:cut] == sides(name, data)[:cut]
    spans, decisions = [(data, 250)], np.array([[250, 290]], np.int32)
    paths = baseline_paths(ENV, jax.device_put(data.on_device()), None, decisions, spans, extent=Extent("scan", 40))
    assert paths[name][0, :-1].tolist() == wanted(name, data, ENV)[250:289].tolist()
    if name not in ("flat", "long", "short"):
        assert sides(name, other) != sides(name, data)
        assert len(set(sides(name, data)[220:])) == 2


@pytest.mark.parametrize("name", NAMES)
def test_signals_lag_by_the_decision_delay(name):
    data, late = random_walk(), EnvConfig(decision_delay=3)
    assert sides(name, data, late) == [0, 0, 0, *sides(name, data)[:-3]]


def test_no_roll_shows_in_a_signal():
    """The second contract stands 100 ticks higher; moves within the contracts are the same."""
    moves = np.random.default_rng(3).integers(-3, 4, 300)
    rolled, plain = (chain_market(moves, 1, bars_per_day=10, roll_at=roll_at) for roll_at in (200, None))
    assert not np.array_equal(rolled.open_e9, plain.open_e9)
    for name in NAMES:
        assert sides(name, rolled) == sides(name, plain), name


# validity.md P2: following the sign earns .4 - .6 c per bar at P = .7
def test_momentum_on_the_planted_chain_earns_the_closed_form():
    data = planted_market(days=4000)
    count = len(data.move_ticks) - 3
    account = baseline_book("momentum", data, EnvConfig(), 0, count)
    mean = (account.gross_ticks.sum() - 1.0 * account.sides.sum()) / count / 10
    assert mean == pytest.approx(0.34, abs=4 * 0.92 / np.sqrt(count) * 1.5)


@pytest.mark.parametrize(
    ("env", "limited"),
    [
        (EnvConfig(direction="long", flat_at_close=True), True),
        (EnvConfig(positions=3, max_position=2, no_entry_minutes=60, decision_delay=1), False),
        (EnvConfig(lots_per_level=2, roll_as="spread", no_entry_minutes=60, flat_at_close=True), True),
    ],
    ids=("long", "five levels", "spread"),
)
def test_every_baseline_obeys_the_rules_and_the_account_limits_of_each_window(env, limited):
    """Two windows, each with an account of its own; the rules are checked on the host, apart from the device."""
    late = np.where(np.arange(720) % 12 >= 10, NO_ENTRY, 0).astype(np.int32)
    data = chain_market(np.random.default_rng(1).integers(-9, 10, 720), 1, bars_per_day=12, roll_at=300)
    data = dataclasses.replace(data, flags=data.flags | late)
    config = LimitConfig(daily_loss_usd=400.0, trailing_drawdown_usd=1500.0)
    limits = resolve(config, Costs(12.5, 2.25, 0.5, 5.0)) if limited else None
    stacked = jax.tree.map(lambda leaf: np.array([leaf, leaf]), limits)
    spans, decisions = [(data, 250), (data, 500)], np.array([[250, 450], [500, 717]], np.int32)
    paths = baseline_paths(env, jax.device_put(data.on_device()), stacked, decisions, spans, extent=Extent("scan", 217))
    assert list(paths) == list(NAMES)
    for name, by_window in paths.items():
        for row, (first, stop) in zip(by_window, decisions.tolist(), strict=True):
            lots = (row[: stop - first].astype(np.int64) - env.flat) * env.lots_per_level
            verify_book(name, data, env, book(data, first, lots, env.roll_as), limits)
            assert (row[stop - first :] == env.flat).all()
            is_idle = name == "flat" or (name == "short" and env.direction == "long")
            assert lots.any() != is_idle, name
