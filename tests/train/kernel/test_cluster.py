"""A member that several blocks share has the bits of one that a single block works on, run by the emulator.

Blocks of a cluster and their warps take turns at barriers only, in rising or in falling order: a barrier that is
missing, or a number sent to the wrong block, gives other bits.
"""

import dataclasses
import functools
import shutil

import jax
import numpy as np
import pytest

import emulated
from support import planted_market
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import trees
from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import plan_for
from worlds import fresh, make_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host"),
]
NARROW = {"config": DQNConfig(hidden=(40, 64), batch_size=24)}  # units of both blocks
WORLDS = {
    "narrow": NARROW,
    "wide": {"config": DQNConfig(hidden=(128, 100), batch_size=64)},
    "plain, copied target": {
        "config": DQNConfig(
            hidden=(70, 128), batch_size=20, double=False, duelling=False, target_update="hard", target_period=2
        ),
    },
    "parts of a batch, 3 updates": {
        "config": DQNConfig(hidden=(100, 70), batch_size=100, updates_per_step=3),
        "lanes": 40,
        "capacity": 1200,
    },
}


@functools.cache
def world_of(name):
    changes = {"windows": 1, "seeds": 1, "steps_per_epoch": 2} | WORLDS[name]
    world = make_world(data=planted_market(days=50), **changes)
    train = world.windows.train.at[:, 0].set(64)  # past the longest look-back
    return dataclasses.replace(world, windows=dataclasses.replace(world.windows, train=train))


def learned(world, cluster, precision="float32", observed=0, **options):
    """All bytes that the vector steps of an epoch leave, by `cluster` blocks for a member."""
    run = functools.partial(emulated.emulate, **options)
    with jax.default_matmul_precision(precision):
        plan = plan_for(world.program, call.precision_name())
        plan = dataclasses.replace(plan, cluster=cluster, observed=max(plan.observed, observed))
        steps = jax.jit(functools.partial(call.learn_steps_by, run, world.program, plan=plan))
        state, means = steps(*world.fixed, fresh(world))
    return {name: np.asarray(array).tobytes() for name, array in {**trees.to_named(state), **means}.items()}


@functools.cache
def by_one_block(name):
    return learned(world_of(name), 1)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("is_falling", [False, True])
def test_bits_are_those_of_one_block(name, is_falling):
    cluster = 2 if name == "narrow" else 4
    assert learned(world_of(name), cluster, is_falling=is_falling) == by_one_block(name)


def test_columns_that_are_padding_change_no_bit():
    """A kernel of a cluster takes the place of one for fewer columns."""
    assert learned(world_of("narrow"), 2, observed=48) == by_one_block("narrow")


def test_one_product_of_halves_has_the_same_bits_too():
    assert learned(world_of("narrow"), 2, "tensorfloat32") == learned(world_of("narrow"), 1, "tensorfloat32")


FAULTS = {
    "outputs are read before they came": ("layers.cuh", "output_layer<S>(shared, small, at);\n  member_sync<S>();"),
    "outputs are written before they were read": ("layers.cuh", "if (S::CLUSTER > 1 && is_read) cluster_wait();"),
    "gradients are read before they came": ("backward.cuh", "h2, h1, at);\n  member_sync<S>();"),
    "the norm is read before it came": ("update.cuh", "bias_factor, at);\n  member_sync<S>();"),
    "the first layer is read before it came": ("update.cuh", "member_sync<S>();  // all have been sent"),
    "another block's columns": ("cluster.cuh", "(cluster_rank() + other) % S::CLUSTER"),
    "weights are sent to the wrong block": ("backward.cuh", "rank = column / S::UNITS;"),
}
CHANGES = {"member_sync<S>()": "block_sync()", "cluster_wait()": "block_sync()"}
CHANGES |= {"(cluster_rank() + other) % S::CLUSTER": "cluster_rank()", "column / S::UNITS": "0"}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_cluster_are_found(fault, tmp_path):
    sources = tmp_path / "kernel"
    shutil.copytree(emulated.SOURCES, sources, ignore=shutil.ignore_patterns("ptx", "__pycache__"))
    name, right = FAULTS[fault]
    text = (sources / name).read_text()
    assert text.count(right) == 1
    wrong = functools.reduce(lambda code, change: code.replace(*change), CHANGES.items(), right)
    (sources / name).write_text(text.replace(right, wrong))
    found = [learned(world_of("narrow"), 2, is_falling=falling, sources=sources) for falling in (False, True)]
    assert any(bits != by_one_block("narrow") for bits in found)
