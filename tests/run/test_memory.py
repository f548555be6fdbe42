"""Studies that do not fit are refused before anything is compiled or written, and the words say what would."""

import dataclasses
import itertools
import json
import types

import jax
import jax.numpy as jnp
import pytest

from support import planted_market, small_config
from tidewalk.cli import main
from tidewalk.core.errors import ConfigError, TrainError
from tidewalk.market.device import save_market
from tidewalk.run import control_groups, loop, memory, mesh, shares
from tidewalk.run.programs import Building
from tidewalk.run.study import plan_study
from tidewalk.store import layout

GIB = 2**30


@pytest.fixture(scope="module")
def market():
    return planted_market(days=200)


def study(tmp_path, market, **train):
    return plan_study(small_config(tmp_path, **train), [market], compose="scan")


def test_the_remedy_that_is_named_is_enough_and_one_seed_more_is_not(tmp_path, market, monkeypatch):
    monkeypatch.setattr(mesh, "limit_bytes", lambda: 2 * GIB)
    large = study(tmp_path, market, seeds=200_000)
    with pytest.raises(ConfigError) as refused:
        memory.refuse_too_large(large)
    seeds = int(str(refused.value).partition(". --seeds ")[2].partition(" would fit")[0])
    memory.refuse_too_large(study(tmp_path, market, seeds=seeds))
    with pytest.raises(ConfigError):
        memory.refuse_too_large(study(tmp_path, market, seeds=seeds + 1))


def test_a_number_that_is_named_fits_where_fewer_members_may_take_more(tmp_path, market, monkeypatch):
    """Few members in shares whose scratch outweighs the rest: 14 are shares of seven, 15 are shares of four."""
    monkeypatch.setattr(shares, "usable_cores", lambda: 1)
    config = small_config(tmp_path, seeds=4000, replay_capacity=2**15)
    config = dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, batch_size=4096))
    large = plan_study(config, [market], compose="scan")
    peaks = [memory.of_members(large, large.program, members).peak for members in range(36)]
    assert any(after < before for before, after in itertools.pairwise(peaks)), "what this is about"
    for limit in (peaks[4], peaks[10], peaks[18]):
        monkeypatch.setattr(mesh, "limit_bytes", lambda limit=limit: limit)
        fitting = [seeds for seeds, peak in enumerate(peaks[:: large.num_windows]) if seeds and peak <= limit]
        with pytest.raises(ConfigError) as refused:
            memory.refuse_too_large(large)
        told = str(refused.value)
        if fitting:
            assert f". --seeds {max(fitting)} would fit." in told
        else:
            most = max(members for members, peak in enumerate(peaks) if peak <= limit)
            assert f". At most {most} members fit, " in told


@pytest.mark.parametrize(
    ("train", "dqn", "part", "remedy"),
    [
        ({"replay_capacity": 2**31 - 1}, {}, "replay 48.0 GiB", "a smaller --replay-capacity"),
        ({}, {"hidden": (2**31 - 1, 2**31 - 1)}, "weights and optimiser", "a smaller --hidden"),
        ({}, {"batch_size": 2**31 - 1}, "scratch of learning", "a smaller --batch-size"),
        ({}, {"updates_per_step": 2**31 - 1}, "scratch of learning", "--updates-per-step"),
        ({"seeds": 500_000}, {}, "replay", "fewer --seeds or windows"),
    ],
)
def test_what_takes_most_is_named_with_what_makes_it_smaller(tmp_path, market, monkeypatch, train, dqn, part, remedy):
    monkeypatch.setattr(mesh, "limit_bytes", lambda: GIB)
    config = small_config(tmp_path, **({"seeds": 1} | train))
    config = dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, **dqn))
    with pytest.raises(ConfigError) as refused:
        memory.refuse_too_large(plan_study(config, [market], compose="scan"))
    told = str(refused.value)
    assert part in told.partition("there: ")[2]
    assert remedy in told
    assert ", of 1.0 GiB there" in told


def test_more_members_than_can_be_listed_are_refused_without_listing_them(tmp_path, market):
    with pytest.raises(ConfigError, match=r"--seeds 2147483647 are \d+ members; .* Use --seeds \d+ or fewer"):
        study(tmp_path, market, seeds=2**31 - 1)


@pytest.fixture(scope="module")
def hungry():
    """A compiled program whose own account is another than the formula's."""
    program = jax.jit(lambda x: jnp.sort(jnp.outer(x, x), axis=None).cumsum()[-1])
    return program.lower(jax.ShapeDtypeStruct((4096,), jnp.float32)).compile()


