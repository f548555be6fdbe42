"""Members of a CPU in shares: every member once, in its place, whatever the cores; and the cores work side by side."""

import collections
import dataclasses
import functools
import math
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import planted_market, small_config
from tidewalk.agents.dqn import DQNConfig, make_dqn
from tidewalk.core import trees
from tidewalk.core.keys import root_key
from tidewalk.market.device import save_market
from tidewalk.run import control_groups, engine, loop, memory, shares
from tidewalk.run.mesh import Transfers
from tidewalk.run.packed import pack
from tidewalk.run.saving import Saver
from tidewalk.run.shares import Deal, deal
from tidewalk.run.study import plan_study
from tidewalk.store import checkpoint
from tidewalk.trading.costs import CostTicks
from tidewalk.train.population import Members, initial_state, make_members

MEMBERS = st.integers(1, 400)


def split(dealt, whole):
    """A state as it is dealt out."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(whole)
    parts = [dealt.split(path, leaf) for path, leaf in leaves]
    shares = tuple(jax.tree.unflatten(tree, share) for share in zip(*parts, strict=True))
    return shares if dealt.count > 1 else shares[0]


@given(MEMBERS)
@settings(max_examples=50)
def test_every_member_is_dealt_once_and_comes_back_to_its_place(members):
    dealt = deal(members)
    rows = np.stack(dealt.rows())
    assert rows.shape == (dealt.count, dealt.size)
    assert sorted(set(rows.ravel().tolist())) == list(range(members))
    assert rows.size - members < max(2, dealt.size), "no more is computed twice than the others leave over"
    whole = {"params": np.arange(members) * 10, "by_bar": np.arange(3 * members).reshape(members, 3)}
    dealt_out = split(dealt, whole)
    if dealt.count > 1:
        for rows, share in zip(dealt.rows(), dealt_out, strict=True):
            assert all(np.array_equal(share[name], whole[name][rows]) for name in whole)
    again = dealt.join(dealt_out)
    assert all(np.array_equal(again[name], whole[name]) for name in whole)


def a_state(seeds):
    """A state on the host, every word of a leaf another; its replay is a third of it, far more than Python takes."""
    study = made(seeds=seeds)
    program, env = study.program, study.program.env
    agent = make_dqn(DQNConfig(), env.observation_size(program.num_features), env.num_positions)
    program = dataclasses.replace(program, capacity=2**14, agent=agent)
    members = jax.eval_shape(functools.partial(make_members, study.num_windows, seeds, 0), *memory._asked(study)[2])
    shapes = jax.eval_shape(functools.partial(initial_state, program), study.windows, members)
    filled = jax.tree.map(lambda leaf: np.arange(math.prod(leaf.shape)).reshape(leaf.shape).astype(leaf.dtype), shapes)
    return filled, memory.of_members(study, program, study.num_members), study.num_members


def traced(function, *args):
    """Result of a call, and the most that Python and numpy held in it beyond what was there."""
    tracemalloc.start()
    try:
        return function(*args), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seeds", [3, 4, 5])
def test_a_checkpoint_takes_the_largest_array_of_the_state_as_the_formula_says(seeds, tmp_path):
    whole, need, members = a_state(seeds)
    dealt = deal(members)
    assert dealt.count > 1
    parts = split(dealt, whole)
    for rows, part in zip(dealt.rows(), parts, strict=True):
        np.testing.assert_array_equal(part.replay, whole.replay[:, rows])
        assert np.shares_memory(part.replay, whole.replay) == (rows[-1] == rows[-2] + dealt.count)
    assert need.checkpoint == whole.replay.nbytes
    host, saver = jax.tree.map(np.array, parts), Saver(tmp_path, {}, every=1)
    _, written_bytes = traced(saver.save, dealt, host, 7, 0.0)
    assert 0.9 < written_bytes / need.checkpoint < 1.1
    assert need.checkpoint < 0.4 * trees.nbytes(whole)
    (path,), shapes = saver.written, jax.device_put(parts)
    ready = object.__new__(engine.Engine)
    vars(ready).update(deal=dealt, transfers=Transfers())
    arrays, _ = checkpoint.read_checkpoint(path)
    again, read_bytes = traced(engine.restore, ready, shapes, arrays)
    if dealt.size * dealt.count == members:  # a copy, of a share that has a member twice, may become its memory
        assert read_bytes < 1.3 * need.checkpoint
    for name, leaf in trees.to_named(whole).items():
        np.testing.assert_array_equal(trees.to_named(dealt.join(jax.device_get(again)))[name], leaf, err_msg=name)
    best = checkpoint.load_checkpoint(tmp_path / "best.safetensors", trees.schema(whole.best))[0]
    for name, leaf in trees.to_named(whole.best).items():
        np.testing.assert_array_equal(best[name], leaf, err_msg=name)
    assert trees.schema(dealt.joined_shape(host)) == trees.schema(whole)
    assert trees.schema(Deal(members, members).joined_shape(whole)) == trees.schema(whole)


def test_a_file_is_the_same_however_its_members_were_dealt_out(tmp_path):
    whole, _, members = a_state(4)
    for name, dealt in (("one", Deal(members, members)), ("two", Deal(members, 2)), ("five", Deal(members, 5))):
        Saver(tmp_path / name, {}, every=1).save(dealt, split(dealt, whole), 1, 0.0)
    files = [
        [(tmp_path / name / f"{file}.safetensors").read_bytes() for name in ("one", "two", "five")]
        for file in ("epoch-00001", "best")
    ]
    assert [len(set(one)) for one in files] == [1, 1]


def test_going_on_frees_the_first_state_before_the_file_is_read(tmp_path, monkeypatch):
    whole, _, members = a_state(4)
    dealt = deal(members)
    ready = object.__new__(engine.Engine)
    vars(ready).update(deal=dealt, transfers=Transfers())
    path = checkpoint.save_checkpoint(tmp_path, "epoch-00003", trees.to_named(whole), {"epoch": 3})
    first = jax.device_put(split(dealt, jax.tree.map(np.zeros_like, whole)))
    read = checkpoint.read_checkpoint

    def loaded(*args):
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
        return read(*args)

    monkeypatch.setattr(checkpoint, "read_checkpoint", loaded)
    state, epoch = loop._from_checkpoint(ready, first, path)
    assert epoch == 3
    assert all(leaf.sharding == jax.tree.leaves(first)[0].sharding for leaf in jax.tree.leaves(state))
    again = trees.to_named(dealt.join(jax.device_get(state)))
    for name, leaf in trees.to_named(whole).items():
        np.testing.assert_array_equal(again[name], leaf, err_msg=name)


def test_no_members_are_no_shares():
    assert deal(0).count == 0
    assert deal(0).rows() == []


def test_metrics_and_members_of_shares_are_those_of_each_member():
    dealt, loss = Deal(7, 3, cores=2), np.arange(7, dtype=np.float32)
    every = [{"loss": jnp.asarray(loss[rows]), "is_alive": jnp.asarray(rows % 2 == 0)} for rows in dealt.rows()]
    packed = jax.device_get(tuple(pack(one, 3) for one in every))
    found = dealt.metrics(packed)
    np.testing.assert_array_equal(found["loss"], loss)
    np.testing.assert_array_equal(found["is_alive"], [True, False] * 3 + [True])
    seed = np.arange(7, dtype=np.int32)
    members = Members(jax.random.split(root_key(0), 7), seed, seed, CostTicks(loss, None), {"lr": loss})
    for rows, share in zip(dealt.rows(), dealt.split_members(members), strict=True):
        assert share.seed.tolist() == share.hyper["lr"].tolist() == rows.tolist()
        assert share.key.shape == (3,)


@given(MEMBERS, st.integers(1, 64))
@settings(max_examples=50)
def test_no_number_of_cores_changes_a_share(members, cores):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "usable_cores", lambda: cores)
        assert (deal(members).size, deal(members).count) == sized(members)


@functools.cache
def sized(members):
    return deal(members).size, deal(members).count


@pytest.mark.parametrize(
    ("members", "size", "count"),
    [(1, 1, 1), (3, 3, 1), (4, 2, 2), (7, 4, 2), (8, 4, 2), (16, 4, 4), (28, 7, 4), (56, 7, 8), (1000, 7, 143)],
)
def test_shares_are_even_on_two_cores_and_on_four(members, size, count):
    assert sized(members) == (size, count)


def test_an_accelerator_keeps_its_members_together(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert deal(1000) == Deal(1000, 1000)


def test_every_share_has_long_windows_and_short_ones_and_the_program_knows_them():
    program = dataclasses.replace(made(seeds=4).program, val_lengths=(900, 800, 700, 600, 500, 400, 300))
    assert Deal(7, 3).program(program).val_lengths == (900, 600, 300, 800, 500, 300, 700, 400, 300)
    assert Deal(7, 7).program(program) is program


def test_as_many_shares_as_cores_are_computed_at_a_time():
    meeting = threading.Barrier(2)

    def program(market, windows, members, state):
        meeting.wait(timeout=20)  # breaks unless the other share is computed at the same time
        return state + members, threading.get_ident()

    fixed, state = (None, None, (1, 2, 3, 4)), (10, 20, 30, 40)
    found, threads = Deal(8, 2, cores=2).run(program, fixed, state)
    assert found == (11, 22, 33, 44)
    assert threads[0] == threads[2] != threads[1] == threads[3]
    assert threading.get_ident() not in threads
    assert Deal(8, 2, cores=3).said() == ", in 4 shares of 2, 3 at a time"
    assert Deal(8, 2, cores=16).at_a_time == 4
    assert Deal(8, 8, cores=16).said() == ""


@pytest.mark.parametrize("cores", [1, 2])
def test_a_cpu_computes_as_many_shares_side_by_side_as_cores_and_no_more(monkeypatch, cores):
    """By a program of jax that says when it begins and ends: how its CPU client takes what threads give it."""
    lock, running, most = threading.Lock(), [0], [0]

    def said(by):
        with lock:
            running[0] += int(by)
            most[0] = max(most[0], running[0])
        return np.float32(0)

    def tell(by):
        return jax.pure_callback(said, jax.ShapeDtypeStruct((), jnp.float32), by)

    def program(market, windows, members, state):
        state = jax.lax.fori_loop(0, 40, lambda _, x: jnp.tanh(x @ x), state + tell(jnp.float32(1)))
        return state + tell(0 * state[0, 0] - 1)

    monkeypatch.setattr(shares, "_guarded", lambda program, *args: program(*args))  # a callback moves what it says
    state = jnp.full((200, 200), 1e-3)
    compiled = jax.jit(program, donate_argnums=3).lower(None, None, jnp.float32(0), state).compile()
    states, members = (tuple(map(make, range(8))) for make in (lambda share: state + share, jnp.float32))
    jax.block_until_ready(Deal(16, 2, cores=cores).run(compiled, (None, None, members), states))
    assert (running[0], most[0]) == (0, cores)


def test_where_a_share_fails_none_is_computed_any_more_once_that_is_said():
    ended = []

    def program(market, windows, members, state):
        if members == 0:
            raise ValueError("odd")
        time.sleep(0.05)
        ended.append(members)
        return state

    with pytest.raises(ValueError, match="odd"):
        Deal(8, 2, cores=2).run(program, (None, None, (0, 1, 2, 3)), (0, 0, 0, 0))
    assert sorted(ended) == [1, 2, 3]


def test_shares_that_were_not_begun_never_are_where_the_wait_is_broken_off(monkeypatch):
    gate, begun = threading.Event(), []

    def program(market, windows, members, state):
        begun.append(members)
        gate.wait(timeout=20)

    def broken_off(_):
        while not begun:
            time.sleep(0.001)
        raise KeyboardInterrupt

    monkeypatch.setattr(shares.concurrent.futures, "wait", broken_off)
    with pytest.raises(KeyboardInterrupt):
        Deal(8, 2, cores=1).run(program, (None, None, (0, 1, 2, 3)), (0, 0, 0, 0))
    gate.set()
    shares._thread(0).submit(int).result()
    assert begun == [0]


def test_results_of_shares_are_told_apart_where_a_program_gives_a_plain_tuple_only():
    named = collections.namedtuple("named", "a b")
    fixed = (None, None, (1, 2))
    assert Deal(4, 2).run(lambda *args: (args[2], 0), fixed) == ((1, 2), (0, 0))
    assert Deal(4, 2).run(lambda *args: named(args[2], 0), fixed) == (named(1, 0), named(2, 0))


def test_cores_are_those_of_the_process_its_groups_or_its_user(monkeypatch):
    monkeypatch.setattr(control_groups, "cores", lambda: None)
    count = shares.usable_cores.__wrapped__
    assert count() == len(jax.local_devices()) == 4, "what was asked of jax"
    monkeypatch.setattr(jax, "local_devices", lambda **_: [None])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    assert count() == 6
    for granted in (2, 99):
        monkeypatch.setattr(control_groups, "cores", lambda granted=granted: granted)
        assert count() == min(granted, 6)
    monkeypatch.setattr(jax, "config", types.SimpleNamespace(jax_num_cpu_devices=1))
    assert count() == 1


def test_threads_of_large_products_are_those_of_the_process_or_its_user(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda **_: [None])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    for name in ("PJRT_NPROC", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    assert shares.threads() == 6
    monkeypatch.setenv("NPROC", "3")
    assert shares.threads() == 3
    monkeypatch.setenv("PJRT_NPROC", "2")
    assert shares.threads() == 2


@pytest.mark.skipif(sys.platform != "linux", reason="threads are told by name there")
def test_as_many_threads_are_counted_as_xla_started():
    jax.block_until_ready(jnp.zeros(3) + 1)
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert names.count("tf_XLAEigen") == shares.threads()


@functools.cache
def market():
    return planted_market(days=182)


def made(seeds):
    return plan_study(small_config(Path("data"), seeds=seeds, epochs=2), [market()], compose="scan")


def trained(monkeypatch, dealing):
    """A short training: its engine, and state, what is kept of it and metrics as named host arrays."""
    with monkeypatch.context() as patch:
        patch.setattr(engine, "deal", dealing)
        ready, state = engine.start(made(seeds=5))
    history = []
    for _ in range(2):
        state, metrics, _ = ready.run_epoch(state)
        history.append(metrics)
    whole = ready.deal.join(jax.device_get(state))
    return ready, trees.to_named((whole, ready.kept(state), history))


@pytest.mark.slow
def test_members_get_in_shares_what_they_get_undivided_each_in_its_place(monkeypatch):
    ready, dealt = trained(monkeypatch, deal)
    assert ready.deal.cores > 1
    assert ready.deal.count > 1
    assert ready.deal.count * ready.deal.size > ready.study.num_members, "a share has a member twice"
    _, whole = trained(monkeypatch, lambda members: Deal(members, members))
    assert dealt.keys() == whole.keys()
    for name, leaf in dealt.items():
        assert leaf.shape == whole[name].shape
        np.testing.assert_allclose(leaf, whole[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3, 4])
def test_every_result_file_is_the_same_on_one_core_on_two_and_after_going_on_with_four(tmp_path, seeds):
    """The number of host devices is what a user asks jax for; here it is the number of cores."""
    save_market(tmp_path / "m.npz", market())
    digests = {}
    for devices in (1, 2, 4):
        out = tmp_path / f"devices-{devices}" / "run"
        flags = ["--data-dir", tmp_path / "m.npz", "--symbol", "ES.FUT", "--train-months", "2", "--seeds", seeds]
        flags += ["--epochs", "3", "--lanes", "8", "--max-steps-per-epoch", "20", "--hidden", "16", "--quiet"]
        command(1 if devices == 4 else devices, "train", *flags, "--out", out, "--checkpoint-every", "1")
        if devices == 4:
            (out / "checkpoints" / "epoch-00003.safetensors").unlink()
            manifest = (out / "manifest.json").read_text()
            (out / "manifest.json").write_text(manifest.replace('"complete"', '"interrupted"'))
            command(4, "resume", out, "--quiet")
        names = ("*.parquet", "policies/*", "checkpoints/*.safetensors")
        files = sorted(file for name in names for file in out.glob(name))
        digests[devices] = {str(file.relative_to(out)): file.read_bytes() for file in files}
    assert len(digests[1]) > 5
    assert digests[1].keys() == digests[2].keys() == digests[4].keys()
    for name, data in digests[1].items():
        assert data == digests[2][name], name
        assert name.startswith("checkpoints/") or data == digests[4][name], name


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 4])
def test_policies_of_the_default_network_and_batch_are_the_same_on_any_number_of_threads(tmp_path, seeds):
    save_market(tmp_path / "m.npz", market())
    flags = ["--data-dir", tmp_path / "m.npz", "--symbol", "ES.FUT", "--train-months", "2", "--seeds", seeds, "--quiet"]
    found = []
    for threads in (1, 2, 16):
        out = tmp_path / f"threads-{threads}" / "run"
        command(0, "train", *flags, "--epochs", "2", "--out", out, NPROC=str(threads))
        assert f'"threads": {threads},' in (out / "manifest.json").read_text()
        found.append({path.name: path.read_bytes() for path in out.glob("policies/*")})
    assert found[0]
    assert found[0] == found[1] == found[2]


def command(devices, *args, **more):
    """Run tidewalk with as many host devices; 0: as many as jax takes by itself."""
    environment = {**os.environ, "XLA_FLAGS": "", **more}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    environment |= {"JAX_NUM_CPU_DEVICES": str(devices)} if devices else {}
    done = subprocess.run(
        [sys.executable, "-m", "tidewalk.cli", *map(str, args)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
