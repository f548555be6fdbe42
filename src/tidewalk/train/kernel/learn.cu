// Entry point of the kernel in one size, given as TIDEWALK_D, _H, _ROWS, _PRODUCTS, _SPLIT, _CLUSTER and _NAME on the
// command line.
#include "member.cuh"

using Size = tidewalk::Shape<TIDEWALK_D, TIDEWALK_H, TIDEWALK_ROWS, TIDEWALK_PRODUCTS, TIDEWALK_SPLIT,
                             TIDEWALK_CLUSTER>;

// What the call changes in place is passed twice, first as an operand and then as a result; both are the same memory.
#define UNNAMED const void *, const void *, const void *, const void *, const void *, const void *
#define NETWORK(name) float *name##1, float *name##2, float *name##3, float *name##4, float *name##5, float *name##6
#define LEAVES_OF(name) {name##1, name##2, name##3, name##4, name##5, name##6}

// Such a build names here the array that it notes the clock in.
#ifndef TIDEWALK_MORE
#define TIDEWALK_MORE
#endif

#if TIDEWALK_CLUSTER > 1
#define CLUSTER_OF __cluster_dims__(1, TIDEWALK_CLUSTER, 1)
#else
#define CLUSTER_OF
#endif

extern "C" __global__ void CLUSTER_OF __launch_bounds__(Size::THREADS, Size::CLUSTER > 1 ? 1 : 512 / Size::THREADS)
    TIDEWALK_NAME(const tidewalk::Sizes* sizes, const tidewalk::Reals* reals, const int* move_ticks, const int* flags,
                  const float* features, const float* half_spread, const int* train,
                  const tidewalk::MemberReals* per_member, const float* scaler, const float* powers,
                  const float* epsilon, const float* corrections, const int* tables, const unsigned* words, UNNAMED,
                  UNNAMED, UNNAMED, UNNAMED, const void*, const void*, const void*, const void*, NETWORK(params),
                  NETWORK(target), NETWORK(first), NETWORK(second), int* bar, int* position, int* age, int2* replay,
                  float* loss, float* q_mean, float4* scratch TIDEWALK_MORE) {
  extern __shared__ float4 shared[];
  tidewalk::Args args{sizes,      reals,    move_ticks, flags,  features,    half_spread, train,
                      per_member, scaler,   powers,     epsilon, corrections, tables,     words,
                      {LEAVES_OF(params), LEAVES_OF(target), LEAVES_OF(first), LEAVES_OF(second)},
                      bar,        position, age,        replay, loss,        q_mean,      scratch};
  tidewalk::learn_member<Size>(args, reinterpret_cast<float*>(shared));
}
