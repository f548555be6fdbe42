"""The device tests: what only a real accelerator can show. Run with `pytest -m gpu` on a machine with a GPU."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sequential import rollout_sequential
from support import planted_market, random_half_spreads, small_config
from tidewalk.core import keys, trees
from tidewalk.market.device import save_market
from tidewalk.run import loop
from tidewalk.trading.costs import CostTicks
from tidewalk.trading.env import EnvConfig
from tidewalk.train.oracle import hindsight
from tidewalk.train.passes import Extent
from tidewalk.train.population import window_of
from tidewalk.train.rollout import member_table, rollout
from worlds import base, base_epoch, base_state, made_limits, make_world

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def needs_gpu():
    if jax.default_backend() != "gpu":
        pytest.skip("no GPU here")


def test_the_steady_state_epoch_moves_nothing_in_either_direction():
    world, program = base(), base_epoch()
    state, metrics = program(*world.fixed, base_state())
    jax.block_until_ready(state)
    with jax.transfer_guard("disallow_explicit"):
        state, metrics = program(*world.fixed, state)
        jax.block_until_ready(state)
        with pytest.raises(Exception, match="transfer"):
            np.asarray(metrics["loss"])  # on a GPU the guard also stops device to host: shown to fire


def test_two_runs_of_the_epoch_give_the_same_bits():
    first, again = (base_epoch()(*base().fixed, base_state())[0] for _ in range(2))
    assert {k: v.tobytes() for k, v in trees.to_named(first).items()} == {
        k: v.tobytes() for k, v in trees.to_named(again).items()
    }


def test_all_rollout_forms_take_the_same_positions_on_a_long_range():
    data = planted_market(days=1200)
    world = make_world(data=data, val_bars=200)
    program = world.program
    window = window_of(world.windows, jnp.int32(0))
    params = program.agent.params(program.agent.init(keys.root_key(3)))

    def given(program, table):
        return program, world.market, window, window.test, table

    def positions(compose):
        table = member_table(program.agent, program.env, params)
        if compose == "sequential":
            return rollout_sequential(*given(program, table), limits=None, bars=program.test_bars)
        counted = compose == "counted"
        extent = Extent("scan" if counted else compose, program.test_bars, with_path=True)
        limits = made_limits() if counted else None
        return rollout(*given(program, table), limits=limits, extent=extent).positions

    with jax.default_matmul_precision("float32"):
        found = {
            compose: np.asarray(jax.jit(functools.partial(positions, compose))())
            for compose in ("scan", "associative", "counted", "sequential")
        }
    assert np.array_equal(found["scan"], found["associative"])
    assert np.array_equal(found["scan"], found["counted"]), "an account that reaches no limit changes nothing"
    assert (
        np.mean(found["scan"] != found["sequential"]) < 1e-3
    )  # matrix products of other shapes may round a tie differently


def test_the_hindsight_bound_is_the_same_path_in_both_forms_on_a_long_range():
    data = random_half_spreads(planted_market(days=3000, persistence=0.55))
    for env in (EnvConfig(), EnvConfig(positions=2, flat_at_close=True, roll_as="spread")):
        costs = CostTicks(jnp.full(2, 0.68), jnp.full(2, 1.1) if env.roll_as == "spread" else None)
        spans = jnp.array([[5, 70_000], [100, 60_000]], jnp.int32)
        paths = [
            np.asarray(hindsight(env, data.on_device(), spans, costs, bars=70_000, compose=form))
            for form in ("scan", "associative")
        ]
        assert len(np.unique(paths[0])) > 1
        assert np.array_equal(*paths)


def test_a_study_on_the_gpu_repeats_to_the_byte_and_agrees_with_itself(tmp_path):
    save_market(tmp_path / "market.npz", planted_market(days=182))
    summaries = []
    for name in ("a", "b"):
        config = small_config(tmp_path / "market.npz", tmp_path / name / "run")
        folder = loop.train(config)
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["transfers"]["uploads"] == 1
        assert summary["transfers"]["bytes_h2d_per_epoch"] == 0
        summaries.append({k: v for k, v in summary.items() if k not in ("phases_ms", "compile_ms", "trace_ms")})
        policies = {p.name: p.read_bytes() for p in (folder / "policies").iterdir()}
        summaries[-1]["policies"] = policies
    assert summaries[0] == summaries[1]
