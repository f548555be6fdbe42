// Primitives of a cluster: blocks that run at the same time, one for each number along the second axis of the grid, and
// write into one another's shared memory.
#pragma once

#include "block.cuh"

#ifdef __CUDACC__

namespace tidewalk {

DEVICE int cluster_rank() { return blockIdx.y; }

// Barrier of all threads of all blocks of the cluster, in two halves: what they did before they arrived is done, and
// seen by all, after the wait. There is no other barrier of the cluster between the halves.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Where the block of rank `rank` has what lies at `place` in the shared memory of this one.
DEVICE unsigned remote(const void* place, int rank) {
  unsigned out, own = static_cast<unsigned>(__cvta_generic_to_shared(place));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(own), "r"(rank));
  return out;
}

// Writes at the place of the same name in the shared memory of the block of rank `rank`, be it this one.
DEVICE void send(float* place, int rank, float number) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote(place, rank)), "f"(number) : "memory");
}
DEVICE void send(float4* place, int rank, float4 four) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote(place, rank)), "f"(four.x),
               "f"(four.y), "f"(four.z), "f"(four.w)
               : "memory");
}

}  // namespace tidewalk

#endif

namespace tidewalk {

// Number of this block among those that share a member.
template <class S>
DEVICE int rank_of() {
  return S::CLUSTER > 1 ? cluster_rank() : 0;
}

// Barrier of the blocks that share a member.
template <class S>
DEVICE void member_sync() {
  if constexpr (S::CLUSTER > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    block_sync();
  }
}

// Writes at the place of the same name in the other blocks that share the member; or in all.
template <class S, class T>
DEVICE void send_others(T* place, T value) {
  UNROLL
  for (int other = 1; other < S::CLUSTER; ++other) send(place, (cluster_rank() + other) % S::CLUSTER, value);
}

template <class S, class T>
DEVICE void send_all(T* place, T value) {
  *place = value;
  send_others<S>(place, value);
}

}  // namespace tidewalk
