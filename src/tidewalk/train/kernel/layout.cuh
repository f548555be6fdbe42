// Sizes of a kernel, what it is given, and where things lie in shared memory.
#pragma once

#include "cluster.cuh"

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
// CLUSTER blocks work for a member, ROWS rows at a time, and each owns UNITS of the units of both hidden layers: it has
// the weights, gradients and moments of these. Where they are several, each takes OWN_ROWS of the rows through the
// whole network and back, of which it has a copy in halves (see rows.cuh). SPLIT warps share a "unit group": 16 units
// of both hidden layers, with their weights, gradients and moments in "tiles" of four numbers for each of 32 lanes. A
// warp takes its share of the rows where it goes through all tiles, and its share of the tiles where it goes through
// all rows: tile t of a layer belongs to share t % SPLIT. No sum depends on SPLIT or CLUSTER.
//
// Tile of a hidden layer, over 8 inputs k: {w[n][k], w[n][k+1], w[n+8][k], w[n+8][k+1]} with n = 16 unit_group + group
// and k = 8 tile + 2 quad. It is what a matrix product leaves in a thread for a gradient, and what it takes as the
// right operand of a forward pass. In memory the 32 fours of a unit group are in the order of `slot`: then reading them
// across, as the backward pass does, meets no bank of shared memory twice either.
template <int D_, int H_, int ROWS_, int PRODUCTS_, int SPLIT_ = 1, int CLUSTER_ = 1>
struct Shape {
  static constexpr int D = D_, H = H_, ROWS = ROWS_, PRODUCTS = PRODUCTS_, OUT = 8;
  static constexpr int SPLIT = SPLIT_, CLUSTER = CLUSTER_;
  static constexpr int UNITS = H / CLUSTER, UNIT_GROUPS = H / 16, OWN_GROUPS = UNITS / 16, SPAN = 32 * OWN_GROUPS;
  static constexpr int WARPS = OWN_GROUPS * SPLIT, THREADS = 32 * WARPS;
  static constexpr int ROW_TILES = ROWS / 16, ROW_SHARE = ROW_TILES / SPLIT;
  // Of the sums of the output layer: at least two unit groups each, or one where blocks share a member.
  static constexpr int OWN_PARTS = 2 * WARPS / ROW_TILES < OWN_GROUPS ? WARPS / ROW_TILES : OWN_GROUPS / 2;
  static constexpr int PARTS = CLUSTER > 1 ? UNIT_GROUPS : OWN_PARTS;
  static constexpr int OUT_ROWS = CLUSTER > 1 ? 3 * ROWS / CLUSTER : ROWS;  // rows of those sums
  static constexpr int IN_TILES = D / 8, HIDDEN_TILES = H / 8;
  static constexpr int BIG_TILES = IN_TILES + HIDDEN_TILES, TILES = BIG_TILES + 2;
  static constexpr int OWN_IN = (IN_TILES + SPLIT - 1) / SPLIT, OWN = OWN_IN + HIDDEN_TILES / SPLIT;  // of a warp
  static constexpr int CLASSES = 4;  // of tiles, by their number in a layer: what a norm is summed by
  // Rows are eight numbers longer than they need: then no way of reading a fragment meets a bank twice.
  static constexpr int IN_STRIDE = D + 8, HIDDEN_STRIDE = H + 8, UNIT_STRIDE = H + (CLUSTER > 1 ? 4 : 8);
  // Rows of observations and activations are halves, two in a word: first all high parts, then all low ones.
  static constexpr int IN_WORDS = IN_STRIDE / 2, HIDDEN_WORDS = HIDDEN_STRIDE / 2;
  static constexpr int HEAD = OUT * UNIT_STRIDE + 2 * H + OUT;
  static constexpr int NETWORK = H * (D + H);  // numbers of the hidden layers
  static constexpr int FIRST_LAYER = H * D / 4;  // fours of the first of them
  // Offsets in shared memory, in floats.
  static constexpr int WEIGHTS = 0;  // of the online network: tiles, or halves where blocks share a member
  // Halves of the target network; then, while an update is made, what all rows of the batch leave for the block.
  static constexpr int TARGETS = WEIGHTS + NETWORK;
  static constexpr int ALL_HIDDEN1 = TARGETS, ALL_OBSERVED = ALL_HIDDEN1 + ROWS * H;
  static constexpr int OWN_HIDDEN2 = ALL_OBSERVED + ROWS * D, OWN_OUTER2 = OWN_HIDDEN2 + ROWS * UNITS;
  static constexpr int OWN_OUTER1 = OWN_OUTER2 + ROWS * UNITS, ALL_GRADIENT = OWN_OUTER1 + ROWS * UNITS;
  static_assert(CLUSTER == 1 || ALL_GRADIENT + ROWS * OUT <= TARGETS + NETWORK, "room of the target network");
  static constexpr int SMALL = TARGETS + (CLUSTER > 1 ? NETWORK : 0);  // online output weights and all biases
  static constexpr int TARGET_SMALL = SMALL + HEAD;  // the same of the target network
  static constexpr int OBSERVED = TARGET_SMALL + HEAD;
  // Where blocks share a member: three parts of its own rows, one after another.
  static constexpr int OWN_ROWS = ROWS / CLUSTER, PART = OWN_ROWS * H, OBSERVED_PART = OWN_ROWS * D;
  static constexpr int HIDDEN1 = OBSERVED + (CLUSTER > 1 ? 3 * OBSERVED_PART : ROWS * IN_STRIDE);
  static constexpr int HIDDEN2 = HIDDEN1 + ROWS * HIDDEN_STRIDE;
  static constexpr int OUTPUT = CLUSTER > 1 ? HIDDEN1 + PART : HIDDEN2 + ROWS * HIDDEN_STRIDE;  // PARTS sums of outputs
  static constexpr int OUTPUT_OF_TARGET = HIDDEN1 + 2 * PART;  // in a cluster
  static constexpr int OUTPUT_GRADIENT = OUTPUT + PARTS * ROWS * OUT;
  // See world.cuh; in use while no stage is, or while no lane is observed.
  static constexpr int MAIL = CLUSTER > 1 ? OBSERVED + 2 * OBSERVED_PART : OUTPUT_GRADIENT + ROWS * OUT;
  static constexpr int OUTPUT_ROOM = (PARTS + 1) * ROWS * OUT + 24 * ROWS;
  static constexpr int CHUNK = SPLIT > 2 ? SPLIT : 2, STAGED = 2 * CHUNK * 4 * SPAN;
  static constexpr int CENTER =
      CLUSTER > 1 ? HIDDEN1 + 3 * PART : OUTPUT + (STAGED > OUTPUT_ROOM ? STAGED : OUTPUT_ROOM);
  static constexpr int SCALE = CENTER + D;
  static constexpr int PER_ROW = SCALE + D;  // of samples, and then of lanes; see world.cuh
  static constexpr int PER_LANE = PER_ROW + 12 * OWN_ROWS;
  static constexpr int JUDGED = PER_LANE + 12 * OWN_ROWS;  // four numbers of every row, of all blocks
  static constexpr int SUMS = JUDGED + (CLUSTER > 1 ? 4 * ROWS : 0);
  static constexpr int NORMS = SUMS + 16;  // CLASSES sums of squares for each unit group
  static constexpr int KNOWN = NORMS + 32;
  static constexpr int TABLES = KNOWN + 32;
  static constexpr int MOST_TABLES = 2 * FLAG_WORDS * (OUT - 1) + (4 * (OUT - 1) + 1) * (OUT - 1);
  static constexpr int AFTER_TABLES = TABLES + (MOST_TABLES + 3) / 4 * 4;
  // Two chunks of tiles of the target network at a time, while its layers are computed.
  static constexpr int STAGE = OUTPUT;
  // Features on their way, where there is room for them.
  static constexpr int RAW = AFTER_TABLES;
  static constexpr bool HAS_RAW = CLUSTER == 1 && H == 128 && 4 * (RAW + ROWS * D) <= 227 * 1024;
  static constexpr int SHARED = RAW + (HAS_RAW ? ROWS * D : 0);
  static_assert(CLUSTER == 1 || 4 * SHARED <= 227 * 1024, "room");
  // Inside a SMALL part.
  static constexpr int FIRST_BIAS = OUT * UNIT_STRIDE, SECOND_BIAS = FIRST_BIAS + H;
  static constexpr int LAST_BIAS = SECOND_BIAS + H;
  static_assert(D % 16 == 0 && UNITS % 32 == 0 && ROWS % 32 == 0 && THREADS >= ROWS, "sizes");
  static_assert(ROW_TILES % SPLIT == 0 && CLASSES % SPLIT == 0 && CLASSES * UNIT_GROUPS <= 32, "shares");
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
  float* networks[NETWORKS][LEAVES];  // never indexed by a number known late: then it need not lie in memory
  int* bar;  // [M, lanes], as are the next two
  int* position;
  int* age;
  int2* replay;    // [slots * lanes, M]
  float* loss;     // [M], as is the next
  float* q_mean;
  float4* scratch;  // [M, 3, TILES, SPAN]: networks that are not on chip; [M, 4, CLUSTER, TILES, SPAN] of a cluster
};

