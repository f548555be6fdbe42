"""What the control groups of this process leave it: a container, a batch system or systemd sets such bounds on Linux.

A group is bound by those around it too. Outside a container the group of a process is far below the root of the tree,
which has no bounds; inside one its path may lead out of what is mounted there, whose root is then the group.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_OWN, _MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")


def cores() -> int | None:
    """Whole cores that may be used at a time; None where no group sets a bound."""
    found = [_numbers(group, "cpu.max") for group in _groups("")]
    found += [_numbers(group, "cpu.cfs_quota_us", "cpu.cfs_period_us") for group in _groups("cpu")]
    return min((max(1, quota // period) for quota, period in filter(None, found) if quota > 0), default=None)


def memory_bytes() -> int | None:
    """Memory that may be used; None where no group sets a bound."""
    found = [_numbers(group, "memory.max") for group in _groups("")]
    found += [_numbers(group, "memory.limit_in_bytes") for group in _groups("memory")]
    return min((limit for (limit,) in filter(None, found)), default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the group that the process is in and of those around it, as far as they are mounted.

    Args:
        controller: whose tree it is (version 1); "" for the one tree of all controllers (version 2).
    """
    paths = dict[str, str]()
    for line in _lines(_OWN):
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in _lines(_MOUNTS):
        place, _, kind = line.partition(" - ")
        system, _, options = kind.split(" ", 2)
        if (system == "cgroup2") if controller == "" else (system == "cgroup" and controller in options.split(",")):
            root, mounted = place.split()[3:5]
            path = PurePosixPath(paths.get(controller, "/"))
            inside = path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else PurePosixPath()
            yield from (Path(mounted, group) for group in (inside, *inside.parents))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # another system
        return []


def _numbers(group: Path, *names: str) -> list[int] | None:
    """The numbers in files of a group; None where one is absent, or says "max"."""
    try:
        return [int(word) for name in names for word in (group / name).read_text().split()]
    except (OSError, ValueError):
        return None
