"""Checkpoints: bit for bit back, every kind of damage found and named, the last good one never lost."""

import os
import pickle  # noqa: TID251 - to build the file that must be refused
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidewalk.core.errors import StoreError
from tidewalk.store import checkpoint

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()  # noqa: SIM905
META = {"epoch": 12, "config_hash": "abc", "note": "µ"}
POLICY_META = {"window": 0, "seed": 3, "feature_names": ["ret_1"], "hidden": [128], "version": "0.1.0"}


def state() -> dict[str, np.ndarray]:
    """A state of the kinds that a training run holds."""
    rng = np.random.default_rng(0)
    return {
        "agent.params.layers[0].weight": rng.standard_normal((2, 3)).astype(np.float32),
        "key": np.array([0xDEADBEEF, 7], np.uint32),
        "step": np.array(50, np.int32),
        "position": np.array([-1, 0, 1], np.int8),
        "is_alive": np.array([True, False]),
        "nothing": np.zeros((0, 4), np.float32),
        "loss": np.array([np.nan, np.inf, -0.0], np.float32),
    }


def same_bits(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return set(left) == set(right) and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def schema(arrays: dict[str, np.ndarray]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}


# --- round trip ---


def test_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = checkpoint.save_checkpoint(tmp_path / "checkpoints", "epoch-00012", state(), META)
    assert path == tmp_path / "checkpoints" / "epoch-00012.safetensors"
    arrays, meta = checkpoint.load_checkpoint(path, schema(state()))
    assert same_bits(arrays, state())
    assert arrays["step"].shape == ()
    assert meta == META


@given(st.data())
def test_any_array_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    array = data.draw(hnp.arrays(data.draw(st.sampled_from(DTYPES)), shape))
    saved = {"a": array, "turned": array.T, "part": array[..., ::2] if array.ndim else array}
    path = checkpoint.save_checkpoint(tmp_path_factory.mktemp("any"), "x", saved, {})
    assert same_bits(checkpoint.load_checkpoint(path, schema(saved))[0], saved)


def test_views_are_saved_as_they_read_and_not_as_they_lie_in_memory(tmp_path: Path) -> None:
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    views = {
        "turned": grid.T,
        "strided": grid[0, ::2],
        "backwards": grid[::-1],
        "column": grid[:, 1],
        "wide": grid[:1] * 1,
    }
    views["broadcast"] = np.broadcast_to(np.int32(7), (2, 3))
    path = checkpoint.save_checkpoint(tmp_path, "a", views, {})
    assert same_bits(checkpoint.load_checkpoint(path)[0], views)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    first = checkpoint.save_checkpoint(tmp_path, "a", state(), META).read_bytes()
    code = (
        "import sys; from pathlib import Path; import numpy as np; from tidewalk.store import checkpoint\n"
        "arrays, meta = checkpoint.load_checkpoint(Path(sys.argv[1]))\n"
        "checkpoint.save_checkpoint(Path(sys.argv[1]).parent, 'b', {k: arrays[k] for k in META_ORDER}, meta)"
    ).replace("META_ORDER", repr(list(state())))
    environment = os.environ | {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.safetensors"], check=True, env=environment)
    assert (tmp_path / "b.safetensors").read_bytes() == first


class Made(Mapping[str, np.ndarray]):
    """Arrays of a megabyte each, made when they are asked for."""

    def __getitem__(self, name: str) -> np.ndarray:
        return np.full(2**18, ord(name), np.int32)

    def __iter__(self) -> Iterator[str]:
        return iter("abcdef")

    def __len__(self) -> int:
        return 6


def test_no_array_is_held_while_another_is_written_or_read(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        path = checkpoint.save_checkpoint(tmp_path, "epoch-1", Made(), {})
        written_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        for name, array in checkpoint.read_checkpoint(path)[0]:
            assert array[0] == ord(name)
            del array
        assert checkpoint.latest_checkpoint(tmp_path).path == path
        read_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(written_bytes, read_bytes) < 1.5 * 2**20
    assert same_bits(checkpoint.load_checkpoint(path)[0], dict(Made()))


def test_what_is_not_as_expected_is_refused_before_an_array_is_read(tmp_path: Path) -> None:
    path = checkpoint.save_checkpoint(tmp_path, "epoch-1", Made(), {"epoch": 1})
    path.write_bytes(flip_data(path.read_bytes()))
    with pytest.raises(StoreError, match="not expected"):
        checkpoint.read_checkpoint(path, {})
    arrays, meta = checkpoint.read_checkpoint(path)
    assert meta == {"epoch": 1}
    assert [next(arrays)[0] for _ in range(5)] == list("abcde")
    with pytest.raises(StoreError, match="array 'f' is not what was saved"):
        next(arrays)


def test_loaded_arrays_can_be_changed(tmp_path: Path) -> None:
    arrays, _ = checkpoint.load_checkpoint(checkpoint.save_checkpoint(tmp_path, "a", state(), {}))
    arrays["key"][0] = 1
    assert arrays["key"][0] == 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["text"]), "array 'w': dtype <U4 cannot be stored. Allowed: bool, int8"),
        (np.array([object()]), "array 'w': dtype object cannot be stored"),
        (np.array([1 + 2j]), "array 'w': dtype complex128 cannot be stored"),
        (np.array([1.0], ">f4"), "array 'w': dtype >f4 cannot be stored"),
        (np.array(["2024-01-01"], "datetime64[ns]"), "dtype datetime64"),
    ],
)
def test_arrays_without_plain_bytes_are_refused(array: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        checkpoint.save_checkpoint(tmp_path, "a", {"w": array}, {})
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_meta_with_nan_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"checkpoint meta\.best\.value is nan"):
        checkpoint.save_checkpoint(tmp_path, "a", {}, {"best": {"value": np.nan}})


