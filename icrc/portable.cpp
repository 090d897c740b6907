// The portable engine: slicing by 16, plain C++ for any CPU.
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

// `bytes` are the slice in memory order, `state` not yet applied.
uint32_t update_slice(uint32_t state, const uint8_t (&bytes)[kSlice]) {
  uint32_t next = 0;
  for (size_t i = 0; i < sizeof(state); ++i) {
    next ^= kTables[kSlice - 1 - i][bytes[i] ^ ((state >> (8 * i)) & 0xff)];
  }
  for (size_t i = sizeof(state); i < kSlice; ++i) {
    next ^= kTables[kSlice - 1 - i][bytes[i]];
  }
  return next;
}

// Hides from the compiler where the value came from, so that it cannot load it again from memory
// that somebody else may be writing.
void forget_origin(void* value) {
  asm volatile("" : : "r"(value) : "memory");
}

uint32_t update(uint32_t state, const std::byte* data, size_t size) {
  for (; size >= kSlice; data += kSlice, size -= kSlice) {
    uint8_t bytes[kSlice];
    std::memcpy(bytes, data, kSlice);
    state = update_slice(state, bytes);
  }
  for (; size > 0; ++data, --size) {
    state = update_byte(state, static_cast<uint8_t>(*data));
  }
  return state;
}

uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size) {
  for (; size >= kSlice; source += kSlice, destination += kSlice, size -= kSlice) {
    uint8_t bytes[kSlice];
    std::memcpy(bytes, source, kSlice);
    forget_origin(bytes);
    std::memcpy(destination, bytes, kSlice);
    state = update_slice(state, bytes);
  }
  for (; size > 0; ++source, ++destination, --size) {
    std::byte byte = *source;
    forget_origin(&byte);
    *destination = byte;
    state = update_byte(state, static_cast<uint8_t>(byte));
  }
  return state;
}

}  // namespace

const EngineFunctions kPortableFunctions{update, update_copy};

}  // namespace uroce::icrc
