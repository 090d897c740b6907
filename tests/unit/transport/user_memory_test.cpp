// Placement: right bytes, nothing else touched, and the order that polling programs rely on.
#include "transport/user_memory.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace uroce::transport;

namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8) + 1);
  return bytes;
}

constexpr size_t kGuard = 64;
constexpr std::byte kCanary{0xc5};

// Places `payload` at an offset from a 64-byte boundary; the bytes around it must stay.
void check_place(size_t offset, std::span<const std::byte> payload) {
  alignas(64) static std::byte buffer[kGuard + 64 + 8192 + kGuard];
  std::memset(buffer, static_cast<int>(kCanary), sizeof buffer);
  std::byte* const destination = buffer + kGuard + offset;
  REQUIRE(place(destination, payload));
  REQUIRE(std::memcmp(destination, payload.data(), payload.size()) == 0);
  for (const std::byte* at = buffer; at < destination; ++at) REQUIRE(*at == kCanary);
  for (size_t i = 0; i < kGuard; ++i) REQUIRE(destination[payload.size() + i] == kCanary);
}

constexpr size_t kPage = 4096;

// Two pages, the second write-protected: the first store into it faults, and the handler looks
// whether everything before the boundary has been stored by then. One object at a time.
class FaultingPage {
 public:
  FaultingPage() {
    void* const memory =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    base_ = static_cast<std::byte*>(memory);
    struct sigaction action {};
    action.sa_handler = on_fault;
    REQUIRE(sigaction(SIGSEGV, &action, &previous_) == 0);
    active_ = this;
  }
  ~FaultingPage() {
    sigaction(SIGSEGV, &previous_, nullptr);
    munmap(base_, 2 * kPage);
  }
  FaultingPage(const FaultingPage&) = delete;
  FaultingPage& operator=(const FaultingPage&) = delete;

  std::byte* boundary() const { return base_ + kPage; }
  void arm(size_t before, const std::byte* expected) {
    std::memset(base_, 0, 2 * kPage);
    before_ = before;
    expected_ = expected;
    faults_ = 0;
    REQUIRE(mprotect(boundary(), kPage, PROT_READ) == 0);
  }
  int faults() const { return faults_; }
  bool complete_at_fault() const { return complete_; }

 private:
  static void on_fault(int) {
    ++active_->faults_;
    active_->complete_ = std::memcmp(active_->boundary() - active_->before_, active_->expected_,
                                     active_->before_) == 0;
    mprotect(active_->boundary(), kPage, PROT_READ | PROT_WRITE);
  }

  inline static FaultingPage* active_ = nullptr;
  std::byte* base_ = nullptr;
  struct sigaction previous_ {};
  size_t before_ = 0;
  const std::byte* expected_ = nullptr;
  int faults_ = 0;
  bool complete_ = false;
};

// One thread places blocks of one repeated counter; another polls the last word and then, at once,
// wants another word to be at least as new: the first, which a careless copy stores last, or one of
// the others in turn. Returns how many blocks the reader saw.
size_t race_placement(size_t offset, size_t words) {
  alignas(64) static uint64_t target[1024];
  std::memset(target, 0, sizeof target);
  uint64_t* const first = target + offset;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::vector<uint64_t> block(words);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
    for (uint64_t round = 1; std::chrono::steady_clock::now() < end; ++round) {
      for (uint64_t& word : block) word = round << 32 | round;
      (void)place(reinterpret_cast<std::byte*>(first), std::as_bytes(std::span(block)));
    }
    done = true;
  });
  size_t seen = 0;
  size_t polls = 0;
  uint64_t newest = 0;
  bool ordered = true;
  while (!done) {
    const size_t other = seen % 2 == 0 ? 0 : seen / 2 % words;
    const uint64_t last = __atomic_load_n(first + words - 1, __ATOMIC_ACQUIRE);
    const uint64_t word = __atomic_load_n(first + other, __ATOMIC_RELAXED);
    ordered = ordered && word >= last;
    ordered = ordered && word >> 32 == (word & 0xffffffff);  // else the word is torn
    if (++polls % 65536 == 0) std::this_thread::yield();
    if (last == newest) continue;
    newest = last;
    ++seen;
  }
  writer.join();
  CHECK(ordered);
  return seen;
}

}  // namespace

