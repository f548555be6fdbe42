// The primitives of `block.cuh` on the host: the threads of a block as fibers that run in turn.
//
// A fiber runs until it meets a barrier. Warps take turns at barriers of their block only, and the blocks of a cluster
// at its barriers only, in rising or in falling order: results that differ between both orders betray a barrier that is
// missing.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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

#ifdef __x86_64__

// Saves what a function must keep on the stack it leaves, and goes on where the other stack was left.
extern "C" void switch_stack(void** left, void* next);
asm(R"(
.text
switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulator {

struct Context {
  void* top = nullptr;
  void prepare(char* stack, size_t size, void (*enter)()) {
    void** place = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t{15});
    *--place = nullptr;                           // where `enter` would return to, which it never does
    *--place = reinterpret_cast<void*>(enter);
    for (int i = 0; i < 6; ++i) *--place = nullptr;
    top = place;
  }
  void go_to(Context& other) { switch_stack(&top, other.top); }
};

}  // namespace emulator

#else

#include <ucontext.h>

namespace emulator {

struct Context {
  ucontext_t context;
  void prepare(char* stack, size_t size, void (*enter)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    makecontext(&context, enter, 0);
  }
  void go_to(Context& other) { swapcontext(&context, &other.context); }
};

}  // namespace emulator

#endif

namespace emulator {

constexpr int LANES = 32;

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  bool is_done = false, is_at_block_barrier = false, is_at_cluster_barrier = false;
  int barrier = -1, needed = 0;  // of some warps, at which it waits, and for how many threads
  std::vector<std::pair<float*, float>> copies;
};

// What the lanes of a warp show one another; two sets, so that one may be written while the other is read.
struct Exchange {
  unsigned left[2][LANES][4], right[2][LANES][2];
  const unsigned* row[2][LANES];
  float value[2][LANES];
  int arrived = 0;
  long turn = 0;
};

struct Block {
  int id = 0, part = 0, parts = 1, current = 0;
  float* shared = nullptr;  // in a cluster
  bool is_falling = false;
  std::vector<Fiber> fibers;
  std::vector<Exchange> warps;
  Context scheduler;
  std::function<void()> body;
};

inline Block* block = nullptr;                  // the one that runs
inline std::vector<Block>* cluster = nullptr;  // the one that it belongs to

inline void yield() { block->fibers[block->current].context.go_to(block->scheduler); }

inline Exchange& exchange() { return block->warps[block->current / LANES]; }

// Waits for all lanes of the warp; returns the set that this meeting's values were written to.
inline int meet() {
  Exchange& mine = exchange();
  long turn = mine.turn;
  if (++mine.arrived == LANES) {
    mine.arrived = 0;
    ++mine.turn;
  }
  while (mine.turn == turn) yield();
  return turn % 2;
}

inline int set_in_use() { return exchange().turn % 2; }

inline void enter() {
  block->body();
  block->fibers[block->current].is_done = true;
  yield();
}

inline void run_warp(int warp) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int lane = 0; lane < LANES; ++lane) {
      Fiber& fiber = block->fibers[warp * LANES + lane];
      if (fiber.is_done || fiber.is_at_block_barrier || fiber.is_at_cluster_barrier || fiber.barrier >= 0) continue;
      block->current = warp * LANES + lane;
      block->scheduler.go_to(fiber.context);
      moved = true;
    }
  }
}

// Lets those go on whose barrier all have come to; false where there are none.
inline bool release() {
  int at_block = 0, at_group[15] = {}, needed[15] = {};
  bool moved = false;
  for (Fiber& fiber : block->fibers) {
    at_block += fiber.is_at_block_barrier;
    if (fiber.barrier >= 0) needed[fiber.barrier] = ++at_group[fiber.barrier] == fiber.needed ? fiber.needed : 0;
  }
  for (Fiber& fiber : block->fibers) {
    bool is_free = fiber.barrier >= 0 && needed[fiber.barrier] > 0;
    if (is_free) fiber.barrier = -1;
    moved |= is_free;
  }
  if (moved || at_block == 0) return moved;
  if (at_block != static_cast<int>(block->fibers.size())) std::abort();  // some threads ended, others wait for them
  for (Fiber& fiber : block->fibers) fiber.is_at_block_barrier = false;
  return true;
}

inline void start(Block& here, int id, int part, int parts, int threads, bool is_falling,
                  const std::function<void()>& body) {
  constexpr size_t STACK = 256 * 1024;
  here.id = id;
  here.part = part;
  here.parts = parts;
  here.is_falling = is_falling;
  here.body = body;
  here.fibers.resize(threads);
  here.warps.resize(threads / LANES);
  for (Fiber& fiber : here.fibers) {
    fiber.stack = std::make_unique<char[]>(STACK);
    fiber.context.prepare(fiber.stack.get(), STACK, enter);
  }
}

