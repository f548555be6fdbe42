"""From rows to tables: when a bar is complete, where a series is cut, and what is hashed."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from data.market_files import HOUR_NS, MINUTE_NS, START
from tidewalk.core.errors import DataError
from tidewalk.data.assemble import Assembled, BarForm, assemble, bar_times, fingerprint
from tidewalk.data.bars import PRICE_COLUMNS, OpenInterest, validate
from tidewalk.data.checks.quality import Finding
from tidewalk.data.rows import FileRows, Rows
from tidewalk.data.symbols import Choice

FORM = BarForm(MINUTE_NS, close_labelled=False, has_volume=True)
SINGLE = Choice("single", ("ES",), None)


def rows_of(minutes: list[int], ids: list[int] | None = None, price: int = 4800) -> Rows:
    count = len(minutes)
    prices = np.full(count, price * 10**9, np.int64)
    stamps = START + np.array(minutes, np.int64) * MINUTE_NS
    numbers, files = np.arange(1, count + 1), np.zeros(count, np.int32)
    return Rows(stamps, *[prices] * 4, np.ones(count), np.array(ids or [0] * count, np.int64), numbers, files)


def build(rows: Rows, choice: Choice = SINGLE, form: BarForm = FORM, symbol: str = "ES", **facts: Any) -> Assembled:
    file = FileRows(
        {choice.labels[0]: rows}, len(rows.row), 0, form.interval_ns, form.has_volume, form.close_labelled, **facts
    )
    return assemble(symbol, choice, [file], ["es.csv"], form)


@pytest.mark.parametrize(("label", "ts", "known"), [("open", [0, 1, 5], [1, 2, 6]), ("close", [-1, 0, 4], [0, 1, 5])])
def test_regular_bars_are_complete_one_interval_after_their_start(label: str, ts: list[int], known: list[int]) -> None:
    form = BarForm(MINUTE_NS, close_labelled=label == "close", has_volume=True)
    table = build(rows_of([0, 1, 5]), form=form).tables[0]
    assert ((table.ts_ns - START) // MINUTE_NS).tolist() == ts
    assert ((table.known_ns - START) // MINUTE_NS).tolist() == known


def test_irregular_bars_stamped_at_their_end_lie_just_before_it() -> None:
    table = build(rows_of([0, 0, 3]), form=BarForm(None, close_labelled=True, has_volume=True)).tables[0]
    assert (table.known_ns - START).tolist() == [0, 1, 3 * MINUTE_NS]
    assert (table.ts_ns == table.known_ns - 1).all()
    assert table.interval_ns is None


def test_irregular_bars_stamped_at_their_start_end_with_the_next() -> None:
    built = build(rows_of([0, 2, 3]), form=BarForm(None, close_labelled=False, has_volume=True))
    table = built.tables[0]
    assert ((table.known_ns - START) // MINUTE_NS).tolist() == [2, 3]
    assert "ES: the last bar was dropped" in built.findings[0].text
    with pytest.raises(DataError, match="no complete bar"):
        build(rows_of([0]), form=BarForm(None, close_labelled=False, has_volume=True))


def test_no_bar_starts_before_the_one_before_is_known() -> None:
    # Daily bars at local midnight: one day of the year has 23 hours.
    stamps = np.array([0, 24, 47, 71]) * HOUR_NS
    for close_labelled in (False, True):
        ts_ns, known_ns = bar_times(stamps, BarForm(24 * HOUR_NS, close_labelled, has_volume=True))
        assert (ts_ns[1:] >= known_ns[:-1]).all()
        assert (known_ns >= stamps).all()


def test_continuous_series_is_cut_where_its_instrument_changes() -> None:
    rows = rows_of([0, 1, 2, 3, 4, 5], [7, 7, 8, 8, 7, 9])
    built = build(rows, Choice("continuous", ("ES.c.0",), None))
    assert [(table.contract, table.instrument_id, len(table.ts_ns)) for table in built.tables] == [
        ("ES#7", 7, 2),
        ("ES#8", 8, 2),
        ("ES#7.2", 7, 1),
        ("ES#9", 9, 1),
    ]
    for table in built.tables:
        validate(table)


def test_mixed_bar_lengths_are_refused_and_strays_dropped() -> None:
    form = BarForm(5 * MINUTE_NS, close_labelled=False, has_volume=True)
    with pytest.raises(DataError, match=r"mixed bar intervals: 3 of 5 bars begin before the one before is complete"):
        build(rows_of([0, 1, 2, 3, 5]), form=form)
    built = build(rows_of([*range(0, 1000, 5), 1001]), form=form)
    assert (len(built.tables[0].ts_ns), len(build(rows_of([*range(0, 1000, 5), 997]), form=form).tables[0].ts_ns)) == (
        201,
        200,
    )


def test_absent_volume_is_zero_and_said() -> None:
    table = build(rows_of([0, 1]), form=dataclasses.replace(FORM, has_volume=False)).tables[0]
    assert (table.has_volume, table.volume.tolist()) == (False, [0.0, 0.0])


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(DataError, match=r"--symbol ES: no bars in es\.csv"):
        build(rows_of([]))


def test_prices_below_zero_are_warned_of_or_refused_by_product() -> None:
    for symbol in ("CL", "HO.FUT", "XYZ", "ESH4-ESM4"):
        findings = build(rows_of([0, 1], price=-37), symbol=symbol).findings
        assert findings[0].text == "bars with a price of zero or less: 2 of 2"
        assert findings[0].is_warning
    for symbol in ("ES", "GC.FUT", "ZNH4", "6E"):
        with pytest.raises(DataError, match=r"es\.csv row 1 .*O -37 .*a price is zero or less.* in 2 of 2 rows"):
            build(rows_of([0, 1], price=-37), symbol=symbol)


def test_old_prices_below_zero_look_adjusted() -> None:
    rows = rows_of(list(range(100)), price=70)
    falling = dataclasses.replace(rows, low_e9=np.where(np.arange(100) < 30, -(10**9), rows.low_e9))
    assert "adjusted-prices" in {finding.defect for finding in build(falling, symbol="CL").findings}
    lately = dataclasses.replace(rows, low_e9=np.where(np.arange(100) > 70, -(10**9), rows.low_e9))
    assert "adjusted-prices" not in {finding.defect for finding in build(lately, symbol="CL").findings}


def test_a_bar_that_ends_after_the_recording_is_left_out() -> None:
    end_ns = START + 2 * MINUTE_NS + 1
    built = build(rows_of([0, 1, 2, 5]), end_ns=end_ns)
    # A row beyond the end was not cut off by it.
    assert ((built.tables[0].ts_ns - START) // MINUTE_NS).tolist() == [0, 1, 5]
    assert built.findings[0].line.startswith(
        "es.csv: last bars left out because the file was recorded up to 2024-01-02"
    )
    assert len(build(rows_of([0, 1]), end_ns=START + 2 * MINUTE_NS).tables[0].ts_ns) == 2
    closes = BarForm(MINUTE_NS, close_labelled=True, has_volume=True)
    assert len(build(rows_of([0, 1, 2]), form=closes, end_ns=end_ns).tables[0].ts_ns) == 3


def test_rows_out_of_order_are_sorted_and_said_once() -> None:
    built = build(rows_of([3, 1, 2, 0]))
    assert ((built.tables[0].ts_ns - START) // MINUTE_NS).tolist() == [0, 1, 2, 3]
    assert [finding.line for finding in built.findings] == ["es.csv: rows are out of time order in 2 places: sorted"]
    said = Finding("out-of-order", "rows run newest first: reversed")
    assert not build(rows_of([3, 1, 2, 0]), findings=(said,)).findings


def test_a_bar_stamped_at_the_close_of_the_session_is_inside_it() -> None:
    # 21:59 to 22:00 UTC, the last minute before the break in winter; then a print of the break; then the next day.
    minutes = [*range(360, 421), 440, *range(480, 540)]
    rows = rows_of(minutes)
    open_e9 = rows.open_e9 + np.arange(len(minutes)) % 3 * 10**9
    for at, gone in ((60, False), (61, True)):
        far_e9 = np.where(np.arange(len(minutes)) == at, 4000 * 10**9, open_e9)
        form = BarForm(MINUTE_NS, close_labelled=True, has_volume=True)
        built = build(Rows(**{**vars(rows), **dict.fromkeys(PRICE_COLUMNS, far_e9)}), form=form)
        assert (len(built.tables[0].ts_ns) < len(minutes)) == gone


def test_bars_without_volume_are_kept_and_counted() -> None:
    rows = dataclasses.replace(rows_of([0, 1, 2]), volume=np.array([5.0, 0.0, 5.0]))
    built = build(rows)
    assert len(built.tables[0].ts_ns) == 3
    assert [finding.text for finding in built.findings] == ["bars without volume, kept as they are: 1 of 3"]


def test_fingerprint_follows_content_and_not_order() -> None:
    first, second = build(rows_of([0, 1])).tables[0], build(rows_of([0, 1], price=4900)).tables[0]
    other = dataclasses.replace(second, contract="NQ")
    assert fingerprint([first, other]) == fingerprint([other, first])
    seen = {fingerprint([table]) for table in (first, second, other)}
    for name in ("ts_ns", "known_ns", "open_e9", "close_e9", "volume"):
        seen.add(fingerprint([dataclasses.replace(first, **{name: getattr(first, name) + 1})]))
    seen.add(fingerprint([dataclasses.replace(first, interval_ns=1)]))
    seen.add(fingerprint([dataclasses.replace(first, has_volume=False)]))
    spread_e9 = np.full(2, 250_000_000)
    for spread in (spread_e9, 2 * spread_e9):
        seen.add(fingerprint([dataclasses.replace(first, open_spread_e9=spread)]))
    for lots in (5, 6):
        interest = OpenInterest("ES", np.array([19_700], np.int32), np.array([START]), np.array([lots]))
        seen.add(fingerprint([first], interest=[interest]))
    assert len(seen) == 14
    assert fingerprint([dataclasses.replace(first, instrument_id=99)]) == fingerprint([first])
