// One pass over the maps of a range for one member: positions along time, and the sums of what its fills did. A thread
// composes a stretch of maps, the stretches are chained, then every thread goes through its own again.
#pragma once

#include "grid.cuh"
#include "layout.cuh"

namespace tidewalk {

// What is the same for all members, in the order of `_walk` in greedy.py.
struct WalkSizes {
  int bars, room, positions, flat, has_spread, has_path;
};

struct WalkArgs {
  const WalkSizes* sizes;
  const int* window;         // [M]: row of the next
  const int* ranges;         // [W, 2]: decision bars [first, stop)
  const int* move_ticks;     // [T]
  const int* flags;          // [T]
  const float* half_spread;  // [T], or one number that is not read
  const int* tables;         // bounds [64, P, 2], sides [2, P, P], rolled [2, P, P], lots [P]
  const int* words;          // [M, room]: map of every bar
  const float* squares;      // [M, room]
  int* counts;               // [M, 3]: gross ticks, sides, lots rolled
  float* reals;              // [M, 2]: half spreads paid, sum of the squares
  signed char* path;         // [M, bars]: position after each decision, flat beyond the range; or not written
};

constexpr int WALK_THREADS = 1024, WALK_AT_ONCE = 8;

// Offsets in shared memory, in words of four bytes.
enum WalkPlace {
  WALK_SCAN = 0,  // two sets of a map for each thread
  WALK_COUNTS = WALK_SCAN + 2 * WALK_THREADS,
  WALK_REALS = WALK_COUNTS + 3 * WALK_THREADS,
  WALK_TABLES = WALK_REALS + 2 * WALK_THREADS,
  WALK_SHARED = WALK_TABLES + 29 * 7 + 1,
};

DEVICE int composed(int first, int then, int positions) {
  int word = 0;
  for (int position = 0; position < positions; ++position)
    word |= field(then, field(first, position)) << (4 * position);
  return word;
}

// The composed map of all stretches before this thread's.
DEVICE int map_before(int* scan, int own, int positions) {
  int thread = thread_id(), set = 0;
  scan[thread] = own;
  block_sync();
  for (int span = 1; span < WALK_THREADS; span *= 2, set = 1 - set) {
    const int* from = scan + set * WALK_THREADS;
    int word = from[thread];
    if (thread >= span) word = composed(from[thread - span], word, positions);
    scan[(1 - set) * WALK_THREADS + thread] = word;
    block_sync();
  }
  return thread == 0 ? identity_map(positions) : scan[set * WALK_THREADS + thread - 1];
}

struct Walked {
  int counts[3];
  float reals[2];
};

// Sums over all threads, in a fixed order; meant for thread 0.
DEVICE Walked sum_all(int* shared, const Walked& own) {
  int thread = thread_id(), *counts = shared + WALK_COUNTS;
  float* reals = reinterpret_cast<float*>(shared + WALK_REALS);
  for (int i = 0; i < 3; ++i) counts[i * WALK_THREADS + thread] = own.counts[i];
  for (int i = 0; i < 2; ++i) reals[i * WALK_THREADS + thread] = own.reals[i];
  block_sync();
  for (int half = WALK_THREADS / 2; half > 0; half /= 2) {
    if (thread < half) {
      for (int i = 0; i < 3; ++i) counts[i * WALK_THREADS + thread] += counts[i * WALK_THREADS + thread + half];
      for (int i = 0; i < 2; ++i) reals[i * WALK_THREADS + thread] += reals[i * WALK_THREADS + thread + half];
    }
    block_sync();
  }
  return {{counts[0], counts[WALK_THREADS], counts[2 * WALK_THREADS]}, {reals[0], reals[WALK_THREADS]}};
}

// Composed map of the rows [begin, end), and their squares added up.
DEVICE int compose_stretch(const int* words, const float* squares, int begin, int end, int positions, float& total) {
  int word = identity_map(positions);
  ROLLED
  for (int row = begin; row < end; row += WALK_AT_ONCE) {
    int maps[WALK_AT_ONCE];
    float parts[WALK_AT_ONCE];
    UNROLL
    for (int i = 0; i < WALK_AT_ONCE; ++i) {
      int place = row + i < end ? row + i : end - 1;
      maps[i] = words[place];
      parts[i] = squares[place];
    }
    UNROLL
    for (int i = 0; i < WALK_AT_ONCE; ++i) {
      if (row + i >= end) continue;
      word = composed(word, maps[i], positions);
      total += parts[i];
    }
  }
  return word;
}

// Goes through the rows [begin, end), counted from bar `first`, from `position` on. `sides` and what follows it are tables on chip.
DEVICE void follow_stretch(const WalkArgs& args, const WalkSizes& sizes, const int* sides, int first, int begin,
                           int end, int position, Walked& walked) {
  int count = sizes.positions;
  const int *rolled = sides + 2 * count * count, *lots = rolled + 2 * count * count;
  const int* words = args.words + static_cast<long long>(block_id()) * sizes.room;
  signed char* path = args.path + static_cast<long long>(block_id()) * sizes.bars;
  ROLLED
  for (int row = begin; row < end; row += WALK_AT_ONCE) {
    int maps[WALK_AT_ONCE], flags[WALK_AT_ONCE], moves[WALK_AT_ONCE];
    float spreads[WALK_AT_ONCE];
    UNROLL
    for (int i = 0; i < WALK_AT_ONCE; ++i) {
      int place = row + i < end ? row + i : end - 1;
      maps[i] = words[place];
      flags[i] = args.flags[first + place];
      moves[i] = args.move_ticks[first + place];
      spreads[i] = sizes.has_spread ? args.half_spread[first + place + 1] : 0.0f;
    }
    UNROLL
    for (int i = 0; i < WALK_AT_ONCE; ++i) {
      if (row + i >= end) continue;
      int after = field(maps[i], position), has_roll = (flags[i] & ROLL) != 0;
      int entry = (has_roll * count + position) * count + after, traded = sides[entry];
      walked.counts[0] += lots[after] * moves[i];
      walked.counts[1] += traded;
      walked.counts[2] += rolled[entry];
      walked.reals[0] += static_cast<float>(traded) * spreads[i];
      if (sizes.has_path) path[row + i] = static_cast<signed char>(after);
      position = after;
    }
  }
}

DEVICE void walk_member(const WalkArgs& args, int* shared) {
  const WalkSizes sizes = *args.sizes;
  int thread = thread_id(), count = sizes.positions, bounds = 2 * FLAG_WORDS * count;
  int window = args.window[block_id()], first = args.ranges[2 * window], stop = args.ranges[2 * window + 1];
  int rows = stop - first < sizes.bars ? stop - first : sizes.bars;
  rows = rows < 0 ? 0 : rows;
  for (int i = thread; i < (4 * count + 1) * count; i += WALK_THREADS)
    shared[WALK_TABLES + i] = args.tables[bounds + i];
  int each = (rows + WALK_THREADS * WALK_AT_ONCE - 1) / (WALK_THREADS * WALK_AT_ONCE) * WALK_AT_ONCE;
  int begin = thread * each < rows ? thread * each : rows, end = begin + each < rows ? begin + each : rows;
  long long start = static_cast<long long>(block_id()) * sizes.room;
  Walked walked{};
  int own = compose_stretch(args.words + start, args.squares + start, begin, end, count, walked.reals[1]);
  int position = field(map_before(shared + WALK_SCAN, own, count), sizes.flat);
  follow_stretch(args, sizes, shared + WALK_TABLES, first, begin, end, position, walked);
  if (sizes.has_path) {
    signed char* path = args.path + static_cast<long long>(block_id()) * sizes.bars;
    for (int row = rows + thread; row < sizes.bars; row += WALK_THREADS) path[row] = sizes.flat;
  }
  Walked all = sum_all(shared, walked);
  if (thread != 0) return;
  for (int i = 0; i < 3; ++i) args.counts[3 * block_id() + i] = all.counts[i];
  for (int i = 0; i < 2; ++i) args.reals[2 * block_id() + i] = all.reals[i];
}

}  // namespace tidewalk
