"""The work that every program of the comparison does: a market as one table of arrays, and the numbers of the learner.

The market is a chain of +-10 ticks whose sign stays with a known probability: a signal of known strength, whose best
policy is known too. An observation is a row of past returns and a one-hot position. Nothing here needs more than
numpy, so that every framework reads the same arrays.
"""

import dataclasses
import functools

import numpy as np

POSITIONS = 3
FLAT = 1
MOVE_TICKS = 10
PERSISTENCE = 0.9
"""Probability that a move has the sign of the move before it."""
BARS_BETWEEN_ROLLS = 2_000
ENOUGH = 0.9
"""Share of the best policy's held-out result that a learner must earn before its speed counts."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes and hyper-parameters, the same for all programs."""

    name: str
    num_features: int
    hidden: tuple[int, int]
    batch_size: int = 64
    capacity: int = 16_384
    """Transitions that the replay holds, all lanes together."""
    learning_rate: float = 1e-3
    gamma: float = 0.99
    target_period: int = 500
    """Updates between hard copies of the target network."""
    epsilon: float = 0.1
    lanes: int = 1
    """Environments that move one bar before each update."""
    prefill_steps: int = 64
    """Vector steps of random actions before the first update."""
    episode_bars: int = 512
    updates_per_epoch: int = 50

    @property
    def observation_size(self) -> int:
        return self.num_features + POSITIONS


W1 = Workload("W1", num_features=29, hidden=(128, 128))
W2 = Workload("W2", num_features=125, hidden=(256, 256))
WORKLOADS = {w.name: w for w in (W1, W2)}


@dataclasses.dataclass(frozen=True)
class Table:
    """The market `[T]`. The decision of bar t sees row t and earns the move of bar t."""

    features: np.ndarray
    """float32 `[T, F]`: column k is the mean of the last k + 1 moves, in moves."""
    move_ticks: np.ndarray
    """int32: change of the executable price between the fills of decisions t and t+1."""
    is_roll: np.ndarray
    """int32: 1 where the fill of decision t changes the contract: two sides for every lot held on."""
    train: tuple[int, int]
    """Decisions that are learned from, half-open."""
    held_out: tuple[int, int]
    """Decisions that judge what was learned."""
    side_ticks: float = 1.0
    """Cost of one contract bought or sold."""
    reward_scale: float = 1.0 / MOVE_TICKS


@functools.cache
def make_table(num_features: int, train_bars: int = 30_000, held_out_bars: int = 5_000, seed: int = 0) -> Table:
    """The market of a workload; the same seed gives the same arrays everywhere."""
    rng = np.random.default_rng(seed)
    length = num_features + train_bars + held_out_bars + 2
    sign = np.cumprod(np.where(rng.random(length) < PERSISTENCE, 1, -1))
    # Row t holds the moves up to bar t; what decision t earns is the move of bar t + 1.
    past = np.lib.stride_tricks.sliding_window_view(sign, num_features)[:, ::-1]
    features = np.zeros((length, num_features), np.float32)
    features[num_features - 1 :] = np.cumsum(past, axis=1) / np.arange(1, num_features + 1)
    move_ticks = np.zeros(length, np.int32)
    move_ticks[:-1] = MOVE_TICKS * sign[1:]
    is_roll = (np.arange(length) % BARS_BETWEEN_ROLLS == BARS_BETWEEN_ROLLS - 1).astype(np.int32)
    first, stop = num_features, num_features + train_bars
    return Table(features, move_ticks, is_roll, train=(first, stop), held_out=(stop, stop + held_out_bars))


def net_ticks(table: Table, bar: np.ndarray, position: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Result of decisions in ticks: the move times what is held, less the sides traded. Index 1 is flat."""
    before, after = position - FLAT, action - FLAT
    change = np.abs(after - before)
    sides = change + table.is_roll[bar] * (np.abs(before) + np.abs(after) - change)
    return after * table.move_ticks[bar] - table.side_ticks * sides


@functools.cache
def observation_table(num_features: int) -> np.ndarray:
    """Observations of every state `[T * P, D]`, float32; row `bar * P + position`. What a peer looks up."""
    table = make_table(num_features)
    held = np.tile(np.eye(POSITIONS, dtype=np.float32), (len(table.features), 1))
    return np.concatenate([np.repeat(table.features, POSITIONS, axis=0), held], axis=1)


@functools.cache
def reward_table(num_features: int) -> np.ndarray:
    """Rewards of every decision `[T * P * A]`, float32; entry `(bar * P + position) * A + action`."""
    table = make_table(num_features)
    bar, position, action = np.indices((len(table.features), POSITIONS, POSITIONS))
    return (net_ticks(table, bar, position, action) * table.reward_scale).astype(np.float32).reshape(-1)


def held_out_observations(workload: Workload) -> np.ndarray:
    """Observations of every held-out decision at every position, `[V * P, D]`."""
    first, stop = make_table(workload.num_features).held_out
    return observation_table(workload.num_features)[first * POSITIONS : stop * POSITIONS]


def earned(table: Table, wanted: np.ndarray) -> float:
    """Held-out result in ticks of a policy, from flat.

    Args:
        table: the market.
        wanted: action at every held-out decision and position, `[V, P]`.
    """
    first, stop = table.held_out
    held = np.empty(stop - first + 1, np.int64)
    held[0] = FLAT
    for number in range(stop - first):
        held[number + 1] = wanted[number, held[number]]
    return float(net_ticks(table, np.arange(first, stop), held[:-1], held[1:]).sum())


def best_policy(table: Table) -> np.ndarray:
    """Actions `[V, P]` of the best policy that sees the past: hold the sign of the last move.

    A bar held the right way earns 10 x (2 x 0.9 - 1) = 8 ticks on average, turning round costs 2: flat is never best.
    """
    first, stop = table.held_out
    follow = np.where(table.features[first:stop, 0] > 0, POSITIONS - 1, 0)
    return np.repeat(follow[:, None], POSITIONS, axis=1)


def captured(workload: Workload, q_values: np.ndarray) -> float:
    """Share of the best policy's held-out result that a greedy policy earns; `q_values` is `[V * P, A]`."""
    table = make_table(workload.num_features)
    if not np.isfinite(q_values).all():
        return float("-inf")
    wanted = q_values.argmax(axis=1).reshape(-1, POSITIONS)
    return earned(table, wanted) / earned(table, best_policy(table))
