"""Round trips in rows: by side, by what ended them, and the first of the ledger."""

import polars as pl
import pytest

from tidewalk.report.tables import LEDGER_ROWS
from tidewalk.report.trips import duration, exit_rows, ledger_rows, trip_rows
from tidewalk.store import layout, results

MINUTE = 60 * 10**9


def trades(*rows):
    """Round trips of (lots, minutes held, net, exit reason), each a minute after the one before, 9 USD of costs."""
    table = []
    for at, (lots, held, net, reason) in enumerate(rows):
        ends = [at * MINUTE, 5000.0, (at + held) * MINUTE, 5001.25]
        table.append(["ES.FUT", 0, "ESH4", lots, *ends, net + 9, 4.0, 5.0, net, "decision", reason])
    return pl.DataFrame(table, schema=results.TRADES.schema, orient="row")


SOME = trades((1, 10, 100.0, "decision"), (-2, 30, -50.0, "close"), (1, 20, 30.0, "close"), (1, 60, 0.0, "end"))


def test_statistics_by_side():
    every, long, short = trip_rows(SOME)
    assert every == ["all", "4", "5", "67 %", "20", "15", "65", "\u221250", "100", "\u221250", "30 min", "60 min"]
    assert long[:4] == ["long", "3", "3", "100 %"]
    assert short == ["short", "1", "2", "0 %", *["\u221250"] * 2, "undefined", *["\u221250"] * 3, "30 min", "30 min"]


def test_ends_most_frequent_first():
    assert exit_rows(SOME) == [
        ["close", "2", "\u221220", "\u221210"],
        ["decision", "1", "100", "100"],
        ["end", "1", "0", "0"],
    ]


def test_no_round_trip_no_row():
    empty = pl.DataFrame(schema=results.TRADES.schema)
    assert trip_rows(empty) == exit_rows(empty) == ledger_rows(empty) == []


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(0, "0 min"), (1.5, "1.5 min"), (89.4, "89 min"), (90, "1.5 h"), (2880, "2.0 days"), (None, "undefined")],
)
def test_durations(minutes, text):
    assert duration(minutes) == text


def test_the_ledger_begins_with_the_first_round_trips(make_run):
    made = results.read_trades(layout.open_run(make_run()))
    rows = ledger_rows(made)
    assert len(rows) == LEDGER_ROWS
    first = made.sort("entry_ts_ns").row(0, named=True)
    assert rows[0][1] == first["contract"]
    assert rows[0][4] == f"{first['entry_price']:,.2f}"
    assert rows[0][3].startswith("2018-05-01 ")
    assert {row[2][0] for row in rows} == {"+", "\u2212"}
    assert {len(row) for row in rows} == {13}
