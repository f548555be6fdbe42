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
from tidewalk.run import engine
from tidewalk.run.epoch_lines import phases_ms, transfers_record
from tidewalk.run.packed import Packed, pack, unpack
from tidewalk.run.study import plan_study
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
    devices = ready.mesh.size
    assert ready.transfers.bytes_market >= devices * host_bytes((study().resident_market(), study().windows))
    for _ in range(3):
        before = dataclasses.replace(ready.transfers)
        state, metrics, times = ready.run_epoch(state)
        moved = ready.transfers.since(before)
        assert (moved.uploads, moved.bytes_h2d, moved.host_syncs) == (0, 0, 1)
        assert moved.bytes_d2h == 4 * len(metrics) * study().num_members
        assert times.init < 0.1


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
    again = engine.restore(state, trees.to_named(jax.device_get(state)), ready.transfers)
    moved = ready.transfers.since(before)
    assert (moved.uploads, moved.bytes_market) == (0, 0)
    assert moved.bytes_h2d >= host_bytes(state)
    assert jax.tree.map(lambda leaf: leaf.sharding, again) == jax.tree.map(lambda leaf: leaf.sharding, state)


@pytest.mark.parametrize("form", ["fused", "phased"])
def test_the_guard_stops_an_epoch_whose_market_is_on_the_host(form):
    ready, state = fresh()
    run = engine.Engine.run_epoch if form == "fused" else engine.phased(ready, state)
    host = (jax.device_get(ready.resident.market), ready.resident.windows, ready.resident.members)
    with pytest.raises(Exception, match="transfer"):
        run(dataclasses.replace(ready, provide=lambda: host), state)


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
