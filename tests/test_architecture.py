"""Import directions, and what importing the package may not do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "tidewalk"
HOST_PARTS = (
    "core/errors.py",
    "data",
    "report",
    "stats",
    "store/checks.py",
    "store/layout.py",
    "store/quality.py",
    "store/reconcile.py",
    "store/results.py",
    "store/summary.py",
    "store/tables.py",
    "store/trials.py",
)

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"

# An audit hook sees every file, socket and process that Python opens. Loading code, and a time zone, is what an import
# may do; all else is an effect. Third-party packages come first: theirs are not ours to forbid.
WATCHED = """
import jax, databento_dbn, equinox, jinja2, optax, plotly.graph_objects, plotly.offline, polars, rich.console, rlax
import safetensors.numpy, scipy.stats, tomli_w, tyro, zstandard, zoneinfo
import os, signal, sys

EFFECTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.mkdir", "os.remove", "os.rename")
effects = []

def watch(event, arguments):
    subject = str(arguments[0]) if arguments else ""
    is_descriptor = event == "open" and isinstance(arguments[0], int)
    if is_descriptor or "__pycache__" in subject or "zoneinfo" in subject:
        return
    if event.startswith(EFFECTS) or (event == "open" and not subject.endswith((".py", ".so"))):
        effects.append(f"{event} {arguments}")

def surroundings():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], dict(os.environ)

before = surroundings()
sys.addaudithook(watch)
IMPORTS
if surroundings() != before:
    effects.append("signal handlers or environment changed")
if jax._src.xla_bridge.backends_are_initialized():
    effects.append("a device was started")
print(*effects, sep="\\n")
"""


def run_python(code: str, *, cwd: Path = ROOT, path: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter without the settings of the test bench."""
    environment = {"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def modules(*names: str) -> list[str]:
    """Dotted names of all modules in the given parts or files of the package."""
    paths = [
        path
        for name in names
        for path in ([PACKAGE / name] if name.endswith(".py") else (PACKAGE / name).rglob("*.py"))
    ]
    assert all(path.is_file() for path in paths)
    return sorted(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths)


def broken_contracts(output: str) -> list[str]:
    """Names of the contracts that import-linter reports as broken."""
    return re.findall(r"^(.*?)(?: \(.*\))? BROKEN", output, flags=re.MULTILINE)


def test_import_contracts_are_kept() -> None:
    result = run_python(LINT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        (
            "core/errors.py",
            "import tidewalk.data.bars",
            ["Parts import downwards only; siblings are blind to each other"],
        ),
        (
            "store/layout.py",
            "import tidewalk.agents.networks",
            ["Store, statistics and report know no market and no agent"],
        ),
        ("report/page.py", "import tidewalk.core.keys", ["Host parts are free of jax, indirectly too"]),
        ("agents/dqn.py", "import tidewalk.market.windows", ["Agents never see the market"]),
        (
            "agents/value.py",
            "import tidewalk.agents.dqn",
            ["Agents do not know each other; their building blocks know none of them"],
        ),
        ("train/epoch.py", "import polars", ["The device path needs no file reader, no chart and no terminal"]),
        ("stats/seeds.py", "import skfolio", ["What the tests compare with is nothing that a run needs"]),
        ("surprise.py", "", ["Parts import downwards only; siblings are blind to each other"]),
    ],
)
def test_each_contract_can_fail(tmp_path: Path, module: str, line: str, broken: list[str]) -> None:
    shutil.copytree(PACKAGE, tmp_path / "tidewalk", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    target = tmp_path / "tidewalk" / module
    target.write_text(f"{target.read_text() if target.exists() else ''}\n{line}\n")
    result = run_python(LINT, cwd=tmp_path, path=tmp_path)
    assert result.returncode == 1
    assert set(broken) <= set(broken_contracts(result.stdout)), result.stdout + result.stderr


def effects_of(*statements: str) -> str:
    """What the statements did beside loading code, a line each."""
    result = run_python(WATCHED.replace("IMPORTS", "\n".join(statements)))
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_has_no_effects() -> None:
    imports = [f"import {module}" for module in modules(".")]
    assert effects_of(*imports) == ""


def test_each_effect_would_be_seen() -> None:
    seen = effects_of(
        "open(os.devnull, 'w')",
        "import socket; socket.getaddrinfo('localhost', 1)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "jax.devices()",
    )
    for effect in (os.devnull, "socket.getaddrinfo", "signal handlers or environment changed", "a device was started"):
        assert effect in seen


@pytest.mark.parametrize("part", HOST_PARTS)
def test_host_part_does_not_load_jax(part: str) -> None:
    imports = "\n".join(f"import {module}" for module in modules(part))
    result = run_python(
        f"{imports}\nimport sys\nprint(*sorted({{'jax', 'jaxlib', 'equinox', 'optax', 'rlax'}} & set(sys.modules)))"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""
