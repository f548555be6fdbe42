"""Test bench shared by all parts.

jax is not imported before a test needs it: its settings travel in the environment and hold from its first import on, in
child processes too. So tests of host parts stay free of it.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

SHARED_DATA = Path(os.environ.get("TIDEWALK_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
SIMULATED_DEVICES = "--xla_force_host_platform_device_count=4"
QUICK_COMPILATION = "--xla_backend_optimization_level=0"

# No deadline: the first example of a jax function includes its compilation. The gate draws the same examples each time.
hypothesis.settings.register_profile("tidewalk", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("tidewalk")


def pytest_configure(config: pytest.Config) -> None:
    """Set jax up before anything imports it: strict arithmetic; four CPU devices, or the real ones under `-m gpu`.

    The default tests compile much and run little: machine code that LLVM did not optimise takes them half the time. It
    is of the same optimised HLO. Slow tests, which train for longer, and those of speed have the code that users have.
    """
    if "jax" in sys.modules:
        raise pytest.UsageError("jax was imported before tests/conftest.py could configure it")
    os.environ["TIDEWALK_CACHE"] = "off"  # nothing is left in the user's own cache, and nothing is found there
    os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
    os.environ["JAX_DEBUG_KEY_REUSE"] = "1"
    if _asks_for(config, "gpu"):
        return
    os.environ["JAX_PLATFORMS"] = "cpu"
    quick = "" if _asks_for(config, "slow") or _asks_for(config, "bench") else QUICK_COMPILATION
    os.environ["XLA_FLAGS"] = " ".join([quick, os.environ.get("XLA_FLAGS", ""), SIMULATED_DEVICES]).strip()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        # Tests compile the same programs again and again, down to single operations; they are shared within the run.
        cache = tempfile.TemporaryDirectory(prefix="tidewalk-tests-")
        config.add_cleanup(cache.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


def _asks_for(config: pytest.Config, mark: str) -> bool:
    """Whether `-m` names a mark that is not to be left out."""
    return mark in config.getoption("markexpr").replace(f"not {mark}", "")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: their content is unreadable, and where it holds a time it differs between workers."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def strict_dtypes() -> Iterator[None]:
    """Refuse implicit dtype promotion in tests of device parts."""
    if "jax" not in sys.modules:
        yield
        return
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def signals_are_heard() -> Iterator[None]:
    """What stops a program is heard by the test and what it starts, also under `nohup` or behind `&` in a script."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.getsignal(number) for number in usual}
    for number, handler in usual.items():
        if before[number] == signal.SIG_IGN:
            signal.signal(number, handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real market files beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"real market files are not at {SHARED_DATA} (set TIDEWALK_SHARED_DATA)")
    return SHARED_DATA
