// Backward pass of the network over ROWS rows, after their forward pass.
#pragma once

#include "layers.cuh"

namespace tidewalk {

// Gradients that a thread holds, in its tiles, times `scale` and the batch size; those of weights also times
// INPUT_SCALE.
template <class S>
struct Gradients {
  float hidden[S::BIG_TILES][4];
  float output[4];
  float bias1[4], bias2[4], bias3[2];  // sums over the thread's rows until `biases`
  float scale;

  DEVICE void multiply_all(float factor) {
    UNROLL
    for (int tile = 0; tile < S::BIG_TILES; ++tile)
      UNROLL
      for (int i = 0; i < 4; ++i) hidden[tile][i] *= factor;
    UNROLL
    for (int i = 0; i < 4; ++i) {
      output[i] *= factor;
      bias1[i] *= factor;
      bias2[i] *= factor;
      bias3[i % 2] *= i < 2 ? factor : 1.0f;
    }
  }

  DEVICE void clear(float new_scale) {
    UNROLL
    for (int tile = 0; tile < S::BIG_TILES; ++tile)
      UNROLL
      for (int i = 0; i < 4; ++i) hidden[tile][i] = 0.0f;
    UNROLL
    for (int i = 0; i < 4; ++i) output[i] = bias1[i] = bias2[i] = bias3[i % 2] = 0.0f;
    scale = new_scale;
  }

  // The tile of the biases.
  DEVICE float4 biases(const Place& at) const {
    float first[4], second[4], last[2] = {group_sum(bias3[0]), group_sum(bias3[1])};
    UNROLL
    for (int i = 0; i < 4; ++i) {
      first[i] = group_sum(bias1[i]);
      second[i] = group_sum(bias2[i]);
    }
    if (at.group == 0) return {first[0], first[1], first[2], first[3]};
    if (at.group == 1) return {second[0], second[1], second[2], second[3]};
    bool has_last = at.group == 2 && at.warp == 0;
    return {has_last ? last[0] : 0.0f, has_last ? last[1] : 0.0f, 0.0f, 0.0f};
  }
};

// gradients += transpose of the warp's 16 columns of `outer` [ROWS, H], times `inner` [ROWS, 8 TILES].
template <class S, int FIRST, int TILES>
DEVICE void add_weight_gradients(Gradients<S>& gradients, const Halves& outer, const Halves& inner, const Place& at) {
  constexpr int GROUP = TILES % 4 == 0 ? 4 : 2;
  ROLLED
  for (int row = 0; row < S::ROWS; row += 16) {
    Fragment<4> left = columns_fragment<S>(outer, row, 8 * at.warp, at);
    UNROLL
    for (int base = 0; base < TILES; base += GROUP) {
      Fragment<2> right[GROUP];
      UNROLL
      for (int i = 0; i < GROUP; i += 2)
        right_fragments<S>(right[i], right[i + 1], inner, row, 4 * (base + i), at);
      UNROLL
      for (int number = 0; number < S::PRODUCTS; ++number)
        UNROLL
        for (int i = 0; i < GROUP; ++i)
          multiply<S::PRODUCTS>(gradients.hidden[FIRST + base + i], left, right[i], number);
    }
  }
}

template <class S>
DEVICE void add_output_gradients(Gradients<S>& gradients, float* shared, const Place& at) {
  const float* outer = shared + S::OUTPUT_GRADIENT + 2 * at.quad * S::OUT + at.group;
  float sums[4][4] = {};
  UNROLL
  for (int base = 0; base < S::ROW_TILES; base += 2) {
    Fragment<4> left[2];
    Fragment<2> right[2];
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* row = outer + 16 * (base + i) * S::OUT;
      left[i] = columns_fragment<S>(hidden_rows<S>(shared, S::HIDDEN2), 16 * (base + i), 8 * at.warp, at);
      right[i] = right_of<S::PRODUCTS>(row[0], row[S::OUT], row[8 * S::OUT], row[9 * S::OUT], gradients.scale);
    }
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number)
      UNROLL
      for (int i = 0; i < 2; ++i) multiply<S::PRODUCTS>(sums[base + i], left[i], right[i], number);
  }
  UNROLL
  for (int i = 0; i < 4; ++i) gradients.output[i] += sum_of(sums, i);
  if (at.warp != 0) return;
  const float* own = shared + S::OUTPUT_GRADIENT + at.group * S::OUT + 2 * at.quad;
  UNROLL
  for (int row = 0; row < S::ROWS; row += 8) {
    float2 pair = *reinterpret_cast<const float2*>(own + row * S::OUT);
    gradients.bias3[0] += gradients.scale * pair.x;
    gradients.bias3[1] += gradients.scale * pair.y;
  }
}

