"""From checked bars to a prepared market: moves in ticks, flags, features."""

import dataclasses

import numpy as np

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.contracts import ContractSpec, root_of, spec_for
from tidewalk.data.load import DataConfig, Loaded, load_bars
from tidewalk.data.rolls import FrontSeries, Roll, front_series
from tidewalk.market import device
from tidewalk.market.device import MarketData, MarketInfo
from tidewalk.market.features import bars_frame
from tidewalk.market.user_features import build_features, load_builder

_NS_PER_MINUTE = 60_000_000_000
_OFF_TICK_WARN_FRAC = 0.01


@dataclasses.dataclass(frozen=True)
class SeriesConfig:
    """How bars become the tradable series."""

    roll: str = "volume"
    """Front contract: volume (of the session before), calendar:N (days to go), table:FILE (CSV of date,contract)."""
    tick: float | None = None
    """Tick size; overrides or supplies the contract's."""
    multiplier: float | None = None
    """Money of a move of 1.0 of one contract; overrides or supplies the contract's."""
    features: str | None = None
    """Feature set as module:callable; default: the built-in set."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no contract."""
        for name in ("tick", "multiplier"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise ConfigError(f"--{name} is {value}; it must be above 0.")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared market with what it was made from."""

    market: MarketData
    loaded: Loaded
    series: FrontSeries
    spec: ContractSpec


def prepare(data: DataConfig, config: SeriesConfig) -> Prepared:
    """Read files and prepare their market.

    Raises:
        DataError, ConfigError: as the readers, the roll rule and the feature function do.
    """
    spec = spec_for(root_of(data.symbol), tick=config.tick, multiplier=config.multiplier)
    builder = load_builder(config.features) if config.features else None
    loaded = load_bars(data)
    series = front_series(loaded, spec, config.roll)
    names, features, first_usable = build_features(bars_frame(series), builder)
    move_ticks, notes, warnings = moves(series, spec)
    info = MarketInfo(
        symbol=loaded.symbol,
        root=loaded.root,
        contracts=series.contracts,
        feature_names=names,
        first_usable=first_usable,
        tick_e9=spec.tick_e9,
        multiplier=spec.multiplier,
        currency=spec.currency,
        commission_usd=spec.commission_usd,
        sessions=spec.sessions,
        interval_ns=series.interval_ns,
        fingerprint=loaded.fingerprint,
        rolls=tuple(roll_record(roll) for roll in series.rolls),
        notes=(*loaded.notes, *series.notes, *notes),
        warnings=(*loaded.warnings, *series.warnings, *warnings),
    )
    market = MarketData(
        move_ticks=move_ticks,
        flags=flags(series),
        features=features,
        session_id=_session_ids(series.trade_day),
        close_move_ticks=_ticks_between(series.close_prev_e9, series.close_e9, spec.tick_e9),
        ts_ns=series.ts_ns,
        trade_day=series.trade_day,
        contract_id=series.contract_id,
        open_e9=series.open_e9,
        exit_open_e9=series.exit_open_e9,
        info=info,
    )
    return Prepared(market, loaded, series, spec)


def moves(series: FrontSeries, spec: ContractSpec) -> tuple[np.ndarray, list[str], list[str]]:
    """`move_ticks [T]` int32 with notes and warnings on prices off the tick grid.

    The decision of bar t fills at the open of bar t+1; a position held from there is worth the open of bar t+2 of the
    same contract, which on a roll is the old contract's own open (`exit_open_e9`). The last two bars have no move:
    their decisions are not tradable.

    Raises:
        DataError: fewer than 3 bars, or a move that int32 cannot hold.
    """
    length = len(series.ts_ns)
    if length < 3:
        raise DataError(f"{length} bar(s) of {spec.root}: at least 3 are needed for one decision.")
    move_ticks = np.zeros(length, np.int32)
    move_ticks[:-2] = _ticks_between(series.open_e9[1:-1], series.exit_open_e9[2:], spec.tick_e9)
    off = int(np.count_nonzero(series.open_e9 % spec.tick_e9))
    if not off:
        return move_ticks, [], []
    text = f"{off} of {length} opens ({off / length:.2%}) are off the tick of {spec.tick_e9 / 1e9:g}"
    text += "; prices are rounded to the nearest tick."
    if off <= _OFF_TICK_WARN_FRAC * length:
        return move_ticks, [text], []
    return move_ticks, [], [f"{text} Adjusted prices, or another instrument than its name says?"]


def flags(series: FrontSeries) -> np.ndarray:
    """Flags `[T]` int32 of every decision (see `market.device`)."""
    length = len(series.ts_ns)
    is_last = np.ones(length, bool)
    is_last[:-1] = series.trade_day[1:] != series.trade_day[:-1]
    is_tradable = np.arange(length) < length - 2
    is_roll = np.zeros(length, bool)
    is_roll[:-1] = series.contract_id[1:] != series.contract_id[:-1]
    is_closing = np.zeros(length, bool)
    is_closing[:-1] = is_last[1:]
    is_gap = np.zeros(length, bool)
    if series.interval_ns is not None:  # when an irregular bar began is not known
        hole_ns = series.ts_ns[2:] - series.known_ns[1:-1]
        is_gap[:-2] = (hole_ns > device.GAP_MINUTES * _NS_PER_MINUTE) & ~is_last[1:-1]
    bits = (
        (is_tradable, device.TRADABLE),
        (is_last, device.LAST_OF_SESSION),
        (is_roll, device.ROLL),
        (is_gap, device.GAP),
        (is_closing, device.CLOSING),
    )
    return sum((mask.astype(np.int32) * bit for mask, bit in bits), np.zeros(length, np.int32))


def roll_record(roll: Roll) -> dict[str, object]:
    """A roll as plain JSON values."""
    return {
        "date": str(np.datetime64(roll.trade_day, "D")),
        "ts_ns": roll.ts_ns,
        "from": roll.from_contract,
        "to": roll.to_contract,
        "from_volume": roll.from_volume,
        "to_volume": roll.to_volume,
        "exit": roll.exit_e9 / 1e9,
        "entry": roll.entry_e9 / 1e9,
        "basis": (roll.entry_e9 - roll.exit_e9) / 1e9,
        "reason": roll.reason,
    }


def _ticks_between(from_e9: np.ndarray, to_e9: np.ndarray, tick_e9: int) -> np.ndarray:
    """Price changes in whole ticks (int32); refuses what int32 cannot hold.

    Prices are rounded, not changes: the changes of a price off the grid then still add up to its way within one tick.
    """
    ticks = _nearest_tick(to_e9, tick_e9) - _nearest_tick(from_e9, tick_e9)
    worst = int(np.abs(ticks).max(initial=0))
    if worst >= 2**31:
        raise DataError(
            f"A move of {worst} ticks of {tick_e9 / 1e9:g} does not fit the accounting; give the true --tick."
        )
    return ticks.astype(np.int32)


def _nearest_tick(price_e9: np.ndarray, tick_e9: int) -> np.ndarray:
    """Whole ticks of a price, halves upwards; the remainder of a negative price counts up from the tick below it."""
    whole, rest_e9 = np.divmod(price_e9, tick_e9)
    return whole + (rest_e9 >= tick_e9 - rest_e9)


def _session_ids(trade_day: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.diff(trade_day) != 0)]).astype(np.int32)
