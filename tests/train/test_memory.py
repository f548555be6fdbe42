"""Memory by formula, against what XLA says of the compiled epoch."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import trees
from tidewalk.run import compiler
from tidewalk.run.memory import _parts
from tidewalk.trading.env import EnvConfig
from tidewalk.train import epoch as phases
from tidewalk.train import memory
from tidewalk.train.population import initial_state
from worlds import base, base_state, made_limits, make_world

TOLERANCE, FLOOR = 0.05, 2 * 2**20
near = functools.partial(pytest.approx, rel=TOLERANCE, abs=FLOOR)
"""Five percent, or 2 MiB where that is more: small programs hold small arrays that nobody counts."""


def asked(world, program=None):
    """What `predict` wants to know of a world, members apart."""
    member = jax.tree.map(lambda leaf: leaf[0], (world.members.cost, world.members.hyper, world.members.limits))
    return program or world.program, world.market, world.windows, member


@functools.cache
def lab(env=None, features=4, has_limits=False, **changes):
    """A world of the default network, whose agent has other settings; nothing is compiled, so it may be large."""
    config = DQNConfig(**{"n_step": 3, **{k: v for k, v in changes.items() if k in DQNConfig.__dataclass_fields__}})
    rest = {k: v for k, v in changes.items() if k not in DQNConfig.__dataclass_fields__}
    sizes = {"lanes": 64, "capacity": 32768, "val_bars": 200, "prefill_steps": 16, "steps_per_epoch": 50}
    world = make_world(windows=1, seeds=1, env=env or EnvConfig(), limits=made_limits() if has_limits else None)
    env = world.program.env
    agent = make_dqn(config, env.observation_size(features), env.num_positions)
    program = dataclasses.replace(world.program, agent=agent, num_features=features, **(sizes | rest))
    market = dataclasses.replace(world.market, features=np.zeros((len(world.market.features), features), np.float32))
    row = np.zeros((1, features), np.float32)
    windows = dataclasses.replace(world.windows, center=row, scale=row)
    return dataclasses.replace(world, program=program, market=market, windows=windows)


def compiled(world, members, options=None):
    """XLA's account of the epoch of a population; only shapes are needed."""
    many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((members, *leaf.shape[1:]), leaf.dtype), world.members)
    state = jax.eval_shape(functools.partial(initial_state, world.program), world.windows, many)
    epoch = jax.jit(functools.partial(phases.fused_epoch, world.program), donate_argnums=3, keep_unused=True)
    lowered = epoch.lower(world.market, world.windows, many, state)
    return lowered.compile(compiler_options=options).memory_analysis()


def explained(world, members, options=None):
    """Prediction and finding; the arguments are exact, and the peak is within the tolerance."""
    found, need = compiled(world, members, options), memory.predict(*asked(world), members)
    assert found.argument_size_in_bytes == need.arguments
    assert found.alias_size_in_bytes == need.state, "the state is updated in place, so that it counts once"
    peak = found.argument_size_in_bytes + found.temp_size_in_bytes + found.output_size_in_bytes
    peak -= found.alias_size_in_bytes
    assert need.epoch == near(peak)
    return peak, need.epoch


