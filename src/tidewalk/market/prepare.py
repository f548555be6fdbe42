"""From checked bars to a prepared market: moves in ticks, flags, features."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.memory import release_freed
from tidewalk.core.progress import Progress, part, silent
from tidewalk.core.words import counted
from tidewalk.data.checks import quality
from tidewalk.data.checks.continuity import continuity_findings
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.roll_weeks import break_roll_weeks
from tidewalk.data.contracts.rolls import FrontSeries, Roll, front_series
from tidewalk.data.contracts.specs import KNOWN_ROOTS, ContractSpec, spec_for
from tidewalk.data.load import DataConfig, Loaded, load_bars
from tidewalk.market import device
from tidewalk.market.device import MarketData, MarketInfo
from tidewalk.market.rules import is_closing
from tidewalk.market.ticks import nearest_tick
from tidewalk.market.user_features import build_features, load_builder

_NS_PER_MINUTE = 60_000_000_000
_OFF_TICK_WARN_FRAC = 0.01
MakeFeatures = Callable[[FrontSeries], tuple[tuple[str, ...], np.ndarray, int]]
"""Names, values `[T, F]` float32 and first usable bar of the features of a series, see `build_features`."""
_READ, _CHOSEN = 0.5, 0.6
"""Share of the time after which files are read, and the front contract is chosen."""


@dataclasses.dataclass(frozen=True)
class SeriesConfig:
    """How bars become the tradable series."""

    roll: str = "volume"
    """Front contract by: volume (of the session before), open-interest (known before the session; statistics files),
    calendar:N (days to go), table:FILE (CSV of date,contract)."""
    tick: float | None = None
    """Tick size; overrides or supplies the contract's."""
    multiplier: float | None = None
    """Money of a move of 1.0 of one contract; overrides or supplies the contract's."""
    features: str | None = None
    """Feature set as module:callable; default: the built-in set."""
    break_roll_weeks: bool = False
    """Leave out the moves that may hide a roll, in a quarterly continuous series that does not show its contracts."""

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


def prepare(data: DataConfig, config: SeriesConfig, progress: Progress = silent) -> Prepared:
    """Read files and prepare their market.

    Args:
        data: which files, and how they are read.
        config: how bars become the tradable series.
        progress: is told how far it is.

    Raises:
        DataError, ConfigError: as the readers, the roll rule and the feature function do.
    """
    make = features_of(config)
    loaded = load_bars(data, part(progress, 0.0, _READ))
    front = front_of(loaded, config, progress)
    return Prepared(market_of(front, make, progress), loaded, front.series, front.spec)


def prepare_market(data: DataConfig, config: SeriesConfig, progress: Progress = silent) -> MarketData:
    """As `prepare`, but the bars of all contracts are let go before features are made, which takes less memory."""
    make = features_of(config)
    front = front_of(load_bars(data, part(progress, 0.0, _READ)), config, progress)
    return market_of(front, make, progress)


def features_of(config: SeriesConfig) -> MakeFeatures:
    """What makes the features of a configuration, and refuses those that leak.

    Raises:
        ConfigError: `--features` names no callable.
    """
    return functools.partial(build_features, builder=load_builder(config.features) if config.features else None)


@dataclasses.dataclass(frozen=True)
class Front:
    """The tradable series and what is known of it before its features."""

    series: FrontSeries
    breaks: np.ndarray
    spec: ContractSpec
    move_ticks: np.ndarray
    info: MarketInfo
    """Without names of features."""


def front_of(loaded: Loaded, config: SeriesConfig, progress: Progress = silent) -> Front:
    """The tradable series of loaded bars.

    Raises:
        DataError, ConfigError: as the roll rule and the specification do, and as `moves`.
    """
    release_freed()
    progress("choosing the front contract", _READ)
    spec, spec_findings = spec_of(loaded, config)
    series = front_series(loaded, spec, config.roll)
    breaks = np.zeros(len(series.ts_ns), np.bool_)
    if config.break_roll_weeks:
        series, breaks = break_roll_weeks(loaded, series, spec)
    move_ticks, off_tick = moves(series, spec)
    continuity = continuity_findings(loaded, series, spec.sessions)
    findings = quality.ordered((*loaded.findings, *spec_findings, *series.findings, *continuity, *off_tick))
    info = MarketInfo(
        symbol=loaded.symbol,
        root=loaded.root,
        contracts=series.contracts,
        feature_names=(),
        first_usable=0,
        tick_e9=spec.tick_e9,
        multiplier=spec.multiplier,
        currency=spec.currency,
        commission_usd=spec.commission_usd,
        sessions=spec.sessions,
        interval_ns=series.interval_ns,
        fingerprint=loaded.fingerprint,
        rolls=tuple(roll_record(roll) for roll in series.rolls),
        notes=quality.notes(findings),
        warnings=quality.warnings(findings),
        quality=quality.records(findings),
        files=tuple({**dataclasses.asdict(file), "notes": list(file.notes)} for file in loaded.files),
    )
    return Front(series, breaks, spec, move_ticks, info)


