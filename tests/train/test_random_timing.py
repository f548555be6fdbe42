"""Random policies: rotations of the agent's own path, one by one against both ways of counting them, and their rank."""

import dataclasses

import jax
import numpy as np
import pytest

from support import baseline_book, chain_market, planted_market, planted_signs, random_half_spreads, with_half_spreads
from tidewalk.market.device import CLOSING, NO_ENTRY, MarketData
from tidewalk.trading.account import Book, book, costs_usd, gross_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig, Limits, resolve
from tidewalk.trading.verify import halts
from tidewalk.train.passes import Extent
from tidewalk.train.random_timing import (
    draw_shifts,
    free_rows,
    has_memory,
    nets_usd,
    percentile,
    tallies_under_rules,
)

FREE = Costs(12.5, 0.0, 0.0)
DEAR = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5, roll_usd=7.0)


def money(costs: Costs, account: Book) -> float:
    paid = costs_usd(costs, account.sides.sum(), account.crossed_ticks.sum(), account.rolled.sum())
    return float(gross_usd(costs, account.gross_ticks.sum()) - paid)


def allowed(data: MarketData, env: EnvConfig, first: int, wanted_lots: np.ndarray) -> np.ndarray:
    """Wanted lots, flat on the rows on which nothing may be held."""
    return np.where(free_rows(data, env, first, len(wanted_lots)), wanted_lots, 0)


def rotated(data: MarketData, env: EnvConfig, account: Book, shift: int) -> np.ndarray:
    """Lots of the path moved by a number of free rows, around the end; flat where the agent has to be."""
    is_free = free_rows(data, env, account.first, len(account.after_lots))
    lots = np.zeros(len(account.after_lots), np.int64)
    lots[is_free] = np.roll(account.after_lots[is_free], shift)
    return lots


def random_path(data: MarketData, env: EnvConfig, first: int, count: int) -> Book:
    wanted = np.repeat(np.random.default_rng(1).integers(-env.positions, env.positions + 1, count), 3)[:count]
    return book(data, first, allowed(data, env, first, wanted * env.lots_per_level), env.roll_as)


def small_market(*, is_recorded: bool) -> MarketData:
    data = chain_market(np.random.default_rng(0).integers(-9, 10, 80), 1, bars_per_day=7, roll_at=33)
    data = dataclasses.replace(data, flags=data.flags | np.where(np.arange(80) % 7 >= 4, NO_ENTRY, 0).astype(np.int32))
    return random_half_spreads(data) if is_recorded else data


def on_device(data: MarketData, env: EnvConfig, account: Book, shifts: np.ndarray, limits: Limits | None = None):
    """Net results of the rotated paths as the device follows them, of one window."""
    first, count = account.first, len(account.after_lots)
    positions = np.full((1, count + 3), env.flat, np.int8)
    positions[0, :count] = account.after_lots // env.lots_per_level + env.flat
    is_free = np.append(free_rows(data, env, first, count), np.zeros(3, bool))[None]
    stacked = jax.tree.map(lambda leaf: np.array([leaf]), limits)
    span, extent = np.array([[first, first + count]]), Extent("scan", count + 3)
    found = tallies_under_rules(
        env, jax.device_put(data.on_device()), stacked, span, positions, is_free, shifts[None], extent
    )
    crossed = 0.0 if found.crossed_ticks is None else found.crossed_ticks[0]
    paid = costs_usd(DEAR, found.sides[0], crossed, 0 if found.rolled is None else found.rolled[0])
    return gross_usd(DEAR, found.gross_ticks[0]) - paid


