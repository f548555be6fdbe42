// Primitives of kernels whose grid has a second axis: several blocks share a member.
#pragma once

#include "block.cuh"

#ifdef __CUDACC__

namespace tidewalk {

DEVICE int part_id() { return blockIdx.y; }
DEVICE int part_count() { return gridDim.y; }

}  // namespace tidewalk

#endif

namespace tidewalk {

// The map of a bar, from the position held before its decision to the one held after it: four bits for each position.
DEVICE int field(int word, int position) { return (word >> (4 * position)) & 15; }

DEVICE int identity_map(int positions) {
  int word = 0;
  for (int position = 0; position < positions; ++position) word |= position << (4 * position);
  return word;
}

}  // namespace tidewalk
