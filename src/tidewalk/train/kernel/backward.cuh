// Backward pass of the network over ROWS rows, after their forward pass.
#pragma once

#include "layers.cuh"

namespace tidewalk {

// Gradients that a thread holds, in its tiles, times `scale` and the batch size; those of weights also times
// INPUT_SCALE. Those of the small tiles are meant in share 0 alone.
template <class S>
struct Gradients {
  static constexpr int COUNT = 4 * S::OWN + 9;
  float hidden[S::OWN][4];
  float output[4];
  float biases[4];  // of the hidden layers {b1[n], b1[n+8], b2[n], b2[n+8]}, the same in all quads
  float last_bias;  // of output `group`, in a block's first unit group
  float scale;

  template <class Use>
  DEVICE void for_all(Use use) {
    UNROLL
    for (int tile = 0; tile < S::OWN; ++tile)
      UNROLL
      for (int i = 0; i < 4; ++i) use(hidden[tile][i]);
    UNROLL
    for (int i = 0; i < 4; ++i) {
      use(output[i]);
      use(biases[i]);
    }
    use(last_bias);
  }

  // Number of the tile of the biases; 0 for one that is padding.
  DEVICE float bias(int number, const Place& at) const {
    if (at.quad == 0) return biases[number];
    return at.quad == 1 && at.own_group == 0 && number == 0 ? last_bias : 0.0f;
  }
};

// Halves of two ones.
constexpr unsigned ONES = 0x3c003c00u;

// bias[0] and bias[1] += sums over the rows of `left`, for its columns `group` and `group + 8`.
template <class S>
DEVICE void add_bias(float* bias, const Fragment<4>& left) {
  const unsigned ones[2] = {ONES, ONES};
  float sums[4] = {bias[0], 0.0f, bias[1], 0.0f};
  if (S::PRODUCTS == 3) multiply_halves(sums, left.low, ones);
  multiply_halves(sums, left.high, ones);
  bias[0] = sums[0];
  bias[1] = sums[2];
}

// Columns [2 word, 2 word + 8) of 32 rows as the right operands of two products, over 16 rows each.
template <class S>
DEVICE void tall_fragments(Fragment<2> (&out)[2], const Halves& rows, int row, int word, const Place& at) {
  const unsigned* place = rows.first + (row + at.thread % 32) * rows.stride + word;
  unsigned high[4], low[4] = {};
  load_transposed(high, place);
  if (S::PRODUCTS == 3) load_transposed(low, place + rows.low);
  out[0] = {{high[0], high[1]}, {low[0], low[1]}};
  out[1] = {{high[2], high[3]}, {low[2], low[3]}};
}

// gradients += transpose of the unit group's 16 columns of `outer` [ROWS, H], times the warp's tiles of `inner`
// [ROWS, 8 TILES]; the first of them is number `FIRST` of all it owns. `bias` is where those of the columns are added.
template <class S, int FIRST, int TILES, class Halves>
DEVICE void add_weight_gradients(Gradients<S>& gradients, float* bias, const Halves& outer, const Halves& inner,
                                 const Place& at) {
  constexpr int COUNT = (TILES + S::SPLIT - 1) / S::SPLIT, AT_ONCE = 2;
  ROLLED
  for (int row = 0; row < S::ROWS; row += 32) {
    Fragment<4> left[2];
    UNROLL
    for (int step = 0; step < 2; ++step)
      left[step] = columns_fragment<S>(outer, row + 16 * step, 8 * at.own_group, at);
    UNROLL
    for (int base = 0; base < COUNT; base += AT_ONCE) {
      Fragment<2> right[AT_ONCE][2];
      bool is_there[AT_ONCE];
      UNROLL
      for (int i = 0; i < AT_ONCE; ++i) {
        int tile = S::SPLIT * (base + i) + at.share;
        is_there[i] = base + i < COUNT && (TILES % S::SPLIT == 0 || tile < TILES);
        if (is_there[i]) tall_fragments<S>(right[i], inner, row, 4 * tile, at);
      }
      UNROLL
      for (int step = 0; step < 2; ++step)
        UNROLL
        for (int number = 0; number < S::PRODUCTS; ++number)
          UNROLL
          for (int i = 0; i < AT_ONCE; ++i)
            if (is_there[i])
              multiply<S::PRODUCTS>(gradients.hidden[FIRST + base + i], left[step], right[i][step], number);
    }
    if (at.share != 0) continue;
    UNROLL
    for (int step = 0; step < 2; ++step) add_bias<S>(bias, left[step]);
  }
}

// Gradients of the output weights, and in a block's first unit group of the output biases.
template <class S, class Halves>
DEVICE void add_output_gradients(Gradients<S>& gradients, const float* outer, const Halves& hidden, const Place& at) {
  outer += 2 * at.quad * S::OUT + at.group;
  float sums[4][S::ROW_TILES] = {}, last[2] = {gradients.last_bias, 0.0f};
  UNROLL
  for (int tile = 0; tile < S::ROW_TILES; ++tile) {
    const float* row = outer + 16 * tile * S::OUT;
    float products[4] = {};
    Fragment<4> left = columns_fragment<S>(hidden, 16 * tile, 8 * at.own_group, at);
    Fragment<2> right =
        right_of<S::PRODUCTS>(row[0], row[S::OUT], row[8 * S::OUT], row[9 * S::OUT], gradients.scale);
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number) multiply<S::PRODUCTS>(products, left, right, number);
    UNROLL
    for (int i = 0; i < 4; ++i) sums[i][tile] = products[i];
    // as a left operand it is transposed: its rows are the outputs
    if (at.own_group == 0)
      add_bias<S>(last, {{right.high[0], 0, right.high[1], 0}, {right.low[0], 0, right.low[1], 0}});
  }
  UNROLL
  for (int i = 0; i < 4; ++i) gradients.output[i] += tree_sum(sums[i]);
  gradients.last_bias = last[0];
}

