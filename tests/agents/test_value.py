import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from tidewalk.agents.value import double_q_error, huber, n_step_return


# rlax value_learning_test: double Q with value and selector tables -> [0, 1]
def test_double_q_error_lets_the_online_network_select_and_the_target_value():
    q_tm1 = jnp.array([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
    value = jnp.array([[99.0, 1.0, 98.0], [91.0, 2.0, 66.0]])
    selector = jnp.array([[2.0, 10.0, 1.0], [11.0, 20.0, 1.0]])
    errors = jax.vmap(double_q_error)(
        q_tm1, jnp.array([0, 1], jnp.int32), jnp.ones(2), jnp.array([0.0, 1.0]), value, selector, jnp.ones((2, 3), bool)
    )
    assert errors.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_double_q_error_and_its_gradient_are_those_of_rlax(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    tables = [jax.random.normal(key, (7, 4)) for key in keys]
    action = jnp.arange(7, dtype=jnp.int32) % 4
    reward, discount = jnp.linspace(-1, 1, 7), jnp.full(7, 0.9)

    def total(function, q_tm1, *mask):
        return jnp.sum(jax.vmap(function)(q_tm1, action, reward, discount, tables[1], tables[2], *mask) ** 2)

    everything = jnp.ones((7, 4), bool)
    for part in (total, lambda function, q, *mask: jax.grad(total, argnums=1)(function, q, *mask)):
        own, oracle = (part(double_q_error, tables[0], everything), part(rlax.double_q_learning, tables[0]))
        np.testing.assert_allclose(own, oracle, rtol=1e-5)


# the selector's best action is not allowed: the target is the value of the best that is, and rlax's on the rest
def test_double_q_selects_among_what_is_allowed():
    q_tm1, value, selector = jnp.zeros(3), jnp.array([5.0, 7.0, 100.0]), jnp.array([1.0, 2.0, 3.0])
    step = (q_tm1, jnp.int32(0), jnp.float32(1.0), jnp.float32(0.5), value, selector)
    targets = [float(double_q_error(*step, jnp.array(mask, bool))) for mask in ([1, 1, 1], [1, 1, 0], [1, 0, 0])]
    assert targets == [51.0, 4.5, 3.5]
    rest = (q_tm1[:2], *step[1:4], value[:2], selector[:2])
    assert float(rlax.double_q_learning(*rest)) == targets[1]


# validity.md 2.1: rewards 1, 2, 4, gamma .5, bootstrap 8 -> 4; truncated after 2 steps with V = 10 -> 4.5
@pytest.mark.parametrize(
    ("rewards", "valid", "bootstrap", "target"),
    [
        ([1.0, 2.0, 4.0], [True, True, True], 8.0, 4.0),
        ([1.0, 2.0, 4.0], [True, True, False], 10.0, 4.5),
        ([1.0, 2.0, 4.0], [True, False, False], 10.0, 6.0),
    ],
)
def test_n_step_targets_bootstrap_with_the_power_of_the_steps_taken(rewards, valid, bootstrap, target):
    total, discount = n_step_return(jnp.array(rewards), jnp.array(valid), jnp.zeros(3, bool), jnp.float32(0.5))
    if rewards[-1] == 4.0 and all(valid):
        assert float(total) == 3.0
    assert float(total + discount * bootstrap) == target


# validity.md 2.1: terminal at step 2 -> 1 + 1 = 2; B23: r = 1, gamma .9, V = 10 -> 10 after the data end, 1 after ruin
@pytest.mark.parametrize(
    ("rewards", "valid", "terminal", "gamma", "bootstrap", "target"),
    [
        ([1.0, 2.0, 4.0], [True, True, False], [False, True, False], 0.5, 10.0, 2.0),
        ([1.0, 2.0, 4.0], [True, True, False], [False, False, True], 0.5, 10.0, 4.5),
        ([1.0], [True], [False], 0.9, 10.0, 10.0),
        ([1.0], [True], [True], 0.9, 10.0, 1.0),
    ],
)
def test_a_termination_ends_a_target_and_a_truncation_bootstraps(rewards, valid, terminal, gamma, bootstrap, target):
    total, discount = n_step_return(*(jnp.array(x) for x in (rewards, valid, terminal)), jnp.float32(gamma))
    assert float(total + discount * bootstrap) == pytest.approx(target, rel=1e-6)


# validity.md 2.1: q(s) = w x, w = 1, x = x' = 1, r = 0, gamma = .9: the semi-gradient of 0.5 TD^2 is 0.1, 0.01 without
# stop_gradient
def test_target_passes_no_gradient():
    def loss(w):
        q = jnp.array([w, w])
        error = double_q_error(q, jnp.int32(0), jnp.float32(0.0), jnp.float32(0.9), q, q, jnp.ones(2, bool))
        return 0.5 * error**2

    assert float(jax.grad(loss)(1.0)) == pytest.approx(0.1)


def test_huber_is_quadratic_within_delta_and_linear_beyond():
    assert np.allclose(huber(jnp.array([0.5, 3.0, -3.0]), 1.0), [0.125, 2.5, 2.5])
