"""Plotly figures of the report: tables in, figures out; no files and no state.

Every figure is drawn with the colour-blind safe palette of Okabe and Ito (jfly.uni-koeln.de/color), blue for what was
earned by the policy, vermilion for losses. A function returns None where its figure would be an empty panel.
"""

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from tidewalk.stats.metrics import MAX_CLOSED_DAYS, drawdown_curve

BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
INK, MUTED, GRID, GAP = "#1F2933", "#616E7C", "#E4E7EB", "#EFF1F3"
SEED_LINE = "rgba(86,180,233,0.7)"
BASELINES = {
    "long": (VERMILION, "dash"),
    "short": (PURPLE, "dash"),
    "momentum": (GREEN, "dashdot"),
    "tsmom": (GREEN, "dash"),
    "macd": ("#8C6D1F", "dashdot"),
    "ma_cross": ("#8C6D1F", "dash"),
    "flat": (MUTED, "dot"),
    "oracle": (ORANGE, "longdash"),
}
MAX_THIN_POINTS = 30_000
"""Points spent on all thin lines of one figure together; more would make the page heavy and show nothing more."""
MAX_MEMBER_LINES = 64
MAX_LABELS = 16
"""Windows that are named along an axis; of more windows every k-th is."""
MANY_DOTS = 500
"""Dots of one figure above which they are small and pale, so that their density shows."""
FAR_OUTSIDE = 4.0
LOG_SPREAD = 50.0
"""Ratio of largest to smallest loss above which the loss axis is logarithmic."""


def label(text: object) -> str:
    """Text that plotly shows literally: its labels understand a subset of HTML, so names of contracts are escaped."""
    return html.escape(str(text), quote=False)


