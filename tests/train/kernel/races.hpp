// Finds accesses to the shared memory of blocks that no barrier puts in order, whatever order they had here.
//
// The sources of a kernel are compiled so that the compiler calls a function for every load and every store
// (`-fsanitize=thread`, without its runtime); those functions are in `races.cpp`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace races {

// Keeps the first thing that was wrong, in words.
void fail(const std::string& what);
bool has_fault();

// The thread that runs, counted over all blocks; below 0 for none. One that did wrong must not go on, with numbers that
// may be anything: `leave` is called, and does not return.
extern int current;
extern void (*leave)();

// What is watched: `shared_bytes` of each block, one behind another, and a piece of device memory.
struct Memory {
  const void* shared;
  size_t shared_bytes;
  const void* device;
  size_t device_bytes;
};
void begin(const Memory& memory, int blocks, int threads);
void end();

// What each of these threads did before, all of them know; they are counted as `current` is.
void meet(const std::vector<int>& threads);

// The halves of a barrier of all threads of all blocks, for the current thread.
void arrive();
void wait();

// The current thread reads here, where the compiler does not see it; or writes, maybe in another block's memory.
void read(const void* place, size_t bytes);
void send(const void* place, size_t bytes);

// The current thread asks for a copy to this word; until it comes, nobody may touch the place.
void ask(const void* word);
void come(const void* word);

}  // namespace races
