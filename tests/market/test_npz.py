"""Archives made to do harm end in a refusal, before anything large is allocated."""

import contextlib
import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import planted_market
from tidewalk.core.errors import DataError
from tidewalk.market.device import load_market, save_market
from tidewalk.market.npz import ALWAYS_BYTES, read_npz


def header(shape: tuple[int, ...], dtype: str = "<i4", version: tuple[int, int] = (1, 0)) -> bytes:
    """An `.npy` header that promises this array."""
    out = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    if version == (1, 0):
        np.lib.format.write_array_header_1_0(out, fields)
    else:
        np.lib.format.write_array_header_2_0(out, fields)
    return out.getvalue()


def archive(path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"a.npy": header((10**12,))}, "declares int32"),
        ({"a.npy": header((2**40, 2**40)) + b"1234"}, "declares int32"),
        ({"a.npy": header((3,)) + bytes(8)}, "12 bytes, and 8 are there"),
        ({"a.npy": header((3,)) + bytes(16)}, "12 bytes, and 16 are there"),
        ({"a.npy": header((3,), "|O") + bytes(24)}, "holds objects"),
        ({"a.npy": header((3,), version=(2, 0)) + bytes(12)}, "another version"),
        ({"a.npy": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535}, ""),
        ({"a.npy": b"no array"}, ""),
        ({"a.txt": b"text"}, "'a.txt' is no plain or deflated array"),
        ({"../a.npy": header((10**12,))}, ""),
        ({f"{n}.npy": header((1,)) + bytes(4) for n in range(100)}, "100 members"),
        ({}, None),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, members, says):
    path = archive(tmp_path / "m.npz", members)
    if says is None:
        assert read_npz(path) == {}
        return
    with pytest.raises(DataError, match=f"m.npz is not a readable prepared market.*{says}"):
        read_npz(path)


def test_the_same_name_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as out:
        out.writestr("a.npy", header((1,)) + bytes(4))
        with pytest.warns(UserWarning, match="Duplicate name"):
            out.writestr("a.npy", header((1,)) + bytes(4))
    with pytest.raises(DataError, match="some of them twice"):
        read_npz(tmp_path / "m.npz")


def test_other_ways_of_packing_are_refused(tmp_path):
    path = archive(tmp_path / "m.npz", {"a.npy": header((3,)) + bytes(12)}, zipfile.ZIP_LZMA)
    with pytest.raises(DataError, match="no plain or deflated array"):
        read_npz(path)


def test_an_archive_made_to_burst_is_refused_and_needs_no_memory(tmp_path):
    """256 MiB of zeros in 260 kB, truly there: a reader that believed them would allocate them."""
    size = 4 * ALWAYS_BYTES
    path = archive(tmp_path / "bomb.npz", {"a.npy": header((size,), "|i1") + bytes(size)})
    assert path.stat().st_size < size / 900
    code = f"""
import resource
from pathlib import Path
from tidewalk.core.errors import DataError
from tidewalk.market.npz import read_npz
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_npz(Path({str(path)!r}))
except DataError as error:
    print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    said, mebibytes = done.stdout.rsplit(" ", 1)
    assert "would expand to 268435" in said
    assert int(mebibytes) < 16


def test_a_flipped_bit_in_a_stored_array_is_found_by_its_checksum(tmp_path):
    np.savez(tmp_path / "m.npz", a=np.arange(1000))  # not packed: the bytes lie in the file as they are
    raw = bytearray((tmp_path / "m.npz").read_bytes())
    raw[raw.index(np.arange(500, 504).tobytes())] ^= 1
    (tmp_path / "m.npz").write_bytes(raw)
    with pytest.raises(DataError, match="Bad CRC-32"):
        read_npz(tmp_path / "m.npz")


def test_plain_arrays_come_back_in_either_order(tmp_path):
    arrays = {"c": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.arange(6).reshape(2, 3)), "s": np.array("é")}
    np.savez_compressed(tmp_path / "m.npz", **arrays)
    found = read_npz(tmp_path / "m.npz")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("npz") / "m.npz"
    save_market(path, planted_market(days=3))
    return path


def _bytes_of(market) -> list[bytes]:
    return [getattr(market, name).tobytes() for name in ("move_ticks", "flags", "features", "ts_ns", "open_e9")]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_changed_bytes_end_in_a_refusal_or_change_nothing(whole, data):
    raw = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = whole.with_name("changed.npz")
    path.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw), len(raw) // 2]))])
    with contextlib.suppress(DataError):
        assert _bytes_of(load_market(path)) == _bytes_of(load_market(whole))
