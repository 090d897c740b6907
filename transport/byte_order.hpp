// Loads and stores of big-endian fields at any alignment: what header decode and encode are made
// of.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace uroce::transport {

static_assert(std::endian::native == std::endian::little);

inline uint16_t load_be16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap16(value);
}
inline uint32_t load_be24(const std::byte* at) {
  return std::to_integer<uint32_t>(at[0]) << 16 | load_be16(at + 1);
}
inline uint32_t load_be32(const std::byte* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}
inline uint64_t load_be64(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap64(value);
}

inline void store_be16(std::byte* at, uint16_t value) {
  value = __builtin_bswap16(value);
  std::memcpy(at, &value, sizeof value);
}
inline void store_be32(std::byte* at, uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}
inline void store_be64(std::byte* at, uint64_t value) {
  value = __builtin_bswap64(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace uroce::transport
