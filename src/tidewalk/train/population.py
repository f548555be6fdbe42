"""The member axis: windows x seeds as one population, and the state that a study carries from epoch to epoch."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.agents import replay as replay_ops
from tidewalk.agents.agent import Agent
from tidewalk.core import keys
from tidewalk.core.arrays import Array, Bool, Float32, HostOrDevice, Int32, Key, PyTree
from tidewalk.core.errors import ConfigError
from tidewalk.core.words import counted
from tidewalk.market.windows import Windows
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig, Tally, no_tally
from tidewalk.trading.limits import Account, Limits, open_account

_MOST_MEMBERS = 2**24
_MEMBER_AXES = {"replay": 1, "clock": None}
"""Axis of the members in a part of a train state, where it is not the first."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long and how widely a study trains."""

    epochs: int = 20
    """Epochs; after each one every member is evaluated on its validation months."""
    max_steps_per_epoch: int = 500
    """Vector steps in an epoch; one step moves every lane one bar and is followed by --updates-per-step updates."""
    seeds: int = 4
    """Members per window, alike but for their random streams."""
    seed: int = 0
    """Root seed of the study."""
    lanes: int = 64
    """Environments that a member collects from in parallel."""
    replay_capacity: int = 32768
    """Transitions that a member remembers; rounded up to a multiple of --lanes."""
    prefill_steps: int = 16
    """Vector steps of random actions before the first epoch."""
    episode_bars: int = 512
    """Bars after which a lane restarts at a random bar of the train months (a truncation, not an end)."""
    select: Literal["reward", "sharpe"] = "reward"
    """What makes an epoch the best on the validation months: net reward or session Sharpe; ties to the earlier."""

    def __post_init__(self) -> None:
        """Refuse sizes that train nothing."""
        for name in (
            "epochs",
            "max_steps_per_epoch",
            "seeds",
            "lanes",
            "replay_capacity",
            "prefill_steps",
            "episode_bars",
        ):
            if not 1 <= getattr(self, name) < 2**31:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be from 1 to 2147483647."
                )
        steps = self.epochs * self.max_steps_per_epoch + self.prefill_steps
        if steps >= 2**31:
            raise ConfigError(
                f"--epochs {self.epochs} of --max-steps-per-epoch {self.max_steps_per_epoch} are {steps} vector steps; "
                "2147483647 can be counted."
            )
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"--seed is {self.seed}; it must be from 0 to 2147483647.")


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything static: what changes it changes the compiled program."""

    agent: Agent
    env: EnvConfig
    num_features: int
    lanes: int
    capacity: int
    steps_per_epoch: int
    prefill_steps: int
    episode_bars: int
    select: str
    val_bars: int
    """Longest validation range in decisions."""
    test_bars: int
    val_sessions: int
    """Most sessions in a validation range."""
    compose: Literal["scan", "associative"]
    """How position maps are chained along time (see `train.chains.prefix`)."""
    has_spread: bool = False
    """Whether the market holds recorded spreads that costs use."""
    val_lengths: tuple[int, ...] = ()
    """Decisions of the validation range of every member; empty where they are not known: then `val_bars` each."""
    test_lengths: tuple[int, ...] = ()
    test_sessions: int = 0
    """Most sessions in a test range; 0 where they are not known."""
    session_bars: int = 0
    """Most decisions of a session in a validation or test range; 0 where not known: accounts go row by row."""
    learner: Literal["xla", "kernel"] | None = None
    """What runs the vector steps of an epoch: a compiled scan, or one kernel of a GPU. None: not settled yet (that is
    done before anything is compiled for training); what is compiled of it all the same is a scan."""

    @property
    def step_words(self) -> int:
        """Random words of a member in a vector step: three for each lane, then one for each sampled transition."""
        return 3 * self.lanes + self.agent.updates_per_step * self.agent.batch_size

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit one another."""
        if self.prefill_steps < self.agent.n_step:
            raise ConfigError(
                f"--prefill-steps is {self.prefill_steps}; n-step targets of {self.agent.n_step} need that many "
                "or more."
            )
        slots = self.capacity // self.lanes
        if slots < self.agent.n_step:
            raise ConfigError(
                f"--replay-capacity holds {slots} vector steps of {self.lanes} lanes; --n-step {self.agent.n_step} "
                "needs more."
            )


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["key", "window", "seed", "cost", "hyper", "limits"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Members:
    """What makes members differ; constant over a study. Window-major: member = window x seeds + seed."""

    key: Key[Array, "*members"]
    window: Int32[Array, "*members"]
    seed: Int32[Array, "*members"]
    cost: CostTicks
    hyper: PyTree
    limits: Limits | None = None
    """Account limits; None where an account is not counted."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["bar", "position", "age", "account"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Lanes:
    """Where the collection lanes of a member stand: next bar to decide, position held, steps since the restart."""

    bar: Int32[Array, "*members E"]
    position: Int32[Array, "*members E"]
    age: Int32[Array, "*members E"]
    account: Account | None = None
    """Account of the episode `[*members, E]`; None where there are no account limits."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "score", "epoch", "spread", "tally"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Best:
    """Best epoch of each member so far, kept on the device. Epoch 0 and score -inf: none yet."""

    params: PyTree
    score: Float32[Array, "*members"]
    epoch: Int32[Array, "*members"]
    spread: Float32[Array, "*members"]
    """Root mean square of the centred action values on the validation months: the unit in which seeds are averaged."""
    tally: Tally
    """Validation result of that epoch, `[*members]`."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["agent", "lanes", "replay", "clock", "best", "is_alive"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that changes: donated to each epoch, written whole to each checkpoint."""

    agent: PyTree
    lanes: Lanes
    replay: Int32[Array, "C M 2"]
    clock: Int32[Array, ""]
    """Vector steps stored since the start, prefill included; shared by all members."""
    best: Best
    is_alive: Bool[Array, "M"]
    """False from the first non-finite loss of a member on."""


def member_axis(path: tuple[Any, ...]) -> int | None:
    """Axis of the members in a leaf of a train state, or of a tree by member; None: it is shared by all of them.

    Args:
        path: of the leaf, as jax tells it.
    """
    return _MEMBER_AXES.get(getattr(path[0], "name", ""), 0)


def make_members(
    windows: int, seeds: int, root_seed: int, cost: CostTicks, hyper: PyTree, limits: Limits | None = None
) -> Members:
    """Members of windows x seeds, all with the same leaf hyper-parameters (scalars in `hyper`).

    Leaves of `cost` and `limits` are scalars, or `[W]`: one for each window.
    """
    count = windows * seeds
    window = jnp.arange(count, dtype=jnp.int32) // seeds
    seed = jnp.arange(count, dtype=jnp.int32) % seeds
    root = keys.root_key(root_seed)

    def by_member(leaf: HostOrDevice) -> Array:
        return jnp.repeat(jnp.broadcast_to(jnp.asarray(leaf), (windows,)), seeds)

    return Members(
        key=jax.vmap(keys.member_key, in_axes=(None, 0, 0))(root, window, seed),
        window=window,
        seed=seed,
        cost=jax.tree.map(by_member, cost),
        hyper=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), hyper),
        limits=jax.tree.map(by_member, limits),
    )


