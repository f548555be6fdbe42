"""What is evaluated at a time: bounded memory, little padding, and nobody left out."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.train import batches
from tidewalk.train.batches import Batch, Bucket, batch, buckets, group_size, over_groups, over_members, padding

LENGTHS = st.lists(st.integers(1, 40_000), min_size=1, max_size=60)


@given(LENGTHS, st.sampled_from([1, 2, 3, 4]))
def test_every_member_of_every_device_lies_within_the_bound_of_its_bucket(lengths, devices):
    """The law of the plan, with members sorted by length on each device, longest first."""
    lengths = lengths * devices
    share = len(lengths) // devices
    plan = buckets(lengths, share, max(lengths))
    assert [plan[0].first, plan[-1].stop] == [0, share]
    assert all(one.stop == other.first for one, other in itertools.pairwise(plan))
    assert len(plan) <= batches.MOST_BUCKETS
    bounds = np.concatenate([np.full(part.stop - part.first, part.bars) for part in plan])
    for device in range(devices):
        own = np.sort(lengths[device * share : (device + 1) * share])[::-1]
        assert (own <= bounds).all()
    assert max(bounds) <= max(lengths)


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_windows_of_random_lengths_have_little_padding(seed):
    rng = np.random.default_rng(seed)
    months = rng.integers(17, 24, 100) * 1380 - rng.integers(0, 400, 100)
    assert padding(buckets(months.tolist(), 100, 40_000), months.tolist()) <= 0.05
    several = np.concatenate([months[:50], months[50:] // 7]).tolist()  # a symbol with a seventh of the bars
    assert padding(buckets(several, 100, 40_000), several) <= 0.05
    assert padding([Bucket(0, 100, max(several))], several) > 0.3
    wild = rng.integers(1, 40_000, 100).tolist()
    assert padding(buckets(wild, 100, 40_000), wild) <= 0.1  # eight are the most


def test_as_few_buckets_as_will_do():
    assert buckets([30_000] * 8, 8, 30_000) == [Bucket(0, 8, 30_000)]
    assert buckets([29_000, 30_000] * 4, 8, 30_000) == [Bucket(0, 8, 30_000)]
    assert buckets([20_000, 30_000] * 4, 8, 30_000) == [Bucket(0, 4, 30_000), Bucket(4, 8, 20_000)]


def test_unknown_lengths_and_parts_of_a_population_are_taken_at_the_bound():
    assert buckets((), 3, 500) == [Bucket(0, 3, 500)]
    assert buckets((100, 200, 300), 2, 500) == [Bucket(0, 2, 500)]


@given(st.integers(1, 5000), st.integers(1, 500_000), st.integers(40, 10**6), st.sampled_from(["scan", "associative"]))
@settings(max_examples=200)
def test_a_batch_stays_within_its_memory_and_covers_everything(members, bars, bar_bytes, compose):
    size = batch(compose, members, bars, bar_bytes)
    assert 1 <= size.members <= members
    assert 1 <= size.chunk <= bars
    most = batches.CACHE_BYTES if compose == "scan" else batches.SCRATCH_BYTES
    assert size.members * size.chunk * bar_bytes <= most
    # parts of even size: less than one row of each is padding
    assert -(-bars // size.chunk) * size.chunk - bars < -(-bars // size.chunk)
    groups = -(-members // size.members)
    assert groups * size.members - members < groups


def test_one_member_has_its_whole_range_at_once_on_an_accelerator():
    assert batch("associative", 1, 29_795, 3120) == Batch(1, 29_795)
    assert batch("scan", 1, 29_795, 3120).chunk < 2000


@pytest.mark.parametrize("size", [1, 3, 4, 7, 9])
def test_members_come_back_in_their_order_whatever_the_buckets_and_batches(size):
    lengths = jnp.array([5, 9, 9, 2, 7, 1, 9], jnp.int32)
    rows = {"number": jnp.arange(7), "length": lengths}
    plan = buckets(lengths.tolist(), 7, 9)
    assert len(plan) > 2

    def one(row, bars, chunk):
        inside = jnp.arange(bars) < row["length"]
        return {"sum": jnp.sum(jnp.where(inside, row["number"], 0)), "chunk": jnp.int32(chunk)}

    def batch_of(members, bars):
        return Batch(min(size, members), 2)

    found, is_whole = over_members(one, rows, lengths, plan, batch_of)
    assert found["sum"].tolist() == (np.arange(7) * np.asarray(lengths)).tolist()
    assert found["chunk"].tolist() == [2] * 7
    assert is_whole.all()
    short = [Bucket(part.first, part.stop, part.bars - (part.first == 0)) for part in plan]
    assert over_members(one, rows, lengths, short, batch_of)[1].tolist() == (np.asarray(lengths) < 9).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 9])
def test_groups_change_no_result_and_no_order(size):
    rows = jnp.arange(7, dtype=jnp.int32)
    found = over_groups(lambda some: {"twice": 2 * some, "pairs": jnp.stack([some, some], axis=1)}, rows, 7, size)
    assert found["twice"].tolist() == [2 * number for number in range(7)]
    assert found["pairs"].shape == (7, 2)


def test_a_group_is_as_many_as_the_scratch_memory_holds():
    assert group_size(1024, 30_000, 8) == 1024
    size = group_size(4096, 30_000, 8)
    assert size == 2048
    assert size * 30_000 * 8 <= batches.SCRATCH_BYTES
    assert group_size(3, 2**31, 8) == 1
