"""Run folder: names, locks, atomic writes under every kind of failure, manifest."""

import errno
import fcntl
import io
import json
import math
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.core.errors import StoreError
from tidewalk.store import layout

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def run_python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def finished_run(folder: Path, *, windows: int = 5) -> layout.RunFolder:
    run = layout.create_run(folder, overwrite=False)
    for window in range(windows):
        (run.policies / f"window-{window}.safetensors").write_bytes(b"weights")
    (run.checkpoints / "epoch-1.safetensors").write_bytes(b"state")
    for path in (run.config, run.windows, run.metrics, run.equity, run.trades, run.members, run.summary, run.report):
        path.write_text(f"{path.name} of run A")
    layout.append_jsonl(run.trials, {"config_hash": "a"})
    layout.finish_manifest(run, "complete")
    layout.unlock_run(run)
    return run


# --- paths and names ---


def test_paths_are_those_of_the_documented_run_folder() -> None:
    run = layout.run_paths(Path("runs/x"))
    names = {field: path.name for field, path in vars(run).items() if field != "root"}
    assert names == {
        "lock": ".tidewalk.lock",
        "config": "run.toml",
        "manifest": "manifest.json",
        "windows": "windows.json",
        "metrics": "metrics.jsonl",
        "trials": "trials.jsonl",
        "checkpoints": "checkpoints",
        "policies": "policies",
        "equity": "equity.parquet",
        "fills": "fills.parquet",
        "trades": "trades.parquet",
        "members": "members.parquet",
        "cost_surface": "cost_surface.parquet",
        "summary": "summary.json",
        "report": "report.html",
        "profile": "profile",
        "quality": "data_quality.json",
    }
    assert all(path.parent == Path("runs/x") for field, path in vars(run).items() if field != "root")


