import dataclasses

import jax
import numpy as np
import pytest
from support import planted_market

from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.market.windows import Windows
from tidewalk.trading.env import EnvConfig
from tidewalk.train.population import Program, make_members


@dataclasses.dataclass(frozen=True)
class World:
    """A small study on the device, without files."""

    program: Program
    market: object
    windows: Windows
    members: object
    data: object

    @property
    def fixed(self):
        return self.market, self.windows, self.members


def make_world(*, windows=2, seeds=2, config=None, env=None, data=None, cost=1.0, root_seed=0, **changes) -> World:
    config = config or DQNConfig(hidden=(16,), batch_size=16, n_step=3)
    env = env or EnvConfig()
    data = data or planted_market(days=50)
    size = len(data.move_ticks)
    train, val, test = np.array([4, size // 2]), np.array([size // 2 + 5, size // 2 + 205]), np.array([size // 2 + 210, size - 3])
    shift = np.arange(windows)[:, None]
    host = Windows(
        train=(train - shift * [0, 7]).astype(np.int32),
        val=(val - shift * [0, 11]).astype(np.int32),
        test=(test - shift * [0, 13]).astype(np.int32),
        center=np.zeros((windows, data.features.shape[1]), np.float32),
        scale=np.ones((windows, data.features.shape[1]), np.float32),
        reward_scale=np.full(windows, 0.1, np.float32),
    )
    program = Program(
        agent=make_dqn(config, env.observation_size(data.features.shape[1]), env.num_positions),
        env=env,
        num_features=data.features.shape[1],
        lanes=8,
        capacity=512,
        steps_per_epoch=20,
        prefill_steps=4,
        episode_bars=40,
        select="reward",
        val_bars=200,
        test_bars=int(test[1] - test[0]),
        val_sessions=12,
        compose="scan",
    )
    program = dataclasses.replace(program, **changes)
    market, on_device = jax.device_put((data.on_device(), host))
    members = make_members(windows, seeds, root_seed, cost, dqn.hyper(config, 200))
    return World(program, market, on_device, members, data)


@pytest.fixture
def world_factory():
    return make_world
