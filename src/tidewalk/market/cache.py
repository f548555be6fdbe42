"""Prepared markets kept between studies, found by the content they were made from.

An entry is never trusted by its name or age. Its key is the SHA-256 of every byte that was read (files, roll table,
time zones), of every setting, and of the code and the libraries that did it; so a changed input is another entry. The
entry carries its key and a digest of each of its pieces, all checked as it is loaded. One that fails is made again.

Markets with a feature set of the user's own are not kept: what such code depends on cannot be known.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import stat
import sys
import time
import zoneinfo
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tidewalk.data.load import DataConfig
from tidewalk.market.device import MarketData
from tidewalk.market.entry import UnusableError, load_entry, market_bytes, save_entry
from tidewalk.market.prepare import SeriesConfig

OFF = "off"
VARIABLE = "TIDEWALK_CACHE"
"""Environment variable with the folder, or `off`, that holds where no flag is given."""
WORTH_SECONDS = 1.0
"""Shortest preparation that is worth a file in the user's own cache folder."""
LIMIT_BYTES = 16 << 30
"""Size of all entries above which the ones unused for the longest time go."""
MOST_INPUT_BYTES = 16 << 30
"""Input above which its content is not digested: that would take longer than it can save."""

_STALE_SECONDS = 86_400
_WORKERS = 4
_PARTS = ("core", "data", "market")
_LIBRARIES = ("tidewalk", "numpy", "polars", "databento-dbn", "zstandard", "tzdata")
_ZONE = re.compile(rb'"([A-Z][A-Za-z]+/[A-Za-z_+\-0-9/]+)"')

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cache:
    """Where prepared markets are kept."""

    folder: Path
    keeps_all: bool = False
    """Whether markets that are quick to prepare are kept too."""
    limit_bytes: int = LIMIT_BYTES


def open_cache(asked: str | None, say: Say) -> Cache | None:
    """The cache to use, None for none.

    Args:
        asked: a folder or `off`; None means the environment variable `TIDEWALK_CACHE`, and without it the user's own
            cache folder.
        say: receives a line where the folder cannot be used.
    """
    named = asked or os.environ.get(VARIABLE)
    if named == OFF:
        return None
    try:
        folder = Path(named).expanduser() if named else users_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError) as error:
        say(f"warning: no cache of prepared markets: {getattr(error, 'strerror', None) or error} ({named or 'home'})")
        return None
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        say(f"warning: {folder} is not used as a cache: others may write to it. Use --cache with a folder of your own.")
        return None
    return Cache(folder, keeps_all=named is not None)