def market_of(front: Front, make: MakeFeatures, progress: Progress = silent) -> MarketData:
    """The market of a tradable series.

    Raises:
        DataError: as `make` does, or as `MarketData` refuses.
    """
    release_freed()
    series, spec = front.series, front.spec
    progress("computing features", _CHOSEN)
    names, features, first_usable = make(series)
    return MarketData(
        move_ticks=front.move_ticks,
        flags=flags(series, spec.sessions, front.breaks),
        features=features,
        session_id=_session_ids(series.trade_day),
        close_move_ticks=_ticks_between(series.close_prev_e9, series.close_e9, spec.tick_e9),
        ts_ns=series.ts_ns,
        trade_day=series.trade_day,
        contract_id=series.contract_id,
        open_e9=series.open_e9,
        exit_open_e9=series.exit_open_e9,
        info=dataclasses.replace(front.info, feature_names=names, first_usable=first_usable),
        half_spread_ticks=_half_spread_ticks(series, spec),
    )


def spec_of(loaded: Loaded, config: SeriesConfig) -> tuple[ContractSpec, tuple[Finding, ...]]:
    """Specification of the contracts: flags before the vendor's definitions in the data, those before the built-in one.

    Raises:
        ConfigError: the root is not known, and neither flags nor definitions say its tick and multiplier.
        DataError: definitions of the contracts in use differ in tick or multiplier.
    """
    root, used = loaded.root, [entry for entry in loaded.definitions if entry.is_outright and entry.tick_e9]
    tick, multiplier, findings = config.tick, config.multiplier, list[Finding]()
    if used:
        terms = {(entry.tick_e9, entry.multiplier) for entry in used}
        if len(terms) > 1 and (tick is None or multiplier is None):
            listed = ", ".join(f"tick {step / 1e9:g} and multiplier {size}" for step, size in sorted(terms, key=str))
            raise DataError(
                f"{loaded.symbol}: definitions of its contracts differ: {listed}. Say --tick and --multiplier."
            )
        step_e9, size = used[0].tick_e9, used[0].multiplier
        tick = step_e9 / 1e9 if tick is None else tick
        multiplier = size if multiplier is None else multiplier
        findings += _spec_doubts(root, step_e9, size)
    spec = spec_for(root, tick=tick, multiplier=multiplier)
    currency = next((entry.currency for entry in used if entry.currency), spec.currency)
    return dataclasses.replace(spec, currency=currency), tuple(findings)


def _spec_doubts(root: str, tick_e9: int, multiplier: float | None) -> list[Finding]:
    """What definitions say of a contract; a warning where it is not what is known of the root."""
    text = f"definitions in the data: tick {tick_e9 / 1e9:g}"
    text += "" if multiplier is None else f", multiplier {multiplier:g}"
    if root not in KNOWN_ROOTS:
        return [Finding("definition", text)]
    known = spec_for(root)
    if known.tick_e9 == tick_e9 and multiplier in (None, known.multiplier):
        return [Finding("definition", f"{text}, as expected of {root}")]
    text += f", where {root} is known with tick {known.tick_e9 / 1e9:g} and multiplier {known.multiplier:g}: "
    return [
        Finding("definition", f"{text}the definitions are used; override with --tick, --multiplier", is_warning=True)
    ]


def moves(series: FrontSeries, spec: ContractSpec) -> tuple[np.ndarray, tuple[Finding, ...]]:
    """`move_ticks [T]` int32 with a finding on prices off the tick grid.

    The decision of bar t fills at the open of bar t+1; a position held from there is worth the open of bar t+2 of the
    same contract, which on a roll is the old contract's own open (`exit_open_e9`). The last two bars have no move:
    their decisions are not tradable.

    Raises:
        DataError: fewer than 3 bars, or a move that int32 cannot hold.
    """
    length = len(series.ts_ns)
    if length < 3:
        raise DataError(f"{counted(length, 'bar')} of {spec.root}: at least 3 are needed for one decision.")
    move_ticks = np.zeros(length, np.int32)
    move_ticks[:-2] = _ticks_between(series.open_e9[1:-1], series.exit_open_e9[2:], spec.tick_e9)
    return move_ticks, off_tick_findings(series, spec)


