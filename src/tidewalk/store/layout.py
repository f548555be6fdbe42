"""Run folder on disk: its paths, exclusive lock, atomic writes, JSON without NaN, manifest with file hashes.

Every file is replaced whole (temporary file beside it, flush, rename, flush of the folder), so that a reader or a crash
meets the old content or the new one. POSIX only. Knows nothing of what the files mean.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from tidewalk.core.errors import StoreError, did_you_mean
from tidewalk.store.names import check_folder_name

MANIFEST_SCHEMA = 1
MANIFEST_KIND = "tidewalk-run"
CREATED = "created"
STATUSES = ("complete", "interrupted", "failed")
_TMP_RULE = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
# In the order of the fields of RunFolder.
_FILE_NAMES = (
    ".tidewalk.lock run.toml manifest.json windows.json metrics.jsonl trials.jsonl checkpoints policies "
    "equity.parquet fills.parquet trades.parquet members.parquet cost_surface.parquet "
    "summary.json report.html data_quality.json profile"
)


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, as `run_paths` builds them; that a path is named here does not mean that the file exists."""

    root: Path
    lock: Path
    config: Path
    manifest: Path
    windows: Path
    metrics: Path
    trials: Path
    checkpoints: Path
    policies: Path
    equity: Path
    fills: Path
    trades: Path
    members: Path
    cost_surface: Path
    summary: Path
    report: Path
    quality: Path
    profile: Path


@dataclass(frozen=True)
class JsonLines:
    """Readable records of a JSON-lines file in file order, and a warning for each line that is not one."""

    records: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]


def run_paths(root: Path) -> RunFolder:
    """Paths of the run folder `root`; touches nothing."""
    return RunFolder(root, *(root / name for name in _FILE_NAMES.split()))


@contextlib.contextmanager
def _reported(action: str, path: Path) -> Generator[None]:
    """Turns an error of the operating system into a StoreError that names the action, the file and the reason."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot {action}: {getattr(error, 'strerror', None) or error}.") from error


@contextlib.contextmanager
def _folder_descriptor(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_bytes_atomic(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Replaces the file by `data`, durably: after a crash at any moment it holds the old bytes or the new ones.

    Raises:
        StoreError: the write failed (full disk, rights, missing folder); the old file is still there.
    """
    tmp = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with _reported("write", path):
        try:
            with tmp.open("xb") as stream:
                stream.writelines([data] if isinstance(data, bytes) else data)
                stream.flush()
                os.fsync(stream.fileno())
            tmp.replace(path)
        finally:
            with contextlib.suppress(OSError):
                tmp.unlink(missing_ok=True)
    with _reported("make durable", path), _folder_descriptor(path.parent) as descriptor:
        os.fsync(descriptor)


def write_text_atomic(path: Path, text: str) -> None:
    """Replaces the file by `text` in UTF-8; as `write_bytes_atomic`."""
    write_bytes_atomic(path, text.encode())


def write_json_atomic(path: Path, value: object) -> None:
    """Replaces the file by `value` as indented JSON; a StoreError as of `plain_json`, or when the write failed."""
    write_text_atomic(path, json.dumps(plain_json(value, path.name), indent=2, allow_nan=False) + "\n")


def append_jsonl(path: Path, record: Mapping[str, object], *, durable: bool = True) -> None:
    """Adds the record as one line in one write, so that writers at once do not mix lines; makes a missing file.

    A line that a crash left unfinished is closed first. `durable` waits for the disk. Raises as `write_json_atomic`.
    """
    line = json.dumps(plain_json(record, path.name), allow_nan=False).encode() + b"\n"
    with _reported("append to", path), path.open("a+b", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        torn = size > 0 and os.pread(stream.fileno(), 1, size - 1) != b"\n"
        data = b"\n" + line if torn else line
        if stream.write(data) != len(data):
            raise OSError("only part of the line was written")
        if durable:
            os.fsync(stream.fileno())


def plain_json(value: Any, where: str = "value") -> Any:
    """The value in JSON's own types: dict, list, str, int, float, bool, None. Numpy scalars become plain numbers.

    Args:
        value: what is to be stored.
        where: name of the whole, which the error messages extend by keys and indices.

    Raises:
        StoreError: NaN, infinity, a key that is not a string, or another type; names its place.
    """
    if isinstance(value, np.generic):
        value = cast("Any", value).item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise StoreError(f"{where} is {value}: not a number that can be stored. Store null and give the reason.")
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        if odd := [key for key in entries if not isinstance(key, str)]:
            raise StoreError(f"{where}: key {odd[0]!r} is not a string, and JSON has no other keys.")
        return {key: plain_json(item, f"{where}.{key}") for key, item in entries.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, f"{where}[{index}]") for index, item in enumerate(cast("list[Any]", value))]
    raise StoreError(f"{where}: {type(value).__name__} has no JSON form. Give text, numbers, lists or dicts of them.")


