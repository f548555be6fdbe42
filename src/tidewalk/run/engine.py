"""The device side of a study: one upload, compiled programs, and the epoch in fused or phased form."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tidewalk.agents import dqn
from tidewalk.core import trees
from tidewalk.core.arrays import Array, Bool, PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.run import mesh as mesh_ops
from tidewalk.run.mesh import MEMBER_AXIS, PRECISIONS, Uploads
from tidewalk.run.study import Study
from tidewalk.run.timing import PhaseTimes, timed
from tidewalk.train import epoch as phases
from tidewalk.train.population import Best, Members, TrainState, initial_state, make_members

_WHOLE, _BY_MEMBER = PartitionSpec(), PartitionSpec(MEMBER_AXIS)


@dataclasses.dataclass(frozen=True)
class Resident:
    """What lives on the device for the whole study."""

    market: Market
    windows: Windows
    members: Members


@dataclasses.dataclass(frozen=True)
class Stage:
    """A study on its device, ready to be traded."""

    study: Study
    resident: Resident


@functools.partial(jax.tree_util.register_dataclass, data_fields=["best", "is_alive"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Kept:
    """What is left of a training once it is over, and all that trading the test months needs of it."""

    best: Best
    is_alive: Bool[Array, "M"]


@dataclasses.dataclass(frozen=True)
class Engine(Stage):
    """A study on its device, ready to run epochs."""

    uploads: Uploads
    mesh: Mesh | None
    run_epoch: Callable[[TrainState], tuple[TrainState, dict[str, Any], PhaseTimes]]
    compile_ms: float


def start(study: Study, *, is_resident: bool = True) -> tuple[Engine, TrainState]:
    """Upload the study, compile its programs, and make the initial state (replay prefilled).

    Args:
        study: the planned study.
        is_resident: False frees the market and uploads it again at every epoch: the trainer that tidewalk is measured
            against.
    """
    uploads = Uploads()
    mesh = mesh_ops.member_mesh(study.num_members)
    resident = upload_study(study, uploads, mesh)
    provide = (lambda: resident) if is_resident else _reuploading(study, uploads, mesh, resident)
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        began = time.perf_counter()
        state = _initial(study, resident, mesh)
        form = _phased if study.config.output.profile else _fused
        run_epoch = form(study, provide, resident, state, mesh)
        compile_ms = (time.perf_counter() - began) * 1e3
    return Engine(study, resident, uploads, mesh, run_epoch, compile_ms), state


def upload_study(study: Study, uploads: Uploads, mesh: Mesh | None) -> Resident:
    """The one upload: market and windows of the study in a single counted call; members are made on the device."""
    placement = NamedSharding(mesh, _WHOLE) if mesh else None
    market, windows = mesh_ops.upload((study.resident_market(), study.windows), uploads, placement)
    config = study.config
    total_steps = config.train.epochs * config.train.max_steps_per_epoch
    members = make_members(
        study.num_windows,
        config.train.seeds,
        config.train.seed,
        study.cost_ticks,
        dqn.hyper(config.dqn, total_steps),
        study.limits,
    )
    if mesh:
        members = jax.device_put(members, NamedSharding(mesh, _BY_MEMBER))
    return Resident(market, windows, members)


def _reuploading(study: Study, uploads: Uploads, mesh: Mesh | None, first: Resident) -> Callable[[], Resident]:
    placement = NamedSharding(mesh, _WHOLE) if mesh else None
    host = study.resident_market()

    def provide() -> Resident:
        market, windows = mesh_ops.upload((host, study.windows), uploads, placement)
        return Resident(market, windows, first.members)

    return provide


def restore(state: TrainState, arrays: dict[str, Any]) -> TrainState:
    """The train state of a checkpoint, placed as `state` is."""
    host = trees.from_named(state, arrays)
    return jax.tree.map(lambda like, value: jax.device_put(value, like.sharding), state, host)


def trade(engine: Stage, best: Best) -> tuple[Any, Any]:
    """Positions over the test months, on the host: of every member `[M, H]`, and of each window's ensemble `[W, H]`."""
    from tidewalk.train.evaluate import trade_ensembles, trade_members

    study, resident = engine.study, engine.resident
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        members = jax.jit(functools.partial(trade_members, study.program))
        ensembles = jax.jit(functools.partial(trade_ensembles, study.program, seeds=study.config.train.seeds))
        return jax.device_get(
            (
                members(resident.market, resident.windows, resident.members, best),
                ensembles(resident.market, resident.windows, resident.members, best),
            )
        )


def _state_spec(state: PyTree) -> PyTree:
    """Partition of a train state: every leaf by member, the replay by its second axis, the clock whole."""
    special = {"replay": PartitionSpec(None, MEMBER_AXIS), "clock": _WHOLE}
    return jax.tree_util.tree_map_with_path(lambda path, _: special.get(path[0].name, _BY_MEMBER), state)


