// All that a launch does for one member.
#pragma once

#include "learn.cuh"
#include "together.cuh"

namespace tidewalk {

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
  for (int i = at.thread; i < 16; i += S::THREADS) shared[S::SUMS + i] = 0.0f;
  block_sync();
}

template <class S>
DEVICE void learn_member(const Args& args, float* shared) {
  const Place at = place<S>();
  learn_by_heart<S>(args, shared, at);
  member_sync<S>();  // nothing is sent to a block that has not begun
  copy_networks<S, true>(args, shared, at);
  member_sync<S>();
  if constexpr (S::CLUSTER == 1)
    learn_alone<S>(args, shared, at);
  else
    learn_together<S>(args, shared, at);
  member_sync<S>();  // nothing is sent to a block that has ended
  copy_networks<S, false>(args, shared, at);
  if (at.thread != 0 || rank_of<S>() != 0) return;
  const Known& by_heart = known<S>(shared);
  float loss = 0.0f, q = 0.0f, rows = static_cast<float>(by_heart.sizes.batch);
  for (int warp = 0; warp < S::ROWS / 32; ++warp) {
    loss += shared[S::SUMS + 4 * warp];
    q += shared[S::SUMS + 4 * warp + 1];
  }
  args.loss[block_id()] = loss / rows;
  args.q_mean[block_id()] = q / (rows * static_cast<float>(by_heart.sizes.positions));
}

}  // namespace tidewalk
