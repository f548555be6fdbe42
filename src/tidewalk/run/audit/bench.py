"""A short real training on one window of the user's data: the same functions as a study, a small network, few steps.

One program is compiled; markets with other bars in some months run through it and are compared to the bit.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core import trees
from tidewalk.core.arrays import PyTree
from tidewalk.core.errors import ConfigError
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.market import prepare
from tidewalk.market.device import MarketData
from tidewalk.market.prepare import Front, MakeFeatures
from tidewalk.market.windows import Window
from tidewalk.run.audit import poison
from tidewalk.run.audit.series import with_series
from tidewalk.run.engine import Resident, upload_study
from tidewalk.run.mesh import Transfers, compose_form
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.run.study import Study, plan_study
from tidewalk.trading import env as env_ops
from tidewalk.trading.limits import MILLI
from tidewalk.train import epoch as phases
from tidewalk.train.evaluate import trade_ensembles, trade_members
from tidewalk.train.passes import scaler_of
from tidewalk.train.population import Best, Program, TrainConfig, initial_state, window_of
from tidewalk.train.rollout import follow

SEEDS, LANES, HIDDEN, BATCH, STEPS = 2, 32, 32, 64, 64
_LR, _GAMMA = 3e-3, 0.9
_LEAST_SHIFT_TICKS = 1000


# ---- markets with other bars in them


@dataclasses.dataclass(frozen=True)
class Markets:
    """The market of one window, and how it is made with other bars in some rows."""

    base: MarketData
    shifted: Callable[[int, int, str], MarketData]
    """(first, stop, "huge" or "other"): the bars `[first, stop)` far away, or those of another market."""
    shuffled: Callable[[int], MarketData]
    """(seed): nothing that has happened says what follows."""


def markets_of_front(front: Front, make: MakeFeatures, config: RunConfig) -> Markets:
    """Markets from bars: prices are changed, and features and moves made anew of them."""
    tick_e9 = front.spec.tick_e9

    def made(series: FrontSeries) -> MarketData:
        return prepare.market_of(with_series(front, series), make)

    def shifted(first: int, stop: int, kind: str) -> MarketData:
        by_e9: np.ndarray | int = _room_ticks(config, front.move_ticks) * tick_e9
        if kind == "other":
            by_e9 = poison.random_walk_e9(stop - first, tick_e9, seed=first)
        return made(poison.shifted_series(front.series, first, stop, by_e9, seed=first))

    base = prepare.market_of(front, make)
    return Markets(base, shifted, lambda seed: made(poison.shuffled_series(front.series, seed)))


def markets_of_prepared(market: MarketData, config: RunConfig) -> Markets:
    """Markets from a prepared one, whose bars are gone: its moves and features are changed as they are.

    Row t of the features and the moves from row t-1 on belong to the bars from t on.
    """

    def shifted(first: int, stop: int, kind: str) -> MarketData:
        rng = np.random.default_rng(first)
        moves, features = market.move_ticks.copy(), market.features.copy()
        rows = slice(max(first - 1, 0), max(stop - 1, 0))
        if kind == "huge":
            features[first:stop] = 1e30
            moves[rows.start : rows.start + 1] += np.int32(_room_ticks(config, market.move_ticks))
        else:
            features[first:stop] = rng.permutation(features[first:stop]) * -3
            moves[rows] = rng.permutation(moves[rows]) * -1
        return dataclasses.replace(market, move_ticks=moves, features=features)

    return Markets(market, shifted, lambda seed: _shuffled_moves(market, seed))


def _shuffled_moves(market: MarketData, seed: int) -> MarketData:
    rng, moves = np.random.default_rng(seed), market.move_ticks.copy()
    moves[:-2] = rng.permutation(moves[:-2]) * rng.choice(np.array([-1, 1], np.int32), len(moves) - 2)
    return dataclasses.replace(market, move_ticks=moves)


def _room_ticks(config: RunConfig, move_ticks: np.ndarray) -> int:
    """The largest change of price that the accounting of all positions can hold, twice over."""
    unit = MILLI if config.limits.is_any else 1
    reach = int(np.abs(move_ticks.astype(np.int64)).sum())
    return max((2**31 // (unit * config.env.max_lots) - reach) // 8, _LEAST_SHIFT_TICKS)


def rows_of_window(market: MarketData, window: Window) -> slice:
    """Rows of the calendar months of a window, from the first day of its first train month on."""
    month = np.datetime64(window.train.first_day, "M").astype("datetime64[D]").astype(np.int32)
    return slice(int(np.searchsorted(market.trade_day, month)), window.test.stop)


def part_of_front(front: Front, rows: slice) -> Front:
    """The same rows of every array of a series."""
    series, size = front.series, len(front.series.ts_ns)
    arrays = {
        field.name: value[rows]
        for field in dataclasses.fields(series)
        if isinstance(value := getattr(series, field.name), np.ndarray) and len(value) == size
    }
    cut = dataclasses.replace(series, **arrays)
    return with_series(dataclasses.replace(front, breaks=front.breaks[rows]), cut)


def part_of_market(market: MarketData, rows: slice) -> MarketData:
    """The same rows of every array of a market; its last two decisions cannot be filled and marked any more."""
    arrays = {
        field.name: value[rows]
        for field in dataclasses.fields(market)
        if isinstance(value := getattr(market, field.name), np.ndarray)
    }
    arrays["session_id"] = arrays["session_id"] - arrays["session_id"][0]
    arrays["move_ticks"] = np.concatenate([arrays["move_ticks"][:-2], np.zeros(2, np.int32)])
    usable = max(market.info.first_usable - rows.start, 0)
    return dataclasses.replace(market, **arrays, info=dataclasses.replace(market.info, first_usable=usable))


# ---- training


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training left behind; digests are of all bytes."""

    study: Study
    resident: Resident
    best: Best
    weights: tuple[str, ...]
    """Digest of the weights, lanes and replay after every epoch."""
    scores: np.ndarray
    """`[epochs, M]` validation scores."""
    chosen: str
    """Digest of the best epoch: its weights, its number, its score."""
    scaler: str
    """Digest of centre, scale and unit of reward."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """Compiled programs of one window."""

    config: RunConfig
    markets: Markets
    program: Program
    start: Callable[..., Any]
    epoch: Callable[..., Any]
    ensemble: Callable[..., Any]
    members: Callable[..., Any]
    follow: Callable[..., Any]
    see: Callable[..., Any]


def small_config(config: RunConfig, epochs: int) -> RunConfig:
    """The user's study with the rules, costs, windows and targets it has, and a small network for a few epochs."""
    train = TrainConfig(
        epochs=epochs,
        max_steps_per_epoch=STEPS,
        seeds=SEEDS,
        seed=config.train.seed,
        lanes=LANES,
        replay_capacity=max(8192, 2 * LANES * config.dqn.n_step),
        prefill_steps=max(16, config.dqn.n_step),
        episode_bars=config.train.episode_bars,
        select=config.train.select,
    )
    learner = dataclasses.replace(
        config.dqn,
        hidden=(HIDDEN,),
        batch_size=BATCH,
        updates_per_step=1,
        lr=_LR,
        gamma=_GAMMA,
        tau=0.02,
        target_update="soft",
    )
    output = OutputConfig(device=config.output.device, precision=config.output.precision)
    return dataclasses.replace(config, train=train, dqn=learner, output=output)


