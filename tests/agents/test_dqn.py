import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.agents.networks import QNetwork
from tidewalk.agents.value import Transition
from tidewalk.core import keys
from tidewalk.core.errors import ConfigError

CONFIG = DQNConfig(lr=3e-3, gamma=0.9, hidden=(32,), batch_size=64, tau=0.05)


def train(config, make_batch, updates=600, size=2, actions=2):
    """Train one agent on batches of `make_batch(key)`."""
    agent = make_dqn(config, size, actions)
    hyper = dqn.hyper(config, updates)

    def body(state, number):
        batch = make_batch(jax.random.fold_in(keys.root_key(5), number))
        return agent.learn(state, batch, hyper, number)

    state = agent.init(keys.root_key(0))
    state, _ = jax.jit(lambda s: jax.lax.scan(body, s, jnp.arange(updates, dtype=jnp.int32)))(state)
    return functools.partial(agent.q_values, state.params)


def batch(observation, action, reward, discount, following):
    discounts = jnp.full(reward.shape, discount, jnp.float32)
    return Transition(observation, action, reward, discounts, following, jnp.ones((reward.shape[0], 2), bool))


def draw(key, size=64):
    first, second = jax.random.split(key)
    sign = jax.random.randint(first, (size,), 0, 2).astype(jnp.float32) * 2 - 1
    return sign, jax.random.randint(second, (size,), 0, 2, dtype=jnp.int32)


def observe(sign, time):
    return jnp.stack([sign, jnp.full_like(sign, time)], axis=1)


# Probe environments in the manner of A. Jones / rejax: five tiny worlds with known values
def test_probe_constant_reward_gives_value_one():
    def make(key):
        sign, action = draw(key)
        zeros = observe(jnp.zeros_like(sign), 0.0)
        return batch(zeros, action, jnp.ones(64), 0.0, zeros)

    assert np.allclose(train(CONFIG, make)(jnp.zeros(2)), 1.0, atol=0.1)


def test_probe_observation_decides_the_value():
    def make(key):
        sign, action = draw(key)
        return batch(observe(sign, 0.0), action, sign, 0.0, observe(sign, 0.0))

    q = train(CONFIG, make)
    assert np.allclose(q(jnp.array([1.0, 0.0])), 1.0, atol=0.1)
    assert np.allclose(q(jnp.array([-1.0, 0.0])), -1.0, atol=0.1)


def test_probe_delayed_reward_is_discounted():
    """Time 0 earns nothing and leads to time 1, which earns 1 and ends."""

    def make(key):
        sign, action = draw(key)
        at_end = (sign + 1) / 2
        observation = observe(jnp.zeros_like(sign), 0.0).at[:, 1].set(at_end)
        following = observe(jnp.zeros_like(sign), 1.0)
        return dataclasses.replace(batch(observation, action, at_end, 0.0, following), discount_t=0.9 * (1 - at_end))

    q = train(dataclasses.replace(CONFIG, lr=1e-2), make, updates=1200)
    assert np.allclose(q(jnp.array([0.0, 1.0])), 1.0, atol=0.1)
    assert np.allclose(q(jnp.array([0.0, 0.0])), 0.9, atol=0.1)


def test_probe_action_decides_the_reward():
    def make(key):
        sign, action = draw(key)
        zeros = observe(jnp.zeros_like(sign), 0.0)
        return batch(zeros, action, action.astype(jnp.float32) * 2 - 1, 0.0, zeros)

    assert np.allclose(train(CONFIG, make)(jnp.zeros(2)), [-1.0, 1.0], atol=0.1)


def test_probe_action_must_match_the_observation():
    def make(key):
        sign, action = draw(key)
        return batch(observe(sign, 0.0), action, sign * (action.astype(jnp.float32) * 2 - 1), 0.0, observe(sign, 0.0))

    q = train(CONFIG, make)
    assert np.allclose(q(jnp.array([1.0, 0.0])), [-1.0, 1.0], atol=0.15)
    assert np.allclose(q(jnp.array([-1.0, 0.0])), [1.0, -1.0], atol=0.15)


