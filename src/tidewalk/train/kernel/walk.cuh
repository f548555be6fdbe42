// One pass over the maps of a range for one member: positions along time, and the sums of what its fills did. Rows come
// in chunks. Of a chunk every thread composes a stretch of maps, the stretches are chained, then the thread goes
// through its own again; the next chunk is on its way meanwhile.
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

constexpr int WALK_THREADS = 1024, WALK_EACH = 4, WALK_CHUNK = WALK_EACH * WALK_THREADS;

// Rows of a chunk on chip: the stretches of two threads lie a word apart, so that neither rows that follow one another
// nor those that threads take at once meet a bank of shared memory twice.
constexpr int WALK_ROOM = WALK_CHUNK + WALK_THREADS;
DEVICE int walk_place(int row) { return row + row / WALK_EACH; }

// Offsets in shared memory, in words of four bytes. At the end the sums of all threads take the place of the rows.
enum WalkPlace {
  WALK_SCAN = 0,  // two sets of a map for each thread
  WALK_WORDS = WALK_SCAN + 2 * WALK_THREADS,
  WALK_MOVES = WALK_WORDS + WALK_ROOM,
  WALK_SPREADS = WALK_MOVES + WALK_ROOM,
  WALK_TABLES = WALK_SPREADS + WALK_ROOM,
  WALK_SHARED = WALK_TABLES + 29 * 7 + 1,
  WALK_COUNTS = WALK_WORDS,
  WALK_REALS = WALK_COUNTS + 3 * WALK_THREADS,
};

DEVICE int composed(int first, int then, int positions) {
  int word = 0;
  for (int position = 0; position < positions; ++position)
    word |= field(then, field(first, position)) << (4 * position);
  return word;
}

// Chains the maps of all threads; on return the composed map up to and with a thread's own lies at its place in what is
// returned.
DEVICE const int* chained(int* scan, int own, int positions) {
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
  return scan + set * WALK_THREADS;
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

// Rows of a chunk on their way to the chip; those of a thread are WALK_THREADS apart, so that a warp reads them at
// once.
struct Ahead {
  int words[WALK_EACH], moves[WALK_EACH];
  float spreads[WALK_EACH];
};

constexpr int ROLL_BIT = 1 << 30;  // of a map on chip: positions are rolled over the bar

// Asks for the rows from `base` on, counted from bar `first`; adds their squares to `total`. A row beyond the last of
// `rows` moves nothing.
DEVICE void fetch_chunk(Ahead& ahead, const WalkArgs& args, const WalkSizes& sizes, int first, int base, int rows,
                        float& total) {
  long long start = static_cast<long long>(block_id()) * sizes.room;
  float squares[WALK_EACH];
  UNROLL
  for (int i = 0; i < WALK_EACH; ++i) {
    int row = base + i * WALK_THREADS + thread_id(), bar = first + row;
    bool is_row = row < rows;
    ahead.words[i] = is_row ? args.words[start + row] | (args.flags[bar] & ROLL ? ROLL_BIT : 0)
                            : identity_map(sizes.positions);
    ahead.moves[i] = is_row ? args.move_ticks[bar] : 0;
    ahead.spreads[i] = is_row && sizes.has_spread ? args.half_spread[bar + 1] : 0.0f;
    squares[i] = is_row ? args.squares[start + row] : 0.0f;
  }
  UNROLL
  for (int i = 0; i < WALK_EACH; ++i) total += squares[i];
}

DEVICE void put_chunk(int* shared, const Ahead& ahead) {
  UNROLL
  for (int i = 0; i < WALK_EACH; ++i) {
    int place = walk_place(i * WALK_THREADS + thread_id());
    shared[WALK_WORDS + place] = ahead.words[i];
    shared[WALK_MOVES + place] = ahead.moves[i];
    reinterpret_cast<float*>(shared)[WALK_SPREADS + place] = ahead.spreads[i];
  }
}

// Goes through the thread's own rows of a chunk, of which `count` are rows of the range, from `position` on; `path` is
// where their positions belong, or null.
DEVICE void follow_stretch(const int* shared, const WalkSizes& sizes, int count, int position, signed char* path,
                           Walked& walked) {
  int all = sizes.positions, own = walk_place(WALK_EACH * thread_id());
  const int* sides = shared + WALK_TABLES;
  const int *rolled = sides + 2 * all * all, *lots = rolled + 2 * all * all;
  for (int i = 0; i < WALK_EACH && i < count; ++i) {
    int word = shared[WALK_WORDS + own + i], after = field(word, position);
    int entry = ((word & ROLL_BIT) != 0) * all * all + position * all + after, traded = sides[entry];
    walked.counts[0] += lots[after] * shared[WALK_MOVES + own + i];
    walked.counts[1] += traded;
    walked.counts[2] += rolled[entry];
    walked.reals[0] += static_cast<float>(traded) * reinterpret_cast<const float*>(shared)[WALK_SPREADS + own + i];
    if (path != nullptr) path[i] = static_cast<signed char>(after);
    position = after;
  }
}

DEVICE void walk_member(const WalkArgs& args, int* shared) {
  const WalkSizes sizes = *args.sizes;
  int thread = thread_id(), count = sizes.positions, bounds = 2 * FLAG_WORDS * count;
  int window = args.window[block_id()], first = args.ranges[2 * window], stop = args.ranges[2 * window + 1];
  int rows = stop - first < sizes.bars ? stop - first : sizes.bars, position = sizes.flat;
  signed char* path = sizes.has_path ? args.path + static_cast<long long>(block_id()) * sizes.bars : nullptr;
  for (int i = thread; i < (4 * count + 1) * count; i += WALK_THREADS)
    shared[WALK_TABLES + i] = args.tables[bounds + i];
  Walked walked{};
  Ahead ahead;
  fetch_chunk(ahead, args, sizes, first, 0, rows, walked.reals[1]);
  ROLLED
  for (int base = 0; base < rows; base += WALK_CHUNK) {
    block_sync();
    put_chunk(shared, ahead);
    block_sync();
    fetch_chunk(ahead, args, sizes, first, base + WALK_CHUNK, rows, walked.reals[1]);
    int own = identity_map(count), begin = base + WALK_EACH * thread;
    UNROLL
    for (int i = 0; i < WALK_EACH; ++i)
      own = composed(own, shared[WALK_WORDS + walk_place(WALK_EACH * thread) + i], count);
    const int* maps = chained(shared + WALK_SCAN, own, count);
    follow_stretch(shared, sizes, rows - begin, thread == 0 ? position : field(maps[thread - 1], position),
                   path == nullptr ? nullptr : path + begin, walked);
    position = field(maps[WALK_THREADS - 1], position);
  }
  for (int row = (rows < 0 ? 0 : rows) + thread; path != nullptr && row < sizes.bars; row += WALK_THREADS)
    path[row] = sizes.flat;
  block_sync();
  Walked all = sum_all(shared, walked);
  if (thread != 0) return;
  for (int i = 0; i < 3; ++i) args.counts[3 * block_id() + i] = all.counts[i];
  for (int i = 0; i < 2; ++i) args.reals[2 * block_id() + i] = all.reals[i];
}

}  // namespace tidewalk
