"""The one impure loop: plan, compile, epochs, checkpoints, results."""

import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import shlex
import time
from pathlib import Path
from typing import Any

import jax

from tidewalk.core import trees
from tidewalk.core.errors import Interrupted, StoreError, TrainError
from tidewalk.run import compile_cache, memory, mesh, profile, records
from tidewalk.run.ahead import Runner
from tidewalk.run.console import Reporter, reporter
from tidewalk.run.engine import Engine, State, restore, start
from tidewalk.run.epoch_lines import Epoch, epoch_record
from tidewalk.run.identity import identity, refuse_other_data, refuse_other_settings, stored_config
from tidewalk.run.learner import with_learner
from tidewalk.run.markets import plan
from tidewalk.run.mesh import Transfers
from tidewalk.run.profile import Tracer
from tidewalk.run.saving import Saver
from tidewalk.run.settings import RunConfig, result_settings, to_toml, with_absolute_paths
from tidewalk.run.signals import Stop, stop_on_signal
from tidewalk.run.study import Study, windows_record
from tidewalk.run.timing import breakdown
from tidewalk.store import checkpoint, layout, quality, results, trials
from tidewalk.store.layout import RunFolder
from tidewalk.store.names import check_folder_name


@dataclasses.dataclass(frozen=True)
class _Job:
    """One stretch of a run, from its start or from a checkpoint to its end."""

    run: RunFolder
    study: Study
    identity: dict[str, Any]
    """What has to be the same for a run to go on; kept in the manifest and in every checkpoint."""
    quiet: bool
    last: Path | None = None
    """Checkpoint to go on from."""
    notes: tuple[str, ...] = ()


def train(config: RunConfig) -> Path:
    """Run a study from its files to its report.

    Returns:
        The run folder.

    Raises:
        ConfigError, DataError, StoreError: the request, the data or the folder are at fault; nothing was trained.
        TrainError: every member diverged, or the device ran out of memory.
        Interrupted: stopped by a signal; `resume` goes on.
    """
    config = with_absolute_paths(config)
    path = _run_path(config)
    _refuse_taken(path, overwrite=config.output.overwrite)
    study, notes = _fitting(config, quiet=config.output.quiet)
    run = layout.create_run(path, overwrite=config.output.overwrite)
    try:
        job = _Job(run, study, identity(study), config.output.quiet, notes=notes)
        return _supervised(job, records.manifest_fields(study))
    finally:
        layout.unlock_run(run)


def resume(path: Path, *, data_dir: Path | None = None, quiet: bool = False) -> Path:
    """Go on with an interrupted study from its last whole checkpoint.

    Args:
        path: the run folder.
        data_dir: where the data lie now; None: where they lay.
        quiet: no log.

    Raises:
        StoreError: nothing to resume, or the data or the configuration are not those of the run.
        TidewalkError: others as `train`.
    """
    run = layout.open_run(path)
    layout.lock_run(run)
    try:
        return _resume(run, data_dir, quiet=quiet)
    except KeyboardInterrupt as error:
        raise _interrupted("Stopped at once.", run) from error
    finally:
        layout.unlock_run(run)


def _resume(run: RunFolder, data_dir: Path | None, *, quiet: bool) -> Path:
    manifest = layout.read_manifest(run)
    if manifest.get("status") == "complete":
        raise StoreError(f"{run.root}: the run is complete; nothing to resume. `tidewalk report` writes its report.")
    if not layout.is_begun(run):
        again = f"start it again with `tidewalk train --out {shlex.quote(str(run.root))}` and its options"
        raise StoreError(f"{run.root}: the run was stopped before anything of it was stored; {again}.")
    config = stored_config(run, data_dir)
    quiet = quiet or config.output.quiet
    study, notes = _fitting(config, quiet=quiet)
    latest = checkpoint.latest_checkpoint(run.checkpoints)
    fields = records.manifest_fields(study)
    resumed = _continuation(manifest, fields, latest.path)
    told = (*(f"warning: {text}" for text in latest.warnings), resumed, *notes)
    job = _Job(run, study, identity(study), quiet, latest.path, told)
    _refuse_other(job, manifest)
    return _supervised(job, {**fields, "resumed": [*manifest.get("resumed", []), resumed]})


