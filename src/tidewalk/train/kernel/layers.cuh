// Forward pass of the network over ROWS rows held in shared memory, and how halves become operands of products.
#pragma once

#include "layout.cuh"

// A build that looks for where the time goes defines it, to note the clock at the end of a stage.
#ifndef MARK
#define MARK(stage)
#endif

namespace tidewalk {

// Sums of a warp for its share of the rows and its 16 units: [16 rows each][8 units each][four numbers of a thread].
template <class S>
using Rows = float[S::ROW_SHARE][2][4];

// First of the rows that a warp takes.
template <class S>
DEVICE int first_row(const Place& at) {
  return 16 * S::ROW_SHARE * at.share;
}

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
  for (int row = 0; row < S::ROW_SHARE; ++row)
    UNROLL
    for (int i = 0; i < 8; ++i) sums[row][i / 4][i % 4] = 0.0f;
}

template <class S>
DEVICE void add_products(Rows<S>& sums, const Fragment<4> (&left)[S::ROW_SHARE], const Fragment<2>& one,
                         const Fragment<2>& two) {
  UNROLL
  for (int number = 0; number < S::PRODUCTS; ++number)
    UNROLL
    for (int row = 0; row < S::ROW_SHARE; ++row) {
      multiply<S::PRODUCTS>(sums[row][0], left[row], one, number);
      multiply<S::PRODUCTS>(sums[row][1], left[row], two, number);
    }
}

template <class S>
DEVICE void add_rows(Rows<S>& sums, const Halves& rows, int word, const Fragment<2>& one, const Fragment<2>& two,
                     const Place& at) {
  int first = first_row<S>(at);
  Fragment<4> left[S::ROW_SHARE];
  UNROLL
  for (int row = 0; row < S::ROW_SHARE; ++row) left[row] = rows_fragment<S>(rows, first + 16 * row, word, at);
  add_products<S>(sums, left, one, two);
}

// sums = input [rows of the warp, 8 tiles] times the 16 units of its group; `weights` are the thread's own on chip, two
// pairs read ahead.
template <class S, int TILES>
DEVICE void times_units(Rows<S>& sums, const Halves& input, const float4* weights, const Place& at) {
  clear<S>(sums);
  float4 ahead[2][2] = {{weights[0], weights[S::SPAN]}, {weights[2 * S::SPAN], weights[3 * S::SPAN]}};
  _Pragma("unroll 2") for (int tile = 0; tile < TILES; tile += 2) {
    float4 a = ahead[tile / 2 % 2][0], b = ahead[tile / 2 % 2][1];
    if (tile + 4 < TILES) {
      ahead[tile / 2 % 2][0] = weights[(tile + 4) * S::SPAN];
      ahead[tile / 2 % 2][1] = weights[(tile + 5) * S::SPAN];
    }
    add_rows<S>(sums, input, 4 * tile, right_of<S::PRODUCTS>(a.x, a.y, b.x, b.y, WEIGHT_SCALE),
                right_of<S::PRODUCTS>(a.z, a.w, b.z, b.w, WEIGHT_SCALE), at);
  }
}

DEVICE void follow(float& target, float weight, float tau) { target += tau * (weight - target); }

DEVICE void follow(float4& target, const float4& weight, float tau) {
  follow(target.x, weight.x, tau);
  follow(target.y, weight.y, tau);
  follow(target.z, weight.z, tau);
  follow(target.w, weight.w, tau);
}

// Hidden layers of the online network, of which `tiles` are the thread's own on chip.
template <class S>
struct Online {
  const float4* tiles;

  // sums = input times the layer that starts with tile FIRST.
  template <int FIRST, int TILES, int>
  DEVICE void times(Rows<S>& sums, const Halves& input, const Place& at) {
    times_units<S, TILES>(sums, input, tiles + FIRST * S::SPAN, at);
  }
};

// A tile as parts of right operands: halves of two pairs of weights.
struct alignas(16) Operands {
  unsigned high[2], low[2];
};

