"""Compiled programs kept between processes, in a private folder, each sealed with a digest.

jax keeps an executable under a digest of its program, its options and the versions of the compiler; this file says
where, and makes sure that what is loaded is what was compiled. An executable is machine code: one flipped bit may end
the process or change a result in silence, and whoever can write to the folder can run code as its owner. So the folder
belongs to the user alone, and an entry without its seal, or that does not match it, is removed before jax looks.
"""

import atexit
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import platform
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import zstandard
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache

from tidewalk.market.cache import OFF, VARIABLE, users_folder

LIMIT_BYTES = 256 << 20
"""Size of all entries above which the ones unused for the longest time go. A study leaves less than 1 MiB on a CPU."""
FOLDER = "compiled"

_ENTRY, _SEAL = "-cache", ".seal"
_LIBRARIES = ("tidewalk", "jax", "jaxlib")
_REQUEST, _HIT = "/jax/compilation_cache/compile_requests_use_cache", "/jax/compilation_cache/cache_hits"

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Requests:
    """Programs that were asked for since this process began, and those of them that came from the cache."""

    asked: int
    found: int


def enable(asked: str | None, say: Say) -> Path | None:
    """Let jax keep its compiled programs for later processes; to be called before the first of them is compiled.

    Args:
        asked: as for `market.cache.open_cache`: a folder or `off`; None means the environment variable
            `TIDEWALK_CACHE`, and without it the user's own cache folder.
        say: receives a line where the folder cannot be used; a cache costs time, never a study.

    Returns:
        The folder; None where nothing is kept. A folder that was given to jax itself (`JAX_COMPILATION_CACHE_DIR`)
        stays as it is.
    """
    requests()  # counts from here on
    set_before = _in_use()
    if set_before and not _is_ours(Path(set_before)):
        return Path(set_before)
    named = asked or os.environ.get(VARIABLE)
    if named == OFF:
        return None
    try:
        root = (Path(named).expanduser() if named else users_folder().parent) / FOLDER
        folder = root / _version()
        distrusted = _made(root) or _made(folder)
    except (OSError, RuntimeError) as error:
        say(f"warning: compiled programs are not kept: {getattr(error, 'strerror', None) or error} ({named or 'home'})")
        return None
    if distrusted:
        say(f"warning: compiled programs are not kept in {root}, for {distrusted}. Use --cache with your own folder.")
        return None
    _remove_damaged(folder)
    _make_room(root)
    _use(folder)
    return folder


def seal() -> None:
    """Seal the entries that were written since; those of another process that is still writing are left to it."""
    folder = _in_use()
    if not folder or not _is_ours(Path(folder)):
        return
    for entry in _entries(Path(folder)):
        seal_file = _seal_of(entry)
        with contextlib.suppress(OSError, zstandard.ZstdError):
            if not seal_file.exists():
                data = entry.read_bytes()
                zstandard.ZstdDecompressor().decompress(data)  # raises where the end is missing
                seal_file.write_text(hashlib.sha256(data).hexdigest())


def requests() -> Requests:
    """What was asked of the cache so far."""
    counts = _counts()
    return Requests(counts[_REQUEST], counts[_HIT])


@functools.cache
def _counts() -> dict[str, int]:
    counts = {_REQUEST: 0, _HIT: 0}

    def count(event: str, **_: object) -> None:
        if event in counts:
            counts[event] += 1

    monitoring.register_event_listener(count)
    return counts


def _in_use() -> str | None:
    """The folder that jax was given."""
    return jax.config.values["jax_compilation_cache_dir"]


def _is_ours(folder: Path) -> bool:
    return folder.parent.name == FOLDER and folder.name == _version()


@functools.cache
def _version() -> str:
    """Name of the folder of this software on this machine: code for another processor may not run here."""
    versions = [f"{name}-{importlib.metadata.version(name)}" for name in _LIBRARIES]
    kinds = sorted({device.device_kind for device in jax.local_devices()})
    facts = [*versions, *kinds, platform.machine(), platform.processor(), *_processor_flags()]
    return f"{versions[1]}-{hashlib.sha256(' '.join(facts).encode()).hexdigest()[:16]}"


def _processor_flags() -> list[str]:
    """Instruction sets of the processor, where the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return sorted(value.split())
    return []


def _made(folder: Path) -> str | None:
    """Make a folder where there is none.

    Returns:
        Why code from it is not to be run; None where only the user can have put it there.

    Raises:
        OSError: it cannot be made or looked at.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "geteuid"):
        return None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder.name} is a link"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it"
    for above in folder.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"others may put another in its place (in {above})"
    return None


def _entries(folder: Path) -> Iterator[Path]:
    return folder.glob(f"*{_ENTRY}")


def _seal_of(entry: Path) -> Path:
    return entry.with_name(entry.name + _SEAL)


def _remove_damaged(folder: Path) -> None:
    """Remove the entries that are not what was compiled here, and seals without one."""
    for entry in _entries(folder):
        with contextlib.suppress(OSError):
            if not _is_sound(entry):
                entry.unlink()
    for seal_file in folder.glob(f"*{_SEAL}"):
        with contextlib.suppress(OSError):
            if not seal_file.with_name(seal_file.name.removesuffix(_SEAL)).exists():
                seal_file.unlink()


def _is_sound(entry: Path) -> bool:
    try:
        before = entry.lstat()
        sealed = _seal_of(entry).read_text()
        is_sound = stat.S_ISREG(before.st_mode) and hashlib.sha256(entry.read_bytes()).hexdigest() == sealed
        os.utime(entry, ns=(before.st_atime_ns, before.st_mtime_ns))  # reading it here is no use of it
    except (OSError, UnicodeDecodeError):
        return False
    return is_sound


def _make_room(root: Path) -> None:
    """Remove entries of any version in the order of their last use, as far as the file system keeps it."""
    found = []
    for entry in root.glob(f"*/*{_ENTRY}"):
        with contextlib.suppress(OSError):
            facts = entry.lstat()
            found.append((max(facts.st_atime, facts.st_mtime), facts.st_size, entry))
    over = sum(size for _, size, _ in found) - LIMIT_BYTES
    for _, size, entry in sorted(found):
        if over <= 0:
            break
        with contextlib.suppress(OSError):
            entry.unlink()
            _seal_of(entry).unlink(missing_ok=True)
            over -= size


def _use(folder: Path) -> None:
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # The smallest programs too: loading one takes a tenth of compiling it, and a study has a dozen of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Further caches of the compiler lie beside the entries and carry no seal.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # What cannot be read or written is compiled again; a full disk is no concern of a study before it writes results.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    atexit.register(seal)
