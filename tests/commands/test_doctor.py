"""`tidewalk doctor` says what a study would run on, and ends with a code that tells whether one can."""

import jax

from tidewalk.commands import doctor
from tidewalk.run import shares


def test_the_cores_are_those_that_a_study_takes(monkeypatch, capsys):
    monkeypatch.setattr(shares, "usable_cores", lambda: 5)
    assert doctor.run([]) == 0
    said = capsys.readouterr().out
    assert "cores: 5 work at a time for a study, each on a share of up to 7 members\n" in said
    assert said.endswith("a study can run here\n")


def test_a_device_that_cannot_be_used_is_a_problem(monkeypatch, capsys):
    def devices():
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert doctor.run([]) == 2
    said = capsys.readouterr().out
    assert "problem: JAX_PLATFORMS=cpu: jax finds no such device here (the driver is gone). Allowed are" in said
    assert said.endswith("a study cannot run here\n")
