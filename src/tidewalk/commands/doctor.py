"""`tidewalk doctor`: what is installed, what the device is, what is missing."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shutil

from tidewalk.commands.parsing import parse

_RUNTIME = (
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "numpy",
    "polars",
    "databento-dbn",
    "zstandard",
    "safetensors",
    "scipy",
    "plotly",
    "jinja2",
    "rich",
    "tomli-w",
    "tyro",
)
_EXTRAS = {
    "cuda13": "jax_cuda13_plugin",
    "cluster": "ray",
    "sweep": "optuna",
    "export": "onnx",
    "gym": "gymnasium",
    "databento": "databento",
}


@dataclasses.dataclass(frozen=True)
class DoctorCommand:
    """Show what is installed, what the device is, and what is missing."""


def run(args: list[str]) -> int:
    """Print the findings; 0 when a study can run here, 2 when not."""
    parse(DoctorCommand, "doctor", args)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(f"tidewalk {_version('tidewalk')}, Python {platform.python_version()}, {machine}")
    found = {name: _version(name) for name in _RUNTIME}
    for name, version in found.items():
        print(f"  {name:<14} {version or 'MISSING'}")
    extras = [f"{extra} {'yes' if importlib.util.find_spec(module) else 'no'}" for extra, module in _EXTRAS.items()]
    print("extras: " + ", ".join(extras))
    problems = [f"{name} is not installed" for name, version in found.items() if version is None]
    problems += _device_problems()
    free = shutil.disk_usage(".").free / 2**30
    print(f"disk: {free:.1f} GiB free here")
    for text in problems:
        print(f"problem: {text}")
    print("a study can run here" if not problems else "a study cannot run here")
    return 2 if problems else 0


def _device_problems() -> list[str]:
    """Print the devices and try a small program on the first one."""
    try:
        import jax
        import jax.numpy as jnp

        from tidewalk.run import ambient, shares
        from tidewalk.run.mesh import limit_bytes

        try:
            devices = jax.devices()
        except (RuntimeError, AssertionError) as error:
            return [ambient.no_device(error)]
        print("devices: " + ", ".join(f"{device.platform}:{device.id} {device.device_kind}" for device in devices))
        limit = limit_bytes()
        if limit is not None:
            print(f"memory: {limit / 2**30:.1f} GiB for each device; `tidewalk windows` says what a study takes of it")
        if devices[0].platform == "cpu":
            print(shares.said())
            if shutil.which("nvidia-smi"):
                print("note: an NVIDIA driver is here but jax sees no GPU; install tidewalk[cuda13]")
        total = int(jax.jit(lambda x: jnp.sum(x))(jnp.arange(10)))
        return [] if total == 45 else [f"the device adds 0 to 9 up to {total}"]
    except Exception as error:  # whatever the device stack raises is what the user asked to see
        return [f"jax does not work: {type(error).__name__}: {str(error) or 'it says no more'}"]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