@pytest.mark.parametrize(("is_masked", "value"), [(True, 1.0), (False, 1.9)])
def test_probe_a_target_promises_only_what_is_allowed(is_masked, value):
    """Action 1 pays 1, action 0 nothing; after the first step only action 0 may be taken, which pays nothing for ever.

    So the first step is worth 1. A maximum over all actions would add 0.9 x 1 for an action that nobody can take.
    """

    def make(key):
        sign, action = draw(key)
        later = (sign + 1) / 2
        now = observe(jnp.zeros_like(sign), 0.0).at[:, 1].set(later)
        made = batch(now, action, action.astype(jnp.float32), 0.0, observe(jnp.zeros_like(sign), 1.0))
        may_pay = jnp.stack([jnp.ones(64, bool), jnp.full(64, not is_masked)], axis=1)
        return dataclasses.replace(made, discount_t=0.9 * (1 - later), is_allowed_t=may_pay)

    q = train(dataclasses.replace(CONFIG, lr=1e-2), make, updates=1200)
    assert np.allclose(q(jnp.array([0.0, 0.0])), [value - 1.0, value], atol=0.1)


# validity.md B23, B24: truncation bootstraps from the final observation
def test_probe_a_time_limit_is_not_an_end():
    """A world that pays 1 for ever, cut after every step: the value is 1 / (1 - 0.5) = 2, not 1."""

    def make(key):
        sign, action = draw(key)
        zeros = observe(jnp.zeros_like(sign), 0.0)
        return batch(zeros, action, jnp.ones(64), 0.5, zeros)

    assert np.allclose(train(dataclasses.replace(CONFIG, lr=1e-2), make)(jnp.zeros(2)), 2.0, atol=0.15)


def test_duelling_head_has_advantages_of_mean_zero_around_the_value():
    network = QNetwork(keys.root_key(0), 3, (8,), 4, is_duelling=True)
    observation = jnp.array([0.5, -1.0, 2.0])
    hidden = jax.nn.relu(network.layers[0](observation))
    value = network.layers[1](hidden)[0]
    np.testing.assert_allclose(np.mean(network(observation)), value, rtol=1e-5)


def test_a_plain_head_is_the_output_layer():
    network = QNetwork(keys.root_key(0), 3, (8,), 4, is_duelling=False)
    observation = jnp.array([0.5, -1.0, 2.0])
    assert network.layers[1].weight.shape == (4, 8)
    by_hand = network.layers[1](jax.nn.relu(network.layers[0](observation)))
    np.testing.assert_allclose(network(observation), by_hand, rtol=1e-5)


def test_a_batch_of_observations_is_each_of_them():
    network = QNetwork(keys.root_key(0), 3, (8, 5), 4, is_duelling=True)
    rows = jax.random.normal(keys.root_key(1), (2, 6, 3))
    np.testing.assert_allclose(network(rows), jax.vmap(jax.vmap(network))(rows), rtol=1e-5, atol=1e-6)


# the loss of whole networks against rlax: which network selects and which one values, in both settings
@pytest.mark.parametrize("is_double", [True, False])
@pytest.mark.parametrize("is_duelling", [True, False])
def test_the_loss_is_that_of_rlax(is_double, is_duelling):
    config = DQNConfig(hidden=(8,), double=is_double, duelling=is_duelling, huber_delta=0.5)
    online, target = (dqn.init(config, 2, 3, keys.root_key(seed)).params for seed in (0, 1))
    first, second = jax.random.normal(keys.root_key(2), (2, 32, 2))
    action, reward = jnp.arange(32, dtype=jnp.int32) % 3, jnp.linspace(-2, 2, 32)
    given = Transition(first, action, reward, jnp.full(32, 0.9), second, jnp.ones((32, 3), bool))
    values = jax.vmap(online)(first), action, reward, given.discount_t, jax.vmap(target)(second)
    if is_double:
        errors = jax.vmap(rlax.double_q_learning)(*values, jax.vmap(online)(second))
    else:
        errors = jax.vmap(rlax.q_learning)(*values)
    wanted = jnp.mean(rlax.huber_loss(errors, 0.5))
    np.testing.assert_allclose(dqn.loss(config, online, target, given)[0], wanted, rtol=1e-5)
    other = dqn.loss(dataclasses.replace(config, double=not is_double), online, target, given)[0]
    assert abs(float(other - wanted)) > 1e-4, "the two settings differ on this batch"


