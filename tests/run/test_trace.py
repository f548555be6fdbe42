"""Phases in the trace of the profiler: of every operation, as tracks, and as sums."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from tidewalk.run import trace


def operation(name, ts, dur, *, tid=7, hlo_op=None):
    args = {"hlo_op": hlo_op or name, "hlo_module": "jit_epoch"}
    return {"ph": "X", "pid": 3, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}


def annotated(tmp_path, events, phases):
    """What `annotate` finds in a trace of these events, and the trace as it is afterwards."""
    path = tmp_path / "plugins" / "profile" / "2026" / "vm.trace.json.gz"
    path.parent.mkdir(parents=True)
    thread = {"ph": "M", "pid": 3, "tid": 7, "name": "thread_name", "args": {"name": "worker"}}
    python = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 99.0, "name": "epoch"}
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": [thread, python, *events, {}]}, file)
    found = trace.annotate(tmp_path, phases)
    with gzip.open(path, "rt") as file:
        return found, json.load(file)["traceEvents"]


def test_operations_of_a_compiled_program_are_known_by_their_scope():
    def step(x):
        with jax.named_scope("collect"):
            x = jnp.cumsum(jnp.sin(x))
        with jax.named_scope("learn"):
            x = jnp.sort(2 * x)
        return x

    found = trace.by_operation(jax.jit(step).lower(jnp.ones(64)).compile())
    assert set(found.values()) == {"collect", "learn"}
    assert any("sort" in name for name, phase in found.items() if phase == "learn")
    assert not any("sort" in name for name, phase in found.items() if phase == "collect")


def test_every_operation_gets_its_phase_and_every_thread_a_track(tmp_path):
    phases = {"a.1": "collect", "b.2": "learn", "c.3": "learn"}
    events = [operation("a.1", 0, 2.0), operation("b.2", 2, 3.0), operation("copy.9", 5, 1.0), operation("c.3", 7, 4.0)]
    found, after = annotated(tmp_path, events, phases)
    assert found == {"learn": 0.007, "collect": 0.002, "other": 0.001}
    assert [e["args"]["phase"] for e in after if "hlo_op" in e.get("args", {})] == [
        "collect",
        "learn",
        "other",
        "learn",
    ]
    tracks = [event for event in after if event.get("pid") == trace._TRACKS_PID]
    slices = [(event["name"], event["ts"], event["dur"]) for event in tracks if event["ph"] == "X"]
    assert slices == [("collect", 0, 2.0), ("learn", 2, 9.0)], "what stands in no phase interrupts none"
    assert {"phases", "phases of worker"} <= {event["args"].get("name") for event in tracks if event["ph"] == "M"}


def test_a_loop_is_not_counted_beside_its_body(tmp_path):
    phases = {"while.1": "learn", "a.1": "learn", "b.1": "store"}
    events = [operation("while.1", 0, 10.0), operation("a.1", 1, 4.0), operation("b.1", 6, 3.0)]
    found, _ = annotated(tmp_path, events, phases)
    assert found == {"learn": 0.007, "store": 0.003}


def test_kernels_of_a_gpu_are_known_by_their_own_names(tmp_path):
    graph = {"hlo_op": "command_buffer_1"}
    events = [
        operation("learn_d48_h128_p3_c4", 0, 5.0, **graph),
        operation("maps_d32_h128_p3", 5, 2.0, **graph),
        operation("walk", 7, 1.0, **graph),
    ]
    assert annotated(tmp_path, events, {})[0] == {"collect+store+learn": 0.005, "evaluate": 0.003}


def test_a_library_s_kernel_inside_a_graph_belongs_to_what_ran_before_it(tmp_path):
    graph = {"hlo_op": "command_buffer_1"}
    events = [operation("gemm", 0, 1.0, **graph), operation("loop_add_fusion_3", 1, 2.0, **graph)]
    events += [operation("gemm", 3, 4.0, **graph), operation("gemm", 8, 16.0)]
    found, _ = annotated(tmp_path, events, {"loop_add_fusion.3": "learn"})
    assert found == {"other": 0.017, "learn": 0.006}, "outside of graphs every operation has its own name"


def test_where_there_is_no_trace_nothing_is_found(tmp_path):
    assert trace.annotate(tmp_path, {"a": "learn"}) == {}


def test_sums_are_said_with_their_shares():
    assert trace.in_words({"learn": 3.0, "other": 1.0}) == "learn 3.00 ms (75%) · other 1.00 ms (25%)"


@pytest.mark.parametrize("bytes_", [b"", b"no gzip", gzip.compress(b"{}" * 99)[:-12]])
def test_a_damaged_trace_is_an_error_that_profiling_survives(tmp_path, bytes_):
    path = tmp_path / "plugins" / "profile" / "2026" / "vm.trace.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes_)
    with pytest.raises((OSError, EOFError, ValueError)):
        trace.annotate(tmp_path, {})
