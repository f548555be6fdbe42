"""Stages of a start by the lines of its log."""

import importlib.util
import os
import sys
from pathlib import Path

import common
import pytest

# `compile` is also a name of Python's own
_SPEC = importlib.util.spec_from_file_location("compile_benchmark", Path(common.__file__).with_name("compile.py"))
compile_benchmark = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(compile_benchmark)
LINES = [
    "reading data",
    "compiling for 1 window",
    "traced in 0.7 s, compiled in 4.0 s",
    "epoch 1/1  loss 0.1",
    "done",
]


def logging(lines: list[str], code: int = 0) -> list[str]:
    program = f"import time\nfor line in {lines!r}:\n    time.sleep(0.05)\n    print(line, flush=True)\n"
    return [sys.executable, "-c", f"{program}raise SystemExit({code})"]


def test_each_stage_ends_with_its_line() -> None:
    stages = compile_benchmark.stamped(logging(LINES), dict(os.environ))
    assert list(stages) == ["import_s", "data_s", "compile_s", "epoch_s"]
    assert all(0.04 < seconds < 1.0 for seconds in list(stages.values())[1:])


def test_a_start_that_does_not_reach_its_epoch_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="code 2 before data_s: tidewalk: no such file"):
        compile_benchmark.stamped(logging([LINES[0], "tidewalk: no such file"], code=2), dict(os.environ))
