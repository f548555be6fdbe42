"""A study before it touches the device: the markets of its symbols, their windows, and the static program."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.words import counted
from tidewalk.market import device, windows
from tidewalk.market.device import CLOSING, ROLL, Market, MarketData
from tidewalk.market.rules import with_close_warning, with_no_entry
from tidewalk.market.windows import Window, WindowPlan, Windows, decision_ranges, fit_windows, plan_windows
from tidewalk.run.settings import RunConfig
from tidewalk.run.static import program_with
from tidewalk.stats.metrics import MIN_SESSIONS_FOR_SHARPE
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import Costs, CostTicks, roll_usd, slippage_ticks
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import Limits
from tidewalk.train.population import Program, longest, refuse_crowds


@dataclasses.dataclass(frozen=True)
class Leg:
    """One symbol of a study."""

    market: MarketData
    plan: WindowPlan
    """Its windows, in its own bars; they are numbered over all symbols of the study."""
    costs: Costs
    first_bar: int
    """Place of its first bar in the resident store, where the markets of all symbols lie end to end."""

    @property
    def symbol(self) -> str:
        """The symbol, as asked for."""
        return self.market.info.symbol


@dataclasses.dataclass(frozen=True)
class Study:
    """Everything that is known before training; all on the host."""

    config: RunConfig
    legs: tuple[Leg, ...]
    windows: Windows
    """Device form of the windows of all symbols, in bars of the resident store, host arrays."""
    program: Program

    @property
    def num_windows(self) -> int:
        """W, over all symbols."""
        return sum(len(leg.plan.windows) for leg in self.legs)

    @property
    def crowd(self) -> str:
        """Windows and seeds in words: `7 windows x 1 seed`."""
        return f"{counted(self.num_windows, 'window')} x {counted(self.config.train.seeds, 'seed')}"

    @property
    def num_members(self) -> int:
        """M."""
        return self.num_windows * self.config.train.seeds

    @property
    def leg_by_window(self) -> tuple[Leg, ...]:
        """The symbol of every window, in their order."""
        return tuple(leg for leg in self.legs for _ in leg.plan.windows)

    @property
    def symbol(self) -> str:
        """All symbols in words."""
        return ", ".join(leg.symbol for leg in self.legs)

    @property
    def currency(self) -> str:
        """Currency of all money, the same for every symbol."""
        return self.legs[0].market.info.currency

    @property
    def cost_ticks(self) -> CostTicks:
        """Costs of every window for the device, leaves `[W]`, host arrays."""
        side, roll = ([getattr(leg.costs, name) for leg in self.leg_by_window] for name in ("side_ticks", "roll_ticks"))
        is_spread = self.config.env.roll_as == "spread"
        return CostTicks(np.asarray(side, np.float32), np.asarray(roll, np.float32) if is_spread else None)

    @property
    def limits(self) -> Limits | None:
        """Account limits of every window for the device, leaves `[W]`, host arrays; None without any."""
        if not self.config.limits.is_any:
            return None
        by_window = [limit_ops.resolve(self.config.limits, leg.costs) for leg in self.leg_by_window]
        return jax.tree.map(lambda *leaves: np.asarray(leaves, np.int32), *by_window)

    @property
    def warnings(self) -> list[str]:
        """What a reader must know of data and windows before believing a result."""
        return [
            self.said(leg, text)
            for leg in self.legs
            for text in (*leg.market.info.warnings, *self._unknown_costs(leg), *leg.plan.warnings)
        ]

    def _unknown_costs(self, leg: Leg) -> list[str]:
        """A warning where no commission was given, and none is known of the contract."""
        if self.config.costs.commission_usd is not None or leg.costs.commission_usd > 0:
            return []
        root = leg.market.info.root
        return [f"no commission is known of {root}, and none is charged: say what one costs with --commission-usd"]

    def said(self, leg: Leg, text: str) -> str:
        """A sentence about one symbol, which it names where there are several."""
        return f"{leg.symbol}: {text}" if len(self.legs) > 1 else text

    def resident_market(self) -> Market:
        """The device arrays of all symbols end to end, still on the host: for the one upload of the study."""
        return device.end_to_end([leg.market.on_device() for leg in self.legs])


def data_fingerprint(study: Study) -> str:
    """SHA-256 of the bars: of several symbols, over the fingerprints of all of them, in any order."""
    infos = [leg.market.info for leg in study.legs]
    if len(infos) == 1:
        return infos[0].fingerprint
    return hashlib.sha256("\n".join(sorted(f"{i.symbol} {i.fingerprint}" for i in infos)).encode()).hexdigest()


def market_hash(study: Study) -> str:
    """SHA-256 of what a study trains on; unlike the fingerprint of the bars, of the roll table and feature code too.

    The default features, where they were computed just now, are left out: they may differ in the last bit between
    machines.
    """
    config = study.config
    is_default = config.series.features is None and config.data.data_dir.suffix != ".npz"
    hashes = [_hash_of(leg.market, with_features=not is_default) for leg in study.legs]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def _hash_of(market: MarketData, *, with_features: bool) -> str:
    digest = hashlib.sha256(" ".join(market.info.feature_names).encode())
    for name in ["move_ticks", "flags", "session_id", "contract_id"] + ["features"] * with_features:
        digest.update(np.ascontiguousarray(getattr(market, name)).tobytes())
    if market.half_spread_ticks is not None:
        digest.update(np.ascontiguousarray(market.half_spread_ticks).tobytes())
    return digest.hexdigest()


def resolve_costs(config: RunConfig, market: MarketData) -> Costs:
    """Costs with the contract's own commission where none is given."""
    given, is_spread = config.costs.commission_usd, config.env.roll_as == "spread"
    commission_usd = market.info.commission_usd if given is None else given
    return Costs(
        tick_value_usd=market.info.tick_value_usd,
        commission_usd=commission_usd,
        slippage_ticks=slippage_ticks(config.costs),
        roll_usd=roll_usd(config.costs, commission_usd, market.info.tick_value_usd) if is_spread else 0.0,
    )


