import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import planted_market
from tidewalk.market import entry
from tidewalk.market.device import MarketData
from tidewalk.market.entry import UnusableError, load_entry, market_bytes, save_entry

KEY = "ab" * 32


def same(one: MarketData, other: MarketData) -> bool:
    """Equal bit for bit, descriptions included."""
    if one.info != other.info:
        return False
    for field in dataclasses.fields(one):
        left, right = (getattr(market, field.name) for market in (one, other))
        if isinstance(left, np.ndarray):
            is_same = left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
            if not is_same:
                return False
        elif field.name != "info" and (left is not None or right is not None):
            return False
    return True


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("entry") / "one.market"
    save_entry(path, KEY, planted_market(days=3))
    return path


def rewritten(path: Path, change, target: Path) -> Path:
    """The entry with another header, its digest right."""
    raw = path.read_bytes()
    start = len(entry._MAGIC)
    length = int.from_bytes(raw[start : start + 8], "little")
    header = json.loads(raw[start + 40 : start + 40 + length])
    change(header)
    text = json.dumps(header).encode()
    body = raw[start + 40 + length :]
    target.write_bytes(raw[:start] + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text + body)
    return target


def test_an_entry_gives_the_market_back(saved):
    assert same(load_entry(saved, KEY), planted_market(days=3))


def test_arrays_of_several_pieces_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(entry, "_CHUNK_BYTES", 1000)
    market = planted_market(days=5)
    save_entry(tmp_path / "m", KEY, market)
    assert same(load_entry(tmp_path / "m", KEY), market)


def test_spreads_come_back_where_there_are_some(tmp_path):
    market = planted_market(days=3)
    market = dataclasses.replace(market, half_spread_ticks=np.full(market.num_bars, 0.5, np.float32))
    save_entry(tmp_path / "m", KEY, market)
    assert same(load_entry(tmp_path / "m", KEY), market)


def test_the_arrays_are_the_readers_own(saved):
    market = load_entry(saved, KEY)
    market.move_ticks[0] += 1  # not a view of the file
    assert same(load_entry(saved, KEY), planted_market(days=3))


@settings(max_examples=200)
@given(data=st.data())
def test_any_changed_byte_is_found(saved, tmp_path_factory, data):
    raw = bytearray(saved.read_bytes())
    where = data.draw(st.integers(0, len(raw) - 1) | st.integers(0, 300))
    raw[where] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("changed") / "one.market"
    path.write_bytes(raw)
    with pytest.raises(UnusableError):
        load_entry(path, KEY)


@settings(max_examples=60)
@given(data=st.data())
def test_any_other_length_is_found(saved, tmp_path_factory, data):
    raw = saved.read_bytes()
    cut = data.draw(st.integers(0, len(raw) - 1))
    path = tmp_path_factory.mktemp("cut") / "one.market"
    path.write_bytes(data.draw(st.sampled_from([raw[:cut], raw + raw[:cut] + b"x"])))
    with pytest.raises(UnusableError):
        load_entry(path, KEY)


def test_an_entry_of_another_key_is_refused_whatever_its_name(saved):
    with pytest.raises(UnusableError, match="another key"):
        load_entry(saved, "cd" * 32)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda h: h["arrays"][0].update(shape=[10**15]), "bytes where"),
        (lambda h: h["arrays"][0].update(shape=[-1]), "does not fit"),
        (lambda h: h["arrays"][0].update(shape=[True]), "does not fit"),
        (lambda h: h["arrays"][0].update(dtype="|O"), "does not fit"),
        (lambda h: h["arrays"][0].update(digests=[]), "0 digests where 1 belong"),
        (lambda h: h["arrays"][0].update(name="surprise"), "arrays do not fit"),
        (lambda h: h["arrays"][0].update(dtype="<u4"), "must be int32"),
        (lambda h: h["info"].pop("symbol"), "does not fit"),
        (lambda h: h["info"].update(later="x"), "does not fit"),
        (lambda h: h.pop("arrays"), "does not fit"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_before_memory_is_taken(saved, tmp_path, change, fact):
    path = rewritten(saved, change, tmp_path / "m")
    with pytest.raises(UnusableError, match=fact):
        load_entry(path, KEY)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_entry(tmp_path / "m", KEY, planted_market(days=3))
    assert list(tmp_path.iterdir()) == []


def test_the_size_is_told_beforehand(saved):
    market = planted_market(days=3)
    assert saved.stat().st_size <= market_bytes(market)


def test_others_cannot_read_an_entry(saved):
    assert saved.stat().st_mode & 0o077 == 0
