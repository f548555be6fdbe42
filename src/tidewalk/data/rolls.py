"""The tradable series of the front contract: which contract is held in each session, and what leaving it costs.

Nothing is adjusted. Every bar keeps the prices of the contract it belongs to, `close_prev_e9` stays inside that
contract, and where one contract follows another the old one's own price at that moment is carried beside the new one's,
so the difference between the two (the basis) can never be booked as a profit.

A roll is decided before the session in which it happens, happens with the first bar of a session, and is never undone.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.contracts import ContractSpec
from tidewalk.data.roll_rules import Activity, FrontChoice, activity_of, choice_warnings, choose, expiry_day, parse_rule
from tidewalk.data.sessions import SessionColumns, session_columns


@dataclass(frozen=True)
class Roll:
    """One change of the front contract."""

    ts_ns: int
    """UTC start of the first bar of the new contract."""
    trade_day: int
    """Trade date of that bar, in days since 1970-01-01."""
    from_contract: str
    to_contract: str
    from_volume: float
    """Volume of the old contract in the session before, the last one the decision could see."""
    to_volume: float
    """Volume of the new contract in the session before."""
    exit_e9: int
    """Price at which the old contract can be left when that bar opens."""
    entry_e9: int
    """Open of the new contract's bar."""
    reason: str
    """"volume", "expired" (no bars of the old contract), "calendar", "table", or "continuous" (the vendor's choice)."""