def plan_study(config: RunConfig, markets: Sequence[MarketData], *, compose: str) -> Study:
    """Cut the windows and bind the program.

    Args:
        config: the configuration.
        markets: the market of each of its symbols.
        compose: how rollouts chain position maps, chosen for the device.

    Raises:
        DataError: not enough history, or markets that cannot be put into one study.
        ConfigError: settings that do not fit one another or the data.
    """
    _refuse_unlike(markets)
    priced = [_with_rules(config, _with_spread_as_asked(config, market)) for market in markets]
    plans = _plans(config, priced)
    refuse_crowds(sum(len(plan.windows) for plan in plans), config.train.seeds)
    legs, parts, first_bar, first_window = [], [], 0, 0
    for market, plan in zip(priced, plans, strict=True):
        numbered = [dataclasses.replace(w, index=first_window + w.index) for w in plan.windows]
        plan = dataclasses.replace(plan, windows=tuple(numbered))
        legs.append(Leg(market, plan, resolve_costs(config, market), first_bar))
        parts.append((_fitted(config, market, plan), first_bar))
        first_bar, first_window = first_bar + market.num_bars, first_window + len(numbered)
    return Study(config, tuple(legs), windows.end_to_end(parts), program_of(config, legs, compose))


def _refuse_unlike(markets: Sequence[MarketData]) -> None:
    """Refuse markets that one policy network, one account or one int32 bar number cannot serve together."""
    first = markets[0].info
    for info in (market.info for market in markets[1:]):
        if info.feature_names != first.feature_names:
            odd = sorted(set(info.feature_names) ^ set(first.feature_names)) or ["their order"]
            raise DataError(
                f"{first.symbol} and {info.symbol} have different features ({', '.join(odd)}), and all symbols of a "
                "study need the same. Use a --features set that gives them, or study them one at a time."
            )
        if info.currency != first.currency:
            raise DataError(
                f"{first.symbol} is traded in {first.currency} and {info.symbol} in {info.currency}: their money "
                "cannot be added up. Study them one at a time."
            )
    bars = sum(market.num_bars for market in markets)
    if bars >= 2**31:
        raise DataError(f"The symbols have {bars} bars together; 2147483647 can be numbered. Use longer bars.")


