"""Ledger of trials: counted honestly, safe against crashes and against other runs."""

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidewalk.core.errors import StoreError
from tidewalk.store import trials
from tidewalk.store.trials import Ledger, Trial, common_sessions, deflation_inputs, read_ledger, record_trial, tried

FIRST = Trial("data-a", "config-1", "dqn", 0.05, 1200.5, 240, "2025-01-02T03:04:05+00:00", "ES.FUT")


def days_and_pnl(trial: Trial, first: str = "2024-01-01") -> tuple[np.ndarray, np.ndarray]:
    """Sessions that add up to the trial, different for each configuration."""
    pnl = np.random.default_rng(len(trial.config_hash)).standard_normal(trial.sessions)
    pnl += (trial.net_usd - pnl.sum()) / trial.sessions
    return np.datetime64(first, "D") + np.arange(trial.sessions), pnl


DAYS = days_and_pnl(FIRST)[0]


def record(root: Path, trial: Trial, first: str = "2024-01-01") -> Trial:
    return record_trial(root, trial, *days_and_pnl(trial, first))


def sessions_file(root: Path, trial: Trial) -> Path:
    return root / trials.SESSIONS / trial.data_fingerprint / f"{trial.pnl_sha256}.parquet"


def test_trials_come_back_in_order_with_their_sessions(tmp_path: Path) -> None:
    undefined = replace(FIRST, config_hash="config-2", sharpe_per_session=None)
    stored = [record(tmp_path, trial) for trial in (FIRST, undefined, replace(FIRST, data_fingerprint="data-b"))]
    files = frozenset(trial.pnl_sha256 for trial in stored)
    assert read_ledger(tmp_path / "trials.jsonl") == Ledger(tuple(stored), (), files)
    assert [replace(trial, pnl_sha256=None) for trial in stored[:2]] == [FIRST, undefined]
    assert tried(tmp_path, "data-a", "ES.FUT", DAYS).trials == tuple(stored[:2])
    assert tried(tmp_path, "data-c", "ES.FUT", DAYS[:0]).trials == ()
    assert all(sessions_file(tmp_path, trial).is_file() for trial in stored)


def test_days_may_be_counted_from_1970(tmp_path: Path) -> None:
    days, pnl = days_and_pnl(FIRST)
    for count_type in (np.int32, np.int64):
        stored = record_trial(tmp_path, FIRST, days.astype(np.int64).astype(count_type), pnl)
        assert stored == record(tmp_path, FIRST)


def test_missing_ledger_is_empty(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "trials.jsonl") == Ledger((), ())


def test_same_configuration_on_the_same_data_counts_once_with_its_latest_figures(tmp_path: Path) -> None:
    again = replace(FIRST, net_usd=-3.0, when_iso="2025-02-02T03:04:05+00:00")
    for trial in (FIRST, replace(FIRST, config_hash="config-2"), again):
        record(tmp_path, trial)
    found = tried(tmp_path, "data-a", "ES.FUT", DAYS).trials
    assert [(trial.config_hash, trial.net_usd) for trial in found] == [("config-1", -3.0), ("config-2", 1200.5)]
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 3  # nothing is ever removed


def test_other_data_over_the_same_sessions_begin_no_new_count(tmp_path: Path) -> None:
    # A bar less, bars of another length, another download: the fingerprint is new, the sessions are the same.
    for data, config, symbol, first in (
        ("a", "1-m1", "ES", "2024-01-01"),
        ("a", "2-m1", "ES", "2024-01-01"),
        ("b", "1-m2", "ES", "2024-01-01"),  # settings that were tried on the first data too
        ("b", "3-m2", "ES", "2024-08-27"),  # shares its first session with the last of these
        ("c", "3-m3", "ES", "2024-02-01"),  # the same settings on still other data
        ("c", "4-m3", "ES", "2025-01-01"),  # other sessions
        ("d", "5-m4", "NQ", "2024-01-01"),
    ):
        record(tmp_path, replace(FIRST, data_fingerprint=data, config_hash=config, symbol=symbol), first)
    found = tried(tmp_path, "a", "ES", DAYS)
    assert [trial.config_hash for trial in found.trials] == ["1-m1", "2-m1", "3-m3"]
    assert found.elsewhere == 1
    assert found.warnings == (
        "trials: N counts 2 on these bars and 1 on other bars of ES over some of the same sessions; not counted: 1 on "
        "other sessions of it.",
    )
    assert tried(tmp_path, "d", "NQ", DAYS).warnings == ()
    # Where its sessions are lost, a trial may have been on these.
    late = next(trial for trial in read_ledger(tmp_path / "trials.jsonl").trials if trial.config_hash == "4-m3")
    sessions_file(tmp_path, late).unlink()
    assert late in tried(tmp_path, "a", "ES", DAYS).trials


