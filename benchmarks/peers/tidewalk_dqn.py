"""tidewalk on the workload: the programs that its engine runs."""

from pathlib import Path

import jax
import numpy as np
import world
from peers.jax_tools import peak_bytes
from peers.program import Setting, checked
from peers.workload import FLAT, Table, Workload, make_table

from tidewalk.agents.dqn import DQNConfig
from tidewalk.data.load import DataConfig
from tidewalk.market.device import ROLL, TRADABLE, Market
from tidewalk.market.windows import Windows
from tidewalk.run import engine, mesh
from tidewalk.run.ahead import Runner
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.run.study import Study
from tidewalk.train.population import TrainConfig

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


def study_of(workload: Workload, setting: Setting) -> Study:
    """The study of a workload: one window, its members alike but for their streams."""
    table = make_table(workload.num_features)
    config = RunConfig(
        data=DataConfig(data_dir=Path("numpy"), symbol=workload.name),
        train=TrainConfig(
            max_steps_per_epoch=workload.updates_per_epoch,
            seeds=setting.members,
            seed=setting.seed,
            lanes=workload.lanes,
            replay_capacity=workload.capacity,
            prefill_steps=workload.prefill_steps,
            episode_bars=workload.episode_bars,
        ),
        dqn=config_of(workload),
        output=OutputConfig(precision=setting.precision, learner="kernel" if setting.mode == "kernel" else "xla"),
    )
    assert config.env.flat == FLAT
    return world.hosted(config, market_of(table), windows_of(table), side_ticks=table.side_ticks)


class Tidewalk:
    """The epoch of tidewalk's engine, over all cores that it takes on a CPU.

    Modes: `scan` (compiled by XLA, on every backend), `kernel` (the vector steps as one GPU kernel). Each epoch ends
    with a validation, as it always does; it is of a few bars here, because no peer has one.
    """

    def __init__(self, workload: Workload, setting: Setting) -> None:
        mesh.make_reproducible()
        mesh.choose_platform(setting.device)
        self._workload, self._checked = workload, checked(setting.members)
        self._runner = Runner(*engine.start(study_of(workload, setting)))
        self._q_values = self._runner.engine.study.program.agent.q_values

    def advance(self, updates: int) -> None:
        epochs = updates // self._workload.updates_per_epoch
        for number in range(epochs):
            self._runner.run(may_go_on=number < epochs - 1)
        jax.block_until_ready(self._runner.state)

    def counts(self) -> tuple[int, int]:
        shares = self._runner.state if isinstance(self._runner.state, tuple) else (self._runner.state,)
        clocks = np.array([share.clock for share in shares])
        steps = [leaf for share in shares for leaf in jax.tree.leaves(share.agent.optimizer) if leaf.dtype == np.int32]
        updates = np.concatenate([np.ravel(leaf) for leaf in steps])
        return int(np.unique(clocks).item()) - self._workload.prefill_steps, int(np.unique(updates).item())

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        whole = self._runner.engine.deal.join(jax.device_get(self._runner.state)).agent.params
        params = jax.tree.map(lambda leaf: leaf[self._checked], whole)
        values = jax.vmap(jax.vmap(self._q_values, in_axes=(None, 0)), in_axes=(0, None))
        return np.asarray(jax.jit(values)(params, observations))

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