// Hidden layers of the target network on their way from device memory: each warp brings the tiles that it owns, a few
// ahead of their use, and leaves them as operands where all warps of the unit group find them. A soft target network
// follows the online network here, just before it is used, because its weights pass by anyway.
template <class S>
struct Target {
  static constexpr int AHEAD = 4;
  float4* tiles;         // the thread's own
  const float4* online;  // the same of the online network; null where nothing is to follow
  float tau;
  Operands* stage;  // the thread's own
  float4 coming[AHEAD];

  DEVICE Target(float4* tiles, const float4* online, float tau, float* shared, const Place& at)
      : tiles(tiles), online(online), tau(tau), stage(reinterpret_cast<Operands*>(shared + S::STAGE) + at.slot) {
    UNROLL
    for (int number = 0; number < AHEAD; ++number) ask(number, at);
  }

  DEVICE void ask(int number, const Place& at) {
    Own own = own_tile<S>(number, at);
    if (number < S::OWN && own.exists) coming[number % AHEAD] = tiles[own.tile * S::SPAN];
  }

  // The warp's own tile `number` into `place` of the stage.
  DEVICE void bring(int number, int place, const Place& at) {
    Own own = own_tile<S>(number, at);
    float4 weights = coming[number % AHEAD];
    ask(number + AHEAD, at);
    if (!own.exists) return;
    if (online != nullptr) {
      follow(weights, online[own.tile * S::SPAN], tau);
      tiles[own.tile * S::SPAN] = weights;
    }
    Operands out{};
    split<S::PRODUCTS>(WEIGHT_SCALE * weights.x, WEIGHT_SCALE * weights.y, out.high[0], out.low[0]);
    split<S::PRODUCTS>(WEIGHT_SCALE * weights.z, WEIGHT_SCALE * weights.w, out.high[1], out.low[1]);
    stage[place * S::SPAN] = out;
  }

  // sums = input times the layer whose first tile of the warp is number OWN of all it owns.
  template <int, int TILES, int OWN>
  DEVICE void times(Rows<S>& sums, const Halves& input, const Place& at) {
    constexpr int CHUNKS = (TILES + S::CHUNK - 1) / S::CHUNK, EACH = S::CHUNK / S::SPLIT;
    clear<S>(sums);
    UNROLL
    for (int chunk = -1; chunk < CHUNKS; ++chunk) {
      int next = chunk + 1, set = S::CHUNK * (chunk & 1);
      UNROLL
      for (int i = 0; i < EACH; ++i)
        if (next < CHUNKS) bring(OWN + EACH * next + i, S::CHUNK * (next & 1) + S::SPLIT * i + at.share, at);
      UNROLL
      for (int i = 0; i < S::CHUNK; i += 2) {
        int tile = S::CHUNK * chunk + i;
        if (chunk < 0 || tile >= TILES) continue;
        Operands a = stage[(set + i) * S::SPAN], b = stage[(set + i + 1) * S::SPAN];
        add_rows<S>(sums, input, 4 * tile, Fragment<2>{{a.high[0], b.high[0]}, {a.low[0], b.low[0]}},
                    Fragment<2>{{a.high[1], b.high[1]}, {a.low[1], b.low[1]}}, at);
      }
      if (next < CHUNKS) share_sync<S>(at);
    }
  }
};

// Calls `use(row, word, unit, a, b)` for all pairs of neighbouring sums that the thread holds.
template <class S, class Use>
DEVICE void for_pairs(const Rows<S>& sums, const Place& at, Use use) {
  int first = first_row<S>(at) + at.group;
  UNROLL
  for (int row = 0; row < S::ROW_SHARE; ++row)
    UNROLL
    for (int i = 0; i < 4; ++i) {
      int unit = 8 * (i / 2) + 2 * at.quad;
      use(first + 16 * row + 8 * (i % 2), (16 * at.unit_group + unit) / 2, i / 2, sums[row][i / 2][2 * (i % 2)],
          sums[row][i / 2][2 * (i % 2) + 1]);
    }
}