def test_sessions_without_a_line_betray_a_deleted_ledger(tmp_path: Path) -> None:
    for config in ("1", "2", "3"):
        record(tmp_path, replace(FIRST, config_hash=config * int(config)))
    record(tmp_path, replace(FIRST, config_hash="1", net_usd=9.0))  # earlier figures are named by their line
    assert tried(tmp_path, "data-a", "ES.FUT", DAYS).warnings == ()
    ledger = tmp_path / "trials.jsonl"
    ledger.write_text(ledger.read_text().splitlines()[-1] + "\n")
    found = tried(tmp_path, "data-a", "ES.FUT", DAYS)
    assert len(found.trials) == 1
    assert "the sessions of 3 trials on these data" in found.warnings[0]
    assert "no ledger has their lines: these were deleted, or a run died writing one" in found.warnings[0]


def test_a_deleted_ledger_is_counted_from_the_copies_in_the_runs(tmp_path: Path) -> None:
    stored = [record(tmp_path, replace(FIRST, config_hash=f"config-{n}")) for n in range(3)]
    for run, kept in (("run-1", stored[:1]), ("run-2", stored)):
        (tmp_path / run).mkdir()
        trials.write_copy(tmp_path / run / "trials.jsonl", kept)
    whole = tried(tmp_path, "data-a", "ES.FUT", DAYS)
    assert whole.trials == tuple(stored)
    (tmp_path / "trials.jsonl").unlink()
    lost = tried(tmp_path, "data-a", "ES.FUT", DAYS)
    assert sorted(lost.trials, key=lambda trial: trial.config_hash) == list(whole.trials)
    (tmp_path / "run-3" / "trials.jsonl").mkdir(parents=True)
    assert "run-3/trials.jsonl: cannot read" in tried(tmp_path, "data-a", "ES.FUT", DAYS).warnings[0]
    # The sessions are found too, and the ledger wins over an older copy.
    assert common_sessions(tmp_path, lost.trials, "config-0").pnl_usd.shape == (240, 3)
    newer = record(tmp_path, replace(FIRST, config_hash="config-1", net_usd=7.0))
    assert newer in tried(tmp_path, "data-a", "ES.FUT", DAYS).trials


def test_torn_last_line_is_reported_and_repaired_by_the_next_trial(tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    first, second = record(tmp_path, FIRST), replace(FIRST, config_hash="config-2")
    record(tmp_path, second)
    ledger.write_bytes(ledger.read_bytes()[:-20])
    found = read_ledger(ledger)
    assert found.trials == (first,)
    assert len(found.warnings) == 1
    assert "trials.jsonl: line 2 is cut short and was left out" in found.warnings[0]
    assert tried(tmp_path, "data-a", "ES.FUT", DAYS).warnings == found.warnings
    again = record(tmp_path, second)
    assert read_ledger(ledger).trials == (first, again)


@pytest.mark.parametrize(
    "change",
    [
        {"data_fingerprint": 1},
        {"sharpe_per_session": "0"},
        {"sharpe_per_session": True},
        {"net_usd": None},
        {"sessions": 2.5},
        {"symbol": 3},
        {"pnl_sha256": "../../etc/passwd"},
    ],
)
def test_line_that_is_no_trial_is_reported(change: dict[str, Any], tmp_path: Path) -> None:
    ledger = tmp_path / "trials.jsonl"
    ledger.write_text(json.dumps(asdict(FIRST) | change) + '\n{"config_hash": "x"}\n')
    stored = record(tmp_path, FIRST)
    found = read_ledger(ledger)
    assert found.trials == (stored,)
    assert len(found.warnings) == 2
    assert "a line is not a trial and was left out (config_hash)" in found.warnings[1]


def test_lines_of_other_versions_count(tmp_path: Path) -> None:
    older = {key: value for key, value in asdict(FIRST).items() if key not in ("symbol", "pnl_sha256")}
    newer = asdict(FIRST) | {"config_hash": "config-2", "reward": "log"}
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (older, newer)))
    found = tried(tmp_path, "data-a", "ES.FUT", DAYS)
    assert [trial.config_hash for trial in found.trials] == ["config-1", "config-2"]
    assert found.warnings == ()
    common = common_sessions(tmp_path, found.trials, "config-1")
    assert common.warnings == (
        "trials: of 2 trials 0 can be compared session by session; 2 were recorded without their sessions.",
    )
    assert common.pnl_usd.size == 0


def test_undefined_figures_are_null_and_never_nan(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"trials\.jsonl\.sharpe_per_session is nan"):
        record(tmp_path, replace(FIRST, sharpe_per_session=float("nan")))
    assert not any(tmp_path.iterdir())


