// Greedy maps of the bars of a range for one member: the network stays on chip while tiles of ROWS bars pass by. The
// first layer is computed once for each bar; all that follows once for each position that can be held.
#pragma once

#include "grid.cuh"
#include "world.cuh"

namespace tidewalk {

// What is the same for all members, in the order of `_map_sizes` in greedy.py.
struct MapSizes {
  int bars, tiles, features, seen, positions, flags, flat, first_row, hidden1, hidden2, outputs, lowest, highest;
};

// As `Shape`, but D counts features alone: the columns of the positions lie apart.
template <int D_, int H_, int ROWS_, int PRODUCTS_>
struct MapShape : Shape<D_, H_, ROWS_, PRODUCTS_> {
  using Base = Shape<D_, H_, ROWS_, PRODUCTS_>;
  static constexpr int MOST_POSITIONS = Base::OUT - 1;
  static constexpr int STEPS = H_ / 16, OUT_STEPS = STEPS / Base::PARTS, GROUPS = Base::THREADS / ROWS_;
  static constexpr int RAW_ROOM = D_ * (ROWS_ + 1);  // rows of a tile follow one another, however far one looks back
  // Offsets in shared memory, in floats.
  static constexpr int WEIGHTS = 0;  // tiles of the first layer
  static constexpr int SMALL = WEIGHTS + 4 * Base::IN_TILES * Base::THREADS;
  static constexpr int COLUMNS = SMALL + Base::HEAD;  // weights of the first layer for each position
  static constexpr int RAW = COLUMNS + MOST_POSITIONS * H_;
  static constexpr int OBSERVED = RAW + RAW_ROOM;
  static constexpr int HIDDEN1 = OBSERVED + ROWS_ * Base::IN_STRIDE;
  static constexpr int HIDDEN2 = HIDDEN1 + ROWS_ * Base::HIDDEN_STRIDE;
  static constexpr int OUTPUT = HIDDEN2 + ROWS_ * Base::HIDDEN_STRIDE;  // of every position in turn
  static constexpr int OUTPUT_ROWS = Base::PARTS * ROWS_;
  static constexpr int CENTER = OUTPUT + MOST_POSITIONS * OUTPUT_ROWS * Base::OUT;
  static constexpr int SCALE = CENTER + D_;
  static constexpr int CHOSEN = SCALE + D_;  // parts of the maps of a tile, then of its squares
  static constexpr int SQUARES = CHOSEN + Base::THREADS;
  static constexpr int KNOWN = SQUARES + Base::THREADS;
  static constexpr int TABLES = KNOWN + 32;
  static constexpr int SHARED = TABLES + (2 * FLAG_WORDS * MOST_POSITIONS + 3) / 4 * 4;
  static_assert(OBSERVED % 4 == 0 && HIDDEN1 % 4 == 0 && HIDDEN2 % 4 == 0 && OUTPUT % 4 == 0, "rows of 16 bytes");
};

struct MapArgs {
  const MapSizes* sizes;
  const float* features;  // [T, features]
  const int* flags;       // [T]
  const int* window;      // [M]: row of the next three
  const int* ranges;      // [W, 2]: decision bars [first, stop)
  const float* center;    // [W, features], as is the next
  const float* scale;
  const int* tables;      // bounds [64, P, 2], and more that is not read
  const float* network[LEAVES];
  int* words;      // [M, tiles * ROWS]: map of every bar; of one beyond the range, that which moves nothing
  float* squares;  // [M, tiles * ROWS]: mean square of a bar's centred action values, over all that can be held
};

// Weights that a thread keeps as operands: of its warp's 16 units of the second layer, and its share of the outputs.
template <class S>
struct Kept {
  Fragment<2> hidden[S::STEPS][2];
  Fragment<2> output[S::OUT_STEPS];
};

// Where the caller holds a number of a tile; null for padding and for the columns of positions, which lie apart.
template <class S>
DEVICE const float* network_place(const MapArgs& args, const Sizes& sizes, int tile, int number, const Place& at) {
  bool is_position = tile < S::IN_TILES && 8 * tile + 2 * at.quad + number % 2 >= sizes.seen;
  Spot spot = caller_spot<S>(sizes, tile, number, at);
  return is_position || spot.index < 0 ? nullptr : args.network[spot.leaf] + spot.index;
}

DEVICE void copy_or_clear(float* to, const float* from) {
  if (from == nullptr)
    *to = 0.0f;
  else
    copy_beside(to, from);
}

// Asks for all that lies in shared memory for as long as the block lives.
template <class S>
DEVICE void fetch_member(const MapArgs& args, float* shared, const Sizes& sizes, int window, const Place& at) {
  _Pragma("unroll 2") for (int tile = 0; tile < S::IN_TILES; ++tile)
    UNROLL
    for (int i = 0; i < 4; ++i)
      copy_or_clear(shared + S::WEIGHTS + 4 * (tile * S::THREADS + at.slot) + i,
                    network_place<S>(args, sizes, tile, i, at));
  UNROLL
  for (int i = 0; i < 8; ++i) {
    int tile = S::BIG_TILES + i / 4;
    float* place = small_number<S>(shared + S::SMALL, tile, i % 4, at);
    if (place != nullptr) copy_or_clear(place, network_place<S>(args, sizes, tile, i % 4, at));
  }
  int columns = sizes.seen + sizes.positions, features = sizes.features;
  for (int i = at.thread; i < sizes.positions * S::H; i += S::THREADS) {
    Spot from = spot(WEIGHT1, sizes.hidden1 * columns, i % S::H, sizes.hidden1, sizes.seen + i / S::H, columns);
    copy_or_clear(shared + S::COLUMNS + i, from.index < 0 ? nullptr : args.network[WEIGHT1] + from.index);
  }
  for (int i = at.thread; i < sizes.seen; i += S::THREADS) {
    copy_beside(shared + S::CENTER + i, args.center + window * features + i % features);
    copy_beside(shared + S::SCALE + i, args.scale + window * features + i % features);
  }
  float* tables = shared + S::TABLES;  // of integers, which are copied all the same
  for (int i = at.thread; i < 2 * FLAG_WORDS * sizes.positions; i += S::THREADS)
    copy_beside(tables + i, reinterpret_cast<const float*>(args.tables) + i);
}

template <class S>
DEVICE void keep_hidden(Kept<S>& kept, const MapArgs& args, const Sizes& sizes, const Place& at) {
  float numbers[S::STEPS][8];
  UNROLL
  for (int i = 0; i < 8 * S::STEPS; ++i) {
    const float* place = network_place<S>(args, sizes, S::IN_TILES + i / 4, i % 4, at);
    numbers[i / 8][i % 8] = place == nullptr ? 0.0f : *place;
  }
  UNROLL
  for (int step = 0; step < S::STEPS; ++step)
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const float* own = numbers[step] + 2 * half;
      kept.hidden[step][half] = right_of<S::PRODUCTS>(own[0], own[1], own[4], own[5], WEIGHT_SCALE);
    }
}

