"""The emulator finds what is wrong with small kernels, whatever the order in which it runs them.

Two blocks of three warps run each of them: thread `t` of block `b`, whose word of shared memory is `own`.
"""

import ctypes

import numpy as np
import pytest

import emulated

pytestmark = pytest.mark.skipif(emulated.COMPILER is None, reason="no g++ to compile the kernel for the host")
HEAD = """
#include <utility>
#include "cluster.cuh"
using namespace tidewalk;
static float* out;  // [2, 96]
static int count;  // of turns
static float memory[2 * 256 + 4], device[192], source[4] = {5, 6, 7, 8};
static void keep(float number) { out[96 * cluster_rank() + thread_id()] = number; }
static void send_it(float* own) { send(own, 1 - cluster_rank(), 1.0f + thread_id()); }
static float row(const float* place) {
  unsigned words[4];
  load_matrices(words, reinterpret_cast<const unsigned*>(place));
  return float_of(words[0]);
}
static void sync() { cluster_arrive(); cluster_wait(); }
"""
TAIL = """
extern "C" void run_small(int number, int order, float* results) {
  out = results;
  count = 0;
  float* first = memory + (16 - reinterpret_cast<uintptr_t>(memory) % 16) % 16 / 4;
  emulator::run({0, 96, order, first, 256, 2, 0, 1, device, sizeof device}, [number] {
    float* shared = emulator::here.shared;
    kernels[number](shared, shared + thread_id(), thread_id(), cluster_rank());
  });
}
"""
RIGHT = {
    "a barrier in halves": "sync(); send_it(own); cluster_arrive(); shared[96 + t] = 1; cluster_wait(); keep(*own);",
    "read, then sent": "sync(); *own = t; keep(*own); cluster_arrive(); cluster_wait(); send_it(own); sync();",
    "a barrier of the block": "*own = t; block_sync(); keep(shared[95 - t]); block_sync(); *own = 2;",
    "a barrier of some warps": "*own = t; if (t < 64) group_sync(3, 64); if (t < 64) keep(shared[t ^ 32]);",
    "barriers of a warp": "*own = t; warp_sync(); keep(shared[t ^ 1]); warp_sync(); *own = 3;",
    "a barrier of one of two warps": "*own = t; if (t < 32) group_sync(1, 32); if (t < 32) keep(shared[31 - t]);",
    "what another barrier passed on": (
        "*own = t; if (t >= 32) group_sync(1, 64); if (t < 64) group_sync(2, 64); "
        "if (t < 32) keep(shared[64 + t]); block_sync(); *own = 1;"
    ),
    "device memory": "device[96 * b + t] = t; sync(); keep(device[191 - 96 * b - t]); sync(); device[96 * b + t] = 1;",
    "a copy": "copy_beside(own, source + t % 4); copies_done(); block_sync(); keep(shared[95 - t]);",
    "a row for all lanes": "*own = t; block_sync(); keep(row(shared + t % 8 * 4)); block_sync(); *own = 1;",
}
UNORDERED = {
    "read before it came": "sync(); send_it(own); keep(*own); sync();",
    "read between the halves": "sync(); send_it(own); cluster_arrive(); keep(*own); cluster_wait();",
    "sent between the halves": "sync(); cluster_arrive(); send_it(own); cluster_wait(); keep(*own);",
    "sent while it is read": "sync(); *own = t; sync(); keep(*own); send_it(own); sync();",
    "read between the halves, then sent": (
        "*own = t; sync(); cluster_arrive(); keep(*own); cluster_wait(); send_it(own); sync();"
    ),
    "sent by two": "sync(); send(shared, 1, 1.0f * t); sync();",
    "a barrier of the block, not of all": "sync(); send_it(own); block_sync(); keep(*own); sync();",
    "no barrier": "*own = t; keep(shared[t ^ 32]); block_sync();",
    "no barrier before a write": "*own = t; block_sync(); keep(shared[t ^ 32]); *own = 2;",
    "a write before many have read": "if (t == 9) *shared = 1; block_sync(); keep(*shared); if (!t) *shared = 2;",
    "a barrier of a warp, not of both": "*own = t; warp_sync(); keep(shared[t ^ 32]);",
    "a barrier of the other warps": "*own = t; group_sync(t / 32, 32); keep(shared[t ^ 32]);",
    "what another barrier did not pass on": (
        "*own = t; if (t < 64) group_sync(2, 64); if (t >= 32) group_sync(1, 64); if (t < 32) keep(shared[64 + t]);"
    ),
    "a shuffle for a barrier": "*own = t; shuffle_xor(1, 1); keep(shared[t ^ 1]);",
    "no barrier of the warp": "*own = t; keep(shared[t ^ 1]); warp_sync();",
    "device memory read too early": "device[96 * b + t] = t; block_sync(); keep(device[96 - 96 * b + t]); sync();",
    "device memory written too early": "keep(device[3]); block_sync(); if (b == 1 && t == 0) device[3] = 1; sync();",
    "a copy over what is read": "*own = t; block_sync(); keep(shared[t ^ 1]); copy_beside(own, source);",
    "a row read too early": "*own = t; keep(row(shared + t % 8 * 4));",
}
MISUSED = {
    "sent to a block that has not begun": ("send_it(own); sync(); keep(*own);", "the start of block"),
    "sent to a block that has ended": ("sync(); send_it(own);", "may have ended"),
    "no arrival": ("sync(); send_it(own); cluster_wait(); keep(*own);", "did not arrive"),
    "no wait": ("sync(); send_it(own); cluster_arrive(); sync(); keep(*own);", "arrives twice"),
    "an end between the halves": ("sync(); cluster_arrive();", "ends between the halves"),
    "an arrival of some": ("if (t < 32) sync();", "that never come"),
    "a block that stays away": ("if (b == 0) sync();", "that never come"),
    "a barrier of the block that some skip": ("if (t != 5) block_sync();", "that never come"),
    "a barrier of warps that some skip": ("if (t < 32) group_sync(3, 64);", "that never come"),
    "lanes that part": ("if (t % 2) warp_sync(); else shuffle_xor(1, 1);", "its warp to another"),
    "a lane that stays away": ("if (t != 40) warp_sync();", "that never come"),
    "a word that nobody wrote": ("block_sync(); keep(shared[200]);", "nothing was written"),
    "another block's memory": ("sync(); if (b == 0) shared[256] = 1; sync();", "not sent"),
    "another block's number": ("sync(); if (b == 0) keep(shared[256]); sync();", "read by"),
    "a copy read too early": ("copy_beside(own, source); keep(*own); copies_done();", "asked for"),
    "a copy that others read too early": ("copy_beside(own, source); block_sync(); keep(shared[t ^ 1]);", "asked for"),
    "two copies to a place": ("copy_beside(own, source); copy_beside(own, source + 1); copies_done();", "asked for"),
    "a row that is not aligned": ("keep(row(shared + 1));", "not aligned"),
}
WRONG = {name: (code, "no barrier is between") for name, code in UNORDERED.items()} | MISUSED
TURNS = "keep(count++); sync();"
STOPS = "int before = count++; cluster_arrive(); keep(count++ - before); cluster_wait();"
KERNELS = [TURNS, STOPS, *RIGHT.values(), *(code for code, _ in WRONG.values())]
ORDERS = [0, 1, *range(2, 12)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """`fault, results` of a kernel, by its code and the order in which its threads go on."""
    source = tmp_path_factory.mktemp("small") / "small.cpp"
    kernels = ",\n".join(f"[](float* shared, float* own, int t, int b) {{ {code} }}" for code in KERNELS)
    table = f"static void (*kernels[])(float*, float*, int, int) = {{\n{kernels}}};"
    source.write_text(HEAD + table + TAIL)
    library = emulated.compiled(source, "small")

    def run(code, order):
        results = np.full((2, 96), -1, np.float32)
        library.run_small(KERNELS.index(code), order, ctypes.c_void_p(results.ctypes.data))
        return library.fault().decode(), results

    return run


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_give_the_same_in_every_order(small, name):
    found = [small(RIGHT[name], order) for order in ORDERS]
    assert {fault for fault, _ in found} == {""}
    assert len({results.tobytes() for _, results in found}) == 1
    assert (found[0][1] >= 0).any()


@pytest.mark.parametrize("name", WRONG)
def test_every_fault_is_found_in_every_order(small, name):
    code, expected = WRONG[name]
    for order in ORDERS:
        fault, _ = small(code, order)
        assert expected in fault, (order, fault)


def test_a_fault_is_told_once(small):
    assert small(WRONG["no wait"][0], 0)[0] != ""
    assert small(RIGHT["a copy"], 0)[0] == ""


def test_who_goes_on_first_depends_on_the_order(small):
    """Seen in memory that is not watched."""
    turns = [small(TURNS, order)[1] for order in ORDERS]
    assert len({results.tobytes() for results in turns}) == len(ORDERS)
    assert list(turns[0].ravel()) == list(range(192))
    assert list(turns[1].ravel()) == list(range(191, -1, -1))


def test_others_run_between_the_halves_of_a_barrier(small):
    for order in ORDERS:
        assert (small(STOPS, order)[1] > 1).all()
