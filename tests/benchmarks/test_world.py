"""The studies of the benchmarks: what is on the device is what the settings and the floors say."""

import argparse
import dataclasses
import functools

import epoch
import floors
import jax
import jax.numpy as jnp
import numpy as np
import population
import pytest
import world
from world import Setting

from tidewalk.agents import dqn
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, TRADABLE
from tidewalk.train.population import initial_state, make_members

SMALL = epoch.small(Setting(members=4, windows=2))


def test_a_decision_earns_the_move_that_its_signal_foretells() -> None:
    market = world.market(5_000, 4)
    sign = market.features[:, 0]
    assert set(np.unique(sign)) == {-1.0, 1.0}
    np.testing.assert_array_equal(market.move_ticks[:-2], 4 * sign[1:-1])
    stays = np.mean(sign[1:] == sign[:-1])
    assert abs(stays - 0.6) < 4 * (0.6 * 0.4 / 5_000) ** 0.5


def test_sessions_end_where_their_flags_say() -> None:
    market = world.market(5_000, 4)
    last = np.append(np.diff(market.session_id) != 0, True)
    np.testing.assert_array_equal((market.flags & LAST_OF_SESSION) != 0, last)
    np.testing.assert_array_equal((market.flags & CLOSING) != 0, np.append(last[1:], False))
    assert ((market.flags & TRADABLE) != 0).sum() == 4_998


def test_ranges_follow_each_other_inside_the_market() -> None:
    windows = world.made(SMALL).windows
    for train, val, test in zip(windows.train, windows.val, windows.test, strict=True):
        assert 0 < train[0] < train[1] == val[0] < val[1] == test[0] < test[1] <= SMALL.bars - 2
        assert (train[1] - train[0], val[1] - val[0]) == (SMALL.train_bars, SMALL.val_bars)
    assert windows.train[0, 0] < windows.train[1, 0]


def test_unequal_windows_hold_as_many_bars_as_equal_ones() -> None:
    equal = dataclasses.replace(SMALL, members=8, windows=4)
    unequal = dataclasses.replace(equal, val_spread=0.5)
    study = world.made(unequal)
    assert unequal.val_lengths == [750, 1250, 1750, 2250]
    assert sum(unequal.val_lengths) == sum(equal.val_lengths)
    assert study.program.val_lengths == (750, 750, 1250, 1250, 1750, 1750, 2250, 2250), "window-major, by member"
    assert study.program.val_bars == 2250
    assert (study.windows.val[:, 1] - study.windows.val[:, 0]).tolist() == unequal.val_lengths
    assert (study.windows.test[:, 0] == study.windows.val[:, 1]).all()
    assert study.windows.test.max() <= unequal.bars - 2


def test_a_population_is_timed_in_the_order_in_which_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "no_kernel", lambda _: None)
    options = argparse.Namespace(members=None, reference=1024, plain=1024, quick=False)
    found = population.settings(options, (1, 1024, 4096), ["float32", "tf32"])
    assert [(one.members, one.precision, one.learner, one.is_plain) for one in found] == [
        (1, "float32", "auto", False),
        (1024, "float32", "auto", False),
        (1024, "float32", "auto", True),
        (1024, "float32", "xla", False),
        (4096, "float32", "auto", False),
        (1024, "tf32", "auto", False),
        (4096, "tf32", "auto", False),
    ]


def test_next_to_no_validation_is_left_without_one() -> None:
    assert world.made(world.without_validation(SMALL)).program.val_lengths == (4,) * SMALL.members


@pytest.mark.slow
def test_epochs_in_a_row_and_alone_are_those_of_the_engine() -> None:
    with jax.numpy_dtype_promotion("standard"):
        setting = dataclasses.replace(world.without_validation(SMALL), members=4)
        running, state = world.started(setting)
        before = int(running.deal.join(jax.device_get(state)).clock)
        metrics = world.alone(running, jax.tree.map(jnp.copy, state))()
        assert metrics["loss"].shape == (4,)
        assert world.in_a_row(running, jax.tree.map(jnp.copy, state))() > 0.0
        state, _, _ = running.run_epoch(state)
        whole = running.deal.join(jax.device_get(state))
        assert int(whole.clock) == before + setting.steps
        assert {len(leaf) for leaf in world.weights(running, state)} == {4}
        assert 0.9 < world.mib(world.peak_bytes(running)) / world.predicted_mib(running) < 1.25


def test_a_setting_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ValueError, match="hold no window of 36500"):
        world.made(Setting(bars=30_000, train_bars=6_000, val_bars=1_500))
    with pytest.raises(ValueError, match="3 windows do not divide 4 members"):
        world.made(Setting(members=4, windows=3))


@pytest.mark.parametrize("is_plain", [False, True])
def test_the_floors_count_the_parameters_that_are_learned(is_plain: bool) -> None:  # noqa: FBT001
    setting = Setting(members=1, is_plain=is_plain)
    study = world.made(setting)
    hyper = dqn.hyper(study.config.dqn, 1)
    members = jax.eval_shape(
        functools.partial(make_members, 1, 1, 0), jax.tree.map(lambda x: x[0], study.cost_ticks), hyper
    )
    state = jax.eval_shape(functools.partial(initial_state, study.program), study.windows, members)
    held = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(study.program.agent.params(state.agent)))
    assert held == setting.network.parameters
    assert setting.network.inputs == study.program.env.observation_size(setting.features)


def test_the_work_of_an_epoch_by_hand() -> None:
    """31-128-128-4: W = 20,864; 50 double updates of batch 64, 64 lanes acting, and three positions of 29,795 bars."""
    flop, traffic = epoch.floor_work(Setting())
    weights, first = 31 * 128 + 128 * 128 + 128 * 4, 31 * 128
    update = 2 * 64 * (5 * weights - first) + 2 * 64 * weights
    passed = 2 * 29_795 * (first + 3 * (weights - first))
    assert flop == 50 * update + passed
    assert traffic == 50 * floors.fused_bytes(Setting().network, 64)


@pytest.mark.parametrize(("members", "windows"), [(1, 1), (6, 2), (8, 8), (1024, 8)])
def test_a_population_lies_in_as_many_windows_as_divide_it(members: int, windows: int) -> None:
    assert population.setting_of(members, "float32", is_quick=False).windows == windows


def test_a_cpu_has_no_kernel_and_says_so() -> None:
    assert world.no_kernel(SMALL) == "it needs an NVIDIA GPU"
