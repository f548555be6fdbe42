"""Studies made by numpy for the benchmarks: a market with a planted signal, its windows, and the engine that runs them.

The defaults are the starting-point epoch on a market of the size of the 24-month sample: 694,398 one-minute bars, 28
features, windows of three train months and one month of validation, 50 vector steps of 64 lanes, each followed by one
update of batch 64.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import common
import jax
import jax.numpy as jnp
import numpy as np
from common import Report
from floors import Machine, Network

from tidewalk.agents.dqn import DQNConfig
from tidewalk.data.load import DataConfig
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, TRADABLE, Market
from tidewalk.market.windows import Windows
from tidewalk.run import compiler, engine, memory, mesh
from tidewalk.run.ahead import Runner, device_runs_ahead
from tidewalk.run.engine import Engine, State
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.run.static import program_with
from tidewalk.run.study import Leg, Study
from tidewalk.trading.env import EnvConfig
from tidewalk.train.kernel.plan import multiprocessors
from tidewalk.train.population import TrainConfig, longest

SAMPLE_BARS, TRAIN_BARS, VAL_BARS, TEST_BARS = 694_398, 88_000, 29_795, 29_000
SESSION_BARS = 1380
NEXT_TO_NONE = 4
"""Bars of the validation where the steps of an epoch are timed alone."""
_MOST_IN_A_ROW, _ROW_MS = 10, 200.0
"""Epochs of a timed row: as many as take so long, and no more than that."""
_MOVE_TICKS, _PERSISTENCE = 4, 0.6
_SIDE_TICKS = 0.5
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
    """Of a window on average."""
    val_spread: float = 0.0
    """The validation of the first window is shorter by this share, that of the last longer; evenly between them."""
    hidden: tuple[int, ...] = (128, 128)
    batch: int = 64
    lanes: int = 64
    steps: int = 50
    capacity: int = 32_768
    is_plain: bool = False
    """Workload of the peers: one-step plain DQN, hard target copies; else the default, 3-step double and duelling."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    learner: Literal["auto", "xla", "kernel"] = "xla"

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

    @property
    def val_lengths(self) -> list[int]:
        """Bars of the validation of every window."""
        shares = np.linspace(1 - self.val_spread, 1 + self.val_spread, self.windows) if self.windows > 1 else np.ones(1)
        return (shares * self.val_bars).round().astype(int).tolist()


@dataclasses.dataclass(frozen=True)
class ArrayLeg(Leg):
    """A symbol that is its arrays and no more: what the engine asks of it, none of what reports do."""

    market: Any
    plan: Any
    costs: Any


