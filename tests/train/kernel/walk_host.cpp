// The walk along maps on the host, for the tests; its entry point is that of the kernel.
#define TIDEWALK_NAME entry
#include "entry_host.hpp"
#include "walk.cu"

alignas(16) float4 shared[tidewalk::WALK_SHARED / 4];

extern "C" int shared_bytes() { return sizeof shared; }

// `p` are the operands in the order of the kernel, then the results.
extern "C" void run(void** p, int members, int, int order) {
  for (int member = 0; member < members; ++member) {
    for (float4& four : shared) four = {NAN, NAN, NAN, NAN};
    emulator::run({member, tidewalk::WALK_THREADS, order, &shared->x, tidewalk::WALK_SHARED}, [&] { call(entry, p); });
  }
}
