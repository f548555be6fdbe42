"""A study before it touches the device: the market, its windows, and the static program."""

import dataclasses
import hashlib

import numpy as np

from tidewalk.agents.dqn import make_dqn
from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.load import DataConfig
from tidewalk.market.device import CLOSING, MarketData, load_market
from tidewalk.market.prepare import SeriesConfig
from tidewalk.market.windows import WindowPlan, Windows, decision_ranges, fit_windows, plan_windows
from tidewalk.run.settings import RunConfig
from tidewalk.stats.metrics import MIN_SESSIONS_FOR_SHARPE
from tidewalk.trading.costs import Costs
from tidewalk.train.population import Program, longest


@dataclasses.dataclass(frozen=True)
class Study:
    """Everything that is known before training; all on the host."""

    config: RunConfig
    market: MarketData
    plan: WindowPlan
    windows: Windows
    """Device form of the windows, host arrays."""
    costs: Costs
    program: Program

    @property
    def num_windows(self) -> int:
        """W."""
        return len(self.plan.windows)

    @property
    def num_members(self) -> int:
        """M."""
        return self.num_windows * self.config.train.seeds


def read_market(config: RunConfig) -> MarketData:
    """The market of a configuration: a prepared `.npz`, or data files that are read and prepared.

    Raises:
        DataError, ConfigError: as the readers do, or when the `.npz` holds another symbol or was prepared for good.
    """
    path = config.data.data_dir
    if path.suffix != ".npz":
        from tidewalk.market.prepare import prepare

        return prepare(config.data, config.series).market
    refuse_preparing(config.data, config.series)
    market = load_market(path)
    info = market.info
    if config.data.symbol not in (info.symbol, info.root):
        hint = did_you_mean(config.data.symbol, [info.symbol])
        raise DataError(f"--symbol: {path.name} holds {info.symbol}, not {config.data.symbol}{hint}.")
    return market


def refuse_preparing(data: DataConfig, series: SeriesConfig) -> None:
    """Refuse settings of reading and preparing for a market that is prepared already, where they would change nothing.

    Raises:
        ConfigError: names them.
    """
    given = [
        (field.name, getattr(record, field.name), field.default)
        for record in (data, series)
        for field in dataclasses.fields(record)
    ]
    asked = [f"--{name.replace('_', '-')} {value}" for name, value, default in given if value != default]
    asked = [flag for flag in asked if not flag.startswith(("--data-dir", "--symbol"))]
    if asked:
        raise ConfigError(
            f"{', '.join(asked)}: {data.data_dir.name} is prepared already, so this changes nothing. Leave it out, or "
            "prepare the data files anew with it (`tidewalk inspect --save-market`)."
        )


def market_hash(config: RunConfig, market: MarketData) -> str:
    """SHA-256 of what a study trains on; unlike the fingerprint of the bars, of the roll table and feature code too.

    The default features, where they were computed just now, are left out: they may differ in the last bit between
    machines.
    """
    names = ["move_ticks", "flags", "session_id", "contract_id"]
    is_default = config.series.features is None and config.data.data_dir.suffix != ".npz"
    digest = hashlib.sha256(" ".join(market.info.feature_names).encode())
    for name in names if is_default else [*names, "features"]:
        digest.update(np.ascontiguousarray(getattr(market, name)).tobytes())
    return digest.hexdigest()


def resolve_costs(config: RunConfig, market: MarketData) -> Costs:
    """Costs with the contract's own commission where none is given."""
    given = config.costs.commission_usd
    return Costs(
        tick_value_usd=market.info.tick_value_usd,
        commission_usd=market.info.commission_usd if given is None else given,
        slippage_ticks=config.costs.slippage_ticks,
    )


