"""Scheduled dates of the contracts in the data: when each expires, and until when it may be held."""

import bisect
import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.words import are, counted
from tidewalk.data.bars import BarTable, Definition, Loaded
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.expiries import expiry_date, has_expiry_rule, last_safe_date
from tidewalk.data.contracts.specs import LONG_LISTED, MONTH_CODES, ContractMonth, ContractSpec, parse_contract

NEVER = 10**9
"""Day number that no session reaches: the date of a contract for which no rule is known."""

SEASON_DAYS = 30
"""Calendar days before a contract's last safe day in which its liquidity may be expected to leave it; fewer where the
next contract follows soon. Measured: 2 to 5 days for ES, 4 to 13 for GC (QuantConnect LEAN's roll calendars)."""

_EPOCH = datetime.date(1970, 1, 1)
_DAY_NS = 86_400_000_000_000
_QUARTERLY = "HMUZ"
_DECADE_DAYS, _LISTED_DAYS = 9 * 366, 20 * 366
_FAR_DAYS = 8 * 365
"""A last trading day this far ahead of the last bar is that of a code whose contract is over."""
_FAR_LISTED = LONG_LISTED | {"SR3", "BZ"}
_LATE_DAYS = 7
"""Bars this long after a contract's last trading day belong to the contract of ten years later."""


@dataclass(frozen=True)
class Terms:
    """Dates of the contracts, in the order of the tables; days count from 1970-01-01."""

    expiry_day: tuple[int | None, ...]
    """Last trading day, a guess where the root's rule is not known; None when the code names no month."""
    is_scheduled: NDArray[np.bool_]
    """[C] the last trading day comes from a definition or from the rule of the root."""
    safe_day: NDArray[np.int64]
    """[C] last trade date over whose close the contract may be held; `NEVER` where no rule is known."""
    is_usual: NDArray[np.bool_]
    """[C] the delivery month is one in which positions of the root are usually held."""
    season_days: int
    """Days before its last safe day in which the liquidity of a contract is expected to leave it."""
    reach: int
    """Usual delivery months after the front that are expected to follow it."""
    place: NDArray[np.int64]
    """[C] running number of the delivery month among the usual ones; a serial month has that of the one before."""
    findings: tuple[Finding, ...]


