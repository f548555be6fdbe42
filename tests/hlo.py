"""Compiled programs read as text: what would move data through the host, copy the replay, or grow with members x bars.

The text is what XLA prints of an optimised module. It tells which arrays a program makes and which loops it runs; where
they lie, and which copies the run time adds, a backend decides after it, so a real accelerator has the last word.
"""

import dataclasses
import functools
import math
import re

_HOST = {"infeed", "outfeed", "send", "send-done", "recv", "recv-done"}
_HOST_TARGET = re.compile(r"callback|[Hh]ost", re.ASCII)
_HOST_MEMORY = re.compile(r"\{[^}]*S\(5\)")
# What hands an array on without making another: names for it, and a write into it that XLA does in place (where it
# cannot, it puts a `copy` before it, which is found).
_SAME_ARRAY = {
    *("parameter", "tuple", "get-tuple-element", "bitcast", "opt-barrier", "dynamic-update-slice"),
    *("while", "conditional", "call", "fusion"),
}
_CALLED = re.compile(
    r"(?:calls|body|condition|to_apply|true_computation|false_computation|called_computations|branch_computations)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
# Memory that a matrix product of the vendor's library may scribble in: of a fixed size, whatever its operands are.
_WORKSPACE = re.compile(r", s8\[\d+\]")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of its result, or of every part of it."""
    kind: str
    """Type of its result, as it stands in the text."""
    operation: str
    text: str

    @property
    def called(self) -> list[str]:
        """Computations that it runs."""
        return [name for group in _CALLED.findall(self.text) for name in re.findall(r"[\w.\-]+", group)]

    @property
    def target(self) -> str:
        """What a custom call calls."""
        found = re.search(r'custom_call_target="([^"]*)"', self.text)
        return found[1] if found else ""


@dataclasses.dataclass(frozen=True)
class Module:
    """A compiled program."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str
    """The computation that begins it, and hands over its results."""

    @functools.cached_property
    def instructions(self) -> list[Instruction]:
        """All of them."""
        return [one for body in self.computations.values() for one in body]

    @property
    def loops(self) -> list[Instruction]:
        """All while loops."""
        return [one for one in self.instructions if one.operation == "while"]

    def inside(self, roots: list[str]) -> list[Instruction]:
        """Instructions of computations, and of all that these call."""
        seen, waiting = set[str](), list(roots)
        while waiting:
            name = waiting.pop()
            if name in self.computations and name not in seen:
                seen.add(name)
                waiting += [called for one in self.computations[name] for called in one.called]
        return [one for name in seen for one in self.computations[name]]


def parse(text: str) -> Module:
    """The module that a text of XLA describes."""
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] | None = None
    entry = ""
    for line in text.splitlines():
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$", line)
        if head:
            current = computations.setdefault(head[1], [])
            entry = head[1] if line.startswith("ENTRY") else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and " = " in line:
            current.append(_instruction(line))
    return Module({name: tuple(body) for name, body in computations.items()}, entry)


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().removeprefix("ROOT ").partition(" = ")
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    kind, call = rest[:end], rest[end:].strip()
    arrays = _ARRAY.findall(_WORKSPACE.sub("", kind) if 'custom_call_target="__cublas' in call else kind)
    shapes = tuple(tuple(int(n.lstrip("<=")) for n in dims.split(",") if n) for _, dims in arrays)
    return Instruction(name.lstrip("%"), shapes, kind, call.partition("(")[0], line)


def _closing(text: str) -> int:
    """Index after the parenthesis that closes the first one."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return index + 1
    raise ValueError(f"no end: {text[:80]}")


def host_operations(module: Module) -> list[str]:
    """What moves data between host and device, or calls the host, while the program runs.

    That its results are left in memory of the host, at its very end, is none of it.
    """
    return [
        one.text.strip()
        for name, body in module.computations.items()
        for one in body
        if one.operation.removesuffix("-start") in _HOST
        or (one.operation == "custom-call" and _HOST_TARGET.search(one.target))
        or (name != module.entry and _HOST_MEMORY.search(one.kind))
    ]


def copies(module: Module, elements: int) -> list[str]:
    """What makes another array of as many elements as the replay, or as one of its two words, in a loop or outside.

    Whatever the operation and the order of the axes: a copy, a transposition, a choice between two whole buffers.
    """
    return [
        one.text.strip()
        for one in module.instructions
        if any(math.prod(shape) in (elements, elements // 2) for shape in one.shapes)
        and one.operation not in _SAME_ARRAY
        and "output_to_operand_aliasing" not in one.text
    ]


def members_by_bars(module: Module, members: int, bars: int, features: int) -> list[str]:
    """Arrays that grow with members x all bars: by their axes in any order, by their product, or by sheer size.

    The features of the market `[bars, features]` are none of them, however few the members are.
    """
    return [
        one.text.strip()
        for one in module.instructions
        if any(
            math.prod(shape) >= members * bars or (members in shape and any(abs(n - bars) <= 2 for n in shape))
            for shape in one.shapes
            if shape != (bars, features)
        )
    ]


def unbounded_loops(module: Module) -> list[str]:
    """Loops whose trip count the compiler does not know: before each iteration the host waits for the device."""
    return [loop.text.strip() for loop in module.loops if "known_trip_count" not in loop.text]


def scopes(module: Module) -> set[str]:
    """Names of all scopes that operations carry."""
    found = [re.search(r'op_name="([^"]*)"', one.text) for one in module.instructions]
    return {part for name in found if name for part in name[1].split("/")}
