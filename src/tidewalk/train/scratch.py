"""What an epoch holds beside its arguments: the arrays of its phases, in the order in which they come and go.

Nothing is compiled to know them. The orders are those in which XLA schedules these programs, and which of their
operations it makes one kernel of; the tests hold all of it against what the compiler says. Sizes are in words of one
member where nothing else is said.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import jax

from tidewalk.train.batches import batch, buckets, group_size
from tidewalk.train.heaps import Moment, Tape, moments, packed, ranked
from tidewalk.train.kernel import greedy
from tidewalk.train.population import Program, TrainState
from tidewalk.train.rollout import bar_bytes

WORD = 4
"""Bytes of float32, int32 and a random word."""
_WIDE = 128
"""Features seen from which on a CPU makes them first, and joins the position to them in a copy."""
_RECORD_WORDS = 6
"""Words held of every record of a batch until the targets are known."""
_RECORD_WORDS_GPU = 2
"""The same on a GPU, whose kernels do more at once."""
_LANE_WORDS, _ACCOUNT_WORDS = 6, 16
"""Words held of a lane while it acts, and of its account."""
_BAR_WORDS = {(False, False): 0, (False, True): 1, (True, False): 3, (True, True): 7}
"""Words held of every bar of a validation range, by whether its path is asked for and whether an account is counted."""
_PRODUCT_BYTES, _MOST_PRODUCTS = 32 << 20, 5
"""What the library of a large GPU takes for a matrix product, and the most gradients that are computed at a time."""

Scratch = Callable[[int], tuple[int, int, int]]
"""Members -> bytes of the vector steps with their updates, of the validation, and of what serves both in turn."""


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """Sizes of a program and its network, of one member."""

    rows: int
    """Of a batch."""
    lanes: int
    seen: int
    """Features of an observation."""
    observation: int
    layers: tuple[int, ...]
    """Width of every layer, the output included."""
    weights: tuple[int, ...]
    """Elements of every layer's weights."""
    ends: tuple[int, ...]
    """Widths of the output and, of a duelling head, of the advantages and the action values made of it."""
    passes: int
    """Passes over the observations after a batch: one for the values, one to choose among them if double."""
    n_step: int
    always: tuple[int, ...]
    """Keys and words drawn beforehand, metrics averaged afterwards."""
    alone: bool = False
    """The only member: its products are plain ones, of transposed weights."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.layers[:-1]


def scratch(program: Program, state: TrainState) -> Scratch:
    """Scratch of the epoch of a program, by members.

    Args:
        program: static settings.
        state: shapes of the state of one member.
    """
    if program.learner == "kernel":
        return functools.partial(_of_kernels, program, state)
    sizes = _sizes(program, state)
    if program.compose == "scan":
        return functools.partial(_on_cpu, program, state, sizes, _learning_on_cpu(program, state, sizes))
    return functools.partial(_on_accelerator, program, state, sizes)


def _sizes(program: Program, state: TrainState) -> _Sizes:
    agent, env, leaves = program.agent, program.env, jax.tree.leaves(program.agent.params(state.agent))
    layers = tuple(leaf.size for leaf in leaves if leaf.ndim == 2)  # every bias, with the member axis
    actions, words, steps = env.num_positions, program.step_words, program.steps_per_epoch
    return _Sizes(
        rows=agent.batch_size,
        lanes=program.lanes,
        seen=env.lookback * program.num_features,
        observation=env.observation_size(program.num_features),
        layers=layers,
        weights=tuple(leaf.size for leaf in leaves if leaf.ndim == 3),
        ends=(actions,) if layers[-1] == actions else (layers[-1], actions, actions),
        passes=1 + getattr(agent.config, "double", True),
        n_step=agent.n_step,
        always=(words, words // 4, *[steps] * 4),
    )


def _learning_on_cpu(program: Program, state: TrainState, sizes: _Sizes) -> Callable[[int], int]:
    """Words of one member's vector steps and updates, by whether it is the only one."""

    @functools.cache
    def words(members: int) -> int:
        own = dataclasses.replace(sizes, alone=members == 1)
        drawn, steps = (4 * program.step_words, *[program.steps_per_epoch] * 4), 6 * program.steps_per_epoch
        acting = packed(_acting_on_cpu(own, has_account=state.lanes.account is not None).spans())
        return max(packed(_updating_on_cpu(own).spans()), acting, sum(drawn), steps)

    return lambda members: words(min(members, 2))


