// The kernel on the host, for the tests: one shared library for each size, called with plain pointers.
#include <cstdint>
#include <vector>

#include "member.cuh"

using Size = tidewalk::Shape<TIDEWALK_D, TIDEWALK_H, TIDEWALK_ROWS, TIDEWALK_PRODUCTS, TIDEWALK_SPLIT,
                             TIDEWALK_CLUSTER>;

extern "C" int shared_bytes() { return 4 * Size::SHARED; }

// `pointers` are the operands in the order of the kernel, then the results; state arrays are changed in place.
extern "C" void learn(void** p, int members, int order) {
  using namespace tidewalk;
  Args args{
            static_cast<const Sizes*>(p[0]),
            static_cast<const Reals*>(p[1]),
            static_cast<const int*>(p[2]),
            static_cast<const int*>(p[3]),
            static_cast<const float*>(p[4]),
            static_cast<const float*>(p[5]),
            static_cast<const int*>(p[6]),
            static_cast<const MemberReals*>(p[7]),
            static_cast<const float*>(p[8]),
            static_cast<const float*>(p[9]),
            static_cast<const float*>(p[10]),
            static_cast<const float*>(p[11]),
            static_cast<const int*>(p[12]),
            static_cast<const unsigned*>(p[13]),
            {}};
  for (int leaf = 0; leaf < NETWORKS * LEAVES; ++leaf)
    args.networks[leaf / LEAVES][leaf % LEAVES] = static_cast<float*>(p[14 + leaf]);
  args.bar = static_cast<int*>(p[38]);
  args.position = static_cast<int*>(p[39]);
  args.age = static_cast<int*>(p[40]);
  args.replay = static_cast<int2*>(p[41]);
  args.loss = static_cast<float*>(p[42]);
  args.q_mean = static_cast<float*>(p[43]);
  constexpr int KEPT = Size::CLUSTER > 1 ? NETWORKS : NETWORKS - 1, FOURS = KEPT * Size::TILES * Size::SPAN, FLOATS = Size::CLUSTER * Size::SHARED;
  std::vector<float4> scratch(members * Size::CLUSTER * FOURS, float4{NAN, NAN, NAN, NAN});
  args.scratch = scratch.data();
  size_t watched = scratch.size() * sizeof(float4);
  for (int member = 0; member < members; ++member) {
    std::vector<float> shared(FLOATS + 4, NAN);
    float* aligned = shared.data() + (16 - reinterpret_cast<uintptr_t>(shared.data()) % 16) % 16 / 4;
    emulator::run({member, Size::THREADS, order, aligned, Size::SHARED, Size::CLUSTER, 0, 1, args.scratch, watched},
                  [&] { learn_member<Size>(args, emulator::here.shared); });
  }
}
