"""What a run folder holds, read once for the report; a file that is not there (yet) leaves its part empty."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from tidewalk.store import layout, quality, results
from tidewalk.store.summary import read_summary
from tidewalk.store.tables import Table

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
    fills: pl.DataFrame
    trades: pl.DataFrame
    members: pl.DataFrame
    cost_surface: pl.DataFrame
    quality: tuple[Mapping[str, Any], ...]
    """What data_quality.json says of each symbol: `symbol`, `files`, `findings`."""
    config_text: str
    missing: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def symbols(self) -> tuple[Mapping[str, Any], ...]:
        """What the manifest says of each symbol: contracts, rolls, features, notes, warnings, tick, costs."""
        return tuple(self.manifest.get("symbols") or ())

    @property
    def currency(self) -> str:
        """Currency of all money of the study."""
        return str(self.summary.get("currency") or next((of["currency"] for of in self.symbols), "USD"))

    @property
    def has_several(self) -> bool:
        """Whether the study is of several symbols, so that rows have to name theirs."""
        return len(self.symbols) > 1

    @property
    def portfolio(self) -> pl.DataFrame:
        """Rows of equity.parquet of all symbols together (see `store.results.portfolio`)."""
        return results.portfolio(self.equity)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the summary, those on the data that it lacks, and problems with the files themselves."""
        told = [str(text) for text in self.summary.get("warnings") or ()]
        of_data = [
            f"{symbol['symbol']}: {text}" if self.has_several else str(text)
            for symbol in self.symbols
            for text in symbol.get("warnings", ())
        ]
        return tuple(dict.fromkeys([*told, *of_data, *self.problems]))

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
    summary = _if_there(run.summary, lambda: read_summary(run), {})
    windows = _if_there(run.windows, lambda: results.read_windows(run), {})
    metrics = results.read_metrics(run)
    data_quality = _if_there(run.quality, lambda: quality.read_quality(run), {})
    config_text = _if_there(run.config, lambda: layout.read_bytes(run.config).decode(errors="replace"), "")
    expected = (run.summary, run.windows, run.metrics, run.equity, run.fills, run.trades, run.members, run.cost_surface)
    return RunRecord(
        name=str(summary.get("run") or run_dir.resolve().name),
        status=str(summary.get("status") or manifest.get("status")),
        summary=summary,
        manifest=manifest,
        windows=tuple(windows.get("windows") or ()),
        uncovered=windows.get("uncovered"),
        metrics=metrics.records,
        equity=_table(run.equity, lambda: results.read_equity(run), results.EQUITY),
        fills=_table(run.fills, lambda: results.read_fills(run), results.FILLS),
        trades=_table(run.trades, lambda: results.read_trades(run), results.TRADES),
        members=_table(run.members, lambda: results.read_members(run), results.MEMBERS),
        cost_surface=_table(run.cost_surface, lambda: results.read_cost_surface(run), results.COST_SURFACE),
        quality=tuple(data_quality.get("symbols") or ()),
        config_text=config_text,
        missing=tuple(path.name for path in expected if not path.is_file()),
        problems=tuple(text.replace(f"{run.root}/", "") for text in (*metrics.warnings, *results.verify_results(run))),
    )


def _if_there(path: Path, read: Callable[[], Content], absent: Content) -> Content:
    return read() if path.is_file() else absent


def _table(path: Path, read: Callable[[], pl.DataFrame], table: Table) -> pl.DataFrame:
    return _if_there(path, read, pl.DataFrame(schema=table.schema))
