// The vector steps of a launch for one member: collect, store, sample, learn. One block each; weights stay on chip.
#pragma once

#include "update.cuh"

namespace tidewalk {

// Where the block holds a number of a tile of a network; null for padding that has no place.
template <class S>
DEVICE float* own_place(const Args& args, float* shared, int network, int tile, int i, const Place& at) {
  int place = 4 * (tile * S::THREADS + at.slot) + i;
  if (network < MOMENT1 && tile >= S::BIG_TILES)
    return small_number<S>(shared + (network == PARAMS ? S::SMALL : S::TARGET_SMALL), tile, i, at);
  if (network == PARAMS) return shared + S::WEIGHTS + place;
  return reinterpret_cast<float*>(scratch_of<S>(args, static_cast<Network>(network))) + place;
}

// Brings the networks of the member on chip and into the block's own order, or back to the caller's. All numbers of a
// tile are asked for before the first of them is written.
template <class S>
DEVICE void copy_networks(const Args& args, float* shared, bool is_load, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  ROLLED
  for (int tile = 0; tile < S::TILES; ++tile) {
    float values[4][NETWORKS];
    UNROLL
    for (int i = 0; i < 4; ++i) {
      Spot spot = caller_spot<S>(sizes, tile, i, at);
      UNROLL
      for (int network = 0; network < NETWORKS; ++network) {
        const float* from = own_place<S>(args, shared, network, tile, i, at);
        if (is_load) from = spot.index < 0 ? nullptr : args.networks[network][spot.leaf] + spot.index;
        values[i][network] = from == nullptr ? 0.0f : *from;
      }
    }
    UNROLL
    for (int i = 0; i < 4; ++i) {
      Spot spot = caller_spot<S>(sizes, tile, i, at);
      UNROLL
      for (int network = 0; network < NETWORKS; ++network) {
        float* to = own_place<S>(args, shared, network, tile, i, at);
        if (!is_load) to = spot.index < 0 ? nullptr : args.networks[network][spot.leaf] + spot.index;
        if (to != nullptr) *to = values[i][network];
      }
    }
  }
}

// Kinds of forward pass. The rows of a batch pass three times: the online network selects at the final observation, the
// target network values there, and the online network learns at the first observation.
enum Kind { COLLECT, SELECT, VALUE, LEARN };

// One forward pass of a vector step.
struct Pass {
  Kind kind;
  int first, update;  // first row, and the update of this vector step that the pass belongs to

