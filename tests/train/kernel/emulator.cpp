// Fibers, and who of them goes on. Compiled once for all kernels, and not watched.
#include "emulator.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "fibers.hpp"
#include "races.hpp"

namespace emulator {

Here here;

namespace {

// What a thread waits for: the lanes of its warp, its block, some warps of it, all blocks of the cluster, or no more.
enum Wait { NOTHING, WARP, BLOCK, GROUP, CLUSTER, ENDED };

struct Copy {
  float* to;
  float value;
  int group;
};

struct Fiber {
  Stack stack;
  Wait wait = NOTHING;
  int barrier = 0, needed = 0;  // of a GROUP, and for how many threads
  bool has_arrived = false;     // at a barrier of the cluster, for which it has yet to wait
  long phase = 0;
  std::vector<Copy> copies;
  int groups = 0;  // of copies, that have been ended
};

struct Warp {
  Exchange exchange;
  Meeting what = BARRIER;
  int arrived = 0, set = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
};

struct Cluster {
  void (*body)(void*);
  void* with;
  std::vector<Block> blocks;
  int arrived = 0;
  long phase = 0;  // barriers of the cluster that all have come to
  Context scheduler;
  unsigned long long random;
} cluster;

Block& block() { return cluster.blocks[here.rank]; }
Fiber& fiber() { return block().fibers[here.thread]; }
bool is_random() { return here.launch.order > 1; }

// A number below `count`, by the generator of Knuth's MMIX.
int drawn(int count) {
  cluster.random = cluster.random * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<int>((cluster.random >> 33) % count);
}

// The numbers below `count` in the order of their turns.
std::vector<int> turns(int count) {
  std::vector<int> numbers(count);
  for (int i = 0; i < count; ++i) numbers[i] = here.launch.order == 1 ? count - 1 - i : i;
  for (int i = count - 1; i > 0 && is_random(); --i) std::swap(numbers[i], numbers[drawn(i + 1)]);
  return numbers;
}

void yield() { fiber().stack.context.go_to(cluster.scheduler); }

void wait_for(Wait what) {
  fiber().wait = what;
  yield();
}

// These threads of the block go on; after a barrier they know what each of them did.
void pass(std::vector<int> threads, bool is_barrier) {
  for (int& thread : threads) {
    block().fibers[thread].wait = NOTHING;
    thread += here.rank * here.launch.threads;
  }
  if (is_barrier) races::meet(threads);
}

void enter() {
  cluster.body(cluster.with);
  if (fiber().has_arrived) fail("ends between the halves of a barrier of the cluster");
  wait_for(ENDED);
}

// Lets the lanes of a warp go on, each to where it stops next; at random once each, else until all wait.
bool run_warp(int number) {
  Warp& warp = block().warps[number];
  bool has_moved = false, moves = true;
  const std::vector<int> lanes = turns(LANES);
  while (moves && !races::has_fault()) {
    moves = false;
    for (int lane : lanes) {
      here.thread = number * LANES + lane;
      if (fiber().wait != NOTHING || races::has_fault()) continue;
      here.warp = &warp.exchange;
      here.set = warp.set;
      races::current = here.rank * here.launch.threads + here.thread;
      cluster.scheduler.go_to(fiber().stack.context);
      races::current = -1;
      moves = has_moved = true;
    }
    moves &= !is_random();
  }
  return has_moved;
}

// Lets those of the block go on whose barrier all have come to; false where there are none.
bool release() {
  constexpr int GROUPS = 15;
  std::vector<int> waiting[GROUPS + 1];  // the last of them are those at the barrier of the block
  int needed[GROUPS + 1] = {};
  for (int thread = 0; thread < here.launch.threads; ++thread) {
    const Fiber& own = block().fibers[thread];
    if (own.wait != GROUP && own.wait != BLOCK) continue;
    int number = own.wait == BLOCK ? GROUPS : own.barrier;
    needed[number] = own.wait == BLOCK ? here.launch.threads : own.needed;
    waiting[number].push_back(thread);
  }
  bool moves = false;
  for (int number = 0; number <= GROUPS; ++number) {
    if (waiting[number].empty() || static_cast<int>(waiting[number].size()) != needed[number]) continue;
    pass(waiting[number], true);
    moves = true;
  }
  return moves;
}

// Lets a block go on, as far as it can or, at random, a little way; false where it waits for others, or has ended.
bool run_block(int rank) {
  bool has_moved = false, moves = true, is_short = is_random() && drawn(2);
  here.rank = rank;
  here.shared = here.launch.shared + rank * here.launch.shared_size;
  while (moves && !races::has_fault()) {
    moves = false;
    for (int warp : turns(static_cast<int>(block().warps.size()))) moves |= run_warp(warp);
    moves |= release();
    has_moved |= moves;
    moves &= !is_short;
  }
  return has_moved;
}

void report_stuck() {
  const char* names[] = {"nothing", "lanes of their warp", "their block", "some warps", "other blocks"};
  int waiting[ENDED + 1] = {};
  for (const Block& own : cluster.blocks)
    for (const Fiber& thread : own.fibers) ++waiting[thread.wait];
  std::string text = "threads wait for others that never come:";
  for (int wait = 0; wait < ENDED; ++wait)
    if (waiting[wait] > 0) text += " " + std::to_string(waiting[wait]) + " for " + names[wait];
  if (waiting[ENDED] < here.launch.threads * here.launch.blocks) races::fail(text);
}

}  // namespace

void fail(const char* what) {
  races::fail("thread " + std::to_string(here.thread) + " of block " + std::to_string(here.rank) + " " + what);
  yield();
}

void send(void* place, int rank, const void* value, size_t bytes) {
  char* there = static_cast<char*>(place) + static_cast<ptrdiff_t>(4 * here.launch.shared_size) * (rank - here.rank);
  races::send(there, bytes);
  std::memcpy(there, value, bytes);
}

int meet(Meeting what) {
  Warp& warp = block().warps[here.thread / LANES];
  int set = warp.set;
  if (warp.arrived == 0) warp.what = what;
  if (warp.what != what) fail("comes to a barrier, a shuffle, a load or a product, and its warp to another of them");
  if (++warp.arrived < LANES) {
    wait_for(WARP);
    return set;
  }
  std::vector<int> lanes(LANES);
  std::iota(lanes.begin(), lanes.end(), here.thread / LANES * LANES);
  warp.arrived = 0;
  here.set = warp.set = 1 - set;
  pass(lanes, what == BARRIER);
  return set;
}

void run(const Launch& launch, void (*body)(void*), void* with) {
  if (races::has_fault()) return;
  here.launch = launch;
  cluster = {body, with, std::vector<Block>(launch.blocks), 0, 0, {}, static_cast<unsigned>(launch.order)};
  for (Block& own : cluster.blocks) {
    own.fibers.resize(launch.threads);
    own.warps.resize(launch.threads / LANES);
    for (Fiber& thread : own.fibers) thread.stack.prepare(enter);
  }
  const races::Memory memory{launch.shared, 4 * launch.shared_size, launch.device, launch.device_bytes};
  races::leave = yield;
  races::begin(memory, launch.blocks, launch.threads);
  bool moves = true;
  while (moves && !races::has_fault()) {
    moves = false;
    for (int rank : turns(launch.blocks)) moves |= run_block(rank);
  }
  report_stuck();
  races::end();
  cluster.blocks.clear();
}

}  // namespace emulator

