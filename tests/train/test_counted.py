"""Accounts counted a session at a time against plain Python, row by row: cuts, breaches and sums beyond int32."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sequential import with_account
from support import chain_market, planted_signs
from tidewalk.trading.env import EnvConfig
from tidewalk.train.passes import Stretches, stretches
from tidewalk.train.rollout import follow
from worlds import World, made_limits, make_world

FIRST, STOP = 601, 700
"""A range that begins and ends within a session of 24 bars: its decisions fill in six sessions."""
CUTS = {
    "row by row": ("scan", None),
    "sessions": ("associative", Stretches(6, 24)),
    "sessions, with room": ("scan", Stretches(9, 40)),
    "parts of sessions": ("associative", Stretches(6 + 99 // 7, 7)),
}


def world_of(ticks: int) -> World:
    data = chain_market(planted_signs(800, 0.5, seed=3), ticks, bars_per_day=24, roll_at=650)
    world = make_world(windows=1, seeds=1, env=EnvConfig(positions=2), data=data)
    windows = dataclasses.replace(world.windows, test=jnp.array([[FIRST, STOP]], jnp.int32))
    return dataclasses.replace(world, windows=windows)


@functools.cache
def followed(cut: str):
    compose, stretches = CUTS[cut]

    def run(market, limits, decisions, wanted):
        return follow(EnvConfig(positions=2), market, limits, decisions, wanted, compose=compose, stretches=stretches)

    return jax.jit(run)


def assert_as_in_plain_python(world: World, limits, seed: int) -> None:
    wanted = np.repeat(np.random.default_rng(seed).integers(0, 5, STOP - FIRST), 4)[: STOP - FIRST].astype(np.int8)
    path, _, _ = with_account(world, limits, lambda bar, _: int(wanted[bar - FIRST]) - 2)
    for cut in CUTS:
        found = followed(cut)(world.market, limits, world.windows.test[0], jnp.asarray(wanted))
        assert (np.asarray(found, np.int64) - 2).tolist() == path, cut


@given(st.integers(1, 400), st.integers(1, 150), st.integers(1, 250), st.integers(0, 10**6))
@settings(max_examples=30)
def test_every_cut_halts_where_the_rows_one_by_one_do(capital, daily, drawdown, seed):
    """Limits near enough to be reached at any row: the first, the last of a session, and the last of all."""
    # sides so dear that what closing costs may end the account
    limits = dataclasses.replace(made_limits(capital, daily, drawdown), side=jnp.int32(15_000))
    assert_as_in_plain_python(_near(), limits, seed)


@functools.cache
def _near() -> World:
    return world_of(5)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_may_move_by_more_milliticks_than_int32_holds(seed):
    """Only rows and ranges are bounded where the loss of a session is not limited (`study`); sums of a session wrap."""
    ticks, limits = 400_000, made_limits()
    assert 24 * 2 * ticks * 1000 > 2**33
    assert 2 * ticks * 1000 + 1_200_000_000 < 2**31, "a row beyond the limit is the most that a drawdown reaches"
    limits = dataclasses.replace(limits, capital=None, daily_loss=None, drawdown=jnp.int32(1_200_000_000))
    assert_as_in_plain_python(world_of(ticks), limits, seed)


def test_the_cut_evaluates_at_most_twice_the_rows_and_holds_every_session():
    rng = np.random.default_rng(0)
    assert stretches(23, 1380, 29_795) == Stretches(23, 1380)
    assert stretches(0, 1380, 29_795) is None
    for _ in range(200):
        sessions = rng.integers(1, 3000, rng.integers(1, 40))
        if rng.random() < 0.3:
            sessions[0] = 50_000  # the data hold one session that is none
        bars = int(sessions.sum())
        cut = stretches(len(sessions), int(sessions.max()), bars)
        assert cut.most >= sum(-(-int(rows) // cut.rows) for rows in sessions)
        assert cut.most * cut.rows <= 2 * bars + cut.rows + len(sessions)
