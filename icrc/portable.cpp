// The portable engine: slicing by 16, plain C++ for any CPU.
#include <bit>
#include <cstring>

#include "icrc/engine.hpp"
#include "icrc/polynomial.hpp"

namespace uroce::icrc {
namespace {

constexpr size_t kSlice = 16;
constexpr auto kTables = byte_tables<kSlice>();

uint32_t update_byte(uint32_t state, uint8_t byte) {
  return (state >> 8) ^ kTables[0][(state ^ byte) & 0xff];
}

struct Slice {
  uint64_t words[kSlice / sizeof(uint64_t)];  // little-endian, the first bytes first
};

uint32_t update_slice(uint32_t state, const Slice& slice) {
  uint32_t next = 0;
  size_t zeros_behind = kSlice;
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t word = i == 0 ? slice.words[0] ^ state : slice.words[1];
#pragma GCC unroll 8
    for (size_t shift = 0; shift < 64; shift += 8) {
      next ^= kTables[--zeros_behind][(word >> shift) & 0xff];
    }
  }
  return next;
}

Slice load_slice(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  Slice slice;
  std::memcpy(&slice, from, sizeof(slice));
  return slice;
}

// Hides from the compiler where the value came from, so that it cannot load it again from memory
// that somebody else may be writing.
template <typename Word>
void forget_origin(Word& value) {
  asm("" : "+r"(value));
}

uint32_t update(uint32_t state, const std::byte* data, size_t size) {
  for (; size >= kSlice; data += kSlice, size -= kSlice) {
    state = update_slice(state, load_slice(data));
  }
  for (; size > 0; ++data, --size) {
    state = update_byte(state, static_cast<uint8_t>(*data));
  }
  return state;
}

uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size) {
  for (; size >= kSlice; source += kSlice, destination += kSlice, size -= kSlice) {
    Slice slice = load_slice(source);
    forget_origin(slice.words[0]);
    forget_origin(slice.words[1]);
    std::memcpy(destination, &slice, kSlice);
    state = update_slice(state, slice);
  }
  for (; size > 0; ++source, ++destination, --size) {
    auto byte = static_cast<uint8_t>(*source);
    forget_origin(byte);
    *destination = std::byte{byte};
    state = update_byte(state, byte);
  }
  return state;
}

uint32_t update_masked(uint32_t state, const std::byte* data, const uint8_t* ones, size_t size) {
  for (; size >= kSlice; data += kSlice, ones += kSlice, size -= kSlice) {
    Slice slice = load_slice(data);
    const Slice mask = load_slice(reinterpret_cast<const std::byte*>(ones));
    slice.words[0] |= mask.words[0];
    slice.words[1] |= mask.words[1];
    state = update_slice(state, slice);
  }
  for (; size > 0; ++data, ++ones, --size) {
    state = update_byte(state, static_cast<uint8_t>(*data) | *ones);
  }
  return state;
}

}  // namespace

const EngineFunctions kPortableFunctions{update, update_copy, update_masked};

}  // namespace uroce::icrc
