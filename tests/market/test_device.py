import dataclasses
import json

import numpy as np
import pytest

from support import as_nq, chain_market, planted_market, planted_signs, random_half_spreads, with_half_spreads
from tidewalk.core.errors import DataError
from tidewalk.market import device
from tidewalk.market.device import end_to_end, load_market, save_market


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_saved_market_loads_equal(tmp_path, is_recorded):
    finding = {"defect": "spreads", "text": "3 spreads", "count": 412, "is_warning": False, "file": None}
    market = planted_market(days=10)
    market = dataclasses.replace(
        market, info=dataclasses.replace(market.info, quality=(finding,), files=({"path": "es.dbn", "rows_kept": 240},))
    )
    market = random_half_spreads(market) if is_recorded else market
    save_market(tmp_path / "m.npz", market)
    again = load_market(tmp_path / "m.npz")
    assert again.info == market.info
    for field in dataclasses.fields(market):
        if field.name != "info":
            saved, loaded = getattr(market, field.name), getattr(again, field.name)
            if saved is None:
                assert loaded is None
                continue
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


def test_a_market_that_contradicts_itself_is_refused(tmp_path):
    """Books count moves and flags, the ledger prices and contracts: a file in which they differ cannot be believed."""
    path, market = tmp_path / "m.npz", chain_market(planted_signs(72, 0.6), 3, 24, roll_at=48)
    moves, contracts = market.move_ticks.copy(), market.contract_id.copy()
    moves[11] += 1
    contracts[50:] = 0
    save_market(path, market)
    assert load_market(path).move_ticks.tolist() == market.move_ticks.tolist()
    save_market(path, dataclasses.replace(market, move_ticks=moves))
    with pytest.raises(DataError, match=r"m\.npz contradicts itself: at bar 11 its move is -?\d+ ticks, and its pr"):
        load_market(path)
    save_market(path, dataclasses.replace(market, contract_id=contracts))
    with pytest.raises(DataError, match=r"contradicts itself: at bar 49 its flags and its contracts do not tell"):
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


def test_a_market_of_the_format_before_spreads_and_findings_still_loads(tmp_path):
    market = planted_market(days=3)
    old = {name: value for name, value in dataclasses.asdict(market.info).items() if name not in ("quality", "files")}
    arrays = {name: getattr(market, name) for name in device._ARRAYS}
    np.savez(tmp_path / "m.npz", info=np.array(json.dumps({"format": 1, **old})), **arrays)
    assert load_market(tmp_path / "m.npz").info == market.info
    np.savez(tmp_path / "m.npz", info=np.array(json.dumps({"format": 3, **old})), **arrays)
    with pytest.raises(DataError, match=r"m\.npz has another market format than 2"):
        load_market(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tick_e9": 0}, "tick_e9 out of range"),
        ({"tick_e9": "x"}, "tick_e9 is 'x'"),
        ({"tick_e9": True}, "tick_e9 is 'True'"),
        ({"multiplier": float("inf")}, "multiplier is 'inf'"),
        ({"multiplier": -1.0}, "multiplier out of range"),
        ({"interval_ns": -5}, "interval_ns out of range"),
        ({"first_usable": -1}, "first_usable out of range"),
        ({"contracts": ["ESH4"], "rolls": [{"date": "2024-03-12"}]}, "rolls out of range or incomplete"),
        ({"contracts": [1, 2]}, "contracts is"),
        ({"contracts": []}, "contract_id of a market must be from 0 to -1"),
        ({"feature_names": ["f0"]}, "4 features and 1 names"),
        ({"surprise": 1}, "surprise"),
        ({"notes": "text"}, "notes is 'text'"),
        ({"quality": ["text"]}, "quality is"),
    ],
)
def test_a_description_that_cannot_be_is_refused_by_name(tmp_path, change, says):
    market = planted_market(days=3)
    info = json.dumps({"format": 2, **dataclasses.asdict(market.info), **change})
    np.savez(tmp_path / "m.npz", info=np.array(info), **{name: getattr(market, name) for name in device._ARRAYS})
    with pytest.raises(DataError, match=f"m.npz.*{says}"):
        load_market(tmp_path / "m.npz")


@pytest.mark.parametrize("bad", [-0.5, np.nan, np.inf])
def test_half_spreads_that_cannot_be_are_refused(bad):
    market = planted_market(days=3)
    half_ticks = np.full(market.num_bars, 0.5)
    half_ticks[7] = bad
    with pytest.raises(DataError, match=r"half spread of bar 7 \(2024-01-01T07"):
        with_half_spreads(market, half_ticks)
    with pytest.raises(DataError, match=r"must be float32\[72\]"):
        with_half_spreads(market, half_ticks[:5])


def test_bars_out_of_order_are_refused():
    market = planted_market(days=3)
    with pytest.raises(DataError, match="order of time"):
        dataclasses.replace(market, ts_ns=market.ts_ns[::-1])


def test_markets_end_to_end_keep_their_bars_and_share_no_session():
    first, second = random_half_spreads(planted_market(days=5)), random_half_spreads(as_nq(planted_market(days=4)), 1)
    both = end_to_end([first.on_device(), second.on_device()])
    seam = first.num_bars
    for name in ("move_ticks", "flags", "features", "half_spread_ticks"):
        assert np.array_equal(getattr(both, name)[:seam], getattr(first, name))
        assert np.array_equal(getattr(both, name)[seam:], getattr(second, name))
    assert both.session_id.dtype == np.int32
    assert np.unique(both.session_id).tolist() == list(range(9))
    assert (np.diff(both.session_id) >= 0).all()
    assert end_to_end([first.on_device()]).features is first.features
