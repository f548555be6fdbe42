"""The device side of a study: one upload, compiled programs, and the epoch in fused or phased form."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable
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
from tidewalk.run import ambient, programs
from tidewalk.run import mesh as mesh_ops
from tidewalk.run.learner import with_learner
from tidewalk.run.mesh import PRECISIONS, Transfers
from tidewalk.run.packed import Packed
from tidewalk.run.programs import BY_MEMBER, WHOLE, Building
from tidewalk.run.shares import Deal, deal
from tidewalk.run.study import Study
from tidewalk.run.timing import Clock, PhaseTimes, timed
from tidewalk.train.population import Best, Members, TrainState, make_members

Fixed = tuple[Market, Windows, Members | tuple[Members, ...]]
"""The arguments of an epoch that no epoch changes."""
State = TrainState | tuple[TrainState, ...]
"""The state of all members, or of each share of them (`run.shares`)."""


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

    @property
    def num_members(self) -> int:
        """M."""
        return self.members.window.shape[0]


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
class Begun:
    """An epoch that the device was given; its metrics are on their way."""

    packed: Packed | tuple[Packed, ...]
    began_s: float
    """By `time.perf_counter`."""
    init_ms: float
    moved: Transfers
    """By beginning it."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """An epoch whose metrics are on the host."""

    metrics: dict[str, np.ndarray]
    """Of every member `[M]`."""
    times: PhaseTimes
    moved: Transfers
    """By the epoch: what it sent when it began, and its metrics."""
    at_s: float
    """When they came, by `time.perf_counter`."""


@dataclasses.dataclass(frozen=True)
class Engine(Stage):
    """A study on its device, ready to run epochs."""

    mesh: Mesh | None
    provide: Callable[[], Fixed]
    """Gives the fixed arguments at the start of an epoch; where they are resident it has nothing to do."""
    compiled: jax.stages.Compiled
    """The program of the fused epoch, of one share."""
    deal: Deal
    """How the members are dealt out; the state is by share, as they are."""
    building: Building

    def run_epoch(self, state: State) -> tuple[State, dict[str, np.ndarray], PhaseTimes]:
        """One fused epoch, which consumes its state; the only wait is for its metrics, which come in one copy.

        Returns:
            The state after it, the metrics of the members on the host, and its times.
        """
        state, begun = self.begin(state)
        ended = self.finish(begun)
        return state, ended.metrics, ended.times

    def begin(self, state: State) -> tuple[State, Begun]:
        """Give the device a fused epoch, which consumes its state; waits for nothing.

        Returns:
            The state after it, which the device has yet to compute, and what `finish` waits for.
        """
        before, began_s = dataclasses.replace(self.transfers), time.perf_counter()
        with jax.transfer_guard("disallow_explicit"):
            fixed = self.provide()
            init_ms = (time.perf_counter() - began_s) * 1e3
            state, packed = self.deal.run(self.compiled, fixed, state)
        return state, Begun(packed, began_s, init_ms, self.transfers.since(before))

    def finish(self, begun: Begun, last: Ended | None = None) -> Ended:
        """Wait for the metrics of an epoch.

        Args:
            begun: the epoch.
            last: the epoch before it, where that was not over when this one was begun: its time is not this one's.
        """
        before = dataclasses.replace(self.transfers)
        metrics = self.deal.metrics(mesh_ops.fetch(begun.packed, self.transfers))
        at_s, moved = time.perf_counter(), begun.moved.plus(self.transfers.since(before))
        start_s = begun.began_s if last is None else max(begun.began_s, last.at_s)
        return Ended(metrics, PhaseTimes(begun.init_ms, None, None, None, (at_s - start_s) * 1e3), moved, at_s)

    @jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
    def kept(self, state: State) -> Kept:
        """What is left of a state once training is over."""
        if isinstance(state, TrainState):
            return Kept(state.best, state.is_alive)
        # of a CPU, whose memory is the host's: nothing crosses
        return jax.device_put(self.deal.join(jax.device_get(tuple(Kept(one.best, one.is_alive) for one in state))))


def start(study: Study) -> tuple[Engine, State]:
    """Upload the study, compile its programs, and make the initial state (replay prefilled).

    Raises:
        ConfigError: the learner that was asked for cannot run here.
    """
    transfers, mesh = Transfers(), mesh_ops.member_mesh(study.num_members)
    return ready(Stage(study, upload_study(study, transfers, mesh), transfers), mesh)


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def ready(stage: Stage, mesh: Mesh | None) -> tuple[Engine, State]:
    """Compile the programs of what is on the device already, and make the initial state: as `start`.

    Args:
        stage: the study with its population; the members may be those of several studies with one static program.
        mesh: devices that the members are spread over; None for a single one.
    """
    study, _ = with_learner(stage.study)
    resident, transfers, building = stage.resident, stage.transfers, Building()
    dealt = deal(resident.num_members) if mesh is None else Deal(resident.num_members, resident.num_members)
    program = dealt.program(study.program)
    fixed = resident.market, resident.windows, dealt.split_members(resident.members)
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        make = programs.build(programs.first_state(program, mesh), building, *dealt.one(fixed), donate=None)
        state = mesh_ops.wait(dealt.run(make, fixed), transfers)
        home, one = mesh_ops.host_memory(mesh), dealt.one(fixed, state)
        epoch = programs.fused(program, mesh, one[-1])
        compiled = programs.build(epoch, building, *one, outs=home and (None, home))
    return Engine(study, resident, transfers, mesh, lambda: fixed, compiled, dealt, building), state


def reuploading(engine: Engine) -> Engine:
    """The trainer that tidewalk is measured against: the same program, its market freed and sent again at every epoch.

    It counts its own transfers, and leaves the market of `engine` alone.
    """
    study, transfers = engine.study, Transfers()
    placement = NamedSharding(engine.mesh, WHOLE) if engine.mesh else None
    host, (*_, members) = (study.resident_market(), study.windows), engine.provide()
    sent: list[PyTree] = []

    def provide() -> Fixed:
        while sent:
            jax.tree.map(lambda leaf: leaf.delete(), sent.pop())
        sent.append(mesh_ops.upload(host, transfers, placement))
        return *sent[0], members

    return dataclasses.replace(engine, transfers=transfers, provide=provide)


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def upload_study(study: Study, transfers: Transfers, mesh: Mesh | None) -> Resident:
    """The one upload: market, windows and what differs between members in a single counted call.

    Raises:
        ConfigError: a module of features has set up jax in another way than a study needs.
    """
    ambient.refuse_other()
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


def restore(engine: Engine, state: State, arrays: Iterable[tuple[str, np.ndarray]]) -> State:
    """The train state of a checkpoint, which holds the whole of it, dealt out and placed as `state` is.

    Args:
        engine: the study on its device.
        state: a train state, for its shapes; it may be deleted.
        arrays: leaves of the whole by name; each is let go before the next one is taken.
    """
    like = state if isinstance(state, TrainState) else state[0]
    leaves, shares = trees.by_name(like), [dict[str, Any]() for _ in range(engine.deal.count)]
    for name, whole in arrays:
        path, leaf = leaves[name]
        placed = [mesh_ops.put(part, engine.transfers, leaf.sharding) for part in engine.deal.split(path, whole)]
        del whole
        for share, part in zip(shares, placed, strict=True):
            share[name] = part
    restored = tuple(trees.from_named(like, share) for share in shares)
    return restored if engine.deal.count > 1 else restored[0]


def trade(engine: Stage, best: Best) -> tuple[Any, Any]:
    """Positions over the test months, on the host: of every member `[M, H]`, and of each window's ensemble `[W, H]`."""
    from tidewalk.train.evaluate import trade_ensembles, trade_members

    study, fixed = engine.study, engine.resident.fixed
    program = study.program
    if len(engine.resident.members.window.sharding.device_set) > 1:
        # here the compiler itself spreads the members over the devices, which it cannot do with a kernel
        program = dataclasses.replace(program, learner="xla")
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        members = jax.jit(functools.partial(trade_members, program))
        ensembles = jax.jit(functools.partial(trade_ensembles, program, seeds=study.config.train.seeds))
        return mesh_ops.fetch((members(*fixed, best), ensembles(*fixed, best)), engine.transfers)


