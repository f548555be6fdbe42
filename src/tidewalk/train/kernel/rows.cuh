// The network where blocks share a member. Each has all of it on chip, as halves, and takes its own rows through it and
// back; no number but those of the update leaves a block on the way. What all rows leave is sent to the owners of the
// units, which sum the gradients and apply them; and all blocks read the new weights from device memory, which takes
// less time than sending them three times.
#pragma once

#include "update.cuh"

namespace tidewalk {

// Halves in matrices of 8x8, one after another, `wide` of them for eight rows: first high parts, then low ones.
struct Matrices {
  unsigned* first;
  int wide, low;
};

template <class S>
DEVICE Matrices matrices(float* shared, int place, int rows, int columns) {
  return {reinterpret_cast<unsigned*>(shared + place), columns / 8, rows * columns / 2};
}

template <class S>
DEVICE Matrices first_layer(float* shared, int network) {
  return matrices<S>(shared, network, S::H, S::D);
}

template <class S>
DEVICE Matrices second_layer(float* shared, int network) {
  return matrices<S>(shared, network + S::H * S::D, S::H, S::H);
}

// Four matrices, this lane's at `row` and `column`, counted in matrices.
template <class S, bool IS_TRANSPOSED>
DEVICE Fragment<4> load_four(const Matrices& from, int row, int column) {
  const unsigned* place = from.first + 32 * (row * from.wide + column) + 4 * (thread_id() % 8);
  Fragment<4> out;
  if (IS_TRANSPOSED)
    load_transposed(out.high, place);
  else
    load_matrices(out.high, place);
  if (S::PRODUCTS != 3) return out;
  if (IS_TRANSPOSED)
    load_transposed(out.low, place + from.low);
  else
    load_matrices(out.low, place + from.low);
  return out;
}

// The matrix of this lane among four: its number along the first and the second axis.
DEVICE int near_matrix() { return thread_id() / 8 % 2; }
DEVICE int far_matrix() { return thread_id() / 16 % 2; }

// As those of `Halves`.
template <class S>
DEVICE Fragment<4> rows_fragment(const Matrices& rows, int row, int word, const Place&) {
  return load_four<S, false>(rows, row / 8 + near_matrix(), word / 4 + far_matrix());
}

template <class S>
DEVICE Fragment<4> columns_fragment(const Matrices& rows, int row, int word, const Place&) {
  return load_four<S, true>(rows, row / 8 + far_matrix(), word / 4 + near_matrix());
}

DEVICE void as_right(Fragment<2>& one, Fragment<2>& two, const Fragment<4>& four) {
  one = {{four.high[0], four.high[1]}, {four.low[0], four.low[1]}};
  two = {{four.high[2], four.high[3]}, {four.low[2], four.low[3]}};
}

template <class S>
DEVICE void tall_fragments(Fragment<2> (&out)[2], const Matrices& rows, int row, int word, const Place&) {
  as_right(out[0], out[1], load_four<S, true>(rows, row / 8 + thread_id() / 8 % 4, word / 4));
}

// Sums of a warp for PARTS times 16 rows and 16 units.
template <int PARTS>
using PartSums = float[PARTS][2][4];

// sums = PARTS parts of rows, `stride` words apart, times the weights of the warp's 16 units, or their transpose.
template <class S, int PARTS, int COLUMNS, bool IS_TRANSPOSED>
DEVICE void times_weights(PartSums<PARTS>& sums, const Matrices& rows, int stride, const Matrices& weights,
                          const Place& at) {
  UNROLL
  for (int part = 0; part < PARTS; ++part)
    UNROLL
    for (int i = 0; i < 8; ++i) sums[part][i / 4][i % 4] = 0.0f;
  _Pragma("unroll 2") for (int column = 0; column < COLUMNS / 8; column += 2) {
    Fragment<2> one, two;
    as_right(one, two, IS_TRANSPOSED
                           ? load_four<S, true>(weights, column + near_matrix(), 2 * at.warp + far_matrix())
                           : load_four<S, false>(weights, 2 * at.warp + far_matrix(), column + near_matrix()));
    Fragment<4> left[PARTS];
    UNROLL
    for (int part = 0; part < PARTS; ++part)
      left[part] = rows_fragment<S>(Matrices{rows.first + part * stride, rows.wide, rows.low}, 0, 4 * column, at);
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number)
      UNROLL
      for (int part = 0; part < PARTS; ++part) {
        multiply<S::PRODUCTS>(sums[part][0], left[part], one, number);
        multiply<S::PRODUCTS>(sums[part][1], left[part], two, number);
      }
  }
}

