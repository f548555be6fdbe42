"""Random policies of the agent's own turnover and exposure: how much of a result is timing.

A random policy holds the agent's own positions of a window, rotated in time by a random number of bars: it trades as
often and holds as long, and differs in timing alone. Bars on which the agent has to be flat keep out of the rotation.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.core.arrays import Array, HostOrDevice, Int8, Int32
from tidewalk.market.device import CLOSING, ROLL, Market, MarketData
from tidewalk.trading.account import Book, half_spreads, net_usd
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig, Tally
from tidewalk.trading.limits import Limits
from tidewalk.train.passes import Extent, Walk, bounds_of_all
from tidewalk.train.walks import walked

DRAWS = 1000
_CHUNK = {"scan": 256, "associative": 2048}
"""Bars of a chunk on a CPU and on an accelerator."""
_BATCH_ELEMENTS = {"scan": 2**21, "associative": 2**26}
"""Targets of (policy, bar, position) of a chunk that are held at a time: about what the caches of a CPU hold."""
_MAPS = 2**26
"""Maps of (policy, bar) that are held at a time where accounts are counted: bounds the memory."""


def percentile(nets_usd: np.ndarray) -> float:
    """Share of the random policies that earned less than the agent, ties counted half; from 0 to 1.

    Args:
        nets_usd: `[1 + K]`, the agent's own net result first; of several windows their sum.
    """
    own, others = np.round(nets_usd[0], 6), np.round(nets_usd[1:], 6)  # rounding of sums must not decide a tie
    return float(np.mean((others < own) + 0.5 * (others == own)))


def has_memory(env: EnvConfig, limits: Limits | None) -> bool:
    """Whether what a rotated path may hold depends on what it held before; then it has to be followed row by row."""
    return env.no_entry_minutes > 0 or limits is not None


def draw_shifts(lengths: Sequence[int], *, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Bars by which the paths of each window are rotated, int64 `[W, 1 + K]`; 0 for the agent's own, which is first."""
    rng = np.random.default_rng(seed)
    shifts = [rng.integers(0, max(length, 1), draws) for length in lengths]
    return np.concatenate([np.zeros((len(shifts), 1), np.int64), np.array(shifts, np.int64).reshape(-1, draws)], axis=1)


def free_rows(market: MarketData, env: EnvConfig, first: int, count: int) -> np.ndarray:
    """Rows of `count` decisions from bar `first` on which a position may be held at all, bool `[n]`."""
    is_free = np.ones(count, bool)
    if env.flat_at_close:
        is_free = (market.flags[first : first + count] & CLOSING) == 0
    is_free[-1:] = False
    return is_free


