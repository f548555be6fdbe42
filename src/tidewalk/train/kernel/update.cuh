// One update of a member: TD errors and their gradient, clipping by the global norm, Adam, and the target network.
#pragma once

#include "backward.cuh"
#include "world.cuh"

namespace tidewalk {

constexpr float KEEP1 = 0.9f, TAKE1 = 0.1f, KEEP2 = 0.999f, TAKE2 = 0.001f;  // Adam's decays

// Best allowed action at the row's final observation, by the network whose outputs were just computed.
template <class S>
DEVICE int select(const float* shared, const float* small, const Row& row, int thread) {
  float q[S::OUT];
  action_values<S>(shared, small, thread, q);
  return best_within<S>(q, row);
}

// Target of a row: its reward and what the target network, whose outputs were just computed, says of the action
// `chosen` at the final observation; where that is below 0, of the one that it chooses itself.
template <class S>
DEVICE float bootstrap(const float* shared, const float* small, const Row& row, int chosen, int thread) {
  float q[S::OUT], value = 0.0f;
  action_values<S>(shared, small, thread, q);
  int count = known<S>(shared).sizes.positions;
  if (chosen < 0) chosen = best_within<S>(q, row);
  UNROLL
  for (int action = 0; action < S::OUT; ++action)
    value += action < count ? q[action] * (action == chosen ? 1.0f : 0.0f) : 0.0f;
  return row.reward + row.discount * value;
}

// What a row adds to the sums of its batch.
struct Judged {
  float loss, action_values, gradient;
};

// Writes the gradient of the loss of a row at its output units.
template <class S>
DEVICE Judged output_gradient(float* shared, const Row& row, float aim, bool is_drawn, int thread) {
  const Sizes& sizes = known<S>(shared).sizes;
  float q[S::OUT], taken = 0.0f, total = 0.0f;
  action_values<S>(shared, shared + S::SMALL, thread, q);
  int action = row.action, count = sizes.positions;
  UNROLL
  for (int i = 0; i < S::OUT; ++i) {
    taken += i < count ? q[i] * (i == action ? 1.0f : 0.0f) : 0.0f;
    total += i < count ? q[i] : 0.0f;
  }
  float error = aim - taken, size = fabsf(error), delta = known<S>(shared).reals.huber_delta;
  float within = size < delta ? size : (size != size ? size : delta);
  float slope = size < delta ? error : (error > 0.0f ? delta : error < 0.0f ? -delta : error);
  float gradient = is_drawn ? -slope : 0.0f;
  bool is_duelling = sizes.flags & DUELLING;
  float share = quotient(gradient, static_cast<float>(count));
  float* out = shared + S::OUTPUT_GRADIENT + thread * S::OUT;
  UNROLL
  for (int i = 0; i < S::OUT; ++i) {
    float plain = i == action ? gradient : 0.0f;
    float advantage = i == 0 ? gradient : (i <= count ? (i - 1 == action ? gradient : 0.0f) - share : 0.0f);
    out[i] = is_duelling ? advantage : plain;
  }
  if (!is_drawn) return {0.0f, 0.0f, 0.0f};
  return {0.5f * within * within + delta * (size - within), total, fabsf(gradient)};
}

// Power of two by which the gradients of a block's rows are scaled: the largest of a row, of size `most`, comes to lie
// between 8 and 16. What is smaller by 2^-20 or more loses digits, and adds nothing that shows.
DEVICE float gradient_scale(float most) {
  int exponent = bits_of(most) >> 23 & 0xff;
  return exponent < 64 || exponent > 190 ? 1.0f : float_of((254 + 3 - exponent) << 23);
}

struct Step {
  float lr, correction1, correction2, eps;
};

// Adam for one number; its moments and the weight change in place.
DEVICE void adam(float& weight, float& first, float& second, float gradient, const Step& step) {
  first = TAKE1 * gradient + KEEP1 * first;
  second = TAKE2 * (gradient * gradient) + KEEP2 * second;
  float direction = quotient(first * step.correction1, root(second * step.correction2) + step.eps);
  weight -= step.lr * direction;
}

DEVICE void adam(float4& weight, float4& first, float4& second, const float (&gradient)[4], float factor,
                 const Step& step) {
  adam(weight.x, first.x, second.x, factor * gradient[0], step);
  adam(weight.y, first.y, second.y, factor * gradient[1], step);
  adam(weight.z, first.z, second.z, factor * gradient[2], step);
  adam(weight.w, first.w, second.w, factor * gradient[3], step);
}

// Moments of a few of the warp's own tiles, on their way from device memory while others are worked on.
template <class S>
struct Moments {
  static constexpr int AHEAD = 4;
  float4 *first, *second;  // the thread's own tiles
  float4 coming1[AHEAD], coming2[AHEAD];

  DEVICE Moments(const Args& args, float* shared, const Place& at)
      : first(tiles_of<S>(args, shared, MOMENT1) + at.slot), second(tiles_of<S>(args, shared, MOMENT2) + at.slot) {
    UNROLL
    for (int number = 0; number < AHEAD; ++number) ask(number, at);
  }

