// The world as a block sees it: observations, the lanes that collect, and transitions sampled from the replay.
// What may be held and what a fill costs comes in tables, made by the one place that knows.
#pragma once

#include "layers.cuh"

namespace tidewalk {

// What a row of the block is about, in shared memory at PER_ROW or PER_LANE + 12 row. A lane has no final decision;
// there, `action` is the random one or below 0, `final_bar` and `final_position` say where it restarts, or hold -1.
struct Row {
  int bar, position, action, final_bar, final_position;
  int low, high;  // bounds of what may be held next: at the bar of a lane, at the final bar of a transition
  int age;
  float reward, discount;
  int lane, slot;  // where the first record of a transition lies; the slot is below 0 where it is yet to be read
};

template <class S>
DEVICE Row* rows_of(float* shared) {
  return reinterpret_cast<Row*>(shared + S::PER_ROW);
}

template <class S>
DEVICE Row* lanes_of(float* shared) {
  return reinterpret_cast<Row*>(shared + S::PER_LANE);
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

// Up to AT_ONCE records of each row and the bars that they tell of, on their way from device memory.
template <class S>
struct Mail {
  static constexpr int AT_ONCE = 4;
  int2 records[AT_ONCE][S::OWN_ROWS];
  int bars[AT_ONCE][4][S::OWN_ROWS];
};
static_assert(sizeof(Mail<Shape<32, 64, 64, 3>>) == 4 * 24 * 64, "see MAIL");

template <class S>
DEVICE Mail<S>& mail_of(float* shared) {
  return *reinterpret_cast<Mail<S>*>(shared + S::MAIL);
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

DEVICE const float* features_at(const Args& args, const Sizes& sizes, const Row& row, bool is_final) {
  return args.features +
         static_cast<long long>((is_final ? row.final_bar : row.bar) - sizes.first_row) * sizes.features;
}

// Asks for the features of all rows at their bar or at their final one: copied beside what follows into RAW, if there
// is room. `rows` are ready for all threads.
template <class S>
DEVICE void fetch_features(const Args& args, float* shared, const Row* rows, bool is_final, const Place& at) {
  if (!S::HAS_RAW) return;
  const Sizes& sizes = known<S>(shared).sizes;
  UNROLL
  for (int i = 0; i < S::ROWS * S::D / S::THREADS; ++i) {
    int place = at.thread + i * S::THREADS, column = place % S::D;
    if (column < sizes.seen)
      copy_beside(shared + S::RAW + place, features_at(args, sizes, rows[place / S::D], is_final) + column);
  }
}

// The same for one row, by one thread.
template <class S>
DEVICE void fetch_row(const Args& args, float* shared, const Row* rows, int number, bool is_final) {
  if (!S::HAS_RAW) return;
  const Sizes& sizes = known<S>(shared).sizes;
  const float* from = features_at(args, sizes, rows[number], is_final);
  for (int column = 0; column < sizes.seen; ++column)
    copy_beside(shared + S::RAW + number * S::D + column, from + column);
}

// Observations of all rows into OBSERVED: at the bar and position of a row, or at its final ones. The features were
// copied into RAW by `fetch_features`; where there is no room for them, many are asked for before the first is used.
template <class S>
DEVICE void observe(const Args& args, float* shared, const Row* rows, bool is_final, const Place& at) {
  constexpr int PAIRS = S::D / 2, EACH = S::ROWS * PAIRS / S::THREADS;
  constexpr int AT_ONCE = EACH <= 8 ? EACH : EACH % 8 == 0 ? 8 : EACH % 6 == 0 ? 6 : 4;
  static_assert(S::ROWS * PAIRS % S::THREADS == 0 && EACH % AT_ONCE == 0, "rows");
  const Sizes& sizes = known<S>(shared).sizes;
  const Halves out = observed_rows<S>(shared);
  int seen = sizes.seen;
  float raw[AT_ONCE][2];
  ROLLED
  for (int base = at.thread; base < S::ROWS * PAIRS; base += AT_ONCE * S::THREADS) {
    UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      int number = (base + i * S::THREADS) / PAIRS, column = 2 * ((base + i * S::THREADS) % PAIRS);
      const float* first =
          S::HAS_RAW ? shared + S::RAW + number * S::D : features_at(args, sizes, rows[number], is_final);
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
DEVICE void action_values(const float* shared, const float* small, int row, float (&q)[S::OUT],
                          int place = S::OUTPUT, int rows = S::OUT_ROWS) {
  const Sizes& sizes = known<S>(shared).sizes;
  const float4* sums = reinterpret_cast<const float4*>(shared + place + row * S::OUT);
  UNROLL
  for (int i = 0; i < S::OUT / 4; ++i) {
    float numbers[4][S::PARTS];
    UNROLL
    for (int part = 0; part < S::PARTS; ++part) {
      float4 four = sums[part * rows * S::OUT / 4 + i];
      numbers[0][part] = four.x;
      numbers[1][part] = four.y;
      numbers[2][part] = four.z;
      numbers[3][part] = four.w;
    }
    UNROLL
    for (int k = 0; k < 4; ++k) q[4 * i + k] = tree_sum(numbers[k]) + small[S::LAST_BIAS + 4 * i + k];
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

// Where a lane is, and the flags of its bar and of the next.
struct Standing {
  int bar, position, age, flags, next_flags;
};

// All that a lane needs for its step but the action values.
template <class S>
DEVICE void place_lane(const Args& args, float* shared, int step, int lane, const unsigned* words,
                       const Standing& standing, Row& row) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  lane = lane < sizes.lanes ? lane : sizes.lanes - 1;
  unsigned explore = words[lane], choice = words[sizes.lanes + lane], restart = words[2 * sizes.lanes + lane];
  float epsilon = args.epsilon[step * sizes.members + block_id()];
  set_bounds(row, tables_of<S>(shared), sizes.positions, standing.flags, standing.position);
  bool is_exploring = static_cast<float>(explore >> 8) * (1.0f / (1 << 24)) < epsilon;
  int random = row.low + static_cast<int>(choice % static_cast<unsigned>(row.high - row.low + 1));
  int start = by_heart.train[0], stop = by_heart.train[1], next = standing.bar + 1;
  bool restarts = next >= stop || standing.age + 1 >= sizes.episode_bars || (standing.next_flags & GAP) != 0;
  row.bar = standing.bar;
  row.position = standing.position;
  row.age = standing.age;
  row.action = is_exploring ? random : -1;
  row.final_bar = restarts ? start + static_cast<int>(restart % static_cast<unsigned>(stop - start)) : next;
  row.final_position = restarts ? sizes.flat : -1;
}

// The same, from what the last step left in memory.
template <class S>
DEVICE void place_lane(const Args& args, float* shared, int step, int lane, const unsigned* words, Row& row) {
  const Sizes& sizes = known<S>(shared).sizes;
  int number = block_id() * sizes.lanes + (lane < sizes.lanes ? lane : sizes.lanes - 1), bar = args.bar[number];
  const Standing standing{bar, args.position[number], args.age[number], args.flags[bar], args.flags[bar + 1]};
  place_lane<S>(args, shared, step, lane, words, standing, row);
}

// One bar for the lane of this thread's row: act, store the record, move or restart.
template <class S>
DEVICE void move_lane(const Args& args, float* shared, int step, int lane, Row& row, int thread) {
  const Sizes& sizes = known<S>(shared).sizes;
  float q[S::OUT];
  action_values<S>(shared, shared + S::SMALL, thread, q);
  int best = best_within<S>(q, row);
  best = best < row.low ? row.low : best > row.high ? row.high : best;
  int action = row.action < 0 ? best : row.action, restarts = row.final_position >= 0;
  int number = block_id() * sizes.lanes + lane, slot = (sizes.clock + step) % sizes.slots;
  long long record = static_cast<long long>(slot * sizes.lanes + lane) * sizes.members + block_id();
  args.replay[record] = {row.bar, row.position | (action << 8) | ((row.age == 0) << 16)};
  args.bar[number] = row.bar = row.final_bar;
  args.position[number] = row.position = restarts ? row.final_position : action;
  args.age[number] = row.age = restarts ? 0 : row.age + 1;
}

// Draws a transition by a random word, `stored` vector steps having been stored. Of one that ends with the newest
// record only its place is known where that record `is_missing` yet.
template <class S>
DEVICE void draw_row(const Sizes& sizes, Row& row, unsigned word, int stored, bool is_missing) {
  int filled = stored < sizes.slots ? stored : sizes.slots, later = sizes.n_step - 1;
  unsigned lanes = sizes.lanes, draw = word % (static_cast<unsigned>(filled - later) * lanes);
  int back = static_cast<int>(draw / lanes);
  row.lane = static_cast<int>(draw % lanes);
  row.slot = is_missing && back == 0 ? -1 : (stored - 1 - later - back) % sizes.slots;
}

// Asks for the records of a row from number `base` of its transition on.
template <class S>
DEVICE void fetch_records(const Args& args, const Sizes& sizes, Mail<S>& mail, const Row& row, int number, int base) {
  UNROLL
  for (int i = 0; i < mail.AT_ONCE; ++i) {
    int slot = row.slot + base + i;
    slot -= slot < sizes.slots ? 0 : sizes.slots;
    long long record = static_cast<long long>(slot * sizes.lanes + row.lane) * sizes.members + block_id();
    if (base + i < sizes.n_step) copy_beside(&mail.records[i][number], &args.replay[record]);
  }
}

// Asks for the bars that they tell of, once they are there.
template <class S>
DEVICE void fetch_bars(const Args& args, const Sizes& sizes, Mail<S>& mail, int number, int base) {
  copies_done();
  UNROLL
  for (int i = 0; i < mail.AT_ONCE; ++i) {
    if (base + i >= sizes.n_step) continue;
    int bar = mail.records[i][number].x;
    copy_beside(&mail.bars[i][0][number], args.move_ticks + bar);
    copy_beside(&mail.bars[i][1][number], args.flags + bar);
    copy_beside(&mail.bars[i][2][number], args.flags + bar + 1);
    if (sizes.flags & SPREAD)
      copy_beside(reinterpret_cast<float*>(&mail.bars[i][3][number]), args.half_spread + bar + 1);
  }
}

// What the row of a transition must know, from its records and their bars.
template <class S>
DEVICE void finish_row(const Args& args, float* shared, int number) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  const int* tables = tables_of<S>(shared);
  const float* powers = args.powers + block_id() * (sizes.n_step + 1);
  Row& row = rows_of<S>(shared)[number];
  Mail<S>& mail = mail_of<S>(shared);
  bool is_valid = true;
  int steps = 0, held = 0, last_flags = 0;
  float total = 0.0f;
  for (int base = 0; base < sizes.n_step && is_valid; base += mail.AT_ONCE) {
    if (base > 0) {
      fetch_records<S>(args, sizes, mail, row, number, base);
      fetch_bars<S>(args, sizes, mail, number, base);
    }
    copies_done();
    UNROLL
    for (int i = 0; i < mail.AT_ONCE; ++i) {
      int2 record = mail.records[i][number];
      int position = record.y & 0xff, action = (record.y >> 8) & 0xff;
      is_valid = is_valid && base + i < sizes.n_step && (base + i == 0 || ((record.y >> 16) & 1) == 0);
      if (!is_valid) continue;
      int(&words)[4][S::OWN_ROWS] = mail.bars[i];
      float half_spread = sizes.flags & SPREAD ? float_of(words[3][number]) : 0.0f;
      Bar bar{words[0][number], words[1][number], words[2][number], half_spread};
      if (steps == 0) {
        row.bar = record.x;
        row.position = position;
        row.action = action;
      }
      total += powers[steps] * reward(by_heart, tables, bar, position, action);
      ++steps;
      held = action;
      last_flags = bar.next_flags;
    }
  }
  row.final_bar = row.bar + steps;
  row.final_position = held;
  row.reward = total;
  row.discount = powers[steps];
  set_bounds(row, tables, sizes.positions, last_flags, held);
}

}  // namespace tidewalk
