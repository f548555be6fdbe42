"""Flags from configuration records: tyro parses them and prints the help, this file says what a value may be."""

import contextlib
import dataclasses
import io
import types
import typing
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from tidewalk.core.errors import ConfigError, did_you_mean

NOTHING = "none"
"""Word for a value that is not given, for flags that may go without one."""
_WORDS = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}
_METAVARS = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}


def parse(record: Any, command: str, args: Sequence[str], *, default: Any = None, needs: Collection[str] = ()) -> Any:
    """A configuration record from flags: `--a-b 1`, `--a-b=1`, `--hidden 128,128`, `--switch`, `--no-switch`.

    Args:
        record: a dataclass whose fields are flags, or records of such fields.
        command: name of the command, for the help text.
        args: words of the command line.
        default: a record whose values stand where no flag is given.
        needs: flags that this command cannot go without, though other commands with the same record can.

    Raises:
        ConfigError: a flag that does not exist, lacks its value or has one that does not fit, or is missing.
        SystemExit: after `--help`.
    """
    said = io.StringIO()
    extra = {} if default is None else {"default": default}
    flags, positional = _flags(record, default)
    for name in needs:
        is_given = flags[name].default not in ("", None, dataclasses.MISSING)
        flags[name] = dataclasses.replace(flags[name], is_required=not is_given)
    try:
        with contextlib.redirect_stderr(said), _primitives():
            made = tyro.cli(
                record, prog=f"tidewalk {command}", args=list(args), config=(tyro.conf.OmitArgPrefixes,), **extra
            )
        if not needs or not _missing(flags, positional, args):
            return made
    except SystemExit as stop:
        if not stop.code:
            raise
    reason = _misfit(flags, positional, args) or _missing(flags, positional, args) or _unframed(said.getvalue())
    raise ConfigError(f"{reason} `tidewalk {command} --help` lists all options.")


def from_text(hint: Any, text: str) -> Any:
    """The value that a word of the command line stands for.

    Args:
        hint: int, float, str, Path, Literal, `tuple[X, ...]` (commas between), or any of these `| None` ("none").
        text: the word.

    Raises:
        ValueError: it is none; the text of the error says what is needed.
    """
    inner, may_be_none = _without_none(hint)
    if may_be_none and text == NOTHING:
        return None
    origin = typing.get_origin(inner)
    if origin is Literal:
        choices = typing.get_args(inner)
        if text not in choices:
            raise ValueError(f"it must be {_wanted(inner)}{did_you_mean(text, choices)}")
        return text
    with contextlib.suppress(ValueError):
        if origin is tuple:
            return tuple(from_text(typing.get_args(inner)[0], part.strip()) for part in text.split(","))
        if text:  # an empty path would be the current folder
            return inner(text)
    raise ValueError(f"it must be {_wanted(inner)}")


def gathered(flag: str, args: Sequence[str]) -> list[str]:
    """The words of a command line with all values of a flag that is given several times in one, commas between."""
    values: list[str] = []
    others: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name != flag:
            others.append(word)
            continue
        given = value if equals else next(words, None)
        if given is None or given.startswith("--"):
            return list(args)  # a flag without its value: for the parser to say
        values.append(given)
    return [*others, flag, ",".join(values)] if len(values) > 1 else list(args)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    return next(arg for arg in typing.get_args(hint) if arg is not types.NoneType), True


