"""Account limits: initial capital and ruin, daily loss, trailing drawdown; counted in thousandths of a tick (int32).

They act like stop orders that rest at the broker: the account is marked at every fill, and where a limit is reached
the position is closed at that same price. Integers, so that device, books and any reference agree on every breach.

Timing: row t (the decision of bar t) fills at the open of bar t+1 and is marked at the open of bar t+2. Its result is
booked to the session of bar t+1. A limit that this mark breaches makes row t+1 *halted*: it may only be flat.
"""

import dataclasses
import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core.arrays import Array, Bool, Float32, HostOrDevice, Int32
from tidewalk.core.errors import ConfigError
from tidewalk.trading.costs import Costs, net_ticks

MILLI = 1000
"""Milliticks in a tick."""
MAX = 2**31 - 1
"""Most milliticks that can be counted."""
_NAMES = ("capital_usd", "daily_loss_usd", "trailing_drawdown_usd")


@dataclasses.dataclass(frozen=True)
class LimitConfig:
    """What an account may lose. Without any of these an account is neither counted nor ended."""

    capital_usd: float | None = None
    """Money in the account of each symbol at the start of each window; with nothing left it is ruined, and trades no
    more."""
    daily_loss_usd: float | None = None
    """Net loss of a session at which the position is closed and nothing is held until the next session."""
    trailing_drawdown_usd: float | None = None
    """Loss from the highest equity so far at which the position is closed and the account trades no more."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing could stay within."""
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e15:
                raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; it must be above 0 and below 1e15.")

    @property
    def given(self) -> dict[str, float]:
        """The limits that are set, by name."""
        return {name: getattr(self, name) for name in _NAMES if getattr(self, name) is not None}

    @property
    def is_any(self) -> bool:
        """Whether any limit is set; then an account is counted beside every pass (see `train.counted`)."""
        return bool(self.given)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["side", "roll", "capital", "daily_loss", "drawdown"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits and the costs that count against them, in milliticks; scalars, or one for each window or member."""

    side: Int32[HostOrDevice, "*members"]
    roll: Int32[HostOrDevice, "*members"]
    capital: Int32[HostOrDevice, "*members"] | None = None
    daily_loss: Int32[HostOrDevice, "*members"] | None = None
    drawdown: Int32[HostOrDevice, "*members"] | None = None


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["equity_ticks", "equity_milli", "drawdown", "day", "session"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Account:
    """An account since its start. Equity is split, since three months of NQ move by more than 2147483 ticks.

    `drawdown` and `day` mean something only where they are limited: only then is a study refused in which they
    could overflow (see `run.study.refuse_uncountable_accounts`), and nothing else reads them.
    """

    equity_ticks: Int32[Array, "*batch"]
    """Net result so far, whole ticks, rounded down; the capital is not in it."""
    equity_milli: Int32[Array, "*batch"]
    """What is to be added to it: 0 to 999 milliticks."""
    drawdown: Int32[Array, "*batch"]
    """Milliticks below the highest equity so far, which is 0 at the start."""
    day: Int32[Array, "*batch"]
    """Net result of the session so far, in milliticks."""
    session: Int32[Array, "*batch"]
    """Session of the last booking; -1 before the first."""


def resolve(config: LimitConfig, costs: Costs) -> Limits | None:
    """Limits of a contract in milliticks (host integers), None where there are none.

    Costs are rounded half up to a millitick, limits are rounded down.

    Raises:
        ConfigError: a limit below a millitick, or a limit or cost beyond what int32 can hold.
    """
    if not config.is_any:
        return None
    tick_usd = exact(costs.tick_value_usd)
    limits = {name: _in_milliticks(name, getattr(config, name), tick_usd) for name in _NAMES}
    side = exact(costs.slippage_ticks) + exact(costs.commission_usd) / tick_usd
    return Limits(
        side=_int32(half_up(side * MILLI), "the cost of a side"),
        roll=_int32(half_up(exact(costs.roll_usd) / tick_usd * MILLI), "--roll-fee-usd"),
        capital=limits["capital_usd"],
        daily_loss=limits["daily_loss_usd"],
        drawdown=limits["trailing_drawdown_usd"],
    )


def exact(value: float) -> Fraction:
    """The decimal number that was written, of a float that stands for it: 6.250000000000001 is 6.25."""
    return Fraction(f"{value:.12g}")


def half_up(value: Fraction) -> int:
    """Nearest integer, halves upward."""
    return int((value + Fraction(1, 2)) // 1)


def _in_milliticks(name: str, usd: float | None, tick_usd: Fraction) -> Int32[np.ndarray, ""] | None:
    if usd is None:
        return None
    flag, least = f"--{name.replace('_', '-')}", float(tick_usd / MILLI)
    found = int(exact(usd) / tick_usd * MILLI // 1)
    if found < 1:
        raise ConfigError(f"{flag} is {usd:g}, less than a thousandth of a tick ({least:g}); it must be more.")
    return _int32(found, flag)


def _int32(milliticks: int, what: str) -> Int32[np.ndarray, ""]:
    if milliticks > MAX:
        raise ConfigError(
            f"{what} is {milliticks // MILLI} ticks; account limits are counted in thousandths of a tick, of which "
            f"{MAX} can be held. Give a smaller amount, or leave the limit out."
        )
    return np.asarray(milliticks, np.int32)


def open_account(shape: tuple[int, ...] = ()) -> Account:
    """Accounts at their start."""
    zero = jnp.zeros(shape, jnp.int32)
    return Account(equity_ticks=zero, equity_milli=zero, drawdown=zero, day=zero, session=zero - 1)


def to_milliticks(ticks: Float32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Half spreads rounded half up to milliticks."""
    return jnp.floor(ticks * MILLI + 0.5).astype(jnp.int32)


def net_milliticks(
    limits: Limits,
    gross_ticks: Int32[Array, "*batch"],
    traded: Int32[Array, "*batch"],
    rolled_lots: Int32[Array, "*batch"] | None,
    half_spread_ticks: Float32[Array, "*batch"] | None,
) -> Int32[Array, "*batch"]:
    """Net result of a row, exactly, by the one cost function.

    Args:
        limits: costs of the window.
        gross_ticks: result before costs.
        traded: contract sides.
        rolled_lots: lots rolled by calendar spreads; None where a roll is two sides.
        half_spread_ticks: recorded half spread of one side at the fill; None where costs do not use it.
    """
    crossed = None if half_spread_ticks is None else to_milliticks(half_spread_ticks) * traded
    return net_ticks(gross_ticks * MILLI, traded, limits.side, crossed, rolled_lots, limits.roll)


def booked(account: Account, net: Int32[Array, "*batch"], session: Int32[Array, "*batch"]) -> Account:
    """The account after a row that earned `net` milliticks, booked to the session of its fill's bar."""
    milli = account.equity_milli + net
    return Account(
        equity_ticks=account.equity_ticks + milli // MILLI,
        equity_milli=milli % MILLI,
        drawdown=jnp.maximum(account.drawdown - net, 0),
        day=jnp.where(session == account.session, account.day, 0) + net,
        session=session,
    )


def is_over(limits: Limits, account: Account) -> Bool[Array, "*batch"]:
    """Whether ruin or drawdown has ended an account: for good, since a flat account never changes for the better."""
    over = jnp.zeros(account.day.shape, bool)
    if limits.capital is not None:
        ticks, milli = -limits.capital // MILLI, -limits.capital % MILLI
        is_at = (account.equity_ticks == ticks) & (account.equity_milli <= milli)
        over = over | (account.equity_ticks < ticks) | is_at
    if limits.drawdown is not None:
        over = over | (account.drawdown >= limits.drawdown)
    return over


def is_halted(limits: Limits, account: Account, session: Int32[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether the next row, which fills in `session`, may only be flat.

    So it is once the account is over, and to the end of a session in which it has lost its daily loss.
    """
    halted = is_over(limits, account)
    if limits.daily_loss is None:
        return halted
    return halted | ((account.session == session) & (account.day <= -limits.daily_loss))