def test_the_epoch_of_a_population_takes_what_the_formula_says_and_so_does_a_member_more():
    world = lab(batch_size=128)  # what a batch takes outweighs the gradient
    few, many = explained(world, 64), explained(world, 1024)
    assert many[1] == pytest.approx(many[0], rel=TOLERANCE)
    slope, predicted = ((after - before) / 960 for before, after in zip(few, many, strict=True))
    assert predicted == pytest.approx(slope, rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "changes"),
    [
        (1, {}),
        (8, {}),
        (4096, {}),
        (64, {"batch_size": 16}),
        (64, {"batch_size": 256}),
        (64, {"hidden": (64,)}),
        (64, {"hidden": (256, 256)}),
        (16, {"hidden": (512, 512), "batch_size": 16}),
        (64, {"lanes": 512}),
        (64, {"capacity": 1024}),
        (64, {"n_step": 16}),
        (64, {"updates_per_step": 4}),
        (64, {"steps_per_epoch": 2000}),
        (64, {"env": EnvConfig(positions=5)}),
        (64, {"env": EnvConfig(lookback=16)}),
        (8, {"double": False, "duelling": False, "target_update": "hard"}),
        (7, {"env": EnvConfig(lookback=60), "features": 28, "batch_size": 1024}),
        (7, {"env": EnvConfig(lookback=200, positions=10), "features": 28, "hidden": (8,), "batch_size": 512}),
        (7, {"env": EnvConfig(lookback=30), "features": 28, "lanes": 1024}),
        (7, {"features": 300, "hidden": (64, 64), "batch_size": 1024}),
        (7, {"hidden": (512, 64, 512), "batch_size": 1024}),
        (7, {"hidden": (128,) * 4, "batch_size": 1024, "n_step": 1}),
        (7, {"steps_per_epoch": 100_000}),
        (7, {"env": EnvConfig(positions=30), "batch_size": 1024, "hidden": (32,)}),
        (7, {"hidden": (8,), "batch_size": 2048, "n_step": 10}),
        (7, {"env": EnvConfig(positions=5), "double": False, "duelling": False, "batch_size": 512}),
        (7, {"updates_per_step": 1000}),
        (7, {"has_limits": True, "lanes": 4096, "hidden": (8,), "capacity": 40960}),
        (7, {"select": "sharpe", "has_limits": True, "val_bars": 350_000, "val_sessions": 260, "session_bars": 1380}),
        (1, {"hidden": (1024, 1024), "batch_size": 1024}),
    ],
)
def test_every_setting_that_takes_memory_is_in_the_formula(members, changes):
    explained(lab(**changes), members)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    members=st.integers(1, 7),
    hidden=st.lists(st.sampled_from([8, 20, 64, 128, 300]), min_size=1, max_size=4).map(tuple),
    env=st.builds(EnvConfig, lookback=st.sampled_from([1, 1, 3, 20, 60]), positions=st.sampled_from([1, 1, 2, 5, 20])),
    lanes=st.sampled_from([1, 16, 64, 1000]),
    more=st.fixed_dictionaries(
        {
            "features": st.sampled_from([1, 4, 28, 150]),
            "n_step": st.sampled_from([1, 2, 3, 10]),
            "batch_size": st.sampled_from([1, 64, 500, 2048]),
            "updates_per_step": st.sampled_from([1, 1, 5]),
            "steps_per_epoch": st.sampled_from([1, 50, 20_000]),
            "double": st.booleans(),
            "duelling": st.booleans(),
            "has_limits": st.booleans(),
            "select": st.sampled_from(["reward", "sharpe"]),
            "val_bars": st.sampled_from([10, 3000, 60_000]),
            "val_sessions": st.just(50),
            "session_bars": st.just(1380),
        }
    ),
)
def test_no_mixture_of_settings_escapes_the_formula(members, hidden, env, lanes, more):
    explained(lab(env=env, hidden=hidden, lanes=lanes, capacity=lanes * 64, **more), members)


@pytest.mark.parametrize("changes", [{}, {"limits": made_limits()}, {"env": EnvConfig(roll_as="spread")}])
def test_what_stays_on_the_device_is_counted_to_the_byte(changes):
    world = base() if not changes else make_world(**changes)
    make = functools.partial(initial_state, world.program)
    state = base_state() if not changes else jax.eval_shape(make, world.windows, world.members)
    need = memory.predict(*asked(world), len(world.members.window))
    assert need.state == trees.nbytes(state)
    assert (need.replay, need.learner, need.best) == tuple(map(trees.nbytes, (state.replay, state.agent, state.best)))
    assert need.members == trees.nbytes(world.members)
    assert need.arguments == need.state + trees.nbytes((world.market, world.windows, world.members))


SHORT, MONTH = {"val_bars": 16}, {"val_bars": 28_000}


