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
    defines = [f"-DTIDEWALK_{name}={value}" for name, value in plan.defines.items()]
    return compiled(HERE / f"{plan.source}_host.cpp", plan.name, f"-I{sources}", *defines)


def compiled(source: Path, name: str, *flags: str) -> ctypes.CDLL:
    """A source as a library that the emulator runs; its function `fault` says what was wrong since the last call."""
    out = Path(tempfile.mkdtemp(dir=_emulator())) / f"{name}.so"
    # every access is shown to `races.cpp`, which takes the place of the runtime that this asks for
    watched = ["-fsanitize=thread", f"-I{HERE}", *flags, f"-I{SOURCES}"]
    _compile(out.parent, *watched, "-c", str(source), "-o", "kernel.o")
    _compile(out.parent, "-shared", *(str(part) for part in _emulator().glob("*.o")), "kernel.o", "-o", out.name)
    kernel = ctypes.CDLL(str(out))
    kernel.fault.restype = ctypes.c_char_p
    return kernel


@functools.cache
def _emulator() -> Path:
    """Folder of what all kernels share, compiled."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-"))
    _compile(folder, "-c", *(str(HERE / f"{name}.cpp") for name in ("emulator", "races")))
    return folder


def _compile(folder: Path, *arguments: str) -> None:
    command = [COMPILER, "-std=c++17", "-O2", "-fPIC", "-w", *arguments]
    subprocess.run(command, check=True, cwd=folder)


def emulate(plan: Plan, operands, moving, *, is_falling: bool = False):
    """As `call.launch`, on the host; raises where the emulator finds a fault."""
    count = moving[0].shape[0]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in moving]
    shapes += [jax.ShapeDtypeStruct((count,), jnp.float32)] * 2
    run = functools.partial(run_launch, library(plan), order=int(is_falling))
    *moved, loss, q_mean = jax.pure_callback(run, shapes, tuple(operands.values()), tuple(moving))
    return tuple(moved), loss, q_mean


def run_launch(kernel: ctypes.CDLL, operands, moving, *, order: int = 0):
    """The results of one launch, by `order` as in `emulator.hpp`; arrays that move are left as they are."""
    count = moving[0].shape[0]
    inputs = [np.ascontiguousarray(array) for array in operands]
    results = [np.array(array) for array in moving] + [np.full(count, np.nan, np.float32) for _ in range(2)]
    kernel.learn(_pointers([*inputs, *results]), count, order)
    _raise_fault(kernel)
    return tuple(results)


def run_kernel(plan: AnyPlan, operands, shapes, grid, *, is_falling: bool = False):
    """As `call.run_kernel`, on the host, for kernels that change nothing in place."""
    run = functools.partial(_run_guarded, plan, tuple(shapes), grid, order=int(is_falling))
    return list(jax.pure_callback(run, list(shapes), tuple(operands)))


def _run_guarded(plan: AnyPlan, shapes, grid, operands, *, order: int):
    inputs = [guarded(array) for array in operands]
    results = [guarded(np.full(shape.shape, 85, shape.dtype)) for shape in shapes]
    library(plan).run(_pointers([*inputs, *results]), *grid, order)
    _raise_fault(library(plan))
    return [np.array(array) for array in results]


def _pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _raise_fault(kernel: ctypes.CDLL) -> None:
    if fault := kernel.fault().decode():
        raise AssertionError(f"kernel on the host: {fault}")


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
