"""The tradable series of the front contract: which contract is held in each session, and what leaving it costs.

Nothing is adjusted. Every bar keeps the prices of the contract it belongs to, `close_prev_e9` stays inside that
contract, and where one contract follows another the old one's own price at that moment is carried beside the new one's,
so the difference between the two (the basis) can never be booked as a profit.

A roll is decided before the session in which it happens, happens with the first bar of a session, and is never undone.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.words import are, counted
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.calendar.sessions import SessionColumns, joined, outside_findings, session_columns
from tidewalk.data.checks import quality
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.roll_rules import (
    Activity,
    FrontChoice,
    activity_of,
    choice_findings,
    choose_by_activity,
    choose_by_calendar,
    known_open_interest,
    parse_rule,
    unknown_score_findings,
)
from tidewalk.data.contracts.roll_table import choose_by_table
from tidewalk.data.contracts.specs import ContractSpec
from tidewalk.data.contracts.terms import Terms, date_of, in_order_of_expiry


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
    """"volume", "open-interest", "calendar", "table", "cap" (the old contract had reached its last safe day), "expired"
    (no bars of the old contract), or "continuous" (the vendor's choice)."""
    from_open_interest: float | None = None
    """Open interest of the old contract known before the session; None unless the rule goes by it and it is known."""
    to_open_interest: float | None = None
    """Open interest of the new contract, likewise."""


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
    open_spread_e9: NDArray[np.int64] | None = None
    """Recorded bid-ask spread as each bar opens; None unless every contract has quotes."""
    findings: tuple[Finding, ...] = ()
    """How the contracts were chosen, and what is odd about it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines of the findings that are no warnings."""
        return quality.notes(self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines of the findings that are warnings."""
        return quality.warnings(self.findings)


@dataclass(frozen=True)
class _Context:
    """What the legs are cut from."""

    loaded: Loaded
    rule: str
    columns: tuple[SessionColumns, ...]
    activity: Activity
    terms: Terms
    open_interest: NDArray[np.float64] | None
    """[C, S] where the rule goes by it."""


@dataclass(frozen=True)
class _Leg:
    """Consecutive rows of one table that are front."""

    table: int
    rows: slice
    reason: str


def front_series(loaded: Loaded, spec: ContractSpec, rule: str = "volume") -> FrontSeries:
    """Bars of the front contract in time order, with its rolls.

    Rules:
        `volume`: the front of session s is chosen from session s-1 (the session before in the data): among the usual
            delivery months of later expiry the one with the highest volume, if it is strictly above the front's; the
            nearer expiry wins a tie. It must have bars in session s to be entered. The first front is the nearest usual
            expiry with bars in the first session. A crossing out of season counts when it lasts: see `roll_rules`.
        `open-interest`: the same by open interest published before the session opens.
        `calendar:N`: the front is left in the first session N or more calendar days before its scheduled expiry, for
            the next expiry of the root's usual delivery months.
        `table:FILE`: CSV lines `date,contract`: the contract is front from that trade date on.

    Under every rule a front without bars is left for the next expiry that has some, and a contract is left in time:
    after its last trading day where it settles in cash, before delivery can be assigned where it does not.

    A file of one contract has no rolls; in a vendor's continuous series each change of instrument is one, wherever in
    the session the vendor put it.

    Args:
        loaded: tables of contracts, or of a continuous series in order of time.
        spec: gives the session rule and the usual delivery months.
        rule: one of `tidewalk.data.contracts.roll_rules.RULES`.

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
    loaded, terms = in_order_of_expiry(loaded, spec)
    columns = tuple(session_columns(table.ts_ns, spec.sessions) for table in loaded.tables)
    activity = activity_of(loaded.tables, columns)
    findings = list(terms.findings)
    open_interest = None
    if len(loaded.tables) == 1 or loaded.symbology == "continuous":
        legs = [_Leg(i, slice(0, len(table.ts_ns)), "continuous") for i, table in enumerate(loaded.tables)]
        findings += _unruled_findings(loaded, rule, activity, terms)
    else:
        if name == "open-interest":
            open_interest = _open_interest(loaded, activity)
        choice = _choose(name, argument, loaded.tables, terms, activity, open_interest)
        legs = _legs(choice, columns, activity)
        findings += choice_findings(choice, name, loaded.tables, activity, terms)
        findings += [] if open_interest is None else unknown_score_findings(choice, open_interest)
    if not legs:
        raise DataError(f"{loaded.symbol}: roll rule {rule!r} leaves no session with bars")
    return _assemble(_Context(loaded, spec.sessions, columns, activity, terms, open_interest), legs, tuple(findings))


def _open_interest(loaded: Loaded, activity: Activity) -> NDArray[np.float64]:
    known = known_open_interest(loaded.tables, loaded.open_interest, activity)
    if np.isnan(known).all():
        what = "none" if not loaded.open_interest else "none that was known before a session of these contracts"
        raise ConfigError(
            f"--roll open-interest: {loaded.symbol} needs open interest per contract, and the data hold {what}. Put "
            "files of Databento's statistics schema beside the bars, or use --roll volume, which follows the same "
            "migration, or --roll table:FILE with dates of your own"
        )
    return known


def _choose(
    name: str,
    argument: str,
    tables: tuple[BarTable, ...],
    terms: Terms,
    activity: Activity,
    open_interest: NDArray[np.float64] | None,
) -> FrontChoice:
    if name == "calendar":
        return choose_by_calendar(activity, tables, terms, days_before=int(argument))
    if name == "table":
        return choose_by_table(activity, tables, terms, Path(argument))
    if open_interest is not None:
        return choose_by_activity(name, open_interest, activity, terms)
    unknown = np.full((len(tables), 1), np.nan)
    return choose_by_activity(name, np.hstack([unknown, activity.volume[:, :-1]]), activity, terms)


def _unruled_findings(loaded: Loaded, rule: str, activity: Activity, terms: Terms) -> list[Finding]:
    """What to know of a series in which no rule chooses: one contract, or a vendor's continuous series."""
    findings: list[Finding] = []
    if rule != "volume" and loaded.symbology == "continuous":
        text = f"roll rule {rule!r} is not used: {loaded.symbol} is rolled by its vendor"
        findings.append(Finding("roll", text, is_warning=True))
    for table, safe_day in zip(loaded.tables, terms.safe_day, strict=True):
        late = int(np.count_nonzero(activity.session_day > safe_day))
        if late:
            text = (
                f"{counted(late, 'session')} of {table.contract} {are(late)} after {date_of(safe_day)}, the last one "
                "over whose close it may be held (first notice or last trading day)"
            )
            findings.append(Finding("roll", text, late, is_warning=True))
    return findings


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


def _assemble(context: _Context, legs: list[_Leg], findings: tuple[Finding, ...]) -> FrontSeries:
    tables = [context.loaded.tables[leg.table] for leg in legs]
    sizes = [leg.rows.stop - leg.rows.start for leg in legs]

    def bars(column: Callable[[BarTable], NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate([column(table)[leg.rows] for table, leg in zip(tables, legs, strict=True)])

    ts_ns, open_e9 = bars(lambda table: table.ts_ns), bars(lambda table: table.open_e9)
    _refuse_overlap(context.loaded.symbol, ts_ns)
    rolls = tuple(_roll(context, old, new) for old, new in itertools.pairwise(legs))
    exit_open_e9 = open_e9.copy()
    exit_open_e9[np.cumsum(sizes)[:-1]] = [roll.exit_e9 for roll in rolls]
    clock = joined([context.columns[leg.table] for leg in legs], [leg.rows for leg in legs])
    outside = outside_findings(ts_ns, clock, context.rule, tables[0].interval_ns)
    return FrontSeries(
        contracts=tuple(table.contract for table in tables),
        contract_id=np.repeat(np.arange(len(legs), dtype=np.int32), sizes),
        expiry_day=tuple(context.terms.expiry_day[leg.table] for leg in legs),
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
        trade_day=clock.trade_day,
        minute_of_session=clock.minute_of_session,
        minutes_to_close=clock.minutes_to_close,
        rolls=rolls,
        open_spread_e9=_spreads(tables, legs),
        findings=(*findings, *_findings(rolls), *outside),
    )


def _refuse_overlap(symbol: str, ts_ns: NDArray[np.int64]) -> None:
    backwards = np.flatnonzero(np.diff(ts_ns) <= 0)
    if backwards.size:
        raise DataError(f"{symbol}: bars of successive contracts overlap at {_stamp(int(ts_ns[backwards[0]]))}")


def _close_prev_e9(table: BarTable, rows: slice) -> NDArray[np.int64]:
    if rows.start > 0:
        return table.close_e9[rows.start - 1 : rows.stop - 1]
    return np.concatenate([table.open_e9[:1], table.close_e9[: rows.stop - 1]])


def _spreads(tables: list[BarTable], legs: list[_Leg]) -> NDArray[np.int64] | None:
    known = [table.open_spread_e9 for table in tables if table.open_spread_e9 is not None]
    if len(known) < len(tables):
        return None
    return np.concatenate([spread[leg.rows] for spread, leg in zip(known, legs, strict=True)])


def _roll(context: _Context, old: _Leg, new: _Leg) -> Roll:
    tables, activity = context.loaded.tables, context.activity
    old_table, new_table = tables[old.table], tables[new.table]
    ts_ns = int(new_table.ts_ns[new.rows.start])
    trade_day = int(context.columns[new.table].trade_day[new.rows.start])
    row = int(np.searchsorted(old_table.ts_ns, ts_ns))
    still_trades = row < len(old_table.ts_ns) and context.columns[old.table].trade_day[row] == trade_day
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
        from_open_interest=_known(context.open_interest, old.table, before + 1),
        to_open_interest=_known(context.open_interest, new.table, before + 1),
    )


def _known(open_interest: NDArray[np.float64] | None, table: int, session: int) -> float | None:
    if open_interest is None or np.isnan(open_interest[table, session]):
        return None
    return float(open_interest[table, session])


def basis_e9(series: FrontSeries) -> NDArray[np.int64]:
    """What a difference-adjusted (shadow) price takes from the price of each bar, int64 `[T]` in 1e-9.

    Price less basis is the shadow price: continuous over rolls, equal to the raw price in the first contract, and
    changing by what a holder of the front gains. Within a contract it differs from the raw price by a constant. It is
    anchored forward, so a later roll never changes an earlier value.
    """
    return np.cumsum(series.open_e9 - series.exit_open_e9)


def _findings(rolls: tuple[Roll, ...]) -> list[Finding]:
    findings: list[Finding] = []
    expired = sum(roll.reason == "expired" for roll in rolls)
    if expired:
        text = f"{expired} of {counted(len(rolls), 'roll')} happened only after the old contract had no bars left"
        findings.append(Finding("roll", text, expired))
    return findings


def _stamp(ts_ns: int) -> str:
    return f"{np.datetime64(ts_ns, 'ns').astype('datetime64[s]')}Z"
