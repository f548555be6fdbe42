"""The phases of an epoch and their order: collect, store, learn, evaluate; one fused program, or one call per phase.

Both forms run the same functions. The population is mapped here and nowhere else; the clock is never mapped.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.agents import replay as replay_ops
from tidewalk.core import keys, trees
from tidewalk.core.arrays import Array, Float32, PyTree, UInt32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.train.collect import collect, transitions
from tidewalk.train.evaluate import Score, validate
from tidewalk.train.population import Best, Members, Program, TrainState, window_of


def step_bits(program: Program, members: Members, clock: Array) -> UInt32[Array, "M R"]:
    """All random words of one vector step: 3 per lane, then one per sampled transition. One draw per step."""
    words = 3 * program.lanes + program.agent.updates_per_step * program.agent.batch_size
    return jax.vmap(lambda key: keys.step_bits(key, clock, words))(members.key)


def collect_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState, *, is_prefill: bool = False
) -> TrainState:
    """Phase collect: every lane of every member moves one bar, the records go to the replay, the clock ticks."""
    bits = step_bits(program, members, state.clock)[:, : 3 * program.lanes]
    steps = state.clock - program.prefill_steps

    def one(member: Members, params: PyTree, lanes: Any, words: Array) -> Any:
        epsilon = jnp.float32(1.0) if is_prefill else program.agent.epsilon(member.hyper, steps)
        return collect(program, market, window_of(windows, member.window), params, lanes, words, epsilon, member.limits)

    lanes, rows = jax.vmap(one)(members, program.agent.params(state.agent), state.lanes, bits)
    replay = replay_ops.add(state.replay, jnp.swapaxes(rows, 0, 1), state.clock)
    return TrainState(state.agent, lanes, replay, state.clock + 1, state.best, state.is_alive)


def learn_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    """Phase learn: the updates that follow a vector step. Metrics are means over these updates."""
    agent = program.agent
    bits = step_bits(program, members, state.clock - 1)[:, 3 * program.lanes :]
    learner, history = state.agent, []
    for number in range(agent.updates_per_step):
        draw = bits[:, number * agent.batch_size : (number + 1) * agent.batch_size]
        records = replay_ops.sample(state.replay, state.clock, draw, program.lanes, agent.n_step)
        updates = (state.clock - 1 - program.prefill_steps) * agent.updates_per_step + number

        def one(member: Members, one_state: PyTree, sequences: Array, updates: Array = updates) -> Any:
            window = window_of(windows, member.window)
            batch = transitions(program, market, window, sequences, member.cost, member.hyper.gamma, member.limits)
            return agent.learn(one_state, batch, member.hyper, updates)

        learner, metrics = jax.vmap(one)(members, learner, records)
        history.append(metrics)
    means = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values), axis=0), *history)
    return TrainState(learner, state.lanes, state.replay, state.clock, state.best, state.is_alive), means


def evaluate_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState, loss: Float32[Array, "M"]
) -> tuple[TrainState, Score]:
    """Phase evaluate: greedy pass over the validation months; a member's best epoch is kept where the score is higher.

    A member whose loss of this epoch is not finite is marked dead and never chosen again; its earlier best epoch stays.
    """
    params = program.agent.params(state.agent)
    score = jax.vmap(functools.partial(validate, program, market, windows))(members, params)
    is_alive = state.is_alive & jnp.isfinite(loss) & jnp.isfinite(score.spread)
    is_better = is_alive & (score.score > state.best.score)
    epoch = (state.clock - program.prefill_steps) // program.steps_per_epoch
    best = Best(
        params=trees.select(is_better, params, state.best.params),
        score=jnp.where(is_better, score.score, state.best.score),
        epoch=jnp.where(is_better, epoch, state.best.epoch),
        spread=jnp.where(is_better, score.spread, state.best.spread),
        tally=trees.select(is_better, score.tally, state.best.tally),
    )
    return TrainState(state.agent, state.lanes, state.replay, state.clock, best, is_alive), score


def prefill(program: Program, market: Market, windows: Windows, members: Members, state: TrainState) -> TrainState:
    """Random actions until the replay holds enough to learn from."""

    def body(carry: TrainState, _: None) -> tuple[TrainState, None]:
        return collect_step(program, market, windows, members, carry, is_prefill=True), None

    return lax.scan(body, state, None, length=program.prefill_steps)[0]


def fused_epoch(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Any]]:
    """One whole epoch as one program: steps of collect, store and learn, then the evaluation.

    Returns:
        The state after the epoch, and its metrics as arrays `[M]`: `loss`, `q_mean` (means over the updates), `score`,
        the parts of the validation's `Tally` that are counted, `is_alive`, and the scalar `epsilon` of member 0 at the
        last step.
    """

    def body(carry: TrainState, _: None) -> tuple[TrainState, dict[str, Array]]:
        carry = collect_step(program, market, windows, members, carry)
        return learn_step(program, market, windows, members, carry)

    state, history = lax.scan(body, state, None, length=program.steps_per_epoch)
    means = {name: jnp.mean(values, axis=0) for name, values in history.items()}
    state, score = evaluate_step(program, market, windows, members, state, means["loss"])
    return state, epoch_metrics(program, members, state, means, score)


def epoch_metrics(
    program: Program, members: Members, state: TrainState, means: dict[str, Array], score: Score
) -> dict[str, Any]:
    """Metrics of an epoch as device arrays; the host fetches them in one copy."""
    parts = {field.name: getattr(score.tally, field.name) for field in dataclasses.fields(score.tally)}
    first = jax.tree.map(lambda leaf: leaf[0], members.hyper)
    return {
        **means,
        "score": score.score,
        **{name: values for name, values in parts.items() if values is not None},
        "is_alive": state.is_alive,
        "epsilon": program.agent.epsilon(first, state.clock - 1 - program.prefill_steps),
    }
