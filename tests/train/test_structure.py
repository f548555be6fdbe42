"""The compiled epoch as the engine makes it: nothing crosses to the host, nothing large is copied, loops are static.

On a CPU this is half of the truth: the text is that of the CPU's compiler. The tests marked `gpu` read that of a GPU's.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh

import hlo
from support import planted_market, small_config
from tidewalk.agents.dqn import DQNConfig
from tidewalk.run import engine, programs
from tidewalk.run.mesh import MEMBER_AXIS, Transfers
from tidewalk.run.programs import Building
from tidewalk.run.study import plan_study
from tidewalk.trading.limits import LimitConfig
from tidewalk.train.population import TrainState

SEEDS, WINDOWS = 2, 3
MEMBERS = SEEDS * WINDOWS
BARS, FEATURES, CAPACITY = 2006, 4, 488
"""Sizes that no other array has by chance; so many bars, and so few to validate on, that all else is smaller."""
VARIANTS = {
    "default": {},
    "hard target, 1-step, 1 lane": {
        "dqn": DQNConfig(hidden=(8,), batch_size=8, n_step=1, target_update="hard", target_period=7),
        "lanes": 1,
    },
    "account limits": {"limits": LimitConfig(capital_usd=50_000.0, daily_loss_usd=1000.0)},
    "plain DQN, 3 updates a step": {
        "dqn": DQNConfig(hidden=(8,), batch_size=8, double=False, duelling=False, updates_per_step=3),
    },
}


def study_of(name="default", *, compose="scan"):
    changes = dict(VARIANTS[name])
    config = small_config(
        Path("data"), seeds=SEEDS, max_steps_per_epoch=5, lanes=changes.pop("lanes", 8), replay_capacity=CAPACITY
    )
    changes = {"dqn": DQNConfig(hidden=(8,), batch_size=8, n_step=3), **changes}
    windows = dataclasses.replace(config.windows, step_months=10)
    config = dataclasses.replace(config, windows=windows, **changes)
    study = plan_study(config, [planted_market(days=BARS // 2, bars_per_day=2)], compose=compose)
    assert (study.num_windows, study.program.capacity) == (WINDOWS, CAPACITY)
    return study


def compiled_parts(study, mesh, *parts):
    """Programs of a study, by name, compiled as the engine does."""
    fixed = engine.upload_study(study, Transfers(), mesh).fixed
    state = jax.jit(programs.first_state(study.program, mesh))(*fixed)
    functions = {"epoch": programs.fused(study.program, mesh, state)}
    functions |= programs.separate(study.program, mesh, state)
    if mesh is None:
        state = jax.eval_shape(lambda: state)
    found, building = {}, Building()
    for name in parts:
        extra = () if name != "evaluate" else ({"loss": jnp.zeros(MEMBERS), "q_mean": jnp.zeros(MEMBERS)},)
        found[name] = hlo.parse(programs.build(functions[name], building, *fixed, state, *extra).as_text())
    return found


def check(module, *, members=MEMBERS, loops=True):
    """All that holds of every program of an epoch."""
    assert hlo.host_operations(module) == []
    assert hlo.unbounded_loops(module) == []
    assert hlo.members_by_bars(module, members, BARS, FEATURES) == []
    replay = 2 * CAPACITY * members
    assert any(shape == (CAPACITY, members, 2) for one in module.instructions for shape in one.shapes)
    assert hlo.copies(module, replay) == []
    assert not loops or module.loops


def test_the_epoch_of_the_engine_is_free_of_host_copies_and_unknown_loops():
    study = study_of()
    ready, state = engine.start(study)
    devices = ready.mesh.size if ready.mesh else 1
    share = state if isinstance(state, TrainState) else state[0]
    module = hlo.parse(ready.compiled.as_text())
    check(module, members=share.replay.shape[1] // devices)
    assert {"collect", "store", "learn", "evaluate"} <= hlo.scopes(module)
    before = dataclasses.replace(ready.transfers)
    ready.run_epoch(state)
    moved = ready.transfers.since(before)
    assert (moved.bytes_h2d, moved.host_syncs, moved.uploads) == (0, 1, 0)


def test_the_phases_one_by_one_are_too():
    parts = compiled_parts(study_of(), None, "collect", "learn", "evaluate")
    for module in parts.values():
        check(module, loops=False)
    for name in ("collect", "learn", "evaluate"):
        assert name in hlo.scopes(parts[name])


@pytest.mark.slow
@pytest.mark.parametrize("compose", ["scan", "associative"])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_the_epoch_is(name, compose):
    check(compiled_parts(study_of(name, compose=compose), None, "epoch")["epoch"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "account limits"])
def test_the_epoch_over_two_devices_is(name):
    mesh = Mesh(np.array(jax.local_devices()[:2]), (MEMBER_AXIS,))
    module = compiled_parts(study_of(name), mesh, "epoch")["epoch"]
    check(module, members=MEMBERS // 2)
    collectives = ("all-", "collective-", "reduce-scatter")
    assert not [one.text for one in module.instructions if one.operation.startswith(collectives)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_on_a_gpu(name):
    assert jax.default_backend() == "gpu", "this needs a GPU"
    check(compiled_parts(study_of(name, compose="associative"), None, "epoch")["epoch"])


# ---- every detector, shown to fire on a planted fault


def module_of(function, *args, donate=()):
    return hlo.parse(jax.jit(function, donate_argnums=donate).lower(*args).compile().as_text())


def replay(size=512):
    return jnp.zeros((size, 4, 2), jnp.int32)


ROWS = jnp.arange(5, dtype=jnp.int32)


def write(buffer, row):
    return lax.dynamic_update_slice(buffer, jnp.full((1, 4, 2), row), (row, 0, 0))


def stale_read(buffer, row):
    written = write(buffer, row)
    return written.at[0, 0, 0].set(buffer[written[0, 0, 0] % 512, 0, 0]), None


def chosen_whole(buffer, row):
    return jnp.where(buffer % 2 == row % 2, write(buffer, row), buffer[::-1]), None


def turned_around(buffer, row):
    return jnp.transpose(write(jnp.transpose(buffer, (1, 0, 2)).reshape(512, 4, 2), row), (0, 1, 2)), None


def word_apart(buffer, row):
    word = jnp.cumsum(buffer[:, :, 0], axis=0)
    return write(buffer, row), word[row, 0]


@pytest.mark.parametrize("body", [stale_read, chosen_whole, turned_around, word_apart])
def test_a_copy_of_the_replay_in_a_loop_is_found(body):
    module = module_of(lambda buffer: lax.scan(body, buffer, ROWS), replay(), donate=0)
    assert hlo.copies(module, replay().size)


def kept_transposed(buffer, rows):
    """The buffer turned for its loop and back: two copies of it outside, for rows that came out of a transposition."""

    def body(turned, row):
        return lax.dynamic_update_slice(turned, jnp.full((4, 1, 2), row), (0, row, 0)), turned[row % 4, row].sum()

    turned, sums = lax.scan(body, jnp.swapaxes(buffer, 0, 1), rows)
    return jnp.swapaxes(turned, 0, 1), sums


def test_a_copy_of_the_replay_before_and_after_a_loop_is_found():
    assert hlo.copies(module_of(kept_transposed, replay(), ROWS, donate=0), replay().size)


def test_a_write_in_place_is_no_copy():
    def body(buffer, row):
        written = write(buffer, row)
        return written, written[row // 2].sum()

    module = module_of(lambda buffer: lax.scan(body, buffer, ROWS), replay(), donate=0)
    assert module.loops
    assert hlo.copies(module, replay().size) == []


def called_back(x):
    return jax.pure_callback(lambda y: np.asarray(y), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def printed(x):
    jax.debug.print("{}", x[0])
    return x


def reported(x):
    jax.experimental.io_callback(lambda _: None, None, x[0])
    return x


@pytest.mark.parametrize("function", [called_back, printed, reported])
def test_a_call_of_the_host_is_found(function):
    looped = functools.partial(lax.fori_loop, 0, 5, lambda _, x: function(x) + 1)
    assert hlo.host_operations(module_of(looped, jnp.zeros(3)))


@pytest.mark.parametrize(
    "line",
    [
        "  %r = (f32[3]{0}, token[]) infeed(%t)",
        "  %r = (f32[3]{0}, u32[], token[]) send(%x, %t), channel_id=1",
        '  %r = f32[3]{0} custom-call(%x), custom_call_target="MoveToHost"',
        "  %r = f32[3]{0:S(5)} copy-done(%x)",
    ],
)
def test_host_operations_that_no_cpu_program_holds_are_found(line):
    text = "HloModule m\n\n%body (x: f32[3]) -> f32[3] {\n" + line + "\n}\n\nENTRY %main (x: f32[3]) -> f32[3] {\n}\n"
    assert len(hlo.host_operations(hlo.parse(text))) == 1


def spread_over_members(market, weights):
    return (market[None, :] * weights[:, None]).cumsum(axis=1)[:, ::7]


def bars_first(market, weights):
    return jnp.cumsum(market[:, None] * weights[None, :], axis=0)[::7]


def flat(market, weights):
    return jnp.sort((market[None, :] * weights[:, None]).reshape(-1))[:5]


@pytest.mark.parametrize("function", [spread_over_members, bars_first, flat])
def test_an_array_of_members_by_bars_is_found(function):
    module = module_of(function, jnp.ones(BARS), jnp.ones(MEMBERS))
    assert hlo.members_by_bars(module, MEMBERS, BARS, FEATURES)
    shared = module_of(lambda market, rows: market[rows].sum(), jnp.ones(BARS), jnp.zeros((MEMBERS, 8), jnp.int32))
    assert hlo.members_by_bars(shared, MEMBERS, BARS, FEATURES) == []


@pytest.mark.parametrize(
    ("result", "workspace", "target", "count"),
    [(8, MEMBERS * BARS, "__cublas$gemm", 0), (MEMBERS * BARS, 8, "__cublas$gemm", 1), (8, MEMBERS * BARS, "other", 1)],
)
def test_the_workspace_of_a_library_product_is_no_array_of_ours_but_its_result_is(result, workspace, target, count):
    line = f'  %d = (f32[{result},8], s8[{workspace}]) custom-call(%x, %y), custom_call_target="{target}"'
    module = hlo.parse("ENTRY %main (x: f32[3]) -> f32[3] {\n" + line + "\n}\n")
    assert len(hlo.members_by_bars(module, MEMBERS, BARS, FEATURES)) == count


def traced_count(count, x):
    return lax.fori_loop(0, count, lambda _, y: jnp.sin(y), x)


def until_small(_, x):
    return lax.while_loop(lambda y: y[0] > 0.1, lambda y: y * 0.5, x)


@pytest.mark.parametrize("function", [traced_count, until_small])
def test_a_loop_without_a_known_trip_count_is_found(function):
    assert hlo.unbounded_loops(module_of(function, 5, jnp.ones(3)))
    assert hlo.unbounded_loops(module_of(functools.partial(traced_count, 5), jnp.ones(3))) == []


def test_the_guard_stops_what_would_move_in_the_epoch():
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="transfer"):
        jax.device_put(np.zeros(3))