@pytest.mark.parametrize(
    ("env", "is_recorded"),
    [
        (EnvConfig(), False),
        (EnvConfig(flat_at_close=True), True),
        (EnvConfig(positions=2, lots_per_level=3, roll_as="spread"), True),
        (EnvConfig(flat_at_close=True, roll_as="spread"), False),
    ],
    ids=("plain", "closing and spreads", "lots, spread rolls", "closing, spread rolls"),
)
def test_every_rotation_earns_what_its_own_book_says(env, is_recorded):
    """All 1 to 40 rotations: the books, the Fourier transform, and the paths as the device follows them."""
    data = small_market(is_recorded=is_recorded)
    account = random_path(data, env, 9, 41)
    shifts = np.arange(free_rows(data, env, 9, 41).sum())
    books = [book(data, 9, rotated(data, env, account, k), env.roll_as) for k in shifts]
    exact = np.array([money(DEAR, one) for one in books])
    assert len(np.unique([one.sides.sum() for one in books])) > 1  # what is paid differs at rolls, closes and the ends
    np.testing.assert_allclose(nets_usd(data, env, account, DEAR, shifts), exact, atol=1e-6)
    np.testing.assert_allclose(on_device(data, env, account, shifts), exact, rtol=1e-6)
    assert not has_memory(env, None)


def test_rotations_under_rules_with_a_memory_obey_them():
    """No late entries, and a daily loss at which the position is closed: row by row on the host."""
    env, data = EnvConfig(no_entry_minutes=60), small_market(is_recorded=True)
    limits = resolve(LimitConfig(daily_loss_usd=300.0), DEAR)
    account, shifts = random_path(data, env, 9, 41), np.arange(40)
    followed = [_followed(data, env, rotated(data, env, account, k), limits) for k in shifts]
    exact = np.array([money(DEAR, one) for one in followed])
    free = nets_usd(data, env, account, DEAR, shifts)
    assert (np.abs(free - exact) > 1).mean() > 0.5
    np.testing.assert_allclose(on_device(data, env, account, shifts, limits), exact, rtol=1e-6)
    assert has_memory(env, None)
    assert has_memory(EnvConfig(), limits)


def _followed(data: MarketData, env: EnvConfig, wanted: np.ndarray, limits: Limits) -> Book:
    """Book of a wanted path of single lots under the rules, one decision after the other."""
    lots = np.zeros(len(wanted), np.int64)
    for row in range(len(wanted) - 1):
        before, target = (lots[row - 1] if row else 0), wanted[row]
        if data.flags[9 + row] & NO_ENTRY and target * before <= 0:
            target = 0
        lots[row] = target
        if halts(data, book(data, 9, lots[: row + 1]), limits).reason[row]:
            lots[row] = 0
    return book(data, 9, lots)


def test_paths_of_several_windows_are_followed_in_batches(monkeypatch):
    """Two windows of one market, more policies than a batch holds: the same as each alone."""
    from tidewalk.train import random_timing

    env, data = EnvConfig(no_entry_minutes=60), small_market(is_recorded=False)
    accounts, shifts = [random_path(data, env, first, 30) for first in (5, 40)], draw_shifts([29, 29], draws=20)
    alone = [on_device(data, env, account, row) for account, row in zip(accounts, shifts, strict=True)]
    positions = np.array([account.after_lots + 1 for account in accounts], np.int8)
    is_free = np.array([free_rows(data, env, account.first, 30) for account in accounts])
    monkeypatch.setitem(random_timing._BATCH_ELEMENTS, "scan", 7 * 30 * 3)
    spans = np.array([[5, 35], [40, 70]])
    both = tallies_under_rules(
        env, jax.device_put(data.on_device()), None, spans, positions, is_free, shifts, Extent("scan", 30)
    )
    nets = gross_usd(DEAR, both.gross_ticks) - costs_usd(DEAR, both.sides)
    np.testing.assert_allclose(nets, alone)


def rank(
    data: MarketData, account: Book, costs: Costs = FREE, env: EnvConfig | None = None, draws: int = 1000
) -> float:
    env = env or EnvConfig()
    length = int(free_rows(data, env, account.first, len(account.after_lots)).sum())
    return percentile(nets_usd(data, env, account, costs, draw_shifts([length], draws=draws)[0]))


