// The vector steps of a launch for one member, by a cluster of blocks: each has a part of the lanes and of the samples.
#pragma once

#include "learn.cuh"
#include "rows.cuh"

namespace tidewalk {

// Features of some of the block's rows on their way: samples where they start, where they end, and lanes.
template <class S>
struct Features {
  static constexpr int PAIRS = S::D / 2, EACH = (3 * S::OWN_ROWS * PAIRS + S::THREADS - 1) / S::THREADS;
  float raw[EACH][2];

  DEVICE static bool has(int part, bool of_samples, bool of_lanes) {
    return part < 3 && (part == 2 ? of_lanes : of_samples);
  }

  DEVICE static const Row& row_of(const float* shared, int part, int number) {
    return reinterpret_cast<const Row*>(shared + (part == 2 ? S::PER_LANE : S::PER_ROW))[number];
  }

  DEVICE void ask(const Args& args, const float* shared, bool of_samples, bool of_lanes, const Place& at) {
    const Sizes& sizes = known<S>(shared).sizes;
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      int place = at.thread + i * S::THREADS, number = place / PAIRS, column = 2 * (place % PAIRS);
      int part = number / S::OWN_ROWS;
      if (!has(part, of_samples, of_lanes)) continue;
      const float* first = features_at(args, sizes, row_of(shared, part, number % S::OWN_ROWS), part == 1);
      raw[i][0] = first[column < sizes.seen ? column : 0];
      raw[i][1] = first[column + 1 < sizes.seen ? column + 1 : 0];
    }
  }

  // Observations into OBSERVED.
  DEVICE void put(float* shared, bool of_samples, bool of_lanes, const Place& at) {
    int seen = known<S>(shared).sizes.seen;
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      int place = at.thread + i * S::THREADS, number = place / PAIRS, pair = place % PAIRS;
      int part = number / S::OWN_ROWS, row = number % S::OWN_ROWS;
      if (!has(part, of_samples, of_lanes)) continue;
      const Row& own = row_of(shared, part, row);
      int position = part == 1 ? own.final_position : own.position;
      const Matrices out = matrices<S>(shared, S::OBSERVED + part * S::OBSERVED_PART, S::OWN_ROWS, S::D);
      unsigned low = 0, *word = out.first + 32 * (row / 8 * out.wide + pair / 4) + 4 * (row % 8) + pair % 4;
      split<S::PRODUCTS>(INPUT_SCALE * observed<S>(shared, raw[i][0], 2 * pair, seen, position),
                         INPUT_SCALE * observed<S>(shared, raw[i][1], 2 * pair + 1, seen, position), word[0], low);
      if (S::PRODUCTS == 3) word[out.low] = low;
    }
  }
};

// What a vector step does at a time: lanes move, samples are learned from, or both at once.
struct Turn {
  int step, first_lane, first_sample, update;
  bool moves, learns;
};

// The threads that look after rows, `OWN_ROWS` for a task: the samples where they start, where they end, the lanes, and
// what is done ahead for the lanes and the samples of the next vector step.
enum Task { STARTS, ENDS, LANES, NEXT_LANES = 4, NEXT_SAMPLES = 6 };

template <class S>
DEVICE bool is_for(Task task, const Place& at) {
  return at.thread / S::OWN_ROWS == task;
}

// Row of the block number `number` among those of all.
template <class S>
DEVICE int among_all(int first, int number) {
  return first + S::OWN_ROWS * rank_of<S>() + number;
}

// Places a lane of the block; what the one of this row left is known where it `has_moved`, else it is in memory. The
// flags of the bar where it goes come beside what follows, to be had when it has moved.
template <class S>
DEVICE void place_own(const Args& args, float* shared, int step, int first, int number, bool has_moved) {
  const Sizes& sizes = known<S>(shared).sizes;
  Row& row = lanes_of<S>(shared)[number];
  int lane = among_all<S>(first, number), last = sizes.lanes - 1;
  int place = block_id() * sizes.lanes + (lane < last ? lane : last), bar = has_moved ? row.bar : args.bar[place];
  const Standing standing{bar, has_moved ? row.position : args.position[place], has_moved ? row.age : args.age[place],
                          has_moved ? row.lane : args.flags[bar], has_moved ? row.slot : args.flags[bar + 1]};
  place_lane<S>(args, shared, step, lane, words_of(args, sizes, step), standing, row);
  copy_beside(&row.lane, args.flags + row.final_bar);
  copy_beside(&row.slot, args.flags + row.final_bar + 1);
}

