// What lets a host compiler take an entry point of a kernel as a plain function, and calls it with plain pointers.
#pragma once

#include "emulator.hpp"

#define __global__
#define __shared__
#define __launch_bounds__(...)

struct Pointer {
  void* place;
  template <class T>
  operator T*() const {
    return static_cast<T*>(place);
  }
};

template <class... Args, size_t... I>
void call_with(void (*entry)(Args...), void** p, std::index_sequence<I...>) {
  entry(Pointer{p[I]}...);
}

template <class... Args>
void call(void (*entry)(Args...), void** p) {
  call_with(entry, p, std::index_sequence_for<Args...>{});
}
