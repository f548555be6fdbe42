"""The kernel computes what the XLA form of the vector steps computes: its own source, run on the host by an emulator.

Whole numbers (bars, positions, ages, records) are equal. They could differ where two action values nearly tie, so a
case where they do is no proof of a fault; with the seeds given here there is none. Floats agree to the rounding of
another order of sums: `REAL` of the largest number of a leaf after a few updates, `DRIFTED` after fifty.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import emulated
from support import planted_market, random_half_spreads
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import trees
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train.kernel import call
from worlds import fresh, make_world

pytestmark = pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
REAL, DRIFTED = 2e-5, 2e-3
SMALL = DQNConfig(hidden=(16, 24), batch_size=24)


def both(world, precision="float32", emulate=emulated.emulate):
    """State and means after the steps of an epoch: in XLA form, and by the emulated kernel."""
    state = fresh(world)
    with jax.default_matmul_precision({"tf32": "tensorfloat32"}.get(precision, precision)):
        kernel = jax.jit(functools.partial(call.learn_steps_by, emulate, world.program))(*world.fixed, state)
    with jax.default_matmul_precision("float32"):
        reference = jax.jit(functools.partial(phases.learn_steps, world.program))(*world.fixed, state)
    return reference, kernel


def assert_same(reference, kernel, tolerance):
    (state, means), (other, other_means) = reference, kernel
    found = trees.to_named(other)
    for name, expected in trees.to_named(state).items():
        if expected.dtype.kind == "f" and not name.startswith("best"):
            atol = tolerance * max(np.abs(expected).max(), 1e-6)
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
    for name, expected in means.items():
        np.testing.assert_allclose(other_means[name], expected, rtol=10 * tolerance, atol=tolerance, err_msg=name)


@functools.cache
def small_world():
    return make_world(windows=1, seeds=1, config=SMALL, steps_per_epoch=2)


@functools.cache
def small_runs():
    return both(small_world())


def test_two_steps_are_those_of_the_xla_form():
    reference, kernel = small_runs()
    assert_same(reference, kernel, REAL)
    start = trees.to_named(fresh(small_world()))
    moved = trees.to_named(kernel[0])
    for name in ("agent.params.layers[0].weight", "agent.target.layers[1].bias", "lanes.bar", "replay"):
        assert not np.array_equal(start[name], moved[name]), name


def run_backwards(world):
    """State after the steps of an epoch with the warps of a block run in the opposite order between barriers."""
    backwards = functools.partial(emulated.emulate, is_falling=True)
    with jax.default_matmul_precision("float32"):
        run = jax.jit(functools.partial(call.learn_steps_by, backwards, world.program))
        return run(*world.fixed, fresh(world))[0]


def assert_same_bytes(one, other):
    first, second = ({k: v.tobytes() for k, v in trees.to_named(state).items()} for state in (one, other))
    assert first == second


def test_no_barrier_is_missing():
    assert_same_bytes(run_backwards(small_world()), small_runs()[1][0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"config": DQNConfig(hidden=(128, 100), batch_size=64), "env": EnvConfig(lookback=9)},
        {"config": DQNConfig(hidden=(100, 128), batch_size=80, double=False, n_step=1), "lanes": 70, "capacity": 700},
    ],
)
def test_no_barrier_is_missing_where_features_are_fetched_early(changes):
    """Wide networks have room for features on their way, and more than one part of the lanes and of a batch."""
    world = make_world(windows=1, seeds=1, steps_per_epoch=3, prefill_steps=16, data=planted_market(days=50), **changes)
    forwards, backwards = both(world)[1][0], run_backwards(world)
    assert_same_bytes(forwards, backwards)


CASES = {
    "one step": {"config": DQNConfig(hidden=(16, 16), batch_size=16, n_step=1)},
    "plain": {"config": DQNConfig(hidden=(32, 16), batch_size=20, double=False, duelling=False)},
    "hard target": {"config": DQNConfig(hidden=(16, 16), batch_size=16, target_update="hard", target_period=3)},
    "chunks": {
        "agent": make_dqn(DQNConfig(hidden=(16, 16), batch_size=144, n_step=6), 7, 3),
        "lanes": 72,
        "capacity": 720,
        "prefill_steps": 7,
    },
    "updates": {"config": DQNConfig(hidden=(16, 16), batch_size=10, updates_per_step=3), "lanes": 5, "capacity": 300},
    "clipped": {"config": DQNConfig(hidden=(16, 16), batch_size=16, max_grad_norm=0.01, huber_delta=0.5)},
    "wide": {"config": DQNConfig(hidden=(128, 100), batch_size=64), "seeds": 1},
    "seven positions": {"config": SMALL, "env": EnvConfig(positions=3, lots_per_level=2, max_position=4)},
    "session rules": {"config": SMALL, "env": EnvConfig(flat_at_close=True, no_entry_minutes=30, direction="long")},
    "spread rolls": {"config": SMALL, "env": EnvConfig(roll_as="spread")},
    "look back": {"config": SMALL, "env": EnvConfig(lookback=9, decision_delay=2), "prefill_steps": 5},
    "long look back": {"config": DQNConfig(hidden=(70, 128), batch_size=40), "env": EnvConfig(lookback=20), "seeds": 1},
    "full ring": {"config": SMALL, "capacity": 24, "steps_per_epoch": 6},
    "short episodes": {"config": SMALL, "episode_bars": 2, "steps_per_epoch": 6},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_study_is_that_of_the_xla_form(name):
    changes = {"windows": 1, "seeds": 2, "steps_per_epoch": 4} | CASES[name]
    world = make_world(data=planted_market(days=50), **changes)
    train = world.windows.train.at[:, 0].set(64)  # past the longest look-back, as the planner of windows sees to
    windows = dataclasses.replace(world.windows, train=train)
    assert_same(*both(dataclasses.replace(world, windows=windows)), REAL)


@pytest.mark.slow
def test_recorded_spreads_cost_what_they_cost_in_the_xla_form():
    data = random_half_spreads(planted_market(days=50))
    assert_same(
        *both(make_world(windows=2, seeds=1, config=SMALL, data=data, has_spread=True, steps_per_epoch=4)), REAL
    )


@pytest.mark.slow
def test_an_epoch_of_fifty_updates_drifts_by_no_more_than_stated():
    assert_same(*both(make_world(windows=1, seeds=1, config=SMALL, steps_per_epoch=50)), DRIFTED)


@pytest.mark.slow
def test_launches_in_parts_are_one_launch(monkeypatch):
    world = make_world(windows=1, seeds=2, config=SMALL, steps_per_epoch=5)
    whole = both(world)[1]
    words = 3 * world.program.lanes + SMALL.batch_size
    monkeypatch.setattr(call, "WORD_BYTES", 2 * 4 * words * 2)
    assert call.chunk_steps(world.program, 2) == 2
    parts = both(world)[1]
    assert_same(whole, parts, 1e-6)


@pytest.mark.slow
def test_one_product_of_halves_is_as_exact_as_tf32():
    """Against the float32 form: the error is that of eleven bits, and far above that of three products."""
    reference, kernel = both(small_world(), "tf32")
    assert_same(reference, kernel, 2e-2)
    with pytest.raises(AssertionError):
        assert_same(reference, kernel, REAL)
