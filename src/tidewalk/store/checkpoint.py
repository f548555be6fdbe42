"""Named arrays and their description in one checked file: checkpoints of a run, policies to keep. Knows no agent.

A file is a safetensors file whose only metadata entry is `<SHA-256> <JSON>`: the hash of the JSON text, and in the text
the schema version, the kind, the caller's description and, per array, shape, dtype and SHA-256 of its bytes. A changed
bit anywhere is therefore found, which the format alone does not do. Nothing is ever unpickled.
"""

import collections
import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from tidewalk.core.errors import StoreError
from tidewalk.store.layout import plain_json, read_bytes, write_bytes_atomic
from tidewalk.store.names import check_name

CHECKPOINT_SCHEMA = 1
SUFFIX = ".safetensors"
POLICY_KEYS = ("window", "seed", "feature_names", "hidden", "version")
_ENTRY = "tidewalk"
_MOST_HEAD_BYTES = 100_000_000
"""What the format allows."""
_DTYPES = {"bool": "BOOL"} | {
    f"{kind}{bits}": f"{letter}{bits}"
    for kind, letter, widths in (
        ("int", "I", (8, 16, 32, 64)),
        ("uint", "U", (8, 16, 32, 64)),
        ("float", "F", (16, 32, 64)),
    )
    for bits in widths
}
"""numpy's name of every dtype with plain bytes -> that of the format."""
_DAMAGED = "The file is damaged: delete it and go on from an older one."
# First bytes of formats that can carry code or are often mistaken for this one.
_FOREIGN = ((b"\x80", "a pickle"), (b"PK", "a zip archive (.npz, .pt)"), (b"\x93NUMPY", "a .npy file"))

Arrays = dict[str, np.ndarray]
Named = Iterator[tuple[str, np.ndarray]]
Expected = Mapping[str, tuple[tuple[int, ...], Any]]


@dataclass(frozen=True)
class Latest:
    """Newest readable checkpoint (None without one), and a warning for each newer file that is not readable."""

    path: Path | None
    warnings: tuple[str, ...]


def _array_facts(name: str, array: Any) -> dict[str, Any]:
    """Shape, dtype and hash of an array.

    Raises:
        StoreError: not a numpy array, or of a dtype that has no plain bytes.
    """
    if not isinstance(array, np.ndarray | np.generic):
        raise StoreError(
            f"array {name!r}: {type(array).__name__} cannot be stored; bring it to the host as numpy first."
        )
    held: np.ndarray[tuple[int, ...], Any] = np.asarray(cast("Any", array))
    if held.dtype.name not in _DTYPES or not held.dtype.isnative:
        raise StoreError(f"array {name!r}: dtype {held.dtype} cannot be stored. Allowed: {', '.join(_DTYPES)}.")
    digest = hashlib.sha256(_bytes_of(held)).hexdigest()
    return {"shape": list(held.shape), "dtype": held.dtype.name, "sha256": digest}


