"""Bytes that a population takes on its device, by formula: nothing is compiled and nothing allocated to know them.

What stays on the device (market, windows, members, state with its replay) follows from shapes alone, and is exact. The
scratch of the epoch program is that of its largest moment: what the arrays of a moment need by design, not what a
compiler makes of them, which may be a few percent less or more. All counts are Python integers: no size overflows.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax

from tidewalk.agents import replay as replay_ops
from tidewalk.core.arrays import PyTree
from tidewalk.core.trees import nbytes
from tidewalk.market.windows import Windows
from tidewalk.train.batches import batch, buckets, group_size
from tidewalk.train.kernel import greedy
from tidewalk.train.population import Program, TrainState, initial_state, make_members
from tidewalk.train.rollout import bar_bytes

_WORD = 4
"""Bytes of float32, int32 and a random word."""


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
        return max(self.learning, self.evaluation)

    @property
    def peak(self) -> int:
        """The most that is held at a time; the state is updated in place, so it counts once."""
        return self.arguments + self.metrics + self.scratch


def predict(program: Program, market: PyTree, windows: Windows, member: PyTree, members: int) -> Memory:
    """Memory of `members` members of a program on one device.

    Args:
        program: static settings.
        market: the resident market, or its shapes.
        windows: all windows of the study, or their shapes.
        member: costs, hyper-parameters and account limits of one member, `(cost, hyper, limits)`: scalars, or their
            shapes.
        members: members on the device; 0 counts what is there without any.
    """
    return _counter(program, market, windows, member)(members)


def most_members(program: Program, market: PyTree, windows: Windows, member: PyTree, limit: int) -> int:
    """Most members on one device whose peak stays within `limit` bytes; 0 where not even one does."""
    count = _counter(program, market, windows, member)
    low, high = 0, 1
    while count(high).peak <= limit:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle).peak <= limit else (low, middle)
    return low


def _counter(program: Program, market: PyTree, windows: Windows, member: PyTree) -> Callable[[int], Memory]:
    """Number of members -> their memory; the shapes of one member are found once."""
    one = jax.eval_shape(functools.partial(make_members, 1, 1, 0), *member)
    state = jax.eval_shape(functools.partial(initial_state, program), windows, one)
    metrics = _WORD * 4 + nbytes(state.best.tally) + nbytes(state.is_alive)  # and loss, q_mean, score, epsilon
    each = 0 if program.learner == "kernel" else _learning(program, state)

    def count(members: int) -> Memory:
        return Memory(
            market=nbytes(market),
            windows=nbytes(windows),
            members=members * nbytes(one),
            learner=members * nbytes(state.agent),
            best=members * nbytes(state.best),
            lanes=members * (nbytes(state.lanes) + nbytes(state.is_alive)) + nbytes(state.clock),
            replay=members * program.capacity * replay_ops.WORDS * _WORD,
            metrics=members * metrics,
            learning=_kernel(program, members) if program.learner == "kernel" else members * each,
            evaluation=_evaluation(program, state, members),
        )

    return count


def _learning(program: Program, state: TrainState) -> int:
    """Scratch of one member in a vector step and its updates, whichever moment of these holds most.

    Acting holds observations and two layers of every lane. An update starts with the steps and observations of its
    batch and the outputs of every layer in three passes (chosen values, their successors by both networks), of which
    one layer more is on its way back. It ends with the gradient, beside what is left of the first of these passes and
    two layers on their way back.
    """
    agent, lanes, params = program.agent, program.lanes, jax.tree.leaves(program.agent.params(state.agent))
    layers = [leaf.size for leaf in params if leaf.ndim == 2]  # every bias, with the member axis
    observation, all_layers, widest = program.env.observation_size(program.num_features), sum(layers), max(layers)
    drawn = observation + 6 * agent.n_step
    moments = (
        lanes * (observation + 2 * widest),
        agent.batch_size * (drawn + 3 * all_layers + widest),
        agent.batch_size * (drawn + all_layers + 2 * widest) + sum(leaf.size for leaf in params),
    )
    by_step = 4 * program.steps_per_epoch  # keys that are drawn beforehand, metrics that are averaged afterwards
    return _WORD * (program.step_words + by_step + max(moments))


def _kernel(program: Program, members: int) -> int:
    """Scratch of the kernel: the random words of a launch, as they are drawn and joined, and networks in its order."""
    from tidewalk.train.kernel.call import chunk_steps
    from tidewalk.train.kernel.plan import plan_for

    if not members:
        return 0
    own = math.prod(plan_for(program, "float32").scratch)
    return _WORD * members * (2 * program.step_words * chunk_steps(program, members) + own)


def _kernel_evaluation(program: Program, params: PyTree, members: int) -> int:
    """Scratch of the validation by kernels: maps and squares, weights of members that are evaluated in groups."""
    each = greedy.bar_bytes(with_path=program.select == "sharpe")
    size = group_size(members, program.val_bars, each)
    return size * (program.val_bars * each + (size < members) * nbytes(params))


def _evaluation(program: Program, state: TrainState, members: int) -> int:
    """Scratch of the largest batch of the validation: activations, and the weights of its members where they move."""
    if not members:
        return 0
    params = program.agent.params(state.agent)
    if program.learner == "kernel":
        return _kernel_evaluation(program, params, members)
    most = 0
    plan = buckets(program.val_lengths, members, program.val_bars)
    for bucket in plan:
        size = batch(program.compose, bucket.stop - bucket.first, bucket.bars, bar_bytes(program.env, params))
        is_moved = len(plan) > 1 or size.members < bucket.stop - bucket.first
        most = max(most, size.members * (size.chunk * bar_bytes(program.env, params) + is_moved * nbytes(params)))
    return most
