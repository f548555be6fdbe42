"""Several configurations on one resident market."""

import dataclasses

import jax
import numpy as np
import pytest

from support import planted_market, small_config
from tidewalk.core import trees
from tidewalk.core.errors import ConfigError
from tidewalk.run import ahead, memory, mesh
from tidewalk.run.engine import Stage, start, trade
from tidewalk.run.groups import Trained, merge, predicted_bytes, start_groups, train_groups
from tidewalk.run.learner import with_learner
from tidewalk.run.outcome import settle
from tidewalk.run.study import plan_study
from tidewalk.trading.env import Tally
from tidewalk.train import evaluate
from tidewalk.train.population import Best


@pytest.fixture(scope="module")
def market():
    return planted_market(days=125)


def config(tmp_path, *, hidden=(16,), train=None, **dqn):
    base = small_config(tmp_path, **(train or {}))
    return dataclasses.replace(base, dqn=dataclasses.replace(base.dqn, hidden=hidden, **dqn))


def alone(config, market) -> Trained:
    """What a configuration gets by itself, as `tidewalk train` runs it."""
    engine, state = start(plan_study(config, [market], compose="scan"))
    metrics = []
    for _ in range(config.train.epochs):
        state, found, _ = engine.run_epoch(state)
        metrics.append(found)
    return Trained(engine, engine.kept(state), tuple(metrics))


def same_bytes(one: Trained, other: Trained) -> bool:
    ours, theirs = (jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), trees.to_named(t.kept)) for t in (one, other))
    history = [[{k: v.tobytes() for k, v in epoch.items()} for epoch in t.metrics] for t in (one, other)]
    return ours == theirs and history[0] == history[1]


@pytest.mark.parametrize("order", ["in-turn", "interleaved"])
def test_groups_of_other_networks_get_what_each_gets_alone_to_the_byte(tmp_path, market, order, monkeypatch):
    monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    small, large = config(tmp_path, hidden=(32,)), config(tmp_path, hidden=(64,), train={"epochs": 3})
    seen = []
    started = start_groups([small, large], [market], order=order)
    sent = started.transfers.bytes_h2d
    done = train_groups(started, lambda place, epoch, metrics: seen.append((place, epoch, len(metrics["loss"]))))
    assert (started.transfers.uploads, started.transfers.bytes_h2d) == (1, sent)
    assert len(started.groups) == 2
    members = started.groups[0].num_members
    turns = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)] if order == "in-turn" else [(0, 1), (1, 1), (0, 2), (1, 2), (1, 3)]
    assert seen == [(place, epoch, members) for place, epoch in turns]
    for trained, one in zip(done, (small, large), strict=True):
        assert same_bytes(trained, alone(one, market))


def test_configurations_that_differ_in_leaves_alone_are_one_population(tmp_path, market):
    leaves = {"gamma": 0.9, "tau": 0.1, "epsilon": 0.2, "epsilon_start": 0.7, "epsilon_decay_frac": 0.1}
    # the first has the program of a test above, so that it is compiled but once
    ask = [
        config(tmp_path, hidden=(32,), lr=1e-3),
        config(tmp_path, hidden=(32,), **leaves, train={"seeds": 1, "seed": 5}),
    ]
    started = start_groups(ask, [market])
    assert [group.places for group in started.groups] == [(0, 1)]
    assert started.groups[0].num_members == 3 * started.groups[0].studies[0].num_windows
    done = train_groups(started)
    assert started.transfers.uploads == 1
    for trained, one in zip(done, ask, strict=True):
        own = alone(one, market)
        pairs = zip(*(jax.tree.leaves(which.kept.best.params) for which in (trained, own)), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(trained.metrics, own.metrics, strict=True):
            np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-4)
            np.testing.assert_array_equal(ours["is_alive"], theirs["is_alive"])
            np.testing.assert_array_equal(ours["epsilon"], theirs["epsilon"])


@pytest.mark.slow
def test_what_is_trained_in_a_group_is_traded_like_any_other(tmp_path, market):
    configs = [config(tmp_path, lr=1e-3), config(tmp_path, lr=1e-4, train={"seeds": 1})]
    for trained in train_groups(start_groups(configs, [market])):
        study = trained.stage.study
        settled = settle(trained.stage, trained.kept)
        assert settled.best_epoch.shape == (study.num_windows, study.config.train.seeds)
        assert len(settled.books["seed 0"]) == study.num_windows