namespace tidewalk {

using namespace emulator;

void block_sync() { wait_for(BLOCK); }

void group_sync(int number, int threads) {
  fiber().barrier = number;
  fiber().needed = threads;
  wait_for(GROUP);
}

void cluster_arrive() {
  if (fiber().has_arrived) fail("arrives twice at a barrier of the cluster");
  fiber().has_arrived = true;
  fiber().phase = cluster.phase;
  races::arrive();
  if (++cluster.arrived == here.launch.blocks * here.launch.threads) {
    cluster.arrived = 0;
    ++cluster.phase;
    for (Block& own : cluster.blocks)
      for (Fiber& thread : own.fibers)
        if (thread.wait == CLUSTER) thread.wait = NOTHING;
  }
  yield();  // others may be anywhere by the time that it goes on
}

void cluster_wait() {
  if (!fiber().has_arrived) fail("waits for a barrier of the cluster at which it did not arrive");
  if (cluster.phase == fiber().phase) wait_for(CLUSTER);
  fiber().has_arrived = false;
  races::wait();
}

void copy_beside(float* to, const float* from) {
  races::ask(to);
  fiber().copies.push_back({to, *from, fiber().groups});
}

void copies_end_group() { ++fiber().groups; }

// Those of groups before `group` come.
static void come(int group) {
  auto& copies = fiber().copies;
  auto late = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) { return copy.group >= group; });
  std::for_each(copies.begin(), late, [](const Copy& copy) {
    races::come(copy.to);
    *copy.to = copy.value;
  });
  copies.erase(copies.begin(), late);
}

void copies_done() { come(fiber().groups + 1); }
void copies_done_before(int later) { come(fiber().groups - later); }

}  // namespace tidewalk
