"""What training needs of an agent: four pure functions for one member."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tidewalk.agents.value import Transition
from tidewalk.core.arrays import Array, Float32, Key, PyTree


@dataclasses.dataclass(frozen=True)
class Agent:
    """An algorithm bound to its sizes. State, parameters and hyper-parameters are pytrees that only it looks into."""

    init: Callable[[Key[Array, ""]], PyTree]
    """key -> state"""
    params: Callable[[PyTree], PyTree]
    """state -> the parameters that act"""
    q_values: Callable[[PyTree, Float32[Array, "D"]], Float32[Array, "A"]]
    """(params, observation) -> action values"""
    epsilon: Callable[[PyTree, Array], Float32[Array, ""]]
    """(hyper, vector steps taken) -> probability of a random action"""
    learn: Callable[[PyTree, Transition, PyTree, Array], tuple[PyTree, dict[str, Any]]]
    """(state, batch of transitions, hyper, updates done) -> (state, {"loss", "q_mean"})"""
    config: Any
    """Static settings of the algorithm, for what runs it in another form"""
    n_step: int
    updates_per_step: int
    batch_size: int
    q_table: Callable[[PyTree, Float32[Array, "LF"], slice], Float32[Array, "R A"]] | None = None
    """(params, seen features, positions) -> `q_values` for every position of the slice; None: asked for one by one"""
