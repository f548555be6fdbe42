"""The device programs of a study as XLA compiles them: mapped over devices, state donated, tracing and compiling timed.

Every program is a function (market, windows, members, state, ...) of the whole population. On several devices each
runs its own members; no collective is needed.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from tidewalk.core.arrays import PyTree
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.run import compile_cache, compiler
from tidewalk.run.mesh import MEMBER_AXIS
from tidewalk.run.packed import Packed, pack
from tidewalk.run.timing import Clock
from tidewalk.train import epoch as phases
from tidewalk.train.population import Members, Program, TrainState, initial_state, member_axis

WHOLE, BY_MEMBER = PartitionSpec(), PartitionSpec(MEMBER_AXIS)
STATE_ARGUMENT = 3
"""Place of the state among the arguments; it is donated."""
_BY_COLUMN = PartitionSpec(None, MEMBER_AXIS)
_MEANS = {"loss": BY_MEMBER, "q_mean": BY_MEMBER}


@dataclasses.dataclass
class Building:
    """What making the programs of a study took so far."""

    trace_ms: float = 0.0
    """Tracing them to the compiler's input."""
    compile_ms: float = 0.0
    """Compiling that, or loading what an earlier process compiled."""
    programs: int = 0
    from_cache: int = 0
    """Of the programs, those that an earlier process had compiled."""

    def said(self) -> str:
        """In words, for the log."""
        found = f" ({self.from_cache} of {self.programs} programs kept from before)" if self.from_cache else ""
        return f"traced in {self.trace_ms / 1e3:.1f} s, compiled in {self.compile_ms / 1e3:.1f} s{found}"


def build(
    function: Callable[..., Any], building: Building, *args: Any, donate: int | None = STATE_ARGUMENT, outs: Any = None
) -> jax.stages.Compiled:
    """Compile a function for arguments, or for the shapes of arguments.

    Args:
        function: a population function.
        building: counts time and programs.
        args: arrays, or `jax.ShapeDtypeStruct` in their place.
        donate: place of the argument whose memory the results take over; None for none.
        outs: shardings of the results, where they are not for the compiler to choose.
    """
    options = compiler.options(jax.default_backend())  # asks the compiler itself the first time
    clock, before = Clock(), compile_cache.requests()
    lowered = jax.jit(function, donate_argnums=() if donate is None else donate, out_shardings=outs).lower(*args)
    building.trace_ms += clock.lap()
    compiled = lowered.compile(compiler_options=options or None)
    building.compile_ms += clock.lap()
    building.programs += 1
    building.from_cache += min(1, compile_cache.requests().found - before.found)
    return compiled


def first_state(program: Program, mesh: Mesh | None) -> Callable[[Market, Windows, Members], TrainState]:
    """The function that makes the state of a study before its first epoch, its replay prefilled."""

    def make(market: Market, windows: Windows, members: Members) -> TrainState:
        return phases.prefill(program, market, windows, members, initial_state(program, windows, members))

    if mesh is None:
        return make

    def sharded(market: Market, windows: Windows, members: Members) -> TrainState:
        spec = _state_spec(jax.eval_shape(functools.partial(initial_state, program), windows, members))
        in_specs = (WHOLE, WHOLE, BY_MEMBER)
        return jax.shard_map(make, mesh=mesh, in_specs=in_specs, out_specs=spec, check_vma=False)(
            market, windows, members
        )

    return sharded


def fused(program: Program, mesh: Mesh | None, state: TrainState) -> Callable[..., tuple[TrainState, Packed]]:
    """The whole epoch as one function -> (state, packed metrics)."""

    def epoch(market: Market, windows: Windows, members: Members, state: TrainState) -> tuple[TrainState, Packed]:
        state, metrics = phases.fused_epoch(program, market, windows, members, state)
        return state, pack(metrics, members.window.shape[0])

    return _by_member(epoch, mesh, state, (_BY_COLUMN,))


def separate(program: Program, mesh: Mesh | None, state: TrainState) -> dict[str, Callable[..., Any]]:
    """The same work as the fused epoch in three functions, of which the first two run once for every vector step.

    Returns:
        `collect` -> state; `learn` -> (state, means of the step); `evaluate`, which also takes the means of the epoch,
        -> (state, packed metrics).
    """

    def evaluate(market: Market, windows: Windows, members: Members, state: TrainState, means: dict[str, Any]) -> Any:
        state, score = phases.evaluate_step(program, market, windows, members, state, means["loss"])
        metrics = phases.epoch_metrics(program, members, state, means, score)
        return state, pack(metrics, members.window.shape[0])

    return {
        "collect": _by_member(functools.partial(phases.collect_step, program), mesh, state),
        "learn": _by_member(functools.partial(phases.learn_step, program), mesh, state, (_MEANS,)),
        "evaluate": _by_member(evaluate, mesh, state, (_BY_COLUMN,), extra=(_MEANS,)),
    }


def _state_spec(state: PyTree) -> PyTree:
    """Partition of a train state: every leaf along its axis of members."""
    specs = {0: BY_MEMBER, 1: _BY_COLUMN, None: WHOLE}
    return jax.tree_util.tree_map_with_path(lambda path, _: specs[member_axis(path)], state)


def _by_member(
    function: Callable[..., Any],
    mesh: Mesh | None,
    state: PyTree,
    outs: tuple[Any, ...] = (),
    *,
    extra: tuple[Any, ...] = (),
) -> Callable[..., Any]:
    """A population function that runs on every device with its own members.

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
    in_specs = (WHOLE, WHOLE, BY_MEMBER, spec, *extra)
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=(spec, *outs) if outs else spec, check_vma=False
    )
