"""What speaks for luck and what against it: rows in words, and the seeds as dots."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tidewalk.report.charts import BASELINES, BLUE, INK, MANY_DOTS, ORANGE, finite, sober
from tidewalk.report.tables import UNDEFINED, frac_percent, interval, number, reason_for, usd, with_unit
from tidewalk.stats.inference import GATE
from tidewalk.store.summary import BASELINE_WORDS, min_btl_sentence

Summary = Mapping[str, Any]


def evidence_rows(summary: Summary) -> list[list[str]]:
    """(what, value, how to read it) of every figure that weighs the result against luck.

    Args:
        summary: parsed summary.json of a complete run; any figure in it may be null.
    """
    rows = [*_of_the_record(summary), *_of_the_trials(summary), *_of_overfitting(summary), *_of_the_seeds(summary)]
    warnings = [str(text) for text in summary.get("warnings") or []]
    return [
        [name, value, reason_for(path, warnings) if value.startswith(UNDEFINED) else meaning]
        for path, name, value, meaning in rows
    ]


Row = tuple[str, str, str, str]


def _of_the_record(summary: Summary) -> list[Row]:
    oos = summary["oos"]
    sharpe, error = number(oos["sharpe_session"], 2), number(oos["sharpe_se"], 2)
    needed, present = finite(oos["min_trl_sessions"]), oos["sessions"]
    enough = "long enough" if needed is not None and present >= needed else "too short"
    random_p = (summary.get("baselines") or {}).get("random_p")
    return [
        ("oos.sharpe_session", "Sharpe, annualised", sharpe, f"standard error {error} by the moments of the record"),
        ("oos.sharpe_ci90", "Sharpe, 90 % interval", interval(oos["sharpe_ci90"], 2), "bootstrap over time blocks"),
        ("oos.psr", "PSR", number(oos["psr"], 3), f"that the true Sharpe is above 0, one look; gate {GATE:.2f}"),
        (
            "oos.min_trl_sessions",
            "Sessions needed (MinTRL)",
            number(oos["min_trl_sessions"]),
            f"for a Sharpe like this to be above 0 at 95 %; here are {number(present)}: {enough}",
        ),
        (
            "baselines.random_p",
            "Random policies beaten",
            frac_percent(random_p, 0),
            "of 1,000 with the same turnover on the same bars",
        ),
    ]


def _of_the_trials(summary: Summary) -> list[Row]:
    oos = summary["oos"]
    trials, effective = number(oos["trials"]), number(oos["effective_trials"], 1)
    return [
        ("oos.trials", "Configurations tried", trials, "all that the ledger knows on these data"),
        ("oos.effective_trials", "of which independent", effective, "effective rank of their correlation; not used"),
        ("oos.dsr", f"DSR ({oos['dsr_variant']})", number(oos["dsr"], 3), f"PSR, deflated for them; gate {GATE:.2f}"),
        ("oos.sidak_p", "Šidák p", number(oos["sidak_p"], 3), "that the best of as many noise records looks as good"),
        ("oos.min_btl_years", "Years needed (MinBTL)", number(oos["min_btl_years"], 1), min_btl_sentence(oos)),
    ]


def _of_overfitting(summary: Summary) -> list[Row]:
    of = summary.get("overfitting")
    if of is None:
        return []
    band, pbo = of["pbo_null90"], finite(of["pbo"])
    outside = pbo is not None and band is not None and not band[0] <= pbo <= band[1]
    where = "outside it" if outside else "inside it, so it proves nothing"
    count, benchmark = number(of["configurations"]), BASELINE_WORDS[of["spa_benchmark"]]
    worst = f"lower {number(of['spa_p_lower'], 3)}, upper {number(of['spa_p_upper'], 3)}"
    return [
        (
            "overfitting.pbo",
            "PBO (CSCV)",
            number(pbo, 2) if band is not None else UNDEFINED,
            f"that the best of {count} in one half is below the median in the other; pure noise gives "
            f"{interval(band, 2)} in 90 % of cases, {where}",
        ),
        ("overfitting.slope", "Slope of that", number(of["slope"], 2), "Sharpe out of sample per Sharpe in sample"),
        ("overfitting.prob_oos_loss", "Loss out of sample", frac_percent(of["prob_oos_loss"], 0), "of those halves"),
        (
            "overfitting.spa_p",
            "SPA p (Hansen)",
            number(of["spa_p"], 3),
            f"that none of {count} beats {benchmark}; consistent form, {worst}",
        ),
    ]


def _of_the_seeds(summary: Summary) -> list[Row]:
    of = summary.get("over_seeds")
    if of is None:
        return []
    spread = f"worst {usd(of['min_usd'])}, best {usd(of['max_usd'])}; {frac_percent(of['profitable_frac'], 0)} earned"
    name = f"Seeds, {of['statistic']} of {number(of['count'])}"
    band = interval(of["net_ci90"], 0)
    return [
        ("over_seeds.net_usd", name, with_unit(of["net_usd"], "¤", 0), spread),
        ("over_seeds.net_ci90", "Seeds, 90 % interval", band, "¤, over time blocks and seeds"),
    ]


def risk_rows(summary: Summary) -> list[list[str]]:
    """(what, value, unit or how it is counted) of return, risk and activity; undefined figures with their reason."""
    oos, warnings = summary["oos"], [str(text) for text in summary.get("warnings") or []]
    rows = [
        ("sortino", "Sortino, annualised", number(oos["sortino"], 2), "mean over downside deviation"),
        ("calmar", "Calmar", number(oos["calmar"], 2), "net per year over the largest drawdown"),
        ("max_drawdown_usd", "Max drawdown", usd(oos["max_drawdown_usd"]), "¤, at session ends, from the start on"),
        (
            "longest_drawdown_sessions",
            "Longest drawdown",
            number(oos["longest_drawdown_sessions"]),
            "sessions below a high",
        ),
        ("hit_rate", "Sessions won", frac_percent(oos["hit_rate"]), "of those that won or lost"),
        ("profit_factor", "Profit factor", number(oos["profit_factor"], 2), "won over lost, by session"),
        (
            "expected_shortfall_usd",
            "Expected shortfall",
            usd(oos["expected_shortfall_usd"]),
            "¤, worst 5 % of sessions",
        ),
        ("turnover", "Turnover", number(oos["turnover"], 1), "contract sides per session"),
        ("exposure", "Exposure", frac_percent(oos["exposure"]), "of the bars with a position"),
        ("fees_usd", "Fees", usd(oos["fees_usd"]), "¤, commission and roll fees"),
        ("slippage_usd", "Slippage", usd(oos["slippage_usd"]), "¤"),
    ]
    return [
        [name, value, reason_for(f"oos.{key}", warnings) if value == UNDEFINED else unit]
        for key, name, value, unit in rows
    ]


def seeds_figure(summary: Summary, nets_usd: Mapping[str, float]) -> go.Figure | None:
    """Net of every seed as a dot, their middle with its interval, the ensemble, and the best baseline.

    Args:
        summary: parsed summary.json.
        nets_usd: net of every policy over all windows.

    Returns:
        None where there are fewer than two seeds to compare.
    """
    seeds = [(name, net) for name, net in nets_usd.items() if name.startswith("seed ")]
    of = summary.get("over_seeds")
    if len(seeds) < 2 or of is None:
        return None
    figure = go.Figure()
    nets = np.array([net for _, net in seeds])
    style = {"size": 4, "color": INK, "opacity": 0.25} if len(seeds) > MANY_DOTS else {"size": 9, "color": BLUE}
    style |= {"opacity": 0.6} if len(seeds) <= MANY_DOTS else {}
    figure.add_scatter(x=nets, y=_beeswarm(nets), mode="markers", marker=style, name="seed", text=[n for n, _ in seeds])
    _add_middle(figure, of)
    mark = {"size": 13, "color": ORANGE, "symbol": "diamond", "line": {"color": INK, "width": 1}}
    if "ensemble" in nets_usd:
        figure.add_scatter(x=[nets_usd["ensemble"]], y=[0.0], mode="markers", marker=mark, name="ensemble")
    own = summary.get("baselines") or {}
    _add_random(figure, own.get("random_usd"))
    best = str(own.get("best"))
    if best in nets_usd:
        line = {"color": BASELINES[best][0], "width": 1.6, "dash": "dash"}
        x, name = [nets_usd[best]] * 2, f"best baseline: {BASELINE_WORDS[best]}"
        figure.add_scatter(x=x, y=[-1, 1], mode="lines", line=line, name=name)
    figure.update_traces(hovertemplate="%{fullData.name} %{text}<br>%{x:,.0f} ¤<extra></extra>")
    sober(figure, height=280)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(title_text="net over all windows, ¤", zeroline=True)
    figure.update_yaxes(visible=False, range=[-1.1, 1.1], fixedrange=True)
    return figure


def _add_middle(figure: go.Figure, of: Mapping[str, Any]) -> None:
    """The middle of the seeds as an upright line, its interval as a bar below the dots."""
    figure.add_scatter(
        x=[of["net_usd"]] * 2, y=[-0.75, 0.75], mode="lines", line={"color": INK, "width": 2}, name=of["statistic"]
    )
    if of["net_ci90"] is not None:
        ends = {"color": INK, "size": 10, "symbol": "line-ns", "line": {"color": INK, "width": 2}}
        figure.add_scatter(
            x=of["net_ci90"],
            y=[-0.85, -0.85],
            mode="lines+markers",
            line={"color": INK, "width": 2},
            marker=ends,
            name="90 % interval",
        )


def _add_random(figure: go.Figure, quantiles_usd: Sequence[float] | None) -> None:
    """Random policies as a thin bar from their 5 to their 95 % point, thick over the middle half, above the dots."""
    if quantiles_usd is None:
        return
    low, first, middle, third, high = quantiles_usd
    for ends, width in (((low, high), 3), ((first, third), 9)):
        line = {"color": "#B8C2CC", "width": width}
        figure.add_scatter(x=ends, y=[0.85] * 2, mode="lines", line=line, name="random policies", showlegend=width == 9)
    mark = {"size": 9, "color": INK, "symbol": "line-ns", "line": {"color": INK, "width": 2}}
    figure.add_scatter(x=[middle], y=[0.85], mode="markers", marker=mark, name="random policies", showlegend=False)


def _beeswarm(values: np.ndarray, bins: int = 40) -> np.ndarray:
    """Heights that part dots which fall on the same place; the same values give the same heights."""
    spread = float(np.ptp(values)) or 1.0
    cells = np.floor((values - values.min()) / spread * (bins - 1)).astype(int)
    heights = np.zeros(len(values))
    for cell in np.unique(cells):
        inside = np.flatnonzero(cells == cell)
        heights[inside] = (np.arange(len(inside)) - (len(inside) - 1) / 2) * min(0.16, 1.3 / len(inside))
    return heights


def reconciled_sentence(summary: Summary) -> str | None:
    """That the books agree, in words; None where they were not compared."""
    of = summary.get("reconciled")
    if of is None:
        return None
    return (
        f"Sessions, fills and round trips add up to the same {number(of['equity_usd'], 2)} ¤ net, to the cent; the "
        f"rewards of the device, in float32, to {number(of['rewards_usd'], 2)}."
    )