template <class S>
DEVICE void keep_outputs(Kept<S>& kept, const float* shared, const Place& at) {
  const float* own = shared + S::SMALL + at.group * S::HIDDEN_STRIDE + 2 * at.quad;
  UNROLL
  for (int step = 0; step < S::OUT_STEPS; ++step) {
    const float* numbers = own + 16 * (S::OUT_STEPS * (at.warp / S::ROW_TILES) + step);
    kept.output[step] = right_of<S::PRODUCTS>(numbers[0], numbers[1], numbers[8], numbers[9], WEIGHT_SCALE);
  }
}

// Asks for the features of `count` bars from `bar` on: one run of memory, for a row starts a bar after the last.
template <class S>
DEVICE void fetch_tile(const MapArgs& args, float* shared, const Sizes& sizes, int bar, int count, const Place& at) {
  const float* from = args.features + static_cast<long long>(bar - sizes.first_row) * sizes.features;
  int numbers = count > 0 ? (count - 1) * sizes.features + sizes.seen : 0;
  for (int i = at.thread; i < numbers; i += S::THREADS) copy_beside(shared + S::RAW + i, from + i);
}

// What is seen at each bar of a tile, from RAW into OBSERVED; beyond the last of `count` bars it is repeated.
template <class S>
DEVICE void observe_tile(float* shared, int count, const Place& at) {
  constexpr int PAIRS = S::D / 2;
  const Sizes& sizes = known<S>(shared).sizes;
  const Halves out = observed_rows<S>(shared);
  int seen = sizes.seen, features = sizes.features;
  _Pragma("unroll 4") for (int i = at.thread; i < S::ROWS * PAIRS; i += S::THREADS) {
    int row = i / PAIRS, pair = i % PAIRS, column = 2 * pair;
    const float* raw = shared + S::RAW + (row < count ? row : count - 1) * features;
    float a = column < seen ? observed<S>(shared, raw[column], column, seen, -1) : 0.0f;
    float b = column + 1 < seen ? observed<S>(shared, raw[column + 1], column + 1, seen, -1) : 0.0f;
    put<S>(out, row, pair, INPUT_SCALE * a, INPUT_SCALE * b);
  }
}

