"""Studies made by numpy for the benchmarks: a market with a planted signal, its windows, and programs on the device.

The defaults are the starting-point epoch on a market of the size of the 24-month sample: 694,398 one-minute bars, 28
features, windows of three train months and one month of validation, 50 vector steps of 64 lanes, each followed by one
update of batch 64.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Literal

import common
import jax
import jax.numpy as jnp
import numpy as np
from common import Report
from floors import Machine, Network

from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, TRADABLE, Market
from tidewalk.market.windows import Windows
from tidewalk.run import compiler, mesh
from tidewalk.run.packed import pack, unpack
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train import memory
from tidewalk.train.population import Members, Program, TrainState, initial_state, make_members

SAMPLE_BARS, TRAIN_BARS, VAL_BARS, TEST_BARS = 694_398, 88_000, 29_795, 29_000
SESSION_BARS = 1380
_MOVE_TICKS, _PERSISTENCE = 4, 0.6
_WARM_UP_BARS = 100


@dataclasses.dataclass(frozen=True)
class Setting:
    """A study in numbers."""

    members: int = 1
    windows: int = 1
    """Divides the members."""
    features: int = 28
    bars: int = SAMPLE_BARS
    train_bars: int = TRAIN_BARS
    val_bars: int = VAL_BARS
    hidden: tuple[int, ...] = (128, 128)
    batch: int = 64
    lanes: int = 64
    steps: int = 50
    capacity: int = 32_768
    is_plain: bool = False
    """Workload of the peers: one-step plain DQN, hard target copies; else the default, 3-step double and duelling."""
    precision: str = "float32"
    learner: Literal["xla", "kernel"] = "xla"

    @property
    def dqn(self) -> DQNConfig:
        if not self.is_plain:
            return DQNConfig(hidden=self.hidden, batch_size=self.batch)
        return DQNConfig(
            hidden=self.hidden,
            batch_size=self.batch,
            n_step=1,
            double=False,
            duelling=False,
            target_update="hard",
            lr=1e-3,
            epsilon=0.1,
            epsilon_start=0.1,
            max_grad_norm=1e9,
        )

    @property
    def network(self) -> Network:
        """The network with its true number of outputs."""
        env = EnvConfig()
        return Network(
            env.observation_size(self.features), self.hidden, env.num_positions + (0 if self.is_plain else 1)
        )


@dataclasses.dataclass(frozen=True)
class Study:
    """A setting on the device."""

    setting: Setting
    program: Program
    market: Market
    windows: Windows
    members: Members

    @property
    def fixed(self) -> tuple[Market, Windows, Members]:
        return self.market, self.windows, self.members


@functools.cache
def market(bars: int, features: int, seed: int = 0) -> Market:
    """A market on the device: moves of 4 ticks that keep their sign with probability 0.6; feature 0 is the last sign.

    Every fill is at the price of the move before, and every session has 1,380 bars.
    """
    draw = np.random.default_rng(seed)
    sign = np.cumprod(np.where(draw.random(bars) < _PERSISTENCE, 1, -1)).astype(np.int32)
    earned = np.zeros(bars, np.int32)
    earned[:-2] = _MOVE_TICKS * sign[1:-1]
    session = np.arange(bars, dtype=np.int32) // SESSION_BARS
    is_last = np.append(session[1:] != session[:-1], True)
    flags = np.where(np.arange(bars) < bars - 2, TRADABLE, 0)
    flags |= np.where(is_last, LAST_OF_SESSION, 0) | np.where(np.append(is_last[1:], False), CLOSING, 0)
    columns = draw.standard_normal((bars, features), np.float32)
    columns[:, 0] = sign
    return jax.device_put(Market(earned, flags.astype(np.int32), columns, session))


def made(setting: Setting) -> Study:
    """The study of a setting, its arrays on the device."""
    env, config = EnvConfig(), setting.dqn
    whole = setting.train_bars + setting.val_bars + TEST_BARS
    room = setting.bars - _WARM_UP_BARS - whole - 2
    if room < 0:
        raise ValueError(f"{setting.bars} bars hold no window of {whole}")
    start = _WARM_UP_BARS + np.linspace(0, room, setting.windows).astype(np.int64)
    edges = np.stack([start, start + setting.train_bars, start + setting.train_bars + setting.val_bars], axis=1)
    spans = np.append(edges, edges[:, -1:] + TEST_BARS, axis=1).astype(np.int32)
    shape = (setting.windows, setting.features)
    host = Windows(
        train=spans[:, 0:2],
        val=spans[:, 1:3],
        test=spans[:, 2:4],
        center=np.zeros(shape, np.float32),
        scale=np.ones(shape, np.float32),
        reward_scale=np.full(setting.windows, 1.0 / _MOVE_TICKS, np.float32),
    )
    program = Program(
        agent=make_dqn(config, env.observation_size(setting.features), env.num_positions),
        env=env,
        num_features=setting.features,
        lanes=setting.lanes,
        capacity=-(-setting.capacity // setting.lanes) * setting.lanes,
        steps_per_epoch=setting.steps,
        prefill_steps=max(16, -(-setting.batch // setting.lanes)),
        episode_bars=512,
        select="reward",
        val_bars=setting.val_bars,
        test_bars=TEST_BARS,
        val_sessions=-(-setting.val_bars // SESSION_BARS) + 1,
        compose="scan" if mesh.compose_form() == "scan" else "associative",
        learner=setting.learner,
    )
    seeds, left = divmod(setting.members, setting.windows)
    if left:
        raise ValueError(f"{setting.windows} windows do not divide {setting.members} members")
    members = make_members(
        setting.windows, seeds, 0, CostTicks(np.asarray(0.5, np.float32), None), dqn.hyper(config, 100 * setting.steps)
    )
    return Study(setting, program, market(setting.bars, setting.features), jax.device_put(host), members)


def first_state(study: Study) -> TrainState:
    """Fresh weights and a prefilled replay."""
    with precision(study.setting):
        state = jax.jit(functools.partial(initial_state, study.program))(study.windows, study.members)
        fill = jax.jit(functools.partial(phases.prefill, study.program), donate_argnums=3)
        return jax.block_until_ready(fill(*study.fixed, state))


def compiled(study: Study, function: Callable[..., Any], *extra: Any, outs: Any = None) -> tuple[Any, float]:
    """A phase as the engine compiles it, its state donated, and the seconds that it took.

    Args:
        study: gives all arguments but the last.
        function: `(program, market, windows, members, state, *extra)`.
        extra: further arguments, arrays or their shapes.
        outs: shardings of the results, where they are not for the compiler to choose.
    """
    began = time.perf_counter()
    state = jax.eval_shape(functools.partial(initial_state, study.program), study.windows, study.members)
    with precision(study.setting):
        job = jax.jit(functools.partial(function, study.program), donate_argnums=3, out_shardings=outs)
        program = job.lower(*study.fixed, state, *extra).compile(compiler_options=compiler_options())
    return program, time.perf_counter() - began


def compiled_epoch(study: Study) -> tuple[Any, float]:
    """The whole epoch as the engine has it: its metrics packed, and left where the host reads them."""
    home = mesh.host_memory(None)
    return compiled(study, packed_epoch, outs=home and (None, home))


def packed_epoch(program: Program, market: Market, windows: Windows, members: Members, state: TrainState) -> Any:
    """The epoch as the engine has it -> (state, its metrics as one array)."""
    state, metrics = phases.fused_epoch(program, market, windows, members, state)
    return state, pack(metrics, members.window.shape[0])


def precision(setting: Setting) -> Any:
    return jax.default_matmul_precision(mesh.PRECISIONS[setting.precision])


def compiler_options() -> dict[str, Any] | None:
    """What the engine asks of the compiler on this backend."""
    return compiler.options(jax.default_backend()) or None


def steps_alone(program: Program, *arguments: Any) -> tuple[TrainState, dict[str, Any]]:
    """The vector steps of an epoch and their updates, without validation, by the program's learner."""
    if program.learner == "kernel":
        from tidewalk.train.kernel.call import learn_steps

        return learn_steps(program, *arguments)
    return phases.learn_steps(program, *arguments)


