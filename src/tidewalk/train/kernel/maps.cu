// Entry point of the maps in one size, given as TIDEWALK_D, _H, _ROWS, _PRODUCTS and _NAME on the command line.
#include "maps.cuh"

using Size = tidewalk::MapShape<TIDEWALK_D, TIDEWALK_H, TIDEWALK_ROWS, TIDEWALK_PRODUCTS>;

extern "C" __global__ void __launch_bounds__(Size::THREADS, 1)
    TIDEWALK_NAME(const tidewalk::MapSizes* sizes, const float* features, const int* flags, const int* window,
                  const int* ranges, const float* center, const float* scale, const int* tables, const float* weight1,
                  const float* bias1, const float* weight2, const float* bias2, const float* weight3,
                  const float* bias3, int* words, float* squares) {
  extern __shared__ float4 shared[];
  tidewalk::MapArgs args{sizes,  features, flags, window,
                         ranges, center,   scale, tables,
                         {weight1, bias1, weight2, bias2, weight3, bias3},
                         words,  squares};
  tidewalk::map_member<Size>(args, reinterpret_cast<float*>(shared));
}