def users_folder() -> Path:
    """The folder for caches by the rule of the platform (XDG base directories, or macOS)."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tidewalk" / "markets"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "tidewalk" / "markets"


def cached(
    cache: Cache | None, data: DataConfig, series: SeriesConfig, build: Callable[[], MarketData], say: Say
) -> MarketData:
    """A market from the cache, or built and kept there.

    A cache that cannot be read or written costs time and a line, never the study.

    Args:
        cache: from `open_cache`.
        data: which files, and how they are read.
        series: how they become a market.
        build: makes the market; its errors pass.
        say: receives a line where an entry is used, damaged or cannot be written.
    """
    key = market_key(data, series) if cache else None
    if cache is None or key is None:
        return build()
    path = cache.folder / f"{key}.market"
    found = _kept(path, key, say)
    if found is not None:
        return found
    start = time.monotonic()
    market = build()
    is_worth_it = cache.keeps_all or time.monotonic() - start >= WORTH_SECONDS
    # A file that changed while it was read must not be kept under what it was before.
    if is_worth_it and market_key(data, series) == key:
        _keep(cache, path, key, market, say)
    return market


def _kept(path: Path, key: str, say: Say) -> MarketData | None:
    try:
        market = load_entry(path, key)
    except FileNotFoundError:
        return None
    except (OSError, UnusableError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        say(f"warning: {key[:12]} in the cache {path.parent} is damaged ({reason}); it is prepared again.")
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # when it was last used, for eviction
    say(f"prepared before from the same files: {key[:12]} in the cache {path.parent}")
    return market


def _keep(cache: Cache, path: Path, key: str, market: MarketData, say: Say) -> None:
    size = market_bytes(market)
    if size > cache.limit_bytes:
        return
    try:
        _make_room(cache, size, besides=path)
        save_entry(path, key, market)
    except OSError as error:
        say(f"warning: the prepared market is not kept in {cache.folder}: {error.strerror or error}.")


def _make_room(cache: Cache, size: int, *, besides: Path) -> None:
    """Removes what a killed process left half written, and entries in the order of their last use."""
    now, entries = time.time(), []
    for path in cache.folder.iterdir():
        with contextlib.suppress(OSError):
            found = path.stat()
            if path.suffix == ".partial" and now - found.st_mtime > _STALE_SECONDS:
                path.unlink()
            elif path.suffix == ".market" and path != besides:
                entries.append((found.st_mtime, found.st_size, path))
    over = sum(entry_size for _, entry_size, _ in entries) + size - cache.limit_bytes
    for _, entry_size, path in sorted(entries):
        if over <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            over -= entry_size


def market_key(data: DataConfig, series: SeriesConfig) -> str | None:
    """SHA-256 of everything that a market depends on; None where that cannot be known.

    Names of files are part of it, for they tell text files apart and stand in the notes; dates and order are not.
    """
    if series.features is not None:
        return None
    try:
        code, zones = _code()
        values = {
            "files": _files(data.data_dir),
            "is_folder": data.data_dir.is_dir(),
            "data": {k: v for k, v in dataclasses.asdict(data).items() if k != "data_dir"},
            "series": dataclasses.asdict(series),
            "roll_table": _roll_table(series.roll),
            "code": code,
            "zones": {name: _zone_digest(name) for name in sorted({*zones, data.tz or "UTC"})},
            "libraries": _versions(),
        }
    except OSError:
        return None  # what cannot be read is for the readers to say
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def _files(data_dir: Path) -> list[tuple[str, str]]:
    """Name and digest of every file, and names of what is none.

    Raises:
        OSError: nothing is there, a file cannot be read, or there is too much to digest.
    """
    paths = sorted(data_dir.iterdir()) if data_dir.is_dir() else [data_dir]
    plain = [path for path in paths if path.is_file()]
    if not plain or sum(path.stat().st_size for path in plain) > MOST_INPUT_BYTES:
        raise OSError("nothing to digest, or too much")
    with ThreadPoolExecutor(_WORKERS) as pool:
        digests = dict(zip(plain, pool.map(_file_digest, plain), strict=True))
    return [(path.name, digests.get(path, "folder" if path.is_dir() else "none")) for path in paths]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _roll_table(rule: str) -> str | None:
    name, _, table = rule.partition(":")
    return _file_digest(Path(table)) if name == "table" and table else None


@functools.cache
def _code() -> tuple[str, tuple[str, ...]]:
    """Digest of all that reads and prepares, and the time zones named in it.

    Raises:
        OSError: the sources are not there as files.
    """
    package = Path(__file__).parents[1]
    digest, zones = hashlib.sha256(), set[str]()
    for part in _PARTS:
        for path in sorted((package / part).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                source = path.read_bytes()
                digest.update(f"{path.relative_to(package)} {len(source)}\n".encode() + source)
                zones.update(name.decode() for name in _ZONE.findall(source))
    if not zones:
        raise OSError("no sources")
    return digest.hexdigest(), tuple(zones)


@functools.cache
def _zone_digest(name: str) -> str | None:
    """Digest of a zone's rules where the system keeps them; the version of the package `tzdata` stands for its own."""
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return _file_digest(path)
    return None


@functools.cache
def _versions() -> tuple[str, ...]:
    found = [platform.python_version(), platform.machine()]
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return tuple(found)
