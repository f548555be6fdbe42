"""The vector steps of an epoch as one GPU kernel: same meaning as `train.epoch.learn_steps`, called through XLA."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tidewalk.agents.dqn import DQNConfig
from tidewalk.core import keys
from tidewalk.core.arrays import Array, Float32, Int32, UInt32
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.train.kernel.plan import MOST_PASSES, AnyPlan, Plan, plan_for, ptx, shared_out, step_passes
from tidewalk.train.kernel.tables import rule_tables
from tidewalk.train.population import Lanes, Members, Program, TrainState

WORD_BYTES = 64 * 2**20
"""Most memory for the random words of a launch; an epoch that needs more is launched in parts."""
_DECAYS = (0.9, 0.999)
_TARGET = "__gpu$xla.gpu.ptx"


def learn_steps(
    program: Program, market: Market, windows: Windows, members: Members, state: TrainState
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    """The vector steps of an epoch, each followed by its updates, by a kernel.

    Returns:
        The state after `steps_per_epoch` vector steps, and the means of `loss` and `q_mean` over their updates.
    """
    plan = shared_out(plan_for(program, precision_name()), members.window.shape[0], jax.local_devices()[0])
    return learn_steps_by(launch, program, market, windows, members, state, plan=plan)


def learn_steps_by(
    run: Any,
    program: Program,
    market: Market,
    windows: Windows,
    members: Members,
    state: TrainState,
    *,
    plan: Plan | None = None,
) -> tuple[TrainState, dict[str, Float32[Array, "M"]]]:
    """`learn_steps` with the function that runs a launch, `(plan, operands, moving) -> (moving, loss, q_mean)`.

    Without a plan it is the one of a single block for each member.
    """
    plan = plan or plan_for(program, precision_name())
    fixed = _fixed_operands(plan, program, market, windows, members)
    moving = _moving(state)
    length = chunk_steps(program, members.window.shape[0])
    whole, rest = divmod(program.steps_per_epoch, length)

    def part(carry: tuple[Any, Array], steps: int) -> tuple[tuple[Any, Array], tuple[Array, Array]]:
        moving, done = carry
        operands = _step_operands(program, members, state, done, steps)
        moving, loss, q_mean = run(plan, {**fixed, **operands}, moving)
        return (moving, done + steps), (loss, q_mean)

    carry, sums = lax.scan(lambda c, _: part(c, length), (moving, jnp.int32(0)), None, length=whole)
    totals = [jnp.sum(values, axis=0) for values in sums]
    if rest:
        carry, last = part(carry, rest)
        totals = [total + value for total, value in zip(totals, last, strict=True)]
    updates = program.steps_per_epoch * program.agent.updates_per_step
    means = {name: total / updates for name, total in zip(("loss", "q_mean"), totals, strict=True)}
    return _moved(program, carry[0], state), means


def precision_name() -> str:
    """The named precision under which a program is being traced."""
    names = {"float32": "float32", "highest": "float32", "tensorfloat32": "tf32", "high": "tf32"}
    return names.get(str(jax.config.jax_default_matmul_precision), "bf16")  # type: ignore[attr-defined]


def chunk_steps(program: Program, members: int) -> int:
    """Vector steps of a launch, so that their random words take at most `WORD_BYTES`, and all of them not too long."""
    by_words = WORD_BYTES // (4 * program.step_words * members)
    by_time = MOST_PASSES // step_passes(program, members)
    return min(program.steps_per_epoch, max(1, min(by_words, by_time)))


def launch(
    plan: Plan, operands: dict[str, Array], moving: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Float32[Array, "M"], Float32[Array, "M"]]:
    """One launch of the kernel: a block, or a cluster of them, for each member; `moving` is changed in place."""
    count = moving[0].shape[0]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in moving]
    shapes += [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((count,), (count,), (count, *plan.scratch))]
    first = len(operands)
    aliases, grid = {first + i: i for i in range(len(moving))}, (count, plan.cluster)
    *moved, loss, q_mean, _ = run_kernel(plan, (*operands.values(), *moving), shapes, grid, aliases=aliases)
    return tuple(moved), loss, q_mean


def run_kernel(
    plan: AnyPlan,
    operands: Sequence[Array],
    shapes: Sequence[jax.ShapeDtypeStruct],
    grid: tuple[int, int],
    *,
    aliases: dict[int, int] | None = None,
) -> Sequence[Array]:
    """Results of a kernel: `grid` blocks along its first and its second axis; `aliases` are changed in place."""
    call = jax.ffi.ffi_call(_TARGET, list(shapes), input_output_aliases=aliases)
    sizes = {"grid_x": grid[0], "grid_y": grid[1], "grid_z": 1, "block_x": plan.threads, "block_y": 1, "block_z": 1}
    return call(
        *operands,
        name=plan.name,
        kernel_type="ptx",
        kernel_data=ptx(plan),
        shared_mem_bytes=np.int32(plan.shared_bytes),
        **{name: np.int32(size) for name, size in sizes.items()},
    )


def _fixed_operands(
    plan: Plan, program: Program, market: Market, windows: Windows, members: Members
) -> dict[str, Array]:
    """What does not change from step to step, in the order of the kernel's operands."""
    config: DQNConfig = program.agent.config
    own = members.window
    nothing = jnp.zeros_like(members.cost.side)
    roll = nothing if members.cost.roll is None else members.cost.roll
    reals = (windows.reward_scale[own], members.cost.side, roll, members.hyper.lr, members.hyper.tau)
    seen = program.env.lookback * program.num_features
    scaler = jnp.stack([windows.center[own], windows.scale[own]], axis=1)
    scaler = jnp.pad(jnp.tile(scaler, (1, 1, program.env.lookback)), ((0, 0), (0, 0), (0, plan.observed - seen)))
    exponents = jnp.arange(config.n_step + 1, dtype=jnp.float32)
    half_ticks = market.half_spread_ticks
    return {
        "sizes": jnp.zeros(0, jnp.int32),  # in its place; given for each launch
        "reals": jnp.array([config.huber_delta, config.max_grad_norm, config.adam_eps], jnp.float32),
        "move_ticks": market.move_ticks,
        "flags": market.flags,
        "features": market.features,
        "half_spread": jnp.zeros(1, jnp.float32) if half_ticks is None else half_ticks,
        "train": windows.train[own],
        "per_member": jnp.stack(reals, axis=1),
        "scaler": scaler,
        "powers": members.hyper.gamma[:, None] ** exponents[None, :],
        "epsilon": jnp.zeros(0, jnp.float32),
        "corrections": jnp.zeros(0, jnp.float32),
        "tables": jnp.asarray(rule_tables(program.env)),
        "words": jnp.zeros(0, jnp.uint32),
    }