// Sums of 16 rows and 16 units as halves, in the order of a left operand: `use` is given the number of the sum among a
// thread's eight, that of its unit among four, and the sum.
template <class S, class Use>
DEVICE Fragment<4> halves_of_sums(const float (&sums)[2][4], Use use) {
  Fragment<4> out{};
  UNROLL
  for (int i = 0; i < 4; ++i) {
    const float(&pair)[2] = reinterpret_cast<const float(&)[2]>(sums[i / 2][2 * (i % 2)]);
    float a = use(i, 2 * (i / 2), pair[0]), b = use(i + 4, 2 * (i / 2) + 1, pair[1]);
    split<S::PRODUCTS>(a, b, out.high[i], out.low[i]);
  }
  return out;
}

template <class S>
DEVICE Fragment<4> activated(const float (&sums)[2][4], const float* bias, const Place& at) {
  const float* own = bias + 16 * at.warp + 2 * at.quad;
  float biases[4] = {INPUT_SCALE * own[0], INPUT_SCALE * own[1], INPUT_SCALE * own[8], INPUT_SCALE * own[9]};
  return halves_of_sums<S>(sums, [&](int, int unit, float sum) {
    sum = sum * (1.0f / WEIGHT_SCALE) + biases[unit];
    return sum < 0.0f ? 0.0f : sum;  // written so that NaN stays NaN
  });
}

// Which of the eight numbers are above 0, as bits.
template <class S>
DEVICE int active(const Fragment<4>& numbers) {
  int bits = 0;
  UNROLL
  for (int i = 0; i < 4; ++i) {
    float2 pair = floats_of(numbers.high[i]);
    if (S::PRODUCTS == 3) {
      float2 rest = floats_of(numbers.low[i]);
      pair = {pair.x + rest.x, pair.y + rest.y};
    }
    bits |= (pair.x > 0.0f) << i | (pair.y > 0.0f) << (i + 4);
  }
  return bits;
}

// Sums where `bits` say that the unit was active.
template <class S>
DEVICE Fragment<4> masked(const float (&sums)[2][4], int bits) {
  return halves_of_sums<S>(sums, [&](int bit, int, float sum) {
    return bits >> bit & 1 ? sum * (1.0f / WEIGHT_SCALE) : 0.0f;
  });
}

template <class S>
DEVICE void put(const Matrices& rows, int column, const Fragment<4>& numbers, const Place& at) {
  UNROLL
  for (int i = 0; i < 4; ++i) {
    unsigned* place = rows.first + 32 * (i % 2 * rows.wide + column + i / 2) + at.thread % 32;
    place[0] = numbers.high[i];
    if (S::PRODUCTS == 3) place[rows.low] = numbers.low[i];
  }
}

DEVICE float4 as_four(const unsigned (&words)[4]) {
  return {float_of(words[0]), float_of(words[1]), float_of(words[2]), float_of(words[3])};
}

// The warp's columns of the block's rows to the block that owns these units, among those of all rows.
template <class S>
DEVICE void send_to_owner(float* shared, int place, Fragment<4> numbers, const Place& at) {
  const Matrices all = matrices<S>(shared, place, S::ROWS, S::UNITS);
  int row = S::OWN_ROWS / 8 * rank_of<S>() + at.quad % 2, column = 2 * (at.warp % S::OWN_GROUPS) + at.quad / 2;
  int owner = at.warp / S::OWN_GROUPS;
  unsigned* to = all.first + 32 * (row * all.wide + column) + 4 * at.group;
  quad_transpose(numbers.high, at.quad);
  send(reinterpret_cast<float4*>(to), owner, as_four(numbers.high));
  if (S::PRODUCTS != 3) return;
  quad_transpose(numbers.low, at.quad);
  send(reinterpret_cast<float4*>(to + all.low), owner, as_four(numbers.low));
}

