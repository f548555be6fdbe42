"""What a reader hands on: one table of checked bars per contract, and an account of the files they came from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.checks import quality
from tidewalk.data.checks.quality import Finding

E9 = 1_000_000_000
"""Prices are held as integers in units of 1e-9, as Databento stores them. Divide by it, never multiply by 1e-9."""

UNDEF_PRICE_E9 = 2**63 - 1
"""Databento's "no price" sentinel."""

MAX_PRICE_E9 = 9 * 10**18
"""Largest |price| believed; the sentinels of every vendor (3.4e38, 2^63-1) lie above it."""

PRICE_COLUMNS = ("open_e9", "high_e9", "low_e9", "close_e9")


@dataclass(frozen=True)
class BarTable:
    """Bars of one contract in time order; every array has the same length T, T >= 1.

    Attributes:
        contract: raw contract code ("ESZ4"), or the symbol the user named where the source knows no contract.
        instrument_id: vendor id of the instrument, 0 where the source has none.
        interval_ns: bar length; None for irregular bars (tick, volume, dollar bars).
        ts_ns: int64 [T] UTC start of each bar, strictly increasing. The start of an irregular bar stamped at its end
            is not known: it is put at `known_ns - 1`, inside the session in which the bar was completed.
        known_ns: int64 [T] UTC moment at which the bar is complete and may be acted upon, always after `ts_ns`.
        open_e9: int64 [T] price in units of 1e-9, may be negative.
        high_e9: int64 [T], as open_e9.
        low_e9: int64 [T], as open_e9.
        close_e9: int64 [T], as open_e9.
        volume: float64 [T] finite, >= 0; all zeros where the source has none.
        has_volume: whether the source had a volume column.
        open_spread_e9: int64 [T] bid-ask spread when the bar opens, > 0; None where the source has no quotes.
    """

    contract: str
    instrument_id: int
    interval_ns: int | None
    ts_ns: NDArray[np.int64]
    known_ns: NDArray[np.int64]
    open_e9: NDArray[np.int64]
    high_e9: NDArray[np.int64]
    low_e9: NDArray[np.int64]
    close_e9: NDArray[np.int64]
    volume: NDArray[np.float64]
    has_volume: bool
    open_spread_e9: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class OpenInterest:
    """Open interest of one contract, as published.

    Attributes:
        contract: as in `BarTable.contract`.
        trade_day: int32 [N] trade date it counts, days since 1970-01-01, increasing.
        known_ns: int64 [N] UTC moment of publication; a decision may use it from then on.
        lots: int64 [N] contracts open, >= 0.
    """

    contract: str
    trade_day: NDArray[np.int32]
    known_ns: NDArray[np.int64]
    lots: NDArray[np.int64]


@dataclass(frozen=True)
class Definition:
    """What the vendor's definition records say of one instrument.

    Attributes:
        symbol: raw symbol ("ESZ4").
        instrument_id: vendor id.
        is_outright: a single contract, no spread, combination or option.
        tick_e9: smallest price step in 1e-9 units.
        multiplier: money per contract for a price change of 1.0; None when not given.
        currency: ISO code, "" when not given.
        expiration_ns: UTC moment of the last trade, None when not given.
    """

    symbol: str
    instrument_id: int
    is_outright: bool
    tick_e9: int
    multiplier: float | None
    currency: str
    expiration_ns: int | None


