"""Run folder -> one self-contained HTML page that opens without a network."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl

from tidewalk.report import assumptions, charts, cost_charts, curves, evidence, quality, tables, terms, trips
from tidewalk.report.shell import figure_json, in_currency, render_page
from tidewalk.report.source import RunRecord, read_run
from tidewalk.store import layout
from tidewalk.store.summary import IS_UNDEFINED, twin_sentences

FACTS = ("symbol", "model", "bars", "windows", "seeds", "members", "epochs", "data_fingerprint")
DATA_FACTS = ("contracts", "features", "tick", "multiplier", "currency")
SHOWN_ELSEWHERE = frozenset({"schema", "kind", "status", "symbols", "data_fingerprint", "files", "rules"})
"""Fields of the manifest that are no provenance, or have a place of their own on the page."""


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run folder from the files that are there, and return its path.

    A run that was interrupted or failed is shown as far as it got: a section whose file is missing says so. The same
    files give the same bytes.

    Raises:
        StoreError: `run_dir` is no run folder, a file in it cannot be read, or the page cannot be written.
    """
    target = layout.run_paths(run_dir).report
    layout.write_text_atomic(target, render(read_run(run_dir)))
    return target


def render(run: RunRecord) -> str:
    """The whole page as text."""
    return in_currency(render_page("report.html.j2", _context(run)), run.currency)


def _ruined(run: RunRecord) -> frozenset[str]:
    """Policies without a Sharpe ratio because they lost their capital; of the ensemble the summary tells."""
    capital_usd = (run.manifest.get("rules") or {}).get("capital_usd")
    oos, found = run.summary.get("oos"), tables.ruined_policies(run.equity, capital_usd)
    return found | {"ensemble"} if oos and oos["sharpe_session"] is None else found


def _context(run: RunRecord) -> dict[str, Any]:
    """Everything the template shows."""
    summary, per_window, portfolio = run.summary, run.summary.get("per_window") or [], run.portfolio
    symbol = summary.get("symbol") or ", ".join(str(of["symbol"]) for of in run.symbols)
    factor = tables.sessions_factor(summary, portfolio)
    undefined = [text for text in run.warnings if IS_UNDEFINED in text]
    return {
        "run": run,
        "title": " · ".join(map(str, filter(None, (symbol, summary.get("model"))))) or "Run",
        "lead": _lead(run),
        "status": run.status,
        **_judgement(run),
        "cards": tables.headline_cards(summary, portfolio) if summary.get("oos") else [],
        "warnings": [text for text in run.warnings if IS_UNDEFINED not in text],
        "undefined": undefined if summary.get("oos") else [],
        "figures": {name: figure_json(figure) for name, figure in _figures(run).items()},
        "off": ["hindsight bound" if name == "oracle" else name for name in charts.hidden_at_first(portfolio)],
        "policies": tables.policy_rows(portfolio, factor, _ruined(run)),
        "symbol_rows": tables.symbol_rows(summary.get("per_symbol") or []) if run.has_several else [],
        "window_rows": tables.window_rows(per_window, with_symbol=run.has_several),
        "many_windows": len(per_window) > charts.MAX_LABELS,
        "windows_planned": tables.planned_rows(run.windows, with_symbol=run.has_several),
        "partial": any(row["partial_test"] for row in per_window),
        "uncovered": run.uncovered,
        "member_rows": tables.member_rows(run.members, with_symbol=run.has_several),
        "member_count": run.members.height,
        "months": tables.month_rows(portfolio),
        "month_names": tables.MONTHS,
        "contract_rows": tables.contract_rows(run.fills),
        "trip_rows": trips.trip_rows(run.trades),
        "exit_rows": trips.exit_rows(run.trades),
        "ledger": trips.ledger_rows(run.trades),
        "trade_count": run.trades.height,
        "fill_count": run.fills.height,
        "surfaces": _surfaces(run),
        "rolls": tables.roll_rows([roll for of in run.symbols for roll in of.get("rolls") or []]),
        "speed": _speed_rows(run),
        "no_uploads": not (curves.column(run.metrics, "uploaded_bytes") > 0).any(),
        "findings": quality.finding_rows(run.quality),
        "finding_count": sum(len(of["findings"]) for of in run.quality),
        "files": quality.file_rows(run.quality),
        "file_count": sum(len(of["files"]) for of in run.quality),
        "definitions": terms.definitions(factor, {str(of["symbol"]): of["costs"] for of in run.symbols}),
        "assumptions": assumptions.assumption_rows(run.manifest.get("rules") or {}),
        "facts": tables.flat_rows(_facts(run)),
        "versions": tables.flat_rows(run.manifest, skip=SHOWN_ELSEWHERE),
        "config": run.config_text,
    }