@pytest.mark.parametrize("devices", [1, 2])
def test_what_lies_on_several_devices_is_traded_without_the_kernel(tmp_path, market, devices, monkeypatch):
    monkeypatch.setattr(mesh, "devices", lambda: jax.local_devices()[:devices])
    started, seen = start_groups([config(tmp_path), config(tmp_path, lr=1e-4)], [market]), []
    whole, real = np.zeros(2, np.int32), np.zeros(2, np.float32)
    best = Best({}, real, whole, real, Tally(whole, whole))

    def noting(program, *_, seeds=None):
        seen.append(program.learner)
        return np.int32(0)

    for name in ("trade_members", "trade_ensembles"):
        monkeypatch.setattr(evaluate, name, noting)
    for _, study, rows in started.groups[0].rows():
        study = dataclasses.replace(study, program=dataclasses.replace(study.program, learner="kernel"))
        members = jax.tree.map(lambda leaf, rows=rows: leaf[rows], started.residents[0].members)
        resident = dataclasses.replace(started.residents[0], members=members)
        trade(Stage(study, resident, started.transfers), best)
    assert seen == ["kernel" if devices == 1 else "xla"] * 4


def test_static_settings_part_groups_and_leaves_do_not(tmp_path, market):
    def grouped(*configs):
        return [group.places for group in merge([plan_study(one, [market], compose="scan") for one in configs])]

    base = config(tmp_path)
    assert grouped(base, config(tmp_path, lr=1e-2, gamma=0.5), base) == [(0, 1, 2)]
    assert grouped(base, config(tmp_path, hidden=(24,)), base) == [(0, 2), (1,)]
    for other in (
        {"hidden": (8,)},
        {"batch_size": 8},
        {"n_step": 2},
        {"huber_delta": 1.0},
        {"target_update": "hard"},
        {"train": {"lanes": 16}},
        {"train": {"epochs": 3}},
        {"train": {"max_steps_per_epoch": 6}},
    ):
        assert grouped(base, config(tmp_path, **other)) == [(0,), (1,)], other
    by_xla = dataclasses.replace(base, output=dataclasses.replace(base.output, learner="xla"))
    assert grouped(base, by_xla) == [(0,), (1,)], "a group has one learner"
    costly = dataclasses.replace(base, costs=dataclasses.replace(base.costs, slippage_ticks=2.0))
    assert grouped(base, costly) == [(0, 1)], "costs are leaves"
    one = plan_study(base, [market], compose="scan")
    other = dataclasses.replace(one, windows=dataclasses.replace(one.windows, train=one.windows.train + 1))
    assert [group.places for group in merge([one, other, one])] == [(0, 2), (1,)], "a group has one table of windows"


def test_memory_of_groups_counts_the_market_once_and_only_what_their_order_holds(tmp_path, market):
    studies = [plan_study(config(tmp_path, hidden=(width,)), [market], compose="scan") for width in (16, 64)]
    found = merge(studies)
    needs = [memory.of_study(study) for study in studies]
    fixed = needs[0].market + sum(need.windows + need.members for need in needs)
    states, scratch = [need.state for need in needs], [need.metrics + need.scratch for need in needs]
    assert predicted_bytes(found, "interleaved") == fixed + sum(states) + max(scratch)
    assert predicted_bytes(found, "in-turn") == fixed + needs[0].best + states[1] + scratch[1]


def test_configurations_that_cannot_share_an_upload_are_refused(tmp_path, market):
    base = config(tmp_path)
    precise = dataclasses.replace(base, output=dataclasses.replace(base.output, precision="bf16"))
    with pytest.raises(ConfigError, match=r"Configuration 2 has --precision bf16, the first float32"):
        start_groups([base, precise], [market])
    late = dataclasses.replace(base, env=dataclasses.replace(base.env, no_entry_minutes=60))
    with pytest.raises(ConfigError, match="Configuration 2 has another market than the first"):
        start_groups([base, late], [market])
    with pytest.raises(ConfigError, match="no configuration to run"):
        start_groups([], [market])


def test_groups_that_only_fit_one_after_another_say_so(tmp_path, market, monkeypatch):
    configs = [config(tmp_path, hidden=(width,)) for width in (64, 65)]
    found = merge([plan_study(one, [market], compose="scan") for one in configs])
    in_turn, together = (predicted_bytes(found, order) for order in ("in-turn", "interleaved"))
    monkeypatch.setattr(mesh, "limit_bytes", lambda: together - 1)
    with pytest.raises(ConfigError, match=r"interleaved, need about .* What helps: one group after another"):
        start_groups(configs, [market], order="interleaved")
    monkeypatch.setattr(mesh, "limit_bytes", lambda: in_turn - 1)
    with pytest.raises(ConfigError, match=r"in-turn, need about .* What helps: fewer --seeds"):
        start_groups(configs, [market])


def test_the_learner_is_settled_once_and_before_anything_is_sent(tmp_path, market, monkeypatch):
    base = config(tmp_path, hidden=(16, 16))
    asked = dataclasses.replace(base, output=dataclasses.replace(base.output, learner="kernel"))
    with monkeypatch.context() as patch:
        patch.setattr(mesh, "upload", lambda *_: pytest.fail("it was sent"))
        with pytest.raises(ConfigError, match="--learner kernel cannot run this study: it needs an NVIDIA GPU"):
            start_groups([base, asked], [market])
    (group,) = start_groups([base], [market]).groups
    assert group.program.learner == "xla"
    settled, notes = with_learner(group.studies[0])
    assert settled is group.studies[0]
    assert notes == ()
