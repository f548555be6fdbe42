"""Bounds of the control groups that a process is in, on trees as systems lay them out."""

import pytest

from tidewalk.run import control_groups

GIB = 1 << 30
PLAIN = "27 20 0:24 / {at} rw,nosuid,nodev,noexec shared:9 - cgroup2 cgroup2 rw,nsdelegate"
SLICE = "user.slice/job.scope"


def laid_out(monkeypatch, tmp_path, files, own, mounts):
    """Make this process one of a tree of groups."""
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, text in (("_OWN", own), ("_MOUNTS", mounts.replace("{at}", str(tmp_path / "groups")))):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(control_groups, name, tmp_path / name)


@pytest.mark.parametrize(
    ("own", "files", "cores", "memory"),
    [
        ("/", {}, None, None),
        ("/", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        ("/", {"cpu.max": "250000 100000", "memory.max": f"{GIB}"}, 2, GIB),
        (f"/{SLICE}", {f"{SLICE}/cpu.max": "50000 100000", f"{SLICE}/memory.max": f"{GIB}"}, 1, GIB),
        (f"/{SLICE}", {"user.slice/cpu.max": "300000 100000", "user.slice/memory.max": f"{GIB}"}, 3, GIB),
        (
            f"/{SLICE}",
            {f"{SLICE}/cpu.max": "400000 100000", "user.slice/cpu.max": "200000 100000", "cpu.max": "max 100000"},
            2,
            None,
        ),
        (f"/{SLICE}", {f"{SLICE}/memory.max": f"{GIB}", "user.slice/memory.max": f"{2 * GIB}"}, None, GIB),
        (f"/{SLICE}", {"user.slice/other.scope/cpu.max": "100000 100000", f"{SLICE}/more/cpu.max": "1 1"}, None, None),
        ("/../../elsewhere", {"cpu.max": "200000 100000"}, 2, None),
    ],
)
def test_the_least_bound_counts_from_the_group_of_the_process_outwards(
    own, files, cores, memory, tmp_path, monkeypatch
):
    laid_out(monkeypatch, tmp_path, files, own=f"0::{own}\n", mounts=PLAIN)
    assert (control_groups.cores(), control_groups.memory_bytes()) == (cores, memory)


OLD = """31 23 0:28 / {at} rw - tmpfs tmpfs rw,mode=755
32 31 0:29 {root} {at}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {root} {at}/memory rw - cgroup cgroup rw,memory
36 31 0:33 {root} {at}/cpuset rw - cgroup cgroup rw,cpuset"""
QUOTA, PERIOD, LIMIT = (
    "cpu,cpuacct/{}cpu.cfs_quota_us",
    "cpu,cpuacct/{}cpu.cfs_period_us",
    "memory/{}memory.limit_in_bytes",
)
NO_LIMIT = 9223372036854771712


@pytest.mark.parametrize("root", ["/", "/docker/abc"])
@pytest.mark.parametrize(
    ("group", "quota", "limit", "cores", "memory"),
    [("", -1, NO_LIMIT, None, NO_LIMIT), ("", 300000, GIB, 3, GIB), ("slurm/", 150000, GIB, 1, GIB)],
)
def test_each_controller_of_the_first_version_has_a_tree_of_its_own(
    root, group, quota, limit, cores, memory, tmp_path, monkeypatch
):
    files = {QUOTA.format(group): f"{quota}\n", PERIOD.format(group): "100000\n", LIMIT.format(group): f"{limit}\n"}
    inner = f"{root.rstrip('/')}/slurm/step_0"
    own = f"4:memory:{inner}\n3:cpuset:/a:b\n2:cpu,cpuacct:{inner}\n1:name=systemd:/x\n0::/\n"
    laid_out(monkeypatch, tmp_path, files, own=own, mounts=OLD.replace("{root}", root))
    assert (control_groups.cores(), control_groups.memory_bytes()) == (cores, memory)


def test_another_system_sets_no_bound(tmp_path, monkeypatch):
    laid_out(monkeypatch, tmp_path, {"cpu.max": "100000 100000"}, own="0::/\n", mounts=PLAIN)
    assert control_groups.cores() == 1
    monkeypatch.setattr(control_groups, "_MOUNTS", tmp_path / "absent")
    assert (control_groups.cores(), control_groups.memory_bytes()) == (None, None)
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "absent")
    assert (control_groups.cores(), control_groups.memory_bytes()) == (None, None)