def _figures(run: RunRecord) -> dict[str, go.Figure | None]:
    """All figures by the name the template uses."""
    oos = run.summary.get("oos") or {}
    gross, costs, net = (charts.finite(oos.get(key)) for key in ("gross_usd", "costs_usd", "net_usd"))
    portfolio, rules = run.portfolio, run.manifest.get("rules") or {}
    own = portfolio.filter(pl.col("policy") == "ensemble")["net_usd"].drop_nulls().to_numpy()
    return {
        "equity": charts.equity_figure(portfolio, run.windows),
        "symbols": charts.symbols_figure(run.equity),
        "windows": charts.window_figure(run.summary.get("per_window") or []),
        "selection": charts.selection_figure(run.members),
        "training": curves.training_figure(run.metrics),
        "phases": curves.phases_figure(run.metrics),
        "waterfall": charts.waterfall_figure(gross, costs, net),
        "sessions": charts.session_figure(own),
        "hours": charts.hours_figure(run.fills),
        "seeds": evidence.seeds_figure(run.summary, _nets(portfolio)),
        "break_even": cost_charts.break_even_figure(
            run.summary.get("per_window") or [], (run.summary.get("cost_surface") or {}).get("own_side_usd")
        ),
        **{
            f"surface_{number}": cost_charts.surface_figure(
                run.cost_surface, of["symbol"], of["costs"], own_delay=rules.get("decision_delay", 0)
            )
            for number, of in enumerate(run.symbols)
        },
    }


def _judgement(run: RunRecord) -> dict[str, Any]:
    """The verdict with its rule, what the policy resembles, and the tables of evidence and of risk."""
    summary, oos = run.summary, run.summary.get("oos")
    return {
        "verdict": oos and oos["verdict"],
        "verdict_failed": oos and oos["verdict_failed"],
        "verdict_rule": oos and oos["verdict_rule"],
        "is_baseline": bool((summary.get("baselines") or {}).get("equals")),
        "twins": twin_sentences(summary["baselines"]) if oos else [],
        "evidence": evidence.evidence_rows(summary) if oos else [],
        "risk": evidence.risk_rows(summary) if oos else [],
        "reconciled": evidence.reconciled_sentence(summary),
    }


def _nets(portfolio: pl.DataFrame) -> dict[str, float]:
    """Net of every policy over all windows."""
    return dict(portfolio.group_by("policy", maintain_order=True).agg(pl.col("net_usd").sum()).iter_rows())


def _surfaces(run: RunRecord) -> list[dict[str, Any]]:
    """Name of the heat map, and rows of the table of delays, of every symbol with a cost surface."""
    return [
        {
            "name": f"surface_{number}",
            "symbol": of["symbol"],
            "delays": cost_charts.delay_rows(run.cost_surface, of["symbol"], of["costs"]),
        }
        for number, of in enumerate(run.symbols)
        if of["symbol"] in run.cost_surface["symbol"]
    ]


def _facts(run: RunRecord) -> dict[str, Any]:
    """The plain facts of the study and its data, counts with separators."""
    facts = {key.replace("_", " "): run.summary[key] for key in FACTS if key in run.summary}
    for of in run.symbols:
        before = f"{of['symbol']} " if run.has_several else ""
        facts |= {f"{before}{key}": of[key] for key in DATA_FACTS if key in of}
    return {key: f"{value:,}" if type(value) is int else value for key, value in facts.items()}


def _speed_rows(run: RunRecord) -> list[list[str]]:
    """Device, compile time, median epoch and bytes moved, as far as they are known."""
    summary = run.summary
    phases, transfers = summary.get("phases_ms") or {}, summary.get("transfers") or {}
    compile_ms = charts.finite(summary.get("compile_ms"))
    if compile_ms is None and run.metrics:
        compile_ms = charts.finite(run.metrics[0].get("compile_ms"))
    rows = [["device", str(summary.get("device") or tables.UNDEFINED)]]
    rows.append(["compile time, once", tables.with_unit(compile_ms, "ms", 0)])
    names = [name for name in (*curves.PHASES, "total") if charts.finite(phases.get(name)) is not None]
    for name in names:
        is_fused = name in ("init", "total") or "phased_total" not in phases
        what = "median epoch after the first" if is_fused else "a call for every step (--profile)"
        rows.append([f"{name}, {what}", tables.with_unit(phases[name], "ms", 2)])
    rates = [rate for epoch in run.metrics[1:] if (rate := charts.finite(epoch.get("epochs_per_s"))) is not None]
    if rates:
        rows.append(["epochs per second, last", tables.number(rates[-1], 2)])
    rows.append(["uploads of market data", tables.number(transfers.get("uploads"))])
    rows.append(["market data on the device", tables.with_unit(transfers.get("bytes_market"), "bytes", 0)])
    per_epoch = tables.with_unit(transfers.get("bytes_h2d_per_epoch"), "bytes", 0)
    rows.append(["uploaded in an epoch after the first, at most", per_epoch])
    if "host_syncs_per_epoch" in transfers:
        waits = tables.number(transfers["host_syncs_per_epoch"])
        rows.append(["waits for the device in an epoch after the first, at most", waits])
    return rows


def _lead(run: RunRecord) -> str:
    """One line under the title: how much was trained, on what, and what was tested."""
    summary = run.summary
    parts = []
    for key in ("windows", "seeds", "members", "epochs"):
        if charts.finite(summary.get(key)) is not None:
            count = tables.number(summary[key])
            parts.append(f"{count} {key.removesuffix('s') if count == '1' else key}")
    if run.sessions_span:
        parts.append("tested " + " to ".join(run.sessions_span))
    if summary.get("device"):
        parts.append(str(summary["device"]))
    return " · ".join(parts)
