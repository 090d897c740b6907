// Stores in order, with the widest registers that the CPU has.
#include "transport/user_memory.hpp"

#include <cassert>
#include <cstring>

namespace uroce::transport {

namespace {

// Keeps the compiler from moving, merging or widening the stores around it; x86 keeps their order.
inline void compiler_barrier() {
  __asm__ volatile("" ::: "memory");
}

template <typename Word>
inline void store_word(std::byte* destination, const std::byte* source) {
  Word word;
  std::memcpy(&word, source, sizeof word);
  __atomic_store_n(reinterpret_cast<Word*>(destination), word, __ATOMIC_RELAXED);
  compiler_barrier();
}

template <typename Word>
inline void release_word(std::byte* destination, const std::byte* source) {
  Word word;
  std::memcpy(&word, source, sizeof word);
  __atomic_store_n(reinterpret_cast<Word*>(destination), word, __ATOMIC_RELEASE);
}

inline bool aligned(const std::byte* at, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(at) & (alignment - 1)) == 0;
}

// Bodies of whole vectors: `size` is a multiple of kWidth, `destination` aligned to it.
// ThreadSanitizer does not know that x86 keeps the order of plain stores: readers meet them through
// the release store at the end, which it does see.

struct Sse2 {
  static constexpr size_t kWidth = 16;
  using Vector [[gnu::vector_size(kWidth), gnu::may_alias]] = uint64_t;

  __attribute__((no_sanitize("thread"))) static void store(std::byte* destination,
                                                           const std::byte* source, size_t size) {
    for (size_t at = 0; at < size; at += kWidth) {
      Vector vector;
      std::memcpy(&vector, source + at, kWidth);
      *reinterpret_cast<Vector*>(destination + at) = vector;
      compiler_barrier();
    }
  }
};

struct Avx {
  static constexpr size_t kWidth = 32;
  using Vector [[gnu::vector_size(kWidth), gnu::may_alias]] = uint64_t;

  __attribute__((target("avx"), no_sanitize("thread"))) static void store(std::byte* destination,
                                                                          const std::byte* source,
                                                                          size_t size) {
    for (size_t at = 0; at < size; at += kWidth) {
      Vector vector;
      std::memcpy(&vector, source + at, kWidth);
      *reinterpret_cast<Vector*>(destination + at) = vector;
      compiler_barrier();
    }
  }
};

struct Avx512 {
  static constexpr size_t kWidth = 64;
  using Vector [[gnu::vector_size(kWidth), gnu::may_alias]] = uint64_t;

  __attribute__((target("avx512f"), no_sanitize("thread"))) static void store(
      std::byte* destination, const std::byte* source, size_t size) {
    for (size_t at = 0; at < size; at += kWidth) {
      Vector vector;
      std::memcpy(&vector, source + at, kWidth);
      *reinterpret_cast<Vector*>(destination + at) = vector;
      compiler_barrier();
    }
  }
};

// Stores in order: pieces up to the first vector boundary, vectors, words, the last piece.
template <typename Vector>
void place_with(std::byte* destination, const std::byte* source, size_t size) {
  std::byte* const end = destination + size;
  const auto step = [&](auto word) {
    store_word<decltype(word)>(destination, source);
    destination += sizeof word;
    source += sizeof word;
  };
  // Up to an 8-byte boundary. `fits` leaves at least one byte for the last store.
  const auto fits = [&](size_t bytes) { return static_cast<size_t>(end - destination) > bytes; };
  if (!aligned(destination, 2) && fits(1)) step(uint8_t{});
  if (!aligned(destination, 4) && aligned(destination, 2) && fits(2)) step(uint16_t{});
  if (!aligned(destination, 8) && aligned(destination, 4) && fits(4)) step(uint32_t{});
  if (aligned(destination, 8)) {
    while (!aligned(destination, Vector::kWidth) && fits(8)) step(uint64_t{});
    if (fits(Vector::kWidth) && aligned(destination, Vector::kWidth)) {
      const size_t bulk =
          static_cast<size_t>(end - destination - 1) / Vector::kWidth * Vector::kWidth;
      Vector::store(destination, source, bulk);
      destination += bulk;
      source += bulk;
    }
    while (fits(8)) step(uint64_t{});
  }
  // At most 8 bytes are left; a piece that is aligned and whole goes last, by itself.
  while (true) {
    const size_t left = static_cast<size_t>(end - destination);
    const auto whole = [&](size_t bytes) { return left >= bytes && aligned(destination, bytes); };
    const size_t piece = whole(8) ? 8 : whole(4) ? 4 : whole(2) ? 2 : 1;
    if (piece == left) {
      if (piece == 8) return release_word<uint64_t>(destination, source);
      if (piece == 4) return release_word<uint32_t>(destination, source);
      if (piece == 2) return release_word<uint16_t>(destination, source);
      return release_word<uint8_t>(destination, source);
    }
    if (piece == 4) {
      step(uint32_t{});
    } else if (piece == 2) {
      step(uint16_t{});
    } else {
      step(uint8_t{});
    }
  }
}

using Placer = void (*)(std::byte*, const std::byte*, size_t);

Placer choose_placer() {
  __builtin_cpu_init();
  // 512-bit registers slow the clock of the first generation that has them; those since
  // VPCLMULQDQ do not.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
    return place_with<Avx512>;
  }
  if (__builtin_cpu_supports("avx")) return place_with<Avx>;
  return place_with<Sse2>;
}

const Placer kPlacer = choose_placer();

}  // namespace

bool place(std::byte* destination, std::span<const std::byte> payload) {
  if (!payload.empty()) kPlacer(destination, payload.data(), payload.size());
  return true;
}

bool copy_out(std::byte* destination, std::span<const std::byte> user) {
  if (!user.empty()) std::memcpy(destination, user.data(), user.size());
  return true;
}

AtomicResult compare_and_swap(std::byte* word, CompareSwapOperands operands) {
  assert(aligned(word, 8));
  uint64_t original = operands.compare;
  __atomic_compare_exchange_n(reinterpret_cast<uint64_t*>(word), &original, operands.swap, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return {true, original};
}

AtomicResult fetch_and_add(std::byte* word, uint64_t addend) {
  assert(aligned(word, 8));
  return {true, __atomic_fetch_add(reinterpret_cast<uint64_t*>(word), addend, __ATOMIC_SEQ_CST)};
}

}  // namespace uroce::transport
