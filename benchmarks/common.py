"""What all benchmarks share: options, the one way of timing, the record of the machine, JSON and tables.

Nothing here needs more than numpy and jax, so that a machine without file readers can measure.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import children

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
"""Fewest timed rounds of a figure; see README.md."""
WARM_UP = 2
_MOST_ROUNDS = 51
_VERSIONS = ("jax", "jaxlib", "numpy", "equinox", "optax", "polars", "torch")
_FLAGS = ("XLA_FLAGS", "NPROC", "JAX_NUM_CPU_DEVICES", "JAX_ENABLE_X64", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one thing, round by round."""

    samples_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    def quantile_ms(self, share: float) -> float:
        """The sample that this share of the samples does not exceed."""
        ordered = sorted(self.samples_ms)
        return ordered[round(share * (len(ordered) - 1))]


@dataclass(frozen=True)
class Column:
    """A column of a table: the key of its rows, its heading, and how a value is written."""

    key: str
    heading: str
    form: str = "{}"


@dataclass(frozen=True)
class Report:
    """Figures of one benchmark as they come in; the JSON on disk is whole after every row."""

    question: str
    settings: dict[str, Any]
    path: Path | None
    environment: dict[str, Any]
    columns: Sequence[Column] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def parser(doc: str, *, device: bool = True) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if device:
        found.add_argument("--device", choices=("cpu", "gpu"), help="default: the best that jax finds")
    found.add_argument("--json", type=file, help="write the figures to this file, after every row")
    found.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    return found


def at_least(least: float, kind: type[int] | type[float] = int) -> Callable[[str], Any]:
    """What reads a number for an option: a finite one, not below the least."""
    words = "a whole number" if kind is int else "a number"

    def read(text: str) -> int | float:
        with contextlib.suppress(ValueError):
            if least <= (value := kind(text)) < float("inf"):
                return value
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is {words} from {least:g} on")

    return read


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """What reads a name for an option."""
    known = tuple(dict.fromkeys(names))

    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"there is no {text!r}; there are {', '.join(known)}")
        return text

    return read