@functools.cache
def market(bars: int, features: int, seed: int = 0) -> Market:
    """A market on the host: moves of 4 ticks that keep their sign with probability 0.6; feature 0 is the last sign.

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
    return Market(earned, flags.astype(np.int32), columns, session)


def made(setting: Setting) -> Study:
    """The study of a setting, on the host."""
    lengths = setting.val_lengths
    whole = setting.train_bars + max(lengths) + TEST_BARS
    room = setting.bars - _WARM_UP_BARS - whole - 2
    if room < 0:
        raise ValueError(f"{setting.bars} bars hold no window of {whole}")
    start = _WARM_UP_BARS + np.linspace(0, room, setting.windows).astype(np.int64)
    val = start + setting.train_bars
    test = val + np.array(lengths)
    edges = np.stack([start, val, test, test + TEST_BARS], axis=1).astype(np.int32)
    shape = (setting.windows, setting.features)
    windows = Windows(
        train=edges[:, 0:2],
        val=edges[:, 1:3],
        test=edges[:, 2:4],
        center=np.zeros(shape, np.float32),
        scale=np.ones(shape, np.float32),
        reward_scale=np.full(setting.windows, 1.0 / _MOVE_TICKS, np.float32),
    )
    seeds, left = divmod(setting.members, setting.windows)
    if left:
        raise ValueError(f"{setting.windows} windows do not divide {setting.members} members")
    config = RunConfig(
        data=DataConfig(data_dir=Path("numpy"), symbol="NUMPY"),
        train=TrainConfig(
            epochs=100,
            max_steps_per_epoch=setting.steps,
            seeds=seeds,
            lanes=setting.lanes,
            replay_capacity=setting.capacity,
            prefill_steps=max(16, -(-setting.batch // setting.lanes)),
        ),
        dqn=setting.dqn,
        output=OutputConfig(precision=setting.precision, learner=setting.learner),
    )
    return hosted(config, market(setting.bars, setting.features), windows, side_ticks=_SIDE_TICKS)


def hosted(config: RunConfig, arrays: Market, windows: Windows, *, side_ticks: float) -> Study:
    """A study of arrays in place of files, which the engine takes like any other.

    Args:
        config: its settings; the data that it names are not looked for.
        arrays: the market, host arrays.
        windows: the windows, host arrays.
        side_ticks: cost of one contract bought or sold.
    """
    program = program_with(
        config,
        arrays.features.shape[1],
        mesh.compose_form(),
        {"val": windows.val, "test": windows.test},
        val_sessions=-(-longest(windows.val) // SESSION_BARS) + 1,
    )
    leg = ArrayLeg(
        market=SimpleNamespace(on_device=lambda: arrays),
        plan=SimpleNamespace(windows=range(len(windows.val))),
        costs=SimpleNamespace(side_ticks=side_ticks, roll_ticks=0.0),
        first_bar=0,
    )
    return Study(config, (leg,), windows, program)


def started(setting: Setting) -> tuple[Engine, State]:
    """The engine of a setting as `tidewalk train` starts it: uploaded, compiled, its replay prefilled."""
    return engine.start(made(setting))


def without_validation(setting: Setting) -> Setting:
    """The setting with next to no validation."""
    return dataclasses.replace(setting, val_bars=NEXT_TO_NONE, val_spread=0.0)


def alone(running: Engine, state: State) -> Callable[[], dict[str, np.ndarray]]:
    """A call that runs an epoch from the state that the last call left, until its metrics are on the host."""
    held = [state]

    def call() -> dict[str, np.ndarray]:
        held[0], metrics, _ = running.run_epoch(held[0])
        return metrics

    return call


def in_a_row(running: Engine, state: State) -> Callable[[], float]:
    """A call that runs some epochs as a training does, from the state that the last call left; milliseconds of each.

    The next epoch is begun before the metrics of this one are read, where the device can run ahead of the host.
    """
    runner, taken_ms = Runner(running, state), []
    for _ in range(3):  # the last of them is as long as any other
        began = time.perf_counter()
        runner.run(may_go_on=False)
        taken_ms.append((time.perf_counter() - began) * 1e3)
    count = min(_MOST_IN_A_ROW, max(1, int(_ROW_MS / taken_ms[-1]))) if device_runs_ahead() else 1

    def call() -> float:
        began = time.perf_counter()
        for number in range(count):
            runner.run(may_go_on=number < count - 1)
        jax.block_until_ready(runner.state)
        return (time.perf_counter() - began) * 1e3 / count

    return call


def compile_s(running: Engine) -> float:
    """Seconds that tracing and compiling the programs of a study took: its first state and its epoch."""
    return (running.building.trace_ms + running.building.compile_ms) / 1e3


def precision(setting: Setting) -> Any:
    return jax.default_matmul_precision(mesh.PRECISIONS[setting.precision])


def compiler_options() -> dict[str, Any] | None:
    """What the engine asks of the compiler on this backend."""
    return compiler.options(jax.default_backend()) or None


def no_kernel(setting: Setting) -> str | None:
    """Why the steps of a setting cannot run as one kernel here; None where they can."""
    from tidewalk.core.errors import ConfigError
    from tidewalk.run.learner import with_learner

    try:
        with_learner(made(dataclasses.replace(setting, learner="kernel")))
    except ConfigError as error:
        return str(error).removeprefix("--learner kernel cannot run this study: ").partition(". Use")[0]
    return None


def weights(running: Engine, state: State) -> list[np.ndarray]:
    """Parameters of all members, on the host."""
    whole = running.deal.join(jax.device_get(state))
    return jax.tree.leaves(running.study.program.agent.params(whole.agent))


def peak_bytes(running: Engine) -> int | None:
    """Most bytes that an epoch needs: its arguments, and results and scratch by the compiler's account.

    Arguments count whether or not the program reads them. Of shares on a CPU, what each holds, the scratch of those
    that run at a time, and the market and windows once.
    """
    found, dealt = running.compiled.memory_analysis(), running.deal
    if found is None:
        return None
    market, windows, *by_member = running.compiled.args_info[0]
    own = _bytes_of(by_member) + int(found.output_size_in_bytes - found.alias_size_in_bytes)
    return _bytes_of((market, windows)) + own * dealt.count + int(found.temp_size_in_bytes) * dealt.at_a_time


def _bytes_of(arguments: Any) -> int:
    leaves = jax.tree.leaves(arguments, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def device_peak_bytes() -> int | None:
    """Most bytes that this process has held on the device so far; None on a CPU."""
    found = jax.local_devices()[0].memory_stats()
    return None if not found else found.get("peak_bytes_in_use")


def predicted_mib(running: Engine) -> float | None:
    """Most memory that an epoch should need on each of its devices, by the formula that `tidewalk train` goes by."""
    return mib(memory.of_study(running.study, running.mesh.size if running.mesh else 1).epoch)


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
    return Machine(
        flop_per_s=2 * side**3 / (min(times["product"].samples_ms) / 1e3),
        bytes_per_s=8 * length / (min(times["copy"].samples_ms) / 1e3),
        multiprocessors=multiprocessors(jax.local_devices()[0]) or 1,
    )
