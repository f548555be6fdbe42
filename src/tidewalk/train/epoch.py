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
from tidewalk.core.arrays import Array, Float32, Int32, Key, PyTree, UInt32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.train.collect import collect, transitions
from tidewalk.train.evaluate import Score, validate_all
from tidewalk.train.population import Best, Members, Program, TrainState, window_of


def collect_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState, *, is_prefill: bool = False
) -> TrainState:
    """Phases collect and store: every lane moves one bar, the records go to the replay, the clock ticks."""
    words = _step_words(program, _step_keys(members, state.clock))
    return _collected(program, market, windows, members, state, words, is_prefill=is_prefill)


def learn_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    """Phase learn: the updates that follow a vector step. Metrics are means over these updates."""
    words = _step_words(program, _step_keys(members, state.clock - 1))
    return _learned(program, market, windows, members, state, words)


def _step_keys(members: Members, clock: Int32[Array, ""]) -> Key[Array, "M"]:
    return jax.vmap(keys.step_key, in_axes=(0, None))(members.key, clock)


def _step_words(program: Program, step_keys: Key[Array, "M"]) -> UInt32[Array, "M R"]:
    """All random words of one vector step, in one draw."""
    return jax.vmap(lambda key: keys.words(key, program.step_words))(step_keys)


def _collected(
    program: Program,
    market: Market,
    windows: Windows,
    members: Members,
    state: TrainState,
    words: UInt32[Array, "M R"],
    *,
    is_prefill: bool = False,
) -> TrainState:
    steps = state.clock - program.prefill_steps

    def one(member: Members, params: PyTree, lanes: Any, bits: Array) -> Any:
        epsilon = jnp.float32(1.0) if is_prefill else program.agent.epsilon(member.hyper, steps)
        return collect(program, market, window_of(windows, member.window), params, lanes, bits, epsilon, member.limits)

    with jax.named_scope("collect"):
        bits = words[:, : 3 * program.lanes]
        lanes, rows = jax.vmap(one)(members, program.agent.params(state.agent), state.lanes, bits)
    with jax.named_scope("store"):
        replay = replay_ops.add(state.replay, jnp.swapaxes(rows, 0, 1), state.clock)
    return TrainState(state.agent, lanes, replay, state.clock + 1, state.best, state.is_alive)


@jax.named_scope("learn")
def _learned(
    program: Program,
    market: Market,
    windows: Windows,
    members: Members,
    state: TrainState,
    words: UInt32[Array, "M R"],
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    agent = program.agent
    draws = words[:, 3 * program.lanes :].reshape(-1, agent.updates_per_step, agent.batch_size)
    first = (state.clock - 1 - program.prefill_steps) * agent.updates_per_step

    def one(member: Members, learner: PyTree, sequences: Array, updates: Array) -> Any:
        window = window_of(windows, member.window)
        batch = transitions(program, market, window, sequences, member.cost, member.hyper.gamma, member.limits)
        return agent.learn(learner, batch, member.hyper, updates)

    def update(learner: PyTree, turn: tuple[Array, Array]) -> tuple[PyTree, dict[str, Array]]:
        number, draw = turn
        records = replay_ops.sample(state.replay, state.clock, draw, program.lanes, agent.n_step)
        return jax.vmap(one, in_axes=(0, 0, 0, None))(members, learner, records, first + number)

    numbers = jnp.arange(agent.updates_per_step, dtype=jnp.int32)
    learner, history = lax.scan(update, state.agent, (numbers, jnp.swapaxes(draws, 0, 1)))
    means = jax.tree.map(lambda values: jnp.mean(values, axis=0), history)
    return TrainState(learner, state.lanes, state.replay, state.clock, state.best, state.is_alive), means


@jax.named_scope("evaluate")
def evaluate_step(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState, loss: Float32[Array, "M"]
) -> tuple[TrainState, Score]:
    """Phase evaluate: greedy pass over the validation months; a member's best epoch is kept where the score is higher.

    A member whose loss of this epoch is not finite is marked dead and never chosen again; its earlier best epoch stays.
    """
    params = program.agent.params(state.agent)
    score = validate_all(program, market, windows, members, params)
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


def learn_steps(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    """The vector steps of an epoch, each followed by its updates, as a scan: the part that a kernel may take over.

    Returns:
        The state after `steps_per_epoch` vector steps, and the means of `loss` and `q_mean` over their updates.
    """

    def body(carry: TrainState, step_keys: Key[Array, "M"]) -> tuple[TrainState, dict[str, Array]]:
        words = _step_words(program, step_keys)
        carry = _collected(program, market, windows, members, carry, words)
        return _learned(program, market, windows, members, carry, words)

    clocks = state.clock + jnp.arange(program.steps_per_epoch, dtype=jnp.int32)
    state, history = lax.scan(body, state, jax.vmap(functools.partial(_step_keys, members))(clocks))
    return state, {name: jnp.mean(values, axis=0) for name, values in history.items()}


def fused_epoch(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Any]]:
    """One whole epoch as one program: steps of collect, store and learn, then the evaluation.

    Returns:
        The state after the epoch, and its metrics as arrays `[M]`: `loss`, `q_mean` (means over the updates), `score`,
        the parts of the validation's `Tally` that are counted, `is_alive`, and the `epsilon` of the last step.
    """
    steps = learn_steps
    if program.learner == "kernel":
        from tidewalk.train.kernel.call import learn_steps as steps
    state, means = steps(program, market, windows, members, state)
    state, score = evaluate_step(program, market, windows, members, state, means["loss"])
    return state, epoch_metrics(program, members, state, means, score)


def epoch_metrics(
    program: Program, members: Members, state: TrainState, means: dict[str, Array], score: Score
) -> dict[str, Any]:
    """Metrics of an epoch as device arrays; the host fetches them in one copy."""
    parts = {field.name: getattr(score.tally, field.name) for field in dataclasses.fields(score.tally)}
    steps = state.clock - 1 - program.prefill_steps
    return {
        **means,
        "score": score.score,
        **{name: values for name, values in parts.items() if values is not None},
        "is_alive": state.is_alive,
        "epsilon": jax.vmap(lambda hyper: program.agent.epsilon(hyper, steps))(members.hyper),
    }
