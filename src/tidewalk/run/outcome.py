"""From positions to the record: books, stitched equity, ledger, statistics and the summary; all on the host."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from tidewalk.run.engine import Engine, trade
from tidewalk.run.study import Study, rolls_between
from tidewalk.stats import inference, metrics
from tidewalk.trading.account import Book, Sessions, book, by_session, costs_usd, gross_usd, ledger
from tidewalk.train.baselines import NAMES as BASELINES
from tidewalk.train.baselines import baseline_book, timing_percentile
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
    best_val: tuple[np.ndarray, np.ndarray]
    """Gross ticks and sides of the best epoch on the validation months, `[W, S]` each."""
    is_alive: np.ndarray


def settle(engine: Engine, state: TrainState) -> Outcome:
    """Trade the test months once: every member's best epoch, the seed ensemble, the baselines, the hindsight path."""
    study = engine.study
    seeds, shape = study.config.train.seeds, (study.num_windows, study.config.train.seeds)
    members, ensembles = trade(engine, state.best)
    env, bars = study.program.env, study.program.test_bars
    windows = engine.resident.windows
    best_path = hindsight(env, engine.resident.market, windows.test, jnp.float32(study.costs.side_ticks), bars=bars)
    paths = {ENSEMBLE: ensembles}
    paths |= {f"seed {seed}": members.reshape(*shape, -1)[:, seed] for seed in range(seeds)}
    paths["oracle"] = np.asarray(jax.device_get(best_path))
    books = {name: [_window_book(study, w, path[w]) for w in range(study.num_windows)] for name, path in paths.items()}
    for name in BASELINES:
        books[name] = [baseline_book(name, study.market, env, *_test_span(study, w)) for w in range(study.num_windows)]
    best = jax.device_get((state.best.epoch, state.best.gross_ticks, state.best.sides, state.is_alive))
    epoch, gross, traded, alive = (np.asarray(leaf).reshape(shape) for leaf in best)
    return Outcome(study, books, epoch, (gross, traded), alive)


