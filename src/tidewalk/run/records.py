"""What a study writes: the manifest, what its log says first, and the result files at the end."""

import dataclasses
import datetime as dt
import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from tidewalk.core import trees
from tidewalk.core.words import cost, counted
from tidewalk.run import evidence, figures, memory, mesh, outcome, profile, shares
from tidewalk.run.engine import Engine, Kept
from tidewalk.run.epoch_lines import finite, phases_ms, transfers_record
from tidewalk.run.settings import config_hash
from tidewalk.run.study import Leg, Study, data_fingerprint, market_hash
from tidewalk.run.surface import GridConfig, cost_surface
from tidewalk.stats import metrics as stats
from tidewalk.store import checkpoint, layout, results, trials
from tidewalk.store.layout import RunFolder
from tidewalk.store.reconcile import reconcile
from tidewalk.store.summary import FIGURES, SUMMARY_SCHEMA, undefined_warning, write_summary
from tidewalk.train.population import TrainState

_PACKAGES = ("tidewalk", "jax", "jaxlib", "equinox", "optax", "numpy", "polars", "databento-dbn")
_WRITERS = 8


def manifest_fields(study: Study) -> dict[str, Any]:
    """What was run with what: versions, device, code state, data and configuration."""
    return {
        "status": "running",
        "started": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        **made_with(),
        "backend": jax.default_backend(),
        "learner": study.program.learner,
        "git": _git_state(),
        "data_fingerprint": data_fingerprint(study),
        "config_hash": config_hash(study.config),
        "rules": {**dataclasses.asdict(study.config.env), **dataclasses.asdict(study.config.limits)},
        "symbols": [_symbol_fields(study, leg) for leg in study.legs],
    }


