"""The log says what runs the vector steps of a study, and how many blocks of the kernel share a member."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from support import planted_market, small_config
from tidewalk.agents.dqn import DQNConfig
from tidewalk.run.learner import with_learner
from tidewalk.run.study import plan_study

H200 = SimpleNamespace(
    platform="gpu",
    device_kind="NVIDIA H200",
    compute_capability="9.0",
    core_count=132,
    client=SimpleNamespace(platform_version="CUDA"),
)


def study_of(hidden):
    config = dataclasses.replace(small_config(Path("data")), dqn=DQNConfig(hidden=hidden))
    return plan_study(config, [planted_market(days=200, bars_per_day=10)], compose="associative")


@pytest.mark.parametrize(("hidden", "more"), [((128, 128), ", 4 blocks for each member"), ((64, 64), "")])
def test_few_members_of_wide_networks_are_shared_out(monkeypatch, hidden, more):
    monkeypatch.setattr(jax, "local_devices", lambda: [H200])
    study, notes = with_learner(study_of(hidden))
    assert study.program.learner == "kernel"
    assert notes == (f"learner: one kernel for all vector steps of an epoch{more}",)


def test_a_cpu_has_no_choice():
    study, notes = with_learner(study_of((128, 128)))
    assert (study.program.learner, notes) == ("xla", ())


def test_the_weakest_of_the_devices_decides(monkeypatch):
    smaller = SimpleNamespace(**{**vars(H200), "device_kind": "NVIDIA RTX 4000", "compute_capability": "8.9"})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [H200, smaller])
    study = study_of((128, 128))
    assert study.num_members % 2 == 0
    settled, notes = with_learner(study)
    assert settled.program.learner == "xla"
    assert "NVIDIA RTX 4000 has" in notes[0]
