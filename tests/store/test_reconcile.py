"""A run whose files tell one story passes; any amount that one of them alone tells otherwise is named."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from store.made_up_summary import summary
from tidewalk.core.errors import BooksError, StoreError
from tidewalk.store import layout, results
from tidewalk.store.layout import RunFolder
from tidewalk.store.reconcile import disagreements, reconcile
from tidewalk.store.summary import write_summary

NETS = {"flat": 0.0, "long": 250.0, "short": -250.0, "momentum": -4.5, "tsmom": 1.5, "macd": -2.0, "ma_cross": 2.5}
NETS |= {"oracle": 5_000.0, "seed 0": 90.0, "seed 1": 92.0}
"""Net of each window; the made-up summary holds twice as much of each."""
OWN_GROSS = ([140.0, -40.0, *[0.0] * 20], [60.0, 40.0, *[0.0] * 20])
OWN_COSTS = [9.0, *[0.0] * 21]


def equity() -> pl.DataFrame:
    days = [[dt.date(2024, month, 1) + dt.timedelta(days=day) for day in range(22)] for month in (5, 6)]
    rows: list[dict[str, Any]] = []
    for policy in ("ensemble", *NETS):
        for window in (0, 1):
            own = policy == "ensemble"
            gross = OWN_GROSS[window] if own else [NETS[policy], *[0.0] * 21]
            costs = OWN_COSTS if own else [0.0] * 22
            for day, earned, paid in zip(days[window], gross, costs, strict=True):
                row = {"policy": policy, "symbol": "ES.FUT", "window": window, "trade_date": day}
                amounts = {"net_usd": earned - paid, "gross_usd": earned, "costs_usd": paid, "equity_usd": 0.0}
                rows.append(row | amounts | {"position_mean": 0.0, "trades": 4 if paid else 0})
    return added_up(pl.DataFrame(rows, schema=results.EQUITY.schema))


def added_up(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(equity_usd=pl.col("net_usd").cum_sum().over("policy"))


TRIPS = [(0, 100.0, 102.8, 140.0), (0, 102.0, 101.2, -40.0), (1, 100.0, 101.2, 60.0), (1, 100.0, 100.8, 40.0)]
"""window, entry, exit, gross: one contract each, 50 USD a point."""


def fills() -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, (window, entry, leaving, _) in enumerate(TRIPS):
        for lots, price in ((1, entry), (-1, leaving)):
            row = {"symbol": "ES.FUT", "window": window, "ts_ns": 10 * number + (lots < 0), "contract": "ESM4"}
            row |= {"lots": lots, "position_after": int(lots > 0), "price": price}
            rows.append(row | {"fees_usd": 1.25, "slippage_usd": 1.0, "costs_usd": 2.25, "reason": "decision"})
    return pl.DataFrame(rows, schema=results.FILLS.schema)


def trades() -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, (window, entry, leaving, gross) in enumerate(TRIPS):
        row = {"symbol": "ES.FUT", "window": window, "contract": "ESM4", "lots": 1, "entry_ts_ns": 10 * number}
        row |= {"entry_price": entry, "exit_ts_ns": 10 * number + 1, "exit_price": leaving, "gross_usd": gross}
        row |= {"fees_usd": 2.5, "slippage_usd": 2.0, "net_usd": gross - 4.5}
        rows.append(row | {"entry_reason": "decision", "exit_reason": "decision"})
    return pl.DataFrame(rows, schema=results.TRADES.schema)


def members() -> pl.DataFrame:
    rows = [
        {
            "symbol": "ES.FUT",
            "window": window,
            "seed": seed,
            "best_epoch": 3 + seed,
            "val_net_usd": 120.0,
            "test_net_usd": NETS[f"seed {seed}"],
            "test_gross_usd": NETS[f"seed {seed}"],
            "test_costs_usd": 0.0,
            "test_trades": 0,
            "test_sharpe_session": None,
            "status": "ok",
        }
        for window in (0, 1)
        for seed in (0, 1)
    ]
    return pl.DataFrame(rows, schema=results.MEMBERS.schema)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = layout.create_run(tmp_path / "run", overwrite=False)
    layout.write_manifest(run, {"symbols": [{"symbol": "ES.FUT", "tick": 0.1, "multiplier": 50.0}]})
    results.write_equity(run, equity())
    results.write_fills(run, fills())
    results.write_trades(run, trades())
    results.write_members(run, members())
    write_summary(run, summary())
    return run


def test_files_that_agree_pass(run: RunFolder) -> None:
    assert disagreements(run) == []
    reconcile(run)


def test_a_missing_file_is_named(run: RunFolder) -> None:
    run.fills.unlink()
    with pytest.raises(StoreError, match=r"fills\.parquet: no such file"):
        reconcile(run)


def plus(frame: pl.DataFrame, row: int, **amounts: float) -> pl.DataFrame:
    """The frame with amounts added to the cells of one row."""
    at = pl.int_range(pl.len()) == row
    changed = [pl.when(at).then(pl.col(name) + amount).otherwise(pl.col(name)) for name, amount in amounts.items()]
    return frame.with_columns(
        [expression.cast(frame.schema[name]).alias(name) for expression, name in zip(changed, amounts, strict=True)]
    )


def at_row(frame: pl.DataFrame, policy: str) -> int:
    return frame["policy"].to_list().index(policy)


SEED = at_row(equity(), "seed 1")
CHANGES: list[tuple[str, Callable[[RunFolder], None], str]] = [
    (
        "a gain in equity alone",
        lambda run: results.write_equity(run, added_up(plus(equity(), 2, net_usd=1.0, gross_usd=1.0))),
        r"gross_usd by window of 0 is 101\.0 in equity and 100\.0 in trades",
    ),
    (
        "a cost in equity alone",
        lambda run: results.write_equity(run, added_up(plus(equity(), 1, net_usd=-0.01, costs_usd=0.01))),
        r"costs_usd by window of 0 is 9\.01 in equity and 9\.0 in trades",
    ),
    (
        "sides in equity alone",
        lambda run: results.write_equity(run, plus(equity(), 1, trades=1)),
        r"contract sides by window of 0 is 5 in equity and 4 in fills",
    ),
    (
        "a baseline in equity alone",
        lambda run: results.write_equity(
            run, added_up(plus(equity(), at_row(equity(), "macd"), net_usd=0.02, gross_usd=0.02))
        ),
        r"net_usd of macd is -4\.0 in summary and -3\.98 in equity",
    ),
    (
        "a seed in equity alone",
        lambda run: results.write_equity(run, added_up(plus(equity(), SEED, net_usd=1.0, gross_usd=1.0))),
        r"net_usd of seed 1 by window of 0 is 92\.0 in members and 93\.0 in equity",
    ),
    (
        "a fee in fills alone",
        lambda run: results.write_fills(run, plus(fills(), 3, fees_usd=0.5, costs_usd=0.5)),
        r"fees_usd by window of 0 is 5\.5 in fills and 5\.0 in trades",
    ),
    (
        "slippage in trades alone",
        lambda run: results.write_trades(run, plus(trades(), 3, slippage_usd=0.5, net_usd=-0.5)),
        r"slippage_usd by window of 1 is 4\.0 in fills and 4\.5 in trades",
    ),
    (
        "twice the contracts in fills alone",
        lambda run: results.write_fills(run, plus(plus(fills(), 0, lots=1, position_after=1), 1, lots=-1)),
        r"contracts traded by window of 0 is 6 in fills and 4 in trades",
    ),
    (
        "a lost round trip",
        lambda run: results.write_trades(run, trades()[:3]),
        r"gross_usd by window of 1 is 100\.0 in equity and 60\.0 in trades",
    ),
    (
        "an entry that never was",
        lambda run: results.write_trades(run, plus(trades(), 1, entry_ts_ns=-1)),
        r"1 trades have an entry that no fill is, the first .*'ts_ns': 9",
    ),
    (
        "an exit at another price",
        lambda run: results.write_trades(run, plus(trades(), 1, exit_price=-0.1)),
        r"1 trades have an exit that no fill is",
    ),
    (
        "a gross result that the prices do not give",
        lambda run: results.write_trades(
            run, plus(plus(trades(), 0, gross_usd=5.1, net_usd=5.1), 1, gross_usd=-5.1, net_usd=-5.1)
        ),
        r"2 trades of ES\.FUT have a gross_usd that their prices do not give",
    ),
    (
        "a member of its own",
        lambda run: results.write_members(run, plus(members(), 3, test_net_usd=1.0, test_gross_usd=1.0)),
        r"net_usd of seed 1 by window of 1 is 93\.0 in members and 92\.0 in equity",
    ),
    (
        "another best epoch",
        lambda run: results.write_members(run, plus(members(), 2, best_epoch=1)),
        r"the best epochs of per_window\[1\] are not those in members",
    ),
]


@pytest.mark.parametrize(("change", "message"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_an_amount_that_one_table_alone_tells_is_named(
    change: Callable[[RunFolder], None], message: str, run: RunFolder
) -> None:
    change(run)
    with pytest.raises(BooksError, match=rf"please report it: the files of .* disagree: .*{message}"):
        reconcile(run)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("oos", "sessions"), 45, r"oos of sessions is 45 in summary and 44 in the tables"),
        (("oos", "round_trips"), 5, r"oos of round_trips is 5 in summary and 4 in the tables"),
        (("oos", "max_drawdown_usd"), 41.0, r"oos of max_drawdown_usd is 41\.0 in summary and 40\.0 in the tables"),
        (("baselines", "long"), 501.0, r"net_usd of long is 501\.0 in summary and 500\.0 in equity"),
        (("oracle", "net_usd"), 1.0, r"net_usd of oracle is 1\.0 in summary and 10000\.0 in equity"),
        (("per_window", 1, "long_usd"), 0.0, r"net_usd of long is 0\.0 in per_window\[1\] and 250\.0 in equity"),
        (("per_window", 0, "oracle_usd"), 0.0, r"net_usd of oracle is 0\.0 in per_window\[0\]"),
        (("per_window", 0, "seeds_net_usd"), [90.0, 93.0], r"net_usd of seed 1 is 93\.0 in per_window\[0\] and 92\.0"),
        (("per_symbol", 0, "oos", "round_trips"), 3, r"oos of round_trips is 3 in per_symbol of ES\.FUT and 4"),
        (("per_symbol", 0, "baselines", "short"), 3.0, r"net_usd of short is 3\.0 in per_symbol of ES\.FUT and -500"),
    ],
)
def test_a_figure_of_the_summary_that_the_tables_do_not_have_is_named(
    path: tuple[Any, ...], value: object, message: str, run: RunFolder
) -> None:
    changed = json.loads(json.dumps(summary()))  # no part shared
    *way, last = path
    inner: Any = changed
    for step in way:
        inner = inner[step]
    inner[last] = value
    write_summary(run, changed)
    with pytest.raises(BooksError, match=message):
        reconcile(run)


def test_only_the_first_differences_are_listed(run: RunFolder) -> None:
    results.write_trades(run, trades()[:1])
    with pytest.raises(BooksError, match=r"and \d+ more differences\. Believe none of its figures"):
        reconcile(run)


def test_calendar_spreads_roll_without_sides(run: RunFolder) -> None:
    """Two rolled contracts are fills of no sides; where a roll is two sides they are."""
    rolled = fills().with_columns(
        reason=pl.when(pl.int_range(pl.len()) == 1).then(pl.lit("roll-out")).otherwise(pl.lit("decision"))
    )
    results.write_fills(run, rolled)
    assert not any("contract sides" in text for text in disagreements(run))
    results.write_equity(run, plus(equity(), 0, trades=-1))
    assert not any("contract sides" in text for text in disagreements(run))
    results.write_equity(run, plus(equity(), 0, trades=-2))
    assert any("contract sides" in text for text in disagreements(run))
