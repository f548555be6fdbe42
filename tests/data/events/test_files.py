"""Events of one file, and how far it is known to reach."""

from pathlib import Path

import numpy as np
import pytest

from data.market_files import MINUTE_NS, SNAPSHOT, START, in_order, put, quotes, stream, trades
from tidewalk.data.checks.quality import Finding
from tidewalk.data.events.bar_rule import parse_bar_rule
from tidewalk.data.events.files import EventFile, reached_ns, read_events, stopped_early
from tidewalk.data.events.ticks import Cutter
from tidewalk.data.files.catalog import catalogue

END = START + 60 * MINUTE_NS


def read(path: Path, rule: str = "1m", labels: tuple[str, ...] = ("ESH4", "ESM4")) -> EventFile:
    return read_events(catalogue(path).dbn[0], 3, labels, Cutter(parse_bar_rule(rule), "utc-day"))


def test_the_account_of_a_file(tmp_path: Path) -> None:
    records = in_order(
        trades(100, [(START, 10.0, 1), (START + 5, 11.0, 2)]),
        trades(100, [(START + 1, 10.0, 1)], flags=SNAPSHOT),
        trades(300, [(START + 2, 1.0, 1)]),
        trades(999, [(START + 3, 1.0, 1)]),
    )
    found = read(put(tmp_path, "a.dbn", stream(records, "trades", start=START - 9, end=END)))
    assert (found.rows_read, found.rows_others, found.rows_unmapped) == (5, 1, 1)
    assert found.labels == ("ESH4", "ESM4")
    assert list(found.events) == ["ESH4"]
    events = found.events["ESH4"]
    assert (events.ts_ns.tolist(), events.size.tolist()) == ([START, START + 5], [1, 2])
    assert (events.row.tolist(), set(events.file_id.tolist())) == ([1, 5], {3})
    assert found.left_out["snapshot records, which are no trades"] == 1
    assert (found.start_ns, found.reached_ns, found.is_open_ended) == (START - 9, END, False)
    assert [finding.defect for finding in found.findings] == ["unmapped"]


def test_of_the_quotes_of_a_moment_the_last_one_counts(tmp_path: Path) -> None:
    records = quotes(100, [(START, 10.0, 10.5), (START, 11.0, 11.5), (START + 1, 12.0, 12.5)], "mbp-1")
    found = read(put(tmp_path, "a.dbn", stream(records, "mbp-1"))).events["ESH4"]
    assert (found.price_e9 / 1e9).tolist() == [11.25, 12.25]


def test_a_file_without_records(tmp_path: Path) -> None:
    found = read(put(tmp_path, "a.dbn", stream(trades(100, []), "trades", end=END)))
    assert (found.events, found.rows_read, found.reached_ns) == ({}, 0, END)


@pytest.mark.parametrize(
    ("limit", "rows", "defect", "reached"),
    [(None, 5, None, END), (6, 5, None, END), (5, 5, None, START), (None, 5, "truncated-records", START)],
)
def test_a_file_reaches_to_the_end_of_its_request_unless_it_stopped_early(
    tmp_path: Path, limit: int | None, rows: int, defect: str | None, reached: int
) -> None:
    path = put(tmp_path, "a.dbn", stream(trades(100, []), "trades", end=END, limit=limit))
    header = catalogue(path).dbn[0].header
    findings = [Finding(defect, "cut")] if defect else []
    assert reached_ns(header, rows, START, findings) == reached
    assert stopped_early(header, rows, findings) == (reached == START)


def test_a_file_without_an_end_is_open_ended(tmp_path: Path) -> None:
    records = trades(100, [(START, 10.0, 1)])
    found = read(put(tmp_path, "a.dbn", stream(records, "trades")))
    assert (found.is_open_ended, found.reached_ns) == (True, START)
    assert np.array_equal(found.events["ESH4"].ts_ns, [START])
