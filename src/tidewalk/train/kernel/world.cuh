// The world as a block sees it: observations, the lanes that collect, and transitions sampled from the replay.
// What may be held and what a fill costs comes in tables, made by the one place that knows.
#pragma once

#include "layers.cuh"

namespace tidewalk {

// What a row of the block is about, in shared memory at PER_ROW + 12 row. A lane has no final decision; there, `action`
// is the random one or below 0, `final_bar` and `final_position` say where it restarts, or hold -1.
struct Row {
  int bar, position, action, final_bar, final_position;
  int low, high;  // bounds of what may be held next: at the bar of a lane, at the final bar of a transition
  int age;
  float reward, discount;
  int unused[2];
};

template <class S>
DEVICE Row* rows_of(float* shared) {
  return reinterpret_cast<Row*>(shared + S::PER_ROW);
}

template <class S>
DEVICE const Known& known(const float* shared) {
  return *reinterpret_cast<const Known*>(shared + S::KNOWN);
}

template <class S>
DEVICE const int* tables_of(const float* shared) {
  return reinterpret_cast<const int*>(shared + S::TABLES);
}

DEVICE void set_bounds(Row& row, const int* tables, int positions, int flags, int position) {
  const int* pair = tables + 2 * ((flags & (FLAG_WORDS - 1)) * positions + position);
  row.low = pair[0];
  row.high = pair[1];
}

struct Bar {
  int move_ticks, flags, next_flags;
  float half_spread;
};

DEVICE Bar bar_at(const Args& args, bool has_spread, int bar) {
  return {args.move_ticks[bar], args.flags[bar], args.flags[bar + 1], has_spread ? args.half_spread[bar + 1] : 0.0f};
}

DEVICE float reward(const Known& by_heart, const int* tables, const Bar& bar, int position, int action) {
  int count = by_heart.sizes.positions, has_roll = (bar.flags & ROLL) != 0;
  const int* sides = tables + 2 * FLAG_WORDS * count;
  const int *rolled = sides + 2 * count * count, *lots = rolled + 2 * count * count;
  int entry = (has_roll * count + position) * count + action;
  float traded = static_cast<float>(sides[entry]);
  float net = static_cast<float>(lots[action] * bar.move_ticks) - by_heart.own.side_ticks * traded;
  if (by_heart.sizes.flags & ROLL_FEE) net -= by_heart.own.roll_ticks * static_cast<float>(rolled[entry]);
  net -= traded * bar.half_spread;
  return net * by_heart.own.reward_scale;
}

// Scaled feature of a column, or the one-hot position beyond the features that are seen.
template <class S>
DEVICE float observed(const float* shared, float raw, int column, int seen, int position) {
  float scaled = (raw - shared[S::CENTER + column]) * shared[S::SCALE + column];
  return column < seen ? fminf(fmaxf(scaled, -10.0f), 10.0f) : column - seen == position ? 1.0f : 0.0f;
}

// Observations of all rows into OBSERVED: at the bar and position of a row, or at its final ones. A thread takes pairs
// of columns; many numbers are asked for before the first of them is used.
template <class S>
DEVICE void observe(const Args& args, float* shared, bool is_final, const Place& at) {
  constexpr int PAIRS = S::D / 2, EACH = S::ROWS * PAIRS / S::THREADS;
  constexpr int AT_ONCE = EACH % 8 == 0 ? 8 : EACH % 6 == 0 ? 6 : 4;
  static_assert(S::ROWS * PAIRS % S::THREADS == 0 && EACH % AT_ONCE == 0, "rows");
  const Sizes& sizes = known<S>(shared).sizes;
  const Row* rows = rows_of<S>(shared);
  const Halves out = observed_rows<S>(shared);
  int seen = sizes.seen, features = sizes.features, first_row = sizes.first_row;
  float raw[AT_ONCE][2];
  ROLLED
  for (int base = at.thread; base < S::ROWS * PAIRS; base += AT_ONCE * S::THREADS) {
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      int number = (base + i * S::THREADS) / PAIRS, column = 2 * ((base + i * S::THREADS) % PAIRS);
      int bar = is_final ? rows[number].final_bar : rows[number].bar;
      const float* first = args.features + static_cast<long long>(bar - first_row) * features;
      raw[i][0] = first[column < seen ? column : 0];
      raw[i][1] = first[column + 1 < seen ? column + 1 : 0];
    }
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      int number = (base + i * S::THREADS) / PAIRS, pair = (base + i * S::THREADS) % PAIRS;
      int position = is_final ? rows[number].final_position : rows[number].position;
      put<S>(out, number, pair, INPUT_SCALE * observed<S>(shared, raw[i][0], 2 * pair, seen, position),
             INPUT_SCALE * observed<S>(shared, raw[i][1], 2 * pair + 1, seen, position));
    }
  }
}

// Action values of a row from the partial sums of the output layer.
template <class S>
DEVICE void action_values(const float* shared, const float* small, int row, float (&q)[S::OUT]) {
  const Sizes& sizes = known<S>(shared).sizes;
  const float4* sums = reinterpret_cast<const float4*>(shared + S::OUTPUT + row * S::OUT);
  UNROLL
  for (int out = 0; out < S::OUT; ++out) q[out] = small[S::LAST_BIAS + out];
  UNROLL
  for (int part = 0; part < S::PARTS; ++part)
    UNROLL
    for (int i = 0; i < S::OUT / 4; ++i) {
      float4 four = sums[part * S::ROWS * S::OUT / 4 + i];
      q[4 * i] += four.x;
      q[4 * i + 1] += four.y;
      q[4 * i + 2] += four.z;
      q[4 * i + 3] += four.w;
    }
  if (!(sizes.flags & DUELLING)) return;
  int count = sizes.positions;
  float value = q[0], total = 0.0f;
  UNROLL
  for (int out = 1; out < S::OUT; ++out) total += out <= count ? q[out] : 0.0f;
  float mean = quotient(total, static_cast<float>(count));
  UNROLL
  for (int out = 0; out + 1 < S::OUT; ++out) q[out] = value + q[out + 1] - mean;
}

