"""The audit of a study: every part of the pipeline, on the user's own data and features, from bars to money."""

import dataclasses
import functools
import importlib
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import tidewalk
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.core.words import counted
from tidewalk.data.contracts.rolls import FrontSeries
from tidewalk.data.load import load_bars
from tidewalk.market.device import MarketData
from tidewalk.market.features import bars_frame
from tidewalk.market.prepare import MakeFeatures, market_of
from tidewalk.market.user_features import FeatureBuilder, build_features, called, load_builder, numbers
from tidewalk.market.windows import WindowConfig
from tidewalk.run import mesh
from tidewalk.run.audit import bench as benches
from tidewalk.run.audit import controls, features, pipeline, series, sources
from tidewalk.run.audit.bench import Bench, Markets, Run
from tidewalk.run.audit.checks import BAD, Audit, Check, Record, named
from tidewalk.run.audit.features import Effort, Subject
from tidewalk.run.audit.series import Source
from tidewalk.run.console import reading
from tidewalk.run.markets import prepare_device, read_market, refuse_shared_settings
from tidewalk.run.settings import RunConfig
from tidewalk.run.study import Study, plan_study


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is tried."""

    features: Effort
    front_cuts: int
    fill_cuts: int
    test_cuts: int
    epochs: int
    """Of the trainings that are compared to the bit."""
    control_epochs: int
    is_whole: bool
    """Every variant of a check, and not the strongest one alone."""


QUICK = Plan(Effort(28, 4.0), 3, 14, 3, 3, 16, is_whole=False)
FULL = Plan(Effort(112, 20.0), 14, 42, 8, 3, 32, is_whole=True)


def silent(_: str) -> None:
    """Progress that nobody reads."""


@jax.transfer_guard("allow")  # one that is set for all of jax is meant for the epochs
def audit(config: RunConfig, *, quick: bool = False, say: Callable[[str], None] = silent) -> Audit:
    """Look for leaks of the future in the data, the features and the pipeline of a study.

    Args:
        config: the study, as `train` would run it. Nothing is written.
        quick: fewer cuts and shorter trainings.
        say: is told what is being done.

    Returns:
        All checks, in the order of the pipeline, symbol by symbol.

    Raises:
        ConfigError, DataError: the data cannot be read, or the feature function fails on all bars.
    """
    prepare_device(config, quiet=config.output.quiet)
    if not all(config.symbols):
        raise ConfigError("--symbol is missing: name what to trade, such as ES.FUT.")
    refuse_shared_settings(config)
    plan = QUICK if quick else FULL
    with jax.default_matmul_precision(mesh.PRECISIONS[config.output.precision]):
        records = [_audit_symbol(config, symbol, plan, say) for symbol in config.symbols]
    notes = tuple(dict.fromkeys(note for record in records for note in record.notes))
    return Audit(config.symbols, tuple(check for record in records for check in record.checks), notes)


def _audit_symbol(config: RunConfig, symbol: str, plan: Plan, say: Callable[[str], None]) -> Record:
    one = dataclasses.replace(config, data=config.data_of(symbol))
    record = Record(symbol, say)
    if one.data.data_dir.suffix == ".npz":
        market = read_market(one)
        _skip_bars(record)
        _pipeline(record, one, market, None, plan)
        return record
    say(f"audit: reading {one.data.data_dir}")
    with reading(quiet=True) as progress:
        source = series.source_of(load_bars(one.data, progress), one.series)
    _bar_checks(record, source, plan, one.train.seed)
    make = _feature_checks(record, source, one, plan)
    try:
        _pipeline(record, one, market_of(source.front, make), (source, make), plan)
    except (ConfigError, DataError) as error:
        record.run("training: start", functools.partial(_refused, error))
    return record


def _skip_bars(record: Record) -> None:
    for stage, name in ((series.BARS, "future"), (series.FILLS, "prices"), (features.STAGE, "all checks")):
        found = "a prepared market holds no bars: audit the data files it was made of"
        record.run(f"{stage}: {name}", functools.partial(Check, stage, name, "-", "skipped", found))


# ---- bars, fills, features


def _bar_checks(record: Record, source: Source, plan: Plan, seed: int) -> None:
    record.run("bars: future", lambda: series.front_check(source, plan.front_cuts, seed))
    record.run("fills: order", lambda: series.order_check(source))
    record.run("fills: prices", lambda: series.price_check(source))
    record.run("fills: past prices", lambda: series.past_check(source, plan.fill_cuts, seed))
    record.run("fills: marks", lambda: series.mark_check(source, plan.fill_cuts, seed))


def _feature_checks(record: Record, source: Source, config: RunConfig, plan: Plan) -> MakeFeatures:
    """Check the feature set; what comes back makes the columns without fault, for the checks that follow."""
    spec, seed = config.series.features, config.train.seed
    builder = load_builder(spec) if spec else None
    record.say("audit: features: computing")
    try:
        subject = features.subject_of(bars_frame(source.series), builder, plan.features, seed)
    except DataError as error:
        record.run("features: called", functools.partial(_refused, error))
        return _without(record, None, set())
    for name, check in features.feature_checks(subject).items():
        record.run(f"features: {name}", check)
    if spec and _is_own(spec):
        record.run("features: fresh start", lambda: features.state_check(subject, functools.partial(_fresh, spec)))
    dated = record.run("features: other sources", lambda: sources.date_check(subject)).columns
    clean = [name for name in subject.columns if name not in _faulty(record)]
    record.run("features: foresight", lambda: sources.foresight_check(subject, clean, source.front.move_ticks, dated))
    return _without(record, subject, _faulty(record))


def _faulty(record: Record) -> set[str]:
    return {column for check in record.checks if check.status in BAD for column in check.columns}


def _refused(error: Exception) -> Check:
    raise error


def _without(record: Record, subject: Subject | None, faulty: set[str]) -> MakeFeatures:
    """What makes the columns that are not at fault, without checking them again; the default set where none is left."""
    kept = [] if subject is None else [name for name in subject.columns if name not in faulty]
    if subject is None or not kept:
        record.notes.append("No feature column is without fault: what follows is checked with the default set.")
    elif faulty:
        record.notes.append(f"What follows is checked with the columns without fault: {named(kept)}.")
    if subject is None or not kept or not subject.is_users:
        return functools.partial(build_features, builder=None)

    def make(front: FrontSeries) -> tuple[tuple[str, ...], np.ndarray, int]:
        frame = called(subject.build, bars_frame(front))
        values = np.stack([numbers(frame[name]).astype(np.float32) for name in kept], axis=1)
        is_whole = np.isfinite(values).all(axis=1)
        if not is_whole.any():
            raise DataError(f"No bar has all of the columns {named(kept)}.")
        first = int(np.argmax(is_whole))
        values[:first] = 0.0
        return tuple(kept), np.nan_to_num(values, nan=0.0, posinf=3e38, neginf=-3e38), first

    return make


def _is_own(spec: str) -> bool:
    """Whether the function lies in the user's own code, which may be loaded anew, and in no installed package."""
    file = getattr(sys.modules.get(spec.partition(":")[0]), "__file__", None)
    installed = (str(Path(tidewalk.__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
    return file is None or not file.startswith(installed)


def _fresh(spec: str) -> FeatureBuilder:
    """The user's function from modules loaded anew; those that were there before stay in place for everybody else."""
    top = spec.partition(":")[0].partition(".")[0]
    before = {name: module for name, module in sys.modules.items() if name == top or name.startswith(f"{top}.")}
    for name in before:
        del sys.modules[name]
    importlib.invalidate_caches()
    try:
        return load_builder(spec)
    finally:
        sys.modules.update(before)


# ---- windows, training, actions, controls


def _pipeline(
    record: Record, config: RunConfig, market: MarketData, bars: tuple[Source, MakeFeatures] | None, plan: Plan
) -> None:
    record.say("audit: training: planning windows")
    planned = _planned(record, config, market)
    if planned is None:
        return
    config, study = planned
    window = study.legs[0].plan.windows[-1]
    rows = benches.rows_of_window(market, window)
    if bars is None:
        markets: Markets = benches.markets_of_prepared(benches.part_of_market(market, rows), config)
    else:
        source, make = bars
        markets = benches.markets_of_front(benches.part_of_front(source.front, rows), make, config)
    bench = benches.bench_of(config, markets, plan.epochs)
    record.say("audit: training: compiling")
    base = benches.train(bench, markets.base)
    span = f"{window.train.first_day} to {window.test.last_day}"
    record.notes.append(
        f"{record.symbol}: training, selection, actions and controls were checked on the last of "
        f"{counted(study.num_windows, 'window')} ({span}), with {benches.SEEDS} seeds of {benches.HIDDEN} hidden units."
    )
    _training_checks(record, bench, base, plan, config.train.seed)
    _control_checks(record, bench, base, plan, config.train.seed)


def _planned(record: Record, config: RunConfig, market: MarketData) -> tuple[RunConfig, Study] | None:
    """The study with the windows asked for or, where the data are too short for these, with the shortest there are."""
    shortest = WindowConfig(1, 1, 1, 1, partial_test=True, purge_bars=config.windows.purge_bars)
    refused: list[str] = []
    for windows in (config.windows, shortest):
        asked = dataclasses.replace(config, windows=windows)
        try:
            study = plan_study(asked, [market], compose=mesh.compose_form())
        except DataError as error:  # settings that do not fit are refused, as `train` refuses them
            refused.append(str(error))
            continue
        if refused:
            record.notes.append(f"{record.symbol}: checked with windows of 1, 1 and 1 months, since: {refused[0]}")
        return asked, study
    found = Check("windows", "plan", "windows cut as asked", "skipped", "no window: no training", (refused[0],))
    record.run("windows: plan", lambda: found)
    return None


def _training_checks(record: Record, bench: Bench, base: Run, plan: Plan, seed: int) -> None:
    record.run("scaler: later bars", lambda: pipeline.scaler_check(bench, base))
    record.run("training: repeatable", lambda: pipeline.repeat_check(bench, base))
    record.run("training: train tail", lambda: pipeline.tail_check(bench, base, "other", only_one=False))
    if plan.is_whole:
        record.run("training: train tail", lambda: pipeline.tail_check(bench, base, "huge", only_one=False))
    record.run("training: train tail", lambda: pipeline.tail_check(bench, base, "huge", only_one=True))
    if plan.is_whole:
        record.run("training: last bar", lambda: pipeline.teeth_check(bench, base))
    record.run("selection: validation", lambda: pipeline.val_check(bench, base))
    record.run("selection: test months", lambda: pipeline.test_months_check(bench, base, "other"))
    if plan.is_whole:
        record.run("selection: test months", lambda: pipeline.test_months_check(bench, base, "huge"))
    record.run("observations: future", lambda: pipeline.observation_check(bench, base, plan.test_cuts, seed))
    record.run("actions: future", lambda: pipeline.action_check(bench, base, plan.test_cuts, seed))


def _control_checks(record: Record, bench: Bench, base: Run, plan: Plan, seed: int) -> None:
    record.run("fills: ledger", lambda: pipeline.ledger_check(bench, base, seed))
    record.run("controls: negative", lambda: controls.negative_check(bench, plan.control_epochs, seed))
    planted = controls.plant(bench, base, seed)
    record.run("controls: positive", lambda: controls.positive_check(bench, planted, plan.control_epochs))
    record.run("controls: lag, planted", lambda: controls.planted_lag_check(bench, planted))
    record.run(
        "controls: lag, your bars",
        lambda: controls.lag_check(bench, benches.train(bench, bench.markets.base, epochs=plan.control_epochs)),
    )
