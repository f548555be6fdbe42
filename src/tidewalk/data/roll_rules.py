"""Which contract is front in each session, under the roll rules a user can ask for.

A rule sees trading per contract and session, and for session s only what is known before it opens, with one exception
that no trader can get around: a contract without any bar in session s cannot be held or entered in it.
"""

import csv
import datetime
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.bars import BarTable
from tidewalk.data.contracts import MONTH_CODES, ContractMonth, ContractSpec, expiry_date, parse_contract
from tidewalk.data.sessions import SessionColumns

RULES = ("volume", "calendar:N", "table:FILE")
"""Roll rules understood here."""

_EPOCH = datetime.date(1970, 1, 1)
_DAY_NS = 86_400_000_000_000


@dataclass(frozen=True)
class Activity:
    """Trading per contract and session; contracts in order of expiry, sessions in order of time."""

    session_day: NDArray[np.int32]
    """[S] trade dates on which any contract has a bar."""
    volume: NDArray[np.float64]
    """[C, S]."""
    has_bars: NDArray[np.bool_]
    """[C, S]."""


@dataclass(frozen=True)
class FrontChoice:
    """Front contract per session."""

    front: NDArray[np.int64]
    """[S] contract index, -1 where the front contract has no bars."""
    reasons: dict[int, str]
    """Why the contract changed, by session index."""


def parse_rule(rule: str) -> tuple[str, str]:
    """Name and argument of a rule such as "calendar:8"; the argument of "volume" is empty.

    Raises:
        ConfigError: unknown rule, or "open-interest", which needs data that are not read.
    """
    name, _, argument = rule.partition(":")
    if rule == "volume" or (name == "table" and argument):
        return name, argument
    if name == "calendar" and argument.isdecimal():
        return name, argument
    if name == "open-interest":
        raise ConfigError(
            "--roll open-interest needs open interest per contract (Databento's statistics schema), which is not read: "
            "use --roll volume, which follows the same migration, or --roll table:FILE with dates of your own"
        )
    raise ConfigError(f"--roll {rule!r} is not known{did_you_mean(rule, RULES)}: use one of {', '.join(RULES)}")


def activity_of(tables: tuple[BarTable, ...], columns: tuple[SessionColumns, ...]) -> Activity:
    """Volume and presence of every contract in every session in which any of them has a bar."""
    session_day = np.unique(np.concatenate([np.unique(column.trade_day) for column in columns]))
    volume = np.zeros((len(tables), session_day.size))
    has_bars = np.zeros(volume.shape, np.bool_)
    for i, (table, column) in enumerate(zip(tables, columns, strict=True)):
        session = np.searchsorted(session_day, column.trade_day)
        volume[i] = np.bincount(session, weights=table.volume, minlength=session_day.size)
        has_bars[i, session] = True
    return Activity(session_day, volume, has_bars)


def choose(
    name: str, argument: str, tables: tuple[BarTable, ...], spec: ContractSpec, activity: Activity
) -> FrontChoice:
    """Front contract of every session under a rule from `parse_rule`.

    Raises:
        ConfigError: the rule needs delivery months the contracts do not name, or its file is unusable.
    """
    if name == "volume":
        return _choose_by_volume(activity)
    if name == "calendar":
        return _choose_by_calendar(activity, tables, spec, days_before=int(argument))
    return _choose_by_table(activity, tables, Path(argument))


def _first_true(mask: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(mask)) if mask.any() else None


def _choose_by_volume(activity: Activity) -> FrontChoice:
    volume, has_bars = activity.volume, activity.has_bars
    front = np.full(activity.session_day.size, -1, np.int64)
    reasons: dict[int, str] = {}
    current = int(np.argmax(has_bars[:, 0]))
    for s in range(front.size):
        if s > 0:
            rivals = np.where(has_bars[current + 1 :, s], volume[current + 1 :, s - 1], -1.0)
            if rivals.size and rivals.max() > volume[current, s - 1]:
                current, reasons[s] = current + 1 + int(np.argmax(rivals)), "volume"
        if not has_bars[current, s] and (step := _first_true(has_bars[current + 1 :, s])) is not None:
            current, reasons[s] = current + 1 + step, "expired"
        if has_bars[current, s]:
            front[s] = current
    return FrontChoice(front, reasons)


