import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidewalk.agents import replay
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import keys, trees
from tidewalk.run.mesh import PRECISIONS
from tidewalk.train import epoch as phases
from tidewalk.train.collect import transitions
from tidewalk.train.population import window_of
from worlds import base, base_epoch, base_state, fresh, make_world


def run(members=None):
    """State and metrics after one epoch of the base world, with other members (as many) where given."""
    world = base() if members is None else dataclasses.replace(base(), members=members)
    start = base_state() if members is None else fresh(world)
    return base_epoch()(*world.fixed, start)


def as_bytes(tree):
    return {name: array.tobytes() for name, array in trees.to_named(tree).items()}


def test_the_same_state_gives_the_same_bits():
    assert as_bytes(run()[0]) == as_bytes(run()[0])


# style.md 7, PureJaxRL trap: "seeds" that share their weights and streams
def test_two_seeds_differ_in_weights_exploration_and_start_bars():
    state = base_state()
    weights = state.agent.params.layers[0].weight
    assert not np.allclose(weights[0], weights[1])
    bars, words = np.asarray(state.replay[..., 0]), np.asarray(state.replay[..., 1])
    assert not np.array_equal(bars[:8, 0], bars[:8, 1])
    actions = (words[:32] >> 8) & 0xFF
    assert not np.array_equal(actions[:, 0], actions[:, 1])
    other_root = make_world(windows=1, seeds=2, root_seed=1).members
    assert not np.array_equal(jax.random.key_data(other_root.key[0]), jax.random.key_data(base().members.key[0]))


def test_a_member_alone_is_the_member_in_the_population():
    """To float tolerance: a batched matrix product may round differently from a single one."""
    together, _ = run()
    index = 2
    alone_world = dataclasses.replace(
        base(), members=jax.tree.map(lambda leaf: leaf[index : index + 1], base().members)
    )
    alone, _ = jax.jit(functools.partial(phases.fused_epoch, base().program))(*alone_world.fixed, fresh(alone_world))
    for name, array in trees.to_named(trees.member(together.agent, index)).items():
        np.testing.assert_allclose(
            array, trees.to_named(trees.member(alone.agent, 0))[name], rtol=2e-4, atol=2e-5, err_msg=name
        )
    assert np.array_equal(together.replay[:, index, 0], alone.replay[:, 0, 0])


def test_permuting_members_permutes_the_results():
    order = np.array([2, 0, 3, 1])
    plain, _ = run()
    other, _ = run(jax.tree.map(lambda leaf: leaf[order], base().members))
    for name, array in trees.to_named(plain.agent).items():
        np.testing.assert_array_equal(array[order], trees.to_named(other.agent)[name], err_msg=name)


def test_phases_called_one_by_one_are_the_fused_epoch():
    world, program = base(), base().program
    together, metrics = run()
    state, losses = base_state(), []
    collect = jax.jit(functools.partial(phases.collect_step, program))
    learn = jax.jit(functools.partial(phases.learn_step, program))
    for _ in range(program.steps_per_epoch):
        state = collect(*world.fixed, state)
        state, means = learn(*world.fixed, state)
        losses.append(means["loss"])
    state, score = jax.jit(functools.partial(phases.evaluate_step, program))(
        *world.fixed, state, jnp.mean(jnp.stack(losses), axis=0)
    )
    for name, array in trees.to_named(together.agent).items():
        np.testing.assert_allclose(array, trees.to_named(state.agent)[name], rtol=2e-4, atol=2e-5, err_msg=name)
    np.testing.assert_array_equal(together.replay, state.replay)
    np.testing.assert_allclose(metrics["score"], score.score, rtol=1e-3, atol=1e-3)
    _best_epoch_rules(jax.jit(functools.partial(phases.evaluate_step, program)), state)


def _best_epoch_rules(evaluate, state):
    """The best epoch is the highest validation score, and ties go to the earlier."""
    loss = jnp.zeros(4)
    again, score = evaluate(*base().fixed, dataclasses.replace(state, clock=state.clock + 20), loss)
    assert again.best.epoch.tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(again.best.score, score.score)
    worse = dataclasses.replace(again.best, score=again.best.score - 1.0)
    better, _ = evaluate(*base().fixed, dataclasses.replace(again, best=worse, clock=state.clock + 20), loss)
    assert better.best.epoch.tolist() == [2, 2, 2, 2]


# validity.md 3.4: NaN in one lane of the population stops that member alone
def test_a_diverged_member_is_marked_keeps_its_earlier_best_and_disturbs_nobody():
    world, program = base(), base_epoch()
    state, _ = run()
    healthy, _ = program(*world.fixed, state)
    poisoned_params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.agent.params)
    poisoned = dataclasses.replace(state, agent=dataclasses.replace(state.agent, params=poisoned_params))
    after, _ = program(*world.fixed, poisoned)
    assert after.is_alive.tolist() == [True, False, True, True]
    assert after.best.epoch[1] == state.best.epoch[1]
    np.testing.assert_array_equal(
        trees.member(after.best.params, 1).layers[0].weight, trees.member(state.best.params, 1).layers[0].weight
    )
    for index in (0, 2, 3):
        assert as_bytes(trees.member(after.agent, index)) == as_bytes(trees.member(healthy.agent, index))


