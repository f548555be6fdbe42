"""Ledger of trials: every configuration ever evaluated on a data set, one line each, only ever appended to.

How many trials were made decides what a good result is worth (`stats.inference.dsr`). Averaging over seeds adds no
trial; another root seed does, because the best of several could be shown, and so does everything else that was chosen.
Data that share sessions share luck, so trials on other bars of the symbol over some of the same sessions count too.

The ledger `trials.jsonl` lies beside the run folders, and each run folder keeps a copy of the lines on its data, so
that a ledger that was deleted is still counted from the runs. The session P&L of a trial lies in a file of its own,
named by its content, in a hidden folder beside the ledger, which no run can be named like.
"""

import hashlib
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidewalk.core.errors import StoreError
from tidewalk.core.words import counted
from tidewalk.store.layout import append_jsonl, plain_json, read_jsonl, write_bytes_atomic
from tidewalk.store.names import check_name
from tidewalk.store.tables import Table, checked, parquet_bytes, read_parquet

LEDGER = "trials.jsonl"
SESSIONS = ".trials"
# A trial that covers less of the sessions than this says too little about them, and would shorten all others.
MIN_COVERED = 0.8
_TABLE = Table({"trade_date": pl.Date(), "net_usd": pl.Float64()}, key=("trade_date",))
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Trial:
    """One evaluation. The Sharpe ratio is per session, not annualised; None where it is undefined.

    `symbol` is None in lines of versions that did not write it; `pnl_sha256` names the file of the session P&L.
    """

    data_fingerprint: str
    config_hash: str
    model: str
    sharpe_per_session: float | None
    net_usd: float
    sessions: int
    when_iso: str
    symbol: str | None = None
    pnl_sha256: str | None = None


@dataclass(frozen=True)
class Ledger:
    """Trials in the order in which they were first made, and a warning for each line that could not be read."""

    trials: tuple[Trial, ...]
    warnings: tuple[str, ...]
    files: frozenset[str | None] = frozenset()
    """Names of the session files of all lines, those of earlier figures of a configuration among them."""


@dataclass(frozen=True)
class Tried:
    """What was tried on some data.

    Attributes:
        trials: configurations evaluated on the data, or on other data of the symbol over some of the same sessions.
        elsewhere: further ones on other sessions of the symbol.
        warnings: lines that could not be read, and what was counted from elsewhere.
    """

    trials: tuple[Trial, ...]
    elsewhere: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Common:
    """Session P&L of several trials on the sessions that all of them have.

    Attributes:
        trade_days: dates as numpy `datetime64[D]`, shape [T].
        pnl_usd: net P&L, shape `[T, N]`.
        configs: config hash of each column.
        warnings: how many trials could not be used, and why.
    """

    trade_days: NDArray[Any]
    pnl_usd: NDArray[np.float64]
    configs: tuple[str, ...]
    warnings: tuple[str, ...]


def record_trial(root: Path, trial: Trial, trade_days: NDArray[Any], pnl_usd: NDArray[Any]) -> Trial:
    """Appends one trial to the ledger of `root`, durably and in a single write, after its session P&L.

    Runs that end at the same time do not mix lines, and never share a file of sessions unless it is the same to the
    last bit.

    Args:
        root: folder of the run folders.
        trial: what was evaluated; its config hash covers everything that was chosen.
        trade_days: date of each out-of-sample session, in order, shape [T].
        pnl_usd: net P&L of each, shape [T]; adds up to the trial's.

    Returns:
        The trial as it stands in the ledger.

    Raises:
        StoreError: a value that cannot be stored, sessions that contradict the trial, or a failed write.
    """
    plain_json(asdict(trial), LEDGER)
    days = pl.Series(np.asarray(trade_days, "datetime64[D]"), dtype=pl.Date)
    frame = pl.DataFrame({"trade_date": days, "net_usd": pl.Series(pnl_usd, dtype=pl.Float64)})
    folder = root / SESSIONS / check_name(trial.data_fingerprint, f"{LEDGER}: data_fingerprint")
    data = parquet_bytes(checked(folder, frame, _TABLE))
    if frame.height != trial.sessions or not math.isclose(frame["net_usd"].sum(), trial.net_usd, abs_tol=0.005):
        raise StoreError(
            f"{LEDGER}: the trial has {trial.sessions} sessions and {trial.net_usd} USD, its sessions are "
            f"{frame.height} and {frame['net_usd'].sum()} USD."
        )
    stored = replace(trial, pnl_sha256=hashlib.sha256(data).hexdigest())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot create: {error.strerror}.") from error
    write_bytes_atomic(_sessions_file(root, stored), data)
    append_jsonl(root / LEDGER, asdict(stored))
    return stored


