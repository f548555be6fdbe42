"""Sample data: a synthetic ES.FUT written as the vendor would deliver it, one DBN file per month or year.

The files hold one-minute bars of the two or three nearest quarterly contracts and of the spread between the first two,
under parent symbology. Hours, early closes, expiries and the move of volume from one contract to the next follow the
exchange's calendar; the prices follow `tidewalk.data.sample.price_path`, plus a constant basis per contract.

Codes have one digit of the year, as the exchange writes them, so those of a long sample come back a decade later.
Instruments are made as their files are written and let go after their expiry, which bounds the memory of long samples.
"""

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import databento_dbn
import numpy as np
import zstandard
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.calendar.sessions import Schedule, schedule
from tidewalk.data.contracts.expiries import expiry_date
from tidewalk.data.contracts.specs import MONTH_CODES, ContractMonth
from tidewalk.data.sample.price_path import (
    MARKET_EDGE_HALF_LIFE_BARS,
    MARKET_EDGE_TICKS,
    PLANTED_MOVE_TICKS,
    TICK_E9,
    Kind,
    PricePath,
    planted_mean_ticks_per_bar,
    price_path,
    true_edge_ticks_per_bar,
)

__all__ = [
    "KINDS",
    "MARKET_EDGE_HALF_LIFE_BARS",
    "MARKET_EDGE_TICKS",
    "PLANTED_MOVE_TICKS",
    "SampleConfig",
    "planted_mean_ticks_per_bar",
    "true_edge_ticks_per_bar",
    "write_sample",
]

KINDS: tuple[Kind, ...] = ("market", "planted", "noise")
"""Kinds of sample market, see `tidewalk.data.sample.price_path`."""

_SPREAD_TICK_E9 = 50_000_000
_MOST_MONTHS = 240
_EPOCH = datetime.date(1970, 1, 1)
_DAY_NS = 86_400_000_000_000
_BAR_DTYPE = np.dtype(databento_dbn.OHLCVMsg._dtypes)  # the vendor's own record layout # pyright: ignore

# Share of the second contract in a session's volume by calendar days to the first one's expiry (the last value holds
# for all earlier days). It passes one half on the Monday of expiry week, so that the front changes on Tuesday.
_SECOND_SHARE = np.array([0.98, 0.96, 0.93, 0.85, 0.62, 0.45, 0.32, 0.28, 0.12, 0.06, 0.04, 0.02])
_THIRD_SHARE = 0.002
_ROLL_DAYS = 8


@dataclass(frozen=True)
class SampleConfig:
    """What sample to make.

    The files are the same, byte for byte, whenever these values are (and numpy, zstandard and databento-dbn are).
    """

    kind: Kind = "market"
    """Market: `market` (realistic, with a weak known drift), `planted` (a strong known signal), `noise` (none)."""
    months: int = 24
    """Number of whole calendar months."""
    years: int | None = None
    """Number of times twelve months, in place of --months."""
    files: Literal["month", "year"] = "month"
    """What one file holds: a calendar month or a calendar year."""
    volume: float = 1.0
    """Contracts traded, as a share of what ES trades (1.1 million a session). Minutes without a trade have no bar: with
    0.02 the market kind has 5.5 million bars of outrights in 20 years."""
    seed: int = 0
    """Seed of all random numbers."""
    signal_p: float = 0.7
    """Probability that a bar of the planted market moves in the direction of the bar before."""
    start: str = "2022-01"
    """First month, as YYYY-MM."""

    @property
    def num_months(self) -> int:
        """Calendar months asked for, by number or by years."""
        return self.months if self.years is None else 12 * self.years


@dataclass(frozen=True)
class _Contract:
    """A quarterly contract of the sample."""

    code: str
    instrument_id: int
    expiry_day: int
    rows: slice
    """Rows of the price path in which it is listed."""
    basis_ticks: int
    """Its price above that of the sample's first contract."""


@dataclass(frozen=True)
class _Plan:
    """All that the instruments of a sample have in common."""

    seed: int
    is_thin: bool
    """Whether minutes in which little trades have no bar."""
    volume: float
    """Share of the usual volume that is traded."""
    path: PricePath
    contracts: tuple[_Contract, ...]
    nearest: NDArray[np.int64]
    """[S] index of the contract nearest to expiry in each session."""
    days_left: NDArray[np.int64]
    """[S] calendar days to its expiry."""