def test_sessions_that_contradict_the_trial_are_refused(tmp_path: Path) -> None:
    days, pnl = days_and_pnl(FIRST)
    for wrong_days, wrong_pnl, words in (
        (days[1:], pnl[1:], "240 sessions and 1200.5 USD, its sessions are 239"),
        (days[1:], np.append(pnl[2:], pnl[:2].sum()), "its sessions are 239 and 1200"),
        (days, pnl + 1.0, "its sessions are 240 and 1440.5"),
        (np.repeat(days[:120], 2), pnl, "rows repeat trade_date"),
        (days, np.append(pnl[:-1], np.nan), "NaN or infinity"),
    ):
        with pytest.raises(StoreError, match=words):
            record_trial(tmp_path, FIRST, wrong_days, wrong_pnl)
    with pytest.raises(StoreError, match=r"data_fingerprint: the name '\.\./a' cannot be used"):
        record(tmp_path, replace(FIRST, data_fingerprint="../a"))
    assert not any(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / trials.SESSIONS).write_text("in the way")
    with pytest.raises(StoreError, match="cannot create"):
        record(tmp_path, FIRST)


def test_runs_at_the_same_time_lose_no_trial(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from pathlib import Path; from tidewalk.store.trials import Trial, record_trial\n"
        "days = np.datetime64('2024-01-01') + np.arange(5)\n"
        "for n in range(25):\n"
        "    name, pnl = (sys.argv[2] + '-' + str(n) if n % 5 else 'shared'), np.full(5, float(n))\n"
        "    trial = Trial('d', name, 'm' * 400, 0.1, 5.0 * n, 5, 't', 'ES')\n"
        "    record_trial(Path(sys.argv[1]), trial, days, pnl)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, tmp_path, name]) for name in "abc"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    found = tried(tmp_path, "d", "ES", DAYS)
    assert found.warnings == ()
    names = {f"{name}-{n}" for name in "abc" for n in range(25) if n % 5} | {"shared"}
    assert {trial.config_hash for trial in found.trials} == names
    # Every trial has the sessions that add up to it, also the one that all three wrote with other figures.
    common = common_sessions(tmp_path, found.trials, "shared")
    assert common.warnings == ()
    sums = dict(zip(common.configs, common.pnl_usd.sum(axis=0), strict=True))
    assert sums == {trial.config_hash: trial.net_usd for trial in found.trials}


def test_common_sessions_stand_side_by_side(tmp_path: Path) -> None:
    stored = [record(tmp_path, replace(FIRST, config_hash="c" * n), f"2024-01-{n:02d}") for n in (1, 2, 3)]
    found = common_sessions(tmp_path, stored, "c")
    assert found.configs == ("c", "cc", "ccc")
    assert found.warnings == ()
    # They begin on the 1st, 2nd and 3rd: 238 days are shared.
    assert found.pnl_usd.shape == (238, 3)
    assert found.trade_days[0] == np.datetime64("2024-01-03")
    assert (np.diff(found.trade_days).astype(int) == 1).all()
    for column, (trial, begins) in enumerate(zip(stored, (2, 1, 0), strict=True)):
        assert found.pnl_usd[:, column].tolist() == days_and_pnl(trial)[1][begins : begins + 238].tolist()


def test_trials_that_cannot_be_compared_are_left_out_and_counted(tmp_path: Path) -> None:
    own, lost, damaged = (record(tmp_path, replace(FIRST, config_hash="c" * n)) for n in (1, 2, 3))
    late = record(tmp_path, replace(FIRST, config_hash="late"), "2024-03-01")
    short = record(tmp_path, replace(FIRST, config_hash="shorter", sessions=100))
    old, edited = replace(FIRST, config_hash="old"), replace(own, config_hash="edited", net_usd=own.net_usd + 1.0)
    sessions_file(tmp_path, lost).unlink()
    data = bytearray(sessions_file(tmp_path, damaged).read_bytes())
    data[len(data) // 2] ^= 1
    sessions_file(tmp_path, damaged).write_bytes(bytes(data))
    everything = (own, lost, damaged, late, short, old, edited)
    found = common_sessions(tmp_path, everything, "c")
    assert found.configs == ("c",)
    assert found.pnl_usd.shape == (240, 1)
    assert found.warnings == (
        "trials: of 7 trials 1 can be compared session by session; 1 have lost the file of their sessions, 1 have a "
        "damaged file of their sessions, 1 were recorded without their sessions, 1 have sessions that do not add up to "
        "their line, 2 cover less than 80% of the sessions.",
    )
    # N is a matter of the ledger, not of the files.
    assert len(tried(tmp_path, "data-a", "ES.FUT", DAYS).trials) == 5
    assert common_sessions(tmp_path, everything, "cc").pnl_usd.size == 0


def test_deflation_inputs() -> None:
    ratios = [0.05, -0.01, 0.02]
    made = [replace(FIRST, config_hash=str(ratio), sharpe_per_session=ratio) for ratio in ratios]
    undefined = replace(FIRST, sharpe_per_session=None)
    assert deflation_inputs(made) == (3, statistics.stdev(ratios))
    assert deflation_inputs([*made, undefined]) == (4, statistics.stdev(ratios))
    assert deflation_inputs(made[:2]) == (2, statistics.stdev(ratios[:2]))
    assert deflation_inputs([FIRST]) == (1, None)
    assert deflation_inputs([FIRST, undefined]) == (2, None)
    with pytest.raises(StoreError, match="record the present run before"):
        deflation_inputs([])
