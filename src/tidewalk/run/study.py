"""A study before it touches the device: the market, its windows, and the static program."""

import dataclasses

import numpy as np

from tidewalk.agents.dqn import make_dqn
from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.contracts import root_of
from tidewalk.market.device import MarketData, load_market
from tidewalk.market.windows import WindowPlan, Windows, decision_ranges, fit_windows, plan_windows
from tidewalk.run.settings import RunConfig
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
        DataError, ConfigError: as the readers do, or when the `.npz` holds another symbol.
    """
    path = config.data.data_dir
    if path.suffix != ".npz":
        from tidewalk.market.prepare import prepare

        return prepare(config.data, config.series).market
    market = load_market(path)
    if root_of(market.info.symbol) != root_of(config.data.symbol):
        hint = did_you_mean(config.data.symbol, [market.info.symbol])
        raise DataError(f"{path.name} holds {market.info.symbol}, not {config.data.symbol}{hint}.")
    return market


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
