"""What runs the vector steps of a study: XLA's program, or one kernel where there is a GPU that it fits."""

import dataclasses

import jax

from tidewalk.core.errors import ConfigError
from tidewalk.run.study import Study
from tidewalk.train.kernel.plan import map_plan_for, plan_for, unfit, unsupported


def with_learner(study: Study) -> tuple[Study, tuple[str, ...]]:
    """The study with the learner that `--learner` asks for.

    Returns:
        The study, and what to say of it in the log: nothing on a CPU, where there is no choice.

    Raises:
        ConfigError: the kernel was asked for, and cannot run this study here.
    """
    asked = study.config.output.learner
    if asked == "xla":
        return study, ()
    reason = _against_kernel(study)
    if reason is None:
        program = dataclasses.replace(study.program, learner="kernel")
        return dataclasses.replace(study, program=program), ("learner: one kernel for all vector steps of an epoch",)
    if asked == "kernel":
        raise ConfigError(f"--learner kernel cannot run this study: {reason}. Use --learner auto or xla.")
    return study, () if jax.default_backend() == "cpu" else (f"learner: compiled by XLA; no kernel, for {reason}",)


def _against_kernel(study: Study) -> str | None:
    precision = study.config.output.precision
    reason = unsupported(study.program, precision, has_limits=study.limits is not None)
    if reason is not None:
        return reason
    plans = plan_for(study.program, precision), map_plan_for(study.program, precision)
    return unfit(jax.local_devices()[0], max(plans, key=lambda plan: plan.shared_bytes))
