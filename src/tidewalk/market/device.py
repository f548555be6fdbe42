"""The market as the accelerator holds it, and its host twin that is saved and loaded as one `.npz`.

A prepared market needs no file readers: a GPU machine loads the `.npz` and uploads it once.
"""

import dataclasses
import functools
import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tidewalk.core.arrays import Float32, HostOrDevice, Int32
from tidewalk.core.errors import DataError

TRADABLE = 1
"""The fill of this decision and the next fill both lie inside the data."""
LAST_OF_SESSION = 2
"""The bar is the last of its session; its decision fills at the next session's open."""
ROLL = 4
"""The next fill changes the contract: the old one is closed, the new one opened, two sides per lot held over."""
GAP = 8
"""The move of this decision spans a hole in the data longer than `GAP_MINUTES` that is not a session break."""
CLOSING = 16
"""The next fill is the open of the last bar of the session: the last chance to be flat before the break."""

GAP_MINUTES = 30
_FORMAT = 1
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

# What the device would otherwise narrow in silence.
_DTYPES = {"move_ticks": "int32", "flags": "int32", "session_id": "int32", "features": "float32", "ts_ns": "int64"}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["move_ticks", "flags", "features", "session_id"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Market:
    """Immutable market on the device: everything an environment needs. Uploaded once per study."""

    move_ticks: Int32[HostOrDevice, "T"]
    """Change of the executable price, within the contract held, from the fill of decision t to that of decision t+1."""
    flags: Int32[HostOrDevice, "T"]
    """Bit set of TRADABLE, LAST_OF_SESSION, ROLL, GAP, CLOSING."""
    features: Float32[HostOrDevice, "T F"]
    """Causal, scale-free columns, unscaled; row t uses bars <= t only. Always finite."""
    session_id: Int32[HostOrDevice, "T"]
    """Number of the session (trade date) of the bar, counted from 0."""


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

    def __post_init__(self) -> None:
        """Refuse arrays that would poison the device: NaN features, unequal lengths, sums beyond int32."""
        lengths = {name: len(getattr(self, name)) for name in _ARRAYS}
        if len(set(lengths.values())) != 1:
            raise DataError(f"The arrays of a market must have one length, found {lengths}.")
        for name, dtype in _DTYPES.items():
            if getattr(self, name).dtype != dtype:
                raise DataError(f"The array {name} of a market must be {dtype}, found {getattr(self, name).dtype}.")
        bad = np.argwhere(~np.isfinite(self.features))
        if bad.size:
            row, column = bad[0]
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

    @property
    def num_bars(self) -> int:
        """Number of bars T."""
        return len(self.move_ticks)

    def on_device(self) -> Market:
        """The device arrays of this market, still on the host: hand it to the one upload of the study."""
        return Market(self.move_ticks, self.flags, self.features, self.session_id)


def save_market(path: Path, market: MarketData) -> None:
    """Write a prepared market as one `.npz` (no pickle; each member carries a CRC)."""
    arrays = {name: getattr(market, name) for name in _ARRAYS}
    info = json.dumps({"format": _FORMAT, **dataclasses.asdict(market.info)})
    with path.open("wb") as file:
        np.savez_compressed(file, info=np.array(info), allow_pickle=False, **arrays)


def load_market(path: Path) -> MarketData:
    """Read a market written by `save_market`.

    Raises:
        DataError: the file is missing, damaged, or not a prepared market of this format.
    """
    if not path.exists():
        raise DataError(f"--data-dir {path}: no such file.")
    try:
        data = path.read_bytes()
        if not data.startswith(b"PK"):
            raise ValueError(f"{len(data)} bytes that are no .npz archive")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in _ARRAYS}
            info = json.loads(str(archive["info"]))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error).strip("'")
        raise DataError(
            f"{path.name} is not a readable prepared market (.npz): {reason}. Prepare it again from the data files."
        ) from error
    if info.pop("format", None) != _FORMAT:
        raise DataError(f"{path.name} has another market format than {_FORMAT}. Prepare it again from the data files.")
    tuples: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in info.items()}
    try:
        return MarketData(**arrays, info=MarketInfo(**tuples))
    except TypeError as error:
        raise DataError(f"{path.name}: its description does not fit ({error}). Prepare it again.") from error