TEST_CASE("place stores all lengths at all alignments and nothing around them") {
  const std::vector<std::byte> source = pattern(400 + 16);
  for (size_t length = 0; length <= 400; ++length) {
    for (size_t offset = 0; offset < 64; offset += length < 40 ? 1 : 7) {
      const size_t skew = (length + offset) % 16;
      check_place(offset, std::span(source).subspan(skew, length));
    }
  }
}

TEST_CASE("place stores whole packets of every path MTU") {
  const std::vector<std::byte> source = pattern(8192);
  for (const size_t length : {256u, 512u, 1024u, 2048u, 4095u, 4096u, 4097u, 8192u}) {
    for (const size_t offset : {0u, 1u, 4u, 8u, 32u, 63u}) {
      check_place(offset, std::span(source).first(length));
    }
  }
}

TEST_CASE("the last piece is stored when everything before it has been") {
  const std::vector<std::byte> source = pattern(kPage + 8);
  FaultingPage page;
  for (const size_t tail : {1u, 2u, 4u, 8u}) {
    for (const size_t before :
         {1u, 7u, 8u, 9u, 31u, 32u, 63u, 64u, 65u, 200u, 1024u, 4088u, 4096u}) {
      CAPTURE(tail, before);
      page.arm(before, source.data());
      REQUIRE(place(page.boundary() - before, std::span(source).first(before + tail)));
      CHECK(page.faults() == 1);
      CHECK(page.complete_at_fault());
      CHECK(std::memcmp(page.boundary() - before, source.data(), before + tail) == 0);
    }
  }
}

TEST_CASE("a reader that polls the last word sees everything before it") {
  size_t seen = 0;
  for (const size_t offset : {0u, 1u, 7u}) {
    for (const size_t words : {2u, 37u, 512u}) seen += race_placement(offset, words);
  }
  CHECK(seen > 0);
}

TEST_CASE("copy_out copies what is there") {
  const std::vector<std::byte> source = pattern(100);
  for (size_t length = 0; length <= 100; ++length) {
    std::vector<std::byte> copy(source.size());
    REQUIRE(copy_out(copy.data(), std::span(source).first(length)));
    CHECK(std::memcmp(copy.data(), source.data(), length) == 0);
    CHECK(std::all_of(copy.begin() + static_cast<ptrdiff_t>(length), copy.end(),
                      [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("compare and swap stores only on a match and returns the original either way") {
  alignas(8) uint64_t word = 7;
  std::byte* const at = reinterpret_cast<std::byte*>(&word);
  const AtomicResult miss = compare_and_swap(at, {.compare = 8, .swap = 9});
  CHECK(miss.ok);
  CHECK(miss.original == 7);
  CHECK(word == 7);
  const AtomicResult hit = compare_and_swap(at, {.compare = 7, .swap = 9});
  CHECK(hit.ok);
  CHECK(hit.original == 7);
  CHECK(word == 9);
}

TEST_CASE("fetch and add returns the original and wraps around 2^64") {
  alignas(8) uint64_t word = ~uint64_t{0};
  std::byte* const at = reinterpret_cast<std::byte*>(&word);
  CHECK(fetch_and_add(at, 3).original == ~uint64_t{0});
  CHECK(word == 2);
  CHECK(fetch_and_add(at, 0).original == 2);
  CHECK(word == 2);
}

TEST_CASE("atomic operations of two threads on one word are all counted") {
  alignas(8) uint64_t word = 0;
  const auto add = [&word] {
    for (int i = 0; i < 20'000; ++i) {
      (void)fetch_and_add(reinterpret_cast<std::byte*>(&word), 1);
    }
  };
  std::thread other(add);
  add();
  other.join();
  CHECK(word == 40'000);
}