def _choose_by_calendar(
    activity: Activity, tables: tuple[BarTable, ...], spec: ContractSpec, days_before: int
) -> FrontChoice:
    months = [_contract_month(table) for table in tables]
    unnamed = [table.contract for table, month in zip(tables, months, strict=True) if month is None]
    if unnamed:
        raise ConfigError(
            f"--roll calendar needs delivery months, but {unnamed[0]!r} names none: use --roll table:FILE"
        )
    known = [month for month in months if month is not None]
    leave_day = np.array([_day_number(expiry_date(month)) - days_before for month in known])
    usual = np.array([not spec.months or MONTH_CODES[month.month - 1] in spec.months for month in known])
    front = np.full(activity.session_day.size, -1, np.int64)
    reasons: dict[int, str] = {}
    current = None
    for s, day in enumerate(activity.session_day.tolist()):
        has_bars = activity.has_bars[:, s]
        lasting = has_bars & usual & (leave_day > day)
        if current is None:
            current = int(np.argmax(lasting)) if lasting.any() else int(np.argmax(has_bars))
        elif day >= leave_day[current] and (step := _first_true(lasting[current + 1 :])) is not None:
            current, reasons[s] = current + 1 + step, "calendar"
        elif not has_bars[current] and (step := _first_true(has_bars[current + 1 :])) is not None:
            current, reasons[s] = current + 1 + step, "expired"
        if has_bars[current]:
            front[s] = current
    return FrontChoice(front, reasons)


def _choose_by_table(activity: Activity, tables: tuple[BarTable, ...], path: Path) -> FrontChoice:
    names = [table.contract for table in tables]
    front = np.full(activity.session_day.size, -1, np.int64)
    current, day_before = 0, -(10**9)
    for line, day, contract in _read_roll_table(path):
        if contract not in names:
            hint = did_you_mean(contract, names)
            raise ConfigError(
                f"{path}, line {line}: no bars of contract {contract!r}{hint}; the data have {_spoken(names)}"
            )
        if contract not in names[current:] or day <= day_before:
            raise ConfigError(f"{path}, line {line}: {contract} goes back in date or expiry; rolls only go forward")
        current, day_before = names.index(contract, current), day
        front[activity.session_day >= day] = current
    session = np.arange(front.size)
    front[~activity.has_bars[front, session] & (front >= 0)] = -1
    shown = np.flatnonzero(front >= 0)
    changes = shown[1:][front[shown[1:]] != front[shown[:-1]]]
    return FrontChoice(front, {int(s): "table" for s in changes})


def _read_roll_table(path: Path) -> list[tuple[int, int, str]]:
    """Line number, day number and contract of every line; a header line `date,contract` may come first."""
    if not path.is_file():
        raise ConfigError(f"--roll table:{path}: there is no such file")
    entries: list[tuple[int, int, str]] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for line, fields in enumerate(csv.reader(file), start=1):
            cells = [field.strip() for field in fields]
            if not any(cells) or (line == 1 and [cell.lower() for cell in cells] == ["date", "contract"]):
                continue
            try:
                date_text, contract = cells
                entries.append((line, _day_number(datetime.date.fromisoformat(date_text)), contract))
            except ValueError:
                raise ConfigError(
                    f"{path}, line {line}: {','.join(fields)!r} is not `date,contract` such as 2024-03-12,ESM4"
                ) from None
    if not entries:
        raise ConfigError(f"{path}: no line of the form `date,contract`")
    return entries


def _contract_month(table: BarTable) -> ContractMonth | None:
    return parse_contract(table.contract, _date(int(table.ts_ns[0] // _DAY_NS)))


def expiry_day(table: BarTable) -> int | None:
    """Scheduled last trading day of a table's contract, in days since 1970-01-01; None when its code names no month."""
    month = _contract_month(table)
    return None if month is None else _day_number(expiry_date(month))


def _day_number(date: datetime.date) -> int:
    return (date - _EPOCH).days


def _date(day_number: int) -> datetime.date:
    return _EPOCH + datetime.timedelta(days=day_number)


def choice_warnings(choice: FrontChoice, name: str, tables: tuple[BarTable, ...], activity: Activity) -> list[str]:
    """What a user must know about a choice: no volumes to choose by, contracts left too early, sessions left out."""
    warnings: list[str] = []
    if name == "volume" and not any(table.has_volume for table in tables):
        warnings.append(
            "the data have no volume: contracts are held until they have no bars left, past their liquid time"
        )
    for s in (s for s, reason in choice.reasons.items() if reason == "expired"):
        held = choice.front[:s][choice.front[:s] >= 0]
        old = tables[int(held[-1])] if held.size else None
        last_day = expiry_day(old) if old else None
        if old and last_day is not None and activity.session_day[s] <= last_day:
            warnings.append(
                f"{old.contract} has no bars in session {_date(int(activity.session_day[s]))} although it expires on "
                f"{_date(last_day)}: it was left there for {tables[int(choice.front[s])].contract}"
            )
    left_out = np.flatnonzero(choice.front < 0)
    if left_out.size:
        warnings.append(
            f"{left_out.size} sessions are left out because no front contract is named for them or it has no bars, "
            f"the first is {_date(int(activity.session_day[left_out[0]]))}"
        )
    return warnings


def _spoken(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
