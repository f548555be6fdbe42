"""Sign chains whose best policy is known in closed form, through the real training loop.

The next move is +-1 and repeats the last sign with probability P; a unit of position costs c moves per side. Following
the sign earns (2P - 1) - 2 (1 - P) c per bar, fading it (1 - 2P) - 2 (1 - P) c: both turn where the sign does. Where
neither is positive the best is to stay flat. P = 0 is the alternating market. Moves are 10 ticks, costs are in ticks.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from support import chain_market, planted_signs
from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.market.device import Market, MarketData
from tidewalk.market.windows import Windows
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train.evaluate import trade_ensembles
from tidewalk.train.population import Members, Program, TrainState, initial_state, make_members

MOVE_TICKS = 10
LOTS = np.array([-1, 0, 1])
SIGNS = (1, -1)
ENV = EnvConfig()


@dataclasses.dataclass(frozen=True)
class Task:
    """One window: a chain, the cost it is trained with and the cost it is judged with."""

    persistence: float
    train_cost: float
    cost: float
    mean: float
    """Best mean per bar, in moves."""


FOLLOW = Task(0.7, 1.0, 1.0, 0.34)
DEAR = Task(0.7, 10.0, 10.0, 0.0)
NOISE = Task(0.5, 1.0, 1.0, 0.0)
FADE = Task(0.3, 1.0, 1.0, 0.26)
BLIND_TO_COSTS = Task(0.7, 0.0, 10.0, -0.20)
"""Trained without costs: it follows, and loses what the closed form says at a cost of one move: .4 - .6."""
TURN = Task(0.0, 1.0, 1.0, 0.8)
TURN_TOO_DEAR = Task(0.0, 6.0, 6.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Lab:
    tasks: tuple[Task, ...]
    seeds: int
    data: MarketData
    program: Program
    market: Market
    windows: Windows
    members: Members

    @property
    def fixed(self):
        return self.market, self.windows, self.members

    def rows(self, task: Task) -> slice:
        """The members of a task."""
        number = self.tasks.index(task)
        return slice(number * self.seeds, (number + 1) * self.seeds)


def even_signs(length: int, persistence: float, seed: int) -> np.ndarray:
    """A chain that keeps its sign exactly as often as it should and has no drift: its second half mirrors the first.

    A plain sample of 60,000 bars drifts by .006 moves a bar, which a position held for 100 bars would take for .6.
    """
    keeps = np.ones(length // 2, np.int64)
    keeps[int(persistence * len(keeps)) :] = -1
    half = np.cumprod(np.random.default_rng(seed).permutation(keeps))
    return np.concatenate([half, -half])


def make_lab(tasks, config: DQNConfig, *, train: int, steps: int, epochs: int, seeds: int, test: int = 12_000) -> Lab:
    """One population of tasks x seeds on one market: the chains of the tasks, one after the other."""
    val, size = 4_000, train + 4_000 + test + 20
    parts: list[np.ndarray] = []
    for i, task in enumerate(tasks):
        parts.append(even_signs(train, task.persistence, seed=i))
        parts.append(planted_signs(size - train, task.persistence, seed=100 + i))
    data = chain_market(np.concatenate(parts), MOVE_TICKS, bars_per_day=24, extra_features=1)
    base = size * np.arange(len(tasks))[:, None]
    host = Windows(
        train=(base + np.array([5, train])).astype(np.int32),
        val=(base + np.array([train + 5, train + val])).astype(np.int32),
        test=(base + np.array([train + val + 5, size - 5])).astype(np.int32),
        center=np.zeros((len(tasks), 2), np.float32),
        scale=np.ones((len(tasks), 2), np.float32),
        reward_scale=np.full(len(tasks), 1 / MOVE_TICKS, np.float32),
    )
    program = Program(
        agent=make_dqn(config, ENV.observation_size(2), ENV.num_positions),
        env=ENV,
        num_features=2,
        lanes=32,
        capacity=8192,
        steps_per_epoch=steps,
        prefill_steps=16,
        episode_bars=512,
        select="reward",
        val_bars=val,
        test_bars=int((host.test[:, 1] - host.test[:, 0]).max()),
        val_sessions=val // 24 + 2,
        compose="scan",
    )
    costs = np.array([task.train_cost for task in tasks], np.float32)
    members = make_members(len(tasks), seeds, 0, CostTicks(costs), dqn.hyper(config, steps * epochs))
    return Lab(tuple(tasks), seeds, data, program, *jax.device_put((data.on_device(), host)), members)


def train(lab: Lab, epochs: int) -> TrainState:
    def start(market, windows, members):
        return phases.prefill(lab.program, market, windows, members, initial_state(lab.program, windows, members))

    state = jax.jit(start)(*lab.fixed)
    run = jax.jit(functools.partial(phases.fused_epoch, lab.program), donate_argnums=3)
    for _ in range(epochs):
        state, _ = run(*lab.fixed, state)
    return state


@functools.cache
def trained() -> tuple[Lab, TrainState, dict[Task, np.ndarray]]:
    """All tasks as one population, trained for 1,800 vector steps; shared by the tests of a process."""
    tasks = (FOLLOW, DEAR, NOISE, FADE, BLIND_TO_COSTS, TURN, TURN_TOO_DEAR)
    lab = make_lab(tasks, DQNConfig(hidden=(32,), lr=1e-3, tau=0.01), train=8_000, steps=300, epochs=6, seeds=3)
    state = train(lab, 6)
    return lab, state, traded_lots(lab, state)


def traded_lots(lab: Lab, state: TrainState) -> dict[Task, np.ndarray]:
    """Lots of every task's seed ensemble over its test range."""
    traded = jax.jit(functools.partial(trade_ensembles, lab.program, seeds=lab.seeds))
    paths = np.asarray(traded(*lab.fixed, state.best), np.int64) - ENV.flat
    counts = np.asarray(lab.windows.test[:, 1] - lab.windows.test[:, 0])
    return {task: path[:count] for task, path, count in zip(lab.tasks, paths, counts, strict=True)}


def learned_q(lab: Lab, state: TrainState, task: Task) -> dict[tuple[int, int], np.ndarray]:
    """Q(sign, position) [3] of a task's members at the end of training, in moves, averaged over the seeds."""
    params = jax.tree.map(lambda leaf: leaf[lab.rows(task)], state.agent.params)
    values = {}
    for sign, held in states():
        seen = jnp.concatenate([jnp.array([sign, 0.0]), jax.nn.one_hot(held + ENV.flat, 3)])
        q = jax.vmap(lambda p, seen=seen: lab.program.agent.q_values(p, seen))(params)
        values[sign, held] = np.asarray(q.mean(axis=0))
    return values


def states() -> list[tuple[int, int]]:
    """(sign, position) of the chain."""
    return [(sign, held) for sign in SIGNS for held in (-1, 0, 1)]
