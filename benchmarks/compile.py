"""How long from the start of `tidewalk train` to its first epoch, in a process that finds nothing and in one that does?

Each start is a process of its own, and its lines are stamped as they come. Cold: empty caches of prepared markets and
of compiled programs. Warm: what the cold start left there. Cold and warm starts take turns; the study is that of the
starting point on the sample market.

    python benchmarks/compile.py [--device gpu] [--rounds 7] [--json FILE]
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import common
from common import Column, Timing

COLUMNS = (
    Column("start", "start"),
    Column("first_epoch_s", "to the first epoch, s", "{:.2f}"),
    Column("p10_p90", "p10-p90"),
    Column("import_s", "interpreter and imports, s", "{:.2f}"),
    Column("data_s", "data and plan, s", "{:.2f}"),
    Column("compile_s", "trace, compile, prefill, s", "{:.2f}"),
    Column("epoch_s", "first epoch, s", "{:.2f}"),
    Column("rounds", "rounds"),
)
_STAGES = {
    "import_s": re.compile(r"^reading "),
    "data_s": re.compile(r"^compiling for "),
    "compile_s": re.compile(r"\bcompiled\b"),
    "epoch_s": re.compile(r"^epoch 1/"),
}
"""The line that ends each stage of the log."""


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--rounds", type=common.at_least(1), default=common.ROUNDS, help="warm starts")
    parser.add_argument("--cold-rounds", type=common.at_least(1), default=common.ROUNDS)
    parser.add_argument("--months", type=common.at_least(6), default=24)
    options = parser.parse_args()
    report = common.opened("compile", options, COLUMNS)
    cold_rounds, rounds = (1, 1) if options.quick else (options.cold_rounds, options.rounds)
    with tempfile.TemporaryDirectory(prefix="tidewalk-compile-") as name:
        folder = Path(name)
        months = str(6 if options.quick else options.months)
        sample = ["sample", "--out", folder / "market", "--months", months]
        children.run_quietly([sys.executable, "-m", "tidewalk.cli", *sample])
        starts = launcher(options, folder)
        starts("warm-up")  # files of the packages come into the page cache
        seen: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
        for number in range(max(cold_rounds, rounds)):
            caches = f"cache-{min(number, cold_rounds - 1)}"
            for start, count in (("cold", cold_rounds), ("warm", rounds)):
                if number < count:
                    seen[start].append(starts(caches))
                    common.say(f"  {start}: {sum(seen[start][-1].values()):.2f} s")
            report.rows[:] = [row(start, stages) for start, stages in seen.items() if stages]
            common.write(report)
    return common.close(report)


def row(start: str, stages: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the starts of one kind."""
    whole = Timing(tuple(1e3 * sum(one.values()) for one in stages))
    return {
        "start": start,
        "first_epoch_s": whole.median_ms / 1e3,
        "p10_p90": f"{whole.quantile_ms(0.1) / 1e3:.2f}-{whole.quantile_ms(0.9) / 1e3:.2f}",
        **{key: statistics.median(one[key] for one in stages) for key in _STAGES},
        "rounds": len(stages),
        "samples_s": [sum(one.values()) for one in stages],
    }


def launcher(options: argparse.Namespace, folder: Path) -> Callable[[str], dict[str, float]]:
    """A call that starts the command with the named caches and returns the seconds of each stage."""
    number = itertools.count()
    words = "--symbol ES.FUT --train-months 3 --val-months 1 --test-months 1 --step-months 3 --seeds 1 --epochs 1"
    words += " --max-steps-per-epoch 50 --lanes 64" + (" --hidden 16,16" if options.quick else "")
    device = ["--device", options.device] if options.device else []

    def start(caches: str) -> dict[str, float]:
        command = [sys.executable, "-u", "-m", "tidewalk.cli", "train", "--data-dir", folder / "market"]
        command += [*words.split(), *device, "--out", folder / f"run-{next(number)}"]
        return stamped(list(map(str, command)), {**os.environ, "TIDEWALK_CACHE": str(folder / caches)})

    return start


def stamped(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Seconds of each stage of a run, by the lines of its log.

    Raises:
        RuntimeError: a stage did not end.
    """
    last, stages, said = time.perf_counter(), {}, ""
    waiting = list(_STAGES.items())
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    with children.child(command, **pipe) as process:
        for line in process.stdout:
            said = line.strip() or said
            if waiting and waiting[0][1].search(said):
                now = time.perf_counter()
                stages[waiting.pop(0)[0]], last = now - last, now
        process.wait()
    if process.returncode != 0 or waiting:
        missing = f" before {waiting[0][0]}" if waiting else ""
        raise RuntimeError(f"`tidewalk train` ended with code {process.returncode}{missing}: {said}")
    return stages


if __name__ == "__main__":
    sys.exit(children.guarded(main))