def test_select_sharpe_scores_sessions():
    state = base_state()
    scores = []
    for select in ("sharpe", "reward"):
        program = dataclasses.replace(base().program, select=select)
        _, score = jax.jit(functools.partial(phases.evaluate_step, program))(*base().fixed, state, jnp.zeros(4))
        scores.append(np.asarray(score.score))
    assert np.isfinite(scores[0]).all()
    assert not np.allclose(*scores)
    assert np.array_equal(np.sign(scores[0]), np.sign(scores[1]))


def test_hard_target_updates_stay_a_branch_in_the_population_epoch():
    world = make_world(config=DQNConfig(hidden=(8,), batch_size=8, target_update="hard", target_period=7))
    state = jax.eval_shape(functools.partial(fresh, world))
    text = str(jax.make_jaxpr(functools.partial(phases.fused_epoch, world.program))(*world.fixed, state))
    assert "cond[" in text


def dots_of(text):
    return [line for line in text.splitlines() if "stablehlo.dot_general" in line]


# every matrix product of the whole epoch says how precise it is; nothing is left to the backend's default
@pytest.mark.parametrize(
    ("precision", "wanted"),
    [
        ("float32", "precision = [HIGHEST, HIGHEST]"),
        ("tf32", "precision = [HIGH, HIGH]"),
        ("bf16", "lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32"),
    ],
)
def test_every_product_of_the_epoch_names_its_precision(precision, wanted):
    with jax.default_matmul_precision(PRECISIONS[precision]):
        function = functools.partial(phases.fused_epoch, base().program)
        dots = dots_of(jax.jit(function).lower(*base().fixed, base_state()).as_text())
    assert len(dots) >= 12
    assert all(wanted in dot for dot in dots)
    unnamed = dots_of(jax.jit(jnp.matmul).lower(jnp.ones((2, 2)), jnp.ones((2, 2))).as_text())
    assert unnamed
    assert not any(wanted in dot for dot in unnamed)  # what the test looks for, shown to be missing without the setting


def several_updates(count):
    return dataclasses.replace(base().program, agent=dataclasses.replace(base().program.agent, updates_per_step=count))


@pytest.mark.parametrize("count", [1, 7])
def test_updates_of_a_step_follow_one_another_on_draws_of_their_own(count):
    """Against the updates written out one by one; the metrics are means over them."""
    program, (market, windows, members), agent = several_updates(count), base().fixed, base().program.agent
    state = jax.jit(functools.partial(phases.collect_step, program))(*base().fixed, base_state())
    found, means = jax.jit(functools.partial(phases.learn_step, program))(*base().fixed, state)
    words = 3 * program.lanes + count * agent.batch_size
    bits = jax.vmap(lambda key: keys.step_bits(key, state.clock - 1, words))(members.key)[:, 3 * program.lanes :]

    @jax.jit
    def update(learner, draw):
        records = replay.sample(state.replay, state.clock, draw, program.lanes, agent.n_step)

        def one(member, learner, records):
            row = window_of(windows, member.window)
            batch = transitions(program, market, row, records, member.cost, member.hyper.gamma, member.limits)
            return agent.learn(learner, batch, member.hyper, jnp.int32(0))

        return jax.vmap(one)(members, learner, records)

    learner, losses = state.agent, []
    for draw in jnp.split(bits, count, axis=1):
        learner, metrics = update(learner, draw)
        losses.append(metrics["loss"])
    assert len({float(loss[0]) for loss in losses}) == count
    np.testing.assert_allclose(means["loss"], jnp.mean(jnp.stack(losses), axis=0), rtol=1e-4)
    for name, array in trees.to_named(learner).items():
        np.testing.assert_allclose(array, trees.to_named(found.agent)[name], rtol=2e-4, atol=2e-5, err_msg=name)


def test_the_program_does_not_grow_with_the_updates_of_a_step():
    def size(count):
        function = functools.partial(phases.learn_step, several_updates(count))
        return len(jax.jit(function).lower(*base().fixed, base_state()).as_text().splitlines())

    assert size(1000) == size(7)


def test_a_step_draws_its_random_words_once():
    """Collection and sampling share one draw; the keys of all steps are made before the loop."""
    traced = jax.make_jaxpr(functools.partial(phases.learn_steps, base().program))(*base().fixed, base_state())
    (steps,) = (equation for equation in traced.eqns if equation.primitive.name == "scan")
    body = str(steps.params["jaxpr"])
    assert steps.params["length"] == base().program.steps_per_epoch
    assert body.count("random_bits[") == 1
    assert "random_fold_in" not in body
    assert "random_fold_in" in str(traced)


def test_a_group_of_members_has_the_bits_that_it_has_in_the_population():
    """Two members or more in a program: how many others there are changes nothing at all."""
    pair = make_world(windows=1, seeds=2)
    together, _ = run()
    alone, _ = jax.jit(functools.partial(phases.fused_epoch, pair.program))(*pair.fixed, fresh(pair))
    for name, array in trees.to_named(alone.agent).items():
        assert array.tobytes() == trees.to_named(together.agent)[name][:2].tobytes(), name
