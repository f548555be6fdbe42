"""The one impure loop: plan, compile, epochs, checkpoints, results."""

import contextlib
import datetime as dt
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tidewalk.core import trees
from tidewalk.core.errors import Interrupted, StoreError, TrainError
from tidewalk.run import mesh, records
from tidewalk.run.console import Reporter, reporter
from tidewalk.run.engine import Engine, restore, start
from tidewalk.run.settings import RunConfig, config_hash, from_toml, to_toml
from tidewalk.run.study import Study, plan_study, read_market, windows_record
from tidewalk.run.timing import PhaseTimes, breakdown
from tidewalk.store import checkpoint, layout, results
from tidewalk.store.layout import RunFolder
from tidewalk.train.population import TrainState


def train(config: RunConfig) -> Path:
    """Run a study from its files to its report.

    Returns:
        The run folder.

    Raises:
        ConfigError, DataError, StoreError: the request, the data or the folder are at fault; nothing was trained.
        TrainError: every member diverged.
        Interrupted: stopped by a signal after a checkpoint; `resume` goes on.
    """
    study = _plan(config)
    run = layout.create_run(_run_path(config), overwrite=config.output.overwrite)
    layout.write_text_atomic(run.config, to_toml(config))
    results.write_windows(run, windows_record(study))
    return _guarded(run, study, None)


def resume(path: Path, *, quiet: bool = False) -> Path:
    """Go on with an interrupted study from its last whole checkpoint.

    Raises:
        StoreError: nothing to resume, or the data or the configuration are not those of the checkpoint.
    """
    run = layout.open_run(path)
    if layout.read_manifest(run).get("status") == "complete":
        raise StoreError(f"{path} is complete; there is nothing to resume.")
    config = from_toml(layout.read_bytes(run.config).decode(), str(run.config))
    study = _plan(config)
    layout.lock_run(run)
    latest = checkpoint.latest_checkpoint(run.checkpoints)
    return _guarded(run, study, latest.path, notes=latest.warnings, quiet=quiet)


def _plan(config: RunConfig) -> Study:
    mesh.make_reproducible()
    mesh.choose_platform(config.output.device)
    return plan_study(config, read_market(config), compose=mesh.compose_form())


def _run_path(config: RunConfig) -> Path:
    if config.output.out is not None:
        return config.output.out
    stamp = dt.datetime.now().strftime("%Y%m%d-%H%M%S")
    symbol = "".join(c if c.isalnum() or c in "._-" else "-" for c in config.data.symbol)
    return Path("runs") / f"{stamp}-{config.model}-{symbol}"


def _guarded(run: RunFolder, study: Study, last: Path | None, *, notes: tuple[str, ...] = (), quiet: bool = False) -> Path:
    """Run with the folder locked; its manifest says how it ended."""
    try:
        layout.write_manifest(run, records.manifest_fields(study))
        _run(run, study, last, notes, quiet=quiet or study.config.output.quiet)
    except (Interrupted, KeyboardInterrupt):
        records.write_unfinished(run, study, "interrupted")
        raise
    except Exception:
        with contextlib.suppress(StoreError):
            records.write_unfinished(run, study, "failed")
        raise
    finally:
        layout.unlock_run(run)
    return run.root


def _run(run: RunFolder, study: Study, last: Path | None, notes: tuple[str, ...], *, quiet: bool) -> None:
    epochs = study.config.train.epochs
    engine, state = start(study)
    done = 0
    if last is not None:
        state, done = _from_checkpoint(engine, state, last)
    results.rewind_metrics(run, done)
    with reporter(epochs, done, quiet=quiet) as out, _stop_on_signal() as stop:
        for line in (*notes, *records.opening_lines(engine, done)):
            out.say(line)
        for epoch in range(done + 1, epochs + 1):
            state = _one_epoch(run, engine, state, epoch, out)
            if epoch % study.config.output.checkpoint_every == 0 or epoch == epochs or stop:
                _save(run, engine, state, epoch)
            if stop and epoch < epochs:
                raise Interrupted(f"Stopped after epoch {epoch} of {epochs}. Go on with: tidewalk resume {run.root}")
    records.write_results(run, engine, state)


def _one_epoch(run: RunFolder, engine: Engine, state: TrainState, epoch: int, out: Reporter) -> TrainState:
    before, began = engine.uploads.nbytes, time.perf_counter()
    state, device_metrics, times = engine.run_epoch(state)
    metrics: dict[str, Any] = jax.device_get(device_metrics)
    uploaded = engine.uploads.nbytes - before + (engine.uploads.nbytes if epoch == 1 else 0)
    record = records.epoch_record(engine, epoch, metrics, times, uploaded, time.perf_counter() - began)
    results.append_metrics(run, record)
    _say(out, engine.study, epoch, record, times, uploaded)
    if not np.asarray(metrics["is_alive"]).any():
        raise TrainError(f"Every member's loss is not finite since epoch {epoch}. Try a smaller --lr, or look at the features with `tidewalk inspect`.")
    return state


def _say(out: Reporter, study: Study, epoch: int, record: dict[str, Any], times: PhaseTimes, uploaded: int) -> None:
    loss = "-" if record["loss"] is None else f"{record['loss']:.4f}"
    val = record["val_net_usd"]
    status = f"loss {loss}  val {val['median']:+,.0f} {study.market.info.currency}  {record['epochs_per_s']:.2f} epochs/s"
    out.say(f"epoch {epoch}/{study.config.train.epochs}  {status}  (val p10 {val['p10']:+,.0f}, p90 {val['p90']:+,.0f})")
    out.say(breakdown(times, uploaded))
    out.advance(epoch, status)


def _save(run: RunFolder, engine: Engine, state: TrainState, epoch: int) -> None:
    meta = {"epoch": epoch, **_identity(engine.study)}
    host = jax.device_get(state)
    checkpoint.save_checkpoint(run.checkpoints, f"epoch-{epoch:05d}", trees.to_named(host), meta)
    checkpoint.save_checkpoint(run.checkpoints, "best", trees.to_named(host.best), meta)
    checkpoint.prune_checkpoints(run.checkpoints, keep=2)


def _from_checkpoint(engine: Engine, state: TrainState, path: Path) -> tuple[TrainState, int]:
    arrays, meta = checkpoint.load_checkpoint(path, trees.schema(state))
    for name, value in _identity(engine.study).items():
        if meta.get(name) != value:
            raise StoreError(f"{path.name} was written with another {name} ({meta.get(name)}) than this study has ({value}). Start a new run.")
    return restore(state, arrays), int(meta["epoch"])


def _identity(study: Study) -> dict[str, str]:
    return {"config_hash": config_hash(study.config), "data_fingerprint": study.market.info.fingerprint}


class _Stop:
    """True once a signal asked for a stop."""

    def __init__(self) -> None:
        self.is_set = False

    def __bool__(self) -> bool:
        return self.is_set


@contextlib.contextmanager
def _stop_on_signal() -> Generator[_Stop, None, None]:
    """First SIGINT or SIGTERM: stop after the epoch that runs. Second SIGINT: at once."""
    stop = _Stop()

    def ask(number: int, frame: object) -> None:
        del frame
        if stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.is_set = True

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are not ours to handle
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
