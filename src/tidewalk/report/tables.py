"""Rows and figures-in-words of the report: run records in, short strings out; no files and no HTML.

Money is shown in whole dollars from 10 USD on and to the cent below; a figure that is not defined is None here and
the word "undefined" on the page, never a NaN.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tidewalk.core.words import counted
from tidewalk.report.charts import BASELINES, finite
from tidewalk.stats.metrics import max_drawdown, sessions_per_year, sharpe
from tidewalk.store.summary import reason_for

MINUS, DASH, UNDEFINED = "\u2212", "\u2013", "undefined"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LEDGER_ROWS, MEMBER_ROWS, LISTED_SEEDS = 50, 200, 8


@dataclass(frozen=True)
class Card:
    """One headline figure; `value` is None where it is undefined, and then `note` says why."""

    title: str
    value: str | None
    note: str


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, and how strong a gain (1 to 3) or loss (-1 to -3) it is; 0 is neither."""

    text: str
    level: int = 0


def number(value: object, decimals: int = 0) -> str:
    """A number with thousands separators and a real minus sign; "undefined" where there is none."""
    known = finite(value)
    if known is None:
        return UNDEFINED
    text = f"{abs(known):,.{decimals}f}"
    return MINUS + text if known < 0 and any(digit in "123456789" for digit in text) else text


def usd(value: object) -> str:
    """Dollars: whole from 10 on, to the cent below."""
    known = finite(value)
    return number(known, 0 if known is None or known == 0 or abs(known) >= 9.995 else 2)


def with_unit(value: object, unit: str, decimals: int) -> str:
    """A number and its unit; "undefined" alone where there is none."""
    text = number(value, decimals)
    return text if text == UNDEFINED else f"{text} {unit}"


def frac_percent(value: object, decimals: int = 1) -> str:
    """A fraction as a percentage; "undefined" where there is none."""
    known = finite(value)
    return UNDEFINED if known is None else f"{number(100 * known, decimals)} %"


def headline_cards(summary: Mapping[str, Any], equity: pl.DataFrame) -> list[Card]:
    """The headline figures of summary.json in reading order: money, activity, risk, evidence.

    Args:
        summary: parsed summary.json; any figure in it may be null or absent.
        equity: rows of equity.parquet, for the dates tested and the position held.
    """
    oos = summary.get("oos") or {}
    baselines, oracle = summary.get("baselines") or {}, summary.get("oracle") or {}
    warnings = [str(text) for text in summary.get("warnings") or []]

    def card(title: str, path: str, value: str, note: str) -> Card:
        known = value != UNDEFINED
        return Card(title, value if known else None, note if known else reason_for(path, warnings))

    gross, costs, trades, sessions = (finite(oos.get(k)) for k in ("gross_usd", "costs_usd", "trades", "sessions"))
    trials = counted(oos["trials"], "trial") if oos.get("trials") else UNDEFINED
    random_p, captured = baselines.get("random_p"), oracle.get("captured_frac")
    share = f"{frac_percent(costs / gross, 0)} of gross" if costs is not None and gross and gross > 0 else "in all"
    pace = f"{number(trades / sessions, 1)} per session" if trades is not None and sessions else "contracts traded"
    dates = equity["trade_date"]
    span = "trade dates tested" if equity.is_empty() else f"{dates.min()} to\n{dates.max()}"
    held = equity.filter(pl.col("policy") == "ensemble")["position_mean"].mean()
    position = (None, "no session of the ensemble") if held is None else (number(held, 2), "contracts, long positive")
    bound = f"of {usd(oracle.get('net_usd'))} ¤ in hindsight"
    return [
        card("Net, out of sample", "oos.net_usd", usd(oos.get("net_usd")), "¤ after all costs"),
        card("Gross", "oos.gross_usd", usd(gross), "¤ before costs"),
        card("Costs", "oos.costs_usd", usd(costs), f"¤, {share}"),
        card("Trades", "oos.trades", number(trades), f"contract sides, {pace}"),
        card("Sessions", "oos.sessions", number(sessions), span),
        Card("Mean position", *position),
        card(
            "Sharpe, annualised", "oos.sharpe_session", number(oos.get("sharpe_session"), 2), _interval(oos, warnings)
        ),
        card("Max drawdown", "oos.max_drawdown_usd", usd(oos.get("max_drawdown_usd")), "¤, session ends"),
        card("PSR", "oos.psr", number(oos.get("psr"), 3), "probability that the true Sharpe is above 0"),
        card("DSR", "oos.dsr", number(oos.get("dsr"), 3), f"deflated for {trials}"),
        card("Random policies beaten", "baselines.random_p", frac_percent(random_p, 0), "same turnover and bars"),
        card("Hindsight captured", "oracle.captured_frac", frac_percent(captured), bound),
    ]


