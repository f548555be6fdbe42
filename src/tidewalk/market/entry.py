"""A prepared market as one file of a cache: bare arrays behind a header, a digest for every piece.

Layout: magic, length and SHA-256 of a JSON header, the header, then the arrays one after the other. Pieces are read and
checked side by side, at several GB/s, so that nothing that fails its digest is ever handed on.
"""

import dataclasses
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from tidewalk.core.errors import DataError
from tidewalk.market.device import MarketData, MarketInfo, market_info

_MAGIC = b"tidewalk market 1\n"
_DIGEST_BYTES = 32
_CHUNK_BYTES = 4 << 20
_MOST_HEADER_BYTES = 64 << 20
_WORKERS = 4


class UnusableError(Exception):
    """An entry that is damaged, or is not what its name says; the text tells how."""


@dataclasses.dataclass(frozen=True)
class _Slot:
    """One array of an entry, as its header describes it."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    digests: tuple[str, ...]
    """SHA-256 of each of its pieces, the last one shorter than the others."""

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


def market_bytes(market: MarketData) -> int:
    """About the size of the entry of a market."""
    return sum(array.nbytes for array in _arrays(market).values()) + _CHUNK_BYTES


def save_entry(path: Path, key: str, market: MarketData) -> None:
    """Write an entry under a name of its own and rename it, so that no reader sees a part of it.

    It is not forced to the disk: one that a power failure tears is found out by its digests.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    arrays = _arrays(market)
    with ThreadPoolExecutor(_WORKERS) as pool:
        slots = [
            {
                "name": name,
                "dtype": array.dtype.str,
                "shape": array.shape,
                "digests": list(pool.map(_digest, _pieces(array))),
            }
            for name, array in arrays.items()
        ]
    header = json.dumps({"key": key, "info": dataclasses.asdict(market.info), "arrays": slots}).encode()
    handle, name = tempfile.mkstemp(suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header)
            for array in arrays.values():
                file.write(_bytes(array))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_entry(path: Path, key: str) -> MarketData:
    """Read an entry, every byte of it checked, into memory of its own.

    Raises:
        FileNotFoundError: there is none.
        OSError, UnusableError: it cannot be read, is damaged, or holds something else.
    """
    with path.open("rb") as file:
        text = _header(file)
        start, size = file.tell(), os.fstat(file.fileno()).st_size
    try:
        header = json.loads(text)
        found_key, info = header["key"], market_info(header["info"])
        slots = [_slot(values) for values in header["arrays"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableError(f"its header does not fit: {error}") from error
    if found_key != key:
        _refuse("it belongs to another key")
    if start + sum(slot.nbytes for slot in slots) != size:
        _refuse(f"{size} bytes where {start + sum(slot.nbytes for slot in slots)} belong")
    return _market(path, slots, start, info)


def _market(path: Path, slots: list[_Slot], start: int, info: MarketInfo) -> MarketData:
    arrays = {slot.name: np.empty(slot.shape, slot.dtype) for slot in slots}
    tasks: list[tuple[int, memoryview, str]] = []
    for slot, array in zip(slots, arrays.values(), strict=True):
        offsets = range(start, start + slot.nbytes, _CHUNK_BYTES)
        if len(offsets) != len(slot.digests):
            _refuse(f"{len(slot.digests)} digests where {len(offsets)} belong")
        tasks += zip(offsets, _pieces(array), slot.digests, strict=True)
        start += slot.nbytes
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(functools.partial(_fill, path), (tasks[worker::_WORKERS] for worker in range(_WORKERS))))
    try:
        return MarketData(**arrays, info=info)
    except TypeError as error:
        raise UnusableError(f"its arrays do not fit: {error}") from error
    except DataError as error:
        raise UnusableError(str(error)) from error


def _header(file: BinaryIO) -> bytes:
    start = file.read(len(_MAGIC) + 8 + _DIGEST_BYTES)
    length = int.from_bytes(start[len(_MAGIC) : len(_MAGIC) + 8], "little")
    if not start.startswith(_MAGIC) or not 0 < length <= _MOST_HEADER_BYTES:
        _refuse("no entry of this format")
    text = file.read(length)
    if hashlib.sha256(text).digest() != start[len(_MAGIC) + 8 :]:
        _refuse("its header has another digest")
    return text


def _slot(values: dict[str, Any]) -> _Slot:
    dtype, shape = np.dtype(values["dtype"]), tuple(values["shape"])
    if dtype.kind not in "iuf" or not shape or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{values['name']} is {dtype}{list(shape)}")
    return _Slot(values["name"], dtype, shape, tuple(values["digests"]))


def _fill(path: Path, tasks: list[tuple[int, memoryview, str]]) -> None:
    with path.open("rb", buffering=0) as file:
        for offset, piece, digest in tasks:
            file.seek(offset)
            read = 0
            while read < len(piece) and (count := file.readinto(piece[read:])):
                read += count
            if _digest(piece) != digest:
                _refuse(f"the piece at byte {offset} has another digest")


def _refuse(reason: str) -> NoReturn:
    raise UnusableError(reason)


def _arrays(market: MarketData) -> dict[str, np.ndarray]:
    found = {field.name: getattr(market, field.name) for field in dataclasses.fields(market)}
    return {name: np.ascontiguousarray(value) for name, value in found.items() if isinstance(value, np.ndarray)}


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _pieces(array: np.ndarray) -> Iterator[memoryview]:
    whole = _bytes(array)
    return (whole[start : start + _CHUNK_BYTES] for start in range(0, len(whole), _CHUNK_BYTES))


def _digest(piece: memoryview) -> str:
    return hashlib.sha256(piece).hexdigest()
