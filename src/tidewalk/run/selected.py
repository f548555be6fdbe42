"""A study with some of its windows."""

import dataclasses
from collections.abc import Collection

import jax
import numpy as np

from tidewalk.run.study import Leg, Study, program_of


def only(study: Study, chosen: Collection[int]) -> Study:
    """The study with some of its windows, numbered anew in their order, and all else fitted to these alone.

    A symbol without any leaves the resident store, and the bars of those behind it move up.
    """
    legs, moved, first_bar = list[Leg](), list[int](), 0
    numbers = {old: new for new, old in enumerate(sorted(chosen))}
    for leg in study.legs:
        kept = [window for window in leg.plan.windows if window.index in numbers]
        if not kept:
            continue
        plan = dataclasses.replace(
            leg.plan, windows=tuple(dataclasses.replace(window, index=numbers[window.index]) for window in kept)
        )
        legs.append(dataclasses.replace(leg, plan=plan, first_bar=first_bar))
        moved += [first_bar - leg.first_bar] * len(kept)
        first_bar += leg.market.num_bars
    windows = jax.tree.map(lambda leaf: np.asarray(leaf)[list(numbers)], study.windows)
    spans = {name: getattr(windows, name) + np.array(moved, np.int32)[:, None] for name in ("train", "val", "test")}
    program = program_of(study.config, legs, study.program.compose)
    return dataclasses.replace(
        study,
        legs=tuple(legs),
        windows=dataclasses.replace(windows, **spans),
        program=dataclasses.replace(program, learner=study.program.learner),
    )
