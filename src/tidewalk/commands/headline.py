"""The result of a finished run in a few lines for the terminal: verdict first, then what it rests on."""

import textwrap
from collections.abc import Mapping
from typing import Any

from tidewalk.store.summary import BASELINE_WORDS, min_btl_sentence, twin_sentences

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
            f"out of sample, {summary['windows']} window(s), {oos['sessions']} sessions, {oos['trades']:,} contract "
            f"sides, {oos['round_trips']:,} round trips",
        ),
        (
            "risk",
            f"Sharpe per year {_number(oos['sharpe_session'])} (90 % {_ends(oos['sharpe_ci90'])}), max drawdown "
            f"{oos['max_drawdown_usd']:,.0f} {currency}, longest {oos['longest_drawdown_sessions']} sessions, position "
            f"on {_percent(oos['exposure'])} of bars",
        ),
    ]


def _evidence(summary: Summary) -> list[tuple[str, str]]:
    oos, seeds, over = summary["oos"], summary["over_seeds"], summary["overfitting"]
    shown = f"PBO {_number(over['pbo'])} (noise: {_ends(over['pbo_null90'])}), " if over["pbo_null90"] else ""
    middle = f"{seeds['statistic']} of {seeds['count']}: {_usd(seeds['net_usd'])}"
    spread = f"worst {seeds['min_usd']:+,.0f}, best {seeds['max_usd']:+,.0f}"
    return [
        (
            "evidence",
            f"PSR {_number(oos['psr'])}, DSR ({oos['dsr_variant']}) {_number(oos['dsr'])} of {oos['trials']} trial(s), "
            f"Sidak p {_number(oos['sidak_p'])}, {shown}SPA p {_number(over['spa_p'])} against "
            f"{BASELINE_WORDS[over['spa_benchmark']]}",
        ),
        ("", min_btl_sentence(oos)),
        ("seeds", f"{middle} (90 % {_ends(seeds['net_ci90'], ',.0f')}), {spread}"),
    ]


def _rule(oos: Mapping[str, Any]) -> str:
    """Which conditions of an edge the run fails; the rule itself is long, and stands in the summary and the report."""
    failed = "; ".join(oos["verdict_failed"])
    said = f"for evidence of an edge it fails: {failed}" if failed else "every condition of an edge is met"
    return f"{said} (whole rule: oos.verdict_rule of summary.json, and the report)"


def _yardsticks(summary: Summary) -> list[tuple[str, str]]:
    own, oracle, costs = summary["baselines"], summary["oracle"], summary["cost_surface"]
    nets = ", ".join(f"{name} {own[name]:+,.0f}" for name in BASELINE_WORDS)
    captured = "" if oracle["captured_frac"] is None else f", {oracle['captured_frac']:.1%} of it captured"
    books, unit = summary["reconciled"], f" {summary['currency']}"
    return [
        ("baselines", f"{nets}; best: {BASELINE_WORDS[own['best']]}"),
        ("random", f"better than {_percent(own['random_p'])} of random policies with the same turnover"),
        ("hindsight", f"bound {oracle['net_usd']:+,.0f}{captured}"),
        (
            "costs",
            f"break-even per contract side {_number(costs['break_even_side_usd'], unit)}, paid were "
            f"{_number(costs['own_side_usd'])}",
        ),
        ("books", f"sessions, fills and round trips all add up to {books['equity_usd']:+,.2f}"),
    ]


def _symbol_line(row: Mapping[str, Any], currency: str) -> str:
    oos = row["oos"]
    return (
        f"{row['symbol']}: {row['windows']} window(s), {oos['sessions']} sessions, {oos['trades']:,} contract sides: "
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


def _number(value: float | None, unit: str = "") -> str:
    return "undefined" if value is None else f"{value:.2f}{unit}"


def _usd(value: float | None) -> str:
    return "undefined" if value is None else f"{value:+,.0f}"


def _percent(value: float | None) -> str:
    return "an undefined share" if value is None else f"{value:.0%}"
