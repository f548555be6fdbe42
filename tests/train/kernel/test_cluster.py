"""A member that several blocks share has the bits of one that a single block works on, run by the emulator.

It finds accesses that no barrier puts in order, and misuse of barriers; a number that is sent to the wrong block gives
other bits.
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
SIZES = {"observed": 48, "hidden": 128}
"""Of the kernel of a cluster."""
NARROW = {"config": DQNConfig(hidden=(40, 64), batch_size=24)}  # units of some blocks, rows of some
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


def learned(world, cluster, precision="float32", by=emulated.emulate, sizes=SIZES):
    """All bytes that the vector steps of an epoch leave, by `cluster` blocks for a member."""
    with jax.default_matmul_precision(precision):
        plan = dataclasses.replace(plan_for(world.program, call.precision_name()), cluster=cluster, **sizes)
        steps = jax.jit(functools.partial(call.learn_steps_by, by, world.program, plan=plan))
        state, means = steps(*world.fixed, fresh(world))
    return {name: np.asarray(array).tobytes() for name, array in {**trees.to_named(state), **means}.items()}


@functools.cache
def by_one_block(name):
    return learned(world_of(name), 1)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("is_falling", [False, True])
def test_bits_are_those_of_one_block(name, is_falling):
    by = functools.partial(emulated.emulate, is_falling=is_falling)
    assert learned(world_of(name), 4, by=by) == by_one_block(name)


def test_columns_that_are_padding_change_no_bit():
    """A kernel of a cluster takes the place of one for fewer columns."""
    assert learned(world_of("wide"), 1, sizes={}) == by_one_block("wide")


def test_one_product_of_halves_has_the_same_bits_too():
    assert learned(world_of("narrow"), 4, "tensorfloat32") == learned(world_of("narrow"), 1, "tensorfloat32")


@functools.cache
def first_launch(name, cluster):
    """Plan, arguments and results of the first launch of an epoch."""
    kept = []

    def keep(*args, **options):
        kept.append((args[1:], run(*args, **options)))
        return kept[-1][1]

    def launch(plan, operands, moving):
        kept.append(plan)
        return emulated.emulate(plan, operands, moving)

    run = emulated.run_launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulated, "run_launch", keep)
        learned(world_of(name), cluster, by=launch)
    plan, (args, results), *_ = kept
    return plan, args, results


def found(name, cluster, order, sources=emulated.SOURCES):
    """What is wrong with the kernel by some sources: a fault, or bits that are not those of the right ones."""
    plan, args, right = first_launch(name, cluster)
    try:
        results = emulated.run_launch(emulated.library(plan, sources), *args, order=order)
    except AssertionError as error:
        return str(error)
    is_same = all(one.tobytes() == other.tobytes() for one, other in zip(results, right, strict=True))
    return "" if is_same else "other bits"


@pytest.mark.parametrize(("name", "cluster", "seeds"), [("narrow", 4, 2), ("plain, copied target", 4, 2)])
def test_bits_are_the_same_whoever_goes_on_first(name, cluster, seeds):
    assert [found(name, cluster, order) for order in range(2, 2 + seeds)] == [""] * seeds


UNORDERED = "no barrier is between"
WAIT, HALVES = "\n  cluster_wait();", "  if (PARTS > 1) copies_done_before<1>();\n"
LEFT = "  leave_squares<S>(shared, gradients, biases, factor, bias_factor, at);\n"
FINISH, JUDGED = "  ahead.finish(args, shared, at);\n  member_sync<S>();", "float most = count_verdicts<S>(shared, at);"
OBSERVED = "  if (ahead.step >= 0) features.put(shared, true, true, at);"
FAULTS = {
    "verdicts are counted before all came": (
        [
            ("together.cuh", "    ahead.begin(args, shared, at);\n  " + WAIT[1:], "    ahead.begin(args, shared, at);"),
            ("together.cuh", JUDGED, JUDGED + WAIT),
        ],
        UNORDERED,
    ),
    "gradients are summed before all came": (
        [
            ("together.cuh", "  ahead.go_on(args, shared, at);" + WAIT, "  ahead.go_on(args, shared, at);"),
            (
                "together.cuh",
                "  unit_gradients<S>(gradients, shared, at);",
                "  unit_gradients<S>(gradients, shared, at);" + WAIT,
            ),
        ],
        UNORDERED,
    ),
    "the norm is read before it came": (
        [("together.cuh", FINISH, FINISH.replace("member_sync<S>()", "block_sync()"))],
        UNORDERED,
    ),
    "the norm is sent after the arrival": (
        [("together.cuh", LEFT, ""), ("together.cuh", FINISH, f"  cluster_arrive();\n{LEFT}{FINISH[:-19]}{WAIT}")],
        UNORDERED,
    ),
    "the next samples are finished after the arrival": (
        [("together.cuh", FINISH, f"  cluster_arrive();\n{FINISH[:-19]}{WAIT}")],
        UNORDERED,
    ),
    "weights are asked for before all left theirs": (
        [
            ("together.cuh", OBSERVED + WAIT, OBSERVED),
            (
                "together.cuh",
                "  MARK(15);\n  fetch_networks<S>(args, shared, at);",
                "  fetch_networks<S>(args, shared, at);" + WAIT,
            ),
        ],
        UNORDERED,
    ),
    "the second layer is used before it came": ([("rows.cuh", HALVES, "")], "asked for"),
    "the target network is used before it came": (
        [("together.cuh", "    copies_done();\n    block_sync();\n    MARK(5);", "    block_sync();")],
        "asked for",
    ),
    "outputs are written over what is read": (
        [("rows.cuh", "  if (PARTS > 1) block_sync();\n  MARK(3);", "")],
        UNORDERED,
    ),
    "rows are sent to the wrong place": (
        [("rows.cuh", "S::OWN_ROWS / 8 * rank_of<S>() + at.quad % 2", "at.quad % 2")],
        UNORDERED,
    ),
    "rows are sent to the wrong block": (
        [("rows.cuh", "int owner = at.warp / S::OWN_GROUPS", "int owner = 0 * at.warp")],
        UNORDERED,
    ),
    "networks are sent to a block that has not begun": (
        [("member.cuh", "member_sync<S>();  // nothing is sent to a block that has not", "//")],
        "start of block",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_cluster_are_found(fault, tmp_path):
    sources = tmp_path / "kernel"
    shutil.copytree(emulated.SOURCES, sources, ignore=shutil.ignore_patterns("ptx", "__pycache__"))
    changes, expected = FAULTS[fault]
    for name, right, wrong in changes:
        text = (sources / name).read_text()
        assert text.count(right) == 1
        (sources / name).write_text(text.replace(right, wrong))
    for order in (0, 1):
        assert expected in found("narrow", 4, order, sources)