def _fitting(config: RunConfig, *, quiet: bool) -> tuple[Study, tuple[str, ...]]:
    """The study as it will run on its device, and what the log says of that; refused where it cannot."""
    study, notes = with_learner(plan(config, quiet=quiet))
    memory.refuse_too_large(study)
    return study, notes


def _refuse_taken(path: Path, *, overwrite: bool) -> None:
    """Say at once what would be found only after the data are read, or, of the ledger, after training."""
    check_folder_name(path.name, "--out")
    run = layout.run_paths(path)
    is_taken = run.manifest.exists()
    with contextlib.suppress(StoreError):  # one that cannot be read is told when the folder is taken
        is_taken = is_taken and layout.is_begun(run)
    if is_taken and not overwrite:
        raise StoreError(f"{path}: holds a run already. Choose another --out, or replace it with --overwrite.")
    for kept in (path.parent / trials.LEDGER, path.parent / trials.SESSIONS):
        place = next(folder for folder in (kept, *kept.absolute().parents) if folder.exists())
        if not os.access(place, os.W_OK) or (place.name == trials.SESSIONS and not place.is_dir()):
            raise StoreError(f"{place}: not writable, and the ledger of trials is kept beside the run folder ({kept}).")


def _run_path(config: RunConfig) -> Path:
    if config.output.out is not None:
        return config.output.out
    symbol = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in config.data.symbol)[:32]
    path = Path("runs") / f"{dt.datetime.now():%Y%m%d-%H%M%S}-{config.model}-{symbol}"
    others = itertools.takewhile(Path.exists, (path.with_name(f"{path.name}-{n}") for n in itertools.count(2)))
    return path.with_name(f"{path.name}-{len(list(others)) + 2}") if path.exists() else path


def _refuse_other(job: _Job, manifest: dict[str, Any]) -> None:
    """Refuse to go on with other settings or other data than the run began with."""
    meta = {} if job.last is None else checkpoint.read_checkpoint(job.last)[1]
    refuse_other_settings(job.run, job.study.config, manifest, meta)
    refuse_other_data(job.study, "start a new run", manifest, meta)


def _continuation(manifest: dict[str, Any], fields: dict[str, Any], last: Path | None) -> str:
    """Where a run goes on, and whether by other software, on another device or with another learner than it began."""
    other = records.unlike(fields, manifest)
    start = "resumed from the start: no usable checkpoint" if last is None else f"resumed from {last.stem}"
    if not other:
        return start
    return f"warning: {start}, with {', '.join(other)}: the result may not be that of an uninterrupted run to the bit"


def _supervised(job: _Job, manifest: dict[str, Any]) -> Path:
    """Run with the folder locked; its manifest says how it ended."""
    run, study = job.run, job.study
    layout.write_text_atomic(run.config, to_toml(study.config))
    results.write_windows(run, windows_record(study))
    quality.write_quality(run, records.quality_records(study))
    layout.write_manifest(run, {**manifest, **job.identity})
    try:
        with stop_on_signal() as stop:
            _run(job, stop)
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as error:
        with contextlib.suppress(StoreError):
            records.write_unfinished(run, study, "interrupted")
        raise _interrupted(str(error) if isinstance(error, Interrupted) else "Stopped at once.", run) from error
    except Exception as error:
        with contextlib.suppress(StoreError):
            records.write_unfinished(run, study, "failed")
        if told := memory.out_of_memory(study, error):
            raise told from error
        raise
    return run.root


def _interrupted(said: str, run: RunFolder) -> Interrupted:
    return Interrupted(f"{said} Go on with: tidewalk resume {shlex.quote(str(run.root))}")


def _run(job: _Job, stop: Stop) -> None:
    run, study, epochs = job.run, job.study, job.study.config.train.epochs
    with reporter(epochs, quiet=job.quiet) as out:
        for line in (*job.notes, f"compiling for {study.crowd}"):
            out.say(line)
        engine, state = start(study)
        compile_cache.seal()
        memory.refuse_too_large(study, engine.compiled)
        building = dataclasses.asdict(engine.building)
        layout.write_manifest(run, {**layout.read_manifest(run), "building": building})
        done = 0
        if job.last is not None:
            state, done = _from_checkpoint(engine, state, job.last)
        results.rewind_metrics(run, done)
        for line in records.opening_lines(engine):
            out.say(line)
        out.advance(done, "")
        state = _epochs(job, engine, state, range(done + 1, epochs + 1), stop, out)
        stop.can_wait = False
        out.say("trading the test months and writing the results")
        records.write_results(run, engine, engine.kept(state))
        compile_cache.seal()