def several(one: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """What reads different values with commas between, each as `one` reads it."""

    def read(text: str) -> tuple[Any, ...]:
        found = tuple(one(part.strip()) for part in text.split(","))
        if len(set(found)) < len(found):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return found

    return read


numbers = several(at_least(1))
"""Whole numbers from 1 on."""


def file(text: str) -> Path:
    """A file that can be written, by its path alone."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    folder(str(path.parent))
    return path


def folder(text: str) -> Path:
    """A folder that is there or can be made."""
    path = Path(text)
    there = next((above for above in (path, *path.parents) if above.exists()), path)
    if not text or (there.exists() and not there.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is a folder{f', and {there} is a file' if text else ''}")
    return path


def opened(question: str, options: argparse.Namespace, columns: Sequence[Column]) -> Report:
    """A report whose environment is that of this process, and the columns of its table."""
    settings = {name: value for name, value in vars(options).items() if name not in ("json",) and value is not None}
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    report = Report(question, settings, options.json, environment(), columns)
    say(f"{question}\n{in_words(report.environment)}")
    return report


def say(text: str) -> None:
    """A line of progress, seen at once also in a log."""
    print(text, flush=True)


def add(report: Report, **row: Any) -> None:
    """Another row, printed and written at once."""
    report.rows.append(row)
    said = {name: value for name, value in row.items() if value is not None and not isinstance(value, tuple | list)}
    say("  " + ", ".join(f"{name} {_short(value)}" for name, value in said.items()))
    write(report)


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def write(report: Report, *, is_whole: bool = False) -> None:
    """The figures so far as JSON, in place of the file before, with their table as text."""
    if report.path is None:
        return
    content = {
        "schema": 1,
        "question": report.question,
        "is_whole": is_whole,
        "settings": report.settings,
        "environment": report.environment,
        "rows": report.rows,
        "failures": report.failures,
        "notes": report.notes,
        "table": table(report.rows, report.columns) if report.rows else None,
    }
    put(report.path, json.dumps(content, indent=1, default=str))


def put(path: Path, text: str) -> None:
    """A file in place of the one before, whole whenever the program is stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(text)
    beside.replace(path)


def close(report: Report) -> int:
    """Print the table, what failed and the notes; the exit code: 1 when nothing was measured."""
    write(report, is_whole=True)
    say("\n" + table(report.rows, report.columns))
    for name, reason in report.failures.items():
        say(f"not measured: {name}: {reason}")
    for note in report.notes:
        say(note)
    return 0 if report.rows else 1


@contextlib.contextmanager
def attempt(report: Report, name: str) -> Iterator[None]:
    """Keep the reason of a failure and go on, so that one variant does not cost the figures of the others."""
    try:
        yield
    except Exception as error:
        failed(report, name, error)


def failed(report: Report, name: str, error: Exception) -> None:
    """Keep and say the reason of a failure, unless a signal has ended what was waited for."""
    if children.is_stopping():
        return
    lines = str(error).splitlines()
    report.failures[name] = f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
    say(f"  {name} failed: {report.failures[name]}")
    write(report)


def interleaved(
    report: Report,
    variants: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = ROUNDS,
    warm_up: int = WARM_UP,
    budget_s: float = 0.0,
) -> dict[str, Timing]:
    """Time variants in turn, so that all of them see the same machine: forwards, then backwards, and so on.

    Args:
        report: where the reason of a failing variant is kept; the others go on without it.
        variants: name -> call; a call ends when its results are ready on the device. One that returns a float has
            timed itself, in milliseconds (another process, say).
        rounds: fewest timed rounds.
        warm_up: rounds before them, not counted.
        budget_s: more rounds are timed while this time lasts, up to 51.

    Returns:
        Timing of every variant that did not fail, in the order given.
    """
    samples: dict[str, list[float]] = {name: [] for name in variants}
    began = time.perf_counter()
    for turn in range(warm_up + max(rounds, _MOST_ROUNDS)):
        if turn >= warm_up + rounds and time.perf_counter() - began > budget_s:
            break
        order = list(samples) if turn % 2 == 0 else list(samples)[::-1]
        for name in order:
            try:
                taken_ms = elapsed_ms(variants[name])
            except Exception as error:
                failed(report, name, error)
                del samples[name]
                continue
            if turn >= warm_up:
                samples[name].append(taken_ms)
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def elapsed_ms(call: Callable[[], Any]) -> float:
    """Milliseconds until the results of a call are ready on the device; those that it names, if it returns a float."""
    start = time.perf_counter()
    result = call()
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.block_until_ready(result)
    taken_ms = (time.perf_counter() - start) * 1e3
    return result if isinstance(result, float) else taken_ms


def peak_mib() -> float:
    """Most resident memory of this process so far. What `getrusage` says begins with the peak of the parent."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def spread(timing: Timing) -> str:
    """10th and 90th percentile, in words."""
    return f"{timing.quantile_ms(0.1):,.3g}-{timing.quantile_ms(0.9):,.3g}"


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Rows as an aligned Markdown table, for the terminal and for a page alike; a missing value is left blank."""
    shown = [column for column in columns if any(row.get(column.key) is not None for row in rows)]
    cells = [[column.heading for column in shown]]
    cells += [[_cell(row.get(column.key), column.form) for column in shown] for row in rows]
    is_text = [all(isinstance(row.get(column.key), str | None) for row in rows) for column in shown]
    widths = [max(len(line[number]) for line in cells) for number in range(len(shown))]

    def joined(line: Sequence[str]) -> str:
        padded = [
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width + 2) if left else "-" * (width + 1) + ":" for width, left in zip(widths, is_text, strict=True)]
    return "\n".join([joined(cells[0]), f"|{'|'.join(rule)}|", *map(joined, cells[1:])])


def _cell(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def environment() -> dict[str, Any]:
    """Machine, device, versions, flags, state of the source tree and command of this process."""
    return {
        "command": typed([sys.executable, os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "device": _device(),
        "gpu": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "python": platform.python_version(),
        "versions": {name: found for name in _VERSIONS if (found := _version(name))},
        "flags": {name: os.environ[name] for name in _FLAGS if os.environ.get(name)},
        "commit": _commit(),
    }


def typed(command: Sequence[str]) -> str:
    """A command as it is typed at the root of the sources, where `python` is the interpreter that runs them."""
    first, *words = (word.removeprefix(f"{ROOT}/") for word in command)
    is_usual = first.startswith(".venv/") or first == sys.executable
    return shlex.join(["python" if is_usual else first, *words])


def in_words(environment: Mapping[str, Any]) -> str:
    """The line that stands above every table."""
    device = environment["device"] or "no accelerator asked for"
    driver = f", driver {environment['driver']}" if environment["driver"] else ""
    versions = ", ".join(f"{name} {number}" for name, number in environment["versions"].items())
    flags = "; ".join(f"{name}={value}" for name, value in environment["flags"].items())
    return (
        f"{device}{driver}; {environment['processor']}, {environment['cores']} cores, load "
        f"{environment['load_average']}; Python {environment['python']}, {versions}"
        f"{f'; {flags}' if flags else ''}; commit {environment['commit'] or 'unknown'}; {environment['date']}"
    )


def _device() -> str | None:
    """Devices of jax where it is in use: asking would start it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    devices = jax.local_devices()
    return f"{len(devices)} x {devices[0].device_kind}" if len(devices) > 1 else devices[0].device_kind


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    git = ("git", "-C", str(ROOT))
    commit = _output(*git, "rev-parse", "--short", "HEAD")
    is_changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} and changes" if commit and is_changed else commit


def _output(*command: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip().splitlines()[0] if done.stdout.strip() else None
    return None
