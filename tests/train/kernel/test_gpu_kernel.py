"""The kernel on a card: the XLA form's results, the same bits twice, and nothing copied. Run with `pytest -m gpu`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import planted_market
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import trees
from tidewalk.train import epoch as phases
from tidewalk.train.evaluate import trade_members, validate_all
from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import plan_for, shared_out, unfit
from tidewalk.train.population import Best
from worlds import fresh, make_world

pytestmark = pytest.mark.gpu


def world_of(hidden, **changes):
    config = DQNConfig(hidden=hidden, batch_size=64)
    return make_world(
        windows=1, seeds=3, config=config, data=planted_market(days=50), lanes=64, capacity=4096, **changes
    )


@pytest.fixture(autouse=True)
def needs_a_fitting_gpu():
    reason = unfit(jax.local_devices()[0], plan_for(world_of((128, 128)).program, "float32"))
    if reason:
        pytest.skip(reason)


@functools.cache
def runs(hidden):
    """Two runs of the kernel and one of the XLA form, from the same state."""
    world = world_of(hidden)
    with jax.default_matmul_precision("float32"):
        state = fresh(world)
        kernel = jax.jit(functools.partial(call.learn_steps, world.program))
        reference = jax.jit(functools.partial(phases.learn_steps, world.program))
        return [f(*world.fixed, state) for f in (kernel, kernel, reference)]


@pytest.mark.parametrize("hidden", [(128, 128), (64, 48), (100, 20)])
def test_the_kernel_is_the_xla_form(hidden):
    (kernel, means), _, (reference, expected) = runs(hidden)
    found = trees.to_named(kernel)
    for name, array in trees.to_named(reference).items():
        if array.dtype.kind == "f" and not name.startswith("best"):
            np.testing.assert_allclose(
                found[name], array, rtol=0, atol=1e-3 * max(np.abs(array).max(), 1e-6), err_msg=name
            )
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    np.testing.assert_allclose(means["loss"], expected["loss"], rtol=1e-4)


def test_two_runs_give_the_same_bits():
    first, second = (trees.to_named(state) for state, _ in runs((128, 128))[:2])
    assert {k: v.tobytes() for k, v in first.items()} == {k: v.tobytes() for k, v in second.items()}


def test_members_shared_by_several_blocks_have_the_bits_of_one():
    """More members than there is room for at a time, so that clusters follow one another; a batch in parts."""
    config = DQNConfig(batch_size=100, updates_per_step=2)
    world = make_world(windows=1, seeds=70, config=config, lanes=40, capacity=4000)
    if shared_out(plan_for(world.program, "float32"), 1, jax.local_devices()[0]).cluster == 1:
        pytest.skip("no clusters on this device")
    found = []
    with jax.default_matmul_precision("float32"):
        state = fresh(world)
        for cluster in (1, 4):
            plan = dataclasses.replace(plan_for(world.program, "float32"), observed=48, cluster=cluster)
            steps = jax.jit(functools.partial(call.learn_steps_by, call.launch, world.program, plan=plan))
            moved, means = steps(*world.fixed, state)
            arrays = {**trees.to_named(moved), **means}
            found.append({name: np.asarray(array).tobytes() for name, array in arrays.items()})
    assert found[0] == found[1]


def test_a_donated_state_is_changed_in_place():
    world = world_of((128, 128))
    with jax.default_matmul_precision("float32"):
        state = fresh(world)
        place = state.replay.unsafe_buffer_pointer()
        steps = jax.jit(functools.partial(call.learn_steps, world.program), donate_argnums=3)
        moved, _ = steps(*world.fixed, state)
    assert moved.replay.unsafe_buffer_pointer() == place
    assert state.replay.is_deleted()


def evaluated(world, state, learner):
    """Scores on the validation months, and positions over the test months."""
    program = dataclasses.replace(world.program, learner=learner, compose="associative")
    params, none = state.agent.params, jnp.zeros(3)
    best = Best(params=params, score=none, epoch=jnp.ones(3, jnp.int32), spread=none, tally=state.best.tally)
    with jax.default_matmul_precision("float32"):
        score = jax.jit(functools.partial(validate_all, program))(*world.fixed, params)
        path = jax.jit(functools.partial(trade_members, program))(*world.fixed, best)
    return jax.tree.map(np.asarray, (score, path))


@pytest.mark.parametrize("hidden", [(128, 128), (64, 48), (100, 20)])
def test_greedy_passes_by_kernels_are_those_of_the_xla_form(hidden):
    """Of networks that have learned for an epoch; the same bits twice."""
    world, state = world_of(hidden), runs(hidden)[0][0]
    (score, path), (again, _) = evaluated(world, state, "kernel"), evaluated(world, state, "kernel")
    expected, expected_path = evaluated(world, state, "xla")
    np.testing.assert_array_equal(path, expected_path)
    np.testing.assert_array_equal(score.score, expected.score)
    np.testing.assert_array_equal(score.tally.sides, expected.tally.sides)
    np.testing.assert_allclose(score.spread, expected.spread, rtol=1e-4)
    assert score.tally.sides.max() > 0
    assert [leaf.tobytes() for leaf in jax.tree.leaves(score)] == [leaf.tobytes() for leaf in jax.tree.leaves(again)]
