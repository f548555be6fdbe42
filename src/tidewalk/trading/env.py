"""One environment as pure functions of (bar, position).

Timing: the decision of bar t knows bars <= t, fills at the open of bar t+1 in the contract held from then on, and is
marked at the open of bar t+2. Prices are exogenous, so a state is two integers and every observation, reward and
successor can be computed again from them.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Bool, Float32, Int32
from tidewalk.core.errors import ConfigError
from tidewalk.market.device import CLOSING, ROLL, Market
from tidewalk.trading.costs import net_ticks, sides

MAX_LEVELS = 50


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """What an agent may hold and see."""

    positions: int = 1
    """Position levels each side of flat: 1 gives targets -1, 0, +1 contracts; 2 gives -2 ... +2."""
    flat_at_close: bool = False
    """Close every position at the open of the last bar of a session; nothing is held over a session break."""
    lookback: int = 1
    """Bars of features in an observation."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no environment."""
        if not 1 <= self.positions <= MAX_LEVELS:
            raise ConfigError(f"--positions is {self.positions}; it must be from 1 to {MAX_LEVELS}.")
        if not 1 <= self.lookback <= 4096:
            raise ConfigError(f"--lookback is {self.lookback}; it must be from 1 to 4096.")

    @property
    def num_positions(self) -> int:
        """P, which is also A: an action names the target position."""
        return 2 * self.positions + 1

    @property
    def flat(self) -> int:
        """Index of the flat position."""
        return self.positions

    def observation_size(self, num_features: int) -> int:
        """D: L rows of F features and a one-hot position."""
        return self.lookback * num_features + self.num_positions


@functools.partial(jax.tree_util.register_dataclass, data_fields=["center", "scale"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Scaler:
    """Train-only scaling of one window: a feature is seen as clip((raw - center) * scale, -10, 10)."""

    center: Float32[Array, "F"]
    scale: Float32[Array, "F"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gross_ticks", "sides", "position", "crossed_ticks"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Step:
    """Outcome of one decision, in integers but for the spread."""

    gross_ticks: Int32[Array, "*batch"]
    """Lots held times the move, before costs."""
    sides: Int32[Array, "*batch"]
    """Contract sides traded by the fill."""
    position: Int32[Array, "*batch"]
    """Index of the position held after the fill."""
    crossed_ticks: Float32[Array, "*batch"] | None = None
    """Recorded half spreads paid on these sides; None where costs do not use them."""


def lots(env: EnvConfig, position: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Signed contracts of a position index."""
    return position - env.flat


def target(env: EnvConfig, flags: Int32[Array, "*batch"], action: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Position index after the fill: the action, or flat where the environment must close."""
    if not env.flat_at_close:
        return action
    return jnp.where((flags & CLOSING) != 0, env.flat, action)


def step(
    env: EnvConfig,
    move_ticks: Int32[Array, "*batch"],
    flags: Int32[Array, "*batch"],
    position: Int32[Array, "*batch"],
    action: Int32[Array, "*batch"],
    half_spread_ticks: Float32[Array, "*batch"] | None = None,
) -> Step:
    """One decision: from `position` towards the target `action` (both indices), given the bar's move and flags.

    `half_spread_ticks` is that of the bar in which the decision fills, see `half_spread`.
    """
    after = target(env, flags, action)
    is_roll = ((flags & ROLL) != 0).astype(jnp.int32)
    traded = sides(lots(env, position), lots(env, after), is_roll)
    crossed = None if half_spread_ticks is None else traded.astype(jnp.float32) * half_spread_ticks
    return Step(gross_ticks=lots(env, after) * move_ticks, sides=traded, position=after, crossed_ticks=crossed)


def half_spread(market: Market, bar: Int32[Array, "*batch"]) -> Float32[Array, "*batch"] | None:
    """Half the recorded spread, in ticks, at which the decision of `bar` fills; None where costs do not use it."""
    return None if market.half_spread_ticks is None else market.half_spread_ticks[bar + 1]


def reward(taken: Step, cost_ticks: Float32[Array, ""], reward_scale: Float32[Array, ""]) -> Float32[Array, "*batch"]:
    """Net P&L of a step in units of the window's volatility: (gross - cost per side x sides - half spreads) x scale."""
    gross, traded = taken.gross_ticks.astype(jnp.float32), taken.sides.astype(jnp.float32)
    return net_ticks(gross, traded, cost_ticks, taken.crossed_ticks) * reward_scale


def see(env: EnvConfig, market: Market, scaler: Scaler, bar: Int32[Array, ""]) -> Float32[Array, "LF"]:
    """Scaled features of the last L bars up to `bar`, oldest first. The caller keeps `bar` at L-1 or more."""
    rows = market.features[bar - jnp.arange(env.lookback - 1, -1, -1, dtype=jnp.int32)]
    scaled = (rows - scaler.center[None, :]) * scaler.scale[None, :]
    return jnp.clip(scaled, -10.0, 10.0).reshape(-1)


def observe(
    env: EnvConfig, market: Market, scaler: Scaler, bar: Int32[Array, ""], position: Int32[Array, ""]
) -> Float32[Array, "D"]:
    """Observation of the decision of `bar` while holding `position`: seen features and the one-hot position."""
    held = jax.nn.one_hot(position, env.num_positions, dtype=jnp.float32)
    return jnp.concatenate([see(env, market, scaler, bar), held])


def is_inside(decisions: Int32[Array, "2"], bar: Int32[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether a bar lies in a half-open decision range."""
    return (bar >= decisions[0]) & (bar < decisions[1])