def _by_member(
    function: Callable[..., Any],
    mesh: Mesh | None,
    state: PyTree,
    outs: tuple[Any, ...] = (),
    *,
    extra: tuple[Any, ...] = (),
) -> Callable[..., Any]:
    """A population function that runs on every device with its own members; no collective is needed.

    Args:
        function: (market, windows, members, state, *extra) -> state, or (state, *outs).
        mesh: the devices; None for a single one.
        state: a train state, for its structure.
        outs: partitions of what the function returns beside the state.
        extra: partitions of further arguments.
    """
    if mesh is None:
        return function
    spec = _state_spec(state)
    in_specs = (_WHOLE, _WHOLE, _BY_MEMBER, spec, *extra)
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=(spec, *outs) if outs else spec, check_vma=False
    )


def _initial(study: Study, resident: Resident, mesh: Mesh | None) -> TrainState:
    make = functools.partial(initial_state, study.program)
    shape = jax.eval_shape(make, resident.windows, resident.members)
    if mesh:
        make = jax.shard_map(
            make, mesh=mesh, in_specs=(_WHOLE, _BY_MEMBER), out_specs=_state_spec(shape), check_vma=False
        )
    state = jax.jit(make)(resident.windows, resident.members)
    fill = _by_member(functools.partial(phases.prefill, study.program), mesh, shape)
    return jax.block_until_ready(
        jax.jit(fill, donate_argnums=3)(resident.market, resident.windows, resident.members, state)
    )


def _metric_specs(study: Study) -> dict[str, PartitionSpec]:
    names = ("loss", "q_mean", "score", "gross_ticks", "sides", "is_alive")
    names += ("crossed_ticks",) * study.program.has_spread + ("rolled",) * (study.config.env.roll_as == "spread")
    return dict.fromkeys(names, _BY_MEMBER) | {"epsilon": _WHOLE}


def _fused(
    study: Study, provide: Callable[[], Resident], resident: Resident, state: TrainState, mesh: Mesh | None
) -> Callable[..., Any]:
    function = _by_member(functools.partial(phases.fused_epoch, study.program), mesh, state, (_metric_specs(study),))
    program = jax.jit(function, donate_argnums=3).lower(*_fixed(resident), state).compile()

    def run(state: TrainState) -> tuple[TrainState, dict[str, Any], PhaseTimes]:
        fixed, init_ms = timed(lambda: _fixed(provide()))
        with jax.transfer_guard("disallow_explicit"):
            (state, metrics), ms = timed(program, *fixed, state)
        return state, metrics, PhaseTimes(init_ms, collect=None, learn=None, evaluate=None, total=init_ms + ms)

    return run


def _fixed(resident: Resident) -> tuple[Market, Windows, Members]:
    return resident.market, resident.windows, resident.members


def _phased(
    study: Study, provide: Callable[[], Resident], resident: Resident, state: TrainState, mesh: Mesh | None
) -> Callable[..., Any]:
    """The same functions as the fused epoch, one call per phase."""
    program = study.program
    fixed = _fixed(resident)
    by_member = {"loss": _BY_MEMBER, "q_mean": _BY_MEMBER}
    collect_fn = _by_member(functools.partial(phases.collect_step, program), mesh, state)
    learn_fn = _by_member(functools.partial(phases.learn_step, program), mesh, state, (by_member,))
    evaluate_fn = _by_member(_evaluated(program), mesh, state, (_metric_specs(study),), extra=(by_member,))
    collect = jax.jit(collect_fn, donate_argnums=3).lower(*fixed, state).compile()
    learn = jax.jit(learn_fn, donate_argnums=3).lower(*fixed, state).compile()
    means_shape = jax.eval_shape(learn_fn, *fixed, state)[1]
    evaluate = jax.jit(evaluate_fn, donate_argnums=3).lower(*fixed, state, means_shape).compile()
    add = jax.jit(lambda total, part: jax.tree.map(jnp.add, total, part), donate_argnums=0)
    mean = jax.jit(lambda total: jax.tree.map(lambda leaf: leaf / program.steps_per_epoch, total))

    def run(state: TrainState) -> tuple[TrainState, dict[str, Any], PhaseTimes]:
        fixed, init_ms = timed(lambda: _fixed(provide()))
        collect_ms = learn_ms = 0.0
        total: PyTree = None
        with jax.transfer_guard("disallow_explicit"):
            for _ in range(program.steps_per_epoch):
                state, ms = timed(collect, *fixed, state)
                collect_ms += ms
                (state, metrics), ms = timed(learn, *fixed, state)
                learn_ms += ms
                total = metrics if total is None else add(total, metrics)
            (state, metrics), evaluate_ms = timed(evaluate, *fixed, state, mean(total))
        return (
            state,
            metrics,
            PhaseTimes(init_ms, collect_ms, learn_ms, evaluate_ms, init_ms + collect_ms + learn_ms + evaluate_ms),
        )

    return run


def _evaluated(program: Any) -> Callable[..., Any]:
    def evaluate(market: Market, windows: Windows, members: Members, state: TrainState, means: dict[str, Any]) -> Any:
        state, score = phases.evaluate_step(program, market, windows, members, state, means["loss"])
        return state, phases.epoch_metrics(program, members, state, means, score)

    return evaluate
