import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import trees
from tidewalk.train import epoch as phases
from tidewalk.train.population import initial_state


def fresh(world):
    state = jax.jit(functools.partial(initial_state, world.program))(world.windows, world.members)
    return jax.jit(functools.partial(phases.prefill, world.program))(*world.fixed, state)


def fused(world):
    return jax.jit(functools.partial(phases.fused_epoch, world.program))


def run(world, epochs=2):
    state, program = fresh(world), fused(world)
    for _ in range(epochs):
        state, metrics = program(*world.fixed, state)
    return state, metrics


def as_bytes(tree):
    return {name: array.tobytes() for name, array in trees.to_named(tree).items()}


def test_the_same_seed_gives_the_same_bits(world_factory):
    first, _ = run(world_factory())
    again, _ = run(world_factory())
    assert as_bytes(first) == as_bytes(again)


# style.md 7, PureJaxRL trap: "seeds" that share their weights and streams
def test_two_seeds_differ_in_weights_exploration_and_start_bars(world_factory):
    state = fresh(world_factory(windows=1, seeds=2))
    weights = state.agent.params.layers[0].weight
    assert not np.allclose(weights[0], weights[1])
    bars, words = np.asarray(state.replay[..., 0]), np.asarray(state.replay[..., 1])
    start = bars[:8]
    assert not np.array_equal(start[:, 0], start[:, 1])
    actions = (words[:32] >> 8) & 0xFF
    assert not np.array_equal(actions[:, 0], actions[:, 1])
    other_root = fresh(world_factory(windows=1, seeds=2, root_seed=1))
    assert not np.allclose(other_root.agent.params.layers[0].weight[0], weights[0])


def test_a_member_alone_is_the_member_in_the_population(world_factory):
    """To float tolerance: a batched matrix product may round differently from a single one."""
    world = world_factory(windows=2, seeds=3)
    together, _ = run(world, epochs=1)
    index = 4
    alone_members = jax.tree.map(lambda leaf: leaf[index : index + 1], world.members)
    alone, _ = run(dataclasses.replace(world, members=alone_members), epochs=1)
    for name, array in trees.to_named(trees.member(together.agent, index)).items():
        np.testing.assert_allclose(array, trees.to_named(trees.member(alone.agent, 0))[name], rtol=2e-4, atol=2e-5, err_msg=name)
    assert np.array_equal(together.replay[:, index, 0], alone.replay[:, 0, 0])


def test_permuting_members_permutes_the_results(world_factory):
    world = world_factory(windows=2, seeds=2)
    order = np.array([2, 0, 3, 1])
    permuted = dataclasses.replace(world, members=jax.tree.map(lambda leaf: leaf[order], world.members))
    plain, _ = run(world, epochs=1)
    other, _ = run(permuted, epochs=1)
    for name, array in trees.to_named(plain.agent).items():
        np.testing.assert_array_equal(array[order], trees.to_named(other.agent)[name], err_msg=name)


def test_phases_called_one_by_one_are_the_fused_epoch(world_factory):
    world = world_factory()
    program = world.program
    together, metrics = fused(world)(*world.fixed, fresh(world))
    state, losses = fresh(world), []
    collect = jax.jit(functools.partial(phases.collect_step, program))
    learn = jax.jit(functools.partial(phases.learn_step, program))
    for _ in range(program.steps_per_epoch):
        state = collect(*world.fixed, state)
        state, means = learn(*world.fixed, state)
        losses.append(means["loss"])
    state, score = jax.jit(functools.partial(phases.evaluate_step, program))(*world.fixed, state, jnp.mean(jnp.stack(losses), axis=0))
    for name, array in trees.to_named(together.agent).items():
        np.testing.assert_allclose(array, trees.to_named(state.agent)[name], rtol=2e-4, atol=2e-5, err_msg=name)
    np.testing.assert_array_equal(together.replay, state.replay)
    np.testing.assert_allclose(metrics["score"], score.score, rtol=1e-3, atol=1e-3)


def test_best_epoch_is_the_highest_validation_score_and_ties_go_to_the_earlier(world_factory):
    world = world_factory()
    state = fresh(world)
    evaluate = jax.jit(functools.partial(phases.evaluate_step, world.program))
    loss = jnp.zeros(4)
    later = dataclasses.replace(state, clock=state.clock + 20)
    first, score = evaluate(*world.fixed, later, loss)
    assert first.best.epoch.tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(first.best.score, score.score)
    again, _ = evaluate(*world.fixed, dataclasses.replace(first, clock=first.clock + 20), loss)
    assert again.best.epoch.tolist() == [1, 1, 1, 1]


