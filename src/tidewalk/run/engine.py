"""The device side of a study: one upload, compiled programs, and the epoch in fused or phased form."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tidewalk.agents import dqn
from tidewalk.core import trees
from tidewalk.core.arrays import Array, Bool, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.run import mesh as mesh_ops
from tidewalk.run import programs
from tidewalk.run.learner import with_learner
from tidewalk.run.mesh import PRECISIONS, Transfers
from tidewalk.run.packed import unpack
from tidewalk.run.programs import BY_MEMBER, WHOLE, Building
from tidewalk.run.study import Study
from tidewalk.run.timing import Clock, PhaseTimes, timed
from tidewalk.train.population import Best, Members, TrainState, make_members

Fixed = tuple[Market, Windows, Members]
"""The arguments of an epoch that no epoch changes."""


@dataclasses.dataclass(frozen=True)
class Resident:
    """What lives on the device for the whole study."""

    market: Market
    windows: Windows
    members: Members

    @property
    def fixed(self) -> Fixed:
        """As the arguments of a program."""
        return self.market, self.windows, self.members


@dataclasses.dataclass(frozen=True)
class Stage:
    """A study on its device, ready to be traded."""

    study: Study
    resident: Resident
    transfers: Transfers


@functools.partial(jax.tree_util.register_dataclass, data_fields=["best", "is_alive"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Kept:
    """What is left of a training once it is over, and all that trading the test months needs of it."""

    best: Best
    is_alive: Bool[Array, "M"]


@dataclasses.dataclass(frozen=True)
class Engine(Stage):
    """A study on its device, ready to run epochs."""

    mesh: Mesh | None
    provide: Callable[[], Fixed]
    """Gives the fixed arguments at the start of an epoch; where they are resident it has nothing to do."""
    compiled: jax.stages.Compiled
    """The program of the fused epoch."""
    building: Building
    notes: tuple[str, ...] = ()
    """What the log says of the programs."""

    def run_epoch(self, state: TrainState) -> tuple[TrainState, dict[str, np.ndarray], PhaseTimes]:
        """One fused epoch, which consumes its state; the only wait is for its metrics, which come in one copy.

        Returns:
            The state after it, the metrics of the members on the host, and its times.
        """
        clock = Clock()
        fixed = self.provide()
        init_ms = clock.lap()
        with jax.transfer_guard("disallow_explicit"):
            state, packed = self.compiled(*fixed, state)
        metrics = unpack(mesh_ops.fetch(packed, self.transfers))
        return state, metrics, PhaseTimes(init_ms, None, None, None, init_ms + clock.lap())


def start(study: Study) -> tuple[Engine, TrainState]:
    """Upload the study, compile its programs, and make the initial state (replay prefilled).

    Raises:
        ConfigError: the learner that was asked for cannot run here.
    """
    transfers, mesh = Transfers(), mesh_ops.member_mesh(study.num_members)
    return ready(Stage(study, upload_study(study, transfers, mesh), transfers), mesh)


def ready(stage: Stage, mesh: Mesh | None) -> tuple[Engine, TrainState]:
    """Compile the programs of what is on the device already, and make the initial state: as `start`.

    Args:
        stage: the study with its population; the members may be those of several studies with one static program.
        mesh: devices that the members are spread over; None for a single one.
    """
    study, notes = with_learner(stage.study)
    resident, transfers, building = stage.resident, stage.transfers, Building()
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        make = programs.build(programs.first_state(study.program, mesh), building, *resident.fixed, donate=None)
        state = mesh_ops.wait(make(*resident.fixed), transfers)
        home = mesh_ops.host_memory(mesh)
        epoch = programs.fused(study.program, mesh, state)
        compiled = programs.build(epoch, building, *resident.fixed, state, outs=home and (None, home))
    fixed = resident.fixed
    return Engine(study, resident, transfers, mesh, lambda: fixed, compiled, building, notes), state


def reuploading(engine: Engine) -> Engine:
    """The trainer that tidewalk is measured against: the same program, its market freed and sent again at every epoch.

    It counts its own transfers, and leaves the market of `engine` alone.
    """
    study, transfers = engine.study, Transfers()
    placement = NamedSharding(engine.mesh, WHOLE) if engine.mesh else None
    host = (study.resident_market(), study.windows)
    sent: list[PyTree] = []

    def provide() -> Fixed:
        while sent:
            jax.tree.map(lambda leaf: leaf.delete(), sent.pop())
        sent.append(mesh_ops.upload(host, transfers, placement))
        return *sent[0], engine.resident.members

    return dataclasses.replace(engine, transfers=transfers, provide=provide)


def upload_study(study: Study, transfers: Transfers, mesh: Mesh | None) -> Resident:
    """The one upload: market, windows and what differs between members in a single counted call."""
    placement = NamedSharding(mesh, WHOLE) if mesh else None
    config = study.config
    hyper = dqn.hyper(config.dqn, config.train.epochs * config.train.max_steps_per_epoch)
    host = (study.resident_market(), study.windows, (study.cost_ticks, hyper, study.limits))
    market, windows, unlike = mesh_ops.upload(host, transfers, placement)
    make = functools.partial(make_members, study.num_windows, config.train.seeds, config.train.seed)
    members = jax.jit(make)(*unlike)
    if mesh:
        members = jax.device_put(members, NamedSharding(mesh, BY_MEMBER))
    return Resident(market, windows, members)


def restore(state: TrainState, arrays: dict[str, Any], transfers: Transfers) -> TrainState:
    """The train state of a checkpoint, placed as `state` is."""
    host = trees.from_named(state, arrays)
    return mesh_ops.put(host, transfers, jax.tree.map(lambda leaf: leaf.sharding, state))


def trade(engine: Stage, best: Best) -> tuple[Any, Any]:
    """Positions over the test months, on the host: of every member `[M, H]`, and of each window's ensemble `[W, H]`."""
    from tidewalk.train.evaluate import trade_ensembles, trade_members

    study, fixed = engine.study, engine.resident.fixed
    program = study.program
    if isinstance(engine, Engine) and engine.mesh is not None:
        # here the compiler itself spreads the members over the devices, which it cannot do with a kernel
        program = dataclasses.replace(program, learner="xla")
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        members = jax.jit(functools.partial(trade_members, program))
        ensembles = jax.jit(functools.partial(trade_ensembles, program, seeds=study.config.train.seeds))
        return mesh_ops.fetch((members(*fixed, best), ensembles(*fixed, best)), engine.transfers)


