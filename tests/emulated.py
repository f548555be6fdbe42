"""The kernel's own source, compiled for the host and called in place of a launch."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.train.kernel import call
from tidewalk.train.kernel.plan import Plan

HERE = Path(__file__).parent / "train" / "kernel"
SOURCES = Path(call.__file__).parent
COMPILER = shutil.which("g++")


@functools.cache
def library(plan: Plan) -> ctypes.CDLL:
    """The kernel of one size for the host; compiled once in a session."""
    out = Path(tempfile.mkdtemp(prefix="kernel-")) / f"{plan.name}.so"
    sizes = {"D": plan.observed, "H": plan.hidden, "ROWS": plan.rows, "PRODUCTS": plan.products}
    defines = [f"-DTIDEWALK_{name}={value}" for name, value in sizes.items()]
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-w", f"-I{HERE}", f"-I{SOURCES}"]
    subprocess.run([COMPILER, *flags, *defines, str(HERE / "learn_host.cpp"), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


def emulate(plan: Plan, operands, moving, *, is_falling: bool = False):
    """As `call.launch`, on the host."""
    count = moving[0].shape[0]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in moving]
    shapes += [jax.ShapeDtypeStruct((count,), jnp.float32)] * 2
    run = functools.partial(_run, plan, is_falling=is_falling)
    *moved, loss, q_mean = jax.pure_callback(run, shapes, tuple(operands.values()), tuple(moving))
    return tuple(moved), loss, q_mean


def _run(plan: Plan, operands, moving, *, is_falling: bool):
    count = moving[0].shape[0]
    inputs = [np.ascontiguousarray(array) for array in operands]
    results = [np.array(array) for array in moving] + [np.full(count, np.nan, np.float32) for _ in range(2)]
    pointers = (ctypes.c_void_p * (len(inputs) + len(results)))(*(array.ctypes.data for array in [*inputs, *results]))
    library(plan).learn(pointers, count, int(is_falling))
    return tuple(results)
