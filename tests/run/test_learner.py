"""The log says what runs the vector steps of a study, and how many blocks of the kernel share a member."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from support import planted_market, small_config
from tidewalk.agents.dqn import DQNConfig
from tidewalk.core.errors import ConfigError
from tidewalk.run.learner import with_learner
from tidewalk.run.study import plan_study
from tidewalk.train.kernel import trial

H200 = SimpleNamespace(
    platform="gpu",
    device_kind="NVIDIA H200",
    compute_capability="9.0",
    core_count=132,
    client=SimpleNamespace(platform_version="CUDA"),
)


@pytest.fixture(autouse=True)
def tried(monkeypatch):
    """What the device says to a kernel that is tried on it, and how often it was asked."""
    tried = SimpleNamespace(refusal=None, count=0)

    def refusal():
        tried.count += 1
        return tried.refusal

    monkeypatch.setattr(trial, "refusal", refusal)
    return tried


def study_of(hidden, learner="auto", **learning):
    config = small_config(Path("data"))
    output = dataclasses.replace(config.output, learner=learner)
    config = dataclasses.replace(config, dqn=DQNConfig(hidden=hidden, **learning), output=output)
    return plan_study(config, [planted_market(days=200, bars_per_day=10)], compose="associative")


@pytest.mark.parametrize(("hidden", "more"), [((128, 128), ", 4 blocks for each member"), ((64, 64), "")])
def test_few_members_of_wide_networks_are_shared_out(monkeypatch, hidden, more):
    monkeypatch.setattr(jax, "local_devices", lambda: [H200])
    study, notes = with_learner(study_of(hidden))
    assert study.program.learner == "kernel"
    assert notes == (f"learner: one kernel for all vector steps of an epoch{more}",)


def test_a_cpu_has_no_choice_and_is_not_asked(tried):
    study, notes = with_learner(study_of((128, 128)))
    assert (study.program.learner, notes) == ("xla", ())
    assert tried.count == 0


def test_a_device_that_refuses_the_kernel_is_found_out_before_the_run(monkeypatch, tried):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [H200])
    tried.refusal = "the device does not run it (too old)"
    study, notes = with_learner(study_of((128, 128)))
    assert study.program.learner == "xla"
    assert notes == ("learner: compiled by XLA; no kernel, for the device does not run it (too old)",)
    with pytest.raises(ConfigError, match=r"--learner kernel cannot run this study: the device does not run it \(too"):
        with_learner(study_of((128, 128), "kernel"))
    assert tried.count == 2
    assert with_learner(study_of((128, 128), "xla"))[1] == ()
    assert tried.count == 2, "nobody wants to know"


def test_a_step_that_would_take_seconds_is_left_to_xla(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [H200])
    study, notes = with_learner(study_of((128, 128), updates_per_step=50_000))
    assert study.program.learner == "xla"
    assert "50,000 updates" in notes[0]


def test_the_weakest_of_the_devices_decides(monkeypatch):
    smaller = SimpleNamespace(**{**vars(H200), "device_kind": "NVIDIA RTX 4000", "compute_capability": "8.9"})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [H200, smaller])
    study = study_of((128, 128))
    assert study.num_members % 2 == 0
    settled, notes = with_learner(study)
    assert settled.program.learner == "xla"
    assert "NVIDIA RTX 4000 has" in notes[0]