def interval(ends: object, decimals: int) -> str:
    """Both ends of an interval; "undefined" where there is none."""
    if not isinstance(ends, list | tuple) or len(ends) != 2 or any(finite(end) is None for end in ends):
        return UNDEFINED
    return f"{number(ends[0], decimals)} to {number(ends[1], decimals)}"


def _interval(oos: Mapping[str, Any], warnings: Sequence[str]) -> str:
    """The confidence interval of the Sharpe ratio in words."""
    text = interval(oos.get("sharpe_ci90"), 2)
    return f"90 % CI {text}" if text != UNDEFINED else f"90 % CI undefined: {reason_for('oos.sharpe_ci90', warnings)}"


def sessions_factor(summary: Mapping[str, Any], equity: pl.DataFrame) -> float:
    """Sessions per year of summary.json, so that the page has one factor; without a headline, of the dates tested."""
    of_all_bars = finite((summary.get("oos") or {}).get("sessions_per_year"))
    own = equity.filter(pl.col("policy") == "ensemble")
    return of_all_bars or sessions_per_year(own["trade_date"].sort().to_list())


def ruined_policies(equity: pl.DataFrame, capital_usd: float | None) -> frozenset[str]:
    """Policies that lost the capital in a window, or would have over the whole record, as session ends show.

    Args:
        equity: rows of equity.parquet, of each symbol.
        capital_usd: what the account of each window begins with; None where no account was counted.
    """
    if capital_usd is None:
        return frozenset()
    # limits never bind the hindsight bound
    days, net = equity.filter(pl.col("policy") != "oracle").sort("trade_date"), pl.col("net_usd").cum_sum()
    in_window = days.filter(net.over("policy", "symbol", "window") <= -capital_usd)
    whole_usd = capital_usd * days["symbol"].n_unique()
    in_all = days.group_by("policy", "trade_date").agg(pl.col("net_usd").sum()).sort("trade_date")
    return frozenset([*in_window["policy"], *in_all.filter(net.over("policy") <= -whole_usd)["policy"]])


def policy_rows(equity: pl.DataFrame, per_year: float, ruined: frozenset[str] = frozenset()) -> list[list[str]]:
    """One row per policy, seeds condensed to the median of each column: ensemble, seeds, baselines, oracle.

    Columns: name, net, gross, costs, trades, mean position, Sharpe ratio made annual by `per_year` sessions (undefined
    of `ruined` policies, since nothing could be traded on, and of seeds with one among them), max drawdown, share of
    sessions won.
    """
    by_name = equity.sort("trade_date").partition_by("policy", as_dict=True, maintain_order=True)
    lost = {name for (name,) in by_name if name in ruined or (str(name).startswith("seed ") and _any_seed(ruined))}
    found = {str(name): _policy_figures(rows, None if name in lost else per_year) for (name,), rows in by_name.items()}
    seeds = [found.pop(name) for name in list(found) if name.startswith("seed ")]
    named = {"ensemble": found.pop("ensemble")} if "ensemble" in found else {}
    if seeds:
        named[f"seeds, median of {len(seeds)}" if len(seeds) > 1 else "seed"] = [
            _median(column) for column in zip(*seeds, strict=True)
        ]
    order = [name for name in BASELINES if name in found]
    named |= {name: found[name] for name in sorted(found, key=lambda name: [*order, name].index(name))}
    return [_policy_row(name, values) for name, values in named.items()]


def _any_seed(names: Iterable[str]) -> bool:
    return any(name.startswith("seed ") for name in names)