// First index of the highest value within a row's bounds; NaN counts as the highest, as it does for the reference.
template <class S>
DEVICE int best_within(const float (&q)[S::OUT], const Row& row) {
  float highest = -INFINITY;
  int best = 0, low = row.low, high = row.high;
  UNROLL
  for (int action = 0; action < S::OUT; ++action) {
    bool is_allowed = action >= low && action <= high;
    bool is_higher = is_allowed && (q[action] > highest || (q[action] != q[action] && highest == highest));
    highest = is_higher ? q[action] : highest;
    best = is_higher ? action : best;
  }
  return best;
}

// All that the lane of this thread's row needs for its step but the action values.
template <class S>
DEVICE void place_lane(const Args& args, float* shared, int step, int lane, const unsigned* words, Row& row) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  lane = lane < sizes.lanes ? lane : sizes.lanes - 1;
  int number = block_id() * sizes.lanes + lane;
  unsigned explore = words[lane], choice = words[sizes.lanes + lane], restart = words[2 * sizes.lanes + lane];
  int bar = args.bar[number], position = args.position[number], age = args.age[number];
  float epsilon = args.epsilon[step * sizes.members + block_id()];
  int flags = args.flags[bar], next_flags = args.flags[bar + 1];
  set_bounds(row, tables_of<S>(shared), sizes.positions, flags, position);
  bool is_exploring = static_cast<float>(explore >> 8) * (1.0f / (1 << 24)) < epsilon;
  int random = row.low + static_cast<int>(choice % static_cast<unsigned>(row.high - row.low + 1));
  int start = by_heart.train[0], stop = by_heart.train[1];
  bool restarts = bar + 1 >= stop || age + 1 >= sizes.episode_bars || (next_flags & GAP) != 0;
  row.bar = bar;
  row.position = position;
  row.age = age;
  row.action = is_exploring ? random : -1;
  row.final_bar = restarts ? start + static_cast<int>(restart % static_cast<unsigned>(stop - start)) : bar + 1;
  row.final_position = restarts ? sizes.flat : -1;
}

// One bar for the lane of this thread's row: act, store the record, move or restart.
template <class S>
DEVICE void move_lane(const Args& args, float* shared, int step, int lane, const Row& row, int thread) {
  const Sizes& sizes = known<S>(shared).sizes;
  float q[S::OUT];
  action_values<S>(shared, shared + S::SMALL, thread, q);
  int best = best_within<S>(q, row);
  best = best < row.low ? row.low : best > row.high ? row.high : best;
  int action = row.action < 0 ? best : row.action, restarts = row.final_position >= 0;
  int number = block_id() * sizes.lanes + lane, slot = (sizes.clock + step) % sizes.slots;
  long long record = static_cast<long long>(slot * sizes.lanes + lane) * sizes.members + block_id();
  args.replay[record] = {row.bar, row.position | (action << 8) | ((row.age == 0) << 16)};
  args.bar[number] = row.final_bar;
  args.position[number] = restarts ? row.final_position : action;
  args.age[number] = restarts ? 0 : row.age + 1;
}

// One sampled transition for this thread's row; `word` is its random word, `stored` the vector steps stored so far.
template <class S>
DEVICE void sample_row(const Args& args, const float* shared, Row& row, unsigned word, int stored) {
  constexpr int AT_ONCE = 4;
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  const int* tables = tables_of<S>(shared);
  int filled = stored < sizes.slots ? stored : sizes.slots, later = sizes.n_step - 1;
  unsigned lanes = sizes.lanes, draw = word % (static_cast<unsigned>(filled - later) * lanes);
  int lane = static_cast<int>(draw % lanes), slot = (stored - 1 - later - static_cast<int>(draw / lanes)) % sizes.slots;
  const float* powers = args.powers + block_id() * (sizes.n_step + 1);
  bool is_valid = true, has_spread = sizes.flags & SPREAD;
  int steps = 0, held = 0, last_flags = 0;
  float total = 0.0f;
  for (int base = 0; base < sizes.n_step; base += AT_ONCE) {
    int2 records[AT_ONCE];
    Bar bars[AT_ONCE];
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      long long number = static_cast<long long>(slot * sizes.lanes + lane) * sizes.members + block_id();
      records[i] = args.replay[number];
      if (base + i + 1 < sizes.n_step) slot = slot + 1 == sizes.slots ? 0 : slot + 1;
    }
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) bars[i] = bar_at(args, has_spread, records[i].x);
    if (base == 0) {
      row.bar = records[0].x;
      row.position = records[0].y & 0xff;
      row.action = (records[0].y >> 8) & 0xff;
    }
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      int position = records[i].y & 0xff, action = (records[i].y >> 8) & 0xff, number = base + i;
      is_valid = is_valid && number < sizes.n_step && (number == 0 || ((records[i].y >> 16) & 1) == 0);
      float gained = reward(by_heart, tables, bars[i], position, action);
      if (!is_valid) continue;
      total += powers[number] * gained;
      steps = number + 1;
      held = action;
      last_flags = bars[i].next_flags;
    }
  }
  row.final_bar = row.bar + steps;
  row.final_position = held;
  row.reward = total;
  row.discount = powers[steps];
  set_bounds(row, tables, sizes.positions, last_flags, held);
}

}  // namespace tidewalk