# validity.md 3.4: NaN in one lane of the population stops that member alone
def test_a_diverged_member_is_marked_keeps_its_earlier_best_and_disturbs_nobody(world_factory):
    world = world_factory()
    program = fused(world)
    state, _ = program(*world.fixed, fresh(world))
    healthy, _ = program(*world.fixed, state)
    poisoned_params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.agent.params)
    poisoned = dataclasses.replace(state, agent=dataclasses.replace(state.agent, params=poisoned_params))
    after, _ = program(*world.fixed, poisoned)
    assert after.is_alive.tolist() == [True, False, True, True]
    assert after.best.epoch[1] == state.best.epoch[1]
    np.testing.assert_array_equal(trees.member(after.best.params, 1).layers[0].weight, trees.member(state.best.params, 1).layers[0].weight)
    for index in (0, 2, 3):
        assert as_bytes(trees.member(after.agent, index)) == as_bytes(trees.member(healthy.agent, index))


def test_select_sharpe_scores_sessions(world_factory):
    by_sharpe = world_factory(select="sharpe")
    _, metrics = run(by_sharpe, epochs=1)
    _, plain = run(world_factory(), epochs=1)
    assert np.isfinite(np.asarray(metrics["score"])).all()
    assert not np.allclose(metrics["score"], plain["score"])
    assert np.array_equal(np.sign(metrics["score"]), np.sign(plain["score"]))


# ---- structure of the compiled epoch (architecture.md section 4)


def compiled_text(world):
    state = fresh(world)
    return jax.jit(functools.partial(phases.fused_epoch, world.program), donate_argnums=3).lower(*world.fixed, state).compile().as_text()


@pytest.fixture
def hlo(world_factory):
    return compiled_text(world_factory(capacity=1024))


def loop_bodies(text):
    """Computations that some while loop names as its body."""
    names = set(re.findall(r"body=%?([\w.\-]+)", text))
    blocks = re.split(r"\n(?=%?[\w.\-]+ \(|ENTRY)", text)
    return [block for block in blocks if any(re.match(rf"%?{re.escape(name)} ", block) for name in names)]


def test_no_loop_copies_the_replay(hlo):
    assert "s32[1024,4,2]" in hlo
    bodies = loop_bodies(hlo)
    assert bodies
    for body in bodies:
        copies = [line for line in body.splitlines() if re.search(r"= s32\[1024,4,2\]\S* copy\(", line)]
        assert not copies


def test_the_copy_detector_sees_a_copy():
    """The detector of the test above, shown to fire: a loop that must keep the old buffer copies it."""

    def body(carry, _):
        old, new = carry
        return (new, new.at[0].set(old[1])), None

    text = jax.jit(lambda x: jax.lax.scan(body, (x, x + 1), None, length=5)[0]).lower(jnp.zeros((1024, 4, 2), jnp.int32)).compile().as_text()
    assert any(re.search(r"= s32\[1024,4,2\]\S* copy\(", line) for block in loop_bodies(text) for line in block.splitlines())


def test_every_loop_has_a_known_trip_count(hlo):
    loops = [line for line in hlo.splitlines() if re.search(r" while\(", line)]
    assert loops
    assert all("known_trip_count" in line for line in loops)


def test_no_operation_of_the_host_stands_in_the_epoch(hlo):
    assert not re.search(r" (infeed|outfeed|send|recv|send-done|recv-done)\(", hlo)
    assert "callback" not in hlo


def test_no_array_of_members_by_all_bars(world_factory, hlo):
    bars = world_factory().market.move_ticks.shape[0]
    assert f"[{bars}" in hlo
    assert not re.search(rf"\[4,{bars}[,\]]", hlo)


def test_the_steady_state_epoch_moves_nothing_from_the_host(world_factory):
    world = world_factory()
    state = fresh(world)
    program = jax.jit(functools.partial(phases.fused_epoch, world.program), donate_argnums=3).lower(*world.fixed, state).compile()
    with jax.transfer_guard("disallow_explicit"):
        state, _ = program(*world.fixed, state)
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="transfer"):
        jax.device_put(np.zeros(3))  # the guard, shown to fire


def test_hard_target_updates_stay_a_branch_in_the_population_epoch(world_factory):
    world = world_factory(config=DQNConfig(hidden=(8,), batch_size=8, target_update="hard", target_period=7))
    text = str(jax.make_jaxpr(functools.partial(phases.fused_epoch, world.program))(*world.fixed, fresh(world)))
    assert "cond[" in text
