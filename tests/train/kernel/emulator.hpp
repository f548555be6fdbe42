// The primitives of `block.cuh` on the host: the threads of a block as fibers that run in turn.
//
// A fiber runs until it must wait, or comes to a barrier of the cluster. Who goes on then is up to `Launch::order`. Of
// shared memory every access is watched (`races.hpp`): two that no barrier puts in order are a fault in any order. In
// device memory that is not watched, results that differ from one order to another betray a barrier that is missing.
// A fault ends the run, and the caller is told by the function `fault`.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define DEVICE inline
#define UNROLL
#define ROLLED

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};

namespace races {

void read(const void* place, size_t bytes);

}  // namespace races

namespace emulator {

constexpr int LANES = 32;

// What the lanes of a warp show one another; two sets, so that one may be written while the other is read.
struct Exchange {
  unsigned left[2][LANES][4], right[2][LANES][2];
  const unsigned* row[2][LANES];
  float value[2][LANES];
};

// Blocks that run at the same time: `blocks` of them, with `shared_size` floats each of `shared`. They are number `id`
// along the first axis of the grid, and number `part` of `parts` along the second. `order` is 0 where what comes first
// goes as far ahead as it can, 1 where what comes last does, and else a seed: then all take turns at random.
struct Launch {
  int id, threads, order;
  float* shared;
  size_t shared_size;
  int blocks = 1, part = 0, parts = 1;
  const void* device = nullptr;  // memory that is watched too
  size_t device_bytes = 0;
};

// The thread that runs.
struct Here {
  int thread, rank;  // in its block, and of its block in the cluster
  float* shared;     // of its block
  Exchange* warp;
  int set;           // of those of the exchange, the one in use
  Launch launch;
};
extern Here here;

// Runs `body` once for every thread of the blocks of a launch, unless something was wrong before.
void run(const Launch& launch, void (*body)(void*), void* with);

template <class Body>
void run(const Launch& launch, Body body) {
  run(launch, [](void* with) { (*static_cast<Body*>(with))(); }, &body);
}

// What the lanes of a warp meet for.
enum Meeting { BARRIER, SHUFFLE, LOAD, PRODUCT };

// Waits for all lanes of the warp; returns the set that this meeting's values were written to.
int meet(Meeting what);

// Writes at the place of the same name in another block's shared memory.
void send(void* place, int rank, const void* value, size_t bytes);

// Reports what is wrong with the thread that runs; it does not return.
void fail(const char* what);

}  // namespace emulator

namespace tidewalk {

inline int thread_id() { return emulator::here.thread; }
inline int block_id() { return emulator::here.launch.id; }
inline int part_id() { return emulator::here.launch.part; }
inline int part_count() { return emulator::here.launch.parts; }
inline int cluster_rank() { return emulator::here.rank; }
inline void warp_sync() { emulator::meet(emulator::BARRIER); }
void block_sync();
void group_sync(int number, int threads);
void cluster_arrive();
void cluster_wait();

// Writes at the place of the same name in the shared memory of the block of rank `rank`.
template <class T>
void send(T* place, int rank, T value) {
  emulator::send(place, rank, &value, sizeof value);
}
inline void soon(const void*) {}

// Held back until they must be there, as late as a card may be.
void copy_beside(float* to, const float* from);
void copies_done();
inline void copy_beside(int* to, const int* from) {
  copy_beside(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
}
inline void copy_beside(int2* to, const int2* from) {
  copy_beside(&to->x, &from->x);
  copy_beside(&to->y, &from->y);
}
inline void copy_beside(float4* to, const float4* from) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16)
    emulator::fail("copies four numbers that are not aligned");
  races::read(from, sizeof *from);
  for (int i = 0; i < 4; ++i) copy_beside(&to->x + i, &from->x + i);
}

void copies_end_group();
void copies_done_before(int later);
template <int LATER>
void copies_done_before() {
  copies_done_before(LATER);
}
inline unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float float_of(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float root(float value) { return std::sqrt(value); }
inline float quotient(float above, float below) { return above / below; }

inline float shuffle_xor(float value, int mask) {
  int lane = thread_id() % emulator::LANES;
  emulator::here.warp->value[emulator::here.set][lane] = value;
  return emulator::here.warp->value[emulator::meet(emulator::SHUFFLE)][lane ^ mask];
}

inline unsigned halves_of(float first, float second) {
  _Float16 pair[2] = {static_cast<_Float16>(first), static_cast<_Float16>(second)};
  unsigned out;
  std::memcpy(&out, pair, 4);
  return out;
}

inline float2 floats_of(unsigned pair) {
  _Float16 out[2];
  std::memcpy(out, &pair, 4);
  return {static_cast<float>(out[0]), static_cast<float>(out[1])};
}

// A row is read by the lane that says where it is.
__attribute__((no_sanitize("thread"))) inline void load(unsigned (&out)[4], const unsigned* row, bool is_transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16) emulator::fail("loads a row that is not aligned");
  races::read(row, 16);
  emulator::Exchange& warp = *emulator::here.warp;
  int lane = thread_id() % emulator::LANES, set = emulator::here.set;
  warp.row[set][lane] = row;
  set = emulator::meet(emulator::LOAD);
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned short pair[2];
    for (int i = 0; i < 2; ++i) {
      int line = lane / 4, column = 2 * (lane % 4) + i;
      if (is_transposed) std::swap(line, column);
      std::memcpy(&pair[i], reinterpret_cast<const char*>(warp.row[set][8 * matrix + line]) + 2 * column, 2);
    }
    std::memcpy(&out[matrix], pair, 4);
  }
  emulator::meet(emulator::LOAD);  // no lane writes on before all have read
}
inline void load_matrices(unsigned (&out)[4], const unsigned* row) { load(out, row, false); }
inline void load_transposed(unsigned (&out)[4], const unsigned* row) { load(out, row, true); }

inline void multiply_halves(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  emulator::Exchange& warp = *emulator::here.warp;
  int lane = thread_id() % emulator::LANES, set = emulator::here.set;
  std::memcpy(warp.left[set][lane], a, sizeof a);
  std::memcpy(warp.right[set][lane], b, sizeof b);
  set = emulator::meet(emulator::PRODUCT);
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; k += 2) {
      float2 left = floats_of(warp.left[set][row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)]);
      float2 right = floats_of(warp.right[set][column * 4 + k % 8 / 2][k / 8]);
      sum += static_cast<double>(left.x) * right.x + static_cast<double>(left.y) * right.y;
    }
    c[i] = static_cast<float>(sum);
  }
}

}  // namespace tidewalk
