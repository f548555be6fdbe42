"""Bytes that arrays take which come and go, as XLA lays them out in one piece of memory."""

import itertools
from collections.abc import Iterable, Sequence

Moment = tuple[int, ...]
"""Sizes of the arrays that are held at a time."""
Span = tuple[int, int, int]
"""Size of an array, and the first and the last tick of its life."""


class Tape:
    """Arrays in the order in which a program makes them and needs them no more."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._spans: list[list[int | None]] = []
        self._tick = 0

    def make(self, size: int) -> int:
        """A new array; its number."""
        self._tick += 1
        self._spans.append([size, self._tick, None])
        return len(self._spans) - 1

    def make_all(self, *sizes: int) -> list[int]:
        """New arrays; their numbers."""
        return [self.make(size) for size in sizes]

    def drop(self, *arrays: int) -> None:
        """Arrays whose last use was for what was made last."""
        for array in arrays:
            self._spans[array][2] = self._tick

    def spans(self) -> list[Span]:
        """The life of every array; one that was never dropped lives to the end."""
        return [(size or 0, first or 0, self._tick if last is None else last) for size, first, last in self._spans]


def moments(spans: Sequence[Span]) -> list[Moment]:
    """What is held at every tick at which something is made."""
    ticks = sorted({first for _, first, _ in spans})
    return [tuple(size for size, first, last in spans if first <= tick <= last) for tick in ticks]


def packed(spans: Sequence[Span]) -> int:
    """Bytes where memory is cut anew for each array, as XLA does for a CPU.

    Arrays are placed one after another, the largest first, or the longest-lived; the better of the two is taken. Each
    goes into the smallest gap among those it lives beside that holds it, or else on top of them.
    """
    by_size = sorted(spans, key=lambda span: (-span[0], span[1] - span[2]))
    by_life = sorted(by_size, key=lambda span: span[1] - span[2])
    return min(_placed(by_size), _placed(by_life))


def _placed(order: Iterable[Span]) -> int:
    placed: list[tuple[int, int, int, int]] = []
    for size, first, last in order:
        beside = sorted((start, stop) for start, stop, born, dead in placed if born <= last and first <= dead)
        start, gap, top = None, 0, 0
        for low, high in beside:
            if low - top >= size and (start is None or low - top < gap):
                start, gap = top, low - top
            top = max(top, high)
        start = top if start is None else start
        placed.append((start, start + size, first, last))
    return max((stop for _, stop, _, _ in placed), default=0)


def ranked(all_moments: Iterable[Moment]) -> int:
    """Bytes where an array takes over the whole memory of another, or none of it, as XLA does for a GPU.

    Sorted by size, the k-th piece of memory is as large as the k-th largest array of any moment.
    """
    by_rank = [sorted(moment, reverse=True) for moment in all_moments]
    return sum(max(sizes) for sizes in itertools.zip_longest(*by_rank, fillvalue=0))
