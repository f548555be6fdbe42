"""The result of a finished run in a few lines for the terminal: verdict first, then what it rests on."""

import textwrap
from collections.abc import Mapping
from typing import Any

from tidewalk.core.words import cost, counted
from tidewalk.store.summary import BASELINE_WORDS, min_btl_sentence, reason_for, twin_sentences

Summary = Mapping[str, Any]
LABEL_WIDTH = 10


def headline(summary: Summary) -> list[tuple[str, str]]:
    """(label, text) lines of a complete run; a line without a label goes on with the one before."""
    rows = summary["per_symbol"]
    return [
        ("", f"{summary['symbol']} {summary['model']}: {summary['oos']['verdict']}"),
        *(("", text) for text in twin_sentences(summary["baselines"])),
        *_earned(summary),
        *_evidence(summary),
        *_yardsticks(summary),
        *(("symbol", _symbol_line(row, summary["currency"])) for row in rows if len(rows) > 1),
        ("rule", _rule(summary["oos"])),
    ]


def _earned(summary: Summary) -> list[tuple[str, str]]:
    oos, currency = summary["oos"], summary["currency"]
    return [
        ("net", f"{_result(oos)} {currency} (fees {oos['fees_usd']:,.0f}, slippage {oos['slippage_usd']:,.0f})"),
        (
            "record",
            f"out of sample, {_traded(summary['windows'], oos)}, {counted(oos['round_trips'], 'round trip')}",
        ),
        (
            "risk",
            f"Sharpe per year {_number(oos['sharpe_session'])}{_band(oos['sharpe_ci90'])}, max drawdown "
            f"{oos['max_drawdown_usd']:,.0f} {currency}, longest {counted(oos['longest_drawdown_sessions'], 'session')}"
            f"{_exposure(oos['exposure'])}",
        ),
    ]


def _evidence(summary: Summary) -> list[tuple[str, str]]:
    oos, seeds, over = summary["oos"], summary["over_seeds"], summary["overfitting"]
    shown = f"PBO {_number(over['pbo'])} (noise: {_ends(over['pbo_null90'])}), " if over["pbo_null90"] else ""
    middle = f"{seeds['statistic']} of {seeds['count']}: {_usd(seeds['net_usd'])}"
    spread = f"worst {seeds['min_usd']:+,.0f}, best {seeds['max_usd']:+,.0f}"
    trials = f" of {counted(oos['trials'], 'trial')}"
    return [
        (
            "evidence",
            f"PSR {_number(oos['psr'])}, DSR ({oos['dsr_variant']}) {_number(oos['dsr'], trials)}, "
            f"Sidak p {_number(oos['sidak_p'])}, {shown}SPA p {_number(over['spa_p'])} against "
            f"{BASELINE_WORDS[over['spa_benchmark']]}",
        ),
        ("", min_btl_sentence(oos)),
        ("seeds", f"{middle}{_band(seeds['net_ci90'], ',.0f')}, {spread}"),
    ]


def _rule(oos: Mapping[str, Any]) -> str:
    """Which conditions of an edge the run fails; the rule itself is long, and stands in the summary and the report."""
    failed = "; ".join(oos["verdict_failed"])
    said = f"for evidence of an edge it fails: {failed}" if failed else "every condition of an edge is met"
    return f"{said} (whole rule: oos.verdict_rule of summary.json, and the report)"


def _yardsticks(summary: Summary) -> list[tuple[str, str]]:
    own, oracle = summary["baselines"], summary["oracle"]
    nets = ", ".join(f"{name} {own[name]:+,.0f}" for name in BASELINE_WORDS)
    captured = "" if oracle["captured_frac"] is None else f", {oracle['captured_frac']:.1%} of it captured"
    books = summary["reconciled"]
    return [
        ("baselines", f"{nets}; best: {BASELINE_WORDS[own['best']]}"),
        ("random", _random(summary)),
        ("hindsight", f"bound {oracle['net_usd']:+,.0f}{captured}"),
        ("costs", _costs(summary)),
        ("books", f"sessions, fills and round trips all add up to {books['equity_usd']:+,.2f}"),
    ]


def _random(summary: Summary) -> str:
    share = summary["baselines"]["random_p"]
    if share is None:
        return f"no comparison with random policies: {_reason(summary, 'baselines.random_p')}"
    return f"better than {share:.0%} of random policies with the same turnover"


def _costs(summary: Summary) -> str:
    """What a contract side could have cost and what it did cost, with as many digits each."""
    of, unit = summary["cost_surface"], f" {summary['currency']}"
    paid, even = of["own_side_usd"], of["break_even_side_usd"]
    if paid is None:
        return f"none paid: {_reason(summary, 'cost_surface.own_side_usd')}"
    if even is None:
        why = _reason(summary, "cost_surface.break_even_side_usd")
        return f"paid per contract side were {cost(paid)}{unit}; no break-even: {why}"
    return f"break-even per contract side {even:,.2f}{unit}, paid were {cost(paid)}"


def _reason(summary: Summary, path: str) -> str:
    return reason_for(path, summary["warnings"] or [])


def _traded(windows: int, oos: Mapping[str, Any]) -> str:
    sessions, sides = counted(oos["sessions"], "session"), counted(oos["trades"], "contract side")
    return f"{counted(windows, 'window')}, {sessions}, {sides}"


def _symbol_line(row: Mapping[str, Any], currency: str) -> str:
    oos = row["oos"]
    return (
        f"{row['symbol']}: {_traded(row['windows'], oos)}: "
        f"net {_result(oos)} {currency}; Sharpe per year {_number(oos['sharpe_session'])}; long "
        f"{row['baselines']['long']:+,.0f}, hindsight bound {row['oracle']['net_usd']:+,.0f}"
    )


def laid_out(lines: list[tuple[str, str]], width: int | None) -> list[str]:
    """Labels in a column of their own, texts wrapped beside it at `width`; whole lines where that is None."""
    if width is None:
        return [f"{label}: {text}" if label else text for label, text in lines]
    indent = " " * LABEL_WIDTH
    shown: list[str] = []
    for number, (label, text) in enumerate(lines):
        is_inside = label or any(before for before, _ in lines[:number])
        first = label.ljust(LABEL_WIDTH) if is_inside else ""
        shown += textwrap.wrap(
            text, max(width, 40), initial_indent=first, subsequent_indent=indent if is_inside else ""
        )
    return shown


def _result(oos: Mapping[str, Any]) -> str:
    return f"{oos['net_usd']:+,.0f} = gross {oos['gross_usd']:+,.0f} - costs {oos['costs_usd']:,.0f}"


def _ends(interval: list[float] | None, spec: str = ".2f") -> str:
    return "undefined" if interval is None else f"{interval[0]:{spec}} to {interval[1]:{spec}}"


def _band(interval: list[float] | None, spec: str = ".2f") -> str:
    """A 90 % interval behind its figure; nothing where there is none."""
    return "" if interval is None else f" (90 % {_ends(interval, spec)})"


def _number(value: float | None, of: str = "") -> str:
    return "undefined" if value is None else f"{value:.2f}{of}"


def _usd(value: float | None) -> str:
    return "undefined" if value is None else f"{value:+,.0f}"


def _exposure(share: float | None) -> str:
    return "" if share is None else f", position on {share:.0%} of bars"