// The thread's own four numbers of one for each unit, scaled as activations are.
struct Four {
  float number[4];

  DEVICE Four(const float* units, const Place& at) {
    const float* own = units + 16 * at.warp + 2 * at.quad;
    UNROLL
    for (int i = 0; i < 4; ++i) number[i] = INPUT_SCALE * own[i % 2 + i / 2 * 8];
  }
};

template <class S>
DEVICE void add_units(Rows<S>& sums, const Four& four) {
  UNROLL
  for (int row = 0; row < S::ROW_TILES; ++row)
    UNROLL
    for (int i = 0; i < 8; ++i)
      sums[row][i / 4][i % 4] = sums[row][i / 4][i % 4] * (1.0f / WEIGHT_SCALE) + four.number[i / 4 * 2 + i % 2];
}

DEVICE float sum_of(const float (&sums)[4][4], int i) { return (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]); }

// Partial sums of the output layer into row `first` of OUTPUT and those that follow.
template <class S>
DEVICE void kept_outputs(float* shared, const Kept<S>& kept, int first, const Place& at) {
  const Halves h2 = hidden_rows<S>(shared, S::HIDDEN2);
  int row = 16 * (at.warp % S::ROW_TILES), part = at.warp / S::ROW_TILES;
  float sums[4][4] = {};
  Fragment<4> left[S::OUT_STEPS];
  UNROLL
  for (int step = 0; step < S::OUT_STEPS; ++step)
    left[step] = rows_fragment<S>(h2, row, 8 * (S::OUT_STEPS * part + step), at);
  UNROLL
  for (int number = 0; number < S::PRODUCTS; ++number)
    UNROLL
    for (int step = 0; step < S::OUT_STEPS; ++step)
      multiply<S::PRODUCTS>(sums[step % 4], left[step], kept.output[step], number);
  constexpr float UNSCALED = 1.0f / (WEIGHT_SCALE * INPUT_SCALE);
  float* out = shared + S::OUTPUT + (first + part * S::ROWS + row + at.group) * S::OUT + 2 * at.quad;
  UNROLL
  for (int half = 0; half < 2; ++half)
    *reinterpret_cast<float2*>(out + 8 * half * S::OUT) = {UNSCALED * sum_of(sums, 2 * half),
                                                           UNSCALED * sum_of(sums, 2 * half + 1)};
}

// Action values of a tile for every position that can be held, from OBSERVED into OUTPUT; complete for all threads on
// return.
template <class S>
DEVICE void value_tile(float* shared, const Kept<S>& kept, int lowest, int highest, const Place& at) {
  const Halves h1 = hidden_rows<S>(shared, S::HIDDEN1), h2 = hidden_rows<S>(shared, S::HIDDEN2);
  const float* small = shared + S::SMALL;
  Rows<S> base;
  times_units<S, S::IN_TILES>(base, observed_rows<S>(shared),
                              reinterpret_cast<const float4*>(shared + S::WEIGHTS) + at.slot, at);
  add_units<S>(base, Four(small + S::FIRST_BIAS, at));
  ROLLED
  for (int position = lowest; position <= highest; ++position) {
    const Four column(shared + S::COLUMNS + position * S::H, at);
    for_pairs<S>(base, at, [&](int row, int word, int half, float a, float b) {
      a += column.number[2 * half];
      b += column.number[2 * half + 1];
      // written so that NaN stays NaN
      put<S>(h1, row, word, a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b);
    });
    block_sync();
    Rows<S> sums;
    clear<S>(sums);
    UNROLL
    for (int step = 0; step < S::STEPS; ++step)
      add_rows<S>(sums, h1, 8 * step, kept.hidden[step][0], kept.hidden[step][1], at);
    add_units<S>(sums, Four(small + S::SECOND_BIAS, at));
    for_pairs<S>(sums, at, [&](int row, int word, int, float a, float b) {
      put<S>(h2, row, word, a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b);
    });
    block_sync();
    kept_outputs<S>(shared, kept, position * S::OUTPUT_ROWS, at);
  }
  block_sync();
}