def no_kernel(setting: Setting) -> str | None:
    """Why the steps of a setting cannot run as one kernel here; None where they can."""
    from tidewalk.train.kernel import plan

    program = made(setting).program
    reason = plan.unsupported(program, setting.precision, has_limits=False)
    return reason or plan.unfit(jax.local_devices()[0], plan.plan_for(program, setting.precision))


def stepper(program: Any, study: Study, state: TrainState, *extra: Any) -> Callable[[], Any]:
    """A call that runs a compiled phase on the state that the last call left, until its results are computed."""
    held = [state]

    def call() -> Any:
        held[0], other = program(*study.fixed, held[0], *extra)
        return jax.block_until_ready((held[0], other))[1]

    return call


def epochs(program: Any, fixed: tuple[Any, ...], state: TrainState) -> Callable[[], dict[str, Any]]:
    """A call that runs a compiled epoch on the state that the last call left, until its metrics are on the host."""
    held, transfers = [state], mesh.Transfers()

    def call() -> dict[str, Any]:
        held[0], packed = program(*fixed, held[0])
        return unpack(mesh.fetch(packed, transfers))

    return call


def peak_bytes(program: Any) -> int | None:
    """Most bytes that a compiled program needs, by the compiler's account: arguments, results and scratch."""
    found = program.memory_analysis()
    if found is None:
        return None
    parts = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return int(parts - found.alias_size_in_bytes)


def device_peak_bytes() -> int | None:
    """Most bytes that this process has held on the device so far; None on a CPU."""
    found = jax.local_devices()[0].memory_stats()
    return None if not found else found.get("peak_bytes_in_use")


def predicted_mib(report: Report, study: Study) -> float | None:
    """Most memory that an epoch should need, by formula."""
    with common.attempt(report, f"memory of {study.setting.members} members by formula"):
        member = (study.members.cost, study.members.hyper, None)
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), member)
        return mib(memory.predict(study.program, study.market, study.windows, one, study.setting.members).peak)
    return None


def mib(size: int | None) -> float | None:
    """Bytes in MiB."""
    return None if size is None else size / 2**20


def measured_machine(report: Report, precision: str) -> Machine:
    """What this device reaches on one large matrix product and on one large copy."""
    is_cpu = jax.default_backend() == "cpu"
    side, length = (2048, 2**25) if is_cpu else (8192, 2**28)
    left = jnp.ones((side, side), jnp.float32)
    vector = jnp.ones(length, jnp.float32)
    with jax.default_matmul_precision(mesh.PRECISIONS[precision]):
        product = jax.jit(lambda a, b: a @ b).lower(left, left).compile()
    copy = jax.jit(lambda a: a + 1.0).lower(vector).compile()
    calls = {"product": lambda: product(left, left), "copy": lambda: copy(vector)}
    times = common.interleaved(report, calls, budget_s=1.0)
    parts = 1 if is_cpu else getattr(jax.local_devices()[0], "core_count", 1) or 1
    return Machine(
        flop_per_s=2 * side**3 / (min(times["product"].samples_ms) / 1e3),
        bytes_per_s=8 * length / (min(times["copy"].samples_ms) / 1e3),
        multiprocessors=parts,
    )
