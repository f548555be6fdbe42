"""The whole job: no ratio where either side has not learned, and other members reckoned from those that were timed."""

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import whole_job
from common import Report
from whole_job import Sizes

OPTIONS = argparse.Namespace(
    quick=False, full=False, sb3_device="cpu", sb3_members=2, at_once_members=6, predict_members=1
)


@pytest.fixture
def report() -> Report:
    return Report("question", {}, None, {})


def learning(monkeypatch: pytest.MonkeyPatch, report: Report, own_usd: float, sb3_usd: float) -> bool:
    """The check with results that are given; the best policy earns 1,000 USD."""
    leg = SimpleNamespace(costs=SimpleNamespace(side_ticks=0.0, tick_value_usd=1.0))
    study = SimpleNamespace(legs=(leg,), windows=SimpleNamespace(test=np.array([[0, 1000]])))
    for name, value in {
        "made": None,
        "write_job": None,
        "train": 0.0,
        "check_books": None,
        "study_of": study,
        "tidewalk_test_usd": own_usd,
        "run_sb3": (0.0, [{"test_net_usd": sb3_usd}] * 2),
    }.items():
        monkeypatch.setattr(whole_job, name, lambda *_, value=value: value)
    synthetic = "tidewalk.data.sample.synthetic.planted_mean_ticks_per_bar"
    monkeypatch.setattr(synthetic, lambda *_: 1.0)
    return whole_job.both_learn(report, OPTIONS, Path("nowhere"))


def test_both_have_to_learn(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    assert learning(monkeypatch, report, 900.0, 850.0)
    assert "withheld" not in report.notes[-1]


@pytest.mark.parametrize("usd", [(500.0, 900.0), (900.0, 500.0), (float("nan"), 900.0), (900.0, float("nan"))])
def test_a_ratio_is_withheld_where_one_has_not(
    monkeypatch: pytest.MonkeyPatch, report: Report, usd: tuple[float, float]
) -> None:
    assert not learning(monkeypatch, report, *usd)
    assert "a ratio is withheld" in report.notes[-1]


def test_the_whole_is_reckoned_from_the_members_that_were_timed(
    monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    """56 members in 4 processes: six of 2 s each took 4 s, of which 1 s was the start of the processes."""
    found = [{"seconds": 2.0, "test_net_usd": 1.0}] * 6
    asked: list[list[int]] = []
    monkeypatch.setattr(whole_job, "members_of", lambda _: 56)
    monkeypatch.setattr(whole_job, "study_of", lambda *_: None)
    monkeypatch.setattr(whole_job, "check_books", lambda *_: None)
    monkeypatch.setattr(whole_job, "run_sb3", lambda *given: asked.append(given[3]) or (4.0, found))
    whole_job.by_sb3(report, OPTIONS, Path("nowhere"), Sizes(), (4, "batch"), {"cold": 10.0, "warm": 2.9})
    (row,) = report.rows
    assert len(asked[0]) == 6
    assert row["how"] == "reckoned from 6 of 56 members"
    assert row["whole_s"] == pytest.approx(1.0 + 2.0 * 56 / 4)
    assert (row["times_cold"], row["times_warm"]) == (pytest.approx(2.9), pytest.approx(10.0))


def test_without_learning_a_row_has_no_ratio(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(whole_job, "members_of", lambda _: 2)
    monkeypatch.setattr(whole_job, "study_of", lambda *_: None)
    monkeypatch.setattr(whole_job, "check_books", lambda *_: None)
    monkeypatch.setattr(whole_job, "run_sb3", lambda *_: (4.0, [{"seconds": 2.0, "test_net_usd": 1.0}] * 2))
    whole_job.by_sb3(report, OPTIONS, Path("nowhere"), Sizes(), (1, "batch"), {})
    assert not {name for name in report.rows[0] if name.startswith("times_")}
    assert report.rows[0]["how"] == "measured"