def terms_of(loaded: Loaded, spec: ContractSpec) -> Terms:
    """Dates of every contract of `loaded.tables`: from its definition where the data hold one, else by rule."""
    tables = loaded.tables
    last_trade = [_defined_last_trade(table, loaded.definitions) for table in tables]
    months = [_month(table, defined) for table, defined in zip(tables, last_trade, strict=True)]
    expiry_day: list[int | None] = []
    safe_day = np.full(len(tables), NEVER, np.int64)
    for i, (month, defined) in enumerate(zip(months, last_trade, strict=True)):
        last = defined or (expiry_date(month) if month else None)
        expiry_day.append(None if last is None else day_number(last))
        safe = last_safe_date(month, defined) if month else defined
        if safe is not None:
            safe_day[i] = day_number(safe)
    return Terms(
        expiry_day=tuple(expiry_day),
        is_scheduled=safe_day != NEVER,
        safe_day=safe_day,
        is_usual=np.array([_is_usual(month, spec) for month in months], np.bool_),
        season_days=min(SEASON_DAYS, 365 // (2 * len(spec.months or _QUARTERLY))),
        reach=_reach(spec),
        place=_places(months, spec),
        findings=tuple(_findings(tables, months, last_trade)),
    )


def in_order_of_expiry(loaded: Loaded, spec: ContractSpec) -> tuple[Loaded, Terms]:
    """The tables in order of their last trading days, where all are known, with their terms.

    A reader orders contracts by their codes; a definition may tell that a code is one of ten years later.
    """
    terms = terms_of(loaded, spec)
    days = [day for day in terms.expiry_day if day is not None]
    is_told = bool(loaded.definitions) or spec.root in LONG_LISTED
    if not is_told or loaded.symbology != "parent" or len(days) < len(loaded.tables) or days == sorted(days):
        return loaded, terms
    order = np.argsort(np.array(days), kind="stable")
    ordered = dataclasses.replace(loaded, tables=tuple(loaded.tables[i] for i in order.tolist()))
    return ordered, terms_of(ordered, spec)


def _reach(spec: ContractSpec) -> int:
    """Liquidity goes to the next quarter or month; of five to eight a year it passes some by, gold's October most."""
    return 2 if len(_QUARTERLY) < len(spec.months) < len(MONTH_CODES) else 1


def _places(months: Sequence[ContractMonth | None], spec: ContractSpec) -> NDArray[np.int64]:
    """Running numbers; those of the tables where some code names no month."""
    cycle = sorted(MONTH_CODES.index(letter) + 1 for letter in spec.months or MONTH_CODES)
    named = [month for month in months if month is not None]
    if len(named) < len(months):
        return np.arange(len(months))
    return np.array([month.year * len(cycle) + bisect.bisect_right(cycle, month.month) for month in named], np.int64)


def _is_usual(month: ContractMonth | None, spec: ContractSpec) -> bool:
    return month is None or not spec.months or MONTH_CODES[month.month - 1] in spec.months


def _defined_last_trade(table: BarTable, definitions: Sequence[Definition]) -> datetime.date | None:
    """Last trading day by the definition of the contract: same code, and not over before the last bar.

    A code comes back after ten years. A definition of the same instrument may end later than that, any other not.
    """
    last_ns = int(table.ts_ns[-1])
    wanted = _code_key(table.contract, last_ns)
    ends_ns: list[int] = []
    for definition in definitions:
        end_ns = definition.expiration_ns
        if end_ns is None or _code_key(definition.symbol, last_ns) != wanted:
            continue
        is_same_id = 0 < table.instrument_id == definition.instrument_id
        if last_ns - _DAY_NS < end_ns < last_ns + (_LISTED_DAYS if is_same_id else _DECADE_DAYS) * _DAY_NS:
            ends_ns.append(end_ns)
    return date_of(min(ends_ns) // _DAY_NS) if ends_ns else None


def _code_key(code: str, ts_ns: int) -> tuple[str, int, int] | str:
    """Root, month and last digit of the year: what "ESZ4", "ESZ24" and "ESZ2024" have in common."""
    month = parse_contract(code, date_of(ts_ns // _DAY_NS))
    return code if month is None else (month.root, month.month, month.year % 10)


def _month(table: BarTable, last_trade: datetime.date | None) -> ContractMonth | None:
    """Delivery month: a contract does not trade after its last day, so the last bar tells the year."""
    last_bar = date_of(int(table.ts_ns[-1]) // _DAY_NS)
    month = parse_contract(table.contract, last_trade or last_bar)
    if month is None or last_trade or not _is_ambiguous(table.contract, month):
        return month
    is_over = last_bar > expiry_date(month) + datetime.timedelta(days=_LATE_DAYS)
    return ContractMonth(month.root, month.year + 10, month.month) if is_over else month


def _is_ambiguous(code: str, month: ContractMonth) -> bool:
    return month.root in LONG_LISTED and not code[-2].isdigit()


def _is_too_far(code: str, month: ContractMonth, last_bar: datetime.date) -> bool:
    """Whether a code of one digit names a contract that was not listed yet: that of the decade before was over."""
    is_told = code[-2].isdigit() or month.root in _FAR_LISTED or not has_expiry_rule(month.root)
    return not is_told and (expiry_date(month) - last_bar).days > _FAR_DAYS


def _findings(
    tables: Sequence[BarTable],
    months: Sequence[ContractMonth | None],
    last_trade: Sequence[datetime.date | None],
) -> list[Finding]:
    findings: list[Finding] = []
    rows = [row for row in zip(tables, months, last_trade, strict=True) if row[1] is not None and row[2] is None]
    doubtful = [(table, month) for table, month, _ in rows if month and _is_ambiguous(table.contract, month)]
    if doubtful:
        table, month = doubtful[0]
        text = (
            f"{counted(len(doubtful), 'contract code')} of {month.root} with one digit of the year "
            f"{are(len(doubtful))} taken as the nearest such year ({table.contract} is {month.year}-"
            f"{month.month:02d}), although {month.root} is listed more than ten years ahead; definition files beside "
            "the data settle it"
        )
        findings.append(Finding("symbol", text, len(doubtful)))
    for table, month, _ in rows:
        last_bar = date_of(int(table.ts_ns[-1]) // _DAY_NS)
        if month and _is_too_far(table.contract, month, last_bar):
            text = (
                f"{table.contract} has bars up to {last_bar}, when no nearer contract of that code traded, and is "
                f"taken as {month.year}-{month.month:02d}; {month.root} is not listed so far ahead: is that right?"
            )
            findings.append(Finding("symbol", text, 1, is_warning=True))
    guessed = sorted({month.root for _, month, _ in rows if month and not has_expiry_rule(month.root)})
    if guessed and len(tables) > 1:
        text = f"no rule for the last trading day of {', '.join(guessed)} is known: the end of the month is assumed"
        findings.append(Finding("roll", text, len(guessed)))
    return findings


def day_number(date: datetime.date) -> int:
    """Days since 1970-01-01."""
    return (date - _EPOCH).days


def date_of(day: int | np.integer[Any]) -> datetime.date:
    """The date so many days after 1970-01-01."""
    return _EPOCH + datetime.timedelta(days=int(day))
