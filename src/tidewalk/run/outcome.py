"""From positions to the record: the books of every policy, and the result tables made of them; all on the host."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from tidewalk.run.engine import Engine, trade
from tidewalk.run.study import Leg, Study, contracts_between, rolls_between
from tidewalk.stats import metrics
from tidewalk.trading.account import Book, Sessions, book, by_session, costs_usd, gross_usd, ledger
from tidewalk.trading.costs import Costs
from tidewalk.train.baselines import NAMES as BASELINES
from tidewalk.train.baselines import baseline_book
from tidewalk.train.oracle import hindsight
from tidewalk.train.population import TrainState

ENSEMBLE = "ensemble"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The books of every policy, window by window."""

    study: Study
    books: dict[str, list[Book]]
    """policy -> one book per window; "ensemble", "seed 0" ..., the baselines, "oracle"."""
    best_epoch: np.ndarray
    """`[W, S]`; 0 where a member never finished an epoch with a finite loss."""
    best_val: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Gross ticks, sides and half spreads of the best epoch on the validation months, `[W, S]` each."""
    is_alive: np.ndarray

    def books_of(self, policy: str, leg: Leg) -> list[Book]:
        """The books of a policy in the windows of one symbol, in time order."""
        return [self.books[policy][window.index] for window in leg.plan.windows]


def settle(engine: Engine, state: TrainState) -> Outcome:
    """Trade the test months once: every member's best epoch, the seed ensemble, the baselines, the hindsight path."""
    study = engine.study
    seeds, shape = study.config.train.seeds, (study.num_windows, study.config.train.seeds)
    members, ensembles = trade(engine, state.best)
    env, bars = study.program.env, study.program.test_bars
    best_path = hindsight(
        env, engine.resident.market, engine.resident.windows.test, jnp.asarray(study.side_ticks), bars=bars
    )
    paths = {ENSEMBLE: ensembles}
    paths |= {f"seed {seed}": members.reshape(*shape, -1)[:, seed] for seed in range(seeds)}
    paths["oracle"] = np.asarray(jax.device_get(best_path))
    legs = study.leg_by_window
    books = {name: [_window_book(study, w, path[w]) for w in range(study.num_windows)] for name, path in paths.items()}
    for name in BASELINES:
        books[name] = [baseline_book(name, leg.market, env, *_test_span(study, w)) for w, leg in enumerate(legs)]
    best = jax.device_get((state.best.epoch, state.best.gross_ticks, state.best.sides, state.is_alive))
    epoch, gross, traded, alive = (np.asarray(leaf).reshape(shape) for leaf in best)
    crossed = jax.device_get(state.best.crossed_ticks) if study.program.has_spread else np.zeros(shape)
    return Outcome(study, books, epoch, (gross, traded, np.asarray(crossed).reshape(shape)), alive)


def equity_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per out-of-sample session of each policy and symbol, stitched over the windows (see `store.results`)."""
    frames = []
    for policy in outcome.books:
        for leg in outcome.study.legs:
            books = zip(leg.plan.windows, outcome.books_of(policy, leg), strict=True)
            rows = pl.concat([_session_rows(leg, window.index, account) for window, account in books])
            own = {"policy": pl.lit(policy), "symbol": pl.lit(leg.symbol)}
            frames.append(rows.with_columns(**own, equity_usd=pl.col("net_usd").cum_sum()))
    columns = [
        "policy",
        "symbol",
        "window",
        "trade_date",
        "net_usd",
        "gross_usd",
        "costs_usd",
        "equity_usd",
        "position_mean",
        "trades",
    ]
    return pl.concat(frames).select(columns)


def trades_frame(outcome: Outcome) -> pl.DataFrame:
    """The ensemble's fills (schema of `trades.parquet`)."""
    fills = [
        (leg.symbol, window, fill)
        for window, leg in enumerate(outcome.study.leg_by_window)
        for fill in ledger(leg.market, outcome.books[ENSEMBLE][window], leg.costs)
    ]
    return pl.DataFrame(
        {
            "symbol": pl.Series([symbol for symbol, _, _ in fills], dtype=pl.String),
            "window": pl.Series([w for _, w, _ in fills], dtype=pl.Int32),
            "ts_ns": pl.Series([f.ts_ns for _, _, f in fills], dtype=pl.Int64),
            "contract": pl.Series([f.contract for _, _, f in fills], dtype=pl.String),
            "lots": pl.Series([f.lots for _, _, f in fills], dtype=pl.Int32),
            "position_after": pl.Series([f.position_after for _, _, f in fills], dtype=pl.Int32),
            "price": pl.Series([f.price for _, _, f in fills], dtype=pl.Float64),
            "costs_usd": pl.Series([f.costs_usd for _, _, f in fills], dtype=pl.Float64),
            "reason": pl.Series([f.reason for _, _, f in fills], dtype=pl.String),
        }
    )


