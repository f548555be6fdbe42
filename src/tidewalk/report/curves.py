"""Plotly figures of the learning and of its time: lines of metrics.jsonl in, figures out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tidewalk.report.charts import (
    BLUE,
    GREEN,
    LOG_SPREAD,
    MAX_MEMBER_LINES,
    MAX_THIN_POINTS,
    ORANGE,
    SKY,
    VERMILION,
    sober,
)

BAND = "rgba(0,114,178,0.18)"
MEMBER_LINE = "rgba(97,110,124,0.28)"
PHASES = {"init": ORANGE, "collect": SKY, "learn": BLUE, "evaluate": GREEN}
REST, REST_COLOR = "not split", "#B8C2CC"
"""Time of an epoch that no phase accounts for."""
FUSED = "collect + learn + evaluate, fused"
"""The same where the epoch ran as one program."""


def column(records: Sequence[Mapping[str, Any]], *path: str) -> np.ndarray:
    """`[E]` floats found under `path` in every record; NaN where a step of the path is missing or null."""

    def walk(record: Any) -> float:
        for key in path:
            record = record.get(key) if isinstance(record, Mapping) else None
        return float(record) if isinstance(record, int | float) else np.nan

    return np.array([walk(record) for record in records], dtype=float)


def member_table(epochs: Sequence[Mapping[str, Any]], name: str) -> np.ndarray | None:
    """`[E, M]` values of every member (`members.<name>`); None where they are absent or their number changes."""
    rows = [(epoch.get("members") or {}).get(name) for epoch in epochs]
    if not rows or any(not isinstance(row, list) or len(row) != len(rows[0] or []) for row in rows):
        return None
    table = np.array(rows, dtype=float)
    return table if table.size else None


def training_figure(epochs: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Loss above validation net, per epoch: median and 10 to 90 % band over members, thin lines where members are few.

    A panel without a single finite value is left out; None where neither is left.
    """
    panels = [
        ("loss", "loss", [("loss",), ("loss_p10",), ("loss_p90",)]),
        ("val_net_usd", "validation net, ¤", [("val_net_usd", key) for key in ("median", "p10", "p90")]),
    ]
    lines = [(name, title, [column(epochs, *path) for path in paths]) for name, title, paths in panels]
    lines = [panel for panel in lines if np.isfinite(panel[2][0]).any()]
    if not lines:
        return None
    x = column(epochs, "epoch")
    figure = make_subplots(rows=len(lines), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for row, (name, title, band) in enumerate(lines, start=1):
        _add_band(figure, row, x, *band)
        _add_members(figure, row, x, member_table(epochs, name))
        if name == "val_net_usd":
            _add_best(figure, row, x, column(epochs, name, "best"), band[0])
        figure.update_yaxes(title_text=title, row=row, col=1)
        if name == "loss" and _spans_decades(*band):
            figure.update_yaxes(type="log", tickformat="~g", row=row, col=1)
    sober(figure, height=130 + 210 * len(lines), unified=True)
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "groupclick": "togglegroup"}
    figure.update_layout(legend=legend)
    figure.update_xaxes(title_text="epoch", row=len(lines), col=1)
    _epoch_axis(figure, x)
    figure.update_yaxes(hoverformat=",.6g")
    return figure


def _epoch_axis(figure: go.Figure, x: np.ndarray) -> None:
    """Whole epochs from end to end; a run of very few leaves room, so that one epoch is not as wide as the page."""
    room = max(0.5, 2.0 - 0.5 * x.size)
    figure.update_xaxes(hoverformat="d", tickformat="d", range=[x[0] - room, x[-1] + room])
    if x.size <= 12:
        figure.update_xaxes(tickvals=x)


def _mode(x: np.ndarray) -> str:
    """Markers as well as lines while single epochs can be told apart; one epoch alone would be no line at all."""
    return "lines+markers" if x.size <= 30 else "lines"