  DEVICE Pass(const Sizes& sizes, int number, int rows) {
    int collects = (sizes.lanes + rows - 1) / rows, chunks = (sizes.batch + rows - 1) / rows;
    int later = number - collects, chunk = later / 3;
    bool is_collect = later < 0;
    kind = is_collect ? COLLECT : static_cast<Kind>(SELECT + later % 3);
    first = rows * (is_collect ? number : chunk % chunks);
    update = is_collect ? 0 : chunk / chunks;
  }
};

DEVICE int count_passes(const Sizes& sizes, int rows) {
  int chunks = (sizes.batch + rows - 1) / rows;
  return (sizes.lanes + rows - 1) / rows + 3 * chunks * sizes.updates;
}

// Loss and action values of this thread's row into SUMS, and the gradient at its outputs.
template <class S>
DEVICE void judge_row(float* shared, const Row& row, float aim, bool is_drawn, const Place& at) {
  Judged judged = output_gradient<S>(shared, row, aim, is_drawn, at.thread);
  float loss = warp_sum(judged.loss), q = warp_sum(judged.action_values), most = warp_most(judged.gradient);
  if (at.thread % 32 != 0) return;
  float* sums = shared + S::SUMS + 4 * at.warp;
  sums[0] += loss;
  sums[1] += q;
  sums[2] = most;
}

// Makes ready for the gradients of one more part of a batch.
template <class S>
DEVICE void begin_rows(Gradients<S>& gradients, const float* shared, bool is_first) {
  float most = 0.0f;
  UNROLL
  for (int warp = 0; warp < S::ROWS / 32; ++warp) most = fmaxf(most, shared[S::SUMS + 4 * warp + 2]);
  float scale = gradient_scale(most);
  if (is_first) return gradients.clear(scale);
  if (scale == gradients.scale) return;
  gradients.multiply_all(scale / gradients.scale);
  gradients.scale = scale;
}

// One vector step: every lane moves a bar, then the updates. `is_behind` says whether the hidden layers of a soft
// target network have yet to follow the last update.
template <class S>
DEVICE void vector_step(const Args& args, float* shared, int step, Gradients<S>& gradients, bool& is_behind,
                        const Place& at) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  int per_step = 3 * sizes.lanes + sizes.updates * sizes.batch, passes = count_passes(sizes, S::ROWS);
  const unsigned* words = args.words + (static_cast<long long>(step) * sizes.members + block_id()) * per_step;
  bool has_row = at.thread < S::ROWS, is_double = sizes.flags & DOUBLE;
  Row& row = rows_of<S>(shared)[has_row ? at.thread : 0];
  float4* online = reinterpret_cast<float4*>(shared + S::WEIGHTS) + at.slot;
  float4* target = scratch_of<S>(args, TARGET) + at.slot;
  if (step + 1 < sizes.steps && 8 * at.thread < per_step)
    soon(words + static_cast<long long>(sizes.members) * per_step + 8 * at.thread);
  int chosen = -1;
  float aim = 0.0f;
  ROLLED
  for (int number = 0; number < passes; ++number) {
    const Pass pass(sizes, number, S::ROWS);
    const unsigned* drawn = words + 3 * sizes.lanes + pass.update * sizes.batch;
    bool is_drawn = has_row && pass.first + at.thread < sizes.batch, is_value = pass.kind == VALUE;
    if (pass.kind == COLLECT && has_row) place_lane<S>(args, shared, step, pass.first + at.thread, words, row);
    if (pass.kind == SELECT && has_row)
      sample_row<S>(args, shared, row, drawn[is_drawn ? pass.first + at.thread : pass.first], sizes.clock + step + 1);
    if (pass.kind == SELECT && !is_double) continue;
    block_sync();
    MARK(pass.kind == COLLECT ? 0 : pass.kind == SELECT ? 1 : 2);
    if (!is_value || !is_double) observe<S>(args, shared, pass.kind == SELECT || is_value, at);
    block_sync();
    MARK(3);
    const float* small = shared + (is_value ? S::TARGET_SMALL : S::SMALL);
    bool follows = is_value && is_behind;
    forward<S>(shared, is_value ? target : online, small, Follow{follows ? online : nullptr, by_heart.own.tau}, at);
    if (follows) is_behind = false;
    MARK(is_value ? 5 : 4);
    if (pass.kind == COLLECT) {
      if (has_row && pass.first + at.thread < sizes.lanes)
        move_lane<S>(args, shared, step, pass.first + at.thread, row, at.thread);
      block_sync();  // samples may be of the records just stored
      MARK(9);
    }
    if (pass.kind == SELECT && has_row) chosen = select<S>(shared, small, row, at.thread);
    if (is_value && has_row) aim = bootstrap<S>(shared, small, row, chosen, at.thread);
    if (pass.kind != LEARN) continue;
    if (has_row) judge_row<S>(shared, row, aim, is_drawn, at);
    block_sync();
    MARK(6);
    begin_rows<S>(gradients, shared, pass.first == 0);
    backward<S>(gradients, shared, at);
    MARK(7);
    if (pass.first + S::ROWS < sizes.batch) continue;
    apply<S>(args, shared, gradients, step * sizes.updates + pass.update, at);
    is_behind = sizes.flags & SOFT;
    MARK(8);
  }
}

// What a block keeps by heart; complete for all threads on return.
template <class S>
DEVICE void learn_by_heart(const Args& args, float* shared, const Place& at) {
  int member = block_id(), count = args.sizes->positions;
  int tables = 2 * FLAG_WORDS * count + (4 * count + 1) * count;
  Known* by_heart = reinterpret_cast<Known*>(shared + S::KNOWN);
  if (at.thread == 0) {
    by_heart->sizes = *args.sizes;
    by_heart->reals = *args.reals;
    by_heart->own = args.per_member[member];
    by_heart->train[0] = args.train[2 * member];
    by_heart->train[1] = args.train[2 * member + 1];
  }
  int* own_tables = reinterpret_cast<int*>(shared + S::TABLES);
  for (int i = at.thread; i < tables; i += S::THREADS) own_tables[i] = args.tables[i];
  for (int i = at.thread; i < 2 * S::D; i += S::THREADS) shared[S::CENTER + i] = args.scaler[member * 2 * S::D + i];
  for (int i = at.thread; i < 32; i += S::THREADS) shared[S::SUMS + i] = 0.0f;
  block_sync();
}

template <class S>
DEVICE void learn_member(const Args& args, float* shared) {
  const Place at = place();
  learn_by_heart<S>(args, shared, at);
  copy_networks<S>(args, shared, true, at);
  block_sync();
  const Known& by_heart = known<S>(shared);
  Gradients<S> gradients;
  gradients.clear(1.0f);
  bool is_behind = false;
  ROLLED
  for (int step = 0; step < by_heart.sizes.steps; ++step)
    vector_step<S>(args, shared, step, gradients, is_behind, at);
  if (is_behind) move_target<S>(args, shared, by_heart.own.tau, at);
  block_sync();
  copy_networks<S>(args, shared, false, at);
  if (at.thread != 0) return;
  float loss = 0.0f, q = 0.0f, rows = static_cast<float>(by_heart.sizes.batch);
  for (int warp = 0; warp < S::ROWS / 32; ++warp) {
    loss += shared[S::SUMS + 4 * warp];
    q += shared[S::SUMS + 4 * warp + 1];
  }
  args.loss[block_id()] = loss / rows;
  args.q_mean[block_id()] = q / (rows * static_cast<float>(by_heart.sizes.positions));
}

}  // namespace tidewalk
