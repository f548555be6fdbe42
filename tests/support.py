"""Markets with known answers, and studies small enough for a test."""

import dataclasses
from pathlib import Path

import numpy as np

from tidewalk.agents.dqn import DQNConfig
from tidewalk.data.load import DataConfig
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, ROLL, TRADABLE, MarketData, MarketInfo
from tidewalk.market.windows import WindowConfig
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.trading.account import Book, book
from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.train.baselines import baseline_paths
from tidewalk.train.passes import Extent
from tidewalk.train.population import TrainConfig

NS_PER_HOUR = 3_600_000_000_000
FIRST_DAY = 19723  # 2024-01-01


def market_info(features: int, **changes: object) -> MarketInfo:
    info = MarketInfo(
        symbol="ES.FUT",
        root="ES",
        contracts=("ESH4", "ESM4"),
        feature_names=tuple(f"f{i}" for i in range(features)),
        first_usable=0,
        tick_e9=250_000_000,
        multiplier=50.0,
        currency="USD",
        commission_usd=2.25,
        sessions="cme-globex",
        interval_ns=NS_PER_HOUR,
        fingerprint="test",
        rolls=(),
        notes=(),
        warnings=(),
    )
    return dataclasses.replace(info, **changes)


def chain_market(
    sign: np.ndarray, move_ticks: int, bars_per_day: int, extra_features: int = 3, roll_at: int | None = None
) -> MarketData:
    """Market whose close-to-close moves are `move_ticks * sign`; every open is the previous close.

    The move that the decision of bar t earns is that of bar t+1. Feature 0 is the sign of bar t, the others are noise.
    Every day is a session, weekends too. `roll_at`: bar from which the second contract is the front one, 100 ticks
    above the first.
    """
    length = len(sign)
    close = 40_000 + np.cumsum(sign * move_ticks)
    open_ticks = np.concatenate([[40_000], close[:-1]])
    contract_id = np.zeros(length, np.int32)
    exit_ticks = open_ticks.copy()
    if roll_at is not None:
        contract_id[roll_at:] = 1
        open_ticks = open_ticks + 100 * contract_id
        exit_ticks = open_ticks.copy()
        exit_ticks[roll_at] -= 100
    moves = np.zeros(length, np.int32)
    moves[:-2] = exit_ticks[2:] - open_ticks[1:-1]
    session = (np.arange(length) // bars_per_day).astype(np.int32)
    is_last = np.concatenate([session[1:] != session[:-1], [True]])
    flags = np.where(np.arange(length) < length - 2, TRADABLE, 0) | np.where(is_last, LAST_OF_SESSION, 0)
    flags = flags | np.where(np.concatenate([is_last[1:], [False]]), CLOSING, 0)
    flags = flags | np.where(np.concatenate([contract_id[1:] != contract_id[:-1], [False]]), ROLL, 0)
    noise = np.random.default_rng(7).standard_normal((length, extra_features))
    return MarketData(
        move_ticks=moves,
        flags=flags.astype(np.int32),
        features=np.concatenate([sign[:, None], noise], axis=1).astype(np.float32),
        session_id=session,
        close_move_ticks=(sign * move_ticks).astype(np.int32),
        ts_ns=FIRST_DAY * 24 * NS_PER_HOUR + np.arange(length) * (24 * NS_PER_HOUR // bars_per_day),
        trade_day=(FIRST_DAY + session).astype(np.int32),
        contract_id=contract_id,
        open_e9=open_ticks.astype(np.int64) * 250_000_000,
        exit_open_e9=exit_ticks.astype(np.int64) * 250_000_000,
        info=market_info(1 + extra_features),
    )


def planted_signs(length: int, persistence: float, seed: int = 0) -> np.ndarray:
    """+-1 chain that keeps its sign with the given probability."""
    rng = np.random.default_rng(seed)
    return np.cumprod(np.where(rng.random(length) < persistence, 1, -1))


def planted_market(
    days: int, bars_per_day: int = 24, persistence: float = 0.7, move_ticks: int = 10, seed: int = 0
) -> MarketData:
    return chain_market(planted_signs(days * bars_per_day, persistence, seed), move_ticks, bars_per_day)


def with_half_spreads(market: MarketData, half_ticks: np.ndarray) -> MarketData:
    """The market with recorded half spreads `[T]`, in ticks."""
    return dataclasses.replace(market, half_spread_ticks=np.asarray(half_ticks, np.float32))


def random_half_spreads(market: MarketData, seed: int = 0) -> MarketData:
    """The market with spreads of 1 to 8 whole ticks."""
    spread_ticks = np.random.default_rng(seed).integers(1, 9, market.num_bars)
    return with_half_spreads(market, spread_ticks / 2)


def as_nq(market: MarketData, **changes: object) -> MarketData:
    """The market under the name and the multiplier of NQ."""
    facts = {"symbol": "NQ.FUT", "root": "NQ", "contracts": ("NQH4", "NQM4"), "multiplier": 20.0, "fingerprint": "nq"}
    return dataclasses.replace(market, info=dataclasses.replace(market.info, **(facts | changes)))


def baseline_book(name: str, market: MarketData, env: EnvConfig, first: int, count: int) -> Book:
    """Book of one baseline over `count` decisions from bar `first`, without account limits."""
    import jax

    spans, decisions = [(market, first)], np.array([[first, first + count]], np.int32)
    on_device = jax.device_put(market.on_device())
    paths = baseline_paths(env, on_device, None, decisions, spans, extent=Extent("scan", count))
    return book(market, first, (paths[name][0].astype(np.int64) - env.flat) * env.lots_per_level, env.roll_as)


def small_config(data_dir: Path, out: Path | None = None, **train: object) -> RunConfig:
    """A study of 2/1/1/1 months on a prepared market, with a network of 16 units."""
    settings = {
        "epochs": 2,
        "max_steps_per_epoch": 5,
        "seeds": 2,
        "lanes": 8,
        "replay_capacity": 512,
        "prefill_steps": 4,
    } | train
    return RunConfig(
        data=DataConfig(data_dir=data_dir, symbol="ES.FUT"),
        windows=WindowConfig(train_months=2, val_months=1, test_months=1, step_months=1),
        env=EnvConfig(),
        costs=CostConfig(commission_usd=0.0, slippage_ticks=1.0),
        train=TrainConfig(**settings),
        dqn=DQNConfig(hidden=(16,), batch_size=16),
        output=OutputConfig(out=out, quiet=True),
    )
