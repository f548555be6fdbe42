"""Arrays of an `.npz` archive, read as if its author meant harm.

numpy's own reader believes the header of each member and allocates what it asks for. Here every header is read and
compared with the archive's directory before the first array is, so that a file of a few bytes cannot ask for gigabytes.
"""

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tidewalk.core.errors import DataError

MAX_MEMBERS = 64
MAX_EXPANSION = 200
"""Bytes in memory per byte on disk that are believed; prepared markets have 2 to 20, an archive made to burst 1000."""
ALWAYS_BYTES = 64 * 2**20
"""So much is read whatever the expansion is: a short market of constant prices packs very well."""
_HEADER_VERSION = (1, 0)
"""The only header that arrays of numbers and texts are written with; its length is at most 65,535 bytes."""


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an archive by name, read-only.

    Raises:
        DataError: the file is missing, no `.npz`, damaged, holds something else than plain arrays, or expands to more
            than it can believably hold; nothing was unpickled and no array allocated.
    """
    if not path.exists():
        raise DataError(f"--data-dir {path}: no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_directory(members)
            headers = [_header(archive, member) for member in members]
            _check_size(path, sum(math.prod(shape) * dtype.itemsize for shape, dtype, _ in headers))
            return {
                member.filename.removesuffix(".npy"): _array(archive, member, *header)
                for member, header in zip(members, headers, strict=True)
            }
    except (OSError, EOFError, ValueError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(
            f"{path.name} is not a readable prepared market (.npz): {reason}. Prepare it again from the data files."
        ) from error


def _check_directory(members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    if len(names) > MAX_MEMBERS or len(set(names)) < len(names):
        raise ValueError(f"{len(names)} members, some of them twice or more than {MAX_MEMBERS}")
    for member in members:
        is_plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not member.flag_bits & 1
        if not member.filename.endswith(".npy") or not is_plain:
            raise ValueError(f"the member {member.filename!r} is no plain or deflated array")


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any], str]:
    """Shape, dtype and order ("C" or "F") of an array whose size is the one in the archive's directory."""
    with archive.open(member) as stream:
        if np.lib.format.read_magic(stream) != _HEADER_VERSION:
            raise ValueError(f"the header of {member.filename!r} is of another version than {_HEADER_VERSION}")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        begins = stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{member.filename!r} holds objects, which are never loaded")
    declared, there = math.prod(shape) * dtype.itemsize, member.file_size - begins
    if min(shape, default=0) < 0 or declared != there:
        raise ValueError(f"{member.filename!r} declares {dtype}{list(shape)}, {declared} bytes, and {there} are there")
    return shape, dtype, "F" if is_fortran else "C"


def _check_size(path: Path, expanded: int) -> None:
    packed = path.stat().st_size
    if expanded > max(ALWAYS_BYTES, MAX_EXPANSION * packed):
        raise ValueError(
            f"{packed} bytes would expand to {expanded}, more than {MAX_EXPANSION} times as many; no market does that"
        )


def _array(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any], order: Any
) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    with archive.open(member) as stream:
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        data = stream.read(size)  # to the end of the member, where zipfile compares its checksum
    if len(data) != size:
        raise ValueError(f"{member.filename!r} ends after {len(data)} of {size} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order=order)
