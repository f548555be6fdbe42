"""The market as the accelerator holds it, and its host twin that is saved and loaded as one `.npz`.

A prepared market needs no file readers: a GPU machine loads the `.npz` and uploads it once.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tidewalk.core.arrays import Float32, HostOrDevice, Int32
from tidewalk.core.errors import DataError
from tidewalk.market.npz import read_npz
from tidewalk.market.ticks import nearest_tick

TRADABLE = 1
"""The fill of this decision and the next fill both lie inside the data."""
LAST_OF_SESSION = 2
"""The bar is the last of its session; its decision fills at the next session's open."""
ROLL = 4
"""The next fill changes the contract: the old one is closed, the new one opened, two sides per lot held over."""
GAP = 8
"""The move of this decision spans a hole in the data longer than `GAP_MINUTES` that is not a session break."""
CLOSING = 16
"""The next fill is the open of the last bar of the session, scheduled or present: the last chance to be flat before
the break (see `market.rules.is_closing`)."""
NO_ENTRY = 32
"""The next fill lies so late in the session that no position may be opened, enlarged or reversed."""

GAP_MINUTES = 30
_FORMAT = 2
_READABLE_FORMATS = (1, 2)
"""Format 1 knew no spread, no findings and no account of files; a market without them is a market all the same."""
_ARRAYS = (
    "move_ticks",
    "flags",
    "features",
    "session_id",
    "close_move_ticks",
    "ts_ns",
    "trade_day",
    "contract_id",
    "open_e9",
    "exit_open_e9",
)

