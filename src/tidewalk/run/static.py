"""The static program of a configuration: what changes it changes the compiled code."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidewalk.agents.dqn import make_dqn
from tidewalk.run.settings import RunConfig
from tidewalk.train.population import Program, longest


def program_with(
    config: RunConfig, num_features: int, compose: str, ranges: Mapping[str, np.ndarray], **sizes: Any
) -> Program:
    """The settings of a configuration, bound to the sizes of its windows.

    Args:
        config: the configuration.
        num_features: columns of the market.
        compose: how rollouts chain position maps, chosen for the device.
        ranges: decisions `[first, stop)` of the validation and the test of all windows, `val` and `test` `[W, 2]`.
        sizes: the fields of `Program` that are about sessions.
    """
    train, env = config.train, config.env
    lengths = {name: np.repeat(part[:, 1] - part[:, 0], train.seeds).tolist() for name, part in ranges.items()}
    return Program(
        agent=make_dqn(config.dqn, env.observation_size(num_features), env.num_positions),
        env=env,
        num_features=num_features,
        lanes=train.lanes,
        capacity=-(-train.replay_capacity // train.lanes) * train.lanes,
        steps_per_epoch=train.max_steps_per_epoch,
        prefill_steps=train.prefill_steps,
        episode_bars=train.episode_bars,
        select=train.select,
        val_bars=longest(ranges["val"]),
        test_bars=longest(ranges["test"]),
        val_lengths=tuple(lengths["val"]),
        test_lengths=tuple(lengths["test"]),
        compose="scan" if compose == "scan" else "associative",
        has_spread=config.costs.slippage == "recorded",
        **sizes,
    )
