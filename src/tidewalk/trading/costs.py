"""The one cost function: trainer, evaluator, baselines, hindsight bound and ledger all count sides here.

Written with operators alone, so that the same lines serve jax and numpy arrays.
"""

import dataclasses
from typing import Literal, TypeVar

from tidewalk.core.errors import ConfigError

Lots = TypeVar("Lots")
Ticks = TypeVar("Ticks")
DEFAULT_SLIPPAGE_TICKS = 0.5
"""Half a spread of one tick: what a market order in a liquid future pays at least."""


@dataclasses.dataclass(frozen=True)
class CostConfig:
    """What trading costs."""

    commission_usd: float | None = None
    """Commission and fees per contract and side, in the contract's currency; default: its entry in the specs."""
    slippage: Literal["ticks", "recorded"] = "ticks"
    """What a fill gives up to the spread: ticks (--slippage-ticks), or half the spread recorded at the fill's bar."""
    slippage_ticks: float | None = None
    """Slippage per contract and side, in ticks; default 0.5, and 0 beside --slippage recorded, which it adds to."""

    def __post_init__(self) -> None:
        """Refuse negative costs."""
        for name in ("commission_usd", "slippage_ticks"):
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

    @property
    def side_usd(self) -> float:
        """Money per contract and side: slippage and commission, without a recorded spread."""
        return self.slippage_ticks * self.tick_value_usd + self.commission_usd

    @property
    def side_ticks(self) -> float:
        """The same in ticks, the unit of rewards."""
        return self.side_usd / self.tick_value_usd


def slippage_ticks(config: CostConfig) -> float:
    """Ticks of slippage per side that are the same at every fill, with the default of the way chosen."""
    if config.slippage_ticks is not None:
        return config.slippage_ticks
    return 0.0 if config.slippage == "recorded" else DEFAULT_SLIPPAGE_TICKS


def sides(before_lots: Lots, after_lots: Lots, is_roll: Lots) -> Lots:
    """Contracts bought and sold by one fill, each counted as one side.

    Args:
        before_lots: signed position before the fill.
        after_lots: signed position after it.
        is_roll: 1 where the fill changes the contract, else 0. Then all of the old position is closed and all of the
        new one opened.
    """
    change = abs(after_lots - before_lots)  # type: ignore[operator, arg-type]
    turned_over = abs(before_lots) + abs(after_lots)  # type: ignore[arg-type]
    return change + is_roll * (turned_over - change)


def net_ticks(gross_ticks: Ticks, traded: Ticks, side_ticks: Ticks, crossed_ticks: Ticks | None) -> Ticks:
    """What is left of a gross result in ticks.

    Args:
        gross_ticks: result before costs.
        traded: contract sides.
        side_ticks: cost of a side that is the same at every fill.
        crossed_ticks: half spreads paid on all of these sides; None where costs use no recorded spread.
    """
    net = gross_ticks - side_ticks * traded  # type: ignore[operator]
    return net if crossed_ticks is None else net - crossed_ticks
