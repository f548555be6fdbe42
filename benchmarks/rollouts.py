"""What is a greedy pass worth in parallel: bar by bar against all bars at once, and how far is it from its matmuls?

Forms of the same pass of the starting-point network over 30,000 and 400,000 bars, taking turns in one process: bar by
bar (every bar waits for the position that the last one left), all action values in batches with the positions chained
by `scan`, and with the positions composed by `associative_scan`, and the GPU kernels where they fit. All forms must
give the same positions, but for ties within the rounding of their products. Floor: the
arithmetic of the pass at the rate that this device reached on one large matrix product. Below: the hindsight bound and
a path of a baseline under the rules, over the same bars, in both forms.

    python benchmarks/rollouts.py [--device gpu] [--bars 30000,400000] [--members 1,32,1024] [--json FILE]
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, Literal

import children
import common
import floors
import jax
import jax.numpy as jnp
import numpy as np
import world
from common import Column, Report
from floors import Machine
from jax import lax
from world import Setting

from tidewalk.market.device import Market
from tidewalk.run import mesh
from tidewalk.run.engine import Resident, upload_study
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.train import evaluate
from tidewalk.train.oracle import hindsight
from tidewalk.train.passes import scaler_of
from tidewalk.train.population import Best, Program, initial_state, window_of
from tidewalk.train.rollout import follow

COLUMNS = (
    Column("what", "what"),
    Column("bars", "bars", "{:,}"),
    Column("members", "members", "{:,}"),
    Column("form", "form"),
    Column("precision", "precision"),
    Column("median_ms", "median, ms", "{:,.2f}"),
    Column("p10_p90", "p10-p90"),
    Column("times_faster", "times the form bar by bar", "{:,.0f}"),
    Column("floor_ms", "floor, ms", "{:,.3f}"),
    Column("times_floor", "times its floor", "{:,.1f}"),
    Column("flipped", "other positions", "{:,}"),
)
BAR_BY_BAR = "bar by bar"
KERNELS = "GPU kernels"
FORMS: dict[str, Literal["scan", "associative"]] = {"chained by scan": "scan", "composed": "associative"}
_MOST_PASSES = {"cpu": 500_000, "gpu": 40_000_000}
_MOST_STEPS = {"cpu": 1_000_000, "gpu": 100_000}
"""Most bars times members: of all forms, and of those that go from bar to bar; more takes seconds a pass."""
_MOST_FLIPPED = 1e-3
"""Share of the positions that rounding may change where two actions are worth the same; above it no ratio is given."""
_MOST_COMPARED = 32
"""Members whose positions are compared, and for which positions are also chained by a scan."""


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--bars", type=common.numbers)
    parser.add_argument("--members", type=common.numbers, help="default 1,32,1024; on a CPU 1,8")
    precisions = common.several(common.one_of(mesh.PRECISIONS))
    parser.add_argument("--precision", type=precisions, help="default float32, on a GPU float32,tf32")
    parser.add_argument("--budget-s", type=common.at_least(0, float), default=3.0)
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("rollouts", options, COLUMNS)
    is_cpu = jax.default_backend() == "cpu"
    lengths = options.bars or ((3_000,) if options.quick else (30_000, 400_000))
    counts = options.members or ((1, 3) if options.quick else (1, 8) if is_cpu else (1, 32, 1024))
    for precision in options.precision or (("float32",) if is_cpu else ("float32", "tf32")):
        machine = world.measured_machine(report, precision)
        for bars in lengths:
            for members in counts:
                is_long = bars * members > _MOST_PASSES[backend()]
                if is_long or (precision != "float32" and bars > 100_000):
                    continue
                with common.attempt(report, f"{bars} bars, {members} members, {precision}"):
                    passes(report, options, setting_of(bars, members, precision), machine)
    for bars in lengths:
        with common.attempt(report, f"hindsight bound and baseline over {bars} bars"):
            yardsticks(report, options, setting_of(bars, 1, "float32"))
    return common.close(report)


def setting_of(bars: int, members: int, precision: str) -> Setting:
    """A study whose validation has so many decisions."""
    whole = 2_000 + bars + world.TEST_BARS + 1_000
    return Setting(members=members, bars=whole, train_bars=2_000, val_bars=bars, precision=precision, capacity=2_048)


@dataclasses.dataclass(frozen=True)
class Given:
    """A study on one device, and policies to follow."""

    setting: Setting
    program: Program
    resident: Resident
    best: Best

    def form(self, **changes: Any) -> Program:
        """The static part of a form of the pass."""
        return dataclasses.replace(self.program, **changes)


def given(setting: Setting) -> Given:
    """The study of a setting, with the first weights of its members as the policies."""
    study = world.made(setting)
    resident = upload_study(study, mesh.Transfers(), None)
    state = jax.jit(functools.partial(initial_state, study.program))(resident.windows, resident.members)
    return Given(
        setting, study.program, resident, dataclasses.replace(state.best, epoch=jnp.ones_like(state.best.epoch))
    )


def backend() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def chains(setting: Setting, chosen: str) -> dict[str, Literal["scan", "associative"]]:
    """Ways to chain positions: the chosen one, and the other where that takes no seconds."""
    is_short = setting.members <= _MOST_COMPARED and setting.members * setting.val_bars <= _MOST_STEPS[backend()]
    return {name: compose for name, compose in FORMS.items() if is_short or compose == chosen}


def forms(setting: Setting, chosen: str) -> dict[str, dict[str, Any]]:
    """The forms of the pass that are compared, the kernels where they fit."""
    found: dict[str, dict[str, Any]] = {
        name: {"compose": compose, "learner": "xla"} for name, compose in chains(setting, chosen).items()
    }
    if world.no_kernel(setting) is None:
        found[KERNELS] = {"learner": "kernel"}
    return found


def passes(report: Report, options: argparse.Namespace, setting: Setting, machine: Machine) -> None:
    """A row for each form of the pass of all members over the validation bars."""
    here = given(setting)
    calls: dict[str, Callable[[], Any]] = {}
    positions: dict[str, np.ndarray] = {}
    is_few = setting.members <= _MOST_COMPARED
    with world.precision(setting):
        if is_few and setting.members * setting.val_bars <= _MOST_STEPS[backend()]:
            calls[BAR_BY_BAR] = _call(here, here.program, _bar_by_bar)
            positions[BAR_BY_BAR] = jax.device_get(calls[BAR_BY_BAR]())
        for name, changes in forms(setting, here.program.compose).items():
            with common.attempt(report, f"{setting.val_bars} bars, {setting.members} members, {name}"):
                calls[name] = _call(here, here.form(**changes), _validated)
                if is_few:
                    positions[name] = jax.device_get(_call(here, here.form(**changes), positions_held)())
    times = common.interleaved(report, calls, budget_s=0.0 if options.quick else options.budget_s)
    floor_ms = setting.members * floors.greedy_flop(setting.network, setting.val_bars, 3) / machine.flop_per_s * 1e3
    slow = times.get(BAR_BY_BAR)
    reference = next(iter(positions.values()), None)
    for name, timing in times.items():
        flipped = int((positions[name] != reference).sum()) if name in positions else None
        is_same = flipped is None or flipped <= _MOST_FLIPPED * reference.size
        if not is_same:
            report.notes.append(f"{setting.val_bars:,} bars, {setting.members} members: {name} holds other positions")
        common.add(
            report,
            what="greedy pass",
            bars=setting.val_bars,
            members=setting.members,
            form=name,
            precision=setting.precision,
            median_ms=timing.median_ms,
            p10_p90=common.spread(timing),
            times_faster=slow.median_ms / timing.median_ms if slow and is_same else None,
            floor_ms=floor_ms,
            times_floor=timing.median_ms / floor_ms,
            flipped=flipped,
            samples_ms=timing.samples_ms,
        )


def _call(here: Given, program: Program, function: Callable[..., Any]) -> Callable[[], Any]:
    """A compiled pass as a call."""
    arguments = (*here.resident.fixed, here.best)
    job = jax.jit(functools.partial(function, program)).lower(*arguments)
    job = job.compile(compiler_options=world.compiler_options())
    return lambda: job(*arguments)


def _validated(program: Program, market: Market, windows: Any, members: Any, best: Best) -> Any:
    return evaluate.validate_all(program, market, windows, members, best.params)


def positions_held(program: Program, market: Market, windows: Any, members: Any, best: Best) -> Any:
    """Positions of every member over the validation bars, by the function that trades the test."""
    as_test = dataclasses.replace(windows, test=windows.val)
    same = dataclasses.replace(program, test_bars=program.val_bars, test_lengths=program.val_lengths)
    return evaluate.trade_members(same, market, as_test, members, best)


def _bar_by_bar(program: Program, market: Market, windows: Any, members: Any, best: Best) -> Any:
    """The pass as an environment would make it: observe, choose, move on."""
    env = program.env

    def one(member: Any, params: Any) -> Any:
        window = window_of(windows, member.window)

        def body(position: Any, bar: Any) -> tuple[Any, Any]:
            q = program.agent.q_values(params, env_ops.observe(env, market, scaler_of(window), bar, position))
            low, high = env_ops.bounds(env, market.flags[bar], position, bar == window.val[1] - 1)
            after = env_ops.choose(env, q, low, high)
            return after, after.astype(jnp.int8)

        bars = window.val[0] + jnp.arange(program.val_bars, dtype=jnp.int32)
        return lax.scan(body, jnp.int32(env.flat), bars)[1]

    return jax.vmap(one)(members, best.params)


def yardsticks(report: Report, options: argparse.Namespace, setting: Setting) -> None:
    """The hindsight bound, and a wanted path followed under the rules, in both forms; equal answers."""
    here = given(setting)
    env, market, spans = here.program.env, here.resident.market, here.resident.windows.val
    bars, costs = setting.val_bars, CostTicks(jnp.full(1, 0.5, jnp.float32), None)
    wanted = jax.device_put(np.random.default_rng(0).integers(0, env.num_positions, bars).astype(np.int8))
    jobs: dict[str, dict[str, Callable[[], Any]]] = {"hindsight bound": {}, "wanted path": {}}
    for name, compose in chains(setting, here.program.compose).items():
        bound = functools.partial(hindsight, env, market, spans, costs, bars=bars, compose=compose)
        path = jax.jit(functools.partial(follow, env, compose=compose)).lower(market, None, spans[0], wanted).compile()
        jobs["hindsight bound"][name] = bound
        jobs["wanted path"][name] = functools.partial(path, market, None, spans[0], wanted)
    for what, calls in jobs.items():
        answers = [np.asarray(call()) for call in calls.values()]
        times = common.interleaved(report, calls, budget_s=0.0 if options.quick else options.budget_s)
        for number, (name, timing) in enumerate(times.items()):
            common.add(
                report,
                what=what,
                bars=bars,
                members=1,
                form=name,
                precision="integers",
                median_ms=timing.median_ms,
                p10_p90=common.spread(timing),
                flipped=int((answers[number] != answers[0]).sum()),
                samples_ms=timing.samples_ms,
            )


if __name__ == "__main__":
    sys.exit(children.guarded(main))
