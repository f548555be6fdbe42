"""What a run folder holds, read once for the report; a file that is not there (yet) leaves its part empty."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from tidewalk.store import layout, results

Content = TypeVar("Content")


@dataclass(frozen=True)
class RunRecord:
    """The files of one run folder, parsed; empty where a file is absent, and then its name is in `missing`."""

    name: str
    status: str
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]
    windows: tuple[Mapping[str, Any], ...]
    uncovered: str | None
    metrics: tuple[Mapping[str, Any], ...]
    equity: pl.DataFrame
    trades: pl.DataFrame
    members: pl.DataFrame
    config_text: str
    config: Mapping[str, Any]
    missing: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What the readers assumed, dropped or counted, as the manifest keeps it."""
        data = self.manifest.get("data")
        places = [self.manifest, data if isinstance(data, Mapping) else {}]
        return [str(text) for place in places for key in ("notes", "warnings") for text in place.get(key) or []]

    @property
    def sessions_span(self) -> tuple[str, str] | None:
        """ISO dates of the first and the last out-of-sample session."""
        if self.equity.is_empty():
            return None
        return str(self.equity["trade_date"].min()), str(self.equity["trade_date"].max())


def read_run(run_dir: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        StoreError: the folder does not exist, holds no run, or one of its files is damaged.
    """
    run = layout.open_run(run_dir)
    manifest = layout.read_manifest(run)
    summary = _if_there(run.summary, lambda: results.read_summary(run), {})
    windows = _if_there(run.windows, lambda: results.read_windows(run), {})
    metrics = results.read_metrics(run)
    config_text = _if_there(run.config, lambda: layout.read_bytes(run.config).decode(errors="replace"), "")
    expected = (run.summary, run.windows, run.metrics, run.equity, run.trades, run.members)
    return RunRecord(
        name=str(summary.get("run") or run_dir.resolve().name),
        status=str(summary.get("status") or manifest.get("status")),
        summary=summary,
        manifest=manifest,
        windows=tuple(windows.get("windows") or ()),
        uncovered=windows.get("uncovered"),
        metrics=metrics.records,
        equity=_if_there(run.equity, lambda: results.read_equity(run), pl.DataFrame(schema=results.EQUITY.schema)),
        trades=_if_there(run.trades, lambda: results.read_trades(run), pl.DataFrame(schema=results.TRADES.schema)),
        members=_if_there(run.members, lambda: results.read_members(run), pl.DataFrame(schema=results.MEMBERS.schema)),
        config_text=config_text,
        config=_toml(config_text),
        missing=tuple(path.name for path in expected if not path.is_file()),
        problems=tuple(text.replace(f"{run.root}/", "") for text in (*metrics.warnings, *results.verify_results(run))),
    )


def find(record: Mapping[str, Any], key: str) -> Any:
    """First value under `key` at any depth of a nested record, None where there is none."""
    if key in record:
        return record[key]
    inner = (find(value, key) for value in record.values() if isinstance(value, Mapping))
    return next((value for value in inner if value is not None), None)


def _if_there(path: Path, read: Callable[[], Content], absent: Content) -> Content:
    return read() if path.is_file() else absent


def _toml(text: str) -> Mapping[str, Any]:
    """The configuration, parsed for its amounts; nothing where it is no TOML: the page shows the text in any case."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