def _step_operands(
    program: Program, members: Members, state: TrainState, done: Int32[Array, ""], steps: int
) -> dict[str, Array]:
    """What is given for each launch of `steps` vector steps, the first `done` of the epoch being behind."""
    agent, clock = program.agent, state.clock + done
    clocks = clock + jnp.arange(steps, dtype=jnp.int32)
    taken = clocks - program.prefill_steps
    updates = steps * agent.updates_per_step
    before = _adam(state).count[:, None] + done * agent.updates_per_step
    number = (before + 1 + jnp.arange(updates, dtype=jnp.int32)[None, :]).astype(jnp.float32)
    return {
        "sizes": _sizes(program, members, clock, steps),
        "epsilon": jax.vmap(lambda step: jax.vmap(agent.epsilon, (0, None))(members.hyper, step))(taken),
        "corrections": jnp.stack([1.0 / (1.0 - decay**number) for decay in _DECAYS], axis=-1),
        "words": _step_words(program, members, clocks),
    }


def _step_words(program: Program, members: Members, clocks: Int32[Array, "S"]) -> UInt32[Array, "S M R"]:
    draw = functools.partial(keys.step_bits, count=program.step_words)
    return jax.vmap(lambda clock: jax.vmap(draw, (0, None))(members.key, clock))(clocks)


def _sizes(program: Program, members: Members, clock: Int32[Array, ""], steps: int) -> Int32[Array, "K"]:
    """The fields of `Sizes` in layout.cuh, in their order."""
    env, agent = program.env, program.agent
    config: DQNConfig = agent.config
    flags = (
        config.double,
        config.duelling,
        config.target_update == "soft",
        program.has_spread,
        env.roll_as == "spread",
    )
    fixed = (
        steps,
        members.window.shape[0],
        program.lanes,
        agent.batch_size,
        agent.updates_per_step,
        agent.n_step,
        program.capacity // program.lanes,
        program.episode_bars,
        program.num_features,
        env.lookback * program.num_features,
        env.num_positions,
        sum(flag << bit for bit, flag in enumerate(flags)),
        config.target_period,
        env.flat,
        env.decision_delay + env.lookback - 1,
        *config.hidden,
        env.num_positions + config.duelling,
    )
    learned = (clock - program.prefill_steps) * agent.updates_per_step
    return jnp.concatenate([jnp.array(fixed, jnp.int32), jnp.stack([clock, learned])])


def _adam(state: TrainState) -> Any:
    return state.agent.optimizer[1]


def _moving(state: TrainState) -> tuple[Array, ...]:
    """What the kernel changes in place: weight and bias of each layer of four networks, lanes and replay."""
    adam, lanes = _adam(state), state.lanes
    networks = jax.tree.leaves((state.agent.params, state.agent.target, adam.mu, adam.nu))
    assert [leaf.ndim for leaf in networks] == [3, 2] * 12, "a network is three layers of weight and bias in turn"
    return (*networks, lanes.bar, lanes.position, lanes.age, state.replay)


def _moved(program: Program, moving: tuple[Array, ...], like: TrainState) -> TrainState:
    """Inverse of `_moving`; the counts are those after the epoch."""
    agent, adam = like.agent, _adam(like)
    networks = jax.tree.unflatten(jax.tree.structure((agent.params, agent.target, adam.mu, adam.nu)), moving[:24])
    updates = program.steps_per_epoch * program.agent.updates_per_step
    adam = adam._replace(count=adam.count + updates, mu=networks[2], nu=networks[3])
    agent = dataclasses.replace(agent, params=networks[0], target=networks[1], optimizer=(agent.optimizer[0], adam))
    bar, position, age, replay = moving[24:]
    lanes = Lanes(bar, position, age, account=None)
    return TrainState(agent, lanes, replay, like.clock + program.steps_per_epoch, like.best, like.is_alive)
