"""What is kept of epochs: the line of each in `metrics.jsonl`, and what a summary says of them all."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidewalk.run.engine import Engine
from tidewalk.run.mesh import Transfers
from tidewalk.run.study import Study
from tidewalk.run.timing import PHASES, PhaseTimes
from tidewalk.store.summary import undefined_warning
from tidewalk.trading.account import net_usd
from tidewalk.trading.env import Tally

_PHASE_KEYS = (*PHASES, "total")


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What an epoch gave beside its state."""

    metrics: dict[str, np.ndarray]
    times: PhaseTimes
    epoch: int
    moved: Transfers
    """All transfers and waits of the epoch, those for its checkpoint included, and those before it."""
    before: Transfers
    """Of these, what the process did before its first epoch: the market and the state went up."""
    checkpoint_bytes: int
    """Of the state that came down for a checkpoint; 0 where none was made."""
    is_traced: bool


def epoch_record(engine: Engine, made: Epoch) -> dict[str, Any]:
    """The line of an epoch in `metrics.jsonl`."""
    study, epoch, metrics, moved = engine.study, made.epoch, made.metrics, made.moved
    loss = np.asarray(metrics["loss"], np.float64)
    known = loss[np.isfinite(loss)]
    losses: dict[str, Any] = _spread(known) if known.size else dict.fromkeys(("median", "p10", "p90"))
    val_usd = _validation_usd(study, metrics)
    scale = np.repeat(np.asarray(study.windows.reward_scale, np.float64), study.config.train.seeds)
    reward = val_usd / _by_member(study, [leg.costs.tick_value_usd for leg in study.leg_by_window]) * scale
    return {
        "epoch": epoch,
        "step": epoch * study.program.steps_per_epoch,
        "loss": losses["median"],
        "loss_p10": losses["p10"],
        "loss_p90": losses["p90"],
        "epsilon": float(metrics["epsilon"][0]),
        "val_net_usd": _spread(val_usd),
        "val_reward": _spread(reward),
        "q_mean": finite(float(np.median(metrics["q_mean"]))),
        "phases_ms": {name: getattr(made.times, name) for name in _PHASE_KEYS},
        "uploaded_bytes": moved.bytes_h2d,
        "downloaded_bytes": moved.bytes_d2h,
        "checkpoint_bytes": made.checkpoint_bytes,
        "host_syncs": moved.host_syncs,
        **({"is_traced": True} if made.is_traced else {}),
        **(_resuming(made.before) if epoch > 1 and made.before != Transfers() else {}),
        "compile_ms": engine.building.compile_ms if made.before != Transfers() else None,
        "epochs_per_s": 1e3 / made.times.total,
        "members": {"loss": [finite(float(x)) for x in loss], "val_net_usd": val_usd.tolist()},
    }


def _resuming(before: Transfers) -> dict[str, int]:
    """What going on took before the epoch, counted with it: the rest is what an epoch takes that follows another."""
    return {"resuming_bytes": before.bytes_h2d, "resuming_syncs": before.host_syncs}


def _validation_usd(study: Study, metrics: dict[str, Any]) -> np.ndarray:
    """Net validation result of every member `[M]`, each at the costs of its symbol."""
    shape = (study.num_windows, study.config.train.seeds)
    parts = [field.name for field in dataclasses.fields(Tally) if field.name in metrics]
    columns = (np.asarray(metrics[name]).reshape(shape) for name in parts)
    rows = zip(study.leg_by_window, *columns, strict=True)
    return np.concatenate([net_usd(leg.costs, **dict(zip(parts, row, strict=True))) for leg, *row in rows])


def _by_member(study: Study, by_window: Sequence[float]) -> np.ndarray:
    return np.repeat(np.asarray(by_window, np.float64), study.config.train.seeds)


def phases_ms(
    lines: Sequence[dict[str, Any]], alone: dict[str, Any] | None
) -> tuple[dict[str, float | None], list[str]]:
    """Median phase times over the epochs after the first, and warnings for those that are not known.

    Args:
        lines: the epochs of `metrics.jsonl`; those that ran under a tracer are left out where there are others.
        alone: what a profiled run found when it called the phases one by one.
    """
    later = [line for line in lines if line["epoch"] > 1] or list(lines)
    plain = [line for line in later if not line.get("is_traced")] or later
    found: dict[str, float | None] = {}
    for name in _PHASE_KEYS:
        values = [line["phases_ms"][name] for line in plain if line["phases_ms"][name] is not None]
        found[name] = float(np.median(values)) if values else None if alone is None else alone[name]
    if alone is not None:
        found["phased_total"] = alone["total"]
    reason = "the fused epoch is one program; measure its phases with --profile"
    return found, [undefined_warning(f"phases_ms.{name}", reason) for name, value in found.items() if value is None]


def transfers_record(lines: Sequence[dict[str, Any]], engine: Engine) -> tuple[dict[str, Any], list[str]]:
    """What crossed between host and device in the epochs after the first, and warnings where there are none."""
    later = [line for line in lines if line["epoch"] > 1]
    moved = {
        "bytes_h2d_per_epoch": [line["uploaded_bytes"] - line.get("resuming_bytes", 0) for line in later],
        "bytes_d2h_per_epoch": [
            line["downloaded_bytes"] - line["checkpoint_bytes"] for line in later if "downloaded_bytes" in line
        ],
        "host_syncs_per_epoch": [
            line["host_syncs"] - line.get("resuming_syncs", 0) - (line["checkpoint_bytes"] > 0)
            for line in later
            if "host_syncs" in line
        ],
    }
    most = {name: max(values) if values else None for name, values in moved.items()}
    reason = "there is no epoch after the first"
    warnings = [undefined_warning(f"transfers.{name}", reason) for name, value in most.items() if value is None]
    counted = {"uploads": engine.transfers.uploads, "bytes_market": engine.transfers.bytes_market}
    return {**counted, **most}, warnings


def _spread(values: np.ndarray) -> dict[str, float]:
    p10, median, p90 = np.quantile(values, [0.1, 0.5, 0.9])
    return {"median": float(median), "p10": float(p10), "p90": float(p90), "best": float(values.max())}


def finite(value: float) -> float | None:
    """The value, None where it has none that JSON knows."""
    return value if np.isfinite(value) else None
