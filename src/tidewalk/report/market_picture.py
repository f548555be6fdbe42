"""What market data hold, as a picture: coverage per contract with the rolls, volume, missing bars and price by session.

One record is drawn twice: by plotly for the page, by matplotlib for the PNG.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tidewalk.report.charts import BLUE, GRID, INK, MUTED, SKY, VERMILION, label, sober

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # imported where it draws: it takes as long as the rest of a command

PAUSE_DAYS = 5
"""Sessions further apart than this are not drawn as one piece: a long weekend is no hole."""
MAX_ROLL_LINES = 400
ONE_DAY = np.timedelta64(1, "D")
GAP_PIXELS = 56
"""Between panels: tick labels of one and the title of the next."""
MANY_SESSIONS = 700
"""Above this a session is thinner than a pixel or two, and bars with week-ends between them would flicker."""


@dataclass(frozen=True)
class MarketPicture:
    """What is drawn: C contracts in S sessions.

    Attributes:
        title: symbol and span.
        contracts: names in order of expiry, [C].
        dates: trade dates, `datetime64[D]` [S].
        has_bars: bool [C, S].
        volume: float64 [C, S].
        front: contract held, -1 for none, int32 [S].
        close: last price of the contract held, NaN for none, float64 [S].
        missing_frac: share of the session's intervals without a bar of the front, NaN where not known, float64 [S].
        rolls: trade date, contract left and contract entered of every roll.
    """

    title: str
    contracts: tuple[str, ...]
    dates: np.ndarray
    has_bars: NDArray[np.bool_]
    volume: NDArray[np.float64]
    front: NDArray[np.int32]
    close: NDArray[np.float64]
    missing_frac: NDArray[np.float64]
    rolls: tuple[tuple[np.datetime64, str, str], ...]

    @property
    def front_volume(self) -> NDArray[np.float64]:
        """Volume of the contract held, [S]."""
        return np.where(self.front >= 0, self.volume[self.front, np.arange(len(self.front))], 0.0)


@dataclass(frozen=True)
class Run:
    """Consecutive sessions of one contract: row of the contract, first date, and the day after the last one."""

    contract: int
    first: np.datetime64
    stop: np.datetime64


def coverage_runs(picture: MarketPicture) -> tuple[list[Run], list[Run]]:
    """Stretches in which each contract has bars, and stretches in which it is the one held."""
    held = [picture.front == row for row in range(len(picture.contracts))]
    rows = range(len(picture.contracts))
    present = [run for row in rows for run in _runs(row, picture.has_bars[row], picture.dates)]
    front = [run for row in rows for run in _runs(row, held[row], picture.dates)]
    return present, front


def _runs(row: int, mask: NDArray[np.bool_], dates: np.ndarray) -> list[Run]:
    index = np.flatnonzero(mask)
    if not index.size:
        return []
    # A date on which others trade and this one does not ends a stretch, as a pause of all of them does.
    breaks = (np.diff(index) > 1) | (np.diff(dates[index]) > PAUSE_DAYS * ONE_DAY)
    cuts = np.flatnonzero(breaks) + 1
    starts, stops = np.concatenate([[0], cuts]), np.concatenate([cuts, [index.size]])
    first, stop = dates[index[starts]], dates[index[stops - 1]] + ONE_DAY
    return [Run(row, a, b) for a, b in zip(first, stop, strict=True)]


def _coverage_height(picture: MarketPicture) -> int:
    return int(min(900, max(110, 16 * len(picture.contracts) + 30)))


def _panels(picture: MarketPicture) -> list[str]:
    """Panels worth drawing, top to bottom."""
    names = ["coverage", "volume"]
    if np.isfinite(picture.missing_frac).any():
        names.append("missing")
    if np.isfinite(picture.close).any():
        names.append("price")
    return names


TITLES = {
    "coverage": "contracts with bars (pale) and the one held (dark); lines are rolls",
    "volume": "volume by session: contract held (blue), all others (pale)",
    "missing": "share of the session's bars in which the contract held did not trade",
    "price": "last price of the contract held, unadjusted",
}


def figure(picture: MarketPicture) -> go.Figure:
    """The picture as a plotly figure; panels share the axis of trade dates."""
    names = _panels(picture)
    heights = {"coverage": _coverage_height(picture), "volume": 170, "missing": 110, "price": 190}
    pixels = [heights[name] for name in names]
    made = make_subplots(
        rows=len(names),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=GAP_PIXELS / (sum(pixels) + GAP_PIXELS * (len(names) - 1)),
        row_heights=pixels,
        subplot_titles=[TITLES[name] for name in names],
    )
    draw = {"coverage": _draw_coverage, "volume": _draw_volume, "missing": _draw_missing, "price": _draw_price}
    for row, name in enumerate(names, start=1):
        draw[name](made, picture, row)
    sober(made, height=sum(pixels) + GAP_PIXELS * (len(names) - 1) + 90)
    made.update_layout(showlegend=False, barmode="stack", bargap=0)
    made.update_annotations(font={"size": 12, "color": MUTED}, x=0, xanchor="left")
    made.update_xaxes(showticklabels=True, range=_span(picture))
    ticks = _label_rows(picture)
    named = [label(picture.contracts[at]) for at in ticks]
    made.update_yaxes(row=1, tickvals=ticks, ticktext=named, range=[len(picture.contracts) - 0.4, -0.6], showgrid=False)
    return made


def _span(picture: MarketPicture) -> list[str]:
    margin = max(1, int((picture.dates[-1] - picture.dates[0]) / ONE_DAY) // 100) * ONE_DAY
    return [str(picture.dates[0] - margin), str(picture.dates[-1] + margin)]


def _label_rows(picture: MarketPicture) -> list[int]:
    stride = max(1, math.ceil(14 * len(picture.contracts) / (_coverage_height(picture) - 20)))
    return list(range(0, len(picture.contracts), stride))


def _draw_coverage(made: go.Figure, picture: MarketPicture, row: int) -> None:
    present, front = coverage_runs(picture)
    width = max(2, min(10, (_coverage_height(picture) - 30) // max(1, len(picture.contracts)) - 3))
    for runs, colour, word in ((present, SKY, "bars"), (front, BLUE, "held")):
        x: list[str | None] = []
        y: list[int | None] = []
        text: list[str] = []
        for run in runs:
            x += [str(run.first), str(run.stop), None]
            y += [run.contract, run.contract, None]
            text += [f"{label(picture.contracts[run.contract])} {word} {run.first} to {run.stop - ONE_DAY}"] * 3
        line = {"color": colour, "width": width}
        made.add_scatter(
            x=x, y=y, text=text, mode="lines", line=line, hovertemplate="%{text}<extra></extra>", row=row, col=1
        )
    line = {"color": VERMILION, "width": 1}
    for date, _, _ in picture.rolls[:MAX_ROLL_LINES]:
        made.add_shape(type="line", x0=str(date), x1=str(date), y0=0, y1=1, yref="y domain", line=line)


def _draw_volume(made: go.Figure, picture: MarketPicture, row: int) -> None:
    held = picture.front_volume
    dates = picture.dates.astype(str)
    for values, colour, name in ((held, BLUE, "held"), (picture.volume.sum(axis=0) - held, SKY, "others")):
        hover = f"%{{x}}: %{{y:,.0f}} {name}<extra></extra>"
        marker = {"color": colour, "line": {"width": 0}}
        made.add_bar(x=dates, y=values, marker=marker, hovertemplate=hover, row=row, col=1)


def _draw_missing(made: go.Figure, picture: MarketPicture, row: int) -> None:
    marker = {"color": MUTED, "line": {"width": 0}}
    hover = "%{x}: %{y:.1%} without a bar<extra></extra>"
    known = np.nan_to_num(picture.missing_frac)
    made.add_bar(x=picture.dates.astype(str), y=known, marker=marker, hovertemplate=hover, row=row, col=1)
    made.update_yaxes(row=row, tickformat=".0%", rangemode="tozero")


def _draw_price(made: go.Figure, picture: MarketPicture, row: int) -> None:
    x, y = _broken_at_rolls(picture)
    hover = "%{x}: %{y:,.6~f}<extra></extra>"
    line = {"color": INK, "width": 1.2}
    made.add_scatter(x=x.astype(str), y=y, mode="lines", line=line, hovertemplate=hover, row=row, col=1)


def _broken_at_rolls(picture: MarketPicture) -> tuple[np.ndarray, NDArray[np.float64]]:
    """Dates and closes with a gap where the contract changes, which is no move of the market, and at long pauses."""
    is_cut = (np.diff(picture.front) != 0) | (np.diff(picture.dates) > PAUSE_DAYS * ONE_DAY)
    cuts = np.flatnonzero(is_cut) + 1
    return np.insert(picture.dates, cuts, picture.dates[cuts]), np.insert(picture.close, cuts, np.nan)


def write_png(picture: MarketPicture, path: Path) -> None:
    """Draw the picture into a PNG file, 1400 pixels wide; the same picture gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = _panels(picture)
    heights = {"coverage": _coverage_height(picture) / 100, "volume": 1.7, "missing": 1.0, "price": 1.9}
    inches = [heights[name] for name in names]
    made = Figure(figsize=(14, sum(inches) + 0.55 * len(names) + 0.7), dpi=100, layout="constrained")
    FigureCanvasAgg(made)
    axes = np.atleast_1d(made.subplots(len(names), 1, sharex=True, gridspec_kw={"height_ratios": inches}))
    made.suptitle(_literal(picture.title), x=0.01, ha="left", fontsize=13, color=INK)
    for axis, name in zip(axes, names, strict=True):
        axis.set_title(TITLES[name], loc="left", fontsize=10, color=MUTED)
        axis.grid(visible=True, color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9, colors=INK)
        _PNG_PANELS[name](axis, picture)
    axes[0].set_xlim(*(np.datetime64(day) for day in _span(picture)))
    made.savefig(path, format="png", metadata={"Software": None})


