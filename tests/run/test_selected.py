"""A study with some of its windows is the study that these windows make."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from support import as_nq, planted_market, small_config
from tidewalk.data.load import DataConfig
from tidewalk.run.selected import only
from tidewalk.run.study import plan_study


@functools.cache
def study():
    """Two symbols of unlike length, and windows of unlike length: 24 bars on each day of their months."""
    markets = [planted_market(days=182), as_nq(planted_market(days=213, seed=1))]
    config = dataclasses.replace(small_config(Path("data")), data=DataConfig(Path("data"), "ES.FUT,NQ.FUT"))
    return plan_study(config, markets, compose="scan")


def bars_of(study, name):
    """What the device finds in the ranges of each window."""
    market = study.resident_market()
    return [market.features[first:stop] for first, stop in getattr(study.windows, name)]


@pytest.mark.parametrize("chosen", [[0], [1, 2], [4], [3, 5], [2, 6], [0, 1, 2, 3, 4, 5, 6]])
def test_it_holds_the_same_bars_and_is_bound_to_its_own_lengths(chosen):
    whole, part = study(), only(study(), chosen)
    assert (whole.num_windows, part.num_windows) == (7, len(chosen))
    assert [window.index for leg in part.legs for window in leg.plan.windows] == list(range(len(chosen)))
    assert [leg.symbol for leg in part.leg_by_window] == [whole.leg_by_window[index].symbol for index in chosen]
    for name in ("train", "val", "test"):
        found, expected = bars_of(part, name), [bars_of(whole, name)[index] for index in chosen]
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    program, seeds = part.program, part.config.train.seeds
    for name in ("val", "test"):
        spans = getattr(part.windows, name)
        lengths = tuple(np.repeat(spans[:, 1] - spans[:, 0], seeds).tolist())
        assert getattr(program, f"{name}_lengths") == lengths
        assert getattr(program, f"{name}_bars") == max(lengths)
    np.testing.assert_array_equal(part.windows.center, np.asarray(whole.windows.center)[chosen])
    if len(chosen) == whole.num_windows:
        assert program == dataclasses.replace(whole.program, agent=program.agent)
