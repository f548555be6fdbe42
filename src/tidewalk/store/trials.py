"""Ledger of trials: every configuration ever evaluated on a data set, one line each, only ever appended to.

How many trials were made decides what a good result is worth (`stats.inference.dsr`). Averaging over seeds adds no
trial; choosing the best seed does, and is then recorded as a configuration of its own.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidewalk.core.errors import StoreError
from tidewalk.store.layout import append_jsonl, read_jsonl


@dataclass(frozen=True)
class Trial:
    """One evaluation. The Sharpe ratio is per session, not annualised; None where it is undefined."""

    data_fingerprint: str
    config_hash: str
    model: str
    sharpe_per_session: float | None
    net_usd: float
    sessions: int
    when_iso: str


@dataclass(frozen=True)
class Ledger:
    """Trials in the order in which they were first made, and a warning for each line that could not be read."""

    trials: tuple[Trial, ...]
    warnings: tuple[str, ...]


def record_trial(
    ledger: Path,
    *,
    data_fingerprint: str,
    config_hash: str,
    model: str,
    sharpe_per_session: float | None,
    net_usd: float,
    sessions: int,
    when_iso: str,
) -> None:
    """Appends one trial, durably and in a single write, so that runs at the same time do not mix lines.

    Args:
        ledger: the file, made when missing.
        data_fingerprint: of the data evaluated on.
        config_hash: of everything that was chosen: settings, features, reward; not the seeds, unless one is picked.
        model: name of the algorithm.
        sharpe_per_session: out-of-sample Sharpe ratio per session, None where undefined.
        net_usd: out-of-sample P&L after costs.
        sessions: out-of-sample sessions.
        when_iso: time of the evaluation in UTC, ISO 8601.

    Raises:
        StoreError: a value that cannot be stored, or a failed write.
    """
    trial = Trial(data_fingerprint, config_hash, model, sharpe_per_session, net_usd, sessions, when_iso)
    append_jsonl(ledger, asdict(trial))


def _as_trial(record: Mapping[str, Any]) -> Trial | None:
    """The record as a trial, None when it is not one."""
    words = [record.get(key) for key in ("data_fingerprint", "config_hash", "model", "when_iso")]
    sharpe, net_usd, sessions = (record.get(key) for key in ("sharpe_per_session", "net_usd", "sessions"))
    is_trial = (
        set(record) == set(Trial.__dataclass_fields__)
        and all(isinstance(word, str) for word in words)
        and isinstance(sharpe, float | int | None)
        and isinstance(net_usd, float | int)
        and isinstance(sessions, int)
    )
    return Trial(**record) if is_trial else None


def read_ledger(ledger: Path) -> Ledger:
    """All trials; the same configuration on the same data counts once, with its latest figures.

    A missing file has none. A line that a crash cut short, or that is no trial, is left out and reported.
    """
    lines = read_jsonl(ledger)
    latest: dict[tuple[str, str], Trial] = {}
    warnings = list(lines.warnings)
    for record in lines.records:
        trial = _as_trial(record)
        if trial is None:
            warnings.append(f"{ledger}: a line is not a trial and was left out ({', '.join(record)})")
        else:
            latest[trial.data_fingerprint, trial.config_hash] = trial
    return Ledger(tuple(latest.values()), tuple(warnings))


def trials_for(ledger: Path, fingerprint: str) -> list[Trial]:
    """Trials on the data with this fingerprint; `read_ledger` also tells what could not be read."""
    return [trial for trial in read_ledger(ledger).trials if trial.data_fingerprint == fingerprint]


def deflation_inputs(trials: Sequence[Trial]) -> tuple[int, float | None]:
    """Number of trials, and standard deviation (ddof 1) of their Sharpe ratios per session.

    Trials without a Sharpe ratio count in the number. The deviation is None with fewer than two ratios.

    Raises:
        StoreError: there are no trials; the present run has to be recorded first.
    """
    if not trials:
        raise StoreError("trials: none recorded for these data; record the present run before its result is deflated.")
    ratios = [trial.sharpe_per_session for trial in trials if trial.sharpe_per_session is not None]
    spread = statistics.stdev(ratios) if len(ratios) > 1 else math.nan
    return len(trials), None if math.isnan(spread) else spread
