// The vector steps of a launch for one member: collect, store, sample, learn. One block each, or one cluster of blocks;
// weights stay on chip.
#pragma once

#include "update.cuh"

namespace tidewalk {

// A pair of numbers that the caller holds; zeros beyond its layer.
struct Pair {
  float* place;
  bool has_first, has_second;

  DEVICE Pair(float* weights, int units, int inputs, int unit, int input)
      : place(weights + unit * inputs + input),
        has_first(unit < units && input < inputs),
        has_second(unit < units && input + 1 < inputs) {}
};

// Brings the tiles of a hidden layer on chip and into the block's own order, or back to the caller's. All numbers of a
// tile of all networks are asked for before the first of them is written.
template <class S, bool IS_LOAD, Leaf LEAF, int FIRST, int TILES>
DEVICE void copy_layer(const Args& args, float* shared, int units, int inputs, const Place& at) {
  int unit = 16 * at.unit_group + at.group;
  long long start = static_cast<long long>(block_id()) * units * inputs;
  ROLLED
  for (int tile = at.share; tile < TILES; tile += S::SPLIT) {
    int input = 8 * tile + 2 * at.quad;
    float4 values[NETWORKS];
    UNROLL
    for (int network = 0; network < NETWORKS; ++network) {
      float* weights = args.networks[network][LEAF] + start;
      const Pair a(weights, units, inputs, unit, input), b(weights, units, inputs, unit + 8, input);
      if (IS_LOAD)
        values[network] = {a.has_first ? a.place[0] : 0.0f, a.has_second ? a.place[1] : 0.0f,
                           b.has_first ? b.place[0] : 0.0f, b.has_second ? b.place[1] : 0.0f};
      else
        values[network] = tiles_of<S>(args, shared, network)[(FIRST + tile) * S::SPAN + at.slot];
    }
    UNROLL
    for (int network = 0; network < NETWORKS; ++network) {
      float* weights = args.networks[network][LEAF] + start;
      const Pair a(weights, units, inputs, unit, input), b(weights, units, inputs, unit + 8, input);
      float4& own = tiles_of<S>(args, shared, network)[(FIRST + tile) * S::SPAN + at.slot];
      if (IS_LOAD) own = values[network];
      if (!IS_LOAD && a.has_first) a.place[0] = values[network].x;
      if (!IS_LOAD && a.has_second) a.place[1] = values[network].y;
      if (!IS_LOAD && b.has_first) b.place[0] = values[network].z;
      if (!IS_LOAD && b.has_second) b.place[1] = values[network].w;
    }
  }
}

// The same for the tiles of the output layer and of the biases, by share 0.
template <class S, bool IS_LOAD>
DEVICE void copy_small(const Args& args, float* shared, const Place& at) {
  ROLLED
  for (int i = 0; i < 8; ++i) {
    int tile = S::BIG_TILES + i / 4, number = i % 4;
    Spot spot = caller_spot<S>(known<S>(shared).sizes, tile, number, at);
    UNROLL
    for (int network = 0; network < NETWORKS; ++network) {
      float* own = reinterpret_cast<float*>(tiles_of<S>(args, shared, network) + tile * S::SPAN + at.slot) + number;
      if (network < MOMENT1)
        own = small_number<S>(shared + (network == PARAMS ? S::SMALL : S::TARGET_SMALL), tile, number, at);
      float* theirs = spot.index < 0 ? nullptr : leaf_of(args, network, spot.leaf) + spot.index;
      if (IS_LOAD && own != nullptr) *own = theirs == nullptr ? 0.0f : *theirs;
      if (IS_LOAD && network < MOMENT1 && is_sent<S>(own, tile, at)) send_others<S>(own, *own);
      if (!IS_LOAD && theirs != nullptr) *theirs = *own;
    }
  }
}

template <class S, bool IS_LOAD>
DEVICE void copy_networks(const Args& args, float* shared, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  copy_layer<S, IS_LOAD, WEIGHT1, 0, S::IN_TILES>(args, shared, sizes.hidden1, sizes.seen + sizes.positions, at);
  copy_layer<S, IS_LOAD, WEIGHT2, S::IN_TILES, S::HIDDEN_TILES>(args, shared, sizes.hidden2, sizes.hidden1, at);
  if (at.share == 0) copy_small<S, IS_LOAD>(args, shared, at);
}

// Kinds of forward pass. The rows of a batch pass three times: the online network selects at the final observation, the
// target network values there, and the online network learns at the first observation.
enum Kind { COLLECT, SELECT, VALUE, LEARN };

DEVICE int passes_of(int count, int rows) { return (count + rows - 1) / rows; }

// One forward pass of a vector step.
struct Pass {
  Kind kind;
  int first, update;  // first row, and the update of this vector step that the pass belongs to

