"""Forms of the greedy pass hold the same positions, and one that does not gives no ratio."""

import argparse
import functools

import jax
import numpy as np
import pytest
import rollouts
import world
from common import Report
from floors import Machine

MACHINE = Machine(1e12, 1e11)


@pytest.fixture
def report() -> Report:
    return Report("question", {}, None, {})


def passes(report: Report, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    """Rows by form, of a validation that is longer than the test months are."""
    monkeypatch.setattr(world, "TEST_BARS", 100)
    with jax.numpy_dtype_promotion("standard"):
        setting = rollouts.setting_of(1_500, 1, "float32")
        rollouts.passes(report, argparse.Namespace(quick=True), setting, MACHINE)
    return {row["form"]: row for row in report.rows}


@pytest.mark.slow
def test_all_forms_hold_the_same_positions(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = passes(report, monkeypatch)
    assert list(rows) == [rollouts.BAR_BY_BAR, *rollouts.FORMS]
    assert {row["flipped"] for row in rows.values()} == {0}
    assert all(row["times_faster"] > 0.0 for row in rows.values())


@pytest.mark.slow
def test_a_form_that_holds_other_positions_gives_no_ratio(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rollouts.positions_held

    @functools.wraps(right)
    def late(*given: object) -> object:
        return right(*given).at[:, -30:].set(0)

    monkeypatch.setattr(rollouts, "positions_held", late)
    rows = passes(report, monkeypatch)
    assert rows[rollouts.BAR_BY_BAR]["times_faster"] == 1.0
    wrong = [rows[form] for form in rollouts.FORMS]
    assert {row["times_faster"] for row in wrong} == {None}
    assert all(0 < row["flipped"] <= 30 for row in wrong)
    assert np.all(["holds other positions" in note for note in report.notes])
    assert len(report.notes) == 2