def phased(engine: Engine, state: TrainState) -> Callable[[Engine, TrainState], tuple[TrainState, PhaseTimes]]:
    """The same epoch, one call for every phase and step, blocked and timed.

    Args:
        engine: the study on its device.
        state: a train state, for its shapes.

    Returns:
        A function of an engine of this study and a state, which it consumes, to the state after the epoch; its times
        tell the phases apart, and their total is that of the calls together.
    """
    study, fixed = engine.study, engine.resident.fixed
    steps, building = study.program.steps_per_epoch, Building()
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        functions = programs.separate(study.program, engine.mesh, state)
        collect = programs.build(functions["collect"], building, *fixed, state)
        learn = programs.build(functions["learn"], building, *fixed, state)
        means = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), learn.out_info[1])
        evaluate = programs.build(functions["evaluate"], building, *fixed, state, means)
    add = jax.jit(lambda total, part: jax.tree.map(jnp.add, total, part), donate_argnums=0)
    mean = jax.jit(lambda total: jax.tree.map(lambda leaf: leaf / steps, total))

    def run(engine: Engine, state: TrainState) -> tuple[TrainState, PhaseTimes]:
        clock, transfers = Clock(), engine.transfers
        fixed = engine.provide()
        init_ms, collect_ms, learn_ms = clock.lap(), 0.0, 0.0
        total: PyTree = None
        with jax.transfer_guard("disallow_explicit"):
            for _ in range(steps):
                state, ms = timed(transfers, collect, *fixed, state)
                collect_ms += ms
                (state, metrics), ms = timed(transfers, learn, *fixed, state)
                learn_ms += ms
                total = metrics if total is None else add(total, metrics)
            (state, packed), evaluate_ms = timed(transfers, evaluate, *fixed, state, mean(total))
        mesh_ops.fetch(packed, transfers)
        whole_ms = init_ms + collect_ms + learn_ms + evaluate_ms
        return state, PhaseTimes(init_ms, collect_ms, learn_ms, evaluate_ms, whole_ms)

    return run
