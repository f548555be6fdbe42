"""summary.json: the headline of a run, machine readable, a stable contract by `schema`; checked when written and read.

Money is in the contract's currency, costs positive, so that net = gross - costs and costs = fees + slippage. A figure
that is undefined is null, and a warning says why; NaN and infinity stand nowhere. docs/reference.md says what each
key means.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidewalk.core.errors import StoreError
from tidewalk.store.checks import check_keys, check_nested, differs, is_named, null_paths
from tidewalk.store.layout import STATUSES, RunFolder, plain_json, read_object, write_json_atomic

SUMMARY_SCHEMA = 2
# From here on one digit would be rounded to 100.0 %, which is said of nothing but all bars; below the rest, to 0.0 %.
ALMOST_ALL = 0.9995

BASELINE_WORDS = {
    "flat": "staying flat",
    "long": "buy-and-hold",
    "short": "short-and-hold",
    "momentum": "last-move momentum",
    "tsmom": "time-series momentum",
    "macd": "MACD",
    "ma_cross": "moving-average cross",
}
"""The baselines, and what a sentence calls them."""
OF_ALL_TRIALS = (
    *("dsr", "dsr_variant", "sidak_p", "min_btl_years", "trials", "effective_trials", "verdict"),
    *("verdict_failed", "verdict_rule"),
)
"""Keys of `oos` of the study as a whole: to pick one of its symbols after the fact is a trial no ledger counted."""

SUMMARY_KEYS: dict[str, tuple[str, ...]] = {
    "summary": (
        *("schema", "run", "status", "model", "symbol", "currency", "device", "data_fingerprint", "bars"),
        *("contracts", "rolls", "windows", "seeds", "members", "epochs", "transfers", "phases_ms", "compile_ms"),
        *("oos", "baselines", "oracle", "over_seeds", "overfitting", "cost_surface", "reconciled"),
        *("per_symbol", "per_window", "warnings"),
    ),
    "transfers": ("uploads", "bytes_market", "bytes_h2d_per_epoch"),
    "phases_ms": ("init", "collect", "learn", "evaluate", "total"),
    "oos": (
        *("sessions", "sessions_per_year", "net_usd", "gross_usd", "costs_usd", "fees_usd", "slippage_usd"),
        *("trades", "round_trips", "turnover", "exposure", "hit_rate", "profit_factor", "expected_shortfall_usd"),
        *("sharpe_session", "sharpe_se", "sharpe_ci90", "sortino", "calmar", "max_drawdown_usd"),
        *("longest_drawdown_sessions", "psr", "min_trl_sessions", *OF_ALL_TRIALS),
    ),
    "baselines": (
        *BASELINE_WORDS,
        *("random_p", "random_usd", "best", "equals", "nearest", "nearest_agreement"),
    ),
    "oracle": ("net_usd", "captured_frac"),
    "over_seeds": ("count", "statistic", "net_usd", "net_ci90", "min_usd", "max_usd", "profitable_frac"),
    "overfitting": (
        *("configurations", "sessions", "blocks", "pbo", "pbo_null90", "slope", "prob_oos_loss"),
        *("spa_p", "spa_p_lower", "spa_p_upper", "spa_benchmark"),
    ),
    "cost_surface": ("break_even_side_usd", "own_side_usd"),
    "reconciled": ("equity_usd", "fills_usd", "trades_usd", "rewards_usd"),
}
SUMMARY_OPTIONAL = {
    "summary": ("trace_ms",),
    "transfers": ("bytes_d2h_per_epoch", "host_syncs_per_epoch"),
    "phases_ms": ("phased_total",),
}
"""Keys that summaries of earlier versions lack; `phased_total` is there in profiled runs alone."""
PER_SYMBOL_KEYS: dict[str, tuple[str, ...]] = {
    "symbol": ("symbol", "data_fingerprint", "bars", "windows", "oos", "baselines", "oracle", "costs"),
    "oos": tuple(key for key in SUMMARY_KEYS["oos"] if key not in OF_ALL_TRIALS),
    "baselines": SUMMARY_KEYS["baselines"],
    "oracle": SUMMARY_KEYS["oracle"],
    "costs": ("slippage", "commission_usd", "slippage_ticks", "side_usd", "roll_as", "roll_usd", "half_spread_ticks"),
}
PER_WINDOW_KEYS = (
    *("window", "symbol", "train", "val", "test", "best_epoch", "net_usd", "gross_usd", "costs_usd", "trades"),
    *("seeds_net_usd", "val_net_usd", "wfe", "break_even_side_usd", "captured_frac"),
    *("contracts", "rolls", "oracle_usd", "long_usd", "partial_test"),
)
FIGURES = (
    *("transfers", "phases_ms", "compile_ms", "oos", "baselines", "oracle"),
    *("over_seeds", "overfitting", "cost_surface", "reconciled"),
)
"""Parts that a run has once it is complete, null before."""


IS_UNDEFINED = " is undefined: "
"""What the warnings that explain a null of the summary have in common."""


def undefined_warning(path: str, reason: str) -> str:
    """The warning that explains a null of the summary, as `validate_summary` looks for it."""
    return f"{path}{IS_UNDEFINED}{reason}"


def reason_for(path: str, warnings: Iterable[str]) -> str:
    """Why the figure at the dotted `path` of summary.json is null, by the first warning that names it or its parent."""
    names = [path, path.rpartition(".")[0]]
    for name in filter(None, names):
        pattern = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w\[]|\.\w)")
        for text in warnings:
            if pattern.search(text):
                return text.removeprefix(undefined_warning(name, ""))
    return "no reason was recorded"


def _check_money(where: str, row: Mapping[str, Any]) -> None:
    """Raises a StoreError when net is not gross less costs, or costs not fees and slippage, where all are known."""
    net, gross, costs = (row[key] for key in ("net_usd", "gross_usd", "costs_usd"))
    if None not in (net, gross, costs) and differs(net, gross - costs):
        raise StoreError(f"{where}: net_usd is {net}, which is not gross_usd {gross} less costs_usd {costs}.")
    fees, slippage = row.get("fees_usd"), row.get("slippage_usd")
    if costs is not None and fees is not None and slippage is not None and differs(costs, fees + slippage):
        raise StoreError(
            f"{where}: costs_usd is {costs}, which is not fees_usd {fees} and slippage_usd {slippage} together."
        )


def _check_sums(summary: Mapping[str, Any]) -> None:
    """Raises a StoreError when windows or symbols do not add up to the whole, or the books do not agree."""
    oos = summary["oos"]
    if oos is None or oos["net_usd"] is None:
        return
    parts = {
        "per_window": [row["net_usd"] for row in summary["per_window"] or []],
        "per_symbol": [row["oos"]["net_usd"] for row in summary["per_symbol"] or []],
    }
    for name, nets in parts.items():
        if nets and None not in nets and differs(sum(nets), oos["net_usd"]):
            raise StoreError(f"summary: {name} adds up to {sum(nets)} USD net, oos.net_usd is {oos['net_usd']}.")
    for name, amount in (summary["reconciled"] or {}).items():
        # rewards are float32, and compared decision by decision where they are counted
        if name != "rewards_usd" and amount is not None and differs(amount, oos["net_usd"]):
            raise StoreError(f"summary: reconciled.{name} is {amount}, oos.net_usd is {oos['net_usd']}.")


def validate_summary(summary: Mapping[str, Any]) -> None:
    """Checks the contract of summary.json: exact keys, no NaN, every null explained, money that adds up.

    The rows of `per_window` may hold more than `PER_WINDOW_KEYS`, all else is exact.

    Raises:
        StoreError: names the key at fault. A null needs a warning with its dotted path (`undefined_warning` writes
            one); for rows of a list the path without the index explains all of them.
    """
    plain = plain_json(summary, "summary")
    if "schema" in plain and plain["schema"] != SUMMARY_SCHEMA:
        raise StoreError(
            f"summary: schema is {plain['schema']!r}, this version reads {SUMMARY_SCHEMA}: another version of "
            "tidewalk wrote it. Read it with that version, or repeat the run from its run.toml."
        )
    check_nested("summary", plain, SUMMARY_KEYS, SUMMARY_OPTIONAL)
    if plain["status"] not in STATUSES:
        raise StoreError(f"summary: status is {plain['status']!r}, needed is one of {', '.join(STATUSES)}.")
    for index, row in enumerate(plain["per_symbol"] or []):
        check_nested(f"summary: per_symbol[{index}]", row, PER_SYMBOL_KEYS)
        _check_money(f"summary: per_symbol[{index}].oos", row["oos"])
    for index, row in enumerate(plain["per_window"] or []):
        check_keys(f"summary: per_window[{index}]", row, PER_WINDOW_KEYS, or_more=True)
        _check_money(f"summary: per_window[{index}]", row)
    if plain["oos"] is not None:
        _check_money("summary: oos", plain["oos"])
    _check_sums(plain)
    # The row of a single symbol repeats figures that are explained where they are said of the study.
    of_symbols = plain["per_symbol"] if len(plain["per_symbol"] or []) > 1 else []
    for path in null_paths({**plain, "per_symbol": of_symbols}):
        if not is_named(path, plain["warnings"] or []):
            raise StoreError(f"summary: {path} is null, and no warning names {path!r} with the reason.")


def write_summary(run: RunFolder, summary: Mapping[str, Any]) -> None:
    """Writes summary.json after `validate_summary`."""
    validate_summary(summary)
    write_json_atomic(run.summary, summary)


def read_summary(run: RunFolder) -> dict[str, Any]:
    """Content of summary.json, checked as when written."""
    summary = read_object(run.summary)
    validate_summary(summary)
    return summary


def twin_sentences(baselines: Mapping[str, Any]) -> list[str]:
    """Sentences on the baselines that the policy is, bar for bar; where it is none, on the one it resembles most."""
    if baselines["equals"]:
        return [
            f"The policy equals {BASELINE_WORDS[name]} on 100 % of bars: it is that baseline, not a learned strategy."
            for name in baselines["equals"]
        ]
    share, name = baselines["nearest_agreement"], BASELINE_WORDS[baselines["nearest"]]
    if share == 0:
        return ["No baseline holds the same position on any bar."]
    percent = "over 99.9" if share >= ALMOST_ALL else f"{100 * share:.1f}" if share >= 1 - ALMOST_ALL else "under 0.1"
    return [f"The nearest baseline is {name}: the same position on {percent} % of bars."]


def min_btl_sentence(oos: Mapping[str, Any]) -> str:
    """What the number of configurations tried says of the length of the record."""
    years = oos["sessions"] / oos["sessions_per_year"]
    if oos["trials"] == 1:
        return f"a single trial on these data: nothing was selected yet; you have {years:.1f} years"
    return (
        f"with {oos['trials']:,} trials, a Sharpe of 1 is expected by luck below {oos['min_btl_years']:.1f} years; "
        f"you have {years:.1f}"
    )
