"""A kernel is tried before a study relies on kernels: what is asked of it, and what is said where it does not run."""

import functools
import time

import jax
import numpy as np
import pytest

import emulated
from tidewalk.train.kernel import call, plan, trial

REFUSED = "INTERNAL: Failed to load PTX: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: an unsupported toolchain.\nmore"


@pytest.fixture(autouse=True)
def asked_anew():
    trial.refusal.cache_clear()
    yield
    trial.refusal.cache_clear()


@pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
def test_the_kernel_itself_passes_its_trial(monkeypatch):
    monkeypatch.setattr(call, "run_kernel", emulated.run_kernel)
    assert trial.refusal() is None


@pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
@pytest.mark.parametrize("guard", ["disallow", "disallow_explicit"])
def test_a_guard_on_transfers_is_not_taken_for_a_refusal(monkeypatch, guard):
    monkeypatch.setattr(call, "run_kernel", emulated.run_kernel)
    with jax.transfer_guard(guard):
        assert trial.refusal() is None


def test_what_the_driver_refuses_is_said_with_the_remedy(monkeypatch):
    asked = []

    def refusing(*_):
        asked.append(1)
        raise jax.errors.JaxRuntimeError(REFUSED)

    monkeypatch.setattr(call, "run_kernel", refusing)
    said = trial.refusal()
    assert said is not None
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: an unsupported toolchain); drivers of CUDA 12.3 and later" in said
    assert "more" not in said
    assert trial.refusal() == said
    assert asked == [1], "once in a process"


def test_where_xla_knows_no_such_call_that_is_said():
    """As here, on a CPU."""
    said = str(trial.refusal())
    assert "xla.gpu.ptx" in said
    assert "drivers" not in said


@pytest.mark.parametrize("wrong", range(5))
def test_another_result_is_no_success(monkeypatch, wrong):
    def run_kernel(plan, operands, shapes, grid, *, right):
        results = [np.zeros(shape.shape, shape.dtype) for shape in shapes]
        results[0][0], results[1][0] = right[:3], right[3:]
        return [jax.numpy.asarray(result) for result in results]

    right = [21, 5, 2, 0.0, 0.25]
    monkeypatch.setattr(call, "run_kernel", functools.partial(run_kernel, right=right))
    assert trial.refusal() is None
    trial.refusal.cache_clear()
    right[wrong] += 1
    assert "in place of" in str(trial.refusal())


@pytest.mark.gpu
def test_a_trial_takes_next_to_no_time():
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.numpy.ones(3)))  # the first program starts the device
    taken_s = []
    for _ in range(3):  # each compiles and loads it anew
        began_s = time.perf_counter()
        assert trial.refusal() is None
        taken_s.append(time.perf_counter() - began_s)
        trial.refusal.cache_clear()
    assert min(taken_s) < 0.05


@pytest.mark.gpu
def test_text_that_is_newer_than_the_driver_is_found_out(monkeypatch):
    monkeypatch.setattr(call, "ptx", lambda of: plan.ptx(of).replace(".version 8.3", ".version 99.0"))
    said = str(trial.refusal())
    assert "UNSUPPORTED_PTX_VERSION" in said
    assert "drivers of CUDA 12.3 and later do" in said
