"""How the tests check annotations at run time: beartype, called by the import hook of jaxtyping.

`addopts` in pyproject.toml names `check`.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import beartype
import beartype.roar
import numpy as np

# An int passes for a float, as in the static checker.
_checked = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
_CHECKERS = ("beartype", "jaxtyping", __name__)
_TREE_BUILDERS = ("jax", "equinox", "optax")


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, checked at each call; a constructor of a record is checked in two milder ways.

    A record that a tree library rebuilds is not checked: a tree may hold anything in the place of its arrays, as shapes
    or axis numbers. A record that our own code makes may be filled on the host: a numpy array passes for a device array
    of the same shape and type.
    """
    is_constructor = function.__name__ == "__init__"
    if is_constructor:
        function.__annotations__ = {name: _or_numpy(hint) for name, hint in function.__annotations__.items()}
    try:
        checked = _checked(function)
    except beartype.roar.BeartypeDecorHintPep604Exception:
        # polars gives its data types an operator `|` of their own, and beartype refuses a hint that names one
        return function
    if not is_constructor:
        return checked

    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if _caller() in _TREE_BUILDERS else checked(*args, **kwargs)

    return constructor


def _or_numpy(hint: Any) -> Any:
    """A hint of jaxtyping for a device array, widened to a numpy array of the same shape and type."""
    if getattr(hint, "array_type", None) is None or "jax" not in hint.array_type.__module__:
        return hint
    return hint.dtype[hint.array_type | np.ndarray, hint.dim_str]


def _caller() -> str:
    """Top package of the code that constructs a record: the nearest frame outside the checkers."""
    frame = sys._getframe(2)
    while (package := frame.f_globals.get("__name__", "").partition(".")[0]) in _CHECKERS and frame.f_back:
        frame = frame.f_back
    return package