def made_with() -> dict[str, Any]:
    """Software and device: what may change the last bits of a result, beside settings and data."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "device": mesh.describe(),
        **({"threads": shares.threads()} if jax.default_backend() == "cpu" else {}),
    }


def unlike(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """In words, what of `made_with` and which learner is another than it was, where both manifests have it."""
    names, pair = ("device", "learner", "threads"), (now, before)
    is_, was = ({**one.get("versions", {}), **{name: one[name] for name in names if name in one}} for one in pair)
    return [f"{name} {is_[name]} (was {was[name]})" for name in is_ if was.get(name, is_[name]) != is_[name]]


def _symbol_fields(study: Study, leg: Leg) -> dict[str, Any]:
    """What a symbol is and costs, for the manifest."""
    info = leg.market.info
    return {
        "symbol": leg.symbol,
        "data_fingerprint": info.fingerprint,
        "bars": leg.market.num_bars,
        "contracts": list(info.contracts),
        "rolls": list(info.rolls),
        "features": list(info.feature_names),
        "notes": list(info.notes),
        "warnings": list(info.warnings),
        "tick": info.tick_e9 / 1e9,
        "multiplier": info.multiplier,
        "currency": info.currency,
        "costs": figures.costs_record(study, leg),
    }


def quality_records(study: Study) -> list[dict[str, Any]]:
    """The symbols of `data_quality.json`: their files, what was found in them, and the fingerprint of their bars.

    A market that was prepared by an older version has no findings; its notes and warnings say the same in words.
    """
    infos = [leg.market.info for leg in study.legs]
    return [
        {
            "symbol": info.symbol,
            "data_fingerprint": info.fingerprint,
            "files": list(info.files),
            "findings": list(info.quality) or _as_findings(info.notes, info.warnings),
        }
        for info in infos
    ]


def _as_findings(notes: Sequence[str], warnings: Sequence[str]) -> list[dict[str, Any]]:
    texts = [(text, False) for text in notes] + [(text, True) for text in warnings]
    return [
        {"defect": "remark", "text": text, "count": 0, "is_warning": is_warning, "file": None}
        for text, is_warning in texts
    ]


def opening_lines(engine: Engine) -> list[str]:
    """What is about to run, in a few lines."""
    study = engine.study
    sent = engine.transfers.bytes_market / 2**20
    lines = [
        f"{leg.symbol}: {counted(leg.market.num_bars, 'bar')}, {counted(len(leg.market.info.contracts), 'contract')}, "
        f"{counted(len(leg.market.info.rolls), 'roll')}, {counted(len(leg.market.info.feature_names), 'feature')}"
        for leg in study.legs
    ]
    lines.append(
        f"{study.crowd} = {counted(study.num_members, 'member')} "
        f"on {mesh.describe()}{engine.deal.said()}; uploaded once: {sent:.1f} MiB; {engine.building.said()}"
    )
    lines.append(memory.said(study, mesh.used_devices(study.num_members), mesh.limit_bytes(), engine.compiled))
    lines += [study.said(leg, _costs_line(study, leg)) for leg in study.legs] + _limits_lines(study)
    lines += [f"note: {study.said(leg, text)}" for leg in study.legs for text in leg.market.info.notes]
    idle = mesh.idle_devices(study.num_windows, study.config.train.seeds)
    rounded = mesh.precision_warnings(study.config.output.precision)
    return lines + [f"warning: {text}" for text in (*study.warnings, *rounded, *([idle] if idle else []))]


def _costs_line(study: Study, leg: Leg) -> str:
    line = (
        f"costs per contract and side: {cost(leg.costs.side_usd)} {study.currency} "
        f"({leg.costs.slippage_ticks:g} tick slippage + {cost(leg.costs.commission_usd)} commission)"
    )
    if study.program.has_spread:
        line += f" + half the recorded spread (mean {figures.mean_half_spread_ticks(leg):.3g} ticks)"
    if study.config.env.roll_as == "spread":
        line += f"; per contract rolled: {cost(leg.costs.roll_usd)}"
    return line


def _limits_lines(study: Study) -> list[str]:
    limits = study.config.limits
    parts = [f"{name.removesuffix('_usd').replace('_', ' ')} {value:,.2f}" for name, value in limits.given.items()]
    return [f"account of each window, in {study.currency}: {', '.join(parts)}"] if parts else []


def write_results(run: RunFolder, engine: Engine, state: TrainState | Kept) -> None:
    """Trade the test months, and write every result file, the summary and the report.

    The policies are written first, and their digest kept, so that what is traded was fixed before any test bar was.
    """
    from tidewalk.report.page import write_report

    _write_policies(run, engine, state)
    settled = outcome.settle(engine, state)
    counted = _record_trial(run, settled)  # before any result can be read, so that a crash hides no trial
    members = outcome.members_frame(settled)
    results.write_equity(run, outcome.equity_frame(settled))
    results.write_fills(run, outcome.fills_frame(settled))
    results.write_trades(run, outcome.trades_frame(settled))
    results.write_members(run, members)
    results.write_cost_surface(run, cost_surface(engine, state.best, settled.books, GridConfig()))
    lines = results.read_metrics(run).records
    phases, unmeasured = phases_ms(lines, profile.read_phases(run.profile))
    transfers, uncounted = transfers_record(lines, engine)
    parts, warnings = _figures(settled, members, *counted)
    rounded = mesh.precision_warnings(engine.study.config.output.precision)
    summary = {
        **_summary_head(run, engine.study, "complete"),
        "transfers": transfers,
        "phases_ms": phases,
        "compile_ms": engine.building.compile_ms,
        "trace_ms": engine.building.trace_ms,
        **parts,
        "warnings": [*engine.study.warnings, *rounded, *warnings, *unmeasured, *uncounted],
    }
    write_summary(run, summary)
    reconcile(run)
    layout.finish_manifest(run, "complete")
    write_report(run.root)


def _figures(
    settled: outcome.Outcome, members: pl.DataFrame, known: trials.Tried, common: trials.Common
) -> tuple[dict[str, Any], list[str]]:
    """The parts of the summary that judge the result, and the warnings that go with them."""
    legs = settled.study.legs
    oos, yardsticks = figures.performance(settled, legs), figures.yardsticks(settled, legs)
    rival = evidence.rivals_of(settled, yardsticks["equals"])
    entries = {
        "oos": {**oos, **evidence.of_all_trials(settled, oos, known.trials, common, rival)},
        "baselines": yardsticks,
        "oracle": figures.hindsight(settled, legs),
        "over_seeds": evidence.over_seeds(settled),
        "overfitting": evidence.over_configurations(settled, common, rival),
        "cost_surface": figures.cost_surface(settled, legs),
        "reconciled": outcome.reconciled(settled),
    }
    blocks = {name: figures.block(name, entry) for name, entry in entries.items()}
    symbols, of_symbols = figures.per_symbol(settled)
    windows, of_windows = figures.per_window(settled, members)
    parts = {name: plain for name, (plain, _) in blocks.items()}
    undefined = [text for _, reasons in blocks.values() for text in reasons]
    told = [*figures.behaviour_warnings(settled), *known.warnings, *common.warnings]
    return {**parts, "per_symbol": symbols, "per_window": windows}, [*told, *undefined, *of_symbols, *of_windows]


def write_unfinished(run: RunFolder, study: Study, status: str) -> None:
    """A summary without figures for a run that did not end, so that whoever reads the folder sees its state."""
    summary = {
        **_summary_head(run, study, status),
        **dict.fromkeys(FIGURES),
        "per_symbol": [],
        "per_window": [],
        "warnings": [undefined_warning(name, f"the run is {status}") for name in FIGURES],
    }
    write_summary(run, summary)
    layout.finish_manifest(run, status)


def _summary_head(run: RunFolder, study: Study, status: str) -> dict[str, Any]:
    infos = [leg.market.info for leg in study.legs]
    return {
        "schema": SUMMARY_SCHEMA,
        "run": run.root.name,
        "status": status,
        "model": study.config.model,
        "symbol": study.symbol,
        "currency": study.currency,
        "device": mesh.describe(),
        "data_fingerprint": data_fingerprint(study),
        "bars": sum(leg.market.num_bars for leg in study.legs),
        "contracts": sum(len(info.contracts) for info in infos),
        "rolls": sum(len(info.rolls) for info in infos),
        "windows": study.num_windows,
        "seeds": study.config.train.seeds,
        "members": study.num_members,
        "epochs": study.config.train.epochs,
    }


def _record_trial(run: RunFolder, settled: outcome.Outcome) -> tuple[trials.Tried, trials.Common]:
    """Count this configuration in the ledger beside the run folders, and keep the trials on these data in the run."""
    root = run.root.parent
    # with the market, so that another roll table or feature code under the same name is another trial
    trial, known = count_trial(root, settled, market_hash(settled.study))
    trials.write_copy(run.trials, known.trials)
    return known, trials.common_sessions(root, known.trials, trial.config_hash)


def count_trial(root: Path, settled: outcome.Outcome, made_of: str) -> tuple[trials.Trial, trials.Tried]:
    """Append what was evaluated to the ledger of `root`, with its session P&L.

    Args:
        root: folder of the run folders.
        settled: the books.
        made_of: SHA-256 of what the policies were made of beside the settings.

    Returns:
        The trial, and all that are known on these data.
    """
    study, (days, pnl) = settled.study, figures.oos_pnl(settled, settled.study.legs)
    trial = trials.Trial(
        data_fingerprint=data_fingerprint(study),
        config_hash=f"{config_hash(study.config)}-{made_of[:16]}",
        model=study.config.model,
        sharpe_per_session=stats.sharpe(pnl, 1.0).value,
        net_usd=float(pnl.sum()),
        sessions=len(pnl),
        when_iso=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        symbol=study.symbol,
    )
    trials.record_trial(root, trial, days, pnl)
    return trial, trials.tried(root, trial.data_fingerprint, study.symbol, days)


def _write_policies(run: RunFolder, engine: Engine, state: TrainState | Kept) -> None:
    study, best = engine.study, jax.device_get(state.best)
    centers, scales = np.asarray(study.windows.center), np.asarray(study.windows.scale)
    env, version = study.program.env, _version("tidewalk")

    def write(index: int) -> None:
        window, seed = divmod(index, study.config.train.seeds)
        leg = study.leg_by_window[window]
        meta = {
            "window": window,
            "seed": seed,
            "model": study.config.model,
            "best_epoch": int(best.epoch[index]),
            "spread": finite(float(best.spread[index])),
            "hidden": list(study.config.dqn.hidden),
            "positions": env.positions,
            "lots_per_level": env.lots_per_level,
            "lookback": env.lookback,
            "decision_delay": env.decision_delay,
            "feature_names": list(leg.market.info.feature_names),
            "symbol": leg.symbol,
            "version": version,
        }
        scaler = {"scaler.center": centers[window], "scaler.scale": scales[window]}
        arrays = trees.to_named(trees.member(best.params, index)) | scaler
        checkpoint.save_policy(run.policies, f"window-{window:02d}-seed-{seed:02d}", arrays, meta)

    # every file waits for the disk: thousands of them one after another would wait for minutes
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write, range(study.num_members)))
    hashes = "".join(layout.sha256_file(path) for path in sorted(run.policies.glob("*.safetensors")))
    digest = hashlib.sha256(hashes.encode()).hexdigest()
    layout.write_manifest(run, {**layout.read_manifest(run), "policies_sha256": digest})


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state() -> dict[str, Any] | None:
    """Commit of the code that runs, when it runs from a checkout."""
    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(here, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *args: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *args], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
