"""The kernel's own source, compiled for the host and called in place of a launch."""

import ctypes
import functools
import mmap
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import AnyPlan, Plan

HERE = Path(__file__).parent / "train" / "kernel"
SOURCES = Path(call.__file__).parent
COMPILER = shutil.which("g++")


@functools.cache
def library(plan: AnyPlan, sources: Path = SOURCES) -> ctypes.CDLL:
    """The kernel of one size for the host, by the sources of a folder; compiled once in a session."""
    out = Path(tempfile.mkdtemp(prefix="kernel-")) / f"{plan.name}.so"
    defines = [f"-DTIDEWALK_{name}={value}" for name, value in plan.defines.items()]
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-w", f"-I{HERE}", f"-I{sources}"]
    subprocess.run([COMPILER, *flags, *defines, str(HERE / f"{plan.source}_host.cpp"), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


def emulate(plan: Plan, operands, moving, *, is_falling: bool = False, sources: Path = SOURCES):
    """As `call.launch_plan`, on the host."""
    count = moving[0].shape[0]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in moving]
    shapes += [jax.ShapeDtypeStruct((count,), jnp.float32)] * 2
    run = functools.partial(_run, library(plan, sources), is_falling=is_falling)
    *moved, loss, q_mean = jax.pure_callback(run, shapes, tuple(operands.values()), tuple(moving))
    return tuple(moved), loss, q_mean


def _run(kernel: ctypes.CDLL, operands, moving, *, is_falling: bool):
    count = moving[0].shape[0]
    inputs = [np.ascontiguousarray(array) for array in operands]
    results = [np.array(array) for array in moving] + [np.full(count, np.nan, np.float32) for _ in range(2)]
    pointers = (ctypes.c_void_p * (len(inputs) + len(results)))(*(array.ctypes.data for array in [*inputs, *results]))
    kernel.learn(pointers, count, int(is_falling))
    return tuple(results)


def run_kernel(plan: AnyPlan, operands, shapes, grid, *, is_falling: bool = False):
    """As `call.run_kernel`, on the host, for kernels that change nothing in place."""
    run = functools.partial(_run_guarded, plan, tuple(shapes), grid, is_falling=is_falling)
    return list(jax.pure_callback(run, list(shapes), tuple(operands)))


def _run_guarded(plan: AnyPlan, shapes, grid, operands, *, is_falling: bool):
    inputs = [guarded(array) for array in operands]
    results = [guarded(np.full(shape.shape, 85, shape.dtype)) for shape in shapes]
    pointers = (ctypes.c_void_p * (len(inputs) + len(results)))(*(array.ctypes.data for array in [*inputs, *results]))
    library(plan).run(pointers, *grid, int(is_falling))
    return [np.array(array) for array in results]


def guarded(array) -> np.ndarray:
    """A copy that ends where a page begins that nobody may touch, and starts behind another."""
    array = np.asarray(array)
    room = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, room + 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for place in (start, start + mmap.PAGESIZE + room):
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), mmap.PAGESIZE, 0):
            raise OSError("mprotect failed")
    first = mmap.PAGESIZE + room - array.nbytes
    copy = np.frombuffer(pages, array.dtype, array.size, first).reshape(array.shape)
    copy[...] = array
    return copy
