"""A finished run once more: its policies read back, checked, and traded again on its own data or on other data."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import polars as pl
from jax.sharding import NamedSharding, PartitionSpec

from tidewalk.core import trees, words
from tidewalk.core.arrays import PyTree
from tidewalk.core.errors import ConfigError, DataError, StoreError
from tidewalk.core.keys import root_key
from tidewalk.data.contracts.specs import root_of
from tidewalk.data.load import DataConfig
from tidewalk.market.prepare import SeriesConfig
from tidewalk.run import figures, mesh, outcome, records
from tidewalk.run.engine import Kept, Stage, upload_study
from tidewalk.run.identity import refuse_other_data, refuse_other_settings, stored_config
from tidewalk.run.markets import plan
from tidewalk.run.mesh import Transfers
from tidewalk.run.outcome import Outcome
from tidewalk.run.selected import only
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import Study
from tidewalk.store import checkpoint, layout, results
from tidewalk.store.checkpoint import Arrays
from tidewalk.store.layout import RunFolder
from tidewalk.store.summary import read_summary
from tidewalk.store.trials import LEDGER
from tidewalk.trading.env import no_tally
from tidewalk.train.population import Best

_ABSOLUTE, _RELATIVE = 1e-6, 1e-9
"""Differences below these are rounding of sums in float64; a cent is far more."""
_SCALER = ("scaler.center", "scaler.scale")
Policies = list[tuple[Arrays, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Reload:
    """How a run is read back."""

    data_dir: Path | None = None
    """Where the data lie now, if they were moved since. With --other-data where those lie; what has to be read in
    another way than the run read its files, `tidewalk inspect --save-market` makes into one file for here."""
    other_data: bool = False
    """Trade the policies on data that are not those of the run; nothing is compared, and the run stays as it
    is. It counts as a trial on these data."""
    symbol: str | None = None
    """With --other-data: the symbol to trade in place of the run's own."""
    device: Literal["cpu", "gpu"] | None = None
    """Accelerator in place of the run's own choice."""


