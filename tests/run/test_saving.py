"""When a checkpoint is due."""

import time

import pytest

from tidewalk.run import saving
from tidewalk.run.saving import Saver
from tidewalk.run.shares import Deal
from tidewalk.train.population import TrainState


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass as a test says."""
    now = [1000.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    return now


def test_every_so_many_epochs_where_it_is_asked_for(tmp_path):
    saver = Saver(tmp_path, {}, every=3, cost_s=100.0)
    assert [epoch for epoch in range(1, 10) if saver.is_due(epoch)] == [3, 6, 9]


def test_by_default_they_take_a_twentieth_of_the_time_at_most(tmp_path, clock):
    saver, saved, begin = Saver(tmp_path, {}, every=None), [], clock[0]
    for epoch in range(1, 1001):
        clock[0] += 0.1
        if saver.is_due(epoch):
            clock[0] += 0.5
            saver.ended_s, saver.cost_s = clock[0], 0.5
            saved.append(epoch)
    assert saved[0] == 1
    share = 0.5 * len(saved) / (clock[0] - begin)
    assert 0.04 < share <= saving.MOST_SHARE + 0.005


def test_cheap_ones_follow_every_epoch(tmp_path, clock):
    saver = Saver(tmp_path, {}, every=None, cost_s=0.001)
    clock[0] += 0.02
    assert saver.is_due(2)
    clock[0] -= 0.01
    assert not saver.is_due(2)


def test_what_a_checkpoint_took_is_measured_from_the_device_on(tmp_path, monkeypatch):
    monkeypatch.setattr(saving.checkpoint, "save_checkpoint", lambda folder, name, *_: folder / name)
    monkeypatch.setattr(saving.checkpoint, "prune_checkpoints", lambda *_, **__: [])
    monkeypatch.setattr(Deal, "named", lambda *_: {})
    state = object.__new__(TrainState)
    object.__setattr__(state, "best", None)
    saver = Saver(tmp_path, {}, every=None)
    saver.save(Deal(1, 1), state, 3, time.monotonic() - 7.0)
    assert saver.cost_s == pytest.approx(7.0, abs=0.5)
    assert saver.written == [tmp_path / "epoch-00003"]
