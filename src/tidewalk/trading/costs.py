"""The one cost function: trainer, evaluator, baselines, hindsight bound, account limits and ledger all count here.

The counting functions are written with operators alone, so that the same lines serve jax and numpy arrays.
"""

import dataclasses
import functools
from typing import Literal, TypeVar

import jax

from tidewalk.core.arrays import Float32, HostOrDevice
from tidewalk.core.errors import ConfigError

Lots = TypeVar("Lots")
Ticks = TypeVar("Ticks")
DEFAULT_SLIPPAGE_TICKS = 0.5
"""Half a spread of one tick: what a market order in a liquid future pays at least."""
RollAs = Literal["sides", "spread"]


@dataclasses.dataclass(frozen=True)
class CostConfig:
    """What trading costs."""

    commission_usd: float | None = None
    """Commission and fees per contract and side, in the contract's currency; default: its entry in the specs."""
    slippage: Literal["ticks", "recorded"] = "ticks"
    """What a fill gives up to the spread: ticks (--slippage-ticks), or half the spread recorded at the fill's bar."""
    slippage_ticks: float | None = None
    """Slippage per contract and side, in ticks; default 0.5, and 0 beside --slippage recorded, which it adds to."""
    roll_fee_usd: float | None = None
    """With --roll-as spread: all that rolling one contract by a calendar spread costs; default: two commissions and
    one slippage."""

    def __post_init__(self) -> None:
        """Refuse negative costs."""
        for name in ("commission_usd", "slippage_ticks", "roll_fee_usd"):
            value = getattr(self, name)
            if value is not None and not (0 <= value < 1e9):
                raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; it must be 0 or more and below 1e9.")


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of one contract, resolved."""

    tick_value_usd: float
    commission_usd: float
    slippage_ticks: float
    """Slippage that is the same at every fill; a recorded half spread comes on top where the market holds one."""
    roll_usd: float = 0.0
    """All-in fee of one lot rolled by a calendar spread; of no effect where a roll is two sides."""

    @property
    def side_usd(self) -> float:
        """Money per contract and side: slippage and commission, without a recorded spread."""
        return self.slippage_ticks * self.tick_value_usd + self.commission_usd

    @property
    def side_ticks(self) -> float:
        """The same in ticks, the unit of rewards."""
        return self.side_usd / self.tick_value_usd

    @property
    def roll_ticks(self) -> float:
        """The fee of a rolled lot in ticks."""
        return self.roll_usd / self.tick_value_usd


@functools.partial(jax.tree_util.register_dataclass, data_fields=["side", "roll"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class CostTicks:
    """Costs as the device holds them, in ticks; scalars, or one for each window or member."""

    side: Float32[HostOrDevice, "*members"]
    """Per contract and side, without a recorded half spread."""
    roll: Float32[HostOrDevice, "*members"] | None = None
    """Per lot rolled by a calendar spread; None where a roll is two sides."""


def slippage_ticks(config: CostConfig) -> float:
    """Ticks of slippage per side that are the same at every fill, with the default of the way chosen."""
    if config.slippage_ticks is not None:
        return config.slippage_ticks
    return 0.0 if config.slippage == "recorded" else DEFAULT_SLIPPAGE_TICKS


def roll_usd(config: CostConfig, commission_usd: float, tick_value_usd: float) -> float:
    """Fee of one lot rolled by a calendar spread: as given, else two commissions and the slippage of one side.

    A spread order crosses the spread once, for both of its legs; its two legs pay commission each.
    """
    if config.roll_fee_usd is not None:
        return config.roll_fee_usd
    return 2.0 * commission_usd + slippage_ticks(config) * tick_value_usd


def rolled(before_lots: Lots, after_lots: Lots, is_roll: Lots) -> Lots:
    """Lots held on through a fill that changes the contract: the smaller of both positions if they have one sign.

    Args:
        before_lots: signed position before the fill.
        after_lots: signed position after it.
        is_roll: 1 where the fill changes the contract, else 0.
    """
    turned_over = abs(before_lots) + abs(after_lots)  # type: ignore[arg-type, operator]
    return is_roll * (turned_over - abs(after_lots - before_lots)) // 2  # type: ignore[operator, arg-type]


def sides(before_lots: Lots, after_lots: Lots, is_roll: Lots) -> Lots:
    """Contracts bought and sold by one fill, each counted as one side, where a roll is two sides per lot held on.

    Args:
        before_lots: signed position before the fill.
        after_lots: signed position after it.
        is_roll: 1 where the fill changes the contract, else 0. Then all of the old position is closed and all of the
            new one opened.
    """
    change = abs(after_lots - before_lots)  # type: ignore[operator, arg-type]
    turned_over = abs(before_lots) + abs(after_lots)  # type: ignore[arg-type]
    return change + is_roll * (turned_over - change)


def counts(before_lots: Lots, after_lots: Lots, is_roll: Lots, roll_as: RollAs) -> tuple[Lots, Lots | None]:
    """Outright sides of one fill and the lots rolled by a calendar spread (None where a roll is two sides).

    With spreads the lots held on are not traded outright: what is left is the change of position.

    Args:
        before_lots: signed position before the fill.
        after_lots: signed position after it.
        is_roll: 1 where the fill changes the contract, else 0.
        roll_as: `sides`: a roll sells the old contract and buys the new one; `spread`: one spread order does both.
    """
    if roll_as == "sides":
        return sides(before_lots, after_lots, is_roll), None
    return abs(after_lots - before_lots), rolled(before_lots, after_lots, is_roll)  # type: ignore[operator, arg-type]


def net_ticks(
    gross_ticks: Ticks,
    traded: Ticks,
    side_ticks: Ticks,
    crossed_ticks: Ticks | None,
    rolled_lots: Ticks | None = None,
    roll_ticks: Ticks | None = None,
) -> Ticks:
    """What is left of a gross result in ticks.

    Args:
        gross_ticks: result before costs.
        traded: contract sides.
        side_ticks: cost of a side that is the same at every fill.
        crossed_ticks: half spreads paid on all of these sides; None where costs use no recorded spread.
        rolled_lots: lots rolled by calendar spreads; None where a roll is two sides.
        roll_ticks: fee of a rolled lot; needed with `rolled_lots`.
    """
    net = gross_ticks - side_ticks * traded  # type: ignore[operator]
    net = net if rolled_lots is None else net - roll_ticks * rolled_lots  # type: ignore[operator]
    return net if crossed_ticks is None else net - crossed_ticks