@pytest.mark.parametrize("name", ["../a", "", ".a", "a/b"])
def test_unsafe_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        checkpoint.save_checkpoint(tmp_path / "checkpoints", name, {}, {})
    assert list(tmp_path.iterdir()) == []


# --- damage ---


def small_checkpoint(folder: Path) -> Path:
    arrays = {"w": np.array([1.5, -2.0], np.float32), "n": np.array(3, np.int8)}
    return checkpoint.save_checkpoint(folder, "epoch-1", arrays, {"e": 1})


# A step that shares no factor with 8 meets every byte and every place in a byte.
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_single_bit_is_guarded(step: int, tmp_path: Path) -> None:
    # The format itself finds none of these in the data: 200 of 200 flips loaded as if nothing had happened.
    path = small_checkpoint(tmp_path)
    good = path.read_bytes()
    silent, unnamed = [], []
    for bit in range(0, 8 * len(good), step):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        try:
            checkpoint.load_checkpoint(path)
            silent.append(bit)
        except StoreError as error:
            unnamed += [bit] * (str(path) not in str(error))
    assert silent == unnamed == []


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = small_checkpoint(tmp_path)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(StoreError, match=r"epoch-1\.safetensors: "):
            checkpoint.load_checkpoint(path)


def flip_data(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def flip_meta(data: bytes) -> bytes:
    return data.replace(b'\\"e\\": 1', b'\\"e\\": 2')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", r"the file is empty \(0 bytes\)"),
        (lambda data: data[: len(data) // 2], r"header cannot be read .* delete it and go on from an older one"),
        (lambda data: data[:-1], r"the arrays cannot be read .* delete it and go on from an older one"),
        (lambda data: data + b"\0", "the arrays cannot be read"),
        (lambda data: bytes(len(data)), "header cannot be read"),
        (flip_data, r"array 'n' is not what was saved .* delete it and go on from an older one"),
        (flip_meta, "the description does not match its SHA-256"),
        (lambda data: b"\xff" * 8 + data[8:], "header cannot be read"),
        (lambda _: b"\x80\x04K\x01.", "this is a pickle, not a safetensors file. Such files are never loaded"),
        (lambda _: b"PK\x03\x04" + bytes(50), "this is a zip archive"),
        (lambda _: b"\x93NUMPY" + bytes(50), r"this is a \.npy file"),
        (lambda _: b"text that is no checkpoint", "header cannot be read"),
    ],
)
def test_damage_is_named_with_its_remedy(damage: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = small_checkpoint(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=message) as caught:
        checkpoint.load_checkpoint(path)
    assert str(path) in str(caught.value)


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_pickle_payload_is_refused_and_does_not_run(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    path = tmp_path / "epoch-1.safetensors"
    path.write_bytes(pickle.dumps(Payload(f"touch {mark}"), protocol=protocol))
    for load in (checkpoint.load_checkpoint, checkpoint.load_policy):
        with pytest.raises(StoreError):
            load(path)
    assert checkpoint.latest_checkpoint(tmp_path).path is None
    assert not mark.exists()
    pickle.loads(path.read_bytes())  # noqa: S301 - shows that the payload was live
    assert mark.exists()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"epoch-9\.safetensors: no such file"):
        checkpoint.load_checkpoint(tmp_path / "epoch-9.safetensors")


def test_other_schema_version_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "CHECKPOINT_SCHEMA", 2)
        path = checkpoint.save_checkpoint(tmp_path, "a", state(), {})
    with pytest.raises(StoreError, match=r"schema version 2, this program reads 1\. Use the version of tidewalk that"):
        checkpoint.load_checkpoint(path)


def test_plain_safetensors_file_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(StoreError, match="header cannot be read"):
        checkpoint.load_checkpoint(tmp_path / "w.safetensors")


# --- expectation ---


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (schema(state()) | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        (changed(key=None), r"arrays missing: none; not expected: \['key'\]\."),
        (changed(target=((2,), "float32")), r"arrays missing: \['target'\]; not expected: none\."),
        (changed(key=((3,), "uint32")), r"array 'key' is uint32 \(2,\), needed is uint32 \(3,\)\."),
        (changed(key=((2, 1), "uint32")), r"array 'key' is uint32 \(2,\), needed is uint32 \(2, 1\)\."),
        (changed(step=((1,), "int32")), r"array 'step' is int32 \(\), needed is int32 \(1,\)\."),
        # Other stores cast float32 weights into an int32 template without a word.
        (changed(key=((2,), "int32")), r"array 'key' is uint32 \(2,\), needed is int32 \(2,\)\."),
        ({}, "not expected"),
    ],
)
def test_anything_but_the_expected_arrays_is_refused(expect: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = checkpoint.save_checkpoint(tmp_path, "a", state(), META)
    with pytest.raises(StoreError, match=message) as caught:
        checkpoint.load_checkpoint(path, expect)
    assert "resume with the run.toml of its own run" in str(caught.value)


def test_expected_dtypes_may_be_numpy_types(tmp_path: Path) -> None:
    path = checkpoint.save_checkpoint(tmp_path, "a", {"w": np.zeros(2, np.float32)}, {})
    assert checkpoint.load_checkpoint(path, {"w": ((2,), np.float32)})[0]["w"].dtype == np.float32


# --- series ---


def save_series(folder: Path, *epochs: int) -> list[Path]:
    return [checkpoint.save_checkpoint(folder, f"epoch-{epoch}", {"n": np.array(epoch)}, {}) for epoch in epochs]


def test_latest_goes_by_number_and_never_by_file_time(tmp_path: Path) -> None:
    paths = save_series(tmp_path, 9, 10, 100)
    checkpoint.save_checkpoint(tmp_path, "best", {"n": np.array(0)}, {})
    for age, path in enumerate(paths):
        os.utime(path, (1e9 - age, 1e9 - age))
    assert checkpoint.latest_checkpoint(tmp_path) == checkpoint.Latest(paths[2], ())


def test_latest_of_nothing_is_none(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert checkpoint.latest_checkpoint(folder) == checkpoint.Latest(None, ())


def test_damaged_newest_falls_back_to_the_older_and_says_so(tmp_path: Path) -> None:
    paths = save_series(tmp_path, 1, 2, 3, 4)
    paths[3].write_bytes(b"")
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    found = checkpoint.latest_checkpoint(tmp_path)
    assert found.path == paths[1]
    assert ["epoch-4" in found.warnings[0], "epoch-3" in found.warnings[1]] == [True, True]
    for path in paths:
        path.write_bytes(b"")
    found = checkpoint.latest_checkpoint(tmp_path)
    assert found.path is None
    assert len(found.warnings) == 4


def test_pruning_keeps_the_newest_whole_ones_and_the_unnumbered(tmp_path: Path) -> None:
    paths = save_series(tmp_path, 8, 9, 10, 11)
    best = checkpoint.save_checkpoint(tmp_path, "best", {"n": np.array(0)}, {})
    assert checkpoint.prune_checkpoints(tmp_path) == [paths[1], paths[0]]
    assert sorted(tmp_path.iterdir()) == sorted([*paths[2:], best])
    assert checkpoint.prune_checkpoints(tmp_path) == []


def test_pruning_never_trades_a_good_one_for_a_damaged_one(tmp_path: Path) -> None:
    paths = save_series(tmp_path, 1, 2, 3, 4)
    paths[3].write_bytes(b"")
    assert checkpoint.prune_checkpoints(tmp_path, keep=2) == [paths[0]]
    paths[2].write_bytes(b"")
    assert checkpoint.prune_checkpoints(tmp_path, keep=1) == []
    assert checkpoint.latest_checkpoint(tmp_path).path == paths[1]


def test_pruning_to_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="checkpoints to keep: 0 given, at least 1"):
        checkpoint.prune_checkpoints(tmp_path, keep=0)


def test_failing_last_save_keeps_the_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A crash at the final save lost ten minutes of training elsewhere (freqtrade issue 10961).
    (good,) = save_series(tmp_path, 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"epoch-2\.safetensors: cannot write: No space left on device"):
        checkpoint.save_checkpoint(tmp_path, "epoch-2", {"n": np.array(2)}, {})
    assert list(tmp_path.iterdir()) == [good]
    assert checkpoint.latest_checkpoint(tmp_path).path == good


def test_killed_save_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    (good,) = save_series(tmp_path, 1)
    code = (
        "import os, signal, sys; from pathlib import Path; import numpy as np; from tidewalk.store import checkpoint\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "checkpoint.save_checkpoint(Path(sys.argv[1]), 'epoch-2', {'n': np.array(2)}, {})"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -signal.SIGKILL
    assert checkpoint.latest_checkpoint(tmp_path) == checkpoint.Latest(good, ())


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/checkpoints: cannot create the folder"):
        checkpoint.save_checkpoint(tmp_path / "file" / "checkpoints", "a", {}, {})


# --- policies ---


def test_policy_comes_back_with_its_description(tmp_path: Path) -> None:
    weights = {"w": np.ones((2, 3), np.float32), "scaler.center": np.zeros(1, np.float32)}
    path = checkpoint.save_policy(tmp_path / "policies", "window-00-seed-03", weights, POLICY_META)
    arrays, meta = checkpoint.load_policy(path)
    assert same_bits(arrays, weights)
    assert meta == POLICY_META


def test_policy_needs_its_description(tmp_path: Path) -> None:
    partial = {key: value for key, value in POLICY_META.items() if key not in ("seed", "hidden")}
    with pytest.raises(StoreError, match=r"policy 'p': its description lacks seed, hidden\."):
        checkpoint.save_policy(tmp_path, "p", {}, partial)


def test_policy_and_checkpoint_are_not_taken_for_each_other(tmp_path: Path) -> None:
    saved = checkpoint.save_checkpoint(tmp_path, "a", {}, {}), checkpoint.save_policy(tmp_path, "p", {}, POLICY_META)
    with pytest.raises(StoreError, match=r"a\.safetensors: this is a checkpoint, a policy is needed"):
        checkpoint.load_policy(saved[0])
    with pytest.raises(StoreError, match=r"p\.safetensors: this is a policy, a checkpoint is needed"):
        checkpoint.load_checkpoint(saved[1])
