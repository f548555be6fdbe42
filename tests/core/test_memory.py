import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from tidewalk.core.memory import release_freed


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks the Linux kernel")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="asks glibc")
def test_freed_arrays_go_back_to_the_system():
    before = resident_mib()
    arrays = [np.ones(1 << 16) for _ in range(1000)]  # 500 MiB in pieces that the C library keeps
    pin = np.ones(1 << 12)  # at the end of the heap, which alone would shrink by itself
    assert resident_mib() > before + 400
    arrays.clear()
    release_freed()
    assert resident_mib() < before + 100
    assert pin.sum() == 1 << 12


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_no_error(monkeypatch, error):
    def absent(_: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["tidewalk.core.memory"].ctypes, "CDLL", absent)
    release_freed()
