// A stack of its own for each thread of a block, and how to go on with another one.
#pragma once

#include <cstdint>
#include <memory>

#ifdef __x86_64__

// Saves what a function must keep on the stack it leaves, and goes on where the other stack was left.
extern "C" void switch_stack(void** left, void* next);
asm(R"(
.text
switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulator {

struct Context {
  void* top = nullptr;
  void prepare(char* stack, size_t size, void (*enter)()) {
    void** place = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t{15});
    *--place = nullptr;                           // where `enter` would return to, which it never does
    *--place = reinterpret_cast<void*>(enter);
    for (int i = 0; i < 6; ++i) *--place = nullptr;
    top = place;
  }
  void go_to(Context& other) { switch_stack(&top, other.top); }
};

}  // namespace emulator

#else

#include <ucontext.h>

namespace emulator {

struct Context {
  ucontext_t context;
  void prepare(char* stack, size_t size, void (*enter)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    makecontext(&context, enter, 0);
  }
  void go_to(Context& other) { swapcontext(&context, &other.context); }
};

}  // namespace emulator

#endif

namespace emulator {

struct Stack {
  static constexpr size_t SIZE = 256 * 1024;
  Context context;
  std::unique_ptr<char[]> room{new char[SIZE]};  // not cleared: most of it is never touched

  void prepare(void (*enter)()) { context.prepare(room.get(), SIZE, enter); }
};

}  // namespace emulator