@pytest.mark.parametrize(
    ("members", "learner", "changes", "scratch"),
    [
        (1, "xla", SHORT, 100_954_368),
        (4096, "xla", SHORT, 1_371_256_320),
        (1024, "xla", SHORT | {"batch_size": 256}, 1_125_770_240),
        (1024, "xla", SHORT | {"hidden": (256, 256)}, 797_962_752),
        (1024, "xla", SHORT | {"hidden": (64,)}, 195_998_976),
        (1024, "xla", SHORT | {"lanes": 512}, 832_094_976),
        (64, "xla", MONTH, 447_057_664),
        (1024, "xla", MONTH, 821_413_120),
        (28, "xla", SHORT | {"env": EnvConfig(lookback=60), "batch_size": 1024}, 594_616_576),
        (256, "xla", MONTH | {"env": EnvConfig(lookback=60), "batch_size": 1024}, 4_585_325_824),
        (28, "xla", MONTH | {"env": EnvConfig(lookback=60)}, 193_111_808),
        (28, "xla", MONTH | {"features": 300, "batch_size": 1024, "hidden": (64, 64)}, 264_404_992),
        (28, "xla", SHORT | {"hidden": (128,) * 4, "batch_size": 1024}, 325_084_928),
        (28, "xla", SHORT | {"hidden": (128,) * 6, "batch_size": 1024}, 439_765_504),
        (1024, "xla", MONTH | {"hidden": (16,)}, 249_720_320),
        (28, "xla", MONTH | {"env": EnvConfig(positions=50), "batch_size": 1024}, 552_671_232),
        (256, "xla", SHORT | {"lanes": 1024}, 385_766_144),
        (64, "xla", MONTH | {"select": "sharpe"}, 450_044_672),
        (1024, "kernel", MONTH, 392_976_640),
        (4096, "kernel", MONTH, 1_510_711_040),
    ],
)
def test_the_formula_explains_what_xla_takes_for_a_gpu(members, learner, changes, scratch):
    """The scratch is what jax 0.11.2 says of the epoch that the engine compiles for an H200, with 28 features."""
    world = lab(**({"features": 28} | changes))
    program = dataclasses.replace(world.program, compose="associative", learner=learner)
    need = memory.predict(*asked(world, program), members)
    assert need.peak == pytest.approx(need.arguments + need.metrics + scratch, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("members", "changes", "scratch"),
    [
        (7, {}, 3_164_016),
        (7, {"env": EnvConfig(lookback=60), "batch_size": 1024}, 160_064_904),
        (7, {"env": EnvConfig(lookback=200, positions=10), "hidden": (8,), "batch_size": 512}, 242_723_336),
        (7, {"env": EnvConfig(lookback=30), "lanes": 1024}, 48_635_976),
        (7, {"features": 300, "batch_size": 1024, "hidden": (64, 64)}, 34_022_512),
        (7, {"hidden": (512, 64, 512), "batch_size": 1024}, 97_129_648),
        (7, {"hidden": (128,) * 4, "batch_size": 1024}, 42_079_536),
        (7, {"steps_per_epoch": 100_000}, 16_804_528),
        (7, {"env": EnvConfig(positions=30), "batch_size": 1024, "hidden": (32,)}, 12_977_200),
        (7, {"hidden": (8,), "batch_size": 2048, "n_step": 10}, 9_200_880),
        (7, {"env": EnvConfig(positions=5), "double": False, "duelling": False, "batch_size": 512}, 11_711_920),
        (7, {"batch_size": 2048, "n_step": 1}, 46_703_592),
        (7, {"lanes": 5000, "capacity": 50_000}, 37_232_304),
        (1, {"hidden": (2048, 2048)}, 37_831_920),
        (1, {"hidden": (512, 512), "batch_size": 1024}, 19_079_984),
    ],
)
def test_the_formula_explains_the_scratch_that_xla_takes_on_a_cpu(members, changes, scratch):
    """The scratch is what jax 0.11.2 says with 28 features and a month of validation: by itself, whatever else lies."""
    need = memory.predict(*asked(lab(**(MONTH | {"features": 28} | changes))), members)
    assert need.scratch == pytest.approx(scratch, rel=TOLERANCE)


@pytest.mark.gpu
@pytest.mark.parametrize("learner", ["xla", "kernel"])
@pytest.mark.parametrize("members", [1, 64, 1024, 4096])
def test_the_formula_explains_what_xla_takes_on_this_gpu(members, learner):
    assert jax.default_backend() == "gpu", "this needs a GPU"
    world = lab(capacity=32768)
    program = dataclasses.replace(world.program, compose="associative", learner=learner)
    with jax.default_matmul_precision("float32"):
        explained(dataclasses.replace(world, program=program), members, compiler.options("gpu"))