@dataclass(frozen=True)
class _Instrument:
    """An instrument's records, in time order."""

    symbol: str
    instrument_id: int
    records: NDArray[Any]
    """In the vendor's layout for bars."""


_Wanted = tuple[Callable[[_Plan, int], _Instrument], int]
"""What makes an instrument, and the number of its (first) contract."""


@dataclass(frozen=True)
class _Interval:
    """Days on which a symbol has an id, the end exclusive; fields are named as the vendor's encoder wants them."""

    start_date: datetime.date
    end_date: datetime.date
    symbol: str


@dataclass(frozen=True)
class _Mapping:
    raw_symbol: str
    intervals: tuple[_Interval, ...]


def write_sample(out: Path, config: SampleConfig) -> list[Path]:
    """Write a sample market as DBN files, one per calendar month (or year) of trade dates.

    Every file is complete up to its last scheduled close, every bar is in exactly one file, and what is written
    depends on `config` alone.

    Args:
        out: folder, made when it is missing.
        config: what to make.

    Returns:
        The files written, in order of time: `es.fut_2022-01.ohlcv-1m.dbn.zst` and so on (`es.fut_2022...` by year).

    Raises:
        ConfigError: a value out of range, or `out` holds other DBN files, which would be read together with these.
    """
    _check(config)
    months = _month_starts(config)
    firsts = [month for month in months[:-1] if config.files == "month" or month.month == 1 or month == months[0]]
    stamp = "%Y-%m" if config.files == "month" else "%Y"
    files = [out / f"es.fut_{first.strftime(stamp)}.ohlcv-1m.dbn.zst" for first in firsts]
    _check_folder(out, files)
    sessions = schedule(months[0], months[-1] - datetime.timedelta(days=1), "cme-equity")
    plan = _plan(config, sessions, price_path(config.kind, config.seed, config.signal_p, sessions))
    out.mkdir(parents=True, exist_ok=True)
    file_of_session = np.searchsorted([_day_number(first) for first in firsts], sessions.trade_day, side="right") - 1
    starts = np.searchsorted(file_of_session, np.arange(len(files)))
    spans_ns = zip(sessions.open_ns[starts], sessions.close_ns[[*(starts[1:] - 1), -1]], strict=True)
    made: dict[_Wanted, _Instrument] = {}
    for file, (start_ns, end_ns) in zip(files, spans_ns, strict=True):
        made = _listed(plan, made, int(start_ns), int(end_ns))
        file.write_bytes(_encoded(list(made.values()), int(start_ns), int(end_ns)))
    return files


def _check(config: SampleConfig) -> None:
    if config.kind not in KINDS:
        hint = did_you_mean(config.kind, KINDS)
        raise ConfigError(f"--kind {config.kind!r} is not known{hint}: use one of {', '.join(KINDS)}")
    if not 1 <= config.num_months <= _MOST_MONTHS:
        given = f"--months {config.months}" if config.years is None else f"--years {config.years}"
        most = _MOST_MONTHS if config.years is None else _MOST_MONTHS // 12
        raise ConfigError(f"{given} is out of range: use 1 to {most}")
    if config.files not in ("month", "year"):
        raise ConfigError(f"--files {config.files!r} is not known: use month or year")
    if not 0.0 < config.volume <= 100.0:
        raise ConfigError(f"--volume {config.volume} is out of range: use a share above 0 and up to 100")
    if config.seed < 0:
        raise ConfigError(f"--seed {config.seed} is out of range: use 0 or a positive number")
    if not 0.0 <= config.signal_p <= 1.0:
        raise ConfigError(f"--signal-p {config.signal_p} is out of range: a probability lies between 0 and 1")
    found = re.fullmatch(r"(\d{4})-(\d{2})", config.start)
    if not found or not (2000 <= int(found[1]) <= 2059 and 1 <= int(found[2]) <= 12):
        raise ConfigError(f"--start {config.start!r} is not a month from 2000-01 to 2059-12, written YYYY-MM")


def _check_folder(out: Path, files: list[Path]) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file: name a folder")
    leftovers = sorted(file.name for file in set(out.glob("*.dbn*")) - set(files))
    if leftovers:
        raise ConfigError(
            f"--out {out} already holds {leftovers[0]} ({len(leftovers)} such files), which would be read together "
            "with the new sample: choose an empty folder"
        )