def phased(engine: Engine, state: State) -> Callable[[Engine, State], tuple[State, PhaseTimes]]:
    """The same epoch, one call for every phase and step, blocked and timed.

    Args:
        engine: the study on its device.
        state: a train state, for its shapes.

    Returns:
        A function of an engine of this study and a state, which it consumes, to the state after the epoch; its times
        tell the phases apart, and their total is that of the calls together.
    """
    study, dealt, building = engine.study, engine.deal, Building()
    program, one = dealt.program(study.program), dealt.one(engine.provide(), state)
    steps = program.steps_per_epoch
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        functions = programs.separate(program, engine.mesh, one[-1])
        collect = programs.build(functions["collect"], building, *one)
        learn = programs.build(functions["learn"], building, *one)
        means = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), learn.out_info[1])
        evaluate = programs.build(functions["evaluate"], building, *one, means)
    add = jax.jit(lambda total, part: jax.tree.map(jnp.add, total, part), donate_argnums=0)
    mean = jax.jit(lambda total: jax.tree.map(lambda leaf: leaf / steps, total))

    def run(engine: Engine, state: State) -> tuple[State, PhaseTimes]:
        clock, transfers = Clock(), engine.transfers
        total: PyTree = None
        with jax.transfer_guard("disallow_explicit"):
            fixed = engine.provide()
            init_ms, collect_ms, learn_ms = clock.lap(), 0.0, 0.0
            for _ in range(steps):
                state, ms = timed(transfers, dealt.run, collect, fixed, state)
                collect_ms += ms
                (state, metrics), ms = timed(transfers, dealt.run, learn, fixed, state)
                learn_ms += ms
                total = metrics if total is None else add(total, metrics)
            (state, packed), evaluate_ms = timed(transfers, dealt.run, evaluate, fixed, state, mean(total))
        mesh_ops.fetch(packed, transfers)
        whole_ms = init_ms + collect_ms + learn_ms + evaluate_ms
        return state, PhaseTimes(init_ms, collect_ms, learn_ms, evaluate_ms, whole_ms)

    return run
