"""Compile the kernels to the PTX files that the package ships: `python tools/build_kernel.py [name ...]`.

Needs nvcc of CUDA 12.4 or newer; users need none. Each file's first line says which sources it was built from.
"""

import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tidewalk.train.kernel.plan import ALL_PLANS, AnyPlan

KERNEL = Path(__file__).parents[1] / "src" / "tidewalk" / "train" / "kernel"
ISA = ".version 8.3"
"""Oldest version of PTX that has all that nvcc makes of the kernels: that of CUDA 12.3. A driver loads no later one
than its own, and nvcc writes its own whatever it used."""


def sources_of(name: str) -> set[Path]:
    """A source of the kernels and all that it includes, and that these include."""
    path = KERNEL / name
    included = re.findall(r'^#include "([^"]+)"', path.read_text(), flags=re.MULTILINE)
    here = [other for other in included if (KERNEL / other).exists()]
    return {path}.union(*(sources_of(other) for other in here))


def sources_hash(plan: AnyPlan) -> str:
    """SHA-256 of all sources of a kernel, names included, and of what they are compiled for; comments do not count."""
    digest = hashlib.sha256(f"{plan.architecture} {sorted(plan.defines.items())}\0".encode())
    for path in sorted(sources_of(f"{plan.source}.cu")):
        code = "".join(re.sub(r"//[^\n]*", "", path.read_text()).split())
        digest.update(f"{path.name}\0{code}\0".encode())
    return digest.hexdigest()


def build(plan: AnyPlan, nvcc: str) -> str:
    """PTX text of one kernel, without what changes from one installation of nvcc to another."""
    defines = [f"-DTIDEWALK_{name}={value}" for name, value in {**plan.defines, "NAME": plan.name}.items()]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.ptx"
        command = [nvcc, "-std=c++17", "-O3", "-ptx", f"-arch={plan.architecture}", *defines, "-o", str(out)]
        subprocess.run([*command, str(KERNEL / f"{plan.source}.cu")], check=True)
        lines = out.read_text().splitlines()
    kept = [line.strip() for line in lines if line.strip() and not line.startswith("//")]
    kept = [ISA if line.startswith(".version ") else line for line in kept]
    return "\n".join([f"// tidewalk sources {sources_hash(plan)}", *kept]) + "\n"


def main(names: list[str]) -> int:
    """Build the kernels named, or all."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc is not on the PATH")
        return 1
    folder = KERNEL / "ptx"
    folder.mkdir(exist_ok=True)
    for plan in ALL_PLANS:
        if names and plan.name not in names:
            continue
        text = build(plan, nvcc)
        packed = gzip.compress(text.encode("ascii"), mtime=0)
        (folder / f"{plan.name}.ptx.gz").write_bytes(packed)
        print(f"{plan.name}: {len(text)} bytes, {len(packed)} packed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
