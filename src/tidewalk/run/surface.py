"""The cost surface of a study: what its policies would have made at other commissions, slippages and delays."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl

from tidewalk.core.errors import ConfigError
from tidewalk.market.windows import decision_ranges
from tidewalk.run.engine import Stage
from tidewalk.run.mesh import PRECISIONS
from tidewalk.run.study import Leg, Study, refuse_uncountable_accounts
from tidewalk.stats.metrics import Figure, defined, undefined
from tidewalk.trading import costs as cost_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.account import Book, costs_usd, gross_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import Tally
from tidewalk.trading.limits import Limits
from tidewalk.train.cost_surface import surface_tallies
from tidewalk.train.population import Best

COMMISSIONS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the contract's own commission."""
SLIPPAGES_TICKS = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Fixed slippage per side; where spreads are recorded it comes on top of half of them, as --slippage-ticks does."""
DELAYS_BARS = (0, 1, 2, 5)
MAX_POINTS, MAX_DELAYS = 400, 32
_PARTS = ("gross_ticks", "sides", "crossed_ticks", "rolled")


@dataclasses.dataclass(frozen=True)
class GridConfig:
    """Costs and delays at which the policies are traded again. Those of the run are always among them."""

    commission_usd: tuple[float, ...] | None = None
    """Commissions per contract and side, as 0,1,2; default: 0, 0.5, 1, 2 and 4 times that of the run."""
    slippage_ticks: tuple[float, ...] | None = None
    """Slippages per contract and side in ticks, as 0,0.5,1, on top of half the recorded spread where the run uses it;
    default 0,0.25,0.5,1,2."""
    delay_bars: tuple[int, ...] | None = None
    """Bars by which decisions lag, as 0,1,2; default 0,1,2,5."""

    def __post_init__(self) -> None:
        """Refuse what is no cost or no delay, and grids beyond all use."""
        for name in ("commission_usd", "slippage_ticks", "delay_bars"):
            flag, most = f"--{name.replace('_', '-')}", 4096 if name == "delay_bars" else 1e9
            bad = [value for value in getattr(self, name) or () if not 0 <= value <= most]
            if bad:
                raise ConfigError(f"{flag} holds {bad[0]:g}; each value must be from 0 to {most:g}.")
        points = len(self.commission_usd or COMMISSIONS) * len(self.slippage_ticks or SLIPPAGES_TICKS)
        if points > MAX_POINTS or len(self.delay_bars or DELAYS_BARS) > MAX_DELAYS:
            raise ConfigError(
                f"--commission-usd x --slippage-ticks give {points} points and --delay-bars "
                f"{len(self.delay_bars or DELAYS_BARS)} delays; {MAX_POINTS} points and {MAX_DELAYS} delays are the "
                "most. Give fewer values."
            )


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def cost_surface(engine: Stage, best: Best, books: Mapping[str, Sequence[Book]], grid: GridConfig) -> pl.DataFrame:
    """Rows of `cost_surface.parquet`: every window, policy (ensemble, then seeds), delay, commission and slippage.

    At the costs and the delay of the study the rows are those of its own books.

    Args:
        engine: the study on its device.
        best: best epoch of every member.
        books: policy -> the book of every window, as settled.
        grid: commissions, slippages and delays.

    Raises:
        ConfigError: a delay that reaches before the first usable bar.
    """
    study = engine.study
    delays, points = _delays(study, grid), [_points(study, leg, grid) for leg in study.leg_by_window]
    done = _trade(engine, best, delays, _limits(study, points))
    names = ["ensemble", *(f"seed {seed}" for seed in range(study.config.train.seeds))]
    frames = []
    for window, leg in enumerate(study.leg_by_window):
        costs = points[window]
        tallies = _with_own(study, window, costs, delays, done, _sums(books, names, window))
        frames.append(_rows(leg, window, names, delays, costs, tallies))
    return pl.concat(frames)


def break_even_side_usd(gross_usd: float, traded: int, rolls_usd: float = 0.0) -> Figure:
    """Cost per contract and side, slippage and all, at which the same fills would have earned exactly nothing.

    Args:
        gross_usd: result before costs.
        traded: contract sides.
        rolls_usd: fees of lots rolled by calendar spreads, which are no sides.

    Returns:
        USD; undefined where nothing was traded, or there is no gross profit to pay costs from.
    """
    if not traded:
        return undefined("nothing was traded")
    left_usd = gross_usd - rolls_usd
    return defined(left_usd / traded) if left_usd > 0 else undefined("no gross profit to pay costs from")


def _delays(study: Study, grid: GridConfig) -> tuple[int, ...]:
    """Delays in order, the study's own among them; those of the default grid that do not fit are left out.

    Raises:
        ConfigError: one that was asked for reaches before the first usable bar.
    """
    env, firsts = study.program.env, np.asarray(study.windows.test)[:, 0]
    usable = [leg.first_bar + leg.market.info.first_usable + env.lookback - 1 for leg in study.leg_by_window]
    most = int((firsts - np.array(usable)).min())
    asked = grid.delay_bars or tuple(delay for delay in DELAYS_BARS if delay <= most)
    if max(asked, default=0) > most:
        raise ConfigError(
            f"--delay-bars holds {max(asked)}; the first test month has {most} usable bars before it, so no decision "
            f"can lag by more. Use {most} or fewer."
        )
    return tuple(sorted({*asked, env.decision_delay}))


def _points(study: Study, leg: Leg, grid: GridConfig) -> list[Costs]:
    """Costs of every point of the grid for one symbol, its own among them, by commission, then slippage.

    Where account limits count costs, points that could not be counted in int32 are left out.
    """
    own = leg.costs
    base = own.commission_usd or leg.market.info.commission_usd
    fees = grid.commission_usd or tuple(base * multiple for multiple in COMMISSIONS)
    slips = grid.slippage_ticks or SLIPPAGES_TICKS
    axes = sorted({*fees, own.commission_usd}), sorted({*slips, own.slippage_ticks})
    points = [_priced(study, leg, fee, slip) for fee, slip in itertools.product(*axes)]
    if study.limits is None or _is_countable(study, leg, points[-1]):
        return points
    return [point for point in points if _is_countable(study, leg, point)]


def _is_countable(study: Study, leg: Leg, point: Costs) -> bool:
    """Whether an account over a test range at these costs is sure to stay within int32."""
    prices = dataclasses.replace(
        study.config.costs, commission_usd=point.commission_usd, slippage_ticks=point.slippage_ticks
    )
    config = dataclasses.replace(study.config, costs=prices)
    try:
        refuse_uncountable_accounts(config, leg.market, [decision_ranges(leg.plan)["test"]])
    except ConfigError:
        return False
    return True


def _priced(study: Study, leg: Leg, commission_usd: float, slippage_ticks: float) -> Costs:
    tick_usd, roll_usd = leg.costs.tick_value_usd, 0.0
    if study.config.env.roll_as == "spread":
        config = dataclasses.replace(study.config.costs, slippage_ticks=slippage_ticks)
        roll_usd = cost_ops.roll_usd(config, commission_usd, tick_usd)
    return Costs(tick_usd, commission_usd, slippage_ticks, roll_usd)


def _limits(study: Study, points: list[list[Costs]]) -> Limits | None:
    """Account limits at every point of every window, leaves `[W, G]`; shorter lists are filled up with their last."""
    if not study.config.limits.is_any:
        return None
    most = max(len(costs) for costs in points)
    rows = [[limit_ops.resolve(study.config.limits, one) for one in _filled(costs, most)] for costs in points]
    stacked = [jax.tree.map(lambda *leaves: np.array(leaves, np.int32), *row) for row in rows]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *stacked)


def _filled(costs: list[Costs], most: int) -> list[Costs]:
    return [*costs, *[costs[-1]] * (most - len(costs))]


def _trade(engine: Stage, best: Best, delays: tuple[int, ...], limits: Limits | None) -> Tally:
    """Tallies `[W, 1 + S, K, G]` on the host."""
    study, resident = engine.study, engine.resident
    run = functools.partial(surface_tallies, study.program, seeds=study.config.train.seeds, delays=delays)
    with jax.default_matmul_precision(PRECISIONS[study.config.output.precision]):
        return jax.device_get(jax.jit(run)(resident.market, resident.windows, best, limits))


def _sums(books: Mapping[str, Sequence[Book]], names: list[str], window: int) -> dict[str, np.ndarray]:
    """What the policies did in a window, part by part `[1 + S]`; one book at a time."""
    rows = []
    for name in names:
        account = books[name][window]
        rows.append([getattr(account, part).sum() for part in _PARTS])
    return {part: np.array(values) for part, values in zip(_PARTS, zip(*rows, strict=True), strict=True)}


def _with_own(
    study: Study,
    window: int,
    costs: list[Costs],
    delays: tuple[int, ...],
    done: Tally,
    own_sums: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Sums `[1 + S, K, G]` of one window, those of the study's own delay and costs taken from its books.

    A matrix product of another shape may round a tie of action values differently, and the surface must not contradict
    the record.
    """
    own, shape = study.leg_by_window[window].costs, (1 + study.config.train.seeds, len(delays), len(costs))
    point = slice(None) if study.limits is None else slice(costs.index(own), costs.index(own) + 1)
    delay, found = delays.index(study.program.env.decision_delay), {}
    for name in _PARTS:
        leaf: Any = getattr(done, name)
        values = np.zeros(shape) if leaf is None else np.broadcast_to(leaf[window][..., : len(costs)], shape)
        values = values.astype(np.float64 if name == "crossed_ticks" else np.int64)
        values[:, delay, point] = own_sums[name][:, None]
        found[name] = values
    return found


def _rows(
    leg: Leg,
    window: int,
    names: list[str],
    delays: tuple[int, ...],
    costs: list[Costs],
    tallies: dict[str, np.ndarray],
) -> pl.DataFrame:
    shape = (len(names), len(delays), len(costs))
    gross = np.asarray(gross_usd(leg.costs, tallies["gross_ticks"]))
    counted = [tallies[name] for name in ("sides", "crossed_ticks", "rolled")]
    paid = np.stack([costs_usd(one, *(part[..., g] for part in counted)) for g, one in enumerate(costs)], axis=-1)
    columns = {
        "policy": np.array(names)[:, None, None],
        "delay_bars": np.array(delays, np.int32)[None, :, None],
        "commission_usd": np.array([one.commission_usd for one in costs])[None, None, :],
        "slippage_ticks": np.array([one.slippage_ticks for one in costs])[None, None, :],
        "gross_usd": gross,
        "costs_usd": paid,
        "net_usd": gross - paid,
        "sides": tallies["sides"],
    }
    flat = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in columns.items()}
    where = {"window": pl.lit(window, pl.Int32), "symbol": pl.lit(leg.symbol)}
    return pl.DataFrame(flat).with_columns(**where).select("window", "symbol", *columns)
