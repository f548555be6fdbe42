// Entry point of the walk along maps; its name is given as TIDEWALK_NAME on the command line.
#include "walk.cuh"

extern "C" __global__ void __launch_bounds__(tidewalk::WALK_THREADS)
    TIDEWALK_NAME(const tidewalk::WalkSizes* sizes, const int* window, const int* ranges, const int* move_ticks,
                  const int* flags, const float* half_spread, const int* tables, const int* words,
                  const float* squares, int* counts, float* reals, signed char* path) {
  extern __shared__ float4 shared[];
  tidewalk::WalkArgs args{sizes,  window, ranges,  move_ticks, flags, half_spread,
                          tables, words,  squares, counts,     reals, path};
  tidewalk::walk_member(args, reinterpret_cast<int*>(shared));
}