template <class S>
DEVICE void draw_own(const Args& args, float* shared, const Turn& turn, int number, bool is_missing) {
  const Sizes& sizes = known<S>(shared).sizes;
  int drawn = among_all<S>(turn.first_sample, number);
  const unsigned* words = words_of(args, sizes, turn.step) + 3 * sizes.lanes + turn.update * sizes.batch;
  Row& row = rows_of<S>(shared)[number];
  unsigned word = words[drawn < sizes.batch ? drawn : turn.first_sample];
  draw_row<S>(sizes, row, word, sizes.clock + turn.step + 1, is_missing);
  if (row.slot >= 0) fetch_records<S>(args, sizes, mail_of<S>(shared), row, number, 0);
}

// Whether samples that were drawn ahead end with a record that the lanes have yet to leave.
template <class S>
DEVICE bool waits_for_lanes(float* shared, const Place& at) {
  return warp_most(rows_of<S>(shared)[at.thread % S::OWN_ROWS].slot < 0 ? 1.0f : 0.0f) > 0.0f;
}

// Readies the rows of a turn, but for those that the block has already.
template <class S>
DEVICE void ready_turn(const Args& args, float* shared, const Turn& turn, bool has_lanes, bool has_samples,
                       const Place& at) {
  int number = at.thread % S::OWN_ROWS;
  if (has_lanes && has_samples) return;
  if (!has_lanes && is_for<S>(LANES, at)) place_own<S>(args, shared, turn.step, turn.first_lane, number, false);
  if (!has_samples && is_for<S>(STARTS, at)) {
    draw_own<S>(args, shared, turn, number, false);
    fetch_bars<S>(args, known<S>(shared).sizes, mail_of<S>(shared), number, 0);
    finish_row<S>(args, shared, number);
  }
  Features<S> features;
  block_sync();
  features.ask(args, shared, !has_samples, !has_lanes, at);
  features.put(shared, !has_samples, !has_lanes, at);
  block_sync();
}

// What is done ahead for the next vector step, while this one learns: its first lanes and samples, in three parts, so
// that records and the bars they tell of have time to come. A sample that ends with a record yet to be left waits.
template <class S>
struct Ahead {
  int step;  // the next; below 0 for none

  DEVICE void begin(const Args& args, float* shared, const Place& at) const {
    if (step < 0) return;
    int number = at.thread % S::OWN_ROWS;
    bool is_known = known<S>(shared).sizes.lanes <= S::ROWS;
    if (is_for<S>(NEXT_LANES, at)) place_own<S>(args, shared, step, 0, number, is_known);
    if (is_for<S>(NEXT_SAMPLES, at)) draw_own<S>(args, shared, Turn{step}, number, true);
  }

  DEVICE void go_on(const Args& args, float* shared, const Place& at) const {
    int number = at.thread % S::OWN_ROWS;
    if (step < 0 || !is_for<S>(NEXT_SAMPLES, at) || rows_of<S>(shared)[number].slot < 0) return;
    fetch_bars<S>(args, known<S>(shared).sizes, mail_of<S>(shared), number, 0);
  }

  DEVICE void finish(const Args& args, float* shared, const Place& at) const {
    if (step < 0 || !is_for<S>(NEXT_SAMPLES, at)) return;
    Row& row = rows_of<S>(shared)[at.thread % S::OWN_ROWS];
    if (row.slot >= 0) return finish_row<S>(args, shared, at.thread % S::OWN_ROWS);
    row.bar = row.final_bar = known<S>(shared).train[0];  // one that exists
    row.position = row.final_position = 0;
  }
};

// What the online network says of a sample, and which action it chooses at its end; below 0 where it is not asked.
struct Heard {
  Said said;
  int chosen;
};

template <class S>
DEVICE Heard listen(float* shared, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  const Row& row = rows_of<S>(shared)[at.thread % S::OWN_ROWS];
  float q[S::OUT];
  action_values<S>(shared, shared + S::SMALL, at.thread, q);
  int chosen = sizes.flags & DOUBLE ? best_within<S>(q, row) : -1;
  chosen = static_cast<int>(shuffle_xor(static_cast<float>(chosen), S::OWN_ROWS));
  return {said<S>(q, row.action, sizes.positions), chosen};
}

