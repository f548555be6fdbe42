"""One environment as pure functions of (bar, position).

Timing: the decision of bar t knows bars <= t, fills at the open of bar t+1 in the contract held from then on, and is
marked at the open of bar t+2. Prices are exogenous, so a state is two integers and every observation, reward and
successor can be computed again from them.

What a decision may hold next is an interval of position indices that contains flat (`bounds`). Every caller stays
within it (`choose`, or clamps what it wants); `step` takes an allowed action and never changes it.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from tidewalk.core.arrays import Array, Bool, Float32, Int32
from tidewalk.core.errors import ConfigError
from tidewalk.core.words import counted
from tidewalk.market.device import CLOSING, NO_ENTRY, ROLL, Market
from tidewalk.trading.costs import CostTicks, RollAs, counts, net_ticks

MAX_LEVELS = 50
_MAX_LOTS, _MAX_BARS, _MAX_MINUTES = 1_000_000, 4096, 1440


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """What an agent may hold and see."""

    positions: int = 1
    """Position levels each side of flat: 1 gives targets -1, 0, +1 levels; 2 gives -2 ... +2."""
    lots_per_level: int = 1
    """Contracts of one position level."""
    max_position: int | None = None
    """Most contracts held, long or short; default: --positions times --lots-per-level."""
    direction: Literal["both", "long", "short"] = "both"
    """Sides that may be held beside flat."""
    flat_at_close: bool = False
    """Close every position at the open of the last bar of a session; nothing is held over a session break."""
    no_entry_minutes: int = 0
    """Minutes before the scheduled end of a session in which no position is opened, enlarged or turned round."""
    roll_as: RollAs = "sides"
    """How a position is carried into the next contract: sold and bought as two sides of cost, or by one calendar spread
    (--roll-fee-usd)."""
    decision_delay: int = 0
    """Bars by which decisions lag: that of bar t sees the features of bar t minus this many."""
    lookback: int = 1
    """Bars of features in an observation."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no environment."""
        bounds_of = {
            "positions": (1, MAX_LEVELS),
            "lots_per_level": (1, _MAX_LOTS),
            "no_entry_minutes": (0, _MAX_MINUTES),
            "decision_delay": (0, _MAX_BARS),
            "lookback": (1, _MAX_BARS),
        }
        for name, (least, most) in bounds_of.items():
            if not least <= getattr(self, name) <= most:
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag} is {getattr(self, name)}; it must be from {least} to {most}.")
        if self.max_position is not None and self.max_position < self.lots_per_level:
            raise ConfigError(
                f"--max-position is {self.max_position}, less than the {counted(self.lots_per_level, 'contract')} of "
                f"one position level (--lots-per-level): nothing could be held. Use {self.lots_per_level} or more."
            )

    @property
    def num_positions(self) -> int:
        """P, which is also A: an action names the target position."""
        return 2 * self.positions + 1

    @property
    def flat(self) -> int:
        """Index of the flat position."""
        return self.positions

    @property
    def max_levels(self) -> int:
        """Levels that may be held, each side."""
        if self.max_position is None:
            return self.positions
        return min(self.positions, self.max_position // self.lots_per_level)

    @property
    def max_lots(self) -> int:
        """Contracts that may be held, each side."""
        return self.max_levels * self.lots_per_level

    @property
    def reachable(self) -> slice:
        """Position indices that can ever be held; flat is one of them."""
        down = 0 if self.direction == "long" else self.max_levels
        up = 0 if self.direction == "short" else self.max_levels
        return slice(self.flat - down, self.flat + up + 1)

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
    data_fields=["gross_ticks", "sides", "crossed_ticks", "rolled"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Tally:
    """What fills did, in integers but for the spread: of one decision, or summed over many."""

    gross_ticks: Int32[Array, "*batch"]
    """Lots held times the move, before costs."""
    sides: Int32[Array, "*batch"]
    """Contract sides traded outright."""
    crossed_ticks: Float32[Array, "*batch"] | None = None
    """Recorded half spreads paid on these sides; None where costs do not use them."""
    rolled: Int32[Array, "*batch"] | None = None
    """Lots rolled by calendar spreads; None where a roll is two sides."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["tally", "position"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Step:
    """Outcome of one decision."""

    tally: Tally
    position: Int32[Array, "*batch"]
    """Index of the position held after the fill."""


def no_tally(env: EnvConfig, shape: tuple[int, ...] = (), *, has_spread: bool) -> Tally:
    """A tally of nothing, with the parts that this environment counts."""
    none, zero = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32)
    return Tally(none, none, zero if has_spread else None, none if env.roll_as == "spread" else None)


def lots(env: EnvConfig, position: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Signed contracts of a position index."""
    return (position - env.flat) * env.lots_per_level


def bounds(
    env: EnvConfig,
    flags: Int32[Array, "*batch"],
    position: Int32[Array, "*batch"],
    is_halted: Bool[Array, "*batch"] | None = None,
) -> tuple[Int32[Array, "*batch"], Int32[Array, "*batch"]]:
    """Lowest and highest position index that a decision may hold next; flat lies between them.

    Args:
        env: the rules.
        flags: market flags of the decision's bar.
        position: index of the position held; one that could not be held by the rules is treated as if it could.
        is_halted: where only flat is allowed (account limits, the last decision of a range); None: nowhere.
    """
    flat = env.flat
    low, high = jnp.full_like(position, env.reachable.start), jnp.full_like(position, env.reachable.stop - 1)
    if env.no_entry_minutes:
        is_late = (flags & NO_ENTRY) != 0
        low = jnp.where(is_late, jnp.maximum(low, jnp.minimum(position, flat)), low)
        high = jnp.where(is_late, jnp.minimum(high, jnp.maximum(position, flat)), high)
    must_close = is_halted
    if env.flat_at_close:
        is_closing = (flags & CLOSING) != 0
        must_close = is_closing if must_close is None else must_close | is_closing
    if must_close is not None:
        low, high = jnp.where(must_close, flat, low), jnp.where(must_close, flat, high)
    return low, high


def is_allowed(env: EnvConfig, low: Int32[Array, "*batch"], high: Int32[Array, "*batch"]) -> Bool[Array, "*batch A"]:
    """Whether each action lies within bounds."""
    action = lax.broadcasted_iota(jnp.int32, (*low.shape, env.num_positions), low.ndim)
    return (action >= low[..., None]) & (action <= high[..., None])


def choose(
    env: EnvConfig,
    q: Float32[Array, "*batch A"],
    low: Int32[Array, "*batch"],
    high: Int32[Array, "*batch"],
) -> Int32[Array, "*batch"]:
    """Allowed action of highest value, ties to the lower index."""
    best = jnp.argmax(jnp.where(is_allowed(env, low, high), q, -jnp.inf), axis=-1).astype(jnp.int32)
    # a diverged network may value every allowed action at -inf
    return jnp.clip(best, low, high)


def step(
    env: EnvConfig,
    move_ticks: Int32[Array, "*batch"],
    flags: Int32[Array, "*batch"],
    position: Int32[Array, "*batch"],
    action: Int32[Array, "*batch"],
    half_spread_ticks: Float32[Array, "*batch"] | None = None,
) -> Step:
    """One decision: from `position` to the target `action` (both indices), given the bar's move and flags.

    The action is taken as it is: the caller keeps it within `bounds`. `half_spread_ticks` is that of the bar in which
    the decision fills, see `half_spread`.
    """
    is_roll = ((flags & ROLL) != 0).astype(jnp.int32)
    traded, rolled = counts(lots(env, position), lots(env, action), is_roll, env.roll_as)
    crossed = None if half_spread_ticks is None else traded.astype(jnp.float32) * half_spread_ticks
    return Step(Tally(lots(env, action) * move_ticks, traded, crossed, rolled), position=action)


def half_spread(market: Market, bar: Int32[Array, "*batch"]) -> Float32[Array, "*batch"] | None:
    """Half the recorded spread, in ticks, at which the decision of `bar` fills; None where costs do not use it."""
    return None if market.half_spread_ticks is None else market.half_spread_ticks[bar + 1]


def reward(tally: Tally, cost: CostTicks, reward_scale: Float32[Array, ""]) -> Float32[Array, "*batch"]:
    """Net P&L in units of the window's volatility: gross less sides, half spreads and rolls at their costs, scaled."""
    gross, traded = tally.gross_ticks.astype(jnp.float32), tally.sides.astype(jnp.float32)
    rolled = None if tally.rolled is None else tally.rolled.astype(jnp.float32)
    return net_ticks(gross, traded, cost.side, tally.crossed_ticks, rolled, cost.roll) * reward_scale


def see(env: EnvConfig, market: Market, scaler: Scaler, bar: Int32[Array, ""]) -> Float32[Array, "LF"]:
    """Scaled features of the last L bars that the decision of `bar` knows, oldest first.

    These end with `bar` less the decision delay. The caller keeps `bar` at L-1 plus the delay, or more.
    """
    last = bar - env.decision_delay
    rows = market.features[last - jnp.arange(env.lookback - 1, -1, -1, dtype=jnp.int32)]
    scaled = (rows - scaler.center[None, :]) * scaler.scale[None, :]
    return jnp.clip(scaled, -10.0, 10.0).reshape(-1)


def observe(
    env: EnvConfig, market: Market, scaler: Scaler, bar: Int32[Array, ""], position: Int32[Array, ""]
) -> Float32[Array, "D"]:
    """Observation of the decision of `bar` while holding `position`: seen features and the one-hot position.

    The position is that at the fill, also under a delay: an agent knows its own pending orders.
    """
    held = jax.nn.one_hot(position, env.num_positions, dtype=jnp.float32)
    return jnp.concatenate([see(env, market, scaler, bar), held])


def is_inside(decisions: Int32[Array, "2"], bar: Int32[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether a bar lies in a half-open decision range."""
    return (bar >= decisions[0]) & (bar < decisions[1])
