"""The one cost function: trainer, evaluator, baselines, hindsight bound and ledger all count sides here.

Written with operators alone, so that the same lines serve jax and numpy arrays.
"""

import dataclasses
from typing import TypeVar

from tidewalk.core.errors import ConfigError

Lots = TypeVar("Lots")


@dataclasses.dataclass(frozen=True)
class CostConfig:
    """What trading costs."""

    commission_usd: float | None = None
    """Commission and fees per contract and side, in the contract's currency; default: its entry in the specs."""
    slippage_ticks: float = 0.5
    """Slippage per contract and side, in ticks: half a spread of one tick by default."""

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

    @property
    def side_usd(self) -> float:
        """Money per contract and side: slippage and commission."""
        return self.slippage_ticks * self.tick_value_usd + self.commission_usd

    @property
    def side_ticks(self) -> float:
        """The same in ticks, the unit of rewards."""
        return self.side_usd / self.tick_value_usd


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
