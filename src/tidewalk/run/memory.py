"""Whether a study fits into the memory of its device: asked before anything is compiled, and said in words."""

import dataclasses
import functools

import jax
import numpy as np
from jax.stages import Compiled

from tidewalk.agents import dqn
from tidewalk.core.arrays import PyTree
from tidewalk.core.errors import ConfigError, TrainError
from tidewalk.core.words import counted
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows
from tidewalk.run import mesh, shares
from tidewalk.run.study import Study
from tidewalk.train import memory
from tidewalk.train.memory import Memory
from tidewalk.train.population import Program

_TOLERANCE = 0.05
"""Part of the predicted memory by which the compiled program may take more or less without a word of it."""
_NONE_FITS = " Not even one member fits."
_NAMES = {
    "market": "market",
    "learner": "weights and optimiser",
    "best": "best epochs",
    "lanes": "lanes",
    "replay": "replay",
    "learning": "scratch of learning",
    "evaluation": "scratch of validation",
    "checkpoint": "checkpoint on the host",
}
_REMEDIES = {
    "market": "shorter data, longer bars or fewer features",
    "learner": "a smaller --hidden",
    "best": "a smaller --hidden",
    "lanes": "fewer --lanes",
    "replay": "a smaller --replay-capacity",
    "learning": "a smaller --batch-size, --updates-per-step, --lanes or --max-steps-per-epoch",
    "evaluation": "a smaller --hidden",
}