// A thread's place: its warp, the unit group that the warp works on (among all, and in its block), the share it takes,
// the group of four lanes that the thread is in, its number in that quad, and where its fours lie.
struct Place {
  int thread, warp, unit_group, own_group, share, group, quad, slot;
};

DEVICE int slot_of(int group, int quad) { return (4 * group + quad) ^ (2 * (group & 2)); }

template <class S>
DEVICE Place place() {
  int thread = thread_id(), warp = thread / 32, group = thread % 32 / 4, quad = thread % 4;
  int own_group = warp % S::OWN_GROUPS, slot = 32 * own_group + slot_of(group, quad);
  return {thread, warp, S::OWN_GROUPS * rank_of<S>() + own_group, own_group, warp / S::OWN_GROUPS, group, quad, slot};
}

// Waits for the warps of the unit group.
template <class S>
DEVICE void share_sync(const Place& at) {
  if (S::SPLIT == 1)
    warp_sync();
  else
    group_sync(at.own_group, 32 * S::SPLIT);
}

// Tiles that belong to a warp, in its own count: OWN of both hidden layers, then two small ones, of share 0. `exists`
// is false for one beyond a layer.
struct Own {
  int tile;
  bool exists;
};

template <class S>
DEVICE Own own_tile(int number, const Place& at) {
  if (number >= S::OWN) return {S::BIG_TILES + number - S::OWN, at.share == 0};
  if (number >= S::OWN_IN) return {S::IN_TILES + S::SPLIT * (number - S::OWN_IN) + at.share, true};
  int tile = S::SPLIT * number + at.share;
  return {tile, S::IN_TILES % S::SPLIT == 0 || tile < S::IN_TILES};
}

