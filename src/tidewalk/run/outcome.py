"""From positions to the record: the books of every policy, and the result tables made of them; all on the host."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl

from tidewalk.core.errors import BooksError
from tidewalk.market.device import ROLL
from tidewalk.run.engine import Kept, Stage, trade
from tidewalk.run.study import Leg, Study, contracts_between
from tidewalk.run.yardsticks import random_nets_usd, test_span, trade_baselines
from tidewalk.stats import metrics
from tidewalk.store.results import EQUITY, FILLS, MEMBERS, TRADES
from tidewalk.trading import costs as cost_ops
from tidewalk.trading.account import (
    Book,
    Sessions,
    book,
    by_session,
    costs_usd,
    fees_usd,
    gross_usd,
    net_usd,
    slippage_usd,
)
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import Tally
from tidewalk.trading.ledger import Fills, Trades, fills, trades
from tidewalk.trading.limits import Limits
from tidewalk.trading.verify import Halts, forced, halts, verify_book
from tidewalk.train.evaluate import path_rewards
from tidewalk.train.oracle import hindsight
from tidewalk.train.population import TrainState

ENSEMBLE = "ensemble"


@dataclasses.dataclass(frozen=True)
class SeedBooks(Sequence[Book]):
    """The books of one seed, each made from its positions when it is asked for.

    A book takes 56 bytes a decision and its positions one: the books of thousands of members would fill the memory.
    """

    study: Study
    positions: np.ndarray
    """int8 `[W, H]`."""

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.positions)

    def __getitem__(self, window: Any) -> Any:
        """The book of one window."""
        if not -len(self) <= window < len(self):
            raise IndexError(window)
        window %= len(self)
        return _window_book(self.study, window, self.positions[window])


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The books of every policy, window by window."""

    study: Study
    books: Mapping[str, Sequence[Book]]
    """policy -> one book per window; "ensemble", "seed 0" ..., the baselines, "oracle"."""
    best_epoch: np.ndarray
    """`[W, S]`; 0 where a member never finished an epoch with a finite loss."""
    best_val: dict[str, np.ndarray]
    """The parts of the `Tally` of the best epoch on the validation months, `[W, S]` each; zeros where not counted."""
    is_alive: np.ndarray
    random_nets_usd: np.ndarray
    """Net result of the ensemble and of 1,000 rotations of its positions in time, `[W, 1001]`, its own first."""
    rewards_usd: float
    """What the ensemble was rewarded with on the device, as money: float32, so equal to its net result to rounding."""

    def books_of(self, policy: str, leg: Leg) -> list[Book]:
        """The books of a policy in the windows of one symbol, in time order."""
        return [self.books[policy][window.index] for window in leg.plan.windows]

    def sessions_of(self, policy: str, window: int) -> Sessions:
        """A book summed by session, kept once it was asked for: all that most results need of it."""
        key = policy, window
        if key not in self._sessions:
            leg = self.study.leg_by_window[window]
            self._sessions[key] = by_session(leg.market, self.books[policy][window])
        return self._sessions[key]

    @functools.cached_property
    def _sessions(self) -> dict[tuple[str, int], Sessions]:
        return {}

    @functools.cached_property
    def fills(self) -> list[Fills]:
        """The ensemble's fills in each window."""
        return [self._fills(leg, window) for window, leg in enumerate(self.study.leg_by_window)]

    @functools.cached_property
    def trades(self) -> list[Trades]:
        """The ensemble's round trips in each window."""
        return [trades(made, leg.costs) for made, leg in zip(self.fills, self.study.leg_by_window, strict=True)]

    def halts(self, window: int) -> Halts:
        """What account limits did to the ensemble in a window."""
        market, account = self.study.leg_by_window[window].market, self.books[ENSEMBLE][window]
        return halts(market, account, limits_of(self.study, window))

    def _fills(self, leg: Leg, window: int) -> Fills:
        account, limits = self.books[ENSEMBLE][window], limits_of(self.study, window)
        why = forced(leg.market, self.study.program.env, account, limits)
        return fills(leg.market, account, leg.costs, why)


