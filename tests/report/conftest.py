"""Made-up run folders for the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writer of a made-up run folder under a name ("run"); keywords are the fields of `made_up_spec.RunSpec`."""
    # Imported here, since tests/conftest.py has to set jax up before any module of ours is loaded.
    from report.made_up_run import write_run
    from report.made_up_spec import RunSpec

    def make(folder: str = "run", **facts: Any) -> Path:
        return write_run(tmp_path / folder, RunSpec(**facts))

    return make
