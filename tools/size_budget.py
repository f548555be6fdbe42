"""Size budgets of the source: prints the total and what is over budget; exits 1 when a hard limit is passed.

Usage: python tools/size_budget.py [FOLDER]   (default: src/tidewalk beside this folder)
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 400
BODY_LINES = 60
BODY_LINES_GOAL = 40
DEF_DEPTH = 3
TOTAL_LINES_GOAL = 8_000

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """One place over a budget; a hard one fails the check."""

    where: str
    what: str
    is_hard: bool


def body_lines(node: FunctionNode) -> int:
    """Lines from the first statement after the docstring to the end of the function; 0 when there is none."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def functions(node: ast.AST, depth: int = 1) -> Iterator[tuple[FunctionNode, int]]:
    """Every function below a node, with its depth: 1 for a function or method, 2 for one defined inside it."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, FunctionNode)
        if is_function:
            yield child, depth
        yield from functions(child, depth + is_function)


def check_file(path: Path, name: str) -> Iterator[Finding]:
    """What one file has over budget."""
    source = path.read_text(encoding="utf-8")
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield Finding(name, f"{lines} lines; a file has at most {FILE_LINES}", is_hard=True)
    for node, depth in functions(ast.parse(source, str(path))):
        where = f"{name}:{node.lineno} {node.name}"
        size = body_lines(node)
        if size > BODY_LINES:
            yield Finding(where, f"{size} body lines; a function has at most {BODY_LINES}", is_hard=True)
        elif size > BODY_LINES_GOAL:
            yield Finding(where, f"{size} body lines; the goal is {BODY_LINES_GOAL}", is_hard=False)
        if depth > DEF_DEPTH:
            yield Finding(where, f"defined {depth} functions deep; at most {DEF_DEPTH}", is_hard=True)


def check(folder: Path) -> tuple[int, list[Finding]]:
    """Lines of all Python files below a folder, and everything over budget in them."""
    paths = sorted(folder.rglob("*.py"))
    total = sum(path.read_text(encoding="utf-8").count("\n") for path in paths)
    return total, [finding for path in paths for finding in check_file(path, str(path.relative_to(folder)))]


def main(arguments: list[str]) -> int:
    """Print the report; 1 when a hard limit is passed, else 0."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "src" / "tidewalk"
    total, findings = check(folder)
    for finding in findings:
        print(f"{'over' if finding.is_hard else 'near'}  {finding.where}: {finding.what}")
    print(f"{total:,} lines in {folder.name} (goal: at most {TOTAL_LINES_GOAL:,})")
    return int(any(finding.is_hard for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