  DEVICE void ask(int number, const Place& at) {
    Own own = own_tile<S>(number, at);
    if (number >= S::OWN + 2 || !own.exists) return;
    coming1[number % AHEAD] = first[own.tile * S::SPAN];
    coming2[number % AHEAD] = second[own.tile * S::SPAN];
  }

  DEVICE void take(int number, float4& one, float4& two, const Place& at) {
    one = coming1[number % AHEAD];
    two = coming2[number % AHEAD];
    ask(number + AHEAD, at);
  }

  DEVICE void give(int, const Own& own, const float4& one, const float4& two) {
    first[own.tile * S::SPAN] = one;
    second[own.tile * S::SPAN] = two;
  }
};

// Moments of the warp's own tiles: in registers for a whole launch where a cluster shares the member, else of none.
template <class S, bool = (S::CLUSTER > 1)>
struct HeldMoments {
  DEVICE void load(const Args&, float*, const Place&) {}
  DEVICE void store(const Args&, float*, const Place&) {}
};

template <class S>
struct HeldMoments<S, true> {
  float4 first[S::OWN + 2], second[S::OWN + 2];

  template <class Use>
  DEVICE void for_all(const Args& args, float* shared, const Place& at, Use use) {
    UNROLL
    for (int number = 0; number < S::OWN + 2; ++number) {
      Own own = own_tile<S>(number, at);
      int place = own.tile * S::SPAN + at.slot;
      if (!own.exists) continue;
      use(first[number], tiles_of<S>(args, shared, MOMENT1)[place]);
      use(second[number], tiles_of<S>(args, shared, MOMENT2)[place]);
    }
  }

  DEVICE void load(const Args& args, float* shared, const Place& at) {
    for_all(args, shared, at, [](float4& own, float4& tile) { own = tile; });
  }

  DEVICE void store(const Args& args, float* shared, const Place& at) {
    for_all(args, shared, at, [](float4& own, float4& tile) { tile = own; });
  }

  DEVICE void take(int number, float4& one, float4& two, const Place&) {
    one = first[number];
    two = second[number];
  }

