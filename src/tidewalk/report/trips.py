"""Round trips of the ensemble: what they made, how long they lasted, and the first of them one by one."""

from collections.abc import Iterable

import polars as pl

from tidewalk.report.tables import LEDGER_ROWS, UNDEFINED, decimals, frac_percent, number, usd

NS_PER_MINUTE = 60_000_000_000


def trip_rows(trades: pl.DataFrame) -> list[list[str]]:
    """Statistics of the round trips: all, long, short.

    Columns: which, count, contracts, won, net (mean, median), mean win, mean loss, best, worst, hold (mean, longest).
    """
    parts = [("all", trades), ("long", trades.filter(pl.col("lots") > 0)), ("short", trades.filter(pl.col("lots") < 0))]
    return [_trip_row(name, part) for name, part in parts if part.height]


def _trip_row(name: str, trades: pl.DataFrame) -> list[str]:
    net = trades["net_usd"]
    won, lost = net.filter(net > 0), net.filter(net < 0)
    decided = len(won) + len(lost)
    minutes = (trades["exit_ts_ns"] - trades["entry_ts_ns"]) / NS_PER_MINUTE
    money = [usd(value) for value in (net.mean(), net.median(), won.mean(), lost.mean(), net.max(), net.min())]
    counts = [number(trades.height), number(trades["lots"].abs().sum())]
    share = frac_percent(len(won) / decided, 0) if decided else UNDEFINED
    return [name, *counts, share, *money, duration(minutes.mean()), duration(minutes.max())]


def duration(minutes: object) -> str:
    """A length of time in the unit that fits it: minutes, hours or days."""
    if not isinstance(minutes, int | float):
        return UNDEFINED
    if minutes < 90:
        return f"{number(minutes, 0 if minutes >= 10 or minutes == int(minutes) else 1)} min"
    if minutes < 48 * 60:
        return f"{number(minutes / 60, 1)} h"
    return f"{number(minutes / 60 / 24, 1)} days"


def exit_rows(trades: pl.DataFrame) -> list[list[str]]:
    """Round trips by what ended them: reason, count, net, mean net; most frequent first."""
    table = trades.group_by("exit_reason").agg(
        pl.len().alias("count"), pl.col("net_usd").sum(), pl.col("net_usd").mean().alias("mean")
    )
    rows = table.sort("count", "exit_reason", descending=[True, False]).iter_rows()
    return [[reason, number(count), usd(net), usd(mean)] for reason, count, net, mean in rows]


def ledger_rows(trades: pl.DataFrame) -> list[list[str]]:
    """The first `LEDGER_ROWS` round trips.

    Columns: window, contract, lots, entry and exit (time UTC, price), gross, fees, slippage, net, why in and out.
    """
    times = [_utc(name) for name in ("entry_ts_ns", "exit_ts_ns")]
    shown = trades.sort("entry_ts_ns", maintain_order=True).head(LEDGER_ROWS).with_columns(times)
    places = decimals(_prices(shown))
    return [_ledger_row(row, places) for row in shown.iter_rows(named=True)]


def _utc(name: str) -> pl.Expr:
    return pl.from_epoch(name, time_unit="ns").dt.strftime("%Y-%m-%d %H:%M").alias(name.replace("ts_ns", "time"))


def _prices(trades: pl.DataFrame) -> Iterable[float]:
    return [*trades["entry_price"], *trades["exit_price"]]


def _ledger_row(row: dict[str, object], places: int) -> list[str]:
    lots = number(row["lots"])
    held = lots if lots.startswith("\u2212") else f"+{lots}"
    ends = [row["entry_time"], number(row["entry_price"], places), row["exit_time"], number(row["exit_price"], places)]
    money = [number(row[name], 2) for name in ("gross_usd", "fees_usd", "slippage_usd", "net_usd")]
    whole = [number(row["window"]), row["contract"], held, *ends, *money, row["entry_reason"], row["exit_reason"]]
    return [str(cell) for cell in whole]
