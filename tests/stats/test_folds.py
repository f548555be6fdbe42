"""Purging, embargo and combinatorial splits: values of validity.md 1.2 and 1.3, and another program."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.stats.folds import combinatorial, num_paths, purged


# validity.md 1.2, from skfolio: 16 rows, 4 folds, 2 of them tests, purge 1, embargo 1
@pytest.mark.parametrize(
    ("tests", "train"),
    [
        (((0, 4), (8, 12)), [6, 14, 15]),
        (((4, 8), (8, 12)), [0, 1, 2, 14, 15]),
        (((8, 12), (12, 16)), [0, 1, 2, 3, 4, 5, 6]),
        (((0, 4), (4, 8)), [10, 11, 12, 13, 14, 15]),
    ],
)
def test_purge_and_embargo_golden(tests, train):
    splits = {split.tests: split.train.tolist() for split in combinatorial(16, 4, 2, purge=1, embargo=1)}
    assert splits[tests] == train


# validity.md 1.3
@pytest.mark.parametrize(("folds", "test_folds", "splits", "paths"), [(6, 2, 15, 5), (10, 8, 45, 36)])
def test_numbers_of_splits_and_paths_golden(folds, test_folds, splits, paths):
    made = combinatorial(60, folds, test_folds)
    assert len(made) == splits
    assert num_paths(folds, test_folds) == paths
    tested = np.zeros(60, int)
    for split in made:
        for first, stop in split.tests:
            tested[first:stop] += 1
    assert (tested == paths).all()


@pytest.mark.parametrize(("purge", "embargo"), [(0, 0), (1, 0), (0, 2), (2, 1)])
def test_splits_are_those_of_another_program(purge, embargo):
    selection = pytest.importorskip("skfolio.model_selection", reason="skfolio is in the extra `oracles`")
    theirs = selection.CombinatorialPurgedCV(n_folds=6, n_test_folds=2, purged_size=purge, embargo_size=embargo)
    expected = [(train.tolist(), [test.tolist() for test in tests]) for train, tests in theirs.split(np.zeros((60, 1)))]
    ours = combinatorial(60, 6, 2, purge=purge, embargo=embargo)
    assert [(s.train.tolist(), [list(range(*test)) for test in s.tests]) for s in ours] == expected


@given(st.integers(2, 60), st.integers(0, 5), st.integers(0, 5), st.data())
def test_no_train_row_is_near_a_test(count, purge, embargo, data):
    first = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(first + 1, count))
    keep = purged(count, [(first, stop)], purge=purge, embargo=embargo)
    near = [row for row in range(count) if first - purge <= row < stop + purge + embargo]
    assert np.flatnonzero(~keep).tolist() == near


@pytest.mark.parametrize(
    ("count", "folds", "tests", "purge", "embargo"),
    [(16, 4, 4, 0, 0), (16, 4, 0, 0, 0), (3, 4, 2, 0, 0), (16, 4, 2, -1, 0), (16, 4, 2, 0, -1)],
)
def test_what_makes_no_split_is_refused(count, folds, tests, purge, embargo):
    with pytest.raises(DataError, match=f"{folds} folds, {tests} of them tests"):
        combinatorial(count, folds, tests, purge=purge, embargo=embargo)