def bench_of(config: RunConfig, markets: Markets, epochs: int) -> Bench:
    """Plan the window of some markets and bind its programs.

    Raises:
        ConfigError, DataError: as `plan_study`.
    """
    small = small_config(config, epochs)
    program = plan_study(small, [markets.base], compose=compose_form()).program
    return Bench(
        config=small,
        markets=markets,
        program=program,
        start=jax.jit(functools.partial(_start, program)),
        epoch=jax.jit(functools.partial(phases.fused_epoch, program)),
        ensemble=jax.jit(functools.partial(trade_ensembles, program, seeds=SEEDS)),
        members=jax.jit(functools.partial(trade_members, program)),
        follow=jax.jit(functools.partial(follow, program.env)),
        see=jax.jit(functools.partial(_seen, program)),
    )


def study_of(bench: Bench, market: MarketData, *, epochs: int | None = None) -> Study:
    """The study of a market with other bars, on the program of the bench.

    Raises:
        ConfigError: its windows have other lengths than those of the bench.
    """
    train = bench.config.train if epochs is None else dataclasses.replace(bench.config.train, epochs=epochs)
    study = plan_study(dataclasses.replace(bench.config, train=train), [market], compose=compose_form())
    if study.num_windows != 1:
        raise ConfigError(f"{study.num_windows} windows in the months of one: dates must not hang on prices.")
    ranges = ("val_bars", "test_bars", "val_sessions", "num_features")
    if any(getattr(study.program, name) != getattr(bench.program, name) for name in ranges):
        raise ConfigError("With other prices the windows have other lengths: dates must not hang on prices.")
    return study