def one_batch():
    return batch(jnp.zeros((4, 2)), jnp.zeros(4, jnp.int32), jnp.ones(4), 0.9, jnp.zeros((4, 2)))


# validity.md 2.1, B27: online 1, target 0, tau .5, two updates inside -> .75
def test_soft_target_moves_at_every_update():
    target = {"w": jnp.float32(0.0)}
    for number in (1, 2):
        target = dqn._move_target(DQNConfig(), target, {"w": jnp.float32(1.0)}, jnp.float32(0.5), jnp.int32(number))
    assert float(target["w"]) == 0.75


def test_hard_target_is_copied_every_period_and_stays_a_branch_in_a_population():
    config = DQNConfig(hidden=(4,), target_update="hard", target_period=2)
    agent = make_dqn(config, 2, 2)
    hyper = dqn.hyper(config, 10)
    state = agent.init(keys.root_key(0))
    for number in range(4):
        state, _ = agent.learn(state, one_batch(), hyper, jnp.int32(number))
        is_copied = all(
            np.array_equal(a, b)
            for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(state.target), strict=True)
        )
        assert is_copied == (number % 2 == 1)
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (state, one_batch(), hyper))
    mapped = jax.vmap(lambda s, b, h, n: agent.learn(s, b, h, n), in_axes=(0, 0, 0, None))
    assert "cond[" in str(jax.make_jaxpr(mapped)(*members, jnp.int32(0)))
    by_member = jax.vmap(lambda s, b, h, n: agent.learn(s, b, h, n))
    assert "cond[" not in str(
        jax.make_jaxpr(by_member)(*members, jnp.arange(2, dtype=jnp.int32))
    )  # what the shared clock avoids


def test_gradients_are_clipped_to_the_global_norm():
    config = DQNConfig(hidden=(4,), max_grad_norm=1e-3)
    state = dqn._optimizer(config).init({"w": jnp.zeros(3)})
    with jax.numpy_dtype_promotion("standard"):
        after = dqn._optimizer(config).update({"w": jnp.full(3, 100.0)}, state)[1]
    assert float(jnp.linalg.norm(after[1].mu["w"])) < 2e-4


def test_epsilon_falls_linearly_and_then_stays():
    hyper = dqn.hyper(DQNConfig(epsilon_start=1.0, epsilon=0.1, epsilon_decay_frac=0.5), 100)
    seen = [float(dqn.epsilon(hyper, jnp.int32(step))) for step in (0, 25, 50, 99)]
    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_learning_rate_and_discount_are_leaves_of_one_program():
    config = DQNConfig(hidden=(4,))
    agent = make_dqn(config, 2, 2)
    traces = []

    @jax.jit
    def learn(state, hyper):
        traces.append(1)
        return agent.learn(state, one_batch(), hyper, jnp.int32(0))[0]

    for lr in (1e-3, 1e-2, 1e-1):
        learn(agent.init(keys.root_key(0)), dqn.hyper(dataclasses.replace(config, lr=lr), 10))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("bad", "flag"),
    [
        ({"lr": 0.0}, "--lr"),
        ({"gamma": 1.5}, "--gamma"),
        ({"n_step": 0}, "--n-step"),
        ({"hidden": ()}, "--hidden"),
        ({"epsilon": -0.1}, "--epsilon"),
    ],
)
def test_values_that_cannot_train_are_refused_by_flag(bad, flag):
    with pytest.raises(ConfigError, match=flag):
        DQNConfig(**bad)