def _epochs(job: _Job, engine: Engine, state: State, epochs: range, stop: Stop, out: Reporter) -> State:
    """Train for a range of epochs, each told, and some of them kept as checkpoints."""
    run, output, last = job.run, job.study.config.output, job.study.config.train.epochs
    meta = {**job.identity, "settings": result_settings(job.study.config)}
    read = [] if job.last is None else [job.last]  # whole, so it need not be read again to be counted
    saver = Saver(run.checkpoints, meta, output.checkpoint_every, written=read)
    traced = profile.steady(epochs, job.study.program.steps_per_epoch) if output.profile else range(0)
    tracer = Tracer(run.profile, out.say, traced, epochs.start)
    runner, starting = Runner(engine, state), dataclasses.replace(engine.transfers)

    def is_kept(epoch: int) -> bool:
        """Whether the state after an epoch is wanted on disk, by what is known now."""
        return epoch == last or saver.is_due(epoch) or stop.is_asked

    for epoch in epochs:
        stop.can_wait = True
        is_needed = is_kept(epoch) or tracer.is_near(epoch)
        with tracer.watching(epoch):
            ended = runner.run(may_go_on=not is_needed)
        began_s, host, moved = time.monotonic(), None, ended.moved
        before = starting if epoch == epochs.start else Transfers()
        if runner.begun is None and is_kept(epoch):
            host, fetched = _host_state(engine, runner.state)
            moved = moved.plus(fetched)
        size, is_traced = trees.nbytes(host), epoch in tracer.epochs
        made = Epoch(ended.metrics, ended.times, epoch, moved.plus(before), before, size, is_traced=is_traced)
        _tell(run, engine, made, out)
        if host is not None:
            saver.save(engine.deal, host, epoch, began_s)
            host = None  # on a CPU these are the arrays of the state: while they are held, an epoch has to copy them
            if stop.is_asked:
                raise Interrupted(f"Stopped after epoch {epoch} of {last}.")
        if epoch == tracer.epochs.stop - 1:
            profile.measure(engine, runner.state, run.profile, tracer.epochs, out.say)
    return runner.state


def _host_state(engine: Engine, state: State) -> tuple[State, Transfers]:
    """A state on the host, and what was counted on its way."""
    before = dataclasses.replace(engine.transfers)
    return mesh.fetch(state, engine.transfers), engine.transfers.since(before)


def _tell(run: RunFolder, engine: Engine, made: Epoch, out: Reporter) -> None:
    """Write and say what an epoch was like.

    Raises:
        TrainError: no member is left to train.
    """
    record = epoch_record(engine, made)
    results.append_metrics(run, record)
    loss = "-" if record["loss"] is None else f"{record['loss']:.4f}"
    val, currency, speed = record["val_net_usd"], engine.study.currency, f"{record['epochs_per_s']:.2f} epochs/s"
    median, band = f"{val['median']:+,.0f} {currency}", f"p10 {val['p10']:+,.0f}, p90 {val['p90']:+,.0f}"
    out.advance(made.epoch, f"loss {loss}  val {median}  {speed}")  # first: the bar stands below what is said
    out.say(f"epoch {made.epoch}/{engine.study.config.train.epochs}  loss {loss}  val {median} ({band})  {speed}")
    out.say(breakdown(made.times, made.moved))
    if not made.metrics["is_alive"].any():
        raise TrainError(
            f"Every member's loss is not finite since epoch {made.epoch}. Try a smaller --lr, or look at the features "
            "with `tidewalk inspect`."
        )


def _from_checkpoint(engine: Engine, state: State, path: Path) -> tuple[State, int]:
    jax.tree.map(lambda leaf: leaf.delete(), state)  # only its shapes are needed; the file takes its memory
    arrays, meta = checkpoint.read_checkpoint(path, trees.schema(engine.deal.joined_shape(state)))
    return restore(engine, state, arrays), int(meta["epoch"])
