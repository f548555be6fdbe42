"""Combinatorial purged cross-validation (López de Prado, Advances in Financial Machine Learning, ch. 7 and 12).

For research on records that lie side by side, such as features against later returns. No study of tidewalk trains this
way: train rows may lie after test rows, so what comes out is a check of robustness and cannot be traded.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError


@dataclass(frozen=True)
class Split:
    """Rows to train on and the folds `[first, stop)` to test on."""

    train: NDArray[np.int64]
    tests: tuple[tuple[int, int], ...]


def purged(count: int, tests: Sequence[tuple[int, int]], *, purge: int, embargo: int) -> NDArray[np.bool_]:
    """Rows that may be trained on beside the tests, bool `[count]`.

    Args:
        count: number of rows.
        tests: half-open ranges of test rows.
        purge: rows that a label reaches over: so many are dropped before a test and after it, and none of the test.
        embargo: rows dropped after a test beyond those.
    """
    keep = np.ones(count, np.bool_)
    for first, stop in tests:
        keep[max(first - purge, 0) : stop + purge + embargo] = False
    return keep


def combinatorial(count: int, folds: int, test_folds: int, *, purge: int = 0, embargo: int = 0) -> tuple[Split, ...]:
    """Every choice of test folds, C(folds, test_folds) splits, in lexical order.

    Raises:
        DataError: numbers of folds that make no split, or a negative purge or embargo.
    """
    if not 1 <= test_folds < folds <= count or purge < 0 or embargo < 0:
        raise DataError(
            f"{count} rows, {folds} folds, {test_folds} of them tests, purge {purge}, embargo {embargo}: at least one "
            "fold must be left to train on, a fold needs a row, and purge and embargo are 0 or more"
        )
    edges = np.linspace(0, count, folds + 1).astype(np.int64).tolist()
    ranges = list(itertools.pairwise(edges))
    return tuple(
        Split(np.flatnonzero(purged(count, tests, purge=purge, embargo=embargo)), tests)
        for tests in itertools.combinations(ranges, test_folds)
    )


def num_paths(folds: int, test_folds: int) -> int:
    """Whole records that the splits make together: each fold is tested in so many of them."""
    return math.comb(folds, test_folds) * test_folds // folds