// Tile of the output layer: {w[o][n], w[o+1][n], w[o][n+8], w[o+1][n+8]} with o = 2 quad and n = 16 unit_group + group.
// Tile of the biases: quad 0 holds those of the hidden layers {b1[n], b1[n+8], b2[n], b2[n+8]}; in a block's first unit
// group the first number of quad 1 is that of output `group`.
// `small` is one of the SMALL parts; returns null for a number that is padding.
template <class S>
DEVICE float* small_number(float* small, int tile, int number, const Place& at) {
  int unit = 16 * at.unit_group + at.group;
  if (tile == S::BIG_TILES) return small + (2 * at.quad + number % 2) * S::UNIT_STRIDE + unit + 8 * (number / 2);
  if (at.quad == 0 && number < 2) return small + S::FIRST_BIAS + 16 * at.unit_group + at.group + 8 * number;
  if (at.quad == 0) return small + S::SECOND_BIAS + unit + 8 * (number - 2);
  return at.quad == 1 && at.own_group == 0 && number == 0 ? small + S::LAST_BIAS + at.group : nullptr;
}

// Whether such a number is for all blocks that share the member. The biases of the outputs are not: each knows them.
template <class S>
DEVICE bool is_sent(const float* number, int tile, const Place& at) {
  return number != nullptr && (tile == S::BIG_TILES || at.quad == 0);
}

// The block's tiles of a network.
template <class S>
DEVICE float4* tiles_of(const Args& args, float* shared, int network) {
  if (network == PARAMS && S::CLUSTER == 1) return reinterpret_cast<float4*>(shared + S::WEIGHTS);
  constexpr int COUNT = S::CLUSTER == 1 ? NETWORKS - 1 : NETWORKS;
  int place = S::CLUSTER == 1 ? network - TARGET : network * S::CLUSTER + rank_of<S>();
  return args.scratch + (block_id() * COUNT * S::CLUSTER + place) * (1LL * S::TILES * S::SPAN);
}

DEVICE float* leaf_of(const Args& args, int network, Leaf leaf) {
  float* found = args.networks[network][0];
  UNROLL
  for (int i = 1; i < LEAVES; ++i) found = leaf == i ? args.networks[network][i] : found;
  return found;
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
  int low = 16 * at.unit_group + at.group, unit = low + 8 * (number / 2), pair = 2 * at.quad + number % 2;
  if (tile < S::IN_TILES) return spot(WEIGHT1, h1 * observed, unit, h1, 8 * tile + pair, observed);
  if (tile < S::BIG_TILES) return spot(WEIGHT2, h2 * h1, unit, h2, 8 * (tile - S::IN_TILES) + pair, h1);
  if (tile == S::BIG_TILES) return spot(WEIGHT3, outputs * h2, pair, outputs, unit, h2);
  int biased = low + 8 * (number % 2);
  if (at.quad > 0) return spot(BIAS3, outputs, 0, at.quad == 1 && at.own_group == 0 && number == 0, at.group, outputs);
  return number < 2 ? spot(BIAS1, h1, 0, 1, biased, h1) : spot(BIAS2, h2, 0, 1, biased, h2);
}

}  // namespace tidewalk
