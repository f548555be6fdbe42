"""How the tests check annotations at run time: beartype, called by the import hook of jaxtyping.

`addopts` in pyproject.toml names `check`.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import beartype

# An int passes for a float, as in the static checker.
_checked = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
_CHECKERS = ("beartype", "jaxtyping", __name__)
_TREE_BUILDERS = ("jax", "equinox", "optax")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, checked at each call; the constructor of a record is not checked when a tree library rebuilds it.

    A tree may hold anything in the place of its arrays (shapes, axis numbers, numpy copies), so a record that
    `jax.tree.unflatten` makes need not fit its annotations. A record made by our own code must.
    """
    checked = _checked(function)
    if function.__name__ != "__init__":
        return checked

    @functools.wraps(function)
    def init(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if _caller() in _TREE_BUILDERS else checked(*args, **kwargs)

    return init


def _caller() -> str:
    """Top package of the code that constructs a record: the nearest frame outside the checkers."""
    frame = sys._getframe(2)
    while (package := frame.f_globals.get("__name__", "").partition(".")[0]) in _CHECKERS and frame.f_back:
        frame = frame.f_back
    return package
