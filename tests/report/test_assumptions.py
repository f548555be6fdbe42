"""Rules and limits in words."""

import pytest

from report.made_up_run import RULES
from tidewalk.report.assumptions import assumption_rows


def words(**rules):
    return dict(assumption_rows(RULES | rules))


def test_the_rules_of_the_run_in_words():
    rows = words()
    assert rows["Positions"] == "long and short, at most 1 contract; market orders only"
    assert rows["Decision"] == "at the close of each bar, filled at the open of the next"
    assert rows["Close of the session"] == "positions are held over it"
    assert rows["Daily loss limit"] == "500 ¤, then flat until the next session"
    assert rows["Trailing drawdown limit"] == "none"
    assert "partial fills" in rows["Not modelled"]
    assert assumption_rows({}) == []


@pytest.mark.parametrize(
    ("rules", "row", "says"),
    [
        (
            {"direction": "long", "positions": 3, "lots_per_level": 2},
            "Positions",
            "long only, at most 6 contracts in st",
        ),
        ({"positions": 3, "lots_per_level": 2, "max_position": 5}, "Positions", "at most 4 contracts in steps of 2"),
        ({"decision_delay": 1}, "Decision", "on what was known 1 bar earlier"),
        ({"decision_delay": 3}, "Decision", "on what was known 3 bars earlier"),
        ({"flat_at_close": True, "no_entry_minutes": 15}, "Close of the session", "position in its last 15 minutes"),
        ({"roll_as": "spread"}, "Roll", "by a calendar spread at its own fee"),
        ({"capital_usd": 25_000.0}, "Initial capital", "25,000 ¤ at the start of each window"),
        ({"trailing_drawdown_usd": 2000.0}, "Trailing drawdown limit", "2,000 ¤, then flat to the end of the window"),
    ],
)
def test_every_rule_changes_its_words(rules, row, says):
    assert says in words(**rules)[row]
