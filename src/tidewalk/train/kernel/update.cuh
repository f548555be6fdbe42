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
DEVICE float bootstrap(const float* shared, const float* small, const Row& row, int chosen, int thread,
                       int place = S::OUTPUT, int rows = S::OUT_ROWS) {
  float q[S::OUT], value = 0.0f;
  action_values<S>(shared, small, thread, q, place, rows);
  int count = known<S>(shared).sizes.positions;
  if (chosen < 0) chosen = best_within<S>(q, row);
  UNROLL
  for (int action = 0; action < S::OUT; ++action)
    value += action < count ? q[action] * (action == chosen ? 1.0f : 0.0f) : 0.0f;
  return row.reward + row.discount * value;
}

// What is found of a row: what it adds to the sums of its batch, and the gradient of its loss at the action's value.
struct alignas(16) Verdict {
  float loss, action_values, gradient;
  int action;
};

// What the online network says of the values of a row: that of its action, and the sum of all.
struct Said {
  float taken, total;
};

template <class S>
DEVICE Said said(const float (&q)[S::OUT], int action, int count) {
  Said out{0.0f, 0.0f};
  UNROLL
  for (int i = 0; i < S::OUT; ++i) {
    out.taken += i < count ? q[i] * (i == action ? 1.0f : 0.0f) : 0.0f;
    out.total += i < count ? q[i] : 0.0f;
  }
  return out;
}

// The Huber loss of a row; nothing where it is not drawn.
DEVICE Verdict judge(const Known& by_heart, const Row& row, float aim, const Said& said, bool is_drawn) {
  float error = aim - said.taken, size = fabsf(error), delta = by_heart.reals.huber_delta;
  float within = size < delta ? size : (size != size ? size : delta);
  float slope = size < delta ? error : (error > 0.0f ? delta : error < 0.0f ? -delta : error);
  if (!is_drawn) return {0.0f, 0.0f, 0.0f, row.action};
  return {0.5f * within * within + delta * (size - within), said.total, -slope, row.action};
}

// Gradient of the loss of a row at its outputs.
struct OutputGradient {
  float gradient, share;
  int action, count;
  bool is_duelling;

  DEVICE OutputGradient(const Verdict& row, const Sizes& sizes)
      : gradient(row.gradient),
        share(quotient(row.gradient, static_cast<float>(sizes.positions))),
        action(row.action),
        count(sizes.positions),
        is_duelling(sizes.flags & DUELLING) {}

  DEVICE float at(int out) const {
    float plain = out == action ? gradient : 0.0f;
    float advantage = out == 0 ? gradient : (out <= count ? (out - 1 == action ? gradient : 0.0f) - share : 0.0f);
    return is_duelling ? advantage : plain;
  }
};

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
    if (!is_sent<S>(weight, tile, at)) continue;
    send_others<S>(weight, *weight);
    if (share > 0.0f) send_others<S>(&target, target);
  }
}

// How the gradients of weights and those of biases are scaled, and by what share the targets on chip follow.
struct Factors {
  float weights, biases, share;
};

template <class S>
DEVICE void apply_tiles(float* shared, const Gradients<S>& gradients, const float (&biases)[4], const Factors& factors,
                        Moments<S>& moments, const Step& step, const Place& at) {
  float4* weights = reinterpret_cast<float4*>(shared + S::WEIGHTS);
  UNROLL
  for (int number = 0; number < S::OWN + 2; ++number) {
    Own own = own_tile<S>(number, at);
    float4 first, second;
    moments.take(number, first, second, at);
    if (!own.exists) continue;
    if (number < S::OWN) {
      float4 weight = weights[own.tile * S::SPAN + at.slot];
      adam(weight, first, second, gradients.hidden[number < S::OWN ? number : 0], factors.weights, step);
      weights[own.tile * S::SPAN + at.slot] = weight;
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

// Moves the hidden layers of the target network, all at once: by a share of the way, or the whole way.
template <class S>
DEVICE void move_target(const Args& args, float* shared, float share, const Place& at) {
  float4* targets = tiles_of<S>(args, shared, TARGET);
  const float4* weights = tiles_of<S>(args, shared, PARAMS);
  ROLLED
  for (int number = 0; number < S::OWN; ++number) {
    Own own = own_tile<S>(number, at);
    int place = own.tile * S::SPAN + at.slot;
    if (own.exists) move_tile(targets[place], weights[place], share);
  }
}

// Step of an update; `number` counts those of this launch.
template <class S>
DEVICE Step step_of(const Args& args, const float* shared, int number) {
  const Known& by_heart = known<S>(shared);
  const float* corrections =
      args.corrections + 2 * (block_id() * by_heart.sizes.steps * by_heart.sizes.updates + number);
  return {by_heart.own.lr, corrections[0], corrections[1], by_heart.reals.adam_eps};
}

// What the norm of the gradients makes of an update; `number` as above.
struct Applied {
  Factors factors;
  bool is_soft, is_copy;
};

template <class S>
DEVICE Applied applied(const float* shared, float factor, float bias_factor, int number, const Place& at) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  float total = warp_sum(at.thread % 32 < S::CLASSES * S::UNIT_GROUPS ? shared[S::NORMS + at.thread % 32] : 0.0f);
  float norm = sqrtf(total), most = by_heart.reals.max_grad_norm;
  bool is_soft = sizes.flags & SOFT;
  bool is_copy = !is_soft && (sizes.learned + number + 1) % sizes.target_period == 0;
  float share = is_soft ? by_heart.own.tau : is_copy ? 1.0f : 0.0f;
  float clip = norm < most ? 1.0f : most / norm;
  return {{clip * factor, clip * bias_factor, share}, is_soft, is_copy};
}

// Everything an update changes, once all gradients are known; the hidden layers of a soft target network, though, only
// when they are used. `number` counts the updates of this launch.
template <class S>
DEVICE void apply(const Args& args, float* shared, const Gradients<S>& gradients, int number, const Place& at) {
  const Known& by_heart = known<S>(shared);
  Moments<S> moments(args, shared, at);
  const Step step = step_of<S>(args, shared, number);  // on its way while the norm is made
  float biases[4];
  UNROLL
  for (int i = 0; i < 4; ++i) biases[i] = gradients.bias(i, at);
  float bias_factor = 1.0f / (gradients.scale * static_cast<float>(by_heart.sizes.batch));
  float factor = bias_factor / INPUT_SCALE;
  leave_squares<S>(shared, gradients, biases, factor, bias_factor, at);
  block_sync();
  const Applied how = applied<S>(shared, factor, bias_factor, number, at);
  apply_tiles<S>(shared, gradients, biases, how.factors, moments, step, at);
  if (how.is_copy) move_target<S>(args, shared, 1.0f, at);
}

}  // namespace tidewalk
