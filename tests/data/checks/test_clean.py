"""Rows are kept as they are, dropped and counted, or refused: never repaired."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.market_files import HOUR_NS, MINUTE_NS
from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, PRICE_COLUMNS, UNDEF_PRICE_E9
from tidewalk.data.checks.clean import (
    Handling,
    Ordered,
    describe,
    drop_impossible,
    drop_missing,
    irregular,
    regular,
    shortest_step_ns,
)
from tidewalk.data.checks.quality import Finding
from tidewalk.data.rows import Rows, concat, infer_interval_ns, iso, spoken, take

NAMES = ("a.csv", "b.csv")


def rows_of(stamps_ns: Sequence[int], closes: Sequence[float] | None = None, file_id: int = 0) -> Rows:
    """Rows with a range of two points round the close."""
    count = len(stamps_ns)
    close = np.array([round(value * E9) for value in closes] if closes else [100 * E9] * count, np.int64)
    numbers = np.arange(2, count + 2)
    ids = np.zeros(count, np.int64)
    files = np.full(count, file_id, np.int32)
    stamps = np.array(stamps_ns, np.int64)
    return Rows(stamps, close, close + E9, close - E9, close, np.ones(count), ids, numbers, files)


def changed(rows: Rows, name: str, index: int, value: float) -> Rows:
    column = getattr(rows, name).copy()
    column[index] = value
    return Rows(**{**vars(rows), name: column})


def without_prices(rows: Rows, *indices: int, names: Sequence[str] = PRICE_COLUMNS) -> Rows:
    for index in indices:
        for name in names:
            rows = changed(rows, name, index, UNDEF_PRICE_E9)
    return rows


def test_rows_without_any_price_are_left_out_and_counted() -> None:
    rows = without_prices(rows_of([0, 1, 2]), 1)
    kept, findings = drop_missing([rows, rows_of([5])], ("ESH4", "ESM4"), NAMES)
    assert [part.stamp_ns.tolist() for part in kept] == [[0, 2], [5]]
    assert (findings[0].defect, findings[0].count, findings[0].is_warning) == ("missing-price", 1, True)
    assert "rows without a price left out: 1 of 4, first a.csv row 3 (" in findings[0].text
    assert "O - H - L - C -" in findings[0].text


def test_rows_of_zeros_are_missing_and_negative_prices_are_not() -> None:
    empty = rows_of([0, 1], [0.0, -37.63])
    empty = Rows(**{**vars(empty), "high_e9": empty.close_e9, "low_e9": empty.close_e9, "volume": np.array([0.0, 5.0])})
    kept, findings = drop_missing([empty], ("CL",), NAMES)
    assert (kept[0].close_e9.tolist(), findings[0].count) == ([-37_630_000_000], 1)


@pytest.mark.parametrize(("gone", "kind"), [(2, "note"), (3, "warning"), (40, "warning"), (41, "refused")])
def test_the_share_of_missing_rows_decides(gone: int, kind: str) -> None:
    rows = without_prices(rows_of(range(200)), *range(gone))
    if kind == "refused":
        with pytest.raises(DataError, match=r"ESH4: 41 of 200 rows have no price, the first is a\.csv row 2"):
            drop_missing([rows], ("ESH4",), NAMES)
        return
    _, findings = drop_missing([rows], ("ESH4",), NAMES)
    assert findings[0].is_warning == (kind == "warning")


def test_a_thin_contract_is_not_judged_by_a_share() -> None:
    thin = without_prices(rows_of(range(3)), 0, 1)
    assert len(drop_missing([thin], ("ESZ9",), NAMES)[0][0].row) == 1


def drop_bad(*parts: Rows, on_bad_bar: str = "refuse", only_positive: bool = True) -> tuple[list[Rows], list[Finding]]:
    return drop_impossible(parts, NAMES, Handling(on_bad_bar), only_positive=only_positive)  # pyright: ignore


IMPOSSIBLE = {
    # o=100 h=99 l=98 c=98.5 (TorchTrade issue 326)
    "high and low do not enclose open and close": {"high_e9": 99 * E9},
    "a price is missing": {"open_e9": UNDEF_PRICE_E9, "high_e9": UNDEF_PRICE_E9, "low_e9": UNDEF_PRICE_E9},
    "volume is below zero": {"volume": -4.0},
    "a price is zero or less": {"low_e9": 0},
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
@pytest.mark.parametrize("count", [1, 10, 2000])
def test_an_impossible_row_is_refused_whatever_its_share(what: str, count: int) -> None:
    rows = rows_of(range(count))
    for name, value in IMPOSSIBLE[what].items():
        rows = changed(rows, name, count - 1, value)
    with pytest.raises(
        DataError, match=rf"^a\.csv row {count + 1} \(.*volume .*\): {what}.* in 1 of {count} rows.*drop"
    ):
        drop_bad(rows)


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_rows_are_dropped_and_counted_when_told_to(what: str) -> None:
    thin, rows = rows_of([0]), rows_of(range(150))
    for name, value in IMPOSSIBLE[what].items():
        thin, rows = changed(thin, name, 0, value), changed(rows, name, 7, value)
    kept, findings = drop_bad(rows, thin, on_bad_bar="drop")
    assert [len(part.row) for part in kept] == [149, 0]
    assert 9 not in kept[0].row
    assert findings[0].text.startswith(f"bars left out because {what}")
    assert "2 of 151, first a.csv row 9" in findings[0].text
    assert (findings[0].count, findings[0].is_warning) == (2, True)


def test_every_kind_of_impossible_row_is_counted() -> None:
    rows = rows_of(range(9))
    for index, changes in enumerate(IMPOSSIBLE.values()):
        for name, value in changes.items():
            rows = changed(rows, name, index, value)
    kept, findings = drop_bad(rows, on_bad_bar="drop")
    assert kept[0].row.tolist() == [6, 7, 8, 9, 10]
    assert [finding.count for finding in findings] == [1] * 4


def test_prices_below_zero_are_left_to_products_that_may_have_them() -> None:
    rows = rows_of([0], [-37.63])
    assert drop_bad(rows, only_positive=False) == ([rows], [])


def test_regular_bars_are_sorted_and_deduplicated() -> None:
    # 10:05, 10:01, 10:01 again with the same values (histdata.com-tools issue 128)
    rows = concat([rows_of([5 * MINUTE_NS, MINUTE_NS, MINUTE_NS]), rows_of([MINUTE_NS], file_id=1)])
    made = put_in_order(rows)
    assert made.rows.stamp_ns.tolist() == [MINUTE_NS, 5 * MINUTE_NS]
    assert (made.num_repeated, made.num_shared, made.num_overlapping, made.num_conflicting) == (1, 1, 0, 0)


def put_in_order(
    rows: Rows, *, interval_ns: int = MINUTE_NS, on_conflict: str = "refuse", ends: tuple[int, int] = (5, 9)
) -> Ordered:
    return regular(rows, interval_ns, NAMES, Handling(on_conflict=on_conflict), ends)  # pyright: ignore


def test_conflicting_bars_are_refused_with_both_rows() -> None:
    rows = concat([rows_of([0, MINUTE_NS], [100, 101]), rows_of([MINUTE_NS], [102], file_id=1)])
    with pytest.raises(
        DataError, match=r"two different bars for one moment: a\.csv row 3 .*C 101.* and b\.csv row 2 .*C 102"
    ):
        put_in_order(rows)
    volume = concat([rows_of([0]), changed(rows_of([0]), "volume", 0, 2.0)])
    with pytest.raises(DataError, match=r"two different bars.*--on-conflict later"):
        put_in_order(volume)


def test_many_conflicts_are_no_corrections() -> None:
    stamps = [minute * MINUTE_NS for minute in range(30)]
    both = [rows_of(stamps, [100 + i for i in range(30)]), rows_of(stamps, [900 + i for i in range(30)], file_id=1)]
    with pytest.raises(
        DataError, match=r"30 such pairs\)\. So many are no corrections: the rows are of two instruments"
    ):
        put_in_order(concat(both))


def test_the_same_prices_of_two_instruments_conflict() -> None:
    one, two = (changed(rows_of([0]), "instrument_id", 0, number) for number in (7, 8))
    with pytest.raises(DataError, match="two different bars"):
        put_in_order(concat([one, two]))
    assert put_in_order(concat([one, rows_of([0], file_id=1)])).num_shared == 1


def test_of_conflicting_bars_the_one_of_the_later_file_is_kept() -> None:
    first, second = rows_of([0, MINUTE_NS], [100, 101]), rows_of([MINUTE_NS, 2 * MINUTE_NS], [102, 103], file_id=1)
    for ends, closes in (((5, 9), [100, 102, 103]), ((9, 5), [100, 101, 103])):
        for parts in ([first, second], [second, first]):
            made = put_in_order(concat(parts), on_conflict="later", ends=ends)
            assert (made.rows.close_e9 // E9).tolist() == closes
            assert (made.num_conflicting, made.num_shared) == (1, 0)
    with pytest.raises(DataError, match=r"b\.csv row 2 .* and a\.csv row 3 .*Both files end at the same moment"):
        put_in_order(concat([first, second]), on_conflict="later", ends=(5, 5))


def test_inside_one_file_the_row_further_down_is_kept() -> None:
    rows = rows_of([0, MINUTE_NS, MINUTE_NS, MINUTE_NS, 2 * MINUTE_NS, 2 * MINUTE_NS], [1, 2, 3, 2.5, 4, 4])
    made = put_in_order(take(rows, np.array([5, 3, 1, 0, 2, 4])), on_conflict="later")
    assert (made.rows.close_e9 / E9).tolist() == [1, 2.5, 4]
    assert (made.num_conflicting, made.num_repeated) == (2, 1)


@settings(deadline=None)  # the machine may be busy
@given(order=st.permutations(range(12)))
def test_order_of_rows_does_not_matter(order: list[int]) -> None:
    rows = rows_of([i // 2 * MINUTE_NS for i in range(12)], [100 + i // 2 for i in range(12)])
    made = put_in_order(take(rows, np.array(order)))
    assert made.rows.close_e9.tolist() == [(100 + i) * E9 for i in range(6)]
    assert made.num_repeated == 6


def test_bars_that_begin_inside_another_are_dropped() -> None:
    made = put_in_order(rows_of([0, 60, 300, 359, 361]), interval_ns=300)
    assert (made.rows.stamp_ns.tolist(), made.num_overlapping) == ([0, 300], 3)


def test_long_bars_may_lose_an_hour_when_clocks_change() -> None:
    day_ns = 24 * HOUR_NS
    assert shortest_step_ns(day_ns) == 23 * HOUR_NS
    assert shortest_step_ns(HOUR_NS) == HOUR_NS
    made = put_in_order(rows_of([0, 23 * HOUR_NS, 47 * HOUR_NS]), interval_ns=day_ns)
    assert (len(made.rows.row), made.num_overlapping) == (3, 0)


@settings(deadline=None)  # the machine may be busy
@given(stamps=st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=60))
def test_irregular_stamps_become_strictly_increasing_and_lose_no_row(stamps: list[int]) -> None:
    made = irregular(rows_of(stamps), NAMES)
    kept = made.rows
    assert made.num_shared == 0
    assert (np.diff(kept.stamp_ns) >= 1).all()
    assert (kept.stamp_ns >= np.sort(stamps)).all()
    assert kept.stamp_ns[0] == min(stamps)


def test_equal_stamps_of_tick_bars_keep_the_order_of_the_file() -> None:
    kept = irregular(rows_of([10, 10, 10, 11], [1, 2, 3, 4]), NAMES).rows
    assert kept.stamp_ns.tolist() == [10, 11, 12, 13]
    assert kept.row.tolist() == [2, 3, 4, 5]


def test_overlapping_files_of_tick_bars_are_joined_where_they_agree() -> None:
    first, second = rows_of([1, 5, 5, 9], [1, 2, 3, 4]), rows_of([5, 5, 9, 12], [2, 3, 4, 5], file_id=1)
    for both in ([first, second], [second, first]):
        made = irregular(concat(both), NAMES)
        assert (made.rows.close_e9 // E9).tolist() == [1, 2, 3, 4, 5]
        assert made.num_shared == 3


def test_overlapping_files_of_tick_bars_that_differ_are_refused() -> None:
    first, second = rows_of([1, 5, 9], [1, 2, 3]), rows_of([5, 9], [2, 7], file_id=1)
    with pytest.raises(DataError, match=r"b\.csv and a\.csv overlap in time and differ, first at a\.csv row 4"):
        irregular(concat([first, second]), NAMES)
    with pytest.raises(DataError, match="overlap in time and differ"):
        irregular(concat([first, rows_of([5, 7, 9], [2, 3, 3], file_id=1)]), NAMES)


@pytest.mark.parametrize(
    ("steps_s", "interval_s"),
    [
        ([60] * 9, 60),
        ([300] * 5 + [900, 3600], 300),
        ([86400] * 5 + [3 * 86400], 86400),
        ([7] * 9, None),
        ([60] * 4 + [61, 62, 63, 64, 65], None),
        ([], None),
    ],
)
def test_bar_length_is_the_usual_distance_of_most_bars(steps_s: list[int], interval_s: int | None) -> None:
    stamps = np.concatenate([[0], np.cumsum(steps_s)]).astype(np.int64) * E9
    assert infer_interval_ns([rows_of(stamps.tolist())]) == (None if interval_s is None else interval_s * E9)


def test_row_in_words() -> None:
    assert describe(rows_of([1_577_836_800 * E9 + 5_000_000], [4801.25]), 0, NAMES) == (
        "a.csv row 2 (2020-01-01 00:00:00.005 UTC, O 4801.25 H 4802.25 L 4800.25 C 4801.25, volume 1)"
    )
    assert iso(0) == "1970-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("interval_ns", "words"),
    [
        (60 * E9, "1 minute"),
        (300 * E9, "5 minutes"),
        (HOUR_NS, "1 hour"),
        (7 * 24 * HOUR_NS, "7 days"),
        (E9 // 2, "0.5 seconds"),
    ],
)
def test_bar_lengths_in_words(interval_ns: int, words: str) -> None:
    assert spoken(interval_ns) == words