  DEVICE void give(int number, const Own&, const float4& one, const float4& two) {
    first[number] = one;
    second[number] = two;
  }
};

template <class S>
DEVICE HeldMoments<S, true>& moments_of(const Args&, float*, HeldMoments<S, true>& held, const Place&) {
  return held;
}

template <class S>
DEVICE Moments<S> moments_of(const Args& args, float* shared, HeldMoments<S, false>&, const Place& at) {
  return Moments<S>(args, shared, at);
}

// Output weights or biases, and their targets, which live on chip.
template <class S>
DEVICE void apply_small(float* shared, int tile, float4& first, float4& second, const float (&gradient)[4],
                        float factor, const Step& step, float share, const Place& at) {
  float *firsts[4] = {&first.x, &first.y, &first.z, &first.w};
  float *seconds[4] = {&second.x, &second.y, &second.z, &second.w};
  UNROLL
  for (int i = 0; i < 4; ++i) {
    float* weight = small_number<S>(shared + S::SMALL, tile, i, at);
    if (weight == nullptr) continue;
    adam(*weight, *firsts[i], *seconds[i], factor * gradient[i], step);
    float& target = weight[S::TARGET_SMALL - S::SMALL];
    if (share == 1.0f)
      target = *weight;
    else if (share > 0.0f)
      follow(target, *weight, share);
    if (tile == S::BIG_TILES || i > 1 || at.quad > 0) continue;
    send_others<S>(weight, *weight);  // biases of the first layer
    send_others<S>(&target, target);
  }
}

// How the gradients of weights and those of biases are scaled, and by what share the targets on chip follow.
struct Factors {
  float weights, biases, share;
};

template <class S, class Source>
DEVICE void apply_tiles(float* shared, const Gradients<S>& gradients, const float (&biases)[4], const Factors& factors,
                        Source& moments, const Step& step, const Place& at) {
  float4* weights = reinterpret_cast<float4*>(shared + S::WEIGHTS);
  UNROLL
  for (int number = 0; number < S::OWN + 2; ++number) {
    Own own = own_tile<S>(number, at);
    float4 first, second;
    moments.take(number, first, second, at);
    if (!own.exists) continue;
    int place = own_place<S>(own.tile, true, at);
    if (number < S::OWN) {
      float4 weight = weights[place];
      adam(weight, first, second, gradients.hidden[number < S::OWN ? number : 0], factors.weights, step);
      weights[place] = weight;
      if (number < S::OWN_IN)
        send_others<S>(weights + place, weight);
      else
        send_weights<S>(shared, own.tile, weight, at);
    } else if (number == S::OWN) {
      apply_small<S>(shared, own.tile, first, second, gradients.output, factors.weights, step, factors.share, at);
    } else {
      apply_small<S>(shared, own.tile, first, second, biases, factors.biases, step, factors.share, at);
    }
    moments.give(number, own, first, second);
  }
}

DEVICE float square(float value) { return value * value; }

// Leaves the sums of squares of the warp's gradients in the NORMS of all that share the member: [unit group, class of
// tiles]. The small tiles are of class 0; the biases of the outputs, which all blocks know, are counted by one.
template <class S>
DEVICE void leave_squares(float* shared, const Gradients<S>& gradients, const float (&biases)[4], float factor,
                          float bias_factor, const Place& at) {
  constexpr int COUNT = S::CLASSES / S::SPLIT;
  float sums[COUNT] = {};
  UNROLL
  for (int i = 0; i < 4; ++i)
    if (at.share == 0) {
      float bias = at.quad == 0 || at.unit_group == 0 ? biases[i] : 0.0f;
      sums[0] += square(bias_factor * bias) + square(factor * gradients.output[i]);
    }
  UNROLL
  for (int number = 0; number < S::OWN; ++number)
    UNROLL
    for (int i = 0; i < 4; ++i)
      sums[(number < S::OWN_IN ? number : number - S::OWN_IN) % COUNT] += square(factor * gradients.hidden[number][i]);
  UNROLL
  for (int i = 0; i < COUNT; ++i) {
    float sum = warp_sum(sums[i]);
    float* place = shared + S::NORMS + S::CLASSES * at.unit_group + S::SPLIT * i + at.share;
    if (at.thread % 32 == 0) send_all<S>(place, sum);
  }
}

DEVICE void move_tile(float4& target, const float4& weight, float share) {
  if (share == 1.0f)
    target = weight;
  else
    follow(target, weight, share);
}

// Moves the hidden layers of the target network, all at once: by a share of the way, or the whole way. In a cluster
// only the second of them.
template <class S>
DEVICE void move_target(const Args& args, float* shared, float share, const Place& at) {
  constexpr int FIRST = S::CLUSTER > 1 ? S::OWN_IN : 0, AT_ONCE = S::CLUSTER > 1 ? 4 : 1;
  float4* targets = tiles_of<S>(args, shared, TARGET);
  const float4* weights = tiles_of<S>(args, shared, PARAMS);
  _Pragma("unroll AT_ONCE") for (int number = FIRST; number < S::OWN; ++number) {
    Own own = own_tile<S>(number, at);
    int place = own_place<S>(own.tile, true, at);
    if (own.exists) move_tile(targets[place], weights[place], share);
  }
}

// Moves the first layer of the target network, as every block of a cluster knows it.
template <class S>
DEVICE void move_first_layer(const Args& args, float* shared, float share) {
  using All = FirstLayer<S>;
  const Place at = place<All>();
  float4* targets = tiles_of<S>(args, shared, TARGET) + at.slot;
  const float4* weights = tiles_of<S>(args, shared, PARAMS) + at.slot;
  _Pragma("unroll 2") for (int tile = at.share; tile < S::IN_TILES; tile += All::SPLIT)
    move_tile(targets[tile * S::IN_SPAN], weights[tile * S::IN_SPAN], share);
}

// Everything an update changes, once all gradients are known; the hidden layers of a soft target network, though, where
// one block has the member, only when they are used. `number` counts the updates of this launch.
template <class S>
DEVICE void apply(const Args& args, float* shared, const Gradients<S>& gradients, int number, HeldMoments<S>& held,
                  const Place& at) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  auto&& moments = moments_of<S>(args, shared, held, at);
  const float* corrections = args.corrections + 2 * (block_id() * sizes.steps * sizes.updates + number);
  float correction1 = corrections[0], correction2 = corrections[1], biases[4];
  UNROLL
  for (int i = 0; i < 4; ++i) biases[i] = gradients.bias(i, at);
  float bias_factor = 1.0f / (gradients.scale * static_cast<float>(sizes.batch)), factor = bias_factor / INPUT_SCALE;
  leave_squares<S>(shared, gradients, biases, factor, bias_factor, at);
  member_sync<S>();
  float total = warp_sum(at.thread % 32 < S::CLASSES * S::UNIT_GROUPS ? shared[S::NORMS + at.thread % 32] : 0.0f);
  float norm = sqrtf(total), most = by_heart.reals.max_grad_norm;
  bool is_soft = sizes.flags & SOFT;
  bool is_copy = !is_soft && (sizes.learned + number + 1) % sizes.target_period == 0;
  float share = is_soft ? by_heart.own.tau : is_copy ? 1.0f : 0.0f;
  float clip = norm < most ? 1.0f : most / norm;
  Step step{by_heart.own.lr, correction1, correction2, by_heart.reals.adam_eps};
  apply_tiles<S>(shared, gradients, biases, {clip * factor, clip * bias_factor, share}, moments, step, at);
  if (is_copy || (S::CLUSTER > 1 && is_soft)) move_target<S>(args, shared, share, at);
  if (S::CLUSTER == 1) return;
  member_sync<S>();  // all have been sent the first layer
  if (share > 0.0f) move_first_layer<S>(args, shared, share);
}

}  // namespace tidewalk
