import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.agents import replay
from tidewalk.agents.replay import Records


def filled(slots: int, members: int, lanes: int, steps: int):
    """A replay into which `steps` vector steps were written; bar = step, position = lane, action = member."""
    store = replay.empty(slots * lanes, members)
    lane = jnp.tile(jnp.arange(lanes, dtype=jnp.int32)[:, None], (1, members))
    member = jnp.tile(jnp.arange(members, dtype=jnp.int32)[None, :], (lanes, 1))
    for clock in range(steps):
        never = jnp.zeros((lanes, members), bool)
        rows = replay.pack(
            Records(jnp.full((lanes, members), clock, jnp.int32), lane, member, never | (clock % 5 == 0), never, never)
        )
        store = replay.add(store, rows, jnp.int32(clock))
    return store


@given(st.integers(0, 2**31 - 1), st.integers(0, 100), st.integers(0, 100), st.tuples(*[st.booleans()] * 3))
@settings(max_examples=30, deadline=None)
def test_pack_and_unpack_are_inverse_for_bars_beyond_float32(bar, position, action, flags):
    numbers, bits = [bar, position, action], list(flags)
    record = Records(*(jnp.int32(x) for x in numbers), *(jnp.bool_(x) for x in bits))
    found = replay.unpack(replay.pack(record))
    assert [int(found.bar), int(found.position), int(found.action)] == numbers
    assert [bool(found.is_fresh), bool(found.is_halted), bool(found.is_terminated)] == bits


# validity.md B25: n-step sequences never cross the ring cursor
@given(st.integers(3, 30), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_sequences_are_consecutive_steps_of_one_lane_and_member_and_are_still_stored(steps, n_step):
    slots, members, lanes = 8, 2, 4
    store = filled(slots, members, lanes, steps)
    bits = jnp.asarray(np.random.default_rng(steps).integers(0, 2**32, (members, 64), dtype=np.uint32))
    found = np.asarray(replay.sample(store, jnp.int32(steps), bits, lanes, n_step))
    records = replay.unpack(jnp.asarray(found))
    bar, lane, member = (np.asarray(x) for x in (records.bar, records.position, records.action))
    assert (np.diff(bar, axis=-1) == 1).all()
    assert (lane == lane[..., :1]).all()
    assert (member == np.arange(members)[:, None, None]).all()
    assert bar.min() >= max(0, steps - slots)
    assert bar.max() <= steps - 1


def test_every_stored_start_is_drawn():
    store = filled(8, 1, 4, 20)
    bits = jnp.asarray(np.arange(5000, dtype=np.uint32)[None, :])
    found = replay.sample(store, jnp.int32(20), bits, 4, 3)
    bar, lane = np.asarray(replay.unpack(found).bar), np.asarray(replay.unpack(found).position)
    starts = set(zip(bar[0, :, 0].tolist(), lane[0, :, 0].tolist(), strict=True))
    assert starts == {(b, e) for b in range(12, 18) for e in range(4)}