def of_study(study: Study, devices: int = 1) -> Memory:
    """Predicted memory of one device of a study whose members are spread over several."""
    return of_members(study, study.program, -(-study.num_members // devices))


def of_members(study: Study, program: Program, members: int) -> Memory:
    """Predicted memory of some members on one device.

    Args:
        study: the market and the windows, and what a member is.
        program: static settings of the population, which may hold the members of several studies.
        members: members on the device.
    """
    return memory.predict(program, *_asked(study), members, _parts)


def _parts(members: int) -> tuple[int, int, int]:
    dealt = shares.deal(members)
    return dealt.size, dealt.count, dealt.at_a_time


def as_compiled(study: Study, compiled: Compiled) -> Memory | None:
    """Memory of one device of a study with the scratch that its compiled epoch takes; None where that is not told."""
    told = compiled.memory_analysis()
    if told is None or not told.temp_size_in_bytes:
        return None
    each = -(-study.num_members // mesh.used_devices(study.num_members))
    return of_members(study, study.program, each).with_scratch(_parts(each)[2] * told.temp_size_in_bytes)


def said(study: Study, devices: int = 1, limit: int | None = None, compiled: Compiled | None = None) -> str:
    """The prediction in one line, with its largest parts.

    Args:
        study: what it is about.
        devices: devices that the members are spread over.
        limit: what each of the devices has.
        compiled: the program of its epoch, whose own account is told where it is another.
    """
    need = of_study(study, devices)
    parts = ", ".join(f"{_NAMES[part]} {in_words(size)}" for part, size in _largest(need)[:4])
    each, there = " on each device" if devices > 1 else "", f" of {in_words(limit)}" if limit else ""
    most = memory.most_members(study.program, *_asked(study), limit, _parts) if limit else 0
    room = f"; room for {most:,} members" if limit else ""
    found = as_compiled(study, compiled) if compiled else None
    is_other = found is not None and abs(found.peak - need.peak) > _TOLERANCE * need.peak
    told = f"; as compiled: {in_words(found.peak)}" if found is not None and is_other else ""
    return f"memory by formula{each}: {in_words(need.peak)}{there} ({parts}){room}{told}"


def refuse_too_large(study: Study, compiled: Compiled | None = None) -> None:
    """Refuse a study whose members do not fit into the memory of their device.

    Args:
        study: the study.
        compiled: the program of its epoch, where there is one: then its own account decides, not the formula.

    Raises:
        ConfigError: names what takes most, how it is made smaller, and, by the formula, how many members would fit.
    """
    limit, found = mesh.limit_bytes(), as_compiled(study, compiled) if compiled else None
    need = found or of_study(study, mesh.used_devices(study.num_members))
    if limit is not None and need.peak > limit:
        raise ConfigError(_too_large(study, limit, found))


def out_of_memory(study: Study, error: BaseException) -> TrainError | None:
    """What to say where a device or the host ran out of memory all the same; None for any other error."""
    told = str(error)
    # jax reports an exhausted device or host as its own RuntimeError
    if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in told and "Out of memory" not in told:
        return None
    first = (told.splitlines() or ["no memory is left"])[0].strip(".")
    return TrainError(f"Out of memory ({first}). {_too_large(study, mesh.limit_bytes())}")


def _too_large(study: Study, limit: int | None, compiled: Memory | None = None) -> str:
    """What takes how much, and what helps; by the account of the compiled program where there is one."""
    devices = mesh.used_devices(study.num_members)
    need = compiled or of_study(study, devices)
    largest = [(part, size) for part, size in _largest(need) if 10 * size >= need.peak]
    each = f" on each of {devices} devices" if devices > 1 else ""
    there = f", of {in_words(limit)} there" if limit else ""
    made = " as compiled" if compiled else ""
    fit, remedies = "", [_REMEDIES[part] for part, _ in largest if part in _REMEDIES]
    if limit is not None and need.peak > limit and compiled is None:
        fit = _what_fits(study, limit)
    if _NONE_FITS not in fit:
        remedies.insert(0, "fewer --seeds or windows (--step-months)")
    members = counted(study.num_members, "member")
    crowd = f"{counted(study.num_windows, 'window')} x --seeds {study.config.train.seeds} = {members}"
    return (
        f"{crowd} of this size need about {in_words(need.peak)} of memory{each}{made}{there}: "
        f"{', '.join(f'{_NAMES[part]} {in_words(size)}' for part, size in largest)}.{fit} "
        f"What helps: {', '.join(dict.fromkeys(remedies))}."
    )


def _what_fits(study: Study, limit: int) -> str:
    each = memory.most_members(study.program, *_asked(study), limit, _parts)
    if not each:
        return _NONE_FITS
    windows = study.num_windows
    most = each * len(mesh.devices()) // windows
    seeds = next((n for n in range(most, 0, -1) if _fits(study, windows * n, each, limit)), 0)
    if seeds:
        return f" --seeds {seeds} would fit."
    short = "fewer than there are windows" if each < windows else f"but no multiple of the {windows} windows"
    return f" At most {counted(each, 'member')} fit, {short}."


def _fits(study: Study, members: int, each: int, limit: int) -> bool:
    """Whether a number of members fits; of a few, the most that do on a device, `each`, does not tell.

    Some numbers cannot be shared out over all devices, and some fewer take more, in larger shares.
    """
    devices = mesh.used_devices(members)
    return members <= each * devices and of_members(study, study.program, members // devices).peak <= limit


def _largest(need: Memory) -> list[tuple[str, int]]:
    """Parts by size; the largest of those that use the same memory one after the other: scratch, and a checkpoint."""
    sizes = dataclasses.asdict(need)
    sizes["learning" if need.learning < need.evaluation else "evaluation"] = 0
    unused = ("checkpoint",) if need.checkpoint <= need.scratch else ("learning", "evaluation")
    sizes.update(dict.fromkeys(unused, 0))
    return sorted(((part, sizes[part]) for part in _NAMES), key=lambda item: -item[1])


def _asked(study: Study) -> tuple[list[Market], Windows, PyTree]:
    config, first = study.config, functools.partial(jax.tree.map, lambda leaf: np.asarray(leaf)[0])
    hyper = jax.eval_shape(lambda: dqn.hyper(config.dqn, 1))
    markets = [leg.market.on_device() for leg in study.legs]
    return markets, study.windows, (first(study.cost_ticks), hyper, first(study.limits))


def in_words(count: float) -> str:
    """Bytes in the largest unit of which there is one: 1.9 GiB."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(0, (int(count).bit_length() - 1) // 10), len(units) - 1)
    return f"{count / 1024**power:.{0 if power == 0 else 1}f} {units[power]}"