// Activations of a hidden layer from the products of its weights.
template <class S>
DEVICE void activate(const Halves& out, const Rows<S>& sums, const float* bias, const Place& at) {
  const float* own = bias + 16 * at.unit_group + 2 * at.quad;
  float biases[4] = {INPUT_SCALE * own[0], INPUT_SCALE * own[1], INPUT_SCALE * own[8], INPUT_SCALE * own[9]};
  for_pairs<S>(sums, at, [&](int row, int word, int half, float a, float b) {
    a = a * (1.0f / WEIGHT_SCALE) + biases[2 * half];
    b = b * (1.0f / WEIGHT_SCALE) + biases[2 * half + 1];
    // written so that NaN stays NaN
    put<S>(out, row, word, a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b);
  });
}

// Sum of the numbers in the order of a binary tree; their count is a power of two.
template <int N>
DEVICE float tree_sum(const float (&numbers)[N]) {
  float sums[N];
  UNROLL
  for (int i = 0; i < N; ++i) sums[i] = numbers[i];
  UNROLL
  for (int span = 1; span < N; span *= 2)
    UNROLL
    for (int i = 0; i + span < N; i += 2 * span) sums[i] += sums[i + span];
  return sums[0];
}

// Partial sums [PARTS, ROWS, OUT] of the output layer: a warp takes 16 rows and a share of the hidden units. They are
// added as a binary tree over the unit groups, of which `action_values` makes the last part.
template <class S>
DEVICE void output_layer(float* shared, const float* small, const Place& at) {
  constexpr int STEPS = S::OWN_GROUPS / S::OWN_PARTS;
  int row_tile = at.warp % S::ROW_TILES, part = at.warp / S::ROW_TILES;
  if (part >= S::OWN_PARTS) return;
  const float* weights = small + at.group * S::UNIT_STRIDE + 16 * STEPS * part + 2 * at.quad;
  float sums[4][STEPS] = {};
  UNROLL
  for (int step = 0; step < STEPS; ++step) {
    const float* own = weights + 16 * step;
    float products[4] = {};
    Fragment<4> left =
        rows_fragment<S>(hidden_rows<S>(shared, S::HIDDEN2), 16 * row_tile, 8 * (STEPS * part + step), at);
    Fragment<2> right = right_of<S::PRODUCTS>(own[0], own[1], own[8], own[9], WEIGHT_SCALE);
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number) multiply<S::PRODUCTS>(products, left, right, number);
    UNROLL
    for (int i = 0; i < 4; ++i) sums[i][step] = products[i];
  }
  constexpr float UNSCALED = 1.0f / (WEIGHT_SCALE * INPUT_SCALE);
  float* out = shared + S::OUTPUT + (part * S::ROWS + 16 * row_tile + at.group) * S::OUT + 2 * at.quad;
  UNROLL
  for (int half = 0; half < 2; ++half)
    *reinterpret_cast<float2*>(out + 8 * half * S::OUT) = {UNSCALED * tree_sum(sums[2 * half]),
                                                           UNSCALED * tree_sum(sums[2 * half + 1])};
}

// Forward pass of the rows in OBSERVED by a network, `Online` or `Target`, whose SMALL part is `small`; the output
// layer's partial sums are complete for all threads on return.
template <class S, class Network>
DEVICE void forward(float* shared, Network&& network, const float* small, const Place& at) {
  const Halves h1 = hidden_rows<S>(shared, S::HIDDEN1), h2 = hidden_rows<S>(shared, S::HIDDEN2);
  Rows<S> sums;
  network.template times<0, S::IN_TILES, 0>(sums, observed_rows<S>(shared), at);
  activate<S>(h1, sums, small + S::FIRST_BIAS, at);
  block_sync();
  MARK(10);
  network.template times<S::IN_TILES, S::HIDDEN_TILES, S::OWN_IN>(sums, h1, at);
  activate<S>(h2, sums, small + S::SECOND_BIAS, at);
  block_sync();
  MARK(11);
  output_layer<S>(shared, small, at);
  block_sync();
}

}  // namespace tidewalk