def _sessions_file(root: Path, trial: Trial) -> Path:
    return root / SESSIONS / trial.data_fingerprint / f"{trial.pnl_sha256}.parquet"


def _as_trial(record: Mapping[str, Any]) -> Trial | None:
    """The record as a trial, None when it is not one. Keys of a later version are left aside: it was a trial too."""
    words = [record.get(key) for key in ("data_fingerprint", "config_hash", "model", "when_iso")]
    sharpe, net_usd, sessions = (record.get(key) for key in ("sharpe_per_session", "net_usd", "sessions"))
    symbol, digest = record.get("symbol"), record.get("pnl_sha256")
    is_trial = (
        "sharpe_per_session" in record
        and all(isinstance(word, str) for word in words)
        and _is_number(sharpe, or_none=True)
        and _is_number(net_usd)
        and isinstance(sessions, int)
        and not isinstance(sessions, bool)
        and isinstance(symbol, str | None)
        and (digest is None or (isinstance(digest, str) and _SHA256.fullmatch(digest) is not None))
    )
    return Trial(**{key: record[key] for key in Trial.__dataclass_fields__ if key in record}) if is_trial else None


def _is_number(value: Any, *, or_none: bool = False) -> bool:
    return (or_none and value is None) or (isinstance(value, float | int) and not isinstance(value, bool))


def read_ledger(ledger: Path) -> Ledger:
    """All trials; the same configuration on the same data counts once, with its latest figures.

    A missing file has none. A line that a crash cut short, or that is no trial, is left out and reported.
    """
    lines = read_jsonl(ledger)
    latest: dict[tuple[str, str], Trial] = {}
    files: set[str | None] = set()
    warnings = list(lines.warnings)
    for record in lines.records:
        trial = _as_trial(record)
        if trial is None:
            warnings.append(f"{ledger}: a line is not a trial and was left out ({', '.join(record)})")
        else:
            latest[trial.data_fingerprint, trial.config_hash] = trial
            files.add(trial.pnl_sha256)
    return Ledger(tuple(latest.values()), tuple(warnings), frozenset(files))


def write_copy(path: Path, trials: Sequence[Trial]) -> None:
    """Replaces a run folder's copy of the ledger by these trials, at once and durably."""
    lines = [json.dumps(plain_json(asdict(trial), path.name), allow_nan=False) for trial in trials]
    write_bytes_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def tried(root: Path, fingerprint: str, symbol: str, trade_days: NDArray[Any]) -> Tried:
    """All trials ever made on these data, from the ledger of `root` and the copies in its runs.

    Data that share sessions share luck: one bar more, five-minute bars in place of minutes, or another download start
    no new count. So trials on other data of the symbol count too where their sessions meet these, or cannot be read
    any more; settings that were tried on both count once.

    Args:
        root: folder of the run folders.
        fingerprint: of the data.
        symbol: of the study.
        trade_days: its out-of-sample sessions, as for `record_trial`.
    """
    days = pl.Series(np.asarray(trade_days, "datetime64[D]"), dtype=pl.Date)
    books = [read_ledger(root / LEDGER), *(_read_copy(path) for path in sorted(root.glob(f"*/{LEDGER}")))]
    found: dict[tuple[str, str], Trial] = {}
    for trial in (trial for book in books for trial in book.trials):
        found.setdefault((trial.data_fingerprint, trial.config_hash), trial)
    own = tuple(trial for trial in found.values() if trial.data_fingerprint == fingerprint)
    others = [t for t in found.values() if t.symbol == symbol and t.data_fingerprint != fingerprint]
    known = {_settings(trial) for trial in own}
    shared = {_settings(t): t for t in others if _settings(t) not in known and _may_share(root, t, days)}
    elsewhere = len({_settings(trial) for trial in others} - known - set(shared))
    warnings = [text for book in books for text in book.warnings]
    files = {path.stem for path in (root / SESSIONS / fingerprint).glob("*.parquet")}
    lost = files.difference(*(book.files for book in books))
    if lost:
        warnings.append(
            f"trials: the sessions of {counted(len(lost), 'trial')} on these data are in {root / SESSIONS}, but no "
            "ledger has their lines: these were deleted, or a run died writing one. They are not counted in N."
        )
    if shared or elsewhere:
        warnings.append(
            f"trials: N counts {len(own)} on these bars and {len(shared)} on other bars of {symbol} over some of the "
            f"same sessions; not counted: {elsewhere or 'none'} on other sessions of it."
        )
    return Tried((*own, *shared.values()), elsewhere, tuple(warnings))