// The verdict on a row of the block, for all blocks.
template <class S>
DEVICE void judge_own(float* shared, const Heard& heard, int first, int number) {
  const Known& by_heart = known<S>(shared);
  const Row& row = rows_of<S>(shared)[number];
  int place = among_all<S>(0, number);
  const float* small = shared + S::TARGET_SMALL;
  float aim = bootstrap<S>(shared, small, row, heard.chosen, number, S::OUTPUT_OF_TARGET, S::OWN_ROWS);
  const Verdict verdict = judge(by_heart, row, aim, heard.said, first + place < by_heart.sizes.batch);
  send_all<S>(reinterpret_cast<float4*>(verdicts<S>(shared) + place),
              float4{verdict.loss, verdict.action_values, verdict.gradient, float_of(verdict.action)});
}

// The verdicts on all rows: into SUMS, and the gradients of the outputs; returns the largest of them.
template <class S>
DEVICE float count_verdicts(float* shared, const Place& at) {
  const Verdict* rows = verdicts<S>(shared);
  float most = 0.0f;
  UNROLL
  for (int row = 0; row < S::ROWS; row += 32) most = fmaxf(most, fabsf(rows[row + at.thread % 32].gradient));
  if (at.thread < S::ROWS) {
    const OutputGradient gradient(rows[at.thread], known<S>(shared).sizes);
    UNROLL
    for (int i = 0; i < S::OUT; ++i) shared[S::ALL_GRADIENT + at.thread * S::OUT + i] = gradient.at(i);
    add_to_sums<S>(shared, rows[at.thread], at);
  }
  return warp_most(most);
}

// The update of a turn whose rows have been judged.
template <class S>
DEVICE void learn_turn(const Args& args, float* shared, const Turn& turn, const Kept<S>& kept,
                       const Ahead<S>& ahead, Earlier<S>& earlier, Held<S>& held, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  float most = count_verdicts<S>(shared, at);
  send_rows<S>(shared, S::HIDDEN1, S::ALL_HIDDEN1, S::H, at);
  send_rows<S>(shared, S::OBSERVED, S::ALL_OBSERVED, S::D, at);
  send_to_owner<S>(shared, S::OWN_HIDDEN2, kept.hidden2, at);
  MARK(8);
  Gradients<S> gradients;
  begin_rows<S>(gradients, earlier, most, turn.first_sample == 0);
  backward_rows<S>(shared, gradients.scale, kept, at);
  MARK(10);
  cluster_arrive();
  ahead.go_on(args, shared, at);
  cluster_wait();
  MARK(11);
  unit_gradients<S>(gradients, shared, at);
  MARK(12);
  if (turn.first_sample + S::ROWS < sizes.batch) {
    keep_rows<S>(gradients, earlier);
    block_sync();
    return fetch_network<S>(args, shared, TARGET, at);
  }
  float biases[4];
  UNROLL
  for (int i = 0; i < 4; ++i) biases[i] = gradients.bias(i, at);
  float bias_factor = 1.0f / (gradients.scale * static_cast<float>(sizes.batch)), factor = bias_factor / INPUT_SCALE;
  int number = turn.step * sizes.updates + turn.update;
  const Step step = step_of<S>(args, shared, number);  // on its way while the norm is made
  leave_squares<S>(shared, gradients, biases, factor, bias_factor, at);
  ahead.finish(args, shared, at);
  member_sync<S>();
  MARK(13);
  Features<S> features;
  if (ahead.step >= 0) features.ask(args, shared, true, true, at);
  const Applied how = applied<S>(shared, factor, bias_factor, number, at);
  apply_held<S>(args, shared, gradients, biases, how, step, held, at);
  MARK(14);
  cluster_arrive();
  if (ahead.step >= 0) features.put(shared, true, true, at);
  cluster_wait();
  MARK(15);
  fetch_networks<S>(args, shared, at);
}