def test_the_rank_is_high_for_skill_and_half_for_a_constant_position():
    data = planted_market(days=200)
    found = {name: rank(data, baseline_book(name, data, EnvConfig(), 0, 4000)) for name in ("momentum", "long", "flat")}
    assert found == {"momentum": 1.0, "long": 0.5, "flat": 0.5}


def test_the_rank_is_that_of_all_rotations():
    data, env = small_market(is_recorded=True), EnvConfig()
    account = random_path(data, env, 9, 31)
    every = np.array([money(DEAR, book(data, 9, rotated(data, env, account, k))) for k in range(30)])
    exact = np.mean((every < every[0] - 1e-6) + 0.5 * (np.abs(every - every[0]) <= 1e-6))
    assert 0.0 < exact < 1.0
    assert rank(data, account, DEAR, draws=200_000) == pytest.approx(exact, abs=0.01)


def test_the_rank_of_an_unskilled_policy_is_uniform():
    data = chain_market(planted_signs(3000, 0.5, seed=9), 3, bars_per_day=24)
    rng = np.random.default_rng(2)
    paths = [np.repeat(rng.integers(-1, 2, 250), 10) for _ in range(60)]
    ranks = [rank(data, book(data, 0, allowed(data, EnvConfig(), 0, path)), draws=200) for path in paths]
    assert 0.35 < np.mean(ranks) < 0.65
    assert min(ranks) < 0.2
    assert max(ranks) > 0.8


def test_random_policies_keep_out_of_session_breaks_where_the_agent_must():
    """A market that moves over session breaks only: who must be flat there earns nothing, random policies too."""
    data = planted_market(days=40)
    over_a_break = np.isin(np.arange(len(data.move_ticks)), np.flatnonzero(data.flags & CLOSING))
    data = dataclasses.replace(data, move_ticks=np.where(over_a_break, data.move_ticks, 0).astype(np.int32))
    env = EnvConfig(flat_at_close=True)
    own = book(data, 0, allowed(data, env, 0, np.random.default_rng(0).integers(-1, 2, 900)))
    assert rank(data, own, env=env) == 0.5
    assert rank(data, own, draws=50) != 0.5


def test_random_policies_pay_the_spreads_of_the_bars_they_fill_in():
    """A still market that is cheap at one hour of the day: who trades then beats who trades at a random hour."""
    length, hour = 24 * 20, np.arange(24 * 20) % 24
    still = chain_market(np.zeros(length, np.int64), 1, bars_per_day=24)
    data = with_half_spreads(still, np.where(np.isin(hour, (7, 8)), 0.5, 5.0))
    wanted = (hour[: length - 3] == 6).astype(np.int64)  # decided at 6, filled at 7, out at 8
    assert rank(data, book(data, 0, allowed(data, EnvConfig(), 0, wanted))) > 0.95
    assert rank(still, book(still, 0, allowed(still, EnvConfig(), 0, wanted))) == 0.5


def test_money_of_several_markets_is_added_up():
    """Skill in one market and its mirror image in another cancel in ticks, not in money."""
    data = planted_market(days=100)
    good = baseline_book("momentum", data, EnvConfig(), 0, 2000)
    bad = book(data, 0, -good.after_lots)
    shifts = draw_shifts([1999, 1999])
    for worths, is_high in (((10.0, 1.0), True), ((1.0, 10.0), False)):
        parts = zip((good, bad), worths, shifts, strict=True)
        total = sum(nets_usd(data, EnvConfig(), path, Costs(worth, 0.0, 0.0), row) for path, worth, row in parts)
        assert percentile(total) > 0.95 if is_high else percentile(total) < 0.05


def test_draws_repeat_and_differ_between_windows():
    shifts = draw_shifts([100, 100, 0], draws=50)
    assert np.array_equal(shifts, draw_shifts([100, 100, 0], draws=50))
    assert (shifts[:, 0] == 0).all()
    assert not np.array_equal(shifts[0], shifts[1])
    assert not shifts[2].any()
    assert shifts.shape == (3, 51)
    assert 0 <= shifts.min() <= shifts.max() < 100