def plan_study(config: RunConfig, market: MarketData, *, compose: str) -> Study:
    """Cut the windows and bind the program.

    Args:
        config: the configuration.
        market: its market.
        compose: how rollouts chain position maps, chosen for the device.

    Raises:
        DataError: not enough history.
        ConfigError: settings that do not fit one another or the data.
    """
    first_usable = market.info.first_usable + config.env.lookback - 1
    plan = plan_windows(
        market.trade_day, market.info.sessions, config.windows, purge_bars=config.purge_bars, first_usable=first_usable
    )
    shortest = min(w.train.bars for w in plan.windows)
    if shortest <= config.dqn.n_step + 2:
        raise ConfigError(
            f"The shortest train range holds {shortest} bars; --n-step {config.dqn.n_step} needs more than "
            f"{config.dqn.n_step + 2}."
        )
    ranges = decision_ranges(plan)
    _refuse_idle_settings(config, market, ranges["val"])
    _refuse_overflow(config.env.positions, market, ranges["val"])
    features = market.features
    agent = make_dqn(config.dqn, config.env.observation_size(features.shape[1]), config.env.num_positions)
    train = config.train
    program = Program(
        agent=agent,
        env=config.env,
        num_features=features.shape[1],
        lanes=train.lanes,
        capacity=-(-train.replay_capacity // train.lanes) * train.lanes,
        steps_per_epoch=train.max_steps_per_epoch,
        prefill_steps=train.prefill_steps,
        episode_bars=train.episode_bars,
        select=train.select,
        val_bars=longest(ranges["val"]),
        test_bars=longest(ranges["test"]),
        val_sessions=max(w.val.sessions for w in plan.windows),
        compose="scan" if compose == "scan" else "associative",
    )
    return Study(
        config, market, plan, fit_windows(plan, features, market.move_ticks), resolve_costs(config, market), program
    )


def _refuse_idle_settings(config: RunConfig, market: MarketData, val: np.ndarray) -> None:
    """Refuse settings under which nothing could be traded, or no epoch could be chosen, on these data."""
    closing_frac = float(np.mean((market.flags[:-1] & CLOSING) != 0))
    if config.env.flat_at_close and closing_frac > 0.5:
        raise ConfigError(
            f"--flat-at-close leaves no choice at {closing_frac:.0%} of the bars: most sessions have a single bar, and "
            "at the open of its last bar a session must be flat. Use shorter bars, or leave the flag out."
        )
    if config.train.select == "sharpe":
        # a decision belongs to the session of the bar in which it fills
        sessions = min(len(np.unique(market.session_id[first + 1 : stop + 1])) for first, stop in val)
        if sessions < MIN_SESSIONS_FOR_SHARPE:
            raise ConfigError(
                f"--select sharpe needs {MIN_SESSIONS_FOR_SHARPE} or more sessions in every validation range; the "
                f"shortest has {sessions}. Use --select reward, or more --val-months."
            )


def _refuse_overflow(positions: int, market: MarketData, val: np.ndarray) -> None:
    """Refuse position sizes whose ticks the device could not add up in int32."""
    move_ticks = np.abs(market.move_ticks.astype(np.int64))
    reach = max(int(move_ticks.max(initial=0)), *(int(move_ticks[first:stop].sum()) for first, stop in val))
    if positions * reach >= 2**31:
        raise ConfigError(
            f"--positions {positions}: the moves of a validation range add up to {reach} ticks, so the ticks of "
            f"{positions} contracts may exceed the 2147483647 that int32 accounting can hold. Use --positions "
            f"{(2**31 - 1) // reach} or fewer, or a coarser --tick."
        )


def windows_record(study: Study) -> dict[str, object]:
    """Content of `windows.json`: dates and bar ranges of every window, with the contracts and rolls inside."""
    config = study.config.windows
    return {
        "months": {name: getattr(config, f"{name}_months") for name in ("train", "val", "test", "step")},
        "purge_bars": study.plan.purge_bars,
        "windows": [_window_record(study.market, window) for window in study.plan.windows],
        "uncovered": " ".join(study.plan.notes) or None,
    }


def _window_record(market: MarketData, window: object) -> dict[str, object]:
    ranges = {name: getattr(window, name) for name in ("train", "val", "test")}
    first, stop = ranges["train"].first, ranges["test"].stop
    inside = np.unique(market.contract_id[first:stop])
    return {
        "window": window.index,  # type: ignore[attr-defined]
        **{
            name: {
                "first": str(r.first_day),
                "last": str(r.last_day),
                "bars": [r.first, r.stop],
                "sessions": r.sessions,
            }
            for name, r in ranges.items()
        },
        "partial_test": window.is_partial_test,  # type: ignore[attr-defined]
        "contracts": [market.info.contracts[i] for i in inside],
        "rolls": rolls_between(market, first, stop),
    }


def rolls_between(market: MarketData, first: int, stop: int) -> list[dict[str, object]]:
    """Rolls whose first new bar lies in the bars `[first, stop)`."""
    span = range(int(market.ts_ns[first]), int(market.ts_ns[stop - 1]) + 1)
    return [{key: roll[key] for key in ("date", "from", "to")} for roll in market.info.rolls if roll["ts_ns"] in span]
