"""Rows are kept as they are, dropped and counted, or refused: never repaired."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.market_files import HOUR_NS, MINUTE_NS
from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, UNDEF_PRICE_E9
from tidewalk.data.clean import describe, drop_impossible, drop_missing, irregular, regular, shortest_step_ns
from tidewalk.data.rows import Rows, concat, infer_interval_ns, iso, take

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


def test_missing_rows_are_dropped_and_counted() -> None:
    rows = changed(rows_of([0, 1, 2]), "high_e9", 1, UNDEF_PRICE_E9)
    kept, count = drop_missing([rows, rows_of([5])])
    assert (kept[0].stamp_ns.tolist(), len(kept[1].row), count) == ([0, 2], 1, 1)


def test_rows_of_zeros_are_missing_and_negative_prices_are_not() -> None:
    empty = rows_of([0, 1], [0.0, -37.63])
    empty = Rows(**{**vars(empty), "high_e9": empty.close_e9, "low_e9": empty.close_e9, "volume": np.array([0.0, 5.0])})
    kept, count = drop_missing([empty])
    assert (kept[0].close_e9.tolist(), count) == ([-37_630_000_000], 1)


def test_a_few_impossible_rows_are_dropped() -> None:
    rows = changed(rows_of(range(200)), "high_e9", 7, 99 * E9)
    kept, notes = drop_impossible([rows], NAMES)
    assert len(kept[0].row) == 199
    assert "high and low do not enclose open and close: 1 of 200, first a.csv row 9" in notes[0]


@pytest.mark.parametrize("count", [1, 10, 99])
def test_many_impossible_rows_are_refused_with_the_first(count: int) -> None:
    # o=100 h=99 l=98 c=98.5 (TorchTrade issue 326)
    rows = changed(rows_of(range(count)), "high_e9", 0, 99 * E9)
    with pytest.raises(
        DataError, match=rf"a\.csv row 2 \(.*O 100 H 99 L 99 C 100.*\): high and low .* in 1 of {count} rows"
    ):
        drop_impossible([rows], NAMES)


def test_share_is_taken_over_all_contracts() -> None:
    thin = changed(rows_of([0]), "low_e9", 0, 101 * E9)
    kept, notes = drop_impossible([rows_of(range(150)), thin], NAMES)
    assert [len(part.row) for part in kept] == [150, 0]
    assert "1 of 151" in notes[0]


def test_negative_volume_is_refused() -> None:
    with pytest.raises(DataError, match=r"a\.csv row 3 .*volume -4\): negative volume"):
        drop_impossible([changed(rows_of([0, 1]), "volume", 1, -4.0)], NAMES)


def test_regular_bars_are_sorted_and_deduplicated() -> None:
    # 10:05, 10:01, 10:01 again with the same values (histdata.com-tools issue 128)
    rows = concat([rows_of([5 * MINUTE_NS, MINUTE_NS]), rows_of([MINUTE_NS], file_id=1)])
    kept, repeated, overlapping = regular(rows, MINUTE_NS, NAMES)
    assert (kept.stamp_ns.tolist(), repeated, overlapping) == ([MINUTE_NS, 5 * MINUTE_NS], 1, 0)


def test_conflicting_bars_are_refused_with_both_rows() -> None:
    rows = concat([rows_of([0, MINUTE_NS], [100, 101]), rows_of([MINUTE_NS], [102], file_id=1)])
    with pytest.raises(
        DataError, match=r"two different bars for one moment: a\.csv row 3 .*C 101.* and b\.csv row 2 .*C 102"
    ):
        regular(rows, MINUTE_NS, NAMES)
    volume = concat([rows_of([0]), changed(rows_of([0]), "volume", 0, 2.0)])
    with pytest.raises(DataError, match="two different bars"):
        regular(volume, MINUTE_NS, NAMES)


@settings(deadline=None)  # the machine may be busy
@given(order=st.permutations(range(12)))
def test_order_of_rows_does_not_matter(order: list[int]) -> None:
    rows = rows_of([i // 2 * MINUTE_NS for i in range(12)], [100 + i // 2 for i in range(12)])
    kept, repeated, _ = regular(take(rows, np.array(order)), MINUTE_NS, NAMES)
    assert kept.close_e9.tolist() == [(100 + i) * E9 for i in range(6)]
    assert repeated == 6


def test_bars_that_begin_inside_another_are_dropped() -> None:
    kept, _, overlapping = regular(rows_of([0, 60, 300, 359, 361]), 300, NAMES)
    assert (kept.stamp_ns.tolist(), overlapping) == ([0, 300], 3)


def test_long_bars_may_lose_an_hour_when_clocks_change() -> None:
    day_ns = 24 * HOUR_NS
    assert shortest_step_ns(day_ns) == 23 * HOUR_NS
    assert shortest_step_ns(HOUR_NS) == HOUR_NS
    kept, _, overlapping = regular(rows_of([0, 23 * HOUR_NS, 47 * HOUR_NS]), day_ns, NAMES)
    assert (len(kept.row), overlapping) == (3, 0)


@settings(deadline=None)  # the machine may be busy
@given(stamps=st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=60))
def test_irregular_stamps_become_strictly_increasing_and_lose_no_row(stamps: list[int]) -> None:
    kept, dropped = irregular(rows_of(stamps), NAMES)
    assert dropped == 0
    assert (np.diff(kept.stamp_ns) >= 1).all()
    assert (kept.stamp_ns >= np.sort(stamps)).all()
    assert kept.stamp_ns[0] == min(stamps)


def test_equal_stamps_of_tick_bars_keep_the_order_of_the_file() -> None:
    kept, _ = irregular(rows_of([10, 10, 10, 11], [1, 2, 3, 4]), NAMES)
    assert kept.stamp_ns.tolist() == [10, 11, 12, 13]
    assert kept.row.tolist() == [2, 3, 4, 5]


def test_overlapping_files_of_tick_bars_are_joined_where_they_agree() -> None:
    first, second = rows_of([1, 5, 5, 9], [1, 2, 3, 4]), rows_of([5, 5, 9, 12], [2, 3, 4, 5], file_id=1)
    for both in ([first, second], [second, first]):
        kept, dropped = irregular(concat(both), NAMES)
        assert (kept.close_e9 // E9).tolist() == [1, 2, 3, 4, 5]
        assert dropped == 3


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