# What the device would otherwise narrow in silence, and what the books add up in.
_DTYPES = {"features": "float32", "ts_ns": "int64", "open_e9": "int64", "exit_open_e9": "int64"} | dict.fromkeys(
    ("move_ticks", "flags", "session_id", "close_move_ticks", "trade_day", "contract_id"), "int32"
)
_ROLL_KEYS = {"date", "ts_ns", "from", "to", "from_volume", "to_volume", "exit", "entry", "basis", "reason"}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["move_ticks", "flags", "features", "session_id", "half_spread_ticks"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Market:
    """Immutable market on the device: everything an environment needs. Uploaded once per study."""

    move_ticks: Int32[HostOrDevice, "T"]
    """Change of the executable price, within the contract held, from the fill of decision t to that of decision t+1."""
    flags: Int32[HostOrDevice, "T"]
    """Bit set of TRADABLE, LAST_OF_SESSION, ROLL, GAP, CLOSING, NO_ENTRY."""
    features: Float32[HostOrDevice, "T F"]
    """Causal, scale-free columns, unscaled; row t uses bars <= t only. Always finite."""
    session_id: Int32[HostOrDevice, "T"]
    """Number of the session (trade date) of the bar, counted from 0."""
    half_spread_ticks: Float32[HostOrDevice, "T"] | None = None
    """Half the recorded bid-ask spread, in ticks, when the bar opens; None where costs do not use it."""


@dataclasses.dataclass(frozen=True)
class MarketInfo:
    """What a market is, in words and numbers; JSON in the `.npz`."""

    symbol: str
    root: str
    contracts: tuple[str, ...]
    feature_names: tuple[str, ...]
    first_usable: int
    """First bar whose features are all defined; windows start no earlier."""
    tick_e9: int
    multiplier: float
    currency: str
    commission_usd: float
    sessions: str
    interval_ns: int | None
    fingerprint: str
    """SHA-256 of the bars (see `data.load`)."""
    rolls: tuple[dict[str, object], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    quality: tuple[dict[str, object], ...] = ()
    """The findings behind notes and warnings, as `data.quality.records` writes them."""
    files: tuple[dict[str, object], ...] = ()
    """Account of the files that were read and left out: fields of `data.bars.SourceFile`."""

    @property
    def tick_value_usd(self) -> float:
        """Money of one tick of one contract."""
        return self.multiplier * self.tick_e9 / 1e9


@dataclasses.dataclass(frozen=True)
class MarketData:
    """Host form of a prepared market. Arrays `[T]` but for `features [T, F]`; times never reach the device."""

    move_ticks: np.ndarray
    flags: np.ndarray
    features: np.ndarray
    session_id: np.ndarray
    close_move_ticks: np.ndarray
    """Close of the bar less the previous close of the same contract, in ticks (int32)."""
    ts_ns: np.ndarray
    """UTC start of the bar."""
    trade_day: np.ndarray
    """Trade date, days since 1970-01-01 (int32)."""
    contract_id: np.ndarray
    open_e9: np.ndarray
    """Open of the bar in 1e-9: the price at which the decision of bar t-1 fills."""
    exit_open_e9: np.ndarray
    """Price at which the contract held before can be left when the bar opens; differs from the open on rolls only."""
    info: MarketInfo
    half_spread_ticks: np.ndarray | None = None
    """Half the bid-ask spread, in ticks (float32), when the bar opens; None where the data hold no quotes."""

    def __post_init__(self) -> None:
        """Refuse arrays that would poison the device: NaN features, unequal lengths, sums beyond int32."""
        self._check_shapes()
        self._check_half_spreads()
        is_finite = np.isfinite(self.features)
        if not is_finite.all():
            row, column = np.argwhere(~is_finite)[0]
            name = self.info.feature_names[column]
            raise DataError(
                f"Feature {name!r} is not finite at bar {row} ({np.datetime64(int(self.ts_ns[row]), 'ns')}Z)."
            )
        reach = int(np.abs(self.move_ticks.astype(np.int64)).sum())
        if reach >= 2**31:
            raise DataError(
                f"The moves of {self.info.symbol} add up to {reach} ticks of {self.info.tick_e9 / 1e9:g}, above the "
                "2147483647 that int32 accounting can hold. Give a coarser --tick, or fewer bars."
            )

    def _check_shapes(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in _ARRAYS}
        if len(set(lengths.values())) != 1:
            raise DataError(f"The arrays of a market must have one length, found {lengths}.")
        for name, dtype in _DTYPES.items():
            array, dimensions = getattr(self, name), 2 if name == "features" else 1
            if array.dtype != dtype:
                raise DataError(f"The array {name} of a market must be {dtype}, found {array.dtype}.")
            if array.ndim != dimensions:
                raise DataError(f"The array {name} of a market has shape {array.shape}, {dimensions} axes are needed.")
        if self.features.shape[1] != len(self.info.feature_names):
            raise DataError(f"{self.features.shape[1]} features and {len(self.info.feature_names)} names of features.")
        contracts = len(self.info.contracts)
        if self.contract_id.min(initial=0) < 0 or self.contract_id.max(initial=-1) >= contracts:
            raise DataError(f"contract_id of a market must be from 0 to {contracts - 1}, the contracts that it names.")
        if (np.diff(self.ts_ns) < 0).any() or (np.diff(self.trade_day) < 0).any():
            raise DataError("The bars of a market must be in the order of time and of trade dates.")

    def _check_half_spreads(self) -> None:
        half = self.half_spread_ticks
        if half is None:
            return
        if half.dtype != np.float32 or half.shape != self.ts_ns.shape:
            raise DataError(f"half_spread_ticks of a market must be float32[{self.num_bars}], found {half.dtype}.")
        bad = np.flatnonzero(~(np.isfinite(half) & (half >= 0)))
        if bad.size:
            when = np.datetime64(int(self.ts_ns[bad[0]]), "ns")
            raise DataError(f"The half spread of bar {bad[0]} ({when}Z) is {half[bad[0]]} ticks; it must be 0 or more.")

    @property
    def num_bars(self) -> int:
        """Number of bars T."""
        return len(self.move_ticks)

    def on_device(self) -> Market:
        """The device arrays of this market, still on the host: hand it to the one upload of the study."""
        return Market(self.move_ticks, self.flags, self.features, self.session_id, self.half_spread_ticks)


def end_to_end(markets: Sequence[Market]) -> Market:
    """The markets of several symbols as one store `[T]`: the bars of the second follow those of the first, and so on.

    Sessions are numbered on, so that no two symbols share one. Nothing reads over a seam: windows end before it.
    """
    if len(markets) == 1:
        return markets[0]
    seams = np.cumsum([0, *(market.session_id[-1] + 1 for market in markets[:-1])])
    sessions = [market.session_id + np.int32(first) for market, first in zip(markets, seams, strict=True)]
    half_ticks = [market.half_spread_ticks for market in markets if market.half_spread_ticks is not None]
    return Market(
        move_ticks=np.concatenate([market.move_ticks for market in markets]),
        flags=np.concatenate([market.flags for market in markets]),
        features=np.concatenate([market.features for market in markets]),
        session_id=np.concatenate(sessions),
        half_spread_ticks=np.concatenate(half_ticks) if len(half_ticks) == len(markets) else None,
    )


def save_market(path: Path, market: MarketData) -> None:
    """Write a prepared market as one `.npz` (no pickle; each member carries a CRC)."""
    arrays = {name: getattr(market, name) for name in _ARRAYS}
    if market.half_spread_ticks is not None:
        arrays["half_spread_ticks"] = market.half_spread_ticks
    info = json.dumps({"format": _FORMAT, **dataclasses.asdict(market.info)})
    with path.open("wb") as file:
        np.savez_compressed(file, info=np.array(info), allow_pickle=False, **arrays)


def load_market(path: Path) -> MarketData:
    """Read a market written by `save_market`.

    Raises:
        DataError: the file is missing, damaged, not a prepared market of this format, or made to do harm.
    """
    arrays = read_npz(path)
    missing = [name for name in (*_ARRAYS, "info") if name not in arrays]
    if missing:
        raise DataError(f"{path.name} is not a readable prepared market (.npz): it lacks {', '.join(missing)}.")
    try:
        info = json.loads(str(arrays.pop("info")))
        if info.pop("format", None) not in _READABLE_FORMATS:
            raise DataError(
                f"{path.name} has another market format than {_FORMAT}. Prepare it again from the data files."
            )
        market = MarketData(**arrays, info=market_info(info))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path.name}: its description does not fit ({error}). Prepare it again.") from error
    except DataError as error:
        raise DataError(str(error) if path.name in str(error) else f"{path.name}: {error}") from error
    odd = _contradiction(market)
    if odd:
        raise DataError(f"{path.name} contradicts itself: {odd}. Prepare it again from the data files.")
    return market


def _contradiction(market: MarketData) -> str | None:
    """Where moves or flags are not those of the prices and contracts: books would count one, the ledger the other."""
    tick_e9, end = market.info.tick_e9, max(market.num_bars - 2, 0)
    is_roll = (market.flags[:-1] & ROLL) != 0
    wrong = np.flatnonzero(is_roll != (np.diff(market.contract_id) != 0))
    if wrong.size:
        return f"at bar {wrong[0]} its flags and its contracts do not tell of the same roll"
    filled, marked = market.open_e9[1 : end + 1], market.exit_open_e9[2 : end + 2]
    moves = nearest_tick(marked, tick_e9) - nearest_tick(filled, tick_e9)
    wrong = np.flatnonzero(moves != market.move_ticks[:end])
    if wrong.size:
        bar = wrong[0]
        return f"at bar {bar} its move is {market.move_ticks[bar]} ticks, and its prices moved by {moves[bar]}"
    return None


def market_info(values: dict[str, Any]) -> MarketInfo:
    """The description of a market from JSON.

    Raises:
        ValueError, TypeError: an unknown or missing field, a value of another type, a size that makes no contract.
    """
    hints = typing.get_type_hints(MarketInfo)
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for name, value in plain.items():
        if name in hints and not _fits(hints[name], value):
            raise ValueError(f"{name} is {str(value)[:80]!r}")
    info = MarketInfo(**plain)
    sizes = {"tick_e9": info.tick_e9, "multiplier": info.multiplier, "interval_ns": info.interval_ns or 1}
    odd = [name for name, size in sizes.items() if not 0 < size < 1e18]
    odd += ["first_usable"] * (info.first_usable < 0)
    odd += ["rolls"] * any(_ROLL_KEYS - set(roll) for roll in info.rolls)
    if odd:
        raise ValueError(f"{', '.join(odd)} out of range or incomplete")
    return info


def _fits(hint: Any, value: object) -> bool:
    """Whether a value read from JSON is of the type of a field."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return any(_fits(part, value) for part in inside)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(inside[0], item) for item in typing.cast("Any", value))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, origin or hint) and not (hint is int and isinstance(value, bool))