def upload(study: Study) -> Resident:
    """A study on the default device."""
    return upload_study(study, Transfers(), None)


def train(bench: Bench, market: MarketData, *, epochs: int | None = None) -> Run:
    """Train on a market, from the first weights to the best epoch."""
    study = study_of(bench, market, epochs=epochs)
    resident = upload(study)
    fixed = (resident.market, resident.windows, resident.members)
    state, weights, scores = bench.start(*fixed), [], []
    for _ in range(study.config.train.epochs):
        state, metrics = bench.epoch(*fixed, state)
        weights.append(_digest((state.agent, state.lanes, state.replay)))
        scores.append(np.asarray(metrics["score"]))
    return Run(
        study=study,
        resident=resident,
        best=state.best,
        weights=tuple(weights),
        scores=np.stack(scores),
        chosen=_digest((state.best.params, state.best.epoch, state.best.score)),
        scaler=scaler_digest(study),
    )


def scaler_digest(study: Study) -> str:
    """Digest of centre and scale of every feature and of the unit of reward."""
    windows = study.windows
    return _digest((windows.center, windows.scale, windows.reward_scale))


def _start(program: Program, market: Any, windows: Any, members: Any) -> Any:
    return phases.prefill(program, market, windows, members, initial_state(program, windows, members))


def _seen(program: Program, market: Any, windows: Any, bars: jax.Array) -> jax.Array:
    """What the first window sees at some bars: scaled features `[n, LF]`."""
    scaler = scaler_of(window_of(windows, jnp.int32(0)))
    return jax.vmap(lambda bar: env_ops.see(program.env, market, scaler, bar))(bars)


def _digest(tree: PyTree) -> str:
    found = hashlib.sha256()
    for name, leaf in sorted(trees.to_named(jax.device_get(tree)).items()):
        found.update(name.encode())
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


# ---- policies


def ensemble_lots(bench: Bench, run: Run) -> np.ndarray:
    """Contracts held by the ensemble of a run over the test months, `[n]` int64."""
    fixed = (run.resident.market, run.resident.windows, run.resident.members)
    return in_lots(bench, run.study, np.asarray(bench.ensemble(*fixed, run.best))[0])


def in_lots(bench: Bench, study: Study, positions: np.ndarray) -> np.ndarray:
    """Contracts of position indices over the test months of the first window, without what lies beyond the range."""
    first, stop = (int(bar) for bar in study.windows.test[0])
    env = bench.program.env
    return (positions[: stop - first].astype(np.int64) - env.flat) * env.lots_per_level


def random_policy(best: Best, seed: int) -> Best:
    """Policies with random weights of unit size: they change their position often, and learn nothing."""
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype), best.params)
    return dataclasses.replace(best, params=params, epoch=jnp.ones_like(best.epoch))