def _bytes_of(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order; no copy where it lies so already, since a state can be gigabytes."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


def _encode(kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> Iterable[bytes | memoryview]:
    """The file in pieces, to be written one after the other; equal for equal content.

    Arrays are not copied, and none is held while another is asked for; each is asked for twice.
    """
    facts = {name: _array_facts(name, arrays[name]) for name in arrays}
    head = {"schema": CHECKPOINT_SCHEMA, "kind": kind, "meta": plain_json(meta, f"{kind} meta"), "arrays": facts}
    text = json.dumps(head, allow_nan=False)
    table: dict[str, Any] = {"__metadata__": {_ENTRY: f"{hashlib.sha256(text.encode()).hexdigest()} {text}"}}
    # wide types first, as the format asks for, so that every array is aligned to its type
    sizes = {name: np.dtype(fact["dtype"]).itemsize for name, fact in facts.items()}
    names, offset = sorted(facts, key=lambda name: (-sizes[name], name)), 0
    for name in names:
        dtype, shape = _DTYPES[facts[name]["dtype"]], facts[name]["shape"]
        stop = offset + sizes[name] * math.prod(shape)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    pieces = (_bytes_of(np.asarray(arrays[name])) for name in names)
    return itertools.chain([len(header).to_bytes(8, "little") + header], pieces)


def _head(path: Path) -> dict[str, Any]:
    """Checked description in the file's metadata, which is all that is read.

    Raises:
        StoreError: foreign format, cut short, damaged, or of an unknown schema version.
    """
    length = int.from_bytes(read_bytes(path, 8), "little")
    data = read_bytes(path, 8 + min(length, _MOST_HEAD_BYTES))
    for magic, what in _FOREIGN:
        if data.startswith(magic) and data[8:9] != b"{":
            raise StoreError(f"{path}: this is {what}, not a safetensors file. Such files are never loaded.")
    try:
        entry = json.loads(data[8 : 8 + length])["__metadata__"][_ENTRY]
        digest, _, text = entry.partition(" ")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: the header cannot be read ({len(data)} bytes, cut short?). {_DAMAGED}") from error
    if hashlib.sha256(text.encode(errors="replace")).hexdigest() != digest:
        raise StoreError(f"{path}: the description does not match its SHA-256. {_DAMAGED}")
    head: dict[str, Any] = json.loads(text)
    if not {"schema", "kind", "meta", "arrays"} <= set(head):
        raise StoreError(f"{path}: the description lacks its fixed entries. {_DAMAGED}")
    if head["schema"] != CHECKPOINT_SCHEMA:
        raise StoreError(
            f"{path}: schema version {head['schema']!r}, this program reads {CHECKPOINT_SCHEMA}. "
            "Use the version of tidewalk that wrote it."
        )
    return head


def _arrays(path: Path, facts: Mapping[str, Mapping[str, Any]]) -> Named:
    """The arrays one by one, read when they are asked for.

    Raises:
        StoreError: they are not, byte for byte, those that were saved.
    """
    try:
        with safe_open(path, "numpy") as file:
            odd = sorted(set(file.keys()) ^ set(facts))
            if odd:
                raise StoreError(f"{path}: array {odd[0]!r} is not in both the data and the description. {_DAMAGED}")
            for name in facts:
                yield name, _checked(path, name, file.get_tensor(name), facts[name])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: the arrays cannot be read ({error}). {_DAMAGED}") from error


def _checked(path: Path, name: str, array: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    if _array_facts(name, array) != facts:
        raise StoreError(f"{path}: array {name!r} is not what was saved (SHA-256, shape or dtype). {_DAMAGED}")
    return array


def _check_expected(path: Path, facts: Mapping[str, Mapping[str, Any]], expect: Expected) -> None:
    """Raises a StoreError when names, shapes or dtypes differ from those that the caller needs."""
    remedy = "It belongs to another configuration: resume with the run.toml of its own run."
    missing, extra = sorted(set(expect) - set(facts)), sorted(set(facts) - set(expect))
    if missing or extra:
        raise StoreError(f"{path}: arrays missing: {missing or 'none'}; not expected: {extra or 'none'}. {remedy}")
    for name, (shape, dtype) in expect.items():
        found, wanted = facts[name], np.dtype(dtype)
        if tuple(found["shape"]) != tuple(shape) or found["dtype"] != wanted.name:
            raise StoreError(
                f"{path}: array {name!r} is {found['dtype']} {tuple(found['shape'])}, needed is {wanted} "
                f"{tuple(shape)}. {remedy}"
            )


def _write(folder: Path, name: str, data: Iterable[bytes | memoryview]) -> Path:
    path = folder / f"{check_name(name, 'file in ' + folder.name)}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot create the folder: {error.strerror}.") from error
    write_bytes_atomic(path, data)
    return path


def _read(path: Path, kind: str, expect: Expected | None = None) -> tuple[Named, dict[str, Any]]:
    head = _head(path)
    if head["kind"] != kind:
        raise StoreError(f"{path}: this is a {head['kind']}, a {kind} is needed.")
    if expect is not None:
        _check_expected(path, head["arrays"], expect)
    return _arrays(path, head["arrays"]), head["meta"]


def save_checkpoint(folder: Path, name: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> Path:
    """Writes `folder/name.safetensors`, whole or not at all, and returns its path.

    Args:
        folder: made when missing.
        name: letters, digits, dots, underscores, hyphens. Names with a number ("epoch-12") form the series that
            `latest_checkpoint` and `prune_checkpoints` look at; names without one ("best") stay out of it.
        arrays: the whole state, host arrays of any shape; NaN is kept, since a member may have diverged. None is held
            while another is asked for, so a mapping may make each when it is.
        meta: description with a JSON form (no NaN).

    Raises:
        StoreError: an array or a meta entry that cannot be stored, or a failed write; earlier files are untouched.
    """
    return _write(folder, name, _encode("checkpoint", arrays, meta))


def load_checkpoint(path: Path, expect: Expected | None = None) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and description of a checkpoint, bit for bit as saved.

    Args:
        path: the file.
        expect: (shape, dtype) of every array that the caller needs, by name; compared exactly, nothing is cast.

    Raises:
        StoreError: missing, cut short, damaged, of another format or version, or not as expected; names the file, the
            array and the remedy.
    """
    arrays, meta = _read(path, "checkpoint", expect)
    return dict(arrays), meta


def read_checkpoint(path: Path, expect: Expected | None = None) -> tuple[Named, dict[str, Any]]:
    """As `load_checkpoint`, but the arrays come one by one, read and checked when they are asked for."""
    return _read(path, "checkpoint", expect)


def _read_through(path: Path) -> None:
    """Raises a StoreError when a checkpoint is not whole."""
    collections.deque(read_checkpoint(path)[0], maxlen=0)


def _series(folder: Path) -> list[Path]:
    """Numbered checkpoints, newest first: by the numbers in the name, never by file times."""
    numbers = {path: [int(digits) for digits in re.findall(r"\d+", path.stem)] for path in folder.glob(f"*{SUFFIX}")}
    return sorted((path for path, found in numbers.items() if found), key=lambda path: (numbers[path], path.name))[::-1]


def latest_checkpoint(folder: Path) -> Latest:
    """Newest checkpoint of the series that is whole; damaged ones are skipped and reported.

    A missing folder has none.
    """
    warnings: list[str] = []
    for path in _series(folder):
        try:
            _read_through(path)
        except StoreError as error:
            warnings.append(str(error))
            continue
        return Latest(path, tuple(warnings))
    return Latest(None, tuple(warnings))


def prune_checkpoints(folder: Path, keep: int = 2, *, written: Collection[Path] = ()) -> list[Path]:
    """Deletes the checkpoints of the series older than the newest `keep` whole ones; returns what it deleted.

    Files are read before they count, so the last good one is never deleted in favour of a damaged one. Those that the
    caller has `written` itself, whole and durably, count unread: reading gigabytes after each epoch takes seconds.
    """
    if keep < 1:
        raise StoreError(f"checkpoints to keep: {keep} given, at least 1 needed.")
    whole = 0
    deleted: list[Path] = []
    for path in _series(folder):
        if whole == keep:
            path.unlink(missing_ok=True)
            deleted.append(path)
            continue
        try:
            if path not in written:
                _read_through(path)
        except StoreError:
            continue
        whole += 1
    return deleted


def save_policy(folder: Path, name: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> Path:
    """Writes the weights of one policy and all that is needed to use them: `folder/name.safetensors`.

    Args:
        folder: made when missing.
        name: as for `save_checkpoint`.
        arrays: weights by name, and what else is numbers, as the centre and scale of the features.
        meta: must hold `window`, `seed`, `feature_names`, `hidden` (layer sizes) and `version` (of the code); more is
            allowed.

    Raises:
        StoreError: a key is missing, or as `save_checkpoint`.
    """
    missing = [key for key in POLICY_KEYS if key not in meta]
    if missing:
        raise StoreError(f"policy {name!r}: its description lacks {', '.join(missing)}.")
    return _write(folder, name, _encode("policy", arrays, meta))


def load_policy(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Weights and description of a policy, checked as `load_checkpoint` does."""
    arrays, meta = _read(path, "policy")
    return dict(arrays), meta
