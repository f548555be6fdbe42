"""The source stays small: files, functions and nesting have limits."""

import textwrap
from pathlib import Path

import pytest

import size_budget

PACKAGE = Path(__file__).parents[1] / "src" / "tidewalk"


def write_module(folder: Path, source: str) -> Path:
    (folder / "module.py").write_text(textwrap.dedent(source))
    return folder


def hard_findings(folder: Path) -> list[str]:
    return [f"{finding.where}: {finding.what}" for finding in size_budget.check(folder)[1] if finding.is_hard]


def test_package_is_within_its_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    status = size_budget.main([str(PACKAGE)])
    assert status == 0, capsys.readouterr().out


def test_long_file_is_over_budget(tmp_path: Path) -> None:
    folder = write_module(tmp_path, "x = 1\n" * 401)
    assert hard_findings(folder) == ["module.py: 401 lines; a file has at most 400"]
    assert size_budget.main([str(folder)]) == 1


def test_function_body_is_counted_without_its_docstring(tmp_path: Path) -> None:
    docstring = '    """First line.\n' + "\n    More.\n" * 50 + '    """\n'
    folder = write_module(tmp_path, "def f():\n" + docstring + "    x = 1\n" * 60)
    assert hard_findings(folder) == []
    folder = write_module(tmp_path, "def f():\n" + docstring + "    x = 1\n" * 61)
    assert hard_findings(folder) == ["module.py:1 f: 61 body lines; a function has at most 60"]


def test_body_between_goal_and_limit_is_reported_and_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_module(tmp_path, "def f():\n" + "    x = 1\n" * 41)
    assert size_budget.main([str(folder)]) == 0
    assert "near  module.py:1 f: 41 body lines; the goal is 40" in capsys.readouterr().out


def test_deep_nesting_is_over_budget(tmp_path: Path) -> None:
    source = """
    class C:
        def a(self):
            def b():
                def c():
                    def d():
                        pass
    """
    folder = write_module(tmp_path, source)
    assert hard_findings(folder) == ["module.py:6 d: defined 4 functions deep; at most 3"]


def test_total_counts_every_line(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "b.py").write_text("z = 3\n")
    assert size_budget.check(tmp_path)[0] == 3