// Gradient at the hidden units: `sums` where the unit was active, written over the activations.
template <class S>
DEVICE void through_relu(const Halves& hidden, const Rows<S>& sums, float factor, const Place& at) {
  for_pairs<S>(sums, at, [&](int row, int word, int, float a, float b) {
    unsigned* place = hidden.first + row * hidden.stride + word;
    float2 active = floats_of(place[0]);
    if (S::PRODUCTS == 3) {
      float2 rest = floats_of(place[hidden.low]);
      active = {active.x + rest.x, active.y + rest.y};
    }
    a = active.x > 0.0f ? factor * a : 0.0f;
    b = active.y > 0.0f ? factor * b : 0.0f;
    put<S>(hidden, row, word, a, b);
  });
}

// sums = gradients of the outputs [rows of the warp, OUT] times the output weights of its 16 units.
template <class S>
DEVICE void times_outputs(Rows<S>& sums, const float* shared, float scale, const Place& at) {
  clear<S>(sums);
  const float *a = shared + S::SMALL + 2 * at.quad * S::UNIT_STRIDE + 16 * at.own_group + at.group;
  const float* b = a + S::UNIT_STRIDE;
  const float* outer = shared + S::OUTPUT_GRADIENT + (first_row<S>(at) + at.group) * S::OUT + 2 * at.quad;
  Fragment<4> left[S::ROW_SHARE] = {};
  UNROLL
  for (int row = 0; row < S::ROW_SHARE; ++row)
    UNROLL
    for (int half = 0; half < 2; ++half) {
      float2 pair = *reinterpret_cast<const float2*>(outer + (16 * row + 8 * half) * S::OUT);
      split<S::PRODUCTS>(scale * pair.x, scale * pair.y, left[row].high[half], left[row].low[half]);
    }
  add_products<S>(sums, left, right_of<S::PRODUCTS>(a[0], b[0], 0.0f, 0.0f, WEIGHT_SCALE),
                  right_of<S::PRODUCTS>(a[8], b[8], 0.0f, 0.0f, WEIGHT_SCALE));
}

// sums = outer [rows of the warp, H] times the second layer's weights into its 16 units of the first layer. Quads 2 and
// 3 read the other half of a unit group first (see `slot_of`).
template <class S>
DEVICE void times_transposed(Rows<S>& sums, const float* shared, const Halves& outer, const Place& at) {
  clear<S>(sums);
  const float4* tiles = reinterpret_cast<const float4*>(shared + S::WEIGHTS) +
                        (S::IN_TILES + 2 * at.unit_group) * S::SPAN;
  int even = 4 * slot_of(2 * at.quad, at.group / 2), odd = 4 * slot_of(2 * at.quad + 1, at.group / 2);
  bool is_swapped = at.quad >= 2;
  int near = at.group % 2 + 2 * is_swapped, far = at.group % 2 + 2 * !is_swapped;
  ROLLED for (int block = 0; block < S::H / 16; ++block) {
    const float* fours = reinterpret_cast<const float*>(tiles + 32 * block);
    Fragment<2> right[2];
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* tile = fours + 4 * S::SPAN * i;
      float a = tile[even + near], b = tile[odd + near], c = tile[even + far], d = tile[odd + far];
      right[i] = right_of<S::PRODUCTS>(is_swapped ? c : a, is_swapped ? d : b, is_swapped ? a : c, is_swapped ? b : d,
                                       WEIGHT_SCALE);
    }
    add_rows<S>(sums, outer, 8 * block, right[0], right[1], at);
  }
}

// Adds the gradients of the rows in OBSERVED, whose forward pass lies in HIDDEN1 and HIDDEN2, from those of the
// outputs. The columns of a unit group are read by its own warps alone, but for the whole of the gradient at HIDDEN2.
template <class S>
DEVICE void backward(Gradients<S>& gradients, float* shared, const Place& at) {
  const Halves h1 = hidden_rows<S>(shared, S::HIDDEN1), h2 = hidden_rows<S>(shared, S::HIDDEN2);
  Rows<S> sums;
  if (at.share == 0) add_output_gradients<S>(gradients, shared + S::OUTPUT_GRADIENT, h2, at);
  times_outputs<S>(sums, shared, gradients.scale, at);
  share_sync<S>(at);
  through_relu<S>(h2, sums, 1.0f / WEIGHT_SCALE, at);
  share_sync<S>(at);
  MARK(12);
  add_weight_gradients<S, S::OWN_IN, S::HIDDEN_TILES>(gradients, gradients.biases + 2, h2, h1, at);
  block_sync();
  MARK(13);
  times_transposed<S>(sums, shared, h2, at);
  through_relu<S>(h1, sums, 1.0f / WEIGHT_SCALE, at);
  share_sync<S>(at);
  MARK(14);
  add_weight_gradients<S, 0, S::IN_TILES>(gradients, gradients.biases, h1, observed_rows<S>(shared), at);
}

}  // namespace tidewalk