def _policy_figures(rows: pl.DataFrame, per_year: float | None) -> list[float | None]:
    """Net, gross, costs, trades, mean position, Sharpe, max drawdown, share of winning sessions."""
    pnl = rows["net_usd"].to_numpy()
    sums = [float(rows[name].sum()) for name in ("net_usd", "gross_usd", "costs_usd", "trades")]
    ratio = None if per_year is None else sharpe(pnl, per_year).value
    return [*sums, finite(rows["position_mean"].mean()), ratio, max_drawdown(pnl), float((pnl > 0).mean())]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _policy_row(name: str, values: Sequence[float | None]) -> list[str]:
    net, gross, costs, trades, position, ratio, deepest, wins = values
    shown = "oracle (hindsight bound)" if name == "oracle" else name
    money = [usd(net), usd(gross), usd(costs), number(trades)]
    return [shown, *money, number(position, 2), number(ratio, 2), usd(deepest), frac_percent(wins, 0)]


def symbol_rows(per_symbol: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One row per symbol.

    Columns: symbol, windows, sessions, net, gross, costs, trades, Sharpe, its interval, max drawdown, long, random
    policies beaten, hindsight bound.
    """
    rows = []
    for row in per_symbol:
        oos, baselines = row["oos"], row["baselines"]
        counts = [number(row["windows"]), number(oos["sessions"])]
        money = [usd(oos[key]) for key in ("net_usd", "gross_usd", "costs_usd")]
        risk = [number(oos["sharpe_session"], 2), interval(oos["sharpe_ci90"], 2), usd(oos["max_drawdown_usd"])]
        bounds = [usd(baselines["long"]), frac_percent(baselines["random_p"], 0), usd(row["oracle"]["net_usd"])]
        rows.append([row["symbol"], *counts, *money, number(oos["trades"]), *risk, *bounds])
    return rows


def window_name(row: Mapping[str, Any], *, with_symbol: bool) -> str:
    """Number of a window, and its symbol where a study has several."""
    return f"{row['window']} {row['symbol']}" if with_symbol else str(row["window"])


def window_rows(per_window: Sequence[Mapping[str, Any]], *, with_symbol: bool = False) -> list[list[str]]:
    """The per-window table; a window whose test is partial carries a star.

    Columns: window, train, validation, test, best epochs, net, gross, costs, trades, seeds (worst, median, best), long,
    oracle, share captured, walk-forward efficiency, break-even per side (a dash where undefined), contracts, rolls.
    """
    return [_window_row(row, with_symbol=with_symbol) for row in per_window]


def _window_row(row: Mapping[str, Any], *, with_symbol: bool) -> list[str]:
    seeds = [value for value in map(finite, row.get("seeds_net_usd") or []) if value is not None]
    spread = [usd(f(seeds)) if seeds else UNDEFINED for f in (np.min, np.median, np.max)]
    dates = [" to\n".join(map(str, row.get(part) or [])) or UNDEFINED for part in ("train", "val", "test")]
    money = [usd(row.get(key)) for key in ("net_usd", "gross_usd", "costs_usd")]
    bounds = [usd(row.get(key)) for key in ("long_usd", "oracle_usd")]
    figures = [frac_percent(row["captured_frac"]), number(row["wfe"], 2), number(row["break_even_side_usd"], 2)]
    shares = [DASH if text == UNDEFINED else text for text in figures]
    contracts = " ".join(map(str, row.get("contracts") or []))
    best = _listed(row.get("best_epoch") or [])
    trades, rolls = number(row.get("trades")), number(row.get("rolls"))
    name = f"{window_name(row, with_symbol=with_symbol)}{'*' if row['partial_test'] else ''}"
    return [name, *dates, best, *money, trades, *spread, *bounds, *shares, contracts, rolls]


def _listed(values: Sequence[Any]) -> str:
    """Few values as they are, many as their range and median."""
    known = [value for value in map(finite, values) if value is not None]
    if len(known) <= LISTED_SEEDS:
        return ", ".join(number(value) for value in known) or UNDEFINED
    return f"{number(min(known))}{DASH}{number(max(known))}, median {number(np.median(known))}"


def member_rows(members: pl.DataFrame, *, with_symbol: bool = False) -> list[list[str]]:
    """At most `MEMBER_ROWS` rows: window, seed, best epoch, validation and test net, costs, trades, Sharpe, status."""
    rows = []
    for row in members.sort("window", "seed").head(MEMBER_ROWS).iter_rows(named=True):
        money = [usd(row[key]) for key in ("val_net_usd", "test_net_usd", "test_costs_usd")]
        facts = [number(row["test_trades"]), number(row["test_sharpe_session"], 2), row["status"]]
        name = window_name(row, with_symbol=with_symbol)
        rows.append([name, number(row["seed"]), number(row["best_epoch"]), *money, *facts])
    return rows


def month_rows(equity: pl.DataFrame) -> list[tuple[str, list[Cell]]]:
    """Net of the ensemble by year: twelve cells and the year's total; a month without a session is a blank cell."""
    own = equity.filter(pl.col("policy") == "ensemble")
    date = pl.col("trade_date").dt
    sums = own.group_by(date.year().alias("year"), date.month().alias("month")).agg(pl.col("net_usd").sum())
    nets = {(year, month): net for year, month, net in sums.iter_rows()}
    largest = max((abs(net) for net in nets.values()), default=0.0)
    rows = []
    for year in sorted({year for year, _ in nets}):
        cells = [_month_cell(nets.get((year, month)), largest) for month in range(1, 13)]
        total = sum(net for (own_year, _), net in nets.items() if own_year == year)
        rows.append((str(year), [*cells, Cell(usd(total))]))
    return rows


def _month_cell(net: float | None, largest: float) -> Cell:
    if net is None:
        return Cell("")
    level = int(np.ceil(3 * abs(net) / largest)) if largest > 0 else 0
    return Cell(usd(net), level if net > 0 else -level)


def contract_rows(fills: pl.DataFrame) -> list[list[str]]:
    """Fills by contract in order of first use: contract, fills, contracts traded, of which for rolls, costs."""
    lots = pl.col("lots").abs()
    rolled = lots.filter(pl.col("reason").str.starts_with("roll")).sum().alias("rolled")
    table = fills.sort("ts_ns").group_by("contract", maintain_order=True)
    table = table.agg(pl.len().alias("fills"), lots.sum(), rolled, pl.col("costs_usd").sum())
    return [[name, *map(number, counts), usd(costs)] for name, *counts, costs in table.iter_rows()]


def planned_rows(windows: Sequence[Mapping[str, Any]], *, with_symbol: bool = False) -> list[list[str]]:
    """Dates of the windows of windows.json: window, train, validation, test."""
    spans = [[f"{w[part]['first']} to {w[part]['last']}" for part in ("train", "val", "test")] for w in windows]
    names = [window_name(w, with_symbol=with_symbol) for w in windows]
    return [[name, *span] for name, span in zip(names, spans, strict=True)]


def roll_rows(rolls: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Rolls as the manifest has them: date, from, to, price left, price entered, difference, volumes, reason."""
    rows = []
    places = decimals(price for roll in rolls for price in (roll["exit"], roll["entry"]))
    for roll in rolls:
        prices = [number(roll[key], places) for key in ("exit", "entry", "basis")]
        volumes = [number(roll[key]) for key in ("from_volume", "to_volume")]
        rows.append([roll["date"], roll["from"], roll["to"], *prices, *volumes, roll["reason"]])
    return rows


def decimals(prices: Iterable[float]) -> int:
    """Decimals that the most precise of the prices needs."""
    return max((len(f"{price:.9f}".rstrip("0").partition(".")[2]) for price in prices), default=0)


def flat_rows(record: Mapping[str, Any], *, skip: frozenset[str] = frozenset(), prefix: str = "") -> list[list[str]]:
    """A nested record as (dotted name, text) rows in its own order; lists are joined, empty values left out."""
    rows: list[list[str]] = []
    for key, value in record.items():
        name = f"{prefix}{key}"
        if name in skip or value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            rows += flat_rows(value, skip=skip, prefix=f"{name}.")
            continue
        many = isinstance(value, list | tuple)
        rows.append([name, ", ".join(map(str, value)) if many else str(value)])
    return rows