def stitched(trade_dates: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Line through the sessions of one policy: it starts at zero and is interrupted where nothing was tested.

    Args:
        trade_dates: `[S]` dates in order.
        values: `[S]` a running total at the end of each session, zero before the first.

    Returns:
        Dates (`datetime64[D]`) and values; a pause longer than `MAX_CLOSED_DAYS` becomes a NaN, followed by the value
        carried to the eve of the next session. Empty where `trade_dates` is.
    """
    dates = np.asarray(trade_dates, dtype="datetime64[D]")
    if dates.size == 0:
        return dates, np.asarray(values, dtype=float)
    day = np.timedelta64(1, "D")
    starts = np.flatnonzero(np.diff(dates) > np.timedelta64(MAX_CLOSED_DAYS, "D")) + 1
    pause_dates = np.stack([dates[starts - 1] + day, dates[starts] - day], axis=1).ravel()
    pause_values = np.stack([np.full(starts.size, np.nan), values[starts - 1]], axis=1).ravel()
    at = np.repeat(starts, 2)
    x = np.insert(dates, at, pause_dates)
    y = np.insert(np.asarray(values, dtype=float), at, pause_values)
    return np.insert(x, 0, dates[0] - day), np.insert(y, 0, 0.0)


def equity_figure(equity: pl.DataFrame, windows: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Stitched out-of-sample equity of every policy above the drawdown of the ensemble, over trade dates.

    Args:
        equity: rows of equity.parquet (`policy, window, trade_date, net_usd, equity_usd, …`).
        windows: entries of windows.json; their test dates become bands, what lies between them is shaded as untested.
    """
    if equity.is_empty():
        return None
    names = equity["policy"].unique(maintain_order=True).to_list()
    own = equity.filter(pl.col("policy") == "ensemble").sort("trade_date")
    falls = -drawdown_curve(own["net_usd"].to_numpy())
    heights = [0.72, 0.28] if falls.any() else [1.0]
    figure = make_subplots(rows=len(heights), cols=1, shared_xaxes=True, vertical_spacing=0.04, row_heights=heights)
    _add_seed_lines(figure, equity, [name for name in names if name.startswith("seed ")])
    others = [name for name in names if name != "ensemble" and not name.startswith("seed ")]
    off = hidden_at_first(equity)
    for name in sorted(others, key=lambda name: [*BASELINES, name].index(name)):
        colour, dash = BASELINES.get(name, (INK, "dot"))
        x, y = _line_of(equity, name)
        shown = "legendonly" if name in off else True
        line = {"color": colour, "width": 1.6, "dash": dash}
        text = "oracle (hindsight bound)" if name == "oracle" else label(name)
        figure.add_scatter(x=x, y=y, name=text, mode="lines", line=line, visible=shown, row=1, col=1)
    if not own.is_empty():
        x, y = _line_of(equity, "ensemble")
        line = {"color": BLUE, "width": 2.8}
        figure.add_scatter(x=x, y=y, name="ensemble", mode="lines", line=line, legendrank=1, row=1, col=1)
    if falls.any():
        _add_drawdown(figure, own["trade_date"].to_numpy(), falls)
    _mark_windows(figure, _test_ranges(equity, windows))
    sober(figure, height=400 + 200 * (len(heights) - 1), unified=True)
    figure.update_layout(legend={"orientation": "h", "y": -0.09, "yanchor": "top", "x": 0})
    figure.update_yaxes(title_text="net P&L, ¤", zeroline=True, row=1, col=1)
    figure.update_xaxes(type="date", hoverformat="%a %Y-%m-%d")
    return figure


def hidden_at_first(equity: pl.DataFrame) -> list[str]:
    """Policies that are drawn only when asked for: all baselines but long and the best one, and the oracle.

    The best one too where it would press all others into a flat line: where it reaches more than `FAR_OUTSIDE` times
    the largest gain or loss of the ensemble, its seeds, and long or short held.
    """
    line = pl.col("equity_usd")
    by_policy = equity.group_by("policy", maintain_order=True)
    reach: dict[str, float] = dict(by_policy.agg(line.abs().max()).iter_rows())
    ends: dict[str, float] = dict(by_policy.agg(line.last()).iter_rows())
    inner = [name for name in reach if name in ("ensemble", "long", "short") or name.startswith("seed ")]
    limit = FAR_OUTSIDE * max((reach[name] for name in inner), default=math.inf)
    others = [name for name in BASELINES if name in ends and name != "oracle"]
    best = max(others, key=lambda name: ends[name], default=None)
    shown = {"long", best} | {name for name in reach if name == "ensemble" or name.startswith("seed ")}
    return [name for name in reach if name not in shown or (name not in inner and reach[name] > limit)]


def _line_of(equity: pl.DataFrame, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Stitched line of one policy."""
    rows = equity.filter(pl.col("policy") == policy).sort("trade_date")
    return stitched(rows["trade_date"].to_numpy(), rows["equity_usd"].to_numpy())


def _add_drawdown(figure: go.Figure, trade_dates: np.ndarray, falls_usd: np.ndarray) -> None:
    """Drawdown of the ensemble below its equity; the filled areas stop at every pause."""
    x, y = stitched(trade_dates, falls_usd)
    style = {"mode": "lines", "line": {"color": VERMILION, "width": 1.2}, "fill": "tozeroy", "showlegend": False}
    pauses = np.flatnonzero(np.isnan(y))
    for part_x, part_y in zip(np.split(x, pauses), np.split(y, pauses), strict=True):
        known = ~np.isnan(part_y)
        figure.add_scatter(x=part_x[known], y=part_y[known], name="drawdown", **style, row=2, col=1)
    figure.update_yaxes(title_text="drawdown, ¤", row=2, col=1)


def _add_seed_lines(figure: go.Figure, equity: pl.DataFrame, names: Sequence[str]) -> None:
    """Thin lines of the seeds under a single legend entry; every k-th session where there are very many points."""
    drawn = _cross_section(equity, names)
    rows = equity.filter(pl.col("policy").is_in(drawn))
    stride = max(1, math.ceil(rows.height / MAX_THIN_POINTS))
    some = f", {len(drawn)} drawn" if len(drawn) < len(names) else ""
    line = {"color": SEED_LINE, "width": 1}
    style = {"name": f"seeds ({len(names)}{some})", "mode": "lines", "line": line, "legendgroup": "seeds"}
    for number, own in enumerate(rows.partition_by("policy", maintain_order=True)):
        own = own.sort("trade_date").with_row_index("row")
        edge = (pl.col("window") != pl.col("window").shift(-1)) | (pl.col("window") != pl.col("window").shift(1))
        own = own.filter((pl.col("row") % stride == 0) | edge.fill_null(value=True))
        x, y = stitched(own["trade_date"].to_numpy(), own["equity_usd"].to_numpy())
        style |= {"showlegend": number == 0, "legendrank": 2, "hoverinfo": "skip"}
        figure.add_scatter(x=x, y=y.astype(np.float32), **style, row=1, col=1)


def _cross_section(equity: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """At most `MAX_MEMBER_LINES` seeds, evenly spaced by their final result, with the best and the worst of all."""
    ends = equity.filter(pl.col("policy").is_in(names)).group_by("policy").agg(pl.col("equity_usd").last())
    places = np.linspace(0, len(names) - 1, min(len(names), MAX_MEMBER_LINES)).round().astype(int)
    return ends.sort("equity_usd", "policy")["policy"].gather(places).to_list()


def _test_ranges(equity: pl.DataFrame, windows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """(name, first, last) of every test range as ISO dates: of windows.json, else of the sessions themselves.

    Windows of several symbols that test the same months are one range.
    """
    if windows:
        return _merged([(f"W{w['window']}", w["test"]["first"], w["test"]["last"]) for w in windows])
    dates = pl.col("trade_date")
    spans = equity.group_by("window").agg(dates.min().alias("first"), dates.max().alias("last")).sort("window")
    return [(f"W{w}", first.isoformat(), last.isoformat()) for w, first, last in spans.iter_rows()]


def _merged(ranges: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    by_month: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for name, first, last in ranges:
        by_month.setdefault((first[:7], last[:7]), []).append((name, first, last))
    return [
        (", ".join(name for name, _, _ in same), min(first for _, first, _ in same), max(last for *_, last in same))
        for _, same in sorted(by_month.items())
    ]


def _mark_windows(figure: go.Figure, ranges: Sequence[tuple[str, str, str]]) -> None:
    """A named line where test ranges start (every k-th of very many), and grey where no window tests."""
    frame = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    edge = {"type": "line", "line": {"color": "#9AA5B1", "width": 1}, **frame}
    at = {"y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    named = ranges[:: max(1, math.ceil(len(ranges) / MAX_LABELS))]
    shapes = [{"x0": first, "x1": first, **edge} for _, first, _ in named]
    font = {"size": 11, "color": MUTED}
    figure.update_layout(annotations=[{"text": name, "x": first, "font": font, **at} for name, first, _ in named])
    ends = itertools.accumulate((last for *_, last in ranges), max)
    for last, (_, first, _) in zip(ends, ranges[1:], strict=False):
        if np.datetime64(first) - np.datetime64(last) > np.timedelta64(MAX_CLOSED_DAYS, "D"):
            shapes.append({"type": "rect", "x0": last, "x1": first, "fillcolor": GAP, "line": {"width": 0}, **frame})
    figure.update_layout(shapes=shapes)
    if any(shape["type"] == "rect" for shape in shapes):
        square = {"symbol": "square", "size": 12, "color": GAP, "line": {"color": "#9AA5B1", "width": 1}}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=square, name="not tested", hoverinfo="skip")


def symbols_figure(equity: pl.DataFrame) -> go.Figure | None:
    """Net of the ensemble in each symbol over trade dates; None where there is but one symbol."""
    own = equity.filter(pl.col("policy") == "ensemble")
    symbols = own["symbol"].unique(maintain_order=True).to_list()
    if len(symbols) < 2:
        return None
    figure = go.Figure()
    colours = itertools.cycle((BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION))
    for symbol, colour in zip(symbols, colours, strict=False):
        x, y = _line_of(own.filter(pl.col("symbol") == symbol), "ensemble")
        figure.add_scatter(x=x, y=y, name=label(symbol), mode="lines", line={"color": colour, "width": 1.8})
    sober(figure, height=340, unified=True)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_yaxes(title_text="net P&L, ¤", zeroline=True)
    figure.update_xaxes(type="date", hoverformat="%a %Y-%m-%d")
    return figure


def window_figure(per_window: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Net of every test window as a bar, its seeds as dots and holding long as a dash."""
    rows = [row for row in per_window if finite(row.get("net_usd")) is not None]
    if not rows:
        return None
    places = np.arange(len(rows))
    nets = [row["net_usd"] for row in rows]
    colours = [BLUE if net >= 0 else VERMILION for net in nets]
    several = len({row.get("symbol") for row in rows}) > 1
    names = [f"W{row['window']}<br>{label(row['test'][0])[:7]}" for row in rows]
    if several:
        names = [f"{name}<br>{label(row['symbol'])}" for name, row in zip(names, rows, strict=True)]
    hover = "%{customdata}: %{y:,.2f}"
    figure = go.Figure()
    figure.add_bar(x=places, y=nets, marker={"color": colours, "opacity": 0.8}, name="ensemble", showlegend=False)
    longs = [finite(row.get("long_usd")) for row in rows]
    if any(value is not None for value in longs):
        dash = {"symbol": "line-ew", "size": min(22, 500 // len(rows)), "line": {"color": MUTED, "width": 2}}
        figure.add_scatter(x=places, y=longs, mode="markers", marker=dash, name="held long")
    figure.update_traces(customdata=names, hovertemplate=hover)
    dots = [(at, net) for at, row in enumerate(rows) for net in row.get("seeds_net_usd") or []]
    if dots:
        x, y = zip(*dots, strict=True)
        figure.add_scatter(x=np.array(x), y=y, mode="markers", marker=_dot(len(dots)), name="seed")
    sober(figure, height=360)
    figure.update_layout(bargap=0.45, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    stride = max(1, math.ceil(len(rows) / MAX_LABELS))
    figure.update_xaxes(showgrid=False, tickvals=places[::stride], ticktext=names[::stride], tickangle=0)
    figure.update_yaxes(title_text="net P&L of the test, ¤", zeroline=True)
    return figure


def _dot(count: int) -> dict[str, Any]:
    """Rings while they can be told apart, small pale dots where there are very many."""
    if count > MANY_DOTS:
        return {"size": 4, "color": INK, "opacity": 0.25}
    return {"size": 7, "color": "white", "line": {"color": INK, "width": 1.3}}


def selection_figure(members: pl.DataFrame) -> go.Figure | None:
    """Validation net of each member's best epoch against its test net: does choosing by validation carry over?"""
    rows = members.filter(pl.col("best_epoch") > 0)
    if rows.height < 2:
        return None
    few = rows.height <= MANY_DOTS
    figure = go.Figure()
    figure.add_scatter(
        x=rows["val_net_usd"].to_numpy(),
        y=rows["test_net_usd"].to_numpy(),
        customdata=rows.select("window", "seed").to_numpy(),
        hovertemplate="window %{customdata[0]}, seed %{customdata[1]}<br>validation %{x:,.0f}<br>test %{y:,.0f}",
        mode="markers",
        marker={"size": 8 if few else 5, "color": BLUE, "opacity": 0.65 if few else 0.3},
        name="",
        showlegend=False,
    )
    sober(figure, height=360)
    figure.update_xaxes(title_text="validation net at the best epoch, ¤", zeroline=True)
    figure.update_yaxes(title_text="test net, ¤", zeroline=True)
    return figure


def waterfall_figure(gross_usd: float | None, costs_usd: float | None, net_usd: float | None) -> go.Figure | None:
    """How gross P&L becomes net: gross, minus costs, net (all USD; costs as a positive amount).

    None where one of them is undefined, or nothing was earned, lost or paid.
    """
    if gross_usd is None or costs_usd is None or net_usd is None or (gross_usd, costs_usd) == (0.0, 0.0):
        return None
    values = [gross_usd, -costs_usd, net_usd]
    text = [f"{value:,.0f}".replace("-", "\u2212") for value in values]
    figure = go.Figure()
    figure.add_waterfall(
        x=["gross", "costs", "net"],
        y=values,
        measure=["absolute", "relative", "total"],
        text=text,
        textposition="outside",
        cliponaxis=False,
        increasing={"marker": {"color": MUTED}},
        decreasing={"marker": {"color": VERMILION}},
        totals={"marker": {"color": BLUE}},
        connector={"line": {"color": "#9AA5B1", "width": 1}},
        hoverinfo="skip",
    )
    sober(figure, height=320)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(showgrid=False, ticks="")
    figure.update_yaxes(title_text="¤", zeroline=True)
    return figure


def session_figure(net_usd: np.ndarray) -> go.Figure | None:
    """Histogram of the net P&L per session (`[S]`, USD) with its mean; bins are multiples of one round width.

    None without a session, or where all sessions are alike.
    """
    spread = float(np.ptp(net_usd)) if net_usd.size else 0.0
    if spread == 0.0:
        return None
    width = _round_width(spread / min(60.0, max(8.0, 2.0 * math.sqrt(net_usd.size))))
    low = math.floor(float(net_usd.min()) / width)
    counts = np.bincount(np.floor(net_usd / width).astype(np.int64) - low)
    centres = (low + np.arange(counts.size) + 0.5) * width
    colours = [BLUE if centre >= 0 else VERMILION for centre in centres]
    mean = float(net_usd.mean())
    figure = go.Figure()
    hover = f"%{{x:,.0f}} ¤, bin of {width:,.6g}: %{{y}} sessions<extra></extra>"
    figure.add_bar(x=centres, y=counts, width=width * 0.96, marker={"color": colours}, hovertemplate=hover)
    mean_text = f"mean {mean:,.2f}".replace("-", "\u2212")
    figure.add_vline(x=mean, line={"color": INK, "width": 1.4, "dash": "dot"}, annotation_text=mean_text)
    figure.update_annotations(y=1, yanchor="bottom", xanchor="center")
    sober(figure, height=320)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="net P&L of a session, ¤", zeroline=True)
    figure.update_yaxes(title_text="sessions")
    return figure


def hours_figure(fills: pl.DataFrame) -> go.Figure | None:
    """Contracts traded by hour of the day (UTC), stacked by the reason of the fill."""
    if fills.is_empty():
        return None
    hour = (pl.col("ts_ns") // 3_600_000_000_000 % 24).alias("hour")
    sums = fills.group_by(hour, "reason").agg(pl.col("lots").abs().sum()).sort("hour")
    colours = {"decision": BLUE, "roll-out": ORANGE, "roll-in": SKY, "close": MUTED, "end": "#B8C2CC"}
    colours |= {"daily-loss": GREEN, "drawdown": VERMILION, "ruin": INK}
    figure = go.Figure()
    for reason in sorted(sums["reason"].unique(), key=lambda reason: [*colours, reason].index(reason)):
        rows = sums.filter(pl.col("reason") == reason)
        colour = colours.get(reason, PURPLE)
        figure.add_bar(x=rows["hour"].to_list(), y=rows["lots"].to_list(), name=label(reason), marker={"color": colour})
    sober(figure, height=320)
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    figure.update_layout(barmode="stack", bargap=0.15, legend=legend, showlegend=True)
    figure.update_xaxes(title_text="hour of the fill, UTC", range=[-0.5, 23.5], dtick=3)
    figure.update_yaxes(title_text="contracts traded")
    return figure


def finite(value: object) -> float | None:
    """The value as a float, or None where it is absent, not a number or infinite."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _round_width(width: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `width`, which is positive."""
    base = 10.0 ** math.floor(math.log10(width))
    return next(base * factor for factor in (1, 2, 5, 10) if base * factor >= width)


def sober(figure: go.Figure, *, height: int, unified: bool = False) -> None:
    """The common look: white ground, quiet grid, system fonts, no template."""
    font = {"family": "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif", "size": 12, "color": INK}
    figure.update_layout(
        template=go.layout.Template(),
        height=height,
        font=font,
        margin={"l": 72, "r": 16, "t": 46, "b": 44},
        paper_bgcolor="white",
        plot_bgcolor="white",
        hovermode="x unified" if unified else "closest",
        hoverlabel={"font": font, "bgcolor": "white"},
    )
    line = {"gridcolor": GRID, "zeroline": False, "zerolinecolor": INK, "zerolinewidth": 1.2, "automargin": True}
    figure.update_xaxes(line).update_yaxes(line)
    figure.update_xaxes(linecolor="#9AA5B1", showline=True, ticks="outside", tickcolor="#9AA5B1")
    figure.update_xaxes(exponentformat="none", separatethousands=True)
    figure.update_yaxes(exponentformat="none", separatethousands=True, hoverformat=",.2f", title_standoff=8)
