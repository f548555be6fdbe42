"""What is a greedy pass worth in parallel: bar by bar against all bars at once, and how far is it from its matmuls?

Forms of the same pass of the starting-point network over 30,000 and 400,000 bars, taking turns in one process: bar by
bar (every bar waits for the position that the last one left), all action values in batches with the positions chained
by `scan`, and with the positions composed by `associative_scan`. All forms must give the same positions. Floor: the
arithmetic of the pass at the rate that this device reached on one large matrix product. Below: the hindsight bound and
a path of a baseline under the rules, over the same bars, in both forms.

    python benchmarks/rollouts.py [--device gpu] [--bars 30000,400000] [--members 1,32,1024] [--json FILE]
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import common
import floors
import jax
import jax.numpy as jnp
import numpy as np
import world
from common import Column, Report
from floors import Machine
from jax import lax
from world import Setting, Study

from tidewalk.market.device import Market
from tidewalk.run import mesh
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import CostTicks
from tidewalk.train import evaluate
from tidewalk.train.oracle import hindsight
from tidewalk.train.passes import scaler_of
from tidewalk.train.population import Best, Program, window_of
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
FORMS = {"chained by scan": "scan", "composed": "associative"}
_MOST_PASSES = {"bar by bar": 1_000_000, "cpu": 500_000, "gpu": 40_000_000}
"""Most bars times members: of the form bar by bar, and of all on a device; more takes tens of seconds a pass."""
_MOST_COMPARED = 32
"""Members whose positions are compared, and for which positions are also chained by a scan."""


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--bars", type=common.numbers)
    parser.add_argument("--members", type=common.numbers, help="default 1,32,1024; on a CPU 1,8")
    parser.add_argument("--precision", help="default float32, on a GPU float32,tf32")
    parser.add_argument("--budget-s", type=float, default=3.0)
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("rollouts", options)
    is_cpu = jax.default_backend() == "cpu"
    lengths = options.bars or ((3_000,) if options.quick else (30_000, 400_000))
    counts = options.members or ((1, 3) if options.quick else (1, 8) if is_cpu else (1, 32, 1024))
    for precision in (options.precision or ("float32" if is_cpu else "float32,tf32")).split(","):
        machine = world.measured_machine(report, precision)
        for bars in lengths:
            for members in counts:
                is_long = bars * members > _MOST_PASSES["cpu" if is_cpu else "gpu"]
                if is_long or (precision != "float32" and bars > 100_000):
                    continue
                with common.attempt(report, f"{bars} bars, {members} members, {precision}"):
                    passes(report, options, setting_of(bars, members, precision), machine)
    for bars in lengths:
        with common.attempt(report, f"hindsight bound and baseline over {bars} bars"):
            yardsticks(report, options, setting_of(bars, 1, "float32"))
    return common.close(report, COLUMNS)


def setting_of(bars: int, members: int, precision: str) -> Setting:
    """A study whose validation has so many decisions."""
    whole = 2_000 + bars + world.TEST_BARS + 1_000
    return Setting(members=members, bars=whole, train_bars=2_000, val_bars=bars, precision=precision, capacity=2_048)


def passes(report: Report, options: argparse.Namespace, setting: Setting, machine: Machine) -> None:
    """A row for each form of the pass of all members over the validation bars."""
    study = world.made(setting)
    drawn = world.first_state(study).best
    best = dataclasses.replace(drawn, epoch=jnp.ones_like(drawn.epoch))
    calls: dict[str, Callable[[], Any]] = {}
    positions: dict[str, np.ndarray] = {}
    is_few = setting.members <= _MOST_COMPARED
    with world.precision(setting):
        if is_few and setting.members * setting.val_bars <= _MOST_PASSES[BAR_BY_BAR]:
            calls[BAR_BY_BAR], positions[BAR_BY_BAR] = _call(study, study.program, _bar_by_bar, best)
        for name, compose in FORMS.items():
            program = dataclasses.replace(study.program, compose=compose)
            if is_few or compose == study.program.compose:
                calls[name], _ = _call(study, program, _validated, best)
            if is_few:
                _, positions[name] = _call(study, program, _positions, best)
    times = common.interleaved(report, calls, budget_s=0.0 if options.quick else options.budget_s)
    floor_ms = setting.members * floors.greedy_flop(setting.network, setting.val_bars, 3) / machine.flop_per_s * 1e3
    slow = times.get(BAR_BY_BAR)
    reference = next(iter(positions.values()), None)
    for name, timing in times.items():
        common.add(
            report,
            what="greedy pass",
            bars=setting.val_bars,
            members=setting.members,
            form=name,
            precision=setting.precision,
            median_ms=timing.median_ms,
            p10_p90=common.spread(timing),
            times_faster=slow and slow.median_ms / timing.median_ms,
            floor_ms=floor_ms,
            times_floor=timing.median_ms / floor_ms,
            flipped=int((positions[name] != reference).sum()) if name in positions else None,
            samples_ms=timing.samples_ms,
        )


def _call(study: Study, program: Program, function: Callable[..., Any], best: Best) -> tuple[Callable[[], Any], Any]:
    """A compiled call, and what it returns."""
    job = jax.jit(functools.partial(function, program)).lower(*study.fixed, best)
    job = job.compile(compiler_options=world.compiler_options())
    return lambda: job(*study.fixed, best), jax.device_get(job(*study.fixed, best))


def _validated(program: Program, market: Market, windows: Any, members: Any, best: Best) -> Any:
    return evaluate.validate_all(program, market, windows, members, best.params)


def _positions(program: Program, market: Market, windows: Any, members: Any, best: Best) -> Any:
    """Positions of every member over the validation bars, by the function that trades the test."""
    as_test = dataclasses.replace(windows, test=windows.val)
    return evaluate.trade_members(
        dataclasses.replace(program, test_bars=program.val_bars), market, as_test, members, best
    )


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
    study = world.made(setting)
    env, market, spans = study.program.env, study.market, study.windows.val
    bars, costs = setting.val_bars, CostTicks(jnp.full(1, 0.5, jnp.float32), None)
    wanted = jax.device_put(np.random.default_rng(0).integers(0, env.num_positions, bars).astype(np.int8))
    jobs: dict[str, dict[str, Callable[[], Any]]] = {"hindsight bound": {}, "wanted path": {}}
    for name, compose in FORMS.items():
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
    sys.exit(main())