@dataclass(frozen=True)
class SourceFile:
    """What was read from one file; a file that was left out has `rows_kept` 0 and a note that says why.

    Attributes:
        path: name of the file, without its directory.
        kind: format as detected from the content ("dbn v1 zstd", "csv", "parquet").
        schema: Databento schema, None where the format has none.
        rows_read: rows found, of all instruments.
        rows_kept: rows that belong to the symbol and are usable.
        first_ts_ns: UTC stamp of the first kept row, None when no row was kept.
        last_ts_ns: UTC stamp of the last kept row, None when no row was kept.
        notes: human sentences about this file.
    """

    path: str
    kind: str
    schema: str | None
    rows_read: int
    rows_kept: int
    first_ts_ns: int | None
    last_ts_ns: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Loaded:
    """Everything read for one symbol.

    Attributes:
        symbol: the symbol as asked for ("ES.FUT").
        root: product root ("ES").
        symbology: "parent" (one table per outright contract, by expiry), "raw" (one contract), "continuous" (vendor's
            continuous series: one table per run of one instrument), "single" (text or Parquet without contract codes).
        tables: bars, in the order of expiry or, for "continuous", of time.
        files: files used and files left out.
        findings: what was assumed, dropped, counted or doubted.
        fingerprint: SHA-256 over the sorted content, independent of file names, order, compression and times.
        definitions: specifications of the instruments in use that the data hold; empty where they hold none.
        open_interest: open interest of the contracts in use; empty where the data hold none.
    """

    symbol: str
    root: str
    symbology: str
    tables: tuple[BarTable, ...]
    files: tuple[SourceFile, ...]
    findings: tuple[Finding, ...]
    fingerprint: str
    definitions: tuple[Definition, ...] = ()
    open_interest: tuple[OpenInterest, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, dropped or counted, a line each."""
        return quality.notes(self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user has to know before believing a result, a line each."""
        return quality.warnings(self.findings)


def validate(table: BarTable) -> None:
    """Check every invariant of a `BarTable`.

    Raises:
        DataError: naming contract, row (0-based in the table) and value of the first violation: lengths, dtypes, time
            order, sentinel prices, high/low that do not enclose open and close, negative or non-finite volume, a
            spread that is not above 0.
    """
    _check_shapes(table)
    ts_ns, known_ns = table.ts_ns, table.known_ns
    _refuse_first(table, np.flatnonzero(np.diff(ts_ns) <= 0) + 1, ts_ns, "starts no later than the bar before, ts_ns =")
    _refuse_first(table, np.flatnonzero(known_ns <= ts_ns), known_ns, "is complete no later than it starts, known_ns =")
    for name in PRICE_COLUMNS:
        price_e9: NDArray[np.int64] = getattr(table, name)
        unreal = (price_e9 > MAX_PRICE_E9) | (price_e9 < -MAX_PRICE_E9)
        _refuse_first(table, np.flatnonzero(unreal), price_e9, f"has a missing-price sentinel, {name} =")
    inside = ohlc_inconsistent(table.open_e9, table.high_e9, table.low_e9, table.close_e9)
    _refuse_first(table, np.flatnonzero(inside), table.high_e9, "has high or low inside open/close, high_e9 =")
    unreal_volume = ~np.isfinite(table.volume) | (table.volume < 0)
    _refuse_first(table, np.flatnonzero(unreal_volume), table.volume, "has an impossible volume =")
    if table.open_spread_e9 is not None:
        _refuse_first(table, np.flatnonzero(table.open_spread_e9 <= 0), table.open_spread_e9, "has no spread, e9 =")


def ohlc_inconsistent(
    open_e9: NDArray[np.int64], high_e9: NDArray[np.int64], low_e9: NDArray[np.int64], close_e9: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether high is not the highest or low not the lowest of the four prices, bool [T]."""
    return (high_e9 < np.maximum(open_e9, close_e9)) | (low_e9 > np.minimum(open_e9, close_e9))


def _check_shapes(table: BarTable) -> None:
    length = len(table.ts_ns)
    if length == 0:
        raise DataError(f"{table.contract}: no bars.")
    spread = () if table.open_spread_e9 is None else ("open_spread_e9",)
    for name in ("ts_ns", "known_ns", *PRICE_COLUMNS, "volume", *spread):
        column = getattr(table, name)
        wanted = np.float64 if name == "volume" else np.int64
        if column.dtype != wanted or column.shape != (length,):
            raise DataError(
                f"{table.contract}: column {name} is {column.dtype}{list(column.shape)}, "
                f"needed {np.dtype(wanted)}[{length}]."
            )


def _refuse_first(table: BarTable, rows: NDArray[np.int64], values: NDArray[Any], what: str) -> None:
    if len(rows):
        row = int(rows[0])
        raise DataError(f"{table.contract}: bar {row} {what} {values[row]} ({len(rows)} such bars).")
