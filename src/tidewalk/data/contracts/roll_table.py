"""The roll rule `table:FILE`: a CSV file that names the front contract from each date on."""

import csv
import datetime
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean, listed
from tidewalk.data.bars import BarTable
from tidewalk.data.contracts.roll_rules import Activity, FrontChoice
from tidewalk.data.contracts.terms import NEVER, Terms, date_of, day_number


def choose_by_table(activity: Activity, tables: tuple[BarTable, ...], terms: Terms, path: Path) -> FrontChoice:
    """Front of every session as the file names it; its lines outside the span of the data are not used.

    Raises:
        ConfigError: unusable file, a contract without bars, lines that go back in date or expiry, or a contract named
            for sessions after its last safe day.
    """
    names = [table.contract for table in tables]
    entries = _read_roll_table(path)
    front = np.full(activity.session_day.size, -1, np.int64)
    current, day_before = 0, -NEVER
    for (line, day, contract), (_, next_day, _) in itertools.pairwise([*entries, (0, NEVER, "")]):
        if day <= day_before:
            raise ConfigError(f"{path}, line {line}: {contract} goes back in date; rolls only go forward")
        day_before = day
        is_front = (activity.session_day >= day) & (activity.session_day < next_day)
        if not is_front.any():
            continue
        if contract not in names:
            hint = did_you_mean(contract, names)
            raise ConfigError(
                f"{path}, line {line}: no bars of contract {contract!r}{hint}; the data have {listed(names, 12)}"
            )
        if contract not in names[current:]:
            raise ConfigError(f"{path}, line {line}: {contract} goes back in expiry; rolls only go forward")
        current = names.index(contract, current)
        front[is_front & activity.has_bars[current]] = current
        _refuse_unsafe(f"{path}, line {line}", contract, activity.session_day[front == current], terms, current)
    shown = np.flatnonzero(front >= 0)
    changes = shown[1:][front[shown[1:]] != front[shown[:-1]]]
    return FrontChoice(front, {int(s): "table" for s in changes})


def _refuse_unsafe(where: str, contract: str, held_day: NDArray[np.int32], terms: Terms, index: int) -> None:
    if held_day.size and held_day[-1] > terms.safe_day[index]:
        raise ConfigError(
            f"{where}: {contract} is front until {date_of(held_day[-1])}, but {date_of(terms.safe_day[index])} is the "
            "last session over whose close it may be held (first notice or last trading day): name the contract that "
            "follows it from the next session on"
        )


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
                entries.append((line, day_number(datetime.date.fromisoformat(date_text)), contract))
            except ValueError:
                raise ConfigError(
                    f"{path}, line {line}: {','.join(fields)!r} is not `date,contract` such as 2024-03-12,ESM4"
                ) from None
    if not entries:
        raise ConfigError(f"{path}: no line of the form `date,contract`")
    return entries
