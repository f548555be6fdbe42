"""Counted nouns and money in sentences."""

import pytest

from tidewalk.core.words import are, cost, counted


def test_one_is_singular_and_all_else_plural():
    assert [counted(n, "window") for n in (0, 1, 2, 1234)] == ["0 windows", "1 window", "2 windows", "1,234 windows"]
    assert counted(2, "fuss", "fusses") == "2 fusses"
    assert (are(0), are(1), are(2)) == ("are", "is", "are")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (8.5, "8.50"), (5.595, "5.595"), (0.5 * 6.25 + 2.47, "5.595"), (5.6, "5.60"), (1234.5, "1,234.50")],
)
def test_a_cost_keeps_its_half_cent(value, text):
    assert cost(value) == text