// One vector step: every lane moves a bar, then the updates.
template <class S>
DEVICE void step_together(const Args& args, float* shared, int step, Earlier<S>& earlier, Held<S>& held,
                          const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  int collects = passes_of(sizes.lanes, S::ROWS), chunks = passes_of(sizes.batch, S::ROWS);
  int passes = collects - 1 + chunks * sizes.updates, words = 3 * sizes.lanes + sizes.updates * sizes.batch;
  bool has_moved = false, is_pending = false;
  if (step + 1 < sizes.steps && 8 * at.thread < words) soon(words_of(args, sizes, step + 1) + 8 * at.thread);
  ROLLED
  for (int pass = 0; pass < passes;) {
    int later = pass - (collects - 1);
    Turn turn{step, S::ROWS * pass, later > 0 ? S::ROWS * (later % chunks) : 0, later > 0 ? later / chunks : 0,
              pass < collects && !has_moved, later >= 0};
    bool is_begun = step > 0 && later <= 0;
    if (turn.learns && turn.moves) turn.learns = is_begun && !waits_for_lanes<S>(shared, at);
    if (is_pending && !turn.moves) cluster_wait();
    is_pending = is_pending && turn.moves;
    MARK(0);
    ready_turn<S>(args, shared, turn, !turn.moves || (step > 0 && pass == 0),
                  !turn.learns || (is_begun && turn.moves), at);
    MARK(1);
    Kept<S> kept;
    forward_parts<S, 3>(shared, S::WEIGHTS, shared + S::SMALL, S::OBSERVED, S::HIDDEN1, S::OUTPUT, kept, at);
    Heard heard{};
    if (at.thread / 32 == 0) heard = listen<S>(shared, at);  // STARTS and ENDS, one warp
    int number = at.thread % S::OWN_ROWS, lane = among_all<S>(turn.first_lane, number);
    if (turn.moves && is_for<S>(LANES, at) && lane < sizes.lanes)
      move_lane<S>(args, shared, step, lane, lanes_of<S>(shared)[number], at.thread);
    if (turn.moves) {
      if (is_pending) cluster_wait();
      cluster_arrive();  // samples may be of the records just stored
      is_pending = true;
    }
    copies_done();
    block_sync();
    MARK(5);
    has_moved = turn.moves && !turn.learns && later >= 0;
    pass += !has_moved;
    if (!turn.learns) continue;
    forward_parts<S, 1>(shared, S::TARGETS, shared + S::TARGET_SMALL, S::OBSERVED + S::OBSERVED_PART,
                        S::HIDDEN1 + S::PART, S::OUTPUT_OF_TARGET, kept, at);
    MARK(6);
    bool is_last = pass == passes && step + 1 < sizes.steps;
    if (is_for<S>(STARTS, at)) judge_own<S>(shared, heard, turn.first_sample, number);
    const Ahead<S> ahead{is_last ? step + 1 : -1};
    if (is_pending) cluster_wait();
    is_pending = false;
    cluster_arrive();
    ahead.begin(args, shared, at);
    cluster_wait();
    MARK(7);
    learn_turn<S>(args, shared, turn, kept, ahead, earlier, held, at);
  }
}

// All vector steps of a launch, by the blocks of a cluster.
template <class S>
DEVICE void learn_together(const Args& args, float* shared, const Place& at) {
  static_assert(S::WARPS == S::UNIT_GROUPS && S::OWN_ROWS == 16, "each warp has 16 units of 16 rows");
  Earlier<S> earlier;
  Held<S> held;
  held.for_all(args, shared, at, [](float4& own, float4& tile) { own = tile; });
  // rows that are not ready pass through the network with the others
  for (int i = at.thread; i < 3 * S::OBSERVED_PART; i += S::THREADS) shared[S::OBSERVED + i] = 0.0f;
  for (int i = at.thread; i < 12 * S::OWN_ROWS; i += S::THREADS) shared[S::PER_ROW + i] = 0.0f;
  member_sync<S>();  // halves come to lie where the numbers came from
  UNROLL
  for (int number = 0; number < S::OWN; ++number) {
    Own own = own_tile<S>(number, at);
    if (!own.exists) continue;
    publish<S>(args, PARAMS, held.numbers[PARAMS][number], own.tile, at);
    publish<S>(args, TARGET, held.numbers[TARGET][number], own.tile, at);
  }
  member_sync<S>();
  fetch_networks<S>(args, shared, at);
  ROLLED
  for (int step = 0; step < known<S>(shared).sizes.steps; ++step)
    step_together<S>(args, shared, step, earlier, held, at);
  copies_done();
  member_sync<S>();
  held.for_all(args, shared, at, [](float4& own, float4& tile) { tile = own; });
}

}  // namespace tidewalk
