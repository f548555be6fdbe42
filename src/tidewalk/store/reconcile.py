"""Whether the files of a run tell one story: sessions, fills, round trips, members and summary, to the cent.

Each is made from the books on its own way, so an amount that two of them share is counted twice. What is compared is
read back from the files, as any reader would.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from tidewalk.core.errors import BooksError, listed
from tidewalk.store.checks import differs
from tidewalk.store.layout import RunFolder, read_manifest
from tidewalk.store.results import portfolio, read_equity, read_fills, read_members, read_trades
from tidewalk.store.summary import read_summary

Amounts = Mapping[Any, float]
_MONEY = ("net_usd", "gross_usd", "costs_usd", "trades")
_SHOWN = 3


def reconcile(run: RunFolder) -> None:
    """Refuse a run whose files disagree.

    Raises:
        BooksError: names the first amounts that differ.
        StoreError: a file is missing or damaged.
    """
    found = disagreements(run)
    if found:
        raise BooksError(
            f"a fault of tidewalk, please report it: the files of {run.root} disagree: "
            f"{listed(found, _SHOWN, 'differences')}. Believe none of its figures."
        )


def disagreements(run: RunFolder) -> list[str]:
    """One phrase for every amount on which two files of a complete run differ; empty when they agree.

    Raises:
        StoreError: a file is missing or damaged.
    """
    equity, fills, trades, members = read_equity(run), read_fills(run), read_trades(run), read_members(run)
    summary, manifest = read_summary(run), read_manifest(run)
    return [
        *_ledger(equity, fills, trades),
        *_prices(trades, manifest.get("symbols") or []),
        *_members(equity, members),
        *_summary(equity, fills, trades, summary),
        *_windows(equity, members, summary),
        *_symbols(equity, fills, trades, summary),
    ]


def _compared(what: str, left: str, left_of: Amounts, right: str, right_of: Amounts) -> Iterable[str]:
    """A phrase for every key whose amounts differ; a key that one side lacks counts 0 there."""
    for key in dict.fromkeys([*left_of, *right_of]):
        ours, theirs = left_of.get(key, 0.0), right_of.get(key, 0.0)
        if differs(ours, theirs):
            yield f"{what}{f' of {key}' if key != '' else ''} is {ours} in {left} and {theirs} in {right}"


def _by(frame: pl.DataFrame, key: str, value: pl.Expr) -> dict[Any, float]:
    """Sums of a value by one column."""
    return dict(frame.group_by(key, maintain_order=True).agg(value.sum().alias("sum")).iter_rows())


def _ledger(equity: pl.DataFrame, fills: pl.DataFrame, trades: pl.DataFrame) -> list[str]:
    """Sessions, fills and round trips of the ensemble, window by window."""
    own = equity.filter(pl.col("policy") == "ensemble")
    size = pl.col("lots").abs()
    paid = pl.col("fees_usd") + pl.col("slippage_usd")
    pairs = [
        ("gross_usd", "equity", _by(own, "window", pl.col("gross_usd")), trades, pl.col("gross_usd")),
        ("net_usd", "equity", _by(own, "window", pl.col("net_usd")), trades, pl.col("net_usd")),
        ("costs_usd", "equity", _by(own, "window", pl.col("costs_usd")), trades, paid),
        ("fees_usd", "fills", _by(fills, "window", pl.col("fees_usd")), trades, pl.col("fees_usd")),
        ("slippage_usd", "fills", _by(fills, "window", pl.col("slippage_usd")), trades, pl.col("slippage_usd")),
        ("contracts traded", "fills", _by(fills, "window", size), trades, 2 * size),
    ]
    found = [
        text
        for what, left, of_left, frame, value in pairs
        for text in _compared(f"{what} by window", left, of_left, "trades", _by(frame, "window", value))
    ]
    return [*found, *_sides(own, fills), *_ends(fills, trades)]


def _sides(own: pl.DataFrame, fills: pl.DataFrame) -> list[str]:
    """Contract sides: of all fills that trade, or, where calendar spreads roll, of those that roll nothing."""
    counted = _by(own, "window", pl.col("trades"))
    trading = fills.filter(~pl.col("reason").str.starts_with("break"))
    outright = trading.filter(~pl.col("reason").str.starts_with("roll"))
    found = [
        list(
            _compared("contract sides by window", "equity", counted, "fills", _by(part, "window", pl.col("lots").abs()))
        )
        for part in (trading, outright)
    ]
    return min(found, key=len)


def _ends(fills: pl.DataFrame, trades: pl.DataFrame) -> list[str]:
    """Every end of a round trip is a fill: of its contract, at its time, price and reason."""
    own = ["window", "contract", "ts_ns", "price", "reason"]
    known = fills.select(own).unique()
    found = []
    for end in ("entry", "exit"):
        columns = {f"{end}_{name}": name for name in ("ts_ns", "price", "reason")}
        ends = trades.select("window", "contract", *columns).rename(columns)
        lost = ends.join(known, on=own, how="anti")
        if lost.height:
            found.append(f"{lost.height} trades have an {end} that no fill is, the first {lost.row(0, named=True)}")
    return found


def _prices(trades: pl.DataFrame, symbols: list[Mapping[str, Any]]) -> list[str]:
    """Gross results follow from prices, contracts and the multiplier, within a tick per lot for prices off the grid."""
    found = []
    for of in symbols:
        own = trades.filter(pl.col("symbol") == of["symbol"])
        printed = (pl.col("exit_price") - pl.col("entry_price")) * pl.col("lots") * of["multiplier"]
        slack = pl.col("lots").abs() * of["tick"] * of["multiplier"] * (1 + 1e-9)
        off = own.filter((printed - pl.col("gross_usd")).abs() > slack)
        if off.height:
            found.append(f"{off.height} trades of {of['symbol']} have a gross_usd that their prices do not give")
    return found


def _members(equity: pl.DataFrame, members: pl.DataFrame) -> list[str]:
    """The test results of every member and the sessions of its policy."""
    known = members.select(pl.format("seed {}", "seed").alias("policy"), "window", *(f"test_{name}" for name in _MONEY))
    of_seeds = equity.filter(pl.col("policy").is_in(known["policy"].unique().to_list()))
    sums = of_seeds.group_by("policy", "window", maintain_order=True).agg(pl.col(_MONEY).sum())
    # one pass over each table: there may be thousands of seeds
    left, right = _amounts(known), _amounts(sums)
    return [
        text
        for policy in left
        for number, name in enumerate(_MONEY)
        for text in _compared(
            f"{name} of {policy} by window",
            "members",
            {window: amounts[number] for window, amounts in left[policy].items()},
            "equity",
            {window: amounts[number] for window, amounts in right.get(policy, {}).items()},
        )
    ]


def _amounts(rows: pl.DataFrame) -> dict[str, dict[int, tuple[float, ...]]]:
    """Amounts by policy and window, of rows (policy, window, amounts)."""
    found: dict[str, dict[int, tuple[float, ...]]] = {}
    for policy, window, *amounts in rows.iter_rows():
        found.setdefault(policy, {})[window] = tuple(amounts)
    return found


def _totals(of: pl.DataFrame) -> dict[str, float]:
    return {name: float(of[name].sum()) for name in _MONEY}


def _summary(
    equity: pl.DataFrame, fills: pl.DataFrame, trades: pl.DataFrame, block: Mapping[str, Any], where: str = "summary"
) -> list[str]:
    """The figures of the whole, or of one symbol, that are sums over the tables."""
    net = portfolio(equity).group_by("policy").agg(pl.col("net_usd").sum())
    nets: dict[str, float] = dict(net.iter_rows())
    own = portfolio(equity).filter(pl.col("policy") == "ensemble")
    worst = (own["equity_usd"].cum_max().clip(lower_bound=0.0) - own["equity_usd"]).max()
    oos = block["oos"]
    in_tables = _totals(own) | {
        "sessions": own.height,
        "fees_usd": float(fills["fees_usd"].sum()),
        "slippage_usd": float(fills["slippage_usd"].sum()),
        "round_trips": trades.height,
        "max_drawdown_usd": float(worst or 0.0),  # type: ignore[arg-type]
    }
    said = {name: oos[name] for name in in_tables}
    yardsticks = {name: block["baselines"][name] for name in nets if name in block["baselines"]}
    yardsticks["oracle"] = block["oracle"]["net_usd"]
    return [
        *_compared("oos", where, said, "the tables", in_tables),
        *_compared("net_usd", where, yardsticks, "equity", {name: nets.get(name, 0.0) for name in yardsticks}),
    ]


def _windows(equity: pl.DataFrame, members: pl.DataFrame, summary: Mapping[str, Any]) -> list[str]:
    """The rows of `per_window`."""
    found: list[str] = []
    for row in summary["per_window"]:
        window = row["window"]
        of_window = equity.filter(pl.col("window") == window)
        nets = _by(of_window, "policy", pl.col("net_usd"))
        seeds = {f"seed {seed}": net for seed, net in enumerate(row["seeds_net_usd"])}
        said = seeds | {"oracle": row["oracle_usd"], "long": row["long_usd"]}
        where = f"per_window[{window}]"
        own = _totals(of_window.filter(pl.col("policy") == "ensemble"))
        found += _compared("amount", where, {name: row[name] for name in _MONEY}, "equity", own)
        found += _compared("net_usd", where, said, "equity", {name: nets.get(name, 0.0) for name in said})
        epochs = members.filter(pl.col("window") == window).sort("seed")["best_epoch"].to_list()
        found += [f"the best epochs of {where} are not those in members"] * (row["best_epoch"] != epochs)
    return found


def _symbols(equity: pl.DataFrame, fills: pl.DataFrame, trades: pl.DataFrame, summary: Mapping[str, Any]) -> list[str]:
    """The rows of `per_symbol`."""
    found: list[str] = []
    for row in summary["per_symbol"]:
        is_own = pl.col("symbol") == row["symbol"]
        where = f"per_symbol of {row['symbol']}"
        found += _summary(equity.filter(is_own), fills.filter(is_own), trades.filter(is_own), row, where)
    return found
