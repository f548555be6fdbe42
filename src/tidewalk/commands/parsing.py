"""Flags from configuration records."""

from collections.abc import Sequence
from typing import Any

import tyro


def parse(record: Any, command: str, args: Sequence[str], *, default: Any = None) -> Any:
    """A configuration record from flags (`--a-b 1 --hidden 128,128 --flag`); exits with code 2 on a flag that does not fit."""
    extra = {} if default is None else {"default": default}
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(record, prog=f"tidewalk {command}", args=_split_lists(args), config=config, **extra)


def _split_lists(args: Sequence[str]) -> list[str]:
    """`--hidden 128,128` as the separate words that the parser takes for a list."""
    out: list[str] = []
    for position, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == "--hidden" and equals:
            out += [name, *value.split(",")]
        elif position and args[position - 1] == "--hidden":
            out += [part for part in arg.split(",") if part]
        else:
            out.append(arg)
    return out
