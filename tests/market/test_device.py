import dataclasses

import numpy as np
import pytest

from support import planted_market
from tidewalk.core.errors import DataError
from tidewalk.market.device import load_market, save_market


def test_a_saved_market_loads_equal(tmp_path):
    market = planted_market(days=10)
    save_market(tmp_path / "m.npz", market)
    again = load_market(tmp_path / "m.npz")
    assert again.info == market.info
    for field in dataclasses.fields(market):
        if field.name != "info":
            saved, loaded = getattr(market, field.name), getattr(again, field.name)
            assert saved.dtype == loaded.dtype
            assert np.array_equal(saved, loaded), field.name


def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path):
    path = tmp_path / "m.npz"
    save_market(path, planted_market(days=3))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"m\.npz is not a readable prepared market"):
        load_market(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(DataError, match=r"m\.npz is not a readable prepared market"):
        load_market(path)


def test_a_pickled_payload_is_refused_and_does_not_run(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, info=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="not a readable prepared market"):
        load_market(path)


def test_nan_features_never_pass_and_are_named():
    market = planted_market(days=3)
    features = market.features.copy()
    features[5, 2] = np.nan
    with pytest.raises(DataError, match="Feature 'f2' is not finite at bar 5"):
        dataclasses.replace(market, features=features)


def test_moves_beyond_int32_sums_are_refused():
    market = planted_market(days=3)
    with pytest.raises(DataError, match="int32 accounting"):
        dataclasses.replace(market, move_ticks=np.full(len(market.move_ticks), 2**30, np.int32))


def test_arrays_of_unequal_length_are_refused():
    market = planted_market(days=3)
    with pytest.raises(DataError, match="one length"):
        dataclasses.replace(market, flags=market.flags[:-1])


def test_arrays_that_the_device_would_narrow_are_refused():
    market = planted_market(days=3)
    with pytest.raises(DataError, match="move_ticks of a market must be int32, found int64"):
        dataclasses.replace(market, move_ticks=market.move_ticks.astype(np.int64))
