"""What crosses between host and device, counted; and that nothing else does."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from support import as_nq, planted_market, small_config
from tidewalk.core import trees
from tidewalk.data.load import DataConfig
from tidewalk.run import ahead, engine, memory, mesh, surface
from tidewalk.run.ahead import Runner
from tidewalk.run.epoch_lines import phases_ms, transfers_record
from tidewalk.run.packed import Packed, pack, unpack
from tidewalk.run.study import plan_study
from tidewalk.run.timing import PhaseTimes, medians
from tidewalk.store.summary import IS_UNDEFINED


@functools.cache
def study(symbols=1):
    markets = [planted_market(days=182), as_nq(planted_market(days=182, seed=1))][:symbols]
    config = small_config(Path("data"), epochs=3)
    config = dataclasses.replace(config, data=DataConfig(Path("data"), ",".join(("ES.FUT", "NQ.FUT")[:symbols])))
    return plan_study(config, markets, compose="scan")


@functools.cache
def started():
    return engine.start(study())


def fresh():
    """The engine with counters of its own, and a state that may be consumed."""
    ready, state = started()
    return dataclasses.replace(ready, transfers=dataclasses.replace(ready.transfers)), jax.tree.map(
        jax.numpy.copy, state
    )


def host_bytes(tree):
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))


def test_an_epoch_uploads_nothing_waits_once_and_brings_home_its_metrics_alone():
    ready, state = fresh()
    assert ready.transfers.uploads == 1
    assert ready.deal.count > 1
    assert memory.of_study(study()).state == host_bytes(state), "of every share"
    sent = host_bytes((study().resident_market(), study().windows, study().cost_ticks))
    assert ready.transfers.bytes_market == sent + 6 * 4, "the shares have one market between them"
    for _ in range(3):
        before = dataclasses.replace(ready.transfers)
        state, metrics, times = ready.run_epoch(state)
        moved = ready.transfers.since(before)
        assert (moved.uploads, moved.bytes_h2d, moved.host_syncs) == (0, 0, 1)
        assert moved.bytes_d2h == 4 * len(metrics) * ready.deal.count * ready.deal.size
        assert all(values.shape == (study().num_members,) for values in metrics.values())
        assert times.init < 0.1


def test_a_guard_that_is_set_for_all_of_jax_lets_a_study_start_train_and_end():
    ready, state = fresh()
    with jax.transfer_guard("disallow_explicit"):
        again = engine.upload_study(study(), mesh.Transfers(), None)
        ready.deal.split_members(again.members)
        state, metrics, _ = ready.run_epoch(state)
        ready.kept(state)
    assert metrics["is_alive"].all()


def test_several_symbols_go_up_in_one_piece():
    two = study(2)
    transfers = engine.Transfers()
    resident = engine.upload_study(two, transfers, None)
    assert (transfers.uploads, transfers.host_syncs) == (1, 1)
    assert resident.market.move_ticks.shape == (2 * 182 * 24,)
    sent = host_bytes((two.resident_market(), two.windows, two.cost_ticks))
    assert transfers.bytes_market == transfers.bytes_h2d == sent + 6 * 4  # and the six numbers of `Hyper`


def test_a_state_from_a_checkpoint_is_counted_and_is_no_market():
    ready, state = fresh()
    before = dataclasses.replace(ready.transfers)
    again = engine.restore(ready, state, ready.deal.named(jax.device_get(state)).items())
    moved = ready.transfers.since(before)
    assert (moved.uploads, moved.bytes_market) == (0, 0)
    assert moved.bytes_h2d == host_bytes(state)
    for ours, theirs in zip(*map(jax.tree.leaves, (again, state)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert jax.tree.map(lambda leaf: leaf.sharding, again) == jax.tree.map(lambda leaf: leaf.sharding, state)


def test_an_epoch_is_begun_while_the_device_still_works_on_it():
    """Its program takes long, so whoever waits for anything of it, counted or not, finds it done."""
    ready, state = fresh()

    def epoch(market, windows, members, state):
        del market, windows
        square = jax.numpy.full((64, 64), state.clock.ravel()[0], jax.numpy.float32)
        busy = jax.lax.fori_loop(0, 30_000, lambda _, seen: jax.numpy.tanh(seen @ square), square)
        metrics = pack({"busy": busy[0, 0]}, len(members.window))
        return dataclasses.replace(state, clock=state.clock + busy[0, 0].astype(state.clock.dtype)), metrics

    compiled = jax.jit(epoch).lower(*ready.deal.one(ready.provide(), state)).compile()
    after, begun = dataclasses.replace(ready, compiled=compiled).begin(state)
    waited = [leaf.is_ready() for leaf in jax.tree.leaves((after, begun.packed))]
    jax.block_until_ready(after)
    assert not any(waited)


@pytest.mark.parametrize("form", ["fused", "phased"])
def test_the_guard_stops_an_epoch_whose_market_is_on_the_host(form):
    ready, state = fresh()
    run = engine.Engine.run_epoch if form == "fused" else engine.phased(ready, state)
    host = (jax.device_get(ready.resident.market), *ready.provide()[1:])
    with pytest.raises(Exception, match="transfer"):
        run(dataclasses.replace(ready, provide=lambda: host), state)


@pytest.mark.parametrize("form", ["fused", "phased"])
def test_the_guard_stops_an_upload_that_is_not_counted(form):
    ready, state = fresh()
    run = engine.Engine.run_epoch if form == "fused" else engine.phased(ready, state)
    host = np.zeros(3, np.float32)

    def provide(send):
        return lambda: (send(host), ready.provide())[1]

    with pytest.raises(Exception, match="transfer"):
        run(dataclasses.replace(ready, provide=provide(jax.device_put)), state)
    before = dataclasses.replace(ready.transfers)
    counted = provide(lambda leaf: mesh.put(leaf, ready.transfers))
    run(dataclasses.replace(ready, provide=counted), state)
    assert ready.transfers.since(before).bytes_h2d == host.nbytes


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_an_epoch_begun_early_is_the_same_epoch_and_has_its_own_counts_and_time(device, monkeypatch):
    assert jax.default_backend() == device
    ready, state = fresh()
    sent, turns, fixed = [], [], ready.provide()
    ready = dataclasses.replace(ready, provide=lambda: (sent.append(_send(ready, len(sent))), fixed)[1])
    for name in ("begin", "finish"):
        monkeypatch.setattr(engine.Engine, name, _noting(turns, name, getattr(engine.Engine, name)))
    plain, expected = jax.tree.map(jax.numpy.copy, state), []
    for _ in range(4):
        plain, metrics, _ = ready.run_epoch(plain)
        expected.append(metrics)
    if device == "cpu":
        monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    runner, ended = Runner(ready, state), []
    turns.clear()
    for epoch in range(4):
        ended.append(runner.run(may_go_on=epoch < 3))
        assert (runner.begun is None) == (epoch in (0, 3))
    # nothing is known of how long the first takes, so the second waits for it
    assert turns == ["begin", "finish", "begin", "begin", "finish", "begin", "finish", "finish"]
    assert [one.moved.bytes_h2d for one in ended] == [4 * number for number in range(5, 9)]
    assert [one.moved.host_syncs for one in ended] == [2] * 4
    for before, one in ((ended[1], ended[2]), (ended[2], ended[3])):
        assert one.times.total == pytest.approx(1e3 * (one.at_s - before.at_s))
    assert ended[1].times.total < 1e3 * (ended[1].at_s - ended[0].at_s), "it was not begun before"
    for one, metrics in zip(ended, expected, strict=True):
        assert {name: values.tobytes() for name, values in one.metrics.items()} == {
            name: values.tobytes() for name, values in metrics.items()
        }
    for ours, theirs in zip(*map(jax.tree.leaves, (runner.state, plain)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _send(ready, times):
    return mesh.put(np.zeros(times + 1, np.float32), ready.transfers)


def _noting(turns, name, method):
    def run(*args):
        turns.append(name)
        return method(*args)

    return run


@pytest.mark.parametrize(("total_ms", "is_cpu"), [(2 * ahead.MOST_MS, False), (1.0, True)])
def test_a_long_epoch_and_one_of_a_cpu_are_over_before_the_next_begins(total_ms, is_cpu, monkeypatch):
    finish = engine.Engine.finish

    def taking(*args):
        ended = finish(*args)
        return dataclasses.replace(ended, times=dataclasses.replace(ended.times, total=total_ms))

    if not is_cpu:
        monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    monkeypatch.setattr(engine.Engine, "finish", taking)
    runner = Runner(*fresh())
    for _ in range(3):
        runner.run(may_go_on=True)
        assert runner.begun is None


def test_the_other_trainer_frees_and_sends_its_market_every_epoch_to_the_same_result():
    ready, state = fresh()
    other, again = engine.reuploading(ready), jax.tree.map(jax.numpy.copy, state)
    sent = []
    provide = other.provide
    other = dataclasses.replace(other, provide=lambda: sent.append(provide()) or sent[-1])
    for _ in range(2):
        before = dataclasses.replace(other.transfers)
        state, metrics, _ = ready.run_epoch(state)
        again, found, times = other.run_epoch(again)
        moved = other.transfers.since(before)
        assert (moved.uploads, moved.host_syncs) == (1, 2)
        assert moved.bytes_h2d == moved.bytes_market >= host_bytes(study().resident_market())
        assert times.init > 0
        for name, values in metrics.items():
            np.testing.assert_array_equal(values, found[name], err_msg=name)
    assert sent[0][0].move_ticks.is_deleted()
    assert not sent[1][0].move_ticks.is_deleted()
    assert not ready.resident.market.move_ticks.is_deleted()


def test_metrics_come_back_as_they_were():
    values = {
        "loss": np.array([1.5, np.nan, -0.0], np.float32),
        "sides": np.array([2**31 - 1, -1, 0], np.int32),
        "is_alive": np.array([True, False, True]),
        "epsilon": np.float32(0.25),
    }
    packed = jax.jit(lambda: pack({name: jax.numpy.asarray(value) for name, value in values.items()}, 3))()
    assert packed.words.shape == (4, 3)
    found = unpack(Packed(np.asarray(packed.words), packed.layout))
    assert list(found) == list(values)
    for name, value in values.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], np.broadcast_to(value, 3))


# ---- what a summary says of all epochs


def line(epoch, **facts):
    return {
        "epoch": epoch,
        "phases_ms": {"init": 0.1, "collect": None, "learn": None, "evaluate": None, "total": 10.0 * epoch},
        "uploaded_bytes": 0 if epoch > 1 else 999,
        "downloaded_bytes": 40,
        "checkpoint_bytes": 0,
        "host_syncs": 1,
    } | facts


def test_medians_leave_out_the_first_epoch_and_those_under_a_tracer():
    lines = [line(1), line(2, is_traced=True), line(3, is_traced=True), line(4), line(5), line(6)]
    found, warnings = phases_ms(lines, None)
    assert found == {"init": 0.1, "collect": None, "learn": None, "evaluate": None, "total": 50.0}
    assert [text.partition(IS_UNDEFINED)[0] for text in warnings] == [
        f"phases_ms.{name}" for name in ("collect", "learn", "evaluate")
    ]
    alone = {"init": 0.0, "collect": 1.0, "learn": 2.0, "evaluate": 3.0, "total": 6.0}
    found, warnings = phases_ms(lines, alone)
    assert found == {"init": 0.1, "collect": 1.0, "learn": 2.0, "evaluate": 3.0, "total": 50.0, "phased_total": 6.0}
    assert warnings == []
    assert phases_ms([line(1), line(2, is_traced=True)], None)[0]["total"] == 20.0
    assert phases_ms([line(1)], None)[0]["total"] == 10.0


def test_medians_of_phases_add_up_to_their_total():
    times = [
        PhaseTimes(1.0, 2.0, 9.0, 4.0, 16.0),
        PhaseTimes(2.0, 8.0, 3.0, 1.0, 14.0),
        PhaseTimes(9.0, 1.0, 5.0, 5.0, 20.0),
    ]
    assert medians(times) == PhaseTimes(2.0, 2.0, 5.0, 4.0, 13.0)
    fused = [PhaseTimes(init, None, None, None, total) for init, total in ((1.0, 30.0), (3.0, 10.0), (2.0, 20.0))]
    assert medians(fused) == PhaseTimes(2.0, None, None, None, 20.0)


def test_transfers_of_an_epoch_are_told_without_its_checkpoint():
    ready, _ = started()
    lines = [line(1), line(2), line(3, downloaded_bytes=1040, checkpoint_bytes=1000, host_syncs=2)]
    found, warnings = transfers_record(lines, ready)
    assert found == {
        "uploads": 1,
        "bytes_market": ready.transfers.bytes_market,
        "bytes_h2d_per_epoch": 0,
        "bytes_d2h_per_epoch": 40,
        "host_syncs_per_epoch": 1,
    }
    assert warnings == []
    found, warnings = transfers_record([*lines, line(4, uploaded_bytes=7, host_syncs=3)], ready)
    assert (found["bytes_h2d_per_epoch"], found["host_syncs_per_epoch"]) == (7, 3)
    assert len(transfers_record([line(1)], ready)[1]) == 3
    going_on = line(3, uploaded_bytes=999, resuming_bytes=999, host_syncs=4, resuming_syncs=3)
    assert transfers_record([*lines, going_on], ready) == transfers_record(lines, ready)


# ---- precision


def test_products_of_a_cpu_are_in_float32_whatever_is_asked_and_that_is_said():
    draw = np.random.default_rng(0)
    left, right = (draw.standard_normal(shape, np.float32) for shape in ((64, 128), (128, 128)))
    found = {}
    for asked, name in mesh.PRECISIONS.items():
        with jax.default_matmul_precision(name):
            found[asked] = np.asarray(jax.jit(lambda a, b: a @ b)(left, right)).tobytes()
    assert jax.default_backend() == "cpu"
    assert mesh.precision_warnings("float32") == ()
    for asked in ("tf32", "bf16"):
        assert found[asked] == found["float32"]
        (text,) = mesh.precision_warnings(asked)
        assert text.startswith(f"--precision {asked} changes nothing on a CPU")


NAMED = {
    "float32": "precision = [HIGHEST, HIGHEST]",
    "tf32": "precision = [HIGH, HIGH]",
    "bf16": "lhs_precision_type = bf16, rhs_precision_type = bf16",
}


class Lowered(jax.stages.Compiled):
    """A program as it reaches the compiler, that gives zeros in place of results."""

    out_info = None

    def __init__(self, function, *args):
        lowered = jit(function).lower(*args)
        self.out_info = lowered.out_info
        self.zeros = jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), lowered.out_info)
        self.products = [row for row in lowered.as_text().splitlines() if "stablehlo.dot_general" in row]

    def __call__(self, *args):
        del args
        return self.zeros


jit = jax.jit


@pytest.mark.parametrize(
    "asked", ["tf32", pytest.param("float32", marks=pytest.mark.slow), pytest.param("bf16", marks=pytest.mark.slow)]
)
def test_every_program_of_a_study_has_the_precision_that_was_asked_for(asked, monkeypatch):
    plain, state = fresh()
    config = study().config
    config = dataclasses.replace(config, output=dataclasses.replace(config.output, precision=asked))
    stage = dataclasses.replace(plain, study=dataclasses.replace(study(), config=config))
    made = []

    def lower(function, *args):
        made.append(Lowered(function, *args))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(engine.programs, "build", lambda function, _, *args, **__: lower(function, *args))
        engine.ready(stage, None)
        engine.phased(stage, state)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "jit", lambda function, **_: lambda *args: lower(function, *args)(*args))
        best = stage.kept(state).best
        engine.trade(stage, best)
        surface._trade(stage, best, (0,), None)
    assert len(made) == 8
    assert all(one.products for one in made), "each has a network in it"
    assert all(NAMED[asked] in row for one in made for row in one.products)


@pytest.mark.slow
def test_members_spread_over_two_devices_get_what_they_get_on_one(monkeypatch):
    """As on two accelerators: the market on each of them, half of the members, and the program split by XLA."""
    plain, own = fresh()
    monkeypatch.setattr(mesh, "devices", lambda: jax.local_devices()[:2])
    spread, state = engine.start(study())
    assert (spread.mesh.size, spread.deal.count) == (2, 1)
    assert spread.transfers.bytes_market == 2 * plain.transfers.bytes_market
    for _ in range(2):
        state, metrics, _ = spread.run_epoch(state)
        own, expected, _ = plain.run_epoch(own)
        for name, values in expected.items():
            np.testing.assert_allclose(metrics[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
    named = trees.to_named(jax.device_get(state))
    again = engine.restore(spread, state, named)
    assert again.replay.sharding == state.replay.sharding
    for name, values in trees.to_named(plain.deal.join(jax.device_get(own))).items():
        np.testing.assert_allclose(named[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
