// Primitives of one thread block: identity, barriers, warp sums and the matrix product of a warp.
//
// The rest of the kernel is written against these names alone, so that a host compiler can run the same code: there
// they come from `emulator.hpp`, which the tests bring along.
#pragma once

#ifdef __CUDACC__

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

namespace tidewalk {

DEVICE int thread_id() { return threadIdx.x; }
DEVICE int block_id() { return blockIdx.x; }
DEVICE void block_sync() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }
// Waits until `threads` threads, in whole warps, have come to barrier `number`, from 0 to 14.
DEVICE void group_sync(int number, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(number + 1), "r"(threads) : "memory");
}
DEVICE void soon(const void* place) { asm volatile("prefetch.global.L2 [%0];" ::"l"(place)); }

// Copies a number, or two, into shared memory beside what follows; done for the thread's own after `copies_done`.
DEVICE void copy_beside(float* to, const float* from) {
  unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
}
DEVICE void copy_beside(int2* to, const int2* from) {
  unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(place), "l"(from) : "memory");
}
DEVICE void copy_beside(int* to, const int* from) {
  copy_beside(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
}
// Past the first level of cache, where what another block wrote may be missing.
DEVICE void copy_beside(float4* to, const float4* from) {
  unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}
// Copies that a thread asked for come in groups, in turn: waits for all but the LATER last ones, or for all there are.
DEVICE void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER>
DEVICE void copies_done_before() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }
DEVICE void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE unsigned bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(unsigned bits) { return __uint_as_float(bits); }
DEVICE float root(float value) {
  float out;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
  return out;
}
DEVICE float quotient(float above, float below) {
  float out;
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(out) : "f"(above), "f"(below));
  return out;
}

// Two numbers as halves in one word, the first in the low bits; and back.
DEVICE unsigned halves_of(float first, float second) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
DEVICE float2 floats_of(unsigned pair) {
  float2 out;
  asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(out.x), "=f"(out.y)
      : "r"(pair));
  return out;
}

// Four matrices of 8x8 halves; `row` is where this lane's row starts: that of matrix lane / 8, row lane % 8. A thread
// is given the pair in row `group` and columns 2 quad and 2 quad + 1 of each, or of its transpose.
DEVICE void load_matrices(unsigned (&out)[4], const unsigned* row) {
  unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(place)
               : "memory");
}
DEVICE void load_transposed(unsigned (&out)[4], const unsigned* row) {
  unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(place)
               : "memory");
}

// c += a b for 16x16 times 16x8.
DEVICE void multiply_halves(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tidewalk

#else

#include "emulator.hpp"

#endif

namespace tidewalk {

// A number is held as two halves: its value rounded to eleven bits, and what the rounding left. With three products
// (low high, high low, high high) a matrix product comes close to that of float32, with the last alone to that of
// tf32. So that what is left is no smaller than a half can hold, numbers are scaled by a power of two first.
template <int PRODUCTS>
DEVICE void split(float first, float second, unsigned& high, unsigned& low) {
  high = halves_of(first, second);
  if (PRODUCTS < 3) return;
  float2 kept = floats_of(high);
  low = halves_of(first - kept.x, second - kept.y);
}

// Operands of a product, left 16x16 or right 16x8: the high and low halves that a thread holds.
template <int N>
struct Fragment {
  unsigned high[N];
  unsigned low[N];
};

// One of the products that make up left times right; in the order 0, 1, 2 small ones are added first. Callers go
// through many independent sums for each number: a sum must wait for the product that it was given before.
template <int PRODUCTS>
DEVICE void multiply(float (&c)[4], const Fragment<4>& a, const Fragment<2>& b, int number) {
  if (number == PRODUCTS - 1)
    multiply_halves(c, a.high, b.high);
  else if (number == 0)
    multiply_halves(c, a.low, b.high);
  else
    multiply_halves(c, a.high, b.low);
}

// Sum over the lanes of a warp, the same in all of them, in a fixed order.
DEVICE float warp_sum(float value) {
  UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Largest over the lanes of a warp, the same in all of them.
DEVICE float warp_most(float value) {
  UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Word i of lane q of a quad goes to lane i, as its word q.
DEVICE void quad_transpose(unsigned (&words)[4], int quad) {
  UNROLL
  for (int mask = 1; mask < 4; mask *= 2)
    UNROLL
    for (int i = 0; i < 2; ++i) {
      int low = mask == 1 ? 2 * i : i, high = low + mask;
      bool is_high = quad & mask;
      unsigned other = bits_of(shuffle_xor(float_of(is_high ? words[low] : words[high]), mask));
      words[low] = is_high ? other : words[low];
      words[high] = is_high ? words[high] : other;
    }
}

}  // namespace tidewalk