def _with_spread_as_asked(config: RunConfig, market: MarketData) -> MarketData:
    """The market with its recorded spread where costs use it, and without where they do not."""
    if config.costs.slippage == "ticks":
        return dataclasses.replace(market, half_spread_ticks=None) if market.half_spread_ticks is not None else market
    if market.half_spread_ticks is None:
        raise ConfigError(
            f"--slippage recorded: the data of {market.info.symbol} hold no quotes, so no spread is recorded. Read "
            "quotes (schema bbo-1m, bbo-1s, tbbo or mbp-1), or give a fixed --slippage-ticks."
        )
    return market


def _with_rules(config: RunConfig, market: MarketData) -> MarketData:
    """The market with what the rules of trading need of its calendar."""
    market = with_no_entry(market, config.env.no_entry_minutes)
    return with_close_warning(market) if config.env.flat_at_close else market


def _fitted(config: RunConfig, market: MarketData, plan: WindowPlan) -> Windows:
    """Device windows; a reward is in volatilities of one level, so that lots change the money and not the learning."""
    fitted = fit_windows(plan, market.features, market.move_ticks)
    return dataclasses.replace(fitted, reward_scale=fitted.reward_scale / np.float32(config.env.lots_per_level))


def _plans(config: RunConfig, markets: Sequence[MarketData]) -> list[WindowPlan]:
    """The windows of each market; what is wrong with any of them is said of all of them at once."""
    plans, refused = [], []
    for market in markets:
        try:
            plans.append(_plan(config, market))
        except (ConfigError, DataError) as error:
            refused.append((market.info.symbol, error))
    if len(markets) == 1 and refused:
        raise refused[0][1]
    if refused:
        raise type(refused[0][1])(" ".join(f"{symbol}: {error}" for symbol, error in refused))
    return plans


def _plan(config: RunConfig, market: MarketData) -> WindowPlan:
    first_usable = market.info.first_usable + config.env.lookback - 1 + config.env.decision_delay
    plan = plan_windows(
        market.trade_day, market.info.sessions, config.windows, purge_bars=config.purge_bars, first_usable=first_usable
    )
    shortest = min(w.train.bars for w in plan.windows)
    if shortest <= config.dqn.n_step + 2:
        raise ConfigError(
            f"The shortest train range holds {counted(shortest, 'bar')}; --n-step {config.dqn.n_step} needs more than "
            f"{config.dqn.n_step + 2}."
        )
    ranges = decision_ranges(plan)
    _refuse_idle_settings(config, market, ranges["val"])
    _refuse_overflow(config.env, market, np.concatenate([ranges["val"], ranges["test"]]))
    if config.limits.is_any:
        refuse_uncountable_accounts(config, market, list(ranges.values()))
    return plan


def program_of(config: RunConfig, legs: Sequence[Leg], compose: str) -> Program:
    """The static settings of a study: those of its configuration, and the sizes of its windows."""
    ranges = [decision_ranges(leg.plan) for leg in legs]
    sessions = [
        _longest_session(leg.market, np.vstack([part["val"], part["test"]]))
        for leg, part in zip(legs, ranges, strict=True)
    ]
    return program_with(
        config,
        legs[0].market.features.shape[1],
        compose,
        {name: np.concatenate([part[name] for part in ranges]) for name in ("val", "test")},
        val_sessions=max(w.val.sessions for leg in legs for w in leg.plan.windows),
        test_sessions=max(w.test.sessions for leg in legs for w in leg.plan.windows),
        session_bars=max(sessions),
    )


def _longest_session(market: MarketData, ranges: np.ndarray) -> int:
    """Most decisions of one session in any range; a decision belongs to the session of the bar in which it fills."""
    sessions = [market.session_id[first + 1 : stop + 1] for first, stop in ranges]
    return max(int(np.bincount(part - part[0]).max()) for part in sessions)


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


def _refuse_overflow(env: EnvConfig, market: MarketData, summed: np.ndarray) -> None:
    """Refuse position sizes whose ticks or sides the device could not add up in int32."""
    move_ticks = np.abs(market.move_ticks.astype(np.int64))
    reach = max(int(move_ticks.max(initial=0)), *(int(move_ticks[first:stop].sum()) for first, stop in summed))
    reach = max(reach, 2 * longest(summed))
    if env.max_lots * reach < 2**31:
        return
    most = (2**31 - 1) // reach
    levels = most // env.lots_per_level
    held = f"--positions {env.positions}" + f" x --lots-per-level {env.lots_per_level}" * (env.lots_per_level > 1)
    remedy = f"--positions {levels} or fewer" if levels else f"--max-position {most} or fewer --lots-per-level"
    raise ConfigError(
        f"{held}: the moves of a validation or test range add up to {reach} ticks, so the ticks of {env.max_lots} "
        f"contracts may exceed the 2147483647 that int32 accounting can hold. Use {remedy}, or a coarser --tick."
    )


