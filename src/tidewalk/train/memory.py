"""Bytes that a population takes on its device, by formula: nothing is compiled and nothing allocated to know them.

What stays on the device (market, windows, members, state with its replay) follows from shapes alone, and is exact. The
scratch of the epoch program is modelled in `train.scratch`, array by array; what a compiler makes of it may be a few
percent less or more. All counts are Python integers: no size overflows.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax

from tidewalk.agents import replay as replay_ops
from tidewalk.core.arrays import PyTree
from tidewalk.core.trees import nbytes
from tidewalk.market.windows import Windows
from tidewalk.train.population import Program, initial_state, make_members
from tidewalk.train.scratch import WORD, scratch

_UNEVEN = 256
"""Members up to which more of them may take less, since their shares are smaller."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of a population on one device, by part."""

    market: int
    windows: int
    members: int
    """Keys, costs and hyper-parameters."""
    learner: int
    """Weights, target network, moments of the optimiser."""
    best: int
    """The best epoch of every member."""
    lanes: int
    replay: int
    metrics: int
    """What an epoch returns beside the state."""
    learning: int
    """Scratch of the vector steps and their updates."""
    evaluation: int
    """Scratch of the validation, which runs after them in the same memory."""
    apart: int
    """What these two cannot share of it."""
    checkpoint: int
    """The largest array of the state on the host, where that is in the memory of the device: joined of shares to be
    written, or read to be dealt out. No epoch runs then, so it takes the place of its scratch."""

    @property
    def state(self) -> int:
        """What a checkpoint holds."""
        return self.learner + self.best + self.lanes + self.replay

    @property
    def arguments(self) -> int:
        """What lies on the device between two epochs."""
        return self.market + self.windows + self.members + self.state

    @property
    def scratch(self) -> int:
        """What an epoch needs beside, while it runs."""
        return max(self.learning, self.evaluation) + self.apart

    @property
    def epoch(self) -> int:
        """The most that is held while an epoch runs; the state is updated in place, so it counts once."""
        return self.arguments + self.metrics + self.scratch

    @property
    def peak(self) -> int:
        """The most that a run holds at a time."""
        return max(self.epoch, self.arguments + self.metrics + self.checkpoint)

    def with_scratch(self, found: int) -> "Memory":
        """The same with the scratch that the compiled epoch is found to take, told of its larger part."""
        larger = "learning" if self.learning >= self.evaluation else "evaluation"
        parts = {name: min(found, getattr(self, name)) for name in ("learning", "evaluation")}
        return dataclasses.replace(self, **(parts | {larger: found}), apart=0)

    def times(self, populations: int, at_a_time: int) -> "Memory":
        """Memory of several such populations on one market, some computed at a time, with the checkpoint of all."""
        if populations == 1:
            return self
        shared, scratch = ("market", "windows"), ("learning", "evaluation", "apart")
        factors = dict.fromkeys(vars(self), populations) | dict.fromkeys((*shared, "checkpoint"), 1)
        factors |= dict.fromkeys(scratch, at_a_time) | {"members": 2 * populations}  # dealt out, and all of them
        return Memory(**{name: factors[name] * size for name, size in vars(self).items()})


Parts = Callable[[int], tuple[int, int, int]]
"""Members -> size and number of the populations that they are dealt out in, and how many are computed at a time."""


def together(members: int) -> tuple[int, int, int]:
    """All members as one population."""
    return members, 1, 1


def predict(
    program: Program, market: PyTree, windows: Windows, member: PyTree, members: int, parts: Parts = together
) -> Memory:
    """Memory of `members` members of a program on one device.

    Args:
        program: static settings.
        market: the resident market, or its shapes.
        windows: all windows of the study, or their shapes.
        member: costs, hyper-parameters and account limits of one member, `(cost, hyper, limits)`: scalars, or their
            shapes.
        members: members on the device; 0 counts what is there without any.
        parts: how they are dealt out.
    """
    return _counter(program, market, windows, member, parts)(members)


def most_members(
    program: Program, market: PyTree, windows: Windows, member: PyTree, limit: int, parts: Parts = together
) -> int:
    """Most members on one device whose peak stays within `limit` bytes; 0 where not even one does.

    Of members in shares, fewer may take more, and not fit: the sizes of shares go up and down with their number.
    """
    count = _counter(program, market, windows, member, parts)
    low, high = 0, _UNEVEN
    while count(high).peak <= limit:
        low, high = high, 2 * high
    if not low:
        return next((few for few in range(_UNEVEN - 1, 0, -1) if count(few).peak <= limit), 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle).peak <= limit else (low, middle)
    return low


def _counter(
    program: Program, market: PyTree, windows: Windows, member: PyTree, parts: Parts
) -> Callable[[int], Memory]:
    """Number of members -> their memory; the shapes of one member are found once."""
    one = jax.eval_shape(functools.partial(make_members, 1, 1, 0), *member)
    state = jax.eval_shape(functools.partial(initial_state, program), windows, one)
    metrics = WORD * 4 + nbytes(state.best.tally) + nbytes(state.is_alive)  # and loss, q_mean, score, epsilon
    scratch_of = scratch(program, state)

    def states(members: int) -> dict[str, int]:
        return {
            "learner": members * nbytes(state.agent),
            "best": members * nbytes(state.best),
            "lanes": members * (nbytes(state.lanes) + nbytes(state.is_alive)) + nbytes(state.clock),
            "replay": members * program.capacity * replay_ops.WORDS * WORD,
        }

    def count(members: int, whole: int) -> Memory:
        learning, evaluation, both = scratch_of(members)
        return Memory(
            market=nbytes(market),
            windows=nbytes(windows),
            members=members * nbytes(one),
            **states(members),
            metrics=members * metrics,
            learning=learning,
            evaluation=evaluation,
            apart=both - max(learning, evaluation),
            checkpoint=0 if _is_accelerated(program) else whole * max(map(nbytes, jax.tree.leaves(state))),
        )

    def dealt(members: int) -> Memory:
        size, populations, at_a_time = parts(members)
        return count(size, members).times(populations, at_a_time)

    return dealt


def _is_accelerated(program: Program) -> bool:
    return program.compose == "associative"
