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

constexpr int AHEAD = 4;  // tiles whose moments are on their way while others are worked on
struct Moments {
  float4 first[AHEAD], second[AHEAD];
};

template <class S>
DEVICE void fetch(Moments& moments, const float4* first, const float4* second, int base) {
  UNROLL
  for (int i = 0; i < AHEAD; ++i)
    if (base + i < S::BIG_TILES) {
      moments.first[i] = first[(base + i) * S::THREADS];
      moments.second[i] = second[(base + i) * S::THREADS];
    }
}

template <class S>
DEVICE void apply_hidden(float* shared, const Gradients<S>& gradients, float factor, Moments (&moments)[2],
                         float4* first, float4* second, const Step& step, const Place& at) {
  float4* weights = reinterpret_cast<float4*>(shared + S::WEIGHTS) + at.slot;
  UNROLL
  for (int base = 0; base < S::BIG_TILES; base += AHEAD) {
    Moments& now = moments[base / AHEAD % 2];
    fetch<S>(moments[(base / AHEAD + 1) % 2], first, second, base + AHEAD);
    UNROLL
    for (int i = 0; i < AHEAD; ++i)
      if (base + i < S::BIG_TILES) {
        int place = (base + i) * S::THREADS;
        float4 weight = weights[place];
        adam(weight, now.first[i], now.second[i], gradients.hidden[base + i], factor, step);
        weights[place] = weight;
        first[place] = now.first[i];
        second[place] = now.second[i];
      }
  }
}

// Output weights and biases, and their targets, which live on chip.
template <class S>
DEVICE void apply_small(const Args& args, float* shared, int tile, const float (&gradient)[4], float factor,
                        const Step& step, float share, const Place& at) {
  int place = tile * S::THREADS + at.slot;
  float* first = reinterpret_cast<float*>(scratch_of<S>(args, MOMENT1) + place);
  float* second = reinterpret_cast<float*>(scratch_of<S>(args, MOMENT2) + place);
  UNROLL
  for (int i = 0; i < 4; ++i) {
    float* weight = small_number<S>(shared + S::SMALL, tile, i, at);
    if (weight == nullptr) continue;
    adam(*weight, first[i], second[i], factor * gradient[i], step);
    float& target = weight[S::TARGET_SMALL - S::SMALL];
    if (share == 1.0f)
      target = *weight;
    else if (share > 0.0f)
      follow(target, *weight, share);
  }
}

DEVICE float square(float value) { return value * value; }

template <class S>
DEVICE float sum_of_squares(const Gradients<S>& gradients, const float (&biases)[4], float factor, float bias_factor) {
  float sum = 0.0f;
  UNROLL
  for (int i = 0; i < 4; ++i) sum += square(bias_factor * biases[i]) + square(factor * gradients.output[i]);
  UNROLL
  for (int tile = 0; tile < S::BIG_TILES; ++tile)
    UNROLL
    for (int i = 0; i < 4; ++i) sum += square(factor * gradients.hidden[tile][i]);
  return sum;
}

// Moves the hidden layers of the target network, all at once: by a share of the way, or the whole way.
template <class S>
DEVICE void move_target(const Args& args, const float* shared, float share, const Place& at) {
  float4* targets = scratch_of<S>(args, TARGET) + at.slot;
  const float4* weights = reinterpret_cast<const float4*>(shared + S::WEIGHTS) + at.slot;
  ROLLED
  for (int place = 0; place < S::BIG_TILES * S::THREADS; place += S::THREADS) {
    float4 target = targets[place];
    follow(target, weights[place], share);
    targets[place] = share == 1.0f ? weights[place] : target;
  }
}

// Everything an update changes but the hidden layers of a soft target network, once all gradients are known. `number`
// counts the updates of this launch.
template <class S>
DEVICE void apply(const Args& args, float* shared, const Gradients<S>& gradients, int number, const Place& at) {
  const Known& by_heart = known<S>(shared);
  const Sizes& sizes = by_heart.sizes;
  float4 *first = scratch_of<S>(args, MOMENT1) + at.slot, *second = scratch_of<S>(args, MOMENT2) + at.slot;
  Moments moments[2];
  fetch<S>(moments[0], first, second, 0);
  const float* corrections = args.corrections + 2 * (block_id() * sizes.steps * sizes.updates + number);
  float correction1 = corrections[0], correction2 = corrections[1];
  float4 packed = gradients.biases(at);
  float biases[4] = {packed.x, packed.y, packed.z, packed.w};
  float bias_factor = 1.0f / (gradients.scale * static_cast<float>(sizes.batch)), factor = bias_factor / INPUT_SCALE;
  float partial = warp_sum(sum_of_squares<S>(gradients, biases, factor, bias_factor));
  float* norms = shared + S::SUMS + 16;
  if (at.thread % 32 == 0) norms[at.warp] = partial;
  block_sync();
  float total = 0.0f;
  UNROLL
  for (int warp = 0; warp < S::WARPS; ++warp) total += norms[warp];
  float norm = sqrtf(total), most = by_heart.reals.max_grad_norm;
  bool is_soft = sizes.flags & SOFT;
  bool is_copy = !is_soft && (sizes.learned + number + 1) % sizes.target_period == 0;
  float share = is_soft ? by_heart.own.tau : is_copy ? 1.0f : 0.0f;
  float clip = norm < most ? 1.0f : most / norm;
  factor *= clip;
  Step step{by_heart.own.lr, correction1, correction2, by_heart.reals.adam_eps};
  apply_hidden<S>(shared, gradients, factor, moments, first, second, step, at);
  apply_small<S>(args, shared, S::BIG_TILES, gradients.output, factor, step, share, at);
  apply_small<S>(args, shared, S::BIG_TILES + 1, biases, clip * bias_factor, step, share, at);
  if (is_copy) move_target<S>(args, shared, 1.0f, at);
}

}  // namespace tidewalk