def off_tick_findings(series: FrontSeries, spec: ContractSpec) -> tuple[Finding, ...]:
    """A finding on bars with a price off the tick grid, if there are any."""
    length = len(series.ts_ns)
    prices = (series.open_e9, series.high_e9, series.low_e9, series.close_e9)
    off = int(np.count_nonzero(np.logical_or.reduce([price_e9 % spec.tick_e9 != 0 for price_e9 in prices])))
    if not off:
        return ()
    text = f"{off} of {length} bars ({off / length:.2%}) have prices off the tick of {spec.tick_e9 / 1e9:g}"
    text += "; fills are rounded to the nearest tick."
    mids = series.open_spread_e9 is not None and all((2 * price_e9 % spec.tick_e9 == 0).all() for price_e9 in prices)
    if mids:  # half a tick off wherever the spread is an odd number of ticks
        return (Finding("off-tick", f"{text} All lie on half ticks, as mid prices of quotes do.", off),)
    if off <= _OFF_TICK_WARN_FRAC * length:
        return (Finding("off-tick", text, off),)
    text += " Adjusted prices, or another instrument than its name says?"
    return (Finding("off-tick", text, off, is_warning=True),)


def flags(series: FrontSeries, rule: str, breaks: np.ndarray | None = None) -> np.ndarray:
    """Flags `[T]` int32 of every decision (see `market.device`).

    Args:
        series: bars of the front contract.
        rule: session rule of its product.
        breaks: bool [T] bars before which a hidden roll may lie; the decision whose move would span it is a gap.
    """
    length = len(series.ts_ns)
    is_last = np.ones(length, bool)
    is_last[:-1] = series.trade_day[1:] != series.trade_day[:-1]
    is_tradable = np.arange(length) < length - 2
    is_roll = np.zeros(length, bool)
    is_roll[:-1] = series.contract_id[1:] != series.contract_id[:-1]
    is_gap = np.zeros(length, bool)
    if series.interval_ns is not None:  # when an irregular bar began is not known
        hole_ns = series.ts_ns[2:] - series.known_ns[1:-1]
        is_gap[:-2] = (hole_ns > device.GAP_MINUTES * _NS_PER_MINUTE) & ~is_last[1:-1]
    if breaks is not None:
        is_gap[:-2] |= breaks[2:]
    bits = (
        (is_tradable, device.TRADABLE),
        (is_last, device.LAST_OF_SESSION),
        (is_roll, device.ROLL),
        (is_gap, device.GAP),
        (is_closing(series.ts_ns, is_last, series.interval_ns, rule), device.CLOSING),
    )
    return sum((mask.astype(np.int32) * bit for mask, bit in bits), np.zeros(length, np.int32))


def roll_record(roll: Roll) -> dict[str, object]:
    """A roll as plain JSON values; open interest is named where the roll goes by it."""
    record: dict[str, object] = {
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
    if roll.reason == "open-interest":
        record |= {"from_open_interest": roll.from_open_interest, "to_open_interest": roll.to_open_interest}
    return record


def _half_spread_ticks(series: FrontSeries, spec: ContractSpec) -> np.ndarray | None:
    """Half the recorded spread in ticks, float32 `[T]`; None where the data hold no quotes."""
    if series.open_spread_e9 is None:
        return None
    return (series.open_spread_e9 / (2 * spec.tick_e9)).astype(np.float32)


def _ticks_between(from_e9: np.ndarray, to_e9: np.ndarray, tick_e9: int) -> np.ndarray:
    """Price changes in whole ticks (int32); refuses what int32 cannot hold.

    Prices are rounded, not changes: the changes of a price off the grid then still add up to its way within one tick.
    """
    ticks = nearest_tick(to_e9, tick_e9) - nearest_tick(from_e9, tick_e9)
    worst = int(np.abs(ticks).max(initial=0))
    if worst >= 2**31:
        raise DataError(
            f"A move of {worst} ticks of {tick_e9 / 1e9:g} does not fit the accounting; give the true --tick."
        )
    return ticks.astype(np.int32)


def _session_ids(trade_day: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.diff(trade_day) != 0)]).astype(np.int32)