def read_bytes(path: Path, count: int = -1) -> bytes:
    """Content of a file, or its first `count` bytes; a StoreError when it is missing, unreadable or empty."""
    if not path.exists():
        raise StoreError(f"{path}: no such file.")
    with _reported("read", path), path.open("rb") as stream:
        data = stream.read(count)
    if not data:
        raise StoreError(f"{path}: the file is empty (0 bytes): damaged after it was written. Restore it or rerun.")
    return data


def read_object(path: Path) -> dict[str, Any]:
    """Content of a JSON file; a StoreError when it is missing, empty, damaged, no object, or holds NaN or infinity."""
    try:
        value = plain_json(json.loads(read_bytes(path)), path.name)
        return dict(value.items())
    except (ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: not a JSON object ({error}): damaged or cut short. Restore it or rerun.") from error


def read_jsonl(path: Path) -> JsonLines:
    """Records of a JSON-lines file; a missing file has none. Lines that are damaged are left out and reported."""
    records: list[dict[str, Any]] = []
    warnings: list[str] = []
    lines = read_bytes(path).split(b"\n") if path.exists() and path.stat().st_size else []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = plain_json(json.loads(line), f"{path.name} line {number}")
            records.append(dict(record.items()))
        except (ValueError, AttributeError, RecursionError, StoreError) as error:
            state = "cut short" if number == len(lines) else "damaged"
            warnings.append(f"{path}: line {number} is {state} and was left out ({error})")
    return JsonLines(tuple(records), tuple(warnings))


def _process_start(pid: int) -> str | None:
    """Start mark of a living process ("" where the system does not tell), None when no such process lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if fields[0] in "ZX" else fields[19]


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": _process_start(os.getpid())}


def _read_owner(lock: Path) -> dict[str, Any] | None:
    """Owner that the lock file names; None without a file or with an empty one (its writer was killed)."""
    if not lock.exists() or lock.stat().st_size == 0:
        return None
    with contextlib.suppress(StoreError):
        owner = read_object(lock)
        pid = owner.get("pid")
        if isinstance(pid, int) and 0 < pid < 2**31 and isinstance(owner.get("host"), str):
            return owner
    raise StoreError(f"{lock}: the lock file is damaged. Delete it when no run uses this folder.")


def _is_live(owner: dict[str, Any]) -> bool:
    """Whether the owner may still run. Another host cannot be asked; a reused process id has another start mark."""
    if owner["host"] != socket.gethostname():
        return True
    started = _process_start(owner["pid"])
    return started is not None and (not started or not owner.get("started") or started == owner["started"])


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Keeps other runs out for the moment it takes to look at the lock file and replace it."""
    with _folder_descriptor(folder) as descriptor:
        # Some network file systems have no such lock; there the exclusive creation of the lock file must do.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _sweep_tmp(run: RunFolder) -> None:
    """Removes the temporary files that killed writers left in the run folder."""
    folders = [folder for folder in (run.root, run.checkpoints, run.policies, run.profile) if folder.is_dir()]
    for path in [path for folder in folders for path in folder.iterdir() if _TMP_RULE.fullmatch(path.name)]:
        path.unlink(missing_ok=True)


def lock_run(run: RunFolder) -> None:
    """Takes the run folder for this process, also from a process of this host that is gone; sweeps temporary files.

    When another process (or this one, earlier) has the folder, the StoreError names process, host and lock file.
    """
    with _reported("lock", run.root), _one_at_a_time(run.root):
        owner = _read_owner(run.lock)
        if owner is not None and _is_live(owner):
            raise StoreError(
                f"{run.root}: in use by process {owner['pid']} on host {owner['host']}. Wait for it or choose another "
                f"--out; when that process is gone for certain, delete {run.lock}."
            )
        run.lock.unlink(missing_ok=True)
        with run.lock.open("x") as stream:
            stream.write(json.dumps(_this_process()))
        _sweep_tmp(run)


def unlock_run(run: RunFolder) -> None:
    """Gives the run folder free, when this process has it; otherwise does nothing."""
    with _reported("unlock", run.root), _one_at_a_time(run.root):
        if _read_owner(run.lock) == _this_process():
            run.lock.unlink(missing_ok=True)


def _written_by_run(run: RunFolder) -> list[Path]:
    """Files that a run wrote, but for manifest, lock, ledger of trials and profile. Follows no links."""
    single = [run.config, run.windows, run.quality, run.metrics, run.equity, run.fills, run.trades, run.members]
    single += [run.cost_surface, run.fills.with_suffix(".csv"), run.trades.with_suffix(".csv"), run.summary, run.report]
    folders = [folder for folder in (run.checkpoints, run.policies) if folder.is_dir() and not folder.is_symlink()]
    stored = [path for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    return [path for path in (*single, *stored) if path.is_file() or path.is_symlink()]


def _clear(run: RunFolder, *, overwrite: bool) -> None:
    """Removes the files of an earlier run, when there is one and `overwrite` allows it."""
    empty = [folder for folder in (run.checkpoints, run.policies) if not any(folder.glob("*"))]
    if set(run.root.iterdir()) <= {run.lock, *empty}:
        return
    try:
        is_taken = is_begun(run)
    except StoreError as error:
        what = f"not empty and not a tidewalk run ({error})"
        raise StoreError(f"{run.root}: {what} Nothing was removed; choose another --out.") from error
    if is_taken and not overwrite:
        raise StoreError(f"{run.root}: holds a run already. Choose another --out, or replace it with --overwrite.")
    for path in _written_by_run(run):
        path.unlink()
    shutil.rmtree(run.profile, ignore_errors=True)


def create_run(out: Path, *, overwrite: bool) -> RunFolder:
    """Makes the run folder `out`, locked for this process, with a manifest of status "created".

    With `overwrite`, an earlier run there is removed first: the files this program wrote and no others. Its ledger of
    trials stays, because a run that is thrown away was a trial all the same.

    Raises:
        StoreError: unusable name, a link or file in the way, a folder that is not empty (and not to be overwritten, or
            not a run), in use by another process, or not writable.
    """
    check_folder_name(out.name, "--out")
    run = run_paths(out)
    with _reported("create", out):
        if any(path.is_symlink() for path in (out, run.checkpoints, run.policies, run.profile)):
            raise StoreError(f"{out}: it is, or holds, a symbolic link, which is not followed. Choose another --out.")
        out.mkdir(parents=True, exist_ok=True)
    lock_run(run)
    try:
        with _reported("prepare", out):
            _clear(run, overwrite=overwrite)
            run.checkpoints.mkdir(exist_ok=True)
            run.policies.mkdir(exist_ok=True)
        write_manifest(run, {"status": CREATED})
    except BaseException:
        unlock_run(run)
        raise
    return run


def open_run(path: Path) -> RunFolder:
    """Paths of an existing run. Takes no lock: reading is free, and who resumes calls `lock_run`.

    Raises:
        StoreError: no such run (names the nearest), or no readable manifest of a version known here.
    """
    run = run_paths(path)
    if not run.manifest.exists():
        beside = [folder.parent.name for folder in path.parent.glob("*/manifest.json")]
        raise StoreError(f"{path}: not a run folder{did_you_mean(path.name, beside)}.")
    read_manifest(run)
    return run


def write_manifest(run: RunFolder, fields: Mapping[str, object]) -> None:
    """Replaces the manifest by the fields, led by its schema version and kind; status "running" unless given."""
    kind = {"schema": MANIFEST_SCHEMA, "kind": MANIFEST_KIND}
    write_json_atomic(run.manifest, {**kind, "status": "running", **fields, **kind})


def read_manifest(run: RunFolder) -> dict[str, Any]:
    """Fields of the manifest; a StoreError when missing, damaged, of another program or of an unknown version."""
    fields = read_object(run.manifest)
    if fields.get("kind") != MANIFEST_KIND:
        raise StoreError(f"{run.manifest}: not the manifest of a tidewalk run.")
    if (version := fields.get("schema")) != MANIFEST_SCHEMA:
        known = f"this program reads {MANIFEST_SCHEMA}; use the version of tidewalk that wrote the run"
        raise StoreError(f"{run.manifest}: schema version {version!r}, {known}.")
    return fields


def is_begun(run: RunFolder) -> bool:
    """Whether a run stored its settings; before that there is nothing to lose, or to go on with."""
    return read_manifest(run).get("status") != CREATED or run.config.exists()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finish_manifest(run: RunFolder, status: str) -> None:
    """Sets the final status, one of `STATUSES`, and adds size and SHA-256 of every result file as `files`.

    Left out are the report (made anew at will), the ledger of trials (it grows) and checkpoints (hashed inside).
    """
    if status not in STATUSES:
        raise StoreError(f"manifest: status {status!r} is none of {', '.join(STATUSES)}.")
    kept = [path for path in _written_by_run(run) if path != run.report and path.parent != run.checkpoints]
    names = [path.relative_to(run.root).as_posix() for path in kept]
    with _reported("read the results of", run.root):
        hashed = [{"bytes": path.stat().st_size, "sha256": sha256_file(path)} for path in kept]
    write_manifest(run, {**read_manifest(run), "status": status, "files": dict(zip(names, hashed, strict=True))})