// Rows of the first part, of `columns`, to all blocks.
template <class S>
DEVICE void send_rows(float* shared, int from, int to, int columns, const Place& at) {
  int count = S::OWN_ROWS * columns / 8, parts = S::PRODUCTS == 3 ? 2 : 1;
  float4* own = reinterpret_cast<float4*>(shared + to) + rank_of<S>() * count;
  for (int i = at.thread; i < parts * count; i += S::THREADS)  // low parts are behind the high ones of all blocks
    send_all<S>(own + i + (i < count ? 0 : (S::CLUSTER - 1) * count), reinterpret_cast<float4*>(shared + from)[i]);
}

// What the forward pass of a part leaves with a thread for its way back.
template <class S>
struct Kept {
  Fragment<4> hidden2;
  int active1, active2;
};

// Forward pass of PARTS parts of rows from `observed` on; hidden rows go to the parts from `place` on, partial sums of
// the outputs to `out`, which may be where hidden rows are that nobody needs again. One part alone is the target
// network's; of more, the first is learned from. The online network is awaited here.
template <class S, int PARTS>
DEVICE void forward_parts(float* shared, int network, const float* small, int observed, int place, int out,
                          Kept<S>& kept, const Place& at) {
  const Matrices h1 = matrices<S>(shared, place, S::OWN_ROWS, S::H);
  PartSums<PARTS> sums;
  if (PARTS > 1) {
    copies_done_before<2>();
    block_sync();
  }
  times_weights<S, PARTS, S::D, false>(sums, matrices<S>(shared, observed, S::OWN_ROWS, S::D), S::OBSERVED_PART,
                                       first_layer<S>(shared, network), at);
  UNROLL
  for (int part = 0; part < PARTS; ++part) {
    Fragment<4> numbers = activated<S>(sums[part], small + S::FIRST_BIAS, at);
    if (part == 0 && PARTS > 1) kept.active1 = active<S>(numbers);
    put<S>(Matrices{h1.first + part * S::PART, h1.wide, h1.low}, 2 * at.warp, numbers, at);
  }
  if (PARTS > 1) copies_done_before<1>();
  block_sync();
  MARK(2);
  times_weights<S, PARTS, S::H, false>(sums, h1, S::PART, second_layer<S>(shared, network), at);
  const float* own = small + at.group * S::UNIT_STRIDE + 16 * at.warp + 2 * at.quad;
  Fragment<2> right = right_of<S::PRODUCTS>(own[0], own[1], own[8], own[9], WEIGHT_SCALE);
  float products[PARTS][4] = {};
  UNROLL
  for (int part = 0; part < PARTS; ++part) {
    Fragment<4> numbers = activated<S>(sums[part], small + S::SECOND_BIAS, at);
    UNROLL
    for (int number = 0; number < S::PRODUCTS; ++number) multiply<S::PRODUCTS>(products[part], numbers, right, number);
    if (part > 0 || PARTS == 1) continue;
    kept.active2 = active<S>(numbers);
    kept.hidden2 = numbers;
  }
  if (PARTS > 1) block_sync();
  MARK(3);
  constexpr float UNSCALED = 1.0f / (WEIGHT_SCALE * INPUT_SCALE);
  float2* outputs = reinterpret_cast<float2*>(shared + out) + at.warp * PARTS * S::OWN_ROWS * S::OUT / 2;
  UNROLL
  for (int part = 0; part < PARTS; ++part)
    UNROLL
    for (int half = 0; half < 2; ++half)
      outputs[((16 * part + 8 * half + at.group) * S::OUT) / 2 + at.quad] = {UNSCALED * products[part][2 * half],
                                                                          UNSCALED * products[part][2 * half + 1]};
  block_sync();
  MARK(4);
}