@pytest.mark.parametrize("name", ["a", "2024-01-02-dqn-ES.FUT", "A_b", "x" * 64, "läuf 1", "la\u0308uf", "试验2", "9é"])
def test_usable_names(name: str, tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / name, overwrite=False)
    assert run.manifest.is_file()
    assert run.checkpoints.is_dir()
    assert run.policies.is_dir()


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "-x", "a ", "a.", " a", "x" * 65, "\u0308a", "a\n", "a\0b", "a:b", "a\u202eb", "\udc80b"]
)
def test_unusable_names_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"--out: the name .* cannot be used\. Allowed are 1 to 64 letters"):
        layout.create_run(tmp_path / "runs" / name, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_odd_parents_are_fine(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "my runs [é] *" / "a", overwrite=False)
    assert layout.open_run(run.root) == run


def test_parent_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot create"):
        layout.create_run(tmp_path / "a\0b" / "run", overwrite=False)


@pytest.mark.parametrize("part", ["", "checkpoints", "policies"])
def test_links_are_not_followed(part: str, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    out = tmp_path / "run"
    if part:
        out.mkdir()
    (out / part if part else out).symlink_to(target)
    with pytest.raises(StoreError, match="symbolic link, which is not followed"):
        layout.create_run(out, overwrite=True)
    assert list(target.iterdir()) == []


def test_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("notes")
    with pytest.raises(StoreError, match=r"run: cannot create: File exists"):
        layout.create_run(tmp_path / "run", overwrite=True)
    with pytest.raises(StoreError, match=r"cannot create: Not a directory"):
        layout.create_run(tmp_path / "run" / "sub", overwrite=True)
    assert (tmp_path / "run").read_text() == "notes"


# --- create, overwrite, open ---


def test_existing_run_is_refused_without_overwrite(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    before = {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()}
    with pytest.raises(
        StoreError, match=r"a: holds a run already\. Choose another --out, or replace it with --overwrite"
    ):
        layout.create_run(run.root, overwrite=False)
    assert {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("left", ["folders", "manifest"])
def test_a_run_that_was_killed_before_it_stored_anything_is_replaced_unasked(tmp_path: Path, left: str) -> None:
    run = layout.create_run(tmp_path / "a", overwrite=False)
    layout.unlock_run(run)
    assert not layout.is_begun(run)
    if left == "folders":
        run.manifest.unlink()
    layout.unlock_run(layout.create_run(run.root, overwrite=False))
    layout.write_text_atomic(run.config, "")
    assert layout.is_begun(run)
    with pytest.raises(StoreError, match="holds a run already"):
        layout.create_run(run.root, overwrite=False)
    layout.unlock_run(run)
    (run.policies / "mine").touch()
    run.manifest.unlink()
    run.config.unlink()
    with pytest.raises(StoreError, match="not empty and not a tidewalk run"):
        layout.create_run(run.root, overwrite=False)


def test_overwrite_leaves_nothing_of_the_earlier_run_but_its_trials(tmp_path: Path) -> None:
    # A bigger earlier run must not show in the report of a smaller one (aequitas 166, SurvTRACE 9).
    earlier = finished_run(tmp_path / "a", windows=5)
    run = layout.create_run(earlier.root, overwrite=True)
    left = sorted(path.relative_to(run.root).as_posix() for path in run.root.rglob("*") if path.is_file())
    assert left == [".tidewalk.lock", "manifest.json", "trials.jsonl"]
    assert layout.read_manifest(run) == {"schema": 1, "kind": "tidewalk-run", "status": "created"}
    assert layout.read_jsonl(run.trials).records == ({"config_hash": "a"},)


def test_overwrite_keeps_what_no_run_wrote(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    foreign = [run.root / "notes.txt", run.policies / "mine.onnx", run.root / "plots" / "x.png"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    layout.create_run(run.root, overwrite=True)
    assert all(path.read_text() == "mine" for path in foreign)
    assert not run.equity.exists()


def test_overwrite_removes_a_link_and_not_its_target(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    target = tmp_path / "precious.html"
    target.write_text("keep")
    run.report.unlink()
    run.report.symlink_to(target)
    layout.create_run(run.root, overwrite=True)
    assert not run.report.is_symlink()
    assert target.read_text() == "keep"


@pytest.mark.parametrize(
    "manifest", [None, "", "{", "[]", '{"kind": "other"}', '{"kind": "tidewalk-run", "schema": 99}']
)
@pytest.mark.parametrize("options", [{"overwrite": False}, {"overwrite": True}])
def test_folder_that_is_no_run_is_never_cleared(manifest: str | None, options: dict[str, bool], tmp_path: Path) -> None:
    out = tmp_path / "documents"
    out.mkdir()
    (out / "summary.json").write_text("mine")
    if manifest is not None:
        (out / "manifest.json").write_text(manifest)
    names = sorted(path.name for path in out.iterdir())
    with pytest.raises(StoreError, match=r"not empty and not a tidewalk run .* Nothing was removed"):
        layout.create_run(out, **options)
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "summary.json").read_text() == "mine"


def test_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert layout.create_run(tmp_path / "a", overwrite=False).manifest.is_file()


def test_open_names_the_nearest_run(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "2024-dqn-es")
    assert layout.open_run(run.root) == run
    with pytest.raises(StoreError, match=r"2024-dqn-e: not a run folder \(did you mean 2024-dqn-es\?\)"):
        layout.open_run(tmp_path / "2024-dqn-e")
    with pytest.raises(StoreError, match="not a run folder"):
        layout.open_run(tmp_path / "missing" / "run")
    with pytest.raises(StoreError, match="not a run folder"):
        layout.open_run(tmp_path)


# --- lock ---


def test_second_run_is_refused_and_told_who_has_the_folder(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "a", overwrite=False)
    code = (
        "import sys; from pathlib import Path; from tidewalk.store import layout\n"
        "try: layout.create_run(Path(sys.argv[1]), overwrite=True)\n"
        "except Exception as error: print(error)"
    )
    said = run_python(code, run.root).stdout
    assert f"in use by process {os.getpid()} on host {socket.gethostname()}" in said
    assert str(run.lock) in said
    layout.unlock_run(run)
    assert run_python(code, run.root).stdout == ""


def test_same_process_cannot_take_a_folder_twice(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "a", overwrite=False)
    with pytest.raises(StoreError, match="in use by process"):
        layout.lock_run(run)
    layout.unlock_run(run)
    layout.lock_run(run)


def test_lock_of_a_killed_run_is_recovered_and_its_leftovers_swept(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path; from tidewalk.store import layout\n"
        "run = layout.create_run(Path(sys.argv[1]), overwrite=False)\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "layout.write_text_atomic(run.checkpoints / 'epoch-1.safetensors', 'half')"
    )
    run = layout.run_paths(tmp_path / "a")
    assert run_python(code, run.root).returncode == -9
    assert run.lock.exists()
    assert [path.suffix for path in run.checkpoints.iterdir()] == [".tmp"]
    layout.lock_run(layout.open_run(run.root))
    assert list(run.checkpoints.iterdir()) == []
    assert json.loads(run.lock.read_text())["pid"] == os.getpid()


def test_lock_of_a_dead_process_that_nobody_waited_for_is_recovered(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tidewalk.store import layout\n"
        "layout.create_run(Path(sys.argv[1]), overwrite=False)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path / "a"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still in the table of processes
    os.kill(child.pid, 0)
    run = layout.open_run(tmp_path / "a")
    assert json.loads(run.lock.read_text())["pid"] == child.pid
    layout.lock_run(run)
    child.wait()


def test_lock_is_looked_at_and_replaced_by_one_process_at_a_time(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    code = (
        "import sys; from pathlib import Path; from tidewalk.store import layout\n"
        "run = layout.open_run(Path(sys.argv[1])); print('ready', flush=True); layout.lock_run(run)"
    )
    folder = os.open(run.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with subprocess.Popen([sys.executable, "-c", code, run.root], stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
        assert not run.lock.exists()
        os.close(folder)
        assert other.wait(10) == 0
    assert run.lock.exists()


def test_run_killed_before_its_manifest_leaves_a_usable_folder(tmp_path: Path) -> None:
    out = tmp_path / "a"
    out.mkdir()
    layout.run_paths(out).lock.write_text(json.dumps({"pid": dead_pid(), "host": socket.gethostname(), "started": "1"}))
    assert layout.create_run(out, overwrite=False).manifest.is_file()


@pytest.mark.parametrize("content", ["", '{"pid": PID, "host": "HOST", "started": "0"}'])
def test_lock_cut_short_or_of_a_reused_process_id_is_recovered(content: str, tmp_path: Path) -> None:
    # This process lives, but did not start at "0": its id was used by another one before.
    run = finished_run(tmp_path / "a")
    run.lock.write_text(content.replace("PID", str(os.getpid())).replace("HOST", socket.gethostname()))
    layout.lock_run(run)
    assert json.loads(run.lock.read_text())["started"] != "0"


def test_lock_of_another_host_stands(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    run.lock.write_text(json.dumps({"pid": dead_pid(), "host": "gpu-7", "started": None}))
    with pytest.raises(StoreError, match=r"in use by process \d+ on host gpu-7\. .* delete .*\.tidewalk\.lock"):
        layout.lock_run(run)


@pytest.mark.parametrize("content", ["garbage", "[]", "{}", '{"pid": -1, "host": "a"}', '{"pid": 1e999, "host": "a"}'])
def test_damaged_lock_is_named(content: str, tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    run.lock.write_text(content)
    with pytest.raises(StoreError, match=r"\.tidewalk\.lock: the lock file is damaged\. Delete it when no run uses"):
        layout.lock_run(run)


def test_unlock_leaves_the_lock_of_others(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    layout.unlock_run(run)
    run.lock.write_text(json.dumps({"pid": 1, "host": "gpu-7", "started": "5"}))
    layout.unlock_run(run)
    assert run.lock.exists()


def test_failed_create_gives_the_folder_free(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    with pytest.raises(StoreError, match="holds a run already"):
        layout.create_run(run.root, overwrite=False)
    assert not run.lock.exists()


def test_only_one_of_many_runs_started_at_once_gets_the_folder(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    run.lock.write_text(json.dumps({"pid": dead_pid(), "host": socket.gethostname(), "started": "1"}))
    code = (
        "import sys; from pathlib import Path; from tidewalk.store import layout\n"
        "run = layout.open_run(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.readline()\n"
        "try: layout.lock_run(run); print('mine', flush=True)\n"
        "except Exception: print('refused', flush=True)\n"
        "sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(run.root)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 4
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
    finally:
        for racer in racers:
            racer.communicate("bye\n", timeout=30)
    assert sorted(said) == ["mine", "refused", "refused", "refused"]


# --- atomic writes ---


@contextmanager
def failing_call(number: int, error: int) -> Iterator[list[int]]:
    """Lets the n-th call of open, write, fsync or rename fail; yields the count of calls."""
    calls = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                raise OSError(error, os.strerror(error))
            return real(*args, **kwargs)

        return call

    class Stream(io.FileIO):
        write = counted(io.FileIO.write)  # type: ignore[assignment]

    def open_stream(path: Path, mode: str = "r", **_: Any) -> Any:
        return Stream(path, mode.replace("b", ""))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", counted(open_stream))
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(os, "fsync", counted(os.fsync))
        patch.setattr(os, "open", counted(os.open))
        yield calls


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_any_failing_call_leaves_the_old_file_or_the_new_one(error: int, tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    failures: list[str] = []
    for number in range(1, 20):
        path.write_bytes(b"old")
        with failing_call(number, error) as calls:
            try:
                layout.write_bytes_atomic(path, b"new")
            except StoreError as caught:
                failures.append(str(caught))
        assert path.read_bytes() in (b"old", b"new")
        assert [found.name for found in tmp_path.iterdir()] == ["summary.json"]
        if calls[0] < number:
            break
        assert (path.read_bytes() == b"old") == (number <= 4)
    assert len(failures) == 6  # open, write, fsync, rename; then open and fsync of the folder
    assert all("summary.json: cannot" in text and os.strerror(error) in text for text in failures)
    assert path.read_bytes() == b"new"


def test_write_is_durable_before_it_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def traced_fsync(descriptor: int) -> None:
        order.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync file")  # noqa: PTH112
        fsync(descriptor)

    def traced_replace(path: Path, target: Path) -> Path:
        order.append("rename")
        assert path.parent == target.parent
        assert path.read_bytes() == b"content"
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "replace", traced_replace)
    layout.write_bytes_atomic(tmp_path / "x", b"content")
    assert order == ["fsync file", "rename", "fsync folder"]


def test_kill_between_temporary_file_and_rename_leaves_the_previous_state(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{"epoch": 1}')
    code = (
        "import os, signal, sys; from pathlib import Path; from tidewalk.store import layout\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "layout.write_json_atomic(Path(sys.argv[1]), {'epoch': 2})"
    )
    assert run_python(code, path).returncode == -9
    assert layout.read_object(path) == {"epoch": 1}
    left = [found for found in tmp_path.iterdir() if found != path]
    assert len(left) == 1
    layout.write_json_atomic(path, {"epoch": 3})
    assert layout.read_object(path) == {"epoch": 3}


def test_temporary_file_in_the_way_does_not_stop_a_save(tmp_path: Path) -> None:
    # A left-over temporary name made later saves fail for good (openpi issue 566).
    (tmp_path / "30000.tmp").mkdir()
    (tmp_path / ".30000.tmp").write_text("old")
    layout.write_text_atomic(tmp_path / "30000", "state")
    assert (tmp_path / "30000").read_text() == "state"


def test_full_disk_is_reported_and_harmless(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    path.write_bytes(b"old")
    code = (
        "import resource, sys; from pathlib import Path; from tidewalk.store import layout\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "try: layout.write_bytes_atomic(Path(sys.argv[1]), bytes(100_000))\n"
        "except layout.StoreError as error: print(error)"
    )
    assert "state.bin: cannot write: File too large" in run_python(code, path).stdout
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        layout.write_text_atomic(tmp_path / "x", "text")
    assert list(tmp_path.iterdir()) == []


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        layout.write_text_atomic(tmp_path / "x", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


# --- JSON ---


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=5))
def test_json_survives_the_round_trip(value: dict[str, Any]) -> None:
    assert json.loads(json.dumps(layout.plain_json(value), allow_nan=False)) == value


def test_json_is_stable_and_keeps_the_order_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    layout.write_json_atomic(path, {"z": 1, "a": [1.5, None, True], "µ": "é"})
    assert (
        path.read_bytes() == b'{\n  "z": 1,\n  "a": [\n    1.5,\n    null,\n    true\n  ],\n  "\\u00b5": "\\u00e9"\n}\n'
    )
    assert list(layout.read_object(path)) == ["z", "a", "µ"]


def test_numpy_scalars_become_plain_numbers() -> None:
    found = layout.plain_json({"i": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True), "s": np.str_("x")})
    assert found == {"i": 3, "f": 0.5, "b": True, "s": "x"}
    assert [type(item) for item in found.values()] == [int, float, bool, str]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_nan_is_refused_with_the_path_of_its_key(bad: float, tmp_path: Path) -> None:
    value = {"oos": {"sharpe_ci90": [0.1, bad]}}
    with pytest.raises(StoreError, match=r"summary\.json\.oos\.sharpe_ci90\[1\] is -?(nan|inf): .*Store null"):
        layout.write_json_atomic(tmp_path / "summary.json", value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {1: 2}}, r"value\.a: key 1 is not a string"),
        ({"a": np.zeros(2)}, r"value\.a: ndarray has no JSON form"),
        ({"a": [Path("x")]}, r"value\.a\[0\]: PosixPath has no JSON form"),
        ({"a": {1, 2}}, r"value\.a: set has no JSON form"),
        ({"a": np.longdouble(1)}, r"value\.a: longdouble has no JSON form"),
        ({"a": np.datetime64("2024-01-01")}, r"value\.a: date has no JSON form"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_named(value: object, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        layout.plain_json(value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"x\.json: no such file"),
        (b"", r"x\.json: the file is empty \(0 bytes\)"),
        (b'{"a": 1', r"x\.json: not a JSON object .*damaged or cut short"),
        (b"[1]", r"x\.json: not a JSON object"),
        (b"\xff\xfe\x00", r"x\.json: not a JSON object"),
        (b'{"a": NaN}', r"x\.json\.a is nan"),
        (b'{"a": [1e999]}', r"x\.json\.a\[0\] is inf"),
        (b"[" * 100_000, r"x\.json: not a JSON object"),
    ],
)
def test_damaged_json_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(StoreError, match=message):
        layout.read_object(tmp_path / "x.json")


# --- JSON lines ---


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert layout.read_jsonl(path) == layout.JsonLines((), ())
    for epoch in range(3):
        layout.append_jsonl(path, {"epoch": epoch}, durable=bool(epoch % 2))
    assert path.read_text() == '{"epoch": 0}\n{"epoch": 1}\n{"epoch": 2}\n'
    assert layout.read_jsonl(path) == layout.JsonLines(({"epoch": 0}, {"epoch": 1}, {"epoch": 2}), ())


@pytest.mark.parametrize("cut", range(1, 13))
def test_torn_last_line_is_reported_and_costs_itself_only(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    layout.append_jsonl(path, {"epoch": 1})
    layout.append_jsonl(path, {"epoch": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    whole = ({"epoch": 1}, {"epoch": 2}) if cut == 1 else ({"epoch": 1},)
    found = layout.read_jsonl(path)
    assert found.records == whole
    assert [("line 2 is cut short and was left out" in warning) for warning in found.warnings] == [True] * (cut != 1)
    layout.append_jsonl(path, {"epoch": 3})
    assert layout.read_jsonl(path).records == (*whole, {"epoch": 3})


def test_line_that_is_no_object_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'[1]\n\n{"a": NaN}\n\xff\n{"a": 1}\n')
    found = layout.read_jsonl(path)
    assert found.records == ({"a": 1},)
    assert [warning.split(": ")[1].split(" and")[0] for warning in found.warnings] == [
        "line 1 is damaged",
        "line 3 is damaged",
        "line 4 is damaged",
    ]


def test_half_written_line_is_an_error_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = (
        "import resource, sys; from pathlib import Path; from tidewalk.store import layout\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))\n"
        "layout.append_jsonl(Path(sys.argv[1]), {'epoch': 1})\n"
        "try: layout.append_jsonl(Path(sys.argv[1]), {'text': 'x' * 100})\n"
        "except layout.StoreError as error: print(error)"
    )
    assert "metrics.jsonl: cannot append to: only part of the line was written" in run_python(code, path).stdout
    layout.append_jsonl(path, {"epoch": 2})
    assert layout.read_jsonl(path).records == ({"epoch": 1}, {"epoch": 2})


# --- manifest ---


def test_manifest_leads_with_schema_and_kind(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "a", overwrite=False)
    layout.write_manifest(run, {"versions": {"jax": "0.10.2"}, "schema": 7})
    assert list(layout.read_manifest(run).items()) == [
        ("schema", 1),
        ("kind", "tidewalk-run"),
        ("status", "running"),
        ("versions", {"jax": "0.10.2"}),
    ]


def test_unknown_manifest_version_is_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    fields = layout.read_manifest(run) | {"schema": 2}
    run.manifest.write_text(json.dumps(fields))
    with pytest.raises(StoreError, match=r"schema version 2, this program reads 1; use the version of tidewalk that"):
        layout.open_run(run.root)


def test_finish_hashes_the_result_files(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a", windows=2)
    fields = layout.read_manifest(run)
    assert fields["status"] == "complete"
    assert sorted(fields["files"]) == [
        "equity.parquet",
        "members.parquet",
        "metrics.jsonl",
        "policies/window-0.safetensors",
        "policies/window-1.safetensors",
        "run.toml",
        "summary.json",
        "trades.parquet",
        "windows.json",
    ]
    # The hash of its text, "run.toml of run A", as sha256sum prints it.
    known = "b8ef799f5d359530431b6cea43efdf3e93878609bc7c9d04d11981b40bb23e80"
    assert fields["files"]["run.toml"] == {"bytes": 17, "sha256": known}


def test_unknown_status_is_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a")
    with pytest.raises(StoreError, match="status 'done' is none of complete, interrupted, failed"):
        layout.finish_manifest(run, "done")


def test_layout_does_not_load_the_accelerator() -> None:
    code = (
        "import sys, tidewalk.store.layout, tidewalk.store.checkpoint, tidewalk.store.trials, tidewalk.store.results\n"
    )
    assert run_python(code + "sys.exit('jax' in sys.modules)").returncode == 0
