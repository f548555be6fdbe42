"""Memory by formula, against what XLA says of the compiled epoch."""

import dataclasses
import functools

import jax
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

TOLERANCE = 0.05


def asked(world, program=None):
    """What `predict` wants to know of a world, members apart."""
    member = jax.tree.map(lambda leaf: leaf[0], (world.members.cost, world.members.hyper, world.members.limits))
    return program or world.program, world.market, world.windows, member


@functools.cache
def lab(env=None, **changes):
    """A world of the default network, whose agent has other settings; nothing is compiled, so it may be large."""
    config = DQNConfig(**{"n_step": 3, **{k: v for k, v in changes.items() if k in DQNConfig.__dataclass_fields__}})
    rest = {k: v for k, v in changes.items() if k not in DQNConfig.__dataclass_fields__}
    sizes = {"lanes": 64, "capacity": 32768, "val_bars": 200, "prefill_steps": 16, "steps_per_epoch": 50}
    plain = dataclasses.replace(config, n_step=3)
    world = make_world(windows=1, seeds=1, config=plain, env=env or EnvConfig(), **(sizes | rest))
    env = world.program.env
    agent = make_dqn(config, env.observation_size(world.program.num_features), env.num_positions)
    return dataclasses.replace(world, program=dataclasses.replace(world.program, agent=agent))


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
    assert need.epoch == pytest.approx(peak, rel=TOLERANCE)
    return peak, need.epoch


def test_the_epoch_of_a_population_takes_what_the_formula_says_and_so_does_a_member_more():
    world = lab(batch_size=128)  # what a batch takes outweighs the gradient
    few, many = explained(world, 64), explained(world, 1024)
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
    ],
)
def test_every_setting_that_takes_memory_is_in_the_formula(members, changes):
    explained(lab(**changes), members)


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
        (1024, "kernel", MONTH, 392_976_640),
        (4096, "kernel", MONTH, 1_510_711_040),
    ],
)
def test_the_formula_explains_what_xla_takes_for_a_gpu(members, learner, changes, scratch):
    """The scratch is what jax 0.11.2 says of the epoch that the engine compiles for an H200, with 28 features."""
    own = {name: size for name, size in changes.items() if name != "val_bars"}
    program, env = lab(**own).program, EnvConfig()
    program = dataclasses.replace(
        program,
        agent=make_dqn(program.agent.config, env.observation_size(28), env.num_positions),
        num_features=28,
        compose="associative",
        learner=learner,
        val_bars=changes["val_bars"],
        val_lengths=(),
    )
    need = memory.predict(*asked(lab(**own), program), members)
    assert need.peak == pytest.approx(need.arguments + need.metrics + scratch, rel=TOLERANCE)


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
    assert need.state == need.checkpoint < need.scratch
    assert need.peak == need.epoch
    need = memory.predict(*asked(large), 64, _parts)
    assert need.scratch < need.checkpoint < need.state, "of shares, of which some have a member twice"
    assert need.peak == need.arguments + need.metrics + need.checkpoint
    assert need.checkpoint == memory.predict(*asked(large), 64).state
    on_gpu = dataclasses.replace(large.program, compose="associative")
    assert memory.predict(*asked(large, on_gpu), 64).checkpoint == 0
    nobody = memory.predict(*asked(large), 0, _parts)
    assert nobody.peak == nobody.market + nobody.windows + nobody.checkpoint, "a clock"


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
