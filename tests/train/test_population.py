"""The member axis: what a member does never depends on who else is there."""

import functools

import jax
import numpy as np
import pytest

from support import planted_market
from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import trees
from tidewalk.core.errors import ConfigError
from tidewalk.trading.costs import CostTicks
from tidewalk.train import epoch as phases
from tidewalk.train.population import initial_state, make_members, member_axis, refuse_crowds
from worlds import fresh, made_limits, make_world

TINY = {"lanes": 8, "capacity": 32, "steps_per_epoch": 3, "val_bars": 100, "test_bars": 100}


@functools.cache
def small():
    return planted_market(days=50)


@functools.cache
def after_epoch(seeds):
    """The population of two windows after one epoch."""
    world = make_world(windows=2, seeds=seeds, config=DQNConfig(hidden=(8,), batch_size=8), data=small(), **TINY)
    return jax.jit(functools.partial(phases.fused_epoch, world.program))(*world.fixed, fresh(world))


def of_member(seeds, window, seed):
    """State and metrics of one member, host arrays."""
    state, metrics = after_epoch(seeds)
    index = window * seeds + seed
    own = trees.member((state.agent, state.lanes, state.best, metrics), index)
    return jax.tree.map(np.asarray, (own, state.replay[:, index]))


# among four, in every run: `test_epoch.py`
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [32, 2048])
@pytest.mark.parametrize(("window", "seed"), [(0, 0), (1, 0)])
def test_a_member_is_the_same_alone_and_among_thousands(seeds, window, seed):
    (few, few_rows), (many, many_rows) = of_member(2, window, seed), of_member(seeds, window, seed)
    np.testing.assert_array_equal(few_rows, many_rows, err_msg="the same bars, positions and actions")
    for ours, theirs in zip(jax.tree.leaves(few), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_costs_are_of_the_window_and_keys_of_window_and_seed():
    hyper = dqn.hyper(DQNConfig(), 10)
    members = make_members(3, 2, 7, CostTicks(np.array([1.0, 2.0, 3.0], np.float32), None), hyper)
    assert members.cost.side.tolist() == [1, 1, 2, 2, 3, 3]
    assert members.window.tolist() == [0, 0, 1, 1, 2, 2]
    assert members.seed.tolist() == [0, 1] * 3
    words = jax.random.key_data(members.key)
    assert len({tuple(row) for row in words.tolist()}) == 6
    wider = make_members(3, 5, 7, CostTicks(np.array(1.0, np.float32), None), hyper)
    np.testing.assert_array_equal(words, jax.random.key_data(wider.key)[np.array([0, 1, 5, 6, 10, 11])])


def test_a_population_has_a_most():
    refuse_crowds(4, 2**22)
    with pytest.raises(ConfigError, match=r"4 windows x --seeds 4194305 are 16777220 members; .* Use --seeds 4194304"):
        refuse_crowds(4, 2**22 + 1)


@pytest.mark.parametrize("limits", [None, made_limits()])
def test_the_axis_of_the_members_is_known_of_every_leaf_of_a_state(limits):
    worlds = [make_world(windows=1, seeds=seeds, limits=limits, data=small(), **TINY) for seeds in (1, 5)]
    shapes = [jax.eval_shape(lambda w=w: initial_state(w.program, w.windows, w.members)) for w in worlds]

    def check(path, one, five):
        pairs = enumerate(zip(one.shape, five.shape, strict=True))
        assert [axis for axis, sizes in pairs if sizes == (1, 5)] == [
            axis for axis in [member_axis(path)] if axis is not None
        ], path

    jax.tree_util.tree_map_with_path(check, *shapes)