def _on_cpu(
    program: Program, state: TrainState, sizes: _Sizes, learning: Callable[[int], int], members: int
) -> tuple[int, int, int]:
    found = members and WORD * members * learning(members)
    evaluation = max((packed(tape.spans()) for tape in _evaluating(program, state, sizes, members)), default=0)
    return found, evaluation, max(found, evaluation)


def _observed(tape: Tape, sizes: _Sizes, rows: int) -> int:
    if sizes.seen < _WIDE:
        return tape.make(rows * sizes.observation)
    seen = tape.make(rows * sizes.seen)
    joined = tape.make(rows * sizes.observation)
    tape.drop(seen)
    return joined


def _through(tape: Tape, inputs: list[int], size: int, *, is_copied: bool = False) -> list[int]:
    """The next layer of some passes side by side, one where there is none yet; activated in place, or into a copy."""
    made: list[int] = []
    for place, before in enumerate(inputs or [-1]):
        made.append(tape.make(size))
        if inputs and before not in inputs[place + 1 :]:
            tape.drop(before)
    for place, before in enumerate(made if is_copied else ()):
        made[place] = tape.make(size)
        tape.drop(before)
    return made


def _acting_on_cpu(sizes: _Sizes, *, has_account: bool) -> Tape:
    tape = Tape()
    tape.make_all(*sizes.always, *[sizes.lanes] * (_LANE_WORDS + _ACCOUNT_WORDS * has_account))
    at = [_observed(tape, sizes, sizes.lanes)]
    for width in sizes.layers:
        at = _through(tape, at, sizes.lanes * width, is_copied=sizes.alone)
    return tape


def _updating_on_cpu(sizes: _Sizes) -> Tape:
    """An update: forward, where the pass that is learned keeps both sides of every activation, and back.

    The other passes follow three layers behind it, since what they start from takes longer to be found; where targets
    are of one step they run abreast.
    """
    rows, hidden, tape = sizes.rows, sizes.hidden, Tape()
    tape.make_all(*sizes.always)
    records = tape.make_all(*[rows * sizes.n_step] * _RECORD_WORDS)
    online, target = (tape.make_all(*sizes.weights[1:-1] * sizes.alone) for _ in range(2))
    kept, values, others = [_observed(tape, sizes, rows)], list[int](), list[int]()
    own, other = (*hidden, *sizes.ends, sizes.ends[-1]), (*hidden, *sizes.ends)
    behind = 3 if sizes.n_step > 1 else 0
    for level in range(len(other) + behind):
        if level == behind:
            others = [_observed(tape, sizes, rows)] * sizes.passes
        if level >= behind:
            is_copied = sizes.alone and level - behind < len(hidden)
            others = _through(tape, others, rows * other[level - behind], is_copied=is_copied)
        if level < len(hidden):
            kept += tape.make_all(rows * own[level], rows * own[level])
        elif level < len(own):
            values = _through(tape, values, rows * own[level])
    tape.drop(*others, *records, *target)
    _going_back(tape, sizes, kept, _through(tape, values, rows * sizes.ends[0]), online)
    return tape


def _going_back(tape: Tape, sizes: _Sizes, kept: list[int], error: list[int], online: list[int]) -> None:
    """Gradients of an update, layer by layer: each takes what was kept of the layer below, and lives to the end."""
    for layer in reversed(range(len(sizes.layers))):
        below = [tape.make(sizes.rows * sizes.layers[layer - 1])] if layer else []
        if online and layer < len(sizes.layers) - 1:
            tape.drop(online.pop())
        tape.make(sizes.weights[layer])
        tape.drop(*error, *(kept.pop() for _ in range(2 if layer else 1)))
        error = below


def _on_accelerator(program: Program, state: TrainState, sizes: _Sizes, members: int) -> tuple[int, int, int]:
    if not members:
        return 0, 0, 0
    product = (_PRODUCT_BYTES,)
    layers, passes = min(len(sizes.layers), _MOST_PRODUCTS), 1 + sizes.passes
    products = {
        _acting_on_accelerator: product,
        _going_forward: product * passes,
        _turning: product * (passes if sizes.passes > 1 else layers),  # one pass less to wait for
        _going_backward: product * layers,
    }
    learning = [
        (*(WORD * members * size for size in moment), *beside)
        for of_one, beside in products.items()
        for moment in of_one(sizes)
    ]
    tapes = _evaluating(program, state, sizes, members)
    evaluation = [(*moment, *product) for tape in tapes for moment in moments(tape.spans())]
    return ranked(learning), ranked(evaluation), ranked([*learning, *evaluation])