def in_turn(members):
    """Shares on one core, whose scratch goes up and down with their size."""
    return (*_parts(members)[:2], 1)


@settings(max_examples=8, deadline=None)
@example(members=18, parts=in_turn, short=0)
@given(members=st.integers(1, 400), parts=st.sampled_from([memory.together, in_turn]), short=st.integers(0, 1))
def test_as_many_members_fit_as_is_said_and_not_one_more(members, parts, short):
    world = lab(batch_size=4096)
    count = functools.cache(memory._counter(*asked(world), parts))
    limit = count(members).peak - short
    most = memory.most_members(*asked(world), limit, parts)
    assert short or most >= members
    assert most == 0 or count(most).peak <= limit
    assert all(count(more).peak > limit for more in range(most + 1, most + 60)), "more may take less"


def test_a_checkpoint_takes_the_place_of_the_scratch_where_the_memory_is_the_host_s():
    small, large = lab(capacity=1024, batch_size=2048), lab(capacity=2**20)
    need = memory.predict(*asked(small), 4)
    assert 0 < need.checkpoint < need.scratch
    assert need.peak == need.epoch
    need = memory.predict(*asked(large), 64, _parts)
    assert need.scratch < need.checkpoint < need.state
    assert need.peak == need.arguments + need.metrics + need.checkpoint
    assert need.checkpoint == memory.predict(*asked(large), 64).replay
    on_gpu = dataclasses.replace(large.program, compose="associative")
    assert memory.predict(*asked(large, on_gpu), 64).checkpoint == 0
    nobody = memory.predict(*asked(large), 0, _parts)
    assert nobody.peak == nobody.market + nobody.windows + nobody.lanes, "a clock"


def test_no_size_overflows():
    world = lab(hidden=(2**31 - 1, 2**31 - 1))
    program = dataclasses.replace(world.program, capacity=2**31 - 64)
    need = memory.predict(*asked(world, program), 10**6)
    assert need.replay == (2**31 - 64) * 10**6 * 8
    assert need.learner > 16 * 10**6 * (2**31 - 1) ** 2
    assert need.peak > need.replay + need.learner


def test_validation_takes_the_scratch_of_its_largest_bucket_whatever_the_members():
    program = dataclasses.replace(lab().program, compose="associative", val_bars=30_000, val_lengths=())
    needs = [memory.predict(*asked(lab(), program), members) for members in (1, 64, 4096)]
    assert needs[0].evaluation < needs[1].evaluation
    assert needs[2].evaluation < 1.15 * 2**29, "bounded, whatever M"


def test_the_kernel_takes_its_own_scratch_and_words_that_are_bounded():
    program = dataclasses.replace(lab().program, learner="kernel", steps_per_epoch=500)
    few, many = (memory.predict(*asked(lab(), program), members).learning for members in (64, 4096))
    own = 3 * (32 // 8 + 128 // 8 + 2) * 256 * 4 * 4  # of one member: three networks in the order of its threads
    given = 4 + 2  # keys and epsilon of a step, two corrections of its update
    assert few == 64 * (own + 500 * 4 * (3 * 64 + 64 + given))
    assert 4096 * own < many <= 4096 * own + 1.1 * 64 * 2**20


def test_kernels_evaluate_whole_ranges_with_a_few_bytes_for_each_bar():
    sizes = {"learner": "kernel", "compose": "associative", "val_bars": 30_000, "val_lengths": ()}
    program = dataclasses.replace(lab().program, **sizes)
    one, many, most = (memory.predict(*asked(lab(), program), members).evaluation for members in (1, 1024, 4096))
    assert one == 8 * 30_000
    assert many == 1024 * one, "all at once"
    assert 2**28 < most < 1.2 * 2**29, "bounded, whatever M; weights of a group are copied"
    by_session = dataclasses.replace(program, select="sharpe")
    assert memory.predict(*asked(lab(), by_session), 1).evaluation > one
    assert memory.predict(*asked(lab(), program), 0).evaluation == 0
