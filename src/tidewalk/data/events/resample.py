"""Longer bars made of shorter ones, within sessions: `--bars 1h` on files of minutes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, BarTable
from tidewalk.data.checks.quality import Finding
from tidewalk.data.events.bar_rule import BarRule, close_ns, grid
from tidewalk.data.events.ticks import starts
from tidewalk.data.rows import spoken


def resample(
    tables: Sequence[BarTable], rule: BarRule, sessions: str, reached_ns: Sequence[int]
) -> tuple[tuple[BarTable, ...], tuple[Finding, ...]]:
    """Tables of bars of the length asked for, made of the bars of each table.

    A bar opens with the first and closes with the last bar inside it, its high and low are those of all of them, its
    volume their sum and its spread that of the first. It is known when its time is over, at the latest when the next
    one starts. A last bar that the data leave unfinished is dropped.

    Args:
        tables: bars of one length.
        rule: time bars.
        sessions: session rule.
        reached_ns: of each table, the moment up to which the data are known to reach.

    Raises:
        DataError: the bars are irregular, longer than those asked for, do not divide them or straddle their ends.
    """
    interval_ns = rule.amount * E9
    _check(tables, rule)
    if tables[0].interval_ns == interval_ns:
        return tuple(tables), ()
    made = [
        _longer(table, interval_ns, sessions, max(end_ns, int(table.known_ns[-1])))
        for table, end_ns in zip(tables, reached_ns, strict=True)
    ]
    unfinished = sum(is_cut for _, is_cut in made)
    kept = tuple(table for table, _ in made if table is not None)
    if not kept:
        raise DataError(f"--bars {rule.text}: no bar is complete, the data reach over less than one.")
    source = sum(len(table.ts_ns) for table in tables)
    total = sum(len(table.ts_ns) for table in kept)
    length_s = (tables[0].interval_ns or 0) / E9
    text = f"bars of {rule.text} made of bars of {length_s:g} s within sessions: {total} of {source}"
    findings = [Finding("bars", text, total)]
    if unfinished:
        text = f"last bars dropped because the data end before they do: {unfinished}"
        findings.append(Finding("partial-end", text, unfinished))
    first_ns = min(int(table.ts_ns[0]) for table in tables)
    lacking_ns = first_ns - min(int(table.ts_ns[0]) for table in kept)
    if lacking_ns > 0:
        text = f"first bars of {rule.text} begin {spoken(lacking_ns)} before the data do, and lack that part"
        findings.append(Finding("partial-end", text))
    return kept, tuple(findings)


def _check(tables: Sequence[BarTable], rule: BarRule) -> None:
    for table in tables:
        if table.interval_ns is None:
            raise DataError(
                f"--bars {rule.text}: the files hold irregular bars (tick, volume or dollar bars), which no length of "
                "time divides. Leave --bars out, or give files of trades."
            )
        if rule.kind != "time":
            raise DataError(
                f"--bars {rule.text}: needs files of trades; the files hold bars of {table.interval_ns / E9:g} s."
            )
        if rule.amount * E9 % table.interval_ns:
            raise DataError(
                f"--bars {rule.text}: cannot be made of bars of {table.interval_ns / E9:g} s. Ask for a multiple of it."
            )


def _longer(table: BarTable, interval_ns: int, sessions: str, end_of_data_ns: int) -> tuple[BarTable | None, bool]:
    """The table in longer bars (None when not one is complete), and whether its last bar was dropped."""
    where = grid(table.ts_ns, interval_ns, sessions)
    source_ns = table.interval_ns or 0
    over = np.flatnonzero(table.ts_ns - where.start_ns + source_ns > interval_ns)
    if len(over):
        raise DataError(
            f"{table.contract}: the bar of {np.datetime64(int(table.ts_ns[over[0]]), 'ns')} UTC lies in two bars of "
            f"{interval_ns / E9:g} s. Leave --bars out."
        )
    changes = (np.diff(where.start_ns) != 0) | (np.diff(where.trade_day) != 0)
    first = np.flatnonzero(np.concatenate([[True], changes]))
    last = np.append(first[1:], len(table.ts_ns)) - 1
    start_ns = starts(where.start_ns, first, table.ts_ns)
    end_ns = start_ns + interval_ns
    session_end_ns = close_ns(where.trade_day[last], sessions)
    over_ns = np.where(session_end_ns >= table.known_ns[last], np.minimum(end_ns, session_end_ns), end_ns)
    keep = slice(0, len(first) - int(over_ns[-1] > end_of_data_ns))
    if keep.stop == 0:
        return None, True
    known_ns = np.append(np.minimum(end_ns[:-1], start_ns[1:]), end_ns[-1:])
    spread_e9 = table.open_spread_e9
    longer = replace(
        table,
        interval_ns=interval_ns,
        ts_ns=start_ns[keep],
        known_ns=known_ns[keep],
        open_e9=table.open_e9[first][keep],
        high_e9=np.maximum.reduceat(table.high_e9, first)[keep],
        low_e9=np.minimum.reduceat(table.low_e9, first)[keep],
        close_e9=table.close_e9[last][keep],
        volume=np.add.reduceat(table.volume, first)[keep],
        open_spread_e9=None if spread_e9 is None else spread_e9[first][keep],
    )
    return longer, keep.stop < len(first)