def members_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per member (schema of `members.parquet`)."""
    study, rows = outcome.study, []
    per_year = {leg.symbol: sessions_per_year([leg]) for leg in study.legs}
    for window, leg in enumerate(study.leg_by_window):
        for seed in range(study.config.train.seeds):
            account = outcome.books[f"seed {seed}"][window]
            pnl = session_net_usd(leg, by_session(leg.market, account))
            val = (part[window, seed].item() for part in outcome.best_val)
            rows.append(
                {
                    "symbol": leg.symbol,
                    "window": window,
                    "seed": seed,
                    "best_epoch": int(outcome.best_epoch[window, seed]),
                    "val_net_usd": net_usd(leg.costs, *val).item(),
                    **money(leg.costs, [account]),
                    "test_sharpe_session": metrics.sharpe(pnl, per_year[leg.symbol]).value,
                    "status": "ok" if outcome.is_alive[window, seed] else "diverged",
                }
            )
    names = {
        "net_usd": "test_net_usd",
        "gross_usd": "test_gross_usd",
        "costs_usd": "test_costs_usd",
        "trades": "test_trades",
    }
    schema = {
        "window": pl.Int32,
        "seed": pl.Int32,
        "best_epoch": pl.Int32,
        "val_net_usd": pl.Float64,
        "test_sharpe_session": pl.Float64,
    }
    return pl.DataFrame(rows, schema_overrides=schema).rename(names)


def per_window(outcome: Outcome) -> list[dict[str, Any]]:
    """The summary's row of every window."""
    study, rows = outcome.study, []
    windows = [window for leg in study.legs for window in leg.plan.windows]
    for leg, window in zip(study.leg_by_window, windows, strict=True):
        w, test = window.index, (window.test.first, window.test.stop)

        def net(policy: str, leg: Leg = leg, w: int = w) -> float:
            return money(leg.costs, [outcome.books[policy][w]])["net_usd"]

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
                "rolls": len(rolls_between(leg.market, *test)),
                "oracle_usd": net("oracle"),
                "long_usd": net("long"),
                "partial_test": window.is_partial_test,
            }
        )
    return rows


def net_usd(costs: Costs, gross_ticks: Any, traded: Any, crossed_ticks: Any = 0.0) -> Any:
    """Money of ticks less the costs of sides and of recorded half spreads."""
    return gross_usd(costs, gross_ticks) - costs_usd(costs, traded, crossed_ticks)


def session_net_usd(leg: Leg, sessions: Sessions) -> np.ndarray:
    """Net P&L of each session of a symbol."""
    return net_usd(leg.costs, sessions.gross_ticks, sessions.sides, sessions.crossed_ticks)


def money(costs: Costs, books: list[Book]) -> dict[str, Any]:
    """Net, gross, costs and sides of some books of one symbol."""
    names = ("gross_ticks", "sides", "crossed_ticks")
    ticks, traded, crossed = (sum(getattr(account, name).sum().item() for account in books) for name in names)
    gross, paid = float(gross_usd(costs, ticks)), float(costs_usd(costs, traded, crossed))
    return {"net_usd": gross - paid, "gross_usd": gross, "costs_usd": paid, "trades": traded}


def sessions_per_year(legs: list[Leg]) -> float:
    """Sessions per year of the trade dates on which any of the symbols is traded."""
    days = np.unique(np.concatenate([leg.market.trade_day for leg in legs]))
    steps_days = np.diff(days)
    if np.median(steps_days) > metrics.MAX_CLOSED_DAYS:  # sessions weeks apart are the rule: no pause to leave out
        return float(metrics.DAYS_PER_YEAR / steps_days.mean())
    return metrics.sessions_per_year(days.astype("datetime64[D]"))


def _test_span(study: Study, window: int) -> tuple[int, int]:
    """First decision, in bars of its symbol, and number of decisions of a window's test range."""
    first, stop = (int(edge) for edge in np.asarray(study.windows.test)[window])
    return first - study.leg_by_window[window].first_bar, stop - first


def _window_book(study: Study, window: int, positions: np.ndarray) -> Book:
    first, count = _test_span(study, window)
    lots = positions[:count].astype(np.int64) - study.program.env.flat
    return book(study.leg_by_window[window].market, first, lots)


def _session_rows(leg: Leg, window: int, account: Book) -> pl.DataFrame:
    sessions = by_session(leg.market, account)
    return pl.DataFrame(
        {
            "window": pl.Series(np.full(len(sessions.trade_day), window, np.int32)),
            "trade_date": pl.Series(sessions.trade_day.astype(np.int32)).cast(pl.Date),
            "net_usd": session_net_usd(leg, sessions),
            "gross_usd": gross_usd(leg.costs, sessions.gross_ticks),
            "costs_usd": costs_usd(leg.costs, sessions.sides, sessions.crossed_ticks),
            "position_mean": sessions.position_mean,
            "trades": sessions.sides,
        }
    )