def _literal(text: str) -> str:
    """Text without the dollar signs that matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def _png_coverage(axis: "Axes", picture: MarketPicture) -> None:
    for runs, colour, height in (*zip(coverage_runs(picture), (SKY, BLUE), (0.55, 0.8), strict=True),):
        left = [run.first for run in runs]
        width = [run.stop - run.first for run in runs]
        axis.barh([run.contract for run in runs], width, left=left, height=height, color=colour, linewidth=0)
    dates = np.array([date for date, _, _ in picture.rolls[:MAX_ROLL_LINES]], "datetime64[D]")
    axis.vlines(dates, 0, 1, color=VERMILION, linewidth=0.8, transform=axis.get_xaxis_transform())
    ticks = _label_rows(picture)
    axis.set_yticks(ticks, [_literal(picture.contracts[at]) for at in ticks])
    axis.set_ylim(len(picture.contracts) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")


def _png_volume(axis: "Axes", picture: MarketPicture) -> None:
    held = picture.front_volume
    total = picture.volume.sum(axis=0)
    _png_sessions(axis, picture.dates, total, SKY)
    _png_sessions(axis, picture.dates, held, BLUE)
    axis.yaxis.set_major_formatter(_si)


def _png_sessions(axis: "Axes", dates: np.ndarray, values: NDArray[np.float64], colour: str) -> None:
    if len(dates) > MANY_SESSIONS:
        axis.fill_between(dates, values, step="post", color=colour, linewidth=0)
    else:
        axis.bar(dates, values, width=ONE_DAY, color=colour, align="edge", linewidth=0)


def _si(value: float, _: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _png_missing(axis: "Axes", picture: MarketPicture) -> None:
    _png_sessions(axis, picture.dates, np.nan_to_num(picture.missing_frac), MUTED)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_ylim(0.0)


def _png_price(axis: "Axes", picture: MarketPicture) -> None:
    x, y = _broken_at_rolls(picture)
    axis.plot(x, y, color=INK, linewidth=1.0)


_PNG_PANELS = {"coverage": _png_coverage, "volume": _png_volume, "missing": _png_missing, "price": _png_price}