def _add_band(
    figure: go.Figure, row: int, x: np.ndarray, middle: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    """Median line over its band; the legend shows each once, for the first panel."""
    first = {"showlegend": row == 1, "row": row, "col": 1}
    if x.size > 1 and np.isfinite(low).any() and np.isfinite(high).any():
        edge = {"width": 0}
        group = {"legendgroup": "band", "hoverinfo": "skip", "mode": "lines", "line": edge}
        figure.add_scatter(x=x, y=high, **group, showlegend=False, row=row, col=1)
        figure.add_scatter(x=x, y=low, fill="tonexty", fillcolor=BAND, name="10 to 90 % of members", **group, **first)
    line = {"color": BLUE, "width": 2.4}
    figure.add_scatter(x=x, y=middle, name="median", legendgroup="median", line=line, mode=_mode(x), **first)


def _add_best(figure: go.Figure, row: int, x: np.ndarray, best: np.ndarray, middle: np.ndarray) -> None:
    """The best member, unless it is the only one and so the median itself."""
    if np.isfinite(best).any() and not np.array_equal(best, middle, equal_nan=True):
        line = {"color": ORANGE, "width": 1.4, "dash": "dot"}
        figure.add_scatter(x=x, y=best, name="best member", line=line, mode=_mode(x), row=row, col=1)


def _add_members(figure: go.Figure, row: int, x: np.ndarray, members: np.ndarray | None) -> None:
    """All members as one trace, separated by NaN, where they are few; single epochs are drawn as dots."""
    if members is None or not 1 < members.shape[1] <= MAX_MEMBER_LINES or members.size > MAX_THIN_POINTS:
        return
    gap = np.full((1, members.shape[1]), np.nan)
    y = np.concatenate([members, gap]).T.ravel().astype(np.float32)
    figure.add_scatter(
        x=np.tile(np.append(x, x[-1]), members.shape[1]).astype(np.float32),
        y=y,
        mode="markers" if x.size == 1 else "lines",
        line={"color": MEMBER_LINE, "width": 1},
        marker={"color": MEMBER_LINE, "size": 6},
        name=f"members ({members.shape[1]})",
        legendgroup="members",
        showlegend=row == 1,
        hoverinfo="skip",
        row=row,
        col=1,
    )


def _spans_decades(*series: np.ndarray) -> bool:
    """Whether all finite values are positive and the largest is more than `LOG_SPREAD` times the smallest."""
    values = np.concatenate(series)
    values = values[np.isfinite(values)]
    return bool(values.min() > 0.0 and values.max() > LOG_SPREAD * values.min())


def phase_table(epochs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Milliseconds per epoch by phase, `[E]` each, phases without any time left out.

    `REST` is what remains of `total`: the whole fused program, or the time between phases that ran one by one.
    """
    phases = {name: np.nan_to_num(column(epochs, "phases_ms", name)) for name in PHASES}
    total = np.nan_to_num(column(epochs, "phases_ms", "total"))
    phases[REST] = np.maximum(total - sum(phases.values()), 0.0)
    return {name: values for name, values in phases.items() if values.any()}


def phases_figure(epochs: Sequence[Mapping[str, Any]]) -> go.Figure | None:
    """Stacked bars: milliseconds of each phase per epoch, above the bytes uploaded where any were."""
    phases = phase_table(epochs)
    if not phases:
        return None
    x = column(epochs, "epoch")
    uploads = np.nan_to_num(column(epochs, "uploaded_bytes"))
    panels = 2 if uploads.any() else 1
    heights = [0.62, 0.38] if panels == 2 else [1.0]
    figure = make_subplots(rows=panels, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=heights)
    rest = (FUSED, BLUE) if phases.keys() <= {"init", REST} else (REST, REST_COLOR)
    for name, values in phases.items():
        text, color = rest if name == REST else (name, PHASES[name])
        marker = {"color": color, "line": {"width": 0}}
        figure.add_bar(x=x, y=values.astype(np.float32), name=text, marker=marker, row=1, col=1)
    if panels == 2:
        marker = {"color": VERMILION, "line": {"width": 0}}
        figure.add_bar(x=x, y=uploads, name="uploaded", marker=marker, showlegend=False, row=2, col=1)
        figure.update_yaxes(title_text="uploaded, bytes", tickformat="~s", row=2, col=1)
    sober(figure, height=300 if panels == 1 else 470, unified=True)
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
    figure.update_layout(barmode="stack", bargap=0.2 if x.size <= 60 else 0, legend=legend, showlegend=True)
    figure.update_yaxes(title_text="ms per epoch", row=1, col=1)
    figure.update_xaxes(title_text="epoch", row=panels, col=1)
    _epoch_axis(figure, x)
    return figure
