// Sizes of a kernel, what it is given, and where things lie in shared memory.
#pragma once

#include "block.cuh"

namespace tidewalk {

enum Flag { DOUBLE = 1, DUELLING = 2, SOFT = 4, SPREAD = 8, ROLL_FEE = 16 };
enum MarketFlag { ROLL = 4, GAP = 8 };
constexpr int FLAG_WORDS = 64;

// Powers of two by which numbers are scaled before they are split into halves, which end at 65504.
constexpr float WEIGHT_SCALE = 256.0f, INPUT_SCALE = 16.0f;

// Every size that is the same for all members, in the order of `_sizes` in call.py.
struct Sizes {
  int steps, members, lanes, batch, updates, n_step, slots, episode_bars, features, seen, positions, flags,
      target_period, flat, first_row, hidden1, hidden2, outputs, clock, learned;
};

struct Reals {
  float huber_delta, max_grad_norm, adam_eps;
};

// One row for each member.
struct MemberReals {
  float reward_scale, side_ticks, roll_ticks, lr, tau;
};

// What a block knows by heart, in shared memory.
struct Known {
  Sizes sizes;
  Reals reals;
  MemberReals own;
  int train[2];
};
static_assert(sizeof(Known) <= 4 * 32, "see KNOWN");

// Hidden layers of H units, observations of D columns (both padded with zeros, which stay zero), OUT output units.
// A block works on ROWS rows at a time. Each warp owns 16 units of both hidden layers: their weights, gradients and
// moments belong to its threads, in "tiles" of four numbers for each thread.
//
// Tile of a hidden layer, over 8 inputs k: {w[n][k], w[n][k+1], w[n+8][k], w[n+8][k+1]} with n = 16 warp + group and
// k = 8 tile + 2 quad. It is what a matrix product leaves in a thread for a gradient, and what it takes as the right
// operand of a forward pass. In memory the 32 fours of a warp are in the order of `slot`: then reading them across, as
// the backward pass does, meets no bank of shared memory twice either.
template <int D_, int H_, int ROWS_, int PRODUCTS_>
struct Shape {
  static constexpr int D = D_, H = H_, ROWS = ROWS_, PRODUCTS = PRODUCTS_, OUT = 8;
  static constexpr int WARPS = H / 16, THREADS = 32 * WARPS;
  static constexpr int ROW_TILES = ROWS / 16, PARTS = WARPS / ROW_TILES;
  static constexpr int IN_TILES = D / 8, HIDDEN_TILES = H / 8;
  static constexpr int BIG_TILES = IN_TILES + HIDDEN_TILES, TILES = BIG_TILES + 2;
  // Rows are eight numbers longer than they need: then no way of reading a fragment meets a bank twice.
  static constexpr int IN_STRIDE = D + 8, HIDDEN_STRIDE = H + 8;
  // Rows of observations and activations are halves, two in a word: first all high parts, then all low ones.
  static constexpr int IN_WORDS = IN_STRIDE / 2, HIDDEN_WORDS = HIDDEN_STRIDE / 2;
  static constexpr int HEAD = OUT * HIDDEN_STRIDE + 2 * H + OUT;
  // Offsets in shared memory, in floats.
  static constexpr int WEIGHTS = 0;  // tiles of the online network
  static constexpr int SMALL = WEIGHTS + 4 * BIG_TILES * THREADS;  // its output weights and all of its biases
  static constexpr int TARGET_SMALL = SMALL + HEAD;  // the same of the target network
  static constexpr int OBSERVED = TARGET_SMALL + HEAD;
  static constexpr int HIDDEN1 = OBSERVED + ROWS * IN_STRIDE;
  static constexpr int HIDDEN2 = HIDDEN1 + ROWS * HIDDEN_STRIDE;
  static constexpr int OUTPUT = HIDDEN2 + ROWS * HIDDEN_STRIDE;  // PARTS partial sums of the output layer
  static constexpr int OUTPUT_GRADIENT = OUTPUT + PARTS * ROWS * OUT;
  static constexpr int CENTER = OUTPUT_GRADIENT + ROWS * OUT;
  static constexpr int SCALE = CENTER + D;
  static constexpr int PER_ROW = SCALE + D;  // see world.cuh
  static constexpr int SUMS = PER_ROW + 12 * ROWS;
  static constexpr int KNOWN = SUMS + 32;
  static constexpr int TABLES = KNOWN + 32;
  static constexpr int MOST_TABLES = 2 * FLAG_WORDS * (OUT - 1) + (4 * (OUT - 1) + 1) * (OUT - 1);
  static constexpr int SHARED = TABLES + (MOST_TABLES + 3) / 4 * 4;
  // Inside a SMALL part.
  static constexpr int FIRST_BIAS = OUT * HIDDEN_STRIDE, SECOND_BIAS = FIRST_BIAS + H, LAST_BIAS = SECOND_BIAS + H;
  static_assert(D % 16 == 0 && H % 16 == 0 && ROWS % 32 == 0 && WARPS % ROW_TILES == 0 && THREADS >= ROWS, "sizes");
};

// A network as the caller holds it: weight [units, inputs] and bias of each layer in turn, of all members.
enum Leaf { WEIGHT1, BIAS1, WEIGHT2, BIAS2, WEIGHT3, BIAS3, LEAVES };
enum Network { PARAMS, TARGET, MOMENT1, MOMENT2, NETWORKS };

struct Args {
  const Sizes* sizes;
  const Reals* reals;
  const int* move_ticks;          // [T]
  const int* flags;               // [T]
  const float* features;          // [T, features]
  const float* half_spread;       // [T], or one number that is not read
  const int* train;               // [M, 2]
  const MemberReals* per_member;  // [M]
  const float* scaler;            // [M, 2, D]: center and scale of every observed feature
  const float* powers;            // [M, n_step + 1] of the discount
  const float* epsilon;           // [steps, M]
  const float* corrections;       // [M, steps * updates, 2]: reciprocals of Adam's bias corrections
  const int* tables;              // bounds [64, P, 2], sides [2, P, P], rolled [2, P, P], lots [P]
  const unsigned* words;          // [steps, M, 3 lanes + updates * batch]
  float* networks[NETWORKS][LEAVES];
  int* bar;  // [M, lanes], as are the next two
  int* position;
  int* age;
  int2* replay;    // [slots * lanes, M]
  float* loss;     // [M], as is the next
  float* q_mean;
  float4* scratch;  // [M, 3, TILES, THREADS]: all networks but PARAMS, which live on chip
};

// A thread's place: its warp, the group of four lanes it is in, its number in that quad, and where its fours lie.
struct Place {
  int thread, warp, group, quad, slot;
};

DEVICE int slot_of(int group, int quad) { return (4 * group + quad) ^ (2 * (group & 2)); }

DEVICE Place place() {
  int thread = thread_id(), group = thread % 32 / 4, quad = thread % 4;
  return {thread, thread / 32, group, quad, thread / 32 * 32 + slot_of(group, quad)};
}

// Tile of the output layer: {w[o][n], w[o+1][n], w[o][n+8], w[o+1][n+8]} with o = 2 quad and n = 16 warp + group.
// Tile of the biases: group 0 holds those of the first hidden layer for units 16 warp + 2 quad + {0, 1, 8, 9}, group 1
// those of the second; group 2 of warp 0 those of the outputs 2 quad + {0, 1}.
// `small` is one of the SMALL parts; returns null for a number that is padding.
template <class S>
DEVICE float* small_number(float* small, int tile, int number, const Place& at) {
  int unit = 16 * at.warp + at.group, pair = 2 * at.quad + number % 2;
  if (tile == S::BIG_TILES) return small + pair * S::HIDDEN_STRIDE + unit + 8 * (number / 2);
  int biased = 16 * at.warp + pair + 8 * (number / 2);
  if (at.group < 2) return small + (at.group == 0 ? S::FIRST_BIAS : S::SECOND_BIAS) + biased;
  return at.group == 2 && at.warp == 0 && number < 2 ? small + S::LAST_BIAS + pair : nullptr;
}

template <class S>
DEVICE float4* scratch_of(const Args& args, Network network) {
  return args.scratch + (block_id() * (NETWORKS - 1LL) + (network - TARGET)) * S::TILES * S::THREADS;
}

// Where the caller holds the numbers of a tile: leaf, and index in it; below 0 for padding.
struct Spot {
  Leaf leaf;
  long long index;
};

DEVICE Spot spot(Leaf leaf, int size, int row, int rows, int column, int columns) {
  long long start = static_cast<long long>(block_id()) * size;
  return {leaf, row < rows && column < columns ? start + row * columns + column : -1};
}

template <class S>
DEVICE Spot caller_spot(const Sizes& sizes, int tile, int number, const Place& at) {
  int observed = sizes.seen + sizes.positions, h1 = sizes.hidden1, h2 = sizes.hidden2, outputs = sizes.outputs;
  int low = 16 * at.warp + at.group, unit = low + 8 * (number / 2), pair = 2 * at.quad + number % 2;
  if (tile < S::IN_TILES) return spot(WEIGHT1, h1 * observed, unit, h1, 8 * tile + pair, observed);
  if (tile < S::BIG_TILES) return spot(WEIGHT2, h2 * h1, unit, h2, 8 * (tile - S::IN_TILES) + pair, h1);
  if (tile == S::BIG_TILES) return spot(WEIGHT3, outputs * h2, pair, outputs, unit, h2);
  int biased = 16 * at.warp + pair + 8 * (number / 2);
  if (at.group == 0) return spot(BIAS1, h1, 0, 1, biased, h1);
  if (at.group == 1) return spot(BIAS2, h2, 0, 1, biased, h2);
  return spot(BIAS3, outputs, 0, at.group == 2 && at.warp == 0 && number < 2, pair, outputs);
}

}  // namespace tidewalk