def _settings(trial: Trial) -> str:
    """Hash of the settings alone: what follows in the config hash is of the market that they were tried on."""
    return trial.config_hash.partition("-")[0]


def _may_share(root: Path, trial: Trial, days: pl.Series) -> bool:
    """Whether a trial was evaluated on any of these days; where its sessions cannot be read, it may have been."""
    sessions = _read_sessions(root, trial)
    return isinstance(sessions, str) or _covered(sessions, days) > 0.0


def _read_copy(path: Path) -> Ledger:
    """A run's copy of the ledger; one that cannot be read at all is somebody else's trouble, and a warning here."""
    try:
        return read_ledger(path)
    except StoreError as error:
        return Ledger((), (str(error),))


def common_sessions(root: Path, trials: Sequence[Trial], own: str) -> Common:
    """Session P&L of all trials side by side, on the sessions that they share with the trial `own`.

    Left out, and counted in a warning, are trials without stored sessions, with a damaged or missing file, or that
    cover less than 80 % of the sessions of `own`.

    Args:
        root: folder of the run folders.
        trials: on the same data.
        own: config hash of the trial that all others are compared with.
    """
    records: dict[str, pl.DataFrame] = {}
    problems: Counter[str] = Counter()
    for trial in trials:
        found = _read_sessions(root, trial)
        if isinstance(found, str):
            problems[found] += 1
        else:
            records[trial.config_hash] = found
    days = records[own]["trade_date"] if own in records else pl.Series([], dtype=pl.Date)
    kept = {name: frame for name, frame in records.items() if _covered(frame, days) >= MIN_COVERED}
    if len(days) and len(records) > len(kept):
        problems[f"cover less than {MIN_COVERED:.0%} of the sessions"] = len(records) - len(kept)
    for frame in kept.values():
        days = days.filter(days.is_in(frame["trade_date"].implode()))
    shared = pl.col("trade_date").is_in(days.implode())
    columns = [frame.filter(shared)["net_usd"].to_numpy() for frame in kept.values()]
    shown = ", ".join(f"{count} {problem}" for problem, count in problems.items())
    said = f"trials: of {counted(len(trials), 'trial')} {len(kept)} can be compared session by session; {shown}."
    return Common(
        days.to_numpy().astype("datetime64[D]"),
        np.stack(columns, axis=1) if columns else np.empty((0, 0)),
        tuple(kept),
        (said,) if shown else (),
    )


def _covered(frame: pl.DataFrame, days: pl.Series) -> float:
    """Share of the days that the sessions cover; 0 without days."""
    return float(days.is_in(frame["trade_date"].implode()).to_numpy().mean()) if len(days) else 0.0


def _read_sessions(root: Path, trial: Trial) -> pl.DataFrame | str:
    """Session P&L of a trial in time order, or why there is none."""
    if trial.pnl_sha256 is None:
        return "were recorded without their sessions"
    try:
        check_name(trial.data_fingerprint, LEDGER)
        path = _sessions_file(root, trial)
        if not path.exists():
            return "have lost the file of their sessions"
        frame = read_parquet(path, _TABLE, trial.pnl_sha256).sort("trade_date")
    except StoreError:
        return "have a damaged file of their sessions"
    adds_up = frame.height == trial.sessions and math.isclose(frame["net_usd"].sum(), trial.net_usd, abs_tol=0.005)
    return frame if adds_up else "have sessions that do not add up to their line"


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
