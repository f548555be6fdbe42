// Forward pass of the network over ROWS rows held in shared memory, and how halves become operands of products.
#pragma once

#include "layout.cuh"

#ifndef MARK
#define MARK(stage)
#endif

namespace tidewalk {

// Sums of a warp over all rows and its 16 units: [16 rows each][8 units each][four numbers of a thread].
template <class S>
using Rows = float[S::ROW_TILES][2][4];

// Rows of halves: `first` is the first word of the high parts, `low` how far behind it the low parts start.
struct Halves {
  unsigned* first;
  int stride, low;
};

template <class S>
DEVICE Halves observed_rows(float* shared) {
  return {reinterpret_cast<unsigned*>(shared + S::OBSERVED), S::IN_WORDS, S::ROWS * S::IN_WORDS};
}

template <class S>
DEVICE Halves hidden_rows(float* shared, int place) {
  return {reinterpret_cast<unsigned*>(shared + place), S::HIDDEN_WORDS, S::ROWS * S::HIDDEN_WORDS};
}

template <class S>
DEVICE void put(const Halves& rows, int row, int word, float a, float b) {
  unsigned low = 0, *place = rows.first + row * rows.stride + word;
  split<S::PRODUCTS>(a, b, place[0], low);
  if (S::PRODUCTS == 3) place[rows.low] = low;
}

// Rows [row, row + 16) and columns [2 word, 2 word + 16) as the left operand.
template <class S>
DEVICE Fragment<4> rows_fragment(const Halves& rows, int row, int word, const Place& at) {
  int lane = at.thread % 32;
  const unsigned* place = rows.first + (row + lane % 16) * rows.stride + word + 4 * (lane / 16);
  Fragment<4> out;
  load_matrices(out.high, place);
  if (S::PRODUCTS == 3) load_matrices(out.low, place + rows.low);
  return out;
}

// The same rows and columns transposed as the left operand: 16 columns times 16 rows to sum over.
template <class S>
DEVICE Fragment<4> columns_fragment(const Halves& rows, int row, int word, const Place& at) {
  int lane = at.thread % 32;
  const unsigned* place = rows.first + (row + lane % 8 + lane / 16 * 8) * rows.stride + word + lane / 8 % 2 * 4;
  Fragment<4> out;
  load_transposed(out.high, place);
  if (S::PRODUCTS == 3) load_transposed(out.low, place + rows.low);
  return out;
}

// Rows [row, row + 16) and columns [2 word, 2 word + 16) as two right operands of eight columns each.
template <class S>
DEVICE void right_fragments(Fragment<2>& one, Fragment<2>& two, const Halves& rows, int row, int word,
                            const Place& at) {
  int lane = at.thread % 32;
  const unsigned* place = rows.first + (row + lane % 16) * rows.stride + word + lane / 16 * 4;
  unsigned high[4], low[4] = {};
  load_transposed(high, place);
  if (S::PRODUCTS == 3) load_transposed(low, place + rows.low);
  one = {{high[0], high[1]}, {low[0], low[1]}};
  two = {{high[2], high[3]}, {low[2], low[3]}};
}

// Right operand from the thread's own numbers: k = 2 quad and the next, then k = 2 quad + 8 and the next.
template <int PRODUCTS>
DEVICE Fragment<2> right_of(float a, float b, float c, float d, float scale) {
  Fragment<2> out;
  split<PRODUCTS>(scale * a, scale * b, out.high[0], out.low[0]);
  split<PRODUCTS>(scale * c, scale * d, out.high[1], out.low[1]);
  return out;
}

template <class S>
DEVICE void clear(Rows<S>& sums) {
  UNROLL
  for (int row = 0; row < S::ROW_TILES; ++row)
    UNROLL
    for (int i = 0; i < 8; ++i) sums[row][i / 4][i % 4] = 0.0f;
}

template <class S>
DEVICE void add_products(Rows<S>& sums, const Fragment<4> (&left)[S::ROW_TILES], const Fragment<2>& one,
                         const Fragment<2>& two) {
  UNROLL
  for (int number = 0; number < S::PRODUCTS; ++number)
    UNROLL
    for (int row = 0; row < S::ROW_TILES; ++row) {
      multiply<S::PRODUCTS>(sums[row][0], left[row], one, number);
      multiply<S::PRODUCTS>(sums[row][1], left[row], two, number);
    }
}

template <class S>
DEVICE void add_rows(Rows<S>& sums, const Halves& rows, int word, const Fragment<2>& one, const Fragment<2>& two,
                     const Place& at) {
  Fragment<4> left[S::ROW_TILES];
  UNROLL
  for (int row = 0; row < S::ROW_TILES; ++row) left[row] = rows_fragment<S>(rows, 16 * row, word, at);
  add_products<S>(sums, left, one, two);
}

// How a soft target network follows the online network: just before it is used, while its weights pass by anyway.
struct Follow {
  const float4* online;  // the thread's own tiles; null where nothing is to follow
  float tau;
};

DEVICE void follow(float& target, float weight, float tau) { target += tau * (weight - target); }

DEVICE void follow(float4& target, const float4& weight, float tau) {
  follow(target.x, weight.x, tau);
  follow(target.y, weight.y, tau);
  follow(target.z, weight.z, tau);
  follow(target.w, weight.w, tau);
}

// sums = input [ROWS, 8 tiles] times the 16 units of the warp; `weights` are the thread's own, two pairs read ahead.
template <class S, int TILES>
DEVICE void times_units(Rows<S>& sums, const Halves& input, float4* weights, const Follow& lead, const Place& at) {
  clear<S>(sums);
  float4 ahead[2][2] = {{weights[0], weights[S::THREADS]}, {weights[2 * S::THREADS], weights[3 * S::THREADS]}};
  _Pragma("unroll 2") for (int tile = 0; tile < TILES; tile += 2) {
    float4 a = ahead[tile / 2 % 2][0], b = ahead[tile / 2 % 2][1];
    if (tile + 4 < TILES) {
      ahead[tile / 2 % 2][0] = weights[(tile + 4) * S::THREADS];
      ahead[tile / 2 % 2][1] = weights[(tile + 5) * S::THREADS];
    }
    if (lead.online != nullptr) {
      follow(a, lead.online[tile * S::THREADS], lead.tau);
      follow(b, lead.online[(tile + 1) * S::THREADS], lead.tau);
      weights[tile * S::THREADS] = a;
      weights[(tile + 1) * S::THREADS] = b;
    }
    add_rows<S>(sums, input, 4 * tile, right_of<S::PRODUCTS>(a.x, a.y, b.x, b.y, WEIGHT_SCALE),
                right_of<S::PRODUCTS>(a.z, a.w, b.z, b.w, WEIGHT_SCALE), at);
  }
}

// Calls `use(row, word, unit, a, b)` for all pairs of neighbouring sums that the thread holds.
template <class S, class Use>
DEVICE void for_pairs(const Rows<S>& sums, const Place& at, Use use) {
  UNROLL
  for (int row = 0; row < S::ROW_TILES; ++row)
    UNROLL
    for (int i = 0; i < 4; ++i) {
      int unit = 8 * (i / 2) + 2 * at.quad;
      use(16 * row + at.group + 8 * (i % 2), (16 * at.warp + unit) / 2, i / 2, sums[row][i / 2][2 * (i % 2)],
          sums[row][i / 2][2 * (i % 2) + 1]);
    }
}

template <class S, int TILES>
DEVICE void hidden_layer(const Halves& out, const Halves& input, float4* weights, const Follow& lead,
                         const float* bias, const Place& at) {
  Rows<S> sums;
  times_units<S, TILES>(sums, input, weights, lead, at);
  const float* own = bias + 16 * at.warp + 2 * at.quad;
  float biases[4] = {INPUT_SCALE * own[0], INPUT_SCALE * own[1], INPUT_SCALE * own[8], INPUT_SCALE * own[9]};
  for_pairs<S>(sums, at, [&](int row, int word, int half, float a, float b) {
    a = a * (1.0f / WEIGHT_SCALE) + biases[2 * half];
    b = b * (1.0f / WEIGHT_SCALE) + biases[2 * half + 1];
    // written so that NaN stays NaN
    put<S>(out, row, word, a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b);
  });
}

DEVICE float sum_of(const float (&sums)[4][4], int i) { return (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]); }

