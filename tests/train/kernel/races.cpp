// Vector clocks: of every thread it is known up to when it knows of what each other thread did, and of every word who
// wrote it last and who read it since, and when.
#include "races.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace races {

int current = -1;
void (*leave)() = nullptr;

namespace {

std::string fault;

// Up to when each thread is known, and then each block: a block's memory is there once the block is known.
using Row = std::vector<unsigned>;

struct Event {
  int thread = -1;
  unsigned time = 0;
};

struct Word {
  Event write, read;
  bool is_asked_for = false;
  std::unique_ptr<unsigned[]> reads;  // when each thread that may read it did; only where several have
};

constexpr size_t WORD = 4;

struct State {
  Memory given;
  size_t words = 0, shared = 0;  // on chip: of a block, and of all
  int blocks = 0, threads = 0;
  unsigned now = 1;
  std::vector<Word> memory;
  std::vector<std::shared_ptr<const Row>> known;  // by every thread
  std::shared_ptr<Row> coming;                    // what is known to those who wait for a barrier in halves
  int arrived = 0;
  std::shared_ptr<const Row> merged;        // what `coming` was last given, the same for most threads
  std::shared_ptr<const Row> came;          // what those know who waited for the last of them
  std::shared_ptr<const Row> with, joined;  // the row that `came` was last added to, and the sum
} state;

void add(Row& row, const Row& other) {
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::max(row[i], other[i]);
}

bool knows(const Event& event) {
  return event.thread < 0 || event.thread == current || (*state.known[current])[event.thread] >= event.time;
}

std::string name_of(int thread) {
  if (thread >= state.blocks * state.threads)
    return "the start of block " + std::to_string(thread - state.blocks * state.threads);
  return "thread " + std::to_string(thread % state.threads) + " of block " + std::to_string(thread / state.threads);
}

// Where a word is: its block, and its number in the memory of that; the block is below 0 for device memory.
struct Spot {
  int block;
  size_t number;
  int first, threads;  // those that may read it
};

Spot spot_of(size_t number) {
  if (number >= state.shared) return {-1, number - state.shared, 0, state.blocks * state.threads};
  int block = static_cast<int>(number / state.words);
  return {block, number % state.words, block * state.threads, state.threads};
}

std::string name_of(const Spot& spot) {
  std::string name = "word " + std::to_string(spot.number) + " of ";
  return name + (spot.block < 0 ? "device memory" : "block " + std::to_string(spot.block)) + ": ";
}

void race(size_t word, const char* before, int thread, const char* now) {
  fail(name_of(spot_of(word)) + before + " by " + name_of(thread) + " and " + now + " by " + name_of(current) +
       ", and no barrier is between");
}

bool is_of_other_block(const Spot& spot) { return spot.block >= 0 && current / state.threads != spot.block; }

void read_word(size_t number) {
  Word& word = state.memory[number];
  const Spot spot = spot_of(number);
  if (is_of_other_block(spot)) return fail(name_of(spot) + "read by " + name_of(current));
  if (word.write.thread >= state.blocks * state.threads)
    return fail(name_of(spot) + "read by " + name_of(current) + ": nothing was written, or no barrier is between");
  if (word.is_asked_for) return race(number, "asked for", word.write.thread, "read");
  if (!knows(word.write)) return race(number, "written", word.write.thread, "read");
  if (!word.reads && knows(word.read)) {
    word.read = {current, state.now};
    return;
  }
  if (!word.reads) {
    word.reads = std::make_unique<unsigned[]>(spot.threads);
    word.reads[word.read.thread - spot.first] = word.read.time;
  }
  word.reads[current - spot.first] = state.now;
}

// A thread of whose last read of a word the current one does not know; below 0 for none.
int unknown_reader(const Word& word, const Spot& spot) {
  if (!word.reads) return knows(word.read) ? -1 : word.read.thread;
  const unsigned* row = state.known[current]->data() + spot.first;
  for (int i = 0; i < spot.threads; ++i)
    if (word.reads[i] > row[i] && spot.first + i != current) return spot.first + i;
  return -1;
}

void send_word(size_t number) {
  Word& word = state.memory[number];
  const Spot spot = spot_of(number);
  int reader = unknown_reader(word, spot);
  if (word.is_asked_for) return race(number, "asked for", word.write.thread, "written");
  if (!knows(word.write)) return race(number, "written", word.write.thread, "written");
  if (reader >= 0) return race(number, "read", reader, "written");
  word.write = {current, state.now};  // who knows of it knows of the reads before
}

void write_word(size_t number) {
  const Spot spot = spot_of(number);
  if (is_of_other_block(spot)) return fail(name_of(spot) + "written, and not sent, by " + name_of(current));
  send_word(number);
}

// Calls `use` for the words of a place in one piece of memory whose words are numbered from `before` on.
template <class Use>
bool for_words_in(const void* memory, size_t words, size_t before, const void* place, size_t bytes, Use use) {
  size_t offset = static_cast<const char*>(place) - static_cast<const char*>(memory);  // huge for one before it
  if (offset >= words * WORD) return false;
  size_t stop = std::min((offset + bytes - 1) / WORD + 1, words);
  for (size_t number = offset / WORD; number < stop; ++number) use(before + number);
  return true;
}

template <class Use>
void for_words(const void* place, size_t bytes, Use use) {
  if (current < 0) return;
  if (!for_words_in(state.given.shared, state.shared, 0, place, bytes, use))
    for_words_in(state.given.device, state.given.device_bytes / WORD, state.shared, place, bytes, use);
  if (!fault.empty()) leave();
}

void write(const void* place, size_t bytes) { for_words(place, bytes, write_word); }

}  // namespace

