"""tidewalk on the workload: the programs that its engine runs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import world
from jax.sharding import Mesh, NamedSharding
from peers.jax_tools import peak_bytes
from peers.program import Setting, checked
from peers.workload import FLAT, Table, Workload, make_table

from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.market.device import ROLL, TRADABLE, Market
from tidewalk.market.windows import Windows
from tidewalk.run import mesh
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train.kernel import plan
from tidewalk.train.population import Members, Program, TrainState, initial_state, make_members

Fixed = tuple[Market, Windows, Members]

VALIDATION_BARS = 4


def config_of(workload: Workload) -> DQNConfig:
    """Plain DQN: one step, one head, hard target copies, nothing clipped."""
    return DQNConfig(
        lr=workload.learning_rate,
        gamma=workload.gamma,
        n_step=1,
        batch_size=workload.batch_size,
        hidden=workload.hidden,
        double=False,
        duelling=False,
        target_update="hard",
        target_period=workload.target_period,
        epsilon=workload.epsilon,
        epsilon_start=workload.epsilon,
        huber_delta=1.0,
        max_grad_norm=1e9,
    )


def program_of(workload: Workload, learner: str) -> Program:
    """The static part."""
    env = EnvConfig()
    assert env.flat == FLAT
    return Program(
        agent=make_dqn(config_of(workload), workload.observation_size, env.num_positions),
        env=env,
        num_features=workload.num_features,
        lanes=workload.lanes,
        capacity=workload.capacity,
        steps_per_epoch=workload.updates_per_epoch,
        prefill_steps=workload.prefill_steps,
        episode_bars=workload.episode_bars,
        select="reward",
        val_bars=VALIDATION_BARS,
        test_bars=VALIDATION_BARS,
        val_sessions=1,
        compose="scan",
        learner=learner,
    )


def market_of(table: Table) -> Market:
    """The table as tidewalk's market; one endless session."""
    flags = (TRADABLE + ROLL * table.is_roll).astype(np.int32)
    return Market(table.move_ticks, flags, table.features, np.zeros(len(flags), np.int32))


def windows_of(table: Table) -> Windows:
    """One window; the features are scaled already."""
    width, first = table.features.shape[1], table.held_out[0]
    held_out = np.array([[first, first + VALIDATION_BARS]], np.int32)
    return Windows(
        train=np.array([table.train], np.int32),
        val=held_out,
        test=held_out,
        center=np.zeros((1, width), np.float32),
        scale=np.ones((1, width), np.float32),
        reward_scale=np.full(1, table.reward_scale, np.float32),
    )


def refuse_without_kernel(program: Program, precision: str) -> None:
    """Say why the kernel cannot run a program here, if so."""
    why = plan.unsupported(program, precision, has_limits=False)
    why = why or plan.unfit(jax.local_devices()[0], plan.plan_for(program, precision))
    if why:
        raise ValueError(f"no kernel: {why}")


def on_one_device(program: Program, fixed: Fixed) -> tuple[Fixed, TrainState, Callable[..., Any]]:
    """The market on the device, the state before the first epoch, and the compiled epoch, which consumes its state."""
    fixed = jax.device_put(fixed)
    start = jax.jit(functools.partial(initial_state, program))(*fixed[1:])
    state = jax.jit(functools.partial(phases.prefill, program))(*fixed, start)
    home = mesh.host_memory(None)
    job = jax.jit(functools.partial(world.packed_epoch, program), donate_argnums=3, out_shardings=home and (None, home))
    return fixed, state, job.lower(*fixed, state).compile(compiler_options=world.compiler_options())


def on_devices(devices: Mesh, program: Program, fixed: Fixed) -> tuple[Fixed, TrainState, Callable[..., Any]]:
    """The same with the members spread over several devices, as the engine spreads them."""
    from tidewalk.run import programs  # needs more than the device path does

    places = [NamedSharding(devices, spec) for spec in (programs.WHOLE, programs.WHOLE, programs.BY_MEMBER)]
    fixed, building = jax.device_put(fixed, tuple(places)), programs.Building()
    state = programs.build(programs.first_state(program, devices), building, *fixed, donate=None)(*fixed)
    return fixed, state, programs.build(programs.fused(program, devices, state), building, *fixed, state)


class Tidewalk:
    """The fused epoch as the engine compiles and reads it, over all host devices that jax is given.

    Modes: `scan` (compiled by XLA, on every backend), `kernel` (the vector steps as one GPU kernel). Each epoch ends
    with a validation, as it always does; it is of a few bars here, because no peer has one.
    """

    def __init__(self, workload: Workload, setting: Setting) -> None:
        mesh.make_reproducible()
        mesh.choose_platform(setting.device)
        table = make_table(workload.num_features)
        program = program_of(workload, "kernel" if setting.mode == "kernel" else "xla")
        if program.learner == "kernel":
            refuse_without_kernel(program, setting.precision)
        self._workload, self._checked, self._transfers = workload, checked(setting.members), mesh.Transfers()
        self._prefill, self._q_values = workload.prefill_steps, program.agent.q_values
        side = CostTicks(np.full((), table.side_ticks, np.float32))
        members = make_members(1, setting.members, setting.seed, side, dqn.hyper(config_of(workload), 1))
        devices = mesh.member_mesh(setting.members)
        fixed = (market_of(table), windows_of(table), members)
        build = on_one_device if devices is None else functools.partial(on_devices, devices)
        self._fixed, self._state, self._epoch = build(program, fixed)

    def advance(self, updates: int) -> None:
        for _ in range(updates // self._workload.updates_per_epoch):
            self._state, metrics = self._epoch(*self._fixed, self._state)
            mesh.fetch(metrics, self._transfers)
        jax.block_until_ready(self._state)

    def counts(self) -> tuple[int, int]:
        optimizer = jax.tree.leaves(self._state.agent.optimizer)
        steps = [leaf for leaf in optimizer if leaf.dtype == np.int32]
        return int(self._state.clock) - self._prefill, int(np.unique(steps[0]).item())

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        params = jax.tree.map(lambda leaf: leaf[self._checked], self._state.agent.params)
        values = jax.vmap(jax.vmap(self._q_values, in_axes=(None, 0)), in_axes=(0, None))
        return np.asarray(jax.jit(values)(params, observations))

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
