"""What runs the vector steps of a study: XLA's program, or one kernel where there is a GPU that it fits."""

import dataclasses
from typing import Literal

import jax

from tidewalk.core.errors import ConfigError
from tidewalk.run.mesh import devices, used_devices
from tidewalk.run.study import Study
from tidewalk.train.kernel import trial
from tidewalk.train.kernel.plan import map_plan_for, plan_for, shared_out, too_long, unfit, unsupported


def with_learner(study: Study) -> tuple[Study, tuple[str, ...]]:
    """The study with the learner that `--learner` asks for.

    Returns:
        The study, and what to say of it in the log: nothing on a CPU, where there is no choice, and nothing where the
        learner is settled already.

    Raises:
        ConfigError: the kernel was asked for, and cannot run this study here.
    """
    asked = study.config.output.learner
    if study.program.learner is not None:
        return study, ()
    if asked == "xla":
        return _with(study, "xla"), ()
    reason = _against_kernel(study)
    if reason is None:
        return _with(study, "kernel"), (_kernel_in_words(study),)
    if asked == "kernel":
        raise ConfigError(f"--learner kernel cannot run this study: {reason}. Use --learner auto or xla.")
    notes = () if jax.default_backend() == "cpu" else (f"learner: compiled by XLA; no kernel, for {reason}",)
    return _with(study, "xla"), notes


def _with(study: Study, learner: Literal["xla", "kernel"]) -> Study:
    return dataclasses.replace(study, program=dataclasses.replace(study.program, learner=learner))


def _kernel_in_words(study: Study) -> str:
    members = study.num_members // used_devices(study.num_members)
    plan = shared_out(plan_for(study.program, study.config.output.precision), members, jax.local_devices()[0])
    blocks = f", {plan.cluster} blocks for each member" if plan.cluster > 1 else ""
    return f"learner: one kernel for all vector steps of an epoch{blocks}"


def _against_kernel(study: Study) -> str | None:
    precision, count = study.config.output.precision, used_devices(study.num_members)
    reason = unsupported(study.program, precision, has_limits=study.limits is not None)
    reason = reason or too_long(study.program, study.num_members // count)
    if reason is not None:
        return reason
    plans = plan_for(study.program, precision), map_plan_for(study.program, precision)
    largest = max(plans, key=lambda plan: plan.shared_bytes)
    reason = next(filter(None, (unfit(device, largest) for device in devices()[:count])), None)
    return reason or trial.refusal()