// Gradient at the hidden units: `sums` where the unit was active, written over the activations, and summed for biases.
template <class S>
DEVICE void through_relu(const Halves& hidden, const Rows<S>& sums, float (&bias)[4], float factor, const Place& at) {
  for_pairs<S>(sums, at, [&](int row, int word, int half, float a, float b) {
    unsigned* place = hidden.first + row * hidden.stride + word;
    float2 active = floats_of(place[0]);
    if (S::PRODUCTS == 3) {
      float2 rest = floats_of(place[hidden.low]);
      active = {active.x + rest.x, active.y + rest.y};
    }
    a = active.x > 0.0f ? factor * a : 0.0f;
    b = active.y > 0.0f ? factor * b : 0.0f;
    bias[2 * half] += a;
    bias[2 * half + 1] += b;
    put<S>(hidden, row, word, a, b);
  });
}

// sums = gradients of the outputs [ROWS, OUT] times the output weights of the warp's 16 units.
template <class S>
DEVICE void times_outputs(Rows<S>& sums, const float* shared, float scale, const Place& at) {
  clear<S>(sums);
  const float *a = shared + S::SMALL + 2 * at.quad * S::HIDDEN_STRIDE + 16 * at.warp + at.group;
  const float* b = a + S::HIDDEN_STRIDE;
  const float* outer = shared + S::OUTPUT_GRADIENT + at.group * S::OUT + 2 * at.quad;
  Fragment<4> left[S::ROW_TILES] = {};
  UNROLL
  for (int row = 0; row < S::ROW_TILES; ++row)
    UNROLL
    for (int half = 0; half < 2; ++half) {
      float2 pair = *reinterpret_cast<const float2*>(outer + (16 * row + 8 * half) * S::OUT);
      split<S::PRODUCTS>(scale * pair.x, scale * pair.y, left[row].high[half], left[row].low[half]);
    }
  add_products<S>(sums, left, right_of<S::PRODUCTS>(a[0], b[0], 0.0f, 0.0f, WEIGHT_SCALE),
                  right_of<S::PRODUCTS>(a[8], b[8], 0.0f, 0.0f, WEIGHT_SCALE));
}

// sums = outer [ROWS, H] times the second layer's weights into the warp's 16 units of the first layer. Quads 2 and 3
// read the other half of a warp's sixteen units first (see `slot_of`).
template <class S>
DEVICE void times_transposed(Rows<S>& sums, const float* shared, const Halves& outer, const Place& at) {
  clear<S>(sums);
  const float4* tiles = reinterpret_cast<const float4*>(shared + S::WEIGHTS) +
                        (S::IN_TILES + 2 * at.warp) * S::THREADS;
  int even = 4 * slot_of(2 * at.quad, at.group / 2), odd = 4 * slot_of(2 * at.quad + 1, at.group / 2);
  bool is_swapped = at.quad >= 2;
  int near = at.group % 2 + 2 * is_swapped, far = at.group % 2 + 2 * !is_swapped;
  _Pragma("unroll 2") for (int block = 0; block < S::H / 16; ++block) {
    const float* fours = reinterpret_cast<const float*>(tiles + 32 * block);
    Fragment<2> right[2];
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* tile = fours + 4 * S::THREADS * i;
      float a = tile[even + near], b = tile[odd + near], c = tile[even + far], d = tile[odd + far];
      right[i] = right_of<S::PRODUCTS>(is_swapped ? c : a, is_swapped ? d : b, is_swapped ? a : c, is_swapped ? b : d,
                                       WEIGHT_SCALE);
    }
    add_rows<S>(sums, outer, 8 * block, right[0], right[1], at);
  }
}

// Adds the gradients of the rows in OBSERVED, whose forward pass lies in HIDDEN1 and HIDDEN2, from those of the
// outputs.
// A warp's own columns of both gradients need no barrier; other warps read the whole of the one at HIDDEN2.
template <class S>
DEVICE void backward(Gradients<S>& gradients, float* shared, const Place& at) {
  const Halves h1 = hidden_rows<S>(shared, S::HIDDEN1), h2 = hidden_rows<S>(shared, S::HIDDEN2);
  Rows<S> sums;
  add_output_gradients<S>(gradients, shared, at);
  warp_sync();
  times_outputs<S>(sums, shared, gradients.scale, at);
  through_relu<S>(h2, sums, gradients.bias2, 1.0f / WEIGHT_SCALE, at);
  warp_sync();
  MARK(12);
  add_weight_gradients<S, S::IN_TILES, S::HIDDEN_TILES>(gradients, h2, h1, at);
  block_sync();
  MARK(13);
  times_transposed<S>(sums, shared, h2, at);
  through_relu<S>(h1, sums, gradients.bias1, 1.0f / WEIGHT_SCALE, at);
  warp_sync();
  MARK(14);
  add_weight_gradients<S, 0, S::IN_TILES>(gradients, h1, observed_rows<S>(shared), at);
}

}  // namespace tidewalk