def _wanted(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        choices = list(typing.get_args(hint))
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if typing.get_origin(hint) is tuple:
        return f"{_WORDS[typing.get_args(hint)[0]]}, or several with commas between"
    return _WORDS[hint]


def _metavar(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "{" + ",".join(typing.get_args(hint)) + "}"
    if typing.get_origin(hint) is tuple:
        item = _METAVARS[typing.get_args(hint)[0]]
        return f"{item},{item}"
    return _METAVARS[hint]


def _primitives() -> ConstructorRegistry:
    """Rules that make tyro read and show every value that is not a switch in the way of `from_text`."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        inner, _ = _without_none(info.type)
        if inner not in _WORDS and typing.get_origin(inner) not in (Literal, tuple):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=_metavar(inner),
            instance_from_str=lambda words: from_text(info.type, words[0]),
            is_instance=lambda _: True,
            str_from_instance=lambda value: [_as_text(value)],
        )

    return registry


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, typing.cast("tuple[Any, ...]", value)))
    return NOTHING if value is None else str(value)


@dataclasses.dataclass(frozen=True)
class _Flag:
    hint: Any
    default: Any
    is_required: bool


def _flags(record: Any, default: Any) -> tuple[dict[str, _Flag], list[str]]:
    """Flags of a record and of the records in it, and the names of its positional arguments."""
    flags: dict[str, _Flag] = {}
    positional: list[str] = []
    for field in dataclasses.fields(record):
        hint = typing.get_type_hints(record, include_extras=True)[field.name]
        marks = getattr(hint, "__metadata__", ())
        hint = getattr(hint, "__origin__", hint) if marks else hint
        value = field.default if default is None else getattr(default, field.name)
        if tyro.conf.Positional in marks:
            positional.append(field.name.upper())
        elif dataclasses.is_dataclass(hint):
            flags |= _flags(hint, None if default is None else value)[0]
        else:
            flags[f"--{field.name.replace('_', '-')}"] = _Flag(hint, value, value is dataclasses.MISSING)
    return flags, positional


def _split(flags: dict[str, _Flag], args: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Name and value of each flag as they were given, and ("", word) for each word that belongs to none."""
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if not word.startswith("-"):
            yield "", word
        elif name in flags and flags[name].hint is not bool and not equals:
            yield name, next(words, None)
        else:
            yield name, value if equals else None


def _misfit(flags: dict[str, _Flag], positional: list[str], args: Sequence[str]) -> str | None:
    """What is wrong with the first word that does not fit, None when each of them does."""
    places = len(positional)
    for name, value in _split(flags, args):
        if not name:
            places -= 1
            if places < 0:
                return f"unexpected {value!r}: it belongs to no flag."
            continue
        flag = flags.get(name) or flags.get(f"--{name.removeprefix('--no-')}")
        if flag is None:
            return f"unknown flag {name}{_meant(name, flags)}."
        if flag.hint is not bool:
            reason = _unfit(flag.hint, value)
        else:
            reason = None if value is None else f"is a switch and takes no value, found {value!r}"
        if reason:
            return f"{name} {reason}."
    return None


def _unfit(hint: Any, value: str | None) -> str | None:
    inner, _ = _without_none(hint)
    if value is None or value.startswith("--"):
        return f"needs a value: {_wanted(inner)}"
    try:
        from_text(hint, value)
    except ValueError as error:
        return f"is {value!r}; {error}"
    return None


def _meant(name: str, flags: dict[str, _Flag]) -> str:
    """A hint at the nearest flag, by its letters or by initials (--learning-rate: --lr)."""
    initials = "--" + "".join(part[:1] for part in name.strip("-").split("-"))
    if initials in flags:
        return f" (did you mean {initials}?)"
    return did_you_mean(name.strip("-"), [flag.strip("-") for flag in flags]).replace("mean ", "mean --")


def _missing(flags: dict[str, _Flag], positional: list[str], args: Sequence[str]) -> str | None:
    given = [name for name, _ in _split(flags, args)]
    missing = [name for name, flag in flags.items() if flag.is_required and name not in given]
    missing += positional[given.count("") :]
    return f"{' and '.join(missing)} must be given." if missing else None


def _unframed(box: str) -> str:
    """The text of tyro's box as one paragraph."""
    lines = [line.strip(" │╭╮╰╯─") for line in box.splitlines()]
    return " ".join(line for line in lines if line).partition(" For full helptext")[0]