  DEVICE Pass(const Sizes& sizes, int number, int rows) {
    int collects = passes_of(sizes.lanes, rows), chunks = passes_of(sizes.batch, rows);
    int later = number - collects, chunk = later / 3;
    bool is_collect = later < 0;
    kind = is_collect ? COLLECT : static_cast<Kind>(SELECT + later % 3);
    first = rows * (is_collect ? number : chunk % chunks);
    update = is_collect ? 0 : chunk / chunks;
  }
};

DEVICE int count_passes(const Sizes& sizes, int rows) {
  return passes_of(sizes.lanes, rows) + 3 * passes_of(sizes.batch, rows) * sizes.updates;
}

// Adds the verdict on this thread's row to SUMS, those of a warp together.
template <class S>
DEVICE void add_to_sums(float* shared, const Verdict& verdict, const Place& at) {
  float loss = warp_sum(verdict.loss), q = warp_sum(verdict.action_values);
  if (at.thread % 32 != 0) return;
  shared[S::SUMS + 4 * at.warp] += loss;
  shared[S::SUMS + 4 * at.warp + 1] += q;
}

// Loss and action values of this thread's row into SUMS, and the gradient at its outputs.
template <class S>
DEVICE void judge_row(float* shared, const Row& row, float aim, bool is_drawn, const Place& at) {
  const Known& by_heart = known<S>(shared);
  float q[S::OUT];
  action_values<S>(shared, shared + S::SMALL, at.thread, q);
  const Verdict verdict = judge(by_heart, row, aim, said<S>(q, row.action, by_heart.sizes.positions), is_drawn);
  const OutputGradient gradient(verdict, by_heart.sizes);
  UNROLL
  for (int i = 0; i < S::OUT; ++i) shared[S::OUTPUT_GRADIENT + at.thread * S::OUT + i] = gradient.at(i);
  float most = warp_most(fabsf(verdict.gradient));
  add_to_sums<S>(shared, verdict, at);
  if (at.thread % 32 == 0) shared[S::SUMS + 4 * at.warp + 2] = most;
}

// Gradients of the parts of a batch before this one; in memory, so that a batch of one part needs no room for them.
template <class S>
struct Earlier {
  volatile float numbers[Gradients<S>::COUNT];
  float scale;
};

// Makes ready for the gradients of one more part of a batch, the largest of a row being `most`.
template <class S>
DEVICE void begin_rows(Gradients<S>& gradients, const Earlier<S>& earlier, float most, bool is_first) {
  gradients.scale = gradient_scale(most);
  float factor = is_first ? 0.0f : gradients.scale / earlier.scale;
  int place = 0;
  gradients.for_all([&](float& number) { number = is_first ? 0.0f : factor * earlier.numbers[place++]; });
}

template <class S>
DEVICE void keep_rows(Gradients<S>& gradients, Earlier<S>& earlier) {
  int place = 0;
  gradients.for_all([&](float& number) { earlier.numbers[place++] = number; });
  earlier.scale = gradients.scale;
}

// The random words of a vector step: three for each lane, then those of the samples of its updates.
DEVICE const unsigned* words_of(const Args& args, const Sizes& sizes, int step) {
  int per_step = 3 * sizes.lanes + sizes.updates * sizes.batch;
  return args.words + (static_cast<long long>(step) * sizes.members + block_id()) * per_step;
}

// The first rows of a vector step are made ready while the step before it goes on, by warps that have nothing else to
// do: threads 2 ROWS and on place its lanes, threads ROWS and on draw the rows of its first update.
// First part: the lanes, and which records the samples are of. A sample that ends with the newest record waits for it.
template <class S>
DEVICE void begin_step(const Args& args, float* shared, int step, const Place& at) {
  static_assert(S::THREADS >= 3 * S::ROWS, "tasks");
  const Sizes& sizes = known<S>(shared).sizes;
  const unsigned* words = words_of(args, sizes, step);
  int number = at.thread % S::ROWS, task = at.thread / S::ROWS;
  if (task == 2) place_lane<S>(args, shared, step, number, words, lanes_of<S>(shared)[number]);
  if (task != 1) return;
  Row& row = rows_of<S>(shared)[number];
  draw_row<S>(sizes, row, words[3 * sizes.lanes + (number < sizes.batch ? number : 0)], sizes.clock + step + 1, true);
  if (row.slot >= 0) fetch_records<S>(args, sizes, mail_of<S>(shared), row, number, 0);
}

// Second part, once the records have had time to come: which bars they tell of.
template <class S>
DEVICE void continue_step(const Args& args, float* shared, const Place& at) {
  int number = at.thread % S::ROWS;
  if (at.thread / S::ROWS == 1 && rows_of<S>(shared)[number].slot >= 0)
    fetch_bars<S>(args, known<S>(shared).sizes, mail_of<S>(shared), number, 0);
}

// Samples of a pass. Those of a step that was begun before it are finished while it collects, by the warps that drew
// them; one that waits is given a bar that exists, and drawn again once its last record is there.
template <class S>
DEVICE void ready_samples(const Args& args, float* shared, int step, const Pass& pass, bool was_begun,
                          const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  bool is_early = pass.kind == COLLECT;
  int number = at.thread % S::ROWS, drawn = pass.first + number;
  if (at.thread / S::ROWS != (is_early ? 1 : 0)) return;
  Row& row = rows_of<S>(shared)[number];
  bool is_waiting = was_begun && row.slot < 0;
  if (is_waiting && is_early) row.bar = row.final_bar = known<S>(shared).train[0];
  if (was_begun && is_waiting == is_early) return;
  if (!is_early) {
    const unsigned* words = words_of(args, sizes, step) + 3 * sizes.lanes + pass.update * sizes.batch;
    draw_row<S>(sizes, row, words[drawn < sizes.batch ? drawn : pass.first], sizes.clock + step + 1, false);
    fetch_records<S>(args, sizes, mail_of<S>(shared), row, number, 0);
    fetch_bars<S>(args, sizes, mail_of<S>(shared), number, 0);
  }
  finish_row<S>(args, shared, number);
  if (is_waiting) fetch_row<S>(args, shared, rows_of<S>(shared), number, true);
}

// Rows of a pass, and their features where nobody asked for them before it.
template <class S>
DEVICE void ready_rows(const Args& args, float* shared, int step, const Pass& pass, const Place& at) {
  bool is_collect = pass.kind == COLLECT, was_begun = step > 0 && pass.first == 0 && pass.update == 0;
  if (is_collect && !was_begun && at.thread < S::ROWS) {
    const unsigned* words = words_of(args, known<S>(shared).sizes, step);
    place_lane<S>(args, shared, step, pass.first + at.thread, words, lanes_of<S>(shared)[at.thread]);
  }
  if (pass.kind == SELECT || (is_collect && was_begun)) ready_samples<S>(args, shared, step, pass, was_begun, at);
  if (was_begun || pass.kind == VALUE || pass.kind == LEARN) return;
  block_sync();
  fetch_features<S>(args, shared, is_collect ? lanes_of<S>(shared) : rows_of<S>(shared), !is_collect, at);
}

// Observations of a pass into OBSERVED, for all threads on return; then RAW is asked for what is seen next, where that
// is known.
template <class S>
DEVICE void observe_pass(const Args& args, float* shared, const Pass& pass, bool is_last_collect, const Place& at) {
  const Row* rows = pass.kind == COLLECT ? lanes_of<S>(shared) : rows_of<S>(shared);
  copies_done();
  block_sync();
  MARK(pass.kind == COLLECT ? 0 : pass.kind == LEARN ? 2 : 1);
  observe<S>(args, shared, rows, pass.kind == SELECT || pass.kind == VALUE, at);
  block_sync();
  MARK(3);
  if (is_last_collect || pass.kind == SELECT || pass.kind == VALUE)
    fetch_features<S>(args, shared, rows_of<S>(shared), is_last_collect, at);
}

// One part of a batch, whose forward pass was the last: adds its gradients, and applies them after the last part.
template <class S>
DEVICE void learn_rows(const Args& args, float* shared, int step, const Pass& pass, Earlier<S>& earlier,
                       bool is_last, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  Gradients<S> gradients;
  float most = 0.0f;
  UNROLL
  for (int warp = 0; warp < S::ROWS / 32; ++warp) most = fmaxf(most, shared[S::SUMS + 4 * warp + 2]);
  begin_rows<S>(gradients, earlier, most, pass.first == 0);
  backward<S>(gradients, shared, at);
  MARK(7);
  if (pass.first + S::ROWS < sizes.batch) return keep_rows<S>(gradients, earlier);
  if (is_last) continue_step<S>(args, shared, at);
  apply<S>(args, shared, gradients, step * sizes.updates + pass.update, at);
  MARK(8);
}

// One vector step: every lane moves a bar, then the updates. `is_behind` says whether the hidden layers of a soft
// target network have yet to follow the last update.
template <class S>
DEVICE void vector_step(const Args& args, float* shared, int step, Earlier<S>& earlier, bool& is_behind,
                        const Place& at) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  int passes = count_passes(sizes, S::ROWS), collects = passes_of(sizes.lanes, S::ROWS);
  bool has_row = at.thread < S::ROWS, is_double = sizes.flags & DOUBLE;
  const Row& row = rows_of<S>(shared)[has_row ? at.thread : 0];
  float4* online = reinterpret_cast<float4*>(shared + S::WEIGHTS) + at.slot;
  float4* targets = tiles_of<S>(args, shared, TARGET) + at.slot;
  int chosen = -1, words = 3 * sizes.lanes + sizes.updates * sizes.batch;
  float aim = 0.0f;
  if (step + 1 < sizes.steps && 8 * at.thread < words) soon(words_of(args, sizes, step + 1) + 8 * at.thread);
  ROLLED
  for (int number = 0; number < passes; ++number) {
    const Pass pass(sizes, number, S::ROWS);
    bool is_value = pass.kind == VALUE, is_last = number + 1 == passes && step + 1 < sizes.steps;
    ready_rows<S>(args, shared, step, pass, at);
    if (pass.kind == SELECT && !is_double) continue;
    if (!is_value || !is_double)
      observe_pass<S>(args, shared, pass, number + 1 == collects && step > 0, at);
    else if (S::STAGE == S::OUTPUT)
      block_sync();  // the stage of the target network lies where outputs were
    const float* small = shared + (is_value ? S::TARGET_SMALL : S::SMALL);
    if (is_value)
      forward<S>(shared, Target<S>(targets, is_behind ? online : nullptr, by_heart.own.tau, shared, at), small, at);
    else
      forward<S>(shared, Online<S>{online}, small, at);
    if (is_value) is_behind = false;
    MARK(is_value ? 5 : 4);
    if (pass.kind == COLLECT) {
      if (has_row && pass.first + at.thread < sizes.lanes)
        move_lane<S>(args, shared, step, pass.first + at.thread, lanes_of<S>(shared)[at.thread], at.thread);
      copies_done();  // before rows that waited are copied once more
      block_sync();   // samples may be of the records just stored
      MARK(9);
    }
    if (pass.kind == SELECT && has_row) chosen = select<S>(shared, small, row, at.thread);
    if (is_value && has_row) aim = bootstrap<S>(shared, small, row, chosen, at.thread);
    if (pass.kind != LEARN) continue;
    if (has_row) judge_row<S>(shared, row, aim, pass.first + at.thread < sizes.batch, at);
    if (is_last) begin_step<S>(args, shared, step + 1, at);
    block_sync();
    if (is_last) fetch_features<S>(args, shared, lanes_of<S>(shared), false, at);
    MARK(6);
    learn_rows<S>(args, shared, step, pass, earlier, is_last, at);
    if (pass.first + S::ROWS >= sizes.batch) is_behind = sizes.flags & SOFT;
  }
}

// All vector steps of a launch, by one block.
template <class S>
DEVICE void learn_alone(const Args& args, float* shared, const Place& at) {
  const Known& by_heart = known<S>(shared);
  Earlier<S> earlier;
  bool is_behind = false;
  ROLLED
  for (int step = 0; step < by_heart.sizes.steps; ++step) vector_step<S>(args, shared, step, earlier, is_behind, at);
  if (is_behind) move_target<S>(args, shared, by_heart.own.tau, at);
}

}  // namespace tidewalk
