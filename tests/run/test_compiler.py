"""Flags and options of the compiler: what every program needs for the same bits, and what only makes it faster."""

import jax
import pytest

from tidewalk.run import compiler, mesh


def test_every_program_of_a_gpu_is_compiled_without_timing_kernels(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")
    mesh.make_reproducible()
    mesh.make_reproducible()
    assert compiler.os.environ["XLA_FLAGS"].split() == [
        "--xla_dump_to=somewhere",
        "--xla_gpu_autotune_level=0",
        "--xla_gpu_enable_scatter_determinism_expander=true",
    ]


def test_a_flag_of_the_user_wins(monkeypatch):
    mine = "xla_gpu_dot_merger_threshold_mb"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_autotune_level=4 --{mine}=32")
    mesh.make_reproducible()
    assert "--xla_gpu_autotune_level=0" not in compiler.os.environ["XLA_FLAGS"]
    assert set(compiler.options("gpu")) == set(compiler.FASTER["gpu"]) - {mine}


def test_all_options_are_known_to_this_compiler_and_their_values_are_taken(monkeypatch):
    """XLA takes the options of every backend on every backend, so a misspelt one shows here."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setitem(compiler.FASTER, "all", dict(compiler.REPRODUCIBLE))
    for backend, wanted in compiler.FASTER.items():
        assert compiler.options(backend) == wanted
    assert compiler.options("cpu") == {}


@pytest.mark.parametrize(
    ("name", "value"), [("xla_gpu_no_such_option", "1"), ("xla_gpu_command_buffer_scheduling_mode", "SIDEWAYS")]
)
def test_an_option_that_the_compiler_refuses_is_left_out(name, value, monkeypatch):
    monkeypatch.setitem(compiler.FASTER, name, {name: value, "xla_gpu_graph_min_graph_size": "3"})
    assert compiler.options(name) == {"xla_gpu_graph_min_graph_size": "3"}
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.jit(lambda: 0).lower().compile(compiler_options={name: value})