@dataclass(frozen=True)
class FrontSeries:
    """One row per bar of the front contract, in time order; arrays have one length T."""

    contracts: tuple[str, ...]
    """Contracts in the order in which they are front."""
    contract_id: NDArray[np.int32]
    """Index into `contracts`."""
    expiry_day: tuple[int | None, ...]
    """Scheduled last trading day of each contract, in days since 1970-01-01; None when its code names no month."""
    interval_ns: int | None
    """Bar length; None for irregular bars."""
    ts_ns: NDArray[np.int64]
    known_ns: NDArray[np.int64]
    open_e9: NDArray[np.int64]
    high_e9: NDArray[np.int64]
    low_e9: NDArray[np.int64]
    close_e9: NDArray[np.int64]
    volume: NDArray[np.float64]
    has_volume: bool
    close_prev_e9: NDArray[np.int64]
    """Close of the same contract's bar before, also when that bar was not front; a contract's first bar: its open."""
    exit_open_e9: NDArray[np.int64]
    """Price at which a position held into this bar can be closed as the bar opens: `open_e9`, but on the first bar of
    a new contract the *old* contract's open (its first bar of the session at or after that moment, else its last
    close)."""
    trade_day: NDArray[np.int32]
    minute_of_session: NDArray[np.int32]
    minutes_to_close: NDArray[np.int32]
    rolls: tuple[Roll, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Leg:
    """Consecutive rows of one table that are front."""

    table: int
    rows: slice
    reason: str


def front_series(loaded: Loaded, spec: ContractSpec, rule: str = "volume") -> FrontSeries:
    """Bars of the front contract in time order, with its rolls.

    Rules:
        `volume`: the front of session s is chosen from session s-1 (the session before in the data): among the
            contracts of later expiry the one with the highest volume, if it is strictly above the front's; the nearer
            expiry wins a tie. It must have bars in session s to be entered. A front without bars in session s is left
            for the next expiry that has some. The first front is the nearest expiry with bars in the first session.
        `calendar:N`: the front is left in the first session N or more calendar days before its scheduled expiry, for
            the next expiry of the root's usual delivery months.
        `table:FILE`: CSV lines `date,contract`: the contract is front from that trade date on.

    A file of one contract has no rolls; in a vendor's continuous series each change of instrument is one, wherever in
    the session the vendor put it.

    Args:
        loaded: tables in order of expiry (of time, for a continuous series).
        spec: gives the session rule and the usual delivery months.
        rule: one of `tidewalk.data.roll_rules.RULES`.

    Raises:
        ConfigError: unknown rule, or a rule that needs what the data do not have.
        DataError: no bars, tables of different bar lengths, or a continuous series that runs backwards.
    """
    name, argument = parse_rule(rule)
    if not loaded.tables:
        raise DataError(f"{loaded.symbol}: no bars, so there is no front contract")
    intervals = {table.interval_ns for table in loaded.tables}
    if len(intervals) > 1:
        raise DataError(
            f"{loaded.symbol}: contracts have different bar lengths ({_listed(intervals)} ns): name one schema"
        )
    columns = tuple(session_columns(table.ts_ns, spec.sessions) for table in loaded.tables)
    activity = activity_of(loaded.tables, columns)
    warnings: list[str] = []
    if len(loaded.tables) == 1 or loaded.symbology == "continuous":
        legs = [_Leg(i, slice(0, len(table.ts_ns)), "continuous") for i, table in enumerate(loaded.tables)]
        if name != "volume" and loaded.symbology == "continuous":
            warnings.append(f"roll rule {rule!r} is not used: {loaded.symbol} is rolled by its vendor")
    else:
        choice = choose(name, argument, loaded.tables, spec, activity)
        legs = _legs(choice, columns, activity)
        warnings += choice_warnings(choice, name, loaded.tables, activity)
    if not legs:
        raise DataError(f"{loaded.symbol}: roll rule {rule!r} leaves no session with bars")
    return _assemble(loaded, columns, activity, legs, tuple(warnings))


def _listed(values: set[int | None]) -> str:
    return ", ".join(sorted(str(value) for value in values))


def _legs(choice: FrontChoice, columns: tuple[SessionColumns, ...], activity: Activity) -> list[_Leg]:
    """Rows of each table that are front. Rolls only go forward, so these are one run of rows per table."""
    shown = np.flatnonzero(choice.front >= 0)
    if not shown.size:
        return []
    starts = np.flatnonzero(np.diff(choice.front[shown], prepend=-1) != 0)
    stops = np.append(starts[1:], shown.size)
    legs: list[_Leg] = []
    for first, last in zip(shown[starts], shown[stops - 1], strict=True):
        table = int(choice.front[first])
        trade_day = columns[table].trade_day
        start_row = np.searchsorted(trade_day, activity.session_day[first], side="left")
        stop_row = np.searchsorted(trade_day, activity.session_day[last], side="right")
        legs.append(_Leg(table, slice(int(start_row), int(stop_row)), choice.reasons.get(int(first), "")))
    return legs


def _assemble(
    loaded: Loaded,
    columns: tuple[SessionColumns, ...],
    activity: Activity,
    legs: list[_Leg],
    warnings: tuple[str, ...],
) -> FrontSeries:
    tables = [loaded.tables[leg.table] for leg in legs]
    sizes = [leg.rows.stop - leg.rows.start for leg in legs]

    def bars(column: Callable[[BarTable], NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate([column(table)[leg.rows] for table, leg in zip(tables, legs, strict=True)])

    def clock(column: Callable[[SessionColumns], NDArray[np.int32]]) -> NDArray[np.int32]:
        return np.concatenate([column(columns[leg.table])[leg.rows] for leg in legs])

    ts_ns, open_e9 = bars(lambda table: table.ts_ns), bars(lambda table: table.open_e9)
    _refuse_overlap(loaded.symbol, ts_ns)
    rolls = tuple(_roll(loaded.tables, columns, activity, old, new) for old, new in itertools.pairwise(legs))
    exit_open_e9 = open_e9.copy()
    exit_open_e9[np.cumsum(sizes)[:-1]] = [roll.exit_e9 for roll in rolls]
    is_outside = np.concatenate([columns[leg.table].is_outside[leg.rows] for leg in legs])
    return FrontSeries(
        contracts=tuple(table.contract for table in tables),
        contract_id=np.repeat(np.arange(len(legs), dtype=np.int32), sizes),
        expiry_day=tuple(expiry_day(table) for table in tables),
        interval_ns=tables[0].interval_ns,
        ts_ns=ts_ns,
        known_ns=bars(lambda table: table.known_ns),
        open_e9=open_e9,
        high_e9=bars(lambda table: table.high_e9),
        low_e9=bars(lambda table: table.low_e9),
        close_e9=bars(lambda table: table.close_e9),
        volume=np.concatenate([table.volume[leg.rows] for table, leg in zip(tables, legs, strict=True)]),
        has_volume=any(table.has_volume for table in tables),
        close_prev_e9=np.concatenate(
            [_close_prev_e9(table, leg.rows) for table, leg in zip(tables, legs, strict=True)]
        ),
        exit_open_e9=exit_open_e9,
        trade_day=clock(lambda column: column.trade_day),
        minute_of_session=clock(lambda column: column.minute_of_session),
        minutes_to_close=clock(lambda column: column.minutes_to_close),
        rolls=rolls,
        notes=_notes(rolls, ts_ns, np.flatnonzero(is_outside)),
        warnings=warnings,
    )


def _refuse_overlap(symbol: str, ts_ns: NDArray[np.int64]) -> None:
    backwards = np.flatnonzero(np.diff(ts_ns) <= 0)
    if backwards.size:
        raise DataError(f"{symbol}: bars of successive contracts overlap at {_stamp(int(ts_ns[backwards[0]]))}")


def _close_prev_e9(table: BarTable, rows: slice) -> NDArray[np.int64]:
    if rows.start > 0:
        return table.close_e9[rows.start - 1 : rows.stop - 1]
    return np.concatenate([table.open_e9[:1], table.close_e9[: rows.stop - 1]])


def _roll(
    tables: tuple[BarTable, ...], columns: tuple[SessionColumns, ...], activity: Activity, old: _Leg, new: _Leg
) -> Roll:
    old_table, new_table = tables[old.table], tables[new.table]
    ts_ns = int(new_table.ts_ns[new.rows.start])
    trade_day = int(columns[new.table].trade_day[new.rows.start])
    row = int(np.searchsorted(old_table.ts_ns, ts_ns))
    still_trades = row < len(old_table.ts_ns) and columns[old.table].trade_day[row] == trade_day
    # The first session of the data has none before it; only a continuous series can roll inside it.
    before = int(np.searchsorted(activity.session_day, trade_day)) - 1
    return Roll(
        ts_ns=ts_ns,
        trade_day=trade_day,
        from_contract=old_table.contract,
        to_contract=new_table.contract,
        from_volume=float(activity.volume[old.table, before]) if before >= 0 else 0.0,
        to_volume=float(activity.volume[new.table, before]) if before >= 0 else 0.0,
        exit_e9=int(old_table.open_e9[row] if still_trades else old_table.close_e9[row - 1]),
        entry_e9=int(new_table.open_e9[new.rows.start]),
        reason=new.reason,
    )


def _notes(rolls: tuple[Roll, ...], ts_ns: NDArray[np.int64], outside: NDArray[np.int64]) -> tuple[str, ...]:
    notes: list[str] = []
    expired = sum(roll.reason == "expired" for roll in rolls)
    if expired:
        notes.append(f"{expired} of {len(rolls)} rolls happened only after the old contract had no bars left")
    if outside.size:
        notes.append(
            f"{outside.size} bars lie outside the scheduled session hours and are kept, "
            f"the first at {_stamp(int(ts_ns[outside[0]]))}"
        )
    return tuple(notes)


def _stamp(ts_ns: int) -> str:
    return f"{np.datetime64(ts_ns, 'ns').astype('datetime64[s]')}Z"