def refuse_uncountable_accounts(config: RunConfig, market: MarketData, ranges: Sequence[np.ndarray]) -> None:
    """Refuse a study in which an account could exceed the integers that count it (see `trading.limits`).

    The drawdown exceeds its limit by a row at most, the result of a session adds up all of its rows, and whole ticks
    those of a range.
    """
    account = limit_ops.resolve(config.limits, resolve_costs(config, market))
    if account is None:
        return
    half = 0 if market.half_spread_ticks is None else np.ceil(market.half_spread_ticks[1:] * limit_ops.MILLI)
    is_roll = (market.flags[:-1] & ROLL) != 0
    # the most that a row can earn or pay: the largest position, turned over whole
    row = np.abs(market.move_ticks[:-1].astype(np.int64)) * limit_ops.MILLI
    row += 2 * (int(account.side) + np.asarray(half, np.int64)) + is_roll * int(account.roll)
    row *= config.env.max_lots
    most = int(row.max(initial=0)) + limit_ops.MILLI
    sums = {"in one row": most + int(account.drawdown if account.drawdown is not None else 0)}
    if account.daily_loss is not None:
        starts = np.flatnonzero(np.diff(market.session_id[1:], prepend=-1))
        sums["in one session"] = most + int(np.add.reduceat(row, starts).max(initial=0))
    so_far = np.concatenate([[0], np.cumsum(row)])
    whole = max(int((so_far[stop] - so_far[first]).max(initial=0)) for first, stop in (part.T for part in ranges))
    sums["in one range"] = whole // limit_ops.MILLI
    for where, reach in sums.items():
        if reach > limit_ops.MAX:
            raise ConfigError(
                f"Account limits (--capital-usd, --daily-loss-usd, --trailing-drawdown-usd) are counted in int32; "
                f"moves and costs of {counted(config.env.max_lots, 'contract')} may exceed it {where}. Use fewer "
                "contracts (--max-position, --positions), a smaller --trailing-drawdown-usd, a coarser --tick or none."
            )


def windows_record(study: Study) -> dict[str, Any]:
    """Content of `windows.json`: dates and bar ranges of every window, with the contracts and rolls inside."""
    config, plans = study.config.windows, [leg.plan for leg in study.legs]
    return {
        "months": {name: getattr(config, f"{name}_months") for name in ("train", "val", "test", "step")},
        "purge_bars": plans[0].purge_bars,
        "windows": [_window_record(leg, window) for leg in study.legs for window in leg.plan.windows],
        "uncovered": " ".join(dict.fromkeys(text for plan in plans for text in plan.notes)) or None,
    }


def _window_record(leg: Leg, window: Window) -> dict[str, Any]:
    ranges = {name: getattr(window, name) for name in ("train", "val", "test")}
    first, stop = window.train.first, window.test.stop
    return {
        "window": window.index,
        "symbol": leg.symbol,
        **{
            name: {
                "first": str(r.first_day),
                "last": str(r.last_day),
                "bars": [r.first, r.stop],
                "sessions": r.sessions,
            }
            for name, r in ranges.items()
        },
        "partial_test": window.is_partial_test,
        "contracts": contracts_between(leg.market, first, stop),
        "rolls": rolls_between(leg.market, first, stop),
    }


def contracts_between(market: MarketData, first: int, stop: int) -> list[str]:
    """Contracts that are front in the bars `[first, stop)`, in their order."""
    return [market.info.contracts[i] for i in np.unique(market.contract_id[first:stop])]


def rolls_between(market: MarketData, first: int, stop: int) -> list[dict[str, Any]]:
    """Rolls whose first new bar lies in the bars `[first, stop)`."""
    span = range(int(market.ts_ns[first]), int(market.ts_ns[stop - 1]) + 1)
    return [{key: roll[key] for key in ("date", "from", "to")} for roll in market.info.rolls if roll["ts_ns"] in span]
