"""The documentation: it builds without a warning, and every page can be reached."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tidewalk.trading.costs import CostConfig
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import LimitConfig

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_in_the_navigation_and_on_the_first_page(page: str) -> None:
    assert f": {page}\n" in (ROOT / "mkdocs.yml").read_text()
    assert page == "index.md" or f"]({page})" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    """Docstrings too: a section that its style does not know, or a link to nowhere, is a warning."""
    pytest.importorskip("mkdocs", reason="mkdocs is in the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_flag_of_rules_and_costs_is_on_some_page() -> None:
    """The flags that decide what money is made: costs, rules and limits."""
    pages = " ".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    names = [field.name for record in (EnvConfig, CostConfig, LimitConfig) for field in dataclasses.fields(record)]
    flags = [f"--{name.replace('_', '-')}" for name in names]
    assert not [flag for flag in flags if flag not in pages]
