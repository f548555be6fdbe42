"""Settings of jax from outside never change a study's numbers: a command leaves them out, a program is told."""

import dataclasses
import functools
from pathlib import Path

import jax
import pytest
from jax._src import config as jax_config

from support import planted_market, small_config
from tidewalk import cli
from tidewalk.core.errors import ConfigError
from tidewalk.run import ambient, compiler, engine, mesh
from tidewalk.run.markets import prepare_device
from tidewalk.run.study import plan_study


def test_what_a_study_depends_on_is_named_as_jax_names_it_and_has_its_default():
    assert {name: jax.config.values.get(name) for name in ambient.NEEDED} == ambient.NEEDED


@pytest.mark.parametrize("name", ambient.NEEDED)
def test_a_command_leaves_out_what_would_change_its_numbers_and_says_so(name, monkeypatch, capsys):
    needed = ambient.NEEDED[name]
    other = "raise" if isinstance(needed, str) else str(1 - int(needed))
    monkeypatch.setenv(name.upper(), other)
    environment, said = {name.upper(): other, "JAX_LOG_COMPILES": "1"}, []
    ambient.pin(environment, said.append)
    assert environment == {"JAX_LOG_COMPILES": "1"}, "what changes nothing is followed"
    assert len(said) == 1
    assert said[0].startswith(f"note: {name.upper()}={other} in the environment is not followed")
    assert cli.main(["report", "--help"]) == 0
    assert said[0] in capsys.readouterr().err, "every command does so"
    for same in {needed} if isinstance(needed, str) else {str(int(needed)), str(needed)}:
        ambient.pin({name.upper(): same}, said.append)
    assert len(said) == 1, "what is so anyway is no news"


@pytest.mark.parametrize(
    ("name", "otherwise"),
    [
        ("jax_threefry_partitionable", lambda: jax.threefry_partitionable(False)),
        ("jax_enable_x64", lambda: jax.enable_x64(True)),
        ("jax_disable_jit", jax.disable_jit),
    ],
)
def test_a_program_that_set_jax_up_otherwise_is_told_before_anything_goes_up(name, otherwise):
    config = small_config(Path("none.npz"))
    study = plan_study(config, [planted_market(days=182)], compose="scan")
    upload = functools.partial(engine.upload_study, study, mesh.Transfers(), None)
    with otherwise():
        for start in (functools.partial(prepare_device, config, quiet=True), upload):
            with pytest.raises(ConfigError, match=rf"jax is set up with {name} = .*jax.config.update\(\"{name}\", "):
                start()
    ambient.refuse_other()


def test_a_platform_that_is_not_there_is_told_with_what_asked_for_it(monkeypatch):
    def fail() -> None:
        raise AssertionError

    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(ConfigError, match=r"^JAX_PLATFORMS=cuda: jax finds no such device here\. Allowed are cpu and"):
        mesh.choose_platform(None)
    monkeypatch.delenv("JAX_PLATFORMS")
    with pytest.raises(ConfigError, match=r"^jax finds no device here; `tidewalk doctor`"):
        mesh.choose_platform(None)
    asked = dataclasses.replace(small_config(Path("none.npz")).output, device="cpu")
    with pytest.raises(ConfigError, match=r"^--device cpu: jax finds no such device here\. On an NVIDIA"):
        mesh.choose_platform(asked.device)


def test_a_value_that_jax_itself_refuses_is_no_fault_of_tidewalk(monkeypatch):
    monkeypatch.setenv("JAX_LOG_COMPILES", "banana")
    with pytest.raises(ValueError, match="banana") as caught:
        jax_config.bool_env("JAX_LOG_COMPILES", False)
    text, code = cli.explain(caught.value)
    assert code == 2
    assert text.startswith("jax cannot start: invalid truth value 'banana' for environment 'JAX_LOG_COMPILES'. Correct")


def test_a_file_of_flags_is_refused_since_flags_are_added(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    with pytest.raises(ConfigError, match=r"^XLA_FLAGS=flags.txt: .*begin with --"):
        compiler.set_flags()