@dataclasses.dataclass(frozen=True)
class Reloaded:
    """A run on its device again, with the policies that it saved."""

    run: RunFolder
    stage: Stage
    kept: Kept
    origin: tuple[int, ...]
    """Window of the run whose policies each window trades; on the run's own data its own."""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A result beside the one on record."""

    compared: int
    """Figures and rows that were compared."""
    differences: tuple[str, ...]
    made_otherwise: tuple[str, ...] = ()
    """In words, what of software and device is another than it was in training: it may round otherwise."""


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def reload(path: Path, how: Reload, *, quiet: bool = True) -> Reloaded:
    """Read a complete run back: settings, data, policies; every file is checked against the manifest first.

    Args:
        path: the run folder.
        how: where the data are, and whether they are those of the run.
        quiet: no line about what is being read.

    Raises:
        StoreError: the run is not complete, a file is not what the run wrote, or the data are not those of the run.
        ConfigError, DataError: as the readers do; with other data, other features or no window that a policy of the
            run may trade without having seen it.
    """
    run = layout.open_run(path)
    manifest = layout.read_manifest(run)
    if manifest.get("status") != "complete":
        raise StoreError(
            f"{run.root}: the run is {manifest.get('status')}, so no policy is saved. Finish it with `tidewalk resume`."
        )
    damaged = results.verify_results(run)
    if damaged:
        raise StoreError(f"{damaged[0]}. Nothing was traded; bring the file back from a copy, or train anew.")
    config = stored_config(run, how.data_dir)
    refuse_other_settings(run, config, manifest, *_checkpointed(run))
    study = plan(_as_asked(config, how), quiet=quiet, is_other=how.other_data)
    origin, notes = tuple(range(study.num_windows)), ()
    if how.other_data:
        study, origin, notes = _on_other_data(run, study)
    else:
        refuse_other_data(study, "trade the policies on these with --other-data", manifest)
    policies = _policies(run, study, origin)
    study = _with_scalers(study, policies)
    devices = mesh.member_mesh(study.num_members)
    transfers = Transfers()
    stage = Stage(study, upload_study(study, transfers, devices), transfers)
    kept = _kept(stage, policies, NamedSharding(devices, PartitionSpec(mesh.MEMBER_AXIS)) if devices else None)
    return Reloaded(run, stage, kept, origin, notes)


def _checkpointed(run: RunFolder) -> Iterable[dict[str, Any]]:
    """Description of the last checkpoint, which keeps the settings themselves; nothing where it is gone."""
    latest = checkpoint.latest_checkpoint(run.checkpoints).path
    return () if latest is None else (checkpoint.read_checkpoint(latest)[1],)


def _as_asked(config: RunConfig, how: Reload) -> RunConfig:
    if how.symbol is not None and not how.other_data:
        raise ConfigError("--symbol names what to trade in place of the run's own symbol; it needs --other-data.")
    output = config.output if how.device is None else dataclasses.replace(config.output, device=how.device)
    config = dataclasses.replace(config, output=output)
    return _for_other_data(config, how.symbol or config.data.symbol) if how.other_data else config


def _for_other_data(config: RunConfig, symbol: str) -> RunConfig:
    """The settings of a run without those that describe its own files or contracts, and hold for no others."""
    data, series = dataclasses.replace(config.data, symbol=symbol), config.series
    other = dataclasses.replace(config, data=data)
    if data.data_dir.suffix == ".npz":  # prepared already, as its owner wanted it
        return dataclasses.replace(other, data=DataConfig(data.data_dir, symbol), series=SeriesConfig())
    if set(map(root_of, other.symbols)) != set(map(root_of, config.symbols)):
        roll = SeriesConfig().roll if series.roll.startswith("table:") else series.roll
        series = dataclasses.replace(series, tick=None, multiplier=None, roll=roll)
    return dataclasses.replace(other, series=series)


def _on_other_data(run: RunFolder, study: Study) -> tuple[Study, tuple[int, ...], tuple[str, ...]]:
    """The windows of other data that a policy of the run may trade, and the newest policy that has seen none of each.

    Raises:
        DataError: there is none.
    """
    saved = results.read_windows(run)["windows"]
    symbols = {row["symbol"] for row in saved}
    origin: dict[int, int] = {}
    for leg in study.legs:
        for window in leg.plan.windows:
            known = [row for row in saved if len(symbols) == 1 or row["symbol"] == leg.symbol]
            blind = [row for row in known if row["val"]["last"] < str(window.test.first_day)]
            if blind:
                origin[window.index] = max(blind, key=lambda row: (row["val"]["last"], row["window"]))["window"]
    if not origin:
        first = min(row["val"]["last"] for row in saved)
        raise DataError(
            f"--other-data: no test month of {study.symbol} begins after {first}, where the first policy of "
            f"{run.root.name} has seen its last validation bar, so each would trade months that it has seen or that "
            "came before. Use later data."
        )
    left = study.num_windows - len(origin)
    seen = f"Not traded, because before every policy's last validation bar: {words.counted(left, 'window')}."
    return only(study, list(origin)), tuple(origin.values()), (seen,) * bool(left)


def _policies(run: RunFolder, study: Study, origin: tuple[int, ...]) -> Policies:
    """Weights and description of every member, window by window.

    Raises:
        StoreError: a policy is missing, damaged, or another one than its name says.
        DataError: it was trained on other features.
    """
    template = _template(study)
    sizes = ((study.program.num_features,), "float32")
    expect = {**trees.schema(template), **dict.fromkeys(_SCALER, sizes)}
    found: Policies = []
    for window, leg in zip(origin, study.leg_by_window, strict=True):
        for seed in range(study.config.train.seeds):
            path = run.policies / f"window-{window:02d}-seed-{seed:02d}{checkpoint.SUFFIX}"
            arrays, meta = checkpoint.load_policy(path)
            if (meta["window"], meta["seed"]) != (window, seed):
                raise StoreError(f"{path}: holds the policy of window {meta['window']}, seed {meta['seed']}.")
            names = list(leg.market.info.feature_names)
            if meta["feature_names"] != names:
                odd = sorted(set(meta["feature_names"]) ^ set(names)) or ["their order"]
                raise DataError(
                    f"{leg.symbol} has other features than {path.name} was trained on ({', '.join(odd)}). Use data, "
                    "and the --features set, that give the same."
                )
            shapes = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
            if shapes != {name: (tuple(shape), str(dtype)) for name, (shape, dtype) in expect.items()}:
                raise StoreError(f"{path}: its network is not the one that {run.config} describes.")
            found.append((arrays, meta))
    return found


def _template(study: Study) -> PyTree:
    """Parameters of one member, for their structure."""
    return study.program.agent.params(study.program.agent.init(root_key(0)))


def _with_scalers(study: Study, policies: Policies) -> Study:
    """The study with the scalers that the policies were trained with, whatever its own train months would give."""
    of_window = [arrays for arrays, _ in policies[:: study.config.train.seeds]]
    center, scale = (np.stack([arrays[name] for arrays in of_window]) for name in _SCALER)
    return dataclasses.replace(study, windows=dataclasses.replace(study.windows, center=center, scale=scale))


def _kept(stage: Stage, policies: Policies, placement: NamedSharding | None) -> Kept:
    """What trading needs of the policies; their validation results are not kept with them and count as nothing."""
    program, template = stage.study.program, _template(stage.study)
    weights = [{name: value for name, value in arrays.items() if name not in _SCALER} for arrays, _ in policies]
    stacked = {name: np.stack([one[name] for one in weights]) for name in weights[0]}
    count, metas = len(policies), [meta for _, meta in policies]
    epoch = np.array([meta["best_epoch"] for meta in metas], np.int32)
    spread = np.array([np.nan if meta["spread"] is None else meta["spread"] for meta in metas], np.float32)
    host = (trees.from_named(template, stacked), epoch, spread, np.zeros(count, np.float32), np.ones(count, bool))
    params, epoch, spread, nothing, alive = mesh.put(host, stage.transfers, placement)
    tally = no_tally(program.env, (count,), has_spread=program.has_spread)
    return Kept(Best(params=params, score=nothing, epoch=epoch, spread=spread, tally=tally), alive)


def counted(reloaded: Reloaded, settled: Outcome) -> Reloaded:
    """Counts policies that were traded on other data as a trial on these, in the ledger beside the run; told in a note.

    To trade many runs on fresh data and keep the best is a choice like any other.
    """
    run = reloaded.run
    made_of = str(layout.read_manifest(run).get("policies_sha256", ""))
    _, known = records.count_trial(run.root.parent, settled, made_of)
    tried = words.counted(len(known.trials), "configuration")
    told = f"counted in {run.root.parent / LEDGER}: {tried} evaluated on these data so far"
    return dataclasses.replace(reloaded, notes=(*reloaded.notes, told, *known.warnings))


def compare(reloaded: Reloaded, settled: Outcome) -> Comparison:
    """Every figure of the record that follows from the test months, against what the policies made just now.

    Numbers have to agree to rounding, far below a cent, counts and words exactly. Left out is what depends on the other
    trials, on the validation months and on time.
    """
    run, study = reloaded.run, settled.study
    summary = read_summary(run)
    legs, seen = study.legs, _Seen()
    blocks = {
        "oos": figures.performance(settled, legs),
        "baselines": figures.yardsticks(settled, legs),
        "oracle": figures.hindsight(settled, legs),
        "cost_surface": figures.cost_surface(settled, legs),
    }
    for name, entries in blocks.items():
        seen.check(name, figures.block(name, entries)[0], summary[name])
    for now, then in zip(outcome.per_window(settled), summary["per_window"], strict=True):
        seen.check(f"per_window[{now['window']}]", now, then)
    seen.rows("equity.parquet", outcome.equity_frame(settled), results.read_equity(run))
    seen.rows("fills.parquet", outcome.fills_frame(settled), results.read_fills(run))
    seen.rows("trades.parquet", outcome.trades_frame(settled), results.read_trades(run))
    otherwise = records.unlike(records.made_with(), layout.read_manifest(run))
    return Comparison(seen.count, tuple(seen.differences), tuple(otherwise))


@dataclasses.dataclass
class _Seen:
    """Counts what was compared and keeps what differs."""

    count: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)

    def check(self, where: str, now: Any, then: Any) -> None:
        """Compare two values of JSON, leaf by leaf; of records, the keys of the first."""
        if isinstance(now, Mapping):
            for name, value in now.items():
                self.check(f"{where}.{name}", value, then[name])
        elif isinstance(now, list | tuple) and isinstance(then, list) and len(now) == len(then):
            for number, (one, other) in enumerate(zip(now, then, strict=True)):
                self.check(f"{where}[{number}]", one, other)
        else:
            self.count += 1
            if not _is_same(now, then):
                self.differences.append(f"{where} is {now}, on record is {then}")

    def rows(self, where: str, now: pl.DataFrame, then: pl.DataFrame) -> None:
        """Compare two tables row by row."""
        self.count += then.height
        if now.height != then.height:
            self.differences.append(f"{where} has {now.height} rows, on record are {then.height}")
            return
        same = pl.Series(np.ones(then.height, bool))
        for name in then.columns:
            if then.schema[name].is_float():
                same &= (now[name] - then[name]).abs() <= _ABSOLUTE + _RELATIVE * then[name].abs()
            else:
                same &= now[name].eq_missing(then[name])
        if not same.all():
            row = int(same.arg_min() or 0)
            self.differences.append(
                f"{where}: {int((~same).sum())} of {then.height} rows differ, the first is row {row}: "
                f"{now.row(row)}, on record is {then.row(row)}"
            )


def _is_same(now: Any, then: Any) -> bool:
    if isinstance(now, float) and isinstance(then, int | float):
        return abs(now - then) <= _ABSOLUTE + _RELATIVE * abs(then)
    return now == then