def nets_usd(market: MarketData, env: EnvConfig, account: Book, costs: Costs, shifts: np.ndarray) -> np.ndarray:
    """Net results of the agent's path rotated by each shift, where no rule has a memory (`has_memory`).

    Every sum over a rotated path is a sum of products of what stays (moves, rolls, spreads) with what is moved
    (positions and their changes), so the Fourier transform gives those of all rotations at once, exactly.

    Args:
        market: market of the window's symbol.
        env: the rules.
        account: the agent's book of the window.
        costs: costs of the symbol.
        shifts: bars `[1 + K]`.

    Returns:
        USD, `[1 + K]`.
    """
    count = len(account.after_lots)
    rows = np.flatnonzero(free_rows(market, env, account.first, count))
    if not rows.size:
        return np.zeros(len(shifts))
    held = account.after_lots[rows]
    before = np.roll(held, 1)
    change, turned_over = np.abs(held - before), np.abs(held) + np.abs(before)
    enters_flat = np.append(True, np.diff(rows) > 1)
    """Rows that follow one on which the agent had to be flat; the first follows the last, around the end."""
    is_roll = (market.flags[account.first + rows] & ROLL) != 0
    rolls = is_roll & ~enters_flat
    is_whole = enters_flat | rolls if env.roll_as == "sides" else enters_flat
    extra = turned_over - change
    gross_ticks = _whole(market.move_ticks[account.first + rows], held)
    sides = change.sum() + _whole(is_whole, extra)
    rolled = _whole(rolls, extra // 2) if env.roll_as == "spread" else np.zeros_like(sides)
    half = half_spreads(market, account.first, count)
    exits = half[np.roll(rows, 1) + 1]
    parts = (
        (half[rows] * ~is_whole, change),
        (half[rows] * (is_whole & ~enters_flat), turned_over),
        (half[rows] * enters_flat, np.abs(held)),
        (exits * enters_flat, np.abs(before)),
    )
    crossed_ticks = sum(_rotated_sums(fixed, moved) for fixed, moved in parts) if half.any() else np.zeros(len(rows))
    return np.asarray(net_usd(costs, gross_ticks, sides, np.round(crossed_ticks, 6), rolled))[shifts]


def _whole(fixed: np.ndarray, moved: np.ndarray) -> np.ndarray:
    return np.rint(_rotated_sums(fixed, moved)).astype(np.int64)


def _rotated_sums(fixed: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Sum of `fixed * roll(moved, k)` for every k, by the Fourier transform."""
    spectrum = np.fft.rfft(fixed.astype(np.float64)) * np.conj(np.fft.rfft(moved.astype(np.float64)))
    return np.fft.irfft(spectrum, n=len(moved))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["decisions", "held", "place", "length"], meta_fields=[]
)
@dataclasses.dataclass(frozen=True)
class _Paths:
    """The agent's paths, ready to be rotated."""

    decisions: Int32[HostOrDevice, "W 2"]
    held: Int8[HostOrDevice, "W H"]
    """Position indices on the free rows of each window, one after the other."""
    place: Int32[HostOrDevice, "W H"]
    """Number of each row among the free ones; -1 where it is not free."""
    length: Int32[HostOrDevice, "W"]
    """Free rows of each window; at least 1."""


def tallies_under_rules(
    env: EnvConfig,
    market: Market,
    limits: Limits | None,
    decisions: np.ndarray,
    positions: np.ndarray,
    is_free: np.ndarray,
    shifts: np.ndarray,
    extent: Extent,
) -> Tally:
    """What the rotated paths of every window do under all rules and account limits, on the device.

    A rotated path is what the random policy wants; it trades what the rules leave of it, and may so trade less than the
    agent.

    Args:
        env: the rules.
        market: the resident market.
        limits: account limits, leaves `[W]`; None where an account is not counted.
        decisions: `[W, 2]` ranges `[first, stop)` in bars of the resident market.
        positions: int8 `[W, H]` position indices of the agent.
        is_free: bool `[W, H]` rows on which a position may be held (`free_rows`); False beyond the range.
        shifts: bars `[W, 1 + K]`.
        extent: form of a pass over H rows.

    Returns:
        Sums over the ranges, host arrays `[W, 1 + K]`.
    """
    windows, policies = shifts.shape
    place = np.where(is_free, np.cumsum(is_free, axis=1) - 1, -1).astype(np.int32)
    held = np.full(positions.shape, env.flat, np.int8)
    for row, kept in zip(held, (path[free] for path, free in zip(positions, is_free, strict=True)), strict=True):
        row[: len(kept)] = kept
    length = np.maximum(is_free.sum(axis=1), 1).astype(np.int32)
    paths = jax.device_put(_Paths(decisions.astype(np.int32), held, place, length))
    chunk = min(_CHUNK[extent.compose], extent.bars)
    extent = dataclasses.replace(extent, chunk=chunk)
    most = _BATCH_ELEMENTS[extent.compose] // (chunk * env.num_positions)
    batch = max(1, min(shifts.size, most, _MAPS if limits is None else _MAPS // extent.bars))
    lanes = np.arange(-(-shifts.size // batch) * batch).reshape(-1, batch) % shifts.size
    run = functools.partial(_tallies, env, market, limits, paths, extent=extent)
    found = [jax.device_get(run(*_lanes(part, policies, shifts))) for part in lanes]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: shifts.size].reshape(windows, policies), *found)


def _lanes(part: np.ndarray, policies: int, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (part // policies).astype(np.int32), shifts.reshape(-1)[part].astype(np.int32)


@functools.partial(jax.jit, static_argnames=("env", "extent"))
def _tallies(
    env: EnvConfig,
    market: Market,
    limits: Limits | None,
    paths: _Paths,
    window: Int32[HostOrDevice, "N"],
    shift: Int32[HostOrDevice, "N"],
    *,
    extent: Extent,
) -> Tally:
    def one(window: Array, shift: Array) -> Tally:
        span = paths.decisions[window]

        def propose(bar: Array) -> tuple[Array, Array]:
            where = paths.place[window, bar - span[0]]
            target = paths.held[window, (where - shift) % paths.length[window]].astype(jnp.int32)
            target = jnp.where(where >= 0, target, env.flat)
            return jnp.clip(target[:, None], *bounds_of_all(env, market, span, bar)), jnp.zeros(bar.shape)

        own = jax.tree.map(lambda leaf: leaf[window], limits)
        return walked(Walk(env, market, own, span), propose, extent).tally

    return jax.vmap(one)(window, shift)
