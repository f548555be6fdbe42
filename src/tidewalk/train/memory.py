"""Bytes that a population takes on its device, by formula: nothing is compiled and nothing allocated to know them.

What stays on the device (market, windows, members, state with its replay) follows from shapes alone, and is exact. The
scratch of the epoch program is what its moments need by design, not what a compiler makes of them, which may be a few
percent less or more. On a CPU it is that of the largest moment. On a GPU, where kernels run side by side, the compiler
hands memory on from array to array as a whole. All counts are Python integers: no size overflows.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable

import jax

from tidewalk.agents import replay as replay_ops
from tidewalk.core.arrays import PyTree
from tidewalk.core.trees import nbytes
from tidewalk.market.windows import Windows
from tidewalk.train.batches import batch, buckets, group_size
from tidewalk.train.kernel import greedy
from tidewalk.train.population import Program, TrainState, initial_state, make_members
from tidewalk.train.rollout import bar_bytes

Moment = tuple[int, ...]
"""Sizes of the arrays that are held at a time."""
_WORD = 4
"""Bytes of float32, int32 and a random word."""
_UNEVEN = 256
"""Members up to which more of them may take less, since their shares are smaller."""
_PRODUCT_BYTES, _PRODUCTS = 32 << 20, 3
"""What the library of a large GPU takes for a matrix product, and the products that run side by side."""


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
    """A state on the host, where that is in the memory of the device: the whole that is joined of shares to be written,
    or a file that is read beside its arrays. No epoch runs then, so it takes the place of its scratch."""

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
    metrics = _WORD * 4 + nbytes(state.best.tally) + nbytes(state.is_alive)  # and loss, q_mean, score, epsilon
    each = [] if program.learner == "kernel" else _learning(program, state)
    at_once = _in_arrays if _is_accelerated(program) else _in_heap

    def states(members: int) -> dict[str, int]:
        return {
            "learner": members * nbytes(state.agent),
            "best": members * nbytes(state.best),
            "lanes": members * (nbytes(state.lanes) + nbytes(state.is_alive)) + nbytes(state.clock),
            "replay": members * program.capacity * replay_ops.WORDS * _WORD,
        }

    def count(members: int, whole: int) -> Memory:
        learning = [tuple(members * size for size in moment) for moment in each] or [_kernel(program, members)]
        evaluation = _evaluation(program, state, members)
        if _is_accelerated(program) and program.learner != "kernel":
            learning = [(*moment, *[_PRODUCT_BYTES] * _PRODUCTS) for moment in learning]
            evaluation = [(*moment, _PRODUCT_BYTES) for moment in evaluation]
        one_by_one = at_once(learning), at_once(evaluation)
        return Memory(
            market=nbytes(market),
            windows=nbytes(windows),
            members=members * nbytes(one),
            **states(members),
            metrics=members * metrics,
            learning=one_by_one[0],
            evaluation=one_by_one[1],
            apart=at_once([*learning, *evaluation]) - max(one_by_one),
            checkpoint=0 if _is_accelerated(program) else sum(states(whole).values()),
        )

    def dealt(members: int) -> Memory:
        size, populations, at_a_time = parts(members)
        return count(size, members).times(populations, at_a_time)

    return dealt


def _is_accelerated(program: Program) -> bool:
    return program.compose == "associative"


def _in_arrays(moments: Iterable[Moment]) -> int:
    """Bytes that serve all moments where an array takes over the whole memory of another, or none of it.

    Sorted by size, the k-th piece of memory is as large as the k-th largest array of any moment.
    """
    ranked = [sorted(moment, reverse=True) for moment in moments]
    return sum(max(sizes) for sizes in itertools.zip_longest(*ranked, fillvalue=0))


def _in_heap(moments: Iterable[Moment]) -> int:
    """Bytes that serve all moments where memory is cut anew for each."""
    return max(map(sum, moments))


def _learning(program: Program, state: TrainState) -> list[Moment]:
    """Arrays of one member at the moments of a vector step and its updates that may hold most.

    Acting holds observations and two layers of every lane. An update starts with the steps and observations of its
    batch and the outputs of every layer in three passes (chosen values, their successors by both networks), of which
    one layer more is on its way back. It ends with the gradient, beside what is left of the first of these passes and
    two layers on their way back.
    """
    agent, lanes, params = program.agent, program.lanes, jax.tree.leaves(program.agent.params(state.agent))
    widths = [leaf.size for leaf in params if leaf.ndim == 2]  # every bias, with the member axis
    observation, rows, widest = program.env.observation_size(program.num_features), agent.batch_size, max(widths)
    batch = [rows * observation] + [rows * agent.n_step] * 6
    layers, wide = [rows * width for width in widths], rows * widest
    always = (program.step_words, *[program.steps_per_epoch] * 4)  # keys drawn beforehand, metrics averaged afterwards
    moments = (
        tuple(lanes * width for width in (observation, *sorted(widths)[-2:])),
        (*batch, *layers * 3, wide),
        (*batch, *layers, wide, wide, *(leaf.size for leaf in params)),
    )
    return [tuple(_WORD * size for size in (*always, *moment)) for moment in moments]


def _kernel(program: Program, members: int) -> Moment:
    """Arrays of a launch of the kernel: random words, what is given for each step and update, networks in its order."""
    from tidewalk.train.kernel.call import chunk_steps
    from tidewalk.train.kernel.plan import plan_for

    if not members:
        return (0,)
    steps, own = chunk_steps(program, members), math.prod(plan_for(program, "float32").scratch)
    given = (1, 1, 1, 1, 2 * program.agent.updates_per_step)  # keys, epsilon, the corrections of Adam
    return tuple(_WORD * members * size for size in (own, *(steps * count for count in (program.step_words, *given))))


def _kernel_evaluation(program: Program, params: PyTree, members: int) -> Moment:
    """Arrays of the validation by kernels: maps and squares, weights of members that are evaluated in groups."""
    each = greedy.bar_bytes(with_path=program.select == "sharpe")
    size = group_size(members, program.val_bars, each)
    weights = [leaf.size for leaf in jax.tree.leaves(params)] if size < members else []
    return tuple(_WORD * size * count for count in (*[program.val_bars] * (each // _WORD), *weights))


def _evaluation(program: Program, state: TrainState, members: int) -> list[Moment]:
    """Arrays of the validation of each bucket: two layers, the outputs, and the weights of members where they move."""
    if not members:
        return [(0,)]
    params = program.agent.params(state.agent)
    if program.learner == "kernel":
        return [_kernel_evaluation(program, params, members)]
    env, each = program.env, bar_bytes(program.env, params)
    outputs = _WORD * (env.reachable.stop - env.reachable.start) * env.num_positions
    plan, moments = buckets(program.val_lengths, members, program.val_bars), []
    for bucket in plan:
        size = batch(program.compose, bucket.stop - bucket.first, bucket.bars, each)
        is_moved = len(plan) > 1 or size.members < bucket.stop - bucket.first
        layers = [size.chunk * count for count in ((each - outputs) // 2, (each - outputs) // 2, outputs)]
        weights = [_WORD * leaf.size for leaf in jax.tree.leaves(params)] if is_moved else []
        moments.append(tuple(size.members * count for count in (*layers, *weights)))
    return moments