def equity_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per out-of-sample session of each policy, stitched over the windows (schema of `equity.parquet`)."""
    frames = []
    for policy, books in outcome.books.items():
        rows = [_session_rows(outcome.study, window, account) for window, account in enumerate(books)]
        frames.append(
            pl.concat(rows).with_columns(pl.lit(policy).alias("policy"), equity_usd=pl.col("net_usd").cum_sum())
        )
    columns = [
        "policy",
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
    study = outcome.study
    fills = [
        (w, fill)
        for w, account in enumerate(outcome.books[ENSEMBLE])
        for fill in ledger(study.market, account, study.costs)
    ]
    return pl.DataFrame(
        {
            "window": pl.Series([w for w, _ in fills], dtype=pl.Int32),
            "ts_ns": pl.Series([f.ts_ns for _, f in fills], dtype=pl.Int64),
            "contract": pl.Series([f.contract for _, f in fills], dtype=pl.String),
            "lots": pl.Series([f.lots for _, f in fills], dtype=pl.Int32),
            "position_after": pl.Series([f.position_after for _, f in fills], dtype=pl.Int32),
            "price": pl.Series([f.price for _, f in fills], dtype=pl.Float64),
            "costs_usd": pl.Series([f.costs_usd for _, f in fills], dtype=pl.Float64),
            "reason": pl.Series([f.reason for _, f in fills], dtype=pl.String),
        }
    )


def members_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per member (schema of `members.parquet`)."""
    study, rows = outcome.study, []
    for window in range(study.num_windows):
        for seed in range(study.config.train.seeds):
            account = outcome.books[f"seed {seed}"][window]
            sessions = by_session(study.market, account)
            rows.append(
                {
                    "window": window,
                    "seed": seed,
                    "best_epoch": int(outcome.best_epoch[window, seed]),
                    "val_net_usd": net_usd(study, *(int(part[window, seed]) for part in outcome.best_val)).item(),
                    **_money(study, [account]),
                    "test_sharpe_session": metrics.sharpe(_net_usd(study, sessions), _sessions_per_year(study)).value,
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


def net_usd(study: Study, gross_ticks: Any, traded: Any) -> Any:
    """Money of ticks less the costs of sides."""
    return gross_usd(study.costs, gross_ticks) - costs_usd(study.costs, traded)


def oos_pnl(outcome: Outcome, policy: str = ENSEMBLE) -> np.ndarray:
    """Net P&L of every out-of-sample session of one policy, USD, in time order."""
    return np.concatenate(
        [_net_usd(outcome.study, by_session(outcome.study.market, account)) for account in outcome.books[policy]]
    )


def statistics(
    outcome: Outcome, trials: int, sd_of_sharpe: float | None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]:
    """The summary's `oos`, `baselines` and `oracle`, and a warning for every figure that is undefined."""
    study, pnl = outcome.study, oos_pnl(outcome)
    per_year = _sessions_per_year(study)
    money = _money(study, outcome.books[ENSEMBLE])
    sharpe = metrics.sharpe(pnl, per_year)
    interval = inference.stationary_bootstrap_ci(pnl, lambda sample: metrics.sharpe(sample, per_year).value)
    psr, dsr = inference.session_psr(pnl), inference.session_dsr(pnl, trials, sd_of_sharpe)
    says = inference.verdict(
        net_usd=money["net_usd"], sessions=len(pnl), trades=money["trades"], psr=psr, dsr=dsr, ci=interval
    )
    percentile = timing_percentile(study.market, outcome.books[ENSEMBLE], flat_at_close=study.program.env.flat_at_close)
    bound = _money(study, outcome.books["oracle"])["net_usd"]
    captured = metrics.captured_frac(money["net_usd"], bound)
    is_bounded = interval.low is not None and interval.high is not None
    reasons = {
        "oos.sharpe_session": sharpe.reason,
        "oos.sharpe_ci90": None if is_bounded else interval.reason,
        "oos.psr": psr.reason,
        "oos.dsr": dsr.reason,
        "baselines.random_p": None if percentile is not None else "the agent never held a position",
        "oracle.captured_frac": captured.reason,
    }
    oos = {
        "sessions": len(pnl),
        "net_usd": money["net_usd"],
        "gross_usd": money["gross_usd"],
        "costs_usd": money["costs_usd"],
        "trades": money["trades"],
        "sharpe_session": sharpe.value,
        "sharpe_ci90": [interval.low, interval.high] if is_bounded else None,
        "max_drawdown_usd": metrics.max_drawdown(pnl),
        "psr": psr.value,
        "dsr": dsr.value,
        "trials": trials,
        "verdict": str(says),
    }
    baselines = {name: _money(study, outcome.books[name])["net_usd"] for name in BASELINES} | {"random_p": percentile}
    undefined = [f"{name} is undefined: {reason}" for name, reason in reasons.items() if reason]
    return oos, baselines, {"net_usd": bound, "captured_frac": captured.value}, undefined


def behaviour_warnings(outcome: Outcome) -> list[str]:
    """What a reader must know of a policy that only looks learned, and of members that were lost."""
    study = outcome.study
    warnings: list[str] = []
    own = np.concatenate([account.after_lots for account in outcome.books[ENSEMBLE]])
    warnings += [
        f"The policy equals the {name} baseline on 100 % of bars: it is that baseline, not a learned strategy."
        for name in BASELINES
        if np.array_equal(own, np.concatenate([account.after_lots for account in outcome.books[name]]))
    ]
    dead = int((~outcome.is_alive).sum())
    if dead:
        warnings.append(
            f"{dead} of {study.num_members} members diverged (loss not finite); each is represented by its best epoch "
            "before that, or left out."
        )
    lost = [w for w in range(study.num_windows) if not (outcome.best_epoch[w] > 0).any()]
    if lost:
        warnings.append(f"Windows {lost} have no usable member and stay flat in the record.")
    return warnings


def per_window(outcome: Outcome) -> list[dict[str, Any]]:
    """The summary's row of every window."""
    study, rows = outcome.study, []
    for window in study.plan.windows:
        w = window.index
        test = (window.test.first, window.test.stop)
        inside = np.unique(study.market.contract_id[slice(*test)])
        rows.append(
            {
                "window": w,
                **{
                    n: [str(getattr(window, n).first_day), str(getattr(window, n).last_day)]
                    for n in ("train", "val", "test")
                },
                "best_epoch": outcome.best_epoch[w].tolist(),
                **_money(study, [outcome.books[ENSEMBLE][w]]),
                "seeds_net_usd": [
                    _money(study, [outcome.books[f"seed {s}"][w]])["net_usd"] for s in range(study.config.train.seeds)
                ],
                "contracts": [study.market.info.contracts[i] for i in inside],
                "rolls": len(rolls_between(study.market, *test)),
                "oracle_usd": _money(study, [outcome.books["oracle"][w]])["net_usd"],
                "long_usd": _money(study, [outcome.books["long"][w]])["net_usd"],
                "partial_test": window.is_partial_test,
            }
        )
    return rows


def _test_span(study: Study, window: int) -> tuple[int, int]:
    """First decision and number of decisions of a window's test range."""
    first, stop = (int(edge) for edge in np.asarray(study.windows.test)[window])
    return first, stop - first


def _window_book(study: Study, window: int, positions: np.ndarray) -> Book:
    first, count = _test_span(study, window)
    return book(study.market, first, positions[:count].astype(np.int64) - study.program.env.flat)


def _net_usd(study: Study, sessions: Sessions) -> np.ndarray:
    return net_usd(study, sessions.gross_ticks, sessions.sides)


def _money(study: Study, books: list[Book]) -> dict[str, Any]:
    ticks, traded = (sum(int(getattr(account, name).sum()) for account in books) for name in ("gross_ticks", "sides"))
    gross, costs = float(gross_usd(study.costs, ticks)), float(costs_usd(study.costs, traded))
    return {"net_usd": gross - costs, "gross_usd": gross, "costs_usd": costs, "trades": traded}


def _session_rows(study: Study, window: int, account: Book) -> pl.DataFrame:
    sessions = by_session(study.market, account)
    return pl.DataFrame(
        {
            "window": pl.Series(np.full(len(sessions.trade_day), window, np.int32)),
            "trade_date": pl.Series(sessions.trade_day.astype(np.int32)).cast(pl.Date),
            "net_usd": _net_usd(study, sessions),
            "gross_usd": gross_usd(study.costs, sessions.gross_ticks),
            "costs_usd": costs_usd(study.costs, sessions.sides),
            "position_mean": sessions.position_mean,
            "trades": sessions.sides,
        }
    )


def _sessions_per_year(study: Study) -> float:
    days = np.unique(study.market.trade_day)
    steps_days = np.diff(days)
    if np.median(steps_days) > metrics.MAX_CLOSED_DAYS:  # sessions weeks apart are the rule: no pause to leave out
        return float(metrics.DAYS_PER_YEAR / steps_days.mean())
    return metrics.sessions_per_year(days.astype("datetime64[D]"))
