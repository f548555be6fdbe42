"""Ledger of trials: counted honestly, safe against crashes and against other runs."""

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidewalk.core.errors import StoreError
from tidewalk.store.trials import Ledger, Trial, deflation_inputs, read_ledger, record_trial, trials_for

FIRST = Trial("data-a", "config-1", "dqn", 0.05, 1200.5, 240, "2025-01-02T03:04:05+00:00")


def record(ledger: Path, trial: Trial) -> None:
    record_trial(ledger, **vars(trial))


def test_trials_come_back_in_order(tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    undefined = replace(FIRST, config_hash="config-2", sharpe_per_session=None)
    trials = [FIRST, undefined, replace(FIRST, data_fingerprint="data-b")]
    for trial in trials:
        record(ledger, trial)
    assert read_ledger(ledger) == Ledger(tuple(trials), ())
    assert trials_for(ledger, "data-a") == trials[:2]
    assert trials_for(ledger, "data-b") == trials[2:]
    assert trials_for(ledger, "data-c") == []


def test_missing_ledger_is_empty(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "trials.jsonl") == Ledger((), ())


def test_same_configuration_on_the_same_data_counts_once_with_its_latest_figures(tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    again = replace(FIRST, net_usd=-3.0, when_iso="2025-02-02T03:04:05+00:00")
    other = replace(FIRST, config_hash="config-2")
    for trial in (FIRST, other, again):
        record(ledger, trial)
    assert trials_for(ledger, "data-a") == [again, other]
    assert len(ledger.read_text().splitlines()) == 3  # nothing is ever removed


def test_torn_last_line_is_reported_and_repaired_by_the_next_trial(tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    second = replace(FIRST, config_hash="config-2")
    record(ledger, FIRST)
    record(ledger, second)
    ledger.write_bytes(ledger.read_bytes()[:-20])
    found = read_ledger(ledger)
    assert found.trials == (FIRST,)
    assert len(found.warnings) == 1
    assert "trials.jsonl: line 2 is cut short and was left out" in found.warnings[0]
    record(ledger, second)
    assert read_ledger(ledger).trials == (FIRST, second)


@pytest.mark.parametrize(
    "change",
    [{"data_fingerprint": 1}, {"sharpe_per_session": "0"}, {"net_usd": None}, {"sessions": 2.5}, {"extra": 1}],
)
def test_line_that_is_no_trial_is_reported(change: dict[str, Any], tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    ledger.write_text(json.dumps(vars(FIRST) | change) + '\n{"config_hash": "x"}\n')
    record(ledger, FIRST)
    found = read_ledger(ledger)
    assert found.trials == (FIRST,)
    assert len(found.warnings) == 2
    assert "a line is not a trial and was left out (config_hash)" in found.warnings[1]


def test_undefined_figures_are_null_and_never_nan(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"trials\.jsonl\.sharpe_per_session is nan"):
        record(tmp_path / "trials.jsonl", replace(FIRST, sharpe_per_session=float("nan")))
    assert not (tmp_path / "trials.jsonl").exists()


def test_runs_at_the_same_time_lose_no_trial(tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    code = (
        "import sys; from pathlib import Path; from tidewalk.store.trials import record_trial\n"
        "for n in range(40): record_trial(Path(sys.argv[1]), data_fingerprint='d', model='m' * 400,"
        " config_hash=sys.argv[2] + '-' + str(n), sharpe_per_session=0.1, net_usd=1.0, sessions=5, when_iso='t')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, ledger, name]) for name in "abc"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    found = read_ledger(ledger)
    assert found.warnings == ()
    assert {trial.config_hash for trial in found.trials} == {f"{name}-{n}" for name in "abc" for n in range(40)}


def test_deflation_inputs() -> None:
    ratios = [0.05, -0.01, 0.02]
    trials = [replace(FIRST, config_hash=str(ratio), sharpe_per_session=ratio) for ratio in ratios]
    undefined = replace(FIRST, sharpe_per_session=None)
    assert deflation_inputs(trials) == (3, statistics.stdev(ratios))
    assert deflation_inputs([*trials, undefined]) == (4, statistics.stdev(ratios))
    assert deflation_inputs(trials[:2]) == (2, statistics.stdev(ratios[:2]))
    assert deflation_inputs([FIRST]) == (1, None)
    assert deflation_inputs([FIRST, undefined]) == (2, None)
    with pytest.raises(StoreError, match="record the present run before"):
        deflation_inputs([])