def window_of(windows: Windows, window: Int32[Array, ""]) -> Windows:
    """The row of one window, axis W removed."""
    return jax.tree.map(lambda leaf: leaf[window], windows)


def initial_state(program: Program, windows: Windows, members: Members) -> TrainState:
    """Fresh state: drawn weights, lanes at random bars of the train months, an empty replay."""
    count = members.window.shape[0]
    agent = jax.vmap(lambda key: program.agent.init(keys.init_key(key)))(members.key)
    lanes = jax.vmap(functools.partial(_initial_lanes, program, windows))(members)
    best = Best(
        params=jax.tree.map(jnp.copy, program.agent.params(agent)),
        score=jnp.full(count, -jnp.inf, jnp.float32),
        epoch=jnp.zeros(count, jnp.int32),
        spread=jnp.ones(count, jnp.float32),
        tally=no_tally(program.env, (count,), has_spread=program.has_spread),
    )
    return TrainState(
        agent=agent,
        lanes=lanes,
        replay=replay_ops.empty(program.capacity, count),
        clock=jnp.int32(0),
        best=best,
        is_alive=jnp.ones(count, bool),
    )


def random_bar(train: Int32[Array, "2"], bits: Array) -> Int32[Array, "*batch"]:
    """A decision bar of the range `[first, stop)` for each random word."""
    span = (train[1] - train[0]).astype(jnp.uint32)
    return train[0] + (bits % span).astype(jnp.int32)


def _initial_lanes(program: Program, windows: Windows, member: Members) -> Lanes:
    bits = jax.random.bits(keys.lanes_key(member.key), (program.lanes,), dtype="uint32")
    return Lanes(
        bar=random_bar(windows.train[member.window], bits),
        position=jnp.full(program.lanes, program.env.flat, jnp.int32),
        age=jnp.zeros(program.lanes, jnp.int32),
        account=None if member.limits is None else open_account((program.lanes,)),
    )


def refuse_crowds(windows: int, seeds: int) -> None:
    """Refuse more members than can be listed at all; whether fewer fit is for the memory of the device to say.

    Raises:
        ConfigError: names the most seeds.
    """
    if windows * seeds > _MOST_MEMBERS:
        raise ConfigError(
            f"{counted(windows, 'window')} x --seeds {seeds} are {windows * seeds} members; a population has "
            f"{_MOST_MEMBERS} at most. Use --seeds {_MOST_MEMBERS // windows} or fewer."
        )


def longest(decisions: np.ndarray) -> int:
    """Length of the longest decision range of `[W, 2]`."""
    return int((decisions[:, 1] - decisions[:, 0]).max())