// Partial sums [PARTS, ROWS, OUT] of the output layer: each warp takes 16 rows and a share of the hidden units.
template <class S>
DEVICE void output_layer(float* shared, const float* small, const Place& at) {
  constexpr int STEPS = S::H / 16 / S::PARTS;
  int row_tile = at.warp % S::ROW_TILES, part = at.warp / S::ROW_TILES;
  const float* weights = small + at.group * S::HIDDEN_STRIDE + 16 * STEPS * part + 2 * at.quad;
  float sums[4][4] = {};
  UNROLL
  for (int base = 0; base < STEPS; base += 2) {
    Fragment<4> left[2];
    Fragment<2> right[2];
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const float* own = weights + 16 * (base + i);
      left[i] = rows_fragment<S>(hidden_rows<S>(shared, S::HIDDEN2), 16 * row_tile, 8 * (STEPS * part + base + i), at);
      right[i] = right_of<S::PRODUCTS>(own[0], own[1], own[8], own[9], WEIGHT_SCALE);
    }
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number)
      UNROLL
      for (int i = 0; i < 2; ++i) multiply<S::PRODUCTS>(sums[(base + i) % 4], left[i], right[i], number);
  }
  constexpr float UNSCALED = 1.0f / (WEIGHT_SCALE * INPUT_SCALE);
  float* out = shared + S::OUTPUT + (part * S::ROWS + 16 * row_tile + at.group) * S::OUT + 2 * at.quad;
  UNROLL
  for (int half = 0; half < 2; ++half)
    *reinterpret_cast<float2*>(out + 8 * half * S::OUT) = {UNSCALED * sum_of(sums, 2 * half),
                                                           UNSCALED * sum_of(sums, 2 * half + 1)};
}

// Forward pass of the rows in OBSERVED; the output layer's partial sums are complete for all threads on return.
// `tiles` are the thread's own of a network, in shared or in device memory; `small` is its SMALL part.
template <class S>
DEVICE void forward(float* shared, float4* tiles, const float* small, const Follow& lead, const Place& at) {
  constexpr int HALFWAY = S::IN_TILES * S::THREADS;
  const Halves h1 = hidden_rows<S>(shared, S::HIDDEN1), h2 = hidden_rows<S>(shared, S::HIDDEN2);
  hidden_layer<S, S::IN_TILES>(h1, observed_rows<S>(shared), tiles, lead, small + S::FIRST_BIAS, at);
  block_sync();
  MARK(10);
  const Follow second{lead.online == nullptr ? nullptr : lead.online + HALFWAY, lead.tau};
  hidden_layer<S, S::HIDDEN_TILES>(h2, h1, tiles + HALFWAY, second, small + S::SECOND_BIAS, at);
  block_sync();
  MARK(11);
  output_layer<S>(shared, small, at);
  block_sync();
}

}  // namespace tidewalk