def limits_of(study: Study, window: int) -> Limits | None:
    """Account limits of one window in milliticks; None where there are none."""
    return jax.tree.map(lambda leaf: leaf[window], study.limits)


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def settle(engine: Stage, state: TrainState | Kept) -> Outcome:
    """Trade the test months once: every member's best epoch, the seed ensemble, the baselines, the hindsight path.

    Raises:
        BooksError: a path breaks a rule, or the rewards of the device are not the results of the books.
    """
    study = engine.study
    seeds, shape = study.config.train.seeds, (study.num_windows, study.config.train.seeds)
    members, ensembles = trade(engine, state.best)
    env, windows = study.program.env, engine.resident.windows
    fixed = (env, engine.resident.market, windows.test, study.cost_ticks)
    best_path = hindsight(*fixed, bars=study.program.test_bars, compose=study.program.compose)
    paths = {ENSEMBLE: ensembles}
    paths |= {f"seed {seed}": members.reshape(*shape, -1)[:, seed] for seed in range(seeds)}
    paths["oracle"] = np.asarray(jax.device_get(best_path))
    paths |= trade_baselines(engine)
    books = {name: _bound(study, name, path) for name, path in paths.items()}
    rewarded_usd = _checked_usd(engine, books, paths)
    epoch, alive = (np.asarray(leaf).reshape(shape) for leaf in jax.device_get((state.best.epoch, state.is_alive)))
    random_usd = random_nets_usd(engine, books[ENSEMBLE], ensembles)
    best_val = _host_tally(state.best.tally, shape)
    return Outcome(study, books, epoch, best_val, alive, random_usd, rewarded_usd[ENSEMBLE])


def _bound(study: Study, policy: str, path: np.ndarray) -> Sequence[Book]:
    """The books of a policy; those of seeds are made anew when they are asked for."""
    books = SeedBooks(study, path)
    return books if policy.startswith("seed ") else list(books)


