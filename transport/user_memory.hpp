// The only module that loads and stores the application's memory.
//
// The memory may be polled by other threads meanwhile: stores are visible in ascending order, the
// last piece by a release store, and naturally aligned words of up to 8 bytes never tear. The
// caller has checked every range against the memory table. Functions return false when the memory
// is gone (unmapped since it was registered); callers treat that as a protection error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::transport {

// Stores a payload. Programs poll its last bytes (ib_write_lat, rsockets) and then expect to see
// everything before them, so the last aligned 8 bytes are stored last (the last bytes, when the
// payload does not end at a multiple of 8). No non-temporal stores.
[[nodiscard]] bool place(std::byte* destination, std::span<const std::byte> payload);

// Copies out of user memory, e.g. an inline request. Each byte is read once.
[[nodiscard]] bool copy_out(std::byte* destination, std::span<const std::byte> user);

struct AtomicResult {
  bool ok = false;
  uint64_t original = 0;  // in host order
};

struct CompareSwapOperands {
  uint64_t compare = 0;
  uint64_t swap = 0;
};

// Locked operations on an 8-byte word of user memory, in host order, atomic with respect to the
// application's own. `word` is 8-byte aligned: the responder has refused others (IBTA 9.4.5).
[[nodiscard]] AtomicResult compare_and_swap(std::byte* word, CompareSwapOperands operands);
[[nodiscard]] AtomicResult fetch_and_add(std::byte* word, uint64_t addend);

}  // namespace uroce::transport
