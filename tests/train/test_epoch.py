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


# ---- structure of the compiled epoch (architecture.md section 4)


@pytest.fixture(scope="module")
def hlo():
    """Text of the compiled epoch as the engine runs it, its state donated."""
    function = functools.partial(phases.fused_epoch, base().program)
    return jax.jit(function, donate_argnums=3).lower(*base().fixed, base_state()).compile().as_text()


def loop_bodies(text):
    """Computations that some while loop names as its body."""
    names = set(re.findall(r"body=%?([\w.\-]+)", text))
    blocks = re.split(r"\n(?=%?[\w.\-]+ \(|ENTRY)", text)
    return [block for block in blocks if any(re.match(rf"%?{re.escape(name)} ", block) for name in names)]


def test_no_loop_copies_the_replay(hlo):
    assert "s32[512,4,2]" in hlo
    bodies = loop_bodies(hlo)
    assert bodies
    for body in bodies:
        copies = [line for line in body.splitlines() if re.search(r"= s32\[1024,4,2\]\S* copy\(", line)]
        assert not copies


def test_the_copy_detector_sees_a_copy():
    """The detector of the test above, shown to fire: a loop that reads the old buffer after the write must copy it."""

    def body(buffer, row):
        written = buffer.at[row % 512].set(row)
        stale = buffer[written[0, 0, 0] % 512, 0, 0]
        return written.at[0, 0, 0].set(stale), None

    start, rows = jnp.zeros((512, 4, 2), jnp.int32), jnp.arange(5, dtype=jnp.int32)
    text = jax.jit(lambda x: jax.lax.scan(body, x, rows)[0], donate_argnums=0).lower(start).compile().as_text()
    assert any(
        re.search(r"= s32\[512,4,2\]\S* copy\(", line) for block in loop_bodies(text) for line in block.splitlines()
    )


def test_every_loop_has_a_known_trip_count(hlo):
    loops = [line for line in hlo.splitlines() if re.search(r" while\(", line)]
    assert loops
    assert all("known_trip_count" in line for line in loops)


def test_no_operation_of_the_host_stands_in_the_epoch(hlo):
    assert not re.search(r" (infeed|outfeed|send|recv|send-done|recv-done)\(", hlo)
    assert "callback" not in hlo


def test_no_array_of_members_by_all_bars(hlo):
    bars = base().market.move_ticks.shape[0]
    assert f"[{bars}" in hlo
    assert not re.search(rf"\[4,{bars}[,\]]", hlo)


def test_the_steady_state_epoch_moves_nothing_from_the_host():
    state, _ = run()
    with jax.transfer_guard("disallow_explicit"):
        jax.block_until_ready(base_epoch()(*base().fixed, state))
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="transfer"):
        jax.device_put(np.zeros(3))  # the guard, shown to fire


def test_hard_target_updates_stay_a_branch_in_the_population_epoch():
    world = make_world(config=DQNConfig(hidden=(8,), batch_size=8, target_update="hard", target_period=7))
    state = jax.eval_shape(functools.partial(fresh, world))
    text = str(jax.make_jaxpr(functools.partial(phases.fused_epoch, world.program))(*world.fixed, state))
    assert "cond[" in text
