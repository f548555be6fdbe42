"""A small study on the device, without files."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from support import planted_market
from tidewalk.agents import dqn
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.market.windows import Windows
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.limits import Limits
from tidewalk.train import epoch as phases
from tidewalk.train.population import Program, initial_state, make_members


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


def make_world(
    *,
    windows=2,
    seeds=2,
    config=None,
    env=None,
    data=None,
    cost=1.0,
    roll_ticks=1.5,
    limits=None,
    root_seed=0,
    **changes,
) -> World:
    config = config or DQNConfig(hidden=(16,), batch_size=16, n_step=3)
    env = env or EnvConfig()
    data = data or planted_market(days=50)
    size = len(data.move_ticks)
    train, val, test = (
        np.array([4, size // 2]),
        np.array([size // 2 + 5, size // 2 + 205]),
        np.array([size // 2 + 210, size - 3]),
    )
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
    costs = CostTicks(
        np.asarray(cost, np.float32), np.asarray(roll_ticks, np.float32) if env.roll_as == "spread" else None
    )
    members = make_members(windows, seeds, root_seed, costs, dqn.hyper(config, 200), limits)
    return World(program, market, on_device, members, data)


def made_limits(capital=10**6, daily=10**6, drawdown=10**6) -> Limits:
    """Account limits in ticks, by default beyond reach; a side costs one tick, a rolled lot one and a half."""
    return Limits(*(jnp.asarray(round(ticks * 1000), jnp.int32) for ticks in (1, 1.5, capital, daily, drawdown)))


@functools.cache
def base() -> World:
    """The world that most tests of the epoch share, so that it is compiled once."""
    return make_world()


def fresh(world: World):
    """Initial state with a prefilled replay."""
    state = jax.jit(functools.partial(initial_state, world.program))(world.windows, world.members)
    return jax.jit(functools.partial(phases.prefill, world.program))(*world.fixed, state)


@functools.cache
def base_state():
    return fresh(base())


@functools.cache
def base_epoch():
    """The fused epoch of the base world, compiled; it does not consume its state."""
    return jax.jit(functools.partial(phases.fused_epoch, base().program))
