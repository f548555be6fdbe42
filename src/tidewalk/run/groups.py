"""Several configurations on one resident market.

Configurations that differ in leaf hyper-parameters alone (learning rate, discount, costs, seed ...) are one population
with one compiled program; what is static (layer sizes, batch size, n-step ...) makes another group. The market is
uploaded once for all of them. Groups run one after another, or take turns epoch by epoch; either way the members of a
configuration get what they would get alone: to the byte as a group, to float rounding in a merged population.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, Hyper
from tidewalk.core.errors import ConfigError
from tidewalk.core.words import counted
from tidewalk.market.device import Market, MarketData
from tidewalk.market.windows import Windows
from tidewalk.run import memory, mesh
from tidewalk.run.ahead import Runner
from tidewalk.run.engine import Kept, Resident, Stage, ready
from tidewalk.run.learner import with_learner
from tidewalk.run.mesh import Transfers
from tidewalk.run.programs import BY_MEMBER, WHOLE
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import Study, plan_study
from tidewalk.train.memory import Memory
from tidewalk.train.population import Members, Program, make_members

Order = Literal["in-turn", "interleaved"]
Metrics = dict[str, np.ndarray]
OnEpoch = Callable[[int, int, Metrics], None]
"""(place of the configuration, epoch, metrics `[M]` of its members)."""
_LEAVES = {field.name for field in dataclasses.fields(Hyper)} & {field.name for field in dataclasses.fields(DQNConfig)}


@dataclasses.dataclass(frozen=True)
class Group:
    """Studies that are alike but for leaves: one population, their members one after the other."""

    studies: tuple[Study, ...]
    places: tuple[int, ...]
    """Where each of them stands among the configurations that were asked for."""

    @property
    def program(self) -> Program:
        """Static settings of the whole population."""
        programs = [study.program for study in self.studies]
        lengths = {
            name: tuple(length for program in programs for length in getattr(program, name))
            for name in ("val_lengths", "test_lengths")
        }
        return dataclasses.replace(programs[0], **lengths)

    @property
    def num_members(self) -> int:
        """M, over all studies."""
        return sum(study.num_members for study in self.studies)

    @property
    def epochs(self) -> int:
        """Epochs, the same for all."""
        return self.studies[0].config.train.epochs

    def rows(self) -> Iterator[tuple[int, Study, slice]]:
        """Place, study and members of each configuration."""
        first = 0
        for place, study in zip(self.places, self.studies, strict=True):
            yield place, study, slice(first, first + study.num_members)
            first += study.num_members


@dataclasses.dataclass(frozen=True)
class Started:
    """Groups whose market is on the device."""

    groups: tuple[Group, ...]
    residents: tuple[Resident, ...]
    order: Order
    transfers: Transfers
    notes: tuple[str, ...]
    """What a log should say: what runs the steps, each said once."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """What became of one configuration: all that `outcome.settle` needs to trade its test months."""

    stage: Stage
    kept: Kept
    metrics: tuple[Metrics, ...]
    """Of every epoch, `[M]`."""


def merge(studies: Sequence[Study]) -> tuple[Group, ...]:
    """The fewest groups of studies that can share a program, in the order in which each is first met."""
    found: dict[Any, list[int]] = {}
    for place, study in enumerate(studies):
        found.setdefault(_static(study), []).append(place)
    return tuple(Group(tuple(studies[place] for place in places), tuple(places)) for places in found.values())


def start_groups(configs: Sequence[RunConfig], markets: Sequence[MarketData], *, order: Order = "in-turn") -> Started:
    """Plan the studies, and upload their market with the windows and members of all of them in one counted call.

    Args:
        configs: the configurations, all of the same data.
        markets: the market of every symbol.
        order: `in-turn` holds the state of one group at a time, `interleaved` that of all.

    Raises:
        ConfigError: nothing to run, other markets or precisions, a learner that cannot run here, or more memory than
            the device has.
        DataError: as `plan_study`.
    """
    settled = [with_learner(plan_study(config, markets, compose=mesh.compose_form())) for config in configs]
    studies, notes = [study for study, _ in settled], dict.fromkeys(note for _, said in settled for note in said)
    _refuse_unlike(studies)
    groups = merge(studies)
    _refuse_too_large(groups, order)
    transfers, devices = Transfers(), common_mesh(groups)
    host = studies[0].resident_market(), [(group.studies[0].windows, _unlike(group)) for group in groups]
    market, parts = mesh.upload(host, transfers, NamedSharding(devices, WHOLE) if devices else None)
    residents = [_resident(group, devices, market, *part) for group, part in zip(groups, parts, strict=True)]
    return Started(groups, tuple(residents), order, transfers, tuple(notes))


def train_groups(started: Started, on_epoch: OnEpoch | None = None) -> list[Trained]:
    """Run all epochs of all groups.

    Args:
        started: the groups.
        on_epoch: called after each epoch, once for each configuration.

    Returns:
        What became of every configuration, in the order in which they were asked for.
    """
    runs, done = [_Run(started, number, on_epoch) for number in range(len(started.groups))], {}
    if started.order == "in-turn":
        for run in runs:
            for _ in range(run.group.epochs):
                run.one_epoch()
            done |= run.finish()
    else:
        for epoch in range(max(run.group.epochs for run in runs)):
            for run in runs:
                if epoch < run.group.epochs:
                    run.one_epoch()
        for run in runs:
            done |= run.finish()
    return [done[place] for place in sorted(done)]


def common_mesh(groups: Sequence[Group]) -> Mesh | None:
    """The devices that all groups can be spread over evenly, since the one market lies on all of them."""
    return mesh.member_mesh(math.gcd(*(group.num_members for group in groups)))


def predicted_bytes(groups: Sequence[Group], order: Order, devices: int = 1) -> int:
    """Most memory that the groups take on each device, by formula: the market once, and what their order holds."""
    needs = [_need(group, devices) for group in groups]
    market = needs[0].market
    fixed = market + sum(need.windows + need.members for need in needs)
    if order == "interleaved":
        return fixed + sum(need.state for need in needs) + max(need.metrics + need.scratch for need in needs)
    kept, most = 0, 0
    for need in needs:
        most = max(most, kept + need.state + need.metrics + need.scratch)
        kept += need.best
    return fixed + most


class _Run:
    """One group on its way: its state is on the device from its first epoch to its last."""

    def __init__(self, started: Started, number: int, on_epoch: OnEpoch | None) -> None:
        self.groups, self.group, self.on_epoch = started.groups, started.groups[number], on_epoch
        # the engine knows one study; of several it needs no more than their common program and all their members
        study = dataclasses.replace(self.group.studies[0], program=self.group.program)
        self.stage = Stage(study, started.residents[number], started.transfers)
        self.running: Runner | None = None
        self.metrics: list[Metrics] = []

    def one_epoch(self) -> None:
        """Run the next epoch, after the programs are compiled where it is the first."""
        if self.running is None:
            self.running = Runner(*ready(self.stage, common_mesh(self.groups)))
        is_last = len(self.metrics) + 1 == self.group.epochs
        metrics = self.running.run(may_go_on=not is_last).metrics
        self.metrics.append(metrics)
        if self.on_epoch is not None:
            for place, _, rows in self.group.rows():
                self.on_epoch(place, len(self.metrics), _rows_of(metrics, rows))

    def finish(self) -> dict[int, Trained]:
        """What trading needs of each configuration, by its place; all else is let go."""
        if self.running is None:
            return {}
        kept, resident, found = self.running.engine.kept(self.running.state), self.stage.resident, {}
        for place, study, rows in self.group.rows():
            members, own = jax.tree.map(lambda leaf, rows=rows: leaf[rows], (resident.members, kept))
            stage = Stage(study, dataclasses.replace(resident, members=members), self.stage.transfers)
            found[place] = Trained(stage, own, tuple(_rows_of(metrics, rows) for metrics in self.metrics))
        self.running = None
        return found


def _rows_of(metrics: Metrics, rows: slice) -> Metrics:
    return {name: values[rows] for name, values in metrics.items()}


def _static(study: Study) -> Any:
    """What makes a study need a program, or a length of training, of its own."""
    program, config = study.program, study.config
    plain = DQNConfig()
    agent = dataclasses.replace(config.dqn, **{name: getattr(plain, name) for name in (*_LEAVES, "epsilon_decay_frac")})
    own = [
        getattr(program, field.name)
        for field in dataclasses.fields(program)
        if field.name not in ("agent", "val_lengths", "test_lengths")
    ]
    windows = tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(study.windows))
    asked = config.train.epochs, config.output.precision, config.output.learner
    return agent, tuple(own), windows, jax.tree.structure(study.limits), asked


def _refuse_unlike(studies: Sequence[Study]) -> None:
    """Refuse what cannot share one upload, or one setting of the device."""
    if not studies:
        raise ConfigError("There is no configuration to run; give one or more.")
    first = studies[0]
    for number, study in enumerate(studies[1:], start=2):
        if study.config.output.precision != first.config.output.precision:
            raise ConfigError(
                f"Configuration {number} has --precision {study.config.output.precision}, the first "
                f"{first.config.output.precision}; run together they need the same."
            )
        if not _is_same_market(study, first):
            raise ConfigError(
                f"Configuration {number} has another market than the first (other data, features, spreads or "
                "--no-entry-minutes); only those of one market can be run together."
            )


def _is_same_market(one: Study, other: Study) -> bool:
    pairs = zip(
        *([jax.tree.leaves(leg.market.on_device()) for leg in study.legs] for study in (one, other)), strict=False
    )
    same = len(one.legs) == len(other.legs)
    return same and all(
        len(ours) == len(theirs) and all(a is b or np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        for ours, theirs in pairs
    )


def _unlike(group: Group) -> list[Any]:
    """Costs, hyper-parameters and limits of each study of a group, host arrays."""
    found = []
    for study in group.studies:
        train = study.config.train
        hyper = dqn.hyper(study.config.dqn, train.epochs * train.max_steps_per_epoch)
        found.append((study.cost_ticks, hyper, study.limits))
    return found


def _resident(group: Group, devices: Mesh | None, market: Market, windows: Windows, unlike: list[Any]) -> Resident:
    """Members of all studies of a group, end to end, made on the device."""
    sizes = [(study.num_windows, study.config.train.seeds, study.config.train.seed) for study in group.studies]

    def make(unlike: list[Any]) -> Members:
        parts = [make_members(*size, *own) for size, own in zip(sizes, unlike, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    members = jax.jit(make)(unlike)
    if devices:
        members = jax.device_put(members, NamedSharding(devices, BY_MEMBER))
    return Resident(market, windows, members)


def _need(group: Group, devices: int = 1) -> Memory:
    """Memory of a group on each of some devices."""
    return memory.of_members(group.studies[0], group.program, -(-group.num_members // devices))


def _refuse_too_large(groups: Sequence[Group], order: Order) -> None:
    spread = common_mesh(groups)
    devices = spread.size if spread else 1
    limit, need = mesh.limit_bytes(), predicted_bytes(groups, order, devices)
    if limit is None or need <= limit:
        return
    largest = max(groups, key=lambda group: _need(group, devices).epoch)
    advice, in_turn = "fewer --seeds or configurations, or a smaller --replay-capacity", None
    if order == "interleaved":
        in_turn = predicted_bytes(groups, "in-turn", devices)
    if in_turn is not None and in_turn <= limit:
        advice = f"one group after another, which needs {memory.in_words(in_turn)}"
    asked = sum(len(group.studies) for group in groups)
    raise ConfigError(
        f"{counted(len(groups), 'group')} of {counted(asked, 'configuration')}, {order}, need "
        f"about {memory.in_words(need)} of memory, of {memory.in_words(limit)} there; the largest has "
        f"{largest.num_members} members and needs {memory.in_words(_need(largest, devices).epoch)}. "
        f"What helps: {advice}."
    )
