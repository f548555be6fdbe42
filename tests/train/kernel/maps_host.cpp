// The maps on the host, for the tests: one shared library for each size, whose entry point is that of the kernel.
#define TIDEWALK_NAME entry
#include "entry_host.hpp"
#include "maps.cu"

alignas(16) float4 shared[Size::SHARED / 4];

extern "C" int shared_bytes() { return sizeof shared; }

// `p` are the operands in the order of the kernel, then the results.
extern "C" void run(void** p, int members, int parts, int order) {
  for (int block = 0; block < members * parts; ++block) {
    for (float4& four : shared) four = {NAN, NAN, NAN, NAN};
    emulator::run({block % members, Size::THREADS, order, &shared->x, Size::SHARED, 1, block / members, parts},
                  [&] { call(entry, p); });
  }
}