void fail(const std::string& what) {
  if (fault.empty()) fault = what;
}

bool has_fault() { return !fault.empty(); }

void read(const void* place, size_t bytes) { for_words(place, bytes, read_word); }

void send(const void* place, size_t bytes) { for_words(place, bytes, send_word); }

void ask(const void* word) {
  for_words(word, WORD, [](size_t number) {
    write_word(number);
    state.memory[number].is_asked_for = true;
  });
}

void come(const void* word) {
  for_words(word, WORD, [](size_t number) {
    state.memory[number].is_asked_for = false;
    write_word(number);
  });
}

void begin(const Memory& memory, int blocks, int threads) {
  state = State{};
  state.given = memory;
  state.words = memory.shared_bytes / WORD;
  state.shared = state.words * blocks;
  state.blocks = blocks;
  state.threads = threads;
  state.memory.resize(state.shared + memory.device_bytes / WORD);
  for (int block = 0; block < blocks; ++block) {
    Row row((threads + 1) * blocks, 0);
    row[threads * blocks + block] = 1;
    state.known.resize(state.known.size() + threads, std::make_shared<const Row>(row));
    for (size_t word = 0; word < state.words; ++word)
      state.memory[block * state.words + word].write = {threads * blocks + block, 1};
  }
  state.coming = std::make_shared<Row>((threads + 1) * blocks, 0);
}

// Whether a thread of the block knows of a write to its memory by now: then the block did not end before.
bool is_known_to_block(const Event& write, int block) {
  int stop = (block + 1) * state.threads;
  for (current = stop - state.threads; current < stop; ++current)
    if (knows(write)) return true;
  return false;
}

void end() {
  for (size_t number = 0; number < state.shared && fault.empty(); ++number) {
    const Spot spot = spot_of(number);
    int writer = state.memory[number].write.thread;
    bool is_own = writer / state.threads == spot.block || writer >= state.blocks * state.threads;
    if (!is_own && !is_known_to_block(state.memory[number].write, spot.block))
      fail(name_of(spot) + "sent by " + name_of(writer) + ", and the block may have ended before");
  }
  current = -1;
  state = State{};
}

void meet(const std::vector<int>& threads) {
  auto row = std::make_shared<Row>(*state.known[threads.front()]);
  std::vector<const Row*> seen{state.known[threads.front()].get()};
  for (int thread : threads) {
    const Row* other = state.known[thread].get();
    if (std::find(seen.begin(), seen.end(), other) == seen.end()) {
      add(*row, *other);
      seen.push_back(other);
    }
  }
  for (int thread : threads) (*row)[thread] = state.now;
  for (int thread : threads) state.known[thread] = row;
  ++state.now;
}

void arrive() {
  if (state.merged != state.known[current]) add(*state.coming, *state.known[current]);
  state.merged = state.known[current];
  (*state.coming)[current] = state.now++;
  if (++state.arrived < state.blocks * state.threads) return;
  state.came = state.coming;
  state.coming = std::make_shared<Row>((state.threads + 1) * state.blocks, 0);
  state.arrived = 0;
}

void wait() {
  std::shared_ptr<const Row>& own = state.known[current];
  if (own != state.with) {
    auto row = std::make_shared<Row>(*state.came);
    add(*row, *own);
    state.with = own;
    state.joined = row;
  }
  own = state.joined;
}

}  // namespace races

extern "C" {
// What was wrong since the last call.
const char* fault() {
  static std::string told;
  told = races::fault;
  races::fault.clear();
  return told.c_str();
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* place, size_t bytes) { races::read(place, bytes); }
void __tsan_write_range(void* place, size_t bytes) { races::write(place, bytes); }
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define OF_SIZE(bytes) \
  void __tsan_read##bytes(void* place) { races::read(place, bytes); } \
  void __tsan_write##bytes(void* place) { races::write(place, bytes); } \
  void __tsan_unaligned_read##bytes(void* place) { races::read(place, bytes); } \
  void __tsan_unaligned_write##bytes(void* place) { races::write(place, bytes); }
OF_SIZE(1)
OF_SIZE(2)
OF_SIZE(4)
OF_SIZE(8)
OF_SIZE(16)
}