// The verdicts on all rows of a batch.
template <class S>
DEVICE Verdict* verdicts(float* shared) {
  return reinterpret_cast<Verdict*>(shared + S::JUDGED);
}

// The block's rows on their way back to the hidden layers: what all rows leave for the owners of the units.
template <class S>
DEVICE void backward_rows(float* shared, float scale, const Kept<S>& kept, const Place& at) {
  const Sizes& sizes = known<S>(shared).sizes;
  const float *a = shared + S::SMALL + 2 * at.quad * S::UNIT_STRIDE + 16 * at.warp + at.group, *b = a + S::UNIT_STRIDE;
  const Fragment<2> one = right_of<S::PRODUCTS>(a[0], b[0], 0.0f, 0.0f, WEIGHT_SCALE),
                    two = right_of<S::PRODUCTS>(a[8], b[8], 0.0f, 0.0f, WEIGHT_SCALE);
  Fragment<4> left{};
  PartSums<1> sums{};
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const OutputGradient row(verdicts<S>(shared)[S::OWN_ROWS * rank_of<S>() + 8 * half + at.group], sizes);
    split<S::PRODUCTS>(scale * row.at(2 * at.quad), scale * row.at(2 * at.quad + 1), left.high[half], left.low[half]);
  }
  UNROLL
  for (int number = 0; number < S::PRODUCTS; ++number) {
    multiply<S::PRODUCTS>(sums[0][0], left, one, number);
    multiply<S::PRODUCTS>(sums[0][1], left, two, number);
  }
  const Matrices outer = matrices<S>(shared, S::HIDDEN1 + 2 * S::PART, S::OWN_ROWS, S::H);
  Fragment<4> numbers = masked<S>(sums[0], kept.active2);
  put<S>(outer, 2 * at.warp, numbers, at);
  send_to_owner<S>(shared, S::OWN_OUTER2, numbers, at);
  block_sync();
  MARK(9);
  times_weights<S, 1, S::H, true>(sums, outer, 0, second_layer<S>(shared, S::WEIGHTS), at);
  send_to_owner<S>(shared, S::OWN_OUTER1, masked<S>(sums[0], kept.active1), at);
}

// Gradients of the block's own units, from all rows.
template <class S>
DEVICE void unit_gradients(Gradients<S>& gradients, float* shared, const Place& at) {
  if (at.share == 0)
    add_output_gradients<S>(gradients, shared + S::ALL_GRADIENT,
                            matrices<S>(shared, S::OWN_HIDDEN2, S::ROWS, S::UNITS), at);
  add_weight_gradients<S, S::OWN_IN, S::HIDDEN_TILES>(gradients, gradients.biases + 2,
                                                      matrices<S>(shared, S::OWN_OUTER2, S::ROWS, S::UNITS),
                                                      matrices<S>(shared, S::ALL_HIDDEN1, S::ROWS, S::H), at);
  add_weight_gradients<S, 0, S::IN_TILES>(gradients, gradients.biases,
                                          matrices<S>(shared, S::OWN_OUTER1, S::ROWS, S::UNITS),
                                          matrices<S>(shared, S::ALL_OBSERVED, S::ROWS, S::D), at);
}

// The block's own numbers of all networks, in registers for a whole launch; output weights and biases but for their
// moments are in shared memory.
template <class S>
struct Held {
  float4 numbers[NETWORKS][S::OWN + 2];

  template <class Use>
  DEVICE void for_all(const Args& args, float* shared, const Place& at, Use use) {
    UNROLL
    for (int number = 0; number < S::OWN + 2; ++number) {
      Own own = own_tile<S>(number, at);
      if (!own.exists) continue;
      UNROLL
      for (int network = 0; network < NETWORKS; ++network)
        if (number < S::OWN || network >= MOMENT1)
          use(numbers[network][number], tiles_of<S>(args, shared, network)[own.tile * S::SPAN + at.slot]);
    }
  }
};