def _month_starts(config: SampleConfig) -> list[datetime.date]:
    """First days of the sample's months, and of the month after the last."""
    year, month = int(config.start[:4]), int(config.start[5:])
    return [
        datetime.date(year + (month - 1 + i) // 12, (month - 1 + i) % 12 + 1, 1) for i in range(config.num_months + 1)
    ]


def _plan(config: SampleConfig, sessions: Schedule, path: PricePath) -> _Plan:
    listed = 2 if config.kind == "planted" else 3
    months = _quarters(int(sessions.trade_day[0]), int(sessions.trade_day[-1]), listed)
    expiry_day = np.array([_day_number(expiry_date(month)) for month in months])
    nearest = np.searchsorted(expiry_day, sessions.trade_day)
    row_day = sessions.trade_day[path.session]
    contracts: list[_Contract] = []
    basis_ticks = 0
    for number, month in enumerate(months):
        start = int(np.searchsorted(row_day, expiry_day[number - listed], side="right")) if number >= listed else 0
        stop = int(np.searchsorted(path.ts_ns, _expiry_ns(month)))
        id_ = 12 * month.year + month.month
        code = f"ES{MONTH_CODES[month.month - 1]}{month.year % 10}"
        contracts.append(_Contract(code, id_, int(expiry_day[number]), slice(start, stop), basis_ticks))
        # 10 to 50 points to the next contract.
        basis_ticks += int(np.random.default_rng([config.seed, 10, id_]).integers(40, 201))
    return _Plan(
        seed=config.seed,
        is_thin=config.kind != "planted",
        volume=config.volume,
        path=path,
        contracts=tuple(contracts),
        nearest=nearest,
        days_left=expiry_day[nearest] - sessions.trade_day.astype(np.int64),
    )


def _quarters(first_day: int, last_day: int, listed: int) -> list[ContractMonth]:
    """Quarterly contracts that are among the `listed` nearest on any day from the first to the last."""
    year = (_EPOCH + datetime.timedelta(days=first_day)).year
    months: list[ContractMonth] = []
    left = listed
    while left:
        for month in (ContractMonth("ES", year, number) for number in (3, 6, 9, 12)):
            expiry_day = _day_number(expiry_date(month))
            if expiry_day >= first_day and left:
                months.append(month)
                left -= expiry_day >= last_day
        year += 1
    return months


def _listed(plan: _Plan, made: dict[_Wanted, _Instrument], start_ns: int, end_ns: int) -> dict[_Wanted, _Instrument]:
    """Instruments that may trade in a span, outrights first; `made` are those of the span before."""
    first, stop = np.searchsorted(plan.path.ts_ns, (start_ns, end_ns))
    live = [n for n, contract in enumerate(plan.contracts) if contract.rows.start < stop and contract.rows.stop > first]
    wanted: list[_Wanted] = [(_outright, number) for number in live]
    wanted += [(_spread, number) for number in live if number + 1 < len(plan.contracts)]
    return {entry: made.get(entry) or entry[0](plan, entry[1]) for entry in wanted}


def _outright(plan: _Plan, number: int) -> _Instrument:
    contract, path = plan.contracts[number], plan.path
    rows = contract.rows
    session = path.session[rows]
    amount = plan.volume * _share(plan, number)[session] * path.volume[rows]
    traded = np.ones(amount.size, np.bool_)
    if plan.is_thin:
        rng = np.random.default_rng([plan.seed, 11, contract.instrument_id])
        traded = (amount >= 20.0) | (rng.random(amount.size) < 1.0 - np.exp(-amount / 3.0))
    ticks = [getattr(path, name)[rows][traded] for name in ("open", "high", "low", "close")]
    prices_e9 = [(column + contract.basis_ticks) * TICK_E9 for column in ticks]
    volume = np.maximum(np.floor(amount[traded]), 1.0)
    return _instrument(contract.code, contract.instrument_id, path.ts_ns[rows][traded], prices_e9, volume)


def _share(plan: _Plan, number: int) -> NDArray[np.float64]:
    """[S] share of a contract in each session's volume."""
    second = _SECOND_SHARE[np.minimum(plan.days_left, _SECOND_SHARE.size - 1)]
    by_rank = np.stack([1.0 - second - _THIRD_SHARE, second, np.full(second.size, _THIRD_SHARE)])
    rank = np.clip(number - plan.nearest, 0, 2)
    return np.take_along_axis(by_rank, rank[None], axis=0)[0]


def _spread(plan: _Plan, number: int) -> _Instrument:
    """The calendar spread of a contract and the next while the first is nearest to expiry: price next minus first."""
    near, far = plan.contracts[number : number + 2]
    path, id_ = plan.path, 100_000 + near.instrument_id
    session = path.session[near.rows]
    rng = np.random.default_rng([plan.seed, 12, id_])
    is_roll_time = plan.days_left[session] <= _ROLL_DAYS
    often = np.where(is_roll_time, 0.3, 0.004)
    traded = (plan.nearest[session] == number) & (rng.random(session.size) < often)
    size = int(traded.sum())
    middle_e9 = (far.basis_ticks - near.basis_ticks) * TICK_E9
    first_e9, last_e9 = middle_e9 + _SPREAD_TICK_E9 * rng.integers(-1, 2, size=(2, size))
    prices_e9 = [first_e9, np.maximum(first_e9, last_e9), np.minimum(first_e9, last_e9), last_e9]
    volume = 1.0 + np.floor(rng.exponential(size=size) * np.where(is_roll_time[traded], 60.0, 4.0))
    return _instrument(f"{near.code}-{far.code}", id_, path.ts_ns[near.rows][traded], prices_e9, volume)


def _instrument(
    symbol: str,
    instrument_id: int,
    ts_ns: NDArray[np.int64],
    prices_e9: list[NDArray[np.int64]],
    volume: NDArray[np.float64],
) -> _Instrument:
    records = np.zeros(ts_ns.size, _BAR_DTYPE)
    records["length"] = _BAR_DTYPE.itemsize // 4
    records["rtype"] = 33  # one-minute bars
    records["publisher_id"] = 1
    records["instrument_id"] = instrument_id
    records["ts_event"] = ts_ns
    for name, column in zip(("open", "high", "low", "close"), prices_e9, strict=True):
        records[name] = column
    records["volume"] = volume
    return _Instrument(symbol, instrument_id, records)


def _encoded(instruments: list[_Instrument], start_ns: int, end_ns: int) -> bytes:
    """A compressed DBN file of all records from `start_ns` to before `end_ns`, by time and then in the given order."""
    parts: list[NDArray[Any]] = []
    mappings: list[_Mapping] = []
    for instrument in instruments:
        first, stop = np.searchsorted(instrument.records["ts_event"], np.array([start_ns, end_ns], np.uint64))
        if first == stop:
            continue
        part = instrument.records[first:stop]
        parts.append(part)
        days = (_utc_date(int(part["ts_event"][0])), _utc_date(int(part["ts_event"][-1])) + datetime.timedelta(days=1))
        mappings.append(_Mapping(instrument.symbol, (_Interval(*days, str(instrument.instrument_id)),)))
    records = np.concatenate(parts)
    metadata = databento_dbn.Metadata(
        dataset="GLBX.MDP3",
        start=start_ns,
        end=end_ns,
        stype_in=databento_dbn.SType.from_str("parent"),
        stype_out=databento_dbn.SType.from_str("instrument_id"),
        schema=databento_dbn.Schema.from_str("ohlcv-1m"),
        symbols=["ES.FUT"],
        mappings=mappings,  # pyright: ignore[reportArgumentType]  # the stub asks for writable fields
    )
    records = records[np.argsort(records["ts_event"], kind="stable")]
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(bytes(metadata) + records.tobytes())


def _day_number(date: datetime.date) -> int:
    return (date - _EPOCH).days


def _utc_date(ts_ns: int) -> datetime.date:
    return _EPOCH + datetime.timedelta(days=ts_ns // _DAY_NS)


def _expiry_ns(month: ContractMonth) -> int:
    """UTC moment of the last trade: 08:30 Chicago on the expiry date."""
    at = datetime.datetime.combine(expiry_date(month), datetime.time(8, 30), ZoneInfo("America/Chicago"))
    return int(at.timestamp()) * 1_000_000_000