def _checked_usd(
    engine: Stage, books: Mapping[str, Sequence[Book]], paths: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Money of the rewards that each policy has on the device; every book is checked on the way.

    Each is held against market and rules, and decision by decision against the rewards.

    Raises:
        BooksError: a path breaks a rule, or a reward is not what the book has, beyond the rounding of float32.
    """
    study, resident = engine.study, engine.resident
    rewards_of = jax.jit(functools.partial(path_rewards, study.program))
    total_usd = {}
    for policy, path in paths.items():
        rewards = np.asarray(rewards_of(resident.market, resident.windows, study.cost_ticks, path))
        total_usd[policy] = _as_booked(study, policy, books[policy], rewards)
    return total_usd


def _as_booked(study: Study, policy: str, by_window: Sequence[Book], rewards: np.ndarray) -> float:
    total_usd, scales = 0.0, np.asarray(study.windows.reward_scale, np.float64)
    for window, account in enumerate(by_window):
        leg, count, scale = study.leg_by_window[window], len(account.after_lots), scales[window]
        # the hindsight bound is under no account limits
        limits = None if policy == "oracle" else limits_of(study, window)
        verify_book(policy, leg.market, study.program.env, account, limits)
        ticks = rewards[window, :count].astype(np.float64) / scale
        paid = costs_usd(leg.costs, account.sides, account.crossed_ticks, account.rolled) / leg.costs.tick_value_usd
        differs = np.abs(ticks - (account.gross_ticks - paid)) > 2e-6 * (np.abs(account.gross_ticks) + paid)
        if differs.any() or rewards[window, count:].any():
            row = int(np.argmax(differs)) if differs.any() else count
            raise BooksError(
                f"a fault of tidewalk, please report it: {policy}, window {window}, decision {row}: the reward is "
                f"{rewards[window, row] / scale:g} ticks, and the books have another result."
            )
        total_usd += float(ticks.sum()) * leg.costs.tick_value_usd
    return total_usd


def _host_tally(tally: Tally, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """The parts of a tally on the host, zeros where one is not counted."""
    parts = jax.device_get(vars(tally))
    return {
        name: np.zeros(shape, np.int64) if part is None else np.asarray(part).reshape(shape)
        for name, part in parts.items()
    }


def equity_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per out-of-sample session of each policy and symbol, stitched over the windows (see `store.results`)."""
    frames = []
    for policy in outcome.books:
        for leg in outcome.study.legs:
            indices = [window.index for window in leg.plan.windows]
            rows = pl.concat([_session_rows(leg, w, outcome.sessions_of(policy, w)) for w in indices])
            own = {"policy": pl.lit(policy), "symbol": pl.lit(leg.symbol)}
            frames.append(rows.with_columns(**own, equity_usd=pl.col("net_usd").cum_sum()))
    return pl.concat(frames).select(list(EQUITY.schema))


def fills_frame(outcome: Outcome) -> pl.DataFrame:
    """The ensemble's fills (schema of `fills.parquet`)."""
    return _ledger_frame(outcome, outcome.fills, FILLS.schema)


def trades_frame(outcome: Outcome) -> pl.DataFrame:
    """The ensemble's round trips (schema of `trades.parquet`)."""
    return _ledger_frame(outcome, outcome.trades, TRADES.schema)


def _ledger_frame(outcome: Outcome, by_window: list[Any], schema: dict[str, Any]) -> pl.DataFrame:
    """Columns of the ledger of every window, below one another."""
    own = ("symbol", "window")
    frames = []
    for window, (leg, part) in enumerate(zip(outcome.study.leg_by_window, by_window, strict=True)):
        columns = {name: getattr(part, name) for name in schema if name not in own}
        # names and reasons come as objects, all else as numbers
        plain = {name: list(values) if values.dtype == object else values for name, values in columns.items()}
        frame = pl.DataFrame([pl.Series(name, values, dtype=schema[name]) for name, values in plain.items()])
        frame = frame.with_columns(symbol=pl.lit(leg.symbol), window=pl.lit(window, pl.Int32))
        frames.append(frame.select(list(schema)))
    return pl.concat(frames)


def members_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per member (schema of `members.parquet`); without a usable epoch there is no validation result."""
    study, rows = outcome.study, []
    per_year = {leg.symbol: sessions_per_year([leg]) for leg in study.legs}
    for window, leg in enumerate(study.leg_by_window):
        for seed in range(study.config.train.seeds):
            sessions = outcome.sessions_of(f"seed {seed}", window)
            pnl = session_net_usd(leg, sessions)
            val = {name: part[window, seed].item() for name, part in outcome.best_val.items()}
            epoch = int(outcome.best_epoch[window, seed])
            test = money(leg.costs, [sessions])
            rows.append(
                {
                    "symbol": leg.symbol,
                    "window": window,
                    "seed": seed,
                    "best_epoch": epoch,
                    "val_net_usd": net_usd(leg.costs, **val).item() if epoch > 0 else None,
                    **{f"test_{name}": test[name] for name in ("net_usd", "gross_usd", "costs_usd", "trades")},
                    "test_sharpe_session": metrics.sharpe(pnl, per_year[leg.symbol]).value,
                    "status": "ok" if outcome.is_alive[window, seed] else "diverged",
                }
            )
    return pl.DataFrame(rows, schema=MEMBERS.schema)


def per_window(outcome: Outcome) -> list[dict[str, Any]]:
    """The summary's row of every window."""
    study, rows = outcome.study, []
    windows = [window for leg in study.legs for window in leg.plan.windows]
    for leg, window in zip(study.leg_by_window, windows, strict=True):
        w, test = window.index, (window.test.first, window.test.stop)

        def net(policy: str, leg: Leg = leg, w: int = w) -> float:
            return money(leg.costs, [outcome.sessions_of(policy, w)])["net_usd"]

        dates = {n: (getattr(window, n).first_day, getattr(window, n).last_day) for n in ("train", "val", "test")}
        rows.append(
            {
                "window": w,
                "symbol": leg.symbol,
                **{name: [str(day) for day in days] for name, days in dates.items()},
                "best_epoch": outcome.best_epoch[w].tolist(),
                **money(leg.costs, [outcome.books[ENSEMBLE][w]]),
                "seeds_net_usd": [net(f"seed {s}") for s in range(study.config.train.seeds)],
                "contracts": contracts_between(leg.market, *test),
                "rolls": _rolls_paid(leg, outcome.books[ENSEMBLE][w]),
                "oracle_usd": net("oracle"),
                "long_usd": net("long"),
                "partial_test": window.is_partial_test,
            }
        )
    return rows


def _rolls_paid(leg: Leg, account: Book) -> int:
    """Rolls through which a book held a position; one at the first bar of a range, which starts flat, costs nothing."""
    is_roll = ((leg.market.flags[account.fill_bars - 1] & ROLL) != 0).astype(np.int64)
    return int(np.count_nonzero(cost_ops.rolled(account.before_lots, account.after_lots, is_roll)))


def reconciled(outcome: Outcome) -> dict[str, float]:
    """What the ensemble earned net, USD, counted in four ways that have to agree.

    By session (`equity_usd`), as the cash of all fills less their costs (`fills_usd`), by round trips (`trades_usd`),
    and as the rewards of the device (`rewards_usd`, float32).
    """
    cash = trips = sessions = 0.0
    for window, leg in enumerate(outcome.study.leg_by_window):
        made, closed = outcome.fills[window], outcome.trades[window]
        bought_ticks = int((made.lots * made.price_ticks).sum())
        cash -= bought_ticks * leg.costs.tick_value_usd + made.costs_usd.sum()
        trips += closed.net_usd.sum()
        sessions += session_net_usd(leg, outcome.sessions_of(ENSEMBLE, window)).sum()
    amounts = {"equity_usd": sessions, "fills_usd": cash, "trades_usd": trips, "rewards_usd": outcome.rewards_usd}
    return {name: float(amount) for name, amount in amounts.items()}


def session_net_usd(leg: Leg, sessions: Sessions) -> np.ndarray:
    """Net P&L of each session of a symbol."""
    return np.asarray(net_usd(leg.costs, sessions.gross_ticks, sessions.sides, sessions.crossed_ticks, sessions.rolled))


def money(costs: Costs, books: Sequence[Book | Sessions]) -> dict[str, Any]:
    """Net, gross, costs (fees and slippage), and sides of some books of one symbol, whole or summed by session."""
    names = ("gross_ticks", "sides", "crossed_ticks", "rolled")
    ticks, traded, crossed, rolled = (sum(getattr(account, name).sum().item() for account in books) for name in names)
    gross = float(gross_usd(costs, ticks))
    fees, slippage = float(fees_usd(costs, traded, rolled)), float(slippage_usd(costs, traded, crossed))
    return {
        "net_usd": gross - fees - slippage,
        "gross_usd": gross,
        "costs_usd": fees + slippage,
        "fees_usd": fees,
        "slippage_usd": slippage,
        "trades": traded,
    }


def sessions_per_year(legs: list[Leg]) -> float:
    """Sessions per year of the trade dates on which any of the symbols is traded."""
    days = np.unique(np.concatenate([leg.market.trade_day for leg in legs]))
    steps_days = np.diff(days)
    if np.median(steps_days) > metrics.MAX_CLOSED_DAYS:  # sessions weeks apart are the rule: no pause to leave out
        return float(metrics.DAYS_PER_YEAR / steps_days.mean())
    return metrics.sessions_per_year(days.astype("datetime64[D]"))


def _window_book(study: Study, window: int, positions: np.ndarray) -> Book:
    first, count = test_span(study, window)
    env = study.program.env
    lots = (positions[:count].astype(np.int64) - env.flat) * env.lots_per_level
    return book(study.leg_by_window[window].market, first, lots, env.roll_as)


def _session_rows(leg: Leg, window: int, sessions: Sessions) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "window": pl.Series(np.full(len(sessions.trade_day), window, np.int32)),
            "trade_date": pl.Series(sessions.trade_day.astype(np.int32)).cast(pl.Date),
            "net_usd": session_net_usd(leg, sessions),
            "gross_usd": gross_usd(leg.costs, sessions.gross_ticks),
            "costs_usd": costs_usd(leg.costs, sessions.sides, sessions.crossed_ticks, sessions.rolled),
            "position_mean": sessions.position_mean,
            "trades": sessions.sides,
        }
    )