// Halves of the hidden layers of a network, in device memory: where all blocks leave their own and read them all.
template <class S>
DEVICE float4* halves_of(const Args& args, int network) {
  return args.scratch + (block_id() * NETWORKS + network) * (1LL * S::CLUSTER * S::TILES * S::SPAN);
}

// Leaves weights of a tile there: each lane of a quad a row of one of its four matrices.
template <class S>
DEVICE void publish(const Args& args, int network, const float4& weights, int tile, const Place& at) {
  bool is_first = tile < S::IN_TILES, is_low = at.quad > 1;
  int wide = is_first ? S::IN_TILES : S::HIDDEN_TILES, column = is_first ? tile : tile - S::IN_TILES;
  int matrix = (2 * at.unit_group + at.quad % 2) * wide + column + is_low * S::HIDDEN_TILES * wide;
  unsigned words[4] = {};  // high parts of rows n and n + 8, then low parts
  split<S::PRODUCTS>(WEIGHT_SCALE * weights.x, WEIGHT_SCALE * weights.y, words[0], words[2]);
  split<S::PRODUCTS>(WEIGHT_SCALE * weights.z, WEIGHT_SCALE * weights.w, words[1], words[3]);
  quad_transpose(words, at.quad);
  if (S::PRODUCTS == 3 || !is_low)
    halves_of<S>(args, network)[(is_first ? 0 : S::FIRST_LAYER) + 8 * matrix + at.group] = as_four(words);
}

// Asks for `count` fours of halves from `first` on, or for their high parts alone.
template <class S>
DEVICE void fetch_halves(const Args& args, float* shared, int network, int first, int count, const Place& at) {
  float4* to = reinterpret_cast<float4*>(shared + (network == PARAMS ? S::WEIGHTS : S::TARGETS)) + first;
  const float4* from = halves_of<S>(args, network) + first;
  if (S::PRODUCTS != 3) count /= 2;
  UNROLL
  for (int i = 0; i < count; i += S::THREADS) copy_beside(to + i + at.thread, from + i + at.thread);
}

// Asks for the hidden layers of a network; each of the online network's is a group of copies.
template <class S>
DEVICE void fetch_network(const Args& args, float* shared, int network, const Place& at) {
  fetch_halves<S>(args, shared, network, 0, S::FIRST_LAYER, at);
  if (network == PARAMS) copies_end_group();
  fetch_halves<S>(args, shared, network, S::FIRST_LAYER, S::NETWORK / 4 - S::FIRST_LAYER, at);
  copies_end_group();
}

// Asks for both networks, in the order in which they are used.
template <class S>
DEVICE void fetch_networks(const Args& args, float* shared, const Place& at) {
  fetch_network<S>(args, shared, PARAMS, at);
  fetch_network<S>(args, shared, TARGET, at);
}

// Everything an update changes, once its norm is known.
template <class S>
DEVICE void apply_held(const Args& args, float* shared, const Gradients<S>& gradients, const float (&biases)[4],
                       const Applied& how, const Step& step, Held<S>& held, const Place& at) {
  UNROLL
  for (int number = 0; number < S::OWN + 2; ++number) {
    Own own = own_tile<S>(number, at);
    if (!own.exists) continue;
    float4 &first = held.numbers[MOMENT1][number], &second = held.numbers[MOMENT2][number];
    if (number < S::OWN) {
      float4 &weight = held.numbers[PARAMS][number], &target = held.numbers[TARGET][number];
      adam(weight, first, second, gradients.hidden[number < S::OWN ? number : 0], how.factors.weights, step);
      publish<S>(args, PARAMS, weight, own.tile, at);
      if (!how.is_soft && !how.is_copy) continue;
      move_tile(target, weight, how.factors.share);
      publish<S>(args, TARGET, target, own.tile, at);
    } else if (number == S::OWN) {
      apply_small<S>(shared, own.tile, first, second, gradients.output, how.factors.weights, step,
                     how.factors.share, at);
    } else {
      apply_small<S>(shared, own.tile, first, second, biases, how.factors.biases, step, how.factors.share, at);
    }
  }
}

}  // namespace tidewalk