def test_what_the_compiler_says_is_told_where_it_is_another(tmp_path, market, hungry):
    small = study(tmp_path, market, seeds=4)
    found, each = memory.as_compiled(small, hungry), memory._parts(small.num_members)[2]
    assert found.scratch == each * hungry.memory_analysis().temp_size_in_bytes > 64 * 2**20
    assert found.arguments == memory.of_study(small).arguments
    told = memory.said(small, 1, 2 * GIB, hungry)
    assert told == f"{memory.said(small, 1, 2 * GIB)}; as compiled: {memory.in_words(found.peak)}"
    near = found.with_scratch(memory.of_study(small).scratch * 101 // 100)
    assert abs(near.peak - memory.of_study(small).peak) < 0.05 * near.peak


def test_a_study_that_fits_by_formula_and_not_as_compiled_is_refused_before_its_first_epoch(
    tmp_path, market, monkeypatch, hungry
):
    save_market(tmp_path / "m.npz", market)
    config = small_config(tmp_path / "m.npz", tmp_path / "run", seeds=4)
    small = study(tmp_path, market, seeds=4)
    limit = (memory.of_study(small).peak + memory.as_compiled(small, hungry).peak) // 2
    monkeypatch.setattr(mesh, "limit_bytes", lambda: limit)
    memory.refuse_too_large(small)
    monkeypatch.setattr(loop, "start", lambda _: (types.SimpleNamespace(compiled=hungry, building=Building()), None))
    with pytest.raises(ConfigError, match=r"members of this size need about .* of memory as compiled, of ") as refused:
        loop.train(config)
    assert "scratch of " in str(refused.value)
    assert "What helps: fewer --seeds" in str(refused.value)
    assert "would fit" not in str(refused.value), "only the formula knows of other numbers"
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_train_refuses_before_it_makes_a_folder(tmp_path, market, monkeypatch, capsys):
    save_market(tmp_path / "m.npz", market)
    monkeypatch.setattr(mesh, "limit_bytes", lambda: 2**20)
    out = tmp_path / "run"
    assert (
        main(
            [
                "train",
                "--data-dir",
                str(tmp_path / "m.npz"),
                "--symbol",
                "ES.FUT",
                "--out",
                str(out),
                "--train-months",
                "2",
            ]
        )
        == 2
    )
    assert "members of this size need about" in capsys.readouterr().err
    assert not out.exists()


def test_a_device_that_runs_out_all_the_same_ends_the_run_as_failed_with_the_same_words(tmp_path, market, monkeypatch):
    save_market(tmp_path / "m.npz", market)

    def exhausted(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")

    monkeypatch.setattr(loop, "start", exhausted)
    out = tmp_path / "run"
    with pytest.raises(
        TrainError, match=r"Out of memory \(RESOURCE_EXHAUSTED: .* members of this size need about .* What"
    ) as e:
        loop.train(small_config(tmp_path / "m.npz", out))
    assert e.value.exit_code == 3
    assert "fit" not in str(e.value), "by formula it does fit"
    assert layout.read_manifest(layout.open_run(out))["status"] == "failed"


def test_other_errors_are_none_of_memory(tmp_path, market):
    assert memory.out_of_memory(study(tmp_path, market), ValueError("odd")) is None
    assert memory.out_of_memory(study(tmp_path, market), MemoryError()) is not None


def test_the_limit_is_that_of_the_device_or_of_the_groups_the_process_is_in(monkeypatch):
    monkeypatch.setattr(control_groups, "memory_bytes", lambda: None)
    machine = mesh.limit_bytes()
    assert machine > GIB
    for granted in (GIB, 2 * machine):
        monkeypatch.setattr(control_groups, "memory_bytes", lambda granted=granted: granted)
        assert mesh.limit_bytes() == min(granted, machine)

    class Gpu:
        def memory_stats(self):
            return {"bytes_limit": 7 * GIB}

    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()])
    assert mesh.limit_bytes() == 7 * GIB


def test_windows_says_what_a_study_would_take(tmp_path, market, capsys):
    save_market(tmp_path / "m.npz", market)
    flags = ["windows", "--data-dir", str(tmp_path / "m.npz"), "--symbol", "ES.FUT", "--train-months", "2"]
    assert main([*flags, "--step-months", "1"]) == 0
    assert "note: memory by formula: " in capsys.readouterr().out
    assert main([*flags, "--step-months", "1", "--json"]) == 0
    assert "memory" not in json.loads(capsys.readouterr().out)


def test_idle_devices_are_warned_of_with_the_next_number_of_seeds_that_uses_all(monkeypatch):
    monkeypatch.setattr(mesh, "devices", lambda: [None] * 8)
    assert mesh.idle_devices(7, 8) is None
    told = mesh.idle_devices(13, 1)
    assert told.startswith("7 of 8 devices are idle: 13 members")
    assert "--seeds 8 " in told
    assert "--seeds 6 " in mesh.idle_devices(4, 5)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**29, "1.5 GiB"), (2**80, "1073741824.0 PiB")],
)
def test_bytes_are_said_in_the_largest_unit_of_which_there_is_one(count, words):
    assert memory.in_words(count) == words
