"""Worker processes as the driver holds them: one per program, or one per core where it has no population."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import children
from peers.program import Setting

_FOLDER = Path(__file__).resolve().parents[1]
_MARGIN_S = 0.02
"""Time that a question may take to reach all of its processes before they start together."""


class Process:
    """One worker. It dies when its pipe is closed."""

    def __init__(self, setting: Setting, cores: Sequence[int] | None, patience_s: float) -> None:
        self._setting, self._cores, self._patience_s = setting, cores, patience_s
        paths = [str(_FOLDER), str(_FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = children.start(
            [sys.executable, "-m", "peers.worker"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def build(self) -> dict[str, Any]:
        return self.ask("build", setting=dataclasses.asdict(self._setting), cores=self._cores)

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Put a question and wait for its answer.

        Raises:
            RuntimeError: the worker failed, died, or took longer than it may.
        """
        late = threading.Event()
        timer = threading.Timer(self._patience_s, lambda: (late.set(), self._process.kill()))
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"do": what, **values}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise RuntimeError(f"the worker was stopped: it took longer than {self._patience_s:g} s to {what}")
        if not line:
            raise RuntimeError(f"the worker ended while it was asked to {what}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        return children.last_line(self._errors.read())

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        children.end(self._process)
        self._errors.close()


class Team:
    """The processes of one entry of the comparison; asked as one."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self._pool = concurrent.futures.ThreadPoolExecutor(len(processes))

    def _all(self, what: str, **values: Any) -> list[dict[str, Any]]:
        return list(self._pool.map(lambda process: process.ask(what, **values), self._processes))

    def build(self) -> dict[str, float]:
        """Slowest import and compilation, in seconds."""
        answers = list(self._pool.map(Process.build, self._processes))
        return {name: max(answer[name] for answer in answers) for name in ("import_s", "compile_s")}

    def check(self, updates: int) -> dict[str, Any]:
        """Updates done, and the median and least share of the best policy's result over all processes."""
        answers = self._all("check", updates=updates)
        shares = sorted(answer["captured"] for answer in answers)
        return {
            "updates": [answer["updates"] for answer in answers],
            "captured": shares[(len(shares) - 1) // 2],
            "least": min(answer["least"] for answer in answers),
        }

    def block_ms(self, updates: int) -> float:
        """Milliseconds until every process has done so many updates, all of them started together.

        Raises:
            RuntimeError: a process counts other updates or vector steps than were asked for.
        """
        self._all("warm")
        start_at = time.time() + _MARGIN_S
        answers = self._all("time", updates=updates, start_at=start_at)
        for answer in answers:
            if (answer["updates"], answer["steps"]) != (updates, updates):
                raise RuntimeError(
                    f"{updates} updates after as many vector steps were asked for, "
                    f"{answer['updates']} after {answer['steps']} were done"
                )
        if len(answers) == 1:
            return 1e3 * answers[0]["seconds"]
        return 1e3 * (max(answer["ended_at"] for answer in answers) - start_at)

    def peak_bytes(self) -> dict[str, int | None]:
        """Sum of the processes' peaks: of resident host memory, and of the GPU's allocators."""
        answers = self._all("memory")
        sums = {name: [answer[name] for answer in answers] for name in ("peak_rss_bytes", "peak_device_bytes")}
        return {name: None if None in values else sum(values) for name, values in sums.items()}

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._pool.shutdown()
