"""What residency is worth: a study with its market resident, and with it freed and sent again at every epoch.

Both trainers run the same compiled programs from the same state, and their epochs take turns.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from tidewalk.core.words import counted
from tidewalk.market.device import MarketData
from tidewalk.run import mesh
from tidewalk.run.engine import Engine, State, phased, reuploading, start
from tidewalk.run.mesh import Transfers
from tidewalk.run.selected import only
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import Study, plan_study
from tidewalk.run.timing import PhaseTimes, medians

WARM_UP = 3
FEWEST_ROUNDS = 7
"""A median of fewer epochs says little."""
RESIDENT, REUPLOADING = "resident", "reuploading"


@dataclasses.dataclass(frozen=True)
class Trainer:
    """What an epoch of one of the two took."""

    fused: PhaseTimes
    """Medians of the epoch as one program."""
    phased: PhaseTimes
    """Medians of the same epoch with a call for every phase and step."""
    fused_p10_p90_ms: tuple[float, float]
    moved: Transfers
    """In one fused epoch."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A study by both trainers."""

    windows: int
    seeds: int
    members: int
    validation_bars: int
    trainers: dict[str, Trainer]
    """By `RESIDENT` and `REUPLOADING`."""

    @property
    def ratio(self) -> float:
        """Time of an epoch that sends its market, in epochs that do not."""
        return self.trainers[REUPLOADING].fused.total / self.trainers[RESIDENT].fused.total


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def measure(config: RunConfig, markets: Sequence[MarketData], rounds: int, say: Callable[[str], None]) -> list[Case]:
    """The first window with one seed, the starting point's one agent; then the study as it is, where it is more.

    Args:
        config: the study.
        markets: the market of each of its symbols.
        rounds: timed epochs of each trainer.
        say: receives a line when a case begins.
    """
    alone = dataclasses.replace(config, train=dataclasses.replace(config.train, seeds=1))
    studies = [only(plan_study(alone, markets, compose=mesh.compose_form()), [0])]
    whole = plan_study(config, markets, compose=mesh.compose_form())
    studies += [whole] if whole.num_members > 1 else []
    cases: list[Case] = []
    for study in studies:
        members = counted(study.num_members, "member")
        say(f"{members}: compiling, then {WARM_UP} + {rounds} epochs of both trainers in turn")
        cases.append(_case(study, rounds))
    return cases


def _case(study: Study, rounds: int) -> Case:
    engine, state = start(study)
    engines = {RESIDENT: engine, REUPLOADING: reuploading(engine)}
    states = {RESIDENT: state, REUPLOADING: jax.tree.map(jnp.copy, state)}
    fused, moved = _in_turn(_fused, engines, states, rounds)
    apart, _ = _in_turn(phased(engine, states[RESIDENT]), engines, states, FEWEST_ROUNDS)
    return Case(
        windows=study.num_windows,
        seeds=study.config.train.seeds,
        members=study.num_members,
        validation_bars=study.program.val_bars,
        trainers={
            name: Trainer(medians(fused[name]), medians(apart[name]), _p10_p90(fused[name]), moved[name])
            for name in engines
        },
    )


def _in_turn(
    run: Callable[[Engine, State], tuple[State, PhaseTimes]],
    engines: dict[str, Engine],
    states: dict[str, State],
    rounds: int,
) -> tuple[dict[str, list[PhaseTimes]], dict[str, Transfers]]:
    """Times of the rounds after the warm-up, and transfers of the last; `states` goes on. Who begins changes."""
    times: dict[str, list[PhaseTimes]] = {name: [] for name in engines}
    moved: dict[str, Transfers] = {}
    for number in range(WARM_UP + rounds):
        for name in list(engines)[:: 1 if number % 2 else -1]:
            before = dataclasses.replace(engines[name].transfers)
            states[name], took = run(engines[name], states[name])
            moved[name] = engines[name].transfers.since(before)
            times[name] += [took] * (number >= WARM_UP)
    return times, moved


def _fused(engine: Engine, state: State) -> tuple[State, PhaseTimes]:
    state, _, times = engine.run_epoch(state)
    return state, times


def _p10_p90(times: list[PhaseTimes]) -> tuple[float, float]:
    totals = sorted(one.total for one in times)
    low, high = (totals[round(share * (len(totals) - 1))] for share in (0.1, 0.9))
    return low, high