def _acting_on_accelerator(sizes: _Sizes) -> list[Moment]:
    """Every layer with the one before it."""
    widths = itertools.pairwise((sizes.observation, *sizes.layers))
    return [(*sizes.always, *(sizes.lanes * width for width in pair)) for pair in widths]


def _going_forward(sizes: _Sizes) -> list[Moment]:
    """The outputs of all passes, which run side by side."""
    return [(*_batch_on_accelerator(sizes), *[sizes.rows * width for width in sizes.layers] * (1 + sizes.passes))]


def _turning(sizes: _Sizes) -> list[Moment]:
    """The outputs of the hidden layers of all passes, and one layer on its way back."""
    hidden = [sizes.rows * width for width in sizes.hidden] * (1 + sizes.passes)
    return [(*_batch_on_accelerator(sizes), *hidden, sizes.rows * max(sizes.layers))]


def _batch_on_accelerator(sizes: _Sizes) -> Moment:
    observed, records = sizes.rows * sizes.observation, [sizes.rows * sizes.n_step] * _RECORD_WORDS_GPU
    return (*sizes.always, *records, observed, observed)


def _going_backward(sizes: _Sizes) -> list[Moment]:
    """The gradient, beside what is left of the pass that is learned and two layers on their way back."""
    layers, wide = [sizes.rows * width for width in sizes.layers], sizes.rows * max(sizes.layers)
    learned = (sizes.rows * sizes.observation, *layers, wide, wide)
    return [(*sizes.always, *learned, *sizes.weights, *sizes.layers)]


def _evaluating(program: Program, state: TrainState, sizes: _Sizes, members: int) -> list[Tape]:
    """Bytes of the validation of each bucket, of as many members and bars as are evaluated at a time.

    Once the members do not fit at a time, or are put in order, their weights are copied; those of the first layer that
    meet the features always are.
    """
    params, env = program.agent.params(state.agent), program.env
    each, held = bar_bytes(env, params), env.reachable.stop - env.reachable.start
    plan, tapes = buckets(program.val_lengths, members, program.val_bars) if members else [], list[Tape]()
    for bucket in plan:
        size = batch(program.compose, bucket.stop - bucket.first, bucket.bars, each)
        tape, at_once = Tape(), WORD * size.members * size.chunk
        if len(plan) > 1 or size.members < bucket.stop - bucket.first:
            tape.make_all(*(WORD * size.members * leaf.size for leaf in jax.tree.leaves(params)))
        elif members == 1 and program.compose == "scan":
            tape.make_all(*(WORD * weights for weights in sizes.weights[1:-1]))  # transposed
        bar_words = _BAR_WORDS[program.select == "sharpe", state.lanes.account is not None]
        tape.make_all(
            *[WORD * size.members * bucket.bars] * bar_words, WORD * size.members * sizes.seen * sizes.layers[0]
        )
        at = tape.make(at_once * sizes.seen)
        widths = (sizes.layers[0], *(held * width for width in (*sizes.hidden, *sizes.ends)))
        for width in widths:
            at = _through(tape, [at], at_once * width)[0]
        tapes.append(tape)
    return tapes


def _of_kernels(program: Program, state: TrainState, members: int) -> tuple[int, int, int]:
    if not members:
        return 0, 0, 0
    learning, evaluation = _kernel(program, members), _kernel_evaluation(program, state, members)
    return sum(learning), sum(evaluation), ranked([learning, evaluation])


def _kernel(program: Program, members: int) -> Moment:
    """Arrays of a launch of the kernel: random words, what is given for each step and update, networks in its order."""
    from tidewalk.train.kernel.call import chunk_steps
    from tidewalk.train.kernel.plan import plan_for

    steps, own = chunk_steps(program, members), math.prod(plan_for(program, "float32").scratch)
    given = (1, 1, 1, 1, 2 * program.agent.updates_per_step)  # keys, epsilon, the corrections of Adam
    return tuple(WORD * members * size for size in (own, *(steps * count for count in (program.step_words, *given))))


def _kernel_evaluation(program: Program, state: TrainState, members: int) -> Moment:
    """Arrays of the validation by kernels: maps and squares, weights of members that are evaluated in groups."""
    each = greedy.bar_bytes(with_path=program.select == "sharpe")
    size = group_size(members, program.val_bars, each)
    weights = jax.tree.leaves(program.agent.params(state.agent)) if size < members else []
    return tuple(
        WORD * size * count for count in (*[program.val_bars] * (each // WORD), *(leaf.size for leaf in weights))
    )
