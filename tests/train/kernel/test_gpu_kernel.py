"""The kernel on a card: the XLA form's results, the same bits twice, and nothing copied. Run with `pytest -m gpu`."""

import functools

import jax
import numpy as np
import pytest

from support import planted_market
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import trees
from tidewalk.train import epoch as phases
from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import plan_for, unfit
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


def test_a_donated_state_is_changed_in_place():
    world = world_of((128, 128))
    with jax.default_matmul_precision("float32"):
        state = fresh(world)
        place = state.replay.unsafe_buffer_pointer()
        steps = jax.jit(functools.partial(call.learn_steps, world.program), donate_argnums=3)
        moved, _ = steps(*world.fixed, state)
    assert moved.replay.unsafe_buffer_pointer() == place
    assert state.replay.is_deleted()
