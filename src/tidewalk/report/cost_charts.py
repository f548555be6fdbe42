"""What other costs and a later fill would have made of the same policies: heat map, break-even bars, and rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from tidewalk.core.words import cost, counted
from tidewalk.report.charts import BLUE, INK, MAX_LABELS, VERMILION, finite, label, sober
from tidewalk.report.tables import UNDEFINED, number, usd
from tidewalk.store.results import ensemble_surface

LOSS_TO_GAIN = [(0.0, VERMILION), (0.5, "#FFFFFF"), (1.0, BLUE)]
AXES = ("delay_bars", "commission_usd", "slippage_ticks")


def surface_figure(
    surface: pl.DataFrame, symbol: str, costs: Mapping[str, Any], *, own_delay: int = 0
) -> go.Figure | None:
    """Net over commission and slippage as a heat map, with the costs of the run marked; buttons choose the delay.

    Args:
        surface: rows of cost_surface.parquet.
        symbol: whose windows.
        costs: the symbol's costs in the manifest.
        own_delay: decision delay of the run, shown at first.

    Returns:
        None where there is no such row, or nothing was traded at any delay.
    """
    nets = ensemble_surface(surface).filter(pl.col("symbol") == symbol)
    if nets.is_empty() or nets["sides"].sum() == 0:
        return None
    delays, fees, slips = (nets[name].unique().sort().to_list() for name in AXES)
    largest = float(nets["net_usd"].abs().max() or 1.0)  # type: ignore[arg-type]
    first = own_delay if own_delay in delays else delays[0]
    figure = go.Figure()
    for delay in delays:
        figure.add_trace(_heat(nets.filter(pl.col("delay_bars") == delay), fees, slips, largest, shown=delay == first))
    x, y = _place(slips, costs["slippage_ticks"]), _place(fees, costs["commission_usd"])
    figure.add_scatter(
        x=[x - 0.48, x + 0.48, x + 0.48, x - 0.48, x - 0.48],
        y=[y - 0.46, y - 0.46, y + 0.46, y + 0.46, y - 0.46],
        mode="lines",
        line={"color": INK, "width": 3},
        name="costs of the run",
        hoverinfo="skip",
    )
    sober(figure, height=120 + 52 * len(fees))
    _label_axes(figure, fees, slips)
    if len(delays) > 1:
        figure.update_layout(updatemenus=[_delay_buttons(delays, delays.index(first))])
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0})
    return figure


def _heat(nets: pl.DataFrame, fees: list[float], slips: list[float], largest: float, *, shown: bool) -> go.Heatmap:
    z = np.full((len(fees), len(slips)), np.nan)
    for fee, slip, net in nets.select("commission_usd", "slippage_ticks", "net_usd").iter_rows():
        z[fees.index(fee), slips.index(slip)] = net
    text = [["" if math.isnan(net) else usd(net) for net in row] for row in z]
    hover = "%{customdata}<br>net %{text} ¤<extra></extra>"
    names = [[f"commission {fee:g} ¤, slippage {slip:g} ticks" for slip in slips] for fee in fees]
    scale = {"zmin": -largest, "zmax": largest, "colorscale": LOSS_TO_GAIN, "showscale": False}
    return go.Heatmap(
        z=z,
        text=text,
        texttemplate="%{text}",
        customdata=names,
        hovertemplate=hover,
        visible=shown,
        xgap=2,
        ygap=2,
        **scale,
    )


def _place(values: Sequence[float], own: float) -> float:
    """Where a value lies on an axis of equal cells."""
    return float(np.interp(own, values, np.arange(len(values))))


def _label_axes(figure: go.Figure, fees: list[float], slips: list[float]) -> None:
    ticks = {"showgrid": False, "ticks": "", "fixedrange": True}
    figure.update_xaxes(
        {**ticks, "tickvals": list(range(len(slips))), "ticktext": [f"{slip:g}" for slip in slips]},
        title_text="slippage, ticks per side",
    )
    figure.update_yaxes(
        {**ticks, "tickvals": list(range(len(fees))), "ticktext": [f"{fee:g}" for fee in fees]},
        title_text="commission, ¤ per side",
    )


def _delay_buttons(delays: Sequence[int], active: int) -> dict[str, Any]:
    """A button per delay that shows its heat map; the mark of the run's own costs stays."""
    buttons = [
        {
            "label": "no delay" if delay == 0 else f"{counted(delay, 'bar')} later",
            "method": "restyle",
            "args": ["visible", [*(other == delay for other in delays), True]],
        }
        for delay in delays
    ]
    return {"type": "buttons", "direction": "right", "buttons": buttons, "x": 0, "xanchor": "left", "y": 1.06} | {
        "yanchor": "bottom",
        "showactive": True,
        "active": active,
        "pad": {"t": 0, "b": 0},
    }


def break_even_figure(per_window: Sequence[Mapping[str, Any]], own_side_usd: float | None) -> go.Figure | None:
    """Break-even cost per contract side of every window as a bar, and what a side did cost as a line."""
    rows = [row for row in per_window if finite(row.get("break_even_side_usd")) is not None]
    if not rows:
        return None
    places = np.arange(len(rows))
    values = [row["break_even_side_usd"] for row in rows]
    several = len({row["symbol"] for row in rows}) > 1
    names = [f"W{row['window']}" + (f"<br>{label(row['symbol'])}" if several else "") for row in rows]
    figure = go.Figure()
    paid = 0.0 if own_side_usd is None else own_side_usd
    colours = [BLUE if value >= paid else VERMILION for value in values]
    hover = "%{customdata}: %{y:,.2f} ¤<extra></extra>"
    figure.add_bar(
        x=places, y=values, marker={"color": colours}, customdata=names, hovertemplate=hover, showlegend=False
    )
    if own_side_usd is not None:
        line = {"color": INK, "width": 1.6, "dash": "dash"}
        text = f"cost of a side, {cost(own_side_usd)} ¤"
        figure.add_scatter(x=[-0.5, len(rows) - 0.5], y=[own_side_usd] * 2, mode="lines", line=line, name=text)
    sober(figure, height=340)
    stride = max(1, math.ceil(len(rows) / MAX_LABELS))
    figure.update_layout(
        bargap=0.4, showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    )
    figure.update_xaxes(showgrid=False, tickvals=places[::stride], ticktext=names[::stride], tickangle=0)
    figure.update_yaxes(title_text="break-even, ¤ per side", zeroline=True)
    return figure


def delay_rows(surface: pl.DataFrame, symbol: str, costs: Mapping[str, Any]) -> list[list[str]]:
    """What each delay would have made at the grid's costs nearest to those of the run.

    Columns: delay, gross, costs, net, gross per side (below 0 where there is nothing to pay costs from).
    """
    nets = ensemble_surface(surface).filter(pl.col("symbol") == symbol)
    if nets.is_empty():
        return []
    for name in ("commission_usd", "slippage_ticks"):
        values = nets[name].unique().sort().to_list()
        nearest = min(values, key=lambda value: abs(value - costs[name]))
        nets = nets.filter(pl.col(name) == nearest)
    rows = []
    for row in nets.iter_rows(named=True):
        by_side = number(row["gross_usd"] / row["sides"], 2) if row["sides"] else UNDEFINED
        rows.append(
            [number(row["delay_bars"]), *(usd(row[key]) for key in ("gross_usd", "costs_usd", "net_usd")), by_side]
        )
    return rows
