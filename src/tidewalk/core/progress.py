"""How far a long job is, told as it goes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[str, float], None]
"""Receives what is being done and the share of the whole that is done, from 0 to 1."""

_Item = TypeVar("_Item")


def silent(_what: str, _share: float) -> None:
    """Progress that nobody watches."""


def part(progress: Progress, start: float, stop: float) -> Progress:
    """Progress of a part of a job, which takes it from one share of the whole to another."""
    return lambda what, share: progress(what, start + (stop - start) * share)


def counted(progress: Progress, what: str, items: Iterable[_Item], sizes: Sequence[int]) -> Iterator[_Item]:
    """The items one by one; which one it is, and what share of all sizes is done, is told before and after each."""
    total, done = max(sum(sizes), 1), 0
    for number, (item, size) in enumerate(zip(items, sizes, strict=True), 1):
        progress(f"{what} {number} of {len(sizes)}", done / total)
        yield item
        done += size
        progress(f"{what} {number} of {len(sizes)}", done / total)
