"""What fits a kernel, how networks and rules are handed to it, and that the shipped text is that of the sources."""

import dataclasses
import functools
import math
import shutil
import subprocess
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import build_kernel
import emulated
from tidewalk.agents.dqn import DQNConfig
from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import counts
from tidewalk.trading.env import EnvConfig
from tidewalk.train.kernel import call, plan
from tidewalk.train.kernel.plan import (
    ALL_PLANS,
    CLUSTER_PLANS,
    MAP_PLANS,
    PLANS,
    MapPlan,
    Plan,
    WalkPlan,
    map_plan_for,
    plan_for,
    unsupported,
)
from tidewalk.train.kernel.tables import FLAG_WORDS, rule_tables
from worlds import fresh, make_world


@functools.cache
def world(**changes):
    return make_world(config=DQNConfig(hidden=(16, 24), batch_size=16), windows=1, **changes)


@pytest.mark.parametrize("shape", ALL_PLANS, ids=lambda shape: shape.name)
def test_the_shipped_kernel_is_that_of_the_sources(shape):
    text = plan.ptx(shape)
    assert plan.source_hash(text) == build_kernel.sources_hash(shape), "run `python tools/build_kernel.py`"
    assert f".visible .entry {shape.name}(" in text
    assert f".target {shape.architecture.replace('compute', 'sm')}\n" in text
    assert f"\n{build_kernel.ISA}\n" in text
    assert f".maxntid {shape.threads}" in text
    assert (".reqnctapercluster 1, 4, 1" in text) == (shape in CLUSTER_PLANS)
    assert "call.uni" not in text  # nothing is left to a library


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas here")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
def test_the_shipped_kernels_assemble(architecture, tmp_path):
    for shape in (PLANS[0], PLANS[-1], CLUSTER_PLANS[0], MAP_PLANS[0], MAP_PLANS[-1], WalkPlan()):
        if int(shape.architecture.removeprefix("compute_")) > int(architecture.removeprefix("sm_")):
            continue
        source = tmp_path / f"{shape.name}.ptx"
        source.write_text(plan.ptx(shape))
        command = ["ptxas", f"-arch={architecture}", str(source), "-o", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
def test_sizes_are_those_of_the_sources(tmp_path):
    kept = "(S::CLUSTER > 1 ? tidewalk::NETWORKS : tidewalk::NETWORKS - 1)"
    lines = [
        f"{{ using S = tidewalk::Shape<{p.observed}, {p.hidden}, {p.rows}, {p.products}, {p.split}, "
        f'{p.cluster}>; std::printf("%d %d %d\\n", 4 * S::SHARED, '
        f"4 * {kept} * S::CLUSTER * S::TILES * S::SPAN, S::THREADS); }}"
        for p in (*PLANS, *CLUSTER_PLANS)
    ]
    lines += [
        f"{{ using S = tidewalk::MapShape<{p.observed}, {p.hidden}, {p.rows}, {p.products}>; "
        'std::printf("%d %d\\n", 4 * S::SHARED, S::THREADS); }'
        for p in MAP_PLANS
    ]
    lines += ['std::printf("%d %d\\n", 4 * tidewalk::WALK_SHARED, tidewalk::WALK_THREADS);']
    source = tmp_path / "sizes.cpp"
    headers = "".join(f'#include "{name}"\n' for name in ("maps.cuh", "walk.cuh"))
    source.write_text("#include <cstdio>\n" + headers + "int main() {" + "\n".join(lines) + "}")
    folders = [f"-I{emulated.HERE}", f"-I{emulated.SOURCES}"]
    subprocess.run(
        [emulated.COMPILER, "-std=c++17", "-w", *folders, str(source), "-o", str(tmp_path / "s")], check=True
    )
    printed = subprocess.run([str(tmp_path / "s")], capture_output=True, text=True, check=True).stdout.split()
    expected = [n for p in (*PLANS, *CLUSTER_PLANS) for n in (p.shared_bytes, math.prod(p.scratch), p.threads)]
    expected += [n for p in (*MAP_PLANS, WalkPlan()) for n in (p.shared_bytes, p.threads)]
    assert printed == [str(n) for n in expected]
    assert max(p.shared_bytes for p in ALL_PLANS) <= 227 * 1024


@pytest.mark.parametrize(
    "env",
    [
        EnvConfig(),
        EnvConfig(positions=3, lots_per_level=2, max_position=4, roll_as="spread", no_entry_minutes=5),
        EnvConfig(direction="short", flat_at_close=True),
    ],
)
def test_tables_say_what_the_rules_say(env):
    tables, count = rule_tables(env), env.num_positions
    bounds, sides, rolled, lots = np.split(tables, np.cumsum([FLAG_WORDS * count * 2, 2 * count**2, 2 * count**2]))
    for flags in (0, 1, 8, 16, 32, 48, 63):
        for held in range(count):
            expected = [int(bound) for bound in env_ops.bounds(env, jnp.int32(flags), jnp.int32(held))]
            assert list(bounds.reshape(FLAG_WORDS, count, 2)[flags, held]) == expected
    contracts = [(position - env.flat) * env.lots_per_level for position in range(count)]
    assert list(lots) == contracts
    for is_roll, held, action in np.ndindex(2, count, count):
        expected = counts(contracts[held], contracts[action], is_roll, env.roll_as)
        place = (is_roll, held, action)
        found = (sides.reshape(2, count, count)[place], rolled.reshape(2, count, count)[place])
        assert found == (expected[0], expected[1] or 0)


@pytest.mark.parametrize(
    ("changes", "precision", "has_limits", "word"),
    [
        ({}, "bf16", False, "bf16"),
        ({}, "float32", True, "accounts"),
        ({"config": DQNConfig(hidden=(16,))}, "float32", False, "two hidden layers"),
        ({"config": DQNConfig(hidden=(16, 129))}, "float32", False, "129"),
        ({"env": EnvConfig(lookback=32)}, "float32", False, "131"),
        ({"env": EnvConfig(positions=4)}, "float32", False, "9 positions"),
    ],
)
def test_what_no_kernel_runs_is_told_in_words(changes, precision, has_limits, word):
    given = {"config": DQNConfig(hidden=(16, 24)), "windows": 1} | changes
    reason = unsupported(make_world(**given).program, precision, has_limits=has_limits)
    assert reason is not None
    assert word in reason


def test_the_smallest_kernel_that_holds_a_network_is_taken():
    program = make_world(config=DQNConfig(hidden=(16, 64)), windows=1).program
    assert unsupported(program, "float32", has_limits=False) is None
    assert plan_for(program, "float32") == Plan(32, 64, 3)
    wider = dataclasses.replace(program, num_features=31)
    assert plan_for(wider, "tf32") == Plan(48, 64, 1)
    assert map_plan_for(wider, "tf32") == MapPlan(32, 64, 1) != Plan(32, 64, 1)
    assert map_plan_for(dataclasses.replace(wider, num_features=33), "float32").name == "maps_d48_h64_p3"


def test_maps_fit_where_the_learner_fits():
    """Whatever the device's memory on chip: no more is asked for than by the learner, or than a size can have."""
    for kib in (99, 163, 227):
        for shape in PLANS:
            maps = MapPlan(shape.observed, shape.hidden, shape.products)
            assert shape.shared_bytes > kib * 1024 or maps.shared_bytes <= kib * 1024


def test_devices_that_cannot_run_it_are_told_why():
    def device(platform, kind, capability, version="PJRT C API"):
        client = SimpleNamespace(platform_version=version)
        return SimpleNamespace(platform=platform, device_kind=kind, compute_capability=capability, client=client)

    large = Plan(128, 128, 3)
    assert plan.unfit(device("gpu", "NVIDIA H200", "9.0"), large) is None
    assert "NVIDIA" in plan.unfit(device("cpu", "cpu", "0"), large)
    assert "NVIDIA" in plan.unfit(device("gpu", "AMD Instinct MI300X", "9.4", "rocm 60400"), large)
    assert plan.unfit(device("gpu", "GRID H100-80C", "9.0", "cuda 13000"), large) is None
    assert "7.5" in plan.unfit(device("gpu", "NVIDIA T4", "7.5"), large)
    assert "on chip" in plan.unfit(device("gpu", "NVIDIA GeForce RTX 3050", "8.6"), large)
    assert "--hidden of up to 64 would fit" in plan.unfit(device("gpu", "NVIDIA A100", "8.0"), Plan(48, 128, 3))
    assert plan.unfit(device("gpu", "NVIDIA GeForce RTX 3050", "8.6"), Plan(32, 64, 3)) is None


def test_few_members_are_shared_out_to_several_blocks_each():
    device = SimpleNamespace(compute_capability="9.0", core_count=132)
    plans = {members: plan.shared_out(Plan(32, 128, 3), members, device) for members in (1, 28, 29, 1024)}
    assert {members: one.cluster for members, one in plans.items()} == {1: 4, 28: 4, 29: 1, 1024: 1}
    assert plans[28].name == "learn_d48_h128_p3_c4"
    assert {plan.shared_out(other, 1, device).cluster for other in (Plan(48, 64, 3), Plan(64, 128, 3))} == {1}
    older = SimpleNamespace(compute_capability="8.0", core_count=108)
    assert plan.shared_out(Plan(48, 128, 3), 1, older).cluster == 1
    assert plan.shared_out(Plan(48, 128, 3), 1, SimpleNamespace(platform="cpu")).cluster == 1


def program_of(steps=50, lanes=64, batch=64, updates=1):
    whole = world().program
    agent = dataclasses.replace(whole.agent, batch_size=batch, updates_per_step=updates)
    return dataclasses.replace(whole, agent=agent, steps_per_epoch=steps, lanes=lanes)


@pytest.mark.parametrize(
    ("sizes", "members", "steps"),
    [
        ({}, 1, 50),
        ({}, 1024, 50),
        ({"steps": 9000}, 1, 5000),  # two passes each
        ({"steps": 9000}, 33, 1985),  # random words, that take 64 MiB
        ({"steps": 9000, "lanes": 1, "batch": 1}, 1024, 156),  # few words, and 32 members that wait for one another
        ({"steps": 9000, "batch": 4096, "updates": 10}, 1, 15),
        ({"batch": 4096, "updates": 500}, 1, 1),
    ],
)
def test_a_launch_holds_as_many_steps_as_end_soon(sizes, members, steps):
    program = program_of(**sizes)
    assert call.chunk_steps(program, members) == steps
    assert steps == 1 or steps * plan.step_passes(program, members) <= plan.MOST_PASSES


def test_a_step_that_would_take_seconds_is_no_kernels():
    assert plan.too_long(program_of(batch=4096, updates=600), 32) is None
    said = plan.too_long(program_of(batch=4096, updates=600), 33)
    assert said == (
        "a vector step of 64 lanes and 600 updates of 4096 transitions for 33 members would keep the device busy "
        "for seconds"
    )


def test_the_kernel_is_one_call_that_changes_its_state_in_place():
    here = world()
    state = jax.eval_shape(lambda: fresh(here))
    with jax.default_matmul_precision("float32"):
        traced = jax.jit(functools.partial(call.learn_steps, here.program)).trace(*here.fixed, state)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.ptx(") == 1
    assert text.count("#stablehlo.output_operand_alias") == 28
    assert "callback" not in text
