"""The rules and limits that were in force, and what no backtest here knows of, in words."""

from collections.abc import Mapping
from typing import Any

from tidewalk.core.words import counted
from tidewalk.report.tables import number, usd

NOT_MODELLED = (
    "Market impact, partial fills, and orders that the market leaves behind: every order is assumed to fill in full at "
    "the open of the next bar. Outages, halts and price limits of the exchange. Margin: whether the account could have "
    "carried the position. Interest, taxes, fees for data or access, and commission as a share of the price. Moves "
    "inside a bar: account limits are looked at once a bar, at its open."
)
DIRECTIONS = {"both": "long and short", "long": "long only", "short": "short only"}


def assumption_rows(rules: Mapping[str, Any]) -> list[list[str]]:
    """(rule, what it was in this run) of the rules of the environment and of the account.

    Args:
        rules: `rules` of manifest.json; empty where a run recorded none.
    """
    if not rules:
        return []
    return [
        ["Positions", _positions(rules)],
        ["Decision", _delay(rules["decision_delay"])],
        ["Close of the session", _close(rules)],
        ["Roll", _roll(rules["roll_as"])],
        ["Start of a window", "flat, with a fresh account; its last decision closes the position"],
        ["Initial capital", _capital(rules["capital_usd"])],
        ["Daily loss limit", _limit(rules["daily_loss_usd"], "then flat until the next session")],
        ["Trailing drawdown limit", _limit(rules["trailing_drawdown_usd"], "then flat to the end of the window")],
        ["Limits bind", "agents, ensemble, baselines and random policies; never the hindsight bound"],
        ["Not modelled", NOT_MODELLED],
    ]


def _positions(rules: Mapping[str, Any]) -> str:
    levels, lots = rules["positions"], rules["lots_per_level"]
    most = levels * lots
    cap = rules["max_position"]
    if cap is not None:
        most = min(most, cap - cap % lots)
    step = "" if lots == 1 else f" in steps of {number(lots)}"
    return f"{DIRECTIONS[rules['direction']]}, at most {counted(most, 'contract')}{step}; market orders only"


def _delay(bars: int) -> str:
    if not bars:
        return "at the close of each bar, filled at the open of the next"
    late = counted(bars, "bar")
    return f"at the close of each bar, on what was known {late} earlier; filled at the open of the next bar"


def _close(rules: Mapping[str, Any]) -> str:
    held = "flat at the open of the last bar" if rules["flat_at_close"] else "positions are held over it"
    minutes = rules["no_entry_minutes"]
    entry = f"; no new, larger or reversed position in its last {counted(minutes, 'minute')}" if minutes else ""
    return held + entry


def _roll(roll_as: str) -> str:
    if roll_as == "spread":
        return "by a calendar spread at its own fee, for as many contracts as are held on both sides of it"
    return "out of the old contract and into the new one, each an ordinary side"


def _capital(usd_or_none: float | None) -> str:
    if usd_or_none is None:
        return "none is counted: losses are never stopped"
    return f"{usd(usd_or_none)} ¤ at the start of each window; with nothing left it trades no more"


def _limit(amount_usd: float | None, then: str) -> str:
    return "none" if amount_usd is None else f"{usd(amount_usd)} ¤, {then}"