// This thread's share of the positions of a row: their fields of its map, and the sum of squares of their centred
// values. A position that can never be held has no values: its field is the lowest allowed.
template <class S>
DEVICE void decide(float* shared, const MapSizes& sizes, int flags, bool is_last, const Place& at) {
  int row = at.thread % S::ROWS, word = 0;
  float squares = 0.0f;
  for (int position = at.thread / S::ROWS; position < sizes.positions; position += S::GROUPS) {
    Row held;
    set_bounds(held, tables_of<S>(shared), sizes.positions, flags, position);
    if (is_last) held.low = held.high = sizes.flat;
    int chosen = held.low;
    if (position >= sizes.lowest && position <= sizes.highest) {
      float q[S::OUT], total = 0.0f;
      action_values<S>(shared, shared + S::SMALL, row + position * S::OUTPUT_ROWS, q);
      int best = best_within<S>(q, held);
      chosen = best < held.low ? held.low : best > held.high ? held.high : best;
      UNROLL
      for (int i = 0; i < S::OUT; ++i) total += i >= sizes.lowest && i <= sizes.highest ? q[i] : 0.0f;
      float mean = quotient(total, static_cast<float>(sizes.highest - sizes.lowest + 1));
      UNROLL
      for (int i = 0; i < S::OUT; ++i)
        squares += i >= sizes.lowest && i <= sizes.highest ? (q[i] - mean) * (q[i] - mean) : 0.0f;
    }
    word |= chosen << (4 * position);
  }
  reinterpret_cast<int*>(shared + S::CHOSEN)[at.thread] = word;
  shared[S::SQUARES + at.thread] = squares;
}

// Joins the shares of the first `count` rows of a tile, the rest moves nothing; `first` is the tile's first row of all.
template <class S>
DEVICE void write_tile(const MapArgs& args, const float* shared, const MapSizes& sizes, int first, int count,
                       const Place& at) {
  if (at.thread >= S::ROWS) return;
  int word = 0, held = sizes.highest - sizes.lowest + 1;
  float squares = 0.0f;
  if (at.thread < count) {
    UNROLL
    for (int group = 0; group < S::GROUPS; ++group) {
      word |= reinterpret_cast<const int*>(shared + S::CHOSEN)[group * S::ROWS + at.thread];
      squares += shared[S::SQUARES + group * S::ROWS + at.thread];
    }
    squares *= 1.0f / static_cast<float>(held * held);
  } else {
    word = identity_map(sizes.positions);
  }
  long long place = static_cast<long long>(block_id()) * sizes.tiles * S::ROWS + first + at.thread;
  args.words[place] = word;
  args.squares[place] = squares;
}

// The sizes that the functions shared with the learner ask for.
DEVICE Sizes learner_sizes(const MapSizes& sizes) {
  Sizes out{};
  out.features = sizes.features;
  out.seen = sizes.seen;
  out.positions = sizes.positions;
  out.flags = sizes.flags;
  out.first_row = sizes.first_row;
  out.hidden1 = sizes.hidden1;
  out.hidden2 = sizes.hidden2;
  out.outputs = sizes.outputs;
  return out;
}

// Every part_count()-th tile of the member's range, from tile part_id() on.
template <class S>
DEVICE void map_member(const MapArgs& args, float* shared) {
  const Place at = place<S>();
  const MapSizes given = *args.sizes;
  const Sizes sizes = learner_sizes(given);
  int window = args.window[block_id()], first = args.ranges[2 * window], stop = args.ranges[2 * window + 1];
  int end = stop - first < given.bars ? stop - first : given.bars, row = S::ROWS * part_id();
  int stride = S::ROWS * part_count(), all = S::ROWS * given.tiles;
  if (row < end) {
    Kept<S> kept;
    fetch_tile<S>(args, shared, sizes, first + row, end - row < S::ROWS ? end - row : S::ROWS, at);
    fetch_member<S>(args, shared, sizes, window, at);
    keep_hidden<S>(kept, args, sizes, at);
    if (at.thread == 0) reinterpret_cast<Known*>(shared + S::KNOWN)->sizes = sizes;
    copies_done();
    block_sync();
    keep_outputs<S>(kept, shared, at);
    ROLLED
    for (; row < end; row += stride) {
      int count = end - row < S::ROWS ? end - row : S::ROWS, later = end - row - stride;
      int own = at.thread % S::ROWS, bar = first + row + (own < count ? own : count - 1);
      int flags = args.flags[bar];
      copies_done();
      block_sync();
      observe_tile<S>(shared, count, at);
      block_sync();
      fetch_tile<S>(args, shared, sizes, first + row + stride, later < S::ROWS ? later : S::ROWS, at);
      value_tile<S>(shared, kept, given.lowest, given.highest, at);
      decide<S>(shared, given, flags, bar == stop - 1, at);
      block_sync();
      write_tile<S>(args, shared, given, row, count, at);
    }
  }
  for (; row < all; row += stride) write_tile<S>(args, shared, given, row, 0, at);
}

}  // namespace tidewalk
