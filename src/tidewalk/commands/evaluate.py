"""`tidewalk evaluate`: trade the test months of a finished run again, also at other costs and delays."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import tyro
from rich.console import Console

from tidewalk.commands.parsing import parse
from tidewalk.commands.tables import output_console, say, say_findings, table
from tidewalk.core.words import cost, counted
from tidewalk.run.evaluation import Comparison, Reload, Reloaded
from tidewalk.run.outcome import Outcome
from tidewalk.run.surface import GridConfig
from tidewalk.store.results import ensemble_surface

_MOST_SHOWN = 10
DIFFERENT = 1
"""Exit code where the policies no longer make what is on record."""


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Trade the saved policies of a finished run again over its test months, and compare with what is on record.

    With --costs, or any of the three lists of costs and delays, also at other costs and delays.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    how: Reload = dataclasses.field(default_factory=Reload)
    grid: GridConfig = dataclasses.field(default_factory=GridConfig)
    costs: bool = False
    """Show what other commissions, slippages and delays would have left, and the break-even cost of each window."""
    quiet: bool = False
    """Print the result only."""
    json: bool = False
    """Print JSON on standard output in place of text."""


def run(args: list[str]) -> int:
    """Trade again, compare, print.

    Returns:
        0; 1 where the result is not the one on record.
    """
    config = parse(EvaluateConfig, "evaluate", args)
    from tidewalk.run.evaluation import compare, counted, reload
    from tidewalk.run.outcome import settle
    from tidewalk.run.surface import cost_surface

    reloaded = reload(config.run, config.how, quiet=config.quiet)
    settled = settle(reloaded.stage, reloaded.kept)
    if config.how.other_data:
        reloaded = counted(reloaded, settled)  # before any figure is shown: what was looked at has been tried
    compared = None if config.how.other_data else compare(reloaded, settled)
    surface = None
    if config.costs or config.grid != GridConfig():
        surface = cost_surface(reloaded.stage, reloaded.kept.best, settled.books, config.grid)
    if config.json:
        print(json.dumps(_record(reloaded, settled, compared, surface), indent=2, allow_nan=False))
    else:
        _show(reloaded, settled, compared, surface)
    return DIFFERENT if compared is not None and compared.differences else 0


def _record(
    reloaded: Reloaded, settled: Outcome, compared: Comparison | None, surface: pl.DataFrame | None
) -> dict[str, Any]:
    """What is printed, as plain JSON values; null where a figure is undefined."""
    from tidewalk.run import figures
    from tidewalk.run.study import data_fingerprint

    legs = settled.study.legs
    blocks = {
        "oos": figures.performance(settled, legs),
        "baselines": figures.yardsticks(settled, legs),
        "oracle": figures.hindsight(settled, legs),
        "break_even": figures.cost_surface(settled, legs),
    }
    return {
        "run": reloaded.run.root.name,
        "symbol": settled.study.symbol,
        "other_data": compared is None,
        "data_fingerprint": data_fingerprint(settled.study),
        "compared": None if compared is None else compared.compared,
        "differences": None if compared is None else list(compared.differences),
        "made_otherwise": None if compared is None else list(compared.made_otherwise),
        "notes": list(reloaded.notes),
        **{name: figures.block(name, entries)[0] for name, entries in blocks.items()},
        "per_window": _windows(reloaded, settled),
        "cost_surface": None if surface is None else ensemble_surface(surface).to_dicts(),
    }


def _windows(reloaded: Reloaded, settled: Outcome) -> list[dict[str, Any]]:
    """Each window: whose policies it traded, what they made, and the cost per side that would have taken all of it."""
    from tidewalk.run import figures
    from tidewalk.run.outcome import per_window

    keys = ("window", "symbol", "test", "net_usd", "gross_usd", "costs_usd", "trades")
    rows = per_window(settled)
    return [
        {name: row[name] for name in keys}
        | {"policies_of_window": reloaded.origin[row["window"]]}
        | figures.block("", figures.break_even(settled, [row["window"]]))[0]
        for row in rows
    ]


def _show(reloaded: Reloaded, settled: Outcome, compared: Comparison | None, surface: pl.DataFrame | None) -> None:
    console, study = output_console(), settled.study
    record = _record(reloaded, settled, compared, None)
    traded = (
        f"{study.symbol} {study.config.model}, {study.crowd}: "
        f"net {record['oos']['net_usd']:+,.2f} = gross {record['oos']['gross_usd']:+,.2f} - costs "
        f"{record['oos']['costs_usd']:,.2f} {study.currency}, {counted(record['oos']['trades'], 'contract side')}, "
        f"{counted(record['oos']['sessions'], 'session')}"
    )
    if compared is None:
        say(console, f"OTHER DATA than those of {reloaded.run.root.name}; nothing of this is recorded in the run.")
    say(console, traded)
    if compared is None or surface is not None:
        _show_windows(console, record["per_window"], with_origin=compared is None)
    if surface is not None:
        for leg in study.legs:
            own = (leg.costs.commission_usd, leg.costs.slippage_ticks, study.program.env.decision_delay)
            nets = ensemble_surface(surface).filter(pl.col("symbol") == leg.symbol)
            _show_surface(console, nets, leg.symbol, own)
    if compared is None:
        say_findings(console, list(reloaded.notes), study.warnings)
    else:
        _show_comparison(console, reloaded, compared)


def _show_comparison(console: Console, reloaded: Reloaded, compared: Comparison) -> None:
    count, differences = compared.compared, compared.differences
    otherwise = ", ".join(compared.made_otherwise)
    if not differences:
        beside = f", with {otherwise}" if otherwise else ""
        say(console, f"the same as on record: all {count:,} figures and rows compared are equal to the cent{beside}")
        return
    warnings = [f"not what is on record: {len(differences)} of {count:,} figures and tables compared differ."]
    warnings += [f"{text}." for text in differences[:_MOST_SHOWN]]
    warnings += [f"{len(differences) - _MOST_SHOWN} more differ."] * (len(differences) > _MOST_SHOWN)
    made = f"It was traded with {otherwise}" if otherwise else "Software and device are those of the run"
    warnings.append(f"{made}. Others may round a tie otherwise; {reloaded.run.manifest} says what the run used.")
    say_findings(console, [], warnings)


def _show_windows(console: Console, rows: list[dict[str, Any]], *, with_origin: bool) -> None:
    """A row per window; the symbol only where there are several, whose policies only where that is not plain."""
    with_symbol = len({row["symbol"] for row in rows}) > 1
    names = ("no.", *("symbol",) * with_symbol, "test from", "to", *("policies",) * with_origin)
    amounts = ("net", "sides", "paid/side", "break-even")
    made = table("windows", (*names, *amounts))
    for column in made.columns[-len(amounts) :]:
        column.justify = "right"
    for row in rows:
        made.add_row(
            str(row["window"]),
            *(row["symbol"],) * with_symbol,
            *row["test"],
            *(f"of window {row['policies_of_window']}",) * with_origin,
            f"{row['net_usd']:+,.0f}",
            f"{row['trades']:,}",
            _told(row["own_side_usd"], cost),
            _told(row["break_even_side_usd"], "{:,.2f}".format),
        )
    console.print(made)
    say(
        console,
        "break-even: cost per contract side, all in, at which the same fills would have earned nothing; - where there "
        "was no trade, or no gross profit to pay costs from.",
    )


def _told(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _show_surface(console: Console, nets: pl.DataFrame, symbol: str, own: tuple[float, float, int]) -> None:
    """Net by commission and slippage in rows and by delay in columns; the costs of the run are marked."""
    delays = nets["delay_bars"].unique().sort().to_list()
    marked = [f"{counted(delay, 'bar')}{'*' * (delay == own[2])}" for delay in delays]
    made = table(f"{symbol}: net at other costs per side and delays (*: the run)", ("commission", "slippage", *marked))
    for column in made.columns:
        column.justify = "right"
    for (fee, slip), rows in nets.group_by("commission_usd", "slippage_ticks", maintain_order=True):
        star = "*" if (fee, slip) == own[:2] else ""
        by_delay = dict(rows.select("delay_bars", "net_usd").iter_rows())
        cells = [f"{by_delay[delay]:+,.0f}" if delay in by_delay else "-" for delay in delays]
        made.add_row(f"{fee:g}", f"{slip:g}{star}", *cells, style="bold" if star else None)
    console.print(made)