// Runs a block until all of its threads have ended, or have come to a barrier of the cluster; whether it is the latter.
inline bool run(Block& here) {
  int warps = static_cast<int>(here.warps.size()), ended = 0;
  block = &here;
  for (Fiber& fiber : here.fibers) fiber.is_at_cluster_barrier = false;
  do {
    for (int number = 0; number < warps; ++number) run_warp(here.is_falling ? warps - 1 - number : number);
  } while (release());
  block = nullptr;
  for (Fiber& fiber : here.fibers) {
    if (!fiber.is_done && !fiber.is_at_cluster_barrier) std::abort();  // it waits for threads that never come
    ended += fiber.is_done;
  }
  if (ended % here.fibers.size()) std::abort();  // some threads ended, others wait for them
  return ended == 0;
}

// Runs `body` once for every thread of block `id`, which is number `part` of `parts` along the second axis of the grid.
inline void run_block(int id, int threads, bool is_falling, std::function<void()> body, int part = 0, int parts = 1) {
  Block here;
  start(here, id, part, parts, threads, is_falling, body);
  if (run(here)) std::abort();  // it is alone
}

// Runs `body` once for every thread of the `blocks` blocks of cluster `id`, which take turns at its barriers. They have
// `shared_size` floats each of `shared`.
inline void run_cluster(int id, int blocks, int threads, bool is_falling, float* shared, size_t shared_size,
                        const std::function<void()>& body) {
  std::vector<Block> here(blocks);
  cluster = &here;
  for (int rank = 0; rank < blocks; ++rank) {
    start(here[rank], id, rank, blocks, threads, is_falling, body);
    here[rank].shared = shared + rank * shared_size;
  }
  int waiting = blocks;
  while (waiting == blocks) {
    waiting = 0;
    for (int number = 0; number < blocks; ++number) waiting += run(here[is_falling ? blocks - 1 - number : number]);
  }
  if (waiting != 0) std::abort();  // some blocks ended, others wait for them
  cluster = nullptr;
}

}  // namespace emulator

namespace tidewalk {

inline int thread_id() { return emulator::block->current; }
inline int block_id() { return emulator::block->id; }
inline int part_id() { return emulator::block->part; }
inline int part_count() { return emulator::block->parts; }
inline void block_sync() {
  emulator::block->fibers[emulator::block->current].is_at_block_barrier = true;
  emulator::yield();
}
inline void group_sync(int number, int threads) {
  emulator::Fiber& here = emulator::block->fibers[emulator::block->current];
  here.barrier = number;
  here.needed = threads;
  emulator::yield();
}
inline void warp_sync() { emulator::meet(); }
inline int cluster_rank() { return emulator::block->part; }
inline void cluster_arrive() {}
inline void cluster_wait() {
  emulator::block->fibers[emulator::block->current].is_at_cluster_barrier = true;
  emulator::yield();
}

// Writes at the place of the same name in the shared memory of the block of rank `rank`.
template <class T>
void send(T* place, int rank, T value) {
  ptrdiff_t offset = reinterpret_cast<char*>(place) - reinterpret_cast<char*>(emulator::block->shared);
  std::memcpy(reinterpret_cast<char*>((*emulator::cluster)[rank].shared) + offset, &value, sizeof value);
}
inline void soon(const void*) {}

// Held back until they must be there, as late as a card may be; what is read too early is found out.
inline void copy_beside(float* to, const float* from) {
  emulator::block->fibers[emulator::block->current].copies.emplace_back(to, *from);
}
inline void copy_beside(int* to, const int* from) {
  copy_beside(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
}
inline void copy_beside(int2* to, const int2* from) {
  copy_beside(&to->x, &from->x);
  copy_beside(&to->y, &from->y);
}
inline void copies_done() {
  auto& copies = emulator::block->fibers[emulator::block->current].copies;
  for (auto& [to, value] : copies) *to = value;
  copies.clear();
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
  emulator::exchange().value[emulator::set_in_use()][lane] = value;
  return emulator::exchange().value[emulator::meet()][lane ^ mask];
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

inline void load(unsigned (&out)[4], const unsigned* row, bool is_transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16) std::abort();  // a card demands it
  emulator::Exchange& warp = emulator::exchange();
  int lane = thread_id() % emulator::LANES, set = emulator::set_in_use();
  warp.row[set][lane] = row;
  set = emulator::meet();
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned short pair[2];
    for (int i = 0; i < 2; ++i) {
      int line = lane / 4, column = 2 * (lane % 4) + i;
      if (is_transposed) std::swap(line, column);
      std::memcpy(&pair[i], reinterpret_cast<const char*>(warp.row[set][8 * matrix + line]) + 2 * column, 2);
    }
    std::memcpy(&out[matrix], pair, 4);
  }
  emulator::meet();  // no lane writes on before all have read
}
inline void load_matrices(unsigned (&out)[4], const unsigned* row) { load(out, row, false); }
inline void load_transposed(unsigned (&out)[4], const unsigned* row) { load(out, row, true); }

inline void multiply_halves(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  emulator::Exchange& warp = emulator::exchange();
  int lane = thread_id() % emulator::LANES, set = emulator::set_in_use();
  std::memcpy(warp.left[set][lane], a, sizeof a);
  std::memcpy(warp.right[set][lane], b, sizeof b);
  set = emulator::meet();
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
